"""Embeddings wherever they are, as blocks of rows ready for a product, and the rows of scores that come of them.

A tensor, an array or a file on disk that is larger than memory, in full or half precision. Before anything is computed
one pass looks at all rows, so that a NaN is reported by its row in the first seconds and not after an hour.
"""

from __future__ import annotations

import contextlib
import copy
import mmap
import re
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ..checks import check_choice, check_dense
from ..similarity import unit_rows

DISTANCES = ("cosine", "euclidean")
_BYTES_PER_PASS = 2**27  # of float32 rows, while all of them are looked at


def memory_bytes(memory) -> int:
    "A memory size: a number of bytes, or text such as '1GB' or '500MB'."
    if isinstance(memory, (int, float)) and not isinstance(memory, bool) and 1 <= memory < float("inf"):
        return int(memory)
    form = r"\s*(\d+\.?\d*)\s*([kMGT]?)(i?)B?\s*"
    found = re.fullmatch(form, memory, re.IGNORECASE) if isinstance(memory, str) else None
    unit = 1024 if found and found[3] else 1000
    size = float(found[1]) * unit ** " KMGT".index(found[2].upper() or " ") if found else 0
    if size < 1:
        raise ValueError(f"memory must be a size such as '1GB', '500MB' or a number of bytes, got {memory!r}")
    return int(size)


def _let_go(rows: np.ndarray) -> None:
    "Pages of a file that were read leave this process; the system may keep them."
    mapped = getattr(rows, "_mmap", None)
    if mapped is not None and getattr(rows, "mode", None) in ("r", "r+") and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


