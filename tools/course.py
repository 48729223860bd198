"""The course from the command line, without a display.

    python tools/course.py release                 build course/release/, what students get
    python tools/course.py grade [--workers 2]     grade course/submitted/STUDENT/SET/SET.ipynb, write course/feedback/
    and course/marks.csv
    python tools/course.py values SET              what the kept wrong answers of a set are told, and their points
    python tools/course.py measure                 grade a made-up class, write docs/results/course.json

Each submission is graded by a process of its own, its code in a sandbox (course/sandbox.py). `COURSE` names another
course folder.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import csv
import hashlib
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
COURSE = Path(os.environ.get("COURSE", ROOT / "course")).resolve()
sys.path.insert(0, str(COURSE))
COLUMNS_APART = "<style>td, th { padding: 0.1em 0.8em 0.1em 0 }</style>\n"  # of tables in feedback
LARGEST = 10 << 20  # bytes of one submission, everything together
COLUMNS = [
    "student",
    "set",
    "status",
    "score",
    "max_score",
    "auto_score",
    "max_auto_score",
    "manual_score",
    "max_manual_score",
    "look_at",
    "note",
]


def number_of(name: str) -> int:
    "The number of a set, by its name: 3 of set3_smooth_ap."
    return int(re.match(r"set(\d+)_", name)[1])


def in_order(source: Path) -> list[Path]:
    "The notebooks of the sets in a folder, by their numbers."
    found = [p for p in source.glob("set*/set*.ipynb") if p.stem == p.parent.name]
    return sorted(found, key=lambda path: number_of(path.stem))


def sets() -> list[str]:
    "Names of the problem sets, in order."
    return [path.stem for path in in_order(COURSE / "source")]


def api():
    "nbgrader, with the settings of nbgrader_config.py."
    from nbgrader.apps import NbGraderAPI
    from traitlets.config.loader import PyFileConfigLoader

    return NbGraderAPI(config=PyFileConfigLoader("nbgrader_config.py", path=str(COURSE)).load_config())


def gradebook():
    "The gradebook of the course, to be used in a `with`."
    from nbgrader.api import Gradebook

    settings = api().coursedir
    return Gradebook(settings.db_url, settings.course_id)


# The release


def release(names=None) -> None:
    "Build the release of every set: solutions and hidden tests taken out."
    nbgrader = api()
    for name in names or sets():
        done = nbgrader.generate_assignment(name, force=True, create=True)
        if not done["success"]:
            raise SystemExit(f"{name} has no release:\n{done['error']}\n{done['log']}")
        left = leaks(name)
        if left:
            shutil.rmtree(COURSE / "release" / name)
            raise SystemExit(f"the release of {name} would give away: {left[:3]}")
        note = COURSE / ".graded" / f"{name}.release"
        note.parent.mkdir(exist_ok=True)
        note.write_text(content(COURSE / "source" / name))
        print(f"{name}: released", flush=True)


def outdated() -> list[str]:
    "Sets whose release, or what the gradebook knows of them, is not made from the source as it is now."
    place = api().coursedir.db_url.removeprefix("sqlite:///").split("?")[0]
    if "://" not in place and not Path(place).exists():
        return sets()
    notes = {name: COURSE / ".graded" / f"{name}.release" for name in sets()}
    return [
        name
        for name, note in notes.items()
        if not (COURSE / "release" / name).exists()
        or not note.exists()
        or note.read_text() != content(COURSE / "source" / name)
    ]


def content(folder: Path) -> str:
    "Changes when a file of a folder changes."
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()):
        if not {".ipynb_checkpoints", "__pycache__"} & set(path.parts):
            digest.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def leaks(name: str) -> list[str]:
    "Lines of solutions, hidden tests and reference answers that the release of a set still holds; and its markers."
    released = "\n".join(p.read_text() for p in (COURSE / "release" / name).rglob("*") if p.is_file())
    cells = nbformat.read(COURSE / "release" / name / f"{name}.ipynb", as_version=4).cells
    lines = {line.strip() for cell in cells for line in cell.source.split("\n")}
    return [m for m in ("BEGIN SOLUTION", "END SOLUTION", "HIDDEN TESTS") if m in released] + [
        s for s in secrets(name) if s in lines
    ]


def secrets(name: str) -> list[str]:
    "Lines (of 12 letters and more) that belong to solutions, hidden tests and reference answers alone."
    shown, hidden = set(), []
    for cell in nbformat.read(COURSE / "source" / name / f"{name}.ipynb", as_version=4).cells:
        marks, inside = cell.metadata.get("nbgrader", {}), False
        by_hand = cell.cell_type == "markdown" and marks.get("solution", False)
        for line in cell.source.split("\n"):
            inside = (inside or "### BEGIN" in line) and "### END" not in line
            (hidden.append if inside or by_hand else shown.add)(line.strip())
    return [line for line in hidden if len(line) >= 12 and "### BEGIN" not in line and line not in shown]


# Grading


def grade(workers: int = 2) -> int:
    """Grade what is new or changed under course/submitted/, then write feedback and marks. Returns how many
    submissions could not be graded.
    """
    import sandbox

    problem = sandbox.why_not()
    if problem and not sandbox.unsafe():
        raise SystemExit(
            f"Not graded: students' code would run unprotected, because {problem}.\n"
            "If you have read the submissions, or grade in a machine made for it: make grade UNSAFE=1"
        )
    if problem:
        print(f"UNSAFE: students' code runs unprotected, {problem}", file=sys.stderr)
    elif sandbox.unsafe():
        print("UNSAFE: students' code runs unprotected, as you asked", file=sys.stderr)
    changed = outdated()
    if changed:
        release(changed)
    found = handed_in()
    enrol({student for student, _ in found} - {"(no student)"})
    with ThreadPoolExecutor(workers) as pool:
        done = list(pool.map(lambda pair: attempt(*pair), found))
    write_marks(dict(zip(found, done)))
    failed = [pair for pair, result in zip(found, done) if result["status"] != "graded"]
    print(
        f"{len(found)} submissions, {sum(not r['skipped'] for r in done)} graded now, {len(failed)} could not be: see "
        f"{COURSE / 'marks.csv'}"
    )
    return len(failed)


def handed_in() -> list[tuple[str, str]]:
    "(student, set) of everything that looks like a submission, also where its place or its name is wrong."
    pairs = set()
    for student in (COURSE / "submitted").glob("*"):
        if student.is_dir() and not student.is_symlink():
            pairs |= {(student.name, name) for name in sets() if (student / name).is_dir() or strays(student, name)}
        elif student.suffix == ".ipynb":
            pairs |= {("(no student)", name) for name in sets() if belongs(student, name)}
    return sorted(pairs)


def strays(student: Path, name: str) -> list[Path]:
    "Notebooks of a student that belong to a set by name or content and are not where they are looked for."
    right = student / name / f"{name}.ipynb"
    return [
        p
        for p in sorted(student.rglob("*.ipynb"))[:200]
        if p != right and not p.is_symlink() and ".ipynb_checkpoints" not in p.parts and belongs(p, name)
    ]


def belongs(path: Path, name: str) -> bool:
    """Does a notebook belong to a set: by its folder, by its name (`set1 (1).ipynb`, `copy of set1_...`), else by
    the ids of its cells?
    """
    number = re.search(r"(?i)(?<![a-z])set[ _-]?(\d+)(?!\d)", path.stem)
    if number:
        return name.startswith(f"set{number[1]}_")
    if path.parent.name in sets():
        return path.parent.name == name
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size < LARGEST else ""
    except OSError:
        return False
    ids = re.findall(r'"grade_id": *"(\w+)"', (COURSE / "source" / name / f"{name}.ipynb").read_text(encoding="utf-8"))
    return sum(f'"{one}"' in text for one in ids if one != "setup") > len(ids) / 2


def enrol(students: set[str]) -> None:
    """Enter students into the gradebook one after another: two graders that meet a new student at once would both
    enter him, and one would fail.
    """
    with gradebook() as book:
        for student in sorted(students):
            book.update_or_create_student(student)


def attempt(student: str, name: str) -> dict:
    "Grade one submission in a process of its own, unless it was graded before and neither it nor its set has changed."
    import sandbox

    note = COURSE / ".graded" / f"{student}__{name}.json"
    print_of_it = fingerprint(student, name)
    if note.exists():
        before = json.loads(note.read_text())
        if before["fingerprint"] == print_of_it:
            return {**before, "skipped": True}
    problem, start = unfit(student, name), time.monotonic()
    if not problem:
        limit = {**sandbox.LIMITS, **sandbox.SLOW_SETS.get(name, {})}["notebook"] + 120
        worker = subprocess.Popen(
            [sys.executable, __file__, "one", student, name],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "COURSE": str(COURSE)},
        )
        try:
            log, _ = worker.communicate(timeout=limit)
            problem = "" if worker.returncode == 0 else (log.strip().split("\n")[-1] or "the grader ended")[-400:]
        except subprocess.TimeoutExpired:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            problem = f"grading did not end within {limit} s"
    result = {"fingerprint": print_of_it, "status": "not graded" if problem else "graded", "note": problem}
    if problem:
        explain(student, name, problem)
    note.parent.mkdir(exist_ok=True)
    note.write_text(json.dumps(result))
    print(f"{student} {name}: {problem or 'graded'} ({time.monotonic() - start:.0f} s)", flush=True)
    return {**result, "skipped": False}


def one(student: str, name: str) -> None:
    "Grade one submission here, and write its feedback."
    nbgrader = api()
    for step in (nbgrader.autograde, nbgrader.generate_feedback):
        done = step(name, student, force=True)
        if not done["success"]:
            print(done["log"], done["error"], sep="\n")
            errors = [line for line in (done["log"] or "").split("\n") if "Error" in line] or [
                "nbgrader could not grade it"
            ]
            raise SystemExit(errors[-1].strip())
    lock_page(COURSE / "feedback" / student / name / f"{name}.html")


def lock_page(path: Path) -> None:
    """Write a content security policy into a page of feedback: it runs MathJax and nothing else. Its list of scores
    names the checks, and columns of tables stand apart.
    """
    if not path.exists():
        return
    page = path.read_text(encoding="utf-8")
    head, body = page.split("</head>", 1)
    head = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>\n?', "", head)
    inline = [
        script
        for attributes, script in re.findall(r"(?s)<script([^>]*)>(.*?)</script>", head)
        if "src=" not in attributes and script.strip()
    ]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in inline]
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src https://cdnjs.cloudflare.com data:; "
        "base-uri 'none'; "
        "form-action 'none'; script-src https://cdnjs.cloudflare.com/ajax/libs/mathjax/ "
        + " ".join(f"'sha256-{h}'" for h in hashes)
    )
    head = head.replace("<head>", f'<head><meta http-equiv="Content-Security-Policy" content="{policy}">\n', 1)
    head = head.replace(COLUMNS_APART, "") + COLUMNS_APART
    body = re.sub(r'(<a href="#(\w+)">)Test cell</a>', r"\1\2</a>", body)
    path.write_text(head + "</head>" + body, encoding="utf-8")


def unfit(student: str, name: str) -> str:
    "Why a submission is not given to nbgrader; empty if it can be. Looks at it without running anything."
    folder = COURSE / "submitted" / student / name
    if student == "(no student)":
        return (
            f"submitted/ holds a notebook of {name} that lies in no student's folder; what is looked at is "
            f"submitted/STUDENT/{name}/{name}.ipynb"
        )
    notebook, files = folder / f"{name}.ipynb", list(folder.rglob("*"))
    if any(p.is_symlink() for p in [folder, folder.parent, *files]):
        return "the submission holds a link; hand in files"
    if not notebook.is_file():
        found = ", ".join(str(p.relative_to(folder.parent)) for p in strays(folder.parent, name)[:5])
        return f"there is no {name}/{name}.ipynb" + (
            f", but {found}: move or rename the one that counts" if found else " in it"
        )
    if sum(p.stat().st_size for p in files) > LARGEST or len(files) > 100:
        return (
            f"the submission is larger than {LARGEST >> 20} MB or has more than 100 files; clear the outputs and "
            f"hand in again"
        )
    try:
        nbformat.validate(nbformat.read(notebook, as_version=4))
    except Exception as error:  # whatever a broken file makes the reader raise
        return f"{name}.ipynb is not a notebook ({type(error).__name__}); download it again from Jupyter and hand it in"
    if not known_cells(notebook, name):
        return f"no cell of {name}.ipynb is one of the set: download it again and write the answers into its cells"
    return ""


def known_cells(notebook: Path, name: str) -> bool:
    """Is there a cell that can be told to be an answer of the set: by its marks, its id, or the function that it
    defines?
    """
    import cells

    source = nbformat.read(COURSE / "source" / name / f"{name}.ipynb", as_version=4)
    answers = [c for c in source.cells if c.metadata.get("nbgrader", {}).get("solution")]
    ids = {c.metadata.nbgrader.grade_id for c in answers} | {c.get("id") for c in answers}
    names = set().union(*(cells.defined(c.source) for c in answers if c.cell_type == "code"))
    return any(
        {cells.grade_id_of(c), c.get("id")} & ids or c.cell_type == "code" and cells.defined(c.source) & names
        for c in nbformat.read(notebook, as_version=4).cells
    )


def look_at(student: str, name: str) -> str:
    "What a teacher should read in a submission; empty if nothing."
    import honesty

    try:
        cells = nbformat.read(COURSE / "submitted" / student / name / f"{name}.ipynb", as_version=4).cells
    except Exception:  # not graded, and said elsewhere
        return ""
    source = nbformat.read(COURSE / "source" / name / f"{name}.ipynb", as_version=4).cells
    marked = [c for c in source if c.cell_type == "code" and c.metadata.get("nbgrader", {}).get("locked")]
    return honesty.look_at(cells, {c.metadata.nbgrader.grade_id: c.source for c in marked})


def shown_alone(marks) -> list[str]:
    "Tasks that pass every check that is shown and none on handing in: their examples may be written into the answer."
    tasks = {}
    for grade in (g for n in marks.notebooks for g in n.grades if g.cell.cell_type == "code"):
        task, hidden = grade.cell.name.partition("_more")[0].removesuffix("_edge"), "_more" in grade.cell.name
        tasks.setdefault(task, {False: [], True: []})[hidden].append((grade.auto_score or 0) / grade.max_score)
    return [
        f"{task.removeprefix('test_')} passes what is shown and nothing on handing in"
        for task, passed in tasks.items()
        if passed[True] and min(passed[False]) == 1 and max(passed[True]) == 0
    ]


def fingerprint(student: str, name: str) -> str:
    "Changes when the submission changes, or its set, or how it is graded."
    ours = [COURSE / f"{file}.py" for file in ("walls", "sandbox", "cells", "honesty")]
    strayed = [str(p) for p in strays(COURSE / "submitted" / student, name)]
    parts = [
        content(COURSE / "submitted" / student / name),
        content(COURSE / "source" / name),
        *strayed,
        *(p.read_text() for p in ours),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def explain(student: str, name: str, problem: str) -> None:
    "Feedback for a submission that could not be graded."
    folder = COURSE / "feedback" / student / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.html").write_text(
        f"<!doctype html><meta charset=utf-8><title>{name}</title><h1>{name}</h1><p>Not graded: "
        f"{html.escape(problem)}.</p>\n"
    )


def write_marks(results: dict) -> None:
    "course/marks.csv from the gradebook, and new feedback where somebody has given marks by hand since."
    nbgrader, rows = api(), []
    with gradebook() as book:
        for (student, name), result in sorted(results.items()):
            row = {
                "student": student,
                "set": name,
                "status": result["status"],
                "note": result["note"],
                "look_at": look_at(student, name),
            }
            if result["status"] == "graded":
                marks = book.find_submission(name, student)
                row["status"] = "needs manual marks" if marks.needs_manual_grade else "graded"
                row |= {
                    "score": marks.score,
                    "max_score": marks.max_score,
                    "auto_score": sum(g.auto_score or 0 for n in marks.notebooks for g in n.grades),
                    "manual_score": sum(
                        g.manual_score or 0 for n in marks.notebooks for g in n.grades if g.auto_score is None
                    ),
                }
                row["max_auto_score"] = sum(
                    g.max_score for n in marks.notebooks for g in n.grades if g.cell.cell_type == "code"
                )
                row["max_manual_score"] = row["max_score"] - row["max_auto_score"]
                row["look_at"] = "; ".join(filter(None, [row["look_at"], *shown_alone(marks)]))
            rows.append(row)
    old = {(r["student"], r["set"]): r for r in read_marks()}
    for row in rows:
        before = old.get((row["student"], row["set"]))
        if (
            before
            and row["status"] != "not graded"
            and results[row["student"], row["set"]]["skipped"]
            and before["score"] != f"{row['score']}"
        ):
            nbgrader.generate_feedback(row["set"], row["student"], force=True)
            lock_page(COURSE / "feedback" / row["student"] / row["set"] / f"{row['set']}.html")
    with open(COURSE / "marks.csv", "w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, restval="")
        table.writeheader()
        table.writerows(rows)


def cpu_of(process: subprocess.Popen) -> float:
    """CPU seconds of a process and all that it starts, looked at ten times a second: kernels in a sandbox are not in a
    parent's own account.
    """
    import psutil

    seen = {}
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    seen[one.pid, one.create_time()] = sum(one.cpu_times()[:2])
        time.sleep(0.1)
    return sum(seen.values())


def measure(students: int, into: Path) -> None:
    """Grade `students` right and as many blank submissions of every set in a folder of its own, and store what 50
    students would take.

    CPU time (of nbgrader and of the kernels) is stored beside wall time, because others may use the machine.
    """
    sys.path.insert(0, str(ROOT))
    from benchmarks.harness import environment

    with tempfile.TemporaryDirectory() as scratch:
        folder, found = Path(scratch) / "course", {}
        shutil.copytree(
            ROOT / "course",
            folder,
            ignore=shutil.ignore_patterns(
                "release", "submitted", "autograded", "feedback", "gradebook.db*", ".graded", "marks.csv"
            ),
        )
        here = {**os.environ, "COURSE": str(folder), "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, __file__, "release"], env=here, check=True)
        for name in sets():
            for n in range(students):
                for kind, origin in (("right", "source"), ("blank", "release")):
                    target = folder / "submitted" / f"{kind}{n}" / name
                    target.mkdir(parents=True)
                    shutil.copy(folder / origin / name / f"{name}.ipynb", target)
            wall = time.perf_counter()
            cpu = cpu_of(subprocess.Popen([sys.executable, __file__, "grade"], env=here))
            found[name] = {
                "wall_s": round((time.perf_counter() - wall) / (2 * students), 2),
                "cpu_s": round(cpu / (2 * students), 2),
            }
    total = {key: sum(one[key] for one in found.values()) for key in ("wall_s", "cpu_s")}
    record = {
        "title": "Grading a class",
        "command": "python tools/course.py measure",
        "environment": environment(),
        "graders": 2,
        "submissions_per_set": 2 * students,
        "load_of_the_machine": round(os.getloadavg()[2], 1),
        "per_submission": found,
        "class_of_50": {
            "wall_min": round(total["wall_s"] * 50 / 60, 1),
            "cpu_min_over_two_cores": round(total["cpu_s"] * 50 / 60 / 2, 1),
        },
    }
    into.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record["class_of_50"]))


def values(name: str) -> int:
    "Print what each kept wrong answer of a set is told; returns how many are not told what they should be."
    sys.path.insert(0, str(COURSE / "source" / name))
    import course_play

    missed = 0
    for answer, points, most, told, knows in course_play.values(
        nbformat.read(COURSE / "source" / name / f"{name}.ipynb", as_version=4), name
    ):
        print(f"{answer}: {points:g} of {most:g} points{'' if knows else ', NOT TOLD ITS MISTAKE'}")
        for cell, message in told:
            print("\n".join(f"    {line}" for line in [cell, *message.split("\n")] if "Read  lesson" not in line))
        missed += not knows
    return missed


def read_marks() -> list[dict]:
    "The rows of course/marks.csv."
    path = COURSE / "marks.csv"
    return list(csv.DictReader(path.open(newline=""))) if path.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("release").add_argument("set", nargs="*")
    commands.add_parser("values").add_argument("set", help="as set3_smooth_ap")
    commands.add_parser("grade").add_argument("--workers", type=int, default=2)
    timing = commands.add_parser("measure")
    timing.add_argument("--students", type=int, default=2)
    timing.add_argument("--into", type=Path, default=ROOT / "docs" / "results" / "course.json")
    single = commands.add_parser("one")
    single.add_argument("student")
    single.add_argument("set")
    args = parser.parse_args()
    if args.command == "release":
        release(args.set)
    elif args.command == "values":
        return values(args.set)
    elif args.command == "grade":
        grade(args.workers)
    elif args.command == "measure":
        measure(args.students, args.into)
    elif args.command == "one":
        one(args.student, args.set)
    return 0


if __name__ == "__main__":
    sys.exit(main())
