"""Make the site: what `make docs` runs.

    python tools/docs.py               tables and plots of results, reference, stale notebooks, then Quarto's pages (or
    plain ones) in _site/
    python tools/docs.py --plain       plain pages, also where Quarto is installed
    python tools/docs.py --no-run      leave stale notebooks as they are, and name them

Quarto is taken from the PATH, else fetched by `pip install quarto-cli`. Where that fails, plain pages are rendered in
its place (tools/pages.py), in the order of `_quarto.yml`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import api
import links
import notebooks
import pages

ROOT = notebooks.ROOT
GENERATORS = (["tools/results.py"], ["-m", "benchmarks", "--render"], ["tools/references.py"])


def generate() -> None:
    """Everything that is written from something else: tables and plots from docs/results/, the reference from the
    docstrings.
    """
    for command in GENERATORS:
        subprocess.run([sys.executable, *command], cwd=ROOT, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    api.update_sidebar()
    print(f"reference: {len(api.write())} pages changed")


def run_stale(run: bool) -> None:
    "Execute the notebooks whose outputs were made from other code than today's."
    for path in notebooks.stale():
        if run:
            print(f"running {path.name}", flush=True)
            notebooks.run(path)
        else:
            print(f"stale, not run: {path.name}")


def quarto() -> str | None:
    "The Quarto to use, fetched if need be; None where it cannot be had."
    beside = Path(sys.executable).parent / "quarto"
    found = str(beside) if beside.exists() else shutil.which("quarto")
    if found is None:
        print("Quarto is not installed; trying pip install quarto-cli")
        fetched = subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "quarto-cli",
            ],
            capture_output=True,
            text=True,
            timeout=900,
        )
        found = str(beside) if fetched.returncode == 0 and beside.exists() else None
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--no-run", action="store_true")
    args = parser.parse_args()
    generate()
    run_stale(not args.no_run)
    program = None if args.plain else quarto()
    site = ROOT / "_site"
    if program:
        done = subprocess.run([program, "render", str(ROOT)], env={**os.environ, "QUARTO_PYTHON": sys.executable})
        if done.returncode:
            return done.returncode
        dead = links.mend(site)
    else:
        if not args.plain:
            print(
                "Quarto cannot be had here (its package fetches a program from GitHub, which this machine does not "
                "reach): rendering plain pages."
            )
        dead = pages.build(site)
    for line in dead:
        print(f"dead link in {line}", file=sys.stderr)
    print(f"\nRead it: {site / 'index.html'}")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
