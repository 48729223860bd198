"""Checks for the problem sets of the course: they compare an answer with the right one and say, in words, what went
wrong.

They need torch (or numpy) and nothing else, no nbgrader:

    check(f, *inputs, expect=value, see=("01", "A rank is a count"), mistakes={"argsort-once": another_value})

calls `f(*inputs)`. Where the result is not `expect`, the message names the input, both values, the mistake that leads
to just this wrong value if it is known, the student's own line if that one stopped, and the section of the lesson that
explains it.
"""

from __future__ import annotations

import copy
import inspect
import linecache
import os
from collections.abc import Sequence
from fractions import Fraction

import torch

from .pitfalls import PITFALLS

LESSONS = {
    "01": "01_ranking",
    "02": "02_average_precision",
    "03": "03_smooth_ap",
    "04": "04_gradient",
    "04b": "04b_fused",
    "05": "05_blackbox",
    "06": "06_fastap",
    "07": "07_hierarchical_ap",
    "07b": "07b_hierarchical_loss",
    "08": "08_surrogates",
    "10": "10_glyphs",
    "11": "11_datasets",
    "11b": "11b_protocols",
    "12": "12_sampling",
    "13": "13_models",
    "14": "14_training",
    "15": "15_evaluation",
    "16": "16_revisited",
    "18": "18_large_batches",
    "19": "19_local_features",
    "22": "22_errata",
    "30": "30_captions",
    "30b": "30b_words_that_search",
}
WHERE = "https://github.com/smoothap-nb/smoothap_nb/blob/main/nbs/{}.ipynb"

MISTAKES = PITFALLS | {  # what people do, in the words that they read when they did it
    "argsort-once": "ARGSORT ONCE: argsort says which item stands at each place. You want the place at which each item "
    "stands, the inverse of that "
    "permutation: call argsort a second time on the result, or count who is ahead.",
    "zero-based": "RANKS FROM THE WRONG START: the counts are right and all off by one. Look again at which number the "
    "first place has in this task.",
    "reversed": "THE ROW UPSIDE DOWN: the order is right and read from the wrong end. Look again at which end has the "
    "first place here.",
    "ties-ahead": "TIES COUNTED AS AHEAD: you used >= where the task asks something else of an item with the same "
    "score.",
    "ties-behind": "TIES COUNTED AS BEHIND: you used > where the task asks something else of an item with the same "
    "score.",
    "self-counted": "j = i NOT MASKED: every item was compared with itself as well, and that comparison added "
    "something to its rank. Leave j = i out.",
    "query-left-in": "THE QUERY LEFT IN: each query found itself in its own ranking, as its own first positive. Take "
    "it out of the gallery and of the positives.",
    "batch-positives": "DIVIDED BY ALL POSITIVES OF THE BATCH: each query has its own number of positives, divide by "
    "that one and average afterwards.",
    "overall-rank": "OVERALL RANK ABOVE THE LINE: numerator and denominator are the same rank, so every ratio is 1. "
    "Count only positives in the numerator.",
    "sign": "THE DIFFERENCE THE WRONG WAY ROUND: D_ij is s_j - s_i, positive where the competitor j is ahead of i.",
    "tau-times": "MULTIPLIED BY TAU: the gap is divided by the temperature. A small tau makes the step steep.",
    "tau-forgotten": "TAU FORGOTTEN IN THE DERIVATIVE: the inner derivative of sigmoid(x / tau) is 1 / tau.",
    "positives-only": "THE SECOND TERM LEFT OUT: the quotient rule has two terms, one for the numerator and one for "
    "the denominator.",
    "lambda-scale": "LAMBDA ON THE WRONG SCALE: lambda belongs to ranks divided by their number; with integer ranks, "
    "or without that division, it is too large or "
    "too small by the size of the gallery.",
    "max-for-min": "MAX FOR MIN: a lower bound of the step has to be cut off at 1 from above, min(..., 1); with max it "
    "climbs above the step.",
    "gradient-sign": "THE GRADIENT'S SIGN TURNED: descent would push the positives away. An item whose large rank "
    "number hurts must come nearer.",
    "wrong-way": "MOVED THE WRONG WAY: the second ranking is that of scores + lambda g, hence of distances - lambda g.",
    "both-signs": "THE RULE FOR SCORES: with distances the items move the other way, and the old ranks come first in "
    "the difference.",
    "no-perturbation": "THE PERTURBATION LOST (detached, zeroed, much too small or never added): the second ranking is "
    "that of the very same list, so nothing changes.",
    "lambda-not-divided": "LAMBDA FORGOTTEN BELOW THE LINE: the change of the ranks is divided by lambda.",
    "lambda-over-n": "LAMBDA ON THE WRONG SCALE, BY LITTLE: divided by n, the lesson's convention. A percentile has n "
    "- 1 steps.",
    "lambda-too-far": "LAMBDA ON THE WRONG SCALE: the items were moved (n - 1) times too far. Lambda belongs to the "
    "numbers that leave the solver.",
    "straight-through": "THE GRADIENT WENT STRAIGHT THROUGH: the rule ranks a second time, it does not hand the "
    "incoming gradient on.",
    "margin-sign": "THE MARGIN'S SIGN TURNED: it made life easier for the positives. They must move away from the "
    "query, the negatives towards it.",
    "positives-counted": "POSITIVES COUNTED AS COMPETITORS: r counts the negatives ahead, nobody else.",
    "x-and-y": "X AND Y CHANGED PLACES: axes.plot(x, y) wants what goes to the right first.",
    "empty-queries": "QUERIES WITHOUT POSITIVES COUNTED AS 0: they have nothing to find and must be left out of the "
    "mean.",
}


