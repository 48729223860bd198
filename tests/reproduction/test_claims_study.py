"The study of the papers' claims: its plan, what comes next, rows that survive, and a tiny study from start to end."

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothap_nb.checks import ConfigError
from smoothap_nb.data.glyphs import Glyphs
from smoothap_nb.data.sampling import MPerClassSampler
from smoothap_nb.reproduction.conduct import Study, character_values, conduct
from smoothap_nb.reproduction.costs import cost_of
from smoothap_nb.reproduction.ledger import Ledger, only_one
from smoothap_nb.reproduction.pretext import load_stages
from smoothap_nb.reproduction.recipes import find_entry, read_papers
from smoothap_nb.reproduction.tracks import (
    Piece,
    best_cell,
    best_settings,
    estimate,
    grid_cells,
    pieces,
    plan_hash,
    point_name,
    read_plan,
)
from smoothap_nb.train.weights import GLYPH_STAGES

HOME = str(Path(__file__).resolve().parents[2])


def invented(plan: dict, tracks: str = "fe", score=lambda piece: 0.5) -> tuple[dict, list]:
    "Rows of a whole study in which every piece has an invented value; and the pieces in the order they were done."
    rows, done = {}, []
    for _ in range(200):
        todo = pieces(plan, rows, tracks)
        if not todo:
            return rows, done
        for piece in todo:
            rows[piece.name] = {"values": dict.fromkeys(plan["plan"]["metrics"], score(piece))}
        done += todo
    raise AssertionError("the study does not end")


@pytest.fixture(scope="module")
def plan():
    return read_plan()


def test_the_plan_keeps_the_issues_minima(plan):
    assert len(plan["methods"]) == 22
    for method, entry in plan["methods"].items():
        cells = grid_cells(plan, method)
        assert len({i for i, _ in cells}) >= 4 and len({j for _, j in cells}) == 3, method
        assert list(entry["axis"]) == sorted(entry["axis"])
    assert len({len(grid_cells(plan, m)) for m in plan["methods"]}) == 1  # the same budget
    assert len(plan["track-f"]["tune_seeds"]) == 2
    networks = plan["networks"]["count"]
    assert networks >= 2 and networks * len(plan["track-f"]["seeds"]) >= 10
    assert len(plan["track-e"]["methods"]) == 4 and len(plan["track-e"]["networks"]) == 3
    hours = estimate(plan)
    assert hours["networks and features"] + hours["track F"] + hours["ablations"] <= 8 and hours["track E"] <= 4
    longest = max(*plan["track-f"]["seconds"].values(), *plan["track-e"]["seconds"].values())
    assert longest <= 15 * 60


def test_every_claim_names_rows_that_the_plan_makes(plan):
    points = {point_name(plan, a, n) for a, e in plan["ablations"].items() for n in range(len(e["points"]))}
    known = {f"main/{m}" for m in plan["methods"]} | points
    for claim in plan["claims"]:
        assert {p for step in claim["order"] for p in ([step] if isinstance(step, str) else step)} <= known
        assert claim["metric"] in plan["plan"]["metrics"]


def test_ablations_of_batches_keep_what_they_say(plan):
    "Eight or sixteen of a class fill the same batch (classes are ragged); larger batches of equal images step less."
    labels = Glyphs("metric", size=32).labels[:, -1].numpy()
    for point in plan["ablations"]["positives"]["points"]:
        sizes = [len(batch) for batch in MPerClassSampler(labels, point["classes"], point["images"]).epoch(0)]
        assert abs(sum(sizes) / len(sizes) - 128) < 5
    for point in plan["ablations"]["batch-same-images"]["points"]:
        assert point["classes"] * point["steps"] == pytest.approx(32)


def test_any_change_changes_the_hash(plan):
    assert plan_hash(plan) == plan_hash(read_plan()) and len(plan_hash(plan)) == 16
    assert plan_hash(read_plan({"track-f": {"steps": 799}})) != plan_hash(plan)


