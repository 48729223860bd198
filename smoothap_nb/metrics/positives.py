"""Where each query's positives stand in the gallery, and their ranks.

A rank is a count. Where a query has few positives, the scores at or above each one are counted; where it has many, its
row is sorted once, as bare values. No negative is touched after that: levels and ranks of the positives are enough.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from smoothap_nb.checks import check_choice
from smoothap_nb.metrics.threads import on_threads
from smoothap_nb.ranking import sort_rows
from smoothap_nb.metrics.from_ranks import rank_by_rule

FEW = 128  # positives of a query up to which counting is quicker than a sort of its row


def class_paths(labels: np.ndarray, levels: tuple[int, ...]) -> list[np.ndarray]:
    "A number for each image's class at each of the levels, the way from the root included, in the order of the tree."
    path, found = np.zeros(len(labels), np.int64), []
    for column in range(max(levels)):
        _, value = np.unique(labels[:, column], return_inverse=True)
        _, path = np.unique(path * (value.max() + 1) + value.ravel(), return_inverse=True)
        path = path.ravel()
        if column + 1 in levels:
            found.append(path)
    return found


class Classes:
    """Where every query's positives stand.

    `order` (G,) gallery rows sorted by class path; `start`, `stop` (L, Q) the stretch of the query's class at each
    level; `own` (Q,) the query's own row or -1; `counts` (L, Q) positives at each level or finer, without the own row.
    """

    def __init__(self, labels: np.ndarray, gallery_labels: np.ndarray | None, levels: tuple[int, ...], own: np.ndarray):
        everyone = labels if gallery_labels is None else np.concatenate([labels, gallery_labels])
        paths, gallery = class_paths(everyone, levels), slice(0 if gallery_labels is None else len(labels), None)
        self.order = np.argsort(paths[-1][gallery], kind="stable")
        inside = [path[gallery][self.order] for path in paths]
        self.start, self.stop = (
            np.stack([np.searchsorted(held, path[: len(labels)], side) for held, path in zip(inside, paths)])
            for side in ("left", "right"))
        place = np.empty(len(self.order), np.int64)
        place[self.order] = np.arange(len(self.order))
        at = np.where(own >= 0, place[own], -1)
        self.own, self.counts = own, self.stop - self.start - ((self.start <= at) & (at < self.stop))

    def widths(self, queries: np.ndarray) -> np.ndarray:
        "Columns that each of some queries needs in a table of positives."
        return (self.stop[0] - self.start[0])[queries]

    def positives(self, queries: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
        "Gallery rows of the positives of some queries, (B, P) padded, and their levels: 0 for the own row and padding."
        start, stop, own = (torch.from_numpy(x[..., queries]).to(device) for x in (self.start, self.stop, self.own))
        place = start[0][:, None] + torch.arange(max(1, int((stop[0] - start[0]).max())), device=device)
        column = torch.from_numpy(self.order).to(device)[place.clamp(max=len(self.order) - 1)]
        levels = torch.zeros(place.shape, dtype=torch.uint8, device=device)
        for first, end in zip(start, stop):
            levels += (place >= first[:, None]) & (place < end[:, None])
        return column, levels * (column != own[:, None])


class Tags:
    """Who is positive where images bear tags: those that share at least one with the query.

    The same questions as to `Classes`: `own` (Q,) the query's own row or -1, `counts` (1, Q) positives of each query.
    """

    def __init__(self, tags: np.ndarray, gallery_tags: np.ndarray | None, own: np.ndarray):
        self.tags, self.own = torch.from_numpy(tags).float(), own
        self.gallery = self.tags if gallery_tags is None else torch.from_numpy(gallery_tags).float()
        step = max(1, 2**24 // len(self.gallery))
        parts = [np.arange(a, min(a + step, len(own))) for a in range(0, len(own), step)]
        self.counts = np.concatenate([self.shared(part).sum(1).numpy() for part in parts])[None]

    def shared(self, queries: np.ndarray) -> Tensor:
        "(B, G) bool: who shares a tag with some queries, their own rows left out."
        found = self.tags[queries] @ self.gallery.T > 0  # sums of 0 and 1 are exact
        own = torch.from_numpy(self.own[queries])
        found[own >= 0, own[own >= 0]] = False
        return found

    def widths(self, queries: np.ndarray) -> np.ndarray:
        "Columns that each query needs in a table of positives."
        return self.counts[0, queries]

    def positives(self, queries: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
        "Gallery rows of the positives of some queries, (B, P) padded, and their levels: 1, and 0 for padding."
        found = self.shared(queries)
        rows, columns = found.nonzero(as_tuple=True)
        nth = found.cumsum(1)[rows, columns] - 1
        table = torch.zeros(len(queries), max(1, int(found.sum(1).max())), dtype=torch.int64)
        levels = torch.zeros(table.shape, dtype=torch.uint8)
        table[rows, nth], levels[rows, nth] = columns, 1
        return table.to(device), levels.to(device)


def count_above(scores: Tensor, rows: np.ndarray, values: Tensor, strict: bool, compiled: bool) -> Tensor:
    """How many scores of its row each value stands below, or below or level with.

    Args:
        scores: (B, G).
        rows: (R,) which rows of `scores`.
        values: (R, P), falling along each row.
        strict: count larger scores alone, not equal ones.
        compiled: let numba count where values are few.

    Returns:
        (R, P) int64.
    """
    if values.shape[1] <= FEW and compiled:
        from smoothap_nb.metrics.counting import count_at_or_above

        return torch.from_numpy(count_at_or_above(scores.numpy(), rows, values.numpy(), strict))
    if scores.device.type == "cpu":
        return torch.from_numpy(count_by_sorting(scores.numpy(), rows, values.numpy(), strict))
    ordered = scores[torch.from_numpy(rows).to(scores.device)].sort(dim=1).values
    return scores.shape[1] - torch.searchsorted(ordered, values, right=strict)


def count_by_sorting(scores: np.ndarray, rows: np.ndarray, values: np.ndarray, strict: bool) -> np.ndarray:
    "`count_above` for any number of values: each row sorted once, as bare values, on all threads that torch uses."
    side, counts = "right" if strict else "left", np.empty(values.shape, np.int64)

    def work(part: range) -> None:
        for i in part:
            ordered = np.sort(scores[rows[i]])
            counts[i] = len(ordered) - np.searchsorted(ordered, values[i, ::-1], side)[::-1]

    on_threads(work, len(rows))
    return counts


def rank_positives(
    scores: Tensor, rows: np.ndarray, columns: Tensor, levels: Tensor, ties: str, compiled: bool
) -> tuple[Tensor, Tensor]:
    """Levels and ranks of the positives of some rows, best first.

    Of tied positives the coarser stands first, or with `ties="min"` the finer.

    Args:
        scores: (B, G); a query's own score is -inf.
        rows: (R,) which of its rows.
        columns, levels: (R, P) as `Classes.positives` gives them.
        ties: rule; compiled: as in `count_above`.

    Returns:
        levels (R, P) uint8, 0 for padding; ranks (R, P) float64.
    """
    values = scores[torch.from_numpy(rows)[:, None].to(columns.device), columns].masked_fill(levels == 0, -torch.inf)
    order = sort_rows(-values)[1]
    values, levels = values.gather(1, order), levels.gather(1, order)
    ahead = count_above(scores, rows, values, ties != "max", compiled)  # "max" and "min" ask for one count only
    through = count_above(scores, rows, values, False, compiled) if ties == "average" else ahead
    rank = rank_by_rule(ahead, through, ties).masked_fill(levels == 0, torch.inf)
    tied = ((rank[:, 1:] == rank[:, :-1]) & (levels[:, 1:] > 0)).any(1).nonzero()[:, 0]
    if len(tied):  # among equal scores the rule decides
        finer = levels[tied].double() / 1024  # less than the gap between two ranks
        levels[tied] = levels[tied].gather(1, sort_rows(rank[tied] + (-finer if ties == "min" else finer))[1])
    return levels, rank


def pieces(widths: np.ndarray, limit: int) -> Iterator[np.ndarray]:
    "Rows of a block, few positives first, in groups whose padded tables hold at most `limit` entries, or one row."
    order, start = np.argsort(widths, kind="stable"), 0
    while start < len(order):
        entries = np.arange(1, len(order) - start + 1) * np.maximum(widths[order[start:]], 1)
        stop = start + max(1, int(np.searchsorted(entries, limit, side="right")))
        yield order[start:stop]
        start = stop


def may_compile(engine: str, device: torch.device, scores: int) -> bool:
    "Whether numba counts."
    if check_choice("engine", engine, ("auto", "numba", "torch")) == "auto":
        return device.type == "cpu" and scores > 2**21 and importlib.util.find_spec("numba") is not None
    if engine == "numba" and device.type != "cpu":
        raise ValueError(f"engine='numba' computes on a CPU, not on {device}: pass engine='torch', or device='cpu'")
    if engine == "numba" and importlib.util.find_spec("numba") is None:
        raise ImportError("engine='numba' needs numba, which is not installed: pip install numba, or leave engine out")
    return engine == "numba"
