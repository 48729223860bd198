"""Write the reference, docs/api/*.md, from the exported docstrings.

    python tools/api.py

One page per module, in the order of `smoothap_nb/__init__.py`: every public name with its signature, arguments, shapes, errors and
source, and the lesson that derives it. The modules are read, not imported. The pages are built, never committed.
"""

from __future__ import annotations

import ast
import functools
import logging
import re
import textwrap
from pathlib import Path

from quarto_filter import ROOT, repository

FOLDER = ROOT / "docs" / "api"
OF_THEIR_MODULE = {"search": ("search", "embed_folder", "contact_sheet", "list_images", "open_picture")}  # `smoothap_nb.search` is the module itself
HOOKS = {"extra_repr", "query_losses", "list_losses"}  # what a subclass fills in for its base: not for callers


def public_names() -> dict[str, tuple[str, ...]]:
    "Module -> its public names, read from `__init__.py`, and those that only their module gives."
    tree = ast.parse((ROOT / "smoothap_nb" / "__init__.py").read_text(encoding="utf-8"))
    return next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "_PUBLIC") | OF_THEIR_MODULE


@functools.cache
def package():
    "The parsed package."
    import griffe

    logging.getLogger("griffe").setLevel(logging.ERROR)  # it asks for annotations where the description says more
    return griffe.load("smoothap_nb", search_paths=[str(ROOT)], docstring_parser="google", resolve_aliases=False)


def public_object(module: str, name: str):
    "What griffe knows of one public name; also of a class that a function makes at first use."
    members = package()[module].members
    if name in members:
        return members[name]
    import griffe

    path = ROOT / "smoothap_nb" / f"{module}.py"
    text = path.read_text(encoding="utf-8")
    node = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ClassDef) and n.name == name)
    code = "\n" * (node.lineno - 1) + textwrap.dedent("\n".join(text.splitlines()[node.lineno - 1:node.end_lineno]))
    return griffe.visit(module, filepath=path, code=code, parent=package(), docstring_parser=griffe.Parser.google).members[name]


def lesson_of(module: str) -> Path:
    "The notebook that a module is exported from, out of the module's own header."
    text = (ROOT / "smoothap_nb" / f"{module}.py").read_text(encoding="utf-8")
    return ROOT / "nbs" / Path(re.search(r"File to edit: (\S+\.ipynb)", text)[1]).name


