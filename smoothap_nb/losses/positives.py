"""The positives of a block of queries, gathered and laid out level by level, for the walk of lesson 07b."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Queries(NamedTuple):
    "A few queries: all their scores and levels, their positives apart (the finest first), and what is to be filled in."

    scores: Tensor  # (q, G)
    levels: Tensor  # (q, G)
    near: Tensor  # (q, W) columns of the positives, W the most that a query has; others fill up the shorter rows
    near_scores: Tensor
    near_levels: Tensor  # 0 where a row is filled up
    near_worth: Tensor
    values: Tensor  # (q,)
    grad: Tensor | None  # (q, G)


def gather_positives(scores: Tensor, levels: Tensor, worth: Tensor, by_level: bool, values: Tensor,
                     grad: Tensor | None) -> Queries:
    "A block of queries with its positives; `worth` is (q, G), or where `by_level` what each level is worth (q, L + 1)."
    near_levels, near = levels.topk(int((levels > 0).sum(1).max()), dim=1)
    near_worth = worth.gather(1, near_levels.long() if by_level else near)
    return Queries(scores, levels, near, scores.gather(1, near), near_levels, near_worth, values, grad)


class Level(NamedTuple):
    "One level of a block: the queries that have positives there, and who counts how against them."

    rows: Tensor  # (n,) which queries, those with the most first
    sizes: list[int]  # how many each has
    first: Tensor  # (n, 1) where they begin among the positives
    nearby: Tensor  # (n, W) scores of all positives
    worth: Tensor  # (n, W)
    counted: Tensor  # (n, W) scores of whoever enters the rank exactly
    exact: Tensor  # (n, W) worth of whoever enters the H-rank exactly
    coarser: Tensor  # (n, G) scores of whoever gets the upper step
    finer_scores: Tensor  # (n, F) scores of whoever gets the lower step
    finer_worth: Tensor


def one_level(queries: Queries, level: int, smooth_hrank: bool) -> Level | None:
    """What one level needs of a block, or None where no query has it.

    Whoever must not count gets the score "minus nearly infinity": every step and its derivative are 0 down there, so
    the long rows need no mask.
    """
    size, rows = (queries.near_levels == level).sum(1).sort(descending=True, stable=True)
    sizes = [n for n in size.tolist() if n]
    if not sizes:
        return None
    rows, bottom = rows[:len(sizes)], lowest(queries.scores)
    nearby, worth, depth = queries.near_scores[rows], queries.near_worth[rows], queries.near_levels[rows]
    first = (depth > level).sum(1, keepdim=True)
    finer = int(first.max()) if smooth_hrank else 0
    coarser = queries.scores[rows].masked_fill_(queries.levels[rows] >= level, bottom).clamp_(min=bottom)
    above = [x[:, :finer].masked_fill(depth[:, :finer] <= level, 0) for x in (nearby, worth)]
    exact = worth.masked_fill(depth > level, 0) if finer else worth
    return Level(rows, sizes, first, nearby, worth, nearby.masked_fill(depth < level, bottom), exact, coarser, *above)


def lowest(scores: Tensor) -> float:
    "A score below all others that can still be subtracted from them."
    return torch.finfo(scores.dtype).min / 4
