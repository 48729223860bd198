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
    run: Annotated[Optional[Path], typer.Option(help="The run whose network compares the pictures.")] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Compare by local features and their arrangement: no run is needed.")
    ] = False,
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
    if local and (text or run is not None):
        raise ValueError("--local compares pictures by local features: leave out --run and --text")
    if run is None and not local:
        raise ValueError("name the run whose network compares (--run FOLDER), or compare by local features (--local)")
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
    from ..retrieval.folders import check_sheet

    check_sheet(sheet)
    if local:
        from ..retrieval.by_features import search_local

        found = search_local(image, gallery, k=k, cache=data_root() / "features", progress=not quiet)
        for place, hit in enumerate(found, 1):
            say(f"{place:>4}  {hit.inliers:>4} points agree  {hit.score:.4f}  {hit.path}")
        return say(f"contact sheet: {contact_sheet(image, found, sheet)}")
    from ..retrieval.by_example import search as look
    from ..train.runs import load_run

    model, transform = load_run(run)
    results = look(image, gallery, model, transform, k=k, cache=data_root() / "search", progress=not quiet)
    for place, (path, score) in enumerate(results, 1):
        say(f"{place:>4}  {score:.4f}  {path}")
    say(f"contact sheet: {contact_sheet(image, results, sheet)}")
