"""What the checks say, what a teacher is told to look at, what is stored for browsers, and the walls' own program:
without nbgrader's grading, in a second.
"""

import contextlib
import io
import linecache
import os
import shutil
import struct
import subprocess
from fractions import Fraction
from types import SimpleNamespace

import cells
import honesty
import nbformat
import pytest
import torch
import walls

from smoothap_nb import exercises

SEE = ("01", "A rank is a count")


def failing(function, *inputs, expect, **keywords) -> str:
    with pytest.raises(exercises.CheckFailed) as caught, contextlib.redirect_stdout(io.StringIO()):
        exercises.check(function, *inputs, expect=expect, see=SEE, **keywords)
    return str(caught.value)


def sorted_in_place(row):
    row.sort()
    return row


def emptied(rows, table):
    rows[0].pop()
    return 3


@pytest.mark.parametrize(
    "answer, inputs, want, words",
    [
        (lambda s: [2, 3], ([5, 6],), [1, 2], "ONE TOO MANY EVERYWHERE"),
        (lambda s: [0, 1], ([5, 6],), [1, 2], "ONE TOO FEW EVERYWHERE"),
        (lambda s: -s, (torch.tensor([1.0, 2.0]),), [1.0, 2.0], "THE SIGN TURNED"),
        (lambda s: [3, 1, 2], ([0, 0, 0],), [2, 1, 3], "BACK TO FRONT"),
        (lambda s: [3, 1, 2], ([0, 0, 0],), [1, 2, 3], "ANOTHER ORDER"),
        (lambda s: torch.ones(1, 2), ([0, 0],), [1, 1], "THE RIGHT NUMBERS IN ANOTHER SHAPE"),
        (lambda s: [[1, 3], [2, 4]], (2,), [[1, 2], [3, 4]], "TRANSPOSED"),
        (lambda s: 2.0, ([0, 0],), [1.0, 3.0], "THE MEAN OF EVERYTHING"),
        (lambda s: [6.0, 12.0, 3.0], ([1, 2, 3],), [2.0, 4.0, 1.0], "A SUM FOR A MEAN"),
        (lambda s: [1.0, 3.0], ([0, 0],), 2.0, "A NUMBER FOR EACH"),
        (lambda s: 52.0, (0,), 0.52, "IN PERCENT"),
        (lambda s: 0.25, (0,), 4.0, "UPSIDE DOWN"),
        (lambda s: 0.4, (0,), 0.6, "ONE MINUS THE ANSWER"),
        (lambda s: [1, 2], (0,), [1.5, 2.25], "ROUNDED DOWN"),
        (lambda s: [2.25, 6.25], (0,), [1.5, 2.5], "A ROOT FORGOTTEN"),
        (lambda s: [float("nan"), 1], (0,), [1, 1], "NaN"),
        (lambda s: [2, 1, 2], ([0.5, 0.9, 0.5],), [3, 1, 3], "ONLY ITEMS WITH EQUAL SCORES"),
        (sorted_in_place, ([3, 1, 2],), [2, 0, 1], "changed its input in place"),
        (emptied, ([[1, 2], [3]], {"a": [4]}), 3, "changed its input in place"),
        (sorted_in_place, ([3, 1, 2],), [1, 2, 3], "sorted(x) in place of x.sort()"),
        (lambda s: [torch.ones(2), torch.ones(3)], (0,), [1, 1], "a list of tensors"),
        (lambda s: sorted_in_place, (0,), 1, "itself was returned"),
        (lambda s: print(1), (0,), 1, "`print` shows a value, `return` gives it"),
    ],
)
def test_common_mistakes_are_named_in_any_task(answer, inputs, want, words):
    assert words in failing(answer, *inputs, expect=want)


