"""Whether one kernel works out the closed form of Smooth-AP: on a CUDA device where Triton runs (`smooth_triton`)."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

use_triton = True  # looked up at every call; False takes the operations of PyTorch everywhere
_FEW, _LONG = 64, 4096  # queries; candidates: few rows that are long keep too few processors of a card busy


def by_kernel(scores: Tensor, relevance: Tensor, tau: float, gradient: bool) -> tuple[Tensor, Tensor] | None:
    """What `closed_form` returns, from one kernel that waits for nothing; None where there is no such kernel for these
    scores: on a CPU, under torch.compile, without Triton, where Triton finds no compiler.
    """
    global use_triton
    if not (use_triton and scores.is_cuda) or torch.compiler.is_compiling():
        return None
    if scores.dtype not in (torch.float32, torch.float64) or len(scores) < _FEW and scores.shape[1] > _LONG:
        return None
    try:
        from .smooth_triton import fused_closed_form  # here, since importing Triton takes a while

        return fused_closed_form(scores, relevance, tau, gradient)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # Triton builds its launcher with the machine's C compiler, which may not be there
        use_triton = False
        if not isinstance(error, ImportError):
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(f"Smooth-AP goes on without its Triton kernel, which is faster. {reason}")
        return None
