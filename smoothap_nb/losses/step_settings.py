"""The constants of the two surrogate steps of H-AP and SupAP, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..checks import check_choice, check_number, check_positive

__all__ = ["StepSettings"]


@dataclass(frozen=True)
class StepSettings:
    """The constants of both surrogate steps; `rho=None`, the plain sigmoid, stands as rho 0, delta infinity, start 0.

    Args:
        tau, rho, delta, offset, start, ties: of `step_upper`, in score units.
        leak, slope, intercept: of `step_lower`.
        smooth_hrank: whether finer items ahead get the lower step, or the exact one.

    Raises:
        ValueError: a constant out of its range.
    """

    tau: float = 0.01
    rho: float = 100.0
    delta: float = 0.05
    offset: float | None = None
    start: float = 0.5
    leak: float = 10.0
    slope: float = 25.0
    intercept: float = 0.5
    smooth_hrank: bool = True
    ties: str = "average"

    if TYPE_CHECKING:  # rho and delta may come as None; they are kept as numbers

        def __init__(
            self,
            tau: float = ...,
            rho: float | None = ...,
            delta: float | None = ...,
            offset: float | None = ...,
            start: float = ...,
            leak: float = ...,
            slope: float = ...,
            intercept: float = ...,
            smooth_hrank: bool = ...,
            ties: str = ...,
        ) -> None: ...

    def __post_init__(self):
        check_positive("tau", self.tau)
        check_choice("ties", self.ties, ("average", "max"))
        check_number("leak", self.leak, 0)
        check_number("slope", self.slope, 0)
        check_number("intercept", self.intercept)
        check_number("start", self.start)
        if self.rho is None:
            self.__dict__.update(rho=0.0, delta=math.inf, offset=None, start=0.0)
        elif self.delta is None:
            self.__dict__.update(delta=0.0)
        check_number("rho", self.rho, 0)
        if self.offset is not None:
            check_number("offset", self.offset)
        if not (self.rho == 0 and self.delta == math.inf):
            check_number("delta", self.delta, 0)

    @cached_property
    def edge(self) -> float:
        "What the upper step reaches at delta."
        return 1 / (1 + math.exp(-self.delta / self.tau)) + self.start

    @cached_property
    def jump(self) -> float:
        "What it adds there: 0 unless `offset` says otherwise."
        return 0.0 if self.offset is None else self.offset - self.edge
