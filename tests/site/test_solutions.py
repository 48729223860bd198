"""The pages with solutions: the problem sets' page is what the source notebooks give, and every line of the lessons'
page gives what it says.
"""

import doctest
import re
from pathlib import Path

import nbformat
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
import solutions

LESSONS = re.split(r"(?m)^(?=## )", (ROOT / "docs" / "lesson_solutions.md").read_text(encoding="utf-8"))[1:]


def test_solutions_of_the_sets_are_those_of_the_source_notebooks():
    assert solutions.PAGE.read_text(encoding="utf-8") == solutions.page(), "run python tools/solutions.py"


def test_solutions_hold_every_task_and_no_marker():
    page = solutions.page()
    for path in solutions.SOURCE.glob("set*/set*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.metadata.get("nbgrader", {}).get("solution"):
                assert solutions.code(cell.source) in page or cell.source.strip() in page
    assert "### BEGIN" not in page and "HIDDEN" not in page


@pytest.mark.parametrize("text", LESSONS, ids=lambda text: text.split("\n")[0][3:].lower().replace(" ", "-"))
def test_lesson_solutions_say_what_they_print(text):
    torch.manual_seed(0)
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert blocks and "# TODO" not in text
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, text.split("\n")[0], None, 0)
    told = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=told.append)
    assert result.attempted and not result.failed, "".join(told)


@pytest.mark.parametrize("text", LESSONS, ids=lambda text: text.split("\n")[0][3:].lower().replace(" ", "-"))
def test_every_exercise_of_a_lesson_is_answered(text):
    number = text[3:].split()[0]
    lesson, = (ROOT / "nbs").glob(f"{number}_*.ipynb")
    exercises = "\n".join(
        c.source
        for c in nbformat.read(lesson, as_version=4).cells
        if c.cell_type == "markdown" and "## Exercises" in c.source
    )
    asked = re.split(r"(?m)^## Exercises", exercises)[1].split("\n## ")[0].split("<summary>Hints")[0]
    assert len(re.findall(r"(?m)^\**\d\.", asked)) == len(re.findall(r"(?m)^\*\*\d\.", text)), f"lesson {number}"
    title = text.split("\n")[0][3:]
    assert f"(../docs/lesson_solutions.md#{title.replace(' ', '-')})" in exercises, (
        f"lesson {number} does not lead to its answers"
    )


def test_the_handout_is_made_from_the_source_notebooks_and_gives_nothing_away():
    import course
    import handout

    assert handout.stale() == [], "run python tools/handout.py"
    for path in sorted(solutions.SOURCE.glob("set*/set*.ipynb")):
        for file in (ROOT / "docs" / "sets" / path.name, ROOT / "docs" / f"{path.stem}.md"):
            lines = {line.strip(' \\n",') for line in file.read_text(encoding="utf-8").split("\n")}
            given_away = [line for line in course.secrets(path.stem) if line in lines]
            assert not given_away and "BEGIN" not in file.read_text(encoding="utf-8"), given_away[:3]


def test_every_task_has_a_first_hint_that_asks():
    for path in sorted(solutions.SOURCE.glob("set*/set*.ipynb")):
        text = path.read_text(encoding="utf-8")
        assert text.count("<summary>A first hint") == text.count("<summary>A second hint") >= 3, path.stem


SETS_OF_LESSONS = {
    "01": 1, "02": 2, "03": 3, "04": 4, "05": 5, "07": 6, "07b": 6, "12": 7, "13": 8, "14": 8,
    "11": 11, "11b": 11, "16": 11, "18": 9, "22": 10,
    "19": 12, "30": 12, "30b": 12,
}


@pytest.mark.parametrize("lesson", SETS_OF_LESSONS)
def test_a_lesson_leads_to_its_set_and_not_to_the_answers(lesson):
    path, = (ROOT / "nbs").glob(f"{lesson}_*.ipynb")
    text = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown")
    name, = (p.stem for p in (ROOT / "docs" / "sets").glob(f"set{SETS_OF_LESSONS[lesson]}_*.ipynb"))
    assert f"docs/sets/{name}.ipynb" in text and "course/source/" not in text
