"""The surrogate of H-AP and its gradient, worked out together in blocks of pairs (query, positive); derived in lesson
07b.

Nothing cubic is held: each block adds its numbers to one (Q, G) gradient and is forgotten.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .positives import Level, Queries, gather_positives, lowest, one_level
from .step_settings import StepSettings


def surrogate(scores: Tensor, levels: Tensor, worth: Tensor, by_level: bool, steps: StepSettings, want_grad: bool):
    "Surrogate H-AP of each query and its gradient, worked out together in blocks; nothing cubic is held."
    values, grad = scores.new_zeros(len(scores)), torch.zeros_like(scores) if want_grad else None
    # numbers in one temporary: a core's cache; on a GPU 256 MB, since there small ones cost more to start than to do
    budget = 2**26 if scores.is_cuda else min(2**18, max(2**17, scores.numel() // 2))
    pairs = max(1, budget // scores.shape[1])                                # (query, positive) pairs at a time
    tall = max(1, pairs // 4)                                                # queries at a time
    for top in range(0, len(scores), tall):
        rows = slice(top, top + tall)
        of_block(gather_positives(scores[rows], levels[rows], worth[rows], by_level, values[rows],
                                          None if grad is None else grad[rows]), steps, pairs)
    return values, grad


def of_block(queries: Queries, steps: StepSettings, pairs: int) -> None:
    "A few queries: fill in their `values` and their `grad`."
    near_grad = None if queries.grad is None else torch.zeros_like(queries.near_scores)
    total = queries.near_worth.sum(1)
    for level in range(1, int(queries.near_levels.max()) + 1 if queries.near.shape[1] else 1):
        at = one_level(queries, level, steps.smooth_hrank)
        if at is not None:
            walk(queries, at, 1 / total[at.rows, None], near_grad, steps, pairs)
    if queries.grad is not None and near_grad is not None:
        queries.grad.scatter_add_(1, queries.near, near_grad)
    queries.values.masked_fill_(total == 0, torch.nan)


def walk(queries: Queries, at: Level, share: Tensor, near_grad: Tensor | None, steps: StepSettings,
          pairs: int) -> None:
    "The positives of one level, some pairs (query, positive) at a time."
    count, finer = torch.tensor(at.sizes, device=at.rows.device)[:, None], at.finer_scores.shape[1]
    pushed, pulled = (x.new_empty(0) if near_grad is None else torch.zeros_like(x) for x in (at.coarser, at.nearby))
    start = 0
    while start < at.sizes[0]:
        live = sum(n > start for n in at.sizes)                              # the queries that have so many
        place = torch.arange(start, min(at.sizes[0], start + max(1, pairs // live)), device=at.rows.device)
        start += len(place)
        column = (at.first[:live] + place).clamp_(max=at.nearby.shape[1] - 1)                # (q, p)
        own = at.nearby[:live].gather(1, column).clamp_(min=lowest(at.nearby))[:, :, None]   # (q, p, competitors)
        own_worth = at.worth[:live].gather(1, column)[:, :, None]
        rank, h_rank, slopes, pulls = pair_sums(at, live, own, own_worth, steps)
        weight = (share[:live] / rank).masked_fill_((place >= count[:live]) | (own_worth[:, :, 0] == 0), 0)
        queries.values.index_add_(0, at.rows[:live], (h_rank * weight).sum(1))
        if near_grad is None:
            continue
        factor = -weight * h_rank / rank / steps.tau
        total = slopes.sum(2).mul_(factor)
        pushed[:live] += slopes.mul_(factor[:, :, None]).sum(1)
        if pulls is not None:
            total.addcmul_(pulls.sum(2), weight)
            pulled[:live, :finer] += pulls.mul_(weight[:, :, None]).sum(1)
        pulled[:live].scatter_add_(1, column, total.neg_())
    if near_grad is not None and queries.grad is not None:
        queries.grad.index_add_(0, at.rows, pushed)
        near_grad.index_add_(0, at.rows, pulled)


def pair_sums(at: Level, live: int, own: Tensor, own_worth: Tensor, steps: StepSettings):
    """Rank and H-rank of some positives (q, p), and the slopes of both steps at every competitor (the upper one's
    times tau).
    """
    rank = (at.counted[:live, None] >= own).sum(2).to(own.dtype)
    h_rank = torch.minimum(at.exact[:live, None], own_worth).mul_(at.nearby[:live, None] >= own).sum(2)
    slopes, pulls = add_upper(rank, at.coarser[:live, None] - own, steps), None
    if at.finer_scores.shape[1]:
        common = torch.minimum(at.finer_worth[:live, None], own_worth)
        pulls = add_lower(h_rank, at.finer_scores[:live, None] - own, common, steps)
    # a place that no positive fills counts nothing
    return rank.clamp_(min=1), h_rank, slopes, pulls


def add_lower(h_rank: Tensor, gaps: Tensor, common: Tensor, steps: StepSettings) -> Tensor:
    "Add every lower step, times the relevance in common, to `h_rank`; return their derivatives."
    ramp, above = gaps * steps.slope + steps.intercept, gaps > 0
    h_rank.add_((common * torch.where(above, ramp.clamp(max=1.0), gaps * steps.leak)).sum(2))
    return common * torch.where(above, (ramp < 1) * steps.slope, steps.leak)


def add_upper(rank: Tensor, gaps: Tensor, steps: StepSettings) -> Tensor:
    "Add every upper step to `rank`; return their derivatives times tau. `gaps` (q, p, G) is used up."
    other = (torch.ge if steps.ties == "max" else torch.gt)(gaps, 0, out=torch.empty_like(gaps))
    rank.add_(other.sum(2), alpha=steps.start)
    inside = torch.clamp(gaps, max=steps.delta, out=other)
    beyond = gaps.sub_(inside)                                               # 0 up to delta
    rank.add_(beyond.sum(2), alpha=steps.rho)
    far = torch.gt(beyond, 0, out=beyond)
    if steps.jump:
        rank.add_(far.sum(2), alpha=steps.jump)
    bell = inside.div_(steps.tau).sigmoid_()
    rank.add_(bell.sum(2))
    torch.addcmul(bell, bell, bell, value=-1, out=bell)                      # g - g^2
    flat = steps.edge - steps.start
    return bell.add_(far, alpha=steps.rho * steps.tau - flat * (1 - flat))
