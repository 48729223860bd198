"""Search by words: pictures that nobody ever named, found by what they look like."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smoothap_nb.checks import check_count, check_references
from smoothap_nb.data.captions import Vocabulary, content_words, name_words
from smoothap_nb.files import write_atomic
from smoothap_nb.retrieval.folders import MARK, check_sheet


@dataclass(frozen=True)
class WordResults:
    """An answer to a search by words.

    Attributes:
        text: as it was asked.
        known, unknown: its words that the vocabulary holds, and those that were ignored.
        rows: K pictures, best first.
        scores: their K cosines.
        names: their K names; empty where pictures have none.
        right: for each whether its name holds all words that say something; empty where pictures have no names.
    """

    text: str
    known: list[str]
    unknown: list[str]
    rows: list[int]
    scores: list[float]
    names: list[str]
    right: list[bool]

    @property
    def note(self) -> str:
        "What was ignored, as a sentence; nothing where all words are known."
        return (
            f"ignored, as the network never learnt them: {', '.join(dict.fromkeys(self.unknown))}"
            if self.unknown
            else ""
        )


@torch.no_grad()
def search_words(
    text: str,
    embed: Callable[[list[str]], Tensor],
    vocabulary: Vocabulary,
    gallery: Tensor,
    names: Sequence[str] = (),
    k: int = 10,
) -> WordResults:
    """The pictures of a gallery that fit a text best.

    Args:
        text: free words; those outside the vocabulary are ignored and named in the result.
        embed: texts to (C, D), such as `TwoTowers.embed_texts`.
        vocabulary: of the same run.
        gallery: (G, D) embeddings of the pictures, rows of length 1, from the same run.
        names: G Unicode names, if the pictures have some.
        k: how many to return, at most G.

    Returns:
        see `WordResults`.

    Raises:
        TypeError: a text that is not a string.
        ValueError: an empty text, one without a known word, names or a gallery that do not fit.
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a string, got {type(text).__name__}")
    if len(names) not in (0, len(gallery)):
        raise ValueError(f"there are {len(names)} names for {len(gallery)} pictures: one each, or none")
    known, unknown = vocabulary.split(text)
    query = embed([text])  # refuses an empty text, and one without a known word
    scores = (query @ check_references(gallery, query).T)[0]
    best = scores.topk(min(check_count("k", k), len(scores)))
    rows = best.indices.tolist()
    asked = content_words(known)
    right = [bool(asked) and asked <= set(name_words(names[i])) for i in rows] if names else []
    return WordResults(
        text, known, unknown, rows, best.values.tolist(), [names[i] for i in rows] if names else [], right
    )


def draw_words(results: Sequence[WordResults], pictures, shown: int = 8):
    """Rankings as rows of pictures, the words on the left: blue and solid where the name holds them all, vermillion
    and dashed where not.

    Args:
        results: one for each row.
        pictures: (G, H, W), uint8 or floating in [0, 1]: the gallery that was searched.
        shown: pictures in a row.

    Returns:
        the figure.
    """
    import matplotlib.pyplot as plt

    from smoothap_nb.show.figures import PALETTE, ranked_row

    shown = min(shown, max(len(r.rows) for r in results))
    fig, axes = plt.subplots(
        len(results),
        shown + 1,
        figsize=(0.8 * shown + 2.6, 1.02 * len(results) + 0.1),
        squeeze=False,
        width_ratios=[2.9, *[1] * shown],
    )
    for line, result in zip(axes, results):
        line[0].axis("off")
        line[0].text(1.0, 0.5, _wrapped(result.text), ha="right", va="center", fontsize=9, transform=line[0].transAxes)
        tiles = [np.asarray(pictures[i]) for i in result.rows[:shown]]
        ranked_row(tiles, result.right or [True] * len(tiles), axes=line[1 : 1 + len(tiles)])
        for ax in line[1 + len(tiles) :]:
            ax.axis("off")
        if not result.right:
            for ax in line[1 : 1 + len(tiles)]:
                for spine in ax.spines.values():
                    spine.set(edgecolor=PALETTE["exact"], linewidth=1)
    return fig


def _wrapped(text: str, width: int = 24) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width)) or text


def write_sheet(results: WordResults, pictures, path: str | Path) -> Path:
    """The ranking as a PNG.

    Args:
        results: of `search_words`.
        pictures: the gallery, (G, H, W).
        path: ends in .png; the file appears whole or not at all.

    Returns:
        the path.

    Raises:
        ValueError: another ending, or a file that is there and is no contact sheet.
    """
    import matplotlib.pyplot as plt

    path = check_sheet(path)
    fig, buffer = draw_words([results], pictures, shown=len(results.rows)), io.BytesIO()
    fig.savefig(buffer, format="png", dpi=110, metadata={"Software": None, "Comment": MARK})
    plt.close(fig)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, buffer.getvalue())
    return path
