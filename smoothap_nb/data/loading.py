"""From files on a disk to batches on the device, the same pictures whatever does the work."""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import math
import os
import shutil
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import reason
from .glyphs import _uniform, distortion_keys
from ..train.models import upright_rgb

__all__ = ['PhotoError', 'inside_root', 'read_photo', 'crop_boxes', 'shorter_side', 'PhotoTransform', 'read_batch', 'CacheError',
           'DecodedCache', 'cut_boxes', 'share_of', 'Batch', 'Prefetcher']


class PhotoError(ValueError):
    "A picture file that cannot be used; the message names the file and says why."


_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "MPO", "JPEG2000", "TGA", "AVIF")


@lru_cache(None)
def _formats() -> tuple[str, ...]:
    "The formats of pixels that this Pillow can open."
    from PIL import Image

    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


@lru_cache(64)
def _real(root: str) -> str:
    return os.path.join(os.path.realpath(root), "")


def inside_root(path, root) -> Path:
    """The real path of a file, if it lies inside the data set's folder.

    Args:
        path: absolute, or relative to `root`.
        root: the folder.

    Returns:
        the path, links followed.

    Raises:
        PhotoError: the path leads outside.
    """
    full = os.path.realpath(os.path.join(root, path))
    if not full.startswith(_real(str(root))):
        raise PhotoError(f"{path} lies outside of the data set's folder {root} (it leads to {full}) and is not read: correct the list of images, "
                         "or pass the folder that holds all of them as root")
    return Path(full)


def read_photo(path, root=None):
    """One picture file as a PIL picture: RGB, turned upright.

    Args:
        path: the file; relative paths count from `root`.
        root: the folder that the file must lie in; None: anywhere.

    Returns:
        `PIL.Image.Image` of mode RGB. Transparent parts are white, 16 bits are scaled to 8, the camera's orientation is applied.

    Raises:
        PhotoError: no such file, a file outside of `root`, one that is damaged, cut short, or no picture; the file is named.
    """
    from PIL import Image

    path = Path(path) if root is None else inside_root(path, root)
    try:
        with open(path, "rb") as file, Image.open(file, formats=_formats()) as image:
            return upright_rgb(image)
    except FileNotFoundError:
        raise PhotoError(f"{path} is missing") from None
    except MemoryError:
        raise
    except Exception as error:  # Pillow raises a dozen kinds for damaged files
        raise PhotoError(f"{path} cannot be read: {_why(error, path)}") from None


def _why(error: Exception, path: Path) -> str:
    if path.is_dir():
        return "it is a folder"
    if isinstance(error, PermissionError):
        return "permission denied"
    if type(error).__name__ == "UnidentifiedImageError":
        return "the file is empty" if path.stat().st_size == 0 else "no picture in a known format"
    return f"damaged ({reason(error)})"


