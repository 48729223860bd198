"""Check a built site, whoever rendered it (Quarto or tools/pages.py): what a reader would trip over fails here.

    python tools/site_check.py _site

Code keeps its lines, no cell begins with a directive, no Quarto markup shows as text, and no link leads to a notebook that is a page of
the site. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from quarto_filter import ROOT, joined, reader_notebook


class Reader(HTMLParser):
    "What a page shows: its blocks of code, its paragraphs, its links."

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.code: list[str] = []
        self.paragraphs: list[str] = []
        self.links: list[str] = []
        self._into: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag in ("pre", "p"):
            self._into.append([])
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]

    def handle_endtag(self, tag):
        if tag in ("pre", "p") and self._into:
            (self.code if tag == "pre" else self.paragraphs).append("".join(self._into.pop()))

    def handle_data(self, data):
        if self._into:
            self._into[-1].append(data)


def known_cell(notebook: Path) -> list[str] | None:
    "The first cell of at least three lines that a reader of the notebook sees, without the options at its head."
    for cell in reader_notebook(json.loads(notebook.read_text(encoding="utf-8")))["cells"]:
        if cell["cell_type"] == "code":
            lines = [line.rstrip() for line in joined(cell["source"]).splitlines() if not line.startswith("#|")]
            if len(lines) >= 3:
                return lines
    return None


def check_page(name: str, text: str, rendered: set[str]) -> list[str]:
    "Everything wrong with one page, a line each; `rendered` holds the notebooks that are pages of the site."
    page = Reader(text)
    blocks = [[line.rstrip() for line in block.strip("\n").splitlines()] for block in page.code]
    found = [f"{name}: a block of code begins with {block[0]!r}" for block in blocks if block and block[0].startswith("#|")]
    found += [f"{name}: Quarto markup shows as text: {text.strip()[:60]!r}" for text in page.paragraphs if ":::" in text]
    for link in page.links:
        path = unquote(re.split(r"[?#]", link)[0])
        if path.endswith(".ipynb") and "://" not in path and os.path.normpath(os.path.join(os.path.dirname(name), path)) in rendered:
            found.append(f"{name}: links to {link}, which is a page of this site")
    source = re.sub(r"\.html$", ".ipynb", name)
    if source in rendered:
        wanted = known_cell(ROOT / source)
        if wanted and not any(block[:3] == wanted[:3] for block in blocks):
            found.append(f"{name}: no block of code shows the lines of {wanted[0]!r}; are line ends lost?")
    return found


def check(site: Path) -> list[str]:
    "Everything wrong with the pages of a site."
    pages = sorted(path for path in site.rglob("*.html") if "site_libs" not in path.parts)
    if not pages:
        return [f"{site} holds no page"]
    names = {path.relative_to(site).as_posix() for path in pages}
    rendered = {f"nbs/{path.name}" for path in (ROOT / "nbs").glob("*.ipynb") if f"nbs/{path.stem}.html" in names}
    return [line for path in pages for line in check_page(path.relative_to(site).as_posix(), path.read_text(encoding="utf-8"), rendered)]


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    found = check(Path(sys.argv[1]))
    print("\n".join(found) or "nothing found", file=sys.stderr if found else sys.stdout)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
