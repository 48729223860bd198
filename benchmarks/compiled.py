"The inner loop of Smooth-AP as a numba kernel: the road not taken, kept so that the choice can be measured again."

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor


@njit(fastmath=True, error_model="numpy")
def _kernel(scores, relevance, tau, values, push):
    queries, gallery = scores.shape
    scale = np.float32(1 / tau)
    bits = np.empty(gallery, np.int32)
    power, ahead = bits.view(np.float32), np.empty(gallery, np.float32)
    for q in range(queries):
        row, positives = scores[q], np.flatnonzero(relevance[q])
        total = np.float32(0)
        for i in positives:
            mine = row[i]
            # sigmoid(x) = 1 / (1 + 2^n e^f): a power of two by its bits, a polynomial for the rest, in loops that
            # vectorise
            for j in range(gallery):
                x = min(np.float32(87), max(np.float32(-87), (mine - row[j]) * scale))
                n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
                f = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
                ahead[j] = (
                    (
                        (
                            ((np.float32(1.3888889e-3) * f + np.float32(8.3333333e-3)) * f + np.float32(4.1666667e-2))
                            * f
                            + np.float32(0.16666667)
                        )
                        * f
                        + np.float32(0.5)
                    )
                    * f
                    + np.float32(1)
                ) * f + np.float32(1)
                bits[j] = (np.int32(n) + np.int32(127)) << np.int32(23)
            for j in range(gallery):
                ahead[j] = np.float32(1) / (np.float32(1) + ahead[j] * power[j])
            among = np.float32(1)
            for j in positives:
                if j != i:
                    among += ahead[j]
            everybody = np.float32(0.5)
            for j in range(gallery):
                everybody += ahead[j]
            before = everybody - among
            total += among / everybody
            common = scale / (len(positives) * everybody * everybody)
            on_itself, weight = np.float32(0), -common * among
            for j in range(gallery):
                slope = ahead[j] - ahead[j] * ahead[j]
                push[q, j] += weight * slope
                on_itself += weight * slope
            for j in positives:  # positives had the weight of negatives above: mend it
                slope = ahead[j] - ahead[j] * ahead[j]
                change = common * before * slope - weight * slope
                push[q, j] += change
                on_itself += change
            push[q, i] -= on_itself
        values[q] = total / len(positives) if len(positives) else np.nan


def closed_form(scores: Tensor, relevance: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    "Smooth-AP and its gradient by the scores, float32 on one CPU thread."
    values, push = torch.empty(len(scores)), torch.zeros_like(scores)
    _kernel(scores.numpy(), relevance.numpy(), tau, values.numpy(), push.numpy())
    return values, push