def lesson_title(path: Path) -> str:
    import json

    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    first = next(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
    return "".join(first).splitlines()[0].removeprefix("# ")


def sections(obj) -> dict[str, list]:
    "The docstring's sections by kind: text, parameters, attributes, returns, raises."
    found: dict[str, list] = {}
    for section in obj.docstring.parsed if obj.docstring else []:
        value = section.value
        found.setdefault(section.kind.value, []).extend([value] if isinstance(value, str) else value if isinstance(value, list) else [value])
    return found


def one_line(text: str) -> str:
    "Text that fits into a cell of a table."
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def linked(text: str, here: str) -> str:
    "`name` and ``name`` in prose lead to the public name's entry."
    homes = {name: module for module, names in public_names().items() for name in names}

    def link(found: re.Match) -> str:
        name = found[2].rstrip("()")
        if name not in homes or name == here:
            return f"`{found[2]}`"
        return f"[`{found[2]}`]({homes[name]}.md#{name})"

    return re.sub(r"(``?)([^`]+)\1", link, text)


def signature(obj, name: str) -> str:
    "The call, one line where it fits, else one argument a line."
    shown, star = [], False
    for p in obj.parameters:
        if p.name in ("self", "cls"):
            continue
        kind = p.kind.name if p.kind else ""
        if kind == "keyword_only" and not star:
            shown.append("*")
            star = True
        prefix = {"var_positional": "*", "var_keyword": "**"}.get(kind, "")
        star = star or kind == "var_positional"
        text = prefix + p.name + (f": {p.annotation}" if p.annotation is not None else "")
        if p.default is not None and not prefix:
            text += (" = " if p.annotation is not None else "=") + str(p.default)
        shown.append(text)
    returns = f" -> {obj.returns}" if obj.is_function and obj.returns is not None else ""
    flat = f"{name}({', '.join(shown)}){returns}"
    return flat if len(flat) <= 88 else f"{name}(\n" + "".join(f"    {s},\n" for s in shown) + f"){returns}"


def described(obj, name: str) -> list[str]:
    "The body of an entry: text, table of arguments, what comes back, what is refused."
    found, out = sections(obj), []
    for text in found.get("text", []):
        out += [linked(text, name), ""]
    arguments = found.get("parameters", []) + found.get("other parameters", []) + found.get("attributes", [])
    if arguments:
        defaults = {p.name: p.default for p in obj.parameters} if obj.is_function or obj.is_class else {}
        out += ["| argument | default | meaning |", "|---|---|---|"]
        for item in arguments:
            default = defaults.get(item.name.lstrip("*"))
            out.append(f"| `{item.name}` | {f'`{one_line(str(default))}`' if default is not None else ''} | {one_line(linked(item.description, name))} |")
        out.append("")
    for title, key in (("Returns", "returns"), ("Yields", "yields")):
        for item in found.get(key, [])[:1]:
            rest = " ".join(i.description for i in found[key])
            kind = f"`{item.annotation}`, " if item.annotation else ""
            out += [f"**{title}:** {kind}{one_line(linked(rest, name)).replace(chr(92) + '|', '|')}", ""]
    for item in found.get("raises", []):
        out += [f"**Raises** `{str(item.annotation).strip('()')}`: {one_line(linked(item.description, name)).replace(chr(92) + '|', '|')}", ""]
    for item in found.get("examples", []):
        kind, text = item
        out += [f"```python\n{text}\n```" if kind.value == "examples" else linked(text, name), ""]
    return out


def entry(module: str, name: str) -> list[str]:
    "One public name."
    obj = public_object(module, name)
    url, branch = repository()
    out = [f"## {name}", ""]
    if obj.is_function or obj.is_class:
        out += ["```python", ("class " if obj.is_class else "") + signature(obj, name), "```", ""]
    out += described(obj, name)
    if obj.is_class:
        for method, function in obj.members.items():
            if method.startswith("_") or method in HOOKS or not function.is_function or function.docstring is None:
                continue
            out += [f"### {name}.{method}", ""]
            if "property" in function.labels:
                out += ["*A property.*", ""]
            else:
                out += ["```python", signature(function, method), "```", ""]
            out += described(function, method)
    out += [f"[Source]({url}/blob/{branch}/smoothap_nb/{module}.py#L{obj.lineno}-L{obj.endlineno})", ""]
    return out


def module_page(module: str, names: tuple[str, ...]) -> str:
    lesson = lesson_of(module)
    doc = package()[module].docstring
    lines = [f"# smoothap_nb.{module}", "", (doc.value.strip() if doc else ""), ""]
    lines += [f"Derived in lesson [{lesson_title(lesson)}](../../nbs/{lesson.name}); all names can be imported from `smoothap_nb{'.' + module if module in OF_THEIR_MODULE else ''}` itself. "
              "Shapes: Q queries, G gallery items, N images, D dimensions, L levels.", ""]
    for name in names:
        lines += entry(module, name)
    return "\n".join(lines).rstrip() + "\n"


def index_page() -> str:
    lines = ["# Reference", "", "Every public name, by module. `from smoothap_nb import ...` gives any of them (those of `search`: `from smoothap_nb.search import ...`); the module is loaded at first use. "
             "The text is that of the docstrings, so `help(name)` says the same.", ""]
    for module, names in public_names().items():
        lesson = lesson_of(module)
        lines += [f"## {module}", "", f"Lesson [{lesson_title(lesson)}](../../nbs/{lesson.name}).", "", "| name | what it is |", "|---|---|"]
        for name in names:
            obj = public_object(module, name)
            first = (obj.docstring.value.strip().split("\n\n")[0] if obj.docstring else "")
            lines.append(f"| [`{name}`]({module}.md#{name}) | {one_line(linked(first, name))} |")
        lines.append("")
    return "\n".join(lines)


def write() -> list[Path]:
    "Write what has changed, remove what belongs to no module; return the files written."
    FOLDER.mkdir(parents=True, exist_ok=True)
    pages = {"index.md": index_page(), **{f"{module}.md": module_page(module, names) for module, names in public_names().items()}}
    for path in FOLDER.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    written = []
    for name, text in pages.items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written


def update_sidebar() -> bool:
    "List every page of the reference in `_quarto.yml`; return whether that changed the file."
    path = ROOT / "_quarto.yml"
    text = path.read_text(encoding="utf-8")
    pages = "".join(f"          - text: {module}\n            href: docs/api/{module}.md\n" for module in public_names())
    old = r"(            href: docs/api/index\.md\n)(?:          - (?:docs/api/\w+\.md|text: \w+\n            href: docs/api/\w+\.md)\n)*"
    new = re.sub(old, lambda m: m[1] + pages, text)
    path.write_text(new, encoding="utf-8")
    return new != text


if __name__ == "__main__":
    try:
        import griffe  # noqa: F401
    except ImportError:
        print("the reference needs griffe (pip install griffe): the site is rendered without it")
    else:
        print(f"docs/api: {len(write())} pages written" + ("; the sidebar in _quarto.yml lists them" if update_sidebar() else ""))
