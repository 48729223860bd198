"""How many small faults in the mathematics the default tests notice.

    python tools/mutate.py --seed 1 --count 120 --workers 2     draw, run, write docs/results/mutation.json
    python tools/mutate.py --seed 1 --list                      print what would be drawn

A mutant is the package with one small change in losses/, metrics/, similarity.py or ranking.py: a comparison, a sign, a
number, a bound, a default, a `not`, two arguments, a statement. It is killed if a default test fails. First the tests
run once as they are and note which lines each reaches; then each mutant meets the tests that reach its line, those of
its own file first, in a process forked from one that has torch loaded, with the processor time and the memory bounded.
Mutants that no test can kill stand in tests/equivalent_mutants.toml with a reason each; they are drawn and not counted.
What was found is written after every mutant, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import datetime
import difflib
import hashlib
import json
import os
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "tests" / "equivalent_mutants.toml"
TESTS = ["tests/losses", "tests/metrics", "tests/test_ranking.py", "tests/test_vectors.py",
         "tests/house/test_defaults.py", "tests/house/test_hostile_arguments.py"]  # fmt: skip
TABLE = "tests/house/test_defaults.py"  # reads signatures, not lines
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:rerunfailures", "--hypothesis-seed=0"]
LOADED = ["torch", "torchvision", "numpy", "scipy.stats", "sklearn.metrics", "hypothesis", "numba", "torchmetrics",
          "pytorch_metric_learning.losses", "matplotlib", "typer"]  # fmt: skip
ROOM = 6 << 30  # bytes that a mutant may take beside what is loaded


# --- what can be changed ----------------------------------------------------------------------------------------------

COMPARED = {ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.Lt),
            ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
            ast.In: (ast.NotIn,), ast.NotIn: (ast.In,)}  # fmt: skip
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
            ast.Pow: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}  # fmt: skip
CALLED = [("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"), ("cummin", "cummax"),
          ("any", "all"), ("floor", "ceil"), ("zeros", "ones"), ("zeros_like", "ones_like"),
          ("sum", "mean")]  # fmt: skip
OTHER = {a: b for pair in CALLED for a, b in (pair, pair[::-1])}
SYMMETRIC = {"min", "max", "minimum", "maximum", "isinstance", "equal", "array_equal", "logical_and", "logical_or"}
PASSED = {"clamp", "clamp_min", "clamp_max", "detach", "abs", "flip", "contiguous", "nan_to_num", "sqrt", "log", "exp"}


@dataclass(frozen=True)
class Mutant:
    file: str  # below smoothap_nb
    inside: str  # the function or class, dotted
    was: str
    now: str
    again: int  # how many equal changes come before it in the same place
    line: int
    last: int
    span: tuple[int, int]  # bytes of the source
    body: bool  # it runs when its function is called; otherwise at import

    @property
    def name(self) -> str:
        return f"{self.file} {self.inside}: {self.was} -> {self.now}" + (f" ({self.again + 1})" if self.again else "")

    def source(self, text: bytes) -> bytes:
        return text[: self.span[0]] + self.now.encode() + text[self.span[1] :]


def changes(node: ast.AST, known: set[str]) -> Iterator[ast.AST | str]:
    "What a node may become."
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in COMPARED[type(node.ops[0])]:
            yield with_(node, ops=[other()])
    elif isinstance(node, ast.Compare):
        for place, op in enumerate(node.ops):
            yield with_(node, ops=[*node.ops[:place], COMPARED[type(op)][0](), *node.ops[place + 1 :]])
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in COMPUTED:
        yield with_(node, op=COMPUTED[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield with_(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant):
        yield from numbers(node.value)
    elif isinstance(node, ast.Call):
        yield from calls(node)
    if isinstance(node, ast.AugAssign) or _drops(node, known):
        yield "pass"
    if isinstance(node, ast.IfExp):
        yield with_(node, body=node.orelse, orelse=node.body)
    elif isinstance(node, (ast.Slice,)) and node.lower is not None and node.upper is not None:
        yield with_(node, upper=None)


def numbers(value) -> Iterator[ast.AST]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
        if value > 0:
            yield ast.Constant(value - 1)
    elif isinstance(value, float):
        yield ast.Constant(value * 2 if value else 1.0)
        yield ast.Constant(value / 2 if value else -1.0)


def calls(node: ast.Call) -> Iterator[ast.AST]:
    "Another function of the same kind, two arguments swapped, a method left out."
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in OTHER:
        renamed = with_(function, **{"attr" if isinstance(function, ast.Attribute) else "id": OTHER[name]})
        yield with_(node, func=renamed)
    if name == "where" and len(node.args) == 3:
        yield with_(node, args=[node.args[0], node.args[2], node.args[1]])
    elif len(node.args) == 2 and name not in SYMMETRIC:
        yield with_(node, args=node.args[::-1])
    if name in PASSED and isinstance(function, ast.Attribute) and getattr(function.value, "id", "") not in (
        "torch", "np", "math"):  # fmt: skip
        yield function.value


def with_(node: ast.AST, **fields) -> ast.AST:
    node = copy.copy(node)
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def _drops(node: ast.AST, known: set[str]) -> bool:
    "A statement without which the rest still has all its names."
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, (ast.Raise, ast.Continue, ast.Break)):
        return True
    if isinstance(node, ast.Assign):
        return all(not isinstance(t, ast.Name) and not isinstance(t, ast.Tuple) or getattr(t, "id", "") in known
                   for t in node.targets)  # fmt: skip
    return False


def mutants_of(file: str, text: bytes) -> list[Mutant]:
    "All mutants of a module, in the order of its lines."
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found, seen = [], Counter()

    def visit(node, inside, body, known, statement):
        if isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom)) or quiet(node):
            return
        if isinstance(node, ast.stmt):
            statement = node
        if hasattr(node, "end_col_offset") and not isinstance(node, (ast.arg, ast.keyword)):
            first = starts[node.lineno - 1] + node.col_offset
            last = starts[node.end_lineno - 1] + node.end_col_offset
            was = ast.unparse(node)
            for new in changes(node, known):
                if isinstance(new, ast.AST) and ast.dump(new) == ast.dump(node):  # two equal arguments swapped
                    continue
                now = new if isinstance(new, str) else ast.unparse(ast.fix_missing_locations(new))
                now = f"({now})" if isinstance(node, ast.expr) and not isinstance(new, ast.Constant) else now
                key = (file, inside, was, now)
                end = min(statement.end_lineno, statement.lineno + 400) if body else node.end_lineno
                if isinstance(statement, (ast.If, ast.While, ast.For, ast.With)):
                    end = max(node.end_lineno, statement.lineno)  # of a block, its head
                found.append(Mutant(*key, seen[key], statement.lineno, end, (first, last), body))
                seen[key] += 1
        if isinstance(node, ast.Raise):  # what is left are words
            return
        if isinstance(node, ast.Assign):
            known |= {name.id for t in node.targets for name in ast.walk(t) if isinstance(name, ast.Name)}
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            inside = f"{inside}.{node.name}".lstrip(".")
        if isinstance(node, ast.FunctionDef):
            for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
                visit(default, inside, False, set(), node)
            known = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
            for child in node.body:
                visit(child, inside, True, known, child)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                visit(node.value, inside, body, known, statement)
        else:
            for child in ast.iter_child_nodes(node):
                visit(child, inside, body, known, statement)

    visit(ast.parse(text), "", False, set(), None)
    return found


def quiet(node: ast.AST) -> bool:
    "What only speaks: messages, and what is for type checkers."
    if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("warnings.warn", "warnings.filterwarnings", "TypeVar")
    return False


def targets() -> list[Path]:
    package = ROOT / "smoothap_nb"
    return [*sorted(package.glob("losses/*.py")), *sorted(package.glob("metrics/*.py")),
            package / "ranking.py", package / "similarity.py"]  # fmt: skip


def drawn(seed: int) -> list[Mutant]:
    "All mutants, in the order of a draw."
    package = ROOT / "smoothap_nb"
    every = [m for p in targets() for m in mutants_of(p.relative_to(package).as_posix(), p.read_bytes())]
    random.Random(seed).shuffle(every)
    return every


def equivalents() -> dict[str, str]:
    "Mutants that no test can kill: name -> why."
    if not EQUIVALENT.exists():
        return {}
    groups = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", [])
    return {mutant: group["why"] for group in groups for mutant in group["mutants"]}


# --- the tests --------------------------------------------------------------------------------------------------------


class Lines:
    "A plugin of pytest: which lines of the package each test reaches, and how long it takes."

    def __init__(self, tree: Path):
        self.package = str(tree / "smoothap_nb") + os.sep
        self.inside = {p.relative_to(ROOT / "smoothap_nb").as_posix() for p in targets()}
        self.tests, self.now, self.failed = {}, None, []

    def trace(self, frame, event, arg):
        path = frame.f_code.co_filename
        if not path.startswith(self.package) or (path := path[len(self.package) :]) not in self.inside:
            return None
        if self.now is None:
            return None
        reached = self.now.setdefault(path, set())

        def line(frame, event, arg):
            reached.add(frame.f_lineno)
            return line

        reached.add(frame.f_lineno)
        return line

    def pytest_runtest_logstart(self, nodeid):
        self.now, self.began = {}, time.process_time()
        threading.settrace(self.trace), sys.settrace(self.trace)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid):
        sys.settrace(None), threading.settrace(None)
        lines = {path: sorted(reached) for path, reached in self.now.items()}
        self.tests[nodeid] = [round(time.process_time() - self.began, 3), lines]
        self.now = None


class Chosen:
    "A plugin of pytest: only some tests, in an order; the first that fails is noted."

    def __init__(self, wanted: list[str], note: Path):
        self.place, self.note = {name: i for i, name in enumerate(wanted)}, note

    def pytest_collection_modifyitems(self, items):
        items[:] = sorted((i for i in items if i.nodeid in self.place), key=lambda i: self.place[i.nodeid])

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.note.write_text(report.nodeid, encoding="utf-8")

    def pytest_collectreport(self, report):
        if report.failed:
            self.note.write_text(report.nodeid or "import", encoding="utf-8")


def inside(tree: Path, plugin, runs: list[list[str]], log: Path) -> int:
    "In a forked process: pytest with some files of a tree, and with the next ones where nothing failed."
    import pytest

    os.chdir(tree)
    os.environ |= {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    sys.path.insert(0, str(tree))
    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
    for files in runs:
        code = int(pytest.main([*OPTIONS, *files], plugins=[plugin] if plugin else None))
        if code not in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
            return code
    return 0


def forked(action, seconds: int = 0) -> int:
    "A process that does something and ends: its id."
    sys.stdout.flush(), sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    code = 3
    with contextlib.suppress(BaseException):
        if seconds:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
            size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
        code = action()
    os._exit(code)


def compiled(tree: Path) -> None:
    "Let pytest keep the compiled tests of a tree: no mutant changes them."

    def action():
        sys.dont_write_bytecode = False
        return inside(tree, None, [["--collect-only", *TESTS]], tree.parent / f"{tree.name}.log")

    os.waitpid(forked(action), 0)


def baseline(tree: Path, folder: Path) -> dict:
    "Lines and seconds of every test; kept in the folder of the work, for as long as neither code nor tests change."
    kept = folder / "lines.json"
    if not kept.exists():

        def action():
            plugin = Lines(tree)
            code = inside(tree, plugin, [TESTS], folder / "baseline.log")
            if code == 0:
                kept.write_text(json.dumps(plugin.tests))
            return code

        if os.waitstatus_to_exitcode(os.waitpid(forked(action), 0)[1]):
            raise SystemExit(f"the tests fail as they are: see {folder / 'baseline.log'}")
    return json.loads(kept.read_text())


def fitting(mutant: Mutant, reached: dict) -> list[str]:
    "The tests that reach a mutant: those of its own file first, then file after file, the quick ones first."
    tests = [name for name, (_, lines) in reached.items() if mutant.body
             and any(mutant.line <= n <= mutant.last for n in lines.get(mutant.file, ()))]  # fmt: skip
    if not tests:  # it runs at import, or compiled
        tests = [name for name, (_, lines) in reached.items() if mutant.file in lines]
    if not mutant.body:
        tests += [name for name in reached if name.startswith(TABLE) and name not in tests]
    own, cost = f"tests/{mutant.file.replace('/', '/test_', 1)}", Counter()
    for name in tests:
        cost[name.split("::")[0]] += reached[name][0]
    return sorted(tests, key=lambda name: (not name.startswith(own), cost[name.split("::")[0]], reached[name][0]))


# --- the run ----------------------------------------------------------------------------------------------------------


class Worker:
    "A tree of its own, and at most one mutant in it."

    def __init__(self, tree: Path):
        self.tree, self.process, self.mutant = tree, None, None
        self.note, self.log = tree.parent / f"{tree.name}.note", tree.parent / f"{tree.name}.log"

    def start(self, mutant: Mutant, reached: dict) -> None:
        self.mutant, self.began = mutant, time.time()
        self.path = self.tree / "smoothap_nb" / mutant.file
        self.before = self.path.read_bytes()
        self.path.write_bytes(mutant.source(self.before))
        tests = fitting(mutant, reached)
        self.note.unlink(missing_ok=True)
        shutil.rmtree(self.tree / ".hypothesis", ignore_errors=True)
        files = [[file] for file in dict.fromkeys(name.split("::")[0] for name in tests)]
        seconds = 30 + int(4 * sum(reached[name][0] for name in tests))
        plugin = Chosen(tests, self.note)
        self.tests = len(tests)
        self.process = forked(lambda: inside(self.tree, plugin, files, self.log), seconds)
        self.until = self.began + 20 * seconds

    def done(self) -> dict | None:
        "What became of the mutant, or None while it runs."
        process, status = os.waitpid(self.process, os.WNOHANG)
        if not process and time.time() < self.until:
            return None
        if not process:
            os.kill(self.process, signal.SIGKILL)
            status = os.waitpid(self.process, 0)[1]
        self.path.write_bytes(self.before)
        code = os.waitstatus_to_exitcode(status)
        row = {"mutant": self.mutant.name, "line": self.mutant.line, "killed": code != 0, "tests": self.tests}
        if code:
            row["by"] = self.note.read_text() if self.note.exists() else ("time or memory" if code < 0 else "import")
        else:
            row["diff"] = diff(self.before, self.mutant)
        self.process = None
        return row


def diff(text: bytes, mutant: Mutant) -> str:
    before, after = text.decode().splitlines(), mutant.source(text).decode().splitlines()
    lines = list(difflib.unified_diff(before, after, mutant.file, mutant.file, n=0, lineterm=""))
    return "\n".join(lines[2:])


def digest(paths) -> str:
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def environment() -> dict:
    import torch

    commit = subprocess.run(["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"], cwd=ROOT,
                            capture_output=True, text=True).stdout.strip()  # fmt: skip
    return {"python": platform.python_version(), "torch": torch.__version__, "commit": commit}


def summary(args, rows: list[dict], left_out: list[str], stamp: dict) -> dict:
    killed, whys = sum(row["killed"] for row in rows), equivalents()
    return {
        "about": "Small faults put into losses, metrics, similarity and ranking, one at a time: how many a default "
                 "test notices",
        "command": f"python tools/mutate.py --seed {args.seed} --count {args.count}",
        "seed": args.seed, "mutants": len(rows), "killed": killed, "score": round(killed / max(1, len(rows)), 4),
        "date": datetime.date.today().isoformat(), "environment": environment(), **stamp,
        "survivors": [row for row in rows if not row["killed"]],
        "equivalent": [{"mutant": name, "why": whys[name]} for name in left_out],
        "rows": [row for row in rows if row["killed"]],
    }  # fmt: skip


def run(args) -> dict:
    sys.dont_write_bytecode = True
    stamp = {"code": digest(targets()), "tests": digest(p for t in ("losses", "metrics", "house") for p in
                                                        (ROOT / "tests" / t).glob("*.py"))}  # fmt: skip
    rows: dict[str, dict] = {}
    if args.out.exists():
        stored = json.loads(args.out.read_text(encoding="utf-8"))
        if stored.get("code") == stamp["code"] and stored.get("seed") == args.seed:
            fresh = stored.get("tests") == stamp["tests"]  # other tests may kill what survived
            rows = {r["mutant"]: r for r in [*stored["rows"], *(stored["survivors"] if fresh else [])]}
    folder = Path(args.work or tempfile.gettempdir()) / f"mutants-{stamp['code']}-{stamp['tests']}"
    trees = [folder / f"tree{i}" for i in range(args.workers)]
    folder.mkdir(parents=True, exist_ok=True)
    for name in LOADED:
        with contextlib.suppress(ImportError):
            __import__(name)
    for tree in trees:
        shutil.rmtree(tree, ignore_errors=True)
        for part in ("smoothap_nb", "tests", "tools", "nbs", "course", "docs"):
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("pyproject.toml", "settings.ini"):
            shutil.copy2(ROOT / part, tree / part)
    import torch

    torch.set_num_threads(1)
    for tree in trees:
        compiled(tree)
    reached = baseline(trees[0], folder)
    same = equivalents()
    order = drawn(args.seed)
    counted = [m for m in order if m.name not in same][: args.count]
    left_out = [m.name for m in order[: order.index(counted[-1])] if m.name in same]
    todo = [m for m in counted if m.name not in rows][::-1]
    workers = [Worker(tree) for tree in trees]
    while todo or any(w.process for w in workers):
        for worker in workers:
            if worker.process is None and todo:
                worker.start(todo.pop(), reached)
            elif worker.process is not None and (row := worker.done()) is not None:
                rows[row["mutant"]] = row
                said = f"killed by {row['by']}" if row["killed"] else "SURVIVED\n" + row["diff"]
                print(f"[{time.time() - worker.began:.0f} s] {row['mutant'][:150]}: {said}", flush=True)
                write(args, [rows[m.name] for m in counted if m.name in rows], left_out, stamp)
        time.sleep(0.05)
    return write(args, [rows[m.name] for m in counted], left_out, stamp)


def write(args, rows, left_out, stamp) -> dict:
    found = summary(args, rows, left_out, stamp)
    part = args.out.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    os.replace(part, args.out)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=120, help="mutants, without those known to be equivalent")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "mutation.json")
    parser.add_argument("--work", help="folder of the trees; the system's temporary folder when left out")
    parser.add_argument("--floor", type=float, default=0.0, help="exit with 1 where fewer are killed than this share")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        same, every = equivalents(), drawn(args.seed)
        print(f"{len(every):,} mutants in all; drawn first:")
        for mutant in every[: args.count]:
            print(f"{mutant.file}:{mutant.line} {mutant.name}" + ("  (equivalent)" if mutant.name in same else ""))
        return 0
    found = run(args)
    print(f"{found['killed']} of {found['mutants']} killed ({found['score']:.1%}), seed {args.seed}: {args.out}")
    return int(found["score"] < args.floor)


if __name__ == "__main__":
    sys.exit(main())
