"""Pictures of the comparison on Glyphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from .page import mean_and_range
from .recipes import read_papers
from .referee import ClaimVerdict
from .standing import hardest
from .statistics import SMALLEST
from .study import UNTRAINED, glyph_runs
from .verdicts import main_values, values_of

__all__ = ['comparison_figure', 'ablation_figure', 'claims_figure', 'movers_figure']


def comparison_figure(rows: dict, metrics: tuple = ("R@1", "mAP", "H-AP")):
    """The main comparison: one dot for each seed, one panel for each metric, methods from best to worst in the first.

    Args:
        rows: of `read_rows`.
        metrics: one panel each.

    Returns:
        the figure, and a text that says what it shows.
    """
    import matplotlib.pyplot as plt

    from ..show.figures import MARKERS, PALETTE

    plan = read_papers("glyphs.toml")["methods"]
    roles = {
        "smooth-ap": "smooth_ap",
        "rambo-log": "rambo",
        "rambo-log-log": "rambo",
        "fast-ap": "fast_ap",
        "roadmap": "sup_ap",
        "happier": "h_ap",
        "happier-f": "h_ap",
    }
    there = {m: values_of(rows, f"main/{m}", metrics[0]) for m in [*plan, *UNTRAINED]}
    order = sorted((m for m in there if there[m]), key=lambda m: sum(there[m]) / len(there[m]))
    fig, axes = plt.subplots(1, len(metrics), figsize=(8.4, 0.32 * len(order) + 1.1), sharey=True)
    for ax, metric in zip(axes, metrics):
        for y, m in enumerate(order):
            values, kind = values_of(rows, f"main/{m}", metric), roles.get(m, "exact")
            ax.plot(
                values,
                [y] * len(values),
                MARKERS[kind] if kind != "exact" else "s",
                color=PALETTE[kind],
                markersize=5,
                alpha=0.8,
            )
        ax.set(xlabel=f"{metric} on test characters")
    axes[0].set(
        yticks=range(len(order)), yticklabels=[plan[m]["title"] if m in plan else m for m in order], ylabel="method"
    )
    best = [
        max(order, key=lambda m: sum(values_of(rows, f"main/{m}", metric)) / len(values_of(rows, f"main/{m}", metric)))
        for metric in metrics
    ]
    said = "; ".join(
        f"{metric}: best is {plan[m]['title'] if m in plan else m} with "
        f"{mean_and_range(values_of(rows, f'main/{m}', metric))}"
        for metric, m in zip(metrics, best)
    )
    return fig, said


def ablation_figure(rows: dict):
    """The ablations: one panel each, the metric that the claims about it name against the setting.

    Returns:
        the figure, and a text that says what it shows.
    """
    import matplotlib.pyplot as plt

    from ..show.figures import role

    plan = read_papers("glyphs.toml")
    names = [n for n in plan["ablations"] if any(key.startswith(f"{n}/") for key in rows)]
    fig, axes = plt.subplots(-(-len(names) // 4), 4, figsize=(8.6, 2.1 * -(-len(names) // 4)), squeeze=False)
    said, roles = [], {"happier": "h_ap", "smooth-ap": "smooth_ap", "proxy-nca": "exact"}
    for ax, name in zip(axes.flat, names):
        metric = next((c["metric"] for c in plan["claims"] if str(c["order"][0]).startswith(f"{name}/")), "mAP")
        points = [
            (run.name.split("=")[-1], rows[run.name]["metrics"][metric])
            for run in glyph_runs()
            if run.name.startswith(f"{name}/") and run.name in rows
        ]
        spread = max((max(v) - min(v) for v in main_values(rows, metric).values() if len(v) > 1), default=0.0)
        ax.errorbar(
            range(len(points)),
            [v for _, v in points],
            yerr=spread / 2,
            **role(roles.get(plan["ablations"][name]["method"], "rambo")),
            marker="o",
            capsize=3,
        )
        ax.set(
            xticks=range(len(points)),
            xticklabels=[x for x, _ in points],
            xlabel=plan["ablations"][name]["label"],
            ylabel=metric,
            title=name.replace("-", " "),
        )
        said.append(f"{name}: best at {max(points, key=lambda p: p[1])[0]}")
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    return fig, "; ".join(said)


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
        ax.annotate(f" {said}", (1, y), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    titles = [v.claim["text"] if len(v.claim["text"]) < 62 else v.claim["text"][:60] + "…" for v in reversed(verdicts)]
    ax.set(
        yticks=range(len(verdicts)), ylim=(-0.7, len(verdicts) - 0.3), ylabel="claim",
        xlabel=f"paired difference in the claim's metric, better minus worse (grey: less than {smallest:g})",
    )  # fmt: skip
    ax.set_yticklabels(titles, fontsize=8)
    counts = Counter("not run yet" if v.verdict == "not run" else v.verdict for v in verdicts)
    return fig, f"{len(verdicts)} claims: " + ", ".join(f"{count} {name}" for name, count in counts.most_common())


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
    ax.set(xlabel=f"how far it moves {metric}", ylabel="choice")
    said = "; ".join(f"{name} {value:.3f}" for name, value in moved.items())
    return fig, said or "nothing was run yet"
