"The laws of the samplers, on any mixture of class sizes and any tree."

import copy
import pickle

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from smoothap_nb.train.config import BatchConfig
from smoothap_nb.checks import ConfigError
from smoothap_nb.data.sampling import (
    SAMPLERS,
    HierarchicalSampler,
    MPerClassSampler,
    OfficialMPerClassSampler,
    RandomSuperPairSampler,
    SuperPairSampler,
    batch_picture,
    batch_statistics,
    sampler_from_config,
)

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
    assert flat(one.epoch(7)) != flat(one.epoch(8)) and flat(one.epoch(7)) != flat(
        MPerClassSampler(labels, 4, 2, seed=4).epoch(7)
    )


def test_a_huge_class_does_not_stretch_the_epoch():
    sampler = MPerClassSampler(ragged([10_000] + [5] * 99), classes=10, images=5)
    assert len(sampler) == 12, "99 groups of the small classes and 12 of the huge one: 111 groups, ten in a batch"
    assert all(len(b) == 50 for b in sampler.epoch(0))


def test_a_large_set_is_dealt_quickly_enough_to_be_used():
    labels = np.repeat(np.arange(2000), 8)
    batches = MPerClassSampler(labels, 28, 4).epoch(0)
    assert len(batches) == 143 and set(np.concatenate(batches)) == set(range(16_000))


@pytest.mark.parametrize(
    "labels, classes, images, says",
    [
        ([0] * 10, 2, 4, "only 1 classes have two images"),
        ([0, 1, 2, 3], 2, 2, "4 have one"),
        ([], 2, 2, "non-empty"),
        ([0, 0, 1, 1], 1, 2, "at least 2 classes"),
        ([0, 0, 1, 1], 2, 1, "2 images of each"),
        ([[0, 0], [1, 1]], 2, 2, "shape"),
    ],
)
def test_what_cannot_be_sampled_is_refused(labels, classes, images, says):
    with pytest.raises(ValueError, match=says):
        MPerClassSampler(labels, classes, images)


# --- the label tree ---------------------------------------------------------------------------------------------------

TREES = st.lists(
    st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=4), min_size=1, max_size=3), min_size=2, max_size=5
)


def grown(tree, seed=0):
    "Labels (N, 3) of a tree given as image counts, in no order."
    rows, middle, fine = [], 0, 0
    for top, shelves in enumerate(tree):
        for classes in shelves:
            for images in classes:
                rows += [(5 * top - 3, middle, fine)] * images
                fine += 1
            middle += 1
    return np.random.default_rng(seed).permutation(np.array(rows))


def classes_of(labels, column=None):
    return len(np.unique(labels if column is None else labels[:, column], axis=0))


def made(name, labels, classes=4, images=2, seed=0):
    return sampler_from_config(BatchConfig(classes=classes, images=images, sampler=name, per_pair=2), labels, seed)


def try_made(*args, **kwargs):
    "The sampler, or a skipped example where the labels cannot fill it."
    try:
        return made(*args, **kwargs)
    except ConfigError:
        assume(False)


@settings(deadline=None, max_examples=60)
@given(
    TREES, st.sampled_from(sorted(SAMPLERS)), st.integers(2, 6), st.integers(2, 4), st.integers(0, 3), st.integers(0, 4)
)
def test_seed_and_epoch_decide_for_every_sampler(tree, name, classes, images, seed, epoch):
    "epoch(k) is a pure function, so that an epoch can be resumed anywhere; no image comes twice in a batch."
    labels = grown(tree)
    assume(classes * images % 2 == 0)
    one = try_made(name, labels, classes, images, seed)
    one.epoch(epoch + 1)  # what was asked before does not matter
    batches, again = one.epoch(epoch), made(name, labels, classes, images, seed).epoch(epoch)
    assert len(batches) == len(again) == len(one) >= 1
    assert all((a == b).all() for a, b in zip(batches, again))
    for batch in batches:
        assert len(set(batch.tolist())) == len(batch) and batch.min() >= 0 and batch.max() < len(labels)


