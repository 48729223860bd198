"""`smoothap captions`, and `smoothap search --text`: pictures and words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from .app import say


def captions(
    record_to: Annotated[
        Path,
        typer.Option("--record", help="The JSON file that gets the numbers; what it holds already is not run again."),
    ] = Path("captions.json"),
    contender: Annotated[
        Optional[list[str]],
        typer.Option(help='One of the losses compared, e.g. "NT-Xent, tau 0.1". Repeatable; all when left out.'),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Draws of each.")] = 3,
    steps: Annotated[
        int, typer.Option(help="Of each training; 700 is the comparison of lesson 30, about 100 seconds.")
    ] = 700,
    runs: Annotated[Path, typer.Option(help="Folder that keeps the networks of draw 0.")] = Path("runs/captions"),
    published: Annotated[
        bool,
        typer.Option("--published", help="Print the settings of Bleeker and de Rijke with their sources; run nothing."),
    ] = False,
) -> None:
    "Train pictures and words on one sphere, loss against loss; measured on characters that were never seen."
    if published:
        from ..reproduction.captions import caption_registry, why_not_run

        for name, entry in caption_registry().items():
            say(f"{name} ({why_not_run(name) or entry.printed})")
            for key, value in entry.settings.items():
                say(f"    {key:<20}{value!s:<32}{entry.sources[key]}")
        return
    from ..train.captions import CONTENDERS, compare

    compare(record_to, seeds, contender or tuple(CONTENDERS), runs, {"steps": steps}, say)
    say(f"written: {record_to}; networks in {runs}")


def search_text(text: str, run: Path, gallery: Optional[Path], k: int, sheet: Path, progress: bool = True) -> None:
    "Print the pictures that fit the words best, and write a contact sheet: held-out glyphs, or a folder of one's own."
    import torch

    from ..data.captions import GlyphCaptions
    from ..retrieval.folders import check_sheet, embed_folder
    from ..retrieval.by_words import search_words, write_sheet
    from ..train.captions import embed_glyphs
    from ..data.transforms import ImageTransform
    from ..train.text import load_towers

    check_sheet(sheet)
    model = load_towers(run)
    if gallery is None:
        data = GlyphCaptions("test", model.vocabulary, per_character=1, size=model.config.size, strength=0.0)
        rows, pictures, names, places = (
            embed_glyphs(model, data),
            data.glyphs.images,
            data.glyphs.captions,
            data.glyphs.captions,
        )
    else:
        transform = ImageTransform(model.config.size, gray=model.config.backbone == "small", fit="pad")
        found = embed_folder(model.picture, transform, gallery, progress=progress)
        rows, names, places = torch.as_tensor(found.embeddings), [], [str(path) for path in found.paths]
        pictures = None
    answer = search_words(text, model.embed_texts, model.vocabulary, rows, names, k)
    if answer.note:
        say(answer.note)
    for place, (row, score) in enumerate(zip(answer.rows, answer.scores), 1):
        say(f"{place:>4}  {score:.4f}  {places[row]}")
    if pictures is None:
        from ..retrieval.folders import open_picture

        pictures = {row: transform(open_picture(places[row]))[0] for row in answer.rows}
    say(f"contact sheet: {write_sheet(answer, pictures, sheet)}")
