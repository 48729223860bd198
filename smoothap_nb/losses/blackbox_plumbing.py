"""What RaMBO's losses need besides their derivation: checked settings, a drawn margin, a gradient that follows a
weight.
"""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from ..checks import LARGEST, TIES, check_choice, check_positive


def check_settings(lam: float, margin: float, ties: str, eps: float = 0.0) -> None:
    "Refuse settings of RaMBO that are out of range."
    check_positive("lam", lam)
    check_choice("ties", ties, TIES)
    if isinstance(margin, bool) or not isinstance(margin, Real) or not 0 <= margin <= LARGEST:
        raise ValueError(f"margin must be a finite number, 0 or above, got {margin!r}")
    if isinstance(eps, bool) or not isinstance(eps, Real) or not 0 <= eps < 1:
        raise ValueError(f"eps must lie in 0 ... 1, got {eps!r}")


def margin_factors(noise, scores: Tensor, generator: torch.Generator | None) -> Tensor | None:
    "The factors of the margin that were given or asked for; None for the paper's constant margin."
    if noise is True or (noise is None and generator is not None):
        return torch.randn(scores.shape, dtype=scores.dtype, device=scores.device, generator=generator)
    if noise is False or noise is None:
        return None
    if not isinstance(noise, Tensor) or noise.shape != scores.shape:
        raise ValueError(f"noise must be a tensor of the scores' shape {tuple(scores.shape)}, True or None, "
                         f"got {getattr(noise, 'shape', noise)}")
    return noise


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
