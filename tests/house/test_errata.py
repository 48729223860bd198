"""docs/errata.md: every link leads to a heading, every heading to a check, and no erratum of a lesson is missing from the page."""

import re
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "errata.md"
CHECKS = re.compile(r"\bassert\b|\btest_close\(|\btest_eq\(|\btest_ne\(|\bexpect_fail\(|\bexpect_error\(")
LINK = re.compile(r"\[([^\]]+)\]\((\.\./nbs/[^)#]+\.ipynb)#([^)]+)\)")


def headings(path: Path) -> list[tuple[int, int, str]]:
    "(cell, depth, text) of every heading of a notebook."
    found = []
    for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
        if cell.cell_type == "markdown":
            text = re.sub(r"```.*?```", "", cell.source, flags=re.S)
            found += [(number, len(marks), title.strip()) for marks, title in re.findall(r"^(#{1,6}) +(.+)$", text, flags=re.M)]
    return found


def anchor(title: str) -> str:
    "Where JupyterLab and GitHub put a heading of a notebook."
    return title.replace(" ", "-")


def code_below(path: Path, title: str) -> str:
    "The code between a heading and the next one of its depth or above."
    every = headings(path)
    place = next(i for i, (_, _, text) in enumerate(every) if anchor(text) == anchor(title))
    cell, depth, _ = every[place]
    end = next((number for number, level, _ in every[place + 1:] if level <= depth), None)
    return "\n".join(c.source for c in nbformat.read(path, as_version=4).cells[cell:end] if c.cell_type == "code")


def rows() -> list[list[str]]:
    "The rows of all tables of the page, without headers."
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for i, row in enumerate(cells) if not set("".join(row)) <= set("-: ") and not set("".join((cells + [["x"]])[i + 1])) <= set("-: ")]


LINKS = sorted({(target, unquote(part)) for _, target, part in LINK.findall(PAGE.read_text(encoding="utf-8"))})


def test_every_row_is_complete_and_proved():
    assert len(rows()) > 30
    for row in rows():
        assert len(row) == 5 and all(row), row
        assert LINK.search(row[4]), f"no proof: {row}"


@pytest.mark.parametrize("target, part", LINKS, ids=lambda value: value.removeprefix("../nbs/"))
def test_links_lead_to_a_heading_with_a_check(target, part):
    path = (PAGE.parent / target).resolve()
    assert path.exists(), f"{target} is not there"
    titles = [title for _, _, title in headings(path)]
    assert part in map(anchor, titles), f"{path.name} has no heading {part!r}; it has {titles}"
    assert CHECKS.search(code_below(path, part)), f"nothing is checked under {part!r} of {path.name}"


def test_errata_of_the_lessons_are_on_the_page():
    linked = {(Path(target).name, part) for target, part in LINKS}
    for path in sorted((ROOT / "nbs").glob("[0-9]*.ipynb")):
        for _, _, title in headings(path):
            if re.match(r"(Erratum|Slip \d+):", title):
                assert (path.name, anchor(title)) in linked, f"docs/errata.md does not link to {title!r} of {path.name}"
