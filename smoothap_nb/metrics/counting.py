"""Counting how many scores of a row are at least as large as a few values: the loop that numba compiles.

Four values share one walk along the row: each score is read once and compared four times, which a compiler turns into
vector instructions. The loop holds no Python object, so threads can work on rows of their own.
"""

from __future__ import annotations

import numba
import numpy as np

from .threads import on_threads


def at_or_above(scores, rows, values, strict, counts):
    "counts[i, j]: entries of scores[rows[i]] that are >= values[i, j], or > where `strict`."
    last = values.shape[1] - 1
    for i in range(len(rows)):
        s = scores[rows[i]]
        for at in range(0, last + 1, 4):
            v0, v1 = values[i, at], values[i, min(at + 1, last)]
            v2, v3 = values[i, min(at + 2, last)], values[i, min(at + 3, last)]
            c0, c1, c2, c3 = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
            if strict:
                for column in range(len(s)):
                    v = s[column]
                    c0, c1 = np.int32(c0 + np.int32(v > v0)), np.int32(c1 + np.int32(v > v1))
                    c2, c3 = np.int32(c2 + np.int32(v > v2)), np.int32(c3 + np.int32(v > v3))
            else:
                for column in range(len(s)):
                    v = s[column]
                    c0, c1 = np.int32(c0 + np.int32(v >= v0)), np.int32(c1 + np.int32(v >= v1))
                    c2, c3 = np.int32(c2 + np.int32(v >= v2)), np.int32(c3 + np.int32(v >= v3))
            for j, count in enumerate((c0, c1, c2, c3)):
                if at + j <= last:
                    counts[i, at + j] = count


try:
    compiled = numba.njit(nogil=True, cache=True)(at_or_above)
except RuntimeError:  # no folder that a cache can be written to
    compiled = numba.njit(nogil=True)(at_or_above)


def count_at_or_above(scores: np.ndarray, rows: np.ndarray, values: np.ndarray, strict: bool) -> np.ndarray:
    """How many scores of some rows are at least as large as given values, on all threads that torch uses.

    Args:
        scores: (B, G) floating point.
        rows: (R,) which of its rows.
        values: (R, P) thresholds of the same dtype; P is meant to be small, the cost is R * G * P.
        strict: count larger scores alone.

    Returns:
        (R, P) int64.
    """
    counts = np.empty(values.shape, np.int64)

    def work(part: range) -> None:
        chosen = slice(part.start, part.stop)
        compiled(scores, rows[chosen], values[chosen], strict, counts[chosen])

    on_threads(work, len(rows))
    return counts
