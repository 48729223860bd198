#!/usr/bin/env python3
"""Quarto's ipynb filter: a notebook on standard input, the reader's notebook on standard output.

nbdev's directives are taken out of the code, cells that only steer the export are hidden, and a picture's alternative
text moves to where Quarto looks for it.
"""

import json
import re
import sys

DIRECTIVE = re.compile(r"^#\|\s*(default_exp|export|exporti|hide|eval|skip_\w+)\b.*$")


def reader_notebook(nb: dict) -> dict:
    "The notebook without what only the exporter needs."
    cells = []
    for cell in nb["cells"]:
        if cell["cell_type"] == "code":
            lines = "".join(cell["source"]).splitlines()
            if any(re.match(r"#\|\s*(hide|default_exp)\b", line) for line in lines):
                continue
            lines = [line for line in lines if not DIRECTIVE.match(line)]
            if not any(line.strip() for line in lines):
                continue
            alts = [o.get("metadata", {}).get("image/png", {}).get("alt") for o in cell.get("outputs", [])]
            alt = next((a for a in alts if a), None)
            head = [f"#| fig-alt: {json.dumps(alt, ensure_ascii=False)}"] if alt else []
            cell = {**cell, "source": "\n".join(head + lines).strip("\n")}
        cells.append(cell)
    return {**nb, "cells": cells}


if __name__ == "__main__":
    json.dump(reader_notebook(json.load(sys.stdin)), sys.stdout, ensure_ascii=False)
