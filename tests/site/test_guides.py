"""The guides in docs/, the README, the course's and CONTRIBUTING: every Python block runs, every command and setting
exists, every link resolves, every number follows from its source.

A page's blocks run top to bottom in one namespace, in a folder of their own. A comment on the line before a block
changes that: `<!-- test: needs PACKAGE -->` skips the block where the package is missing, `<!-- test: miniature -->`
runs it (and what follows) only under the marker of that name, `<!-- test: not run: REASON -->` never.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# their own tests look after them
SETS = {p.name for p in DOCS.glob("set[0-9]*.md")}
GENERATED = {"benchmarks.md", "reproduction.md", "solutions.md", "lesson_solutions.md", "sets.md"} | SETS
PAGES = sorted(DOCS.glob("*.md"))
GUIDES = [p for p in PAGES if p.name not in GENERATED]
GUIDES += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "course/README.md")]
FENCE = re.compile(r"(?:^<!-- test: (?P<note>[^\n]*?) -->\n)?^```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.S | re.M)


def blocks(page: Path, kind: str) -> list[tuple[str, str, int]]:
    "(code, note, line) of each fenced block of a kind."
    text = page.read_text(encoding="utf-8")
    return [
        (m["code"], m["note"] or "", text.count("\n", 0, m.start("code")) + 1)
        for m in FENCE.finditer(text)
        if m["kind"] == kind
    ]


def is_missing(package: str) -> bool:
    "Whether a package is not installed; where CI is set, one that pyproject.toml lists fails the test."
    missing = importlib.util.find_spec(package.split(".")[0]) is None
    if missing and os.environ.get("CI", "").lower() in ("1", "true"):
        with contextlib.suppress(pytest.skip.Exception):
            pytest.importorskip(package)
    return missing


def run_page(page: Path, miniature: bool) -> int:
    "Run a page's Python blocks; how many ran."
    space, ran = {"__name__": "__guide__"}, 0
    for code, note, line in blocks(page, "python"):
        if note == "miniature" and not miniature:
            break
        if note.startswith("not run: ") or note.startswith("needs ") and is_missing(note.removeprefix("needs ")):
            continue
        if note and not note.startswith(("needs ", "not run: ")) and note != "miniature":
            raise ValueError(f"{page.name}, line {line}: no such note {note!r}")
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), space)
        ran += 1
    return ran


@pytest.mark.parametrize("page", [p for p in GUIDES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_page(page, miniature=False)


@pytest.mark.miniature
@pytest.mark.parametrize(
    "page", [p for p in GUIDES if any(note == "miniature" for _, note, _ in blocks(p, "python"))], ids=lambda p: p.name
)
def test_python_blocks_that_train_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page, miniature=True)


# --- commands -------------------------------------------------------------------------------------------------------

def commands(page: Path) -> list[str]:
    "Lines of shell blocks that call smoothap, with continued lines joined and comments cut."
    found = []
    for code, note, _ in blocks(page, "bash"):
        if not note.startswith("not run: "):
            found += [
                line
                for line in code.replace("\\\n", " ").splitlines()
                if re.search(r"(?:^|[/ ])smoothap ", line.split("#")[0])
            ]
    return found


def check_command(line: str) -> None:
    "The subcommand exists and has the options; settings exist and fit."
    import typer

    from smoothap_nb.cli.commands import app
    from smoothap_nb.train.config import load_experiment

    words = shlex.split(line, comments=True)
    start = next(i for i, word in enumerate(words) if word.split("/")[-1] == "smoothap")
    command, words = typer.main.get_command(app), words[start + 1:]
    while hasattr(command, "commands"):
        inner = command.commands.get(words[0])
        assert inner is not None, f"{line!r}: no command {words[0]!r}; there are {', '.join(command.commands)}"
        command, words = inner, words[1:]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help"
    }
    for word in words:
        if word.startswith("-") and not re.fullmatch(r"-?[\d.]+", word):
            assert word.split("=")[0] in known, f"{line!r}: no option {word!r}; there are {', '.join(sorted(known))}"
    settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    if command.name == "train":
        name = next(word for word in words if not word.startswith("-"))
        load_experiment(name if not name.endswith(".toml") else "demo", settings)
    if (
        command.name == "reproduce"
        and words
        and not words[0].startswith("-")
        and words[0].split("/")[0] not in ("glyphs", "claims")
        and "--list" not in words
    ):
        from smoothap_nb.reproduction import find_entry

        assert find_entry(words[0]).name == words[0]
    if "data" in line.split() and command.name in ("check", "miniature"):
        from smoothap_nb.data.datasets import DATASETS

        assert words[0] in (*DATASETS, "NAME"), f"{line!r}: no data set {words[0]!r}"


@pytest.mark.parametrize("page", [p for p in GUIDES if commands(p)], ids=lambda p: p.name)
def test_commands_exist(page):
    for line in commands(page):
        check_command(line)


@pytest.mark.parametrize("page", [p for p in GUIDES if blocks(p, "toml")], ids=lambda p: p.name)
def test_toml_blocks_are_experiments(page):
    import tomllib

    from smoothap_nb.train.config import experiment_from_dict
    from smoothap_nb.train.objectives import Objective

    for code, note, line in blocks(page, "toml"):
        if not note.startswith("not run: "):
            experiment = experiment_from_dict(tomllib.loads(code))
            if "[loss]" in code:
                Objective(experiment.loss)


@pytest.mark.miniature
def test_own_images_from_arranging_to_searching(tmp_path, monkeypatch):
    "The page's own experiment file on drawn pictures, with a small network and one epoch."
    page = DOCS / "your_images.md"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shoes.toml").write_text(blocks(page, "toml")[0][0])
    small = [
        "data.root=shoes",
        "model.backbone=resnet18",
        "model.stem=small",
        "model.weights=none",
        "model.dim=16",
        "data.size=32",
        "data.resize=36",
        "batch.classes=6",
        "batch.images=2",
        "optim.epochs=1",
        "optim.warmup=0",
        "validate.share=0.3",
    ]
    smoothap = [sys.executable, "-m", "smoothap_nb.cli"]
    for line in (
        ["data", "miniature", "folder", "--to", "shoes"],
        ["data", "check", "folder", "--root", "shoes"],
        [
            "train",
            "shoes.toml",
            "--run",
            "runs/shoes",
            "--cpu",
            "--quiet",
            *(word for s in small for word in ("--set", s)),
        ],
    ):
        done = subprocess.run(smoothap + line, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    picture = next((tmp_path / "shoes" / "test").rglob("*.png"))
    done = subprocess.run(
        [
            *smoothap,
            "search",
            str(picture),
            "--gallery",
            "shoes",
            "--run",
            "runs/shoes",
            "-k",
            "3",
            "--sheet",
            "found.png",
            "--quiet",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 4 and (tmp_path / "found.png").exists(), (
        done.stdout + done.stderr
    )


# --- numbers --------------------------------------------------------------------------------------------------------

def results_tool(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "results.py"), *arguments], capture_output=True, text=True, cwd=ROOT
    )


def test_numbers_follow_from_their_sources():
    done = results_tool("--check")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def tool(monkeypatch):
    "tools/results.py and tools/plots.py, imported."
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import plots
    import results

    results.stored.cache_clear()
    yield results, plots
    results.stored.cache_clear()


def record(seed=0, experiment="glyphs/demo", value=0.5):
    return {
        "experiment": experiment,
        "seed": seed,
        "date": "2026-01-01",
        "metrics": {"trained": {"mAP": value, "R@1": 0.9}, "raw pixels": {"mAP": 0.1}},
    }


def test_results_of_a_new_kind_become_a_table_and_a_plot(tool, tmp_path, monkeypatch):
    results, plots = tool
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    for seed in (1, 0):
        (tmp_path / f"run-seed{seed}.json").write_text(json.dumps(record(seed, value=0.5 + 0.1 * seed)))
    text = results.all_experiments(DOCS / "reproduction.md")
    assert "glyphs/demo" in text and "0.550 (0.500 to 0.600)" in text and "seeds 0, 1" in text
    draw, data = plots.wanted()["results-experiment-glyphs-demo.png"]
    picture = plots.to_png(draw(data), plots.signature(data))
    assert picture.startswith(b"\x89PNG") and plots.signature(data).encode() in picture
    assert picture == plots.to_png(draw(data), plots.signature(data))


def test_a_damaged_results_file_is_named_and_passed_over(tool, tmp_path, monkeypatch, capsys):
    results, _ = tool
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    (tmp_path / "good.json").write_text(json.dumps(record()))
    (tmp_path / "cut.json").write_text(json.dumps(record())[:40])
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "other.json").write_text(json.dumps({"something": "else"}))
    assert "0.500" in results.all_experiments(DOCS / "reproduction.md")
    told, shown = capsys.readouterr().err, results.passed_over(DOCS / "reproduction.md")
    assert "cut.json" in told and "list.json" in told
    assert (
        "`cut.json`: cannot be read" in shown and "`other.json`: of another kind" in shown and "good.json" not in shown
    )


def test_rows_that_were_not_run_say_so(tool, tmp_path, monkeypatch):
    results, _ = tool
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    row = {
        "name": "peak memory, B = 9",
        "value": None,
        "unit": "GB",
        "target": "< 8",
        "times": {},
        "config": {},
        "note": "needs a CUDA device",
    }
    (tmp_path / "bench_x.json").write_text(
        json.dumps(
            {"benchmark": "x", "title": "X: speed", "rows": [row, {**row, "name": "peak memory, B = 8", "value": 2.5}]}
        )
    )
    assert "| peak memory, B = 9 | needs a CUDA device |" in results.all_benchmarks(DOCS / "reproduction.md")
    text = results.memory(DOCS / "large_batches.md")
    assert "not run: needs a CUDA device" in text and "2,500 MB" in text
    (tmp_path / "suite.json").write_text(
        json.dumps({"rows": {"training/gradient caching": {"metrics": {"cached, batch 4096, MB": 9000.0}}}})
    )
    results.stored.cache_clear()
    assert "| suite | training/gradient caching: cached, batch 4096 | 9,000 MB |" in results.memory(
        DOCS / "large_batches.md"
    )


def test_an_unknown_part_is_refused(tool, tmp_path):
    results, _ = tool
    page = tmp_path / "page.md"
    page.write_text("# P\n\n<!-- results:nonsense (made by tools/results.py) -->\n<!-- end of results:nonsense -->\n")
    with pytest.raises(SystemExit, match="nonsense"):
        results.rendered(page)