@settings(deadline=None, max_examples=40)
@given(
    TREES, st.sampled_from(["super_pairs", "super_pairs_random", "hierarchical"]), st.integers(2, 6), st.integers(2, 4)
)
def test_every_image_is_reached_in_the_tree(tree, name, classes, images):
    labels = grown(tree)
    assume(classes * images % 2 == 0)
    sampler, seen = try_made(name, labels, classes, images), set()
    for epoch in range(400):
        seen |= set(np.concatenate(sampler.epoch(epoch)).tolist())
        if len(seen) == len(labels):
            return
    raise AssertionError(f"{len(labels) - len(seen)} of {len(labels)} images not seen in 400 epochs")


@settings(deadline=None, max_examples=60)
@given(
    TREES,
    st.sampled_from(["super_pairs_random", "hierarchical"]),
    st.integers(2, 6),
    st.integers(2, 4),
    st.integers(0, 3),
)
def test_class_counts_are_exact_in_the_tree(tree, name, classes, images, epoch):
    labels = grown(tree)
    of_class = dict(zip(*np.unique(labels[:, 2], return_counts=True)))
    for batch in try_made(name, labels, classes, images).epoch(epoch):
        found, counts = np.unique(labels[batch, 2], return_counts=True)
        assert len(found) == classes and all(n == min(images, of_class[c]) for c, n in zip(found, counts))
        if name == "super_pairs_random":
            assert classes_of(labels[batch], 0) == 2


@settings(deadline=None, max_examples=60)
@given(TREES, st.integers(2, 8), st.integers(0, 3))
def test_published_pairs(tree, half, epoch):
    "Half from each, every pair so often; along an epoch each row is walked in order and wraps."
    labels = grown(tree)
    sampler = SuperPairSampler(labels, 2 * half, per_pair=3)
    sizes = dict(zip(*np.unique(labels[:, 0], return_counts=True)))
    pairs, walks = [], {s: [] for s in sizes}
    for batch in sampler.epoch(epoch):
        tops, counts = np.unique(labels[batch, 0], return_counts=True)
        assert len(tops) == 2 and all(n == min(half, sizes[s]) for s, n in zip(tops, counts))
        pairs.append(tuple(tops))
        for s in tops:
            walks[s] += batch[labels[batch, 0] == s].tolist()
    expected = len(sizes) * (len(sizes) - 1) // 2
    assert len(set(pairs)) == expected and len(pairs) == 3 * expected
    assert all(len(set(pairs[i : i + 3])) == 1 for i in range(0, len(pairs), 3))
    for s, walk in walks.items():
        row = walk[: sizes[s]]
        assert len(set(row)) == len(row) and all(image == row[i % len(row)] for i, image in enumerate(walk))
        order = labels[row, 2]
        assert len(row) < sizes[s] or (np.diff(order) != 0).sum() == len(set(order)) - 1, (
            "a class's images stand together"
        )


