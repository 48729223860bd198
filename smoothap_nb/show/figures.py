"""One palette, one style, one way to show a picture. Lessons call this module and never choose a colour."""

from __future__ import annotations

import io

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

__all__ = [
    'PALETTE',
    'DASHES',
    'MARKERS',
    'HEATMAP',
    'STYLE',
    'use_style',
    'role',
    'to_png',
    'to_svg',
    'show',
    'ranked_row',
    'mosaic',
]

PALETTE = {
    "positive": "#0072B2", "negative": "#D55E00", "query": "#000000", "exact": "#777777", "smooth_ap": "#009E73",
    "rambo": "#CC79A7", "h_ap": "#E69F00", "fast_ap": "#56B4E9", "sup_ap": "#7A5195", "soft_bin": "#8C6D31",
    "sodeep": "#882255", "cross_entropy": "#44566C",
}
DASHES = {
    "positive": "-", "negative": "--", "query": "-", "exact": (0, (1, 1)), "smooth_ap": "-", "rambo": (0, (5, 2)),
    "h_ap": (0, (6, 2, 1, 2)), "fast_ap": (0, (3, 1, 1, 1)), "sup_ap": (0, (8, 2)), "soft_bin": (0, (2, 2)),
    "sodeep": "-", "cross_entropy": (0, (4, 1, 1, 1)),
}
MARKERS = {
    "positive": "o", "negative": "X", "query": "s", "exact": ".", "smooth_ap": "o", "rambo": "^", "h_ap": "D",
    "fast_ap": "v", "sup_ap": "P", "soft_bin": "*",
    "sodeep": "h", "cross_entropy": "<",
}
HEATMAP = "cividis"
STYLE = {
    "figure.figsize": (6.0, 3.4),
    "figure.dpi": 100,
    "savefig.dpi": 144,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "image.cmap": HEATMAP,
    "svg.fonttype": "none",
    "svg.hashsalt": "smoothap_nb",
}


def use_style() -> None:
    "Set the house style for every figure that follows."
    mpl.rcParams.update(STYLE)


def role(name: str) -> dict:
    "Colour and dash of a role, ready for `plot(x, y, **role('smooth_ap'))`."
    if name not in PALETTE:
        raise ValueError(f"no role {name!r}; the palette has {', '.join(PALETTE)}")
    return {"color": PALETTE[name], "linestyle": DASHES[name]}


def to_png(fig: Figure, dpi: int = 144) -> bytes:
    "The figure as PNG bytes, the same on every run."
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def to_svg(fig: Figure) -> str:
    "The figure as an SVG element, the same on every run."
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "smoothap_nb"}):
        fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg"):]


def show(fig: Figure, alt: str) -> None:
    """Show a figure in a notebook as a PNG with alternative text, and close it.

    Args:
        fig: the figure; every axis in use must carry a label.
        alt: what the figure shows, as a finding ("as tau falls, the sigmoid approaches a step").
    """
    from IPython.display import display

    display({"image/png": to_png(fig), "text/plain": alt}, raw=True, metadata={"image/png": {"alt": alt}})
    plt.close(fig)


def ranked_row(images, relevance, scores=None, query=None, title: str = "", axes=None):
    """Draw one ranking as a row of pictures: query black, positives blue and solid, negatives vermillion and dashed.

    Args:
        images: sequence of (H, W) or (H, W, 3) arrays, best first.
        relevance: bool for each image.
        scores: a number for each image, written below it.
        query: the query's own picture, drawn first.
        title: what the row shows.
        axes: axes to draw into, one per picture; made when left out.

    Returns:
        the axes.
    """
    pictures = ([] if query is None else [query]) + list(images)
    if axes is None:
        _, axes = plt.subplots(1, len(pictures), figsize=(0.95 * len(pictures), 1.5), squeeze=False)
        axes = axes[0]
    offset = len(pictures) - len(images)
    for place, (ax, picture) in enumerate(zip(axes, pictures)):
        ax.imshow(np.asarray(picture), cmap="gray", vmin=0, vmax=1 if np.asarray(picture).dtype.kind == "f" else 255)
        ax.set(xticks=[], yticks=[])
        ax.grid(False)
        kind = "query" if place < offset else ("positive" if relevance[place - offset] else "negative")
        for spine in ax.spines.values():
            spine.set(
                visible=True, edgecolor=PALETTE[kind], linewidth=2.5, linestyle="--" if kind == "negative" else "-"
            )
        if place < offset:
            ax.set_title("query", loc="center", fontsize=8)
        else:
            ax.set_title(f"{place - offset + 1}", loc="center", fontsize=8)
            if scores is not None:
                ax.set_xlabel(f"{float(scores[place - offset]):.2f}", fontsize=8)
    if title:
        axes[0].figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    return axes


def mosaic(pictures, columns: int, zoom: int = 2) -> Figure:
    """Pictures side by side, white gaps between, without axes.

    Args:
        pictures: (H, H) arrays or tensors, grey, from 0 to 1 or from 0 to 255.
        columns: pictures in a row.
        zoom: pixels of the figure for each pixel of a picture.

    Returns:
        the figure.
    """
    stacked = np.stack([np.asarray(p, dtype=np.float32) for p in pictures])
    stacked = np.pad(stacked / 255 if stacked.max() > 1 else stacked, ((0, 0), (1, 1), (1, 1)), constant_values=1)
    stacked = np.concatenate([stacked, np.ones((-len(stacked) % columns, *stacked.shape[1:]), np.float32)])
    rows, side = len(stacked) // columns, stacked.shape[1]
    whole = stacked.reshape(rows, columns, side, side).transpose(0, 2, 1, 3).reshape(rows * side, columns * side)
    fig = plt.figure(figsize=(zoom * columns * side / 144, zoom * rows * side / 144), layout="none")
    ax = fig.add_axes((0, 0, 1, 1))
    ax.imshow(whole, cmap="gray", vmin=0, vmax=1, interpolation="none")
    ax.axis("off")
    return fig
