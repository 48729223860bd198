"Nothing is lost: a run's folder, who trains in it, its checkpoints, and the end that a signal asks for."

import json
import math
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from smoothap_nb import train as T
from smoothap_nb.checks import ConfigError
from smoothap_nb.train import loop, setup
from smoothap_nb.train.checkpoints import read_tensors
from smoothap_nb.train.config import to_toml
from smoothap_nb.train.faults import Stopped
from smoothap_nb.train.measure import measure
from smoothap_nb.train.run_folder import STOPPED, hold
from test_loop import run_all, started, tiny
from toydata import ToyData, use_toys

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    use_toys(monkeypatch)


# Settings that would fail after the training

@pytest.mark.parametrize("changes, says", [
    ({"evaluate__metrics": ["mPA"]}, "evaluate.metrics: no metric 'mPA'; the nearest is 'mAP'"),
    ({"evaluate__metrics": []}, "evaluate.metrics: metrics is empty"),
    ({"evaluate__metrics": ["R@0"]}, "evaluate.metrics: R@0: K must be"),
    ({"validate__metric": "mPA"}, "validate.metric: no metric 'mPA'"),
    ({"optim__lr": math.inf}, "optim.lr must be a finite number, got inf"),
    ({"optim__weight_decay": math.nan}, "optim.weight_decay must be a finite number, got nan"),
    ({"loss": {"terms": [{"name": "smooth_ap", "tau": math.inf}]}}, "loss.terms.1.tau must be a finite number"),
    ({"data__strength": 1e308}, "data.strength must be between 0 and 100"),
    ({"seed": 12345678901234567890}, "seed must have fewer digits"),
    ({"seed": 2**32}, "seed must be between 0 and 4.29497e\\+09"),
])
def test_settings_are_refused_before_the_training(changes, says):
    with pytest.raises(ConfigError, match=says):
        tiny(**changes)


def test_what_is_measured_at_the_end_may_change(tmp_path):
    run_all(started(tmp_path / "run", tiny(optim__steps=1)))
    T.open_run(tmp_path / "run", tiny(optim__steps=1, evaluate__metrics=["R@1"], evaluate__classes=3))


# --fresh

def test_fresh_deletes_what_a_run_writes_and_nothing_else(tmp_path):
    run = tmp_path / "run"
    training = started(run)
    T.fit(training, progress=False)  # with TensorBoard's files
    T.save_model(training.model, run)
    (run / "photo.jpg").write_bytes(b"mine")
    with pytest.raises(T.RunError, match=r"no run wrote \(photo.jpg\): move it away"):
        T.open_run(run, tiny(), fresh=True)
    assert (run / "model.safetensors").exists() and list((run / "checkpoints").iterdir())
    (run / "photo.jpg").rename(run / "checkpoints" / "photo.jpg")
    with pytest.raises(T.RunError, match=r"checkpoints/photo.jpg"):
        T.open_run(run, tiny(), fresh=True)
    (run / "checkpoints" / "photo.jpg").unlink()
    T.open_run(run, tiny(seed=5), fresh=True)
    left = {str(p.relative_to(run)) for p in run.rglob("*") if p.is_file()}
    assert left == {"experiment.toml"} and T.load_experiment(str(run / "experiment.toml")).seed == 5


MINE = """# My experiment.
name = "tiny"  # a short one
log_every = 2

[optim]
# tuned by hand
lr = 1e-3  # as the paper says
steps = 10
warmup = 2
precision = "float32"

[loss]
name = "smooth_ap"
tau = 0.01 # small
"""


@pytest.mark.parametrize("fresh", [False, True])
def test_a_description_keeps_its_comments(tmp_path, fresh):
    run = tmp_path / "run"
    run.mkdir()
    path = run / "experiment.toml"
    path.write_text(MINE)
    changes = ["log_every=3", "optim.lr=0.5", "loss.tau=0.02"] if fresh else ["log_every=3"]
    wanted = T.load_experiment(str(path), changes)
    T.open_run(run, wanted, fresh)
    text = path.read_text()
    for comment in ("# My experiment.", "# a short one", "# tuned by hand", "# as the paper says", "# small"):
        assert text.count(comment) == 1
    assert T.load_experiment(str(path)).to_dict() == wanted.to_dict()
    assert "[batch]" in text  # nothing is left to the defaults of some later version
    T.open_run(run, wanted)
    assert path.read_text() == text


