"""Render the site as plain pages, for machines without Quarto: nbconvert's Markdown and highlighting, MathML, one
stylesheet.

    python tools/pages.py [FOLDER]

The pages, their order and their parts are those of `_quarto.yml`; notebooks go through the same filter as Quarto's
(tools/quarto_filter.py). Nothing is executed, nothing is fetched: the pages can be read from the disk.
"""

from __future__ import annotations

import base64
import functools
import html
import itertools
import json
import re
import shutil
import sys
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import yaml
from bs4 import BeautifulSoup
from latex2mathml.converter import convert as mathml
from nbconvert.filters.ansi import ansi2html
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

import api
import home
import links
from quarto_filter import ROOT, joined, reader_notebook, repository

HERE = Path(__file__).resolve().parent
INCLUDE = re.compile(r"^\{\{<\s*include\s+(\S+)\s*>\}\}\s*$", re.M)


@dataclass
class Page:
    "One page of the site."

    source: str  # path from the top of the repository
    part: str
    text: str | None = None  # its name in the sidebar, where _quarto.yml gives one
    title: str = ""
    body: str = ""
    about: str = ""  # its first sentence
    headings: list[tuple[str, str]] = field(default_factory=list)  # (id, text) of second level
    entries: list[dict] = field(default_factory=list)  # for the search

    @property
    def href(self) -> str:
        return re.sub(r"\.\w+$", ".html", self.source)

    @property
    def name(self) -> str:
        return self.text or self.title


@functools.cache
def settings() -> dict:
    return yaml.safe_load((ROOT / "_quarto.yml").read_text(encoding="utf-8"))


def order() -> list[Page]:
    "Every page in reading order, from the sidebar in `_quarto.yml`."
    pages = []

    def add(items, part):
        for item in items:
            if isinstance(item, str):
                pages.append(Page(item, part))
            elif "section" in item:
                if "href" in item:
                    pages.append(Page(item["href"], item["section"], item["section"]))
                add(item["contents"], item["section"])
            else:
                pages.append(Page(item["href"], part, item.get("text")))

    add(settings()["website"]["sidebar"]["contents"], "")
    return pages


def drawable(made: str) -> str:
    """Browsers draw no `mathvariant` but `normal`: script, double-struck and the like become characters of their own;
    capital Greek stands upright, as in TeX.
    """
    faces = {"script": "SCRIPT", "double-struck": "DOUBLE-STRUCK", "bold": "BOLD", "fraktur": "FRAKTUR"}

    def letter(found: re.Match) -> str:
        kind, face, text = found[1], faces[found[2]], html.unescape(found[3])
        if len(text) != 1 or not text.isascii() or not text.isalpha():
            return found[0]
        case = "CAPITAL" if text.isupper() else "SMALL"
        for style in ("MATHEMATICAL " + face, face, "BLACK-LETTER" if face == "FRAKTUR" else face):
            try:
                return f"<{kind}>{unicodedata.lookup(f'{style} {case} {text.upper()}')}</{kind}>"
            except KeyError:
                pass
        return found[0]

    made = re.sub(r'<(m[in]) mathvariant="(script|double-struck|bold|fraktur)">([^<]*)</\1>', letter, made)
    made = made.replace("&#x029F5;", "&#x02216;").replace("\u29f5", "\u2216")  # few fonts have the first set minus
    name, thin = r"<mi>(?:log|ln|exp|sinh|cosh|tanh|arccosh)</mi>", '<mspace width="0.167em" />'
    made = re.sub(
        rf"((?<!<msub>)(?<!<msup>){name}|<(msu[bp])>{name}<m[in]>[^<]*</m[in]></\2>)(?=<m(?:[in]|frac|row|sqrt)\b)",
        rf"\1{thin}",
        made,
    )
    made = re.sub(rf"(</m(?:[in]|row|frac|sup|sub)>)(?=(?:<msu[bp]>)?{name})", rf"\1{thin}", made)
    return re.sub(
        r"<mi>(&#x0039[1-9A-F];|&#x003A[0-9];|[\u0391-\u03a9])</mi>", r'<mi mathvariant="normal">\1</mi>', made
    )


def formula(tex: str, display: str) -> str:
    "MathML of a formula: browsers draw it without a script. One that cannot be converted stays readable as TeX."
    try:
        known = re.sub(r"\\arg(?![A-Za-z])", r"\\operatorname{arg}", tex)  # the converter writes \arg as it stands
        made = drawable(mathml(re.sub(r"(begin|end)\{aligned\}", r"\1{align*}", known), display=display))
    except Exception as error:  # the converter raises many kinds
        print(f"left as TeX ({type(error).__name__}): {tex}", file=sys.stderr)
        return f'<code class="tex">{html.escape(tex)}</code>'
    return made if display == "inline" else f'<div class="formula scroll">{made}</div>'