@pytest.mark.parametrize(
    "got, inputs, want",
    [
        (0.0, (), 0.5),  # nothing was rounded
        (-1.0, (), 0.0),  # one number alone says nothing about "everywhere"
        ([7.0, 0.0, 7.0], ([2, 0, 2],), [3.0, 0.0, 3.0]),  # levels are equal on purpose, no ties
    ],
)
def test_no_mistake_is_named_where_none_of_the_common_ones_fits(got, inputs, want):
    assert "This is" not in failing(lambda *_: got, *inputs, expect=want, on="x")


def test_a_function_without_an_input_is_not_told_about_one():
    with pytest.raises(exercises.CheckFailed) as caught:
        exercises.answer_of(lambda: 3, see=SEE, as_a=list)
    assert "  on" not in str(caught.value)


def test_a_mistake_that_gives_all_values_goes_before_one_that_gives_the_first():
    mistakes = {"THE FIRST ALONE": (False, True), "BOTH": (False, False)}
    told = failing(lambda: (False, False), expect=(True, True), on="x", mistakes=mistakes)
    assert "BOTH" in told and "THE FIRST" not in told


def test_of_several_values_the_first_wrong_one_is_explained():
    want = ([1.0, 2.0], [3.0, 4.0])
    mistakes = {"sign": ([5.0, 6.0], [7.0, 8.0])}
    assert "THE DIFFERENCE THE WRONG WAY" in failing(lambda: ([5, 6], [0, 0]), expect=want, on="x", mistakes=mistakes)
    assert "BACK TO FRONT" in failing(lambda: ([1, 2], [4, 3]), expect=want, on="x", mistakes=mistakes)
    assert "This is" not in failing(lambda: ([1, 2], [5, 6]), expect=want, on="x", mistakes=mistakes)


def test_one_minus_a_known_mistake_is_two_mistakes():
    told = failing(lambda: 0.7, expect=0.6, on="x", mistakes={"batch-positives": 0.3})
    assert "DIVIDED BY ALL POSITIVES" in told and "ONE MINUS THE ANSWER" in told


def test_rows_in_another_order_are_recognised():
    assert "ANOTHER ORDER" in failing(lambda: [[1, 2], [3, 4]], expect=[[2, 1], [4, 3]], on="x")


def test_a_mistake_of_the_task_goes_before_a_common_one():
    told = failing(lambda s: [2, 3], [0, 0], expect=[1, 2], mistakes={"zero-based": [2, 3]})
    assert "RANKS FROM THE WRONG START" in told and "ONE TOO MANY" not in told


@pytest.mark.parametrize("answer", [[torch.tensor(1.0), torch.tensor(2.0)], (1, Fraction(2)), torch.tensor([1, 2])])
def test_numbers_are_taken_in_any_form(answer):
    with contextlib.redirect_stdout(io.StringIO()):
        exercises.check(lambda: answer, expect=[1.0, 2.0], see=SEE, name="numbers", on="nothing")


def drawing(function, **keywords):
    return exercises.drawn(function, lines=["a", "b"], see=SEE, on="two lines", name="draw", **keywords)


def two_lines(axes, x="x", y="y", legend=True, **settings):
    axes.plot([3, 1, 2], [9, 1, 4], label="a")
    axes.plot([1, 2], [5, 6], label=" B ")
    axes.set(xlabel=x, ylabel=y, **settings)
    if legend:
        axes.legend()


def test_what_is_drawn_comes_back_as_numbers():
    assert drawing(two_lines) == {"a": ([1, 2, 3], [1, 4, 9]), "b": ([1, 2], [5, 6])}


@pytest.mark.parametrize(
    "function, words",
    [
        (lambda axes: None, "nothing was drawn into the axes"),
        (lambda axes: axes.plot([1], [1], label="a"), 'no line is called "b": axes.plot(x, y, label=...); there are a'),
        (lambda axes: axes.plot([1], [1]), "none with a label"),
        (lambda axes: two_lines(axes, y=" "), "an axis has no name"),
        (lambda axes: two_lines(axes, legend=False), "axes.legend()"),
        (lambda axes: two_lines(axes), '"log" is asked for'),
        (lambda axes: axes.plott(), "stopped with AttributeError"),
    ],
)
def test_a_drawing_that_nobody_can_read_is_told_why(function, words):
    with pytest.raises(exercises.CheckFailed) as caught:
        drawing(function, xscale="log")
    assert words in str(caught.value) and "lesson 01" in str(caught.value)


