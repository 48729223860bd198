"""A gradient in proportion to the weight of its loss, where a backward rule is not linear (RaMBO's; see lesson 05)."""

from __future__ import annotations

import torch
from torch import Tensor


class ScaleIn(torch.autograd.Function):
    "Passes scores in; multiplies their gradient by the factor that `ScaleOut` took from it."

    @staticmethod
    def forward(ctx, scores, box):
        ctx.box = box
        return scores.view_as(scores)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.box["factor"].to(grad.dtype), None


class ScaleOut(torch.autograd.Function):
    "Passes losses out; scales what comes back so that its sum is 1."

    @staticmethod
    def forward(ctx, losses, box):
        ctx.box = box
        return losses.view_as(losses)

    @staticmethod
    def backward(ctx, grad):
        factor = grad.sum()
        ctx.box["factor"] = factor
        return grad / torch.where(factor == 0, torch.ones_like(factor), factor), None


def scale_with_weight(losses, scores: Tensor) -> Tensor:
    "`losses(scores)` whose gradient is proportional to the weight given to the loss, as every other loss has it."
    box: dict = {}
    return ScaleOut.apply(losses(ScaleIn.apply(scores, box)), box)
