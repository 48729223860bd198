"""Samplers: what a batch must hold so that there is something to rank (lesson 12).

All have one face. `len(s)` batches in an epoch; `s.epoch(k)` the list of them, a pure function of the seed and k, which
is what lets a run resume in the middle of an epoch. Iterating gives the epochs one after the other, so that
`DataLoader(data, batch_sampler=s)` works; where all batches have one size, `DataLoader(data, sampler=s.single(),
batch_size=s.batch_size)` does too.
"""

from __future__ import annotations

from itertools import combinations
from math import comb
from numbers import Integral

import numpy as np

from ..checks import ConfigError, nearest
from .batch_pictures import batch_picture
from .batches import BatchSampler, some, super_labels, whole
from .dealing import (
    batch_statistics,
    columns,
    cut_class,
    deal,
    divide,
    epoch_length,
    members_of,
    next_on_the_row,
    siblings_first,
)
from .paired import PairedClassSampler
from .settings import BatchConfig

__all__ = [
    "SAMPLERS",
    "BatchSampler",
    "MPerClassSampler",
    "SuperPairSampler",
    "RandomSuperPairSampler",
    "HierarchicalSampler",
    "OfficialMPerClassSampler",
    "batch_picture",
    "batch_statistics",
    "sampler_from_config",
]


