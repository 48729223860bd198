"""From ranks to numbers: every metric of the package, written once.

The functions on scores (lessons 02 and 07), `evaluate` and lists of neighbours differ in how they find ranks, and call
the same lines for what follows. All take tables of Q rows; a column is an item of the gallery, or one of the query's
positives. Columns that are not `member` count nothing, so rows of different length can be padded.

Shapes: `member` (Q, P) bool; `rank`, `place`, `among` (Q, P), 1 is best; `total` (Q,) the number of positives, also of
those that the table does not show. The *place* of a positive counts better positives, negatives ahead and itself: two
positives of equal score take successive places. Results are float64, NaN for a query without positives.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def row_sums(values: Tensor) -> Tensor:
    "(Q,) sums from left to right: on a CPU the same bits however far a row is padded."
    return values.double().cumsum(1)[:, -1] if values.shape[1] else values.double().sum(1)


def rank_by_rule(ahead: Tensor, through: Tensor, ties: str) -> Tensor:
    "Ranks from how many stand strictly ahead and how many through the end of the tie group, the item itself included."
    return (through if ties == "max" else ahead + 1 if ties == "min" else (ahead + 1 + through) / 2).double()


def rank_among(member: Tensor, ahead: Tensor, through: Tensor, ties: str) -> Tensor:
    """Ranks of the members among the members alone, in a table whose columns are sorted, best first.

    Args:
        member: (Q, P) bool.
        ahead: (Q, P) columns strictly ahead of each one.
        through: (Q, P) columns through the end of its tie group.
        ties: "max", "min" or "average".

    Returns:
        (Q, P) float64; columns that are no members hold no rank.
    """
    seen = F.pad(member.cumsum(1), (1, 0))
    return rank_by_rule(seen.gather(1, ahead), seen.gather(1, through), ties)


def mean_precision(member: Tensor, among: Tensor, rank: Tensor, total: Tensor) -> Tensor:
    "AP: the mean over the positives of rank among them over rank among all (Smooth-AP, Eq. 2; HAPPIER, Eq. 13)."
    return row_sums(torch.where(member, among.double() / rank, 0.0)) / total


def hits_within(member: Tensor, place: Tensor, k: int | Tensor) -> Tensor:
    "Positives at places up to k, one number or (Q, 1): over k it is P@K, at k = R over R R-precision; any is R@K."
    return (member & (place <= k)).sum(1).double()


def mean_precision_within(member: Tensor, place: Tensor, k: int | Tensor, total: Tensor) -> Tensor:
    "AP@K: precision at the positives within k places, over min(K, R). At K = R it is AP@R, whose mean is mAP@R."
    precision = torch.where(member & (place <= k), member.cumsum(1) / place, 0.0)
    most = total.clamp(max=k) if isinstance(k, int) else torch.minimum(total, k[:, 0])
    return row_sums(precision) / most


def reciprocal_rank(member: Tensor, place: Tensor, total: Tensor) -> Tensor:
    "1 / place of the best positive, 0 where the table shows none; its mean is MRR."
    best = torch.where(member, place.double(), torch.inf).amin(1)
    return torch.where(total > 0, 1 / best, torch.nan)


def graded_precision(layer: Tensor, rise: Tensor, rank: Tensor, among: Callable[[Tensor], Tensor]) -> Tensor:
    """Numerator of H-AP (HAPPIER, Eq. 2 and 3), layer by layer: an item of relevance r stands in all layers up to r.

    Args:
        layer: (Q, P) place of each item's relevance among the distinct ones of its query, 0 for negatives.
        rise: (Q, V + 1) how far each distinct relevance lies above the last; column 0 belongs to negatives.
        rank: (Q, P) ranks among all.
        among: gives the ranks among the members of a (Q, P) bool table.

    Returns:
        (Q,) float64, to be divided by the sum of the query's relevances.
    """
    sums = torch.zeros(len(rank), dtype=torch.float64, device=rank.device)
    for height in range(1, rise.shape[1]):
        member = layer >= height
        sums += rise[:, height] * row_sums(torch.where(member, among(member) / rank, 0.0))
    return sums


def gain_ratio(gain: Tensor, rank: Tensor, k: int | None = None) -> Tensor:
    """NDCG (HAPPIER, B.3), or NDCG@K: discounted gain at the ranks over that of the best order.

    Args:
        gain: (Q, P) >= 0, 0 for negatives.
        rank: (Q, P) ranks among all.
        k: ranks beyond it gain nothing, here and in the best order; None: all count.

    Returns:
        (Q,) float64; NaN where nothing can be gained.
    """
    best = gain.double().sort(dim=1, descending=True).values[:, :k]
    ideal = best / torch.log2(torch.arange(2, best.shape[1] + 2, device=gain.device).double())
    gained = gain.double() / torch.log2(1 + rank.double())
    return row_sums(gained if k is None else torch.where(rank <= k, gained, 0.0)) / row_sums(ideal)


def set_intersection(shown: Tensor, sizes: Tensor) -> Tensor:
    """ASI: the share of the top n that an ideal top n also holds, over n up to the number of positives (HAPPIER, B.3).

    Args:
        shown: (Q, P) level of the item at each place, 0 for a negative; P is at least the number of positives.
        sizes: (Q, L + 1) how many items of each level the gallery holds; column 0 is not read.

    Returns:
        (Q,) float64; NaN for a query without positives.
    """
    n = torch.arange(1, shown.shape[1] + 1, device=shown.device)
    shared, left = torch.zeros(shown.shape, dtype=torch.int64, device=shown.device), n.expand(shown.shape)
    for level in range(sizes.shape[1] - 1, 0, -1):  # the ideal list: finest first
        ideal = torch.minimum(left, sizes[:, level:level + 1])
        shared += torch.minimum(ideal, (shown == level).cumsum(1))
        left = left - ideal
    total = sizes[:, 1:].sum(1)
    return row_sums(torch.where(n <= total[:, None], shared.double() / n, 0.0)) / total


def worth_by_alpha(sizes: Tensor, alpha: float, extra_fine: int = 0) -> Tensor:
    """What an item of each level is worth: (l / L)^alpha, shared out among the items of level l (HAPPIER, Eq. 4).

    Args:
        sizes: (Q, L + 1) how many items of each level the query finds; column 0 is not read.
        alpha: exponent, >= 0.
        extra_fine: added to the size of the finest level; 1 counts the query itself, as the authors do.

    Returns:
        (Q, L + 1) float64, 0 for negatives.
    """
    depth = sizes.shape[1] - 1
    shared = sizes.clone()
    shared[:, depth] += extra_fine
    height = torch.arange(depth + 1, device=sizes.device).double() / depth
    worth = height**alpha / shared.clamp(min=1)
    worth[:, 0] = 0
    return worth


def worth_by_weights(sizes: Tensor, weights, extra_fine: int = 0) -> Tensor:
    """What an item of each level is worth where H-AP is a weighted mean of the levels' APs (HAPPIER, Property 1).

    Args:
        sizes, extra_fine: as in `worth_by_alpha`.
        weights: L numbers >= 0, the coarsest level first.

    Returns:
        (Q, L + 1) float64, 0 for negatives.
    """
    members = sizes[:, 1:].flip(1).cumsum(1).flip(1) + extra_fine  # items at each level or finer
    steps = torch.as_tensor(weights, dtype=torch.float64, device=sizes.device) / members.clamp(min=1)
    return F.pad(steps.cumsum(1), (1, 0))


def layers(relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Relevances as heights: which layer each reaches, and how high each layer is.

    Args:
        relevance: (Q, P) >= 0.

    Returns:
        (Q, P) place among the distinct relevances of the row, 0 where it is 0; and (Q, V + 1), for each distinct value,
        how far it rises above the last one.
    """
    values = F.pad(relevance.sort(dim=1).values, (1, 0))
    rises = values.diff(dim=1)
    place = F.pad((rises > 0).cumsum(1), (1, 0))
    rise = relevance.new_zeros(len(relevance), int(place[:, -1].max()) + 1 if len(relevance) else 1)
    rise.scatter_add_(1, place[:, 1:], rises)
    return place.gather(1, torch.searchsorted(values, relevance.contiguous())), rise