def crop_boxes(sizes, identity, draw: int, seed: int = 0, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3)) -> tuple[np.ndarray, np.ndarray]:
    """Random boxes and mirrorings as `RandomResizedCrop` and `RandomHorizontalFlip` draw them, decided by (seed, identity, draw) alone.

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
    "Ten attempts at a box, whatever the picture's size: share of the area, aspect, place from 0 to 1 across and down, each (B, 10); mirrored (B,)."
    u = _uniform(distortion_keys(torch.as_tensor(identity, dtype=torch.int64), seed, draw), 41).numpy()
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
    "(B, 2) widths and heights after the shorter one is made `side`, the longer one in proportion, rounded down as torchvision does."
    short, long = sizes.min(1), sizes.max(1)
    other = side * long // short
    return np.where((sizes[:, 0] <= sizes[:, 1])[:, None], np.stack([np.full_like(other, side), other], 1), np.stack([other, np.full_like(other, side)], 1))


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

    def __init__(self, size: int = 224, resize: int = 256, squash: bool = False, train_resize: int = 0, crop_scale=(0.08, 1.0),
                 crop_ratio=(3 / 4, 4 / 3), flip: bool = True, seed: int = 0):
        self.size, self.resize, self.squash, self.train_resize = int(size), int(resize), bool(squash), int(train_resize)
        self.crop_scale, self.crop_ratio = tuple(map(float, crop_scale)), tuple(map(float, crop_ratio))
        self.flip, self.seed = bool(flip), int(seed)
        if self.size < 1 or self.train_resize < 0:
            raise ValueError(f"size must be at least 1 and train_resize at least 0, got size={size}, train_resize={train_resize}")
        if self.resize < self.size:
            raise ValueError(f"resize must be at least size, or the centre crop leaves the picture: got resize={resize}, size={size}")
        for name, pair, top in (("crop_scale", self.crop_scale, 1.0), ("crop_ratio", self.crop_ratio, float("inf"))):
            if len(pair) != 2 or not 0 < pair[0] <= pair[1] <= top:
                raise ValueError(f"{name} must be two numbers (least, largest) with 0 < least <= largest" + (" <= 1" if top == 1 else "") + f", got {pair}")

    @classmethod
    def from_config(cls, config, seed: int = 0) -> PhotoTransform:
        "From the [data] table of an experiment."
        keys = ("size", "resize", "squash", "train_resize", "crop_scale", "crop_ratio", "flip")
        return cls(**{key: getattr(config, key) for key in keys if hasattr(config, key)}, seed=seed)

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
            resized (B, 2): the picture is first brought to this size; boxes (B, 4) left, top, width, height in it, all int64;
            mirrored (B,) bool.
        """
        sizes = np.asarray(sizes, dtype=np.int64)
        if draw < 0 or int(draw) != draw:
            raise ValueError(f"draw must be a whole number of at least 0, got {draw}")
        if draw == 0:
            resized = np.full_like(sizes, self.resize) if self.squash else shorter_side(sizes, self.resize)
            corner = np.rint((resized - self.size) / 2).astype(np.int64)
            return resized, np.concatenate([corner, np.full_like(corner, self.size)], 1), np.zeros(len(sizes), bool)
        resized = shorter_side(sizes, self.train_resize) if self.train_resize else sizes
        boxes, mirrored = crop_boxes(resized, identity, int(draw), self.seed, self.crop_scale, self.crop_ratio)
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

        if draw < 0 or int(draw) != draw:
            raise ValueError(f"draw must be a whole number of at least 0, got {draw}")
        out = np.empty((len(identity), 3, self.size, self.size), np.uint8)
        attempts = _attempts(identity, int(draw), self.seed, self.crop_scale, self.crop_ratio) if draw else None
        for place, image in enumerate(images):
            image = upright_rgb(image)
            if draw:
                size = tuple(shorter_side(np.array([image.size]), self.train_resize)[0].tolist()) if self.train_resize else image.size
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


def _photo(dataset, index: int):
    "Picture `index` of a data set as PIL RGB."
    if hasattr(dataset, "photo"):
        return dataset.photo(index)
    return read_photo(dataset.paths[index], getattr(dataset, "root", None))


def _identity(dataset) -> Tensor:
    "(N,) what each image is: the number that decides its draws."
    known = getattr(dataset, "identity", None)
    return torch.arange(len(dataset)) if known is None else torch.as_tensor(known)


def _rows(indices, length: int) -> np.ndarray:
    "Indices as int64, checked."
    rows = np.asarray(indices)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise TypeError(f"indices must be a list of whole numbers, got {rows.dtype} of shape {rows.shape}: turn a mask into mask.nonzero()[0]")
    rows = rows.astype(np.int64)
    if rows.size and not (-length <= rows.min() and rows.max() < length):
        raise IndexError(f"there is no image {rows.max() if rows.max() >= length else rows.min()}: the data set has {length}")
    return rows


