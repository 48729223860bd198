"""Smooth-AP's closed form as one kernel for a CUDA device; lesson 04b derives what it computes, `closed_form` chooses.

Nothing waits for the device and nothing is compacted: a program takes a row of scores and its relevance as they are and
walks along the row. No sum depends on who comes first, so the same input gives the same bits.
"""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportCallIssue=false, reportGeneralTypeIssues=false
# (Triton's functions are read by its own compiler; what their types say holds for nothing that stands in a kernel)

from __future__ import annotations

import ctypes

import torch
import triton
import triton.language as tl
from torch import Tensor

_POSITIVES = 4  # in one walk along the row; a batch usually has three or four of each class
_WARPS = 4


@triton.jit
def _count_positives(scores, relevance, gallery, WIDE: tl.constexpr):
    "How many relevant candidates a row has."
    counts = tl.zeros([WIDE], tl.int32)
    for start in range(0, gallery, WIDE):
        columns = start + tl.arange(0, WIDE)
        relevant = tl.load(relevance + columns, mask=columns < gallery, other=0) != 0
        score = tl.load(scores + columns, mask=(columns < gallery) & relevant, other=float("-inf"))
        counts += (score != float("-inf")).to(tl.int32)  # -inf is absent; a NaN stays, and shows
    return tl.sum(counts, 0)


@triton.jit
def _next_positive(scores, relevance, gallery, after, wanted, WIDE: tl.constexpr):
    "Column of the first positive behind column `after`; `gallery` where there is none, or none is wanted."
    start = tl.where(wanted, (after + 1) // WIDE * WIDE, gallery)
    found = tl.full([], 0, tl.int32) + gallery
    while (start < gallery) & (found == gallery):
        columns = start + tl.arange(0, WIDE)
        fresh = (columns > after) & (columns < gallery)
        relevant = tl.load(relevance + columns, mask=fresh, other=0) != 0
        score = tl.load(scores + columns, mask=fresh & relevant, other=float("-inf"))
        found = tl.min(tl.where(score != float("-inf"), columns, gallery), 0)
        start += WIDE
    return found


@triton.jit
def _compare(scores, relevance, columns, gallery, own, scale):
    "Relevance in these columns, and how far each candidate there is ahead of each of `own`, from 0 to 1."
    kind = tl.load(relevance + columns, mask=columns < gallery, other=0)
    score = tl.load(scores + columns, mask=columns < gallery, other=float("-inf"))
    return kind, 1 / (1 + tl.exp((own - score) * scale))


@triton.jit
def _smooth_ap(
    scores, relevance, values, push, gallery, high, low,
    GRADIENT: tl.constexpr, WIDE: tl.constexpr, POSITIVES: tl.constexpr,
):  # fmt: skip
    """One row: values[row], and push[row] where GRADIENT. A block of positives walks along the row twice, for A and C,
    then for the push. `high + low` is 1 / tau."""
    row = tl.program_id(0).to(tl.int64)
    scores += row * gallery
    relevance += row * gallery
    push += row * gallery
    number = scores.dtype.element_ty

    total = _count_positives(scores, relevance, gallery, WIDE)

    slots = tl.arange(0, POSITIVES)[:, None]
    scale = tl.zeros([POSITIVES, 1], number) + high + low
    precision = tl.zeros([POSITIVES, 1], number)
    last = tl.full([], -1, tl.int32)
    for first in range(0, tl.maximum(total, 1), POSITIVES):
        mine = tl.zeros([POSITIVES, 1], tl.int32)
        for slot in tl.static_range(POSITIVES):
            last = _next_positive(scores, relevance, gallery, last, first + slot < total, WIDE)
            mine = tl.where(slots == slot, last, mine)
        present = first + slots < total
        own = tl.load(scores + mine, mask=present, other=0)

        near = tl.zeros([POSITIVES, WIDE], number)
        far = tl.zeros([POSITIVES, WIDE], number)
        near_slope = tl.zeros([POSITIVES, WIDE], number)
        far_slope = tl.zeros([POSITIVES, WIDE], number)
        for start in range(0, gallery, WIDE):
            columns = start + tl.arange(0, WIDE)[None, :]
            kind, step = _compare(scores, relevance, columns, gallery, own, scale)
            rival = (kind != 0) & (columns != mine)  # nobody competes with itself
            negative = (kind == 0) & (columns < gallery)
            near += tl.where(rival, step, 0)
            far += tl.where(negative, step, 0)
            if GRADIENT:
                slope = step - step * step  # sim, times tau
                near_slope += tl.where(rival, slope, 0)
                far_slope += tl.where(negative, slope, 0)
        A = 1 + tl.sum(near, 1)[:, None]
        C = tl.sum(far, 1)[:, None]
        R = A + C
        precision += tl.where(present, A / R, 0)

        if GRADIENT:
            common = scale / (tl.maximum(total, 1) * R * R)
            itself = common * (A * tl.sum(far_slope, 1)[:, None] - C * tl.sum(near_slope, 1)[:, None])
            for start in range(0, gallery, WIDE):
                columns = start + tl.arange(0, WIDE)[None, :]
                there = columns < gallery
                kind, step = _compare(scores, relevance, columns, gallery, own, scale)
                slope = step - step * step
                moved = slope * tl.where(kind != 0, common * C, -common * A)  # w_ij
                moved = tl.where(columns == mine, itself, moved)
                moved = tl.sum(tl.where(present, moved, 0), 0)[None, :]
                before = tl.load(push + columns, mask=there & (first > 0), other=0)  # of the blocks before this one
                tl.store(push + columns, before + moved, mask=there)
            tl.debug_barrier()  # another thread may read what this one has stored
    value = tl.sum(tl.sum(precision, 1), 0)
    tl.store(values + row, tl.where(total > 0, value / tl.maximum(total, 1), float("nan")))


def fused_closed_form(scores: Tensor, relevance: Tensor, tau: float, gradient: bool) -> tuple[Tensor, Tensor]:
    """`closed_form` of (Q, G) scores in float32 or float64 on a CUDA device, in one launch.

    Sums are taken in the dtype of the scores.
    """
    scores, relevance = scores.contiguous(), relevance.contiguous()
    values = scores.new_empty(len(scores))
    push = torch.empty_like(scores) if gradient else scores.new_empty(0)
    scale = 1 / float(tau)
    high = ctypes.c_float(scale).value  # Triton takes a Python float for a float32: the rest comes behind it
    if scores.numel():
        with torch.cuda.device_of(scores):
            _smooth_ap[(len(scores),)](
                scores, relevance, values, push, scores.shape[1], high, scale - high,
                GRADIENT=gradient, WIDE=2048 // scores.element_size(), POSITIVES=_POSITIVES, num_warps=_WARPS,
            )  # fmt: skip
    return values, push
