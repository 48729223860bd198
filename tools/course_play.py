"""Playing a problem set without nbgrader: the cells one after another, as a kernel would, with answers replaced by
wrong ones.

The tests use it, and `python tools/course.py values SET`.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import io
import linecache
import os
import re
import symtable
import tempfile
from pathlib import Path

KEPT = Path(__file__).resolve().parent.parent / "tests" / "course"


def marks(cell) -> dict:
    "nbgrader's marks of a cell."
    return cell.metadata.get("nbgrader", {})


def task_of(grade_id: str) -> str:
    "The id of the visible checks that belong to a cell of checks."
    return grade_id.partition("_more")[0].removesuffix("_edge")


def play(nb, looked_at: bool = True, skip: frozenset[str] = frozenset()) -> dict[str, str]:
    """Run the cells, going on after errors; {grade_id: message} of the cells that failed.

    Args:
        nb: a notebook with nbgrader's marks.
        looked_at: run the cells that are only looked at (figures, trainings), too.
        skip: ids of cells to leave out, see `beside`.
    """
    import torch

    torch.manual_seed(0)
    os.environ["SMOOTHAP_GRADING"] = "1"  # as in the sandbox: what is only looked at is cut short
    failed, space = {}, {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # what a set writes
        for number, cell in enumerate(nb.cells):
            if cell.cell_type != "code" or not (looked_at or marks(cell)) or marks(cell).get("grade_id") in skip:
                continue
            name, lines = f"cell {number}", cell.source.splitlines(keepends=True)
            linecache.cache[name] = (len(cell.source), None, lines, name)
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(cell.source, name, "exec"), space)
            except Exception as error:
                failed[marks(cell).get("grade_id", name)] = str(error) or repr(error)
    return failed


def asked_of_all(source: str) -> set[str]:
    "Names that a cell looks up where every cell sees them, also from within its functions."
    found, left = set(), [symtable.symtable(source, "cell", "exec")]
    while left:
        table = left.pop()
        left += table.get_children()
        everywhere = table.get_type() == "module"
        found |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (everywhere or s.is_global())}
    return found


def beside(nb, answers: dict[str, str]) -> frozenset[str]:
    """Ids of the checks that see nothing of some answers: they use no name that these give a meaning to, nor one that
    follows from such a name, and no cell that runs needs what they define. With the reference's answers they pass.

    Args:
        nb: the notebook with the reference's answers.
        answers: {grade_id: source} of the cells that are replaced.
    """
    from honesty import bound  # beside the course

    cells = [c for c in nb.cells if c.cell_type == "code" and marks(c)]
    sources = [[c.source, *([answers[i]] if (i := marks(c)["grade_id"]) in answers else [])] for c in cells]
    uses, gives, changed, skipped = [], [], set(), set()
    for cell, texts in zip(cells, sources):
        trees = [ast.parse(text) for text in texts]
        nodes = [node for tree in trees for node in ast.walk(tree)]
        gives.append(set().union(*(bound(tree, imports=False) for tree in trees)))
        named = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        named = named.union(*map(asked_of_all, texts))
        uses.append(named - gives[-1])  # a check gives its own names a meaning before it uses them
        if len(texts) > 1 or uses[-1] & changed:
            changed |= gives[-1]
        elif marks(cell).get("grade"):
            skipped.add(marks(cell)["grade_id"])
    while needed := [
        i for i, cell in enumerate(cells) if marks(cell)["grade_id"] in skipped
        and any(gives[i] & uses[j] for j in range(i + 1, len(cells)) if marks(cells[j])["grade_id"] not in skipped)
    ]:  # fmt: skip
        skipped -= {marks(cells[i])["grade_id"] for i in needed}
    return frozenset(skipped)


def replaced(nb, answers: dict[str, str]):
    """The notebook with some of its cells replaced.

    Raises:
        KeyError: a cell that the notebook does not have.
    """
    nb, answers = copy.deepcopy(nb), dict(answers)
    for cell in nb.cells:
        if marks(cell).get("grade_id") in answers:
            cell.source = answers.pop(marks(cell)["grade_id"])
    if answers:
        raise KeyError(f"no such cells: {list(answers)}")
    return nb


def kept(name: str) -> dict[str, tuple[dict[str, str], set[str], str]]:
    "The wrong answers that are kept for a set: {name: (cells, ids of the checks that fail, words of the message)}."
    path, found = KEPT / f"{name}.kept.py", {}
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for answer, body in re.findall(r"(?ms)^# answer: (\w+)\n(.*?)(?=^# answer: |\Z)", text):
        parts = re.split(r"(?m)^# cell: *(\w+).*\n", body)[1:]
        fails = re.search(r"(?m)^# fails: *([\w, ]+?)(?: {2,}.*)?$", body)[1]
        says = re.search(r"(?m)^# says: *(.+?)(?: {2,}\(.*)?$", body)[1].strip()
        found[answer] = dict(zip(parts[::2], parts[1::2])), {f.strip() for f in fails.split(",")}, says
    return found


def values(nb, name: str):
    """What each kept wrong answer of a set is told: where a set was changed, the values that its messages must know.

    Yields:
        (answer, points that it gets, points there are, [(cell, its message)], whether the message is the expected one).
    """
    from smoothap_nb.exercises import MISTAKES

    points = {
        marks(c)["grade_id"]: marks(c)["points"] for c in nb.cells if c.cell_type == "code" and marks(c).get("grade")
    }
    for answer, (cells, _, says) in kept(name).items():
        failed = play(replaced(nb, cells), looked_at=False)
        words = MISTAKES.get(says, says).split(":")[0]
        tasks = {task_of(cell) for cell in failed}
        knows = bool(failed) and all(any(words in m for c, m in failed.items() if task_of(c) == task) for task in tasks)
        lost = sum(points.get(cell, 0) for cell in failed)
        yield answer, sum(points.values()) - lost, sum(points.values()), list(failed.items()), knows
