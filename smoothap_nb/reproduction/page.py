"""docs/reproduction.md: what was obtained, and on what."""

from __future__ import annotations

import json
import os
from pathlib import Path

from .recipes import Entry, entries_for, in_tables, obtained, paper_rows, printed, registry
from .results import read_runs
from .study import glyph_file, glyph_runs, is_done, read_rows
from .verdicts import Verdict, claims

__all__ = ['reproduction_page', 'claims_table', 'mean_and_range']


def reproduction_page(folder) -> str:
    """docs/reproduction.md as it follows from the registry and the results in a folder.

    Args:
        folder: where the results' JSON files are.

    Returns:
        the page, Markdown.
    """
    runs, complaints = read_runs(folder)
    entries = registry()
    listed = [e for e in entries.values() if not e.name.endswith("@code")]
    counts = {kind: sum(e.kind == kind for e in listed) for kind in ("ours", "baseline")}
    parts = ["# Reproduction",
             "Made by `smoothap reproduce --render` from the papers' tables (`smoothap_nb/reproduction/papers/results.csv`), the registry of experiments and the files in "
             "`results/`; nothing here is typed by hand.",
             f"{counts['ours']} experiments use a loss of this package (*ours*), {counts['baseline']} one of pytorch-metric-learning (*baseline*); "
             f"{sum(e.endswith('@code') for e in entries)} of them exist a second time, as `NAME@code`, with what the authors' code does differently from their paper. "
             f"{sum(name in entries for name in runs)} have been run; the others say \"not run\". A *cited* row has no experiment. Run one with",
             "```\nsmoothap reproduce sop/smooth-ap-bs384 --root /data/Stanford_Online_Products\nsmoothap reproduce sop/smooth-ap-bs384 --show       # its settings, each with its source\n"
             "smoothap reproduce sop/smooth-ap-bs384 --miniature  # the whole way in about a minute, on a miniature of the data\n```",
             "Percent, unless a metric says otherwise; several seeds are averaged. The gap is ours minus the paper's."]
    parts += [f"- **{line}**" for line in complaints]
    for (paper, table), rows in _by_table().items():
        parts += [f"## {paper.replace('SmoothAP', 'Smooth-AP')}, Table {table}", _table(rows, runs)]
    parts += ["## What had to be guessed", "Settings that neither a paper nor the authors' code states, or that were illegible in the text we read, and the number of experiments that rest on them.", _guesses(listed)]
    parts += ["## The papers' claims on Glyphs", "Ten methods on the embedded data set, each tuned with the same small budget; made by `smoothap reproduce glyphs` (lesson 20). "
              "A claim holds where the lowest seed of the better side lies above the highest of the worse, and does not hold where its mean lies below; an ablation has one seed and must "
              "differ by more than the largest spread (lesson 20)."]
    for device, title in (("cpu", "ResNet-18, 32 px, on a CPU"), ("cuda", "ResNet-50, 64 px, on a CUDA device")):
        rows, trouble = read_rows(Path(folder) / glyph_file(device).name)
        parts += [f"### {title}", *(f"- **{t.replace(str(Path(folder)) + os.sep, '')}**" for t in trouble), _provenance(rows), claims_table(claims(rows)).rstrip() if any(is_done(rows, run.name) for run in glyph_runs(device)) else ""]
    parts += ["## On a GPU", "Made by `python -m benchmarks.gpu_suite`, the most telling rows first.", _suite(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _by_table() -> dict[tuple, list[dict]]:
    found: dict[tuple, list[dict]] = {}
    for row in paper_rows():
        if in_tables(row):
            found.setdefault((row["paper"], row["table"]), []).append(row)
    return found


def _table(rows: list[dict], runs: dict) -> str:
    "One table of a paper: a line for each row and each experiment that answers for it."
    lines = ["| data | method | experiment | paper | obtained | gap | commit, hardware, date |", "|---|---|---|---|---|---|---|"]
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        protocol = row["protocol"] if row["dataset"] == "VehicleID" or row["paper"] == "RaMBO" and row["table"] == "6" else ""
        groups.setdefault((row["dataset"].split(" (not named")[0], protocol, row["method"], row["batch_size"]), []).append(row)
    for (dataset, protocol, method, batch), cells in groups.items():
        kind, entries, why = entries_for(cells[0])
        data = ", ".join(filter(None, (dataset, protocol)))
        # only a batch size that tells two rows of one method apart is worth its place
        several = len({b for d, p, m, b in groups if (d, m) == (dataset, method)}) > 1
        name = method + (f", batch {batch}" if several and batch else "")
        paper = ", ".join(f"{c['metric']}\N{NO-BREAK SPACE}{c['value'] or '–'}" for c in cells)
        for entry in entries or [None]:
            line = [data, name, f"cited: {why}", paper, "", "", ""] if entry is None else [data, name, _how(kind, entry), paper, *_measured(cells, runs.get(entry.name, []))]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |")
    return "\n".join(lines)


def _how(kind: str, entry: Entry) -> str:
    guesses = len(entry.guesses)
    return f"{kind}: `{entry.name}`" + (f" ({guesses} guess{'es' if guesses > 1 else ''})" if guesses else "")


def _measured(cells: list[dict], runs: list[dict]) -> list[str]:
    "Obtained, gap, and where and when it was, of a line."
    values = {c["metric"]: v for c in cells if (v := obtained(c, runs))}
    if not values:
        return ["not run", "", ""]
    means = {metric: sum(v) / len(v) for metric, v in values.items()}
    gaps = {c["metric"]: means[c["metric"]] - p for c in cells if c["metric"] in means and (p := printed(c["value"])) is not None}
    show = lambda numbers, sign: ", ".join(f"{m}\N{NO-BREAK SPACE}" + (f"{v:{sign}.3g}" + " s" * (m == "time") if abs(v) < 1 else f"{v:{sign}.1f}") for m, v in numbers.items())
    last, many = runs[-1], f" ({len(runs)} seeds)" if len(runs) > 1 else ""
    here = last["environment"]
    return [show(means, "") + many, show(gaps, "+"), f"`{here['commit']}`, {here['hardware']}, {last['date']}"]


def _guesses(entries: list[Entry]) -> str:
    found: dict[tuple, int] = {}
    for entry in entries:
        for key in entry.guesses:
            found[key, json.dumps(entry.settings[key]), entry.sources[key]] = found.get((key, json.dumps(entry.settings[key]), entry.sources[key]), 0) + 1
    lines = ["| setting | value | what it rests on | experiments |", "|---|---|---|---|"]
    return "\n".join(lines + [f"| `{key}` | `{value}` | {source} | {count} |" for (key, value, source), count in sorted(found.items())])


def _provenance(rows: dict) -> str:
    "Where and when the rows of the comparison were made."
    wanted = {run.name for run in glyph_runs()}
    rows = {name: row for name, row in rows.items() if name in wanted and row["metrics"]}
    if not rows:
        return "Not run."
    places = dict.fromkeys((r["environment"]["commit"], r["environment"]["hardware"], f"torch {r['environment']['torch']}", r["date"]) for r in rows.values())
    return f"{len(rows)} of {len(wanted)} runs: " + "; ".join(f"commit `{c}`, {h}, {t}, {d}" for c, h, t, d in places) + "."


def _suite(rows: dict) -> str:
    "The measurements of the GPU suite other than the comparison on Glyphs."
    glyphs = {run.name for run in glyph_runs()}
    rows = {name: row for name, row in rows.items() if name not in glyphs}
    lines = ["| what | measured | commit | hardware | date |", "|---|---|---|---|---|"]
    for name, row in rows.items():
        here, values = row.get("environment", {}), ", ".join(f"{k} {v:.4g}" for k, v in row["metrics"].items())
        lines.append(f"| {name} | {values or 'not run: ' + row.get('not_run', '')} | " + (f"`{here.get('commit', '')}` | {here.get('hardware', '')} | {row.get('date', '')} |" if values else " | | |"))
    return "\n".join(lines) if rows else "Not run."


def claims_table(verdicts: list[Verdict]) -> str:
    """The claims as a Markdown table: what is claimed, where, the means (lowest to highest) of each row, and the verdict.

    Args:
        verdicts: what `claims` gives.

    Returns:
        the table, one line per claim.
    """
    lines = ["| claim | source | metric | here | verdict |", "|---|---|---|---|---|"]
    for v in verdicts:
        points = dict(point for a, high, b, low in v.pairs for point in ((a, high), (b, low)))
        shown = "; ".join(f"{name.split('/', 1)[1]} {mean_and_range(values)}" for name, values in points.items()) if any(points.values()) else "not run"
        verdict = v.verdict if v.verdict != "does not hold" else "**does not hold**"
        lines.append(f"| {v.text} | {v.source} | {v.metric} | {shown.replace('|', chr(92) + '|')} | {verdict} |")
    return "\n".join(lines) + "\n"


def mean_and_range(values) -> str:
    "Mean, and the lowest and highest where there are several."
    if not values:
        return "not run"
    mean = f"{sum(values) / len(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.3f} to {max(values):.3f})"
