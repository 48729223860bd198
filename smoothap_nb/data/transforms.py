"""From a PIL picture to the tensor a network sees: the papers' crops for photographs, a padded square for drawings."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..checks import check_count, check_number, check_seed
from ..images import to_rgb
from .distortion import distortion_keys, uniform
from .interface import check_draw
from .settings import DataConfig

__all__ = ["crop_boxes", "shorter_side", "PhotoTransform", "ImageTransform"]


def crop_boxes(
    sizes, identity, draw: int, seed: int = 0, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3)
) -> tuple[np.ndarray, np.ndarray]:
    """Random boxes and mirrorings as `RandomResizedCrop` and `RandomHorizontalFlip` draw them, decided by (seed,
    identity, draw) alone.

    Args:
        sizes: (B, 2) widths and heights in pixels.
        identity: (B,) whole numbers, which image each one is.
        draw: which of its pictures, >= 1.
        seed: any whole number.
        scale: least and largest share of the area.
        ratio: least and largest width / height.

    Returns:
        boxes (B, 4) int64: left, top, width, height in pixels; mirrored (B,) bool.
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    width, height = sizes[:, :1], sizes[:, 1:]
    share, aspect, x, y, mirrored = _attempts(identity, draw, seed, scale, ratio)
    area = width * height * share
    w, h = np.rint(np.sqrt(area * aspect)).astype(np.int64), np.rint(np.sqrt(area / aspect)).astype(np.int64)
    fits = (0 < w) & (w <= width) & (0 < h) & (h <= height)
    left, top = np.floor(x * (width - w + 1)).astype(np.int64), np.floor(y * (height - h + 1)).astype(np.int64)
    first = np.arange(len(sizes)), fits.argmax(1)
    boxes = np.stack([left[first], top[first], w[first], h[first]], 1)
    return np.where(fits.any(1)[:, None], boxes, _largest_boxes(sizes, ratio)), mirrored


def _attempts(identity, draw: int, seed: int, scale, ratio) -> tuple[np.ndarray, ...]:
    """Ten attempts at a box, whatever the picture's size: share of the area, aspect, place from 0 to 1 across and
    down, each (B, 10); mirrored (B,)."""
    u = uniform(distortion_keys(torch.as_tensor(identity, dtype=torch.int64), seed, draw), 41).numpy()
    share, aspect, x, y = np.moveaxis(u[:, :40].reshape(-1, 10, 4), 2, 0)
    aspect = np.exp(np.log(ratio[0]) + (np.log(ratio[1]) - np.log(ratio[0])) * aspect)
    return scale[0] + (scale[1] - scale[0]) * share, aspect, x, y, u[:, 40] < 0.5


def _first_box(size: tuple[int, int], attempts, ratio) -> tuple[int, int, int, int]:
    "`crop_boxes` of one picture in plain numbers, which is quicker: most first attempts fit."
    width, height = size
    for share, aspect, x, y in zip(*attempts):
        area = width * height * share
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(x * (width - w + 1)), int(y * (height - h + 1)), w, h
    return tuple(_largest_boxes(np.array([size]), ratio)[0].tolist())


