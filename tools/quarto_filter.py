#!/usr/bin/env python3
"""The site's notebook filter: a notebook on standard input, the reader's notebook on standard output.

nbdev's directives are taken out of the code, cells that only steer the export are hidden, cells that only import or
only draw are folded, and long cells of the library. A picture's alternative text moves to where Quarto looks for
it and becomes its numbered caption, the still picture beside a player stays for readers without scripts, and the first
cell leads to Colab, to the notebook itself and to the reference of the module. Quarto runs it in the notebook's folder;
the plain pages (tools/pages.py) go through the same function. Standard library only: Quarto's Python may have no other.
"""

import ast
import configparser
import html
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parent.parent
DIRECTIVE = re.compile(r"^#\|\s*(default_exp|export|exporti|exports|hide|eval|skip_\w+)\b.*$")
LIVE = re.compile(r'<figure class="(player|ranklab-figure)"')
EXPORTED = re.compile(r"#\|\s*exports?i?\b")
FIGURE = "# Code of the figure"  # the first line of a cell that only draws
LONG = 40  # lines; a longer cell of the library is folded
PREPARES = re.compile(r"use_style\(\)|torch\.(manual_seed|set_num_threads)\(\d+\)|torch\.set_printoptions\(.*\)")
HIDDEN = re.compile(r"#\|\s*(hide|default_exp)\b")


def joined(text) -> str:
    "A notebook keeps text as one string or as a list of lines."
    return text if isinstance(text, str) else "".join(text)


def repository() -> tuple[str, str]:
    "Where the sources live, and on which branch."
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "settings.ini", encoding="utf-8")
    return config["DEFAULT"]["git_url"], config["DEFAULT"]["branch"]


def own_path(nb: dict) -> Path | None:
    "The notebook's file, found by the number that its title starts with, and by its module where two share a number."
    first = next((joined(c["source"]) for c in nb["cells"] if c["cell_type"] == "markdown"), "")
    title = re.match(r"# (\d\db?) ", first)
    found = sorted((ROOT / "nbs").glob(f"{title[1]}_*.ipynb")) if title else []
    if len(found) > 1:
        found = [path for path in found if path.stem.partition("_")[2] == (module_of(nb) or "").split(".")[-1]]
    return found[0] if found else None


def module_of(nb: dict) -> str | None:
    "The module that the notebook exports."
    for cell in nb["cells"]:
        found = (
            re.match(r"#\|\s*default_exp\s+([\w.]+)", joined(cell["source"])) if cell["cell_type"] == "code" else None
        )
        if found:
            return found[1]
    return None


def ways_on(nb: dict) -> str:
    "One line of links: run it, read its source, look its names up."
    path = own_path(nb)
    if path is None:
        return ""
    url, branch = repository()
    slug = url.removeprefix("https://github.com/")
    links = [f"[Open in Colab](https://colab.research.google.com/github/{slug}/blob/{branch}/nbs/{path.name})",
             f"[Notebook]({url}/blob/{branch}/nbs/{path.name})"]
    module = module_of(nb)
    if module and (ROOT / "docs" / "api" / f"{module.replace('.', '-')}.md").exists():
        links.append(f"[Reference: {module}](../docs/api/{module.replace('.', '-')}.md)")
    return f"{' · '.join(links)}\n\n*In Colab, run this first:* `%pip install -q git+{url}`"


def only_prepares(code: str) -> bool:
    "Whether a cell holds nothing but imports and calls that set the figures' style, the seed or the threads."
    try:
        body = ast.parse(code).body
    except SyntaxError:  # a magic
        return False
    imports = [isinstance(node, (ast.Import, ast.ImportFrom)) for node in body]
    return any(imports) and all(i or PREPARES.fullmatch(ast.unparse(node)) for i, node in zip(imports, body))


