"""Escapes that were possible once, each tried again through nbgrader and the sandbox; and submissions that a strict
marker has read, whose marks the machine has to reach. Marked `course`.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import course
import nbformat
import pytest
from nbconvert.filters.markdown_mistune import markdown2html_mistune
from test_course import COURSE, ROOT, blank, hand_in, marks, replaced, run, sandboxed, source

SET = "set1_ranks_and_ties"
BY_HAND = {
    name: text
    for name, text in re.findall(
        r"(?ms)^# submission: (\w+)\n(.*?)(?=^# submission: |\Z)",
        (Path(__file__).parent / "marked_by_hand.kept.py").read_text(encoding="utf-8"),
    )
}


def small_course(folder: Path, *names: str) -> Path:
    "A course of a few sets."
    folder.mkdir()
    for path in COURSE.glob("*.py"):
        shutil.copy(path, folder)
    for name in names:
        shutil.copytree(COURSE / "source" / name, folder / "source" / name)
    return folder


def rows(folder: Path) -> dict:
    return {row["student"]: row for row in csv.DictReader((folder / "marks.csv").open(newline="", encoding="utf-8"))}


def told(folder: Path, student: str) -> str:
    "Everything that a student's cells printed."
    nb = nbformat.read(folder / "autograded" / student / SET / f"{SET}.ipynb", as_version=4)
    outputs = [o for c in nb.cells for o in c.get("outputs", [])]
    return "\n".join(o.get("text", "") + "\n".join(o.get("traceback", [])) for o in outputs)


RIGHT = "def rank_from_last(scores):\n    return [sum(other < score for other in scores) for score in scores]\n"
TRIES = """
def attempt(name, what):
    try:
        print(name, 'DONE', what())
    except BaseException as error:
        print(name, 'refused', type(error).__name__, error)
"""
ESCAPES = {  # what stands in the first answer cell; the answer itself is right
    "tries_the_walls": """
import glob, os, subprocess
for place in glob.glob('/proc/[0-9]*/environ') + ['/proc/self/environ']:
    attempt('environ', lambda: b'TOKEN' in open(place, 'rb').read())
for place in ('/proc/sys/kernel/core_pattern', '/proc/sys/vm/overcommit_memory', '/proc/sysrq-trigger'):
    attempt('settings', lambda: open(place, 'w'))
print('user', os.getuid())
attempt('memfd', lambda: os.memfd_create('held'))
libc = __import__('cty' + 'pes').CDLL(None)  # under another name, so that the reading of submissions does not find it
print('segment', libc.shmget(0, 10**6, 0o1600))
print('unshare', libc.unshare(0x10000000), libc.unshare(0x20000))
print('tool', subprocess.run(['unshare', '-Urm', 'true']).returncode)
print('mount', libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))
""",
    "fills_places": """
import glob, os
def fill(place):
    written = 0
    try:
        for n in range(80):
            os.makedirs(f'{place}/a{n}/b', exist_ok=True)
            with open(f'{place}/a{n}/b/c', 'wb') as file:
                written += file.write(b'1' * 10**7)
    except OSError:
        pass
    return written
for place in ['/', '/etc', '/dev', '/dev/shm', '/tmp', '/home/student', '/home', *glob.glob('/tmp/kernel*'),
              *glob.glob('/tmp/kernel*/*')]:
    print('filled', fill(place), place)