class Renderer(IPythonRenderer):
    "nbconvert's Markdown with formulas as MathML and code that is always highlighted."

    def __init__(self):
        super().__init__(escape=False, anchor_link_text="#")

    def block_math(self, body: str) -> str:
        return formula(body, "block")

    def inline_math(self, body: str) -> str:
        return formula(body, "inline")

    def latex_environment(self, name: str, body: str) -> str:
        return formula(f"\\begin{{{name}}}{body}\\end{{{name}}}", "block")

    def block_code(self, code: str, info: str | None = None) -> str:
        if info == "{=html}":  # what Pandoc passes on as it stands
            return code
        return source_code(code, (info or "text").split()[0])

    def block_html(self, html: str) -> str:  # a folded hint on one line: formulas and code in it are drawn all the same
        made = re.sub(r"(?<![\\$])\$([^$\n]+)\$(?!\$)", lambda m: formula(m[1], "inline"), html)
        return re.sub(r"`([^`\n]+)`", lambda m: f"<code>{m[1]}</code>", made)


def markdown(text: str) -> str:
    return MarkdownWithMath(renderer=Renderer()).render(text)


def source_code(code: str, language: str = "ipython3") -> str:
    try:
        lexer = get_lexer_by_name(language)
    except Exception:
        lexer = get_lexer_by_name("text")
    made = highlight(code, lexer, HtmlFormatter(cssclass="highlight scroll", wrapcode=True))
    return re.sub(r"(?s)(<code>)(.*)(</code>)", lambda m: m[1] + hanging(m[2]) + m[3], made)


def hanging(made: str) -> str:
    "Highlighted lines that, where they are too long for the column, go on further in than they began."
    lines = []
    for line in made.splitlines(keepends=True):
        text = re.sub(r"<[^>]*>", "", line)
        lines.append(f'<span class="line" style="--in:{len(text) - len(text.lstrip(" "))}">{line}</span>')
    return "".join(lines)


def wider_than(png: str, pixels: int) -> bool:
    "Is a PNG (in base64) wider? Its header says so."
    header = base64.b64decode(png[:32])
    return header[:4] == b"\x89PNG" and int.from_bytes(header[16:20], "big") > pixels


def output(out: dict) -> str:
    "One output of a cell: the richest form that a page can show."
    if out["output_type"] == "stream":
        return f'<pre class="out scroll">{ansi2html(joined(out["text"]))}</pre>'
    if out["output_type"] == "error":
        return f'<pre class="out scroll">{ansi2html(chr(10).join(out["traceback"]))}</pre>'
    data, meta = out.get("data", {}), out.get("metadata", {})
    if "text/html" in data:
        return f'<div class="out scroll">{joined(data["text/html"])}</div>'
    if "image/svg+xml" in data:
        return f'<div class="out picture scroll">{joined(data["image/svg+xml"])}</div>'
    for kind in ("image/png", "image/jpeg"):
        if kind in data:
            extra = meta.get(kind, {})
            size = "".join(f' {k}="{extra[k]}"' for k in ("width", "height") if k in extra)
            wide = " scroll wide" if kind == "image/png" and wider_than(joined(data[kind]), 900) else ""
            image = (
                f'<img src="data:{kind};base64,{joined(data[kind]).strip()}" '
                f'alt="{html.escape(extra.get("alt", ""), quote=True)}"{size}>'
            )
            said = (
                f'<figcaption aria-hidden="true">{html.escape(extra["caption"])}</figcaption>'
                if "caption" in extra
                else ""
            )
            return f'<figure class="out picture{wide}">{image}{said}</figure>'
    if "text/markdown" in data:
        return f'<div class="out">{prose(joined(data["text/markdown"]))}</div>'
    return f'<pre class="out scroll">{html.escape(joined(data.get("text/plain", "")))}</pre>'


def notebook_body(path: Path) -> str:
    nb = reader_notebook(json.loads(path.read_text(encoding="utf-8")))
    parts, texts = [], []

    def flush():
        if texts:
            parts.append(prose("\n\n".join(texts)))
            texts.clear()

    for cell in nb["cells"]:
        source = joined(cell["source"])
        if cell["cell_type"] == "markdown":
            texts.append(source)
        elif cell["cell_type"] == "code":
            flush()
            # without the options that the filter sets for Quarto
            code = source_code(re.sub(r"^#\|.*\n?", "", source, flags=re.M))
            if "#| echo: false" in source:
                code = ""
            elif "#| code-fold: true" in source:
                summary = re.search(r"^#\| code-summary: (.+)$", source, flags=re.M)[1].strip('"')
                code = f'<details class="imports"><summary>{html.escape(summary)}</summary>{code}</details>'
            parts.append(f'<div class="cell">{code}{"".join(output(o) for o in cell["outputs"])}</div>')
    flush()
    return "\n".join(parts)


