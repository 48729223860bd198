"""What every committed lesson promises its reader: figures with alternative text, a size one can load, links and
references that lead somewhere.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

import api
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


FIRST = [p for p in READING if p.stem < "09"]
FIGURE = re.compile(r"Figures? (\d\db?|\db?)\.(\d+)")
TAG = re.compile(r"\\tag\{(\db?)\.(\d+)\}")
CITED = re.compile(r"\((\db?)\.(\d+)\)")


def cells_of(path: Path) -> list:
    return nbformat.read(path, as_version=4).cells


def figures_of(path: Path) -> list[str]:
    "The markdown below each figure of a lesson, up to its first full stop."
    cells = cells_of(path)
    shown = [
        i for i, c in enumerate(cells) if any("image/png" in o.get("data", {}) for o in c.get("outputs", []))
    ]
    return [cells[i + 1].source if cells[i + 1].cell_type == "markdown" else "" for i in shown]


def tags_of(path: Path) -> list[tuple[str, str]]:
    return TAG.findall("\n".join(c.source for c in cells_of(path) if c.cell_type == "markdown"))


def place_of(path: Path) -> str:
    "The number in front of a lesson's figures: 7b for 07b."
    return path.stem.partition("_")[0].lstrip("0")


@pytest.mark.parametrize("path", [p for p in FIRST if p.stem != "00_why"], ids=lambda p: p.stem)
def test_figures_and_equations_are_numbered(path):
    place = place_of(path)
    for number, caption in enumerate(figures_of(path), start=1):
        assert caption.startswith(f"*Figure {place}.{number}.* "), (
            f"figure {number} of {path.name} needs its number below it, got {caption[:40]!r}"
        )
    assert tags_of(path) == [(place, str(n)) for n in range(1, len(tags_of(path)) + 1)]


@pytest.mark.parametrize("path", READING, ids=lambda p: p.stem)
def test_numbers_that_are_mentioned_exist(path):
    figures = {(place_of(p), str(n)) for p in FIRST for n in range(1, len(figures_of(p)) + 1)}
    equations = {tag for p in FIRST for tag in tags_of(p)}
    cells = cells_of(path)
    prose = re.sub(r"\$[^$\n]*\$", " ", "\n".join(c.source for c in cells if c.cell_type == "markdown"))
    # Figure 5 of a paper has no point in its number; (0.5) is a value
    for found in FIGURE.findall(prose):
        assert found in figures, f"{path.name} mentions Figure {'.'.join(found)}, which does not exist"
    for found in CITED.findall(prose):
        assert found in equations or found[0] == "0", f"{path.name} mentions ({'.'.join(found)}), which does not exist"


PAPERS = {  # what a lesson calls a paper -> where the paper is
    "Smooth-AP paper": "arxiv.org/abs/2007.12163",
    "RaMBO": "arxiv.org/abs/1912.03500",
    "HAPPIER": "arxiv.org/abs/2207.04873",
    "ROADMAP": "arxiv.org/abs/2110.01445",
    "FastAP": "Cakir_Deep_Metric_Learning_to_Rank_CVPR_2019_paper",
    "SoDeep": "arxiv.org/abs/1904.04272",
    "Bleeker": "arxiv.org/abs/2202.07474",
    "PNP": "arxiv.org/abs/2102.04640",
    "SupRank": "arxiv.org/abs/2309.08250",
}
NAMED = re.compile(r"(?:et al\.|and others|[A-Z]\w+ and [A-Z]\w+),?(?: \w+)? (?:19|20)\d\d")


@pytest.mark.parametrize("path", [p for p in READING if p.stem[:2] != "21"], ids=lambda p: p.stem)
def test_a_paper_that_is_cited_is_one_click_away(path):
    text = "\n".join(c.source for c in cells_of(path) if c.cell_type == "markdown")
    prose = re.sub(r"(?m)^[#>].*$|`[^`\n]*`|\]\([^)]*\)", " ", text)
    for name, address in PAPERS.items():
        if re.search(rf"(?<![\w-]){name}(?![\w$])", prose):
            assert address in text, f"{path.name} speaks of {name} and does not link to its paper"
    for line in text.splitlines():
        if NAMED.search(line):
            assert "](http" in line, f"{path.name} cites without a link: {line[:90]}"


@pytest.mark.parametrize("path", [p for p in READING if "00" < p.stem[:2] < "20"], ids=lambda p: p.stem)
def test_a_lesson_leads_to_its_reference_and_its_problem_set(path):
    source = "\n".join(c.source for c in cells_of(path))
    pages = re.findall(r"smoothap-nb\.github\.io/smoothap_nb/docs/api/([\w-]+)\.html", source)
    assert pages, f"{path.name} has no link to the reference"
    assert {page.replace("-", "_") for page in pages} <= {api.page_of(m).replace("-", "_") for m in api.public_names()}
    if path in FIRST:
        sets = re.findall(r"docs/sets/(\w+)\.ipynb", source)
        assert sets, f"{path.name} has no link to a problem set"
        assert all((ROOT / "docs" / "sets" / f"{name}.ipynb").exists() for name in sets)


RESHAPED = [  # lessons that hold the limits of a lesson: 40 to 70 cells, short code, checks, prose between; the list only grows  # noqa: E501
    "01_ranking",
    "02_average_precision",
    "03_smooth_ap",
    "04_gradient",
    "04b_fused",
    "05_blackbox",
    "05b_long_lists",
    "06_fastap",
    "07_hierarchical_ap",
    "07b_hierarchical_loss",
    "08_surrogates",
    "08b_beyond_ap",
    "09_learned_ranks",
    "09b_any_ranker",
    "10_glyphs",
    "10b_distortions",
    "11_datasets",
    "11b_protocols",
    "12_sampling",
    "13_models",
    "14_training",
    "15_evaluation",
    "16_revisited",
    "17_search",
    "18_large_batches",
    "30_captions",
    "30b_words_that_search",
    "31_detection",
]


@pytest.mark.parametrize("name", RESHAPED[:12])
def test_jupyterlab_folds_the_code_of_figures(name):
    drawing = [c for c in cells_of(ROOT / "nbs" / f"{name}.ipynb") if c.source.startswith(lesson_shape.FIGURE)]
    assert drawing and all(c.metadata.get("jupyter") == {"source_hidden": True} for c in drawing)


@pytest.mark.parametrize("name", RESHAPED)
def test_a_lesson_keeps_its_shape(name):
    assert lesson_shape.beyond(ROOT / "nbs" / f"{name}.ipynb") == []
