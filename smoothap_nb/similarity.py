"""Similarity of embeddings: cosine scores in float32 or float64, with a backward that costs one product less than
autograd's.

Lesson 04 derives the backward of a row of length 1, lesson 04b the product's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .checks import check_embeddings, check_references

_BLOCK = (1 << 20, 1 << 26)  # numbers in a block of the backward: on a CPU, on a GPU


def cosine_scores(embeddings: Tensor, ref_emb: Tensor | None = None, normalize: bool = True) -> Tensor:
    """Similarity of each embedding to each reference (Smooth-AP, Eq. 1), in float32 with autocast off; float64 stays
    float64.

    Args:
        embeddings: (Q, D).
        ref_emb: (G, D); the embeddings themselves when left out.
        normalize: scale every row to length 1 first; without it the scores are raw dot products.

    Returns:
        (Q, G) scores, in [-1, 1] where `normalize`. A row of zeros has no direction: it scores 0 with everything
            and gets no gradient.

    Raises:
        TypeError, ValueError: embeddings that do not fit each other, NaN or infinity.
    """
    embeddings = check_embeddings(embeddings)
    return compare_rows(embeddings, embeddings if ref_emb is None else check_references(ref_emb, embeddings), normalize)


def compare_rows(embeddings: Tensor, ref_emb: Tensor, normalize: bool, leave_out: bool = False) -> Tensor:
    "`cosine_scores` without checks. `leave_out` (where ref_emb is embeddings): each row's own score is -inf."
    with torch.autocast(embeddings.device.type, enabled=False):
        rows = unit_rows(embeddings) if normalize else embeddings
        if ref_emb is embeddings:
            return SelfScores.apply(rows, leave_out)
        return rows @ (unit_rows(ref_emb) if normalize else ref_emb).T


class SelfScores(torch.autograd.Function):
    """X @ X.T with one product in its backward, (G + G.T) @ X, where autograd takes two; lesson 04b derives it.

    With `leave_out` the diagonal is -inf and gets no gradient: each row is absent from its own ranking.
    """

    @staticmethod
    def forward(rows: Tensor, leave_out: bool) -> Tensor:
        scores = rows @ rows.T
        return scores.fill_diagonal_(-torch.inf) if leave_out else scores

    @staticmethod
    def setup_context(ctx, inputs, output):
        rows, ctx.leave_out = inputs
        ctx.save_for_backward(rows)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        (rows,) = ctx.saved_tensors
        with torch.autocast(rows.device.type, enabled=False):
            if torch.is_grad_enabled():  # create_graph: every step must be one that autograd can follow
                both = gradient + gradient.T
                return (both - both.diag().diag() if ctx.leave_out else both) @ rows, None
            out, high = torch.empty_like(rows), max(64, _BLOCK[rows.device.type != "cpu"] // max(1, len(rows)))
            for start in range(0, len(rows), high):  # in blocks, so that G + G.T is never held whole
                columns = gradient[:, start : start + high].contiguous()
                both = (
                    torch.empty_like(columns.T, memory_format=torch.contiguous_format)
                    .copy_(columns.T)
                    .add_(gradient[start : start + high])
                )
                if ctx.leave_out:
                    both.diagonal(start).zero_()
                torch.mm(both, rows, out=out[start : start + high])
        return out, None


class UnitRows(torch.autograd.Function):
    """Rows scaled to length 1; backward (I - u u^T) g / length, see lesson 04. F.normalize sends 1e12 g into a row of
    zeros, here it stays put.

    A row is first scaled by a power of two, which costs no digit, so that squares neither overflow (entries of 1e19
    do) nor vanish.
    """

    @staticmethod
    def scaled(rows: Tensor) -> tuple[Tensor, Tensor]:
        "Rows whose largest entry lies near 1, and their length (infinite for a row of zeros)."
        largest = rows.abs().amax(1, keepdim=True)  # linalg.vector_norm(ord=inf) takes 15 times as long on a CPU
        limit = 2.0 ** (126 if rows.dtype == torch.float32 else 1022)
        scale = (torch.frexp(largest).mantissa / largest).nan_to_num(1, posinf=limit).clamp(1 / limit, limit)
        rows = rows * scale
        length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        return rows, torch.where(length == 0, torch.inf, length)

    @staticmethod
    def forward(rows: Tensor) -> Tensor:
        rows, length = UnitRows.scaled(rows)
        return rows.div_(length)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        rows, unit = ctx.saved_tensors
        along = (gradient * unit).sum(1, keepdim=True)
        length = (rows * unit).sum(1, keepdim=True)  # |x| = x . u: no square that could overflow or vanish
        return torch.addcmul(gradient, along, unit, value=-1).div_(torch.where(length == 0, torch.inf, length))


unit_rows = UnitRows.apply
