"""`smoothap reproduce` and `smoothap results`: the papers' tables, and what was obtained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from .app import Cpu, Fresh, Quiet, say

__all__ = ['reproduce', 'results']


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="A row's experiment, such as sop/smooth-ap-bs384; `glyphs`: the papers' claims on Glyphs "
                 "(`glyphs/TEXT`: only runs whose name holds the text)."
        ),
    ] = "",
    listing: Annotated[
        bool,
        typer.Option(
            "--list", help="List the experiments; with NAME, those that hold this text or fit the pattern (* and ?)."
        ),
    ] = False,
    show: Annotated[
        bool,
        typer.Option(
            "--show",
            help="Print what it takes (steps, memory, hours) and its settings with their sources, as a file that "
                 "`smoothap train` takes; with --root the epochs are counted.",
        ),
    ] = False,
    render: Annotated[
        bool, typer.Option("--render", help="Write docs/reproduction.md from the results in docs/results.")
    ] = False,
    root: Annotated[Optional[Path], typer.Option(help="Folder of the data set.")] = None,
    also_root: Annotated[
        Optional[Path], typer.Option(help="Folder of the second data set that faces/... is measured on (IJB-C).")
    ] = None,
    miniature: Annotated[
        bool,
        typer.Option(
            "--miniature", help="A small copy of the data set drawn from typefaces, a small network, about a minute."
        ),
    ] = False,
    settings: Annotated[
        Optional[list[str]],
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a setting; the tables then leave the result out. Repeatable."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the run.")] = 0,
    run: Annotated[
        Optional[Path],
        typer.Option(
            help="Folder of the run; runs/NAME/seedN when left out. (torchrun takes --run for its own: put -- before "
                 "the module, see docs/reproduce.md.)"
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete what the folder holds and start over.")] = False,
    record_to: Annotated[
        Optional[Path],
        typer.Option("--record", help="The JSON file that gets the numbers, instead of one in docs/results."),
    ] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Use the CPU even where a CUDA device is found.")] = False,
    grid: Annotated[str, typer.Option(help="Glyphs: tune, main, ablations or all.")] = "all",
    workers: Annotated[
        int, typer.Option(help="Glyphs: runs side by side, one CPU thread each; the numbers do not depend on it.")
    ] = 1,
    minutes: Annotated[
        float, typer.Option(help="Glyphs: start no run after so many minutes; the same command goes on. 0: no limit.")
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    "Repeat what the papers report: one row of a table on the real data, or their claims on the embedded Glyphs."
    from .. import reproduction as rp
    from ..checks import ConfigError
    from ..train.config import parse_setting
    from ..files import write_atomic
    from ..train.machine import pick_device

    if render:
        page = Path("docs") / "reproduction.md"
        if not page.parent.is_dir():
            raise ConfigError("--render writes docs/reproduction.md: start it in the root of the repository")
        write_atomic(page, rp.reproduction_page(page.parent / "results"))
        say(f"written: {page}")
    elif listing:
        found = rp.find_entries(name)
        for entry in found:
            say(f"{entry.name:<34}{entry.kind:<10}{'; '.join(map(rp.row_name, entry.rows))}")
        if not found:
            raise ConfigError(f"no experiment fits {name!r}: smoothap reproduce --list shows them all")
        if not name:
            say(
                f"{'glyphs':<34}{'ours':<10}the papers' claims on Glyphs, {len(rp.glyph_runs())} runs: --grid tune | "
                f"main | ablations | all"
            )
    elif not name:
        raise ConfigError(
            "name an experiment, e.g. smoothap reproduce sop/smooth-ap-bs384 --miniature; smoothap reproduce --list "
            "shows them all"
        )
    elif show:
        say(_shown(rp.find_entry(name), root, settings))
    else:
        changes = {".".join(keys): value for keys, value in map(parse_setting, settings or [])}
        if name.split("/")[0] == "glyphs":
            rows = rp.glyph_grid(
                grid,
                "cpu" if cpu else pick_device().type,
                record_to,
                workers,
                changes,
                name.partition("/")[2],
                minutes,
                say,
            )
            say(rp.claims_table(rp.claims(rows)))
        else:
            result = rp.reproduce(
                name,
                root,
                changes | {"seed": seed},
                run,
                also_root=also_root,
                miniature=miniature,
                record=record_to,
                fresh=fresh,
                progress=not quiet,
                device="cpu" if cpu else None,
                say=say,
            )
            if result["metrics"]:  # the main process
                say(rp.against_paper(result))


def _shown(entry, root, settings) -> str:
    "What `reproduce --show` prints: a file for `smoothap train`, with the costs on top."
    from .. import reproduction as rp
    from ..train.config import parse_setting

    if entry.measure != "retrieval":
        return rp.show_entry(entry)
    experiment, labels = (
        entry.experiment({".".join(keys): value for keys, value in map(parse_setting, settings or [])}),
        None,
    )
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
    from ..checks import ConfigError
    from ..files import write_atomic

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
