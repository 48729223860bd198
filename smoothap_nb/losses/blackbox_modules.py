"""RaMBO's two losses as modules: settings, the score memory, and a gradient that scales with the weight of the loss."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_choice
from .base import RankingLoss
from .blackbox import REDUCTIONS, SCALES, WEIGHTS, recall_sums, unchecked_blackbox_ap
from .blackbox_plumbing import check_settings, scale_with_weight
from .score_memory import ScoreMemory


class BlackboxLoss(RankingLoss):
    "What the two retrieval losses share: settings, the score memory, a gradient that scales with the loss."

    def __init__(self, lam: float, margin: float, *, ties: str, memory: int, **shared):
        super().__init__(**shared)
        check_settings(lam, margin, ties)
        self.lam, self.margin, self.ties, self.memory = lam, margin, ties, ScoreMemory(memory)

    def query_losses(self, scores: Tensor, target: Tensor) -> Tensor:
        def losses(scores):
            longer, relevance = self.memory(scores, target)
            items = (longer.detach() > -torch.inf).sum(1, keepdim=True).clamp(min=1)  # -inf: absent, not in the length
            return share_with_memory(self.list_losses(longer, relevance, items), relevance.any(1), len(scores))

        return scale_with_weight(losses, scores)

    def list_losses(self, scores: Tensor, relevance: Tensor, items: Tensor) -> Tensor:
        "(Q,) loss of each list of `items` (Q, 1) scores, in a subclass."
        raise NotImplementedError(f"{type(self).__name__} does not say what a list costs: define list_losses")


def share_with_memory(losses: Tensor, valid: Tensor, current: int) -> Tensor:
    "(current,) losses whose mean over the valid ones is the mean over all valid rows, remembered ones included."
    if len(losses) == current:
        return losses
    remembered = torch.where(valid, losses, torch.zeros_like(losses))[current:].sum()
    return (losses[:current] * valid[:current].sum() + remembered) / valid.sum().clamp(min=1)


class RecallLoss(BlackboxLoss):
    """RaMBO's recall loss on a batch of embeddings; see `recall_loss` for the formula and `RankingLoss` for the call.

    A factor in front of the loss multiplies its gradient; it does not act on `lam`.

    Args:
        lam: interpolation strength in the authors' convention, > 0.
        margin: alpha, in score units, 0 or above.
        weight: "log_log", "log" or "identity".
        reduction: "query", or "positives" as in the authors' code.
        scale: "gallery", or "rows" as in the authors' code.
        ties: "max", "min" or "average"; see `ranks`.
        memory: past batches stacked as more queries (authors' code: 3); they carry no gradient.
        include_query, normalize, validate: see `RankingLoss`.

    Raises:
        ValueError: lam not above 0, a margin or memory below 0, an unknown weight, reduction, scale or tie rule.
    """

    def __init__(self, lam: float = 4.0, margin: float = 0.02, weight: str = "log_log", *, reduction: str = "query",
                 scale: str = "gallery", ties: str = "max", memory: int = 0, include_query: bool = False,
                 normalize: bool = True, validate: bool = False):
        super().__init__(lam, margin, ties=ties, memory=memory, include_query=include_query, normalize=normalize,
                         validate=validate)
        self.weight, self.scale = check_choice("weight", weight, WEIGHTS), check_choice("scale", scale, SCALES)
        self.reduction = check_choice("reduction", reduction, REDUCTIONS[:2])

    def list_losses(self, scores: Tensor, relevance: Tensor, items: Tensor) -> Tensor:
        sums, lengths = recall_sums(scores, relevance, self.lam, self.margin, self.weight, self.scale, self.ties, items)
        losses = sums / lengths
        if self.reduction == "positives":  # the caller averages over queries: weigh each by its share of the positives
            losses = losses * lengths * (lengths > 0).sum() / lengths.sum().clamp(min=1)
        return losses.to(scores.dtype)


class BlackboxAPLoss(BlackboxLoss):
    """One minus AP with RaMBO's gradient, on a batch of embeddings; see `blackbox_ap` and, for the call, `RankingLoss`.

    A factor in front of the loss multiplies its gradient; it does not act on `lam`.

    Args:
        lam: interpolation strength in the authors' convention, > 0.
        margin: alpha, in score units, 0 or above.
        noise: draw |N(0, 1)| factors for the margin at every call, as the authors' code does.
        ties: "max", "min" or "average"; see `ranks`.
        memory: past batches stacked as more queries; they carry no gradient.
        include_query, normalize, validate: see `RankingLoss`.
    """

    def __init__(self, lam: float = 4.0, margin: float = 0.02, *, noise: bool = False, ties: str = "max",
                 memory: int = 0, include_query: bool = False, normalize: bool = True, validate: bool = False):
        super().__init__(lam, margin, ties=ties, memory=memory, include_query=include_query, normalize=normalize,
                         validate=validate)
        self.noise = noise

    def list_losses(self, scores: Tensor, relevance: Tensor, items: Tensor) -> Tensor:
        noise = torch.randn_like(scores) if self.noise else None
        return 1 - unchecked_blackbox_ap(scores, relevance, self.lam, self.margin, noise, ties=self.ties, items=items)