def test_the_students_own_line_is_shown():
    code = "def third(x):\n    y = list(x)\n    return y[3]\n"
    linecache.cache["a cell"] = (len(code), None, code.splitlines(keepends=True), "a cell")
    space = {}
    exec(compile(code, "a cell", "exec"), space)
    told = failing(space["third"], [1, 2], expect=1)
    assert "stopped with IndexError" in told and "line  return y[3]    (line 3 of its cell)" in told


def test_an_answer_that_leaves_python_fails_its_check():
    def leave():
        raise SystemExit

    assert "stopped with SystemExit" in failing(leave, expect=1, on="nothing")


def test_a_word_is_no_object_that_equals_everything():
    class Equal:
        def __eq__(self, other):
            return True

        __hash__ = None

    assert "another answer is right" in failing(Equal, expect="largest", on="nothing")
    assert failing(Equal, expect=None, on="nothing") and failing(Equal, expect=True, on="nothing")


@pytest.mark.parametrize(
    "code, words, hold",
    [
        ("def check(*a, **k): pass", "the name of a check, check", False),
        ("check_that = print", "the name of a check, check_that", False),
        ("import math as check", "the name of a check, check", False),
        ("import torch\ntorch.isclose = max", "replaces torch.isclose", True),
        ("setattr(torch, 'isclose', max)", "replaces something in torch", True),
        ("import sys\nsys._getframe(1).f_locals", "_getframe", True),
        ("try:\n    f()\nexcept Exception as e:\n    e.__traceback__.tb_frame", "tb_frame", True),
        ("getattr(sys, '_getframe')", "names _getframe", True),
        ("get_ipython().input_transformers_post.append(f)", "input_transformers_post", True),
        ("print(In[-1])", "history of inputs", True),
        ("!cat /etc/passwd", "commands", True),
        ("files = !ls", "commands", True),
        ("%run other.py", "commands", True),
        ("import ctypes", "C functions", True),
        ("f.__globals__['check'] = 1", "__globals__", True),
        ("sys.modules['torch']", "sys.modules", True),
        ("exec('1')", "uses exec", False),
        ("import inspect", "imports inspect", False),
        ("class A:\n    def __eq__(self, o): return True", "equal to", False),
        ("import os\nos._exit(0)", "os._exit", False),
        ("check.__kwdefaults__['tol'] = 1e9", "__kwdefaults__", True),
        ("from smoothap_nb import exercises\nexercises._difference = max", "replaces exercises._difference", True),
        ("from smoothap_nb import exercises as e\nd = e\nd._same = max", "replaces d._same", True),
        ("T = torch.Tensor\nT.tolist = max", "replaces T.tolist", True),
        ("type(torch.ones(1)).tolist = max", "replaces type(torch.ones(1)).tolist", True),
        ("setattr(type(torch.ones(1)), 'tolist', max)", "replaces something in type", True),
        ("'{0.f_globals}'.format(frame)", "names f_globals in a string", True),
        ("getattr(sys, '_get' + 'frame')", "put together on the way", False),
        ("range = lambda *a: ()", "gives range, a name that the checks use", False),
        ("def sorted(x): return x", "gives sorted", False),
        ("for torch in [1]: pass", "gives torch", False),
        ("import math as torch", "gives torch", False),
        ("from math import floor as sorted", "gives sorted", False),
        ("if True:\n    range = lambda *a: ()", "gives range", False),
        ("def f():\n    global sum\n    sum = max", "gives sum", False),
        ("match max:\n    case sorted:\n        pass", "gives sorted", False),
        ("(len := max)", "gives len", False),
        ("put = setattr\nput(exercises, '_same', max)", "uses setattr", False),
        ("object.__setattr__(exercises, '_same', max)", "__setattr__", True),
        ("from unittest.mock import patch", "replaces parts of other modules", True),
        ("import pytest\npytest.MonkeyPatch()", "replaces parts of other modules", True),
        ("import timeit\ntimeit.timeit('import smoothap_nb.exercises as e')", "names the checks in a string", True),
        ("import code", "imports code", False),
    ],
)
def test_what_a_cheat_does_is_named(code, words, hold):
    said = honesty.found(code)
    assert any(words in what and holds == hold for what, holds in said), said
    assert bool(honesty.held(code)) == hold


