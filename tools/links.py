"""Make every link of a built site lead somewhere, and say which does not.

    python tools/links.py _site

A lesson links as JupyterLab does (`03_smooth_ap.ipynb#The-operating-region`), a guide as GitHub does; Quarto names its
headings in a third way. An address that a page does not have is replaced by the page's own name for the same heading; a
link to a file of the repository that is no page of the site leads to the repository. A link to a paper gets its entry
in docs/references.bib as a note, a line of Quarto's code the depth at which it begins. Standard library only: Quarto
runs this after rendering.
"""

from __future__ import annotations

import html
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from quarto_filter import ROOT, repository
from references import notes


class Page(HTMLParser):
    "The ids and the local addresses of one page."

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" and value or name == "name" and tag == "a" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def plain(fragment: str) -> str:
    "What is left of a heading's id whoever made it: letters and digits."
    return re.sub(r"[\W_]+", "", unquote(fragment)).lower()


def is_local(link: str) -> bool:
    parts = urlsplit(link)
    return not parts.scheme and not parts.netloc and not link.startswith(("data:", "javascript:", "#!"))


def with_notes(text: str) -> str:
    "A page whose links to papers carry their entry of docs/references.bib as `data-note`."
    def note(found: re.Match) -> str:
        said = entries.get(html.unescape(found[2]).rstrip("/"))
        return found[0] if said is None or "data-note" in found[0] else f'{found[1]} data-note="{html.escape(said)}">'

    entries = notes()
    return re.sub(r'(<a\b[^>]*\bhref="([^"]*)"[^>]*)>', note, text)


def with_hanging_lines(text: str) -> str:
    "A page of Quarto's whose lines of code say how far in they begin, so that one that is wrapped goes on further in."
    line = r'<span id="(cb\d+-\d+)">(<a href="#\1"[^>]*></a>(?:<span class="\w+">)?)( *)'
    return re.sub(line, lambda m: f'<span id="{m[1]}" style="--in:{len(m[3])}">{m[2]}{m[3]}', text)


def mend(site: Path) -> list[str]:
    "Rewrite what can be mended in all pages of `site`; return what is left, one line per dead link."
    pages = {
        path.relative_to(site).as_posix(): path
        for path in sorted(site.rglob("*.html"))
        if "site_libs" not in path.parts
    }
    texts = {name: path.read_text(encoding="utf-8") for name, path in pages.items()}
    parsed = {name: Page(text) for name, text in texts.items()}
    by_plain = {name: {plain(i): i for i in sorted(page.ids, reverse=True)} for name, page in parsed.items()}
    url, branch = repository()
    dead = []
    for name, page in parsed.items():
        changes = {}
        for link in dict.fromkeys(page.links):
            if not is_local(link):
                continue
            path, _, fragment = link.partition("#")
            path = path.partition("?")[0]
            place = os.path.normpath(os.path.join(os.path.dirname(name), unquote(path))) if path else name
            target = (
                place
                if (site / place).is_file()
                else f"{place}/index.html"
                if (site / place / "index.html").is_file()
                else None
            )
            if (
                target is None
                and re.search(r"\.(ipynb|md|qmd)$", place)
                and (site / re.sub(r"\.\w+$", ".html", place)).is_file()
            ):
                target = re.sub(r"\.\w+$", ".html", place)
            if target is None and place == "README.md" and (site / "index.html").is_file():
                target = "index.html"  # the first page shows it
            if target is None:
                source = ROOT / place
                if place.startswith("..") or not source.exists():
                    dead.append(f"{name}: {link}")
                else:
                    changes[link] = f"{url}/{'tree' if source.is_dir() else 'blob'}/{branch}/{quote(place)}" + (
                        f"#{fragment}" if fragment else ""
                    )
                continue
            known = unquote(fragment)
            if fragment and target in parsed and known not in parsed[target].ids:
                # Quarto drops "01 " of "01 Ranking"
                known = by_plain[target].get(plain(fragment)) or by_plain[target].get(
                    plain(fragment).lstrip("0123456789")
                )
                if known is None:
                    dead.append(f"{name}: {link} (no such heading)")
                    continue
            new = os.path.relpath(target, os.path.dirname(name) or ".") if path else ""
            new = quote(new) + (f"#{quote(known, safe=':.-_~!$&()*+,;=@/?')}" if fragment else "")
            if (
                path
                and (target != place or fragment and known != unquote(fragment))
                or not path
                and fragment
                and known != unquote(fragment)
            ):
                changes[link] = new
        noted = with_hanging_lines(texts[name])
        noted = with_notes(noted) if name != "docs/references.html" else noted
        if changes or noted != texts[name]:
            def swap(found: re.Match) -> str:
                return f'{found[1]}="{html.escape(changes.get(html.unescape(found[2]), html.unescape(found[2])), quote=True)}"'  # noqa: E501

            text = re.sub(
                r'(?<=\s)(href|src)="([^"]*)"',
                lambda m: swap(m) if html.unescape(m[2]) in changes else m[0],
                noted,
            )
            pages[name].write_text(text, encoding="utf-8")
    return dead


def main() -> int:
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("QUARTO_PROJECT_OUTPUT_DIR", "_site")
    dead = mend((ROOT / given).resolve())
    for line in dead:
        print(f"dead link in {line}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
