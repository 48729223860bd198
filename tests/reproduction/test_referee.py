"From rows to verdicts, on rows that are invented."

from dataclasses import replace

import numpy as np
import pytest

from smoothap_nb.checks import ConfigError
from smoothap_nb.reproduction.conduct import pack
from smoothap_nb.reproduction.figures import claims_figure, movers_figure, replication_figure
from smoothap_nb.reproduction.referee import ClaimVerdict, admission, difference_of, power_of, verdicts_of
from smoothap_nb.reproduction.replication import read_decided, same_and_other, write_decided
from smoothap_nb.reproduction.standing import (
    decided,
    movers,
    read_study,
    replication_lines,
    study_part,
    comparison_table,
    tuning_table,
    verdicts_table,
)
from smoothap_nb.reproduction.tracks import best_settings, pieces, read_plan

CLASSES = 40
IMAGES = np.arange(4, 4 + CLASSES) % 9 + 4


def study(level: dict, longer: float = 0.0, noise: float = 0.0005) -> tuple[dict, dict]:
    "A plan of few methods, and rows whose metrics are `level` of the method, the start 0.4."
    full, rng = read_plan(), np.random.default_rng(0)
    plan = full | {"methods": {m: full["methods"][m] for m in level}, "ablations": {}}
    plan["track-e"] = plan["track-e"] | {"methods": []}
    rows: dict = {}
    while todo := pieces(plan, rows, "f"):
        for piece in todo:
            value = level.get(piece.method, 0.4) + (longer if piece.kind == "length" else 0.0)
            value += rng.normal(0, noise) if piece.kind == "main" else 0.0
            characters = pack(np.round(255 * np.full(CLASSES, value)))
            rows[piece.name] = {
                "values": dict.fromkeys(plan["plan"]["metrics"], value),
                "characters": dict.fromkeys(plan["plan"]["metrics"], characters),
                "settings": dict(piece.settings), "network": piece.network, "seed": piece.seed,
            }  # fmt: skip
            if piece.kind == "start" and piece.split == "test":
                rows[piece.name]["images"] = pack(IMAGES)
    return plan, rows


def said(plan, rows, text: str) -> str:
    return next(v.verdict for v in verdicts_of(plan, rows, IMAGES) if text in v.claim["text"])


@pytest.mark.parametrize(
    "smooth, fast, verdict", [(0.62, 0.6, "holds"), (0.6, 0.62, "contradicted"), (0.6, 0.6, "equivalent")]
)
def test_a_claim_is_decided_from_rows(smooth, fast, verdict):
    plan, rows = study({"smooth-ap": smooth, "fast-ap": fast})
    assert said(plan, rows, "more first neighbours than FastAP") == verdict
    assert said(plan, rows, "better than a triplet loss") == "not run"


def test_a_method_that_is_not_trained_is_no_loser():
    plan, rows = study({"smooth-ap": 0.6, "fast-ap": 0.3})
    assert not admission(plan, rows, "fast-ap").admitted and admission(plan, rows, "smooth-ap").admitted
    assert said(plan, rows, "more first neighbours than FastAP") == "not trained well enough here"
    plan, rows = study({"smooth-ap": 0.6, "fast-ap": 0.5}, longer=0.02)
    found = admission(plan, rows, "fast-ap")
    assert not found.admitted and found.longer == pytest.approx(0.02) and found.gain == pytest.approx(0.1)


def test_runs_are_paired_by_network_and_seed():
    plan, rows = study({"smooth-ap": 0.62, "fast-ap": 0.6})
    for name, row in rows.items():  # a network that is good for both leaves the difference alone
        if name.startswith("main/"):
            row["values"] = {k: v + 0.05 * row["network"] for k, v in row["values"].items()}
    pair = difference_of(rows, "main/smooth-ap", "main/fast-ap", "mAP", IMAGES)
    assert pair is not None and pair.mean == pytest.approx(0.02, abs=0.001) and pair.error < 0.001 and pair.runs == 12
    del rows["main/fast-ap/net0/seed0"]
    fewer = difference_of(rows, "main/smooth-ap", "main/fast-ap", "mAP", IMAGES)
    assert fewer is not None and fewer.runs == 11
    assert difference_of(rows, "main/smooth-ap", "main/triplet", "mAP", IMAGES) is None


def test_the_plan_has_the_power_that_it_needs():
    found = power_of(read_plan())
    assert found["alone"] >= 0.9 and found["among_all"] >= 0.8 and found["networks"] <= 6
    assert found["claims"] == 10


def test_a_papers_claims_wait_for_each_other():
    plan, rows = study({"smooth-ap": 0.62, "fast-ap": 0.6, "triplet": 0.5})
    assert said(plan, rows, "more first neighbours than FastAP") == said(plan, rows, "than a triplet loss") == "holds"
    del rows["main/triplet/net5/seed1"]
    assert said(plan, rows, "more first neighbours than FastAP") == said(plan, rows, "than a triplet loss") == "not run"
    assert "claim" in claims_figure(decided(plan, {}))[1] and decided(plan, {})[0].pairs == ()


