"""`smoothap reproduce` and `smoothap results`: the papers' tables, and what was obtained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from .app import Cpu, Fresh, Quiet, exit_codes_of_signals, say
from .names import check_paper, complete_paper

__all__ = ['reproduce', 'results']

# options of `smoothap reproduce` that take more than a line
Name = Annotated[
    str,
    typer.Argument(
        help="A row's experiment, such as sop/smooth-ap-bs384; `claims`: the papers' claims on Glyphs, in pieces "
             "(`claims/f`: without fine-tuning whole networks; `claims/gpu`: ResNet-50 on a CUDA device).",
        autocompletion=complete_paper,
    ),
]
Listing = Annotated[
    bool,
    typer.Option(
        "--list", help="List the experiments; with NAME, those that hold this text or fit the pattern (* and ?)."
    ),
]
Show = Annotated[
    bool,
    typer.Option(
        "--show",
        help="Print what it takes (steps, memory, hours) and its settings with their sources, as a file that "
             "`smoothap train` takes; with --root the epochs are counted.",
    ),
]
Render = Annotated[
    bool, typer.Option("--render", help="Write docs/reproduction.md from the results in docs/results.")
]
AlsoRoot = Annotated[
    Optional[Path], typer.Option(help="Folder of the second data set that faces/... is measured on (IJB-C).")
]
Miniature = Annotated[
    bool,
    typer.Option(
        "--miniature", help="A small copy of the data set drawn from typefaces, a small network, about a minute."
    ),
]
Settings = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a setting; the tables then leave the result out. Repeatable."
    ),
]
RunFolder = Annotated[
    Optional[Path],
    typer.Option(
        help="Folder of the run; runs/NAME/seedN when left out. (torchrun takes --run for its own: put -- before "
             "the module, see docs/reproduce.md.)"
    ),
]
Record = Annotated[
    Optional[Path],
    typer.Option("--record", help="The JSON file that gets the numbers, instead of one in docs/results (claims: a "
             "folder, docs/results/claims where left out)."),
]
Workers = Annotated[
    int, typer.Option(help="Claims: runs side by side, one CPU thread each; the numbers do not depend on it.")
]
Minutes = Annotated[
    float, typer.Option(help="Claims: start no run after so many minutes; the same command goes on. 0: no limit.")
]


def reproduce(
    name: Name = "",
    listing: Listing = False,
    show: Show = False,
    render: Render = False,
    root: Annotated[Optional[Path], typer.Option(help="Folder of the data set.")] = None,
    also_root: AlsoRoot = None,
    miniature: Miniature = False,
    settings: Settings = None,
    seed: Annotated[int, typer.Option(help="Of the run.")] = 0,
    run: RunFolder = None,
    fresh: Fresh = False,
    record_to: Record = None,
    cpu: Cpu = False,
    workers: Workers = 1,
    minutes: Minutes = 0,
    quiet: Quiet = False,
) -> None:
    "Repeat what the papers report: one row of a table on the real data, or their claims on the embedded Glyphs."
    from ..naming import ConfigError

    if render:
        _render()
    elif listing:
        _list(name)
    elif not name:
        raise ConfigError(
            "name an experiment, e.g. smoothap reproduce sop/smooth-ap-bs384 --miniature; smoothap reproduce --list "
            "shows them all"
        )
    elif show:
        check_paper(name)
        say(_shown(name, root, settings))
    elif name.split("/")[0] == "claims":
        _claims(name.partition("/")[2], record_to, workers, minutes)
    else:
        check_paper(name)
        options = {"also_root": also_root, "miniature": miniature, "record": record_to, "fresh": fresh}
        with exit_codes_of_signals():
            _row(name, root, _changes(settings) | {"seed": seed}, run, cpu, progress=not quiet, **options)


def _changes(settings: list[str] | None) -> dict:
    "What `--set KEY=VALUE` asked for, by key."
    from ..train.config import parse_setting

    return {".".join(keys): value for keys, value in map(parse_setting, settings or [])}


def _render() -> None:
    "`--render`: the page of the results."
    from ..naming import ConfigError
    from ..files import write_atomic
    from ..reproduction import reproduction_page

    page = Path("docs") / "reproduction.md"
    if not page.parent.is_dir():
        raise ConfigError("--render writes docs/reproduction.md: start it in the root of the repository")
    write_atomic(page, reproduction_page(page.parent / "results"))
    say(f"written: {page}")


def _list(text: str) -> None:
    "`--list`: a line for each experiment that the text fits."
    from .. import reproduction as rp
    from ..naming import ConfigError

    found = rp.find_entries(text)
    for entry in found:
        say(f"{entry.name:<34}{entry.kind:<10}{'; '.join(map(rp.row_name, entry.rows))}")
    if not found:
        raise ConfigError(f"no experiment fits {text!r}: smoothap reproduce --list shows them all")
    if not text:
        say(f"{'claims':<34}{'ours':<10}the papers' claims on Glyphs, in pieces")


def _claims(track: str, record_to: Path | None, workers: int, minutes: float) -> None:
    "Go on with the study of the claims in the papers' regime."
    from ..naming import ConfigError
    from ..reproduction.conduct import RESULTS, conduct

    if track not in ("", "f", "gpu"):
        raise ConfigError(
            f"there is no track {track!r}: claims, claims/f for the features alone, or claims/gpu for whole networks "
            "on a CUDA device"
        )
    if track == "gpu":
        _claims_on_gpu(record_to, minutes)
    else:
        conduct(record_to or RESULTS, workers, track or "fe", minutes, say=say)


def _claims_on_gpu(record_to: Path | None, minutes: float) -> None:
    "The larger study of whole networks, with the settings that track F has tuned."
    from ..naming import ConfigError
    from ..reproduction.conduct import GPU_RESULTS, RESULTS, conduct
    from ..reproduction.recipes import read_papers
    from ..train.machine import pick_device

    device = pick_device().type
    if device != "cuda":
        raise ConfigError("claims/gpu needs a CUDA device; smoothap reproduce claims is the same study for CPUs")
    changes, results = read_papers("claims-gpu.toml"), record_to or GPU_RESULTS
    rows = conduct(results, 1, "e", minutes, None, changes, device, RESULTS, say)
    tuned = {row["method"] for row in rows.values() if row.get("kind") == "tune"}
    if waiting := [m for m in changes["track-e"]["methods"] if m not in tuned]:
        say(f"left out until smoothap reproduce claims/f has tuned them: {', '.join(waiting)}")


def _row(name: str, root: Path | None, changes: dict, run: Path | None, cpu: bool, **options) -> None:
    "Run one row of a table, and print it beside the paper's numbers."
    from .. import reproduction as rp
    from ..train.machine import keep_memory

    keep_memory()
    result = rp.reproduce(name, root, changes, run, device="cpu" if cpu else None, say=say, **options)
    if result["metrics"]:  # the main process
        say(rp.against_paper(result))


def _shown(name: str, root: Path | None, settings: list[str] | None) -> str:
    "What `--show` prints: a file for `smoothap train`, with the costs on top."
    from .. import reproduction as rp

    entry = rp.find_entry(name)
    if entry.measure != "retrieval":
        return rp.show_entry(entry)
    experiment, labels = entry.experiment(_changes(settings)), None
    if root is not None:
        from ..data.datasets import load_dataset

        labels = load_dataset(experiment.data.name, "train", root, data=experiment.data).labels
    return rp.as_toml(entry, experiment, rp.cost_of(entry, experiment, labels)).rstrip()


def results(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of runs (or docs/results); what lies below them counts too.")
    ],
    miniatures: Annotated[
        bool, typer.Option("--miniatures", help="Show runs on miniatures too, to see the table filled.")
    ] = False,
    write_to: Annotated[Optional[Path], typer.Option("--write", help="Write the table to this Markdown file.")] = None,
) -> None:
    "Collect the results of runs into the papers' tables: paper, obtained, gap."
    from .. import reproduction as rp
    from ..naming import ConfigError
    from ..files import check_target, write_atomic

    check_target("--write", write_to)
    missing = [str(folder) for folder in folders if not folder.exists()]
    if missing:
        raise ConfigError(f"there is no {missing[0]}: name a folder of runs")
    runs, complaints = rp.read_runs(*folders, miniatures=miniatures)
    for line in complaints:
        say(f"note: {line}")
    table = rp.obtained_table(runs)
    say(table)
    if write_to is not None:
        write_atomic(write_to, table + "\n")
        say(f"written: {write_to}")
