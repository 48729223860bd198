"""Losses that let negatives push, and how hard each of them does."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from smoothap_nb.checks import check_choice, check_positive, check_relevance, check_scores

def over_positives(costs: Tensor, queries: Tensor, relevance: Tensor) -> Tensor:
    "(Q,) mean of the costs of each query's positives; `queries` says whose they are. NaN where there is none."
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
        (Q,) sum over negatives of max(0, margin + s_negative - s_positive), averaged over the query's positives; NaN
        without positives.

    Raises:
        TypeError, ValueError: scores or relevance that do not fit, a margin that is not above 0.
    """
    check_positive("margin", margin)
    scores, relevance = check_scores(scores), check_relevance(relevance, scores)
    query, item = relevance.nonzero(as_tuple=True)
    violations = F.relu(margin + scores[query] - scores[query, item][:, None]) * ~relevance[query]  # (all positives, G)
    return over_positives(violations.sum(1), query, relevance)

def hardest_triplet(scores: Tensor, relevance: Tensor, margin: float = 0.2) -> Tensor:
    """Triplet loss of each query with its nearest negative alone (VSE++, "max of hinges"); arguments and errors as in
    `triplet`.

    Returns:
        (Q,) max(0, margin + max s_negative - s_positive), averaged over the query's positives; NaN without positives.
    """
    check_positive("margin", margin)
    scores, relevance = check_scores(scores), check_relevance(relevance, scores)
    query, item = relevance.nonzero(as_tuple=True)
    hardest = only_negatives(scores, relevance).amax(1)
    return over_positives(F.relu(margin + hardest[query] - scores[query, item]), query, relevance)

def nt_xent(scores: Tensor, relevance: Tensor, tau: float = 0.1) -> Tensor:
    """NT-Xent of each query: every positive is to win a softmax against all negatives (InfoNCE; CLIP's loss where
    there is one positive).

    Args:
        scores: (Q, G) similarity, higher is closer.
        relevance: (Q, G) bool, True for positives. Other positives stay out of a positive's softmax: no positive is
            pushed away.
        tau: temperature in score units, > 0.

    Returns:
        (Q,) -log(e^(s+/tau) / (e^(s+/tau) + sum over negatives of e^(s-/tau))), averaged over the positives; NaN
        without positives.

    Raises:
        TypeError, ValueError: scores or relevance that do not fit, tau that is not above 0.
    """
    check_positive("tau", tau)
    scores, relevance = check_scores(scores), check_relevance(relevance, scores)
    query, item = relevance.nonzero(as_tuple=True)
    negatives = only_negatives(scores / tau, relevance).logsumexp(1)
    return over_positives(F.softplus(negatives[query] - scores[query, item] / tau), query, relevance)

