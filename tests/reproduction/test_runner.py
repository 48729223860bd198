"""The papers' tables: every row has its experiment, damage is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import smoothap_nb.reproduction as rp
import smoothap_nb.reproduction.runner  # noqa: F401, as rp.runner
from smoothap_nb.checks import ConfigError

# --- the registry ----------------------------------------------------------------------------------------------------

TABLES = (
    {("SmoothAP", t) for t in ("2", "3 (left)", "3 (right)", "4", "5", "S1")}
    | {("RaMBO", t) for t in "23467"}
    | {("HAPPIER", t) for t in "123456"}
    | {("RecallAtK", "leaderboard"), ("PNP", "leaderboard")}
)


def test_every_row_of_the_papers_is_ours_a_baseline_or_cited():
    kinds = {}
    for row in rp.paper_rows():
        kind, entries, why = rp.entries_for(row)  # raises where the registry says nothing
        assert kind in ("ours", "baseline", "cited") and bool(entries) != bool(why), row
        kinds.setdefault((row["paper"], row["table"]), set()).add(kind)
    assert {place for place in kinds if rp.in_tables(dict(zip(("paper", "table"), place)))} == TABLES
    assert all("ours" in kinds[place] for place in TABLES)


def test_a_row_that_the_registry_does_not_know_fails():
    row = {**rp.paper_rows()[0], "method": "A method of tomorrow"}
    with pytest.raises(
        ConfigError, match="neither an experiment nor a reason for SmoothAP 2, SOP, 'A method of tomorrow'"
    ):
        rp.entries_for(row)


def test_no_experiment_and_no_reason_is_left_over():
    rows = rp.paper_rows()
    used = {e.name for row in rows for e in rp.entries_for(row)[1]}
    assert used == set(rp.registry())
    for entry in rp.registry().values():
        for paper, table, method, batch in entry.rows:
            assert any(
                (r["paper"], r["table"], r["method"]) == (paper, table, method) and batch in ("", r["batch_size"])
                for r in rows
            ), (entry.name, table, method)
    for place, methods in rp.read_papers("registry.toml")["cited"].items():
        assert set(methods) <= {r["method"] for r in rows if f"{r['paper']} {r['table']}" == place}


def what_is_read(experiment) -> set[str]:
    """Every setting that the transform, the sampler, the network, the loss and the optimiser of an experiment read,
    and that can change a number.
    """
    keys = {
        f"data.{k}" for k in ("size", "resize", "squash", "train_resize", "crop_scale", "crop_ratio", "flip", "levels")
    }
    keys |= {f"model.{k}" for k in ("backbone", "dim", "weights", "stem", "pool", "batch_norm", "layer_norm")} | {
        "loss",
        "memory.size",
    }
    keys |= {"batch.classes", "batch.images", "batch.sampler"}
    keys |= (
        {"batch.per_pair"}
        if experiment.batch.sampler in ("super_pairs", "super_pairs_random", "paired_classes")
        else set()
    )
    keys |= {"batch.super_classes"} if experiment.batch.sampler in ("super_pairs_random", "hierarchical") else set()
    optim = experiment.optim
    keys |= {
        f"optim.{k}"
        for k in (
            "optimizer",
            "lr",
            "head_lr",
            "weight_decay",
            "decay",
            "warmup",
            "head_warmup",
            "schedule",
            "clip",
            "precision",
        )
    }
    keys |= {"optim.epochs"} if optim.epochs else {"optim.steps"}
    keys |= {
        "step": {"optim.milestones", "optim.gamma"},
        "cosine": {"optim.floor", "optim.head_floor"},
        "constant": set(),
    }[optim.schedule]
    keys |= {"optim.momentum", "optim.nesterov"} if optim.optimizer == "sgd" else set()
    # losses that learn proxies
    if any(word in json.dumps(experiment.loss) for word in ("happier", "cluster", "csl", "Proxy", "Softmax")):
        keys |= {"optim.proxy_optimizer", "optim.proxy_lr", "optim.proxy_weight_decay"} | (
            {"optim.proxy_floor"} if optim.schedule == "cosine" else set()
        )
    return keys | ({"validate.metric", "validate.as_paper"} if experiment.validate.every else set())


def test_recall_at_k_trains_on_batches_of_4000_in_pieces_of_200():
    paper, code = (rp.find_entry(f"sop/recall-at-k{of}").experiment() for of in ("", "@code"))
    for run in (paper, code):
        assert (run.batch.classes, run.batch.images, run.batch.micro) == (1000, 4, 200)
        assert (run.optim.lr, run.optim.head_lr) == (2e-4, 2e-4)
        assert (run.optim.epochs, list(run.optim.milestones)) == (55, [25, 50])
    assert not paper.loss.get("include_query") and code.loss["include_query"]  # the query competes in the code alone


def test_pnp_trains_as_the_command_of_its_authors_says():
    paper, code = (rp.find_entry(f"sop/pnp{of}").experiment() for of in ("", "@code"))
    for run in (paper, code):
        assert (run.batch.classes, run.batch.images, run.model.dim) == (96, 4, 512)
        assert (run.optim.lr, run.optim.head_lr, run.optim.weight_decay) == (1e-5, 1e-5, 4e-4)
        assert run.optim.steps == 400 * (59551 // 384)
        assert [step // (59551 // 384) for step in run.optim.milestones] == [120, 220, 250, 280]
        assert (run.loss["variant"], run.loss["alpha"]) == ("Dq", 4.0)
    assert not paper.loss.get("include_query") and code.loss["include_query"]


def test_every_experiment_loads_and_every_setting_has_its_source():

    for entry in rp.registry().values():
        if entry.measure != "retrieval":
            continue
        experiment = entry.experiment()
        assert experiment.name == entry.name and experiment.data.name == entry.settings["data.name"]
        unsourced = (
            (set(entry.settings) | what_is_read(experiment))
            - set(entry.sources)
            - {"data.name", "evaluate.metrics", "evaluate.baselines"}
        )
        assert not unsourced and all(source.strip() for source in entry.sources.values()), (entry.name, unsourced)
        assert (entry.kind == "baseline") == ("pml." in json.dumps(entry.settings["loss"])), entry.name
        assert experiment.batch.classes * experiment.batch.images in (64, 128, 224, 256, 384, 4000), entry.name


def test_settings_of_the_papers_tables():
    "A few of them by hand, from the papers."
    at = lambda name: rp.find_entry(name).experiment()
    e = at("sop/smooth-ap-bs384")
    assert (e.batch.classes, e.batch.images, e.optim.lr, e.optim.weight_decay, e.loss) == (
        96,
        4,
        1e-5,
        4e-5,
        {"name": "smooth_ap", "tau": 0.01},
    )
    assert (
        at("inat/smooth-ap-bs384@code").optim.weight_decay == 4e-4
        and at("inat/smooth-ap-bs384@code").loss["include_query"]
    )
    assert "sop/smooth-ap-bs384@code" not in rp.registry()  # the released code knows no SOP
    assert (e.batch.sampler, e.optim.epochs, e.optim.steps) == ("paired_classes", 0, 400 * 155) and at(
        "inshop/rambo-log"
    ).batch.images == 8
    for name, squash, floors in (
        ("sop/happier", True, (0, 0, 0.01)),
        ("inat-base/happier", False, (0.1, 0.05, 0.05)),
        ("dyml-product/happier", False, (1e-3, 5e-4, 5e-4)),
    ):
        assert (
            at(name).data.squash == squash
            and (at(name).optim.floor, at(name).optim.head_floor, at(name).optim.proxy_floor) == floors
        )
    assert (
        at("dyml-animal/csl").model.layer_norm
        and at("inat-full/csl").optim.proxy_weight_decay == 4e-4
        and at("dyml-vehicle/csl").optim.proxy_weight_decay == 1e-4
    )
    assert at("sop/happier-f@code").loss["cluster_weight"] == 0.5 and at("sop/happier-f").loss["cluster_weight"] == 0.1
    assert at("inat/smooth-ap-bs224").optim.head_lr == 2e-5 and at("vehicleid/smooth-ap-bs384").optim.milestones == [
        200,
        300,
    ]
    assert at("inshop/rambo-log").loss == {"name": "recall", "weight": "log", "lam": 0.2, "margin": 0.05, "memory": 3}
    assert (
        at("sop/happier").optim.lr == 1e-5
        and at("sop/happier@code").optim.lr == 5e-5
        and at("sop/happier-f").loss["alpha"] == 5
    )
    assert (
        at("dyml-animal/happier").loss["cluster_weight"] == 0.1
        and at("dyml-animal/happier@code").loss["cluster_weight"] == 0.5
    )
    assert [t["level"] for t in at("inat-full/sum-nsm").loss["terms"]] == [1, 2, 3, 4, 5, 6, 7]


def test_a_variant_exists_exactly_where_the_code_differs():
    for name, entry in rp.registry().items():
        if name.endswith("@code"):
            assert entry.settings != rp.find_entry(name.removesuffix("@code")).settings


def test_guesses_are_marked():
    assert (
        "optim.steps" in rp.find_entry("sop/smooth-ap-bs384").guesses
        and "optim.lr" not in rp.find_entry("sop/smooth-ap-bs384").guesses
    )
    assert "guess" in rp.show_entry(rp.find_entry("sop/rambo-log"))


def test_a_sum_of_weighted_aps_takes_its_weights():
    assert rp.weighted_ap({"AP@level1": 0.2, "AP@level2": 0.6}, [0.25, 0.75]) == pytest.approx(0.5)
    row = next(r for r in rp.paper_rows() if r["metric"] == "sum w AP")
    assert rp.obtained(
        row, [{"metrics": {"test": {"AP@level1": 0.2, "AP@level2": 0.6}}}, {"metrics": {"test": {"AP@level1": 0.2}}}]
    ) == [pytest.approx(40.0)]
    assert "guess" in rp.read_papers("registry.toml")["comparisons"]["sum w AP"]["source"]


@pytest.mark.parametrize("name, nearest", [("sop/smooth-ap-bs38", "sop/smooth-ap-bs384"), ("nothing", "--list")])
def test_an_unknown_experiment_names_the_nearest(name, nearest):
    with pytest.raises(ConfigError, match=nearest):
        rp.find_entry(name)


def test_patterns_find_entries():
    assert [e.name for e in rp.find_entries("inshop/rambo-log*")] == [
        "inshop/rambo-log",
        "inshop/rambo-log@code",
        "inshop/rambo-log-log",
        "inshop/rambo-log-log@code",
    ]
    assert all("happier" in e.name for e in rp.find_entries("happier")) and rp.find_entries("*/csl")


def test_every_number_knows_where_it_would_be_measured():
    for row in rp.paper_rows():
        if not rp.in_tables(row) or row["metric"] in ("complexity", "sum w AP"):
            continue
        protocol, metric, factor = rp.key_of(row)
        for entry in rp.entries_for(row)[1]:
            if entry.measure == "retrieval":
                assert metric in entry.settings["evaluate.metrics"], (entry.name, metric)
    key = lambda **row: rp.key_of({"paper": "HAPPIER", "table": "4", "dataset": "iNat-full", "protocol": "", **row})
    assert key(metric="AP (genus)") == ("test", "AP@level6", 100.0) and key(metric="AP (species)") == (
        "test",
        "AP@level7",
        100.0,
    )
    assert key(metric="AP (kingdom)") == ("test", "AP@level1", 100.0) and key(dataset="SOP", metric="AP (coarse)") == (
        "test",
        "AP@level1",
        100.0,
    )
    assert key(paper="SmoothAP", dataset="VehicleID", protocol="Medium (1600 classes)", metric="R@5") == (
        "medium",
        "R@5",
        100.0,
    )
    assert key(paper="SmoothAP", dataset="IJB-C", metric="mAP (fraction)") == ("ijbc", "mAP", 1.0)
    assert key(dataset="DyML-Animal", metric="ASI") == ("mean", "ASI", 100.0)


@pytest.mark.parametrize(
    "text, value", [("79.2", 79.2), ("33 ms", 0.033), ("3.86 s", 3.86), ("", None), ("O(n log n)", None)]
)
def test_printed_numbers(text, value):
    assert rp.printed(text) == (pytest.approx(value) if value is not None else None)


# --- results and the page ---------------------------------------------------------------------------------------------

HERE = {"commit": "abc123", "hardware": "a GPU", "torch": "2.15"}


def result(
    name: str = "sop/smooth-ap-bs384", r1: float = 0.795, seed: int = 0, miniature: bool = False, **more
) -> dict:
    return {
        "experiment": name,
        "kind": "ours",
        "miniature": miniature,
        "changed": {},
        "seed": seed,
        "metrics": {"test": {"R@1": r1, "R@10": 0.9}},
        "date": "2026-11-21",
        "environment": HERE,
        "config": {},
        **more,
    }


def line_of(page: str, name: str) -> str:
    return next(line for line in page.splitlines() if f"`{name}`" in line).replace("\N{NO-BREAK SPACE}", " ")


def test_the_page_follows_from_the_results_of_this_tree():
    docs = Path(rp.__file__).resolve().parents[2] / "docs"
    assert (docs / "reproduction.md").read_text(encoding="utf-8") == rp.reproduction_page(docs / "results"), (
        "run smoothap reproduce --render"
    )


def test_a_result_reaches_its_line_with_gap_and_provenance(tmp_path):
    page = rp.reproduction_page(tmp_path)
    assert "None of the" in page and page.index("<details>") < page.index("`sop/smooth-ap-bs384`")
    rp.keep(result(), tmp_path / "reproduce-sop.json")
    line = line_of(rp.reproduction_page(tmp_path), "sop/smooth-ap-bs384")
    assert "R@1 79.5, R@10 90.0" in line and "R@1 -0.6, R@10 -1.5" in line and "`abc123`, a GPU, 2026-11-21" in line
    rp.keep(result(r1=0.815, seed=1), tmp_path / "reproduce-sop.json")
    assert "R@1 80.5, R@10 90.0 (2 seeds)" in line_of(rp.reproduction_page(tmp_path), "sop/smooth-ap-bs384")


def test_a_miniature_or_a_changed_run_never_fills_a_table(tmp_path):
    empty = rp.reproduction_page(tmp_path)
    rp.keep(result(miniature=True), tmp_path / "reproduce-a.json")
    rp.keep(result(changed={"optim.lr": 1.0}), tmp_path / "reproduce-b.json")
    assert rp.reproduction_page(tmp_path) == empty


@pytest.mark.parametrize(
    "text", ['{"runs": [{"exp', "[]", '{"runs": [{"experiment": "sop/csl"}]}', '{"runs": 3}', "\x00\x01"]
)
def test_a_damaged_results_file_is_named_and_skipped(tmp_path, text):
    rp.keep(result(), tmp_path / "reproduce-good.json")
    (tmp_path / "reproduce-bad.json").write_text(text)
    page = rp.reproduction_page(tmp_path)
    assert "reproduce-bad.json cannot be read and is skipped" in page and "R@1 79.5" in line_of(
        page, "sop/smooth-ap-bs384"
    )
    with pytest.raises(ConfigError, match="reproduce-bad.json"):
        rp.keep(result(), tmp_path / "reproduce-bad.json")
    assert (tmp_path / "reproduce-bad.json").read_text() == text


def test_named_rows_are_read_and_damage_is_named(tmp_path):
    path = tmp_path / "rows.json"
    assert rp.read_rows(path) == ({}, [])
    path.write_text('{"rows": {"main/')
    rows, trouble = rp.read_rows(path)
    assert rows == {} and "rows.json cannot be read" in trouble[0]
    path.write_text(json.dumps({"rows": {"a": {"metrics": {}}, "b": 3}}))
    rows, trouble = rp.read_rows(path)
    assert list(rows) == ["a"] and "'b'" in trouble[0]


def test_the_comparison_from_nothing_is_one_table_best_first(tmp_path):
    assert "too early\n\nNot run." in rp.reproduction_page(tmp_path)
    row = lambda method, mAP, steps=350: {
        "method": method, "steps": steps, "date": "2026-01-01", "environment": HERE,
        "metrics": {"mAP": mAP, "R@1": 2 * mAP, "H-AP": 0.25},
    }  # fmt: skip
    rows = {
        "tune/triplet/lr=0.001": row("triplet", 0.9, 115),
        "main/untrained/seed0": row("untrained", 0.01, 0),
        **{f"main/triplet/seed{seed}": row("triplet", 0.1 + 0.1 * seed) for seed in range(3)},
        "main/smooth-ap/seed0": row("smooth-ap", 0.4),
        "main/fast-ap/seed0": {"metrics": {}},
        "tau/tau=0.1": row("smooth-ap", 0.7),
    }
    lines = rp.too_early_table(rows).splitlines()
    assert lines[2:] == [
        "| Smooth-AP | 0.400 | 0.800 | 0.250 |",
        "| triplet, semi-hard | 0.200 (0.100 to 0.300) | 0.400 (0.200 to 0.600) | 0.250 (0.250 to 0.250) |",
        "| untrained | 0.010 | 0.020 | 0.250 |",
    ]
    assert rp.from_nothing(rows) == [0.4] and rp.from_nothing(rows, "fast-ap") == []
    (tmp_path / "glyph-claims-cpu.json").write_text(json.dumps({"rows": rows}))
    page = rp.reproduction_page(tmp_path)
    assert "2 methods, and 1 that learn nothing" in page and "350 steps, with settings from tuning runs of 115" in page
    assert "\n".join(lines) in page and "commit `abc123`, a GPU" in page
    (tmp_path / "glyph-claims-cpu.json").write_text("{")
    page = rp.reproduction_page(tmp_path)
    assert "**glyph-claims-cpu.json cannot be read and is skipped" in page and "too early\n\nNot run." in page


# --- miniatures -------------------------------------------------------------------------------------------------------

def test_times_of_toy_sizes():
    run = rp.reproduce("times/smooth-ap-bs112", miniature=True, say=lambda text: None, device="cpu")
    assert set(run["metrics"]["times"]) == {"backbone time (ms)", "loss time (ms)"} and run["miniature"]
    run = rp.reproduce("times/rambo-ap-cpu", miniature=True, say=lambda text: None)
    assert set(run["metrics"]["times"]) == {"1k", "10k"}


SAMPLE = ("inat/smooth-ap-bs384@code", "dyml-vehicle/happier")  # in the default tests; the marker has the others
RETRIEVAL = [name for name, entry in rp.registry().items() if entry.measure == "retrieval"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLE else [pytest.mark.miniature]) for name in RETRIEVAL]
)
def test_an_experiment_runs_from_pictures_to_metrics_on_its_miniature(name, tmp_path):
    run = rp.reproduce(
        name, miniature=True, record=tmp_path / "r.json", progress=False, say=lambda text: None, device="cpu"
    )
    entry = rp.find_entry(name)
    for row in rp.paper_rows():
        if not rp.in_tables(row) or name not in [e.name for e in rp.entries_for(row)[1]] or row["metric"] == "sum w AP":
            continue
        protocol, metric, _ = rp.key_of(row)
        assert protocol in run["metrics"], (protocol, list(run["metrics"]))
        if not metric.startswith("R@") or int(metric[2:]) < 30:
            assert 0 <= run["metrics"][protocol][metric] <= 1
    assert run["miniature"] and rp.read_runs(tmp_path)[0] == {} and entry.kind == run["kind"]


def test_rows_of_the_gpu_suite_are_read_with_units_and_those_not_run_say_so(tmp_path):
    rows = {
        "loss/batch 384": {"metrics": {}, "not_run": "needs a CUDA device"},
        "loss/batch 8": {"metrics": {"A ms": 2.3994, "A MB": 2485.4, "share of it": 0.0456789}},
        "list": {"metrics": {"ms": 17.26}},
    }
    (tmp_path / "gpu-suite.json").write_text(json.dumps({"rows": rows}))
    page = rp.reproduction_page(tmp_path).replace("\N{NO-BREAK SPACE}", " ")
    assert "| loss/batch 384 | not run: needs a CUDA device |" in page
    assert "| loss/batch 8 | A 2.4 ms, 2,485 MB; share of it 0.04568 |" in page and "| list | 17.3 ms |" in page
    (tmp_path / "gpu-suite.json").write_text("{")
    assert "**gpu-suite.json cannot be read and is skipped" in rp.reproduction_page(tmp_path)


def test_the_command_line_lists_shows_and_names_the_nearest():
    from typer.testing import CliRunner

    from smoothap_nb.cli.commands import app

    run = lambda *words: CliRunner().invoke(app, ["reproduce", *words])
    assert "HAPPIER Table 1, HAPPIER" in run("--list", "sop/happier").stdout
    shown = run("sop/smooth-ap-bs384", "--show", "--set", "batch.micro=48").stdout
    assert (
        "# Smooth-AP 5.3" in shown
        and "62,000 steps, 23,808,000 pictures" in shown
        and "A100" in shown
        and "guess: 400 epochs" in shown
    )
    from smoothap_nb.train.config import experiment_from_dict
    import tomllib

    assert experiment_from_dict(tomllib.loads(shown)) == rp.find_entry("sop/smooth-ap-bs384").experiment(
        {"batch.micro": 48}
    )
    assert "did you mean 'sop/csl'" in str(run("sop/cls").exception)
    assert "--list" in str(run().exception)
    assert "smoothap reproduce claims" in str(run("glyphs").exception) and "\nclaims " in run("--list").stdout


# --- a run that counts ----------------------------------------------------------------------------------------------

def test_practical_settings_keep_the_row(tmp_path):
    entry = rp.find_entry("sop/smooth-ap-bs384")
    changed = lambda **settings: rp.changed_settings(
        entry, entry.experiment({key.replace("__", "."): value for key, value in settings.items()})
    )
    assert changed(data__root="/d", data__workers=3, evaluate__batch=7, batch__micro=48, seed=5, data__cache="/c") == {}
    assert changed(optim__lr=1.0) == {"optim.lr": 1.0} and changed(data__cache="/c", data__cache_side=256) == {
        "data.cache": "/c",
        "data.cache_side": 256,
    }
    (tmp_path / "w.pth").write_bytes(b"not ImageNet's")
    assert list(changed(model__weights=str(tmp_path / "w.pth"))) == ["model.weights"]


def test_the_best_on_the_test_set_and_the_last_are_both_kept(tmp_path):
    run = rp.reproduce(
        "inshop/rambo-log", miniature=True, run=tmp_path / "run", progress=False, say=lambda text: None, device="cpu"
    )
    assert run["weights"]["chosen"] == "best on test" and set(run["metrics_last"]) == set(run["metrics"])
    assert run["metrics"]["test"]["R@1"] >= run["metrics_last"]["test"]["R@1"] - 1e-9
    kept = json.loads((tmp_path / "run" / "reproduce.json").read_text())["runs"]
    assert len(kept) == 1 and kept[0]["metrics"] == run["metrics"] and kept[0]["miniature"]


def test_seeds_have_folders_of_their_own_outside_the_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        rp.runner,
        "_train_and_measure",
        lambda entry, experiment, run, *rest: result(seed=experiment.seed, run=str(run), date="2026-01-01"),
    )
    for seed in (0, 1):
        rp.reproduce("sop/smooth-ap-bs384", settings={"seed": seed}, say=lambda text: None, device="cpu")
    assert sorted(p.as_posix() for p in Path(".").rglob("reproduce.json")) == [
        f"runs/sop/smooth-ap-bs384/seed{seed}/reproduce.json" for seed in (0, 1)
    ]
    runs, trouble = rp.read_runs(tmp_path / "runs")
    assert [run["seed"] for run in runs["sop/smooth-ap-bs384"]] == [0, 1] and not trouble
    assert "(2 seeds)" in line_of(rp.reproduction_page(tmp_path / "runs"), "sop/smooth-ap-bs384")


def test_rows_that_cannot_be_reproduced_say_why():
    with pytest.raises(ConfigError, match="cannot be reproduced here: .*VGGFace2.*1 x 1"):
        rp.reproduce("faces/senet-smooth-ap", device="cpu")


TOGETHER = """
import sys
import torch; torch.set_num_threads(1)
import smoothap_nb.reproduction as rp
import smoothap_nb.reproduction.runner  # noqa: F401, as rp.runner
data, run, micro, workers, asked, given = sys.argv[1:]
# what the row asks for on a miniature: the weights of a file, as the row itself asks for ImageNet's; and plain small
# steps, since Adam's first ones blow rounding up (in double precision the processes agree to 1e-17)
rp.runner.MINIATURE |= {"model.weights": asked, "optim.optimizer": "sgd", "optim.lr": 1e-4, "optim.head_lr": 1e-4}
settings = {"batch.micro": int(micro), "data.workers": int(workers), "model.weights": given, "checkpoint_every": 1}
rp.reproduce("sop/smooth-ap-bs384", data, settings, run, miniature=True, progress=False, device="cpu")
"""


def start(folder: Path, processes: int, run: str, *words):
    "The program above, by itself or by torchrun with gloo."
    import os
    import subprocess
    import sys

    (folder / "program.py").write_text(TOGETHER)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        [sys.executable, *launcher, *map(str, (folder / "program.py", folder / "sop", folder / run, *words))],
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def family(number: int) -> list[int]:
    "A process and all that came from it: torchrun gives its workers sessions of their own."
    children = Path(f"/proc/{number}/task/{number}/children")
    below = children.read_text().split() if children.exists() else []
    return [number, *(one for child in below for one in family(int(child)))]


def kill_after_the_first_step(process, run: Path) -> None:
    "kill -9 to the launcher and all its processes, when a checkpoint of step 1 is there and the run is not over."
    import os
    import signal
    import time

    deadline = time.monotonic() + 200
    while process.poll() is None and time.monotonic() < deadline and not list(run.glob("checkpoints/step-00000001")):
        time.sleep(0.01)
    for number in reversed(family(process.pid)):
        os.kill(number, signal.SIGKILL)
    process.wait()
    assert list(run.glob("checkpoints/step-*")) and not (run / "reproduce.json").exists()


@pytest.mark.slow
def test_two_killed_processes_give_the_record_of_one(tmp_path):
    """A miniature of SOP in the official layout. Two gloo processes with micro-batches, workers, weights from a file
    of their own and kill -9 in the middle give the record of one undisturbed process, and that record is in the table.
    """
    import shutil

    import torch
    import torchvision
    from safetensors.torch import load_file
    from typer.testing import CliRunner

    from smoothap_nb.cli.commands import app
    from smoothap_nb.data.miniatures import make_miniature

    torch.manual_seed(0)
    network = torchvision.models.resnet18().state_dict()
    bare = {f"module.{k}": v for k, v in network.items() if not k.startswith("fc.")}
    asked, given = tmp_path / "w.pth", tmp_path / "same.pth"  # the same bytes under another name
    torch.save({"state_dict": bare}, asked)
    shutil.copy(asked, given)
    make_miniature("sop", tmp_path / "sop")

    alone = start(tmp_path, 1, "alone", 0, 1, asked, asked)
    assert (said := alone.communicate(timeout=300)[0]) and alone.returncode == 0, said
    kill_after_the_first_step(start(tmp_path, 2, "together", 5, 2, asked, given), tmp_path / "together")
    again = start(tmp_path, 2, "together", 5, 2, asked, given)
    said = again.communicate(timeout=300)[0]
    # one process speaks
    assert again.returncode == 0 and said.count("resumed at step") == 1 and said.count("written:") == 1, said

    (one,), (two,) = (rp.runs_of(tmp_path / run / "reproduce.json")[0] for run in ("alone", "together"))
    assert one["changed"] == two["changed"] == {} and two["environment"]["processes"] == 2
    same = ("experiment", "kind", "miniature", "seed", "weights")
    assert {key: one[key] for key in same} == {key: two[key] for key in same}
    weights = [load_file(tmp_path / run / "model.safetensors") for run in ("alone", "together")]
    for key, tensor in weights[0].items():
        torch.testing.assert_close(
            weights[1][key], tensor, rtol=1e-4, atol=1e-6, msg=lambda said, key=key: f"{key}: {said}"
        )
    for name, value in one["metrics"]["test"].items():  # of 60 pictures; two of them may change places by rounding
        assert two["metrics"]["test"][name] == pytest.approx(value, abs=0.04), name

    table = CliRunner().invoke(app, ["results", str(tmp_path / "together"), "--miniatures"])
    line = line_of(table.stdout, one["experiment"])
    assert table.exit_code == 0 and f"R@1 {100 * two['metrics']['test']['R@1']:.1f}" in line, line
    # a miniature's number is shown on request alone
    assert "No row of the papers" in rp.obtained_table(rp.read_runs(tmp_path / "together")[0])


def test_the_cost_of_an_experiment():
    "Steps by the sampler; memory that micro-batches bound; a card that is too small is said."
    entry = rp.find_entry("sop/smooth-ap-bs384")
    whole, pieces = rp.cost_of(entry), rp.cost_of(entry, entry.experiment({"batch.micro": 32}))
    assert (whole["steps"], whole["pictures"], whole["exact"]) == (62_000, 62_000 * 384, True)
    assert whole["memory"] > 5 * pieces["memory"] and whole["hours"]["T4"] is None and pieces["hours"]["T4"] > 0
    assert pieces["hours"]["A100"] == pytest.approx(whole["hours"]["A100"] * 4 / 3)  # a second forward pass
    assert 7.5 < whole["gflop"] < 9  # ResNet-50 at 224: 4.1 billion multiplications with their additions
    rambo = rp.cost_of(rp.find_entry("sop/rambo-log"))
    assert rambo["steps"] == 80 * 66 * 10 and rambo["exact"]


def test_the_first_bottleneck_follows_from_measured_reading():
    entry = rp.find_entry("sop/smooth-ap-bs384")
    cost, bench = rp.cost_of(entry), Path(__file__).resolve().parents[2] / "docs" / "results" / "bench_loading.json"
    rows = {row["name"]: row for row in json.loads(bench.read_text(encoding="utf-8"))["rows"]}
    measured = rows["decoded cache against JPEG files, one thread"]["config"]["JPEG, pictures/s"]
    assert rp.PICTURES_PER_CORE == measured, "the model's figure is not the measured one any more"
    for card, rate in cost["rates"].items():
        cores = cost["cores"][card]
        assert rp.bottleneck(cost, card, 1)[0] == ("reading" if cores > 1 else "the card")
        assert rp.bottleneck(cost, card, 1000) == ("the card", rate)
        assert rate * cost["hours"][card] * 3600 == pytest.approx(cost["pictures"]) if cost["hours"][card] else True
    assert rp.bottleneck(cost, "H100", 4) == ("reading", 4 * measured)


def test_the_memory_model_counts_what_autograd_holds():
    import torch

    from smoothap_nb.reproduction.costs import _network
    from smoothap_nb.train.config import ModelConfig
    from smoothap_nb.train.models import EmbeddingModel

    model, seen = EmbeddingModel(ModelConfig(backbone="resnet18", dim=16, batch_norm="frozen_statistics")).train(), {}

    def pack(tensor):
        if not isinstance(tensor, torch.nn.Parameter):
            seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = model(torch.rand(2, 3, 64, 64))
    assert kept is not None and _network("resnet18", 16, 64, "imagenet", "avg")[1] == pytest.approx(
        sum(seen.values()) / 2 / 2**20, rel=0.02
    )


def test_results_of_several_folders_make_a_table(tmp_path):
    from typer.testing import CliRunner

    from smoothap_nb.cli.commands import app

    for seed in (0, 1):
        rp.keep(result(seed=seed, weights={"chosen": "best on test"}), tmp_path / f"machine{seed}" / "reproduce.json")
    done = CliRunner().invoke(
        app, ["results", str(tmp_path / "machine0"), str(tmp_path / "machine1"), "--write", str(tmp_path / "t.md")]
    )
    assert (
        "(2 seeds), best epoch on the test set" in done.stdout
        and done.exit_code == 0
        and "R@1" in (tmp_path / "t.md").read_text()
    )
    assert "there is no" in str(CliRunner().invoke(app, ["results", str(tmp_path / "nothing")]).exception)


LAUNCHERS = {
    "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "--"],
    "accelerate": [
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes=2",
        "--num_machines=1",
        "--mixed_precision=no",
        "--dynamo_backend=no",
        "-m",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_command_runs_under_both_launchers(tmp_path, launcher):
    """As the guide types it, with two gloo processes: one folder, one record, one voice; --run reaches us and not
    torchrun.
    """
    import os
    import subprocess
    import sys

    command = [
        sys.executable,
        *LAUNCHERS[launcher],
        "smoothap_nb.cli",
        "reproduce",
        "dyml-vehicle/happier",
        "--miniature",
        "--cpu",
        "--quiet",
        "--run",
        str(tmp_path / "run"),
    ]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 processes" in done.stdout and done.stdout.count("written:") == done.stdout.count("a miniature:") == 1
    assert len(rp.runs_of(tmp_path / "run" / "reproduce.json")[0]) == 1


@pytest.mark.slow
def test_the_protocol_of_the_guide(tmp_path, monkeypatch):
    """A new user types what docs/reproduce.md says, top to bottom. In place of the data: a miniature in the official
    layout; in place of the row's sizes: those that let it run here. Nothing else is added to the page's lines.
    """
    import shlex

    from typer.testing import CliRunner

    from smoothap_nb.cli.commands import app
    from smoothap_nb.data.miniatures import make_miniature
    from smoothap_nb.reproduction.recipes import Entry

    page = (Path(__file__).resolve().parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    lines = [line for block in page.split("```bash\n")[1:] for line in block.split("```")[0].splitlines()]
    typed = [line.split("#")[0].strip() for line in lines if line.startswith("smoothap ")]
    typed = [line for line in typed if "reproduce claims" not in line]  # hours of a study
    assert typed[:4] == [
        "smoothap reproduce --list",
        "smoothap reproduce sop/smooth-ap-bs384 --show",
        "smoothap reproduce sop/smooth-ap-bs384 --miniature",
        "smoothap reproduce sop/smooth-ap-bs384 --root /data",
    ] and "smoothap results runs" in typed
    assert "smoothap data check NAME --root" in page
    typed.insert(2, "smoothap data check sop --root /data")
    monkeypatch.chdir(tmp_path)
    make_miniature("sop", tmp_path / "data")
    whole = Entry.experiment

    def shrunk(self, settings=None):
        return whole(self, rp.runner.miniature_settings(self) | (settings or {}))

    said = {}
    for line in typed:
        words = shlex.split(line.replace("/data", str(tmp_path / "data")))[1:]
        with monkeypatch.context() as patch:
            if "--root" in words and words[0] == "reproduce":
                patch.setattr(Entry, "experiment", shrunk)
            if words[0] == "reproduce" and "--list" not in words and "--show" not in words:
                words += ["--cpu", "--quiet"]
            done = CliRunner().invoke(app, words)
        # a miniature's counts are not the data set's, and the check says so
        assert done.exit_code == 0 or words[0] == "data", (line, done.output, done.exception)
        said[line] = done.output
    assert "62,000 steps" in said[typed[1]] and "59,551" in said[typed[2]]
    record = tmp_path / "runs" / "sop" / "smooth-ap-bs384" / "seed0" / "reproduce.json"
    (run,), trouble = rp.runs_of(record)
    assert not trouble and run["changed"] == {} and f"written: {record.relative_to(tmp_path)}" in said[typed[4]]
    r1 = f"R@1 {100 * run['metrics']['test']['R@1']:.1f}"
    assert r1 in line_of(said["smoothap results runs"], "sop/smooth-ap-bs384")
    assert "a miniature: these numbers say that everything runs" in said[typed[3]]
