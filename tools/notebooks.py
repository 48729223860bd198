"""Work on the notebooks from the command line.

    python tools/notebooks.py run [NOTEBOOK...]   run each in a fresh kernel, keep its outputs, strip the rest
    python tools/notebooks.py stale               which notebooks would have to run again for their outputs to be true?
    python tools/notebooks.py check               are the modules in sync with the notebooks, and the notebooks clean?

`check` works in a temporary copy and leaves the tree alone.
"""

from __future__ import annotations

import argparse
import ast
import filecmp
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def notebooks() -> list[Path]:
    "Every notebook of the package, in reading order."
    return sorted((ROOT / "nbs").glob("[0-9]*.ipynb"))


def run(path: Path, save: bool = True, timeout: int = 600, manager: str = "") -> nbformat.NotebookNode:
    """Run one notebook from top to bottom in a fresh kernel; with `save`, write its outputs back, cleaned.

    Args:
        path: of the notebook.
        save: write it.
        timeout: of one cell, in seconds.
        manager: "warm_kernels.WarmKernelManager" for a kernel that begins with the libraries loaded; left out, a
            program that starts from nothing.
    """
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    os.environ.setdefault("PYTHONHASHSEED", "0")
    nb = nbformat.read(path, as_version=4)
    NotebookClient(
        nb,
        timeout=timeout,
        kernel_name="python3",
        **({"kernel_manager_class": manager} if manager else {}),
        coalesce_streams=True,  # or prints split where the clock will
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    if save:
        for cell in nb.cells:
            cell.metadata.pop("execution", None)
            if cell.source.startswith(FIGURE):
                cell.metadata["jupyter"] = {"source_hidden": True}
        nb.metadata[STAMP] = fingerprint(nb)
        nbformat.write(nb, path)
        subprocess.run([script("nbdev_clean"), "--fname", str(path)], cwd=ROOT, check=True)
    return nb


STAMP = "outputs_from"  # kept by nbdev_clean (settings.ini, allowed_metadata_keys)
FIGURE = "# Code of the figure"  # the first line of a cell that only draws: JupyterLab folds it, as the site does


def without_words(source: str) -> str:
    "A module's code without docstrings, and without lines that are empty or hold a comment alone."
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and ast.get_docstring(node, clean=False) is not None
        ):
            lines[node.body[0].lineno - 1 : node.body[0].end_lineno] = [""] * (
                node.body[0].end_lineno - node.body[0].lineno + 1
            )
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


@functools.cache
def module_facts(name: str) -> tuple[str, frozenset[str]]:
    "A module of the package: its code without words, and the modules of the package that it imports."
    source = module_path(name).read_text(encoding="utf-8")
    return without_words(source), package_imports(
        source, within=name if module_path(name).name == "__init__.py" else name.rpartition(".")[0]
    )


def module_path(name: str) -> Path:
    "The file of a module or package, by its dotted name within `smoothap_nb`."
    path = ROOT / "smoothap_nb" / name.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_name(path.name + ".py")


def package_imports(source: str, within: str = "") -> frozenset[str]:
    """The modules of the package that some code imports, wherever in it; `within` is the package that relative imports
    start from.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            path = node.module.split(".") if node.module else []
            if node.level:
                here = within.split(".") if within else []
                path = [*here[:len(here) - node.level + 1], *path]
            elif path[:1] == ["smoothap_nb"]:
                path = path[1:]
            else:
                continue
            found |= {".".join(path)} | {".".join([*path, a.name]) for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix("smoothap_nb.") for a in node.names if a.name.startswith("smoothap_nb.")}
    found = {homes().get(name, name) for name in found if name}
    return frozenset(name for name in found if module_path(name).exists())


@functools.cache
def homes() -> dict[str, str]:
    "Public name -> its module."
    import smoothap_nb

    return dict(smoothap_nb._HOME)


def fingerprint(nb) -> str:
    """What a notebook's outputs are made from: its code cells and the code of every module of the package that they
    reach.

    Comments and docstrings of the modules do not count: they change no output. Neither do prose cells.
    """
    code = "\n".join("".join(c["source"]) for c in nb["cells"] if c["cell_type"] == "code")
    plain = "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in code.splitlines())
    reached, waiting = set(), set(package_imports(plain))
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= module_facts(name)[1] - reached
    digest = hashlib.sha256(code.encode())
    for name in sorted(reached):
        digest.update(f"\n{name}\n{module_facts(name)[0]}".encode())
    return digest.hexdigest()[:16]


def stale() -> list[Path]:
    "The notebooks whose outputs were made from other code than theirs of today, or from nobody knows what."
    found = []
    for path in notebooks():
        nb = json.loads(path.read_text(encoding="utf-8"))
        if nb["metadata"].get(STAMP) != fingerprint(nb):
            found.append(path)
    return found


def script(name: str) -> str:
    "The nbdev command that belongs to this Python."
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def differences() -> list[str]:
    "What `nbdev_export` and `nbdev_clean` would change, found in a temporary copy."
    with tempfile.TemporaryDirectory() as tmp:
        copy = Path(tmp) / "copy"
        copy.mkdir()
        for name in ("nbs", "smoothap_nb"):
            shutil.copytree(
                ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
            )
        shutil.copy(ROOT / "settings.ini", copy)
        for name in ("nbdev_export", "nbdev_clean"):
            subprocess.run([script(name)], cwd=copy, check=True)
        found = []
        for folder, pattern in (("nbs", "*.ipynb"), ("smoothap_nb", "**/*.py")):
            ours = {p.relative_to(ROOT / folder).as_posix() for p in (ROOT / folder).glob(pattern)} - {"_modidx.py"}
            theirs = {p.relative_to(copy / folder).as_posix() for p in (copy / folder).glob(pattern)} - {"_modidx.py"}
            found += [f"{folder}/{name}: in one place only" for name in sorted(ours ^ theirs)]
            for name in sorted(ours & theirs):
                if not filecmp.cmp(ROOT / folder / name, copy / folder / name, shallow=False):
                    found.append(f"{folder}/{name}: not what the notebooks give; run `make export`")
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("notebook", nargs="*", type=Path)
    commands.add_parser("stale")
    commands.add_parser("check")
    args = parser.parse_args()
    if args.command == "check":
        found = differences()
        print("\n".join(found) or "modules in sync, notebooks clean")
        return bool(found)
    if args.command == "stale":
        print("\n".join(p.name for p in stale()) or "every notebook's outputs are those of its code")
        return 0
    for path in args.notebook or notebooks():
        print(path.name, flush=True)
        try:
            run(path.resolve())
        except CellExecutionError as error:
            print(f"{path.name} stopped:\n{error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
