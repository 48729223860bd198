"""What people write, notebooks and Markdown pages, reads alike in JupyterLab, on GitHub, in Colab and on the site, and
its links lead somewhere.
"""

import json
import re
from pathlib import Path

import pytest

import links
import pages

ROOT = Path(__file__).resolve().parents[2]
SITE = [page.source for page in pages.order() if not page.source.startswith("docs/api/")]
SOURCES = sorted({*SITE, "README.md", "course/README.md"} - {"index.qmd"})
CODE = re.compile(r"(?ms)^```.*?^```|`[^`\n]*`")
GENERATED = {"docs/solutions.md", "docs/lesson_solutions.md", "docs/benchmarks.md", "docs/reproduction.md"}


def prose_of(source: str) -> list[str]:
    "The Markdown of a source, cell by cell."
    path = ROOT / source
    if path.suffix == ".ipynb":
        nb = json.loads(path.read_text(encoding="utf-8"))
        return ["".join(c["source"]) for c in nb["cells"] if c["cell_type"] == "markdown"]
    return [pages.markdown_source(path)]


def anchors(path: Path) -> set[str]:
    """What a link to a heading may say: JupyterLab's name or GitHub's; the built site makes both its own
    (tools/links.py).
    """
    prose = "\n".join(
        CODE.sub(lambda m: m[0] if m[0][:3] != "```" else "", text)
        for text in prose_of(path.relative_to(ROOT).as_posix())
    )
    headings = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip())
        for line in prose.splitlines()
        if line.startswith("#")
    ]
    slugs = {re.sub(r"[^\w\- ]", "", h.replace("`", "").lower()).replace(" ", "-") for h in headings}
    return slugs | {h.replace(" ", "-") for h in headings}


@pytest.mark.parametrize("source", SOURCES)
def test_links_lead_to_files_and_headings(source):
    here = ROOT / source
    for text in prose_of(source):
        for target in re.findall(r"\]\(([^()\s]+(?:\([^()\s]*\))?[^()\s]*)\)", CODE.sub(" ", text)):
            file, _, anchor = target.partition("#")
            if not links.is_local(target) or file.startswith(("api/", "docs/api/", "attachment:")):
                continue
            there = (here.parent / file).resolve() if file else here
            assert there.exists(), f"{source} links to {target}, which does not exist"
            if anchor and there.suffix in (".md", ".ipynb"):
                assert anchor in anchors(there), f"{source} links to {target}: no such heading in {there.name}"


@pytest.mark.parametrize("source", SOURCES)
def test_pictures_say_what_they_show(source):
    for text in prose_of(source):
        for alt, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", CODE.sub(" ", text)):
            assert len(alt) > 20, f"{source}: say in the alternative text what {target[:60]} shows"


@pytest.mark.parametrize("source", SOURCES)
def test_syntax_is_that_of_every_viewer(source):
    """Pandoc reads `$ x$` and `$x $` as text; fenced divs, callouts and @fig-references are Quarto's alone, alerts
    GitHub's.
    """
    for text in prose_of(source):
        plain = re.sub(r"\$\$.*?\$\$", " ", CODE.sub(" ", text), flags=re.S)
        for found in re.findall(r"(?<![\\$])\$([^$\n]+)(?<!\\)\$", plain):
            assert found == found.strip(), f"{source}: ${found}$ has a space inside its dollar"
        plain = re.sub(r"\$[^$\n]*\$", " ", plain)
        assert ":::" not in plain and not re.search(r"(?<![\w`])@(?:fig|tbl|eq|sec)-", plain), (
            f"{source} uses Quarto's own syntax"
        )
        assert not re.search(r"^> \[!", plain, re.M), f"{source} uses GitHub's own alerts"
        assert plain.count("<details") == plain.count("</details>"), f"{source} leaves a folded hint open"
    whole = "\n".join(CODE.sub(" ", text) for text in prose_of(source))
    if source not in GENERATED:
        assert len(re.findall(r"^# ", whole, re.M)) == 1, f"{source} must have one title"


@pytest.mark.parametrize("source", SOURCES)
def test_lists_tables_and_headings_stand_apart(source):
    """Pandoc, which Quarto uses, reads a list, a table or a heading only after an empty line; the other viewers are
    not so strict.
    """
    for text in prose_of(source):
        text = re.sub(r"(?ms)^```.*?^```|<!--.*?-->", "\n", text)
        lines = text.splitlines()
        for before, line in zip(lines, lines[1:]):
            new = {"list": r"([-*+]|\d+[.)]) \S", "table": r"\|", "heading": r"#{1,6} "}
            for kind, pattern in new.items():
                continues = (
                    re.match(r"\s*([-*+]|\d+[.)]) |\s{2,}\S|\s*>", before) or before.startswith("#")
                    if kind == "list"
                    else before.startswith("|")
                    if kind == "table"
                    else False
                )
                assert not (re.match(pattern, line) and before.strip() and not continues), (
                    f"{source}: a {kind} needs an empty line before {line[:60]!r}"
                )


def test_the_readme_lists_every_lesson():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [p.name for p in sorted((ROOT / "nbs").glob("[0-9]*.ipynb")) if f"](nbs/{p.name})" not in text]
    assert not missing, f"README.md lacks {', '.join(missing)}"