@pytest.mark.parametrize(
    "code",
    [
        "import torch, numpy as np\nx = torch.ones(3)\nx[0] = 2\nnp.random.seed(0)",
        "class Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.tau = 1\n"
        "    def forward(self, x): return x * self.tau",
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.rcParams['figure.dpi'] = 90",
        "torch.backends.cudnn.deterministic = True\ntorch.manual_seed(1)",
        "from smoothap_nb.exercises import check, check_that",
        "def f(x):\n    sum = 0\n    for min in x:\n        sum += min\n    return sum",
        "import numpy as np\nfrom torch import nn\nlayer = nn.Linear(2, 2)\nlayer.weight.requires_grad = False",
        "def f(net, name):\n    return getattr(net, 'weight')",
        "In = 3\nprint(In)",
        "import matplotlib.pyplot as plt\nimport torch.nn.functional as F\nimport timeit\ntimeit.timeit(lambda: 1)",
        "best = max(x for x in [1] if x)\nrows = [sum for sum in [1]]",
        "try:\n    x = 1\nexcept ValueError as error:\n    raise",
        "%%time\nranks = [1]",
        "def broken(:",
    ],
)
def test_an_honest_cell_is_left_alone(code):
    assert honesty.found(code) == []


def test_a_name_that_an_earlier_cell_imports_is_known_in_a_later_one():
    first, second = "from smoothap_nb import exercises as tools", "tools._difference = lambda *a: ''"
    cells = [{"cell_type": "code", "source": source} for source in (first, second)]
    assert honesty.look_at(cells, {}) == "cell 1 replaces tools._difference (not run)"
    assert honesty.held(second, honesty.names_of(first)) and not honesty.held(second)


LOCKED = {
    "setup": "import torch\ndef judge(x):\n    return x",
    "test_one": "rows = 3\ndef law(x):\n    return judge(x)\nlaw(rows)",
    "test_one_more": "def law(x):\n    return x\nlaw(rows)",
    "test_two": "rows = 4\nlaw(rows)",
}


def handed_in(*cells):
    made = []
    for cell in cells:
        name, text = (cell, LOCKED[cell]) if cell in LOCKED else (None, cell)
        made.append({"cell_type": "code", "source": text, "metadata": {"nbgrader": {"grade_id": name}} if name else {}})
    return honesty.look_at(made, LOCKED)


def test_what_the_checks_stand_on_is_not_replaced():
    own = "def judge(x):\n    return 1"
    said = handed_in("setup", own, "test_one", "test_one_more", "test_two")
    assert said == "cell 1 gives judge, a name that the checks use, to something else (not run)"
    assert "gives rows" in handed_in("setup", "test_one", "rows = 5", "test_one_more", "test_two")
    assert "gives law" in handed_in("setup", "test_one", "test_one_more", "law = max", "test_two")


def test_a_name_that_the_checks_make_anew_is_the_students_own():
    assert handed_in("setup", "rows = law = 5", "test_one", "law = 3", "test_one_more", "rows = 2", "test_two") == ""
    assert handed_in("setup", "test_one", "test_one_more", "test_two", "def judge(x):\n    return 1") == ""


