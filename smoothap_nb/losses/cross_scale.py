"""Cross-scale learning: one learned proxy per fine class, and no ranking (Sun et al. 2021; shown in lesson 08b)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import check_labels, check_levels, check_number, check_positive, check_scores
from ..metrics.graded import common_levels
from .base import ProxyLoss, mean_over_queries


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
    levels = check_levels(levels, scores)
    if (validate or levels.device.type == "cpu") and levels.numel() and levels.max() > len(margins):
        raise ValueError(f"levels reach {int(levels.max())}, but there are {len(margins)} margins: give one per level, "
                         "coarse to fine")
    return _csl_loss(scores, levels, margins, scale)


def _check_margins(margins: Sequence[float]) -> tuple[float, ...]:
    if isinstance(margins, (str, bytes, dict)) or not isinstance(margins, Iterable):
        raise TypeError(f"margins must be a list of numbers, one for each level, got {type(margins).__name__}")
    margins = tuple(check_number("margins", value) for value in margins)
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


class CSLLoss(ProxyLoss):
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
    class_labels: Tensor  # a buffer

    def __init__(self, class_labels: Tensor, dim: int, margins: Sequence[float] | None = None, scale: float = 32.0, *,
                 normalize: bool = True, validate: bool = False):
        class_labels = check_labels(class_labels, class_labels, "class_labels", hierarchical=True)
        if class_labels.shape[1] == 0:
            raise ValueError(f"class_labels must have a column for each level, got shape {tuple(class_labels.shape)}")
        different, (classes, count) = len(class_labels.unique(dim=0)), class_labels.shape
        if different != classes or not classes:
            raise ValueError(f"class_labels hold {classes} rows, {different} of them different: one row per class is "
                             "needed, e.g. labels.unique(dim=0)")
        if margins is None:
            margins = [0.45 - 0.2 * level / max(1, count - 1) for level in range(count)]
        margins = _check_margins(margins)
        if len(margins) != count:
            raise ValueError(f"there are {len(margins)} margins and {count} levels: give one margin per level, coarse "
                             "to fine")
        super().__init__(classes, dim, normalize=normalize, validate=validate)
        self.margins, self.scale = margins, check_positive("scale", scale)
        self.register_buffer("class_labels", class_labels.clone())

    def proxy_loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        "Mean `csl_loss` of the cosines; each row of `labels` is a row of `class_labels`."
        if labels.shape[1] != len(self.margins):
            raise ValueError(f"labels have {labels.shape[1]} levels, class_labels have {len(self.margins)}")
        losses = _csl_loss(scores, common_levels(labels, self.class_labels, torch.int64), self.margins, self.scale)
        if (self.validate or losses.device.type == "cpu") and losses.isnan().any():
            raise ValueError(f"labels hold {labels[losses.isnan()][0].tolist()}, which is not among the "
                             f"{len(self.class_labels)} class_labels")
        return mean_over_queries(losses)

    def extra_repr(self) -> str:
        return f"classes={len(self.class_labels)}, {super().extra_repr()}"
