"""Precision against recall, ties by rule."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import TIES, check_choice, check_relevance, check_scores
from ..ranking import unchecked_ranks


def precision_recall_curve(
    scores: Tensor, relevance: Tensor, ties: str = "max", validate: bool = False
) -> tuple[Tensor, Tensor]:
    """Recall and precision where each ranking meets its positives; the mean of the precisions is AP (lesson 02).

    Args:
        scores: (Q, G) similarity, higher is closer.
        relevance: (Q, G) bool, True for positives.
        ties: how an item of equal score counts, in both ranks, as in `average_precision`: tied positives share the
            precision of their group.
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Returns:
        recall and precision, (Q, P) each in [0, 1], P the largest number of positives of a query: column n - 1 belongs
        to the n-th best positive. NaN where a query has fewer.

    Raises:
        TypeError, ValueError: scores or relevance that do not fit, an unknown tie rule.
    """
    check_choice("ties", ties, TIES)
    scores = check_scores(scores, validate).detach()
    relevance = check_relevance(relevance, scores)
    positives = scores.masked_fill(~relevance, -torch.inf)
    precision = unchecked_ranks(positives, ties).double() / unchecked_ranks(scores, ties)
    total = relevance.sum(1, keepdim=True)
    best = positives.argsort(dim=1, descending=True)[:, : int(total.max()) if len(total) else 0]
    nth = torch.arange(1, best.shape[1] + 1, device=scores.device)
    recall = (nth / total.double()).to(scores.dtype).masked_fill(nth > total, torch.nan)
    return recall, precision.gather(1, best).to(scores.dtype).masked_fill(nth > total, torch.nan)