def prose(text: str) -> str:
    "Markdown as a page shows it: tables that scroll by themselves, headings that can be linked."
    soup = BeautifulSoup(markdown(text), "html.parser")
    for table in soup.find_all("table"):
        table.wrap(soup.new_tag("div", attrs={"class": "table scroll"}))
        for cell in table.find_all("th"):
            if not cell.get_text(strip=True):
                cell.name = "td"
    for plot in soup.select('p > img[src*="results"]'):  # on a phone it scrolls rather than shrink
        plot.parent["class"] = ["scroll", "wide"]
    for anchor in soup.select("a.anchor-link"):
        anchor["aria-hidden"], anchor["tabindex"] = "true", "-1"
    # a full stop or comma stays on the line of its formula
    return re.sub(
        r'(<math(?:(?!</math>).)*?display="inline"(?:(?!</math>).)*</math>)([.,;:!?)]+)',
        r'<span class="together">\1\2</span>',
        str(soup),
        flags=re.S,
    )


def markdown_source(path: Path) -> str:
    "A text page's Markdown: without its front matter, with what it includes."
    text = re.sub(r"\A---\n.*?\n---\n", "", path.read_text(encoding="utf-8"), flags=re.S)
    return INCLUDE.sub(lambda m: included(path.parent / m[1]), text)


def included(path: Path) -> str:
    "A file that a page includes; the page has a title of its own."
    return re.sub(r"\A# .*\n", "", path.read_text(encoding="utf-8"))


def fill(page: Page) -> Page:
    "Render one page's body, and read its title, headings and words from it."
    path = ROOT / page.source
    page.body = notebook_body(path) if path.suffix == ".ipynb" else prose(markdown_source(path))
    light = re.sub(
        r'(?s)<script.*?</script>|<noscript.*?</noscript>|"data:image[^"]*"|<svg.*?</svg>|<figcaption.*?</figcaption>',
        "",
        page.body,
    )
    soup = BeautifulSoup(light, "html.parser")
    for anchor in soup.select("a.anchor-link"):
        anchor.decompose()
    first = soup.find("h1")
    page.title = first.get_text(" ", strip=True) if first else page.text or Path(page.source).stem
    for node in soup.find_all("math"):
        node.replace_with(re.sub(r"\s+", "", node.get_text()))
    entry = {"page": page.title, "part": page.part, "href": page.href, "head": "", "text": []}
    page.entries = [entry]
    for node in soup.find_all(["h1", "h2", "h3", "p", "li", "td", "pre"]):
        # the words of code stand as close as they are written
        text = re.sub(r"\s+", " ", node.get_text("" if node.name == "pre" else " ")).strip()
        if node.name in ("h2", "h3"):
            entry = {
                "page": page.title,
                "part": page.part,
                "href": f"{page.href}#{node.get('id', '')}",
                "head": text,
                "text": [],
            }
            page.entries.append(entry)
            if node.name == "h2":
                page.headings.append((node.get("id", ""), text))
        elif node.name != "h1" and not node.find_parent(["li", "td"]):
            entry["text"].append(text)
    page.about = next((t for e in page.entries for t in e["text"] if len(t) > 40), "")[:200]
    dotted = lambda found: found[0].replace(".", ".<wbr>")  # a module's name breaks behind a dot
    page.body = re.sub(r"(?<=>)smoothap_nb[\w.]+(?=[^<]*(?:<a[^>]*>[^<]*</a>)?</h1>)", dotted, page.body)
    for entry in page.entries:
        entry["text"] = spelled(" ".join(entry["text"]))
    return page


def spelled(text: str) -> str:
    "Text for the search: nobody types a Greek letter."
    name = lambda found: unicodedata.name(found[0]).split()[-1].lower()
    return re.sub("[\u03b1-\u03c1\u03c3-\u03c9]", name, unicodedata.normalize("NFKC", text))


