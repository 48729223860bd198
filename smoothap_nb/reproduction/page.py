"""docs/reproduction.md: what was obtained and on what, then what the papers' tables would need."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .conduct import GPU_RESULTS, RESULTS
from .recipes import Entry, entries_for, in_tables, obtained, paper_rows, printed, read_papers, registry
from .results import read_runs
from .standing import gpu_part, mean_and_range, study_part
from .study import glyph_file, glyph_runs, is_done, read_rows
from .verdicts import Verdict, claims

__all__ = ['reproduction_page', 'obtained_table', 'claims_table', 'mean_and_range']

PAPER_NAMES = {"SmoothAP": "Smooth-AP"}
_PART = r"<!-- results:{name} .*?<!-- end of results:{name} -->"  # what tools/results.py fills in


def reproduction_page(folder) -> str:
    """docs/reproduction.md as it follows from the registry and the results in a folder.

    Args:
        folder: where the results' JSON files are.

    Returns:
        the page, Markdown.
    """
    folder = Path(folder)
    runs, complaints = read_runs(folder)
    listed = [e for e in registry().values() if not e.name.endswith("@code")]
    ran = sum(name in registry() for name in runs)
    parts = [
        "# Reproduction",
        "What was obtained, and on what machine: first the papers' tables as far as they were run, then the papers' "
        "claims on Glyphs, our own experiments, and times. "
        "[How to run it](reproduce.md) is another page. Everything here is made by `smoothap reproduce --render` and "
        "`python tools/results.py` from files; no number is typed by hand.",
        *(f"- **{line}**" for line in complaints),
        "## The papers' tables: obtained",
        obtained_table(runs)
        if ran
        else f"None of the {len(registry())} experiments has been run on its paper's data: that takes the data and a "
             f"GPU. "
        "What each would be compared with stands [below](#the-papers-tables-not-run-yet).",
    ]
    studied, rows = _glyphs(folder)
    parts += studied
    parts += [
        "## Experiments",
        "Values on classes that the network never saw. One dot is one seed, a bar their mean.",
        _kept(folder, "experiments"),
        "## Comparisons",
        "Several losses, or one loss under several settings, trained under one budget and measured alike.",
        _kept(folder, "comparisons"),
        "## On a GPU",
        "Made by `python -m benchmarks.gpu_suite`, the most telling rows first.",
        _suite(rows),
        "## Speed",
        "More in [benchmarks](benchmarks.md).",
        _kept(folder, "benchmarks"),
        "## Memory",
        _kept(folder, "memory"),
        "## Files not shown here",
        _kept(folder, "passed-over"),
    ]
    counts = {kind: sum(e.kind == kind for e in listed) for kind in ("ours", "baseline")}
    parts += [
        "## The papers' tables: not run yet",
        f"{counts['ours']} experiments use a loss of this package (*ours*), {counts['baseline']} one of "
        f"pytorch-metric-learning (*baseline*); "
        f"{sum(e.endswith('@code') for e in registry())} of them exist a second time, as `NAME@code`, with what the "
        f"authors' code does differently from their paper. "
        "A *cited* row has no experiment. Percent, unless a metric says otherwise.",
        *_waiting(runs),
        "## What had to be guessed",
        "Settings that neither a paper nor the authors' code states, or that were illegible in the text we read, and "
        "the number of experiments that rest on them.",
        _guesses(listed),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _glyphs(folder: Path) -> tuple[list[str], dict]:
    "The papers' claims on Glyphs, on either device; and the rows of the second, that of the GPU suite."
    parts = [
        "## The papers' claims on Glyphs",
        *study_part(folder / RESULTS.name),
        *gpu_part(folder / GPU_RESULTS.name),
        "### From nothing (`smoothap reproduce glyphs`)",
        _first_study(),
    ]
    rows: dict = {}
    for device, title in (("cpu", "ResNet-18, 32 px, on a CPU"), ("cuda", "ResNet-50, 64 px, on a CUDA device")):
        rows, trouble = read_rows(folder / glyph_file(device).name)
        done = any(is_done(rows, run.name) for run in glyph_runs(device))
        parts += [
            f"#### {title}",
            *(f"- **{line.replace(str(folder) + os.sep, '')}**" for line in trouble),
            _provenance(rows),
            claims_table(claims(rows)).rstrip() if done else "",
        ]
    return parts, rows


def _first_study() -> str:
    "How the first study decides, and why its table must be read with care."
    budget = read_papers("glyphs.toml")["budget"]
    return (
        "Ten methods, each network from random weights (lesson 20). A claim holds where the lowest seed of the better "
        "side lies above the highest of the worse, and does not hold where its mean lies below; an ablation has one "
        "seed and must differ by more than the largest spread.\n\n"
        f"**Read this as what goes wrong when one compares too early.** {budget['steps']} steps meet each class a few "
        f"times, where the papers fine-tune a pretrained network for many epochs; tuning runs take "
        f"{budget['tune_steps']} steps over {len(budget['rates'])} rates, so that the chosen ones suit a shorter "
        "training and often lie at the edge of what was tried; proxies hardly move in so few steps, and ProxyNCA ends "
        "below an untrained network in R@1. *Does not hold* says only that a mean lies below: so it is said in half of "
        "all exact ties, and more often where one method must beat many. Nothing here refutes a paper."
    )


def obtained_table(runs: dict[str, list[dict]]) -> str:
    """The rows of the papers' tables that have a result, as a Markdown table: paper, obtained, gap, and where.

    Args:
        runs: of `read_runs`.

    Returns:
        the table; one line where there is none.
    """
    lines = [
        "| table | data | method | experiment | paper | obtained | gap | commit, hardware, date |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (paper, table), rows in _by_table().items():
        lines += [
            _line(PAPER_NAMES.get(paper, paper) + f" {table}", *cells)
            for cells, entry in _rows_of(rows, runs)
            if entry is not None and runs.get(entry.name)
        ]
    return "\n".join(lines) if len(lines) > 2 else "No row of the papers' tables has a result yet."


def _waiting(runs: dict) -> list[str]:
    "For each paper one folded table of the rows that have no result."
    papers: dict[str, list[str]] = {}
    for (paper, table), rows in _by_table().items():
        papers.setdefault(paper, []).extend(
            _line(table, *cells[:4])
            for cells, entry in _rows_of(rows, runs)
            if entry is None or not runs.get(entry.name)
        )
    head = "| table | data | method | experiment | paper |\n|---|---|---|---|---|"
    return [
        "\n\n".join(
            [
                f"<details><summary>{PAPER_NAMES.get(paper, paper)}: {len(lines)} rows</summary>",
                "\n".join([head, *lines]),
                "</details>",
            ]
        )
        for paper, lines in papers.items()
        if lines
    ]


def _kept(folder: Path, name: str) -> str:
    "The part of the page that tools/results.py fills, as it stands."
    page = folder.parent / "reproduction.md"
    found = re.search(_PART.format(name=name), page.read_text(encoding="utf-8"), re.S) if page.is_file() else None
    return (
        found.group()
        if found
        else f"<!-- results:{name} (made by tools/results.py) -->\n<!-- end of results:{name} -->"
    )


def _by_table() -> dict[tuple, list[dict]]:
    found: dict[tuple, list[dict]] = {}
    for row in paper_rows():
        if in_tables(row):
            found.setdefault((row["paper"], row["table"]), []).append(row)
    return found


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _rows_of(rows: list[dict], runs: dict) -> list[tuple[list[str], Entry | None]]:
    "A table of a paper: the cells of each row and each experiment that answers for it."
    out: list[tuple[list[str], Entry | None]] = []
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        protocol = (
            row["protocol"] if row["dataset"] == "VehicleID" or row["paper"] == "RaMBO" and row["table"] == "6" else ""
        )
        groups.setdefault(
            (row["dataset"].split(" (not named")[0], protocol, row["method"], row["batch_size"]), []
        ).append(row)
    for (dataset, protocol, method, batch), cells in groups.items():
        kind, entries, why = entries_for(cells[0])
        data = ", ".join(filter(None, (dataset, protocol)))
        # only a batch size that tells two rows of one method apart is worth its place
        several = len({b for d, p, m, b in groups if (d, m) == (dataset, method)}) > 1
        name = method + (f", batch {batch}" if several and batch else "")
        paper = ", ".join(
            f"{c['metric']}\N{NO-BREAK SPACE}{c['value'] or '–'}"
            + (" (weights guessed)" if c["metric"] == "sum w AP" else "")
            for c in cells
        )
        for entry in entries or [None]:
            out.append(
                (
                    [data, name, f"cited: {why}", paper, "", "", ""]
                    if entry is None
                    else [data, name, _how(kind, entry), paper, *_measured(cells, runs.get(entry.name, []))],
                    entry,
                )
            )
    return out


def _how(kind: str, entry: Entry) -> str:
    guesses = len(entry.guesses)
    notes = [f"{guesses} guess{'es' if guesses > 1 else ''}"] if guesses else []
    notes += [f"cannot be reproduced here, because {entry.obstacle}"] if entry.obstacle else []
    return f"{kind}: `{entry.name}`" + (f" ({'; '.join(notes)})" if notes else "")


def _measured(cells: list[dict], runs: list[dict]) -> list[str]:
    "Obtained, gap, and where and when it was, of a line."
    values = {c["metric"]: v for c in cells if (v := obtained(c, runs))}
    if not values:
        return ["not run", "", ""]
    means = {metric: sum(v) / len(v) for metric, v in values.items()}
    gaps = {
        c["metric"]: means[c["metric"]] - p
        for c in cells
        if c["metric"] in means and (p := printed(c["value"])) is not None
    }
    show = lambda numbers, sign: ", ".join(
        f"{m}\N{NO-BREAK SPACE}" + (f"{v:{sign}.3g}" + " s" * (m == "time") if abs(v) < 1 else f"{v:{sign}.1f}")
        for m, v in numbers.items()
    )
    last, many = runs[-1], f" ({len(runs)} seeds)" if len(runs) > 1 else ""
    here = last["environment"]
    many += {
        "best on test": ", best epoch on the test set",
        "best on validation": ", best epoch on validation classes",
    }.get(last.get("weights", {}).get("chosen", ""), "")
    return [show(means, "") + many, show(gaps, "+"), f"`{here['commit']}`, {here['hardware']}, {last['date']}"]


def _guesses(entries: list[Entry]) -> str:
    found: dict[tuple, int] = {}
    for entry in entries:
        for key in entry.guesses:
            place = (
                key,
                in_words(entry.settings[key]),
                entry.sources[key].partition("guess:")[0] + entry.sources[key].partition("guess:")[2].strip(),
            )
            found[place] = found.get(place, 0) + 1
    lines = ["| setting | value | what it rests on | experiments |", "|---|---|---|---|"]
    return "\n".join(
        lines + [_line(f"`{key}`", value, source, str(count)) for (key, value, source), count in sorted(found.items())]
    )


def in_words(value) -> str:
    "A setting as one would say it: yes and no, lists with commas, a loss by its name and what it is given."
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        if set(value) == {"terms"}:
            one = [{k: v for k, v in term.items() if k != "level"} for term in value["terms"]]
            if len(one) > 1 and all(term == one[0] for term in one):
                return f"{in_words(one[0])}, once for each of {len(one)} levels"
            return " + ".join(map(in_words, value["terms"]))
        own = {k: v for k, v in value.items() if k not in ("name", "level")}
        name = (
            f"{value['name']}" + (f" of level {value['level']}" if "level" in value else "") if "name" in value else ""
        )
        given = ", ".join(f"{k.replace('_', ' ')} {in_words(v)}" for k, v in own.items())
        return f"{name} with {given}" if name and given else name or given
    if isinstance(value, (list, tuple)):
        return ", ".join(map(in_words, value))
    return f"{value:g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _provenance(rows: dict) -> str:
    "Where and when the rows of the comparison were made."
    wanted = {run.name for run in glyph_runs()}
    rows = {name: row for name, row in rows.items() if name in wanted and row["metrics"]}
    if not rows:
        return "Not run."
    places = dict.fromkeys(
        (r["environment"]["commit"], r["environment"]["hardware"], f"torch {r['environment']['torch']}", r["date"])
        for r in rows.values()
    )
    return (
        f"{len(rows)} of {len(wanted)} runs: "
        + "; ".join(f"commit `{c}`, {h}, {t}, {d}" for c, h, t, d in places)
        + "."
    )


def _suite(rows: dict) -> str:
    "The measurements of the GPU suite other than the comparison on Glyphs."
    glyphs = {run.name for run in glyph_runs()}
    rows = {name: row for name, row in rows.items() if name not in glyphs}
    lines = ["| what | measured | commit | hardware | date |", "|---|---|---|---|---|"]
    for name, row in rows.items():
        here, values = row.get("environment", {}), ", ".join(f"{k} {v:.4g}" for k, v in row["metrics"].items())
        lines.append(
            f"| {name} | {values or 'not run: ' + row.get('not_run', '')} | "
            + (
                f"`{here.get('commit', '')}` | {here.get('hardware', '')} | {row.get('date', '')} |"
                if values
                else " | | |"
            )
        )
    return "\n".join(lines) if rows else "Not run."


def claims_table(verdicts: list[Verdict]) -> str:
    """The claims as a Markdown table: what is claimed, where, the means (lowest to highest) of each row, and the
    verdict.

    Args:
        verdicts: what `claims` gives.

    Returns:
        the table, one line per claim.
    """
    lines = ["| claim | source | metric | here | verdict |", "|---|---|---|---|---|"]
    for v in verdicts:
        points = dict(point for a, high, b, low in v.pairs for point in ((a, high), (b, low)))
        shown = (
            "; ".join(f"{name.split('/', 1)[1]} {mean_and_range(values)}" for name, values in points.items())
            if any(points.values())
            else "not run"
        )
        verdict = v.verdict if v.verdict != "does not hold" else "**does not hold**"
        lines.append(f"| {v.text} | {v.source} | {v.metric} | {shown.replace('|', chr(92) + '|')} | {verdict} |")
    return "\n".join(lines) + "\n"