def test_a_description_in_a_form_of_its_own_is_kept_below(tmp_path):
    path = tmp_path / "run" / "experiment.toml"
    path.parent.mkdir()
    path.write_text("optim.lr = 1e-3  # dotted\n")
    wanted = T.load_experiment(str(path))
    T.open_run(path.parent, wanted)
    assert "# dotted" in path.read_text() and T.load_experiment(str(path)).to_dict() == wanted.to_dict()


# Runs that came to nothing

def test_a_run_without_a_step_takes_its_correction(tmp_path, capsys):
    training = started(tmp_path / "run")
    training.save()  # step 0
    T.open_run(tmp_path / "run", tiny(optim__lr=0.01))
    assert "came to nothing" in capsys.readouterr().out
    assert not list((tmp_path / "run" / "checkpoints").iterdir())
    training = started(tmp_path / "run", tiny(optim__lr=0.01))
    training.step = 4
    training.save()
    with pytest.raises(T.RunError, match=r"optim.lr: 0.01 -> 0.02.*--fresh"):
        T.open_run(tmp_path / "run", tiny(optim__lr=0.02))


def diverging(training, at: int):
    "Make the weights NaN in a certain step."
    move = loop.advance

    def poisoned(training, images, labels):
        value = move(training, images, labels)
        if training.step == at:
            with torch.no_grad():
                next(training.model.parameters()).fill_(math.nan)
        return value

    return poisoned


def test_a_run_that_diverged_takes_its_correction(tmp_path, monkeypatch):
    training = started(tmp_path / "run", tiny(checkpoint_every=2))
    monkeypatch.setattr(loop, "advance", diverging(training, 5))
    with pytest.raises(T.RunError, match=r"embeddings hold NaN or infinity in 12 of 12 rows at step 5: lower optim.lr"):
        run_all(training)
    assert json.loads((tmp_path / "run" / STOPPED).read_text())["step"] == 5
    T.open_run(tmp_path / "run", tiny(checkpoint_every=2))  # as it was: goes on from the last checkpoint
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    T.open_run(tmp_path / "run", tiny(optim__lr=1e-4))
    assert not (tmp_path / "run" / STOPPED).exists() and not list((tmp_path / "run" / "checkpoints").iterdir())


@pytest.mark.parametrize("way", ["checkpoint", "Ctrl-C", "look", "last"])
def test_weights_that_are_no_numbers_are_never_kept(tmp_path, monkeypatch, way):
    "Where no loss was read since (as on CUDA, and in the last step), the weights themselves are looked at."
    extra = {"validate": {"every": 6}} if way == "look" else {}
    extra |= {"checkpoint_every": 6} if way == "checkpoint" else {"checkpoint_every": 100}
    training = started(tmp_path / "run", tiny(log_every=100, optim__steps=6 if way == "last" else 10, **extra))
    training.save()
    poisoned = diverging(training, 6)

    def step(training, images, labels):
        value = poisoned(training, images, labels)
        if way == "Ctrl-C" and training.step == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return value

    monkeypatch.setattr(loop, "advance", step)
    with pytest.raises(T.RunError, match="NaN or infinity.*at step 6: lower optim.lr"):
        T.fit(training, progress=False, tensorboard=False)
        T.finish(training)
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000000"]
    assert not list((tmp_path / "run").glob("*.safetensors"))


def test_a_loss_that_is_no_number_is_not_kept_either(tmp_path, monkeypatch):
    "Finite weights, and a loss that is none: the step of a checkpoint that is no step of the log."
    training = started(tmp_path / "run", tiny(checkpoint_every=3, log_every=100))
    move = loop.advance
    monkeypatch.setattr(loop, "advance", lambda *given: move(*given) * math.nan)
    with pytest.raises(T.RunError, match="the loss is nan at step 3"):
        run_all(training)


def test_all_that_stands_against_a_data_set_is_said_at_once(tmp_path):
    experiment = tiny(batch__classes=20, validate={"every": 2, "share": 0.1})
    data = ToyData("train", 16)
    data.validation = lambda: None
    with pytest.raises(ConfigError, match=r"sets aside 1 of 12 training classes.*; and .*lower batch.classes"):
        setup._divide(experiment, data, data.labels, torch.device("cpu"))