def sidebar(pages: list[Page], here: Page, up: str) -> str:
    "Every page by part; only the part of this page is open, and the guides always are."
    out = []
    for part, group in itertools.groupby(pages, key=lambda page: page.part):
        links_ = "".join(
            f'<li><a href="{up}{page.href}"{" aria-current=" + chr(34) + "page" + chr(34) if page is here else ""}>{html.escape(page.name).replace("_", "_<wbr>")}</a></li>'  # noqa: E501
            for page in group
        )
        opened = (
            " open"
            if part == here.part or part == "Guides" or here.source == "index.qmd" and part.startswith("Part I:")
            else ""
        )
        out.append(
            f"<details{opened}><summary>{html.escape(part)}</summary><ul>{links_}</ul></details>"
            if part
            else f"<ul>{links_}</ul>"
        )
    return "".join(out)


def whole(page: Page, pages: list[Page], template: str) -> str:
    "The page with everything around it."
    up = "../" * page.source.count("/")
    url, branch = repository()
    site = settings()["website"]["title"]
    number = pages.index(page)
    steps = []
    for word, rel, other in (("Previous", "prev", pages[number - 1] if number else None),
                             ("Next", "next", pages[number + 1] if number + 1 < len(pages) else None)):
        steps.append(
            f'<a rel="{rel}" class="{rel}" href="{up}{other.href}"><small>{word}</small>{html.escape(other.name)}</a>'
            if other
            else "<span></span>"
        )
    toc = "".join(f'<li><a href="#{html.escape(i, quote=True)}">{html.escape(t)}</a></li>' for i, t in page.headings)
    toc = (
        f'<details class="toc" open><summary>On this page</summary><nav aria-label="On this '
        f'page"><ul>{toc}</ul></nav></details>'
        if len(page.headings) > 1
        else ""
    )
    edited = "README.md" if page.source == "index.qmd" else page.source
    edit = (
        ""
        if page.source.startswith("docs/api/")
        else f'<p><a href="{url}/edit/{branch}/{edited}">Edit this page</a></p>'
    )
    title = page.title if page.title == site else f"{page.title} · {site}"
    values = {
        "title": html.escape(title),
        "site": html.escape(site),
        "up": up,
        "sidebar": sidebar(pages, page, up),
        "toc": toc,
        "body": page.body,
        "steps": "".join(steps),
        "edit": edit,
        "repo": url,
        "address": settings()["website"]["site-url"],
        "href": page.href,
        "about": html.escape(page.about if number and page.about else settings()["website"]["description"], quote=True),
        "figures": (HERE / "figures.html").read_text(encoding="utf-8"),
        "class": "lesson" if page.source.endswith(".ipynb") else "guide",
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda m: values[m[1]], template)


def stylesheet() -> str:
    "The stylesheet, with code colours for light and dark."
    def colours(style: str, scope: str) -> str:
        rules = HtmlFormatter(style=style).get_style_defs(f"{scope} .highlight").splitlines()
        return "\n".join(r for r in rules if ".highlight" in r and "line-height" not in r and ".highlight {" not in r)

    dark = colours("github-dark", ":root[data-theme=dark]")
    return (
        (HERE / "pages.css").read_text(encoding="utf-8")
        + "\n"
        + (HERE / "shared.css").read_text(encoding="utf-8")
        + "\n"
        + colours("default", ":root:not([data-theme=dark])")
        + "\n"
        + dark
        + "\n"
    )


def copy_pictures(page: Page, site: Path) -> None:
    "Pictures that a page shows from the repository go along."
    for link in re.findall(r'<img[^>]*\ssrc="([^"]+)"', page.body):
        if links.is_local(link):
            source = (ROOT / page.source).parent / unquote(link)
            if source.is_file():
                target = site / source.resolve().relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)


def build(site: Path) -> list[str]:
    "Write every page into `site`; return the dead links."
    if site.exists():
        if any(site.iterdir()) and not (site / "index.html").exists():
            raise SystemExit(f"{site} holds something that is no site: name an empty folder")
        shutil.rmtree(site)
    (site / "assets").mkdir(parents=True)
    home.write()
    api.write()
    pages = [fill(page) for page in order()]
    template = (HERE / "pages.html").read_text(encoding="utf-8")
    for page in pages:
        target = site / page.href
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(whole(page, pages, template), encoding="utf-8")
        copy_pictures(page, site)
    card = settings()["website"]["open-graph"]["image"]  # what others show of a link to the site
    (site / card).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / card, site / card)
    (site / "assets" / "site.css").write_text(stylesheet(), encoding="utf-8")
    shutil.copy(HERE / "pages.js", site / "assets" / "site.js")
    found = json.dumps([e for page in pages for e in page.entries], ensure_ascii=False, separators=(",", ":"))
    (site / "assets" / "search.js").write_text(f"window.pagesToSearch = {found};\n", encoding="utf-8")
    return links.mend(site)


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "_site").resolve()
    for line in build(folder):
        print(f"dead link in {line}", file=sys.stderr)
    print(folder / "index.html")
