"""Labels as `evaluate` takes them: classes, paths of classes from coarse to fine, or tags, several to an image."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ..checks import check_dense, reason
from .rows import Rows, gallery_rows, own_rows


def read_labels(labels, count: int, name: str, rows: str) -> np.ndarray:
    """(N, L) int64 classes, coarse to fine, or (N, T) bool tags, from a tensor, an array or a list.

    Args:
        labels: the caller's.
        count: how many there have to be.
        name: of the argument, for messages.
        rows: what they belong to, for messages.

    Raises:
        TypeError: neither whole numbers nor (N, T) truth values.
        ValueError: another shape or length.
    """
    if isinstance(labels, Tensor):
        check_dense(name, labels)
    try:
        values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be integers (class numbers): {reason(error)}") from None
    tags = values.dtype == bool and values.ndim == 2
    if values.dtype.kind not in "iu" and not tags:
        raise TypeError(f"{name} must be integers (class numbers), or bool of shape (N, tags); got {values.dtype}")
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(f"{name} must have shape (N,), or (N, L) coarse to fine; got {tuple(values.shape)}")
    if len(values) != count:
        raise ValueError(f"{name} have length {len(values)}, {rows} {count}: one label per image is needed")
    return values if tags else values.astype(np.int64)


def read_gallery_labels(labels, count: int, queries: np.ndarray, rows: str = "gallery_embeddings") -> np.ndarray:
    "Labels of a gallery, of the same kind and depth as the queries'."
    found = read_labels(labels, count, "gallery_labels", rows)
    if found.dtype != queries.dtype:
        raise TypeError("labels and gallery_labels must both be class numbers, or both bool tags")
    if found.shape[1] != queries.shape[1]:
        what = "tags" if found.dtype == bool else "levels"
        raise ValueError(f"gallery_labels have {found.shape[1]} {what}, the labels have {queries.shape[1]}")
    return found


def read_inputs(embeddings, labels, gallery_embeddings, gallery_labels, query_index, include_query: bool):
    "Queries, gallery, labels of both and each query's own gallery row (-1: none), checked."
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise ValueError("gallery_embeddings and gallery_labels belong together: pass both or neither")
    queries = Rows(embeddings, "embeddings")
    labels = read_labels(labels, len(queries), "labels", "the embeddings")
    if len(queries) == 0:
        raise ValueError("there is no query: embeddings have no rows")
    if gallery_embeddings is None:
        if query_index is not None:
            raise ValueError("query_index points into gallery_embeddings: pass a gallery with it")
        return queries, queries, labels, None, np.full(len(queries), -1) if include_query else np.arange(len(queries))
    gallery = gallery_rows(gallery_embeddings, queries)
    gallery_labels = read_gallery_labels(gallery_labels, len(gallery), labels)
    return queries, gallery, labels, gallery_labels, own_rows(query_index, len(queries), len(gallery), include_query)


class NoPositives(ValueError):
    "No query has anything to find, so that a metric over all of them is not defined."


def mean_of(name: str, values: np.ndarray) -> float:
    "Mean over the queries that have a value."
    if np.isnan(values).all():
        raise NoPositives(f"{name} is not defined: no query has an item of relevance above 0.")
    return float(np.nanmean(values))