COPIES = "work on a copy: x.clone() of a tensor, list(x) of a list, sorted(x) in place of x.sort()"
USUAL = {  # what people do in any task, found by what it makes of the right numbers
    "one-more": "ONE TOO MANY EVERYWHERE: the numbers are right and all larger by one. Where does this task begin "
    "to count, and does an item count itself?",
    "one-less": "ONE TOO FEW EVERYWHERE: the numbers are right and all smaller by one. Where does this task begin "
    "to count?",
    "turned": "THE SIGN TURNED: every number has the right size and the wrong sign.",
    "back-to-front": "BACK TO FRONT: the right numbers, the last one first.",
    "another-order": "ANOTHER ORDER: the right numbers, in other places. In which order does the task ask for them?",
    "other-shape": "THE RIGHT NUMBERS IN ANOTHER SHAPE: look at the dimensions of size 1, and at what the task says "
    "about the shape.",
    "transposed": "TRANSPOSED: rows and columns have changed places. Whose table is it, the item's or its "
    "competitor's?",
    "mean-of-all": "THE MEAN OF EVERYTHING: one number for each row is asked for, so sum or average along one "
    "dimension only.",
    "sum-or-mean": "A SUM FOR A MEAN, or the other way round: all numbers differ by the same factor, which is how "
    "many there are.",
    "not-averaged": "A NUMBER FOR EACH: their mean is right, and one number is asked for.",
    "percent": "IN PERCENT: the number is a hundred times too large.",
    "upside-down": "UPSIDE DOWN: numerator and denominator have changed places.",
    "one-minus": "ONE MINUS THE ANSWER: a loss is 1 - value; here the value is asked for, or the loss where you "
    "gave the value.",
    "rounded": "ROUNDED DOWN: // and int(...) cut the digits off; / keeps them.",
    "squared": "A ROOT FORGOTTEN: every number is the square of the right one.",
    "nan": "NaN: something was divided by 0 on the way, or infinity taken from infinity. Which query has "
    "nothing to divide by?",
    "ties": "ONLY ITEMS WITH EQUAL SCORES ARE WRONG: look again at > and >=, and at what the task says about equality.",
}


class CheckFailed(AssertionError):
    "A check that did not pass. Notebooks show its message without the stack of calls."

    def _render_traceback_(self):
        return str(self).split("\n")


def check(function, *inputs, expect, see, on=None, mistakes=None, tol=1e-6, name=None, **keywords):
    """Call `function(*inputs, **keywords)` and compare with `expect`.

    Args:
        expect: the right value: a number, list, tensor, or a tuple of these.
        see: (lesson, section), e.g. ("01", "A rank is a count").
        on: the input in words; the input itself when left out.
        mistakes: {name in MISTAKES, or a sentence of your own: the value that this mistake gives on this input}.
        name: what to call the function in messages, for a `lambda` around it.
        tol: largest difference that counts as equal, absolute and relative.

    Raises:
        CheckFailed: another value, an exception, nothing returned, or an input that was changed in place.
    """
    name, on = name or getattr(function, "__name__", "your function"), on or _inputs(function, inputs, keywords)
    before = copy.deepcopy(inputs)
    got = _called(function, inputs, keywords, name, f"  on    {on}\n  want  {_told(expect)}\n{_read(see)}", see)
    problem = _difference(got, expect, tol)
    if problem:
        lines = [f"✗ {name}: {problem}", f"  on    {on}", f"  want  {_told(expect)}", f"  got   {_told(got)}"]
        known = _known(got, expect, mistakes or {}, tol) or _usual(*_first_wrong(got, expect, tol), before, tol)
        lines += [f"  This is what you get with {words}" for words in known]
        if _changed(before, inputs):
            lines.append(f"  It also changed its input in place: {COPIES}")
        raise CheckFailed("\n".join(lines + [_read(see)])) from None
    if _changed(before, inputs):
        raise CheckFailed(f"✗ {name} changed its input in place: {COPIES}\n  on    {on}\n{_read(see)}") from None
    print(f"✓ {name} on {on}")


