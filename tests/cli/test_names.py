"Names on the command line: known before torch is, completed by the shell, and near only when they are near."

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from smoothap_nb import __version__
from smoothap_nb.checks import nearest
from smoothap_nb.cli import names
from smoothap_nb.data.readers import DATASETS
from smoothap_nb.detection.settings import detection_names
from smoothap_nb.reproduction import registry
from smoothap_nb.train.config import experiment_names

ROOT = Path(__file__).resolve().parents[2]


def command(*words, **env):
    return subprocess.run([sys.executable, "-m", "smoothap_nb.cli", *words], capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": str(ROOT), **env})  # fmt: skip


def test_the_quick_names_are_the_real_ones():
    assert names.data_names() == list(DATASETS)
    assert names.experiment_names() == sorted({*experiment_names(), *detection_names()})
    assert {name.removesuffix("@code") for name in registry()} == set(names.paper_names())


@pytest.mark.parametrize("words, says", [
    (["train", "dmo"], "did you mean 'demo'"),
    (["data", "check", "so"], "did you mean 'sop'"),
    (["data", "list", "gldv2"], "known: "),
    (["reproduce", "sop/smoth-ap-bs384"], "did you mean 'sop/smooth-ap-bs384'"),
    (["reproduce", "glyphs"], "no experiment 'glyphs': smoothap reproduce claims asks"),
    (["search", "x.png", "--gallery", ".", "--run", "r", "--sheet", "x.jpg"], "ends in .png, got x.jpg"),
])
def test_a_typo_is_answered_before_torch_is_loaded(words, says):
    code = ("import sys; sys.modules['torch'] = None; sys.argv = ['smoothap', *{!r}]; "
            "from smoothap_nb.cli import main; main()").format(words)  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.returncode == 2 and says in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize("words", [["train", "dmo"], ["reproduce", "sop/smoth-ap-bs384"]])
def test_a_typo_is_answered_soon(words):
    "0.3 s on an idle machine; here in processor time, which a busy one does not lengthen much."
    before = os.times()
    command(*words)
    spent = os.times()
    assert spent.children_user - before.children_user + spent.children_system - before.children_system < 1.0


def test_version_and_short_help():
    assert command("--version").stdout.strip() == f"smoothap-nb {__version__}"
    for words in (["-h"], ["train", "-h"], ["data", "check", "-h"]):
        done = command(*words)
        assert done.returncode == 0 and "Usage" in done.stdout, done.stderr


@pytest.mark.parametrize("line, expected", [
    ("smoothap tr", ["train"]),
    ("smoothap train de", ["demo"]),
    ("smoothap data check dyml_a", ["dyml_animal"]),
    ("smoothap reproduce sop/smooth-ap-bs3", ["sop/smooth-ap-bs384"]),
])
def test_the_shell_completes(line, expected):
    code = "import sys; sys.argv = ['smoothap']; from smoothap_nb.cli import main; main()"
    asked = {"_SMOOTHAP_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": str(ROOT), **asked})  # fmt: skip
    assert [word for word in done.stdout.split() if word in expected] == expected, (done.stdout, done.stderr)


def test_a_completion_takes_no_second():
    started = time.process_time()
    assert names.complete_experiment("de") and names.complete_data("so") == ["sop"] and names.complete_paper("sop/")
    assert time.process_time() - started < 1


def test_nearest_only_where_near():
    assert nearest("dmo", ["demo", "glyphs"]) == "did you mean 'demo'?"
    assert nearest("SOP", ["sop"]) == "did you mean 'sop'?"
    assert nearest("xyz", ["demo", "glyphs"]) == "known: demo, glyphs"
    assert nearest("xyz", map(str, range(100))) == "known are 100 names, 0, 1, 10, ... among them"