class Rows:
    """Embeddings, read block by block in float32 (float64 stays).

    Attributes:
        scale: rows are divided by their length.
        extra: a column to add, so that a dot product ranks by Euclidean distance: "one" (queries), "square" (gallery).
        twins: rows equal to an earlier row, and that row, as two index arrays.
    """

    def __init__(self, rows, name: str):
        if not isinstance(rows, (Tensor, np.ndarray)):
            raise TypeError(f"{name} must be a torch.Tensor or a numpy array, got {type(rows).__name__}")
        if isinstance(rows, Tensor):
            check_dense(name, rows)
        if not (rows.is_floating_point() if isinstance(rows, Tensor) else rows.dtype.kind == "f"):
            raise TypeError(f"{name} must be floating point, got {rows.dtype}: convert them to float32")
        if rows.ndim != 2 or rows.shape[1] == 0:
            raise ValueError(f"{name} must have shape (images, dimensions), got {tuple(rows.shape)}")
        self.rows, self.name = (rows.detach() if isinstance(rows, Tensor) else rows), name
        self.double = str(rows.dtype).endswith("float64")
        self.device, self.dtype = torch.device("cpu"), torch.float64 if self.double else torch.float32
        self.scale, self.extra, self.longest = False, "", 1.0
        self.kept: Tensor | None = None
        self.twins = (np.empty(0, np.int64), np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        "Bytes of one prepared row."
        return (self.rows.shape[1] + bool(self.extra)) * self.dtype.itemsize

    def raw(self, which) -> Tensor:
        "Rows as they came, in the dtype and on the device of the computation. `which`: a slice or an index array."
        if isinstance(self.rows, Tensor):
            rows = self.rows[which if isinstance(which, slice) else torch.from_numpy(which).to(self.rows.device)]
        else:
            rows = torch.from_numpy(np.array(self.rows[which], dtype=np.float64 if self.double else np.float32))
            _let_go(self.rows)
        return rows.to(self.device, self.dtype)

    def block(self, which) -> Tensor:
        "Rows ready for a product."
        if self.kept is not None:
            return self.kept[which if isinstance(which, slice) else torch.from_numpy(which).to(self.device)]
        rows = unit_rows(self.raw(which)) if self.scale else self.raw(which)
        if not self.extra:
            return rows
        column = torch.ones_like(rows[:, :1]) if self.extra == "one" else rows.square().sum(1, keepdim=True) / -2
        return torch.cat([rows, column], 1)

    def slices(self, step: int) -> Iterator[slice]:
        "All rows, so many at a time."
        step = max(1, step)
        return (slice(start, min(start + step, len(self))) for start in range(0, len(self), step))

    def keep(self, budget: int) -> int:
        "Prepare all rows once, where they fit into `budget` bytes; gives the bytes that this takes."
        rows, as_they_are = self.rows, not self.scale and not self.extra
        if as_they_are and isinstance(rows, Tensor) and rows.dtype == self.dtype and rows.device == self.device:
            self.kept = rows
            return 0
        if len(self) * self.width > budget:
            return 0
        kept = torch.empty(len(self), self.width // self.dtype.itemsize, dtype=self.dtype, device=self.device)
        for part in self.slices(_BYTES_PER_PASS // self.width):
            kept[part] = self.block(part)
        self.kept = kept
        return len(self) * self.width

    def look(self, normalize, budget: int) -> str:
        "One pass over all rows: refuse NaN and infinity by row, find twins, and tell of lengths that are not 1."
        bad, off, first, sketches = [], 0, "", []
        for part in self.slices(min(budget // 4, _BYTES_PER_PASS) // self.width):
            block = self.raw(part)
            length = torch.linalg.vector_norm(block, dim=1)
            doubtful = (~torch.isfinite(length)).nonzero()[:, 0].tolist()
            bad += [part.start + i for i in doubtful if not torch.isfinite(block[i]).all()]
            far = ((length - 1).abs() > 1e-2).nonzero()[:, 0]
            if len(far) and not first:
                first = f"row {part.start + int(far[0])} has length {float(length[far[0]]):.4g}"
            off += len(far)
            self.scale = self.scale or bool(((length - 1).abs() > 1e-6).any())
            self.longest = max(self.longest, float(length.max())) if len(length) else self.longest
            sketches.append(_fingerprint(block[:, :: max(1, block.shape[1] // 16)]))
        if bad:
            named = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
            raise ValueError(f"{self.name} hold NaN or infinity in {len(bad)} of {len(self)} rows: row {named}")
        self.scale = self.scale and normalize is not False
        self.twins = _twins(self, np.concatenate(sketches))
        return f"{off} of {len(self)} rows of {self.name} are not of length 1 ({first})" if off else ""


def _fingerprint(block: Tensor) -> np.ndarray:
    "A 64-bit number for each row that is equal where rows are equal, and hardly ever elsewhere."
    # halves of a float64 apart: round numbers end in zero bits, which a product would leave at the top and lose
    bits = np.ascontiguousarray((block + 0.0).cpu().numpy()).view(np.int32)
    weights = np.random.default_rng(0).integers(1, 2**62, bits.shape[1]) * 2 + 1
    with np.errstate(over="ignore"):
        return (bits.astype(np.int64) * weights).sum(1)


def _twins(rows: Rows, sketch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows equal to an earlier row, and the first row that each of them equals.

    The last bit of a matrix product depends on where in the matrix a column stands, and would break the tie of two
    equal pictures at random: so equal rows are found once and given the score of the first of them.
    """
    _, first, group, size = np.unique(sketch, return_index=True, return_inverse=True, return_counts=True)
    maybe = np.nonzero(size[group.ravel()] > 1)[0]
    if not len(maybe):
        return maybe, maybe
    step = max(1, _BYTES_PER_PASS // (3 * rows.width))
    full = np.concatenate([_fingerprint(rows.raw(maybe[a : a + step])) for a in range(0, len(maybe), step)])
    _, first, group = np.unique(full, return_index=True, return_inverse=True)
    first = maybe[first[group.ravel()]]
    maybe, first = maybe[first < maybe], first[first < maybe]
    parts = [slice(a, a + step) for a in range(0, len(maybe), step)]
    same = [(rows.raw(maybe[part]) == rows.raw(first[part])).all(1).cpu().numpy() for part in parts]
    same = np.concatenate(same) if same else np.zeros(0, bool)
    return maybe[same], first[same]


def gallery_rows(embeddings, queries: Rows) -> Rows:
    "A gallery that fits the queries."
    gallery = Rows(embeddings, "gallery_embeddings")
    if len(gallery) == 0:
        raise ValueError("the gallery is empty: gallery_embeddings has no rows")
    wide, queried = gallery.rows.shape[1], queries.rows.shape[1]
    if wide != queried:
        raise ValueError(f"gallery_embeddings have {wide} dimensions, the embeddings have {queried}")
    return gallery


def own_rows(query_index, queries: int, gallery: int, include_query: bool) -> np.ndarray:
    "(Q,) each query's own row in the gallery, -1 where it is not there or stays."
    if query_index is None:
        return np.full(queries, -1)
    index = query_index.detach().cpu().numpy() if isinstance(query_index, Tensor) else np.asarray(query_index)
    if index.shape != (queries,) or index.dtype.kind not in "iu":
        raise ValueError(
            f"query_index must hold {queries} integers, one per query, got {index.dtype} {index.shape}"
        )
    if index.min() < -1 or index.max() >= gallery:
        raise ValueError(
            f"query_index must lie in -1 ... {gallery - 1} (rows of the gallery), got {index.min()} ... {index.max()}"
        )
    return np.full(queries, -1) if include_query else index.astype(np.int64)


def prepare(queries: Rows, gallery: Rows, normalize, distance: str, device, memory: int) -> tuple[Rows, Rows]:
    """Settle device, dtype and distance, and look at all rows once.

    Returns:
        queries and gallery so that the product of their blocks ranks as asked. A Euclidean ranking is one by
        q.g - |g|^2 / 2, half of |q|^2 less half the squared distance: each side gets one more column.
    """
    if normalize is not None and normalize is not True and normalize is not False and normalize != "refuse":
        raise ValueError(f"normalize must be True, False or 'refuse', got {normalize!r}")
    euclidean = check_choice("distance", distance, DISTANCES) == "euclidean"
    normalize = not euclidean if normalize is None else normalize
    if device is None:
        device = queries.rows.device if isinstance(queries.rows, Tensor) else "cpu"
    device = torch.device(device)
    device = torch.device("cpu") if device.type == "mps" else device  # counts need float64
    notices = {}
    for rows in dict.fromkeys((queries, gallery)):
        rows.device, rows.dtype = device, torch.float64 if queries.double or gallery.double else torch.float32
        notices[rows.name] = rows.look(normalize, memory)
    text = "; ".join(filter(None, notices.values()))
    if text and normalize == "refuse":
        raise ValueError(f"{text}: normalise them first, or pass normalize=True to have it done here")
    if text and normalize:
        names = " and of ".join(name for name, notice in notices.items() if notice)
        # no number in it: Python says the same text from the same line once, and not once an epoch
        warnings.warn(f"rows of {names} are not of length 1: they are normalised here. normalize='refuse' makes this "
                      "an error that names them, normalize=False compares them as they are", stacklevel=3)
    if normalize is False and queries.longest * gallery.longest > torch.finfo(queries.dtype).max / 2:
        raise ValueError("the embeddings are so long that their products overflow: pass normalize=True")
    if euclidean:
        queries, gallery = copy.copy(queries), gallery
        queries.extra, gallery.extra = "one", "square"
    return queries, gallery


@contextlib.contextmanager
def full_precision():
    "Products in true float32: no autocast, no TF32, no bfloat16 in between."
    cpu, cuda = torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False)
    with exact_products(), cpu, cuda, torch.inference_mode():
        yield


@contextlib.contextmanager
def exact_products():
    "The caller's switches for rougher float32 products off, and as they were afterwards."
    if not hasattr(torch.backends.mkldnn, "matmul"):  # torch before 2.9 has one switch for all devices
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    # torch makes the second one as it is imported
    kinds = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # pyright: ignore[reportAttributeAccessIssue]
    before = [kind.fp32_precision for kind in kinds]
    try:
        for kind in kinds:
            kind.fp32_precision = "ieee"
        yield
    finally:
        for kind, precision in zip(kinds, before):
            kind.fp32_precision = precision


def score_rows(queries: Rows, gallery: Rows, which: np.ndarray, memory: int, row_cost: int, progress: bool):
    """Blocks of query numbers with their scores against the whole gallery, within `memory` bytes.

    Args:
        queries, gallery: from `prepare`.
        which: query numbers.
        memory: bytes; a quarter stays free for what is done with a block.
        row_cost: bytes that one score takes, its own included.
        progress: show a bar after a few seconds.

    Yields:
        (B,) query numbers, and (B, G) scores that the next block overwrites.

    Raises:
        ValueError: not even one row fits.
    """
    from tqdm import tqdm

    left = memory - gallery.keep(memory // 2)
    need = len(gallery) * row_cost + 2 * gallery.width
    count = min(1024, len(which), (left - left // 4) // need)
    if count < 1:
        raise ValueError(f"memory of {memory:,} bytes is too small: the scores of one query against "
                         f"{len(gallery):,} images take {need * 4 // 3 + 4:,}")
    whole = gallery.kept is not None
    columns = len(gallery) if whole else max(1, min(left // 4, 2 * _BYTES_PER_PASS) // (3 * gallery.width))
    scores = torch.empty(count, len(gallery), dtype=gallery.dtype, device=gallery.device)
    twins, first = (torch.from_numpy(part).to(gallery.device) for part in gallery.twins)
    with tqdm(total=len(which), desc="evaluating", unit="query", disable=not progress, delay=3, leave=False) as bar:
        for start in range(0, len(which), count):
            part = which[start : start + count]
            straight = part[-1] - part[0] + 1 == len(part)
            block, filled = queries.block(slice(part[0], part[-1] + 1) if straight else part), scores[: len(part)]
            for some in gallery.slices(columns):
                if some == slice(0, len(gallery)):
                    torch.mm(block, gallery.block(some).T, out=filled)
                else:
                    filled[:, some] = block @ gallery.block(some).T
            if len(twins):
                filled[:, twins] = filled[:, first]
            yield part, filled
            bar.update(len(part))
