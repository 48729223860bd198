"""A gallery longer than the batch: the embeddings of earlier batches, for any embedding loss."""

from __future__ import annotations

import inspect
from typing import cast

import torch
from torch import Tensor, nn

from ..checks import check_count, check_embeddings, check_labels, check_references
from ..similarity import compare_rows, unit_rows
from .base import RankingLoss, check_same_kind, warn_of_itself
from .signature import LossModule


def takes_references(loss: nn.Module) -> bool:
    """Whether a loss ranks queries against references: its attribute `takes_references` says so, or the arguments of
    its `forward` do.

    A compiled loss passes the attribute on.
    """
    says = getattr(loss, "takes_references", None)
    return (
        {"ref_emb", "ref_labels", "query_index"} <= set(inspect.signature(loss.forward).parameters)
        if says is None
        else bool(says)
    )


class EmbeddingMemory(LossModule):
    """Cross-batch memory for any embedding loss of this package: each query is ranked against its batch and the
    embeddings of earlier ones.

    Called like the loss itself. After each call in training mode the batch's embeddings join the memory, detached; the
    oldest leave first. In eval mode the memory is read and left as it is. Gradient mode plays no part: a pass under
    `torch.no_grad()` in training mode fills it. Remembered rows get no gradient; the current batch gets it both as
    queries and as gallery. The memory lives in the module's buffers, so that `state_dict`, `.to(device)` and resuming
    work; it follows the batch to its device.

    With `ref_emb` (say, the batches of all processes gathered) the gallery is `ref_emb` and the memory, and `ref_emb`
    is what is remembered.
    Keep `size` well below the training set: a picture that comes again while its old embedding is remembered finds it
    as a positive.

    Args:
        loss: a loss called as ``loss(embeddings, labels, ref_emb=..., ref_labels=..., query_index=...)``, flat or
            hierarchical.
        size: embeddings to remember, >= 1.

    Raises:
        TypeError: a loss that takes no references or no query_index.
        ValueError: a size below 1; in a call, embeddings or labels of another shape than those remembered.
    """

    embeddings: Tensor  # buffers
    labels: Tensor

    def __init__(self, loss: nn.Module, size: int):
        super().__init__()
        if not isinstance(loss, nn.Module) or not takes_references(loss):
            raise TypeError(
                "EmbeddingMemory needs a loss that ranks queries against references (ref_emb, ref_labels, query_index),"
                f" such as SmoothAPLoss(); got {type(loss).__name__}"
            )
        self.loss, self.size = loss, check_count("size", size)
        self._unit: Tensor | None = None  # the remembered rows scaled to length 1, made once
        self.register_buffer("embeddings", torch.empty(0, 0))
        self.register_buffer("labels", torch.empty(0, dtype=torch.int64))

    @property
    def filled(self) -> int:
        "Embeddings remembered now, from 0 to `size`."
        return len(self.embeddings)

    def reset(self) -> None:
        "Forget everything, for example when the model changed."
        self.embeddings, self.labels, self._unit = self.embeddings.new_empty(0, 0), self.labels.new_empty(0), None

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
        """The loss with the memory appended to the gallery; see `RankingLoss.forward` for the arguments."""
        if (ref_emb is None) != (ref_labels is None):
            raise ValueError("ref_emb and ref_labels belong together: pass both or neither")
        if ref_emb is None and query_index is not None:
            raise ValueError("query_index points into ref_emb: pass ref_emb and ref_labels with it")
        if ref_emb is embeddings and query_index is None and not getattr(self.loss, "include_query", False):
            warn_of_itself()
        hierarchical = getattr(self.loss, "hierarchical", isinstance(labels, Tensor) and labels.ndim == 2)
        embeddings = check_embeddings(embeddings)
        labels = check_labels(labels, embeddings, "labels", hierarchical)
        if ref_emb is None or ref_labels is None:
            gallery, gallery_labels, query_index = (
                embeddings,
                labels,
                torch.arange(len(labels), device=embeddings.device),
            )
        else:
            gallery = check_references(ref_emb, embeddings)
            gallery_labels = check_labels(ref_labels, gallery, "ref_labels", hierarchical)
            check_same_kind(labels, gallery_labels)
        remembered, remembered_labels = self._recall(gallery, gallery_labels)
        if isinstance(self.loss, RankingLoss) and type(self.loss).forward is RankingLoss.forward:
            value = self._rank(embeddings, labels, indices_tuple, ref_emb, ref_labels, query_index, remembered_labels)
        else:
            value = self.loss(
                embeddings,
                labels,
                indices_tuple,
                torch.cat([gallery, remembered]),
                torch.cat([gallery_labels, remembered_labels]),
                query_index=query_index,
            )
        if self.training:
            self._remember(gallery.detach(), gallery_labels, remembered, remembered_labels)
        return value

    def _rank(self, embeddings, labels, indices_tuple, ref_emb, ref_labels, query_index, remembered_labels) -> Tensor:
        """The loss of a plain ranking loss: remembered rows are constants, so they are scaled once and cost one
        product forward and one back."""
        loss = cast(RankingLoss, self.loss)  # `forward` has looked
        scores, target = loss.rankings(
            embeddings, labels, indices_tuple, ref_emb, ref_labels, None if ref_emb is None else query_index
        )
        if len(remembered_labels):
            rows = unit_rows(embeddings) if loss.normalize else embeddings
            past = self._unit_rows(scores) if loss.normalize else self.embeddings.to(scores)
            scores = torch.cat([scores, compare_rows(rows, past, normalize=False)], 1)
            target = torch.cat([target, loss.target(labels, remembered_labels)], 1)
        return loss.mean_loss(scores, target)

    def _unit_rows(self, like: Tensor) -> Tensor:
        "The remembered rows, scaled to length 1."
        unit = self._unit
        if unit is None or unit.dtype != like.dtype or unit.device != like.device:
            with torch.no_grad():
                unit = self._unit = unit_rows(self.embeddings.to(like))
        return unit

    def _recall(self, gallery: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        "What is remembered, fit to be appended to `gallery`."
        if not self.filled:
            return gallery.new_empty(0, gallery.shape[1]), labels.new_empty(0, *labels.shape[1:])
        kinds = {(x.shape[1:], x.dtype == torch.bool) for x in (self.labels, labels)}
        if self.embeddings.shape[1] != gallery.shape[1] or len(kinds) > 1:
            kept, new = (
                f"{e.shape[1]} dimensions and labels of shape {('N', *l.shape[1:])}".replace("'", "")
                for e, l in ((self.embeddings, self.labels), (gallery, labels))
            )
            raise ValueError(
                f"the memory holds embeddings of {kept}, this batch has {new}: "
                "call reset() when the model or the labels change"
            )
        return self.embeddings.to(gallery), self.labels.to(labels)

    def _remember(self, gallery: Tensor, labels: Tensor, remembered: Tensor, remembered_labels: Tensor) -> None:
        "Append the newest, drop the oldest."
        keep = max(0, self.size - len(gallery))
        old = slice(max(0, len(remembered) - keep), None)
        if self._unit is not None:
            with torch.no_grad():
                self._unit = torch.cat([self._unit[old], unit_rows(gallery[-self.size :].to(self._unit))])
        self.embeddings = torch.cat([remembered[old], gallery[-self.size :]])
        self.labels = torch.cat([remembered_labels[old], labels[-self.size :]])

    def _load_from_state_dict(self, state_dict, prefix, *args):
        for name in (
            "embeddings",
            "labels",
        ):  # a memory has any length: take that of the stored one, then its newest rows
            stored = state_dict.get(prefix + name)
            if stored is not None:
                setattr(self, name, getattr(self, name).new_empty(stored.shape, dtype=stored.dtype))
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.embeddings, self.labels, self._unit = (
            self.embeddings[-self.size :].clone(),
            self.labels[-self.size :].clone(),
            None,
        )

    def extra_repr(self) -> str:
        return f"size={self.size}, filled={self.filled}"