def answer_of(function, *inputs, see, on=None, as_a=lambda value: value, name=None, **keywords):
    """What a student's function gives, for checks about laws rather than about one value.

    Args:
        see: (lesson, section).
        on: the input in words; the input itself when left out.
        as_a: brings the answer into the form that the checks need, e.g. `list`.
        name: what to call the function in messages.

    Raises:
        CheckFailed: not written yet, an exception, nothing returned, or something that `as_a` cannot take.
    """
    name, on = name or getattr(function, "__name__", "your function"), on or _inputs(function, inputs, keywords)
    where = (f"  on    {on}\n" if on else "") + _read(see)
    got = _called(function, inputs, keywords, name, where, see)
    if got is None:
        raise CheckFailed(f"✗ {name}: it returned nothing (is there a `return`?)\n{where}")
    try:
        return as_a(got)
    except Exception:  # whatever an answer of another kind makes `as_a` raise
        raise CheckFailed(
            f"✗ {name}: something else is asked for; this is a {type(got).__name__}: {_told(got)}\n{where}"
        ) from None


def drawn(
    function, *inputs, lines: Sequence[str], see, on: str, xscale: str = "", name=None
) -> dict[str, tuple[list, list]]:
    """What a student's function draws: it is called with empty axes, `function(axes, *inputs)`.

    Args:
        lines: labels of the lines that must be there; more may be.
        see: (lesson, section).
        on: the input in words.
        xscale: of the axis, such as "log"; left out, any.
        name: what to call the function in messages.

    Returns:
        {label: (x, y)} of these lines, their points from left to right.

    Raises:
        CheckFailed: not written yet, an exception, nothing drawn into these axes, a line or an axis without a name,
            several lines and no legend, another scale.
    """
    from matplotlib.figure import Figure

    name, axes = name or getattr(function, "__name__", "your function"), Figure().add_subplot()
    where = f"  on    {on}\n{_read(see)}"
    _called(function, (axes, *inputs), {}, name, where, see)
    found = {line.get_label().strip().lower(): line for line in axes.lines}
    wrong = _flaw_of(axes, lines, found, xscale)
    if wrong:
        raise CheckFailed(f"✗ {name}: {wrong}\n{where}")
    points = {label: found[label.lower()].get_xydata().tolist() for label in lines}
    return {label: tuple(map(list, zip(*sorted(rows, key=lambda row: row[0])))) for label, rows in points.items()}


def _flaw_of(axes, lines: Sequence[str], found: dict, xscale: str) -> str:
    "What is wrong first with axes that a student drew into; empty where nothing is."
    if not axes.has_data():
        return "nothing was drawn into the axes that it was given: axes.plot(...), not plt.plot(...)"
    if missing := [label for label in lines if label.lower() not in found]:
        there = ", ".join(label for label in found if not label.startswith("_")) or "none with a label"
        return f'no line is called "{missing[0]}": axes.plot(x, y, label=...); there are {there}'
    if not (axes.get_xlabel().strip() and axes.get_ylabel().strip()):
        return "an axis has no name: axes.set(xlabel=..., ylabel=...)"
    if len(lines) > 1 and axes.get_legend() is None:
        return "nobody can tell the lines apart: axes.legend()"
    if xscale and axes.get_xscale() != xscale:
        return f'the scale of x is "{axes.get_xscale()}", "{xscale}" is asked for: axes.set(xscale="{xscale}")'
    return ""


def check_that(holds, says, see, on=None):
    """A check that is not about one value: `holds` has to be true, `says` is read if it is not.

    Raises:
        CheckFailed: with `says`, and where to read about it.
    """
    if not bool(holds):
        raise CheckFailed("\n".join([f"✗ {says}", *([f"  on    {on}"] if on else []), _read(see)])) from None
    print("✓" if on is None else f"✓ {on}")