""",
}
HARMFUL = [
    "<script>top.secret = 1</script>",
    '<iframe srcdoc="<script>top.secret = 2</script>"></iframe>',
    "[read me](javascript:top.secret=3)",
    "[read me](java&#115;cript:top.secret=4)",
    "<img src=x onerror='top.secret=5'>",
    "<a href='data:text/html;base64,PHNjcmlwdD4='>six</a>",
    "<svg onload='top.secret=7'></svg><math><mi xlink:href='javascript:top.secret=8'>x</mi></math>",
    "`<script>`\n\n    <script>top.secret = 9</script>",
    r"$\href{javascript:top.secret=10}{x}$",
    "<style>body{background:url(http://127.0.0.1/11)}</style>",
]


def odd_submissions(folder: Path) -> None:
    "Right answers in notebooks that were not graded as they should be."
    hand_in(
        folder,
        "warned",
        SET,
        replaced(
            source(SET),
            {
                "rank_from_last": "import sys, warnings\n"
                + RIGHT.replace(
                    "    return", "    warnings.warn('odd')\n    print('to stderr', file=sys.stderr)\n    return"
                )
            },
        ),
    )
    copied = source(SET)
    place = next(n for n, c in enumerate(copied.cells) if marks(c).get("grade_id") == "rank_from_last")
    for where, old in ((place, blank(source(SET)).cells[place]), (place + 2, blank(source(SET)).cells[place])):
        copied.cells.insert(where, {**old, "id": f"copy-{where}"})
    copied.cells = [nbformat.from_dict(c) for c in copied.cells]
    hand_in(folder, "copied_cells", SET, copied)
    bare = source(SET)
    for cell in bare.cells:
        cell.metadata.pop("nbgrader", None)
        cell.id = nbformat.v4.new_raw_cell().id
    hand_in(folder, "bare_cells", SET, bare)
    other = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(1)")])
    hand_in(folder, "other_notebook", SET, other)
    for student, place in (
        ("no_folder", f"{SET}.ipynb"),
        ("second_download", f"{SET}/{SET} (1).ipynb"),
        ("own_name", "homework/final.ipynb"),
        ("short_name", "Set 1.ipynb"),
    ):
        path = folder / "submitted" / student / place
        path.parent.mkdir(parents=True)
        nbformat.write(source(SET), path)
    nbformat.write(source(SET), folder / "submitted" / f"{SET}.ipynb")


def cheats(folder: Path) -> None:
    for student, code in {
        "ends_quietly": "def rank_from_last(scores):\n    raise SystemExit",
        "gives_a_number": "import sys\ndef rank_from_last(scores):\n    sys.displayhook(1.0)\n    return None",
        "changes_the_tests": "def ticks(lines):\n    return ['print(1)']\n"
        "get_ipython().input_transformers_post.append(ticks)\ndef "
        "rank_from_last(scores):\n    pass",
        "reads_the_input": "def rank_from_last(scores):\n    print('seen', len(In), In[-1])\n    return None",
    }.items():
        hand_in(folder, student, SET, replaced(source(SET), {"rank_from_last": code}))


@sandboxed
@pytest.mark.slow
def test_escapes_and_odd_submissions(tmp_path):
    folder = small_course(tmp_path / "course", SET)
    for student, code in ESCAPES.items():
        hand_in(folder, student, SET, replaced(source(SET), {"rank_from_last": TRIES + code + RIGHT}))
    harmful = source(SET)
    for text in HARMFUL:
        harmful.cells.append(nbformat.v4.new_markdown_cell(text))
        harmful.cells.append(nbformat.v4.new_raw_cell(text, metadata={"format": "text/html"}))
    harmful.cells.append(
        nbformat.v4.new_code_cell(
            "from IPython.display import HTML, Javascript, display\n"
            f"for text in {HARMFUL!r}:\n    display(HTML(text))\ndisplay(Javascript('top.secret = 12'))"
        )
    )
    next(c for c in harmful.cells if "what_if" in marks(c).get("grade_id", "")).source = "\n\n".join(HARMFUL)
    hand_in(folder, "writes_scripts", SET, harmful)
    odd_submissions(folder)
    cheats(folder)
    run(folder, "grade", COURSE_TOKEN="TOKEN-1")
    table = rows(folder)
    points = {student: float(row["auto_score"]) for student, row in table.items() if row["auto_score"]}

    walls = told(folder, "tries_the_walls")
    assert "DONE" not in walls.replace("environ DONE False", "") and walls.count("refused") >= 4, walls
    assert re.search(r"user [1-9]", walls) and "segment -1" in walls and "unshare -1 -1" in walls
    assert "mount -1" in walls and "tool 1" in walls, walls
    filled = re.findall(r"filled (\d+) (\S+)", told(folder, "fills_places"))
    assert len(filled) >= 8 and all(int(size) <= 64 << 20 for size, _ in filled)
    assert all(int(size) <= 1 << 20 for size, place in filled if place not in ("/dev/shm", "/tmp", "/home/student"))
    assert not list(Path("/tmp").glob("kernel-*/a*"))

    # the first answer counts 2 of 15
    assert points == {
        "tries_the_walls": 15,
        "fills_places": 15,
        "writes_scripts": 15,
        "warned": 15,
        "copied_cells": 15,
        "bare_cells": 15,
        "ends_quietly": 13,
        "gives_a_number": 13,
        "changes_the_tests": 13,
        "reads_the_input": 13,
    }
    for student in ("changes_the_tests", "reads_the_input"):
        assert "(not run)" in table[student]["look_at"] and "Held back" in told(folder, student)
    for student, words in (
        ("no_folder", f"but {SET}.ipynb"),
        ("second_download", f"{SET} (1).ipynb"),
        ("own_name", "homework/final.ipynb"),
        ("short_name", "Set 1.ipynb"),
        ("other_notebook", "no cell of"),
        ("(no student)", "in no student's folder"),
    ):
        assert table[student]["status"] == "not graded" and words in table[student]["note"], table[student]
        assert words.replace("'", "&#x27;") in (folder / "feedback" / student / SET / f"{SET}.html").read_text()
    page = (folder / "feedback" / "writes_scripts" / SET / f"{SET}.html").read_text()
    assert "Content-Security-Policy" in page and "default-src 'none'" in page
    stored = nbformat.read(folder / "autograded" / "writes_scripts" / SET / f"{SET}.ipynb", as_version=4)
    answers = [c.source for c in stored.cells if c.cell_type == "markdown"]
    assert running(page.split("<body", 1)[1]) == [] and not any("\\href{" in text for text in answers)
    assert all(running(text) == running(markdown2html_mistune(text)) == [] for text in answers)
    kinds = {kind for c in stored.cells for o in c.get("outputs", []) for kind in o.get("data", {})}
    assert kinds <= {"text/plain", "image/png", "image/jpeg"} and "raw" not in {c.cell_type for c in stored.cells}


def running(page: str) -> list[str]:
    "What would run, or be fetched, in the browser of whoever opens a page."
    found = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            if tag in {"script", "iframe", "svg", "math", "style", "form", "object", "embed", "base", "link", "meta"}:
                found.append(tag)
            for name, value in attributes:
                address = re.sub(r"\s", "", (value or "").lower())
                if name.startswith("on") or name == "srcdoc" or "javascript:" in address:
                    found.append(f"{tag} {name}={value}")
                if name == "href" and address.startswith(("data:", "vbscript:")):
                    found.append(f"{tag} {name}={value}")
                if name == "src" and not address.startswith("data:image/"):
                    found.append(f"{tag} {name}={value}")

    Reader().feed(page)
    return found


@sandboxed
@pytest.mark.slow
def test_marks_agree_with_a_strict_marker_and_every_cheat_is_named(tmp_path):
    given, names = {}, {}
    folder = tmp_path / "course"
    for student, text in BY_HAND.items():
        names[student] = dict(re.findall(r"(?m)^# (set|kind|marks|look at): (.*)$", text))
    small_course(folder, *sorted({n["set"] for n in names.values()}))
    assert sorted(n["kind"] for n in names.values()) == ["cheat"] * 4 + ["half"] * 7 + ["right"] * 4
    for student, text in BY_HAND.items():
        parts = re.split(r"(?m)^# cell: *(\w+)\n", text)[1:]
        hand_in(
            folder,
            student,
            names[student]["set"],
            replaced(blank(source(names[student]["set"])), dict(zip(parts[::2], parts[1::2]))),
        )
        terms, total = names[student]["marks"].split("=")
        assert sum(map(float, terms.split("+"))) == float(total)
        given[student] = float(total)
    run(folder, "grade")
    table = rows(folder)
    apart = {student: float(table[student]["auto_score"]) - mark for student, mark in given.items()}
    assert all(abs(difference) <= 1 for difference in apart.values()), apart
    for student, facts in names.items():
        looked = table[student]["look_at"]
        assert facts.get("look at", "") in looked and bool(looked) == (facts["kind"] == "cheat"), (student, looked)


@sandboxed
def test_a_changed_hidden_test_is_applied_without_building_by_hand(tmp_path):
    folder = small_course(tmp_path / "course", SET)
    hand_in(folder, "ada", SET, source(SET))
    run(folder, "grade")
    assert float(rows(folder)["ada"]["auto_score"]) == 15
    path = folder / "source" / SET / f"{SET}.ipynb"
    nb = source(SET)
    cell = next(c for c in nb.cells if marks(c).get("grade_id") == "test_rank_from_last_more")
    cell.source = cell.source.replace("_hidden()\n", "_hidden()\nassert False, 'changed'\n")
    nbformat.write(nb, path)
    run(folder, "grade")
    assert float(rows(folder)["ada"]["auto_score"]) == 14


def test_plain_nbgrader_releases_a_set_that_runs(tmp_path):
    "A teacher who knows nbgrader and not our commands: nothing beside the notebook is needed but the package."
    folder = small_course(tmp_path / "course", SET)
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "generate_assignment", SET, "--create"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (folder / "release" / SET).iterdir()) == [f"{SET}.ipynb"]
    assert (
        not course.secrets(SET) == []
        and "smoothap_nb.exercises" in (folder / "release" / SET / f"{SET}.ipynb").read_text()
    )
