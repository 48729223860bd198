"""Pictures of what batches hold."""

from __future__ import annotations

import numpy as np

from .dealing import columns

__all__ = ["batch_picture"]


def batch_picture(sampler, labels, epochs: int = 1, level: int = 0, axes=None, title: str = ""):
    """Draw what batches hold: how often two labels of a level share a batch, and how often each image is used.

    Args:
        sampler: anything with `epoch(k)` -> list of index arrays.
        labels: (N,) or (N, L) integers, coarse to fine.
        epochs: how many epochs to count, from epoch 0.
        level: the column of labels that is compared; at most the 60 first labels are drawn.
        axes: two axes to draw into; made when left out.
        title: above the left picture.

    Returns:
        the two axes.
    """
    import matplotlib.pyplot as plt

    labels = columns(labels)
    names, column = np.unique(labels[:, level], return_inverse=True)
    meet, used, batches = np.zeros((len(names), len(names))), np.zeros(len(labels)), 0
    for k in range(epochs):
        for batch in sampler.epoch(k):
            counts = np.bincount(column[batch], minlength=len(names))
            meet += np.outer(counts, counts) - np.diag(counts)
            np.add.at(used, batch, 1)
            batches += 1
    axes = plt.subplots(1, 2, figsize=(7, 2.8), gridspec_kw={"wspace": 0.12})[1] if axes is None else axes
    shown = axes[0].imshow(meet[:60, :60] / batches, vmin=0, interpolation="nearest")
    axes[0].set(
        xlabel=f"label of level {level + 1}", ylabel=f"label of level {level + 1}", title=title or "who meets whom"
    )
    axes[0].grid(False)
    axes[0].figure.colorbar(shown, ax=axes[0], shrink=0.8, label="pairs of images per batch")
    times = np.bincount(used.astype(int) if epochs == 1 else np.rint(used / epochs).astype(int))
    axes[1].bar(
        range(len(times)),
        times,
        color=["#D55E00" if n == 0 else "#0072B2" for n in range(len(times))],
        hatch=["//"] + [""] * (len(times) - 1),
    )
    axes[1].set(
        xlabel="uses of an image per epoch", ylabel="images", title=f"{np.mean(used > 0):.1%} of the images used"
    )
    for axis in (axes[0].xaxis, axes[0].yaxis, axes[1].xaxis):
        axis.set_major_locator(plt.MaxNLocator(integer=True))
    return axes