def _called(function, inputs, keywords, name, where, see):
    try:
        return function(*inputs, **keywords)
    except NotImplementedError:
        raise CheckFailed(
            f"… {name} is not written yet: replace `raise NotImplementedError()` by your code.\n{_read(see)}"
        ) from None
    except CheckFailed:
        raise
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # also SystemExit, which would end a cell without a word
        raise CheckFailed(
            f"✗ {name} stopped with {type(error).__name__}: {error}\n{_own_line(error)}{where}"
        ) from error


def _own_line(error: BaseException) -> str:
    "The last line of the notebook itself that ran before an error: a notebook's cells are no files."
    told, step = "", error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        text = linecache.getline(file, step.tb_lineno).strip()
        if text and not os.path.isfile(file) and not file.startswith(("<frozen", "<__array")):
            told = f"  line  {text}    (line {step.tb_lineno} of its cell)\n"
        step = step.tb_next
    return told


def _known(got, want, mistakes: dict, tol) -> list[str]:
    "The words of the mistake that gives just this value, or its part that is wrong; or one minus it."
    part, right = _first_wrong(got, want, tol)
    for key, value in mistakes.items():
        if not _difference(got, value, tol):
            return [MISTAKES.get(key, key)]
    for key, value in mistakes.items() if part is not got else ():
        if not _difference(part, value[_place(got, want, tol)] if isinstance(value, tuple) else value, tol):
            return [MISTAKES.get(key, key)]
    for key, value in mistakes.items():
        if isinstance(value, float) and isinstance(right, float) and not _difference(got, 1 - value, tol):
            return [MISTAKES.get(key, key), USUAL["one-minus"]]
    return []


def _place(got, want, tol) -> int:
    return next(n for n, (g, w) in enumerate(zip(got, want)) if _difference(g, w, tol))


def _first_wrong(got, want, tol):
    "Of several values the first that is wrong, and the right one in its place."
    if isinstance(want, tuple) and isinstance(got, (tuple, list)) and len(got) == len(want):
        place = _place(got, want, tol)
        return got[place], want[place]
    return got, want


def _usual(got, want, inputs, tol) -> list[str]:
    "What everybody does once, if the answer shows it: at most one sentence of `USUAL`."
    try:
        got, want = _numbers(got), _numbers(want)
    except (TypeError, ValueError, RuntimeError):
        return []
    if want.numel() == 0 or not torch.isfinite(want).all():
        return []

    def equal(a, b):
        return a.shape == b.shape and all(
            _same(x, y, max(tol, 1e-9)) for x, y in zip(_flat(_tolist(a)), _flat(_tolist(b)))
        )

    many = {
        n
        for x in (*inputs, want)
        for n in (x.shape if hasattr(x, "shape") else [len(x)] if isinstance(x, list) else [])
    } - {0, 1}
    flat, several = want.flatten(), want.ndim > 0 or bool((want.abs() > 1).all())
    found = {
        "nan": bool(torch.isnan(got).any()),
        "other-shape": got.shape != want.shape and got.numel() == want.numel() and equal(got.flatten(), flat),
        "transposed": want.ndim == 2 and (equal(got, want.T) and not equal(want, want.T)),
        "mean-of-all": want.ndim == 1 and want.numel() > 1 and got.ndim == 0 and equal(got, want.mean()),
        "not-averaged": want.ndim == 0 and got.ndim == 1 and got.numel() > 1 and equal(got.mean(), want),
        "one-more": several and equal(got, want + 1),
        "one-less": several and equal(got, want - 1),
        "turned": equal(got, -want),
        "back-to-front": want.ndim == 1 and equal(got, want.flip(0)),
        "percent": equal(got, 100 * want),
        "one-minus": equal(got, 1 - want),
        "upside-down": bool((want != 0).all()) and equal(got, 1 / want),
        "sum-or-mean": any(equal(got, n * want) or equal(got, want / n) for n in many),
        "rounded": bool((want.floor() != 0).any()) and equal(got, want.floor()),
        "squared": equal(got, want**2),
        "ties": _only_ties_differ(got, want, inputs, tol),
        "another-order": want.ndim in (1, 2)
        and got.shape == want.shape
        and equal(got.sort(-1).values, want.sort(-1).values),
    }
    return [USUAL[key] for key, holds in found.items() if holds][:1]


def _only_ties_differ(got, want, inputs, tol) -> bool:
    if not inputs or got.shape != want.shape or want.ndim != 1:
        return False
    try:
        row = _flat(_tolist(_as_tensor(_plain(inputs[0]))))
    except (TypeError, ValueError, RuntimeError):
        return False
    if all(x == int(x) for x in row if abs(x) < 1e15):  # levels and labels are equal on purpose
        return False
    wrong = [n for n, (g, w) in enumerate(zip(_tolist(got), _tolist(want))) if not _same(g, w, tol)]
    return len(row) == want.numel() and 0 < len(wrong) < len(row) and all(row.count(row[n]) > 1 for n in wrong)


