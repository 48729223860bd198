"""Check a built site, whoever rendered it (Quarto or tools/pages.py): what a reader would trip over fails here.

    python tools/site_check.py _site             what the files say (standard library only)
    python tools/site_check.py _site --browser   and what headless Chromium sees of them

Files: code keeps its lines, no cell begins with a directive, no Quarto markup shows as text, no link leads to a
    notebook that is a page of
the site, no page is larger than 3 MB. Browser: every page at 390 px in light colours, ten of them at 390 and 1280 px in
both themes: no sideways scroll, no console error, nothing missing, nothing fetched from another host, no serious or
critical finding of axe-core; the times of first paint are told.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import json
import os
import re
import shutil
import statistics
import sys
import threading
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
        if cell["cell_type"] == "code" and "#| echo: false" not in joined(cell["source"]):
            lines = [line.rstrip() for line in joined(cell["source"]).splitlines() if not line.startswith("#|")]
            if len(lines) >= 3:
                return lines
    return None


def check_page(name: str, text: str, rendered: set[str]) -> list[str]:
    "Everything wrong with one page, a line each; `rendered` holds the notebooks that are pages of the site."
    page = Reader(text)
    blocks = [[line.rstrip() for line in block.strip("\n").splitlines()] for block in page.code]
    found = [
        f"{name}: a block of code begins with {block[0]!r}" for block in blocks if block and block[0].startswith("#|")
    ]
    found += [
        f"{name}: Quarto markup shows as text: {text.strip()[:60]!r}" for text in page.paragraphs if ":::" in text
    ]
    for link in page.links:
        path = unquote(re.split(r"[?#]", link)[0])
        if (
            path.endswith(".ipynb")
            and "://" not in path
            and os.path.normpath(os.path.join(os.path.dirname(name), path)) in rendered
        ):
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
    large = [
        f"{path.relative_to(site).as_posix()} has {path.stat().st_size:,} bytes"
        for path in pages
        if path.stat().st_size > 3_000_000
    ]
    return large + [
        line
        for path in pages
        for line in check_page(path.relative_to(site).as_posix(), path.read_text(encoding="utf-8"), rendered)
    ]


# --- in a browser ---------------------------------------------------------------------------------------------------

TEN = 10  # pages that are looked at in every width and theme
# axe needs half a minute for a lesson's 20,000 elements, most of them coloured words of code: of each kind a few are
# looked at.
THIN = """() => {
    const seen = {};
    const few = (key, most) => (seen[key] = (seen[key] || 0) + 1) <= most;
    document.querySelectorAll('pre span[class]').forEach(e => { if (!few('code ' + e.className, 3)) e.replaceWith(e.textContent); });
    document.querySelectorAll('math').forEach(e => { if (!few('math', 10)) e.replaceWith('x'); });
    document.querySelectorAll('svg').forEach(e => { if (!few('svg', 3)) e.replaceChildren(); });
}"""  # noqa: E501
PICTURES = """[...document.querySelectorAll('img')].filter(i => !i.alt.trim() && !i.closest('button, [aria-label]') || i.complete && !i.naturalWidth)
    .map(i => i.src.slice(0, 80))"""  # noqa: E501
PAINT = "performance.getEntriesByName('first-contentful-paint').map(e => e.startTime)[0] ?? null"


@contextlib.contextmanager
def served(folder: Path):
    "The address of a folder on this machine."
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def axe_source() -> str:
    "axe-core, as a Python package carries it."
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


def axe_findings(tab, options: str = "{}") -> list[str]:
    "What axe-core calls serious or critical, a line each; axe-core is in the page already."
    found = tab.evaluate(
        f"axe.run(document, {{...{options}, resultTypes: ['violations']}}).then(r => r.violations.map(v => "
        "[v.impact, v.id, v.nodes.length, v.nodes[0].html.slice(0, 160), v.nodes[0].failureSummary]))"
    )
    return [f"axe {impact}: {rule}, {count} times, first {node} ({' '.join(why.split())[:200]})"
            for impact, rule, count, node, why in found if impact in ("serious", "critical")]


@contextlib.contextmanager
def opened(browser, address: str, href: str, width: int, theme: str):
    "A page in a tab of its own, and the list that gathers what goes wrong in it."
    problems: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce")
    tab = context.new_page()
    tab.on("console", lambda m: problems.append(f"console: {m.text}") if m.type == "error" else None)
    tab.on("pageerror", lambda e: problems.append(f"error: {e}"))
    tab.on("requestfailed", lambda r: problems.append(f"failed: {r.url}"))
    tab.on(
        "request",
        lambda r: (
            problems.append(f"fetches from outside: {r.url}")
            if not r.url.startswith((address, "data:", "blob:"))
            else None
        ),
    )
    tab.on("response", lambda r: problems.append(f"{r.status}: {r.url}") if r.status >= 400 else None)
    try:
        tab.goto(f"{address}/{href}")
        yield tab, problems
    finally:
        context.close()


def look(browser, address: str, href: str, width: int, theme: str, axe: str) -> tuple[list[str], float | None]:
    "What is wrong with one page at one width in one theme, and its time of first paint in seconds."
    with opened(browser, address, href, width, theme) as (tab, problems):
        problems += [f"picture without words or not there: {src}" for src in tab.evaluate(PICTURES)]
        scroll = tab.evaluate("document.documentElement.scrollWidth")
        if scroll > width:
            problems.append(f"scrolls sideways to {scroll} px")
        paint = tab.evaluate(PAINT)
        tab.evaluate(axe)
        tab.evaluate(THIN)
        problems += axe_findings(tab, "{}" if theme == "light" else "{runOnly: ['color-contrast']}")
    return [f"{href} at {width} px, {theme}: {line}" for line in problems], paint and paint / 1000


def in_a_browser(site: Path, chromium: str) -> tuple[list[str], list[float]]:
    "Everything wrong that a browser sees, and the times of first paint."
    from playwright.sync_api import sync_playwright

    hrefs = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if "site_libs" not in path.parts)
    first = [h for h in ("index.html", "nbs/00_why.html", "nbs/03_smooth_ap.html") if h in hrefs]
    ten = [*first, *[h for h in hrefs if h not in first][:: max(1, (len(hrefs) - len(first)) // (TEN - len(first)))]][
        :TEN
    ]
    found, paints = [], []
    with served(site) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for href, width, theme in [
            *((h, 390, "light") for h in hrefs),
            *((h, *how) for h in ten for how in ((1280, "light"), (390, "dark"), (1280, "dark"))),
        ]:
            lines, paint = look(browser, address, href, width, theme, axe_source())
            found += lines
            paints += [paint] if paint else []
        browser.close()
    return found, paints


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("--browser", action="store_true")
    args = parser.parse_args()
    found = check(args.site)
    if args.browser:
        chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        if chromium is None:
            print("no Chromium on this machine (Debian: apt-get install chromium)", file=sys.stderr)
            return 2
        seen, paints = in_a_browser(args.site, chromium)
        found += seen
        print(f"first paint: median {statistics.median(paints):.2f} s, slowest {max(paints):.2f} s")
    print("\n".join(found) or "nothing found", file=sys.stderr if found else sys.stdout)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
