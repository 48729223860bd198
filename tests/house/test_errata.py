"""Notebook 22: every erratum has a line in the table and a check that runs; the lessons keep only the three that
teach.
"""

import re
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "nbs" / "22_errata.ipynb"
CELLS = nbformat.read(BOOK, as_version=4).cells
TITLE = re.compile(r"(?m)^### (.+)$")
CHECK = re.compile(r"(?m)^\s*assert (?!True)")
TEACH = {"03_smooth_ap", "05_blackbox", "07b_hierarchical_loss"}  # j != i, which lambda, max and min


def entries() -> dict[str, str]:
    "Title of each erratum -> the code below it."
    found, title = {}, None
    for cell in CELLS:
        if cell.cell_type == "markdown":
            title = m[1] if (m := TITLE.search(cell.source)) else None if cell.source.startswith("## ") else title
            if m:
                assert title not in found, f"two errata are called {title!r}"
                found[title] = ""
        elif title:
            found[title] += cell.source + "\n"
    return found


def lines() -> list[list[str]]:
    "The lines of the two tables that lead to an entry."
    text = next(c.source for c in CELLS if c.source.startswith("## All of them"))
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| [")]
    return [[cell.strip() for cell in row] for row in rows]


def test_there_are_errata():
    assert len(entries()) > 30


@pytest.mark.parametrize("title", entries())
def test_every_erratum_is_checked(title):
    assert CHECK.search(entries()[title]), f"nothing is checked under {title!r}"


def test_the_tables_hold_each_erratum_once():
    rows = lines()
    assert all(len(row) == 3 and all(row) for row in rows)
    linked = [unquote(re.search(r"\]\(#([^)]+)\)", row[0])[1]) for row in rows]
    assert sorted(linked) == sorted(title.replace(" ", "-") for title in entries())


def test_the_page_of_the_guides_leads_there():
    assert "(../nbs/22_errata.ipynb)" in (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / "nbs").glob("0*.ipynb")), ids=lambda path: path.stem)
def test_lessons_keep_only_what_teaches(path):
    text = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown")
    kept = re.findall(r"(?m)^#+ +((?:Erratum|Slip \d+):.+)$", text)
    assert len(kept) <= (path.stem in TEACH), f"{path.name} keeps {kept}: their place is 22_errata"
