"""RaMBO for detection and tagging: samples x classes, each column a ranking (Eq. 23; shown in lesson 05b)."""

from __future__ import annotations

from numbers import Real

from torch import Tensor

from ..checks import check_relevance, check_scores
from .base import mean_over_queries
from .blackbox import blackbox_ap
from .blackbox_plumbing import check_settings, scale_with_weight
from .score_memory import ScoreMemory
from .signature import LossModule


class MapLoss(LossModule):
    """One minus the mean AP over classes, mixed with the AP of all entries together (RaMBO, Eq. 6, 23; lesson 05b).

    Classes without a positive sample are left out. The memory extends each class's list and leaves the second term
    alone, as in the authors' code. A factor in front of the loss multiplies its gradient; it does not act on `lam`.

    Args:
        lam: interpolation strength, authors' convention (ranks / length of the list), > 0. Published (detection): 0.5.
        margin: alpha, in score units, 0 or above.
        interclass: beta in [0, 1], the weight of the second term (1/3 is the paper's 2 : 1).
        memory: past batches to remember, 0 or more.
        noise: draw |N(0, 1)| factors for the margin, as the authors' code does.
        eps: added to the number of positives; the authors' code has 1e-5.
        ties: "max", "min" or "average"; see `ranks`.
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Raises:
        ValueError: lam not above 0, a margin, eps or memory below 0, interclass outside [0, 1], an unknown tie rule.
    """

    def __init__(self, lam: float = 0.5, margin: float = 0.15, interclass: float = 1 / 3, *, memory: int = 0,
                 noise: bool = False, eps: float = 0.0, ties: str = "max", validate: bool = False):
        super().__init__()
        check_settings(lam, margin, ties, eps)
        if not isinstance(interclass, Real) or not 0 <= interclass <= 1:
            raise ValueError(f"interclass must lie in 0 ... 1, got {interclass!r}")
        self.lam, self.margin, self.interclass, self.memory = lam, margin, interclass, ScoreMemory(memory)
        self.noise, self.eps, self.ties, self.validate = noise, eps, ties, validate

    def forward(self, scores: Tensor, targets: Tensor, noise: Tensor | None = None,
                interclass_noise: Tensor | None = None) -> Tensor:
        """The loss of one batch.

        Args:
            scores: (N, C), samples x classes.
            targets: (N, C) bool, True where the sample belongs to the class.
            noise: (N + remembered, C) factors of the margin for the first term, in place of fresh draws.
            interclass_noise: (N, C) factors for the second term.

        Returns:
            scalar; 0, with a graph, where no class has a positive.

        Raises:
            TypeError, ValueError: inputs that do not fit.
        """
        scores = check_scores(scores, self.validate)
        targets = check_relevance(targets, scores)
        return scale_with_weight(lambda s: self._loss(s, targets, noise, interclass_noise), scores)

    def _loss(self, scores, targets, noise, interclass_noise):
        longer, longer_targets = self.memory(scores, targets)
        per_class = 1 - self._ap(longer.T, longer_targets.T, None if noise is None else noise.T)
        loss = (1 - self.interclass) * mean_over_queries(per_class, longer_targets.any(0))
        if self.interclass > 0:
            drawn = None if interclass_noise is None else interclass_noise.reshape(1, -1)
            together = 1 - self._ap(scores.reshape(1, -1), targets.reshape(1, -1), drawn)
            loss = loss + self.interclass * mean_over_queries(together, targets.any().view(1))
        return loss

    def _ap(self, scores, targets, noise):
        factors = self.noise if noise is None else noise
        return blackbox_ap(scores, targets, self.lam, self.margin, factors, self.eps, ties=self.ties,
                           validate=self.validate)
