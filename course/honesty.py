"""What a teacher should look at: code in a submission that no answer needs, and that a cheat does.

Tests run in the kernel of the answers, so an answer can attack its tests. Nothing of this proves anything, and a name
put together from pieces is not found. What is found is written into the column `look_at` of marks.csv. Cells that reach
for the tests themselves (frames of the caller, the shell, the history of inputs, functions of libraries replaced) are
not run until a person has read them.
"""

from __future__ import annotations

import ast
import functools
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
INSIDES = {
    "__globals__",
    "__code__",
    "__builtins__",
    "__subclasses__",
    "__closure__",
    "__traceback__",
    "__dict__",
    "__defaults__",
    "__kwdefaults__",
    "__mro__",
    "__bases__",
    "__base__",
    "__setattr__",
    "__delattr__",
}
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
    "unittest": "replaces parts of other modules",
    "mock": "replaces parts of other modules",
    "pytest": "replaces parts of other modules",
}
ODD_MODULES = {
    *("inspect", "gc", "importlib", "linecache", "smoothap_course", "pickle", "marshal"),
    *("code", "codeop", "runpy", "cProfile", "profile", "pdb", "bdb", "trace", "doctest"),  # they run strings
}
ODD_CALLS = {"exec", "eval", "compile", "__import__", "globals", "locals", "vars", "setattr", "delattr"}
MAGICS = re.compile(r"(?m)^[ \t]*%{1,2}(matplotlib|time|timeit|pip|config|autosave)\b.*$")
MODULE_NAMES = frozenset({"torch", "math", "np", "numpy", "random", "sys"})
SHARED = MODULE_NAMES | {  # what checks use: who gives such a name to something else changes what they ask
    *("range", "sorted", "sum", "abs", "len", "zip", "enumerate", "min", "max", "all", "any", "float", "int", "list"),
    *("set", "dict", "tuple", "bool", "isinstance", "issubclass", "round", "frozenset", "reversed", "globals"),
    *("tensor", "Fraction", "Counter", "project"),
}
ALWAYS_EQUAL = {"__eq__", "__torch_function__", "__array__", "__array_priority__"}


def found(
    source: str, modules: frozenset[str] = MODULE_NAMES, ours: frozenset[str] = frozenset()
) -> list[tuple[str, bool]]:
    """What a cell does that no answer needs.

    Args:
        source: of a code cell.
        modules: names that stand for modules, and what is in them, in the notebook.
        ours: names of the teacher's that the checks after this cell need, as in `stood_on`.

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
    modules = modules | imported(tree, modules)
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        seen += [*_of_names(node, own), *_of_modules(node, modules), *_of_definitions(node)]
    for name in sorted(bound(tree) & (SHARED | ours)):
        seen.append((f"gives {name}, a name that the checks use, to something else", name in ours))
    return list(dict.fromkeys(seen))


def bound(tree: ast.AST, imports: bool = True) -> set[str]:
    """Names that a cell gives a meaning to where every cell sees it: at its top, in its ifs and loops, by `global`.

    Args:
        imports: with names that an import gives to something else (`import math as torch`).
    """
    names, left = set(), [tree]
    while left:
        node = left.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names |= {node.name, *(n for inner in ast.walk(node) if isinstance(inner, ast.Global) for n in inner.names)}
        elif isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            names |= {inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            odd = {(a.asname, a.name) for a in node.names if imports and a.asname not in (None, a.name)}
            names |= {new for new, _ in odd - {("np", "numpy")}}
        else:
            if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
                names.add(node.id)
            if isinstance(node, (ast.MatchAs, ast.MatchStar, ast.ExceptHandler)) and node.name:
                names.add(node.name)
            left += ast.iter_child_nodes(node)
    return names


def stood_on(cells, locked: dict[str, str]) -> list[frozenset[str]]:
    """For each cell of a notebook the names that the teacher's cells after it take from those before it.

    Args:
        cells: of the notebook.
        locked: the teacher's own code cells in their order, {id: source}.
    """
    order, done, found = list(locked), 0, []
    for cell in cells:
        name = cell.get("metadata", {}).get("nbgrader", {}).get("grade_id")
        done = max(done, order.index(name) + 1) if name in locked else done
        found.append(_needed(tuple(locked.values()), done))
    return found


@functools.lru_cache(maxsize=1000)
def _needed(sources: tuple[str, ...], done: int) -> frozenset[str]:
    trees = [ast.parse(MAGICS.sub("pass", source)) for source in sources]
    have = set().union(*(bound(tree, imports=False) for tree in trees[:done]))
    asked = set()
    for tree in trees[done:]:
        own = bound(tree, imports=False)
        asked |= (have - own) & {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        have -= own
    return frozenset(asked)


def imported(tree: ast.AST, modules: frozenset[str] = MODULE_NAMES) -> frozenset[str]:
    "Names that stand for modules and what is in them: imported, or another name for one of these, or for a type."
    known = set(modules)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            known |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.NamedExpr)) and _root(node.value) in known | {"type()"}:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            known |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(known)


def names_of(source: str, modules: frozenset[str] = MODULE_NAMES) -> frozenset[str]:
    "The names of `imported`, for the cells that follow; those known before where Python cannot read the cell."
    try:
        return modules | imported(ast.parse(MAGICS.sub("", source)), modules)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return modules


def _root(node: ast.AST) -> str:
    "torch of torch.Tensor.tolist; type() of type(x).tolist; empty for what is calculated."
    while isinstance(node, ast.Attribute):
        node = node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type":
        return "type()"
    return node.id if isinstance(node, ast.Name) else ""


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
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
        if re.search(r"smoothap_nb(\.| import )exercises", text):
            return [("names the checks in a string", True)]
        named = {word for word in FRAMES | INSIDES | SHELL if word == text or "{" in text and word in text}
        if named:
            return [(f"names {min(named)} in a string", True)]
    if (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).split(".")[-1] in {"getattr", "attrgetter", "methodcaller"}
        and not all(isinstance(a, ast.Constant) for a in node.args[ast.unparse(node.func) == "getattr" :][:1])
    ):
        return [("asks for a name that is put together on the way (getattr)", False)]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and name in ODD_CALLS - own:
        return [(f"uses {name}", False)]
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
        if _root(node) in modules | {"type()"} and not words.startswith("torch.backends."):
            return [(f"replaces {words}", True)]
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"setattr", "delattr"}
        and node.args
    ):
        words = ast.unparse(node.args[0])
        if _root(node.args[0]) in modules | {"type()"}:
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


def held(source: str, modules: frozenset[str] = MODULE_NAMES, ours: frozenset[str] = frozenset()) -> str:
    "Why a cell is not run, in words; empty if it is."
    return "; ".join(what for what, hold in found(source, modules, ours) if hold)


def look_at(cells, locked: dict[str, str]) -> str:
    """For marks.csv: what the cells of a submission do that a teacher should see, by their ids.

    Args:
        cells: of the notebook as it was handed in.
        locked: the teacher's own code cells in their order, {id: source}; they are put back before grading.
    """
    told, modules = [], MODULE_NAMES
    for number, (cell, ours) in enumerate(zip(cells, stood_on(cells, locked))):
        name = cell.get("metadata", {}).get("nbgrader", {}).get("grade_id")
        if cell["cell_type"] == "code" and name not in locked:
            told += [
                f"{name or f'cell {number}'} {what}{' (not run)' if hold else ''}"
                for what, hold in found(cell["source"], modules, ours)
            ]
            modules = names_of(cell["source"], modules)
    return "; ".join(told)
