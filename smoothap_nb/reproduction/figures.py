"""Pictures of the comparison on Glyphs."""

from __future__ import annotations

from .page import mean_and_range
from .recipes import read_papers
from .study import UNTRAINED, glyph_runs
from .verdicts import main_values, values_of

__all__ = ['comparison_figure', 'ablation_figure']


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
