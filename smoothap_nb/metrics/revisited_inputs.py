"""What `evaluate_revisited` is given: a ground truth, one entry per query, and scores or ranked lists that fit it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from torch import Tensor

KINDS = ("easy", "hard", "junk")  # what the files call the images that a jury voted easy, hard and unclear


def read_truth(ground_truth) -> list[dict[str, np.ndarray]]:
    "One dict of index arrays per query, checked."
    if hasattr(ground_truth, "gnd"):
        ground_truth = ground_truth.gnd
    elif isinstance(ground_truth, dict) and "gnd" in ground_truth:
        ground_truth = ground_truth["gnd"]
    if not isinstance(ground_truth, (list, tuple)):
        raise TypeError("ground_truth must be a list with one dict per query, or what load_revisited gives; "
                        f"got {type(ground_truth).__name__}")
    return [labelled_images(entry, q) for q, entry in enumerate(ground_truth)]


def labelled_images(entry, q: int) -> dict[str, np.ndarray]:
    "Easy, hard and junk images of one query as index arrays, checked."
    if not isinstance(entry, dict) or any(kind not in entry for kind in KINDS):
        has = sorted(map(str, entry)) if isinstance(entry, dict) else type(entry).__name__
        first = isinstance(entry, dict) and "ok" in entry
        old = "; 'ok' belongs to the first Oxford5k and Paris6k: fetch the revisited file" if first else ""
        raise ValueError(f"ground_truth[{q}] must have the keys easy, hard and junk (lists of gallery indices, perhaps "
                         f"empty), it has {has}{old}")
    out = {}
    for kind in KINDS:
        values = np.asarray(entry[kind]).reshape(-1)
        if len(values) and (values.dtype.kind not in "iu" or values.min() < 0):
            raise ValueError(f"ground_truth[{q}][{kind!r}] must hold gallery indices from 0 on, "
                             f"got {values[:5].tolist()}")
        out[kind] = values.astype(np.int64)
    everything = np.concatenate(list(out.values()))
    if len(np.unique(everything)) < len(everything):
        twice = next(i for i, c in Counter(everything.tolist()).items() if c > 1)
        raise ValueError(f"ground_truth[{q}] names image {twice} twice: an image is easy, hard or junk, once")
    return out


def read_rows(scores, ranks, truth: list[dict]):
    "The queries one by one, as arrays that fit the ground truth."
    name, table = ("scores", scores) if ranks is None else ("ranks", ranks)
    shape = tuple(getattr(table, "shape", (len(table),)))
    if isinstance(table, (Tensor, np.ndarray)) and len(shape) != 2:
        raise ValueError(f"{name} must have two axes, queries first; got shape {shape}")
    if len(table) != len(truth):
        turned = f". The official code stores (database, queries): pass {name}.T" if shape[1:] == (len(truth),) else ""
        raise ValueError(f"{name} have {len(table)} rows, the ground truth has {len(truth)} queries{turned}")
    largest = [max((int(v.max()) for v in entry.values() if len(v)), default=-1) for entry in truth]
    for q in range(len(truth)):
        row = table[q]
        if isinstance(row, Tensor):  # numpy has no bfloat16
            row = (row.detach().float() if row.dtype == torch.bfloat16 else row.detach()).cpu().numpy()
        row = np.asarray(row)
        yield _score_row(row, q, largest[q]) if ranks is None else _rank_row(row, q)


def _score_row(row: np.ndarray, q: int, largest: int) -> np.ndarray:
    if row.dtype.kind != "f":
        raise TypeError(f"scores must be floating point, got {row.dtype} in row {q}")
    if largest >= len(row):
        raise ValueError(f"ground_truth[{q}] names gallery image {largest}, the scores have {len(row)} columns")
    if not np.isfinite(row).all():
        raise ValueError(f"scores hold NaN or infinity, first in row {q}")
    # comparing rounded scores is exact, sorting them in float16 is slow
    return row if row.dtype.itemsize >= 4 else row.astype(np.float32)


def _rank_row(row: np.ndarray, q: int) -> np.ndarray:
    if row.ndim != 1 or (len(row) and row.dtype.kind not in "iu"):
        raise TypeError("ranks must be rows of gallery indices (integers, best first), "
                        f"row {q} is {row.dtype} of shape {row.shape}")
    row = row.astype(np.int64)
    listed = row[row >= 0]
    if len(row) and row.min() < -1:
        raise ValueError(f"ranks hold {row.min()} in row {q}: gallery indices start at 0, and -1 marks a gap")
    if (np.diff(np.sort(listed)) == 0).any():
        raise ValueError(f"ranks name an image twice in row {q}: a ranking holds each image once")
    return row
