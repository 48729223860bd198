"""`smoothap search`: pictures like a picture, or pictures that fit words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from .app import Quiet, say

__all__ = ['search']


def search(
    image: Annotated[Optional[Path], typer.Argument(help="The picture to look for; leave it out with --text.")] = None,
    gallery: Annotated[
        Optional[Path],
        typer.Option(
            help="The folder of pictures to look in, with its subfolders; with --text held-out glyphs when left out."
        ),
    ] = None,
    run: Annotated[Path, typer.Option(help="The run whose network compares the pictures.")] = ...,
    text: Annotated[
        str, typer.Option(help="Words to look for instead of a picture; the run is one of `smoothap captions`.")
    ] = "",
    k: Annotated[int, typer.Option("-k", help="How many pictures to return.")] = 10,
    sheet: Annotated[Path, typer.Option(help="Where the contact sheet goes.")] = Path("search.png"),
    quiet: Quiet = False,
) -> None:
    "Query by example on your own pictures, or by words: print the ranking, write a contact sheet."
    if sheet.suffix.lower() != ".png" or sheet.is_dir():  # before torch is loaded and pictures are embedded
        raise ValueError(f"--sheet writes a PNG file: name one that ends in .png, got {sheet}")
    if text:
        from .captions import search_text

        if image is not None:
            raise ValueError(f"look for a picture ({image}) or for words (--text {text!r}), not for both")
        return search_text(text, run, gallery, k, sheet, progress=not quiet)
    if image is None or gallery is None:
        raise ValueError(
            "name the picture to look for and --gallery FOLDER to look in, or --text \"words\" with a run of `smoothap "
            "captions`"
        )
    from ..files import data_root
    from ..retrieval.by_example import contact_sheet
    from ..retrieval.by_example import search as look
    from ..train.runs import load_run

    model, transform = load_run(run)
    results = look(image, gallery, model, transform, k=k, cache=data_root() / "search", progress=not quiet)
    for place, (path, score) in enumerate(results, 1):
        say(f"{place:>4}  {score:.4f}  {path}")
    say(f"contact sheet: {contact_sheet(image, results, sheet)}")
