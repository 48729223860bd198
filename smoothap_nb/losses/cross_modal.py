"""One call for a ranking loss between two galleries: pictures and words, or any other two kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from smoothap_nb.checks import check_embeddings, check_number, check_references, check_relevance
from smoothap_nb.losses.base import mean_over_queries
from smoothap_nb.losses.contrast import check_settings, hardest_triplet, nt_xent, triplet
from smoothap_nb.losses.signature import LossModule
from smoothap_nb.losses.smooth import smooth_ap
from smoothap_nb.metrics.two_galleries import relevance_from_ids
from smoothap_nb.similarity import cosine_scores

LOSSES: dict[str, Callable[..., Tensor]] = {
    "smooth_ap": lambda scores, relevance, tau: 1 - smooth_ap(scores, relevance, tau),
    "nt_xent": nt_xent,
    "triplet": triplet,
    "hardest_triplet": hardest_triplet,
}


class CrossModalLoss(LossModule):
    """A ranking loss between two galleries: every picture ranks the texts, every text ranks the pictures.

    For gathered batches pass the gathered rows: ``loss(gather_rows(images), gather_rows(texts), relevance)``.

    Args:
        loss: "smooth_ap", "nt_xent", "triplet", "hardest_triplet", or a function (scores, relevance) -> (Q,) costs,
            NaN for a query without positives.
        weight: of the direction picture -> texts, 0 to 1; the other one gets the rest.
        tau: of Smooth-AP (0.01 when left out) or NT-Xent (0.1 when left out), score units, > 0.
        margin: of the triplets (0.2 when left out), score units, > 0.

    Raises:
        ValueError: an unknown loss, a weight outside 0 to 1, a setting that the loss does not have or that is not
            above 0.
    """

    def __init__(
        self,
        loss: str | Callable[[Tensor, Tensor], Tensor] = "smooth_ap",
        weight: float = 0.5,
        *,
        tau: float | None = None,
        margin: float | None = None,
    ):
        super().__init__()
        if not 0 <= check_number("weight", weight) <= 1:
            raise ValueError(f"weight must lie between 0 and 1, got {weight}")
        given = {name: value for name, value in (("tau", tau), ("margin", margin)) if value is not None}
        if callable(loss) and given:
            raise ValueError(f"{next(iter(given))} is no setting of a function of your own: set it in there")
        self.name, self.weight = loss, weight
        self.settings = {} if callable(loss) else check_settings(loss, given)
        self._cost = loss if callable(loss) else LOSSES[loss]

    def query_losses(self, scores: Tensor, relevance: Tensor) -> Tensor:
        "(Q,) cost of each ranking, NaN for a query without positives."
        return self._cost(scores, relevance, **self.settings)

    def forward(
        self, images: Tensor, texts: Tensor, relevance: Tensor | None = None, *, image_ids: Tensor | None = None
    ) -> Tensor:
        """Weighted mean of both directions; queries without a positive are left out, a direction without any counts 0.

        Args:
            images: (I, D) floating point, scaled to length 1 here.
            texts: (T, D).
            relevance: (I, T) bool, True where the text belongs to the picture; or
            image_ids: (T,) integers, the row of `images` that each text describes. One of the two.

        Returns:
            scalar loss, computed in float32 (float64 stays float64) whatever autocast says.

        Raises:
            TypeError, ValueError: what does not fit is named, and how to mend it.
        """
        if (relevance is None) == (image_ids is None):
            raise ValueError("pass relevance (pictures, texts) or image_ids (texts), exactly one of the two")
        images = check_embeddings(images, "images")
        texts = check_references(check_embeddings(texts, "texts"), images)
        if len(images) == 0:
            raise ValueError("the batch is empty: images have no rows")
        if relevance is None:
            given = cast(Tensor, image_ids)  # one of the two is there
            relevance = relevance_from_ids(given, len(images), len(texts)).to(images.device)
        with torch.autocast(images.device.type, enabled=False):
            scores = cosine_scores(images, texts)
            check_relevance(relevance, scores)
            to_texts = mean_over_queries(self.query_losses(scores, relevance), relevance.any(1))
            to_images = mean_over_queries(self.query_losses(scores.T, relevance.T), relevance.any(0))
            return self.weight * to_texts + (1 - self.weight) * to_images

    def extra_repr(self) -> str:
        settings = (f"{name}={value}" for name, value in self.settings.items())
        return ", ".join([repr(self.name), f"weight={self.weight}", *settings])
