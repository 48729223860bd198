"Two super-labels and |P| images of each class in every batch, as Smooth-AP and RaMBO describe."

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothap_nb.checks import ConfigError
from smoothap_nb.data.paired import PairedClassSampler
from smoothap_nb.data.sampling import sampler_from_config
from smoothap_nb.data.settings import BatchConfig


def tree(sizes: list[list[int]]) -> np.ndarray:
    "Labels (N, 2) from the sizes of the classes below each super-label."
    rows, number = [], 0
    for s, classes in enumerate(sizes):
        for size in classes:
            rows += [[s, number]] * size
            number += 1
    return np.array(rows)


@given(
    st.lists(st.lists(st.integers(1, 9), min_size=4, max_size=9), min_size=2, max_size=5),
    st.integers(2, 8),
    st.integers(0, 9),
)
def test_every_batch_has_two_super_labels_and_p_images_of_each_class(sizes, images, seed):
    labels = tree(sizes)
    size = {c: n for c, n in zip(*np.unique(labels[:, 1], return_counts=True))}
    if min(sum(n > 1 for n in classes) for classes in sizes) < 2:
        return
    sampler = PairedClassSampler(labels, 4, images, 2, seed)
    batches = sampler.epoch(seed)
    assert len(batches) == len(sampler) == len(sizes) * (len(sizes) - 1) // 2 * 2
    for batch in batches:
        assert len(set(batch.tolist())) == len(batch) and len(set(labels[batch, 0])) == 2
        found, counts = np.unique(labels[batch, 1], return_counts=True)
        assert len(found) == 4 and all(n == min(images, size[c]) for c, n in zip(found, counts))
    assert {tuple(sorted(set(labels[b, 0]))) for b in batches} == {
        (a, b) for a in range(len(sizes)) for b in range(a + 1, len(sizes))
    }
    assert all(
        np.array_equal(a, b) for a, b in zip(batches, PairedClassSampler(labels, 4, images, 2, seed).epoch(seed))
    )
    assert not set(sampler.never_seen) & set(np.concatenate(batches))


def test_the_shape_of_sop():
    "96 x 4 holds 96 classes; FastAP's own sampler, which fills by pictures, does not keep |P|."
    rng = np.random.default_rng(0)
    labels = tree([rng.integers(4, 9, size=300).tolist() for _ in range(12)])
    assert {len(b) for b in PairedClassSampler(labels, 96, 4).epoch()} == {384} and len(
        PairedClassSampler(labels, 96, 4)
    ) == 330
    counts = lambda name: [
        np.unique(labels[b, 1], return_counts=True)[1]
        for b in sampler_from_config(BatchConfig(96, 4, name), labels).epoch()[:20]
    ]
    assert all((c == 4).all() and len(c) == 96 for c in counts("paired_classes")) and any(
        len(c) != 96 for c in counts("super_pairs")
    )


def test_a_batch_takes_turns_through_all_classes_and_pictures():
    labels = tree([[8] * 10, [8] * 10])
    seen = np.unique(np.concatenate(PairedClassSampler(labels, 10, 4, per_pair=4).epoch()), return_counts=True)
    assert len(seen[0]) == 160 and set(seen[1]) == {1}  # 4 batches of 40: each picture once


@pytest.mark.parametrize(
    "labels, classes, says",
    [
        (np.zeros((4, 1), int), 2, "two levels"),
        (tree([[2, 2]]), 2, "holds 1"),
        (tree([[2, 2], [2, 2]]), 5, "only 4 with two images"),
        (tree([[1, 1, 2], [1, 2]]), 3, "only 2 with two images"),
    ],
)
def test_labels_that_do_not_do(labels, classes, says):
    with pytest.raises(ValueError, match=says):
        PairedClassSampler(labels, classes, 2)
    with pytest.raises(ConfigError, match=says):
        sampler_from_config(BatchConfig(classes, 2, "paired_classes"), labels)