def read_batch(dataset, indices, draw: int = 0) -> Tensor:
    """Pictures of a data set, read and cut one after the other.

    Args:
        dataset: with `transform`, and `photo(i)` or `paths` and `root`; `identity` (N,) where an image's number is not its place.
        indices: (B,) places in the data set.
        draw: 0 = evaluation, 1, 2, ... = training.

    Returns:
        (B, 3, size, size) uint8.

    Raises:
        PhotoError: a file that cannot be used.
    """
    rows = _rows(indices, len(dataset))
    return dataset.transform.pixels((_photo(dataset, row) for row in rows.tolist()), _identity(dataset)[torch.from_numpy(rows)], draw)


_BLOCK = 2**26  # bytes between two entries in the state file


class CacheError(RuntimeError):
    "A decoded cache that cannot be built or used; the message says why and what to do."


def _write_json(path: Path, value: dict) -> None:
    "Old or new, never half."
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _names(dataset) -> list[str]:
    "The files of a data set as they are called below its root."
    start = "" if getattr(dataset, "root", None) is None else os.path.join(str(dataset.root), "")
    return [str(path).removeprefix(start) for path in dataset.paths]


def _fingerprint(dataset, side: int) -> dict:
    "What a cache belongs to: the list of files, and the sizes of a few of them, which tell that a file was changed."
    root = getattr(dataset, "root", None)
    names = _names(dataset)
    probes = sorted({round(i) for i in np.linspace(0, len(names) - 1, 16)}) if names else []
    sizes = {}
    for i in probes:
        path = dataset.paths[i] if root is None else os.path.join(root, dataset.paths[i])
        sizes[names[i]] = os.path.getsize(path) if os.path.exists(path) else -1
    return {"version": 1, "side": side, "images": len(names), "files": hashlib.sha256("\n".join(names).encode()).hexdigest(), "bytes": sizes}


def _why_not(there: dict, wanted: dict) -> str | None:
    "Why a cache cannot serve this data set, or None."
    if there.get("version") != wanted["version"]:
        return f"was written by another version ({there.get('version')})"
    if there["side"] != wanted["side"]:
        return f"holds squares of side {there['side']}, not {wanted['side']}"
    if there["images"] != wanted["images"]:
        return f"holds {there['images']:,} pictures, the data set has {wanted['images']:,}"
    if there["files"] != wanted["files"]:
        return "belongs to another list of files"
    changed = [name for name, size in wanted["bytes"].items() if there["bytes"].get(name) != size]
    return f"was made before {changed[0]} was changed" if changed else None


