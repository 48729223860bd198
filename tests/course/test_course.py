"""The problem sets: right answers get full marks, blank ones none, each common wrong answer its own message. Marked
`course`: a class plays through nbgrader.
"""

import contextlib
import copy
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
COURSE = ROOT / "course"
import course
import course_play
from course_play import beside, marks, play, replaced, task_of
from smoothap_nb import exercises

SETS = course.sets()
SLOW = {"set8_research_project"}
WRONG = {f"{name.split('_')[0]}/{answer}": name for name in SETS for answer in course_play.kept(name)}


def marked(names, key=lambda x: x):
    return [
        pytest.param(n, marks=[pytest.mark.slow] if key(n) in SLOW else [], id=getattr(n, "stem", None) or n)
        for n in names
    ]


def source(name: str):
    return nbformat.read(COURSE / "source" / name / f"{name}.ipynb", as_version=4)


def graded(nb) -> list[str]:
    "Ids of the cells whose checks give points."
    return [marks(c)["grade_id"] for c in nb.cells if c.cell_type == "code" and marks(c).get("grade")]


def blank(nb):
    "What a student has before writing anything, with the hidden tests of the grader."
    from nbgrader.preprocessors import ClearSolutions

    return ClearSolutions().preprocess(copy.deepcopy(nb), {})[0]


def wrong_answer(which: str):
    "Cells, ids that fail, and words of the message of one kept wrong answer, such as set5/argsort_once."
    answers, fails, says = course_play.kept(WRONG[which])[which.split("/")[1]]
    return answers, fails, exercises.MISTAKES.get(says, says).split(":")[0]


@pytest.mark.parametrize("name", marked(SETS))
def test_reference_solution_passes_every_check(name):
    assert play(source(name)) == {}


@pytest.mark.parametrize("name", marked(SETS))
def test_blank_fails_every_check(name):
    nb = blank(source(name))
    failed = play(nb)
    assert set(graded(nb)) <= set(failed)
    for cell in graded(nb):
        told = "is not written yet" if "_more" not in cell else ""  # a student reads the visible cells first
        assert told in failed[cell] or "NotImplementedError" in failed[cell], f"{cell}: {failed[cell]}"


@pytest.mark.parametrize("which", marked(WRONG, key=lambda which: WRONG[which]))
def test_wrong_answer_fails_its_checks_with_its_message(which):
    answers, fails, words = wrong_answer(which)
    reference = source(WRONG[which])  # its checks that see nothing of the answer passed with the reference
    failed = play(replaced(reference, answers), looked_at=False, skip=beside(reference, answers))
    assert {task_of(cell) for cell in failed} == fails, failed
    for cell in fails:  # the visible checks of a task, or the further ones
        told = [message for name, message in failed.items() if task_of(name) == cell]
        assert any(words in message for message in told), f"{cell} does not say {words!r}:\n{told}"


@pytest.mark.parametrize("name", SETS)
def test_set_is_built_as_the_readme_says(name):
    nb = source(name)
    ids = [marks(c)["grade_id"] for c in nb.cells if marks(c)]
    assert len(ids) == len(set(ids)) and "setup" in ids
    assert nb.cells[0].source.startswith(f"# Set {course.number_of(name)}: ") and "\n> " in nb.cells[0].source
    assert all(word in nb.cells[0].source for word in ("| Lesson", "| You need |", "| Time |", "| Points | 20"))
    assert sum(marks(c).get("points", 0) for c in nb.cells) == 20
    by_hand = [c for c in nb.cells if c.cell_type == "markdown" and marks(c).get("grade")]
    assert 3 <= sum(marks(c)["points"] for c in by_hand) <= 6 or name in SLOW
    assert 4 <= len({task_of(cell) for cell in graded(nb)}) <= 12
    for cell in nb.cells:
        assert not cell.get("outputs"), "sources are committed without outputs"
        if cell.cell_type == "code" and marks(cell).get("grade"):
            more = "_more" in marks(cell)["grade_id"]
            assert marks(cell)["locked"] and marks(cell)["grade_id"].startswith("test_")
            assert ("### BEGIN HIDDEN TESTS" in cell.source) == more == ("def _hidden():" in cell.source)
            assert "from smoothap_nb.exercises import" in cell.source, (
                "checks are imported anew: an answer may use their names"
            )
        if cell.cell_type == "code" and marks(cell).get("solution"):
            assert cell.source.count("### BEGIN SOLUTION") == cell.source.count("### END SOLUTION") >= 1