def _read(see) -> str:
    lesson, section = see
    return f'  Read  lesson {lesson}, section "{section}": {WHERE.format(LESSONS[lesson])}'


def _inputs(function, inputs, keywords) -> str:
    "Inputs in words: one alone as it is, several with their names."
    try:
        names = list(inspect.signature(function).bind(*inputs, **keywords).arguments)
    except (TypeError, ValueError):  # another number of inputs, or nothing that tells its own
        names = []
    told = [_told(x) for x in inputs]
    if len(inputs) > 1 and len(names) == len(inputs) + len(keywords):
        told = [f"{name}={text}" for name, text in zip(names, told)]
    return ", ".join(told + [f"{k}={_told(v)}" for k, v in keywords.items()])


def _told(value) -> str:
    "A value as a student would write it: short, rounded, without `tensor(...)`."
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_told, value)) + ")"
    if hasattr(value, "detach"):
        value = value.detach().cpu().tolist()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, list):
        text = "[" + ", ".join(map(_told, value)) + "]"
        return text if len(text) < 400 else text[:400] + " …]"
    return getattr(value, "__name__", None) or repr(value)[:400]


def _plain(value):
    "Fractions, also those inside lists, as floats; a list of tensors as a list of their numbers."
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, torch.Tensor):
        return _tolist(_to(_detach(value), "cpu"))
    return float(value) if isinstance(value, Fraction) else value


def _difference(got, want, tol) -> str:
    "What differs, in words; empty if nothing does. NaN equals NaN; True equals 1."
    if got is None and want is not None:
        return "it returned nothing (is there a `return`? `print` shows a value, `return` gives it)"
    if isinstance(want, tuple):
        if not isinstance(got, (tuple, list)) or len(got) != len(want):
            return f"{len(want)} values are asked for"
        return next(
            (f"value {n}: {told}" for n, (g, w) in enumerate(zip(got, want), 1) if (told := _difference(g, w, tol))), ""
        )
    if callable(want):
        return "" if got is want else "another answer is right"
    if isinstance(want, (str, type(None))):
        return "" if type(got) is type(want) and got == want else "another answer is right"
    if callable(got) and not hasattr(got, "detach"):
        return f"the function {getattr(got, '__name__', '')} itself was returned, not its value: call it"
    try:
        got, want = _numbers(got), _numbers(want)
    except (TypeError, ValueError, RuntimeError):
        if isinstance(got, (list, tuple)) and any(hasattr(x, "detach") for x in got):
            return (
                "a list of tensors of several sizes: torch.stack or torch.cat makes one tensor of a list of equal ones"
            )
        return f"numbers are asked for, this is a {type(got).__name__}"
    if got.shape != want.shape:
        return f"the shape is {tuple(got.shape)}, it should be {tuple(want.shape)}"
    wrong = sum(not _same(g, w, tol) for g, w in zip(_flat(_tolist(got)), _flat(_tolist(want))))
    if not wrong:
        return ""
    return f"{wrong} of {want.numel()} numbers differ" if want.ndim else "another number is right"


def _changed(before, after) -> bool:
    "Is an input another one than before the call? Lists may hold lists of several lengths, and dictionaries."
    if isinstance(before, dict):
        return list(before) != list(after) or any(_changed(before[key], after[key]) for key in before)
    if isinstance(before, (list, tuple)):
        return len(before) != len(after) or any(map(_changed, before, after))
    if hasattr(before, "shape"):
        return bool(_difference(after, before, 0))
    return isinstance(before, (int, float, str)) and before == before and before != after


# as they were when this module was imported: an answer may replace them
_as_tensor, _detach, _to, _tolist = torch.as_tensor, torch.Tensor.detach, torch.Tensor.to, torch.Tensor.tolist


def _numbers(value):
    "Whatever holds numbers, as a tensor of float64."
    return _to(_detach(_as_tensor(_plain(value))), "cpu", torch.float64)


def _same(got: float, want: float, tol: float) -> bool:
    if got != got or want != want:
        return got != got and want != want
    return got == want or abs(got - want) <= max(tol, 1e-12 if tol else 0) + tol * abs(want)


def _flat(value) -> list:
    return [x for part in value for x in _flat(part)] if isinstance(value, list) else [value]
