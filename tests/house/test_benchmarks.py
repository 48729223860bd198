"""The measuring harness: it runs in a tiny form, keeps what was measured elsewhere, and its page follows from its JSON
files.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from clean import run_clean

ROOT = __import__("pathlib").Path(__file__).resolve().parents[2]

from benchmarks import harness
from benchmarks.harness import Row, not_run


class Toy:
    "A benchmark as a module would be."

    TITLE = "Toy"

    def __init__(self, *rows):
        self.found = rows

    def rows(self, tiny):
        yield from self.found


def test_a_row_reaches_the_page_and_its_target_the_developer(tmp_path, capsys):
    harness.run(
        "toy",
        Toy(
            Row("fast", 400.0, "times faster", ">= 350", {"ours": 0.002, "theirs": 0.8}, least={"ours": 0.001}),
            Row("slow", 5.0, "times", "<= 4"),
            not_run("far", "needs a CUDA device", "< 8", "GB"),
        ),
        tmp_path,
    )
    text = harness.page(tmp_path)
    assert "| fast | **400** times faster | ours 2 ms (1 ms) | theirs 800 ms | 1 |" in text
    assert "| slow | **5** times |" in text and "| far | not run: needs a CUDA device |" in text
    assert "350" not in text and "target" not in text
    said = capsys.readouterr().out
    assert "fast: 400 times faster (target >= 350: yes)" in said and "slow: 5 times (target <= 4: no)" in said


def test_results_say_where_they_come_from(tmp_path):
    stored = harness.run("toy", Toy(Row("one", 1.0)), tmp_path)
    (where,) = stored["environments"].values()
    assert where["versions"]["torch"] and where["hardware"]["cores"] and where["date"] and where["commit"]
    assert json.loads((tmp_path / "results" / "bench_toy.json").read_text()) == stored


def test_a_row_measured_elsewhere_stays_when_it_cannot_be_run_here(tmp_path):
    harness.run("toy", Toy(Row("gpu", 3.0), Row("cpu", 1.0), Row("gone", 9.0)), tmp_path)
    stored = harness.run("toy", Toy(not_run("gpu", "needs a CUDA device"), Row("cpu", 2.0)), tmp_path)
    assert {row["name"]: row["value"] for row in stored["rows"]} == {"gpu": 3.0, "cpu": 2.0}


def test_a_partial_run_keeps_the_other_rows(tmp_path):
    harness.run("toy", Toy(Row("a", 1.0), Row("b", 1.0)), tmp_path)
    stored = harness.run("toy", Toy(Row("a", 5.0), Row("b", 5.0)), tmp_path, only="b")
    assert [(row["name"], row["value"]) for row in stored["rows"]] == [("a", 1.0), ("b", 5.0)]


def test_a_damaged_results_file_is_named_not_fatal(tmp_path):
    harness.run("toy", Toy(Row("a", 1.0)), tmp_path)
    (tmp_path / "results" / "bench_broken.json").write_text("{")
    assert "`results/bench_broken.json` cannot be read" in harness.page(tmp_path)


def test_race_takes_turns_and_counts_everybody():
    order = []
    times = harness.race({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeat=3)
    assert set(times) == {"a", "b"} and order.count("a") == order.count("b") >= 4 and order.index("b") < len(order) // 2


def test_a_loud_machine_is_measured_again_and_said(tmp_path, monkeypatch):
    loud, calls = iter([1.0, 3.0, 2.0, 1.5, 1.6, 1.9]), []
    monkeypatch.setattr(harness, "loudness", lambda rounds=5: next(loud))
    times = harness.race({"a": lambda: calls.append(1)}, repeat=2, warm=False)
    assert len(calls) == 6 and times.loud == 1.9  # three turns, and the quietest counts
    assert times.least["a"] <= times["a"] and times.only("a").loud == 1.9
    monkeypatch.setattr(harness, "loudness", lambda rounds=5: 1.0)
    assert harness.race({"a": lambda: calls.append(1)}, repeat=2, warm=False).loud == 1 and len(calls) == 8
    stored = harness.run("toy", Toy(Row("one", 1.0, times=times), Row("two", 1.0)), tmp_path)
    assert stored["rows"][0]["loud"] == 1.9 and stored["rows"][0]["least"] == times.least
    text = harness.page(tmp_path)
    assert "| one (machine busy: a fixed loop took 1.9 times its least) |" in text and "| two |" in text


def test_loudness_is_one_on_a_machine_of_our_own(monkeypatch):
    monkeypatch.setattr(harness, "_least_loop", [float("inf")])
    assert 0.9 < harness.loudness(9) < 100 and 0 < harness._least_loop[0] < 1


def test_quick_leaves_out_what_takes_minutes(tmp_path):
    class Slow(Toy):
        LONG = ("whole",)

    harness.run("toy", Slow(Row("whole set", 1.0), Row("part", 1.0)), tmp_path)
    stored = harness.run("toy", Slow(Row("whole set", 7.0), Row("part", 7.0)), tmp_path, quick=True)
    assert [(row["name"], row["value"]) for row in stored["rows"]] == [("whole set", 1.0), ("part", 7.0)]
    assert harness.wanted("whole set")


def test_threads_are_set_and_set_back():
    before = torch.get_num_threads()
    with harness.threads(2):
        assert torch.get_num_threads() == Row("x", 1.0).threads == 2
    assert torch.get_num_threads() == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_sees_what_a_call_allocates():
    extra = harness.peak_memory("tests.memory_probe:prepare", megabytes=64)
    assert 60e6 < extra < 100e6


def test_the_committed_page_follows_from_its_results():
    assert harness.is_current(), (
        "docs/benchmarks.md differs from docs/results/bench_*.json: run python -m benchmarks --render"
    )


def test_pictures_of_the_page_are_there():
    for path in (ROOT / "docs" / "results").glob("bench_*.json"):
        for figure in json.loads(path.read_text())["figures"]:
            assert (path.parent / figure["file"]).stat().st_size > 1000 and figure["alt"]


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_everything_runs_in_a_tiny_form(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--tiny", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name in harness.discover():
        assert json.loads((tmp_path / "results" / f"bench_{name}.json").read_text())["rows"]
    assert harness.is_current(tmp_path)


@pytest.mark.parametrize(
    "words, reason", [(["nothing"], "no benchmark nothing"), (["--tiny"], "give them a folder of their own")]
)
def test_a_wrong_call_says_what_is_wrong(words, reason):
    code = "import runpy; runpy.run_module('benchmarks', run_name='__main__')"
    done = run_clean(code, argv=("benchmarks", *words))
    assert done.returncode == 2 and reason in done.stderr
