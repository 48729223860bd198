"""How the lessons read: cells, lines of code per cell, share of checked cells, words per line of code.

    python tools/lesson_shape.py [NOTEBOOK...]

Counted apart, because no reader goes through it line by line: code that only draws (cells that begin with "# Code
    of the figure") and docstrings. Cells
that only import or steer the export hold no lines either. A cell is checked where it asserts, or must raise. Words are
counted against every line of code on the page; exercises, which are for afterwards, are not counted.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
FIGURE = "# Code of the figure"
CHECK = re.compile(
    r"^\s*(?:assert\b|with expect_error|with raises)"
    r"|\b(?:test_eq|test_close|test_fail|assert_close|assert_allclose|assert_equal)\(",
    re.M,
)
LIMITS = {
    "cells": (40, 70),
    "median": (0, 4),
    "p90": (0, 12),
    "checked": (0.25, 1.0),
    "words": (2.0, 5.5),
}  # two to five words per line is the aim


def lines_of(code: str) -> int:
    """Lines that a reader reads: neither empty nor comment, neither docstring nor import.

    A statement that is wrapped counts once: no lesson gets shorter by lines that run out of the page.
    """
    plain = "\n".join("pass" if line.startswith(("%", "!")) else line for line in code.splitlines()) + "\n"
    hidden: set[int] = set()
    for node in ast.walk(ast.parse(plain)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            hidden |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            hidden |= set(range(node.lineno, node.end_lineno + 1))
    ends = (
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(plain).readline)
        if token.type == tokenize.NEWLINE
    )
    return sum(end not in hidden for end in ends)


def words_of(text: str) -> int:
    "Words of prose: without formulas, code, folded hints and the addresses of links."
    text = re.sub(r"```.*?```|\$\$.*?\$\$|<details>.*?</details>", " ", text, flags=re.S)
    text = re.sub(r"\$[^$\n]*\$|<[^>]+>|\]\([^)]*\)|`", " ", text)
    return len(re.findall(r"[^\W_][\w'’.-]*", text))


def shape(path: Path) -> dict[str, float]:
    "The measures of one notebook."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    source = ["".join(c["source"]) for c in cells]
    code = [s for s, c in zip(source, cells) if c["cell_type"] == "code"]
    drawing = [s for s in code if s.startswith(FIGURE)]
    sizes = sorted(n for s in code if not s.startswith(FIGURE) and (n := lines_of(s)))
    written = sum(bool(line.strip()) and not line.startswith("#|") for s in code for line in s.splitlines())
    words = sum(
        words_of(s) for s, c in zip(source, cells) if c["cell_type"] == "markdown" and not s.startswith("## Exercises")
    )
    return {
        "cells": len(cells),
        "code": len(code),
        "lines": sum(sizes),
        "median": median(sizes or [0]),
        "p90": sizes[-(-9 * len(sizes) // 10) - 1] if sizes else 0,
        "checked": sum(bool(CHECK.search(s)) for s in code) / max(1, len(sizes) + len(drawing)),
        "words": words / max(1, written),
        "longest": max(sizes or [0]),
    }


def beyond(path: Path) -> list[str]:
    "Which measures of a notebook lie outside `LIMITS`."
    found = shape(path)
    return [
        f"{name} {found[name]:.3g}, not {low:g} to {high:g}"
        for name, (low, high) in LIMITS.items()
        if not low <= found[name] <= high
    ]


def main() -> int:
    paths = [Path(p) for p in sys.argv[1:]] or sorted((ROOT / "nbs").glob("[0-9]*.ipynb"))
    print(f"{'':24} cells  code lines  median  p90  longest  checked  words per line")
    for path in paths:
        s = shape(path)
        print(
            f"{path.stem:24} {s['cells']:5} {s['lines']:11} {s['median']:7.3g} {s['p90']:4} {s['longest']:8}"
            f" {s['checked']:8.0%} {s['words']:15.1f}   {'; '.join(beyond(path))}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