def test_sets_stand_in_the_order_of_their_numbers(tmp_path):
    for name in ("set10_b", "set2_a", "set9_c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.ipynb").touch()
    assert [path.stem for path in course.in_order(tmp_path)] == ["set2_a", "set9_c", "set10_b"]


@pytest.mark.parametrize("name", SETS)
def test_messages_point_to_sections_that_exist(name):
    text = "\n".join(c.source for c in source(name).cells)
    seen = set(re.findall(r'see=\("(\d\d[a-z]?)", "([^"]+)"\)', text)) | set(
        re.findall(r'^\w+ = \("(\d\d[a-z]?)", "([^"]+)"\)', text, re.M)
    )
    assert seen
    for lesson, section in seen:
        path = ROOT / "nbs" / f"{exercises.LESSONS[lesson]}.ipynb"
        headings = {
            h.strip()
            for c in nbformat.read(path, as_version=4).cells
            if c.cell_type == "markdown"
            for h in re.findall(r"(?m)^#+ (.+)$", c.source)
        }
        assert section in headings, f"lesson {lesson} has no section {section!r}"


def test_each_lesson_ends_with_a_line_to_its_set():
    for path in sorted((ROOT / "nbs").glob("[0-9]*.ipynb")):
        told = [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown"]
        sets = re.findall(r"blob/main/docs/sets/(\w+)\.ipynb", "\n".join(told[-3:]))
        assert path.stem == "00_why" or sets and set(sets) <= set(SETS), path.stem


def test_each_set_keeps_wrong_answers():
    kept = set(WRONG.values())
    assert set(SETS) - SLOW <= kept


def test_well_known_mistakes_are_kept_as_wrong_answers():
    said = {says for name in SETS for _, _, says in course_play.kept(name).values()}
    for mistake in (
        "argsort-once",
        "query-left-in",
        "zero-based",
        "ties-ahead",
        "ties-behind",
        "self-counted",
        "lambda-scale",
        "max-for-min",
        "batch-positives",
    ):
        assert mistake in said, f"nobody makes the mistake {mistake}"


# The checks themselves


def failing(*args, **keywords) -> str:
    with pytest.raises(exercises.CheckFailed) as caught, contextlib.redirect_stdout(io.StringIO()):
        exercises.check(*args, see=("01", "A rank is a count"), **keywords)
    return str(caught.value)


def test_check_says_what_and_where():
    message = failing(lambda s: [1, 2], [0.1, 0.2], expect=[0, 1], name="places", mistakes={"zero-based": [1, 2]})
    for words in (
        "places: 2 of 2 numbers differ",
        "on    [0.1, 0.2]",
        "want  [0, 1]",
        "got   [1, 2]",
        "RANKS FROM THE WRONG START",
        "lesson 01",
        "01_ranking.ipynb",
    ):
        assert words in message


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda s: None, "returned nothing"),
        (lambda s: 1 / 0, "stopped with ZeroDivisionError"),
        (lambda s: [[1.0, 2.0]], "the shape is (1, 2), it should be (2,)"),
        (lambda s: "two", "numbers are asked for"),
        (lambda s: s.zero_() + torch.tensor([0.0, 1.0]), "changed its input"),
        (lambda s: [float("nan"), 1], "differ"),
    ],
)
def test_check_names_other_faults(answer, words):
    assert words in failing(answer, torch.tensor([1.0, 2.0]), expect=[0.0, 1.0])


def missing():
    raise NotImplementedError


