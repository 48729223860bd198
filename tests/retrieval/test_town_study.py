"The study of systems on Town: in a tiny form, and the order of methods on a town that neither lesson nor table used."

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from smoothap_nb.data.town import DRAWING, SIZES, TownSize, load_town
from smoothap_nb.retrieval import town_network, town_study

SMALL = town_network.Recipe(towns=1, side=128, crop=64, reach=1.3, epochs=0, steps=0)
STORED = Path(__file__).resolve().parents[2] / "docs" / "results" / "town.json"


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(SIZES, "tiny", TownSize(3, 3, 2, 1, 3, 3))
    monkeypatch.setattr(town_study, "GRIDS", {
        "words": (64, 32), "vlad_words": (4,), "least": (5,), "hqe": (20,), "average": (2,), "alpha": ((2, 3.0),),
        "diffusion": ((3, 0.5, 3.0),), "mix": (0.5, 0.7), "dimensions": (4, 2),
    })


@pytest.mark.slow
def test_a_study_is_stored_and_goes_on_where_it_was(tiny, tmp_path, monkeypatch):
    run = lambda **k: town_study.run_study(tmp_path / "town.json", (0,), "tiny", "local", root=tmp_path, **k)  # noqa: E731
    stored = run()
    assert set(stored["towns"]) == {"100", "0"} and stored["settings"]["local"]["words"]["value"] in (64, 32)
    assert stored == json.loads((tmp_path / "town.json").read_text())
    for row in stored["towns"]["0"]["local"].values():
        assert set(row) == {"alone", "with distractors"} and all(0 <= v["mAP"] <= 100 for v in row["alone"].values())
    monkeypatch.setattr(town_study, "read_town", lambda *a: pytest.fail("measured again"))
    assert run() == stored
    with pytest.raises(ValueError, match="holds a study of other towns"):
        town_study.run_study(tmp_path / "town.json", (0,), "mini", "local", root=tmp_path)


def test_the_validation_town_judges_nothing(tmp_path):
    with pytest.raises(ValueError, match="validation town"):
        town_study.run_study(tmp_path / "town.json", (town_study.VALIDATION,), "mini")


def test_mixed_scores_do_not_depend_on_units():
    a, b = torch.rand(2, 3, 9)
    assert torch.allclose(town_study.mixed(a, b, 0.3), town_study.mixed(5 * a + 2, b / 7, 0.3), atol=1e-6)
    assert (town_study.mixed(a, b, 1.0).argsort() == a.argsort()).all()


@pytest.mark.slow
def test_a_network_is_described_in_every_way(tiny, tmp_path, monkeypatch):
    few = partial(town_network.training_houses, houses=TownSize(0, 0, 4, 4, 0, 0))
    monkeypatch.setattr(town_network, "training_houses", few)
    recipe = SMALL._replace(epochs=1, steps=1)
    described = town_network.town_descriptors(load_town("tiny", 1, root=tmp_path), recipe, tmp_path)
    short = {name: rows if name == "pairs" else rows[:, :8] for name, rows in described["GeM"].items()}
    described["GeM, whitened"] = town_network.whiten(short, 4)  # the pairs of four houses vary in twelve directions
    scores = town_network.global_scores(described, None, {"alpha": (2, 3.0), "diffusion": (3, 0.5, 3.0)})
    assert {"MAC", "SPoC", "CroW", "R-MAC", "GeM", "NetVLAD", "GeM, whitened + αQE", "pixels, 12 x 12"} < set(scores)
    assert all(s.shape == (3, 9 + 2) and torch.isfinite(s).all() for s in scores.values())
    monkeypatch.setattr(town_network, "train_backbone", lambda *a, **k: pytest.fail("trained again"))
    again = town_network.kept_backbone(recipe, tmp_path)
    assert torch.isfinite(again(torch.rand(1, 3, 96, 128))).all()


def test_a_house_is_cut_out_whole():
    picture = torch.zeros(1, 3, SMALL.side, SMALL.side)
    picture[..., 20:60, 50:80] = 1
    view = town_network._views(picture, torch.tensor([[50.0, 20.0, 80.0, 60.0]]), None, SMALL)[0, 0]
    assert view.shape == (64, 64) and view[32, 32] == 1
    assert abs(view.mean() - 30 / 40) < 0.03  # the taller side fills the view


def test_stored_results_say_where_they_come_from():
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert stored["drawing"] == DRAWING and len(stored["towns"]) == 4
    for seed, town in stored["towns"].items():
        for part in town_study.PARTS:
            where = stored["environments"][f"{seed}, {part}"]
            assert town[part] and where["commit"] and where["hardware"] and where["date"] and where["torch"]
        assert 25 <= town["local"]["rSIFT-ASMK*"]["with distractors"]["hard"]["mAP"] <= 50  # hard, and not hopeless


def test_the_learned_rows_are_there_and_above_their_floors():
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert set(stored["settings"]["network"]["recipe"]["reached"]) == {'"first"', '"second"'}  # both tries are told
    for town in stored["towns"].values():
        medium = {name: row["with distractors"]["medium"]["mAP"] for name, row in town["network"].items()}
        floor = max(medium.pop("pixels, 12 x 12"), medium.pop("GeM, not trained"))
        assert {"MAC", "SPoC", "CroW", "R-MAC", "GeM", "NetVLAD", "GeM, whitened + αQE", "GeM, whitened + diffusion",
                "rSIFT-ASMK* and GeM, whitened"} <= set(medium) and min(medium.values()) > floor
        for row in town["mining"].values():
            mined, any_quarter = (row[name]["medium"]["mAP"] for name in ("mined quarter", "any quarter"))
            assert mined < any_quarter < row["none"]["medium"]["mAP"]


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_a_town_of_the_full_size_has_the_order_of_the_small_ones(seed):
    stored = json.loads(STORED.with_name("town-full.json").read_text(encoding="utf-8"))
    assert stored["counts"]["landmarks"] == 70 and "validation town of size small" in stored["settings_from"]
    rows = stored["towns"][seed]["local"]
    medium = {name: row["with distractors"]["medium"]["mAP"] for name, row in rows.items()}
    assert medium["rSIFT-ASMK*"] > medium["rSIFT-SMK*"] > medium["rSIFT-VLAD"]
    assert medium["rSIFT-ASMK* + SP"] > medium["rSIFT-ASMK*"]
    assert 25 <= rows["rSIFT-ASMK*"]["with distractors"]["hard"]["mAP"] <= 50
    for row in rows.values():
        assert row["alone"]["hard"]["mAP"] < row["alone"]["medium"]["mAP"]
        assert row["with distractors"]["medium"]["mAP"] < row["alone"]["medium"]["mAP"]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # it draws a town, and measures a dozen systems on it
def test_the_order_of_methods_on_another_town(tmp_path):
    pack = town_study.read_town("small", 31, root=tmp_path)
    settings = json.loads(STORED.read_text(encoding="utf-8"))["settings"]["local"]
    rows = town_study.local_rows(pack, settings)
    medium = {name: row["with distractors"]["medium"]["mAP"] for name, row in rows.items()}
    assert medium["rSIFT-ASMK*"] > medium["rSIFT-SMK*"] > medium["rSIFT-VLAD"]
    assert medium["rSIFT-ASMK* + SP"] > medium["rSIFT-ASMK*"]
    for row in rows.values():
        assert row["alone"]["hard"]["mAP"] < row["alone"]["medium"]["mAP"]
        assert row["with distractors"]["medium"]["mAP"] < row["alone"]["medium"]["mAP"]
