"""Glyph pages: small pictures with characters to find among look-alikes, drawn to order (lesson 31).

Plain file. Eight classes with unequal frequencies; typefaces of the test pages are never seen in training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from numbers import Integral, Real

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

CLASSES = ("A", "E", "R", "S", "G", "B", "K", "Q")
"""The classes, from the most frequent to the rarest: class k + 1 (0 is the background) has a share proportional to 1
/ (k + 1)."""

LOOKALIKES = {"A": "Λ4Δ", "E": "FΣ£", "R": "PЯ", "S": "52$", "G": "C6", "B": "8Pβ", "K": "XНЖ", "Q": "OΩ0"}
"""What lies about on a page and is no object: per class, the characters that resemble it."""

FACES = {
    "train": (
        "DejaVu Sans",
        "DejaVu Sans Bold",
        "DejaVu Sans Oblique",
        "DejaVu Sans Mono",
        "DejaVu Sans Mono Oblique",
        "DejaVu Serif",
        "DejaVu Serif Bold Italic",
        "STIX",
        "STIX Italic",
        "STIX Bold Italic",
    ),
    "val": ("DejaVu Sans Mono Bold Oblique", "DejaVu Serif Bold"),
    "test": ("DejaVu Sans Bold Oblique", "DejaVu Sans Mono Bold", "DejaVu Serif Italic", "STIX Bold"),
}
"""Typefaces of each split, apart from each other: no glyph of a test page was ever drawn on a training page."""

_SPLIT_SEEDS = {"train": 0, "val": 1, "test": 2}
_TRIES = 40  # places tried for one character before it is left out


@dataclass(frozen=True)
class PageSettings:
    """How a page is drawn.

    Args:
        side: of the square page, pixels, at least 32.
        objects: fewest and most objects on a page, 0 or more.
        clutter: fewest and most look-alikes on a page, 0 or more.
        heights: smallest and largest height of an upright capital, pixels.
        angle: largest rotation, degrees.
        noise: standard deviation of the paper's grain, in [0, 1].

    Raises:
        TypeError, ValueError: settings that do not fit.
    """

    side: int = 128
    objects: tuple[int, int] = (2, 6)
    clutter: tuple[int, int] = (4, 9)
    heights: tuple[float, float] = (13.0, 27.0)
    angle: float = 20.0
    noise: float = 0.08

    def __post_init__(self):
        if isinstance(self.side, bool) or not isinstance(self.side, Integral) or self.side < 32:
            raise ValueError(f"side must be a whole number of pixels, 32 or more, got {self.side!r}")
        for name in ("objects", "clutter", "heights"):
            pair = getattr(self, name)
            if len(pair) != 2 or not all(isinstance(value, Real) for value in pair) or not 0 <= pair[0] <= pair[1]:
                raise ValueError(f"{name} must be two numbers, 0 <= fewest <= most, got {pair!r}")
        if self.heights[0] < 6 or self.heights[1] > self.side / 2:
            raise ValueError(
                f"heights must lie between 6 pixels and half the side ({self.side / 2:g}), got {self.heights!r}"
            )
        if not 0 <= self.noise <= 1:
            raise ValueError(f"noise must lie in 0 ... 1, got {self.noise!r}")


@lru_cache(maxsize=4096)
def _large_glyph(character: str, face: str) -> Image.Image:
    "The ink of a character, white on black, drawn large."
    from ..data.glyphs import font_file

    font = ImageFont.truetype(str(font_file(face)), 72, layout_engine=ImageFont.Layout.BASIC)
    left, top, right, bottom = font.getbbox(character, anchor="ls")
    picture = Image.new("L", (right - left + 8, bottom - top + 8))
    ImageDraw.Draw(picture).text((4 - left, 4 - top), character, fill=255, font=font, anchor="ls")
    return picture.crop(picture.getbbox())


def _stamp(character: str, face: str, height: float, angle: float) -> np.ndarray:
    "(h, w) in [0, 1]: the character turned and shrunk, cut to its ink."
    large = _large_glyph(character, face).rotate(angle, resample=Image.Resampling.BILINEAR, expand=True)
    scale = height / 52.5  # a capital of DejaVu Sans at 72 pixels per em
    size = [max(3, round(side * scale)) for side in large.size]
    small = np.asarray(large.resize(size, Image.Resampling.BOX), dtype=np.float32) / 255
    rows, columns = np.nonzero(small.max(1) > 0.2)[0], np.nonzero(small.max(0) > 0.2)[0]
    return small[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def class_shares(number: int = len(CLASSES)) -> np.ndarray:
    "(number,) how often each class is drawn: proportional to 1 / (k + 1)."
    shares = 1 / np.arange(1, number + 1)
    return shares / shares.sum()


def draw_page(
    split: str = "train", index: int = 0, seed: int = 0, settings: PageSettings | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """One page and what is on it: the same for the same arguments, on every machine with the same typefaces.

    Args:
        split: "train", "val" or "test"; it chooses the typefaces.
        index: which page, 0 or more.
        seed: which set of pages.
        settings: how pages are drawn; left out, `PageSettings()`.

    Returns:
        image: (3, side, side) float32 in [0, 1].
        target: "boxes" (n, 4) float32 as x1, y1, x2, y2 in pixels, cut to the ink, and "labels" (n,) int64 in
            1 ... 8; n may be 0.

    Raises:
        ValueError: an unknown split.
    """
    if split not in FACES:
        raise ValueError(f"split must be one of {', '.join(FACES)}, got {split!r}")
    settings = settings or PageSettings()
    rng = np.random.default_rng([seed, _SPLIT_SEEDS[split], index])
    side, faces = settings.side, FACES[split]
    slope = rng.uniform(-0.15, 0.15, 2)
    ramp = np.linspace(-1, 1, side, dtype=np.float32)
    paper = rng.uniform(0.62, 0.95) + slope[0] * ramp[:, None] + slope[1] * ramp[None]
    labels = rng.choice(len(CLASSES), rng.integers(settings.objects[0], settings.objects[1] + 1), p=class_shares()) + 1
    wanted = [(CLASSES[label - 1], int(label)) for label in labels]
    for _ in range(rng.integers(settings.clutter[0], settings.clutter[1] + 1)):
        rivals = LOOKALIKES[CLASSES[rng.choice(len(CLASSES), p=class_shares())]]
        wanted.append((rivals[rng.integers(len(rivals))], 0))
    boxes, found = [], []
    for character, label in wanted:
        height, angle = rng.uniform(*settings.heights), rng.uniform(-settings.angle, settings.angle)
        stamp = _stamp(character, faces[rng.integers(len(faces))], height, angle)
        place = _free_place(rng, stamp.shape, boxes, side)
        ink = rng.uniform(0.45, 0.95)
        if place is None:
            continue
        y, x = place
        h, w = stamp.shape
        paper[y : y + h, x : x + w] *= 1 - ink * stamp
        boxes.append((x, y, x + w, y + h))
        found.append(label)
    paper = np.clip(paper + settings.noise * rng.standard_normal((side, side)), 0, 1).astype(np.float32)
    kept = [number for number, label in enumerate(found) if label]
    target = {
        "boxes": torch.tensor([boxes[number] for number in kept], dtype=torch.float32).reshape(-1, 4),
        "labels": torch.tensor([found[number] for number in kept], dtype=torch.int64),
    }
    image = torch.from_numpy(np.round(paper * 255) / 255).float()  # as a file would hold it
    return image.expand(3, side, side).contiguous(), target


def _free_place(
    rng, shape: tuple[int, int], boxes: Sequence[tuple[int, int, int, int]], side: int
) -> tuple[int, int] | None:
    "Top and left of a place where the character touches no other by more than a pixel; None where none was found."
    h, w = shape
    if h > side or w > side:
        return None
    for _ in range(_TRIES):
        y, x = int(rng.integers(side - h + 1)), int(rng.integers(side - w + 1))
        if all(
            x + 1 >= right or x + w - 1 <= left or y + 1 >= bottom or y + h - 1 <= top
            for left, top, right, bottom in boxes
        ):
            return y, x
    return None


@dataclass
class GlyphPages(torch.utils.data.Dataset):
    """Pages as a data set for torchvision's detectors: `pages[i]` is an image and its target.

    Args:
        split: "train", "val" or "test".
        number: of pages, 1 or more.
        seed: which set of pages.
        settings: how they are drawn.

    Raises:
        TypeError, ValueError: arguments that do not fit.
    """

    split: str = "train"
    number: int = 600
    seed: int = 0
    settings: PageSettings = field(default_factory=PageSettings)

    classes = CLASSES

    def __post_init__(self):
        if self.split not in FACES:
            raise ValueError(f"split must be one of {', '.join(FACES)}, got {self.split!r}")
        if isinstance(self.number, bool) or not isinstance(self.number, Integral) or self.number < 1:
            raise ValueError(f"number of pages must be a whole number, 1 or more, got {self.number!r}")
        self._drawn: dict[int, tuple[Tensor, dict[str, Tensor]]] = {}

    def __len__(self) -> int:
        return int(self.number)

    def __getitem__(self, index: int) -> tuple[Tensor, dict[str, Tensor]]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"page {index} of {len(self)}")
        index = int(index) % len(self)
        if index not in self._drawn:
            image, target = draw_page(self.split, index, self.seed, self.settings)
            self._drawn[index] = (image[:1].clone(), target)  # grey: one plane is enough to keep
        image, target = self._drawn[index]
        return image.expand(3, -1, -1).contiguous(), {name: value.clone() for name, value in target.items()}


def page_statistics(pages: GlyphPages) -> dict[str, int | float]:
    "Objects per class, pages without objects, and the mean area of a box in pixels."
    targets = [pages[index][1] for index in range(len(pages))]
    labels = torch.cat([target["labels"] for target in targets])
    boxes = torch.cat([target["boxes"] for target in targets])
    area = ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).mean().item() if len(boxes) else math.nan
    counts = {name: int((labels == number).sum()) for number, name in enumerate(CLASSES, 1)}
    return {
        "pages": len(pages),
        "objects": len(labels),
        "empty pages": sum(not len(target["labels"]) for target in targets),
        "mean area of a box": area,
        **counts,
    }
