"""Where measured numbers are kept, how they are found again, and how they lie beside the papers'."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from ..checks import ConfigError, reason
from ..files import write_atomic
from .recipes import entries_for, in_tables, obtained, paper_rows, printed

__all__ = ['RECORD', 'result_file', 'keep', 'runs_of', 'read_runs', 'read_rows', 'against_paper']

RECORD = "reproduce.json"  # in the folder of every run


def result_file(name: str) -> Path | None:
    "Where the repository keeps the results of an experiment, or None outside of it."
    folder = Path("docs") / "results"
    return folder / f"reproduce-{name.replace('/', '-')}.json" if folder.is_dir() else None


def keep(result: dict, record: Path, say: Callable[[str], None] = lambda text: None) -> dict:
    """Append a result to a file, and say where; a result that is there already (the same run measured again) is
    replaced.

    Raises:
        ConfigError: a damaged file; its runs would be lost.
    """
    record = Path(record)
    runs, trouble = runs_of(record)
    if trouble:
        raise ConfigError(f"{trouble}. Mend it or move it away: its runs would be lost")
    record.parent.mkdir(parents=True, exist_ok=True)
    runs = [run for run in runs if not result.get("run") or run.get("run") != result["run"]]
    write_atomic(record, json.dumps({"runs": [*runs, result]}, indent=1, ensure_ascii=False) + "\n")
    say(f"written: {record}")
    return result


def runs_of(path) -> tuple[list[dict], str]:
    "The results in a file, and what is wrong with it."
    try:
        runs = json.loads(Path(path).read_text(encoding="utf-8"))["runs"]
        for run in runs:
            if not ({"experiment", "metrics", "seed", "date", "environment", "miniature"} <= set(run)):
                raise KeyError("a run without its metrics, seed, date or environment")
            for values in run["metrics"].values():
                if not all(isinstance(v, (int, float)) for v in values.values()):
                    raise ValueError("a metric that is not a number")
        return runs, ""
    except FileNotFoundError:
        return [], ""
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        return [], f"{path} cannot be read and is skipped: {reason(error)}"


def read_runs(*folders, miniatures: bool = False) -> tuple[dict[str, list[dict]], list[str]]:
    """Every stored result of some folders and the folders below them.

    Args:
        folders: `docs/results`, folders of runs, or files.
        miniatures: runs on a miniature count too: to see a table filled, not for its numbers.

    Returns:
        runs by experiment, miniatures and changed settings left out, the newest run of each seed; complaints, each
        naming a file.
    """
    found: dict[str, dict[int, dict]] = {}
    complaints = []
    for folder, path in ((Path(folder), path) for folder in folders for path in _files(Path(folder))):
        runs, trouble = runs_of(path)
        complaints += (
            [trouble.replace(str(path), path.relative_to(folder).as_posix() if path != folder else path.name)]
            if trouble
            else []
        )
        for run in runs:
            if (miniatures or not run["miniature"]) and not run.get("changed"):
                seeds = found.setdefault(run["experiment"], {})
                if run["seed"] not in seeds or seeds[run["seed"]]["date"] <= run["date"]:
                    seeds[run["seed"]] = run
    return {name: [seeds[seed] for seed in sorted(seeds)] for name, seeds in found.items()}, complaints


def _files(folder: Path) -> Iterable[Path]:
    "Files of results in a folder and below; a file is its own."
    return [folder] if folder.is_file() else sorted({*folder.glob("reproduce-*.json"), *folder.rglob(RECORD)})


def read_rows(path) -> tuple[dict, list[str]]:
    """The rows of a file that gives each a name, and what is wrong with it (nothing where it does not exist yet).

    Returns:
        rows by name; complaints, each naming the file.
    """
    path = Path(path)
    if not path.exists():
        return {}, []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        good = {
            name: row for name, row in rows.items() if isinstance(row, dict) and isinstance(row.get("metrics"), dict)
        }
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        return {}, [f"{path} cannot be read and is skipped: {reason(error)}"]
    return good, [f"{path}: the row {name!r} is damaged and is skipped" for name in rows if name not in good]


def against_paper(result: dict) -> str:
    "The result beside the numbers of the papers, as aligned lines; for a miniature the measured numbers alone."
    if result["miniature"]:
        lines = ["a miniature: these numbers say that everything runs, and nothing about the method"]
        return "\n".join(
            lines
            + [
                f"  {protocol}: " + ", ".join(f"{k} {v:.4g}" for k, v in values.items())
                for protocol, values in result["metrics"].items()
            ]
        )
    lines = [f"  {'':<60}{'paper':>9}{'here':>9}{'gap':>10}"]
    for row in paper_rows():
        if in_tables(row) and result["experiment"] in [e.name for e in entries_for(row)[1]]:
            here, paper = obtained(row, [result]), printed(row["value"])
            found = (
                f"{here[0]:>9.4g}" + (f" {here[0] - paper:>+9.3g}" if paper is not None else "")
                if here
                else "  not measured"
            )
            what = " ".join((row["dataset"], row["protocol"] if row["dataset"] == "VehicleID" else ""))
            lines.append(
                f"  {row['paper']} {row['table']:<10}{what:<28}{row['metric']:<18}{row['value'] or '-':>9}{found}"
            )
    return "\n".join(lines)
