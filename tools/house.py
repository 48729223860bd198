"""How large the library is, beside the version before it became a house, and how long the default tests take.

    python tools/house.py            lines of the library; docs/results/house.json
    python tools/house.py --tests    the default tests too, on an idle machine: their wall time, and where it goes

Lines are those of the modules, generated headers included; a definition that both versions have is counted once more
without docstrings, so that one sees what explanation and what code has grown.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import torch

from smoothap_nb.files import write_atomic
from smoothap_nb.train.machine import environment

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "cf68b45~1"  # the last commit of 28 flat modules, version 0.1.0
OUT = ROOT / "docs" / "results" / "house.json"


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def modules(commit: str) -> dict[str, str]:
    "Name and text of the library's modules, as they are in a commit."
    names = git("ls-tree", "-r", "--name-only", commit, "smoothap_nb").split()
    return {n: git("show", f"{commit}:{n}") for n in names if n.endswith(".py") and "_modidx" not in n}


def length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def definitions(texts: dict[str, str]) -> dict[str, list[tuple[str, int, int]]]:
    "By name of a function or class at the top of a module: where, its lines, and those without docstrings."
    found: dict[str, list[tuple[str, int, int]]] = {}
    for name, text in texts.items():
        for node in ast.parse(text).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                inner = [n for n in ast.walk(node) if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
                said = sum(length(n.body[0]) for n in inner if ast.get_docstring(n) is not None)
                found.setdefault(node.name, []).append((name, length(node), length(node) - said))
    return found


def sizes(commit: str = "HEAD") -> dict:
    "Lines of the library, then and now."
    texts = modules(BEFORE), modules(commit)
    old, new = (definitions(t) for t in texts)
    total = lambda names, where, column: sum(row[column] for n in names for row in where[n])
    both, gone, come = old.keys() & new.keys(), old.keys() - new.keys(), new.keys() - old.keys()
    rooms: Counter[str] = Counter()
    for name in come:
        for path, lines, _ in new[name]:
            rooms[path.split("/")[1].removesuffix(".py")] += lines
    then, now = (
        {"commit": git("rev-parse", "--short=12", c).strip(), "lines": sum(t.count("\n") for t in held.values())}
        for c, held in zip((BEFORE, commit), texts)
    )
    return {
        "before": then, "now": now,
        "in both": {"names": len(both), "lines": [total(both, w, 1) for w in (old, new)],
                    "without docstrings": [total(both, w, 2) for w in (old, new)]},
        "gone": {"names": len(gone), "lines": total(gone, old, 1)},
        "new": {"names": len(come), "lines": total(come, new, 1), "rooms": dict(rooms.most_common())},
    }  # fmt: skip


def tests() -> dict:
    "Wall time of the default tests on two workers, what of it the processors worked, and where it goes."
    with tempfile.TemporaryDirectory() as folder:
        report, used = Path(folder) / "report.xml", resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", f"--junitxml={report}"]
        status = subprocess.run(command, cwd=ROOT).returncode
        wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        suite = xml.etree.ElementTree.parse(report).getroot()
    if status:
        raise SystemExit("the default tests must pass before their time says anything")
    worked = sum(getattr(after, k) - getattr(used, k) for k in ("ru_utime", "ru_stime"))
    rooms: dict[str, float] = {}
    for case in suite.iter("testcase"):
        lesson = "test_lesson_runs" in case.get("name", "")
        words = re.split(r"\.", case.get("classname", ""))
        room = "lessons" if lesson else words[1] if len(words) > 2 else "files"
        rooms[room] = rooms.get(room, 0.0) + float(case.get("time", 0))
    return {
        "tests": sum(1 for _ in suite.iter("testcase")), "workers": 2, "seconds": round(wall), "cores": os.cpu_count(),
        "processor seconds of finished processes": round(worked),
        "seconds by room": {k: round(v) for k, v in sorted(rooms.items(), key=lambda item: -item[1])},
    }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", action="store_true", help="run the default tests and keep their time")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args(argv)
    kept = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {}
    about = {"environment": environment(torch.device("cpu")), "date": datetime.now(timezone.utc).strftime("%Y-%m-%d")}
    found = {**kept, "library": {**sizes(), **about}}
    if args.tests:
        found["tests"] = {**tests(), **about}
    write_atomic(args.out, json.dumps(found, indent=1) + "\n")
    print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
