"The command line: every command works on a toy run, every fault of an input is one line and exit 2."

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smoothap_nb.cli import commands as cli
from toydata import use_toys

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = [
    f"--set={s}"
    for s in (
        "data.size=16",
        "batch.classes=4",
        "batch.images=3",
        "optim.steps=4",
        "model.dim=8",
        "model.weights=none",
        "checkpoint_every=2",
        "log_every=1",
        "evaluate.metrics=['mAP', 'R@1']",
    )
]


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    use_toys(monkeypatch)


def call(monkeypatch, capsys, *words):
    "Run `smoothap WORDS` as the entry point does; returns exit code, output, errors."
    monkeypatch.setattr(sys, "argv", ["smoothap", *map(str, words)])
    try:
        cli.run()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    out = capsys.readouterr()
    return code, out.out, out.err


def test_train_evaluate_and_resume(monkeypatch, capsys, tmp_path):
    run = tmp_path / "run"
    code, out, err = call(monkeypatch, capsys, "train", "demo", "--cpu", "--quiet", "--run", run, *SETTINGS)
    assert code == 0, err
    assert (
        "raw pixels" in out and "trained" in out and (run / "report.html").exists() and (run / "metrics.json").exists()
    )
    code, out, _ = call(monkeypatch, capsys, "train", "demo", "--cpu", "--quiet", "--run", run, *SETTINGS)
    assert code == 0 and "trained already" in out
    (run / "model.safetensors").unlink()
    code, out, _ = call(monkeypatch, capsys, "train", "demo", "--cpu", "--quiet", "--run", run, *SETTINGS)
    assert code == 0 and "resumed at step 4" in out
    code, out, _ = call(monkeypatch, capsys, "evaluate", run, "--quiet")
    assert code == 0 and "mAP" in out


def test_search_prints_the_ranking_and_writes_a_sheet(monkeypatch, capsys, tmp_path):
    run = tmp_path / "run"
    assert call(monkeypatch, capsys, "train", "demo", "--cpu", "--quiet", "--run", run, *SETTINGS)[0] == 0
    gallery = tmp_path / "gallery"
    gallery.mkdir()
    for i in range(5):
        Image.new("RGB", (30 + i, 40), (40 * i, 90, 200 - 30 * i)).save(gallery / f"{i}.png")
    (gallery / "broken.png").write_bytes(b"\x89PNG")
    code, out, err = call(
        monkeypatch,
        capsys,
        "search",
        gallery / "2.png",
        "--gallery",
        gallery,
        "--run",
        run,
        "-k",
        "3",
        "--quiet",
        "--sheet",
        tmp_path / "sheet.png",
    )
    assert code == 0, err
    assert len([line for line in out.splitlines() if line.strip()[:1].isdigit()]) == 3
    assert Image.open(tmp_path / "sheet.png").size[0] > 100
    assert "broken.png" in out + err


def test_experiments_and_doctor(monkeypatch, capsys):
    code, out, _ = call(monkeypatch, capsys, "experiments")
    assert code == 0 and "demo" in out and "ResNet-50" in out
    code, out, _ = call(monkeypatch, capsys, "doctor")
    assert code == 0 and all(word in out for word in ("Python", "torch", "CUDA", "cache", "losses"))


@pytest.mark.parametrize("words, says", [
    (["train", "dmo"], "did you mean 'demo'"),
    (["train", "demo", "--set", "optim.lrr=1"], "did you mean 'lr'"),
    (["train", "demo", "--set", "loss.tau=0"], "tau must be"),
    (["train", "demo", "--set", "batch.classes=900"], "lower batch.classes"),
    (["train", "missing.toml"], "no file missing.toml"),
    (["evaluate", "nowhere"], "holds no run"),
    (["search", "x.png", "--gallery", ".", "--run", "nowhere"], "holds no run"),
])
def test_faults_are_one_line(monkeypatch, capsys, tmp_path, words, says):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(monkeypatch, capsys, *words)
    assert code == 2 and says in err
    assert len(err.strip().splitlines()) == 1 and err.startswith("error: ")


