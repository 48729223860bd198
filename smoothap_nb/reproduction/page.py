"""docs/reproduction.md: what was obtained and on what, then what the papers' tables would need."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .conduct import GPU_RESULTS, RESULTS
from .recipes import Entry, entries_for, in_tables, obtained, paper_rows, printed, read_papers, registry
from .results import read_rows, read_runs
from .standing import gpu_part, mean_and_range, places, study_part

__all__ = ['reproduction_page', 'obtained_table', 'too_early_table', 'from_nothing', 'mean_and_range']

TOO_EARLY, SUITE = "glyph-claims-cpu.json", "gpu-suite.json"  # files of docs/results
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
    early, trouble = read_rows(folder / TOO_EARLY)
    measured, more_trouble = read_rows(folder / SUITE)
    parts += [
        *(f"- **{line.replace(str(folder) + os.sep, '')}**" for line in [*trouble, *more_trouble]),
        "## The papers' claims on Glyphs",
        *study_part(folder / RESULTS.name),
        *gpu_part(folder / GPU_RESULTS.name),
        "### What goes wrong when one compares too early",
        *_too_early(early),
        "## Experiments",
        "Values on classes that the network never saw. One dot is one seed, a bar their mean.",
        _kept(folder, "experiments"),
        "## On a GPU",
        "Made by `python -m benchmarks.gpu_suite`, the most telling rows first.",
        _suite(measured),
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


def _too_early(rows: dict) -> list[str]:
    "What a short training makes of the comparison: how the rows were made, where, and their table."
    main = {name: row for name, row in rows.items() if name.startswith("main/") and row["metrics"]}
    if not main:
        return ["Not run."]
    steps = {row["method"]: row["steps"] for row in main.values()}
    tuned = [row["steps"] for name, row in rows.items() if name.startswith("tune/")]
    learnt = [method for method in steps if steps[method]]
    return [
        f"{len(learnt)} methods, and {len(steps) - len(learnt)} that learn nothing; each network from random weights, "
        f"{max(steps.values())} steps, with settings from tuning runs of {max(tuned, default=0)}. So few steps meet "
        "each class a few times, where the papers fine-tune a pretrained network for many epochs; the chosen settings "
        "suit a shorter training still; proxies hardly move. **Read it as a warning: nothing here refutes a paper.**",
        too_early_table(rows),
        f"Mean (lowest to highest) over the seeds; {places(main)}.",
    ]


def from_nothing(rows: dict, method: str = "smooth-ap", metric: str = "mAP") -> list[float]:
    """What a method reaches in the comparison of networks that start from nothing, a value for each seed.

    Args:
        rows: of `read_rows`; those named main/METHOD/seedN count.
        method: whose.
        metric: which.
    """
    found = [row["metrics"] for name, row in rows.items() if name.startswith(f"main/{method}/seed")]
    return [metrics[metric] for metrics in found if metric in metrics]


def too_early_table(rows: dict) -> str:
    """The comparison of networks that start from nothing and take few steps, as a Markdown table: the mean (lowest to
    highest) of each method over its seeds, best first.

    Args:
        rows: of `read_rows`; those named main/METHOD/seedN count.

    Returns:
        the table, a line for each method.
    """
    metrics, known = ("mAP", "R@1", "H-AP"), read_papers("claims.toml")["methods"]
    methods = dict.fromkeys(name.split("/")[1] for name in rows if name.startswith("main/"))
    reached = {method: found for method in methods if (found := from_nothing(rows, method))}
    lines = [f"| from nothing | {' | '.join(metrics)} |", "|---" * (1 + len(metrics)) + "|"]
    for method in sorted(reached, key=lambda m: -sum(reached[m]) / len(reached[m])):
        shown = [mean_and_range(from_nothing(rows, method, metric)) for metric in metrics]
        lines.append(_line(known[method]["title"] if method in known else method, *shown))
    return "\n".join(lines)


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


def _with_units(metrics: dict[str, float]) -> str:
    "Measurements as one reads them: those of one thing together, the unit behind the number."
    found: dict[str, list[str]] = {}
    for key, value in metrics.items():
        thing, _, unit = key.rpartition(" ")
        if unit in ("ms", "s", "MB", "GB"):
            shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
            found.setdefault(thing.removesuffix(","), []).append(f"{shown}\N{NO-BREAK SPACE}{unit}")
        else:
            found.setdefault(key, []).append(f"{value:.4g}")
    return "; ".join(" ".join(filter(None, (thing, ", ".join(values)))) for thing, values in found.items())


def _suite(rows: dict) -> str:
    "The measurements of the GPU suite."
    lines = ["| what | measured | commit | hardware | date |", "|---|---|---|---|---|"]
    for name, row in rows.items():
        here, values = row.get("environment", {}), _with_units(row["metrics"])
        lines.append(
            f"| {name} | {values or 'not run: ' + row.get('not_run', '')} | "
            + (
                f"`{here.get('commit', '')}` | {here.get('hardware', '')} | {row.get('date', '')} |"
                if values
                else " | | |"
            )
        )
    return "\n".join(lines) if rows else "Not run."
