"""Photographs on a disk with labels along a tree: folders, lists and the papers' data sets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..images import PhotoError, open_rgb
from .interface import DatasetError, PictureSet, places
from .transforms import PhotoTransform

__all__ = ["DamagedImages", "ImageSet", "damage_report", "members"]


class _Paths(Sequence):
    "Full paths, made when asked for: three million Path objects would fill a gigabyte."

    def __init__(self, root: Path, relative: Sequence[str]):
        self.root, self.relative = root, relative

    def __len__(self) -> int:
        return len(self.relative)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self.root / path for path in self.relative[index]]
        return self.root / self.relative[index]


class _Captions(Sequence):
    "What each image shows: the name of its class, with the one above it."

    def __init__(self, images: ImageSet):
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> str:
        names = self.images.class_names[-2:]
        if not names:
            return self.images.relative[index]
        return ", ".join(known[i] for known, i in zip(names, self.images.labels[index, -len(names) :].tolist()))


class DamagedImages(DatasetError):
    "More pictures are missing or damaged than the caller allows; the message counts them and names the first."


class ImageSet(PictureSet):
    """Photographs on a disk with labels along a tree; the same face as `Glyphs`.

    Args:
        root: the folder that all paths count from and stay in.
        relative: N paths below it.
        labels: (N, L) int64, coarse to fine.
        level_names: what the L levels are called.
        class_names: per level, the name of every id.
        transform: a `PhotoTransform`, or any callable (picture, identity, draw) -> (C, H, W) float32 in [0, 1].
        damaged_share: largest share of pictures that may be missing or damaged, 0 to 1.
        boxes: (N, 4) left, top, width, height: cut out before the transform.
        name, split: for messages.

    Attributes:
        labels, level_names, class_names: as above.
        paths: N full paths, a sequence.
        captions: what each image shows, by the names of its class, a sequence.
        identity: (N,) int64, the place of each image in the full list; a subset keeps it.
        damaged: reason by path, of all pictures found missing or damaged so far.
        draw: what `dataset[i]` gives, 0 = evaluation.

    Raises:
        DatasetError: labels that do not fit the paths and levels, a damaged_share outside 0 to 1.
        DamagedImages: while reading, more damaged pictures than that.
    """

    reads_files = True

    def __init__(
        self,
        root,
        relative: Sequence[str],
        labels: Tensor,
        level_names: Sequence[str],
        class_names: Sequence[Sequence[str]] = (),
        transform: Callable | None = None,
        damaged_share: float = 0.001,
        boxes: Tensor | None = None,
        name: str = "images",
        split: str = "",
    ):
        if not 0 <= damaged_share <= 1:
            raise DatasetError(f"damaged_share must lie between 0 and 1, got {damaged_share}")
        self.root, self.relative, self.labels = Path(root), list(relative), labels
        if labels.ndim != 2 or len(labels) != len(self.relative) or labels.shape[1] != len(level_names):
            raise DatasetError(
                f"labels must be ({len(self.relative)}, {len(level_names)}), one row per image and one column per "
                f"level; got {tuple(labels.shape)}"
            )
        self.level_names, self.class_names = tuple(level_names), [list(names) for names in class_names]
        self.transform = transform or PhotoTransform()
        self.damaged_share, self.boxes, self.name, self.split, self.draw = damaged_share, boxes, name, split, 0
        self.identity, self.damaged, self._total, self._classes = (
            torch.arange(len(self.relative)),
            {},
            len(self.relative),
            None,
        )

    @property
    def paths(self) -> Sequence[Path]:
        "Full path of every image."
        return _Paths(self.root, self.relative)

    @property
    def captions(self) -> Sequence[str]:
        "The class of every image in words."
        return _Captions(self)

    def _open(self, index: int):
        "One picture, or PhotoError."
        path = self.relative[index]
        if path in self.damaged:
            raise PhotoError(self.damaged[path])
        photo = open_rgb(path, self.root)
        if self.boxes is None:
            return photo
        left, top, width, height = self.boxes[index].tolist()
        right, bottom = min(round(left + width), photo.width), min(round(top + height), photo.height)
        left, top = max(round(left), 0), max(round(top), 0)
        if right <= left or bottom <= top:
            raise PhotoError(
                f"{self.root / path}: the box {self.boxes[index].tolist()} lies outside the picture of "
                f"{photo.width} x {photo.height}"
            )
        return photo.crop((left, top, right, bottom))

    def photo(self, index: int):
        """The photograph itself, RGB and upright, cut to its box; of the same class where this one is damaged.

        Args:
            index: place in the data set.

        Returns:
            `PIL.Image.Image`.

        Raises:
            DamagedImages: more than `damaged_share` of the pictures are missing or damaged, or all of this class.
        """
        try:
            return self._open(index)
        except PhotoError as error:
            self.note({self.relative[index]: str(error)})
        if self._classes is None:
            self._classes = members(self.labels[:, -1])
        mates = self._classes[int(self.labels[index, -1])]
        place = mates.index(index)
        for mate in mates[place + 1 :] + mates[:place]:
            try:
                return self._open(mate)
            except PhotoError as error:
                self.note({self.relative[mate]: str(error)})
        raise DamagedImages(
            f"every picture of the class of {self.relative[index]} is missing or damaged: remove the class from the "
            f"list, or unpack the "
            "archive again"
        )

    def note(self, found: dict[str, str]) -> None:
        """Count pictures that turned out missing or damaged, with one warning for each that is new.

        Args:
            found: reason by path, as in `damaged`.

        Raises:
            DamagedImages: more than `damaged_share` of the pictures are missing or damaged.
        """
        for path, why in found.items():
            if path in self.damaged:
                continue
            self.damaged[path] = why
            if len(self.damaged) > self.damaged_share * self._total:
                raise DamagedImages(damage_report(self.damaged, self._total, self.name, self.damaged_share))
            warnings.warn(
                f"{why}; another picture of its class takes its place ({len(self.damaged)} of {self._total:,} so far)",
                stacklevel=4,
            )

    def raw(self, indices, draw: int = 0) -> Tensor:
        """Several pictures, read and cut one after the other.

        Args:
            indices: (B,) whole numbers, places in the data set.
            draw: 0 = evaluation; 1, 2, ... = training's random crops, decided by (seed, image, draw) alone.

        Returns:
            (B, 3, size, size) uint8 from a `PhotoTransform`, else what the transform gives.

        Raises:
            TypeError, ValueError, IndexError: indices or a draw that do not fit.
            DamagedImages: see `photo`.
        """
        rows = places(indices, len(self))
        photos, identity = (self.photo(i) for i in rows.tolist()), self.identity[rows]
        if isinstance(self.transform, PhotoTransform):
            return self.transform.pixels(photos, identity, draw)
        pictures = [self.transform(photo, i, draw) for photo, i in zip(photos, identity.tolist())]
        return torch.stack(pictures) if pictures else torch.zeros(0, 3, 1, 1)

    def subset(self, indices) -> ImageSet:
        """Some of the images; ids, identities and the count of damaged pictures stay those of the whole.

        Args:
            indices: (B,) whole numbers.
        """
        rows = places(indices, len(self))
        part = ImageSet(
            self.root,
            [self.relative[i] for i in rows.tolist()],
            self.labels[rows],
            self.level_names,
            self.class_names,
            self.transform,
            self.damaged_share,
            None if self.boxes is None else self.boxes[rows],
            self.name,
            self.split,
        )
        part.identity, part.damaged, part._total, part.draw = self.identity[rows], self.damaged, self._total, self.draw
        return part

    def __repr__(self) -> str:
        levels = ", ".join(
            f"{len(self.labels[:, level].unique()):,} {name}" for level, name in enumerate(self.level_names)
        )
        return f"ImageSet({self.name!r}, {self.split!r}): {len(self):,} images; levels: {levels}"


def members(classes: Tensor) -> dict[int, list[int]]:
    "Rows of every class."
    out: dict[int, list[int]] = {}
    for row, label in enumerate(classes.tolist()):
        out.setdefault(label, []).append(row)
    return out


def damage_report(damaged: dict[str, str] | Sequence[str], total: int, name: str, share: float) -> str:
    "Counts and names missing or damaged pictures in one sentence."
    why = damaged if isinstance(damaged, dict) else {}
    first = [
        path + (f" ({why[path].rsplit(': ', 1)[-1].rsplit(' is ', 1)[-1]})" if path in why else "")
        for path in list(damaged)[:3]
    ]
    return (
        f"{len(damaged):,} of {total:,} pictures of {name} are missing or damaged, more than the share of {share:g} "
        f"that is allowed (data.damaged_share): "
        f"{', '.join(first)}{', ...' if len(damaged) > 3 else ''}. Unpack the archive again, or allow more"
    )
