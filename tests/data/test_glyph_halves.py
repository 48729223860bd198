"The two halves of the training characters: a second hash, and nothing of the published splits moves."

import hashlib

import pytest
import torch

from smoothap_nb.data.drawing import split_of
from smoothap_nb.data.glyphs import HALVES, Glyphs, half_of

# of the splits of the first 5,000 code points, before there were halves: every published number rests on them
PUBLISHED = "f2380f8203262226"


@pytest.fixture(scope="module")
def sets():
    halves = {(half, k): Glyphs(half, halving=k) for half in HALVES for k in (0, 1, 2)}
    return {split: Glyphs(split) for split in ("train", "val", "test", "all")} | halves


def test_the_published_splits_are_what_they_were(sets):
    said = "".join(split_of(chr(code))[1] for code in range(5000))
    assert hashlib.sha256(said.encode()).hexdigest()[:16] == PUBLISHED
    whole = sets["all"]
    for split in ("train", "val", "test"):
        kept = torch.tensor([split_of(c) == split for c in whole.characters])
        assert torch.equal(sets[split].identity, whole.identity[kept])
        assert torch.equal(sets[split].labels, whole.labels[kept])


@pytest.mark.parametrize("halving", [0, 1, 2])
def test_halves_share_no_character_and_make_up_train(sets, halving):
    pretext, metric = (sets[half, halving] for half in HALVES)
    assert not set(pretext.characters) & set(metric.characters)
    both = torch.cat([pretext.identity, metric.identity]).sort().values
    assert torch.equal(both, sets["train"].identity.sort().values)
    assert 0.45 < len(set(metric.characters)) / len(set(sets["train"].characters)) < 0.55
    assert {half_of(c, halving) for c in metric.characters} == {"metric"}


def test_halvings_are_independent(sets):
    metric = [set(sets["metric", k].characters) for k in (0, 1, 2)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert 0.44 < len(metric[a] & metric[b]) / len(metric[a]) < 0.56


def test_pictures_of_a_half_are_those_of_train(sets):
    half, train = sets["metric", 1], sets["train"]
    places = torch.isin(train.identity, half.identity).nonzero()[:, 0]
    assert torch.equal(half.labels, train.labels[places]) and torch.equal(half.images, train.images[places])
    assert torch.equal(half.raw([0, 5], draw=3), train.raw(places[[0, 5]], draw=3))


def test_halves_know_their_validation_characters_and_say_which_halving(sets):
    half = sets["pretext", 1]
    assert torch.equal(half.validation().identity, sets["val"].identity)
    assert "halving=1" in repr(half) and "halving" not in repr(sets["val"])
    assert sets["test"].validation() is None


@pytest.mark.parametrize("wrong", [-1, True, 1.0, "0"])
def test_a_halving_that_is_no_whole_number_is_refused(wrong):
    with pytest.raises(ValueError, match="halving must be a whole number of at least 0"):
        Glyphs("metric", halving=wrong)
