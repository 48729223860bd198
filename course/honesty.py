"""What a teacher should look at: code in a submission that no answer needs, and that a cheat does.

Tests run in the kernel of the answers, so an answer can attack its tests. Nothing of this proves anything, and a name
put together from pieces is not found. What is found is written into the column `look_at` of marks.csv. Cells that reach
for the tests themselves (frames of the caller, the shell, the history of inputs, functions of libraries replaced) are
not run until a person has read them.
"""

from __future__ import annotations

import ast
import re

CHECKS = {"check", "check_that", "answer_of", "CheckFailed", "MISTAKES"}
FRAMES = {
    "_getframe",
    "currentframe",
    "f_back",
    "f_locals",
    "f_globals",
    "f_builtins",
    "tb_frame",
    "gi_frame",
    "cr_frame",
    "ag_frame",
    "_current_frames",
    "get_objects",
    "get_referrers",
    "settrace",
    "setprofile",
    "addaudithook",
}
INSIDES = {"__globals__", "__code__", "__builtins__", "__subclasses__", "__closure__", "__traceback__", "__dict__"}
SHELL = {
    "get_ipython",
    "input_transformers_cleanup",
    "input_transformers_post",
    "ast_transformers",
    "user_ns",
    "history_manager",
}
HISTORY = {"In", "Out", "_ih", "_oh", "_i", "_ii", "_iii"}
MODULES = {
    "ctypes": "calls C functions",
    "builtins": "reaches for Python's built-in functions",
    "IPython": "reaches for the notebook's shell",
    "ipykernel": "reaches for the notebook's shell",
}
ODD_MODULES = {"inspect", "gc", "importlib", "linecache", "smoothap_course", "pickle", "marshal"}
ODD_CALLS = {"exec", "eval", "compile", "__import__", "globals", "locals", "vars", "setattr", "delattr"}
MAGICS = re.compile(r"(?m)^[ \t]*%{1,2}(matplotlib|time|timeit|pip|config|autosave)\b.*$")
ALWAYS_EQUAL = {"__eq__", "__torch_function__", "__array__", "__array_priority__"}


def found(
    source: str, modules: frozenset[str] = frozenset({"torch", "math", "np", "numpy", "random", "sys"})
) -> list[tuple[str, bool]]:
    """What a cell does that no answer needs.

    Args:
        source: of a code cell.
        modules: names that stand for modules in the notebook.

    Returns:
        (what it does, whether the cell is held back), each once; empty for a cell that Python cannot read.
    """
    plain = MAGICS.sub(lambda line: re.match(r"[ \t]*", line[0])[0] + "pass", source)
    seen = []
    if re.search(r"(?m)^[ \t]*[%!]|^\w+ *= *[%!]", plain):
        seen.append(("gives commands to the notebook's shell or to the system", True))
        plain = re.sub(r"(?m)^([ \t]*)[%!].*$", r"\1pass", plain)
    try:
        tree = ast.parse(plain)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return seen
    modules = modules | imported(tree)
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        seen += [*_of_names(node, own), *_of_modules(node, modules), *_of_definitions(node)]
    return list(dict.fromkeys(seen))


def imported(tree: ast.AST) -> frozenset[str]:
    "Names that imports give to modules."
    return frozenset(
        (alias.asname or alias.name.split(".")[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    )


def _of_names(node: ast.AST, own: set[str]) -> list[tuple[str, bool]]:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
    if name in FRAMES:
        return [(f"looks at other functions while they run ({name})", True)]
    if name in INSIDES:
        return [(f"looks inside functions or objects ({name})", True)]
    if name in SHELL:
        return [(f"reaches for the notebook's shell ({name})", True)]
    if (
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and name not in own
        and (name in HISTORY or re.fullmatch(r"_i\d+", name))
    ):
        return [(f"reads the history of inputs ({name})", True)]
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in FRAMES | INSIDES | SHELL:
        return [(f"names {node.value} in a string", True)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ODD_CALLS:
        return [(f"calls {node.func.id}", False)]
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"_exit", "exit", "system", "popen"}
    ):
        return [(f"calls {ast.unparse(node.func)}", False)]
    return []


def _of_modules(node: ast.AST, modules: frozenset[str]) -> list[tuple[str, bool]]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        names = (
            [alias.name.split(".")[0] for alias in node.names]
            if isinstance(node, ast.Import)
            else [(node.module or "").split(".")[0]]
        )
        checks = isinstance(node, ast.ImportFrom) and (node.module or "").endswith("exercises")
        return [(f"imports {n}, which {MODULES[n]}", True) for n in names if n in MODULES] + [
            (f"imports {n}", False) for n in names if n in ODD_MODULES and not checks
        ]
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        words = ast.unparse(node)
        if words.split(".")[0] in modules and not words.startswith("torch.backends."):
            return [(f"replaces {words}", True)]
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"setattr", "delattr"}
        and node.args
    ):
        words = ast.unparse(node.args[0])
        if words.split(".")[0] in modules:
            return [(f"replaces something in {words}", True)]
    if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.modules":
        return [("reaches for the modules of others (sys.modules)", True)]
    return []


def _of_definitions(node: ast.AST) -> list[tuple[str, bool]]:
    names = []
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        names = [node.name]
        if isinstance(node, ast.FunctionDef) and node.name in ALWAYS_EQUAL:
            return [(f"decides itself what it is equal to ({node.name})", False)]
    elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
        names = [node.id]
    elif isinstance(node, (ast.Import, ast.ImportFrom)) and not (
        isinstance(node, ast.ImportFrom) and (node.module or "").endswith("exercises")
    ):
        names = [alias.asname or alias.name for alias in node.names]
    return [(f"gives the name of a check, {n}, to something else", False) for n in names if n in CHECKS]


def held(source: str) -> str:
    "Why a cell is not run, in words; empty if it is."
    return "; ".join(what for what, hold in found(source) if hold)


def look_at(cells, locked: set[str]) -> str:
    """For marks.csv: what the cells of a submission do that a teacher should see, by their ids.

    Args:
        cells: of the notebook as it was handed in.
        locked: ids of the cells that are the teacher's own, and are put back before grading.
    """
    told = []
    for number, cell in enumerate(cells):
        name = cell.get("metadata", {}).get("nbgrader", {}).get("grade_id")
        if cell["cell_type"] == "code" and name not in locked:
            told += [
                f"{name or f'cell {number}'} {what}{' (not run)' if hold else ''}"
                for what, hold in found(cell["source"])
            ]
    return "; ".join(told)
