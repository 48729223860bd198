"""Every number that the papers print, and the experiment that would give it, each setting with its source."""

from __future__ import annotations

import csv
import fnmatch
import functools
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from ..checks import ConfigError, nearest
from ..train.config import Experiment, experiment_from_dict

__all__ = [
    'PAPERS',
    'nest',
    'read_papers',
    'Entry',
    'row_name',
    'registry',
    'find_entry',
    'find_entries',
    'show_entry',
    'paper_rows',
    'in_tables',
    'entries_for',
    'LEVELS',
    'key_of',
    'printed',
    'weighted_ap',
    'obtained',
]


PAPERS = Path(__file__).parent / "papers" if "__file__" in globals() else Path("../smoothap_nb/reproduction/papers")


def nest(*settings: dict) -> dict:
    "Nested tables from flat ones with dotted keys, {'optim.lr': 1e-3}; a later table changes an earlier one."
    out: dict = {}
    for table in settings:
        for key, value in table.items():
            *path, last = key.split(".")
            place = out
            for part in path:
                place = place.setdefault(part, {})
            place[last] = json.loads(
                json.dumps(value)
            )  # a copy of its own, so that no setting reaches into another experiment
    return out


@functools.cache
def read_papers(name: str) -> dict:
    "One of the TOML files that describe the experiments."
    return tomllib.loads((PAPERS / name).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Entry:
    "One experiment of the registry."

    name: str  # "sop/smooth-ap-bs384", or "sop/smooth-ap-bs384@code" with what the authors' code does
    kind: str  # "ours" or "baseline" (a loss of pytorch-metric-learning)
    dataset: str  # name in recipes.toml
    settings: dict = field(default_factory=dict)  # dotted key -> value
    sources: dict = field(
        default_factory=dict
    )  # dotted key -> where the value comes from; "guess: ..." where nobody says
    rows: tuple = ()  # (paper, table, method, batch) of the papers' tables
    also: str = ""  # a second data set it is measured on
    measure: str = "retrieval"  # or "step", "list": times
    obstacle: str = ""  # why the row cannot be reproduced here, though the experiment runs

    @property
    def guesses(self) -> list[str]:
        "The settings that had to be guessed."
        return [key for key, source in self.sources.items() if "guess:" in source]

    def experiment(self, settings: dict | None = None) -> Experiment:
        "The experiment, ready for the trainer."
        return experiment_from_dict(
            nest({"name": self.name, "description": "; ".join(map(row_name, self.rows))}, self.settings, settings or {})
        )


def row_name(row: tuple) -> str:
    "A row of a table in words."
    paper, table, method, batch = row
    return f"{paper} Table {table}, {method}" + (f", batch {batch}" if batch else "")


def _row(pattern: str) -> tuple:
    "'SmoothAP 2: Smooth-AP @384' as (paper, table, method, batch); batch '' fits all."
    place, method = pattern.split(": ", 1)
    paper, table = place.split(" ", 1)
    method, _, batch = method.partition(" @")
    return paper, table, method, batch


def _merge(parts: list[dict], code: bool) -> dict:
    "{key: (value, source)} of parts in order, each with what the code does differently where asked for."
    found: dict = {}
    for part in parts:
        for key, pair in [*part.items(), *(part.get("code", {}).items() if code else [])]:
            if key != "code":
                found[key] = tuple(pair)
    return found


@functools.cache
def registry() -> dict[str, Entry]:
    """Every experiment of the papers' tables by name.

    An experiment whose authors' code differs from their paper stands there twice, as NAME and as NAME@code.

    Returns:
        dict of `Entry` by name, in the order of the papers' tables.
    """
    recipes, listed, out = read_papers("recipes.toml"), read_papers("registry.toml"), {}
    for name, entry in listed["experiments"].items():
        home = recipes["datasets"][name.split("/")[0]]
        parts = [
            *(recipes["parts"][part] for part in ("common", *entry["parts"])),
            {**entry.get("set", {}), "code": entry.get("code", {})},
        ]
        paper, code = (_merge(parts, with_code) for with_code in (False, True))
        known = {k: v[0] for k, v in paper.items()}
        for label, merged in (("", paper), ("@code", code)):
            if label and (entry.get("paper_only") or {k: v[0] for k, v in code.items()} == known):
                continue
            settings = {k: value for k, (value, _) in merged.items() if k != "each_level"}
            if "each_level" in merged:
                settings["loss"] = {
                    "terms": [{**settings["loss"], "level": level + 1} for level in range(home["levels"])]
                }
            settings |= {"data.name": home["config"], "evaluate.metrics": home["metrics"], "evaluate.baselines": False}
            out[name + label] = Entry(
                name + label,
                entry["kind"],
                name.split("/")[0],
                settings,
                {k: source for k, (_, source) in merged.items()},
                tuple(map(_row, entry["rows"])),
                home.get("also", ""),
                obstacle=next((why for start, why in listed["obstacles"].items() if name.startswith(start)), ""),
            )
    for name, entry in listed["times"].items():
        rest = {k: v for k, v in entry.items() if k not in ("kind", "rows", "measure")}
        out[name] = Entry(
            name, entry["kind"], "times", rest, {}, tuple(map(_row, entry["rows"])), measure=entry["measure"]
        )
    return out


def find_entry(name: str) -> Entry:
    """The entry of that name.

    Args:
        name: one out of `registry()`.

    Returns:
        Entry: the experiment, its settings, and where each setting comes from.

    Raises:
        ConfigError: an unknown name, with the nearest known one.
    """
    if not isinstance(name, str) or name not in registry():
        near = nearest(name, registry()) if "/" in str(name) else "smoothap reproduce --list shows them all"
        raise ConfigError(f"no experiment {name!r}: {near}")
    return registry()[name]


def find_entries(pattern: str = "") -> list[Entry]:
    "The entries whose name holds a text, or fits a pattern with * and ?."
    return [e for name, e in registry().items() if pattern in name or fnmatch.fnmatch(name, pattern)]


def show_entry(entry: Entry) -> str:
    "An experiment as lines of text: its rows, then each setting with its source."
    lines = [f"{entry.name} ({entry.kind})", *(f"  for {row_name(row)}" for row in entry.rows)]
    width = max(map(len, entry.settings), default=0)
    for key, value in entry.settings.items():
        lines.append(
            f"  {key:<{width}} = {json.dumps(value)}" + (f"    # {entry.sources[key]}" if key in entry.sources else "")
        )
    return "\n".join(lines)


@functools.cache
def paper_rows() -> tuple[dict, ...]:
    """Every number that the papers report, from `papers/results.csv`.

    Returns:
        one dict of text per number: paper, table, dataset, protocol, method, backbone, batch_size, embedding_dim,
            metric, value, note.
    """
    with open(PAPERS / "results.csv", newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def in_tables(row: dict) -> bool:
    "Does the number stand in a retrieval table (or a table of times) that the registry answers for?"
    return f"{row['paper']} {row['table']}" not in _listed()["outside"]


def entries_for(row: dict) -> tuple[str, list[Entry], str]:
    """What the registry has for a number of the papers.

    Args:
        row: of `paper_rows`.

    Returns:
        "ours", "baseline" or "cited"; the entries (the paper's settings first, then the code's); for a cited row the
        reason.

    Raises:
        ConfigError: the registry says nothing about it.
    """
    listed, place = _listed(), f"{row['paper']} {row['table']}"
    if place in listed["outside"]:
        return "cited", [], listed["outside"][place]
    found = [
        e for e in registry().values() if e.dataset == "times" or row["dataset"] in listed["datasets"][e.dataset]["csv"]
    ]
    found = [
        e
        for e in found
        if any(
            (p, t, m) == (row["paper"], row["table"], row["method"]) and b in ("", row["batch_size"])
            for p, t, m, b in e.rows
        )
    ]
    if found:
        return found[0].kind, found, ""
    why = listed["cited"].get(place, {}).get(row["method"])
    if why is None:
        raise ConfigError(
            f"the registry has neither an experiment nor a reason for {place}, {row['dataset']}, {row['method']!r}, "
            f"batch {row['batch_size'] or '-'}"
        )
    return "cited", [], why


@functools.cache
def _listed() -> dict:
    return read_papers("registry.toml") | {"datasets": read_papers("recipes.toml")["datasets"]}


LEVELS = {
    "coarse": 1,
    "kingdom": 1,
    "phylum": 2,
    "class": 3,
    "order": 4,
    "family": 5,
    "genus": 6,
}  # the finest (fine, species) is the last one


def key_of(row: dict) -> tuple[str, str, float]:
    """Where a number of the papers is found among measured ones.

    Args:
        row: of `paper_rows`.

    Returns:
        protocol ("test", "small", "mean", "ijbc", ...), metric, and the factor from ours to the paper's unit.
    """
    dataset, metric = row["dataset"], row["metric"]
    protocol = (
        "mean"
        if dataset.startswith("DyML")
        else "ijbc"
        if dataset == "IJB-C"
        else row["protocol"].split()[0].lower()
        if dataset == "VehicleID"
        else "test"
    )
    if row["table"] in ("S1", "6") and row["paper"] in ("SmoothAP", "RaMBO"):
        return "times", metric if row["table"] == "S1" else row["protocol"].split()[-1], 1.0  # milliseconds and seconds
    name, _, level = metric.removesuffix(")").partition(" (")
    if level == "fraction":
        return protocol, name, 1.0
    if name == "AP" and level:
        depth = _listed()["datasets"][{"SOP": "sop", "iNat-base": "inat-base"}.get(dataset, "inat-full")]["levels"]
        return protocol, f"AP@level{LEVELS.get(level, depth)}", 100.0
    return protocol, name, 100.0


def printed(value: str) -> float | None:
    "A number as the papers print it, times in seconds; None for a dash or for words."
    number, _, unit = value.partition(" ")
    try:
        return float(number) * {"": 1.0, "ms": 1e-3, "s": 1.0}[unit]
    except (ValueError, KeyError):
        return None


def weighted_ap(values: dict, weights) -> float:
    """Sum of the APs of all levels, each with a weight (HAPPIER, Property 1 and Table 6: "sum w AP").

    Args:
        values: measured, with "AP@level1" (the coarsest) and so on.
        weights: one for each level, coarse to fine.
    """
    return sum(weight * values[f"AP@level{level}"] for level, weight in enumerate(weights, 1))


def obtained(row: dict, runs: list[dict]) -> list[float]:
    """What the runs gave for a number of the papers, in the paper's unit.

    "sum w AP" takes the weights that `[comparisons]` of registry.toml states, which are a guess.
    """
    protocol, metric, factor = key_of(row)
    if metric == "sum w AP":
        weights = _listed()["comparisons"]["sum w AP"]["weights"]
        found = [run["metrics"].get(protocol, {}) for run in runs]
        return [
            factor * weighted_ap(values, weights)
            for values in found
            if all(f"AP@level{n + 1}" in values for n in range(len(weights)))
        ]
    return [factor * run["metrics"][protocol][metric] for run in runs if metric in run["metrics"].get(protocol, {})]
