"""Metrics by name: which there are, which levels of the labels each one reads, and what fits a ranking."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

METRICS = (
    "mAP", "R@K", "P@K", "MRR", "mAP@R", "mAP@K", "R-precision", "AP@levelL", "H-AP", "ASI", "NDCG", "NDCG@K",
)
GRADED = ("H-AP", "ASI", "NDCG")  # they read every level of the labels
_CUT = re.compile(r"(R|P|mAP|NDCG)@(-?[0-9.]+)")
_LEVEL = re.compile(r"AP@level(-?\d+)")


def split_name(name: str) -> tuple[str, int | None]:
    "A metric's kind and its number: ('R', 10) of R@10, ('AP', 2) of AP@level2, (name, None) of the others."
    if cut := _CUT.fullmatch(name):
        return cut[1], int(cut[2])
    if level := _LEVEL.fullmatch(name):
        return "AP", int(level[1])
    return name, None


@dataclass(frozen=True)
class Request:
    "What was asked for: names in order, the levels (1 = coarsest) that they need, and the levels of the labels."

    names: tuple[str, ...]
    levels: tuple[int, ...]
    depth: int

    def level_of(self, name: str) -> int:
        "1-based place, among `levels`, of the level at which a metric calls an item positive."
        kind, number = split_name(name)
        return 1 if kind in GRADED else self.levels.index(number if kind == "AP" else self.depth) + 1


def _levels_needed(name, depth: int, gallery_size: int) -> set[int]:
    "The levels that one metric reads; a name or number that does not fit is refused."
    every = set(range(1, depth + 1))
    if cut := _CUT.fullmatch(str(name)):
        if not re.fullmatch(r"[0-9]+", cut[2]) or int(cut[2]) == 0:
            raise ValueError(f"{name}: K must be a whole number from 1 on, got {cut[2]}")
        if int(cut[2]) > gallery_size:
            raise ValueError(
                f"{name} asks for more images than a ranking has: the gallery holds {gallery_size} beside the query"
            )
        return every if cut[1] in GRADED else {depth}
    if level := _LEVEL.fullmatch(str(name)):
        if int(level[1]) not in every:
            raise ValueError(f"{name}: the labels have {depth} level(s), numbered from 1 (coarsest)")
        return {int(level[1])}
    if name in GRADED:
        return every
    if name in ("mAP", "MRR", "mAP@R", "R-precision"):
        return {depth}
    known = {m.lower(): m for m in METRICS} | {"r@1": "R@1", "p@1": "P@1", "ap@level1": "AP@level1", "map": "mAP"}
    close = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
    near = f"; the nearest is {known[close[0]]!r}" if close else ""
    raise ValueError(f"no metric {name!r}{near}. Known: {', '.join(METRICS)} (K and L are numbers)")


def as_names(metrics) -> tuple[str, ...]:
    "Names from one or several; what comes twice counts once."
    if not isinstance(metrics, (str, list, tuple, set, frozenset)):
        raise TypeError(f"metrics must be a name, or a list of names, got {metrics!r}")
    return (metrics,) if isinstance(metrics, str) else tuple(dict.fromkeys(metrics))


def read_names(metrics, depth: int, gallery_size: int) -> Request:
    """Read a tuple of metric names, or a single one.

    Args:
        metrics: names; what comes twice counts once.
        depth: levels of the labels.
        gallery_size: images in a ranking, the query not counted.

    Returns:
        a `Request`.

    Raises:
        ValueError: no name, an unknown one (the nearest is named), a number that does not fit.
    """
    names = as_names(metrics)
    if not names:
        raise ValueError(f"metrics is empty: name at least one of {', '.join(METRICS)}")
    levels = set().union(*(_levels_needed(name, depth, gallery_size) for name in names))
    return Request(names, tuple(sorted(levels)), depth)
