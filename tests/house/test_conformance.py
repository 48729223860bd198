"""Lesson 21 reports what it finds: a wrong release as wrong, a fixed one as right, an absent one as not installed."""

import importlib
import sys
from pathlib import Path

import matplotlib
import nbformat
import pytest

from smoothap_nb import SmoothAPLoss, SoftBinAPLoss

LESSON = Path(__file__).resolve().parents[2] / "nbs" / "21_conformance.ipynb"
PACKAGES = {
    "scikit-learn": "sklearn",
    "torchmetrics": "torchmetrics",
    "pytorch-metric-learning": "pytorch_metric_learning",
}


def run_lesson(monkeypatch) -> dict:
    "All code cells of the lesson in one namespace, with nothing displayed."
    import logging
    import warnings
    import smoothap_nb.show.players
    matplotlib.use("Agg")
    monkeypatch.setattr("IPython.display.display", lambda *args, **kwargs: None)
    monkeypatch.setattr(smoothap_nb.show.players, "player_html", lambda *args: "")
    names = {"__name__": "lesson"}
    try:
        with warnings.catch_warnings():
            for cell in nbformat.read(LESSON, as_version=4).cells:
                if cell.cell_type == "code":
                    exec(compile(cell.source, str(LESSON), "exec"), names)
    finally:
        logging.disable(logging.NOTSET)
        matplotlib.pyplot.close("all")
    return names


def verdicts(names, library) -> list[str]:
    return [
        verdict
        for subject, row in {**names["answers"], **names["loss_answers"]}.items()
        if subject.startswith(library)
        for value, verdict in row.values()
    ]


def test_our_rows_are_right_and_every_library_has_one(monkeypatch):
    names = run_lesson(monkeypatch)
    assert set(verdicts(names, "smoothap_nb")) == {"right"}
    rows = {row[0].split()[0]: row for row in names["summary"]()}
    assert set(rows) == {"smoothap_nb", *PACKAGES}
    for package, module in PACKAGES.items():
        installed = names["versions"][package] != "not installed"
        assert installed == ("right" in verdicts(names, package))  # the plain case, at the least
        assert rows[package][1] == names["versions"][package]


def test_absent_libraries_are_reported(monkeypatch):
    for package, module in PACKAGES.items():
        for name in [name for name in sys.modules if name == module or name.startswith(module + ".")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, module, None)  # what import sees for a module that cannot be had
    names = run_lesson(monkeypatch)
    for package in PACKAGES:
        assert names["versions"][package] == "not installed"
        assert set(verdicts(names, package)) == {"not installed"}
    assert set(verdicts(names, "smoothap_nb")) == {"right"} and names["grid"] is None
    assert all(row[3] == "not installed" for row in names["summary"]() if not row[0].startswith("smoothap_nb"))


def test_a_fixed_release_shows_as_right(monkeypatch):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    monkeypatch.setattr(losses, "SmoothAPLoss", lambda temperature: SmoothAPLoss(temperature, include_query=True))
    names = run_lesson(monkeypatch)
    assert set(verdicts(names, "pytorch-metric-learning `SmoothAPLoss`")) == {"right"}
    assert names["grid"].abs().max() < 1e-4


def test_a_broken_release_shows_as_wrong(monkeypatch):
    losses = pytest.importorskip("pytorch_metric_learning.losses")

    def refuse(num_bins):
        raise RuntimeError("no")

    monkeypatch.setattr(losses, "SmoothAPLoss", lambda temperature: SoftBinAPLoss(6))
    monkeypatch.setattr(losses, "FastAPLoss", refuse)
    names = run_lesson(monkeypatch)
    assert all(verdict.startswith("off by") for verdict in verdicts(names, "pytorch-metric-learning `SmoothAPLoss`"))
    assert set(verdicts(names, "pytorch-metric-learning `FastAPLoss`")) == {"raises RuntimeError"}


def test_the_judge():
    names = {"importlib": importlib}
    for cell in nbformat.read(LESSON, as_version=4).cells:
        if cell.cell_type == "code" and ("def judge" in cell.source or "class NotInstalled" in cell.source):
            exec(cell.source, names)
    judge = names["judge"]
    assert judge(lambda: 0.5, 0.5) == ("0.5000", "right")
    assert judge(lambda: 0.25, 0.5) == ("0.2500", "off by -0.2500")
    assert judge(lambda: float("nan"), None)[1] == "right" and judge(lambda: 0.0, None)[1] == "undefined, yet a number"
    assert judge(lambda: 1 / 0, 1.0) == ("ZeroDivisionError", "raises ZeroDivisionError")
    assert judge(lambda: float("nan"), 0.5)[1].startswith("off by")
