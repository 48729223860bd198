"""Losses for other metrics than AP, called with embeddings and labels: recall at k, NDCG, and the penalty of PNP."""

from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor

from ..checks import check_choice, check_positive
from ..metrics.graded import common_levels
from .base import RankingLoss
from .beyond_ap import (VARIANTS, check_recall, ndcg_of_ranks, smooth_ranks, sup_ranks, unchecked_pnp,
                        unchecked_recall_at_k, unchecked_sup_recall)
from .hierarchical import StepSettings
from .long_lists import find_positives


class RecallAtKLoss(RankingLoss):
    """1 - recall@k by two sigmoids, averaged over the queries of a batch (Patel, Tolias, Matas 2022, RS@k).

    Called as ``loss(embeddings, labels)``; see `RankingLoss` for references. The published numbers need batches of
    about 4,000 images: `cached_backward` makes room for them (lesson 18).

    Args:
        ks, tau, temperature: see `recall_at_k_surrogate`.
        include_query: keep each query in its own ranking as a competitor, though not as a positive: what the authors'
            code does. The first neighbour then stands near rank 2.
        normalize: scale embeddings to length 1 before comparing them.
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Raises:
        ValueError: a setting out of range.
    """

    def __init__(self, ks: Sequence[int] = (1, 2, 4, 8, 16), tau: float = 0.01,
                 temperature: float | Sequence[float] = 1.0, *, include_query: bool = False, normalize: bool = True,
                 validate: bool = False):
        super().__init__(include_query=include_query, normalize=normalize, validate=validate)
        check_recall(ks, temperature)
        self.ks, self.tau, self.temperature = tuple(ks), check_positive("tau", tau), temperature

    def _batch_rankings(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        scores, target = super()._batch_rankings(embeddings, labels)
        return scores, target.fill_diagonal_(False)

    def _gallery_rankings(self, embeddings, labels, ref_emb, ref_labels, query_index) -> tuple[Tensor, Tensor]:
        scores, target = super()._gallery_rankings(embeddings, labels, ref_emb, ref_labels, query_index)
        if query_index is not None and self.include_query:
            column = query_index.to(target.device).long()[:, None]
            own = column.clamp(min=0)
            target = target.scatter(1, own, target.gather(1, own) & (column < 0))
        return scores, target

    def query_losses(self, scores: Tensor, target: Tensor) -> Tensor:
        return 1 - unchecked_recall_at_k(scores, target, self.ks, self.tau, self.temperature)


class SupRecallLoss(RankingLoss):
    """1 - recall@k with ranks that never flatter, averaged over the queries of a batch (Ramzi et al. 2025, SupRank).

    Called as ``loss(embeddings, labels)``; see `RankingLoss` for references.

    Args:
        ks, tau, temperature, rho, delta, offset, start: see `sup_recall`. The authors ran ``offset=1.44``.
        include_query: keep each query in its own ranking, as its own first positive (the authors' code does).
        normalize: scale embeddings to length 1 before comparing them.
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Raises:
        ValueError: a setting out of range.
    """

    def __init__(self, ks: Sequence[int] = (1, 2, 4, 8, 16), tau: float = 0.01,
                 temperature: float | Sequence[float] = 1.0, rho: float | None = 100.0, delta: float | None = 0.05,
                 offset: float | None = None, start: float = 0.5, *, include_query: bool = False,
                 normalize: bool = True, validate: bool = False):
        super().__init__(include_query=include_query, normalize=normalize, validate=validate)
        check_recall(ks, temperature)
        StepSettings(tau=tau, rho=rho, delta=delta, offset=offset, start=start)  # refuses what is out of range
        self.ks, self.temperature = tuple(ks), temperature
        self.steps = {"tau": tau, "rho": rho, "delta": delta, "offset": offset, "start": start}

    def query_losses(self, scores: Tensor, target: Tensor) -> Tensor:
        return 1 - unchecked_sup_recall(scores, target, self.ks, self.temperature, self.steps)


class SmoothNDCGLoss(RankingLoss):
    """1 - NDCG with ranks counted by sigmoids, averaged over the queries of a batch.

    Called as ``loss(embeddings, labels)`` with labels (N, L), coarse to fine; see `RankingLoss` for references.

    Args:
        tau: sigmoid temperature in score units, > 0.
        include_query: keep each query in its own ranking, as an item of the highest level (public code does).
        normalize: scale embeddings to length 1 before comparing them.
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Raises:
        ValueError: tau that is not positive.
    """

    hierarchical = True  # labels are (N, L)

    def __init__(self, tau: float = 0.01, *, include_query: bool = False, normalize: bool = True,
                 validate: bool = False):
        super().__init__(include_query=include_query, normalize=normalize, validate=validate)
        self.tau = check_positive("tau", tau)

    def target(self, labels: Tensor, ref_labels: Tensor) -> Tensor:
        return common_levels(labels, ref_labels, torch.int64)

    def query_losses(self, scores: Tensor, target: Tensor) -> Tensor:
        positives = find_positives(target > 0)
        return 1 - ndcg_of_ranks(smooth_ranks(scores, positives, self.tau), positives, target)


class SupNDCGLoss(RankingLoss):
    """1 - NDCG that never flatters, averaged over the queries of a batch: an upper bound of 1 - NDCG (SupRank).

    Called as ``loss(embeddings, labels)`` with labels (N, L), coarse to fine; see `RankingLoss` for references.

    Args:
        tau, rho, delta, offset, start: the step for items of a lower level; see `sup_ap`. The authors ran
            ``offset=1.44``.
        include_query: keep each query in its own ranking, as an item of the highest level (the authors' code does).
        normalize: scale embeddings to length 1 before comparing them.
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Raises:
        ValueError: a setting out of range.
    """

    hierarchical = True  # labels are (N, L)

    def __init__(self, tau: float = 0.01, rho: float | None = 100.0, delta: float | None = 0.05,
                 offset: float | None = None, start: float = 0.5, *, include_query: bool = False,
                 normalize: bool = True, validate: bool = False):
        super().__init__(include_query=include_query, normalize=normalize, validate=validate)
        StepSettings(tau=tau, rho=rho, delta=delta, offset=offset, start=start)  # refuses what is out of range
        self.steps = {"tau": tau, "rho": rho, "delta": delta, "offset": offset, "start": start}

    def target(self, labels: Tensor, ref_labels: Tensor) -> Tensor:
        return common_levels(labels, ref_labels, torch.int64)

    def query_losses(self, scores: Tensor, target: Tensor) -> Tensor:
        positives = find_positives(target > 0)
        return 1 - ndcg_of_ranks(sup_ranks(scores, positives, target, **self.steps), positives, target)


class PNPLoss(RankingLoss):
    """Penalty for the negatives ahead of each positive, averaged over the queries of a batch (Li et al. 2022, PNP).

    Called as ``loss(embeddings, labels)``; see `RankingLoss` for references.

    Args:
        tau, variant, b, alpha: see `pnp`.
        include_query: keep each query in its own ranking, as its own first positive (the authors' code does).
        normalize: scale embeddings to length 1 before comparing them.
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Raises:
        ValueError: a setting out of range, an unknown variant.
    """

    def __init__(self, tau: float = 0.01, variant: str = "O", b: float = 2.0, alpha: float = 1.0, *,
                 include_query: bool = False, normalize: bool = True, validate: bool = False):
        super().__init__(include_query=include_query, normalize=normalize, validate=validate)
        self.tau, self.variant = check_positive("tau", tau), check_choice("variant", variant, VARIANTS)
        self.b, self.alpha = check_positive("b", b), check_positive("alpha", alpha)

    def query_losses(self, scores: Tensor, target: Tensor) -> Tensor:
        return unchecked_pnp(scores, target, self.tau, self.variant, self.b, self.alpha)
