"""A data set of photographs decoded once, into squares of bytes from which batches are cut on the device.

Why not webdataset or FFCV: webdataset streams shards in their own order, and our samplers ask for classes by index;
FFCV has both, but compiles against OpenCV and libjpeg-turbo at installation, and fixes the crop's random numbers to its
own pipeline, where ours must be decided by (seed, image, draw) so that a resumed run sees the same pictures. A
memory-mapped file of equal squares is a page of code, and decoding, the costly part, is gone from the second epoch on
either way.
"""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..files import write_atomic
from ..images import PhotoError
from .interface import PictureSet, check_draw, places
from .photographs import ImageSet

__all__ = ["CacheError", "DecodedCache", "cut_boxes", "onto"]


_BLOCK = 2**26  # bytes between two entries in the state file


class CacheError(RuntimeError):
    "A decoded cache that cannot be built or used; the message says why and what to do."


def _fingerprint(dataset: ImageSet, side: int) -> dict:
    "What a cache belongs to: the list of files, and the sizes of a few of them, which tell that a file was changed."
    names = dataset.relative
    probes = sorted({round(i) for i in np.linspace(0, len(names) - 1, 16)}) if names else []
    sizes = {names[i]: dataset.paths[i].stat().st_size if dataset.paths[i].exists() else -1 for i in probes}
    return {
        "version": 1,
        "side": side,
        "images": len(names),
        "files": hashlib.sha256("\n".join(names).encode()).hexdigest(),
        "bytes": sizes,
    }


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