def test_debug_shows_the_long_story(monkeypatch, capsys):
    monkeypatch.setenv("SMOOTHAP_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["smoothap", "train", "dmo"])
    with pytest.raises(ValueError, match="did you mean"):
        cli.run()


def test_module_equals_command():
    done = subprocess.run(
        [sys.executable, "-m", "smoothap_nb.cli", "experiments"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0 and "demo" in done.stdout
    done = subprocess.run([sys.executable, "-m", "smoothap_nb.cli", "train"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and "experiment" in done.stderr.lower() and "Traceback" not in done.stderr


def test_evaluate_files_as_table_json_markdown_and_page(monkeypatch, capsys, tmp_path):
    import json

    import numpy as np

    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(30, 6)).astype("float32"))
    (tmp_path / "labels.csv").write_text("\n".join(str(i // 5) for i in range(30)))
    words = ["evaluate", tmp_path / "rows.npy", "--labels", tmp_path / "labels.csv", "--quiet"]
    code, out, err = call(
        monkeypatch,
        capsys,
        *words,
        "--json",
        tmp_path / "m.json",
        "--markdown",
        tmp_path / "m.md",
        "--report",
        tmp_path / "m.html",
    )
    assert code == 0, err
    assert "mAP" in out and json.loads((tmp_path / "m.json").read_text())["metrics"]["mAP"] > 0
    assert (tmp_path / "m.md").read_text().startswith("| | mAP") and "<html" in (tmp_path / "m.html").read_text()
    code, out, _ = call(monkeypatch, capsys, *words, "--metric", "R@3", "--metric", "P@2")
    assert code == 0 and "R@3" in out and "P@2" in out
    for wrong, says in (
        (["--metric", "R@-1"], "R@-1"),
        (["--metric", "mapp"], "mAP"),
        (["--ties", "maximum"], "ties must be"),
        (["--normalize", "refuse"], "length 1"),
        (["--normalize", "maybe"], "--normalize is"),
    ):
        code, _, err = call(monkeypatch, capsys, *words, *wrong)
        assert code == 2 and says in err and len(err.strip().splitlines()) == 1
    code, _, err = call(monkeypatch, capsys, "evaluate", tmp_path, "--labels", tmp_path / "labels.csv")
    assert code == 2 and "file of embeddings" in err


@pytest.mark.parametrize("target, says", [
    ("missing/out.json", "there is no folder .*missing"), ("folder", "and .*folder is a folder"),
    ("rows.npy", "--json would overwrite .*rows.npy"), ("labels.npy", "--json would overwrite .*labels.npy"),
])  # fmt: skip
def test_files_to_be_written_are_looked_at_before_the_work(monkeypatch, capsys, tmp_path, target, says):
    np.save(tmp_path / "rows.npy", np.eye(4, dtype=np.float32))
    np.save(tmp_path / "labels.npy", np.array([0, 0, 1, 1]))
    (tmp_path / "folder").mkdir()
    before = {p: p.read_bytes() for p in tmp_path.glob("*.npy")}
    words = ("evaluate", tmp_path / "rows.npy", "--labels", tmp_path / "labels.npy", "--quiet")
    code, out, err = call(monkeypatch, capsys, *words, "--json", tmp_path / target)
    assert code == 2 and re.search(says, err) and not out and len(err.splitlines()) == 1, (out, err)
    assert {p: p.read_bytes() for p in tmp_path.glob("*.npy")} == before
    assert call(monkeypatch, capsys, *words, "--json", tmp_path / "new.json")[0] == 0


def test_a_record_without_a_folder_is_refused_before_the_training(monkeypatch, capsys, tmp_path):
    run, words = tmp_path / "run", ("--cpu", "--quiet", "--run", tmp_path / "run", *SETTINGS)
    code, _, err = call(monkeypatch, capsys, "train", "demo", *words, "--record", tmp_path / "nowhere" / "x.json")
    assert code == 2 and "--record: there is no folder" in err and not (run / "log.csv").exists()
    code, _, err = call(monkeypatch, capsys, "results", tmp_path, "--write", tmp_path / "nowhere" / "x.md")
    assert code == 2 and "--write: there is no folder" in err


def test_a_photograph_is_no_place_for_a_contact_sheet(monkeypatch, capsys, tmp_path):
    "Refused before the run is read, let alone the pictures."
    Image.new("RGB", (30, 30)).save(tmp_path / "photo.png")
    before = (tmp_path / "photo.png").read_bytes()
    for words in ((tmp_path / "photo.png", "--gallery", tmp_path), ("--text", "a letter", "--gallery", tmp_path)):
        code, _, err = call(monkeypatch, capsys, "search", *words, "--run", tmp_path / "no", "--sheet",
                            tmp_path / "photo.png")  # fmt: skip
        assert code == 2 and "is there already and is no contact sheet" in err, err
    assert (tmp_path / "photo.png").read_bytes() == before
