"""Pictures of the study of the claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from .referee import ClaimVerdict
from .replication import same_and_other
from .standing import hardest
from .verdicts import SMALLEST

__all__ = ['claims_figure', 'movers_figure']


def claims_figure(
    verdicts: Sequence[ClaimVerdict], smallest: float = SMALLEST, before: Mapping[str, ClaimVerdict] | None = None
):
    """All claims in one picture: the paired difference with its 95 % interval, the smallest difference that counts as a
    band around 0, and the verdict as mark and word.

    Args:
        verdicts: of `decided`; of a claim with several pairs the smallest difference is drawn.
        smallest: difference that counts.
        before: of `replication.read_decided`: what other networks said, as a thin line with an open mark below.

    Returns:
        the figure, and a text that says what it shows.
    """
    import matplotlib.pyplot as plt

    from ..show.figures import PALETTE

    looks = {
        "holds": ("positive", "o"), "contradicted": ("negative", "X"), "equivalent": ("smooth_ap", "s"),
        "undecided": ("exact", "D"),
    }  # fmt: skip
    fig, ax = plt.subplots(figsize=(8.6, 0.27 * len(verdicts) + 1.0))
    ax.axvspan(-smallest, smallest, color="#E6E6E6", zorder=0)
    ax.axvline(0, color="black", linewidth=0.8)
    for y, verdict in enumerate(reversed(verdicts)):
        found, said = hardest(verdict), "not run yet" if verdict.verdict == "not run" else verdict.verdict
        if found is not None and verdict.decision is not None:
            (colour, mark), (low, high) = looks[verdict.verdict], found[2].interval()
            ax.plot([low, high], [y, y], color=PALETTE[colour], linewidth=1.6)
            ax.plot([found[2].mean], [y], mark, color=PALETTE[colour], markersize=5)
        old = (before or {}).get(verdict.claim["text"])
        if old is not None and (pair := hardest(old)) is not None:
            (colour, mark), (low, high) = looks[old.verdict], pair[2].interval()
            ax.plot([low, high], [y - 0.32] * 2, color=PALETTE[colour], linewidth=0.7)
            ax.plot([pair[2].mean], [y - 0.32], mark, color=PALETTE[colour], markersize=3.5, markerfacecolor="white")
        ax.annotate(f" {said}", (1, y), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    titles = [v.claim["text"] if len(v.claim["text"]) < 62 else v.claim["text"][:60] + "…" for v in reversed(verdicts)]
    ax.set(
        yticks=range(len(verdicts)), ylim=(-0.7, len(verdicts) - 0.3), ylabel="claim",
        xlabel=f"paired difference, better minus worse (grey: under {smallest:g}"
        + ("; thin, open: networks before)" if before else ")"),
    )  # fmt: skip
    ax.set_yticklabels(titles, fontsize=8)
    counts = Counter("not run yet" if v.verdict == "not run" else v.verdict for v in verdicts)
    said = f"{len(verdicts)} claims: " + ", ".join(f"{count} {name}" for name, count in counts.most_common())
    if before:
        same, other, _ = same_and_other(verdicts, before)
        said += f"; of {len(same) + len(other)} that other networks decided before, {len(same)} came out the same"
    return fig, said


def movers_figure(moved: Mapping[str, float], metric: str = "mAP"):
    """What moves the result most, on one scale.

    Args:
        moved: of `movers`, largest first.
        metric: which it is about.

    Returns:
        the figure, and a text that says what it shows.
    """
    import matplotlib.pyplot as plt

    from ..show.figures import PALETTE

    names = list(moved)[::-1]
    fig, ax = plt.subplots(figsize=(8.2, 0.34 * len(names) + 0.9))
    chance = [name.startswith("chance") for name in names]
    ax.barh(
        names, [moved[n] for n in names], color=[PALETTE["exact" if c else "smooth_ap"] for c in chance],
        hatch=["//" if c else "" for c in chance], edgecolor="white",
    )  # fmt: skip
    for y, name in enumerate(names):
        ax.annotate(f" {moved[name]:.3f}", (moved[name], y), va="center", fontsize=8)
    ax.margins(x=0.1)
    ax.set(xlabel=f"how far it moves {metric}", ylabel="choice")
    said = "; ".join(f"{name} {value:.3f}" for name, value in moved.items())
    return fig, said or "nothing was run yet"
