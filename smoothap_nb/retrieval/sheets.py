"""A search as one picture: the query, its answers in order, rank and score."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..checks import check_count
from ..files import write_atomic
from ..images import PhotoError
from ..show.figures import PALETTE, STYLE
from .folders import MARK, check_sheet, query_picture

__all__ = ["Result", "contact_sheet", "draw_sheet"]


class Result(NamedTuple):
    "One answer: a picture and its similarity to the query."

    path: Path
    score: float

    @property
    def caption(self) -> str:
        "What a contact sheet says of it."
        return f"{self.score:.3f}"


def contact_sheet(query, results: Sequence[Result], path, columns: int = 5) -> Path:
    """Write the query and its answers as one PNG, with rank, score and file name.

    Args:
        query: path of a picture, or a `PIL.Image.Image`.
        results: what `search` or `search_local` gives, best first.
        path: the file to write, ending in .png; its folder is made where it does not exist. The file appears whole or
            not at all.
        columns: answers per row.

    Returns:
        the path written.

    Raises:
        ValueError: no results, another ending than .png, a file that is there and is no contact sheet.
    """
    path = check_sheet(path)
    if not results:
        raise ValueError("there are no results to show")
    figure = draw_sheet(query, results, columns)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a file name in a script that the font lacks
        figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None, "Comment": MARK})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, buffer.getvalue())
    return path


def draw_sheet(query, results: Sequence[Result], columns: int = 5, side: int = 220):
    "The figure of `contact_sheet`; thumbnails are at most `side` pixels."
    import matplotlib as mpl
    from matplotlib.figure import Figure

    columns = min(check_count("columns", columns), len(results))
    rows = -(-len(results) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(1.55 * (columns + 1), 1.75 * rows), layout="constrained")
        axes = figure.subplots(rows, columns + 1, squeeze=False)
        for ax in axes.flat:
            ax.set_axis_off()
        frame(axes[0, 0], query, "query", PALETTE["query"], "", side)
        for place, result in enumerate(results):
            frame(
                axes[place // columns, 1 + place % columns],
                result.path,
                f"{place + 1}:  {result.caption}",
                PALETTE["exact"],
                result.path.name,
                side,
            )
    return figure


def frame(ax, picture, title: str, colour: str, name: str, side: int) -> None:
    ax.set_axis_on()
    ax.grid(False)
    try:
        thumbnail = query_picture(picture).copy()
    except (PhotoError, OSError):  # it may have vanished since it was found
        ax.text(0.5, 0.5, "gone", ha="center", va="center", transform=ax.transAxes)
    else:
        thumbnail.thumbnail((side, side))
        ax.imshow(np.asarray(thumbnail))
    ax.set(xticks=[], yticks=[])
    ax.set_title(title, loc="center", fontsize=8)
    ax.set_xlabel(name if len(name) <= 24 else f"{name[:12]}…{name[-10:]}", fontsize=7, parse_math=False)
    for spine in ax.spines.values():
        spine.set(visible=True, edgecolor=colour, linewidth=2.5)
