"""`smoothap data`: which data sets there are, is a copy complete, a small stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from .app import say
from .names import check_data, complete_data

__all__ = ['data_app', 'data_list', 'data_check', 'data_miniature']

data_app = typer.Typer(
    help="The papers' data sets: which there are, is my copy complete, a small stand-in.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@data_app.command("list")
def data_list(
    name: Annotated[
        Optional[str], typer.Argument(help="Show one data set in full.", autocompletion=complete_data)
    ] = None,
) -> None:
    "List the data sets, or say about one of them what belongs to it and where to get it."
    if name is not None:
        check_data(name)
    from ..data.readers import DATASETS, dataset_info

    if name is None:
        for key, info in DATASETS.items():
            say(f"{key:<14}{info.title:<48}{' > '.join(info.levels)}")
        return
    info = dataset_info(name)
    say(f"{name}: {info.title}" + (f" ({info.papers})" if info.papers else ""))
    for title, value in (
        ("levels", " > ".join(info.levels)),
        ("files", ", ".join(info.layout)),
        ("from", info.source),
        ("note", info.note),
        ("metrics", ", ".join(info.metrics) if info.levels else ""),
    ):
        if value:
            say(f"  {title:<9}{value}")
    for split, counts in info.counts.items():
        for count in counts:
            classes = count.classes if isinstance(count.classes, tuple) else (count.classes,) if count.classes else ()
            say(
                f"  {split:<9}"
                + ", ".join(
                    filter(
                        None,
                        (
                            f"{count.images:,} images" if count.images else "",
                            f"{' > '.join(f'{n:,}' for n in classes)} classes" if classes else "",
                        ),
                    )
                )
                + f" ({count.source})"
            )


@data_app.command("check")
def data_check(
    name: Annotated[str, typer.Argument(help="A name from `smoothap data list`.", autocompletion=complete_data)],
    root: Annotated[
        Optional[Path], typer.Option(help="The folder that the official archive unpacks to; the cache when left out.")
    ] = None,
    every_picture: Annotated[
        bool, typer.Option("--every-picture", help="Open every picture, not sixteen of each split.")
    ] = False,
) -> None:
    "Compare a copy of a data set with the official lists and counts: what is missing, and where to get it."
    check_data(name)
    from ..data.checking import check_dataset

    lines = check_dataset(name, root, every_picture=every_picture)
    for what, state, fact, mend in lines:
        say(f"{state:<5} {what:<20} {fact}" + (f"\n{'':26} -> {mend}" if mend else ""))
    raise typer.Exit(1 if any(state == "fail" for _, state, _, _ in lines) else 0)


@data_app.command("miniature")
def data_miniature(
    name: Annotated[str, typer.Argument(help="A name from `smoothap data list`.", autocompletion=complete_data)],
    to: Annotated[Path, typer.Option(help="A new or empty folder.")],
    classes: Annotated[int, typer.Option(help="Training classes; three quarters as many are held out.")] = 16,
    images: Annotated[int, typer.Option(help="Pictures of the largest classes.")] = 6,
    seed: Annotated[int, typer.Option(help="Of the pictures.")] = 0,
) -> None:
    """Write a few hundred drawn pictures in the exact layout of a data set, to try its loader and protocol without the
    data.
    """
    check_data(name)
    from ..data.miniatures import make_miniature

    folder = make_miniature(name, to, classes=classes, images=images, seed=seed)
    say(f"{folder}: a miniature of {name}; smoothap data check {name} --root {folder}")