class DecodedCache(PictureSet):
    """A data set of photographs, decoded once into squares of bytes, from which batches are cut on the device.

    The folder belongs to one data set, split and side. Building goes on where it was stopped or killed; of several
    processes that ask for the same cache one builds and the others wait.

    Args:
        dataset: with `transform` (`PhotoTransform`), `labels`, and `photo(i)` or `paths` and `root`.
        folder: where the cache is, or will be.
        side: of the squares in pixels, at least `transform.size`; 3 x side x side bytes per picture.
        workers: threads that decode.
        progress: show a bar while building.
        damaged_share: share of the pictures that may be unreadable before the build stops. A data set with `photo(i)`
            decides what takes their place (an `ImageSet`: another picture of the class), else they are grey.

    Attributes:
        damaged: file -> why it could not be read, of all pictures that came up damaged or missing while the cache was
            built.

    Raises:
        CacheError: another data set's cache, too little room, a folder that cannot be written.
        PhotoError: more damaged pictures than `damaged_share` allows.
    """

    def __init__(
        self, dataset, folder, side: int = 256, workers: int = 4, progress: bool = True, damaged_share: float = 0.0
    ):
        if side < dataset.transform.size:
            raise ValueError(f"side must be at least the pictures' size {dataset.transform.size}, got {side}")
        if len(dataset) == 0:
            raise ValueError("the data set is empty: there is nothing to keep")
        self.dataset, self.folder, self.side = dataset, Path(folder), int(side)
        self.transform, self.rows, self.device = dataset.transform, np.arange(len(dataset)), None
        self.name, self.split, self.level_names, self.draw = (
            dataset.name,
            dataset.split,
            dataset.level_names,
            dataset.draw,
        )
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
            raise CacheError(
                f"{error.filename or folder} cannot be written; name a folder that you may write to for the decoded "
                f"cache"
            ) from None
        except OSError as error:
            raise CacheError(
                f"the decoded cache in {folder} cannot be written: {error.strerror or error}. Make room, or name a "
                f"folder on another disk"
            ) from None
        self.damaged = state["damaged"]
        try:
            self._pixels = np.memmap(self.folder / "pixels.u8", np.uint8, "c", shape=(len(dataset), 3, side, side))
            self._sizes = np.fromfile(self.folder / "sizes.i32", np.int32).reshape(len(dataset), 2)
        except (OSError, ValueError):
            raise CacheError(
                f"the decoded cache in {folder} is incomplete though it says it is finished; delete the folder and "
                f"start again"
            ) from None

    @property
    def labels(self) -> Tensor:
        "(N, L) int64, coarse to fine."
        return self.dataset.labels

    @property
    def identity(self) -> Tensor:
        "(N,) what each image is."
        return self.dataset.identity

    @property
    def captions(self):
        "What each image shows, in words."
        return self.dataset.captions

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"DecodedCache({len(self):,} of {len(self._sizes):,} pictures, side {self.side}, in {self.folder})"

    def raw(self, indices, draw: int = 0, out: Tensor | None = None) -> Tensor:
        "(B, 3, side, side) uint8 squares, whatever the draw; in `out`, of that shape on the CPU, where one is given."
        rows = self.rows[places(indices, len(self)).numpy()]
        if self.device is not None:
            return self._pixels[onto(torch.from_numpy(rows), self.device)]
        out = torch.empty((len(rows), *self._pixels.shape[1:]), dtype=torch.uint8) if out is None else out
        for square, row in zip(out.numpy(), rows):  # plain copies, without the interpreter's lock
            square[:] = self._pixels[row]
        return out

    def room(self, count: int) -> Tensor | None:
        "Pinned memory for a batch, of which `raw` fills parts; None where the squares lie on a device."
        shape = (count, *self._pixels.shape[1:])
        return torch.empty(shape, dtype=torch.uint8, pin_memory=True) if self.device is None else None

    def finish(self, raw: Tensor, indices, draw: int = 0) -> Tensor:
        """Cut the pictures of a draw out of their squares, on the device where these are.

        Args:
            raw: (B, 3, side, side) uint8, from `raw`.
            indices: (B,) the same places in the data set.
            draw: 0 = evaluation, 1, 2, ... = training.

        Returns:
            (B, 3, size, size) float32 in [0, 1].
        """
        rows = places(indices, len(self)).numpy()
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
        return self.finish(raw, indices, check_draw(draw)), self.labels[places(indices, len(self))]

    def subset(self, indices) -> DecodedCache:
        "A part of the data set on the same cache."
        rows, part = places(indices, len(self)).numpy(), copy.copy(self)
        part.rows, part.dataset = self.rows[rows], self.dataset.subset(indices)
        return part

    def to(self, device) -> DecodedCache:
        "Keep all squares in a device's memory, where they fit. Returns the data set itself."
        if isinstance(self._pixels, np.memmap):
            try:
                whole = torch.empty(self._pixels.shape, dtype=torch.uint8, device=device)
            except torch.cuda.OutOfMemoryError:
                raise CacheError(
                    f"the squares take {self._pixels.size / 2**30:.1f} GiB, more than is free on {device}: leave "
                    f"them in their file"
                ) from None
            for part in range(0, len(whole), 1024):
                whole[part : part + 1024] = torch.from_numpy(np.array(self._pixels[part : part + 1024])).to(device)
            self._pixels = whole
        self._pixels, self.device = self._pixels.to(device), torch.device(device)
        return self

    def _state(self, wanted: dict) -> dict:
        "What is there, or a fresh start."
        path = self.folder / "state.json"
        if not path.exists():
            strangers = [
                p.name
                for p in self.folder.iterdir()
                if p.name not in ("lock", "pixels.u8", "sizes.i32") and not p.name.startswith(".state.json.")
            ]
            if strangers:
                raise CacheError(
                    f"{self.folder} holds other things ({strangers[0]}, ...); name an empty folder for the decoded "
                    f"cache"
                )
            return {**wanted, "done": 0, "damaged": {}}
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            refusal = _why_not(state, wanted)
        except (ValueError, KeyError, TypeError):
            refusal = "has a damaged state file"
        if refusal:
            raise CacheError(
                f"the decoded cache in {self.folder} {refusal}. Name another folder, or delete this one to build it "
                f"again"
            )
        return state

    def _build(self, state: dict, workers: int, progress: bool, damaged_share: float) -> None:
        from tqdm.auto import tqdm

        pixels, sizes, cell = self.folder / "pixels.u8", self.folder / "sizes.i32", 3 * self.side**2
        total, done, names = len(self.dataset), state["done"], self.dataset.relative
        known = self.dataset.damaged  # the data set finds another picture by itself, and keeps count
        known.update(state["damaged"])
        _reserve(pixels, total * cell)
        block = max(1, _BLOCK // cell)
        bar = tqdm(total=total, initial=done, desc="decoding", unit="picture", disable=not progress, dynamic_ncols=True)
        with (
            bar,
            ThreadPoolExecutor(max(1, workers)) as pool,
            open(pixels, "r+b") as store,
            open(sizes, "r+b" if done else "w+b") as table,
        ):
            try:
                store.seek(done * cell)
                table.seek(done * 8)
                for start in range(done, total, block):
                    stop = min(start + block, total)
                    for index, (square, size, damage) in zip(
                        range(start, stop), pool.map(self._decode, range(start, stop))
                    ):
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
                    write_atomic(self.folder / "state.json", json.dumps(state))
            except OSError as error:
                raise CacheError(
                    f"the decoded cache could not be written to {self.folder}: {error.strerror or error}. What is "
                    f"done stays "
                    f"({state['done']:,} of {total:,} pictures): make room, then start the same command again"
                ) from None
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _decode(self, index: int) -> tuple[bytes, tuple[int, int], str]:
        "A square of bytes (3, side, side), the picture's own size, and what is wrong with it."
        from PIL import Image

        try:
            photo = self.dataset.photo(index)
        except PhotoError as error:
            return b"\x80" * (3 * self.side**2), (self.side, self.side), str(error)
        square = np.asarray(photo.resize((self.side, self.side), Image.Resampling.BILINEAR))
        return square.transpose(2, 0, 1).tobytes(), photo.size, ""


def _stop_above(damaged: dict, share: float, total: int) -> None:
    "Stop when more pictures are damaged than was allowed; name them."
    if len(damaged) > share * total:
        named = "; ".join(list(damaged.values())[:3])
        raise PhotoError(
            f"{len(damaged)} of {total:,} pictures cannot be read, more than the allowed share {share:g}: {named}"
        )


def _reserve(path: Path, size: int) -> None:
    "A file of that size whose room on the disk is taken now, not in the middle of the night."
    there = path.stat().st_blocks * 512 if path.exists() else 0
    free = shutil.disk_usage(path.parent).free
    short = (
        f"the decoded cache needs {size / 2**30:.2f} GiB in {path.parent}, and {{:.2f}} GiB are free there: "
        "make room, name a folder on another disk, or lower the side"
    )
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
    boxes, backwards = (
        onto(torch.as_tensor(np.asarray(boxes), dtype=torch.float32), device),
        onto(torch.as_tensor(np.asarray(mirrored)), device)[:, None],
    )
    along = (torch.arange(size * finer, device=device, dtype=torch.float32) + 0.5) / (size * finer)
    x = boxes[:, :1] + boxes[:, 2:3] * torch.where(backwards, 1 - along, along)
    y = boxes[:, 1:2] + boxes[:, 3:] * along
    grid = torch.stack(torch.broadcast_tensors(2 * x[:, None, :] - 1, 2 * y[:, :, None] - 1), -1)
    pixels = squares.float() / 255 if squares.dtype == torch.uint8 else squares.float()
    out = F.grid_sample(pixels, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return F.avg_pool2d(out, finer) if finer > 1 else out


def onto(tensor: Tensor, device: torch.device) -> Tensor:
    "On the device, without waiting for what it is busy with."
    copied = torch.device(device).type == "cuda" and tensor.device.type == "cpu"
    return tensor.pin_memory().to(device, non_blocking=True) if copied else tensor.to(device)