def test_a_task_that_passes_what_is_shown_alone_is_named():
    import course

    def grade(name, score, kind="code"):
        return SimpleNamespace(auto_score=score, max_score=1, cell=SimpleNamespace(name=name, cell_type=kind))

    grades = [
        *(grade("test_hard_coded", 1), grade("test_hard_coded_edge", 1), grade("test_hard_coded_more", 0)),
        *(grade("test_half", 1), grade("test_half_edge", 0), grade("test_half_more", 0), grade("test_alone", 1)),
        *(grade("test_right", 1), grade("test_right_more", 1), grade("what_if", None, "markdown")),
    ]
    marks = SimpleNamespace(notebooks=[SimpleNamespace(grades=grades)])
    assert course.shown_alone(marks) == ["hard_coded passes what is shown and nothing on handing in"]


def test_a_page_of_feedback_names_its_checks_and_runs_nothing(tmp_path):
    import course

    page = tmp_path / "page.html"
    page.write_text(
        '<html><head></head><body><a href="#test_reach_edge">Test cell</a><a href="#what_if">Written response</a>'
    )
    course.lock_page(page)
    once = page.read_text()
    course.lock_page(page)
    assert page.read_text() == once and once.count("Content-Security-Policy") == 1
    assert '<a href="#test_reach_edge">test_reach_edge</a>' in once and ">Written response<" in once


def test_several_inputs_are_told_with_their_names():
    assert "  on    batch=4, size=10\n" in failing(lambda batch, size: 1, 4, 10, expect=2)
    assert "  on    4, 10\n" in failing(lambda *sizes: 1, 4, 10, expect=2)
    assert "  on    4\n" in failing(abs, 4, expect=2)


def test_every_reference_solution_and_kept_answer_is_honest(root):
    import course
    import course_play

    for path in sorted((root / "course" / "source").glob("set*/set*.ipynb")):
        nb = nbformat.read(path, as_version=4)
        marked = [c for c in nb.cells if c.cell_type == "code" and course_play.marks(c).get("locked")]
        locked = {course_play.marks(c)["grade_id"]: c.source for c in marked}
        for answers, _, _ in [({}, None, None), *course_play.kept(path.stem).values()]:
            if path.stem in course.sets():
                assert honesty.look_at(course_play.replaced(nb, answers).cells, locked) == "", answers


@pytest.mark.parametrize(
    "text",
    [
        "<script>a</script>",
        "<iframe srcdoc='<script>a</script>'></iframe>",
        "[x](javascript:a)",
        "[x](JAVA&#115;cript:a)",
        "<img src=x onerror=a>",
        "![x](javascript:a)",
        "<javascript:a>",
        "[x][1]\n\n[1]: javascript:a",
        "<div>\n\n[x](javascript:a)\n\n</div>",
        "&#91;x](javascript:a)",
        "`[x](javascript:a)`",
        "<a href='data:text/html,a'>x</a>",
        "<form action='http://a'><input></form>",
        "<svg><animate onbegin=a></svg>",
        "<style>*{}</style>",
        "<base href='//a'>",
        r"$\href{javascript:a}{x}$",
        r"$\require{html}\class{a}{x}$",
        "<a href='vbscript:a'>x</a>",
        "<object data='a'></object>",
    ],
)
def test_what_is_stored_for_browsers_runs_nothing(text):
    from nbconvert.filters.markdown_mistune import markdown2html_mistune

    stored = cells.harmless(text)
    for page in (stored, markdown2html_mistune(stored), markdown2html_mistune(markdown2html_mistune(stored))):
        tags = [t.lower() for t in __import__("re").findall(r"<[^>]+>", page)]
        assert not [
            t
            for t in tags
            if any(
                bad in t
                for bad in (
                    "script",
                    "iframe",
                    "svg",
                    "style",
                    "onerror",
                    "javascript",
                    "data:",
                    "<form",
                    "<base",
                    "<object",
                    "vbscript",
                )
            )
        ], page
    assert "\\href{" not in stored and "\\require{" not in stored


