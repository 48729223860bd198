"Town: what it draws, what it says about it, and the files."

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from smoothap_nb import load_revisited, load_town
from smoothap_nb.data import town as town_module
from smoothap_nb.data.revisited_files import read_image
from smoothap_nb.data.town import SIZES, TownSize, draw_town
from smoothap_nb.data.town_houses import Layer, catalogue
from smoothap_nb.data.town_streets import EASY, HARD, Shown, judge, make_street, photograph
from smoothap_nb.data.town_views import NEAR, Camera, Painter, area, clip

TINY = TownSize(2, 3, 1, 2, 1, 2)


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "tiny", TINY)
        yield load_town("tiny", seed=3, root=tmp_path_factory.mktemp("towns"))


def test_counts_and_files(town):
    assert (len(town.data.gallery), len(town.data.queries), len(town.distractors), len(town.codebook)) == (6, 2, 2, 2)
    assert town.codebook_labels.tolist() == [0, 0] and len(town.records) == 12
    again = load_revisited(town.folder, "town")
    assert again.gnd == town.gnd
    for entry in town.gnd:
        assert len(entry["easy"]) + len(entry["hard"]) + len(entry["junk"]) == TINY.views
        left, top, right, bottom = entry["bbx"]
        assert 0 <= left < right <= 400 and 0 <= top < bottom <= 400
    assert {tuple(read_image(p).shape[1:]) for p in town.data.gallery} <= {(300, 400), (400, 300)}


def test_labels_are_those_of_the_records(town):
    names = list(town.data.gallery.names)
    for q, entry in enumerate(town.gnd):
        house = town.records[town.data.queries.names[q]]["house"]
        for kind in ("easy", "hard", "junk"):
            for i in entry[kind]:
                record = town.records[names[i]]
                shown = Shown(**{k: record[k] for k in Shown.__dataclass_fields__})
                assert record["house"] == house and record["label"] == kind == judge(shown)


def test_names_do_not_tell_the_house(town):
    order = [town.records[name]["house"] for name in sorted(town.data.gallery.names)]
    assert order != sorted(order) and all(re.fullmatch(r"town_[0-9a-f]{10}", n) for n in town.data.gallery.names)


def test_the_same_seed_draws_the_same_town(town, tmp_path):
    draw_town(tmp_path, TINY, seed=3, workers=1)
    records = json.loads((tmp_path / "town.json").read_text())["records"]
    assert records == town.records
    name = town.data.gallery.names[0]
    assert (tmp_path / "town" / "jpg" / f"{name}.jpg").read_bytes() == town.data.gallery[0].read_bytes()


def test_another_seed_draws_another_town():
    a, b = (photograph(make_street(s, 0, 0, catalogue(s)), np.random.default_rng(0), 0.0)[0] for s in (1, 2))
    assert a.shape != b.shape or np.abs(a.astype(int) - b).mean() > 10


def test_a_second_call_draws_nothing(town, monkeypatch):
    monkeypatch.setitem(SIZES, "tiny", TINY)
    monkeypatch.setattr(town_module, "draw_town", lambda *a: pytest.fail("drawn again"))
    assert load_town("tiny", seed=3, root=town.folder.parent.parent).gnd == town.gnd


@pytest.mark.parametrize("name, better", [("visible", 1), ("share", 1), ("density", 1), ("contrast", 1), ("angle", -1),
                                          ("blur", -1)])
def test_one_number_out_of_its_limit_costs_the_label(name, better):
    good = Shown(**EASY)
    assert judge(good) == "easy"
    assert judge(replace(good, **{name: EASY[name] - 1e-6 * better})) == "hard"
    assert judge(replace(good, **{name: HARD[name] - 1e-6 * better})) == "junk"


def test_effort_makes_views_harder():
    houses = make_street(5, 0, 0, catalogue(5))
    easy, wild = (
        [photograph(houses, np.random.default_rng([e, v]), float(e))[1] for v in range(6)] for e in (0, 1)
    )
    assert np.mean([s.visible for s in easy]) > np.mean([s.visible for s in wild])
    assert np.mean([s.angle for s in easy]) < np.mean([s.angle for s in wild])
    assert all(judge(s) == "easy" for s in easy)


def camera(place=(0.0, 2.0, 10.0), target=(0.0, 2.0, 0.0)):
    return Camera.looking(place, target, 100.0, 200, 100)


def test_a_point_straight_ahead_is_in_the_middle_and_up_is_up():
    square = np.array([[-1, 1, 0], [1, 1, 0], [1, 3, 0], [-1, 3, 0.0]])
    polygon = camera().project(square)
    assert np.allclose(polygon.mean(0), [100, 50]) and np.isclose(area(polygon), 400)  # 2 m at 10 px per metre
    above = camera().project(square + [0, 5, 0])
    assert above[:, 1].max() < 50


def test_the_homography_is_the_projection():
    layer = Layer(np.zeros((30, 40, 4), np.uint8), (-2.0, 3.0, 0.5), (0.1, 0.0, 0.02), (0.0, -0.1, 0.0))
    cam = Camera.looking((3, 2, 9), (0, 1, 0), 120.0, 200, 100, roll=0.1)
    u = np.array([[0, 0, 1], [40, 0, 1], [40, 30, 1], [0, 30, 1.0]])
    world = np.array(layer.origin) + u[:, :1] * layer.right + u[:, 1:2] * layer.down
    mapped = u @ cam.homography(layer).T
    assert np.allclose(mapped[:, :2] / mapped[:, 2:], cam.project(world), atol=1e-9)


def test_a_plane_behind_the_camera_stays_out_of_the_sky():
    painter = Painter(camera())
    sheet = np.full((80, 40, 4), 255, np.uint8)
    painter.layer(Layer(sheet, (-20.0, 0.0, -20.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)))  # ground from z = -20 to 60
    assert painter.picture[90].max() == 255 and painter.picture[:50].max() == 0
    behind = Painter(camera())
    behind.layer(Layer(sheet, (-20.0, 40.0, 20.0), (1.0, 0.0, 0.0), (0.0, -1.0, 0.0)))
    assert behind.picture.max() == 0
    assert len(camera().project(np.array([[0, 0, 10 - NEAR / 2], [1, 0, 11], [1, 1, 11.0]]))) == 0


def test_clipping_keeps_the_part_inside():
    square = np.array([[-5.0, -5], [5, -5], [5, 5], [-5, 5]])
    assert np.isclose(area(clip(square, (0, 0), (10, 10))), 25) and len(clip(square, (6, 6), (9, 9))) == 0


def test_what_stands_before_a_wall_hides_it():
    painter = Painter(camera())
    painter.layer(Layer(np.full((20, 20, 4), 255, np.uint8), (-1.0, 3.0, 0.0), (0.1, 0, 0), (0, -0.1, 0)), True)
    whole = painter.target.sum()
    painter.layer(Layer(np.full((20, 10, 4), 255, np.uint8), (-1.0, 3.0, 0.0), (0.1, 0, 0), (0, -0.1, 0)))
    assert abs(whole - 400) <= 40 and abs(painter.target.sum() / whole - 0.5) < 0.06


def test_pictures_are_neither_black_nor_flat(town):
    levels = torch.stack([torch.tensor([read_image(p).mean(), read_image(p).std()]) for p in town.data.queries])
    assert (levels[:, 0] > 0.2).all() and (levels[:, 0] < 0.85).all() and (levels[:, 1] > 0.08).all()


def test_bad_input():
    with pytest.raises(ValueError, match="size must be one of"):
        load_town("huge")
    with pytest.raises(ValueError, match="seed must be a whole number"):
        load_town("mini", seed=-1)
