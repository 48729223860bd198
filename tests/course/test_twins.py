"""Nothing new is asked on handing in: every kind of hidden check has a visible example, the heading of a task says how
its points are split, and each function has checks of its own.
"""

import ast
import contextlib
import copy
import io
import os
import re
import signal

import course
import nbformat
import pytest
import torch
from course_play import marks, task_of

SETS = course.sets()
CHECKS = {"check", "check_that"}
TRAINED = {"quick_recipe", "submission"}  # answers of set 8 that a training judges


def source(name: str):
    return nbformat.read(course.COURSE / "source" / name / f"{name}.ipynb", as_version=4)


def graded(nb, hidden: bool) -> list:
    cells = [c for c in nb.cells if c.cell_type == "code" and marks(c).get("grade")]
    return [c for c in cells if ("_more" in marks(c)["grade_id"]) == hidden]


def helpers(nb) -> set[str]:
    "Functions of visible cells that check something themselves."
    functions = [
        one for c in graded(nb, hidden=False) for one in ast.parse(c.source).body if isinstance(one, ast.FunctionDef)
    ]
    return CHECKS | {
        one.name
        for one in functions
        if CHECKS & {node.id for node in ast.walk(one) if isinstance(node, ast.Name)}
    }


def kinds(cell, checks: set[str]) -> list[str]:
    """The kind that each check of a cell declares, in a comment on its lines; "" where one declares none. Checks
    inside other functions than `_hidden` belong to whoever calls these.
    """
    lines, found = cell.source.split("\n"), []

    def visit(statements):
        for one in statements:
            if isinstance(one, ast.FunctionDef) and one.name != "_hidden":
                continue
            called = isinstance(one, (ast.Expr, ast.Assign)) and isinstance(one.value, ast.Call) and one.value.func
            if isinstance(called, ast.Name) and called.id in checks:
                told = re.search(r"# kind: (.+)", "\n".join(lines[one.lineno - 1 : one.end_lineno]))
                found.append(told[1].strip() if told else "")
            for part in ("body", "orelse", "handlers"):
                visit(getattr(one, part, []))

    visit(ast.parse(cell.source).body)
    return found


@pytest.mark.parametrize("name", SETS)
def test_every_kind_of_hidden_check_has_a_visible_example(name):
    nb = source(name)
    checks = helpers(nb)
    for cell in graded(nb, hidden=True):
        task, declared = task_of(marks(cell)["grade_id"]), kinds(cell, checks)
        shown = {k for c in graded(nb, hidden=False) if task_of(marks(c)["grade_id"]) == task for k in kinds(c, checks)}
        assert declared and all(declared), f"{task}: a hidden check does not say of which kind it is"
        assert set(declared) <= shown, f"{task}: no visible example of {sorted(set(declared) - shown)}"
        told = f"# On handing in, more of: {'; '.join(dict.fromkeys(declared))}."
        assert cell.source.split("\n")[0] == told, f"{task}: the released line is to be\n{told}"


@pytest.mark.parametrize("name", SETS)
def test_headings_say_how_points_are_split(name):
    nb, task, points = source(name), None, {}
    for cell in nb.cells:
        heading = re.search(r"(?m)^## (.+)$", cell.source) if cell.cell_type == "markdown" and not marks(cell) else None
        task = heading[1] if heading else task
        if marks(cell).get("grade"):
            kind = "hand" if cell.cell_type == "markdown" else "more" if "_more" in marks(cell)["grade_id"] else "below"
            points.setdefault(task, {"below": 0, "more": 0, "hand": 0})[kind] += marks(cell)["points"]
    assert sum(sum(split.values()) for split in points.values()) == 20
    for heading, split in points.items():
        whole, parts = sum(split.values()), [
            f"{split['below']:g} for the checks below" if split["below"] else "",
            f"{split['more']:g} for those run when you hand in" if split["more"] else "",
            f"{split['hand']:g} marked by a person" if split["hand"] else "",
        ]
        parts = [part for part in parts if part]
        told = {
            "below": f"({whole:g} points, all for the checks below)",
            "hand": f"({whole:g} points, marked by a person)",
        }.get(next(k for k in split if split[k]) if len(parts) == 1 else "", f"({whole:g} points: {', '.join(parts)})")
        assert heading.endswith(told.replace("1 points", "1 point")), f"{heading!r} is to end with {told}"