def _largest_boxes(sizes: np.ndarray, ratio) -> np.ndarray:
    "The largest centred boxes within the bounds of width / height."
    width, height = sizes.T
    w = np.minimum(width, np.maximum(1, np.rint(height * ratio[1]).astype(np.int64)))
    h = np.minimum(height, np.maximum(1, np.rint(width / ratio[0]).astype(np.int64)))
    return np.stack([(width - w) // 2, (height - h) // 2, w, h], 1)


def shorter_side(sizes: np.ndarray, side: int) -> np.ndarray:
    """(B, 2) widths and heights after the shorter one is made `side`, the longer one in proportion, rounded down as
    torchvision does."""
    short, long = sizes.min(1), sizes.max(1)
    other = side * long // short
    return np.where(
        (sizes[:, 0] <= sizes[:, 1])[:, None],
        np.stack([np.full_like(other, side), other], 1),
        np.stack([other, np.full_like(other, side)], 1),
    )


class PhotoTransform:
    """Photographs as the papers' code feeds them: a random crop and mirroring in training, a centre crop in evaluation.

    Args:
        size: side of the result, pixels.
        resize: evaluation: the shorter side before the centre crop, at least `size`.
        squash: evaluation: squeeze to resize x resize instead, whatever the proportions.
        train_resize: training: the shorter side before the random crop; 0: crop from the picture as it is.
        crop_scale: training: least and largest share of the area that a crop covers.
        crop_ratio: training: least and largest width / height of a crop.
        flip: training: mirror half of the pictures.
        seed: of the random numbers, a whole number.

    Raises:
        ValueError: sizes or ranges that do not fit.
    """

    def __init__(
        self,
        size: int = 224,
        resize: int = 256,
        squash: bool = False,
        train_resize: int = 0,
        crop_scale=(0.08, 1.0),
        crop_ratio=(3 / 4, 4 / 3),
        flip: bool = True,
        seed: int = 0,
    ):
        self.size, self.resize, self.squash = check_count("size", size), check_count("resize", resize), bool(squash)
        self.train_resize = check_number("train_resize", train_resize, 0) and check_count("train_resize", train_resize)
        self.train_resize = int(self.train_resize)
        for name, pair in (("crop_scale", crop_scale), ("crop_ratio", crop_ratio)):
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise TypeError(f"{name} must be two numbers, smaller first, got {pair!r}")
        self.crop_scale = tuple(check_number("crop_scale", value) for value in crop_scale)
        self.crop_ratio = tuple(check_number("crop_ratio", value) for value in crop_ratio)
        self.flip, self.seed = bool(flip), check_seed(seed)
        if self.size < 1 or self.train_resize < 0:
            raise ValueError(
                f"size must be at least 1 and train_resize at least 0, got size={size}, train_resize={train_resize}"
            )
        if self.resize < self.size:
            raise ValueError(
                f"resize must be at least size, or the centre crop leaves the picture: got resize={resize}, size={size}"
            )
        for name, pair, top in (("crop_scale", self.crop_scale, 1.0), ("crop_ratio", self.crop_ratio, float("inf"))):
            if len(pair) != 2 or not 0 < pair[0] <= pair[1] <= top:
                raise ValueError(
                    f"{name} must be two numbers (least, largest) with 0 < least <= largest"
                    + (" <= 1" if top == 1 else "")
                    + f", got {pair}"
                )

    @classmethod
    def from_config(cls, config: DataConfig, seed: int = 0) -> PhotoTransform:
        "From the [data] table of an experiment."
        return cls(
            config.size,
            config.resize,
            config.squash,
            config.train_resize,
            config.crop_scale,
            config.crop_ratio,
            config.flip,
            seed,
        )

    def to_dict(self) -> dict:
        "Everything that decides a picture, ready for JSON."
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}

    def __repr__(self) -> str:
        return f"PhotoTransform({', '.join(f'{k}={v}' for k, v in vars(self).items())})"

    def plan(self, sizes, identity, draw: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is cut out of each picture.

        Args:
            sizes: (B, 2) widths and heights of the original pictures.
            identity: (B,) whole numbers, which image each one is.
            draw: 0 = evaluation, 1, 2, ... = training.

        Returns:
            resized (B, 2): the picture is first brought to this size; boxes (B, 4) left, top, width, height in it,
            all int64;
            mirrored (B,) bool.
        """
        sizes = np.asarray(sizes, dtype=np.int64)
        draw = check_draw(draw)
        if draw == 0:
            resized = np.full_like(sizes, self.resize) if self.squash else shorter_side(sizes, self.resize)
            corner = np.rint((resized - self.size) / 2).astype(np.int64)
            return resized, np.concatenate([corner, np.full_like(corner, self.size)], 1), np.zeros(len(sizes), bool)
        resized = shorter_side(sizes, self.train_resize) if self.train_resize else sizes
        boxes, mirrored = crop_boxes(resized, identity, draw, self.seed, self.crop_scale, self.crop_ratio)
        return resized, boxes, mirrored & self.flip

    def pixels(self, images, identity, draw: int = 0) -> Tensor:
        """Several pictures as bytes, before they are divided by 255.

        Args:
            images: B PIL pictures, a sequence or an iterator (each is let go before the next is asked for).
            identity: (B,) whole numbers, which image each one is.
            draw: 0 = evaluation, 1, 2, ... = training.

        Returns:
            (B, 3, size, size) uint8.
        """
        from PIL import Image

        draw = check_draw(draw)
        out = np.empty((len(identity), 3, self.size, self.size), np.uint8)
        attempts = _attempts(identity, draw, self.seed, self.crop_scale, self.crop_ratio) if draw else None
        for place, image in enumerate(images):
            image = to_rgb(image)
            if draw:
                size = (
                    tuple(shorter_side(np.array([image.size]), self.train_resize)[0].tolist())
                    if self.train_resize
                    else image.size
                )
                box = _first_box(size, [a[place].tolist() for a in attempts[:4]], self.crop_ratio)
            else:
                size, box, _ = (part[0].tolist() for part in self.plan([image.size], [0], draw))
            if image.size != tuple(size):
                image = image.resize(size, Image.Resampling.BILINEAR)
            left, top, width, height = box
            image = image.crop((left, top, left + width, top + height))
            if image.size != (self.size, self.size):
                image = image.resize((self.size, self.size), Image.Resampling.BILINEAR)
            values = np.asarray(image)
            out[place] = (values[:, ::-1] if draw and self.flip and attempts[4][place] else values).transpose(2, 0, 1)
        return torch.from_numpy(out)

    def __call__(self, image, identity: int = 0, draw: int = 0) -> Tensor:
        """One picture.

        Args:
            image: a `PIL.Image.Image` of any mode.
            identity: which image it is; with `draw` and the seed it decides the crop.
            draw: 0 = evaluation, 1, 2, ... = training (the epoch).

        Returns:
            (3, size, size) float32 in [0, 1].
        """
        return torch.from_numpy(self.pixels([image], [identity], draw)[0].numpy().astype(np.float32) / np.float32(255))


class ImageTransform:
    """A PIL picture as the tensor the model was trained on: turned upright, scaled so that it fits, cut or padded
    square.

    Args:
        size: side of the result, pixels.
        gray: one channel instead of three, for models trained on glyphs.
        fit: "crop" scales the shorter side to `size` * 256/224 and cuts the middle (photographs), "pad" keeps the whole
            picture on a background of its border's colour (drawings, glyphs).

    Raises:
        ValueError: another word for `fit`.
    """

    def __init__(self, size: int = 224, gray: bool = False, fit: str = "crop"):
        if fit not in ("crop", "pad"):
            raise ValueError(f"fit must be 'crop' or 'pad', got {fit!r}")
        self.size, self.gray, self.fit = check_count("size", size, 10_000), bool(gray), fit

    def to_dict(self) -> dict:
        return {"size": self.size, "gray": self.gray, "fit": self.fit}

    def __call__(self, image) -> Tensor:
        "(C, size, size) float32 in [0, 1]."
        from PIL import Image, ImageOps

        image = to_rgb(image)
        if self.gray:
            image = image.convert("L")
        if self.fit == "crop":
            image = ImageOps.fit(image, (self.size, self.size), Image.Resampling.BICUBIC, bleed=(1 - 224 / 256) / 2)
        else:
            border = np.asarray(image)
            edge = np.concatenate([border[0], border[-1], border[:, 0], border[:, -1]])
            colour = np.median(edge.reshape(-1, edge.shape[-1]) if edge.ndim > 1 else edge, axis=0)
            colour = tuple(int(v) for v in colour) if np.ndim(colour) else int(colour)
            image = ImageOps.pad(image, (self.size, self.size), Image.Resampling.BICUBIC, color=colour)
        values = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(values[None] if self.gray else values.transpose(2, 0, 1).copy())
