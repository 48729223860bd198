"""RaMBO's memory: scores of the last batches, detached, joined to the current ones (lesson 05b: what it buys)."""

from __future__ import annotations

from numbers import Integral

import torch
from torch import Tensor, nn

from ..checks import check_choice


class ScoreMemory(nn.Module):
    """Joins the scores of the last batches to the current ones (RaMBO, section 4.3).

    In evaluation mode it changes nothing and remembers nothing. What it remembers is part of its `state_dict`.

    Args:
        length: how many past batches to keep, 0 or more. Published: 3 for retrieval.
        dim: 0 adds rows, 1 adds columns. Where a row is a query, 0 stacks queries (the authors' recall code) and 1
            extends every list; where a column is a class (`MapLoss`), 0 extends the lists.

    Raises:
        ValueError: a length that is no whole number, another `dim`.
    """

    scores: Tensor  # buffers
    relevance: Tensor
    sizes: Tensor

    def __init__(self, length: int, dim: int = 0):
        super().__init__()
        if isinstance(length, bool) or not isinstance(length, Integral) or length < 0:
            raise ValueError(f"length must be a whole number, 0 or more, got {length!r}")
        self.length, self.dim = int(length), check_choice("dim", dim, (0, 1))
        self.register_buffer("scores", torch.empty(0, 0))
        self.register_buffer("relevance", torch.empty(0, 0, dtype=torch.bool))
        self.register_buffer("sizes", torch.empty(0, dtype=torch.int64))  # of each batch along `dim`, oldest first

    def reset(self) -> None:
        "Forget all past batches."
        self.scores, self.relevance = self.scores.new_empty(0, 0), self.relevance.new_empty(0, 0)
        self.sizes = self.sizes.new_empty(0)

    def forward(self, scores: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
        """The current batch, then the remembered ones, oldest first.

        Args:
            scores: (Q, G) of the current batch.
            relevance: (Q, G) bool.

        Returns:
            longer scores and relevance; only the first Q rows (G columns, for `dim=1`) carry a gradient.

        Raises:
            ValueError: scores that do not line up with the remembered ones.
        """
        if not self.training or self.length == 0:
            return scores, relevance
        past = (scores.new_empty(0), relevance.new_empty(0))  # nothing yet
        if len(self.sizes):
            across = 1 - self.dim
            if self.scores.shape[across] != scores.shape[across]:
                word, held = ("rows", "columns")[self.dim], self.scores.shape[across]
                raise ValueError(f"the memory holds {word} of length {held}, these scores have {scores.shape[across]}: "
                                 "keep the batch size fixed (drop_last=True), or call reset()")
            past = self.scores.to(scores), self.relevance.to(relevance)
        self._remember(scores.detach(), relevance, *past)
        return torch.cat([scores, past[0]], self.dim), torch.cat([relevance, past[1]], self.dim)

    def _remember(self, scores: Tensor, relevance: Tensor, past_scores: Tensor, past_relevance: Tensor) -> None:
        "Append the newest batch; drop the oldest where there are too many."
        sizes = [*self.sizes.tolist(), scores.shape[self.dim]]
        dropped = sum(sizes[:-self.length])
        if sizes[:-1]:
            kept = self.dim, dropped, sum(sizes[:-1]) - dropped
            past_scores, past_relevance = past_scores.narrow(*kept), past_relevance.narrow(*kept)
        self.scores = torch.cat([past_scores, scores], self.dim)
        self.relevance = torch.cat([past_relevance, relevance], self.dim)
        self.sizes = self.sizes.new_tensor(sizes[-self.length:])

    def _load_from_state_dict(self, state_dict, prefix, *args):
        for name in ("scores", "relevance", "sizes"):  # a memory has any size: take that of the stored one
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name], device=getattr(self, name).device))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f"length={self.length}, dim={self.dim}"