class DecodedCache:
    """A data set of photographs, decoded once into squares of bytes, from which batches are cut on the device.

    The folder belongs to one data set, split and side. Building goes on where it was stopped or killed; of several processes that ask
    for the same cache one builds and the others wait.

    Args:
        dataset: with `transform` (`PhotoTransform`), `labels`, and `photo(i)` or `paths` and `root`.
        folder: where the cache is, or will be.
        side: of the squares in pixels, at least `transform.size`; 3 x side x side bytes per picture.
        workers: threads that decode.
        progress: show a bar while building.
        damaged_share: share of the pictures that may be unreadable before the build stops. A data set with `photo(i)` decides what takes
            their place (an `ImageSet`: another picture of the class), else they are grey.

    Attributes:
        damaged: file -> why it could not be read, of all pictures that came up damaged or missing while the cache was built.

    Raises:
        CacheError: another data set's cache, too little room, a folder that cannot be written.
        PhotoError: more damaged pictures than `damaged_share` allows.
    """

    def __init__(self, dataset, folder, side: int = 256, workers: int = 4, progress: bool = True, damaged_share: float = 0.0):
        if side < dataset.transform.size:
            raise ValueError(f"side must be at least the pictures' size {dataset.transform.size}, got {side}")
        if len(dataset) == 0:
            raise ValueError("the data set is empty: there is nothing to keep")
        self.dataset, self.folder, self.side = dataset, Path(folder), int(side)
        self.transform, self.rows, self.device = dataset.transform, np.arange(len(dataset)), None
        wanted = _fingerprint(dataset, self.side)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with _lock(self.folder / "lock"):
                state = self._state(wanted)
                if state["done"] < len(dataset):
                    self._build(state, workers, progress, damaged_share)
        except (FileExistsError, NotADirectoryError):
            raise CacheError(f"{folder} is a file, or lies inside one; name a folder for the decoded cache") from None
        except PermissionError as error:
            raise CacheError(f"{error.filename or folder} cannot be written; name a folder that you may write to for the decoded cache") from None
        except OSError as error:
            raise CacheError(f"the decoded cache in {folder} cannot be written: {error.strerror or error}. Make room, or name a folder on another disk") from None
        self.damaged = state["damaged"]
        try:
            self._pixels = np.memmap(self.folder / "pixels.u8", np.uint8, "c", shape=(len(dataset), 3, side, side))
            self._sizes = np.fromfile(self.folder / "sizes.i32", np.int32).reshape(len(dataset), 2)
        except (OSError, ValueError):
            raise CacheError(f"the decoded cache in {folder} is incomplete though it says it is finished; delete the folder and start again") from None

    @property
    def identity(self) -> Tensor:
        "(N,) what each image is."
        return _identity(self.dataset)

    def __getattr__(self, name: str):
        if name.startswith("_") or "dataset" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.dataset, name)  # labels, level_names, paths, captions ...

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        images, labels = self.batch([index])
        return images[0], labels[0]

    def __repr__(self) -> str:
        return f"DecodedCache({len(self):,} of {len(self._sizes):,} pictures, side {self.side}, in {self.folder})"

    def raw(self, indices, draw: int = 0) -> Tensor:
        "(B, 3, side, side) uint8 squares, whatever the draw."
        rows = self.rows[_rows(indices, len(self))]
        if self.device is not None:
            return self._pixels[_onto(torch.from_numpy(rows), self.device)]
        out = np.empty((len(rows), *self._pixels.shape[1:]), np.uint8)
        for place, row in enumerate(rows):  # plain copies, without the interpreter's lock
            out[place] = self._pixels[row]
        return torch.from_numpy(out)

    def finish(self, raw: Tensor, indices, draw: int = 0) -> Tensor:
        """Cut the pictures of a draw out of their squares, on the device where these are.

        Args:
            raw: (B, 3, side, side) uint8, from `raw`.
            indices: (B,) the same places in the data set.
            draw: 0 = evaluation, 1, 2, ... = training.

        Returns:
            (B, 3, size, size) float32 in [0, 1].
        """
        rows = _rows(indices, len(self))
        resized, boxes, mirrored = self.transform.plan(self._sizes[self.rows[rows]], self.identity[rows], draw)
        return cut_boxes(raw, boxes / np.tile(resized, 2), mirrored, self.transform.size)

    def batch(self, indices, draw: int = 0, device=None) -> tuple[Tensor, Tensor]:
        """Several pictures at once, each decided by (seed, image, draw) alone.

        Args:
            indices: (B,) whole numbers, places in the data set.
            draw: 0 = evaluation, 1, 2, ... = training (the epoch).
            device: where the pictures are cut; None: where the squares are.

        Returns:
            images (B, 3, size, size) float32 in [0, 1] on the device, labels (B, L) int64.
        """
        raw = self.raw(indices)
        raw = raw if device is None else raw.to(device)
        return self.finish(raw, indices, draw), self.labels[torch.as_tensor(_rows(indices, len(self)))]

    def subset(self, indices) -> DecodedCache:
        "A part of the data set on the same cache."
        rows, part = _rows(indices, len(self)), copy.copy(self)
        part.rows, part.dataset = self.rows[rows], self.dataset.subset(indices)
        return part

    def to(self, device) -> DecodedCache:
        "Keep all squares in a device's memory, where they fit. Returns the data set itself."
        if isinstance(self._pixels, np.memmap):
            try:
                whole = torch.empty(self._pixels.shape, dtype=torch.uint8, device=device)
            except torch.cuda.OutOfMemoryError:
                raise CacheError(f"the squares take {self._pixels.size / 2**30:.1f} GiB, more than is free on {device}: leave them in their file") from None
            for part in range(0, len(whole), 1024):
                whole[part:part + 1024] = torch.from_numpy(np.array(self._pixels[part:part + 1024])).to(device)
            self._pixels = whole
        self._pixels, self.device = self._pixels.to(device), torch.device(device)
        return self

    def _state(self, wanted: dict) -> dict:
        "What is there, or a fresh start."
        path = self.folder / "state.json"
        if not path.exists():
            strangers = [p.name for p in self.folder.iterdir() if p.name not in ("lock", "pixels.u8", "sizes.i32") and not p.name.startswith(".state.json")]
            if strangers:
                raise CacheError(f"{self.folder} holds other things ({strangers[0]}, ...); name an empty folder for the decoded cache")
            return {**wanted, "done": 0, "damaged": {}}
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            refusal = _why_not(state, wanted)
        except (ValueError, KeyError, TypeError):
            refusal = "has a damaged state file"
        if refusal:
            raise CacheError(f"the decoded cache in {self.folder} {refusal}. Name another folder, or delete this one to build it again")
        return state

    def _build(self, state: dict, workers: int, progress: bool, damaged_share: float) -> None:
        from tqdm.auto import tqdm

        pixels, sizes, cell = self.folder / "pixels.u8", self.folder / "sizes.i32", 3 * self.side**2
        total, done, names = len(self.dataset), state["done"], _names(self.dataset)
        known = getattr(self.dataset, "damaged", {})  # a data set that finds another picture by itself keeps count here
        known.update(state["damaged"])
        _reserve(pixels, total * cell)
        block = max(1, _BLOCK // cell)
        bar = tqdm(total=total, initial=done, desc="decoding", unit="picture", disable=not progress, dynamic_ncols=True)
        with bar, ThreadPoolExecutor(max(1, workers)) as pool, open(pixels, "r+b") as store, open(sizes, "r+b" if done else "w+b") as table:
            try:
                store.seek(done * cell)
                table.seek(done * 8)
                for start in range(done, total, block):
                    stop = min(start + block, total)
                    for index, (square, size, damage) in zip(range(start, stop), pool.map(self._decode, range(start, stop))):
                        store.write(square)
                        table.write(np.array(size, np.int32).tobytes())
                        if damage:
                            state["damaged"][names[index]] = damage
                            _stop_above(state["damaged"], damaged_share, total)
                        bar.update()
                    for file in (store, table):
                        file.flush()
                        os.fsync(file.fileno())
                    state["done"] = stop
                    state["damaged"].update(known)
                    _write_json(self.folder / "state.json", state)
            except OSError as error:
                raise CacheError(f"the decoded cache could not be written to {self.folder}: {error.strerror or error}. What is done stays "
                                 f"({state['done']:,} of {total:,} pictures): make room, then start the same command again") from None
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _decode(self, index: int) -> tuple[bytes, tuple[int, int], str]:
        "A square of bytes (3, side, side), the picture's own size, and what is wrong with it."
        from PIL import Image

        try:
            photo = _photo(self.dataset, index)
        except PhotoError as error:
            return b"\x80" * (3 * self.side**2), (self.side, self.side), str(error)
        square = np.asarray(photo.resize((self.side, self.side), Image.Resampling.BILINEAR))
        return square.transpose(2, 0, 1).tobytes(), photo.size, ""


def _stop_above(damaged: dict, share: float, total: int) -> None:
    "Stop when more pictures are damaged than was allowed; name them."
    if len(damaged) > share * total:
        named = "; ".join(list(damaged.values())[:3])
        raise PhotoError(f"{len(damaged)} of {total:,} pictures cannot be read, more than the allowed share {share:g}: {named}")


def _reserve(path: Path, size: int) -> None:
    "A file of that size whose room on the disk is taken now, not in the middle of the night."
    there = path.stat().st_blocks * 512 if path.exists() else 0
    free = shutil.disk_usage(path.parent).free
    short = (f"the decoded cache needs {size / 2**30:.2f} GiB in {path.parent}, and {{:.2f}} GiB are free there: "
             "make room, name a folder on another disk, or lower the side")
    if size - there > free:
        raise CacheError(short.format((free + there) / 2**30))
    with open(path, "ab") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size) if hasattr(os, "posix_fallocate") else file.truncate(size)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise CacheError(short.format((free + there) / 2**30)) from None
            file.truncate(size)  # a file system that cannot reserve


