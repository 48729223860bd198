"The papers' tables, and their claims on Glyphs: every row has its experiment, every verdict follows from the rows, damage is named."

from __future__ import annotations

import json

import pytest

from smoothap_nb import reproduction as rp
from smoothap_nb.config import ConfigError

TOY = {"batch.classes": 4, "evaluate.classes": 12, "optim.steps": 1, "optim.warmup": 0, "data.size": 32, "model.dim": 16}


# --- the comparison on Glyphs ---------------------------------------------------------------------------------------

def toy_rows(values: dict) -> dict:
    "Rows with one metric: {'main/a': [0.5, 0.6]} gives seeds, {'tau/tau=1': 0.5} a point."
    rows = {}
    for name, value in values.items():
        for seed, v in enumerate(value) if isinstance(value, list) else [(None, value)]:
            rows[name if seed is None else f"{name}/seed{seed}"] = {"metrics": {"mAP": v}}
    return rows


def verdict(values: dict, order: list, **more) -> str:
    return rp.judge({"text": "", "source": "", "metric": "mAP", "order": order, **more}, toy_rows(values)).verdict


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_run_has_a_name_of_its_own_and_settings_that_load(device):
    runs = rp.glyph_runs(device)
    assert len({r.name for r in runs}) == len(runs)
    tuning = {r.name: {"metrics": {"mAP": 0.5, "H-AP": 0.5}} for r in runs if r.grid == "tune"}
    for run in runs:
        experiment = rp.glyph_experiment(run, tuning, device)
        assert experiment.model.backbone == ("resnet50" if device == "cuda" else "resnet18")
        assert experiment.optim.warmup < max(1, experiment.optim.steps)


def test_every_method_is_tuned_with_the_same_budget():
    plan = rp.read_papers("glyphs.toml")
    tune = [r for r in rp.glyph_runs() if r.grid == "tune"]
    counts = {m: sum(r.method == m for r in tune) for m in plan["methods"]}
    assert set(counts.values()) == {4} and {r.steps for r in tune} == {plan["budget"]["tune_steps"]} and {r.split for r in tune} == {"val"}
    main = [r for r in rp.glyph_runs() if r.grid == "main" and r.method in plan["methods"]]
    assert len(main) == 3 * len(plan["methods"]) and {r.split for r in main} == {"test"}


def test_every_claim_names_rows_that_exist():
    names = {r.name for r in rp.glyph_runs()} | {r.name.rsplit("/seed", 1)[0] for r in rp.glyph_runs()}
    for claim in rp.read_papers("glyphs.toml")["claims"]:
        points = [p for step in claim["order"] for p in (step if isinstance(step, list) else [step])]
        assert len(points) > 1 and set(points) <= names, claim["text"]
        assert claim["text"] and claim["source"] and claim["metric"] in rp.read_papers("glyphs.toml")["base"]["evaluate.metrics"]


def test_ablations_turn_one_knob_with_batches_of_the_same_size():
    runs = {r.name: r for r in rp.glyph_runs()}
    for name in ("positives/|P|=4", "positives/|P|=8", "positives/|P|=16"):
        settings = dict(runs[name].settings)
        assert settings["batch.classes"] * settings["batch.images"] == 128
    for B in (64, 128, 256, 384):
        run = runs[f"batch-same-images/B={B}"]
        assert run.steps == round(350 * 128 / B) and dict(run.settings) == {"batch.classes": B // 4}
        assert runs[f"batch-same-steps/B={B}"].steps == 350


def test_a_claim_holds_only_where_the_seeds_are_apart():
    assert verdict({"main/a": [0.6, 0.7], "main/b": [0.4, 0.5]}, ["main/a", "main/b"]) == "holds"
    assert verdict({"main/a": [0.4, 0.5], "main/b": [0.6, 0.7]}, ["main/a", "main/b"]) == "does not hold"
    assert verdict({"main/a": [0.5, 0.7], "main/b": [0.4, 0.6]}, ["main/a", "main/b"]) == "undecided"
    assert verdict({"main/a": [0.5, 0.7]}, ["main/a", "main/b"]) == "not run"


def test_a_claim_with_one_seed_needs_more_than_the_spread_between_seeds():
    main = {"main/a": [0.50, 0.54]}
    assert verdict({**main, "t/x": 0.60, "t/y": 0.55}, ["t/x", "t/y"]) == "holds"
    assert verdict({**main, "t/x": 0.60, "t/y": 0.57}, ["t/x", "t/y"]) == "undecided"
    assert verdict({**main, "t/x": 0.50, "t/y": 0.57}, ["t/x", "t/y"]) == "does not hold"
    assert verdict({"t/x": 0.50, "t/y": 0.57}, ["t/x", "t/y"]) == "not run"


def test_the_worst_pair_decides_and_a_cost_has_its_bound():
    main = {"main/a": [0.5, 0.5], "main/b": [0.4, 0.4], "main/c": [0.45, 0.45]}
    assert verdict(main, ["main/a", ["main/b", "main/c"]]) == "holds"
    assert verdict(main, ["main/a", "main/b", "main/c"]) == "does not hold"
    assert verdict(main, ["main/c", "main/a"], cost=0.06) == "holds" and verdict(main, ["main/c", "main/a"], cost=0.04) == "does not hold"


def test_without_rows_every_claim_says_not_run():
    verdicts = rp.claims({})
    assert {v.verdict for v in verdicts} == {"not run"}
    assert rp.claims_table(verdicts).count("not run") == 2 * len(verdicts)


def test_tuning_comes_first(tmp_path):
    with pytest.raises(ConfigError, match="not tuned yet.*--grid tune"):
        rp.glyph_grid("main", path=tmp_path / "rows.json", only="smooth-ap/seed0")


def test_an_unknown_grid_names_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'main'"):
        rp.glyph_grid("mian", path=tmp_path / "rows.json")


def test_a_damaged_file_is_named_and_not_overwritten(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('{"rows": {"main/')
    rows, trouble = rp.read_rows(path)
    assert rows == {} and "rows.json cannot be read" in trouble[0]
    with pytest.raises(ConfigError, match="rows.json cannot be read"):
        rp.glyph_grid("main", path=path)
    assert path.read_text() == '{"rows": {"main/'
    path.write_text(json.dumps({"rows": {"a": {"metrics": {}}, "b": 3}}))
    rows, trouble = rp.read_rows(path)
    assert list(rows) == ["a"] and "'b'" in trouble[0]


@pytest.mark.slow
def test_rows_are_stored_one_by_one_and_repeat_to_the_digit(tmp_path):
    said = []
    tuned = rp.glyph_grid("tune", path=tmp_path / "one.json", only="tune/smooth-ap", changes=TOY, workers=2, say=said.append)
    assert len(tuned) == len(said) == 4
    again = rp.glyph_grid("tune", path=tmp_path / "two.json", only="tune/smooth-ap", changes=TOY)
    assert {n: r["metrics"] for n, r in tuned.items()} == {n: r["metrics"] for n, r in again.items()}
    said.clear()
    assert rp.glyph_grid("tune", path=tmp_path / "one.json", only="tune/smooth-ap", changes=TOY, say=said.append) == tuned and not said
    row = next(iter(tuned.values()))
    assert {"commit", "hardware", "torch"} <= set(row["environment"]) and row["date"] and row["seed"] == 0 and row["config"]["optim"]["steps"] == 1