def test_tables_and_pictures_say_what_the_rows_say(tmp_path):
    plan, rows = study({"smooth-ap": 0.62, "fast-ap": 0.6, "triplet": 0.3})
    verdicts = decided(plan, rows)
    table = verdicts_table(verdicts)
    line = next(line for line in table.splitlines() if "than FastAP | Smooth-AP" in line)
    assert "| +0.0" in line and "| 6, 12 | holds |" in line
    assert "not trained well enough here" in table and table.count("not run yet") == len(verdicts) - 2
    tuned = tuning_table(plan, rows)
    assert "| Smooth-AP | mAP | rate 1e-05, tau 0.001 | 0.620 | +0.220 | +0.0000 | yes |" in tuned
    assert "| triplet, semi-hard |" in tuned and "**no**" in tuned and tuning_table(plan, {}) == ""
    lines = comparison_table(plan, rows).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:5]] == [
        "| Smooth-AP", "| FastAP", "| triplet, semi-hard (not trained well enough here)",
    ]  # fmt: skip
    assert lines[2] == "| Smooth-AP | 0.620 | 0.620 | 0.620 | 0.620 |  |" and comparison_table(plan, {}) == ""
    low, high = (float(v) for v in lines[3].partition("(")[2].partition(")")[0].split(" to "))
    assert low < -0.02 < high < -0.015 and lines[5] == "| the features alone | 0.400 | 0.400 | 0.400 | 0.400 | |"
    part = {k: v for k, v in rows.items() if k != "main/fast-ap/net5/seed1"}
    assert "FastAP" not in comparison_table(plan, part) and "Smooth-AP" in comparison_table(plan, part)
    moved = movers(plan, rows, from_nothing=[0.4, 0.42])
    assert moved["pretraining: Smooth-AP from nothing, and from features"] == pytest.approx(0.21, abs=0.002)
    assert moved["the loss: best against worst of 2 admitted"] == pytest.approx(0.02, abs=0.002)
    assert list(moved.values()) == sorted(moved.values(), reverse=True) and movers(plan, {}) == {}
    for fig, said_of_it in (claims_figure(verdicts), movers_figure(moved), movers_figure({})):
        fig.savefig(tmp_path / "figure.png")
        assert said_of_it
    assert "1 holds" in claims_figure(verdicts)[1]


def test_what_other_networks_said_stands_beside_it(tmp_path):
    losses = {"smooth-ap": 0.62, "fast-ap": 0.6, "triplet": 0.5}
    plan, rows = study(losses)
    path, now = tmp_path / "claims-before.json", decided(plan, rows)
    assert read_decided(path) == ({}, {})
    assert write_decided(path, now, {"rows": "elsewhere"}) == 2  # the two claims that were decided
    before, about = read_decided(path)
    assert about == {"rows": "elsewhere"} and all(v.decision is None or v == before_of(before, v) for v in now)
    assert same_and_other(now, before) == (list(before), [], 0)
    turned = decided(*study(losses | {"fast-ap": 0.64}))
    same, other, count = same_and_other(turned, before)
    assert (len(same), count) == (1, 1) and "than FastAP" in other[0]
    line = next(line for line in verdicts_table(turned, before).splitlines() if other[0] in line)
    assert "| contradicted | +0.0" in line and line.endswith(": holds |") and line.count("|") == 8
    fig, text = replication_figure(turned, before)
    fig.savefig(tmp_path / "figure.png")
    assert "2 claims decided on two sets" in text and "1 have the same verdict, 1 another, 1 turned round" in text
    marks = [line for line in fig.axes[0].lines if line.get_linestyle() == "None" and len(line.get_xdata())]
    points = [tuple(np.ravel(mark.get_data())) for mark in marks]
    assert len(points) == 2 and sorted(y for _, y in points) == pytest.approx([-0.02, 0.12], abs=0.002)
    assert sorted(x for x, _ in points) == pytest.approx([0.02, 0.12], abs=0.002)
    assert replication_figure(turned, {})[1].startswith("0 claims")
    assert "of 2 claims decided both times 1 have" in replication_lines(turned, before, about)[0]
    assert replication_lines(turned, {}, {}) == []


def before_of(before: dict, verdict: ClaimVerdict) -> ClaimVerdict:
    "What was kept of a claim, with the claim of the plan: the file keeps text, source and metric of it."
    return replace(before[verdict.claim["text"]], claim=verdict.claim)


@pytest.mark.parametrize("text", ["{", "[]", '{"claims": [{"text": "a"}]}', '{"claims": 3}'])
def test_a_damaged_file_of_earlier_verdicts_is_named(tmp_path, text):
    path = tmp_path / "claims-before.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="claims-before.json cannot be read.*Take the committed file back"):
        read_decided(path)


def test_the_page_counts_what_is_there_and_waits_with_verdicts(tmp_path):
    folder = tmp_path / "claims"
    study_, rows, trouble = read_study(folder)
    assert rows == {} and trouble == [] and "not run yet" in " ".join(study_part(folder))
    study_.ledgers["network-0"].add("pretext/net0", {"values": {}})
    (tmp_path / "claims-before.json").write_text("{")
    text = " ".join(study_part(folder))
    assert "claims-before.json cannot be read" in text
    assert "1 of about" in text and "**Unfinished.**" in text and "| claim |" not in text
    (tmp_path / "tuning.json").write_text('{"plan": "another", "rows": {}}')
    assert "was made by the plan another" in " ".join(study_part(tmp_path))


def test_all_settings_of_a_method_are_the_tuned_ones():
    plan, rows = study({"smooth-ap": 0.6})
    assert rows["main/smooth-ap/net3/seed1"]["settings"] == dict(best_settings(plan, rows, "smooth-ap"))