# One training at a time

def test_two_trainings_in_one_folder(tmp_path):
    with hold(tmp_path / "run"):
        T.open_run(tmp_path / "run", tiny())
        with pytest.raises(T.RunError, match=f"process {os.getpid()} on .* is training in .*run right now"):
            with hold(tmp_path / "run"):
                pass
    with hold(tmp_path / "run"):
        pass
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_killed_training_holds_nothing(tmp_path):
    code = (
        "import os, sys; from smoothap_nb.train.run_folder import hold\n"
        "with hold(sys.argv[1]): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], env=ENV).returncode == -9
    assert (tmp_path / "run" / ".lock").exists()
    with hold(tmp_path / "run"):
        T.open_run(tmp_path / "run", tiny())


ENV = {**os.environ, "PYTHONPATH": str(ROOT)}


# Signals

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_a_checkpoint(tmp_path, monkeypatch, number):
    training, advance, before = started(tmp_path / "run"), loop.advance, signal.getsignal(number)

    def interrupted(training, images, labels):
        if training.step == 6:
            os.kill(os.getpid(), number)
        return advance(training, images, labels)

    monkeypatch.setattr(loop, "advance", interrupted)
    with pytest.raises(Stopped) as stopped:
        run_all(training)
    assert stopped.value.number == number and signal.getsignal(number) == before
    assert started(tmp_path / "run").resume()


def test_nohup_is_respected(tmp_path, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        training, advance = started(tmp_path / "run"), loop.advance
        monkeypatch.setattr(loop, "advance", lambda *given: (os.kill(os.getpid(), signal.SIGHUP), advance(*given))[1])
        run_all(training)
        assert training.step == 10
    finally:
        signal.signal(signal.SIGHUP, before)


COMMAND = """
import sys; sys.path[:0] = {tests!r}
import torch; torch.set_num_threads(1)
import pytest
from toydata import ToyData, use_toys
use_toys(pytest.MonkeyPatch())
sys.argv = ["smoothap", *{words!r}]
from smoothap_nb.cli import main
main()
"""


def command(*words, **options):
    code = COMMAND.format(tests=[str(ROOT / "tests")], words=[str(w) for w in words])
    return subprocess.Popen([sys.executable, "-c", code], env=ENV, cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_command_ends_as_shells_expect(tmp_path, number, code):
    "A signal in the middle: a checkpoint, 128 + the signal's number, and a second training meanwhile is refused."
    path = tmp_path / "long.toml"
    path.write_text(to_toml(tiny(optim__steps=100_000, log_every=1, checkpoint_every=0, checkpoint_minutes=0.0)))
    running = command("train", path, "--run", tmp_path / "run", "--cpu", "--quiet")
    deadline = time.monotonic() + 120
    while len(T.read_log(tmp_path / "run")) < 5:
        assert running.poll() is None and time.monotonic() < deadline, running.communicate()
        time.sleep(.05)
    second = command("train", path, "--run", tmp_path / "run", "--cpu", "--quiet", "--fresh")
    out, error = second.communicate(timeout=120)
    assert second.returncode == 2 and f"process {running.pid} on" in error and "right now" in error, error
    running.send_signal(number)
    out, error = running.communicate(timeout=120)
    assert running.returncode == code and "a checkpoint was written" in out + error, (running.returncode, out, error)
    assert len(list((tmp_path / "run" / "checkpoints").glob("step-*"))) == 2  # of step 0 and of the signal's


# What was written

def test_a_changed_byte_in_a_checkpoint_is_found(tmp_path, capsys):
    run = tmp_path / "run"
    training = started(run)
    for step in (0, 4):
        training.step = step
        training.save()
    newest = run / "checkpoints" / "step-00000004"
    whole = (newest / "state.safetensors").read_bytes()
    for place in (len(whole) - 1, len(whole) // 2):
        flipped = bytearray(whole)
        flipped[place] ^= 4
        (newest / "state.safetensors").write_bytes(flipped)
        again = started(run)
        assert again.resume() and again.step == 0
        assert "its checksum is wrong" in capsys.readouterr().out
    (newest / "state.safetensors").write_bytes(whole)
    text = (newest / "state.json").read_text()
    for damaged in (text.replace('"step": 4', '"step": 6'), "[]", "7", "null"):
        (newest / "state.json").write_text(damaged)
        again = started(run)
        assert again.resume() and again.step == 0
        assert "passed over damaged checkpoint" in capsys.readouterr().out
    (newest / "state.json").write_text(text)
    again = started(run)
    assert again.resume() and again.step == 4


def test_checkpoints_of_the_version_before_are_read(tmp_path):
    from safetensors.torch import save_file

    run = tmp_path / "run"
    training = started(run)
    training.step = 4
    path = training.save()
    state = json.loads((path / "state.json").read_text())
    del state["sha256"]
    (path / "state.json").write_text(json.dumps(state))
    save_file(read_tensors(path / "state.safetensors"), path / "state.safetensors")
    again = started(run)
    assert again.resume() and again.step == 4


def test_a_changed_byte_in_the_weights_is_found(tmp_path):
    training = started(tmp_path / "run", tiny(optim__steps=1))
    run_all(training)
    T.save_model(training.model, tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(T.RunError, match="is damaged: its checksum is wrong.*rewrites the file"):
        T.load_run(tmp_path / "run")


def test_files_follow_the_umask(tmp_path):
    before = os.umask(0o022)
    try:
        training = started(tmp_path / "run", tiny(optim__steps=1, validate={"every": 1}))
        run_all(training)
        T.finish(training)
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "run").rglob("*") if p.is_file()}
    assert len(modes) > 5 and set(modes.values()) == {0o644}, modes


@pytest.mark.parametrize("name", ["log.csv", "validation.csv"])
def test_binary_logs_do_not_stop_a_resumed_run(tmp_path, name):
    experiment = tiny(validate={"every": 4})
    run_all(started(tmp_path / "run", tiny(optim__steps=10, validate={"every": 4})))
    text = (tmp_path / "run" / name).read_bytes()
    (tmp_path / "run" / name).write_bytes(text + bytes(range(256)) * 1000 + b"\n" + b"x" * 200_000 + b"\n")
    for p in (tmp_path / "run" / "checkpoints").glob("step-*10"):
        p.rename(p.with_name("step-00000099"))
    resumed = started(tmp_path / "run", experiment)
    (tmp_path / "run" / "checkpoints" / "step-00000099" / "state.json").write_text("{")
    assert resumed.resume() and resumed.step == 8
    run_all(resumed)
    assert [r["step"] for r in T.read_log(tmp_path / "run")] == [1, 3, 5, 7, 9]
    assert len((tmp_path / "run" / "validation.csv").read_text().splitlines()) == 4


def test_a_run_that_cannot_be_written_is_measured_all_the_same(tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    training = started(run, tiny(optim__steps=1, evaluate__baselines=False))
    run_all(training)
    T.save_model(training.model, run)

    def read_only(path, *rest):
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr("smoothap_nb.train.measure.write_atomic", read_only)
    record, _ = measure(run, progress=False)
    assert 0 <= record["metrics"]["trained"]["mAP"] <= 1
    assert "metrics.json is not written: Read-only file system" in capsys.readouterr().err
    from smoothap_nb.cli import commands

    monkeypatch.setattr("smoothap_nb.show.report.write_atomic", read_only)
    monkeypatch.setattr(sys, "argv", ["smoothap", "evaluate", str(run), "--quiet"])
    with pytest.raises(SystemExit) as end:
        commands.run()
    out = capsys.readouterr().out
    assert end.value.code == 0 and "trained" in out and "no report: " in out and "Read-only file system" in out


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_of_two_processes(tmp_path):
    """With a memory and validation: weights, log, looks and metrics are those of a training that nobody disturbed.

    Ten kills here; fifty by `python tests/train/kills.py FOLDER --kills 50`."""
    done = subprocess.run([sys.executable, str(ROOT / "tests" / "train" / "kills.py"), str(tmp_path), "--kills", "10"],
                          env=ENV, cwd=ROOT, capture_output=True, text=True, timeout=800)  # fmt: skip
    assert done.returncode == 0, (done.stdout, done.stderr[-3000:])
    said = json.loads(done.stdout)
    assert said["kills"] == 10 and all(said["equal"].values())
