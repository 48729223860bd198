"""What all samplers share: their face, the checks of their numbers, and the classes below each super-label."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral

import numpy as np

from ..losses.signature import refuse_foreign_names
from .dealing import columns, members_of

__all__ = ["BatchSampler", "SingleImages", "some", "super_labels", "whole"]

# a setting of pytorch-metric-learning, open-metric-learning or torch -> what it is called here
_OUR_NAMES = {
    "m": ("images",),
    "samples_per_class": ("images",),
    "n_instances": ("images",),
    "n_labels": ("classes",),
    "super_classes_per_batch": ("super_classes",),
    "batches_per_super_tuple": ("per_pair",),
    "batch_size": ("batch",),
}
_LENGTH = "an epoch ends when its images are used"
_REASONS = {
    "batch_size": "a batch holds classes x images",
    "batches_per_super_tuple": _LENGTH,
    "length_before_new_iter": _LENGTH,
    **dict.fromkeys(("inner_label", "outer_label"), "labels are (N, L), the super-label first and the class last"),
    "drop_last": "all batches are full",
}


def whole(name: str, value, least: int) -> int:
    "A whole number from `least` on; anything else (True, 2.0, words, NaN) is refused by name."
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}")
    return int(value)


class BatchSampler:
    """The face of all samplers. A subclass gives `epoch(number)`, a list of index arrays, and `__len__`.

    Attributes:
        next_epoch: the epoch that the next iteration gives; every iteration that is begun counts.
    """

    next_epoch: int = 0

    def __new__(cls, *args, **kwargs):
        refuse_foreign_names(cls, kwargs, _OUR_NAMES, _REASONS)
        return super().__new__(cls)

    def epoch(self, number: int = 0) -> list[np.ndarray]:
        "The batches of one epoch, decided by the seed and the epoch's number."
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def set_epoch(self, number: int) -> None:
        """Let the next iteration be that of a given epoch, as in PyTorch's distributed sampler; iterating goes on
        from there."""
        self.next_epoch = whole("the epoch", number, 0)

    def __iter__(self) -> Iterator[list[int]]:
        "The batches of the next epoch as lists of indices, for `DataLoader(..., batch_sampler=...)`."
        number = self.next_epoch
        self.next_epoch += 1
        return (batch.tolist() for batch in self.epoch(number))

    @property
    def batch_size(self) -> int:
        """Images in a batch, where all batches of an epoch hold as many.

        Raises:
            ValueError: ragged batches: pass the sampler as `batch_sampler`.
        """
        sizes = {len(batch) for batch in self.epoch(self.next_epoch)}
        if len(sizes) != 1:
            raise ValueError(
                f"batches hold {min(sizes)} to {max(sizes)} images here: use DataLoader(..., batch_sampler=sampler)"
            )
        return sizes.pop()

    def single(self) -> SingleImages:
        """The same images one by one, for `DataLoader(..., sampler=..., batch_size=s.batch_size)`; refused where
        batches are ragged."""
        return SingleImages(self, self.batch_size)


class SingleImages:
    "The batches of a sampler, image after image."

    def __init__(self, batches: BatchSampler, batch_size: int):
        self.batches, self.batch_size = batches, batch_size

    def __len__(self) -> int:
        return len(self.batches) * self.batch_size

    def __iter__(self) -> Iterator[int]:
        return (index for batch in self.batches for index in batch)

    def set_epoch(self, number: int) -> None:
        "See `BatchSampler.set_epoch`."
        self.batches.set_epoch(number)


def below(labels: np.ndarray) -> dict[int, list[np.ndarray]]:
    "Super-label -> the images of each of its classes; a class is a whole row of labels."
    _, fine = np.unique(labels, axis=0, return_inverse=True)
    members = members_of(fine.ravel())
    out: dict[int, list[np.ndarray]] = {}
    for images in members:
        out.setdefault(int(labels[images[0], 0]), []).append(images)
    return dict(sorted(out.items()))


def super_labels(labels, wanted: int) -> dict[int, list[np.ndarray]]:
    "The classes of each super-label, checked: a tree, with at least `wanted` super-labels."
    labels = columns(labels)
    if labels.shape[1] < 2:
        raise ValueError(
            "this sampler needs labels of two levels, (N, 2) or more, super-label first; use the sampler "
            "m_per_class for flat labels"
        )
    found = below(labels)
    if len(found) < wanted:
        raise ValueError(
            f"{wanted} super-labels per batch were asked for, but the first column of labels holds {len(found)}: "
            f"use the sampler m_per_class"
        )
    return found


def some(names) -> str:
    names = sorted(names)
    return ", ".join(map(str, names[:8])) + (", ..." if len(names) > 8 else "")
