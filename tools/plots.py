"""The plots of docs/reproduction.md, one for each experiment and each benchmark file that has timings; called by
results.py.

Each PNG carries the hash of the data it was drawn from, so that a check needs no drawing and no equal version of
matplotlib.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import textwrap

import results

FORMAT = 6  # raise it when the drawing changes


def wanted() -> dict[str, tuple]:
    "File name -> (how to draw it, from what)."
    out = {}
    for name, records in results.experiments().items():
        out[results.plot_name("experiment", name)] = (
            draw_experiment,
            [{"seed": r.get("seed", 0), "metrics": r["metrics"]} for r in records],
        )
    for bench in results.measurements():
        rows = [
            {"name": r["name"], "times": r["times"]}
            for r in bench["rows"]
            if r["value"] is not None and r.get("times") and not re.search("memory|one GPU|on a GPU", r["name"])
        ]
        if rows:
            out[results.plot_name("times", bench["benchmark"])] = (draw_times, rows)
    return out


def signature(data) -> str:
    return hashlib.sha256(f"{FORMAT} {json.dumps(data, sort_keys=True)}".encode()).hexdigest()


def refresh(check: bool) -> list[str]:
    "Draw what is missing or old (or, with `check`, only name it); remove plots of results that are gone."
    folder, stale, plan = results.ROOT / "docs" / "images", [], wanted()
    for name, (draw, data) in plan.items():
        path = folder / name
        if path.exists() and signature(data).encode() in path.read_bytes():
            continue
        stale.append(f"docs/images/{name}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(to_png(draw(data), signature(data)))
    for path in folder.glob("results-*.png"):
        if path.name not in plan:
            stale.append(f"docs/images/{path.name}")
            if not check:
                path.unlink()
    return stale


def to_png(fig, mark: str) -> bytes:
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=120, metadata={"Software": None, "Comment": f"drawn from {mark}"})
    plt.close(fig)
    return buffer.getvalue()


def style():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from smoothap_nb.show.figures import use_style

    use_style()
    return plt


def contenders(names: list[str]) -> dict[str, dict]:
    "Colour and marker of each contender of a figure, no two alike: by what it is, the others in order."
    from smoothap_nb.show.figures import MARKERS, PALETTE

    known = {
        "raw pixels": "exact",
        "untrained": "negative",
        "start": "fast_ap",
        "trained": "smooth_ap",
        "product": "exact",
        "cubic": "negative",
        "ours": "smooth_ap",
        "pytorch-metric-learning": "rambo",
        "sorting twice": "negative",
        "sorted": "negative",
    }
    roles = {name: known[name] for name in names if name in known}
    free = iter(
        [
            r
            for r in (
                "positive",
                "h_ap",
                "sup_ap",
                "fast_ap",
                "soft_bin",
                "query",
                "rambo",
                "smooth_ap",
                "negative",
                "exact",
            )
            if r not in roles.values()
        ]
    )
    roles |= {name: next(free) for name in names if name not in known}
    return {
        name: {"color": PALETTE[role], "marker": MARKERS[role] if role != "exact" else "|"}
        for name, role in roles.items()
    }


def draw_experiment(records: list[dict]):
    "Dots of every seed and a bar at their mean: one row per metric, one colour per competitor."
    import statistics

    plt = style()
    keys = [k for k in results.METRICS if any(k in m for r in records for m in r["metrics"].values())]
    who = list(dict.fromkeys(name for r in records for name in r["metrics"]))
    fig, ax = plt.subplots(figsize=(6.6, 0.5 * len(keys) + 1.3))
    for place, (name, look) in enumerate(contenders(who).items()):
        for row, key in enumerate(keys):
            values = [r["metrics"][name][key] for r in records if key in r["metrics"].get(name, {})]
            height = [len(keys) - 1 - row + 0.22 - 0.44 * place / max(1, len(who) - 1)] * len(values)
            ax.plot(
                values,
                height,
                linestyle="",
                markersize=9 if look["marker"] == "|" else 5,
                alpha=0.75,
                clip_on=False,
                label=name if row == 0 else None,
                **look,
            )
            if len(values) > 1:
                ax.plot(
                    [statistics.mean(values)] * 2, [height[0] - 0.1, height[0] + 0.1], color=look["color"], linewidth=2
                )
    ax.set(
        yticks=range(len(keys)),
        yticklabels=keys[::-1],
        xlim=(0, 1),
        xlabel="value on held-out classes (0 to 1)",
        ylabel="metric",
    )
    ax.legend(ncols=len(who), loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8)
    return fig


def draw_times(rows: list[dict]):
    "One row per measurement, one mark per contender, logarithmic time."
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    plt = style()
    who = list(dict.fromkeys(name for row in rows for name in row["times"]))
    labels = [textwrap.fill(re.sub(r"\s+", " ", row["name"]), 52) for row in rows]
    fig, ax = plt.subplots(
        figsize=(8.2, 0.26 * len(rows) + 0.14 * sum(label.count("\n") + 1 for label in labels) + 1.3)
    )
    for name, look in contenders(who).items():
        spots = [
            (row["times"][name], len(rows) - 1 - height) for height, row in enumerate(rows) if name in row["times"]
        ]
        ax.plot(
            *zip(*spots),
            linestyle="",
            markersize=11 if look["marker"] == "|" else 6,
            markeredgewidth=2 if look["marker"] == "|" else 1,
            label=name,
            **look,
        )
    ax.set(
        xscale="log",
        yticks=range(len(rows)),
        yticklabels=labels[::-1],
        xlabel="time of what a row names (logarithmic)",
        ylabel="measurement",
    )
    times = [time for row in rows for time in row["times"].values()]
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(times) < 100 * min(times) else (1,)))
    ax.xaxis.set_major_formatter(EngFormatter("s"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.tick_params(labelsize=8)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
    return fig