def positive_gaps(scores: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every positive against its query's gallery.

    Args:
        scores: (Q, G) similarity.
        relevance: (Q, G) bool.

    Returns:
        gaps (P, G): s_j - s_i, above 0 where j is ahead of the positive i; negative (P, G) bool; query (P,) and
        item (P,) of every positive.
    """
    scores = check_scores(scores.detach())
    query, item = check_relevance(relevance, scores).nonzero(as_tuple=True)
    return scores[query] - scores[query, item][:, None], ~relevance[query], query, item

def hinge_pushes(gaps: Tensor, negative: Tensor, margin: float) -> Tensor:
    "Triplet: every negative inside the margin, with weight 1."
    return ((gaps > -margin) & negative).to(gaps.dtype)


def hardest_pushes(gaps: Tensor, negative: Tensor, margin: float) -> Tensor:
    "Hardest triplet: the nearest negative, if it is inside the margin."
    nearest = only_negatives(gaps, ~negative).argmax(1)
    return hinge_pushes(gaps, negative, margin) * F.one_hot(nearest, gaps.shape[1])


def softmax_pushes(gaps: Tensor, negative: Tensor, tau: float) -> Tensor:
    "NT-Xent: the negatives' shares of a softmax in which the positive itself (gap 0) takes part."
    itself = torch.zeros_like(gaps[:, :1])
    return torch.cat([itself, only_negatives(gaps / tau, ~negative)], 1).softmax(1)[:, 1:]

def smooth_ap_pushes(gaps: Tensor, negative: Tensor, item: Tensor, tau: float, by_rank: bool = True) -> Tensor:
    "Smooth-AP: the bell at the gap, times the rank among positives, over the squared rank (all soft; lesson 04)."
    ahead = torch.sigmoid(gaps / tau).scatter(1, item[:, None], 0.0)
    among = 1 + (ahead * ~negative).sum(1, keepdim=True)
    bell = ahead * (1 - ahead) * negative
    return bell * among / (1 + ahead.sum(1, keepdim=True)) ** 2 if by_rank else bell

SETTINGS = {
    "smooth_ap": {"tau": 0.01}, "nt_xent": {"tau": 0.1}, "triplet": {"margin": 0.2}, "hardest_triplet": {"margin": 0.2}
}


def push_weights(
    scores: Tensor, relevance: Tensor, loss: str = "smooth_ap", *, by_rank: bool = True, **settings: float
) -> tuple[Tensor, Tensor]:
    """How hard each negative is pushed on behalf of each positive.

    The weights of a query's positives, averaged and divided by tau (triplets: not divided), are the gradient of its
    loss by the negatives' scores.

    Args:
        scores: (Q, G) similarity.
        relevance: (Q, G) bool.
        loss: "smooth_ap", "nt_xent", "triplet" or "hardest_triplet".
        by_rank: False leaves out what Smooth-AP divides by, the squared rank: which negatives are within the
            sigmoid's reach, however far down they push. No gradient then.
        **settings: tau or margin of the loss; its usual one when left out.

    Returns:
        weights (P, G), a row for each of the P positives of all queries, 0 at positives; query (P,) of every row.

    Raises:
        TypeError, ValueError: as the losses; a setting that the loss does not have.
    """
    given = check_settings(loss, settings)
    gaps, negative, query, item = positive_gaps(scores, relevance)
    if loss == "smooth_ap":
        return smooth_ap_pushes(gaps, negative, item, given["tau"], by_rank), query
    rule = {"nt_xent": softmax_pushes, "triplet": hinge_pushes, "hardest_triplet": hardest_pushes}[loss]
    return rule(gaps, negative, **given), query


def check_settings(loss: str, settings: dict[str, float]) -> dict[str, float]:
    "The loss's own settings with what is given; refuses unknown losses and settings that are not its own."
    own = SETTINGS[check_choice("loss", loss, SETTINGS)]
    for name, value in settings.items():
        if name not in own:
            raise ValueError(f"{name} is no setting of the loss {loss!r}, which has {', '.join(own)}: leave it out")
        check_positive(name, value)
    return own | settings

def contributing_samples(
    scores: Tensor, relevance: Tensor, loss: str = "smooth_ap", *, threshold: float = 0.01, **settings
) -> dict[str, float]:
    """How many negatives push a positive's query away (Bleeker and de Rijke 2022, with the exact weights).

    Args:
        scores: (Q, G) similarity, higher is closer.
        relevance: (Q, G) bool.
        loss: one of the names that `push_weights` knows.
        **settings: of that loss, as in `push_weights`.
        threshold: a weight counts above it, > 0.

    Returns:
        `negatives`: contributing negatives of a positive, mean; `without`: share of positives that have none;
        `effective`: how many negatives share the push, (sum w)^2 / sum w^2, mean over positives with any: it needs
        no threshold. All NaN where there is no positive.

    Raises:
        TypeError, ValueError: as `push_weights`.
    """
    weights = push_weights(scores, relevance, loss, **settings)[0].double()
    counts = (weights > check_positive("threshold", threshold)).sum(1).double()
    total, squares = weights.sum(1), weights.square().sum(1)
    shared = (total.square() / squares)[squares > 0]
    out = {"negatives": counts.mean(), "without": (counts == 0).double().mean(), "effective": shared.mean()}
    return {key: value.item() for key, value in out.items()}