def summary_of(code: str) -> str:
    "What a folded cell is called: by the names it defines that are not private, the first few."
    defined = [node.name for node in ast.parse(code).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    names = [name for name in defined if not name.startswith("_")] or defined
    return (
        f"Code: {', '.join(names[:4])}{', …' * (len(names) > 4)} ({len(code.splitlines())} lines)"
        if names
        else f"Code ({len(code.splitlines())} lines)"
    )


def html_of(output: dict) -> str:
    "What an output shows as HTML; empty where it shows none."
    return joined(output.get("data", {}).get("text/html", ""))


def with_noscript(outputs: list[dict]) -> list[dict]:
    "A figure that moves needs no still picture beside it, except where no script runs."
    players = [o for o in outputs if LIVE.search(html_of(o))]
    at = outputs.index(players[0]) if len(players) == 1 else 0
    stills = [o for o in outputs[at - 1:at] if o.get("metadata", {}).get("image/png", {}).get("alt")]
    if not stills:
        return outputs
    image = joined(stills[0]["data"]["image/png"]).replace("\n", "")
    alt = html.escape(stills[0]["metadata"]["image/png"]["alt"], quote=True)
    moved = (
        html_of(players[0])
        + f'\n<noscript><img src="data:image/png;base64,{image}" alt="{alt}"></noscript>'
    )
    player = {**players[0], "data": {**players[0]["data"], "text/html": moved}}
    return [player if o is players[0] else o for o in outputs if o is not stills[0]]


def caption_of(alt: str) -> str:
    "A figure's alternative text as its caption: a sentence, without the word on where a moving figure stands still."
    text = re.sub(r"\s*\(still picture[^()]*\)$", "", alt).rstrip(". ")
    return f"{text[:1].upper()}{text[1:]}."


def with_captions(outputs: list[dict], number: Callable[[], str]) -> tuple[list[dict], list[str]]:
    "Outputs whose figures carry a caption with the next number before it, and the captions of the still ones."
    out, captions = [], []
    for o in outputs:
        still = o.get("metadata", {}).get("image/png", {}).get("alt")
        live = html_of(o)
        said = re.search(r'alt="([^"]*)"></noscript>|aria-label="([^"]*)"', live) if LIVE.search(live) else None
        if still:
            captions.append(number() + caption_of(still))
            o = {
                **o,
                "metadata": {**o["metadata"], "image/png": {**o["metadata"]["image/png"], "caption": captions[-1]}},
            }
        elif said:
            text = html.escape(number() + caption_of(html.unescape(said[1] or said[2])))
            o = {
                **o,
                "data": {**o["data"], "text/html": live + f'\n<p class="figure-caption" aria-hidden="true">{text}</p>'},
            }
        out.append(o)
    return out, captions


def says_itself(nb: dict, number: int) -> bool:
    "Whether the prose behind a cell begins with the figure's own caption: *Figure 1.2.* ..."
    after = nb["cells"][number + 1] if number + 1 < len(nb["cells"]) else {"cell_type": ""}
    return after["cell_type"] == "markdown" and joined(after["source"]).startswith("*Figure ")


def numbers_of(nb: dict, title: str | None) -> Callable[[], str]:
    """Counts the figures of a lesson: "Figure 12.1. ", "Figure 12.2. " and on; nothing where its prose numbers them
    itself, or where there is no lesson.
    """
    own = any(says_itself(nb, place) for place in range(len(nb["cells"])))
    count = itertools.count(1)
    return lambda: "" if own or title is None else f"Figure {title.lstrip('0') or '0'}.{next(count)}. "


def reader_notebook(nb: dict) -> dict:
    """The notebook without what only the exporter needs.

    A cell's text is a list of lines: Quarto splits a single string at its line ends and loses them, and a block of code
    becomes one line.
    """
    cells = []
    title = next(
        (
            m
            for c in nb["cells"]
            if c["cell_type"] == "markdown" and (m := re.match(r"# (\d\db?) ", joined(c["source"])))
        ),
        None,
    )
    next_number = numbers_of(nb, title and title[1])
    for number, cell in enumerate(nb["cells"]):
        if cell["cell_type"] == "code":
            lines = joined(cell["source"]).splitlines()
            exported = any(EXPORTED.match(line) for line in lines)
            if any(HIDDEN.match(line) for line in lines):
                continue
            lines = [line for line in lines if not DIRECTIVE.match(line)]
            if not any(line.strip() for line in lines):
                continue
            outputs = with_noscript(cell.get("outputs", []))
            outputs, captions = (outputs, []) if says_itself(nb, number) else with_captions(outputs, next_number)
            alts = [alt for o in outputs if (alt := o.get("metadata", {}).get("image/png", {}).get("alt"))]
            one_or_all = lambda texts: json.dumps(texts[0] if len(texts) == 1 else texts, ensure_ascii=False)
            head = [f"#| fig-alt: {one_or_all(alts)}"] * bool(alts) + [f"#| fig-cap: {one_or_all(captions)}"] * bool(
                captions
            )
            if not outputs and only_prepares("\n".join(lines)):
                head += ["#| code-fold: true", "#| code-summary: Imports"]
            elif lines[0].strip() == FIGURE:
                lines = lines[1:]
                head += ["#| code-fold: true", "#| code-summary: Code of the figure"]
            elif exported and not outputs and len(lines) > LONG:
                head += [
                    "#| code-fold: true",
                    f"#| code-summary: {json.dumps(summary_of(chr(10).join(lines).strip()), ensure_ascii=False)}",
                ]
            cell = {**cell, "source": "\n".join(head + lines).strip("\n").splitlines(keepends=True), "outputs": outputs}
        cells.append(cell)
    links = ways_on(nb)
    first = next((i for i, c in enumerate(cells) if c["cell_type"] == "markdown"), None)
    if first is not None and links:
        cells[first] = {
            **cells[first],
            "source": (joined(cells[first]["source"]).rstrip() + "\n\n" + links).splitlines(keepends=True),
        }
    return {**nb, "cells": cells}


def live_parts_as_html(nb: dict) -> dict:
    """Figures that move as raw HTML of the page, each in a cell behind its own.

    Quarto takes a script in a cell's output for a Jupyter widget, and asks a foreign host for jQuery and requirejs on
    its behalf.
    """
    cells = []
    for cell in nb["cells"]:
        live = [o for o in cell.get("outputs", []) if "<script" in html_of(o)]  # search boxes and animations too
        cells.append({**cell, "outputs": [o for o in cell["outputs"] if o not in live]} if live else cell)
        for number, o in enumerate(live):
            text = f"````{{=html}}\n{html_of(o)}\n````\n"
            cells.append(
                {
                    "cell_type": "markdown",
                    "id": f"{cell.get('id', 'cell')}-{number}",
                    "metadata": {},
                    "source": text.splitlines(keepends=True),
                }
            )
    return {**nb, "cells": cells}


if __name__ == "__main__":
    json.dump(live_parts_as_html(reader_notebook(json.load(sys.stdin))), sys.stdout, ensure_ascii=False)