@pytest.mark.parametrize(
    "function, words",
    [
        (missing, "missing is not written yet"),
        (lambda: None, "returned nothing"),
        (lambda: 1 / 0, "stopped with ZeroDivisionError"),
        (lambda: 3, "something else is asked for; this is a int: 3"),
        (lambda: ["a"], "this is a list: ['a']"),
    ],
)
def test_answer_of_names_faults(function, words):
    with pytest.raises(exercises.CheckFailed) as caught:
        exercises.answer_of(
            function, see=("01", "A rank is a count"), on="nothing", as_a=lambda found: [float(x) for x in found]
        )
    assert words in str(caught.value) and "lesson 01" in str(caught.value)


def test_answer_of_gives_the_answer():
    assert exercises.answer_of(lambda n: range(n), 2, see=("01", "A rank is a count"), as_a=list) == [0, 1]


def test_check_passes_what_is_equal(capsys):
    see = ("01", "A rank is a count")
    exercises.check(
        lambda: (torch.tensor([1.0, float("nan")], requires_grad=True), 3),
        expect=([1, float("nan")], 3.0000000001),
        see=see,
        name="pair",
        on="nothing",
    )
    exercises.check(lambda x: x > 1, torch.tensor([1, 2]), expect=[False, True], see=see)
    exercises.check(lambda rows, names: 3, [[1, 2], [3]], {"a": [4]}, expect=3, see=see)  # lists of several lengths
    exercises.check_that(True, "never read", see=see)
    assert "✓ pair on nothing" in capsys.readouterr().out


# The release


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    "A course folder of its own, with every set released."
    folder = tmp_path_factory.mktemp("class") / "course"
    shutil.copytree(
        COURSE,
        folder,
        ignore=shutil.ignore_patterns(
            "release", "submitted", "autograded", "feedback", "gradebook.db*", ".graded", "marks.csv"
        ),
    )
    run(folder, "release")
    return folder


def run(folder: Path, *words, **env):
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "course.py"), *words],
        capture_output=True,
        text=True,
        env={**os.environ, "COURSE": str(folder), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **env},
    )
    assert env or done.returncode == 0, done.stdout + done.stderr
    return done


def test_release_gives_nothing_away(released):
    for name in SETS:
        files = {p.name for p in (released / "release" / name).iterdir()}
        assert f"{name}.ipynb" in files
        text = (released / "release" / name / f"{name}.ipynb").read_text()
        assert "### " + "BEGIN" not in text and "HIDDEN" not in text
        lines = {line.strip() for c in nbformat.reads(text, as_version=4).cells for line in c.source.split("\n")}
        secrets = course.secrets(name)
        assert len(secrets) > 10 and not lines & set(secrets)
        assert text.count("raise NotImplementedError()") >= len(
            [c for c in source(name).cells if c.cell_type == "code" and marks(c).get("solution")]
        )


@pytest.mark.course
@pytest.mark.parametrize("name", [n for n in SETS if n not in SLOW])
def test_source_validates_by_nbgrader_itself(released, name):
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "validate", f"source/{name}/{name}.ipynb"],
        cwd=released,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "SMOOTHAP_GRADING": "1"},
    )
    assert "Success! Your notebook passes all the tests." in done.stdout, done.stdout + done.stderr


# A class, through nbgrader and the sandbox


def sandboxed(test):
    "Mark a test that grades in the sandbox."
    needed = pytest.mark.skipif(
        shutil.which("bwrap") is None, reason="no bubblewrap on this machine (Debian: apt-get install bubblewrap)"
    )
    return pytest.mark.course(pytest.mark.timeout(900)(needed(test)))


FIRST, SECOND = "set1_ranks_and_ties", "set3_smooth_ap"


def hand_in(folder: Path, student: str, name: str, nb) -> Path:
    path = folder / "submitted" / student / name / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, path)
    return path


def marks_of(folder: Path) -> dict:
    import csv

    return {(row["student"], row["set"]): row for row in csv.DictReader((folder / "marks.csv").open(newline=""))}


