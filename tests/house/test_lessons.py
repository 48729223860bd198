"""What every committed lesson promises its reader: figures with alternative text, a size one can load, links and
references that lead somewhere.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

import lesson_shape

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "nbs").glob("[0-9]*.ipynb"))
NUMBERS = {p.stem.partition("_")[0] for p in NOTEBOOKS}
READING = [p for p in NOTEBOOKS if p.stem[:2] < "90"]


def text_of(path: Path) -> str:
    "All Markdown of a notebook, without code spans and formulas."
    cells = nbformat.read(path, as_version=4).cells
    text = "\n\n".join(c.source for c in cells if c.cell_type == "markdown")
    return re.sub(r"\$\$.*?\$\$|\$[^$\n]*\$|```.*?```|`[^`\n]*`", " ", text, flags=re.S)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_lesson_is_fit_to_commit(path):
    nb = nbformat.read(path, as_version=4)
    assert path.stat().st_size < 1_500_000, (
        f"{path.name} has {path.stat().st_size:,} bytes: draw fewer or smaller frames"
    )
    assert nb.cells[0].source.startswith(f"# {path.stem.partition('_')[0]} ") and "widgets" not in nb.metadata
    for number, cell in enumerate(nb.cells):
        for output in cell.get("outputs", []):
            assert output.output_type != "error", f"{path.name} was committed with an error: {output.evalue}"
            data = output.get("data", {})
            for kind in ("image/png", "image/jpeg", "image/svg+xml"):
                if kind in data:
                    alt = output.get("metadata", {}).get(kind, {}).get("alt", "")
                    assert len(alt.split()) >= 5, (
                        f"cell {number} of {path.name}: the figure's alternative text must say what it shows, got "
                        f"{alt!r}"
                    )
        if any("<svg" in "".join(o.get("data", {}).get("text/html", "")) for o in cell.get("outputs", [])):
            still = [o for o in cell.outputs if "image/png" in o.get("data", {})]
            assert still, (
                f"cell {number} of {path.name}: a player needs a still picture beside it, for viewers that run no "
                f"scripts"
            )


@pytest.mark.parametrize("path", READING, ids=lambda p: p.stem)
def test_lessons_that_are_mentioned_exist(path):
    for found in re.finditer(r"[Ll]essons?\s+((?:\d\db?(?:,\s*|\s+and\s+|\s+to\s+|\s+or\s+)?)+)", text_of(path)):
        for number in re.findall(r"\d\db?", found[1]):
            assert number in NUMBERS, f"{path.name} mentions lesson {number}, which does not exist: ...{found[0]}..."


RESHAPED = [  # lessons that hold the limits of a lesson: 40 to 70 cells, short code, checks, prose between; the list only grows  # noqa: E501
    "01_ranking",
    "02_average_precision",
    "03_smooth_ap",
    "04_gradient",
    "05_blackbox",
    "05b_long_lists",
    "06_fastap",
    "08_surrogates",
    "08b_beyond_ap",
    "13_models",
    "15_evaluation",
    "18_large_batches",
]


@pytest.mark.parametrize("name", RESHAPED)
def test_a_lesson_keeps_its_shape(name):
    assert lesson_shape.beyond(ROOT / "nbs" / f"{name}.ipynb") == []