def test_a_study_ends_and_holds_what_was_promised(plan):
    rows, done = invented(plan)
    assert len({p.name for p in done}) == len(done) == len(rows)
    for method in plan["methods"]:
        mine = [p for p in done if p.kind == "main" and p.method == method]
        assert len(mine) == 12 and len({(p.network, p.seed) for p in mine}) == 12
        assert len({p.settings for p in mine}) == 1 and {p.split for p in mine} == {"test"}
        assert {p.split for p in done if p.method == method and p.kind in ("tune", "length", "retune")} <= {"val"}
    for name, entry in plan["ablations"].items():
        for number in range(len(entry["points"])):
            point = point_name(plan, name, number)
            assert sum(p.name.startswith(f"{point}/net") for p in done) >= 5
            assert sum(p.name.startswith(f"retune/{point}/rate") for p in done) == 3
    assert sum(p.kind == "e-main" for p in done) == 12


def test_a_network_is_finished_before_the_next_is_trained():
    plan, rows, order = read_plan(tiny()), {}, []
    while todo := pieces(plan, rows):
        rows[todo[0].name] = {"values": dict.fromkeys(plan["plan"]["metrics"], 0.5)}
        order.append(todo[0])
    assert [p.network for p in order] == sorted(p.network for p in order) and order[-1].network == 1
    assert {p.kind for p in order if p.network == 0} == {
        "pretext", "features", "start", "tune", "length", "main", "retune", "ablation", "e-tune", "e-main"
    }  # fmt: skip
    begun = {name: row for name, row in rows.items() if name == "pretext/net0"}  # a second worker does not wait
    assert [p.name for p in pieces(plan, begun)] == ["features/net0", "pretext/net1"]


def test_a_grid_whose_best_lies_on_its_edge_is_widened(plan):
    rate = lambda p: dict(p.settings)["rate"]
    top = lambda p: rate(p) + 10 * dict(p.settings).get("loss.tau", 0) if p.kind == "tune" else 0.5
    rows, _ = invented(plan, "f", top)  # larger is always better: up to the end of both axes
    assert dict(best_settings(plan, rows, "smooth-ap")) == {"rate": 0.3, "loss.tau": 0.3}
    assert best_cell(plan, rows, "smooth-ap")[1] == set()
    inner = lambda p: -abs(np.log10(rate(p)) + 2.5) - abs(dict(p.settings).get("loss.tau", 0) - 0.01)
    rows, done = invented(plan, "f", lambda p: inner(p) if p.kind == "tune" else 0.5)
    assert dict(best_settings(plan, rows, "smooth-ap")) == {"rate": 3e-3, "loss.tau": 0.01}
    assert sum(p.kind == "tune" and p.method == "smooth-ap" for p in done) == 24


def test_a_failed_run_is_never_the_best(plan):
    rows, _ = invented(plan, "f", lambda p: 0.5)
    best = best_cell(plan, rows, "triplet")[0]
    for seed in (0, 1):
        rows[f"tune/triplet/{best[0]},{best[1]}/seed{seed}"] = {"values": {}, "failed": "the loss is nan at step 3"}
    assert best_cell(plan, rows, "triplet")[0] != best


# --- rows on the disk -----------------------------------------------------------------------------------------------


def test_rows_of_another_plan_are_refused_and_so_is_damage(tmp_path):
    Ledger(tmp_path / "rows.json", "a", tmp_path).add("one", {"values": {}})
    with pytest.raises(ConfigError, match="was made by the plan a, and the plan is now b"):
        Ledger(tmp_path / "rows.json", "b", tmp_path).rows()
    (tmp_path / "rows.json").write_text('{"plan": "a", "rows": {')
    with pytest.raises(ConfigError, match="cannot be read"):
        Ledger(tmp_path / "rows.json", "a", tmp_path).add("two", {})


def _append(folder, worker):
    ledger = Ledger(Path(folder) / "rows.json", "p", Path(folder) / "locks")
    for n in range(15):
        ledger.add(f"{worker}-{n}", {"n": n})


def test_workers_that_append_at_once_lose_no_row(tmp_path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_append, args=(tmp_path, k)) for k in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    rows = Ledger(tmp_path / "rows.json", "p", tmp_path / "locks").rows()
    assert set(rows) == {f"{k}-{n}" for k in range(3) for n in range(15)} and rows["0-3"] == {"n": 3, "plan": "p"}


