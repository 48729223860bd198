"""The problem sets for those who learn alone, without solutions and hidden tests: notebooks to open, pages to read.

    python tools/handout.py           write docs/sets/SET.ipynb and docs/setN_....md, and the page docs/sets.md
    python tools/handout.py --check   say whether they are what the source notebooks give
"""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path

import nbformat
from course import in_order

ROOT = Path(__file__).resolve().parent.parent
SOURCE, DOCS = ROOT / "course" / "source", ROOT / "docs"
HERE = "https://github.com/smoothap-nb/smoothap_nb"
RAW = HERE.replace("github.com", "raw.githubusercontent.com") + "/main"
COLAB = HERE.replace("https://github.com", "https://colab.research.google.com/github") + "/blob/main"
INSTALL = f"""# Run this first in Colab; where the package is installed it does nothing.
import importlib.util
if importlib.util.find_spec("smoothap_nb") is None:
    %pip install -q "smoothap_nb[train] @ git+{HERE}\""""
FETCH = """
import pathlib, urllib.request
if not pathlib.Path("{file}").exists():
    urllib.request.urlretrieve("{raw}/course/source/{name}/{file}", "{file}")"""

OVERVIEW = """# The problem sets

Each set changes the conventions of its lesson, so that nothing can be copied and everything has to be understood.
Write into the cells and run the checks below: they say what went wrong, on which tiny input, and where to read. No
account, no grading, nothing to hand in.

| set | about | time | open |
|---|---|---|---|
{rows}

On your own machine: `pip install "smoothap_nb[train]"`, download a notebook, `jupyter lab`. In Colab the first cell
installs the package. JupyterLite (Python in the browser) has no PyTorch, which every set needs: tasks that are done by
hand or with fractions can be thought through there, and not checked.

[Solutions](solutions.md), one fold for each task. For a class: [teaching](teaching.md); the notebooks that are graded
are built by `make course`.

These pages are made from the source notebooks by `python tools/handout.py`.
"""


def handout(path: Path):
    "A set as a reader gets it: answers blank, hidden tests and nbgrader's marks taken out."
    from nbgrader.preprocessors import ClearHiddenTests, ClearSolutions

    notebook = nbformat.read(path, as_version=4)
    for step in (ClearSolutions(), ClearHiddenTests()):
        notebook, _ = step.preprocess(copy.deepcopy(notebook), {})
    cells = [c for c in notebook.cells if "_more" not in c.metadata.get("nbgrader", {}).get("grade_id", "")]
    for cell in cells:
        cell.metadata.pop("nbgrader", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    beside = [p.name for p in sorted(path.parent.glob("*.py")) if p.name != "smoothap_course.py"]
    install = INSTALL + "".join(FETCH.format(file=file, name=path.stem, raw=RAW) for file in beside)
    cells.insert(1, nbformat.v4.new_code_cell(install, id="install"))
    notebook.cells = cells
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = nbformat.from_dict({"kernelspec": kernel, "language_info": {"name": "python"}})
    return notebook


def links(name: str) -> str:
    return (
        f"[Open in Colab]({COLAB}/docs/sets/{name}.ipynb) · [Notebook]({HERE}/blob/main/docs/sets/{name}.ipynb) · "
        f"[Download]({RAW}/docs/sets/{name}.ipynb) · [Solutions](solutions.md)"
    )


def page(name: str, notebook) -> str:
    "A set to be read: its text, and its cells."
    parts = []
    for cell in notebook.cells:
        if cell.get("id") == "install":
            parts.append(links(name))
        elif cell.cell_type == "markdown":
            parts.append(cell.source.strip())
        elif cell.source.strip():
            parts.append(f"```python\n{cell.source.strip()}\n```")
    return "\n\n".join(parts) + "\n"


def overview(notebooks: dict) -> str:
    "The page of all sets."
    rows = []
    for name, notebook in notebooks.items():
        title = re.search(r"^# (Set \d+): (.+)$", notebook.cells[0].source, re.M)
        promise = re.search(r"^> (.+)$", notebook.cells[0].source, re.M)[1]
        time = re.search(r"^\| Time \| (.+) \|$", notebook.cells[0].source, re.M)[1]
        where = f"[Colab]({COLAB}/docs/sets/{name}.ipynb) · [download]({RAW}/docs/sets/{name}.ipynb)"
        rows.append(f"| [{title[1]}]({name}.md) | {title[2]}. {promise} | {time} | {where} |")
    return OVERVIEW.format(rows="\n".join(rows))


def wanted() -> dict[Path, str]:
    "Every file of the handout and what it holds."
    notebooks = {p.stem: handout(p) for p in in_order(SOURCE)}
    files = {DOCS / "sets.md": overview(notebooks)}
    for name, notebook in notebooks.items():
        files[DOCS / "sets" / f"{name}.ipynb"] = nbformat.writes(notebook) + "\n"
        files[DOCS / f"{name}.md"] = page(name, notebook)
    return files


def stale() -> list[str]:
    "Files of the handout that are missing, different, or of no set any more."
    files = wanted()
    there = {*DOCS.glob("set[0-9]*.md"), *(DOCS / "sets").glob("*.ipynb")}
    different = [p for p, text in files.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    return sorted(str(p.relative_to(ROOT)) for p in {*different, *(there - set(files))})


if __name__ == "__main__":
    if "--check" in sys.argv:
        print(json.dumps(stale()))
        sys.exit(bool(stale()))
    for path, text in wanted().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"{len(wanted())} files in docs/")
