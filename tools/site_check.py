"""Check a built site, whoever rendered it (Quarto or tools/pages.py): what a reader would trip over fails here.

    python tools/site_check.py _site                what the files say (standard library only)
    python tools/site_check.py _site --browser      and what headless Chromium sees of them
    python tools/site_check.py _site --paint FILE   and when each page is first painted, written to FILE (idle machine)

Files: code keeps its lines, no cell begins with a directive, no Quarto markup shows as text, no link leads to a
notebook that is a page of the site, no page is larger than 3 MB. Browser: every page at 390 px in light colours, ten of
them at 390 and 1280 px in both themes: no sideways scroll, no console error, nothing missing, nothing fetched from
another host, at most 3 MB with all that a page fetches, no serious or critical finding of axe-core. Paint: one page
after the other, each in a browser profile of its own; a page that needs a second or more fails.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import functools
import http.server
import json
import os
import re
import shutil
import statistics
import sys
import threading
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from quarto_filter import ROOT, joined, reader_notebook


LARGEST = 3_000_000  # bytes of a page


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


def page_names(site: Path) -> list[str]:
    "Every page of a site."
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if "site_libs" not in path.parts)


def check(site: Path) -> list[str]:
    "Everything wrong with the pages of a site."
    names = page_names(site)
    if not names:
        return [f"{site} holds no page"]
    rendered = {f"nbs/{path.name}" for path in (ROOT / "nbs").glob("*.ipynb") if f"nbs/{path.stem}.html" in names}
    sizes = {name: (site / name).stat().st_size for name in names}
    home = re.search(r"(?m)^ *site-url: (\S+)$", (ROOT / "_quarto.yml").read_text(encoding="utf-8"))[1]
    cards = {
        card
        for name in names
        for card in re.findall(r'property="og:image" content="([^"]*)"', (site / name).read_text(encoding="utf-8"))
    }
    lost = [f"the card of a link is not there: {card}" for card in sorted(cards)
            if not card.startswith(home) or not (site / card.removeprefix(home).lstrip("/")).is_file()]
    large = [f"{name} has {size:,} bytes" for name, size in sizes.items() if size > LARGEST]
    return lost + large + [
        line
        for name in names
        for line in check_page(name, (site / name).read_text(encoding="utf-8"), rendered)
    ]


# --- in a browser ---------------------------------------------------------------------------------------------------

TEN = (  # pages that are looked at in every width and theme
    "index",
    "nbs/00_why",
    "nbs/01_ranking",
    "nbs/03_smooth_ap",
    "nbs/05_blackbox",
    "nbs/20_reproduction",
    "docs/start",
    "docs/benchmarks",
    "docs/reproduction",
    "docs/api/losses-smooth",
)
SLOW = 1.0  # seconds until the first paint
FACTS = """() => {
    const fetched = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
    const wordless = (i) => !i.alt.trim() && !i.closest('button, [aria-label]') || i.complete && !i.naturalWidth;
    const paint = performance.getEntriesByName('first-contentful-paint')[0];
    return {
        width: document.documentElement.scrollWidth,
        bytes: fetched.reduce((sum, entry) => sum + entry.decodedBodySize, 0),
        pictures: [...document.querySelectorAll('img')].filter(wordless).map((i) => i.src.slice(0, 80)),
        paint: paint ? paint.startTime / 1000 : null,
    };
}"""
# axe needs half a minute for a lesson's 20,000 elements, most of them coloured words of code: of each kind a few are
# looked at, and for the contrast a few words of each kind of element, since a sheet colours them all alike.
AXE = """async (onlyContrast) => {
    const counter = () => { const seen = {}; return (key, most) => (seen[key] = (seen[key] || 0) + 1) <= most; };
    const few = counter(), kind = (e) => e ? `${e.tagName}.${e.className}` : '';
    document.querySelectorAll('pre span[class]').forEach((e) => {
        if (!few('code ' + e.className, 3)) e.replaceWith(e.textContent);
    });
    document.querySelectorAll('math').forEach((e) => { if (!few('math', 10)) e.replaceWith('x'); });
    document.querySelectorAll('svg').forEach((e) => { if (!few('svg', 3)) e.replaceChildren(); });
    document.querySelectorAll('table').forEach((t) => [...t.rows].slice(12).forEach((row) => row.remove()));
    const run = (options) => axe.run(document, { resultTypes: ['violations'], preload: false, ...options });
    const off = { 'color-contrast': { enabled: false }, region: { enabled: false } };  // region is no serious matter
    const found = onlyContrast ? [] : (await run({ rules: off })).violations;
    const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), some = counter();
    while (words.nextNode()) {
        const e = words.currentNode.parentElement, up = e.parentElement;
        const key = [kind(e), kind(up), kind(up && up.parentElement), getComputedStyle(e).color].join(' ');
        if (words.currentNode.data.trim() && !some(key, 3)) words.currentNode.data = '';
    }
    found.push(...(await run({ runOnly: ['color-contrast'] })).violations);
    return found.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) =>
        `axe ${v.impact}: ${v.id}, ${v.nodes.length} times, first ${v.nodes[0].html.slice(0, 160)} ` +
        `(${v.nodes[0].failureSummary.replace(/\\s+/g, ' ').slice(0, 200)})`);
}"""


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


def profile(width: int, theme: str) -> dict:
    "How a browser is set up for one look."
    return {"viewport": {"width": width, "height": 900}, "color_scheme": theme, "reduced_motion": "reduce"}


def watched(tab, address: str) -> list[str]:
    "The list that gathers what goes wrong in a tab from now on."
    problems: list[str] = []

    def asked(request):
        if not request.url.startswith((address, "data:", "blob:")):
            problems.append(f"fetches from outside: {request.url}")

    tab.on("console", lambda m: problems.append(f"console: {m.text}") if m.type == "error" else None)
    tab.on("pageerror", lambda e: problems.append(f"error: {e}"))
    tab.on("requestfailed", lambda r: problems.append(f"failed: {r.url}"))
    tab.on("request", asked)
    tab.on("response", lambda r: problems.append(f"{r.status}: {r.url}") if r.status >= 400 else None)
    return problems


@contextlib.contextmanager
def opened(browser, address: str, href: str, width: int, theme: str):
    "A page in a tab of its own, and the list that gathers what goes wrong in it."
    context = browser.new_context(**profile(width, theme))
    tab = context.new_page()
    problems = watched(tab, address)
    try:
        tab.goto(f"{address}/{href}")
        yield tab, problems
    finally:
        context.close()


async def look(tab, problems: list[str], address: str, href: str, width: int, theme: str, axe: str) -> list[str]:
    "What is wrong with one page at one width in one theme."
    problems.clear()
    await tab.goto(f"{address}/{href}")
    facts = await tab.evaluate(FACTS)
    found = [f"picture without words or not there: {src}" for src in facts["pictures"]]
    found += [f"scrolls sideways to {facts['width']} px"] * (facts["width"] > width)
    found += [f"is {facts['bytes']:,} bytes with all that it fetches"] * (facts["bytes"] > LARGEST)
    await tab.evaluate(axe)
    found += await tab.evaluate(AXE, theme == "dark")
    return [f"{href} at {width} px, {theme}: {line}" for line in found + problems]


async def all_looks(site: Path, chromium: str) -> list[str]:
    "Everything wrong that a browser sees, one tab per core at a time; the largest pages first."
    from playwright.async_api import async_playwright

    hrefs = sorted(page_names(site), key=lambda href: (site / href).stat().st_size)
    ten = [href for href in hrefs if href.removesuffix(".html") in TEN]
    waiting = {(390, "light"): hrefs, (1280, "light"): ten[:], (390, "dark"): ten[:], (1280, "dark"): ten[:]}
    found: list[str] = []
    with served(site) as address:
        async with async_playwright() as play:
            browser = await play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])

            async def work():
                for (width, theme), left in waiting.items():
                    tab = await browser.new_page(**profile(width, theme))
                    problems = watched(tab, address)
                    while left:
                        found.extend(await look(tab, problems, address, left.pop(), width, theme, axe_source()))
                    await tab.close()

            await asyncio.gather(*(work() for _ in range(os.cpu_count() or 1)))
            await browser.close()
    return sorted(found)


def paint_times(site: Path, chromium: str, times: int = 3) -> dict:
    "Seconds until each page is first painted, cold, one at a time: the median of some tries, and where they were made."
    import torch
    from playwright.sync_api import sync_playwright

    from smoothap_nb.train.machine import environment

    pages = {}
    load = os.getloadavg()[0]
    with served(site) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for href in page_names(site):
            facts = []
            for _ in range(times):
                with opened(browser, address, href, 1280, "light") as (tab, _problems):
                    tab.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
                    facts.append(tab.evaluate(FACTS))
            paint = statistics.median(fact["paint"] for fact in facts)
            pages[href] = {"first_paint_s": round(paint, 3), "kilobytes": round(facts[0]["bytes"] / 1000)}
        version = browser.version
        browser.close()
    paints = [page["first_paint_s"] for page in pages.values()]
    return {
        "title": "First paint of the site's pages",
        "command": "python tools/site_check.py _site --paint docs/results/site.json",
        "date": datetime.date.today().isoformat(),
        "environment": environment(torch.device("cpu")),
        "load_of_the_machine": round(load, 1),
        "chromium": version,
        "times": times,
        "median_s": round(statistics.median(paints), 3),
        "slowest_s": max(paints),
        "largest_kilobytes": max(page["kilobytes"] for page in pages.values()),
        "pages": pages,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--paint", type=Path, metavar="FILE")
    args = parser.parse_args()
    found = check(args.site)
    if args.browser or args.paint:
        chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        if chromium is None:
            print("no Chromium on this machine (Debian: apt-get install chromium)", file=sys.stderr)
            return 2
        if args.browser:
            began = time.monotonic()
            found += asyncio.run(all_looks(args.site, chromium))
            print(f"looked at {len(page_names(args.site))} pages in {time.monotonic() - began:.0f} s")
        if args.paint:
            told = paint_times(args.site, chromium)
            args.paint.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
            print(f"first paint: median {told['median_s']} s, slowest {told['slowest_s']} s")
            found += [
                f"{href} is painted after {page['first_paint_s']} s"
                for href, page in told["pages"].items()
                if page["first_paint_s"] >= SLOW
            ]
    print("\n".join(found) or "nothing found", file=sys.stderr if found else sys.stdout)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
