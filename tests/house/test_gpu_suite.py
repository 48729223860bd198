"""The list of measurements for a CUDA device: it runs in a tiny form anywhere, stops in time, goes on where it
stopped, and keeps what is there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]

from benchmarks import gpu_suite as suite
from smoothap_nb.checks import ConfigError

quiet = {"say": lambda text: None}


def some(names, calls=None):
    "Items that note their calls."
    def measure(name):
        def call(device, tiny):
            (calls if calls is not None else []).append(name)
            return {"value": 1.0}
        return call

    return lambda: [suite.Item(name, measure(name), 10) for name in names]


def test_names_are_unique_and_the_most_telling_come_first():
    names = [item.name for item in suite.items()]
    assert len(set(names)) == len(names)
    kinds = list(dict.fromkeys(name.split("/")[0] for name in names))
    assert kinds[0] == "parity" and kinds.index("training") < kinds.index("loss") < kinds.index("evaluation")
    assert {"list/RaMBO, 1e5 scores", "list/RaMBO, 1e8 scores", "evaluation/shape of SOP", "loss/batch 384"} <= set(
        names
    )


def test_rows_that_are_there_are_not_measured_again(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(suite, "items", some(["a", "b"], calls))
    path = tmp_path / "rows.json"
    suite.measure_items(path, "cpu", only="a", tiny=True, **quiet)
    suite.measure_items(path, "cpu", tiny=True, **quiet)
    assert calls == ["a", "b"] and list(json.loads(path.read_text())["rows"]) == ["a", "b"]
    row = json.loads(path.read_text())["rows"]["a"]
    assert (
        row["metrics"] == {"value": 1.0}
        and {"commit", "hardware", "torch"} <= set(row["environment"])
        and row["date"]
        and row["seed"] == 0
    )


def test_it_stops_by_itself(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(suite, "items", some(["a", "b"]))
    rows = suite.measure_items(tmp_path / "rows.json", "cpu", minutes=0.1, tiny=True, say=said.append)
    assert rows == {} and "stopped before a" in said[-1] and "goes on from here" in said[-1]


def test_without_a_device_the_rows_say_so_and_are_tried_again(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(suite, "items", some(["a"], calls))
    path = tmp_path / "rows.json"
    assert suite.measure_items(path, "cpu", **quiet)["a"] == {"metrics": {}, "not_run": "needs a CUDA device"}
    assert suite.measure_items(path, "cpu", tiny=True, **quiet)["a"]["metrics"] == {"value": 1.0} and calls == ["a"]


def test_a_damaged_file_is_named_and_kept(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text("{")
    with pytest.raises(ConfigError, match="rows.json cannot be read"):
        suite.measure_items(path, "cpu", tiny=True, **quiet)
    assert path.read_text() == "{"


@pytest.mark.parametrize(
    "kind",
    [
        "parity/losses",
        "parity/metrics",
        "loss/batch 384",
        "list/RaMBO, 1e5 scores",
        "evaluation/shape of SOP",
        "loss/Smooth-AP, batch 16384",
        "training/ResNet-50",
        "training/gradient caching",
    ],
)
def test_the_tiny_form_runs_on_a_cpu(tmp_path, kind):
    rows = suite.measure_items(tmp_path / "rows.json", "cpu", only=kind, tiny=True, **quiet)
    (row,) = rows.values()
    assert row["metrics"] and all(isinstance(v, (int, float)) and v >= 0 for v in row["metrics"].values()), row
    if kind.startswith("parity"):
        assert max(row["metrics"].values()) < 1e-4


QUICK = ("parity/losses", "loss/batch 384", "list/RaMBO, 1e8", "evaluation/shape of iNaturalist", "training/ResNet-50")


@pytest.mark.parametrize("row", QUICK)
def test_the_dry_run_on_a_pretended_card(row):
    said = []
    assert suite.dry_run(row, said.append) == [] and len(said) == 1 and "not run" not in said[0], said


KINDS = ("parity/", "loss/", "list/", "training/", "evaluation/", "command/")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_dry_run_of_every_kind_of_row(kind):
    "No row may fail on a card for a reason that a CPU could have shown."
    said = []
    assert suite.dry_run(kind, said.append) == [], said
    assert said and all("not run" not in line or "CUDA device and Triton" in line for line in said)


def test_the_dry_run_finds_what_the_cpu_does_not(monkeypatch):
    "A row that hands labels on the card to pin_memory, and a data set without what a card asks for: both were here."
    pin = lambda device, tiny: {"sum": float(torch.ones(3, device=device).pin_memory().sum())}
    monkeypatch.setattr(suite, "items", lambda: [suite.Item("pinned", pin)])
    said = []
    assert suite.dry_run(say=said.append) == ["pinned"] and "only dense CPU tensors can be pinned" in said[0]


def test_the_command_line(tmp_path):
    run = lambda *words: subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_suite", *words], cwd=ROOT, capture_output=True, text=True
    )
    listed = run("--list", "--only", "list/", "--out", str(tmp_path / "none.json"))
    assert listed.returncode == 0 and listed.stdout.split("\n")[0] == "not run  list/RaMBO, 1e5 scores"
    assert run("--tiny").returncode == 2


def test_a_row_that_fails_does_not_end_the_list(tmp_path, monkeypatch):
    def broken(device, tiny):
        raise RuntimeError("CUDA error: something")

    monkeypatch.setattr(suite, "items", lambda: [suite.Item("bad", broken), *some(["good"])()])
    rows = suite.measure_items(tmp_path / "rows.json", "cpu", tiny=True, **quiet)
    assert rows["bad"]["not_run"] == "RuntimeError: CUDA error: something" and rows["good"]["metrics"]
