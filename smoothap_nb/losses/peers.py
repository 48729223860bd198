"""Three later answers to SoDeep's question in their plain forms, to look at and to measure (lesson 09): soft sort, a
sorting network, optimal
transport. Plain file: the lesson says in words what each does; torchsort, diffsort and ott hold tuned versions for
use."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_count, check_positive, check_scores


def soft_sort_ranks(scores: Tensor, tau: float = 0.05) -> Tensor:
    """Ranks / G as expected places: an item stands, by degrees, at all places whose sorted score is near its own.

    The distances are SoftSort's (Prillo and Eisenschlos 2020), the softmax runs over the places of each item.

    Args:
        scores: (Q, G).
        tau: how near, in score units, > 0.

    Returns:
        (Q, G) in [1 / G, 1].
    """
    check_positive("tau", tau)
    ordered = check_scores(scores).sort(dim=1, descending=True).values
    shares = torch.softmax(-(ordered[:, None, :] - scores[:, :, None]).abs() / tau, 2)  # (Q, item, place)
    places = torch.arange(1, scores.shape[1] + 1, device=scores.device, dtype=scores.dtype)
    return shares @ places / scores.shape[1]


def transport_ranks(scores: Tensor, epsilon: float = 0.01, rounds: int = 50) -> Tensor:
    """Ranks / G as places that a blurred transport plan gives to each score (Sinkhorn ranks, Cuturi, Teboul and Vert
    2019).

    Scores are squashed into (0, 1) first; the plan carries them to the places 1, 1 - 1 / (G - 1) ... 0, every item
    and every place in full.

    Args:
        scores: (Q, G), G at least 2.
        epsilon: blur, > 0.
        rounds: of Sinkhorn's alternation; the plan is exact in the limit.

    Returns:
        (Q, G) in [1 / G, 1].
    """
    check_positive("epsilon", epsilon)
    check_count("rounds", rounds)
    number = check_scores(scores).shape[1]
    spread = scores.std(1, keepdim=True, correction=0).clamp(min=1e-12)
    squashed = torch.sigmoid((scores - scores.mean(1, keepdim=True)) / spread)
    goals = torch.linspace(1, 0, number, device=scores.device, dtype=scores.dtype)
    log_plan = -(squashed[:, :, None] - goals).square() / epsilon  # (Q, item, place)
    for _ in range(rounds):
        log_plan = log_plan - log_plan.logsumexp(1, keepdim=True)
        log_plan = log_plan - log_plan.logsumexp(2, keepdim=True)
    places = torch.arange(1, number + 1, device=scores.device, dtype=scores.dtype)
    return log_plan.exp() @ places / number


def network_ranks(scores: Tensor, steepness: float = 20.0) -> Tensor:
    """Ranks / G from an odd-even sorting network whose swaps happen by degrees (Petersen, Borgelt, Kuehne and Deussen
    2021).

    Args:
        scores: (Q, G).
        steepness: of a swap: two neighbours change places by sigmoid(steepness * difference), > 0.

    Returns:
        (Q, G) in [1 / G, 1].
    """
    check_positive("steepness", steepness)
    values, number = check_scores(scores), scores.shape[1]
    places = torch.eye(number, device=scores.device, dtype=scores.dtype).expand(
        len(scores), -1, -1
    )  # (Q, place, item): how much of it
    for layer in range(number):
        left = torch.arange(layer % 2, number - 1, 2, device=scores.device)
        swap = torch.sigmoid(steepness * (values[:, left + 1] - values[:, left]))
        values, places = _swapped(values, left, swap), _swapped(places, left, swap[..., None])
    count = torch.arange(1, number + 1, device=scores.device, dtype=scores.dtype)
    return count @ places / number


def _swapped(rows: Tensor, left: Tensor, swap: Tensor) -> Tensor:
    "Rows (Q, G, ...) in which places `left` and `left + 1` have changed by the share `swap`."
    first, second = rows[:, left], rows[:, left + 1]
    moved = swap * (second - first)
    return rows.index_add(1, left, moved).index_add(1, left + 1, -moved)
