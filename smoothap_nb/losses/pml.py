"""Our losses as losses of pytorch-metric-learning, for its reducers and wrappers.

Nothing else in the package needs pytorch-metric-learning, so nothing imports this module but its user.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .base import RankingLoss
from .memory import takes_references

try:
    from pytorch_metric_learning import losses as theirs
except ImportError as error:
    raise ImportError("smoothap_nb.losses.pml needs pytorch-metric-learning, which is not installed: "
                      "pip install pytorch-metric-learning") from error

__all__ = ["PMLLoss", "CrossBatchMemory", "SelfSupervisedLoss"]
_MINED = (
    "indices_tuple holds mined pairs, and a ranking compares every query with the whole gallery: drop the miner, or "
    "pass indices_tuple=None"
)


class PMLLoss(theirs.BaseMetricLossFunction):
    """One of our embedding losses as a `BaseMetricLossFunction`.

    Each query's loss goes to the reducer, with its row as the index; the default, a mean, gives what the loss gives by
    itself. A loss that is no mean over queries (`ROADMAPLoss`, `HAPPIERLoss`, `ClusterLoss`, `CSLLoss`,
    `EmbeddingMemory`) arrives already reduced, as pytorch-metric-learning's own PNP does.

    Args:
        loss: an embedding loss of this package, or one with the same call.
        reducer, embedding_regularizer, embedding_reg_weight, collect_stats: as in pytorch-metric-learning.

    Raises:
        ImportError: pytorch-metric-learning is not installed.
        TypeError: something that is not such a loss.
        ValueError: in the call, no labels, mined pairs, and what the loss itself refuses.

    Called as pytorch-metric-learning's losses are, or with `query_index`. All pairs without each query's own, as its
    wrappers pass them, are understood as `query_index`. `ref_emb` and `ref_labels` that are the batch itself count as
    left out, which is pytorch-metric-learning's rule.
    """

    def __init__(self, loss: nn.Module, *, reducer=None, embedding_regularizer=None, embedding_reg_weight: Any = 1,
                 collect_stats: bool | None = None):
        if isinstance(loss, type) or not isinstance(loss, nn.Module) or not takes_references(loss):
            raise TypeError("PMLLoss takes an embedding loss such as SmoothAPLoss(tau=0.01), "
                            f"got {getattr(loss, '__name__', type(loss).__name__)}")
        super().__init__(reducer=reducer, embedding_regularizer=embedding_regularizer,
                         embedding_reg_weight=embedding_reg_weight, collect_stats=collect_stats)
        self.loss = loss

    def forward(self, embeddings: Tensor, labels: Tensor | None = None, indices_tuple=None,
                ref_emb: Tensor | None = None, ref_labels: Tensor | None = None, *,
                query_index: Tensor | None = None) -> Tensor:
        "What the reducer makes of the queries' losses."
        self.reset_stats()
        if labels is None:
            raise ValueError("labels are missing: they say who is a positive")
        if indices_tuple is not None:
            gallery = embeddings if ref_emb is None else ref_emb
            own = own_columns(indices_tuple, len(embeddings), len(gallery)).to(embeddings.device)
            if ref_emb is not None and query_index is None:
                query_index = own
        elif ref_emb is embeddings and ref_labels is labels and query_index is None:
            ref_emb = ref_labels = None
        losses = {"loss": self.query_losses(embeddings, labels, ref_emb, ref_labels, query_index)}
        self.add_embedding_regularization_to_loss_dict(losses, embeddings)
        return self.reducer(losses, embeddings, labels)

    def query_losses(self, embeddings, labels, ref_emb, ref_labels, query_index) -> dict[str, Any]:
        "The losses of the queries that count and their rows, in the form that reducers read."
        loss = self.loss
        plain = (RankingLoss.forward, RankingLoss.mean_loss)
        if not isinstance(loss, RankingLoss) or (type(loss).forward, type(loss).mean_loss) != plain:
            value = loss(embeddings, labels, None, ref_emb, ref_labels, query_index=query_index)
            return {"losses": value, "indices": None, "reduction_type": "already_reduced"}
        scores, target = loss.rankings(embeddings, labels, None, ref_emb, ref_labels, query_index)
        counted = loss.counted_queries(target).nonzero()[:, 0]
        with torch.autocast(scores.device.type, enabled=False):
            values = loss.query_losses(scores, target)
        if len(counted) == 0:
            return self.zero_loss()
        return {"losses": values[counted], "indices": counted, "reduction_type": "element"}


class CrossBatchMemory(theirs.CrossBatchMemory):
    """pytorch-metric-learning's memory around one of our losses; `EmbeddingMemory` is ours.

    Theirs remembers the batch first and ranks against detached rows alone, so that the gradient reaches the queries
    only; ours keeps the current batch in the graph on both sides.

    Args:
        loss: a `PMLLoss`, an embedding loss of ours, or a loss that pytorch-metric-learning allows.
        embedding_size, memory_size: as there.

    Raises:
        ImportError: pytorch-metric-learning is not installed.
        ValueError: a miner with one of our losses.
    """

    def __init__(self, loss: nn.Module, embedding_size: int, memory_size: int = 1024, miner=None, **kwargs):
        loss = as_pml(loss)
        if miner is not None and isinstance(loss, PMLLoss):
            raise ValueError("a ranking has no pairs to mine: leave the miner out")
        super().__init__(loss, embedding_size, memory_size, miner, **kwargs)

    @staticmethod
    def supported_losses():
        "pytorch-metric-learning's list, and `PMLLoss`."
        return [*theirs.CrossBatchMemory.supported_losses(), "PMLLoss"]


class SelfSupervisedLoss(theirs.SelfSupervisedLoss):
    """pytorch-metric-learning's loss of two views of the same pictures, around one of our losses.

    Args:
        loss: a `PMLLoss`, an embedding loss of ours, or a loss that pytorch-metric-learning allows.
        symmetric: rank both views against both; otherwise the first against the second.

    Raises:
        ImportError: pytorch-metric-learning is not installed.
    """

    def __init__(self, loss: nn.Module, symmetric: bool = True, **kwargs):
        super().__init__(as_pml(loss), symmetric, **kwargs)

    @staticmethod
    def supported_losses():
        "pytorch-metric-learning's list, and `PMLLoss`."
        return [*theirs.SelfSupervisedLoss.supported_losses(), "PMLLoss"]


def own_columns(indices_tuple, queries: int, gallery: int) -> Tensor:
    """Each query's own column, from pytorch-metric-learning's pairs: the one that no pair names; -1 where none is left.

    Args:
        indices_tuple: (anchors, positives, anchors, negatives), as its wrappers make it: every pair once.
        queries, gallery: how many rows there are.

    Returns:
        (queries,) int64.

    Raises:
        ValueError: triplets, or pairs of which some are missing or named twice: somebody mined them.
    """
    if not isinstance(indices_tuple, (tuple, list)) or len(indices_tuple) != 4:
        raise ValueError(_MINED)
    first, positive, second, negative = indices_tuple
    seen = torch.zeros(queries, gallery, dtype=torch.bool, device=first.device)
    try:
        seen[first, positive] = True
        seen[second, negative] = True
    except IndexError as error:
        raise ValueError(f"indices_tuple names rows beyond the {queries} queries and {gallery} references") from error
    if len(first) + len(second) != int(seen.sum()) or int(seen.sum(1).min()) < gallery - 1:
        raise ValueError(_MINED)
    return torch.where(seen.all(1), -1, seen.int().argmin(1))


def as_pml(loss: nn.Module) -> nn.Module:
    "One of our losses, wrapped; one of pytorch-metric-learning's as it is."
    ours = isinstance(loss, nn.Module) and not isinstance(loss, theirs.BaseMetricLossFunction)
    return PMLLoss(loss) if ours else loss
