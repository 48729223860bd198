"""Cross-scale learning: one learned proxy per fine class, and no ranking (Sun et al. 2021; shown in lesson 08b)."""

from __future__ import annotations

from typing import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checks import (check_count, check_embeddings, check_labels, check_levels, check_number, check_positive,
                      check_scores)
from ..metrics.graded import common_levels
from ..similarity import cosine_scores
from .base import mean_over_queries
from .signature import LossModule


def csl_loss(scores: Tensor, levels: Tensor, margins: Sequence[float], scale: float = 32.0,
             validate: bool = False) -> Tensor:
    """Cross-scale learning: an image's own class beats those of other groups, by a margin per level (Sun et al. 2021).

    For each level l the classes that share fewer than l levels with the image are its negatives; the positive is always
    its own fine class:  softplus(logsumexp(scale * negatives) + logsumexp(-scale * own) + scale * margins[l - 1]),
    summed over the levels.

    Args:
        scores: (N, C) similarity of each image to each fine class.
        levels: (N, C) integers, how many levels an image shares with a class: 0 (none) to L (its own class).
        margins: L margins in score units, coarse to fine.
        scale: inverse temperature, > 0.
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Returns:
        (N,) losses, >= 0; NaN for an image whose own class is missing.

    Raises:
        TypeError, ValueError: scores or levels that do not fit, a setting out of range.
    """
    check_positive("scale", scale)
    scores, margins = check_scores(scores, validate), _check_margins(margins)
    check_levels(levels, scores)
    if (validate or levels.device.type == "cpu") and levels.numel() and levels.max() > len(margins):
        raise ValueError(f"levels reach {int(levels.max())}, but there are {len(margins)} margins: give one per level, "
                         "coarse to fine")
    return _csl_loss(scores, levels, margins, scale)


def _check_margins(margins: Sequence[float]) -> tuple[float, ...]:
    margins = tuple(float(check_number("margins", value)) for value in margins)
    if not margins:
        raise ValueError("margins are empty: one per level is needed")
    return margins


def _csl_loss(scores: Tensor, levels: Tensor, margins: Sequence[float], scale: float) -> Tensor:
    "`csl_loss` without checks."
    nothing = -1e30  # exp of it is 0, and unlike -inf it leaves no NaN behind where a level has no negative
    logits, own = scale * scores, levels == len(margins)
    pull = (-logits).masked_fill(~own, nothing).logsumexp(1)
    losses = sum(F.softplus(logits.masked_fill(levels >= level, nothing).logsumexp(1) + pull + scale * margin)
                 for level, margin in enumerate(margins, start=1))
    return torch.where(own.any(1), losses, torch.nan)


class CSLLoss(LossModule):
    """Cross-scale learning with one learned proxy per fine class (Sun et al. 2021; a baseline of HAPPIER's tables).

    Called as ``loss(embeddings, labels)`` with labels (N, L), coarse to fine.

    Args:
        class_labels: (C, L) integers, coarse to fine: the label of each fine class, one row a class;
            ``labels.unique(dim=0)`` of the training set gives it.
        dim: dimensions of the embeddings.
        margins: one per level in score units, coarse to fine. Default: 0.45 down to 0.25 in equal steps, as published
            for two and three levels (SOP, iNat-base; DyML); the run on seven levels (iNat-full) used 0.75 to 0.15.
        scale: inverse temperature, > 0.
        normalize: scale embeddings to length 1 (proxies always are).
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Raises:
        TypeError, ValueError: class labels that are not integers, not (C, L), repeated, or a setting out of range; on a
            call, a label without a proxy.
    """

    hierarchical = True  # labels are (N, L)

    takes_references = True  # for the call's sake; it compares with proxies, which no gallery lengthens
    compares_with_proxies = True
    class_labels: Tensor  # a buffer

    def __init__(self, class_labels: Tensor, dim: int, margins: Sequence[float] | None = None, scale: float = 32.0, *,
                 normalize: bool = True, validate: bool = False):
        super().__init__()
        class_labels = check_labels(class_labels, class_labels, "class_labels", hierarchical=True)
        different, (classes, count) = len(class_labels.unique(dim=0)), class_labels.shape
        if different != classes or not classes:
            raise ValueError(f"class_labels hold {classes} rows, {different} of them different: one row per class is "
                             "needed, e.g. labels.unique(dim=0)")
        if margins is None:
            margins = [0.45 - 0.2 * level / max(1, count - 1) for level in range(count)]
        self.margins = _check_margins(margins)
        if len(self.margins) != count:
            raise ValueError(f"there are {len(self.margins)} margins and {count} levels: give one margin per level, "
                             "coarse to fine")
        self.dim, self.scale = check_count("dim", dim), check_positive("scale", scale)
        self.normalize, self.validate = normalize, validate
        self.register_buffer("class_labels", class_labels.clone())
        self.proxies = nn.Parameter(torch.empty(classes, dim).uniform_(-1 / dim ** 0.5, 1 / dim ** 0.5))

    def parameter_group(self, **options) -> dict:
        "The proxies as a parameter group for an optimiser: ``loss.parameter_group(lr=0.1, weight_decay=0)``."
        return {"params": [self.proxies], **options}

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple=None, ref_emb: Tensor | None = None,
                ref_labels: Tensor | None = None, *, query_index: Tensor | None = None) -> Tensor:
        """Mean loss over the batch.

        Args:
            embeddings: (N, dim) floating point.
            labels: (N, L) integers, coarse to fine, each a row of `class_labels`.
            indices_tuple: must be None.
            ref_emb, ref_labels, query_index: not used, since each embedding is compared with the proxies alone; here
                for the shared call.

        Returns:
            scalar loss.

        Raises:
            TypeError, ValueError: what does not fit is named, and how to mend it.
        """
        if indices_tuple is not None:
            raise ValueError("indices_tuple is not used: every embedding is compared with every proxy. Drop the miner, "
                             "or pass None")
        embeddings = check_embeddings(embeddings, "embeddings", self.validate)
        labels = check_labels(labels, embeddings, "labels", hierarchical=True)
        if embeddings.shape[1] != self.dim:
            raise ValueError(f"the embeddings have {embeddings.shape[1]} dimensions, the proxies have {self.dim}: "
                             f"pass dim={embeddings.shape[1]}")
        if labels.shape[1] != len(self.margins):
            raise ValueError(f"labels have {labels.shape[1]} levels, class_labels have {len(self.margins)}")
        rows = F.normalize(embeddings, dim=1) if self.normalize else embeddings
        scores = cosine_scores(rows, F.normalize(self.proxies, dim=1), normalize=False)
        losses = _csl_loss(scores, common_levels(labels, self.class_labels, torch.int64), self.margins, self.scale)
        if (self.validate or losses.device.type == "cpu") and losses.isnan().any():
            raise ValueError(f"labels hold {labels[losses.isnan()][0].tolist()}, which is not among the "
                             f"{len(self.class_labels)} class_labels")
        return mean_over_queries(losses)

    def extra_repr(self) -> str:
        return f"classes={len(self.class_labels)}, {super().extra_repr()}"