@contextmanager
def _lock(path: Path):
    "One process at a time; a killed one lets go."
    with open(path, "a") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        except ImportError:  # Windows: build from one process
            pass
        yield


def cut_boxes(squares: Tensor, boxes, mirrored, size: int) -> Tensor:
    """Cut a box out of each square picture and bring it to one size, the whole batch at once.

    Args:
        squares: (B, C, side, side) uint8, or floating in [0, 1].
        boxes: (B, 4) left, top, width, height as shares of the square's side.
        mirrored: (B,) bool, which results are mirrored left to right.
        size: side of the results, pixels.

    Returns:
        (B, C, size, size) float32 in [0, 1], on the squares' device; row by row the same whatever else is in the batch.
    """
    device, finer = squares.device, max(1, round(squares.shape[-1] / size))
    boxes, backwards = _onto(torch.as_tensor(np.asarray(boxes), dtype=torch.float32), device), _onto(torch.as_tensor(np.asarray(mirrored)), device)[:, None]
    along = (torch.arange(size * finer, device=device, dtype=torch.float32) + 0.5) / (size * finer)
    x = boxes[:, :1] + boxes[:, 2:3] * torch.where(backwards, 1 - along, along)
    y = boxes[:, 1:2] + boxes[:, 3:] * along
    grid = torch.stack(torch.broadcast_tensors(2 * x[:, None, :] - 1, 2 * y[:, :, None] - 1), -1)
    pixels = squares.float() / 255 if squares.dtype == torch.uint8 else squares.float()
    out = F.grid_sample(pixels, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return F.avg_pool2d(out, finer) if finer > 1 else out


def _onto(tensor: Tensor, device: torch.device) -> Tensor:
    "On the device, without waiting for what it is busy with."
    return tensor.pin_memory().to(device, non_blocking=True) if torch.device(device).type == "cuda" else tensor.to(device)


def share_of(indices, rank: int, world: int) -> np.ndarray:
    "The part of a global batch that process `rank` of `world` works on: contiguous, sizes differ by at most one."
    return np.array_split(np.asarray(indices), world)[rank]


class Batch(NamedTuple):
    "What a `Prefetcher` hands over for one step."
    images: Tensor  # (B, C, H, W) float32 in [0, 1], on the device
    labels: Tensor  # (B, L) int64, on the device
    indices: np.ndarray  # (B,) places in the data set
    epoch: int
    waited: float  # seconds that the consumer waited for this batch


class Prefetcher:
    """Batches of a plan, in order, prepared ahead by threads.

    Any number of workers gives the same pictures. On CUDA the batch is copied from pinned memory while the device works on the one
    before, as bytes where the data set allows it: squares of a `DecodedCache`, which are cut there, or cut photographs. Leaving the loop, an exception
    and Ctrl-C end the threads; an error in a worker is raised here as it was.

    Args:
        dataset: with `batch(indices, draw) -> images, labels`.
        plan: step -> (indices of the global batch, epoch); the draw is epoch + 1.
        steps: where to end (this step is not handed over).
        start: where to begin.
        workers: threads, at least 1.
        device: where the batches go; None: they stay on the CPU.
        rank, world: this process's number and how many there are; each takes its `share_of` the global batch.
        ahead: batches that are prepared at the same time or wait, at least 1.

    Raises:
        ValueError: counts that do not fit.
    """

    def __init__(self, dataset, plan, steps: int, start: int = 0, workers: int = 4, device=None, rank: int = 0, world: int = 1, ahead: int = 2):
        if workers < 1 or ahead < 1:
            raise ValueError(f"workers and ahead must be at least 1, got workers={workers}, ahead={ahead}")
        if not 0 <= rank < world:
            raise ValueError(f"rank must be in 0 ... world - 1, got rank={rank}, world={world}")
        self.dataset, self.plan, self.steps, self.start, self.workers = dataset, plan, steps, start, workers
        self.device, self.rank, self.world, self.ahead = torch.device(device or "cpu"), rank, world, ahead
        self.waited = 0.0  # seconds, over all batches so far
        self._open = None

    def __len__(self) -> int:
        return max(0, self.steps - self.start)

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def close(self) -> None:
        "End the threads; what is not begun is not done."
        if self._open is not None:
            self._open.close()
            self._open = None

    def __iter__(self):
        self.close()
        self._open = self._batches()
        return self._open

    def _batches(self):
        on_cuda = self.device.type == "cuda"
        raw, finish = _in_bytes(self.dataset) if on_cuda else (None, None)
        read = self.dataset.batch if raw is None else lambda part, draw: (raw(part, draw),)
        copies = torch.cuda.Stream(self.device) if on_cuda else None
        with ThreadPoolExecutor(self.workers, "reader") as readers, ThreadPoolExecutor(1, "joiner") as joiner:
            def begin(step):
                indices, epoch = self.plan(step)
                indices = share_of(indices, self.rank, self.world)
                parts = [p for p in np.array_split(indices, self.workers) if len(p)] or [indices]
                futures = [readers.submit(read, part, epoch + 1) for part in parts]
                return joiner.submit(lambda: _joined([future.result() for future in futures], self.device, copies)), futures, indices, epoch

            waiting, step = deque(), self.start
            try:
                while waiting or step < self.steps:
                    while step < self.steps and len(waiting) < self.ahead:
                        waiting.append(begin(step))
                        step += 1
                    future, _, indices, epoch = waiting.popleft()
                    asked = time.perf_counter()
                    (images, *labels), copied = future.result()
                    waited = time.perf_counter() - asked
                    self.waited += waited
                    if step < self.steps:
                        waiting.append(begin(step))
                        step += 1
                    if copied is not None:  # from here on the tensors belong to the stream that computes
                        torch.cuda.current_stream(self.device).wait_event(copied)
                        for tensor in (images, *labels):
                            tensor.record_stream(torch.cuda.current_stream(self.device))
                    if finish is not None:
                        images = finish(images, indices, epoch + 1)
                        labels = [_onto(self.dataset.labels.cpu()[torch.as_tensor(indices)], self.device)]
                    yield Batch(images, labels[0], indices, epoch, waited)
            finally:
                for _, futures, _, _ in waiting:
                    for future in futures:
                        future.cancel()
                joiner.shutdown(wait=False, cancel_futures=True)
                readers.shutdown(wait=True, cancel_futures=True)


def _in_bytes(dataset):
    "How a data set's pictures are read as bytes, and made floats on the device: two functions, or None twice where it only gives floats."
    if hasattr(dataset, "raw") and hasattr(dataset, "finish"):
        return dataset.raw, dataset.finish
    if hasattr(dataset, "photo") and isinstance(getattr(dataset, "transform", None), PhotoTransform):
        return (lambda indices, draw: read_batch(dataset, indices, draw)), (lambda images, indices, draw: images.float() / 255)
    return None, None


def _joined(parts: list[tuple], device: torch.device, copies) -> tuple[list[Tensor], object]:
    "The parts of a batch as one, on the device; with the event that says when the copy is done, on CUDA."
    out = []
    for pieces in zip(*parts):
        pinned = copies is not None and pieces[0].device.type == "cpu"
        if len(pieces) > 1 or pinned:
            whole = torch.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), dtype=pieces[0].dtype, device=pieces[0].device, pin_memory=pinned)
            torch.cat(pieces, out=whole)
        out.append(whole if len(pieces) > 1 or pinned else pieces[0])
    if copies is None:
        return [tensor.to(device) for tensor in out], None
    with torch.cuda.stream(copies):
        out = [tensor.to(device, non_blocking=True) for tensor in out]
        return out, copies.record_event()