def test_a_piece_is_free_again_when_its_worker_is_killed(tmp_path):
    code = (
        f"import sys, time; sys.path.insert(0, {HOME!r}); from pathlib import Path\n"
        "from smoothap_nb.reproduction.ledger import only_one\n"
        f"with only_one(Path({str(tmp_path)!r}), 'piece') as mine:\n    print(mine, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline().strip() == "True"
    with only_one(tmp_path, "piece") as mine, only_one(tmp_path, "another") as other:
        assert not mine and other
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with only_one(tmp_path, "piece") as mine:
        assert mine


# --- a tiny study -----------------------------------------------------------------------------------------------------


def tiny(methods=("smooth-ap", "softmax")) -> dict:
    full = read_plan()
    return {
        "networks": {"count": 2, "steps": 2, "batch": 8, "characters": 12, "draws": 1, "checkpoint": 1},
        "track-f": {"steps": 2, "classes": 3, "images": 2, "dim": 8, "warmup": 0, "rates": [1e-3, 3e-3, 1e-2],
                    "first_rates": [1, 1], "tune_seeds": [0], "seeds": [0]},
        "track-e": {"methods": ["softmax"], "networks": [0], "seeds": [0], "steps": 2, "network_rate": [0.1],
                    "checkpoint": 1},
        "methods": {m: full["methods"][m] | {"axis": full["methods"][m]["axis"][:2], "first": [0, 1]} for m in methods},
        "ablations": {"tau": full["ablations"]["tau"] | {"points": [{"loss.tau": 0.1}]}}
        if "smooth-ap" in methods else {},
    }  # fmt: skip


def test_a_tiny_study_runs_to_its_end_and_starts_again_for_nothing(tmp_path):
    torch.set_num_threads(1)
    study = Study(tmp_path / "results", tmp_path / "work", tiny())
    said = []
    assert study.work(say=said.append) == len(said) > 20
    rows = study.rows()
    assert pieces(study.plan, rows) == [] and study.work(say=said.append) == 0
    row = rows["main/smooth-ap/net1/seed0"]
    assert row["plan"] == study.hash and row["environment"]["commit"] and row["date"] and row["settings"]["rate"] > 0
    labels = study.data("test").labels[:, -1]
    values, counts = character_values(row, "mAP"), labels.unique(return_counts=True)[1].numpy()
    assert (values * counts).sum() / counts.sum() == pytest.approx(row["values"]["mAP"], abs=0.003)
    assert "e/softmax/net0/seed0" in rows and "tau/tau=0.1/net1" in rows
    # the same piece gives the same numbers, a second network others
    piece = next(p for p in pieces(study.plan, {k: v for k, v in rows.items() if not k.startswith("main/")})
                 if p.name == "main/smooth-ap/net1/seed0")  # fmt: skip
    assert study.do(piece)["values"] == row["values"] != rows["main/smooth-ap/net0/seed0"]["values"]


def test_a_fresh_machine_goes_on_from_the_rows_alone(tmp_path):
    torch.set_num_threads(1)
    first = Study(tmp_path / "rows", tmp_path / "lost", tiny(("softmax",)))
    while (piece := pieces(first.plan, first.rows(), "f")[0]).network == 0:
        first.ledger(piece).add(piece.name, first.do(piece))
    shutil.rmtree(tmp_path / "lost")
    before = first.rows()
    second = Study(tmp_path / "rows", tmp_path / "fresh", tiny(("softmax",)))
    second.work("f", say=lambda line: None)
    rows = second.rows()
    assert pieces(second.plan, rows, "f") == [] and {k: rows[k] for k in before} == before
    trained = lambda: sorted(path.name[:9] for path in (tmp_path / "fresh").glob("pretext-*.safetensors"))
    assert trained() == ["pretext-1"]  # network 0 was not needed any more
    piece = next(p for p in pieces(second.plan, {k: v for k, v in rows.items() if k != "main/softmax/net0/seed0"}, "f"))
    assert piece.name == "main/softmax/net0/seed0" and second.do(piece)["values"] == rows[piece.name]["values"]
    assert trained() == ["pretext-1"]  # now it was, and its lower stages had come with the rows
    (tmp_path / "rows" / "network-0.safetensors").unlink()
    shutil.rmtree(tmp_path / "fresh")
    third = Study(tmp_path / "rows", tmp_path / "fresh", tiny(("softmax",)))
    third.features(0)
    assert trained() == ["pretext-0"]  # trained anew, and on the same processor it is the same


def test_stages_that_travel_are_taken_for_their_own_network_alone(tmp_path):
    torch.set_num_threads(1)
    study = Study(tmp_path / "rows", tmp_path / "work", tiny(("softmax",)))
    while (piece := pieces(study.plan, study.rows(), "f")[0]).kind in ("pretext", "features"):
        study.ledger(piece).add(piece.name, study.do(piece))
    path, weights = tmp_path / "rows" / "network-0.safetensors", study._weights(0)
    whole, brought = study._pretrained(0), load_stages(study.plan, 0, path, weights)
    for name, value in whole.backbone.state_dict().items():
        if not name.startswith(("layer4.", "fc.")) and value.is_floating_point():
            torch.testing.assert_close(brought.backbone.state_dict()[name], value.half().float(), rtol=0, atol=0)
    assert load_stages(study.plan, 0, path, "of another") is None
    assert load_stages(study.plan, 0, tmp_path / "nowhere.safetensors", weights) is None
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ConfigError, match="network-0.safetensors is damaged"):
        load_stages(study.plan, 0, path, weights)


