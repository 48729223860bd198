"""No module over 500 lines, no function over 60 (its docstring not counted), no exported cell of a lesson over 40:
what outgrows that wants a name of its own.
"""

import ast
import json
from pathlib import Path

import pytest

import house
import smoothap_nb

HOME = Path(smoothap_nb.__file__).parent
ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(path.relative_to(HOME) for path in HOME.rglob("*.py") if path.name != "_modidx.py")
NOTEBOOKS = sorted((ROOT / "nbs").glob("[0-9]*.ipynb"))


def length(node: ast.AST) -> int:
    "Lines of a function, without its docstring."
    words = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
    return node.end_lineno - node.lineno + 1 - (words.end_lineno - words.lineno + 1 if words else 0)


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_modules_and_functions_can_be_taken_in(path):
    text = (HOME / path).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 500, f"{path} has {len(text.splitlines())} lines"
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    long = {f.name: length(f) for f in functions if length(f) > 60}
    assert not long, f"{path} has long functions: {long}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_exported_cells_can_be_read(path):
    "Docstrings do not count; a cell that must be longer says why in its first lines, after '# Long because'."
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or not source.startswith("#| export") or "# Long because" in source:
            continue
        tree = ast.parse(source)
        words = sum(n.body[0].end_lineno - n.body[0].lineno + 1 for n in ast.walk(tree)
                    if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(n, clean=False) is not None)
        lines = len([line for line in source.splitlines() if line.strip()]) - words
        assert lines <= 40, f"cell {number} of {path.name} exports {lines} lines"


def test_lines_are_counted_with_and_without_docstrings():
    text = 'def one(a):\n    """Say.\n\n    More.\n    """\n    return a\n\n\nclass Two:\n    "Short."\n\n    x = 1\n'
    assert house.definitions({"m.py": text}) == {"one": [("m.py", 6, 2)], "Two": [("m.py", 4, 3)]}
