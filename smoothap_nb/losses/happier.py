"""The losses of HAPPIER for a training loop: the surrogate of H-AP over a batch, the clustering loss, and their sum.

What they stand on is derived in lessons 07 (levels, relevance) and 07b (the surrogate).
"""

from __future__ import annotations

from typing import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import check_count, check_number, check_positive, check_weights
from ..metrics.graded import common_levels, number_of_levels, worth_from_alpha, worth_from_weights
from .base import ProxyLoss, RankingLoss
from .hierarchical import StepSettings, unchecked_smooth_h_ap
from .signature import LossModule

__all__ = ["HAPLoss", "ClusterLoss", "HAPPIERLoss"]


class HAPLoss(RankingLoss):
    """1 - surrogate H-AP, averaged over the queries of a batch (HAPPIER, A.3): an upper bound of 1 - H-AP by default.

    Called as ``loss(embeddings, labels)`` with labels (N, L), coarse to fine; see `RankingLoss` for references and
    `query_index`.
    Relevance is counted in the batch. For what the authors ran, pass ``offset=1.44, smooth_hrank=False,
    include_query=True``.

    Args:
        alpha: how steeply relevance grows with the level, see `relevance_from_levels`.
        weights: L weights, the coarsest level first: `relevance_from_weights` instead of `alpha`. Levels of weight 0
            below all others are negatives.
        tau, rho, delta, offset, start, leak, slope, intercept, smooth_hrank, ties: the two steps, see `smooth_h_ap`.
        include_query: keep each query in its own ranking, at level L (most public code does; it lifts H-AP).
        normalize: scale embeddings to length 1 before comparing them.
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Raises:
        ValueError: a constant out of its range; labels with another number of levels than `weights`.
    """

    hierarchical = True

    def __init__(self, alpha: float = 1.0, weights: Sequence[float] | None = None, tau: float = 0.01,
                 rho: float | None = 100.0, delta: float | None = 0.05, offset: float | None = None, start: float = 0.5,
                 leak: float = 10.0, slope: float = 25.0, intercept: float = 0.5, smooth_hrank: bool = True,
                 ties: str = "average", *, include_query: bool = False, normalize: bool = True, validate: bool = False):
        super().__init__(include_query=include_query, normalize=normalize, validate=validate)
        self.alpha, self.weights = check_number("alpha", alpha, 0), None if weights is None else check_weights(weights)
        self.steps = StepSettings(tau, rho, delta, offset, start, leak, slope, intercept, smooth_hrank, ties)

    def target(self, labels: Tensor, ref_labels: Tensor) -> Tensor:
        "(Q, G) levels, a byte each."
        if self.weights is not None and len(self.weights) != labels.shape[1]:
            raise ValueError(f"labels have {labels.shape[1]} levels, but there are {len(self.weights)} weights: one "
                             f"per level is needed")
        levels = common_levels(labels, ref_labels, torch.int8 if labels.shape[1] < 128 else torch.int16)
        # coarse levels of weight 0 are negatives
        worthless = next((i for i, w in enumerate(self.weights or ()) if w > 0), 0)
        return levels.masked_fill_(levels <= worthless, 0) if worthless else levels

    def worth_of_levels(self, levels: Tensor, dtype: torch.dtype) -> Tensor:
        """(Q, L + 1): what an item of level 0, 1, ... L is worth to each query, 0 for level 0. Override it for a
        relevance of your own.
        """
        if self.weights is not None:
            return worth_from_weights(levels, self.weights, 0, dtype)
        return worth_from_alpha(levels, self.alpha, number_of_levels(levels, None), 0, dtype)

    def query_losses(self, scores: Tensor, target: Tensor) -> Tensor:
        return 1 - unchecked_smooth_h_ap(scores, target, self.worth_of_levels(target, scores.dtype), self.steps, True)


