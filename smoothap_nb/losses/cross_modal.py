"""Ranking losses between two galleries."""
from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smoothap_nb.checks import check_choice, check_embeddings, check_positive, check_references, check_relevance, check_scores
from smoothap_nb.losses.base import mean_over_queries
from smoothap_nb.losses.smooth import smooth_ap
from smoothap_nb.metrics.two_galleries import relevance_from_ids
from smoothap_nb.similarity import cosine_scores
def over_positives(costs: Tensor, queries: Tensor, relevance: Tensor) -> Tensor:
    "(Q,) mean of the costs of each query's positives; `queries` says whose they are. NaN for a query without positives."
    counts = relevance.sum(1)
    total = torch.zeros(len(relevance), dtype=costs.dtype, device=costs.device).index_add(0, queries, costs)
    return torch.where(counts > 0, total / counts.clamp(min=1), torch.nan)


def only_negatives(scores: Tensor, relevance: Tensor) -> Tensor:
    "Scores with those of the positives so low that they matter to no maximum and to no sum of exponentials."
    return scores.masked_fill(relevance, torch.finfo(scores.dtype).min)
def triplet(scores: Tensor, relevance: Tensor, margin: float = 0.2) -> Tensor:
    """Triplet loss of each query with every negative that comes too near (VSE, the sum of hinges).

    Args:
        scores: (Q, G) similarity, higher is closer.
        relevance: (Q, G) bool, True for positives.
        margin: score units, > 0, by which a positive is to be ahead of every negative.

    Returns:
        (Q,) sum over negatives of max(0, margin + s_negative - s_positive), averaged over the query's positives; NaN without positives.

    Raises:
        TypeError, ValueError: scores or relevance that do not fit, a margin that is not above 0.
    """
    check_positive("margin", margin)
    scores, relevance = check_scores(scores), check_relevance(relevance, scores)
    query, item = relevance.nonzero(as_tuple=True)
    violations = F.relu(margin + scores[query] - scores[query, item][:, None]) * ~relevance[query]  # (all positives, G)
    return over_positives(violations.sum(1), query, relevance)
def hardest_triplet(scores: Tensor, relevance: Tensor, margin: float = 0.2) -> Tensor:
    """Triplet loss of each query with its nearest negative alone (VSE++, "max of hinges"); arguments and errors as in `triplet`.

    Returns:
        (Q,) max(0, margin + max s_negative - s_positive), averaged over the query's positives; NaN without positives.
    """
    check_positive("margin", margin)
    scores, relevance = check_scores(scores), check_relevance(relevance, scores)
    query, item = relevance.nonzero(as_tuple=True)
    hardest = only_negatives(scores, relevance).amax(1)
    return over_positives(F.relu(margin + hardest[query] - scores[query, item]), query, relevance)
def nt_xent(scores: Tensor, relevance: Tensor, tau: float = 0.1) -> Tensor:
    """NT-Xent of each query: every positive is to win a softmax against all negatives (InfoNCE; CLIP's loss where there is one positive).

    Args:
        scores: (Q, G) similarity, higher is closer.
        relevance: (Q, G) bool, True for positives. Other positives stay out of a positive's softmax: no positive is pushed away.
        tau: temperature in score units, > 0.

    Returns:
        (Q,) -log(e^(s+/tau) / (e^(s+/tau) + sum over negatives of e^(s-/tau))), averaged over the positives; NaN without positives.

    Raises:
        TypeError, ValueError: scores or relevance that do not fit, tau that is not above 0.
    """
    check_positive("tau", tau)
    scores, relevance = check_scores(scores), check_relevance(relevance, scores)
    query, item = relevance.nonzero(as_tuple=True)
    negatives = only_negatives(scores / tau, relevance).logsumexp(1)
    return over_positives(F.softplus(negatives[query] - scores[query, item] / tau), query, relevance)
def push_weights(scores: Tensor, relevance: Tensor, loss: str = "smooth_ap", tau: float | None = None, margin: float = 0.2) -> tuple[Tensor, Tensor]:
    """How hard each negative is pushed on behalf of each positive.

    The weights of a query's positives, averaged and divided by tau (triplets: not divided), are the gradient of its loss by the negatives' scores.

    Args:
        scores: (Q, G) similarity.
        relevance: (Q, G) bool.
        loss: "smooth_ap", "nt_xent", "triplet" or "hardest_triplet".
        tau: of the first two; their usual one when left out (see `CrossModalLoss`).
        margin: of the triplets.

    Returns:
        weights (P, G), one row for each of the P positives of all queries, 0 at positives; query (P,) of every row.

    Raises:
        TypeError, ValueError: as the losses.
    """
    tau = check_positive("tau", LOSSES[check_choice("loss", loss, LOSSES)].get("tau", 1.0) if tau is None else tau)
    scores = check_scores(scores.detach())
    query, item = check_relevance(relevance, scores).nonzero(as_tuple=True)
    gaps, negative = scores[query] - scores[query, item][:, None], ~relevance[query]  # s_j - s_i: above 0 where j is ahead of the positive i
    if loss == "triplet":
        return ((gaps > -check_positive("margin", margin)) & negative).to(scores.dtype), query
    if loss == "hardest_triplet":
        nearest = only_negatives(scores, relevance).argmax(1)[query]
        chosen = F.one_hot(nearest, scores.shape[1]).bool() & negative & (gaps > -check_positive("margin", margin))
        return chosen.to(scores.dtype), query
    if loss == "nt_xent":
        shares = (gaps / tau).masked_fill(~negative, -torch.inf)
        shares[torch.arange(len(item)), item] = 0  # the positive itself takes part: e^0
        return shares.softmax(1) * negative, query
    ahead = torch.sigmoid(gaps / tau)
    ahead[torch.arange(len(item)), item] = 0
    among = 1 + (ahead * ~negative).sum(1, keepdim=True)  # A_i of lesson 04: the soft rank among the positives
    rank = 1 + ahead.sum(1, keepdim=True)
    return ahead * (1 - ahead) * negative * among / rank**2, query


