"The laws of the m-per-class sampler, on any mixture of class sizes."

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from smoothap_nb.sampling import MPerClassSampler

SIZES = st.lists(st.integers(1, 14), min_size=2, max_size=30)


def ragged(sizes, seed=0):
    labels = np.repeat(np.arange(len(sizes)) * 7 - 3, sizes)
    return np.random.default_rng(seed).permutation(labels)


@settings(deadline=None, max_examples=120)
@given(SIZES, st.integers(2, 6), st.integers(2, 5), st.integers(0, 3), st.integers(0, 5))
def test_every_batch_holds_exactly_the_classes(sizes, classes, images, seed, epoch):
    assume(sum(s > 1 for s in sizes) >= classes)
    labels = ragged(sizes)
    of_class = dict(zip(*np.unique(labels, return_counts=True)))
    sampler = MPerClassSampler(labels, classes, images, seed)
    batches = sampler.epoch(epoch)
    assert len(batches) == len(sampler) >= 1
    for batch in batches:
        assert len(set(batch.tolist())) == len(batch), "an image twice in a batch"
        found, counts = np.unique(labels[batch], return_counts=True)
        assert len(found) == classes
        assert all(n == min(images, of_class[c]) for c, n in zip(found, counts))


@settings(deadline=None, max_examples=60)
@given(SIZES, st.integers(2, 4), st.integers(2, 5))
def test_every_image_is_reached(sizes, classes, images):
    assume(sum(s > 1 for s in sizes) >= classes)
    labels = ragged(sizes)
    sampler = MPerClassSampler(labels, classes, images)
    usable = {i for i, c in enumerate(labels) if (labels == c).sum() > 1}
    whole = all(g == -(-len(m) // images) for g, m in zip(sampler.groups, sampler.members))
    seen = set(np.concatenate(sampler.epoch(0)).tolist())
    if whole:
        assert seen == usable
    for epoch in range(1, 60):
        seen |= set(np.concatenate(sampler.epoch(epoch)).tolist())
    assert seen == usable


def test_seed_and_epoch_decide():
    labels = ragged([5] * 20)
    one, two = (MPerClassSampler(labels, 4, 2, seed=3) for _ in range(2))
    assert all((a == b).all() for a, b in zip(one.epoch(7), two.epoch(7)))
    flat = lambda batches: np.concatenate(batches).tolist()
    assert flat(one.epoch(7)) != flat(one.epoch(8)) and flat(one.epoch(7)) != flat(MPerClassSampler(labels, 4, 2, seed=4).epoch(7))


def test_a_huge_class_does_not_stretch_the_epoch():
    sampler = MPerClassSampler(ragged([10_000] + [5] * 99), classes=10, images=5)
    assert len(sampler) == 12, "99 groups of the small classes and 12 of the huge one: 111 groups, ten in a batch"
    assert all(len(b) == 50 for b in sampler.epoch(0))


def test_a_large_set_is_dealt_quickly_enough_to_be_used():
    labels = np.repeat(np.arange(2000), 8)
    batches = MPerClassSampler(labels, 28, 4).epoch(0)
    assert len(batches) == 143 and set(np.concatenate(batches)) == set(range(16_000))


@pytest.mark.parametrize("labels, classes, images, says", [
    ([0] * 10, 2, 4, "only 1 classes have two images"),
    ([0, 1, 2, 3], 2, 2, "4 have one"),
    ([], 2, 2, "non-empty"),
    ([0, 0, 1, 1], 1, 2, "at least 2 classes"),
    ([0, 0, 1, 1], 2, 1, "2 images of each"),
    ([[0, 0], [1, 1]], 2, 2, "shape"),
])
def test_what_cannot_be_sampled_is_refused(labels, classes, images, says):
    with pytest.raises(ValueError, match=says):
        MPerClassSampler(labels, classes, images)
