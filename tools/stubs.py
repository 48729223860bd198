"""Write `smoothap_nb/__init__.pyi`: what editors and type checkers see of the names that are loaded at first use.

    python tools/stubs.py            write it
    python tools/stubs.py --check    say whether it is what `__init__.py` gives
"""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "smoothap_nb"


def tables() -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    "The tables `_PUBLIC` and `_RENAMED` of the package, read without importing it."
    found = {}
    for node in ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body:
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AnnAssign)
            else None
        )
        if isinstance(target, ast.Name) and target.id in ("_PUBLIC", "_RENAMED"):
            found[target.id] = ast.literal_eval(node.value)
    return found["_PUBLIC"], found["_RENAMED"]


@functools.cache
def defined(module: str) -> frozenset[str]:
    """The names that a module's text defines at its top; others are made at first use, where another package is needed
    for them.
    """
    tree = ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            names |= {
                t.id
                for t in (node.targets if isinstance(node, ast.Assign) else [node.target])
                if isinstance(t, ast.Name)
            }
    return frozenset(names)


def stub() -> str:
    "The text of the stub: every public name, imported from its module."
    public, renamed = tables()
    homes = {name: module for module, names in public.items() for name in names}
    lines = [
        "# Made by tools/stubs.py from __init__.py: change that, then run `make export`.",
        "",
        "from typing import Any",
        "",
    ]
    for module, names in public.items():
        lines += [f"from .{module} import {name} as {name}" for name in names if name in defined(module)]
    lines += [f"from .{homes[new]} import {new} as {old}" for old, new in renamed.items()]
    lines += ["", "__version__: str", "__all__: list[str]"]
    lines += [f"{name}: Any  # made at first use" for name, module in homes.items() if name not in defined(module)]
    return "\n".join(lines) + "\n"


def main() -> int:
    path = PACKAGE / "__init__.pyi"
    if "--check" not in sys.argv[1:]:
        path.write_text(stub(), encoding="utf-8")
        return 0
    fresh = path.exists() and path.read_text(encoding="utf-8") == stub()
    print("the stub is fresh" if fresh else f"{path.relative_to(ROOT)} is not what __init__.py gives: run make export")
    return 0 if fresh else 1


if __name__ == "__main__":
    sys.exit(main())
