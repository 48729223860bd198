"""How the study of the papers' claims stands: its rows, what is left, tables of verdicts and of tuning, and what moved
the result most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pathlib import Path

import numpy as np

from ..checks import ConfigError
from .conduct import Study
from .recipes import read_papers
from .referee import NOT_TRAINED, ClaimVerdict, admission, difference_of, images_of, runs_of_point, verdicts_of
from .replication import read_decided, same_and_other
from .tracks import best_cell, best_settings, grid_cells, pieces, rows_of_cell
from .verdicts import Paired

__all__ = [
    "read_study",
    "mean_and_range",
    "rows_left",
    "decided",
    "hardest",
    "verdicts_table",
    "replication_lines",
    "tuning_table",
    "comparison_table",
    "whole_networks_table",
    "movers",
    "study_part",
    "gpu_part",
    "places",
]


def read_study(folder, changes: dict | None = None) -> tuple[Study, dict, list[str]]:
    """The study whose rows lie in a folder.

    Args:
        folder: of tuning.json and network-K.json; it may be missing.
        changes: see `tracks.read_plan`.

    Returns:
        the study, its rows by name, and complaints about files that cannot be read or that another plan made.
    """
    study, rows, trouble = Study(folder, changes=changes), {}, []
    for ledger in study.ledgers.values():
        try:
            rows |= ledger.rows()
        except ConfigError as error:
            trouble.append(str(error))
    return study, rows, trouble


def mean_and_range(values) -> str:
    "Mean, and the lowest and highest where there are several."
    if not values:
        return "not run"
    mean = f"{sum(values) / len(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.3f} to {max(values):.3f})"


def rows_left(plan: dict, rows: dict, tracks: str = "fe") -> int:
    "About how many pieces are left (a grid whose best lies on its edge will be widened, and nobody knows yet which)."
    known, count = dict(rows), 0
    while todo := pieces(plan, known, tracks):
        known |= {piece.name: {"values": {}} for piece in todo}
        count += len(todo)
    return count


def decided(plan: dict, rows: dict) -> list[ClaimVerdict]:
    "Every claim of the plan, as far as the rows go: `verdicts_of`, and nothing decided where they hold no start yet."
    return verdicts_of(plan, rows, images_of(rows))


def hardest(verdict: ClaimVerdict) -> tuple[str, str, Paired] | None:
    "The pair of a claim with the smallest difference; None where nothing was run."
    return min(verdict.pairs, key=lambda pair: pair[2].mean, default=None)


def _interval(pair: Paired) -> str:
    low, high = pair.interval()
    return f"{pair.mean:+.4f} ({low:+.4f} to {high:+.4f})"


def verdicts_table(verdicts: Sequence[ClaimVerdict], before: Mapping[str, ClaimVerdict] | None = None) -> str:
    """The claims as a Markdown table: the paired difference with its 95 % interval, and the verdict. Where a claim
    names several rivals or steps, the smallest difference stands there.

    Args:
        verdicts: of `decided`.
        before: of `replication.read_decided`: what other networks said stands in a column of its own.
    """
    lines = ["| claim | source | metric | difference (95 %) | networks, runs | verdict |", "|---|---|---|---|---|---|"]
    if before:
        lines = [lines[0] + " on the networks before |", lines[1] + "---|"]
    for v in verdicts:
        found = hardest(v) if v.decision is not None else None
        shown, runs = ("", "") if found is None else (_interval(found[2]), f"{found[2].networks}, {found[2].runs}")
        if found is not None and len(v.pairs) > 1:
            worse = found[1].split("/", 1)[1].replace("|", "\\|")
            shown += f", the least of {len(v.pairs)}, to {worse}"
        verdict = "not run yet" if v.verdict == "not run" else v.verdict
        claim = " | ".join(v.claim[key] for key in ("text", "source", "metric"))
        old = before.get(v.claim["text"]) if before else None
        found = hardest(old) if old is not None else None
        earlier = "" if old is None or found is None else f"{found[2].mean:+.4f}: {old.verdict}"
        lines.append(f"| {claim} | {shown} | {runs} | {verdict} |" + (f" {earlier} |" if before else ""))
    return "\n".join(lines)


def tuning_table(plan: dict, rows: dict) -> str:
    """What the tuning chose and who is admitted, as a Markdown table; methods whose tuning is not done are left out.

    Args:
        plan: of `read_plan`.
        rows: by name.
    """
    lines = [
        "| method | judged by | chosen | validation | gain over the features alone | twice the steps | admitted |",
        "|---|---|---|---|---|---|---|",
    ]
    for method, entry in plan["methods"].items():
        longer = [rows.get(f"length/{method}/seed{seed}") for seed in plan["track-f"]["tune_seeds"]]
        if not all(longer) or "start/net0/val" not in rows:
            continue
        found, metric = admission(plan, rows, method), entry.get("select", "mAP")
        start = rows["start/net0/val"]["values"][metric]
        chosen = ", ".join(f"{k.removeprefix('loss.')} {v:g}" for k, v in best_settings(plan, rows, method))
        lines.append(
            f"| {entry['title']} | {metric} | {chosen} | {start + found.gain:.3f} | {found.gain:+.3f} | "
            f"{found.longer:+.4f} | {'yes' if found.admitted else '**no**'} |"
        )
    return "\n".join(lines) if len(lines) > 2 else ""


def comparison_table(plan: dict, rows: dict, metrics: Sequence[str] = ("mAP", "R@1", "H-AP", "NDCG")) -> str:
    """Every loss on test characters, as a Markdown table: the mean over all networks and seeds, and the paired
    difference from the first line with its 95 % interval, each by itself. Best first; losses that are not admitted
    stand below and say so; empty where no loss has been on every network.

    Args:
        plan: of `read_plan`.
        rows: by name.
        metrics: columns; the first one orders the lines.
    """
    seeds, count, images = len(plan["track-f"]["seeds"]), plan["networks"]["count"], images_of(rows)
    found = {}
    for method in plan["methods"]:
        if len(runs_of_point(rows, f"main/{method}")) == count * seeds:
            values = [float(np.mean(_means(rows, f"main/{method}", metric))) for metric in metrics]
            found[method] = admission(plan, rows, method).admitted, values
    lines, order = [], sorted(found, key=lambda method: (not found[method][0], -found[method][1][0]))
    for method in order:
        admitted, values = found[method]
        pair = f"main/{method}", f"main/{order[0]}"
        gap = difference_of(rows, *pair, metrics[0], images) if method != order[0] else None
        title = plan["methods"][method]["title"] + ("" if admitted else f" ({NOT_TRAINED})")
        shown = "" if gap is None else _interval(gap)
        lines.append(f"| {title} | {' | '.join(f'{value:.3f}' for value in values)} | {shown} |")
    if starts := [rows[name]["values"] for k in range(count) if (name := f"start/net{k}/test") in rows]:
        means = " | ".join(f"{np.mean([values[metric] for values in starts]):.3f}" for metric in metrics)
        lines.append(f"| the features alone | {means} | |")
    head = f"| test characters, mean of {count} networks | {' | '.join(metrics)} | {metrics[0]} less the first (95 %) |"
    return "\n".join([head, "|---" * (2 + len(metrics)) + "|", *lines]) if found else ""


def whole_networks_table(plan: dict, rows: dict, metrics: Sequence[str] = ("mAP", "R@1", "H-AP")) -> str:
    """Losses that fine-tune the whole network, as a Markdown table; empty where none was run.

    Args:
        plan: of `read_plan`.
        rows: by name.
        metrics: columns.
    """
    lines = [f"| whole network | runs | {' | '.join(metrics)} |", "|---" * (2 + len(metrics)) + "|"]
    for method in plan["track-e"]["methods"]:
        if runs := list(runs_of_point(rows, f"e/{method}").values()):
            shown = (mean_and_range([row["values"][metric] for row in runs]) for metric in metrics)
            lines.append(f"| {plan['methods'][method]['title']} | {len(runs)} | {' | '.join(shown)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def _means(rows: dict, point: str, metric: str) -> list[float]:
    "A point's mean on each network."
    found: dict[int, list[float]] = {}
    for (network, _), row in runs_of_point(rows, point).items():
        found.setdefault(network, []).append(row["values"][metric])
    return [float(np.mean(values)) for values in found.values()]


def _neighbours(plan: dict, rows: dict, metric: str, axis: int) -> list[float]:
    "For each tuned method what one step away from its best costs, on the worse side: of the rate, or its own setting."
    out = []
    for method in plan["methods"]:
        value = lambda cell, m=method: rows_of_cell(plan, rows, m, cell)
        if not any(name.startswith(f"length/{method}/") for name in rows):
            continue
        best = best_cell(plan, rows, method)[0]
        steps = [(best[0] + d * (axis == 0), best[1] + d * (axis == 1)) for d in (-1, 1)]
        tried = [[r["values"].get(metric, 0.0) for r in value(c)] for c in steps if value(c)]
        here = np.mean([r["values"][metric] for r in value(best)])
        out += [float(here - min(np.mean(t) for t in tried))] if tried else []
    return out


def _untuned(plan: dict, rows: dict, metric: str) -> list[float]:
    "For each tuned method what the worst cell of its first grid costs."
    out = []
    for method in plan["methods"]:
        cells = [rows_of_cell(plan, rows, method, cell) for cell in grid_cells(plan, method)]
        if all(cells):
            tried = [np.mean([row["values"].get(metric, 0.0) for row in cell]) for cell in cells]
            out.append(float(max(tried) - min(tried)))
    return out


def movers(plan: dict, rows: dict, metric: str = "mAP", from_nothing: Sequence[float] = ()) -> dict[str, float]:
    """What each choice moves in a metric, on one scale; only what the rows can say.

    Args:
        plan: of `read_plan`.
        rows: by name.
        metric: of the rows.
        from_nothing: values that Smooth-AP reaches from a network that starts from nothing.

    Returns:
        {choice: how far it moves the metric}, largest first.
    """
    out: dict[str, float] = {}
    judged = [m for m, entry in plan["methods"].items() if entry.get("select", "mAP") == metric]
    every = {m: _means(rows, f"main/{m}", metric) for m in judged}  # who aims at another metric is no loser in this one
    known = {m: float(np.mean(v)) for m, v in every.items() if v and admission(plan, rows, m).admitted}
    if len(known) > 1:
        out[f"the loss: best against worst of {len(known)} admitted"] = max(known.values()) - min(known.values())
    if costs := _untuned(plan, rows, metric):
        out[f"no tuning: worst cell of the first grid, median of {len(costs)} losses"] = float(np.median(costs))
    for axis, label in enumerate(("the learning rate: one step (x 3)", "a loss's own setting: one step")):
        if costs := _neighbours(plan, rows, metric, axis):
            out[f"{label}, median of {len(costs)} losses"] = float(np.median(costs))
    for name, label in (("batch-same-steps", "same steps"), ("batch-same-images", "same pictures")):
        points = {k.rsplit("/", 1)[0] for k in rows if k.startswith(f"{name}/")}
        if len(found := [float(np.mean(_means(rows, p, metric))) for p in points]) > 1:
            out[f"the batch: 64 to 384, {label}"] = max(found) - min(found)
    smooth = _means(rows, "main/smooth-ap", metric)
    if smooth and len(from_nothing):
        out["pretraining: Smooth-AP from nothing, and from features"] = float(np.mean(smooth) - np.mean(from_nothing))
    if len(smooth) > 1:
        out["chance: another pretext network (spread)"] = max(smooth) - min(smooth)
    seeds = [[r["values"][metric] for (n, _), r in runs_of_point(rows, "main/smooth-ap").items() if n == k]
             for k in range(plan["networks"]["count"])]  # fmt: skip
    if spreads := [max(v) - min(v) for v in seeds if len(v) > 1]:
        out["chance: another seed (mean spread)"] = float(np.mean(spreads))
    return dict(sorted(out.items(), key=lambda item: -item[1]))


def study_part(folder) -> list[str]:
    """The part of docs/reproduction.md on the study from pretrained features.

    Args:
        folder: of the rows.
    """
    study, rows, trouble = read_study(folder)
    plan, left = study.plan, rows_left(study.plan, rows)
    before, about = {}, {}
    try:
        before, about = read_decided(Path(folder).with_name("claims-before.json"))
    except ConfigError as error:
        trouble.append(str(error))
    f, smallest = plan["track-f"], plan["plan"]["smallest"]
    parts = [
        "### From a pretrained network (`smoothap reproduce claims`)",
        f"The papers' regime in small: networks trained by softmax on one half of the training characters, then "
        f"{len(plan['methods'])} losses on the other half, each tuned at full length ({f['steps']} steps), "
        f"{len(f['seeds'])} seeds on each of {plan['networks']['count']} networks. A claim *holds* or is "
        f"*contradicted* where the paired difference is told from 0 (Holm over the claims of a paper, "
        f"{plan['plan']['alpha']:.0%}), is *equivalent* where it is told to be smaller than {smallest:g}, and else "
        f"*undecided*.",
        *(f"- **{line}**" for line in trouble),
        (f"{len(rows)} of about {len(rows) + left} pieces are" if left else f"All {len(rows)} pieces are")
        + f" done (plan `{study.hash}`)"
        + (f": {where}." if (where := places(rows)) else ": not run yet."),
    ]
    if left and rows:
        parts += [
            "**Unfinished.** The claims of a paper are decided together, when all their runs are there, and not "
            "before: whoever looks earlier may stop when he likes what he sees. The same command goes on from here."
        ]
    parts += [tuning_table(plan, rows)]
    if table := comparison_table(plan, rows):
        parts += [table, SIDE_BY_SIDE]
    if any(name.startswith("main/") for name in rows):
        found = decided(plan, rows)
        parts += [verdicts_table(found, before), *replication_lines(found, before, about), CAVEATS]
    return [*parts, whole_networks_table(plan, rows)]


def replication_lines(now: Sequence[ClaimVerdict], before: Mapping[str, ClaimVerdict], about: Mapping) -> list[str]:
    """What an earlier set of networks said beside the present one, in words; empty where none was kept.

    Args:
        now: of `decided`.
        before, about: of `replication.read_decided`.
    """
    same, other, turned = same_and_other(now, before)
    if not same and not other:
        return []
    return [
        f"The same plan was decided before on networks 1 to 5 of another machine (network 0 is in both; {about['rows']}"
        f"): of {len(same) + len(other)} claims decided both times {len(same)} have the same verdict, and {turned} "
        f"turned round" + (f"; another verdict: {'; '.join(other)}." if other else ".")
    ]


def gpu_part(folder) -> list[str]:
    """The part of docs/reproduction.md on whole networks on a CUDA device.

    Args:
        folder: of the rows.
    """
    study, rows, trouble = read_study(folder, read_papers("claims-gpu.toml"))
    return [
        f"#### The same on a CUDA device (`smoothap reproduce claims/gpu`): {study.plan['networks']['backbone']}, "
        f"{study.plan['networks']['size']} px, every layer",
        *(f"- **{line}**" for line in trouble),
        f"{len(rows)} rows (plan `{study.hash}`): {places(rows)}." if rows else "Not run yet.",
        whole_networks_table(study.plan, rows),
    ]


SIDE_BY_SIDE = (
    "The first line was chosen by these same runs, and each interval stands by itself: of many side by side, one in "
    "twenty misses. Losses that were judged by H-AP (see above) aim at another measure than mAP."
)
CAVEATS = (
    "What cannot be concluded: the pictures are glyphs of 32 pixels and the networks small; the losses train a layer "
    "on frozen features, in which what a batch can teach is bounded (track E, the whole network, asks whether the "
    "order is an artefact of that); the intervals speak of other halvings, seeds and characters of this data set, "
    "not of other data. A method that is not admitted is no loser: it was not trained well enough here."
)


def places(rows: dict) -> str:
    "Where and when the rows were made."
    found = dict.fromkeys(
        (r["environment"]["commit"], r["environment"]["hardware"], f"torch {r['environment']['torch']}", r["date"])
        for r in rows.values()
        if "environment" in r
    )
    return "; ".join(f"commit `{c}`, {h}, {t}, {d}" for c, h, t, d in found)