class MPerClassSampler(BatchSampler):
    """Batches of `classes` different classes with `images` images of each; a sequence of index arrays for each epoch.

    A class is shuffled and cut into groups of `images`; the last group is filled up from the class's other images.
    Groups are dealt to batches at random, no class twice in a batch; a batch that comes out short gets further groups
    from classes it does not hold. A class with fewer images than `images` gives all it has. A class that would fill
    more groups than the epoch has batches gives a different random part of its images in each epoch.

    Args:
        labels: (N,) integers.
        classes: classes in a batch, at least 2.
        images: images of each, at least 2.
        seed: decides every draw, together with the epoch's number.

    Raises:
        TypeError, ValueError: sizes or a seed that are no whole numbers, sizes below 2, a seed below 0, fewer classes
            with two images than `classes` asks for.
    """

    def __init__(self, labels, classes: int, images: int = 4, seed: int = 0):
        labels = columns(labels)
        if labels.shape[1] > 1:
            raise ValueError(
                f"labels must be a list of integers, got shape {labels.shape}: choose one level, e.g. labels[:, -1]"
            )
        self.classes, self.images, self.seed = (
            whole("classes", classes, 0),
            whole("images", images, 0),
            whole("seed", seed, 0),
        )
        if classes < 2 or images < 2:
            raise ValueError(
                f"a batch needs at least 2 classes and 2 images of each, got classes={classes}, images={images}"
            )
        known = members_of(labels[:, 0])
        self.members = [m for m in known if len(m) > 1]
        self.alone = len(known) - len(self.members)  # a class of one has no positive to find
        if len(self.members) < classes:
            raise ValueError(
                f"{classes} classes per batch were asked for, but only {len(self.members)} classes have two images "
                f"or more "
                f"({self.alone} have one): lower batch.classes, or add images"
            )
        groups = np.array([-(-len(m) // images) for m in self.members])
        self.batches = epoch_length(groups, classes)
        self.groups = np.minimum(groups, self.batches)

    def __len__(self) -> int:
        "Batches in an epoch."
        return self.batches

    def epoch(self, number: int = 0) -> list[np.ndarray]:
        "The batches of one epoch, decided by the seed and the epoch's number."
        rng = np.random.default_rng([self.seed, whole("the epoch", number, 0)])
        batches: list[list[np.ndarray]] = [[] for _ in range(self.batches)]
        held, room = deal(
            self.groups, self.batches, self.classes, rng, lambda c, chosen: self._give(c, chosen, batches, rng)
        )
        for batch in np.flatnonzero(room > 0):
            others = np.setdiff1d(np.arange(len(self.members)), held[batch], assume_unique=True)
            for c in rng.choice(others, room[batch], replace=False):
                batches[batch].append(cut_class(self.members[c], 1, self.images, rng)[0])
        return [np.concatenate([groups[i] for i in rng.permutation(len(groups))]) for groups in batches]

    def _give(self, c: int, chosen: np.ndarray, batches: list[list[np.ndarray]], rng) -> None:
        for batch, group in zip(chosen, cut_class(self.members[c], self.groups[c], self.images, rng)):
            batches[batch].append(group)


class SuperPairSampler(BatchSampler):
    """FastAP's batches as published: half from each of two super-labels, through cursors that wrap (Cakir et al.
    2019; kunhe/FastAP-metric-learning).

    In each epoch the classes of every super-label are shuffled (and the images of each class), and all their images put
    in a row; every pair of super-labels, in random order, gives `per_pair` batches, each the next batch/2 images of
    either row. No image comes twice in a batch: a super-label with fewer than batch/2 images gives each once.

    Args:
        labels: (N, L) integers, L >= 2, coarse to fine; the first column is the super-label.
        batch: images in a batch, even, at least 4.
        per_pair: batches of each pair; the authors' 5 on Stanford Online Products, 2 on In-Shop. 0: ceil(2 n / batch),
            n images under the pair's larger partner (under the other one, with `background`).
        background: a super-label that is one half of every batch, as the authors pair PKU VehicleID's vehicles without
            a known model (0) with each known model, with per_pair = 0.
        seed: decides every draw, together with the epoch's number.

    Raises:
        TypeError, ValueError: flat labels, fewer than two super-labels, a batch that is odd or too small, an unknown
            background.
    """

    def __init__(self, labels, batch: int, per_pair: int = 5, background: int | None = None, seed: int = 0):
        batch, per_pair, seed = whole("batch", batch, 1), whole("per_pair", per_pair, 0), whole("seed", seed, 0)
        if batch < 4 or batch % 2:
            raise ValueError(
                f"batch must be even and at least 4, half of it from each of two super-labels; got {batch}"
            )
        self.below, self.half, self.seed = super_labels(labels, 2), batch // 2, seed
        if background is not None and not (isinstance(background, Integral) and background in self.below):
            raise ValueError(f"background = {background} is no super-label; there are {some(self.below)}")
        names = [s for s in self.below if s != background]
        self.pairs = list(combinations(names, 2)) if background is None else [(background, s) for s in names]
        sizes = {s: sum(map(len, classes)) for s, classes in self.below.items()}
        self.per_pair = [
            per_pair or -(-(sizes[b] if background is not None else max(sizes[a], sizes[b])) // self.half)
            for a, b in self.pairs
        ]

    def __len__(self) -> int:
        "Batches in an epoch."
        return sum(self.per_pair)

    def epoch(self, number: int = 0) -> list[np.ndarray]:
        "The batches of one epoch, decided by the seed and the epoch's number."
        rng = np.random.default_rng([self.seed, whole("the epoch", number, 0)])
        rows = {
            s: np.concatenate([rng.permutation(classes[i]) for i in rng.permutation(len(classes))])
            for s, classes in self.below.items()
        }
        cursor = dict.fromkeys(rows, 0)

        def take(s):
            images, cursor[s] = next_on_the_row(rows[s], cursor[s], self.half)
            return images

        return [
            np.concatenate([take(a), take(b)])
            for p in rng.permutation(len(self.pairs))
            for a, b in [self.pairs[p]]
            for _ in range(self.per_pair[p])
        ]


class RandomSuperPairSampler(BatchSampler):
    """Batches from a few super-labels with fresh draws, `images` of each class: FastAP's scheme as re-implemented in
    libraries.

    Every combination of `super_classes` super-labels gives `per_pair` batches; the order of the batches is random. The
    classes of a batch are divided evenly among its super-labels; one that has too few classes gives all, and the others
    make up for it.

    Args:
        labels: (N, L) integers, L >= 2, coarse to fine; the first column is the super-label.
        classes: classes in a batch, at least 2.
        images: images of each (all it has, where a class has fewer), at least 2.
        super_classes: super-labels in a batch, at least 2.
        per_pair: batches of each combination.
        seed: decides every draw, together with the epoch's number.

    Raises:
        TypeError, ValueError: flat labels, sizes that do not fit, two super-labels that together have too few classes.
    """

    def __init__(self, labels, classes: int, images: int = 4, super_classes: int = 2, per_pair: int = 5, seed: int = 0):
        for name, value in (
            ("classes", classes),
            ("images", images),
            ("super_classes", super_classes),
            ("per_pair", per_pair),
            ("seed", seed),
        ):
            whole(name, value, 0)
        if super_classes < 2 or classes < super_classes or images < 2 or per_pair < 1:
            raise ValueError(
                "a batch needs at least 2 super-labels, a class of each, 2 images of a class, and every combination "
                "a batch; got "
                f"super_classes={super_classes}, classes={classes}, images={images}, per_pair={per_pair}"
            )
        self.below = super_labels(labels, super_classes)
        count = comb(len(self.below), super_classes)
        if count * per_pair > 10**6:
            raise ValueError(
                f"{len(self.below)} super-labels have {count:,} combinations of {super_classes}, {per_pair} batches "
                f"each: too long an "
                "epoch; lower super_classes or use the sampler hierarchical"
            )
        smallest = sorted((len(c), s) for s, c in self.below.items())[:super_classes]
        if sum(n for n, _ in smallest) < classes:
            raise ValueError(
                f"{classes} classes per batch were asked for, but the super-labels {some(s for _, s in smallest)} "
                f"have only "
                f"{sum(n for n, _ in smallest)} together: lower batch.classes, or use the sampler hierarchical"
            )
        self.classes, self.images, self.seed = classes, images, seed
        self.combinations, self.per_pair = list(combinations(self.below, super_classes)), per_pair

    def __len__(self) -> int:
        "Batches in an epoch."
        return len(self.combinations) * self.per_pair

    def epoch(self, number: int = 0) -> list[np.ndarray]:
        "The batches of one epoch, decided by the seed and the epoch's number."
        rng = np.random.default_rng([self.seed, whole("the epoch", number, 0)])
        batches = [self._batch(names, rng) for names in self.combinations for _ in range(self.per_pair)]
        return [batches[i] for i in rng.permutation(len(batches))]

    def _batch(self, names, rng) -> np.ndarray:
        names = [names[i] for i in rng.permutation(len(names))]
        counts = divide(self.classes, [len(self.below[s]) for s in names])
        chosen = [
            self.below[s][i] for s, n in zip(names, counts) for i in rng.choice(len(self.below[s]), n, replace=False)
        ]
        return np.concatenate([rng.permutation(images)[: self.images] for images in chosen])


class HierarchicalSampler(BatchSampler):
    """Batches that hold siblings at every level of the label tree: coarse nodes first, then nodes below them, then
    classes.

    Exactly `classes` classes in a batch, `images` of each (all it has, where a class has fewer), no image twice. Nodes
    are drawn with a probability proportional to the groups of images not yet used in this epoch; an epoch is as long as
    it takes to use all groups once if none had to be used twice.

    Args:
        labels: (N, L) integers, coarse to fine (with L = 1 all classes are siblings).
        classes: classes in a batch, at least 2.
        images: images of each, at least 2.
        super_classes: nodes of the coarsest level in a batch, at least 1. Below, a node that has to give k classes over
            d levels gives them through k^(1/d) children, at least 2.
        seed: decides every draw, together with the epoch's number.

    Raises:
        TypeError, ValueError: fewer classes in the data than in a batch, labels that are no tree, sizes that do not
            fit.
    """

    def __init__(self, labels, classes: int, images: int = 4, super_classes: int = 2, seed: int = 0):
        labels = columns(labels)
        for name, value in (("classes", classes), ("images", images), ("super_classes", super_classes), ("seed", seed)):
            whole(name, value, 0)
        if classes < 2 or images < 2 or not 1 <= super_classes <= classes:
            raise ValueError(
                f"a batch needs at least 2 classes, 2 images of each and 1 to `classes` super-labels; got "
                f"classes={classes}, "
                f"images={images}, super_classes={super_classes}"
            )
        rows, inverse = np.unique(labels, axis=0, return_inverse=True)
        self.members = members_of(inverse.ravel())
        if len(rows) < classes:
            raise ValueError(
                f"{classes} classes per batch were asked for, but there are only {len(rows)}: lower batch.classes"
            )
        self.classes, self.images, self.super_classes, self.seed = classes, images, super_classes, seed
        self.groups = np.array([-(-len(m) // images) for m in self.members])
        self.tree = _Node(rows, 0, len(rows), 0)

    def __len__(self) -> int:
        "Batches in an epoch."
        return -(-int(self.groups.sum()) // self.classes)

    def epoch(self, number: int = 0) -> list[np.ndarray]:
        "The batches of one epoch, decided by the seed and the epoch's number."
        rng = np.random.default_rng([self.seed, whole("the epoch", number, 0)])
        left = self.groups.astype(float)  # groups of each class not yet given
        queues = [rng.permutation(m) for m in self.members]
        return [
            np.concatenate([self._group(c, queues, left, rng) for c in self._walk(self.tree, self.classes, left, rng)])
            for _ in range(len(self))
        ]

    def _group(self, c: int, queues: list, left: np.ndarray, rng) -> np.ndarray:
        "The next images of a class; when none are left, or too few, the first ones of a new shuffle fill up."
        m = min(self.images, len(self.members[c]))
        got, queues[c] = queues[c][:m], queues[c][m:]
        if len(got) < m:
            again = rng.permutation(self.members[c])
            again = again[~np.isin(again, got)]
            got, queues[c] = np.concatenate([got, again[: m - len(got)]]), again[m - len(got) :]
        left[c] = max(0.0, left[c] - 1)
        return got

    def _walk(self, node: _Node, count: int, left: np.ndarray, rng) -> list[int]:
        "`count` different classes below a node."
        weights = (
            np.add.reduceat(left[: node.starts[-1]], node.starts[:-1]) + 1e-3 * node.sizes
        )  # what is used up can still come, seldom
        order = siblings_first(weights, rng)
        if node.height == 1:
            return node.starts[order[:count]].tolist()
        width = self.super_classes if node.depth == 0 else max(2, round(count ** (1 / node.height)))
        enough = 1 + int(np.argmax(np.cumsum(node.sizes[order]) >= count))  # children that can hold the count
        chosen = order[: max(min(width, count), enough)]
        counts = divide(count, node.sizes[chosen].tolist())
        return [c for i, n in zip(chosen, counts) if n for c in self._walk(node.children[i], n, left, rng)]


class _Node:
    """A node of the label tree, whose classes are consecutive rows: where its children start (and where the last one
    ends), and how many classes each has."""

    def __init__(self, rows: np.ndarray, first: int, last: int, depth: int):
        self.depth, self.height = depth, rows.shape[1] - depth
        cuts = first + 1 + np.flatnonzero(np.diff(rows[first:last, depth]))
        self.starts = np.concatenate([[first], cuts, [last]])
        self.sizes = np.diff(self.starts)
        self.children = (
            [_Node(rows, a, b, depth + 1) for a, b in zip(self.starts[:-1], self.starts[1:])] if self.height > 1 else []
        )


class OfficialMPerClassSampler(BatchSampler):
    """The sampler of the Smooth-AP authors' code, quirks included (Andrew-Brown1/Smooth_AP,
    `TrainDatasetsmoothap.reshuffle`).

    One order of the classes per epoch; each batch takes the next `images` images of the first `classes` classes in that
    order that still have so many; the epoch ends when a batch cannot be filled; the batches are then shuffled. The
    number of batches depends on the
    order: the length is that of epoch 0; an epoch that falls short goes on with a new shuffle, a longer one is cut.

    Args:
        labels: (N,) or (N, L) integers, coarse to fine; a class is a whole row.
        classes: classes in a batch, at least 2.
        images: images of each, at least 2.
        seed: decides every draw, together with the epoch's number.

    Attributes:
        never_seen: indices of the images whose class has fewer than `images` images: no epoch holds them.

    Raises:
        TypeError, ValueError: fewer than `classes` classes with `images` images.
    """

    def __init__(self, labels, classes: int, images: int = 4, seed: int = 0):
        labels = columns(labels)
        for name, value in (("classes", classes), ("images", images), ("seed", seed)):
            whole(name, value, 0)
        if classes < 2 or images < 2:
            raise ValueError(
                f"a batch needs at least 2 classes and 2 images of each, got classes={classes}, images={images}"
            )
        self.members = members_of(np.unique(labels, axis=0, return_inverse=True)[1].ravel())
        small = [m for m in self.members if len(m) < images]
        self.never_seen = np.sort(np.concatenate(small)) if small else np.array([], dtype=np.int64)
        if len(self.members) - len(small) < classes:
            raise ValueError(
                f"{classes} classes with {images} images were asked for, but only {len(self.members) - len(small)} "
                f"classes have so many: "
                "lower batch.classes or batch.images, or use the sampler m_per_class"
            )
        self.classes, self.images, self.seed = classes, images, seed
        self._length = len(self._shuffle(np.random.default_rng([seed, 0])))

    def __len__(self) -> int:
        "Batches in an epoch."
        return self._length

    def epoch(self, number: int = 0) -> list[np.ndarray]:
        "The batches of one epoch, decided by the seed and the epoch's number."
        rng, batches = np.random.default_rng([self.seed, whole("the epoch", number, 0)]), []
        while len(batches) < len(self):
            batches += self._shuffle(rng)
        return batches[: len(self)]

    def left_out(self, number: int = 0) -> np.ndarray:
        "Indices of the images that an epoch does not hold, sorted."
        return np.setdiff1d(np.arange(sum(map(len, self.members))), np.concatenate(self.epoch(number)))

    def _shuffle(self, rng) -> list[np.ndarray]:
        "One pass of the authors' code."
        images = [rng.permutation(m) for m in self.members]
        order = rng.permutation(len(images))
        full = np.array([len(images[c]) // self.images for c in order])  # groups that each class can still give
        given, batches = np.zeros_like(full), []
        while len(first := np.flatnonzero(full > given)[: self.classes]) == self.classes:
            batches.append(
                np.concatenate([images[order[i]][given[i] * self.images : (given[i] + 1) * self.images] for i in first])
            )
            given[first] += 1
        return [batches[i] for i in rng.permutation(len(batches))]


SAMPLERS = {  # name in an experiment -> what it is
    "m_per_class": MPerClassSampler,
    "super_pairs": SuperPairSampler,
    "super_pairs_random": RandomSuperPairSampler,
    "hierarchical": HierarchicalSampler,
    "m_per_class_official": OfficialMPerClassSampler,
}


def sampler_from_config(batch: BatchConfig, labels, seed: int = 0):
    """The sampler that an experiment's [batch] table asks for.

    Args:
        batch: a `BatchConfig`.
        labels: (N,) or (N, L) integers, coarse to fine.
        seed: decides every draw, together with the epoch's number.

    Returns:
        an object with `len()`, batches in an epoch, and `epoch(k)`, the list of index arrays.

    Raises:
        ConfigError: an unknown name (with the nearest known one), or sizes that the labels cannot fill.
    """
    name = batch.sampler
    if name not in (*SAMPLERS, "paired_classes"):
        raise ConfigError(f"batch.sampler is {name!r}: {nearest(str(name), SAMPLERS)}")
    try:
        labels = columns(labels)
        if name == "m_per_class":
            return MPerClassSampler(labels[:, -1], batch.classes, batch.images, seed)
        if name == "super_pairs":
            return SuperPairSampler(labels, batch.classes * batch.images, batch.per_pair, seed=seed)
        if name == "super_pairs_random":
            return RandomSuperPairSampler(
                labels, batch.classes, batch.images, batch.super_classes, batch.per_pair, seed
            )
        if name == "paired_classes":  # two super-labels, |P| of each class; plain code, in data/paired.py
            return PairedClassSampler(labels, batch.classes, batch.images, batch.per_pair, seed)
        if name == "hierarchical":
            return HierarchicalSampler(labels, batch.classes, batch.images, batch.super_classes, seed)
        return OfficialMPerClassSampler(labels, batch.classes, batch.images, seed)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None
