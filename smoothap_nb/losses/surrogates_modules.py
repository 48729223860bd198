"""SupAP, calibration, ROADMAP and SoftBin as losses of embeddings and labels (derived in lesson 08)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_number
from .base import RankingLoss
from .hierarchical import StepSettings
from .signature import LossModule
from .surrogates import check_centres, unchecked_calibration_loss, unchecked_soft_bin_ap, unchecked_sup_ap


class SupAPLoss(RankingLoss):
    """1 - SupAP, averaged over the queries of a batch: an upper bound of 1 - AP (ROADMAP).

    Called as ``loss(embeddings, labels)``; see `RankingLoss` for references and for the query's own place.

    Args:
        tau, rho, delta, offset, start, ties: the step for negatives; see `sup_ap`. The authors ran ``offset=1.44``.
        include_query: keep each query in its own ranking, as its own first positive (as the authors' code).
        normalize: scale embeddings to length 1 before comparing them (the authors' code leaves that to the model).
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Raises:
        ValueError: a setting out of range.
    """

    def __init__(self, tau: float = 0.01, rho: float | None = 100.0, delta: float | None = 0.05,
                 offset: float | None = None, start: float = 0.5, ties: str = "average", *, include_query: bool = False,
                 normalize: bool = True, validate: bool = False):
        super().__init__(include_query=include_query, normalize=normalize, validate=validate)
        self.steps = StepSettings(tau=tau, rho=rho, delta=delta, offset=offset, start=start, ties=ties)

    def query_losses(self, scores: Tensor, target: Tensor) -> Tensor:
        return 1 - unchecked_sup_ap(scores, target, self.steps)


class CalibrationLoss(RankingLoss):
    """`calibration_loss` of a batch: pairs of one class above `pos_margin`, others below `neg_margin` (ROADMAP).

    Called as ``loss(embeddings, labels)``. An image is never paired with itself. A batch without positives has the
    loss of its negatives.

    Args:
        pos_margin: score that a positive should reach.
        neg_margin: score that a negative should stay below.
        normalize: scale embeddings to length 1 before comparing them.
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Raises:
        ValueError: a margin that is not finite.
    """

    def __init__(self, pos_margin: float = 0.9, neg_margin: float = 0.6, *, normalize: bool = True,
                 validate: bool = False):
        super().__init__(normalize=normalize, validate=validate)
        self.pos_margin = check_number("pos_margin", pos_margin)
        self.neg_margin = check_number("neg_margin", neg_margin)

    def query_losses(self, scores: Tensor, target: Tensor) -> Tensor:
        loss = unchecked_calibration_loss(scores, target, self.pos_margin, self.neg_margin)
        return loss.expand(len(scores))  # of the batch: the same for each query

    def counted_queries(self, target: Tensor) -> Tensor:
        return torch.ones_like(target[:, 0])  # a loss of pairs: without a positive the negatives still count


class ROADMAPLoss(LossModule):
    """SupAP and calibration together (ROADMAP): sup_ap_weight * SupAPLoss + calibration_weight * CalibrationLoss.

    Called as ``loss(embeddings, labels)``, like its two parts. The published configurations weigh them 1 and 1 and keep
    the query in SupAP's ranking: ``ROADMAPLoss(offset=1.44, include_query=True)``.

    Args:
        tau, rho, delta, offset, start, ties: SupAP's step; see `sup_ap`.
        pos_margin, neg_margin: calibration's margins; see `calibration_loss`.
        sup_ap_weight, calibration_weight: weights of the parts, >= 0.
        include_query: keep each query in SupAP's ranking (calibration has no pair of an image with itself).
        normalize: scale embeddings to length 1 before comparing them.
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Raises:
        ValueError: a setting out of range.
    """

    hierarchical = False  # labels are (N,)
    takes_references = True

    def __init__(self, tau: float = 0.01, rho: float | None = 100.0, delta: float | None = 0.05,
                 offset: float | None = None, start: float = 0.5, ties: str = "average", *, pos_margin: float = 0.9,
                 neg_margin: float = 0.6, sup_ap_weight: float = 1.0, calibration_weight: float = 1.0,
                 include_query: bool = False, normalize: bool = True, validate: bool = False):
        super().__init__()
        for name, weight in (("sup_ap_weight", sup_ap_weight), ("calibration_weight", calibration_weight)):
            if check_number(name, weight) < 0:
                raise ValueError(f"{name} must be at least 0, got {weight!r}")
        self.sup_ap_weight, self.calibration_weight = sup_ap_weight, calibration_weight
        self.sup_ap = SupAPLoss(tau, rho, delta, offset, start, ties, include_query=include_query, normalize=normalize,
                                validate=validate)
        self.calibration = CalibrationLoss(pos_margin, neg_margin, normalize=normalize, validate=validate)

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple=None, ref_emb: Tensor | None = None,
                ref_labels: Tensor | None = None, *, query_index: Tensor | None = None) -> Tensor:
        "Weighted sum of the two losses; see `RankingLoss` for the arguments."
        arguments = (embeddings, labels, indices_tuple, ref_emb, ref_labels)
        return (self.sup_ap_weight * self.sup_ap(*arguments, query_index=query_index)
                + self.calibration_weight * self.calibration(*arguments, query_index=query_index))


class SoftBinAPLoss(RankingLoss):
    """1 - SoftBin AP, averaged over the queries of a batch (Revaud et al. 2019).

    Called as ``loss(embeddings, labels)``; see `RankingLoss` for references and for the query's own place.

    Args:
        centres: number of bins over the score range [-1, 1], >= 2.
        include_query: keep each query in its own ranking, as its own first positive (as most public code).
        normalize: scale embeddings to length 1 before comparing them.
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Raises:
        ValueError: fewer than two centres.
    """

    def __init__(self, centres: int = 20, *, include_query: bool = False, normalize: bool = True,
                 validate: bool = False):
        super().__init__(include_query=include_query, normalize=normalize, validate=validate)
        self.centres = check_centres(centres)

    def query_losses(self, scores: Tensor, target: Tensor) -> Tensor:
        return 1 - unchecked_soft_bin_ap(scores, target, self.centres)
