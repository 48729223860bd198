"""What a data set for retrieval is: the face that training, evaluation and the report see, its errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

__all__ = ["DatasetError", "MissingData", "RetrievalDataset", "PictureSet", "places", "check_draw", "class_sizes"]


class DatasetError(ValueError):
    "A data set that cannot be used as it lies on the disk; the message names the thing and the mend."


class MissingData(DatasetError, FileNotFoundError):
    "A folder, list or picture that is not there."

    __str__ = Exception.__str__


@runtime_checkable
class RetrievalDataset(Protocol):
    """The face of a data set: `Glyphs`, `ImageSet` (folders, lists, the papers' sets) and `DecodedCache` have it, and
    so may yours.

    A picture is decided by (seed, what it is, draw) alone: the same in any batch, order, process or thread. Whoever
    writes a data set of their own derives it from `PictureSet` and gives `labels`, `level_names`, `identity` and `raw`;
    the rest follows. What must be known before there is a data set (its protocols, the transform of a user's own
    picture, which settings fit) its line in `DATASETS` says.

    Attributes:
        name, split: for messages.
        labels: (N, L) int64, coarse to fine.
        level_names: what the L levels are called.
        identity: (N,) int64, what each image is; a subset keeps it.
        captions: what each image shows, in words, a sequence of N.
        classes_called: what a report calls its finest classes, in the plural.
        draw: which draw `dataset[i]` gives; 0 is evaluation's.
    """

    name: str
    split: str
    labels: Tensor
    level_names: tuple[str, ...]
    identity: Tensor
    draw: int
    classes_called: str

    @property
    def captions(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        "Image (C, H, W) float32 in [0, 1] and labels (L,)."
        ...

    def batch(self, indices, draw: int = 0) -> tuple[Tensor, Tensor]:
        """Images (B, C, H, W) float32 in [0, 1] and labels (B, L); draw 0 is evaluation's, 1, 2, ... are training's
        (the epoch + 1)."""
        ...

    def raw(self, indices, draw: int = 0) -> Tensor:
        "(B, ...) what is carried to the device: bytes where the data set has them."
        ...

    def finish(self, raw: Tensor, indices, draw: int = 0) -> Tensor:
        "Make `raw` the images (B, C, H, W) float32, on the device where it is."
        ...

    def subset(self, indices) -> RetrievalDataset:
        "Some of the images, each what it was in the whole."
        ...

    def to(self, device) -> RetrievalDataset:
        "Move what lies in memory to a device; pictures on a disk stay there. Returns the data set itself."
        ...

    def workers(self, wanted: int) -> int:
        "How many of the wanted readers are worth having: one where nothing is read from files."
        ...

    def validation(self) -> RetrievalDataset | None:
        """Classes that the data set itself holds back for validation, or None: a share of the training classes is set
        aside."""
        ...

    def statistics(self) -> dict:
        "Counts: see `class_sizes`."
        ...


class PictureSet(torch.utils.data.Dataset):
    """What all data sets have in common. A subclass gives `labels`, `level_names`, `identity`, `raw` and `subset`.

    Attributes:
        reads_files: does `raw` open and decode files in Python? Beside a GPU it is then called in processes of its own,
            and what it keeps in the data set is lost, all but `damaged` (see `ImageSet.note`).

    Raises:
        TypeError, ValueError, IndexError: in `batch` and `dataset[i]`, indices or a draw that do not fit.
        NotImplementedError: where a subclass lacks `raw` or `subset`.
    """

    name: str = "pictures"
    split: str = ""
    draw: int = 0
    classes_called: str = "classes"
    reads_files: bool = False
    labels: Tensor
    level_names: tuple[str, ...]
    identity: Tensor

    def raw(self, indices, draw: int = 0) -> Tensor:
        "(B, C, H, W) uint8, or float32 in [0, 1]."
        raise NotImplementedError

    def subset(self, indices) -> PictureSet:
        "Some of the images, each what it was in the whole."
        raise NotImplementedError

    def finish(self, raw: Tensor, indices, draw: int = 0) -> Tensor:
        "Bytes as numbers in [0, 1]; floats as they are."
        return raw.float() / 255 if raw.dtype == torch.uint8 else raw

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        "Image (C, H, W) float32 in [0, 1] and labels (L,)."
        index = int(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no image {index}: the data set has {len(self)}")
        images, labels = self.batch([index], self.draw)
        return images[0], labels[0]

    def batch(self, indices, draw: int = 0) -> tuple[Tensor, Tensor]:
        """Several images at once.

        Args:
            indices: (B,) whole numbers, places in the data set: a list, range, array or tensor.
            draw: 0 = evaluation; 1, 2, ... = training (the epoch + 1).

        Returns:
            images (B, C, H, W) float32 in [0, 1], labels (B, L) int64.

        Raises:
            TypeError, ValueError, IndexError: indices or a draw that do not fit.
        """
        rows, draw = places(indices, len(self)), check_draw(draw)
        return self.finish(self.raw(rows, draw), rows, draw), self.labels[rows.to(self.labels.device)]

    @property
    def captions(self) -> Sequence[str]:
        "What each image shows, in words: the number of its class."
        return [f"class {label}" for label in self.labels[:, -1].tolist()]

    def to(self, device) -> PictureSet:
        "Pictures on a disk stay there: the data set itself."
        return self

    def workers(self, wanted: int) -> int:
        "Reading files is shared among threads or processes."
        return wanted

    def validation(self) -> PictureSet | None:
        "None: a share of the training classes is set aside for validation."
        return None

    def statistics(self) -> dict:
        "Counts of images, classes and levels; see `class_sizes`."
        return class_sizes(self.labels, self.level_names)


def places(indices, length: int) -> Tensor:
    """Indices of images as (B,) int64 from 0 on, checked.

    Raises:
        TypeError: what is no list of whole numbers (a mask, for instance).
        IndexError: an index outside of the data set.
    """
    rows = torch.as_tensor(indices)
    if rows.ndim != 1:
        raise TypeError(f"indices must be a list of whole numbers, got shape {tuple(rows.shape)}")
    if rows.numel() == 0:
        return rows.long()
    if rows.is_floating_point() or rows.dtype == torch.bool:
        raise TypeError(f"indices must be whole numbers, got {rows.dtype}: turn a mask into mask.nonzero()[:, 0]")
    if rows.device.type == "cpu" and not (-length <= int(rows.min()) and int(rows.max()) < length):
        odd = int(rows.max()) if int(rows.max()) >= length else int(rows.min())
        raise IndexError(f"there is no image {odd}: the data set has {length}")
    return rows.long() % length


def check_draw(draw) -> int:
    "Refuse a draw that is not a whole number from 0 on."
    if (
        isinstance(draw, bool)
        or not isinstance(draw, (int, float))
        and not hasattr(draw, "__index__")
        or draw < 0
        or int(draw) != draw
    ):
        raise ValueError(f"draw must be a whole number of at least 0, got {draw!r}")
    return int(draw)


def class_sizes(labels: Tensor, level_names: Sequence[str]) -> dict:
    """Counts of a data set.

    Args:
        labels: (N, L), coarse to fine, N at least 1.
        level_names: what the levels are called.

    Returns:
        images, classes, images_per_class (mean), smallest_class, largest_class; then the number of ids at each level,
        by its name.
    """
    sizes = labels[:, -1].unique(return_counts=True)[1]
    return {
        "images": len(labels),
        "classes": len(sizes),
        "images_per_class": len(labels) / max(len(sizes), 1),
        "smallest_class": int(sizes.min()),
        "largest_class": int(sizes.max()),
        **{name: len(labels[:, level].unique()) for level, name in enumerate(level_names)},
    }


Embed = Callable[[RetrievalDataset], Tensor]  # gives (N, D) embeddings of a data set's N images
