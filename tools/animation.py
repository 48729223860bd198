"""Draw the README's short animation and the card that other sites show of this one: AP is a staircase, Smooth-AP a
slope, and a slope can be climbed.

    python tools/animation.py     writes docs/images/why.gif (under 1 MB) and docs/images/card.png
"""

from __future__ import annotations

import io

import matplotlib.pyplot as plt
import torch
from PIL import Image

from quarto_filter import ROOT
from smoothap_nb import average_precision, smooth_ap
from smoothap_nb.show.figures import PALETTE, role, use_style
from smoothap_nb.show.lessons import f_row

TAU, RATE, STEPS = 0.04, 0.0022, 36
FOLDER = ROOT / "docs" / "images"


def values(row, axis, tau: float | None):
    "AP (tau None) or Smooth-AP at every score of the second right picture."
    scores = row.scores.repeat(len(axis), 1)
    scores[:, 2] = axis
    relevance = row.relevance.expand(len(axis), -1)
    return average_precision(scores, relevance) if tau is None else smooth_ap(scores, relevance, tau=tau)


def climbed(row) -> list[float]:
    "Scores of the second right picture as it follows the slope of Smooth-AP, the others held still."
    at, path = float(row.scores[2]), []
    for _ in range(STEPS):
        path.append(at)
        score = torch.tensor([at], requires_grad=True)
        slope, = torch.autograd.grad(values_with_gradient(row, score), score)
        at = min(at + RATE * float(slope), 0.995)
    return path


def values_with_gradient(row, score):
    scores = torch.cat([row.scores[:2], score, row.scores[3:]])[None]
    return smooth_ap(scores, row.relevance[None], tau=TAU).sum()


def picture(row, at: float, axis, dpi: int = 100):
    "Above, the two curves and where we stand; below, the pictures at their scores."
    fig, (top, below) = plt.subplots(2, 1, figsize=(6.4, 3.6), height_ratios=(3, 1.25), sharex=True)
    top.plot(axis, values(row, axis, None), **role("exact"), label="AP: no slope anywhere")
    top.plot(axis, values(row, axis, TAU), **role("smooth_ap"), label="Smooth-AP: a slope to climb")
    here = torch.tensor([at])
    top.plot(at, values(row, here, TAU), marker="o", markersize=9, color=PALETTE["smooth_ap"])
    top.plot(at, values(row, here, None), marker="o", markersize=9, color=PALETTE["exact"])
    top.set(ylabel="value", ylim=(0.55, 1.12), yticks=[0.6, 0.8, 1.0])
    top.legend(loc="upper left", frameon=False)
    scores = [*row.scores[:2].tolist(), at, *row.scores[3:].tolist()]
    for score, image, positive in zip(scores, row.images, row.relevance.tolist()):
        frame = PALETTE["positive" if positive else "negative"]
        inset = below.inset_axes([score - 0.016, 0.08, 0.032, 0.84], transform=below.transData)
        inset.imshow(image, cmap="gray")
        inset.set(xticks=[], yticks=[])
        inset.spines[:].set(color=frame, linewidth=2.5, linestyle="-" if positive else (0, (3, 2)), visible=True)
    below.set(
        xlabel="score: similarity to the query F",
        ylabel="pictures",
        yticks=[],
        ylim=(0, 1),
        xlim=(float(axis[0]), float(axis[-1])),
    )
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=dpi)
    plt.close(fig)
    return Image.open(buffer).convert("RGB")


def main() -> None:
    use_style()
    row = f_row()
    axis = torch.linspace(float(row.scores.min()) - 0.06, 1.02, 301)
    path = climbed(row)
    frames = [picture(row, at, axis) for at in path]
    palette = frames[0].quantize(48)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    gif = FOLDER / "why.gif"
    small[0].save(
        gif,
        save_all=True,
        append_images=small[1:],
        duration=[900, *[90] * (len(small) - 2), 2500],
        loop=0,
        optimize=True,
    )
    picture(row, path[len(path) // 2], axis, dpi=187.5).resize((1200, 675)).crop((0, 22, 1200, 652)).save(
        FOLDER / "card.png", optimize=True
    )
    for name in ("why.gif", "card.png"):
        print(f"{name}: {(FOLDER / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
