"""A table with one entry per gap between sorted marks, in which long rows of numbers are looked up.

Lesson 05b says what is looked up, and why. On a CPU numba compiles the loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

LONG = 1 << 15    # scores; below this the import of numba costs more than it gives
CHUNK = 1 << 24   # scores searched at a time by PyTorch


def walk(scores, lows, highs, marks, lengths, after, table, above, out):
    """For each score, the table entry of its gap between its row's sorted marks (compiled by numba).

    The gap is the number of marks below the score; with `above`, of those not above it.
    """
    for q in range(scores.shape[0]):
        row, line, ends, values, found = scores[q], marks[q], after[q], table[q], out[q]
        begin, end = 0, lengths[q]  # marks outside the range of the scores need no cells
        while begin < end and line[begin] < lows[q]:
            begin += 1
        while end > begin and line[end - 1] > highs[q]:
            end -= 1
        if begin == end:  # all scores in one gap
            found[:] = values[begin]
            continue
        first, last = line[begin], line[end - 1]
        cells = min(8 * (end - begin), 2 * len(row) + 1, 1 << 20)  # more would not stay in the cache
        span = np.float64(last) - np.float64(first)
        scale = cells / span if span > 0 else 0.0
        if not (scale < 1e300 and span < 1e300):  # too near or too far apart to divide
            scale = 0.0  # one cell, and halving alone does it
        start = np.full(cells + 2, begin, np.int32)  # of each cell: how many marks lie in earlier ones
        for k in range(begin, end):
            start[int((np.float64(line[k]) - first) * scale) + 1 if scale > 0 else 1] += 1
        for cell in range(cells + 1):
            start[cell + 1] += start[cell] - begin
        for j in range(len(row)):
            score = row[j]
            if not score >= first:  # NaN goes here too
                place = begin
            elif score > last:
                place = end
            else:
                cell = int((np.float64(score) - first) * scale) if scale > 0 else 0
                place = int(start[cell])
                place += line[place] < score
                if line[place] < score:  # a crowded cell
                    stop = int(start[cell + 1])
                    while place < stop:
                        middle = (place + stop) >> 1
                        if line[middle] < score:
                            place = middle + 1
                        else:
                            stop = middle
                if above and line[place] == score:
                    place = int(ends[place])
            found[j] = values[place]


@functools.cache
def compiled_walk() -> Callable[..., None] | None:
    "The loop above, compiled; None without numba."
    try:
        import numba
    except ImportError:
        return None
    try:
        return numba.njit(cache=True, nogil=True)(walk)
    except RuntimeError:  # nowhere to write a cache
        return numba.njit(nogil=True)(walk)


def read_table(scores: Tensor, ordered: Tensor, marks: Tensor, lengths: Tensor, table: Tensor, ties: str) -> Tensor:
    """What the table says at each score's place.

    Args:
        scores: (Q, G) contiguous.
        ordered: (Q, G) the same in ascending order.
        marks: (Q, M) ascending; +inf beyond the row's own `lengths`.
        lengths: (Q,) int64, marks in each row.
        table: (Q, M + 1), one value per gap between marks.
        ties: "max" or "min": which side of a mark an equal score reads.

    Returns:
        (Q, G) in the dtype of the table.
    """
    out, above = table.new_empty(scores.shape), ties == "min"
    fast = compiled_walk() if scores.device.type == "cpu" and scores.numel() >= LONG else None
    if fast is not None:
        after = torch.searchsorted(marks, marks, right=True)  # where each group of equal marks ends
        arrays = (t.numpy() for t in (scores, ordered[:, 0], ordered[:, -1], marks, lengths, after, table))
        fast(*arrays, above, out.numpy())
        return out
    width = max(1, CHUNK // max(1, len(scores)))
    for part, found in zip(scores.split(width, 1), out.split(width, 1)):
        found.copy_(table.gather(1, torch.searchsorted(marks, part.contiguous(), right=above)))
    return out
