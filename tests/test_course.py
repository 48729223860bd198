"""The problem sets: right answers get full marks, blank ones none, each common wrong answer its own message. Marked `course`: a class plays through nbgrader."""

import contextlib
import copy
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
COURSE = ROOT / "course"
sys.path[:0] = [str(ROOT / "tools"), str(COURSE), str(COURSE / "source" / "set8_research_project")]  # where project.py lies
import course  # noqa: E402
import smoothap_course  # noqa: E402

SETS = course.sets()
SLOW = {"set8_research_project"}
WRONG = sorted((ROOT / "tests" / "course").glob("*/wrong_*.py"))


def marked(names, key=lambda x: x):
    return [pytest.param(n, marks=[pytest.mark.slow] if key(n) in SLOW else [], id=getattr(n, "stem", None) or n) for n in names]


def source(name: str):
    return nbformat.read(COURSE / "source" / name / f"{name}.ipynb", as_version=4)


def marks(cell) -> dict:
    return cell.metadata.get("nbgrader", {})


def graded(nb) -> list[str]:
    "Ids of the cells whose checks give points."
    return [marks(c)["grade_id"] for c in nb.cells if c.cell_type == "code" and marks(c).get("grade")]


def play(nb) -> dict[str, str]:
    "Run the cells as a kernel would, going on after errors; {grade_id: message} of the graded cells that failed."
    torch.manual_seed(0)
    failed, space = {}, {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # what a set writes
        _play_cells(nb, space, failed)
    return failed


def _play_cells(nb, space: dict, failed: dict) -> None:
    for number, cell in enumerate(nb.cells):
        if cell.cell_type != "code":
            continue
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(cell.source, f"cell {number}", "exec"), space)
        except Exception as error:
            failed[marks(cell).get("grade_id", f"cell {number}")] = str(error) or repr(error)


def blank(nb):
    "What a student has before writing anything, with the hidden tests of the grader."
    from nbgrader.preprocessors import ClearSolutions

    return ClearSolutions().preprocess(copy.deepcopy(nb), {})[0]


def replaced(nb, answers: dict):
    "The reference solution with some of its cells replaced."
    nb = copy.deepcopy(nb)
    for cell in nb.cells:
        if marks(cell).get("grade_id") in answers:
            cell.source = answers.pop(marks(cell)["grade_id"])
    assert not answers, f"no such cells: {list(answers)}"
    return nb


def wrong_answer(path: Path):
    "Cells, ids that fail, and words of the message of one kept wrong answer."
    text = path.read_text()
    parts = re.split(r"(?m)^# cell: *(\w+).*\n", text)[1:]
    fails = re.search(r"(?m)^# fails: *([\w, ]+?)(?: {2,}.*)?$", text)[1]
    says = re.search(r"(?m)^# says: *(.+?)(?: {2,}\(.*)?$", text)[1].strip()
    words = smoothap_course.MISTAKES.get(says, says).split(":")[0]
    return dict(zip(parts[::2], parts[1::2])), {f.strip() for f in fails.split(",")}, words


@pytest.mark.parametrize("name", marked(SETS))
def test_reference_solution_passes_every_check(name):
    assert play(source(name)) == {}


@pytest.mark.parametrize("name", marked(SETS))
def test_blank_fails_every_check(name):
    nb = blank(source(name))
    failed = play(nb)
    assert set(graded(nb)) <= set(failed)
    for cell in graded(nb):
        assert "not written yet" in failed[cell] or "NotImplementedError" in failed[cell], f"{cell}: {failed[cell]}"


@pytest.mark.parametrize("path", marked(WRONG, key=lambda p: p.parent.name))
def test_wrong_answer_fails_its_checks_with_its_message(path):
    answers, fails, words = wrong_answer(path)
    failed = play(replaced(source(path.parent.name), answers))
    assert set(failed) == fails, failed
    for cell in fails:
        assert words in failed[cell], f"{cell} does not say {words!r}:\n{failed[cell]}"


@pytest.mark.parametrize("name", SETS)
def test_set_is_built_as_the_readme_says(name):
    nb = source(name)
    ids = [marks(c)["grade_id"] for c in nb.cells if marks(c)]
    assert len(ids) == len(set(ids)) and "setup" in ids
    assert nb.cells[0].source.startswith(f"# Set {name[3]}: ") and "\n> " in nb.cells[0].source
    assert all(word in nb.cells[0].source for word in ("| Lesson", "| You need |", "| Time |", "| Points | 20"))
    assert sum(marks(c).get("points", 0) for c in nb.cells) == 20
    by_hand = [c for c in nb.cells if c.cell_type == "markdown" and marks(c).get("grade")]
    assert 3 <= sum(marks(c)["points"] for c in by_hand) <= 6 or name in SLOW
    assert 4 <= len(graded(nb)) <= 7
    for cell in nb.cells:
        assert not cell.get("outputs"), "sources are committed without outputs"
        if cell.cell_type == "code" and marks(cell).get("grade"):
            assert marks(cell)["locked"] and "### BEGIN HIDDEN TESTS" in cell.source and marks(cell)["grade_id"].startswith("test_")
        if cell.cell_type == "code" and marks(cell).get("solution"):
            assert cell.source.count("### BEGIN SOLUTION") == cell.source.count("### END SOLUTION") >= 1


