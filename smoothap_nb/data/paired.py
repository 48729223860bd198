"""Batches from two super-labels, the same number of images of every class: what Smooth-AP and RaMBO describe for
Stanford Online Products.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from .batches import BatchSampler, super_labels, whole
from .dealing import divide

__all__ = ['PairedClassSampler']


class PairedClassSampler(BatchSampler):
    """Two super-labels in a batch, `images` of each class.

    The pairs of super-labels come as in FastAP's published sampler, every pair in random order and `per_pair` batches
    of each, but the batch is filled by classes and not by pictures in a row: half of its classes from each side (the
    larger side makes up for a side that has too few), the next ones of a shuffle that starts anew when it is used up,
    and of each class the next `images` pictures of its own shuffle. A class that has fewer gives all; one with a
    single picture never comes, for nothing could be its positive.

    Smooth-AP (section 5.3) states |P| = 4 and two categories in a batch, RaMBO (appendix A) 4 images of a class on
    SOP and 8 on In-shop, with FastAP's pairs. Neither says what becomes of classes with fewer images.

    Args:
        labels: (N, L) integers, L >= 2, coarse to fine; the first column is the super-label.
        classes: classes in a batch, at least 2.
        images: images of each, |P| in the papers (the query counts), at least 2.
        per_pair: batches from each pair of super-labels in an epoch, at least 1.
        seed: decides every draw, together with the epoch's number.

    Attributes:
        never_seen: indices of the images that are alone in their class: no epoch holds them.

    Raises:
        TypeError, ValueError: flat labels, sizes that do not fit, two super-labels that together have too few classes.
    """

    def __init__(self, labels, classes: int, images: int = 4, per_pair: int = 5, seed: int = 0):
        for name, value in (("classes", classes), ("images", images), ("per_pair", per_pair), ("seed", seed)):
            whole(name, value, 0)
        if classes < 2 or images < 2 or per_pair < 1:
            raise ValueError(
                f"a batch needs at least 2 classes, 2 images of a class, and every pair a batch; got "
                f"classes={classes}, images={images}, per_pair={per_pair}"
            )
        below = super_labels(labels, 2)
        lone = [members for found in below.values() for members in found if len(members) < 2]
        self.never_seen = np.sort(np.concatenate(lone)) if lone else np.array([], dtype=np.int64)
        self.below = {s: [members for members in found if len(members) > 1] for s, found in below.items()}
        self.below = {s: found for s, found in self.below.items() if found}
        smallest = sorted((len(found), s) for s, found in self.below.items())[:2]
        if len(smallest) < 2 or sum(n for n, _ in smallest) < classes:
            raise ValueError(
                f"{classes} classes per batch were asked for, but the super-labels "
                f"{', '.join(str(s) for _, s in smallest)} have only "
                f"{sum(n for n, _ in smallest)} with two images together: lower batch.classes, or use the sampler "
                f"hierarchical"
            )
        self.classes, self.images, self.per_pair, self.seed = classes, images, per_pair, seed
        self.pairs = list(combinations(self.below, 2))

    def __len__(self) -> int:
        "Batches in an epoch."
        return len(self.pairs) * self.per_pair

    def epoch(self, number: int = 0) -> list[np.ndarray]:
        "The batches of one epoch, decided by the seed and the epoch's number."
        rng = np.random.default_rng([self.seed, whole("the epoch", number, 0)])
        classes = {s: _rounds(len(found), rng) for s, found in self.below.items()}
        pictures = {s: [_rounds(len(members), rng) for members in found] for s, found in self.below.items()}
        batches = []
        for p in rng.permutation(len(self.pairs)):
            pair = self.pairs[p]
            counts = divide(self.classes, [len(self.below[s]) for s in pair])
            for _ in range(self.per_pair):
                chosen = [(s, c) for s, count in zip(pair, counts) for c in _take(classes[s], count)]
                batches.append(
                    np.concatenate(
                        [
                            self.below[s][c][_take(pictures[s][c], min(self.images, len(self.below[s][c])))]
                            for s, c in chosen
                        ]
                    )
                )
        return batches


def _rounds(count: int, rng: np.random.Generator) -> Iterator[int]:
    "0 to count - 1 in random order, again and again."
    while True:
        yield from rng.permutation(count).tolist()


def _take(rounds: Iterator[int], count: int) -> list[int]:
    "The next `count` different numbers (where a new round begins with one that is there already, it is passed over)."
    out: dict[int, None] = {}
    while len(out) < count:
        out[next(rounds)] = None
    return list(out)