class ClusterLoss(ProxyLoss):
    """Cross-entropy of each embedding against one learnt proxy per fine class (HAPPIER, Eq. 6).

    Called as ``loss(embeddings, labels)``; labels (N,), or (N, L) of which the last, finest column counts.

    Args:
        num_classes: number of fine classes in the training set, numbered from 0.
        dim: dimensions of the embeddings.
        temperature: sigma of the paper, which gives no value; 0.05 in the authors' code.
        normalize: scale embeddings to length 1 (proxies always are).
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Attributes:
        proxies: (num_classes, dim) parameter.

    Raises:
        ValueError: numbers out of range; on a call, labels outside 0 ... num_classes - 1.
    """

    def __init__(self, num_classes: int, dim: int, temperature: float = 0.05, *, normalize: bool = True,
                 validate: bool = False):
        super().__init__(check_count("num_classes", num_classes), dim, normalize=normalize, validate=validate)
        self.num_classes, self.temperature = num_classes, check_positive("temperature", temperature)

    def proxy_loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        "Mean cross-entropy of the cosines over `temperature`, against the finest label."
        fine = labels[:, -1].long()
        least, most = (int(x) for x in fine.aminmax())
        if least < 0 or most >= self.num_classes:
            raise ValueError(f"fine labels run from {least} to {most}, but there are proxies for 0 ... "
                             f"{self.num_classes - 1}: number the training classes from 0, and pass their number as "
                             "num_classes")
        return F.cross_entropy(scores / self.temperature, fine)


class HAPPIERLoss(LossModule):
    """(1 - cluster_weight) x H-AP loss + cluster_weight x clustering loss (HAPPIER's total loss).

    Called as ``loss(embeddings, labels)`` with labels (N, L), coarse to fine. The finest column numbers the training
    classes from 0.

    Args:
        num_classes: number of fine classes in the training set.
        dim: dimensions of the embeddings.
        cluster_weight: the paper's lambda, from 0 to 1.
        temperature: of `ClusterLoss`.
        alpha, weights, tau, rho, delta, offset, start, leak, slope, intercept, smooth_hrank, ties: of `HAPLoss`.
            HAPPIER_F is a larger alpha.
        include_query, normalize, validate: of `HAPLoss`; `normalize` and `validate` of both.

    Attributes:
        hap: the `HAPLoss`. cluster: the `ClusterLoss`.

    Raises:
        ValueError: a number out of its range.
    """

    hierarchical = True
    takes_references = True

    def __init__(self, num_classes: int, dim: int, cluster_weight: float = 0.1, *, temperature: float = 0.05,
                 alpha: float = 1.0, weights: Sequence[float] | None = None, tau: float = 0.01,
                 rho: float | None = 100.0, delta: float | None = 0.05, offset: float | None = None, start: float = 0.5,
                 leak: float = 10.0, slope: float = 25.0, intercept: float = 0.5, smooth_hrank: bool = True,
                 ties: str = "average", include_query: bool = False, normalize: bool = True, validate: bool = False):
        super().__init__()
        self.cluster_weight = check_number("cluster_weight", cluster_weight, 0)
        if cluster_weight > 1:
            raise ValueError(f"cluster_weight must lie in 0 ... 1, got {cluster_weight!r}")
        self.hap = HAPLoss(alpha, weights, tau, rho, delta, offset, start, leak, slope, intercept, smooth_hrank, ties,
                           include_query=include_query, normalize=normalize, validate=validate)
        self.cluster = ClusterLoss(num_classes, dim, temperature, normalize=normalize, validate=validate)

    def parameter_group(self, **options) -> dict:
        "The proxies as a parameter group for an optimiser; see `ClusterLoss.parameter_group`."
        return self.cluster.parameter_group(**options)

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple=None, ref_emb: Tensor | None = None,
                ref_labels: Tensor | None = None, *, query_index: Tensor | None = None) -> Tensor:
        """The weighted sum; arguments as in `RankingLoss.forward`. References take part in the ranking only.

        Returns:
            scalar loss.

        Raises:
            TypeError, ValueError: what does not fit is named, and how to mend it.
        """
        ranking = self.hap(embeddings, labels, indices_tuple, ref_emb, ref_labels, query_index=query_index)
        return (1 - self.cluster_weight) * ranking + self.cluster_weight * self.cluster(embeddings, labels)
