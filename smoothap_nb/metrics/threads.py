"""Rows of a table on all threads that torch uses, for work that lets go of Python's lock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch


def on_threads(work: Callable[[range], None], count: int, step: int = 16) -> None:
    "Call `work` with the numbers 0 ... count - 1, `step` of them at a time; in order, where there is one thread."
    parts = [range(start, min(start + step, count)) for start in range(0, count, step)]
    if torch.get_num_threads() == 1 or len(parts) <= 1:
        for part in parts:
            work(part)
    else:
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(work, parts))