def names_of_tests(cell) -> set[str]:
    "Ids of the visible checks that the functions and classes of an answer cell are to have."
    answers = [one.name for one in ast.parse(cell.source).body if isinstance(one, (ast.FunctionDef, ast.ClassDef))]
    return {"test_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", answer).lower() for answer in answers}


@pytest.mark.parametrize("name", SETS)
def test_every_function_has_checks_of_its_own(name):
    nb = source(name)
    checked = {task_of(marks(c)["grade_id"]) for c in graded(nb, hidden=False)}
    for cell in nb.cells:
        if cell.cell_type == "code" and marks(cell).get("solution"):
            wanted = names_of_tests(cell)
            assert wanted and wanted <= checked, f"{wanted - checked} have no cell of checks"


# What a slip of the pen makes of a right answer: if only the hidden checks notice, an example is missing above.

SWAPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "mean": "sum", "sum": "mean", "minimum": "maximum"}


def slips(code: str) -> list[str]:
    "The code with one slip each."
    tree, found = ast.parse(code), []
    places = list(ast.walk(tree))

    def keep(number, change):
        other = copy.deepcopy(tree)
        change(list(ast.walk(other))[number])
        found.append(ast.unparse(ast.fix_missing_locations(other)))

    for n, node in enumerate(places):
        op = node.ops[0] if isinstance(node, ast.Compare) else getattr(node, "op", None)
        if type(op) in SWAPPED and isinstance(node, ast.Compare):
            keep(n, lambda at, new=SWAPPED[type(op)]: at.ops.__setitem__(0, new()))
        elif type(op) in SWAPPED:
            keep(n, lambda at, new=SWAPPED[type(op)]: setattr(at, "op", new()))
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            for step in (1, -1) if type(node.value) is int else (0.1 * node.value or 0.1,):
                keep(n, lambda at, step=step: setattr(at, "value", at.value + step))
        if isinstance(node, ast.Constant) and type(node.value) is bool:
            keep(n, lambda at: setattr(at, "value", not at.value))
        if isinstance(node, ast.UnaryOp):
            keep(n, lambda at: setattr(at, "operand", ast.UnaryOp(at.op, at.operand)))  # twice is never
        if isinstance(node, ast.Attribute) and node.attr in NAMES:
            keep(n, lambda at: setattr(at, "attr", NAMES[at.attr]))
        if isinstance(node, ast.Name) and node.id in NAMES:
            keep(n, lambda at: setattr(at, "id", NAMES[at.id]))
        if isinstance(node, ast.Call) and node.keywords:
            keep(n, lambda at: at.keywords.pop())
        for statement in range(len(getattr(node, "body", []))) if isinstance(getattr(node, "body", None), list) else ():
            if isinstance(node.body[statement], (ast.Assign, ast.AugAssign, ast.Expr, ast.If)) and not (
                isinstance(node.body[statement], ast.Expr) and isinstance(node.body[statement].value, ast.Constant)
            ):
                keep(n, lambda at, k=statement: at.body.__setitem__(k, ast.Pass()))
    return [one for one in dict.fromkeys(found) if one != ast.unparse(tree)]


class TooLong(Exception):
    pass


def passes(cells, space: dict) -> bool:
    def stop(*_):
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    for cell in cells:
        try:
            signal.alarm(10)
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(cell if isinstance(cell, str) else cell.source, "a cell", "exec"), space)
        except (Exception, SystemExit):
            return False
        finally:
            signal.alarm(0)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_a_slip_that_hidden_checks_notice_is_noticed_above(name, monkeypatch, tmp_path):
    monkeypatch.setitem(os.environ, "SMOOTHAP_GRADING", "1")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    nb, space, unseen, tried = source(name), {"__name__": "__main__"}, [], 0
    for cell in nb.cells:
        if cell.cell_type == "code" and marks(cell).get("solution") and marks(cell)["grade_id"] not in TRAINED:
            shown, hidden = (
                [c for c in graded(nb, which) if task_of(marks(c)["grade_id"]) in names_of_tests(cell)]
                for which in (False, True)
            )
            for slip in slips(cell.source) if hidden else ():
                trial = dict(space)
                tried += 1
                if passes([slip, *shown], trial) and not passes(hidden, trial):
                    unseen.append(slip)
        if cell.cell_type == "code":
            assert passes([cell], space), marks(cell).get("grade_id", cell.source[:60])
    assert tried > 10 or name not in SETS[:8]
    assert not unseen, f"{len(unseen)} of {tried} slips are found on handing in alone:\n\n" + "\n\n".join(unseen)
