"The list of papers, and the notes that links to them carry."

import re
from pathlib import Path

import pytest

import links
import references
import smoothap_nb

ROOT = Path(__file__).resolve().parents[2]
TEXTS = sorted([*(ROOT / "nbs").glob("*.ipynb"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
PAPERS = re.compile(r"https?://(?:arxiv\.org/(?:abs|pdf)|openaccess\.thecvf\.com)/[^\s)}\"'\\>]+")


def test_the_page_is_what_the_bibliography_says():
    assert references.PAGE.read_text(encoding="utf-8") == references.page(), "python tools/references.py"


def test_entries_are_whole():
    found = references.entries()
    assert len(found) == len({entry.key for entry in found}) == len({entry.fields["url"] for entry in found})
    for entry in found:
        assert {"title", "author", "year", "url"} <= set(entry.fields), entry.key
        assert entry.key.endswith(entry.fields["year"]) or entry.fields["year"] in entry.key
        assert not re.search(r"[{}\\]", entry.note), entry.note


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_every_paper_that_is_linked_has_an_entry(path):
    known = references.notes()
    unknown = {link.rstrip(".,") for link in PAPERS.findall(path.read_text(encoding="utf-8"))} - set(known)
    assert not unknown, f"{path.name} links to papers without an entry in docs/references.bib"


def test_a_link_to_a_paper_carries_its_entry_once():
    text = '<p><a class="x" href="https://arxiv.org/abs/2007.12163" rel="y">S</a> <a href="https://example.org">e</a></p>'
    noted = links.with_notes(text)
    assert noted.count("data-note=") == 1 and "Brown, Xie, Kalogeiton and Zisserman (2020). Smooth-AP" in noted
    assert links.with_notes(noted) == noted


def test_the_package_is_cited_at_its_version():
    assert f"version = {{{smoothap_nb.__version__}}}" in (ROOT / "docs" / "cite.md").read_text(encoding="utf-8")
