"""What autograd is told where a loss works its own gradient out: once, for all losses."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor


def value_with_gradient(compute: Callable, scores: Tensor, *settings, name: str, lesson: str) -> Tensor:
    """The values of `compute`, whose gradient is the one that `compute` found on its way.

    Args:
        compute: called as ``compute(scores, *settings, gradient)``; returns the values (Q,) and, where the bool
            `gradient` asks for it, the derivative of each value by its row of scores (Q, G), otherwise anything.
        scores: (Q, G). The derivative is asked for only where autograd will want it.
        settings: what else `compute` takes: tensors without gradient, numbers.
        name: what the function is called in the message of a second derivative.
        lesson: the number of the lesson that has it in plain torch operations.

    Returns:
        (Q,) values. Backward is one product with the stored (Q, G); it may run twice (`retain_graph`), a second
            derivative is an error.
    """
    if torch.is_grad_enabled() and scores.requires_grad:
        return _ValueWithGradient.apply(scores, compute, settings, (name, lesson))[0]
    return compute(scores, *settings, False)[0]


def first_only(pushed: Tensor, tie: Tensor, name: str, lesson: str) -> Tensor:
    """A gradient as a `backward` returns it. Under create_graph=True, to differentiate it again is an error and no
    silent zero.

    Args:
        pushed: the gradient.
        tie: a saved output or input of the function, which ties the result to the graph.
        name, lesson: as in `value_with_gradient`.
    """
    return _FirstOnly.apply(pushed, tie, name, lesson) if torch.is_grad_enabled() else pushed


class _ValueWithGradient(torch.autograd.Function):
    @staticmethod
    def forward(scores: Tensor, compute: Callable, settings: tuple, words: tuple):
        return compute(scores, *settings, True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.words = inputs[3]
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # or autograd would make a (Q, G) of zeros for the push
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx, gradient: Tensor | None, _):
        values, push = ctx.saved_tensors
        pushed = None if gradient is None else first_only(gradient[:, None] * push, values, *ctx.words)
        return pushed, None, None, None


class _FirstOnly(torch.autograd.Function):
    @staticmethod
    def forward(pushed: Tensor, tie: Tensor, name: str, lesson: str) -> Tensor:
        return pushed.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.words = inputs[2:]

    @staticmethod
    def backward(ctx, _):
        name, lesson = ctx.words
        raise RuntimeError(
            f"{name} is given with its first derivative only: this graph asks for the second (create_graph=True). "
            f"Write the formula of lesson {lesson} with plain torch operations where a Hessian is needed"
        )
