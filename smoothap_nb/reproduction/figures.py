"""Pictures of the study of the claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from .referee import ClaimVerdict
from .replication import same_and_other
from .standing import hardest
from .verdicts import SMALLEST

__all__ = ["claims_figure", "replication_figure", "movers_figure"]

LOOKS = {
    "holds": ("positive", "o"), "contradicted": ("negative", "X"), "equivalent": ("smooth_ap", "s"),
    "undecided": ("exact", "D"),
}  # fmt: skip


def claims_figure(verdicts: Sequence[ClaimVerdict], smallest: float = SMALLEST):
    """All claims in one picture: the paired difference with its 95 % interval, the smallest difference that counts as a
    band around 0, and the verdict as mark and word.

    Args:
        verdicts: of `decided`; of a claim with several pairs the smallest difference is drawn.
        smallest: difference that counts.

    Returns:
        the figure, and a text that says what it shows.
    """
    import matplotlib.pyplot as plt

    from ..show.figures import PALETTE

    fig, ax = plt.subplots(figsize=(8.6, 0.27 * len(verdicts) + 1.0))
    ax.axvspan(-smallest, smallest, color="#E6E6E6", zorder=0)
    ax.axvline(0, color="black", linewidth=0.8)
    for y, verdict in enumerate(reversed(verdicts)):
        found, said = hardest(verdict), "not run yet" if verdict.verdict == "not run" else verdict.verdict
        if found is not None and verdict.decision is not None:
            (colour, mark), (low, high) = LOOKS[verdict.verdict], found[2].interval()
            ax.plot([low, high], [y, y], color=PALETTE[colour], linewidth=1.6)
            ax.plot([found[2].mean], [y], mark, color=PALETTE[colour], markersize=5)
        ax.annotate(f" {said}", (1, y), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    titles = [v.claim["text"] if len(v.claim["text"]) < 62 else v.claim["text"][:60] + "…" for v in reversed(verdicts)]
    ax.set(
        yticks=range(len(verdicts)), ylim=(-0.7, len(verdicts) - 0.3), ylabel="claim",
        xlabel=f"paired difference, better minus worse (grey: under {smallest:g})",
    )  # fmt: skip
    ax.set_yticklabels(titles, fontsize=8)
    counts = Counter("not run yet" if v.verdict == "not run" else v.verdict for v in verdicts)
    return fig, f"{len(verdicts)} claims: " + ", ".join(f"{count} {name}" for name, count in counts.most_common())


def replication_figure(
    now: Sequence[ClaimVerdict], before: Mapping[str, ClaimVerdict], smallest: float = SMALLEST
):
    """Claims that were decided twice: the difference on the networks before against the one now, with both intervals.

    Args:
        now: of `decided`.
        before: of `replication.read_decided`.
        smallest: difference that counts.

    Returns:
        the figure, and a text that says what it shows.
    """
    import matplotlib.pyplot as plt

    from ..show.figures import PALETTE

    fig, ax = plt.subplots(figsize=(5.2, 4.6))
    ax.axvspan(-smallest, smallest, color="#E6E6E6", zorder=0)
    ax.axhspan(-smallest, smallest, color="#E6E6E6", zorder=0)
    reach, seen = smallest, set()
    for verdict in now:
        old = before.get(verdict.claim["text"])
        if verdict.decision is None or old is None:
            continue
        found = hardest(verdict)
        pair = found and next((p for a, b, p in old.pairs if (a, b) == found[:2]), None)
        if found is None or pair is None:
            continue
        colour, mark = LOOKS[verdict.verdict]
        (left, right), (low, high) = pair.interval(), found[2].interval()
        ax.plot([left, right], [found[2].mean] * 2, color=PALETTE[colour], linewidth=1)
        ax.plot([pair.mean] * 2, [low, high], color=PALETTE[colour], linewidth=1)
        fill = PALETTE[colour] if verdict.verdict == old.verdict else "white"
        ax.plot(pair.mean, found[2].mean, mark, color=PALETTE[colour], markerfacecolor=fill, markersize=6)
        seen.add(verdict.verdict)
        reach = max(reach, *map(abs, (left, right, low, high)))
    ax.axline((0, 0), slope=1, color="black", linewidth=0.8, linestyle="--")
    ax.set(
        xlim=(-1.05 * reach, 1.05 * reach), ylim=(-1.05 * reach, 1.05 * reach), aspect="equal",
        xlabel="paired difference on the networks before", ylabel="paired difference on the networks now",
    )  # fmt: skip
    for name in (name for name in LOOKS if name in seen):
        ax.plot([], [], LOOKS[name][1], color=PALETTE[LOOKS[name][0]], label=name)
    if seen:
        ax.legend(title="verdict now\n(open: another before)", fontsize=8, title_fontsize=8, loc="upper left")
    same, other, turned = same_and_other(now, before)
    return fig, (
        f"{len(same) + len(other)} claims decided on two sets of networks: "
        f"{len(same)} have the same verdict, {len(other)} another, {turned} turned round"
    )


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
