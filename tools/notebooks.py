"""Work on the notebooks from the command line.

    python tools/notebooks.py run [NOTEBOOK...]   run each in a fresh kernel, keep its outputs, strip the rest
    python tools/notebooks.py check               are the modules in sync with the notebooks, and the notebooks clean?

`check` works in a temporary copy and leaves the tree alone.
"""

from __future__ import annotations

import argparse
import filecmp
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


def notebooks() -> list[Path]:
    "Every notebook of the package, in reading order."
    return sorted((ROOT / "nbs").glob("[0-9]*.ipynb"))


def run(path: Path, save: bool = True, timeout: int = 600) -> nbformat.NotebookNode:
    "Run one notebook from top to bottom in a fresh kernel; with `save`, write its outputs back, cleaned."
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    os.environ.setdefault("PYTHONHASHSEED", "0")
    nb = nbformat.read(path, as_version=4)
    NotebookClient(nb, timeout=timeout, kernel_name="python3", coalesce_streams=True,  # or prints split where the clock will
                   resources={"metadata": {"path": str(path.parent)}}).execute()
    if save:
        for cell in nb.cells:
            cell.metadata.pop("execution", None)
        nbformat.write(nb, path)
        subprocess.run([script("nbdev_clean"), "--fname", str(path)], cwd=ROOT, check=True)
    return nb


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
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
        shutil.copy(ROOT / "settings.ini", copy)
        for name in ("nbdev_export", "nbdev_clean"):
            subprocess.run([script(name)], cwd=copy, check=True)
        found = []
        for folder, pattern in (("nbs", "*.ipynb"), ("smoothap_nb", "*.py")):
            ours = {p.name for p in (ROOT / folder).glob(pattern)} - {"_modidx.py"}
            theirs = {p.name for p in (copy / folder).glob(pattern)} - {"_modidx.py"}
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
    commands.add_parser("check")
    args = parser.parse_args()
    if args.command == "check":
        found = differences()
        print("\n".join(found) or "modules in sync, notebooks clean")
        return bool(found)
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