def test_the_stages_of_the_package_are_those_of_network_0(tmp_path):
    "So that its rows go on anywhere, from this checkout alone."
    study = Study()
    model = load_stages(study.plan, 0, GLYPH_STAGES, study._weights(0))
    assert model is not None and load_stages(study.plan, 1, GLYPH_STAGES, study._weights(1)) is None


def test_a_network_that_was_lost_is_not_taken_for_another(tmp_path):
    torch.set_num_threads(1)
    study = Study(tmp_path / "results", tmp_path / "work", tiny(("softmax",)))
    study.ledgers["network-0"].add("pretext/net0", {"weights": "of another", "values": {}})
    with pytest.raises(ConfigError, match="made with weights of fingerprint of another.*network-0.json away"):
        study.features(0)
    # losses that fine-tune whole networks start alike: from what the first of them started from
    given = (("rate", 0.1), ("network_rate", 0.1))
    piece = Piece("e/softmax/net0/seed0", "e-main", "e", "softmax", split="test", steps=2, settings=given)
    assert study.do(piece)["weights"] != "of another"
    study.ledgers["network-0"].add("e/smooth-ap/net0/seed0", {"weights": "of a third", "values": {}})
    with pytest.raises(ConfigError, match="made with weights of fingerprint of a third"):
        study.do(piece)


def test_a_pretext_network_goes_on_where_it_was_killed(tmp_path, monkeypatch):
    from smoothap_nb.reproduction import pretext

    torch.set_num_threads(1)
    plan, seen = read_plan(tiny(("softmax",))), []
    whole = pretext.fingerprint(pretext.load_pretext(plan, 0, tmp_path / "a"))
    save = pretext.save_checkpoint

    def then_die(folder, step, *rest, **more):
        save(folder, step, *rest, **more)
        seen.append(step)
        raise KeyboardInterrupt

    monkeypatch.setattr(pretext, "save_checkpoint", then_die)
    with pytest.raises(KeyboardInterrupt):
        pretext.train_pretext(plan, 0, tmp_path / "b")
    monkeypatch.setattr(pretext, "save_checkpoint", save)
    assert seen == [1] and pretext.fingerprint(pretext.load_pretext(plan, 0, tmp_path / "b")) == whole


@pytest.mark.slow
def test_every_loss_takes_part(tmp_path):
    torch.set_num_threads(1)
    changes = tiny(tuple(read_plan()["methods"]))
    changes["ablations"] = {}
    study = Study(tmp_path / "results", tmp_path / "work", changes)
    study.work("f", say=lambda line: None)
    rows = study.rows()
    assert not [k for k, v in rows.items() if v.get("failed")]
    assert {v["method"] for v in rows.values()} - {""} == set(study.plan["methods"])


