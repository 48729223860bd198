"""From rows to verdicts: who is admitted, paired differences of runs, claims decided paper by paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .conduct import character_values
from .statistics import Decision, Paired, character_error, decide_claims, networks_needed, paired_difference, power

__all__ = ["Admission", "ClaimVerdict", "admission", "runs_of_point", "difference_of", "verdicts_of", "power_of"]

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
    if len({network for network, _ in shared}) < 2:
        return None
    gaps = [high[k]["values"][metric] - low[k]["values"][metric] for k in shared]
    each = np.mean([character_values(high[k], metric) - character_values(low[k], metric) for k in shared], axis=0)
    return paired_difference(gaps, [k[0] for k in shared], character_error(each, images), len(images))


def _steps(claim: dict) -> list[tuple[str, str]]:
    "The pairs that a claim speaks of."
    listed = [[step] if isinstance(step, str) else step for step in claim["order"]]
    return [(a, b) for high, low in zip(listed, listed[1:]) for a in high for b in low]


def verdicts_of(plan: dict, rows: dict, images: np.ndarray) -> list[ClaimVerdict]:
    """Every claim of the plan, decided; Holm over the claims of a paper that can be decided.

    Args:
        plan: of `read_plan`.
        rows: of all tracks, by name.
        images: (C,) pictures of each test character, in the order of their labels.
    """
    out: dict[int, ClaimVerdict] = {}
    papers: dict[str, list[tuple[int, dict, tuple]]] = {}
    for number, claim in enumerate(plan["claims"]):
        pairs = tuple((a, b, difference_of(rows, a, b, claim["metric"], images)) for a, b in _steps(claim))
        methods = {p.removeprefix("main/") for a, b, _ in pairs for p in (a, b) if p.startswith("main/")}
        there = tuple((a, b, pair) for a, b, pair in pairs if pair is not None)
        if len(there) < len(pairs):
            out[number] = ClaimVerdict(claim, NOT_RUN, there, None)
        elif not all(admission(plan, rows, m).admitted for m in methods):
            out[number] = ClaimVerdict(claim, NOT_TRAINED, there, None)
        else:
            papers.setdefault(claim["source"].split(",")[0], []).append((number, claim, there))
    for listed in papers.values():
        asked = [{"pairs": [p for _, _, p in pairs], "cost": claim.get("cost")} for _, claim, pairs in listed]
        found = decide_claims(asked, plan["plan"]["alpha"], plan["plan"]["smallest"])
        for (number, claim, pairs), decision in zip(listed, found):
            out[number] = ClaimVerdict(claim, decision.verdict, pairs, decision)
    return [out[number] for number in sorted(out)]


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