def contributing_samples(scores: Tensor, relevance: Tensor, loss: str = "smooth_ap", tau: float | None = None, margin: float = 0.2,
                         threshold: float = 0.01) -> dict[str, float]:
    """How many negatives push (Bleeker and de Rijke's count of contributing samples, with the exact weights).

    Args:
        scores, relevance, loss, tau, margin: as in `push_weights`.
        threshold: a weight counts from here on, > 0.

    Returns:
        `negatives`: contributing negatives of a positive, mean; `without`: share of positives that have none. Both NaN where there is no positive.

    Raises:
        TypeError, ValueError: as `push_weights`.
    """
    check_positive("threshold", threshold)
    counts = (push_weights(scores, relevance, loss, tau, margin)[0] > threshold).sum(1).double()
    return {"negatives": float(counts.mean()), "without": float((counts == 0).double().mean()) if len(counts) else float("nan")}
LOSSES = {  # name -> the function and its own setting
    "smooth_ap": {"cost": lambda scores, relevance, tau: 1 - smooth_ap(scores, relevance, tau), "tau": 0.01},
    "nt_xent": {"cost": nt_xent, "tau": 0.1},
    "triplet": {"cost": triplet, "margin": 0.2},
    "hardest_triplet": {"cost": hardest_triplet, "margin": 0.2},
}
class CrossModalLoss(nn.Module):
    """A ranking loss between two galleries: every picture ranks the texts, every text ranks the pictures.

    For gathered batches pass the gathered rows: ``loss(gather_rows(images), gather_rows(texts), relevance)``.

    Args:
        loss: "smooth_ap", "nt_xent", "triplet", "hardest_triplet", or a function (scores, relevance) -> (Q,) costs, NaN without positives.
        weight: of the direction picture -> texts, 0 to 1; the other one gets the rest.
        tau: of Smooth-AP (0.01 when left out) or NT-Xent (0.1 when left out), score units, > 0.
        margin: of the triplets, score units, > 0.

    Raises:
        ValueError: an unknown loss, a weight outside 0 to 1, a setting that the loss does not have or that is not above 0.
    """

    def __init__(self, loss: str | Callable[[Tensor, Tensor], Tensor] = "smooth_ap", weight: float = 0.5, *, tau: float | None = None,
                 margin: float | None = None):
        super().__init__()
        if not 0 <= weight <= 1:
            raise ValueError(f"weight must lie between 0 and 1, got {weight}")
        given = {name: check_positive(name, value) for name, value in (("tau", tau), ("margin", margin)) if value is not None}
        known = {"cost": loss} if callable(loss) else LOSSES[check_choice("loss", loss, LOSSES)]
        for name in given:
            if name not in known:
                raise ValueError(f"{name} is no setting of the loss {loss!r}: leave it out")
        self.name, self.weight = loss, weight
        self.settings = {name: value for name, value in known.items() if name != "cost"} | given
        self._cost = known["cost"]

    def query_losses(self, scores: Tensor, relevance: Tensor) -> Tensor:
        "(Q,) cost of each ranking, NaN for a query without positives."
        return self._cost(scores, relevance, **self.settings)

    def forward(self, images: Tensor, texts: Tensor, relevance: Tensor | None = None, *, image_ids: Tensor | None = None) -> Tensor:
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
            relevance = relevance_from_ids(image_ids, len(images), len(texts)).to(images.device)
        with torch.autocast(images.device.type, enabled=False):
            scores = cosine_scores(images, texts)
            check_relevance(relevance, scores)
            to_texts = mean_over_queries(self.query_losses(scores, relevance), relevance.any(1))
            to_images = mean_over_queries(self.query_losses(scores.T, relevance.T), relevance.any(0))
            return self.weight * to_texts + (1 - self.weight) * to_images

    def extra_repr(self) -> str:
        return ", ".join([repr(self.name), f"weight={self.weight}", *(f"{name}={value}" for name, value in self.settings.items())])