def copy_of(released: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "course"
    shutil.copytree(released, folder)
    return folder


def wrong(name: str, which: str):
    return replaced(source(name), wrong_answer(f"{name.split('_')[0]}/{which}")[0])


@sandboxed
def test_a_class_is_graded(released, tmp_path):
    """Three students, two sets: right, blank, wrong. Then nothing is graded twice, a changed answer is, and marks by
    hand reach the table and the feedback.
    """
    from nbgrader.api import Gradebook

    folder = copy_of(released, tmp_path)
    for name in (FIRST, SECOND):
        hand_in(folder, "ada", name, source(name))
        shutil.copytree(released / "release" / name, folder / "submitted" / "ben" / name)
    hand_in(folder, "eve", FIRST, wrong(FIRST, "argsort_once"))
    hand_in(folder, "eve", SECOND, wrong(SECOND, "self_counted"))
    run(folder, "grade")
    table = marks_of(folder)
    assert {key: float(row["auto_score"]) for key, row in table.items()} == {
        ("ada", FIRST): 15,
        ("ada", SECOND): 16,
        ("ben", FIRST): 0,
        ("ben", SECOND): 0,
        ("eve", FIRST): 13,
        ("eve", SECOND): 12,
    }
    assert all(float(row["max_score"]) == 20 for row in table.values())
    assert {name: float(row["max_auto_score"]) for (_, name), row in table.items()} == {FIRST: 15, SECOND: 16}
    assert table["ada", FIRST]["status"] == "needs manual marks" and table["ben", FIRST]["status"] == "graded"
    feedback = folder / "feedback" / "eve" / FIRST / f"{FIRST}.html"
    assert "ARGSORT ONCE" in feedback.read_text() and "A rank is a count" in feedback.read_text()

    assert " 0 graded now" in run(folder, "grade").stdout
    hand_in(folder, "eve", FIRST, source(FIRST))
    with Gradebook(f"sqlite:///{folder}/gradebook.db", "smoothap") as book:
        for notebook in book.find_submission(FIRST, "ada").notebooks:
            for grade in notebook.grades:
                if grade.auto_score is None:
                    grade.manual_score, grade.needs_manual_grade = grade.max_score, False
            for comment in notebook.comments:
                comment.manual_comment = "Well argued."
        book.db.commit()
    assert " 1 graded now" in run(folder, "grade").stdout
    table = marks_of(folder)
    assert float(table["eve", FIRST]["auto_score"]) == 15
    assert table["ada", FIRST]["status"] == "graded" and float(table["ada", FIRST]["score"]) == 20
    assert "Well argued." in (folder / "feedback" / "ada" / FIRST / f"{FIRST}.html").read_text()


HOSTILE = {  # what rank_from_last does, and the points that are left: the other tasks are right
    "loops": ("def rank_from_last(scores):\n    while True:\n        pass", 13),
    "eats_memory": ("def rank_from_last(scores):\n    return [bytes([n % 251]) * 10**8 for n in range(500)]", 13),
    "deletes": (
        "import shutil, subprocess\nfor place in (CANARY, '/work', '/root', '/home', '/usr', '/etc', '/tmp'):\n    "
        "shutil.rmtree(place, ignore_errors=True)\n"
        "subprocess.run('rm -rf --no-preserve-root / ' + CANARY, shell=True, capture_output=True)\ndef "
        "rank_from_last(scores):\n    return None",
        13,
    ),
    "prints": ("for n in range(300_000):\n    print('x' * 100)\ndef rank_from_last(scores):\n    return None", 13),
    "fills_the_disk": ("for n in range(200):\n    open(f'{n}', 'wb').write(b'1' * 10**7)", 13),
    "calls_home": (
        "import socket\nsocket.create_connection(('127.0.0.1', PORT), 2).send(b'marks, please')\ndef "
        "rank_from_last(scores):\n    return None",
        13,
    ),
    "looks_around": (
        "from pathlib import Path\nseen = [str(p) for p in Path(CANARY).rglob('*')] + [str(p) for p in "
        "Path(CANARY).parent.rglob('*.ipynb')]\n"
        "assert not seen, 'SEEN ' + seen[0]\nprint('saw nothing')\ndef rank_from_last(scores):\n    return None",
        13,
    ),
    "ends_python": ("import os\nos._exit(0)", 0),
}


@sandboxed
def test_hostile_submissions_leave_the_rest_graded_and_the_disk_intact(released, tmp_path):
    import socket

    folder = copy_of(released, tmp_path)
    limits = (folder / "walls.py").read_text()
    assert '"cell": 30' in limits and '"memory": 3000 * MB' in limits
    (folder / "walls.py").write_text(
        limits.replace('"cell": 30', '"cell": 12').replace('"memory": 3000 * MB', '"memory": 1500 * MB')
    )
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "letter.txt").write_text("still here")
    with socket.create_server(("127.0.0.1", 0)) as server:
        for student, (code, _) in HOSTILE.items():
            code = code.replace("CANARY", repr(str(canary))).replace("PORT", str(server.getsockname()[1]))
            hand_in(folder, student, FIRST, replaced(source(FIRST), {"rank_from_last": code}))
        hand_in(folder, "honest", FIRST, source(FIRST))
        torn = hand_in(folder, "torn", FIRST, source(FIRST))
        torn.write_text(torn.read_text()[:1000])
        linked = hand_in(folder, "linked", FIRST, source(FIRST))
        (linked.parent / "gradebook").symlink_to(folder / "gradebook.db")
        cut = source(FIRST)
        cut.cells = [c for c in cut.cells if not marks(c).get("locked")]
        hand_in(folder, "cut_cells", FIRST, cut)
        edited = blank(source(FIRST))
        for cell in edited.cells:
            if marks(cell).get("grade") and cell.cell_type == "code":
                cell.source, cell.metadata.nbgrader["points"] = "assert True", 100
        hand_in(folder, "edited_tests", FIRST, edited)
        run(folder, "grade")
        server.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody called
            server.accept()
    table = {student: row for (student, _), row in marks_of(folder).items()}
    points = {student: float(row["auto_score"]) for student, row in table.items() if row["auto_score"]}
    assert points == {
        **{student: expected for student, (_, expected) in HOSTILE.items()},
        "honest": 15,
        "cut_cells": 15,
        "edited_tests": 0,
    }
    assert "is not a notebook" in table["torn"]["note"] and "holds a link" in table["linked"]["note"]
    assert "is not a notebook" in (folder / "feedback" / "torn" / FIRST / f"{FIRST}.html").read_text()
    assert (canary / "letter.txt").read_text() == "still here" and Path(__file__).exists()
    told = {student: (folder / "autograded" / student / FIRST / f"{FIRST}.ipynb") for student in points}
    assert "more than 12 s" in told["loops"].read_text() and "MemoryError" in told["eats_memory"].read_text()
    assert (
        "No space left" in told["fills_the_disk"].read_text()
        and "unreachable" in told["calls_home"].read_text()
        or "refused" in told["calls_home"].read_text()
    )
    assert "saw nothing" in told["looks_around"].read_text() and "its Python ended" in told["ends_python"].read_text()
    assert told["prints"].stat().st_size < 200_000
    assert not list(folder.glob("autograded/*/*/*[0-9]"))


@pytest.mark.course
@pytest.mark.timeout(900)
def test_without_a_sandbox_nothing_is_graded_unless_asked(released, tmp_path):
    folder = copy_of(released, tmp_path)
    hand_in(folder, "ada", FIRST, source(FIRST))
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "bwrap").write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    (fake / "bwrap").chmod(0o755)
    broken = {"PATH": f"{fake}{os.pathsep}{os.environ['PATH']}"}
    done = run(folder, "grade", **broken, UNSAFE="")
    assert (
        done.returncode != 0 and "No permissions to create new namespace" in done.stderr and "UNSAFE=1" in done.stderr
    )
    assert not (folder / "marks.csv").exists()
    done = run(folder, "grade", **broken, UNSAFE="1")
    assert done.returncode == 0 and "unprotected" in done.stderr, done.stderr
    assert float(marks_of(folder)["ada", FIRST]["auto_score"]) == 15
