"""From rows to verdicts: who is admitted, paired differences of runs, claims decided paper by paper."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .conduct import character_values, unpack
from .statistics import character_error
from .verdicts import Decision, Paired, decide_claims, paired_difference

__all__ = [
    "Admission",
    "ClaimVerdict",
    "admission",
    "images_of",
    "runs_of_point",
    "difference_of",
    "verdicts_of",
    "power",
    "networks_needed",
    "power_of",
]

NOT_TRAINED, NOT_RUN = "not trained well enough here", "not run"


@dataclass(frozen=True)
class Admission:
    "Whether a method is trained well enough to be compared, on validation characters."

    method: str
    admitted: bool
    gain: float  # of its metric over the features without a head
    longer: float  # what twice the steps add


@dataclass(frozen=True)
class ClaimVerdict:
    "What became of a claim."

    claim: dict
    verdict: str  # of statistics.VERDICTS, "not trained well enough here" or "not run"
    pairs: tuple[tuple[str, str, Paired], ...]  # (better, worse, their difference)
    decision: Decision | None


def _mean(rows: list[dict], metric: str) -> float:
    return float(np.mean([row["values"].get(metric, np.nan) for row in rows])) if rows else float("nan")


def admission(plan: dict, rows: dict, method: str) -> Admission:
    """Is a method admitted: does it beat the features without a head, and do twice the steps add little?

    Args:
        plan: of `read_plan`.
        rows: by name.
        method: of the plan.
    """
    metric, prefix = plan["methods"][method].get("select", "mAP"), f"tune/{method}/"
    longer = [row for name, row in rows.items() if name.startswith(f"length/{method}/")]
    settings = longer[0]["settings"] if longer else None
    tuned = [row for name, row in rows.items() if name.startswith(prefix) and row["settings"] == settings]
    start = [rows["start/net0/val"]] if "start/net0/val" in rows else []
    gain, more = (_mean(a, metric) - _mean(b, metric) for a, b in ((tuned, start), (longer, tuned)))
    return Admission(method, bool(gain > 0 and more < plan["track-f"]["levelled"]), gain, more)


def images_of(rows: dict) -> np.ndarray:
    "(C,) pictures of each test character, as the rows of the start have them; empty where none is there yet."
    found = [row["images"] for name, row in rows.items() if name.startswith("start/") and "images" in row]
    return unpack(found[0]) if found else np.zeros(0, np.uint8)


def runs_of_point(rows: dict, point: str) -> dict[tuple[int, int], dict]:
    "Test runs of a point, main/METHOD or ABLATION/LABEL=VALUE, by (network, seed)."
    return {
        (row["network"], row["seed"]): row
        for name, row in rows.items()
        if name.startswith(f"{point}/net") and row.get("values")
    }


def difference_of(rows: dict, better: str, worse: str, metric: str, images: np.ndarray) -> Paired | None:
    """The paired difference of two points; None where they share fewer than two networks.

    Args:
        rows: by name.
        better, worse: points, see `runs_of_point`.
        metric: of the rows.
        images: (C,) pictures of each test character, in the order of their labels.
    """
    high, low = runs_of_point(rows, better), runs_of_point(rows, worse)
    shared = sorted(set(high) & set(low))
    if len({network for network, _ in shared}) < 2 or not len(images):
        return None
    gaps = [high[k]["values"][metric] - low[k]["values"][metric] for k in shared]
    each = np.mean([character_values(high[k], metric) - character_values(low[k], metric) for k in shared], axis=0)
    return paired_difference(gaps, [k[0] for k in shared], character_error(each, images), len(images))


def _steps(claim: dict) -> list[tuple[str, str]]:
    "The pairs that a claim speaks of."
    listed = [[step] if isinstance(step, str) else step for step in claim["order"]]
    return [(a, b) for high, low in zip(listed, listed[1:]) for a in high for b in low]


def _missing(plan: dict, rows: dict, point: str) -> int | None:
    "How many runs of a point are still to be done; None where the plan has no such point."
    family, name = point.split("/", 1)
    seeds = len(plan["track-f"]["seeds"]) if family == "main" else 1
    if name not in plan["methods"] if family == "main" else family not in plan["ablations"]:
        return None
    return plan["networks"]["count"] * seeds - sum(key.startswith(f"{point}/net") for key in rows)


def verdicts_of(plan: dict, rows: dict, images: np.ndarray) -> list[ClaimVerdict]:
    """Every claim of the plan, decided; Holm over the claims of a paper.

    The claims of a paper are decided together, when all their runs are there: whoever looks earlier, and stops when he
    likes what he sees, breaks the promise of the rule. Claims about what the plan leaves out, and about methods that
    are not admitted, do not count.

    Args:
        plan: of `read_plan`.
        rows: of all tracks, by name.
        images: (C,) pictures of each test character, in the order of their labels.
    """
    out: dict[int, ClaimVerdict] = {}
    papers: dict[str, list[tuple[int, dict, tuple]]] = {}
    waiting = set()
    for number, claim in enumerate(plan["claims"]):
        steps, paper = _steps(claim), claim["source"].split(",")[0]
        missing = [_missing(plan, rows, p) for step in steps for p in step]
        pairs = tuple((a, b, difference_of(rows, a, b, claim["metric"], images)) for a, b in steps)
        there = tuple((a, b, pair) for a, b, pair in pairs if pair is not None)
        methods = {p.removeprefix("main/") for step in steps for p in step if p.startswith("main/")}
        if None in missing or any(missing) or len(there) < len(pairs):
            waiting |= set() if None in missing else {paper}
            out[number] = ClaimVerdict(claim, NOT_RUN, there, None)
        elif not all(admission(plan, rows, m).admitted for m in methods):
            out[number] = ClaimVerdict(claim, NOT_TRAINED, there, None)
        else:
            papers.setdefault(paper, []).append((number, claim, there))
    for paper, listed in papers.items():
        if paper in waiting:
            out |= {number: ClaimVerdict(claim, NOT_RUN, pairs, None) for number, claim, pairs in listed}
            continue
        asked = [{"pairs": [p for _, _, p in pairs], "cost": claim.get("cost")} for _, claim, pairs in listed]
        found = decide_claims(asked, plan["plan"]["alpha"], plan["plan"]["smallest"])
        for (number, claim, pairs), decision in zip(listed, found):
            out[number] = ClaimVerdict(claim, decision.verdict, pairs, decision)
    return [out[number] for number in sorted(out)]


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


def power_of(plan: dict) -> dict:
    """What the plan can find before its first run: the power for twice the smallest difference, with the spreads that
    it expects; alone and as one of the most claims of a paper.

    Returns:
        `alone`, `among_all`: shares; `claims`: of the paper that has most; `networks`: that a power of .8 among all
        claims needs, None for more than 30.
    """
    counts: dict[str, int] = {}
    for claim in plan["claims"]:
        paper = claim["source"].split(",")[0]
        counts[paper] = counts.get(paper, 0) + 1
    most, seeds = max(counts.values()), len(plan["track-f"]["seeds"])
    twice, spreads = 2 * plan["plan"]["smallest"], tuple(plan["plan"]["spreads"])
    given = (twice, plan["networks"]["count"], seeds, spreads)
    alone, among = power(*given, studies=1000), power(*given, claims=most, studies=1000)
    needed = networks_needed(twice, seeds, spreads, most)
    return {"alone": alone, "among_all": among, "claims": most, "networks": needed}