@pytest.mark.parametrize("name", SETS)
def test_messages_point_to_sections_that_exist(name):
    text = "\n".join(c.source for c in source(name).cells)
    seen = set(re.findall(r'see=\("(\d\d)", "([^"]+)"\)', text)) | set(re.findall(r'^\w+ = \("(\d\d)", "([^"]+)"\)', text, re.M))
    assert seen
    for lesson, section in seen:
        path = ROOT / "nbs" / f"{smoothap_course.LESSONS[lesson]}.ipynb"
        headings = {h.strip() for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown" for h in re.findall(r"(?m)^#+ (.+)$", c.source)}
        assert section in headings, f"lesson {lesson} has no section {section!r}"


def test_each_set_keeps_wrong_answers():
    kept = {path.parent.name for path in WRONG}
    assert set(SETS) - SLOW <= kept


def test_mistakes_named_in_the_issue_are_kept_as_wrong_answers():
    said = "\n".join(path.read_text() for path in WRONG)
    for mistake in ("argsort-once", "query-left-in", "zero-based", "ties-ahead", "ties-behind", "self-counted", "lambda-scale", "max-for-min", "batch-positives"):
        assert f"# says: {mistake}" in said, f"nobody makes the mistake {mistake}"


# The checks themselves

def failing(*args, **keywords) -> str:
    with pytest.raises(smoothap_course.CheckFailed) as caught, contextlib.redirect_stdout(io.StringIO()):
        smoothap_course.check(*args, see=("01", "A rank is a count"), **keywords)
    return str(caught.value)


def test_check_says_what_and_where():
    message = failing(lambda s: [1, 2], [0.1, 0.2], expect=[0, 1], name="places", mistakes={"zero-based": [1, 2]})
    for words in ("places: 2 of 2 numbers differ", "on    [0.1, 0.2]", "want  [0, 1]", "got   [1, 2]", "RANKS FROM THE WRONG START", "lesson 01", "01_ranking.ipynb"):
        assert words in message


@pytest.mark.parametrize("answer, words", [
    (lambda s: None, "returned nothing"), (lambda s: 1 / 0, "stopped with ZeroDivisionError"), (lambda s: [[1.0, 2.0]], "the shape is (1, 2), it should be (2,)"),
    (lambda s: "two", "numbers are asked for"), (lambda s: s.zero_() + torch.tensor([0.0, 1.0]), "changed its input"), (lambda s: [float("nan"), 1], "differ"),
])
def test_check_names_other_faults(answer, words):
    assert words in failing(answer, torch.tensor([1.0, 2.0]), expect=[0.0, 1.0])


def test_check_passes_what_is_equal(capsys):
    see = ("01", "A rank is a count")
    smoothap_course.check(lambda: (torch.tensor([1.0, float("nan")], requires_grad=True), 3), expect=([1, float("nan")], 3.0000000001), see=see, name="pair", on="nothing")
    smoothap_course.check(lambda x: x > 1, torch.tensor([1, 2]), expect=[False, True], see=see)
    smoothap_course.check_that(True, "never read", see=see)
    assert "✓ pair on nothing" in capsys.readouterr().out


# The release

@pytest.fixture(scope="module")
def released(tmp_path_factory):
    "A course folder of its own, with every set released."
    folder = tmp_path_factory.mktemp("class") / "course"
    shutil.copytree(COURSE, folder, ignore=shutil.ignore_patterns("release", "submitted", "autograded", "feedback", "gradebook.db*", ".graded", "marks.csv"))
    run(folder, "release")
    return folder


def run(folder: Path, *words, **env):
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "course.py"), *words], capture_output=True, text=True,
                          env={**os.environ, "COURSE": str(folder), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **env})
    assert env or done.returncode == 0, done.stdout + done.stderr
    return done


def test_release_gives_nothing_away(released):
    for name in SETS:
        files = {p.name for p in (released / "release" / name).iterdir()}
        assert {f"{name}.ipynb", "smoothap_course.py"} <= files
        text = (released / "release" / name / f"{name}.ipynb").read_text()
        assert "### " + "BEGIN" not in text and "HIDDEN" not in text
        lines = {line.strip() for c in nbformat.reads(text, as_version=4).cells for line in c.source.split("\n")}
        secrets = course.secrets(name)
        assert len(secrets) > 10 and not lines & set(secrets)
        assert text.count("raise NotImplementedError()") >= len([c for c in source(name).cells if c.cell_type == "code" and marks(c).get("solution")])