def test_ordinary_markdown_stays_readable():
    stored = cells.harmless(
        "# Why\n\nBecause $a_i < b$ and **so**.\n\n- one\n- two\n\n```python\nx = [1]\n\ny = `2`\n```\n\n[here](https://a.org)"
    )
    for words in ("Why", "$a_i &lt; b$", "<strong>so</strong>", "<li>", 'href="https://a.org"', "&#91;", "&#96;"):
        assert words in stored, stored
    assert "\n\n" not in stored


@pytest.mark.parametrize("machine, clone", [("x86_64", 56), ("aarch64", 220)])
def test_the_filter_answers_as_listed(machine, clone):
    "The program, run here by hand: what it says to each call."
    audit, column, _ = walls.MACHINES[machine]
    program = list(struct.iter_unpack("=HBBI", walls.kernel_filter(machine)))

    def answer(number, first=0, architecture=audit):
        data, at, value = {0: number, 4: architecture, 16: first}, 0, 0
        while True:
            code, yes, no, k = program[at]
            at += 1
            if code == 0x20:
                value = data[k]
            elif code == 0x06:
                return k
            else:
                holds = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[code]
                at += yes if holds else no

    assert all(answer(numbers[column]) == walls.REFUSE for numbers in walls.REFUSED.values())
    assert answer(clone) == walls.ALLOW and answer(clone, 0x10000000) == answer(clone, 0x00020000) == walls.REFUSE
    assert answer(435) == walls.ABSENT and answer(1) == answer(63) == walls.ALLOW and answer(1, 0, 1) == walls.KILL


def test_an_unknown_processor_is_refused():
    with pytest.raises(LookupError, match="riscv64"):
        walls.kernel_filter("riscv64")


SYSTEMD = """#!/bin/sh
# a stand-in for systemd-run: writes down what it was asked for, and starts the rest without a scope
echo "$@" >> {log}
while case "$1" in --*) true;; -p) shift; true;; *) false;; esac; do shift; done
case "$*" in *memory.max*) {limit};; *) exec "$@";; esac
"""


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    "Put a stand-in for systemd-run first on the path; its answer when it is asked for the limit of memory is given."
    def make(limit: str):
        (tmp_path / "systemd-run").write_text(SYSTEMD.format(log=tmp_path / "log", limit=limit))
        (tmp_path / "systemd-run").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        walls.control_group.cache_clear()
        return tmp_path / "log"

    yield make
    walls.control_group.cache_clear()


def test_a_control_group_holds_the_whole_sandbox_where_systemd_can(systemd, tmp_path):
    memory = int(1.2 * walls.LIMITS["memory"])
    log = systemd(f"echo {memory}")
    words = walls.control_group(memory, 200)
    assert words[0] == "systemd-run" and "--scope" in words and ("--user" in words) == (os.geteuid() != 0)
    assert {f"MemoryMax={memory}", "MemorySwapMax=0", "TasksMax=800"} <= set(words)
    if shutil.which("bwrap"):
        started = walls.command(str(tmp_path), None)
        assert tuple(started[: len(words)]) == words and started[len(words)] == "/bin/sh"
        done = subprocess.run([*started, "/bin/echo", "inside"], capture_output=True, text=True)
        assert done.stdout == "inside\n", done.stderr
        assert log.read_text().count("MemoryMax") == 2  # asked once, used once


@pytest.mark.parametrize("limit", ["exit 1", "echo max", "sleep 0"], ids=["refuses", "sets no limit", "says nothing"])
def test_without_a_control_group_that_holds_there_is_none(systemd, limit):
    systemd(limit)
    assert walls.control_group(1 << 30, 200) == ()
