"""What a comparison of runs allows to be said: paired differences, intervals, and one rule for verdicts.

Two methods are compared run by run: the same start, batches and draws, on the same pretext network. Their difference
has two independent sources of chance, and both widen the interval: other runs (seed, network), and other test
characters. A difference smaller than `SMALLEST`, fixed before the first run, does not count.

The promises, which simulations in the tests hold the rule to: over all claims of a paper, the chance of one wrong
"holds" or "contradicted" is at most `alpha`, and so is that of one wrong "equivalent".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = [
    "SMALLEST",
    "VERDICTS",
    "Paired",
    "Decision",
    "t_tail",
    "t_quantile",
    "character_error",
    "paired_difference",
    "holm",
    "decide_claims",
    "power",
    "networks_needed",
]

SMALLEST = 0.005  # difference of a metric in [0, 1] that counts
VERDICTS = ("holds", "contradicted", "equivalent", "undecided")
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


@dataclass(frozen=True)
class Paired:
    "A paired difference of two methods in one metric, with what it rests on."

    mean: float
    error: float  # standard error, of runs and characters together
    df: float  # degrees of freedom (Welch, Satterthwaite)
    runs: int
    run_error: float  # the part of other runs
    character_error: float  # the part of other test characters
    networks: int = 0  # that the runs stand on

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        "Where the true difference lies in `level` of all such studies."
        half = t_quantile((1 + level) / 2, self.df) * self.error
        return self.mean - half, self.mean + half

    def p_above(self, value: float = 0.0) -> float:
        "One-sided: how often so large a difference comes where the true one is `value` or less."
        if self.error == 0:
            return 0.0 if self.mean > value else 1.0
        return t_tail((self.mean - value) / self.error, self.df)

    def p_below(self, value: float = 0.0) -> float:
        "One-sided: how often so small a difference comes where the true one is `value` or more."
        if self.error == 0:
            return 0.0 if self.mean < value else 1.0
        return t_tail((value - self.mean) / self.error, self.df)


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


def paired_difference(
    gaps: Sequence[float], networks: Sequence[int] | None = None, characters: float = 0.0, classes: int = 1000
) -> Paired:
    """The mean of paired differences, and how far it is from the one of all networks, runs and characters.

    The networks' means are the sample: runs on one network share its halving and its weights, and many of them say no
    more about other networks than one. So n runs on six networks have about five degrees of freedom, however large n.

    Args:
        gaps: a difference for each pair of runs, at least 2.
        networks: which pretext network each pair stands on; left out, each pair stands on its own.
        characters: standard error that the choice of test characters gives, see `character_error`.
        classes: test characters, for the degrees of freedom.

    Raises:
        ValueError: fewer than two pairs, a single network, a value that is not finite, lengths that differ.
    """
    values = np.asarray(gaps, float)
    known = np.arange(len(values)) if networks is None else np.asarray(networks)
    if not np.isfinite(values).all() or len(known) != len(values) or len(np.unique(known)) < 2:
        raise ValueError("a paired difference needs finite values, a network for each, and two networks or more")
    means = np.array([values[known == k].mean() for k in np.unique(known)])
    runs, df = means.var(ddof=1) / len(means), len(means) - 1.0
    total = runs + characters**2
    freedom = total**2 / (runs**2 / df + characters**4 / max(1, classes - 1)) if total > 0 else df
    freedom = min(freedom, 1.2 * df)  # Welch's own is too bold in the far tails that Holm asks for (up to .08 for .05)
    errors = math.sqrt(total), float(freedom), len(values), math.sqrt(runs), float(characters)
    return Paired(float(means.mean()), *errors, networks=len(means))


def holm(p: Sequence[float]) -> list[float]:
    "Holm's adjusted p values: claims with one at most alpha are wrong together in at most alpha of all studies."
    order, adjusted, running = np.argsort(p), [0.0] * len(p), 0.0
    for place, i in enumerate(order):
        running = max(running, min(1.0, (len(p) - place) * p[i]))
        adjusted[i] = running
    return adjusted


@dataclass(frozen=True)
class Decision:
    "A verdict, with the p values behind it (adjusted over the claims of its paper)."

    verdict: str  # of VERDICTS
    p_direction: float  # of "holds" or "contradicted", whichever is nearer
    p_equivalent: float


def decide_claims(claims: Sequence[dict], alpha: float = 0.05, smallest: float = SMALLEST) -> list[Decision]:
    """Verdicts on the claims of one paper.

    A claim says that each of its pairs has a positive difference. "holds": all are above 0. "contradicted": at least
    one is below 0 (Bonferroni over the pairs). "equivalent": all lie within `smallest` of 0, whatever their sign.
    "undecided": none of these.

    Args:
        claims: dicts with `pairs`, a list of `Paired`, and, where the claim is that something costs little, `cost`: it
            holds above -cost, is contradicted below, and is never "equivalent".
        alpha: chance of a wrong verdict, over all claims together, for directions and for equivalences.
        smallest: difference that counts.

    Returns:
        a `Decision` for each claim, in their order.
    """
    up, down, same = [], [], []
    for claim in claims:
        pairs, line = claim["pairs"], -(claim.get("cost") or 0.0)
        up.append(max(pair.p_above(line) for pair in pairs))
        down.append(min(1.0, len(pairs) * min(pair.p_below(line) for pair in pairs)))
        same.append(
            1.0 if claim.get("cost") else max(max(pair.p_above(-smallest), pair.p_below(smallest)) for pair in pairs)
        )
    direction = holm([min(1.0, 2 * min(u, d)) for u, d in zip(up, down)])
    equivalent = holm(same)
    verdicts = []
    for u, d, way, tie in zip(up, down, direction, equivalent):
        found = ("holds" if u < d else "contradicted") if way <= alpha else "undecided"
        verdicts.append(Decision("equivalent" if tie <= alpha else found, way, tie))
    return verdicts


def power(
    difference: float,
    networks: int,
    runs: int,
    spreads: tuple[float, float, float],
    claims: int = 1,
    studies: int = 2000,
    alpha: float = 0.05,
    seed: int = 0,
) -> float:
    """Share of simulated studies in which a true difference is found, Holm's hardest case: all other claims are ties.

    Args:
        difference: the true one.
        networks: pretext networks.
        runs: pairs of runs on each.
        spreads: standard deviations of a paired difference: from network to network, from run to run on one network,
            and the standard error that test characters give.
        claims: of the paper.
        studies: simulated ones.
        alpha: see `decide_claims`.
        seed: of the simulation.
    """
    rng = np.random.default_rng(seed)
    between, within, characters = spreads
    means = difference + rng.normal(0, math.hypot(between, within / math.sqrt(runs)), (studies, networks))
    means += rng.normal(0, characters, (studies, 1))
    found = sum(2 * paired_difference(row, characters=characters).p_above() * claims <= alpha for row in means)
    return found / studies


def networks_needed(
    difference: float,
    runs: int,
    spreads: tuple[float, float, float],
    claims: int = 1,
    wanted: float = 0.8,
    most: int = 30,
) -> int | None:
    "The fewest networks, from 3 on, that find a true difference with the wanted power; None where `most` do not."
    found = (k for k in range(3, most + 1) if power(difference, k, runs, spreads, claims, studies=500) >= wanted)
    return next(found, None)
