"""Embeddings and labels from files: `.npy`, `.safetensors`, `.csv`. Nothing pickled is read."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ..checks import ConfigError, reason

__all__ = ["read_embeddings", "read_labels"]


def read_embeddings(path) -> tuple[np.ndarray | Tensor, np.ndarray | None]:
    """Embeddings, and labels where the file has them.

    Args:
        path: a `.npy` file with (N, D) numbers (mapped, not read whole), or a `.safetensors` file with a tensor
            `embeddings` (or one tensor alone) and, if it likes, `labels`.

    Returns:
        (N, D) and (N,) or (N, L) or None.

    Raises:
        ConfigError: a missing, damaged or unknown file.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"no file {path}")
    if path.suffix == ".npy":
        return _read_npy(path), None
    if path.suffix != ".safetensors":
        raise ConfigError(
            f"{path} is neither .npy nor .safetensors: write the embeddings with numpy.save or "
            f"safetensors.torch.save_file"
        )
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path} is damaged: {reason(error)}") from None
    rows = tensors.get("embeddings", next(iter(tensors.values())) if len(tensors) == 1 else None)
    if rows is None:
        raise ConfigError(f"{path} has no tensor 'embeddings', only {', '.join(sorted(tensors))}")
    labels = tensors.get("labels")
    return rows, None if labels is None else labels.numpy()


def _read_npy(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ConfigError(f"{path} is damaged or holds more than numbers: {reason(error)}") from None


def read_labels(path) -> np.ndarray:
    """Labels from a `.npy` file of integers, or from a `.csv` file with a column for each level, coarse to fine.

    A first CSV line is taken as a heading when it holds words above columns of numbers, or the words label, class,
    level or id.

    Returns:
        (N,) or (N, L) int64; words are numbered in alphabetical order.

    Raises:
        ConfigError: a missing or damaged file, lines of unequal length, labels that are not whole numbers.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"no file {path}")
    if path.suffix == ".npy":
        labels = np.asarray(_read_npy(path))
        if labels.dtype.kind not in "iu":
            raise ConfigError(f"{path} holds {labels.dtype}, labels must be integers")
        return labels.astype(np.int64)
    if path.suffix != ".csv":
        raise ConfigError(f"{path} is neither .npy nor .csv")
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} is not a text file of comma-separated values: {reason(error)}") from None
    number = lambda cell: cell.lstrip("-").isdigit()
    if len(rows) > 1 and not any(map(number, rows[0])):
        below = all(number(cell) for row in rows[1:] for cell in row)
        if below or any(word in cell.lower() for cell in rows[0] for word in ("label", "class", "level", "id")):
            rows = rows[1:]
    if not rows:
        raise ConfigError(f"{path} holds no labels")
    wrong = next((i for i, row in enumerate(rows, 1) if len(row) != len(rows[0]) or "" in row), None)
    if wrong is not None:
        raise ConfigError(
            f"line {wrong} of the labels in {path} has {len(rows[wrong - 1])} filled or empty cells, the first has "
            f"{len(rows[0])}: every image needs every level"
        )
    columns = [
        [int(c) for c in column] if all(map(number, column)) else np.unique(column, return_inverse=True)[1]
        for column in zip(*rows)
    ]
    labels = np.stack([np.asarray(c, dtype=np.int64) for c in columns], 1)
    return labels[:, 0] if labels.shape[1] == 1 else labels
