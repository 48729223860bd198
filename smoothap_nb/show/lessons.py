"""What the lessons of Part I share: one query and its row of four pictures, and errors that are meant to come."""

from __future__ import annotations

from contextlib import contextmanager
from typing import NamedTuple

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from ..data.glyphs import glyph_batch
from .figures import PALETTE, ranked_row, show


class Row(NamedTuple):
    "One query and what was found for it, best first."

    scores: Tensor
    relevance: Tensor
    images: Tensor
    query: Tensor
    names: list[str]
    levels: Tensor


def f_row() -> Row:
    """The running example: a capital F as the query, and four pictures found for it, P N P N, from the glyphs that
    the package carries.

    Returns:
        scores (4,) float32, cosines computed by a small trained network; relevance (4,) bool; images (4, 32, 32) and
        query (32, 32) uint8; names of the four characters; levels (4,), how many of the three levels of its label each
        picture shares with the query.
    """
    batch, query, four = glyph_batch(), 2, [0, 319, 1, 69]
    labels = torch.as_tensor(batch["labels"])
    shared = (labels[four] == labels[query]).int().cumprod(1).sum(1)
    vectors = torch.as_tensor(batch["trained"])
    return Row(
        vectors[four] @ vectors[query],
        labels[four, -1] == labels[query, -1],
        batch["images"][four],
        batch["images"][query],
        [batch["captions"][i] for i in four],
        shared,
    )


def show_row(row: Row, alt: str) -> None:
    "Show a row of pictures with its query, frames and scores."
    ranked_row(row.images, row.relevance, row.scores, query=row.query)
    show(plt.gcf(), alt)


def on_a_line(ax, scores, relevance, xlim) -> None:
    """Draw the pictures of a row as marks at their scores: a disc for a positive, a cross for a negative, numbered as
    in the row."""
    for i, (score, positive) in enumerate(zip(scores.tolist(), relevance.tolist()), start=1):
        ax.plot(
            score,
            0,
            marker="o" if positive else "X",
            markersize=9,
            color=PALETTE["positive" if positive else "negative"],
        )
        ax.annotate(str(i), (score, 0), xytext=(0, 9), textcoords="offset points", ha="center")
    ax.set(xlabel="score", ylabel="the four pictures", yticks=[], xlim=xlim)


@contextmanager
def expect_error():
    "Print the error that the block must raise."
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("the block raised no error")


def glyph_vectors(network: str = "trained") -> tuple[Tensor, Tensor, Tensor]:
    """The batch that the row comes from: 384 pictures, four of each of 96 characters.

    Args:
        network: whose embeddings: "trained" or "untrained".

    Returns:
        images (384, 32, 32), labels (384,) by character, embeddings (384, 128).
    """
    batch = glyph_batch()
    return batch["images"], torch.as_tensor(batch["labels"])[:, -1], torch.as_tensor(batch[network])