def test_background_pairs_as_vehicleid():
    "Half from the vehicles without a model, half from model m, as many batches as take all of the model."
    labels = np.array(
        [(0, i // 2) for i in range(40)] + [(1, 20 + i // 3) for i in range(30)] + [(2, 40 + i // 3) for i in range(9)]
    )
    sampler = SuperPairSampler(labels, 8, per_pair=0, background=0)
    batches = sampler.epoch(0)
    assert len(sampler) == len(batches) == 8 + 3  # ceil(2 * 30 / 8) + ceil(2 * 9 / 8)
    assert all((labels[b, 0] == 0).sum() == 4 for b in batches) and set(np.concatenate(batches)) >= set(range(40, 79))
    with pytest.raises(ValueError, match="background = 7 is no super-label; there are 0, 1, 2"):
        SuperPairSampler(labels, 8, background=7)


def test_siblings_at_every_level():
    labels = grown([[[4] * 4] * 3] * 5)
    for batch in HierarchicalSampler(labels, classes=8, images=2, super_classes=2).epoch(0):
        assert classes_of(labels[batch], 0) == 2
        for level in (0, 1):
            for node in np.unique(labels[batch, level]):
                assert classes_of(labels[batch][labels[batch, level] == node], level + 1) >= 2, (
                    "a node has one child only"
                )


def test_hierarchical_on_flat_labels_and_seven_levels():
    flat = HierarchicalSampler(ragged([3] * 12), classes=5, images=2)
    assert all(len(b) == 10 for b in flat.epoch(0))
    digits = np.arange(2**7)[:, None] // 2 ** np.arange(6, -1, -1)
    deep = HierarchicalSampler(np.repeat(digits, 3, axis=0), classes=16, images=2)
    assert all(classes_of(np.repeat(digits, 3, axis=0)[b], 6) == 16 for b in deep.epoch(1))


def test_a_short_super_label_is_made_up_for():
    labels = grown([[[4]], [[4] * 4, [4] * 4]])
    for batch in RandomSuperPairSampler(labels, classes=6, images=2).epoch(0):
        assert sorted(np.unique(labels[batch, 0], return_counts=True)[1]) == [2, 10]


# --- the authors' own -------------------------------------------------------------------------------------------------


def authors_epoch(of_class, order, size, m):
    "Their algorithm, restated with lists: images per class in shuffled order, classes in shuffled order."
    left, batches = {c: list(images) for c, images in of_class.items()}, []
    while True:
        batch = []
        for c in order:
            if len(left[c]) >= m and len(batch) < size:
                batch.append(left[c][:m])
                left[c] = left[c][m:]
        if len(batch) < size:
            return batches
        batches.append(sum(batch, []))


@settings(deadline=None, max_examples=60)
@given(SIZES, st.integers(2, 5), st.integers(2, 4), st.integers(0, 3))
def test_official_sampler_is_the_authors_algorithm(sizes, classes, images, seed):
    assume(sum(s >= images for s in sizes) >= classes)
    labels = ragged(sizes)
    sampler = OfficialMPerClassSampler(labels, classes, images, seed)
    rng = np.random.default_rng([seed, 0])
    shuffled = {c: rng.permutation(m).tolist() for c, m in enumerate(sampler.members)}
    wanted = authors_epoch(shuffled, rng.permutation(len(shuffled)), classes, images)
    assert sorted(map(sorted, sampler.epoch(0))) == sorted(map(sorted, wanted))
    assert set(sampler.never_seen) == {i for i, c in enumerate(labels) if (labels == c).sum() < images}
    for epoch in (0, 3):
        seen = np.concatenate(sampler.epoch(epoch)).tolist()
        assert set(sampler.never_seen) <= set(sampler.left_out(epoch)) and set(seen) | set(
            sampler.left_out(epoch)
        ) == set(range(len(labels)))


def test_official_epochs_have_one_length():
    sampler = OfficialMPerClassSampler(ragged([12, 4, 4, 4]), 2, 4, seed=0)
    assert len({len(sampler.epoch(k)) for k in range(20)}) == 1


# --- counting and drawing ---------------------------------------------------------------------------------------------


class Fixed:
    def epoch(self, number):
        return [np.array([0, 1, 2, 4]), np.array([0, 3])]


def test_batch_statistics_by_hand():
    labels = np.array([(0, 0, 0), (0, 0, 0), (0, 0, 1), (0, 1, 2), (1, 2, 3), (1, 2, 3)])
    s = batch_statistics(Fixed(), labels)
    assert s["batches"] == 2 and s["images"] == 3 and s["reached"] == pytest.approx(5 / 6)
    # batch 1: 0 and 1 are positives, 2 is a sibling of both, 4 a stranger; batch 2: 0 and 3 are cousins
    assert s["alone"] == pytest.approx(4 / 6) and s["shared"] == pytest.approx([2 / 6, 4 / 6, 2 / 6])


def test_batch_picture_counts_pairs():
    with plt.rc_context({"axes.titlelocation": "center"}):
        axes = batch_picture(Fixed(), np.array([0, 0, 1, 1, 2, 2]), title="by hand")
    meet = axes[0].images[0].get_array() * 2  # two batches
    assert meet.tolist() == [[2, 3, 2], [3, 0, 1], [2, 1, 0]] and axes[0].get_title() == "by hand"
    assert axes[1].get_title() == "83.3% of the images used" and [bar.get_height() for bar in axes[1].patches] == [
        1,
        4,
        1,
    ]
    assert all(ax.get_xlabel() and ax.get_ylabel() for ax in axes)
    plt.close(axes[0].figure)


def test_labels_may_be_tensors():
    import torch

    labels = torch.tensor(grown([[[3] * 3] * 2] * 3))
    for name in SAMPLERS:
        assert len(made(name, labels).epoch(0)) == len(made(name, labels))


@pytest.mark.parametrize(
    "name, labels, changes, says",
    [
        ("super_pairs", ragged([4] * 9), {}, "two levels"),
        ("super_pairs_random", ragged([4] * 9), {}, "two levels"),
        (
            "super_pairs",
            [[0, 0], [0, 0], [0, 1]],
            {},
            "2 super-labels per batch were asked for, but the first column of labels holds 1",
        ),
        ("super_pairs", [[0, 0], [1, 1]], {"classes": 3, "images": 3}, "even"),
        ("super_pairs_random", [[0, 0], [0, 0], [1, 1], [1, 1]], {"classes": 4}, "have only 2 together"),
        ("super_pairs_random", [[0, 0], [1, 1]], {"super_classes": 3, "classes": 3}, "3 super-labels per batch"),
        ("super_pairs_random", [[0, 0], [1, 1]], {"super_classes": 1}, "at least 2 super-labels"),
        ("hierarchical", [[0, 0], [1, 1]], {"classes": 3}, "3 classes per batch were asked for, but there are only 2"),
        ("hierarchical", [[0, 0], [1, 1]], {"super_classes": 9}, "super_classes=9"),
        ("m_per_class_official", [0, 0, 0, 1, 1, 1], {"images": 4}, "only 0 classes have so many"),
        ("m_per_class", [0.5, 1.5], {}, "whole numbers"),
        ("hierarchical", np.zeros((0, 2), int), {}, "whole numbers of shape"),
        ("m_per_klass", [0, 0, 1, 1], {}, "did you mean 'm_per_class'"),
    ],
)
def test_what_cannot_be_sampled_is_refused_with_the_reason(name, labels, changes, says):
    settings = {"classes": 2, "images": 2, **changes}
    with pytest.raises(ConfigError, match=says):
        sampler_from_config(BatchConfig(sampler=name, **settings), labels)


def test_too_many_combinations_are_refused():
    labels = np.array([(s, s) for s in range(300) for _ in range(2)])
    with pytest.raises(ValueError, match="combinations of 4"):
        RandomSuperPairSampler(labels, classes=4, super_classes=4)


TREE = np.array(
    [
        (top, 10 * top + shelf, 100 * top + 10 * shelf + c)
        for top in range(3)
        for shelf in range(2)
        for c in range(4)
        for _ in range(4)
    ]
)
ALL = {
    "m_per_class": lambda **k: MPerClassSampler(TREE[:, 2], **{"classes": 4, "images": 2, **k}),
    "m_per_class_official": lambda **k: OfficialMPerClassSampler(TREE, **{"classes": 4, "images": 2, **k}),
    "super_pairs": lambda **k: SuperPairSampler(TREE, **{"batch": 8, **k}),
    "super_pairs_random": lambda **k: RandomSuperPairSampler(TREE, **{"classes": 4, "images": 2, **k}),
    "hierarchical": lambda **k: HierarchicalSampler(TREE, **{"classes": 4, "images": 2, **k}),
}


@pytest.mark.parametrize("name", ALL)
def test_samplers_work_as_pytorch_wants_them(name):
    "As batch_sampler epoch after epoch, as sampler image by image, and from any epoch on."
    import torch

    sampler, twin = ALL[name](), ALL[name]()
    data = torch.utils.data.TensorDataset(torch.arange(len(TREE)))
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
    assert len(loader) == len(sampler)
    for epoch in range(2):
        got = [batch.tolist() for (batch,) in loader]
        assert got == [batch.tolist() for batch in twin.epoch(epoch)]
    sampler.set_epoch(7)
    single = torch.utils.data.DataLoader(data, sampler=sampler.single(), batch_size=sampler.batch_size)
    assert len(single) == len(sampler)
    assert [batch.tolist() for (batch,) in single] == [batch.tolist() for batch in twin.epoch(7)]
    assert sampler.next_epoch == 8


def test_ragged_batches_are_for_batch_sampler():
    with pytest.raises(ValueError, match="batch_sampler=sampler"):
        MPerClassSampler(ragged([2, 3, 9, 9, 2, 7]), 3, 4).single()


SIZES_OF = {
    "m_per_class": ("classes", "images"),
    "m_per_class_official": ("classes", "images"),
    "super_pairs": ("batch", "per_pair"),
    "super_pairs_random": ("classes", "images", "super_classes", "per_pair"),
    "hierarchical": ("classes", "images", "super_classes"),
}


@pytest.mark.parametrize(
    "name, key", [(name, key) for name, keys in SIZES_OF.items() for key in (*keys, "seed", "number")]
)
@pytest.mark.parametrize("wrong", [2.0, float("nan"), float("inf"), True, "3", None, -1, [2]], ids=str)
def test_what_is_no_whole_number_is_refused_by_name(name, key, wrong):
    with pytest.raises((TypeError, ValueError)) as caught:
        if key == "number":
            ALL[name]().epoch(wrong)
        else:
            ALL[name](**{key: wrong})
    text = str(caught.value)
    assert "\n" not in text and ("epoch" if key == "number" else key) in text.replace(
        "super-labels", "super_classes"
    ), text


@pytest.mark.parametrize(
    "kind, name, says",
    [
        (MPerClassSampler, "m", "it is called 'images' here"),
        (MPerClassSampler, "batch_size", "a batch holds classes x images"),
        (MPerClassSampler, "length_before_new_iter", "an epoch ends when its images are used"),
        (OfficialMPerClassSampler, "n_labels", "it is called 'classes' here"),
        (HierarchicalSampler, "samples_per_class", "it is called 'images' here"),
        (HierarchicalSampler, "super_classes_per_batch", "it is called 'super_classes' here"),
        (HierarchicalSampler, "batches_per_super_tuple", "an epoch ends when its images are used"),
        (HierarchicalSampler, "inner_label", "the super-label first"),
        (RandomSuperPairSampler, "batches_per_super_tuple", "it is called 'per_pair' here"),
        (SuperPairSampler, "batch_size", "it is called 'batch' here"),
        (SuperPairSampler, "drop_last", "all batches are full"),
    ],
)
def test_names_of_other_libraries_are_answered_with_ours(kind, name, says):
    labels = np.stack([np.arange(24) // 12, np.arange(24) // 4], 1)
    with pytest.raises(TypeError, match=f"{kind.__name__} has no '{name}': .*{says}"):
        kind(labels, **{name: 4})
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        kind(labels, 4, nonsense=1)


def test_samplers_can_be_copied_and_pickled():
    sampler = MPerClassSampler(ragged([5] * 8), classes=4, images=2)
    for again in (copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert all((a == b).all() for a, b in zip(again.epoch(3), sampler.epoch(3)))
