"""What all embedding losses share: the call, its checks, and the mean over the queries that have a positive."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checks import check_count, check_embeddings, check_labels, check_query_index, check_references
from ..similarity import compare_rows, cosine_scores
from .signature import LossModule


def mean_over_queries(values: Tensor, valid: Tensor | None = None) -> Tensor:
    """Mean of the (Q,) values of the `valid` queries; 0, still attached to the graph, where there is none.

    Without `valid` a NaN says that a query has no positives. With it, a NaN of a valid query shows in the mean.
    """
    valid = ~values.isnan() if valid is None else valid
    return torch.where(valid, values, torch.zeros_like(values)).sum() / valid.sum().clamp(min=1)


def check_batch(embeddings: Tensor, validate: bool) -> Tensor:
    "The embeddings of a call: (N, D), N at least 1."
    embeddings = check_embeddings(embeddings, "embeddings", validate)
    if len(embeddings) == 0:
        raise ValueError("the batch is empty: embeddings have no rows")
    return embeddings


class RankingLoss(LossModule):
    """What all embedding losses share: each row of a batch is a query, ranked against the batch or against references.

    A subclass says what one ranking costs, in `query_losses(scores, target)`.

    Args:
        include_query: keep each query in its own ranking, as its own first positive (most public code does; it
            lifts AP).
        normalize: scale embeddings to length 1 before comparing them.
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Raises:
        TypeError, ValueError: in the call, embeddings or labels that do not fit (see `forward`).
        NotImplementedError: in the call, a subclass without `query_losses`.
    """

    hierarchical = False  # labels are (N,), or (N, L) coarse to fine
    takes_references = True  # ref_emb, ref_labels and query_index: what EmbeddingMemory and gathered batches need

    def __init__(self, *, include_query: bool = False, normalize: bool = True, validate: bool = False):
        super().__init__()
        self.include_query, self.normalize, self.validate = include_query, normalize, validate

    def target(self, labels: Tensor, ref_labels: Tensor) -> Tensor:
        "(Q, G) relevance: bool here, levels in the hierarchical losses."
        if labels.dtype == torch.bool:  # tags: a pair is positive that shares one
            return labels.float() @ ref_labels.float().T > 0
        return labels[:, None] == ref_labels[None, :]

    def query_losses(self, scores: Tensor, target: Tensor) -> Tensor:
        "(Q,) loss of each ranking, NaN for a query without positives. A score of -inf marks an absent item."
        raise NotImplementedError(
            f"{type(self).__name__} does not say what a ranking costs: define query_losses(scores, target)"
        )

    def counted_queries(self, target: Tensor) -> Tensor:
        "(Q,) bool: whose losses count; those with a positive, unless a loss says otherwise."
        return target.any(1)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple=None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        *,
        query_index: Tensor | None = None,
    ) -> Tensor:
        """Mean loss over the queries that have a positive; 0 (with a graph) if none has.

        Args:
            embeddings: (Q, D) floating point.
            labels: (Q,) integers in any order, with any number of images per class; or (Q, T) bool: tags, of which
                images that match share at least one. (Q, L) integers, coarse to fine, for hierarchical losses.
            indices_tuple: must be None. It stands here for pytorch-metric-learning's call: a ranking has no pairs
                to mine.
            ref_emb: (G, D) gallery; the batch itself when left out.
            ref_labels: (G,), (G, T) or (G, L), with `ref_emb`.
            query_index: (Q,) row of `ref_emb` that is the query itself, -1 where it is absent; that row leaves
                the query's ranking.

        Returns:
            scalar loss.

        Raises:
            TypeError, ValueError: what does not fit is named, and how to mend it.
        """
        if ref_emb is embeddings and query_index is None and not self.include_query:
            warn_of_itself()
        return self.mean_loss(*self.rankings(embeddings, labels, indices_tuple, ref_emb, ref_labels, query_index))

    def mean_loss(self, scores: Tensor, target: Tensor) -> Tensor:
        "Mean of `query_losses` over the queries that have a positive."
        with torch.autocast(scores.device.type, enabled=False):
            return mean_over_queries(self.query_losses(scores, target), self.counted_queries(target))

    def rankings(
        self, embeddings, labels, indices_tuple=None, ref_emb=None, ref_labels=None, query_index=None
    ) -> tuple[Tensor, Tensor]:
        "What `forward` ranks, checked: scores (Q, G) with -inf where a query meets itself, and `target` of the labels."
        if indices_tuple is not None:
            raise ValueError(
                "indices_tuple is not used: a ranking loss compares every query with the whole gallery, so there are "
                "no pairs to mine. Drop the miner, or pass indices_tuple=None"
            )
        embeddings = check_batch(embeddings, self.validate)
        labels = check_labels(labels, embeddings, "labels", self.hierarchical)
        if (ref_emb is None) != (ref_labels is None):
            raise ValueError("ref_emb and ref_labels belong together: pass both or neither")
        if ref_emb is None:
            if query_index is not None:
                raise ValueError("query_index points into ref_emb: pass ref_emb and ref_labels with it")
            return self._batch_rankings(embeddings, labels)
        return self._gallery_rankings(embeddings, labels, ref_emb, ref_labels, query_index)

    def _batch_rankings(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        "Every row against the batch, itself left out."
        scores = compare_rows(embeddings, embeddings, self.normalize, leave_out=not self.include_query)
        target = self.target(labels, labels)
        return scores, target if self.include_query else target.fill_diagonal_(0)

    def _gallery_rankings(self, embeddings, labels, ref_emb, ref_labels, query_index) -> tuple[Tensor, Tensor]:
        "Every row against the references, without the one that is the query itself."
        ref_emb = check_references(ref_emb, embeddings, self.validate)
        ref_labels = check_labels(ref_labels, ref_emb, "ref_labels", self.hierarchical)
        check_same_kind(labels, ref_labels)
        scores, target = compare_rows(embeddings, ref_emb, self.normalize), self.target(labels, ref_labels)
        if query_index is not None:
            check_query_index(query_index, scores)
            if not self.include_query:
                scores, target = leave_out_own(scores, target, query_index)
        return scores, target


def warn_of_itself() -> None:
    "The gallery is the batch, and nobody said so: every query would be its own best match."
    warnings.warn(
        "ref_emb is embeddings, and without query_index every query finds itself first: leave ref_emb and ref_labels "
        "out, or pass query_index=torch.arange(len(embeddings)); include_query=True says that it is meant",
        stacklevel=5,  # past torch's two frames of a call: the caller's line
    )


def check_same_kind(labels: Tensor, ref_labels: Tensor) -> None:
    "Labels of queries and gallery: both classes, or both tags, with as many columns."
    if (labels.dtype == torch.bool) != (ref_labels.dtype == torch.bool):
        raise TypeError("labels and ref_labels must both be class numbers, or both bool tags")
    if ref_labels.shape[1:] != labels.shape[1:]:
        what = "tags" if labels.dtype == torch.bool else "levels"
        raise ValueError(f"labels have {labels.shape[1]} {what}, ref_labels {ref_labels.shape[1]}")


class ProxyLoss(LossModule):
    """What losses share that compare each embedding with one learned proxy per class, and with no other image.

    A subclass says what the scores cost, in `proxy_loss(scores, labels)`.

    Args:
        classes: number of proxies.
        dim: dimensions of the embeddings.
        normalize: scale embeddings to length 1 (proxies always are).
        validate: look for NaN and infinity on CUDA too (on a CPU always).

    Attributes:
        proxies: (classes, dim) parameter.
    """

    hierarchical = False
    takes_references = True  # for the call's sake: no gallery lengthens what is compared
    compares_with_proxies = True

    def __init__(self, classes: int, dim: int, *, normalize: bool = True, validate: bool = False):
        super().__init__()
        self.dim, self.normalize, self.validate = check_count("dim", dim), normalize, validate
        self.proxies = nn.Parameter(torch.empty(classes, dim).uniform_(-1 / dim**0.5, 1 / dim**0.5))

    def parameter_group(self, **options) -> dict:
        """The proxies as a parameter group for an optimiser, with options of their own:
        ``loss.parameter_group(lr=0.1, weight_decay=0)``.
        """
        return {"params": [self.proxies], **options}

    def proxy_loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        "Scalar loss of (N, classes) cosines and the checked labels, (N,) or (N, L)."
        raise NotImplementedError(f"{type(self).__name__} does not say what its scores cost: define proxy_loss")

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple=None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        *,
        query_index: Tensor | None = None,
    ) -> Tensor:
        """Mean loss over the batch.

        Args:
            embeddings: (N, dim) floating point.
            labels: (N,) or (N, L) integers, coarse to fine.
            indices_tuple: must be None.
            ref_emb, ref_labels, query_index: not used, since each embedding is compared with the proxies alone; here
                for the shared call.

        Returns:
            scalar loss.

        Raises:
            TypeError, ValueError: what does not fit is named, and how to mend it.
        """
        if indices_tuple is not None:
            raise ValueError(
                "indices_tuple is not used: every embedding is compared with every proxy. Drop the miner, or pass None"
            )
        embeddings = check_batch(embeddings, self.validate)
        if embeddings.shape[1] != self.dim:
            raise ValueError(
                f"the embeddings have {embeddings.shape[1]} dimensions, the proxies have {self.dim}: pass "
                f"dim={embeddings.shape[1]}"
            )
        labels = check_labels(labels, embeddings, "labels", hierarchical=True)
        rows = F.normalize(embeddings, dim=1) if self.normalize else embeddings
        return self.proxy_loss(cosine_scores(rows, F.normalize(self.proxies, dim=1), normalize=False), labels)


def leave_out_own(scores: Tensor, target: Tensor, query_index: Tensor) -> tuple[Tensor, Tensor]:
    "Take each query's own column out of its ranking, without waiting for a GPU."
    column = query_index.to(scores.device).long()[:, None]
    own, present = column.clamp(min=0), column >= 0
    scores = scores.scatter(1, own, torch.where(present, -torch.inf, scores.gather(1, own)))
    target = target.scatter(1, own, torch.where(present, torch.zeros_like(target[:, :1]), target.gather(1, own)))
    return scores, target