@pytest.mark.slow
def test_two_workers_share_a_study_and_a_killed_one_costs_nothing(tmp_path):
    given = {"results": str(tmp_path / "r"), "workers": 2, "folder": str(tmp_path / "w"), "changes": tiny()}
    code = "import json; from smoothap_nb.reproduction.conduct import conduct; conduct(**json.loads("
    code += f"{json.dumps(given)!r}))"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": HOME}, start_new_session=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    path = tmp_path / "r" / "network-0.json"
    while not path.exists() and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = json.loads(path.read_text())["rows"]
    rows = conduct(**given, say=lambda line: None)
    assert {k: rows[k] for k in before} == before
    assert pieces(read_plan(given["changes"]), rows) == []


def test_the_plan_for_a_gpu_fits_its_budget():
    changes = read_papers("claims-gpu.toml")
    plan, e = read_plan(changes), changes["track-e"]
    assert set(e["methods"]) <= set(plan["methods"]) and len(e["methods"]) == 10
    assert len(e["networks"]) * len(e["seeds"]) >= 5 and plan_hash(plan) != plan_hash(read_plan())
    runs = len(e["networks"]) * len(e["seeds"]) * e["seconds"]["main"] + len(e["network_rate"]) * e["seconds"]["tune"]
    assert len(e["methods"]) * runs + plan["networks"]["count"] * e["seconds"]["pretext"] <= 40 * 60
    assert max(e["seconds"].values()) <= 9 * 60


@pytest.mark.slow
def test_the_study_for_a_gpu_runs_in_toy_sizes_on_a_pretended_card(tmp_path):
    from benchmarks.pretend import pretended_cuda

    torch.set_num_threads(1)
    changes = read_papers("claims-gpu.toml")
    plan, e = read_plan(changes), changes["track-e"]
    rows = Ledger(tmp_path / "tuned" / "tuning.json", plan_hash(read_plan()), tmp_path / "locks")
    one = {"values": dict.fromkeys(plan["plan"]["metrics"], 0.5), "method": "softmax", "kind": "tune"}
    for i in range(10):
        for j in range(4):
            for seed in (0, 1):
                rows.add(f"tune/softmax/{i},{j}/seed{seed}", one)
    small = {"networks": {**changes["networks"], "steps": 1, "batch": 4, "characters": 6, "size": 32, "count": 1},
             "track-f": {"dim": 8, "classes": 2, "images": 2},
             "track-e": {**e, "networks": [0], "seeds": [0], "steps": 1, "network_rate": [0.1]}}  # fmt: skip
    with pretended_cuda():
        study = Study(tmp_path / "rows", tmp_path / "work", small, "cuda", tmp_path / "tuned")
        assert [p.name for p in pieces(study.plan, study.rows(), "e")] == ["pretext/net0"]  # the tuning is another's
        study.work("e", say=lambda line: None)
    assert pieces(study.plan, study.rows(), "e") == [] and study.rows()["e/softmax/net0/seed0"]["values"]["mAP"] > 0


def test_the_hours_of_the_recipe_for_photographs_are_those_of_the_cost_model():
    text = " ".join((Path(HOME) / "docs" / "reproduce.md").read_text(encoding="utf-8").split())
    hours = lambda name, card: 50 * cost_of(find_entry(name))["hours"][card]
    a100, h100 = hours("sop/ha-smooth-ap", "A100"), hours("sop/ha-smooth-ap", "H100")
    assert f"trainings take {a100:.0f} hours of an A100 or {h100:.0f} of an H100 for SOP" in text
    assert f"and {hours('cub/triplet', 'A100'):.0f} or {hours('cub/triplet', 'H100'):.1f} for CUB" in text


def test_the_command_starts_the_study_and_refuses_what_is_no_track(monkeypatch, tmp_path):
    from typer.testing import CliRunner

    from smoothap_nb.cli.commands import app

    asked = []
    monkeypatch.setattr("smoothap_nb.reproduction.conduct.conduct", lambda *given, **more: asked.append(given))
    words = ["reproduce", "claims/f", "--workers", "2", "--minutes", "3", "--record", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and asked == [(tmp_path, 2, "f", 3.0)], done.output
    assert CliRunner().invoke(app, words[:2]).exit_code == 0 and asked.pop()[0] == Path("docs/results/claims")
    done = CliRunner().invoke(app, ["reproduce", "claims/g"])
    assert done.exit_code != 0 and "there is no track 'g'" in done.output + str(done.exception) and len(asked) == 1
