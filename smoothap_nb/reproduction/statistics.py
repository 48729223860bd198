"""Student's distribution, and the bootstrap over test characters: what lesson 20 builds its verdicts on."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["t_tail", "t_quantile", "character_error"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


def t_tail(t: float, df: float) -> float:
    """P(T > t) of Student's distribution, t finite, df > 0.

    With T = sqrt(df) tan(u) the density is proportional to cos(u)^(df - 1), smooth on a finite interval.
    """
    if t < 0:
        return 1 - t_tail(-t, df)
    df = min(df, 1e4)  # from there on it is the normal's to five digits
    low = math.atan(t / math.sqrt(df))
    high = min(math.pi / 2, low + 12 / math.sqrt(df))  # beyond, nothing is left that counts
    u = (high - low) / 2 * _NODES + (high + low) / 2
    tail = (high - low) / 2 * float((_WEIGHTS * np.cos(u) ** (df - 1)).sum())
    log_whole = math.lgamma(df / 2) + 0.5 * math.log(math.pi) - math.lgamma((df + 1) / 2)
    return min(1.0, tail / math.exp(log_whole))


def t_quantile(level: float, df: float) -> float:
    "The t with P(T <= t) = level, for 0.5 <= level < 1."
    low, high = 0.0, 1.0
    while t_tail(high, df) > 1 - level:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, df) > 1 - level else (low, middle)
    return high


def character_error(gaps: np.ndarray, images: np.ndarray, draws: int = 400, seed: int = 0) -> float:
    """Standard error of a difference of means over images, by a bootstrap over characters.

    Args:
        gaps: (C,) mean difference of each character's images.
        images: (C,) how many images it has.
        draws: of the bootstrap.
        seed: of the bootstrap.
    """
    gaps, images = np.asarray(gaps, float), np.asarray(images, float)
    if gaps.shape != images.shape or gaps.ndim != 1 or len(gaps) < 2:
        raise ValueError(f"gaps and images must be (C,) with C > 1, got {gaps.shape} and {images.shape}")
    counts = np.random.default_rng(seed).multinomial(len(gaps), np.full(len(gaps), 1 / len(gaps)), size=draws)
    return float(np.std(counts @ (gaps * images) / (counts @ images), ddof=1))
