"Training on captioned glyphs: it learns, it repeats itself, its records go on where they stopped."

import json

import pytest
import torch

from smoothap_nb.data.captions import GlyphCaptions
from smoothap_nb.train import captions as tc
from smoothap_nb.train.text import TowerConfig, load_towers

TINY = {
    "steps": 12,
    "characters": 16,
    "per_image": 3,
    "lr_warm_up": 2,
    "log_every": 6,
    "towers": TowerConfig(dim=16, width=8, word_dim=16, hidden=24),
}


@pytest.fixture(scope="module")
def data():
    return GlyphCaptions("train", strength=0.15)


def test_training_repeats_itself_and_learns(data):
    settings = tc.CaptionTraining(loss="nt_xent", tau=0.1, **TINY)
    model, log = tc.train_towers(settings, data)
    again, same = tc.train_towers(settings, data)
    assert log == same and all(
        torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values())
    )
    assert [row["step"] for row in log] == [0, 6, 11] and log[-1]["loss"] < log[0]["loss"] and not model.training
    assert 0 < log[0]["image->text negatives"] <= log[0]["image->text of"] <= 48


@pytest.mark.parametrize("loss", ["smooth_ap", "triplet", "hardest_triplet"])
def test_every_loss_trains(data, loss):
    model, log = tc.train_towers(tc.CaptionTraining(loss=loss, warm_up=3, **TINY), data)
    assert all(torch.isfinite(p).all() for p in model.parameters()) and len(log) == 3


def test_weights_that_blow_up_stop_the_training(data):
    with pytest.raises((FloatingPointError, ValueError), match="NaN or infinity|at step"):
        tc.train_towers(tc.CaptionTraining(**{**TINY, "lr": 1e20}), data)


def test_rates_rise_and_fall():
    settings = tc.CaptionTraining(steps=100, lr=1.0, lr_warm_up=10)
    rates = [tc.rate(step, settings) for step in range(100)]
    assert (
        rates[0] < 0.11
        and max(rates) == rates[9] > 0.97
        and rates[-1] < 1e-3
        and rates[10:] == sorted(rates[10:], reverse=True)
    )


def test_a_comparison_goes_on_where_it_was_stopped(tmp_path):
    path, said = tmp_path / "record.json", []
    names = ["NT-Xent, tau 0.1"]
    first = tc.compare(path, 1, names, tmp_path / "runs", TINY, said.append)
    (run,) = first["runs"]
    assert (
        run["environment"]["commit"]
        and run["settings"]["steps"] == 12
        and run["settings"]["tau"] == 0.1
        and run["date"]
    )
    assert {"two words mAP", "text->image R@5", "rsum"} <= set(run["metrics"]) and run["metrics"] != run["untrained"]
    second = tc.compare(path, 1, names, tmp_path / "runs", TINY, said.append)
    assert second == first == json.loads(path.read_text()) and len(said) == 1
    model = load_towers(tmp_path / "runs" / "nt-xent-tau-0.1")
    assert model.vocabulary.key == run["vocabulary"]
    with pytest.raises(ValueError, match="there is no contender 'CLIP'"):
        tc.compare(path, 1, ["CLIP"])
    with pytest.raises(ValueError, match="the runs in .*record.json have steps 12, not 13: take another file"):
        tc.compare(path, 1, names, None, TINY | {"steps": 13}, said.append)


def test_a_comparison_never_loses_what_it_has(tmp_path, monkeypatch):
    "A full disk, a file of another kind, a folder that is not there: said, and nothing is lost."
    path, names = tmp_path / "record.json", ["NT-Xent, tau 0.1"]
    path.write_text(json.dumps({"runs": [{"contender": "x", "seed": 0, "settings": {"steps": 12}}]}))
    before = path.read_text()
    monkeypatch.setattr(tc, "run_contender", lambda *_: {"contender": names[0], "seed": 0, "metrics": {}})
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        tc.compare(path, 1, names, None, TINY)
    assert path.read_text() == before and [p.name for p in tmp_path.iterdir()] == ["record.json"]
    for text in ('{"runs": [', "[]", '{"runs": [{}]}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="record.json is no record of such a comparison"):
            tc.compare(path, 1, names, None, TINY)
    with pytest.raises(ValueError, match="there is no folder"):
        tc.compare(tmp_path / "no" / "record.json", 1, names, None, TINY)


@pytest.mark.parametrize("name", ["coco", "flickr30k"])
def test_photographs_train_and_are_measured_by_both_protocols(name, tmp_path):
    from smoothap_nb.data.karpathy import PhotoCaptions, caption_miniature, load_captions
    from smoothap_nb.data.transforms import PhotoTransform

    folder = caption_miniature(name, tmp_path / name)
    train, test = (load_captions(name, folder, split, transform=PhotoTransform(size=32)) for split in ("train", "test"))
    data = PhotoCaptions(train, least=1)
    images, texts, relevance = data.batch(6, 5, step=1)
    assert images.shape == (6, 3, 32, 32) and len(texts) == 30 and relevance.sum(1).tolist() == [5] * 6
    assert data.batch(6, 5, step=1)[1] == texts != data.batch(6, 5, step=2)[1]
    towers = TowerConfig(dim=8, backbone="resnet18", word_dim=8, hidden=8)
    few = {"steps": 2, "characters": 6, "per_image": 2, "subsets": 0.0, "log_every": 1}
    settings = tc.CaptionTraining(loss="smooth_ap", towers=towers, **few)
    model, log = tc.train_towers(settings, data)
    whole, folds = tc.measure_photos(model, test), tc.measure_photos(model, test, folds=5)
    assert len(log) == 2 and whole["text->image queries_skipped"] == 0 and 0 < whole["rsum"] <= folds["rsum"] <= 600
    for ask, words in (((13, 1), "there are 12"), ((4, 6), "6 captions of each picture")):
        with pytest.raises(ValueError, match=words):
            data.batch(*ask)
    with pytest.raises(ValueError, match="no word occurs in 99 captions"):
        PhotoCaptions(train, least=99)
