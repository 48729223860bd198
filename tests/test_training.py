"The loop: exact resume, checkpoints that are whole or absent, one clear line for every fault."

import errno
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from smoothap_nb import training as T
from smoothap_nb.config import ConfigError, experiment_from_dict
from toydata import ToyData, ToyNet

ROOT = Path(__file__).resolve().parent.parent


def tiny(**changes):
    values = {"name": "tiny", "checkpoint_every": 4, "log_every": 2, "data": {"size": 16},
              "model": {"backbone": "resnet18", "dim": 8, "stem": "small"}, "batch": {"classes": 4, "images": 3},
              "optim": {"steps": 10, "warmup": 2, "precision": "float32"}, "evaluate": {"metrics": ["mAP", "R@1"]}}
    for key, value in changes.items():
        group, _, name = key.partition("__")
        (values.setdefault(group, {}) if name else values)[name or group] = value
    return experiment_from_dict(values)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setattr(T, "dataset_for", lambda experiment, split: ToyData(split, experiment.data.size))
    monkeypatch.setattr(T, "EmbeddingModel", ToyNet)


def started(path, experiment=None):
    experiment = experiment or tiny()
    return T.prepare(experiment, T.open_run(path, experiment), torch.device("cpu"))


def run_all(training):
    T.fit(training, progress=False, tensorboard=False)
    return training.model.state_dict()


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_rate_climbs_then_falls():
    rates = [T.rate_at(s, 100, 10) for s in range(100)]
    assert all(0 < r <= 1 for r in rates) and rates[:10] == sorted(rates[:10]) and rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[10] == 1 and rates[-1] < .001 and T.rate_at(99, 100, 0, "constant") == 1


def test_one_seed_one_result(tmp_path):
    assert equal(run_all(started(tmp_path / "a")), run_all(started(tmp_path / "b")))
    other = run_all(started(tmp_path / "c", tiny(seed=1)))
    assert not equal(other, run_all(started(tmp_path / "d")))


@pytest.mark.parametrize("stop", [1, 4, 5, 9])
def test_resume_gives_the_same_bits(tmp_path, stop):
    whole = run_all(started(tmp_path / "whole"))
    half = started(tmp_path / "half")
    half.save()
    for _ in range(stop):
        half.advance(*half.fetch(half.step)[:2])
        if half.step % 4 == 0:
            half.save()
    resumed = started(tmp_path / "half")
    assert resumed.resume() and resumed.step == stop - stop % 4
    assert equal(whole, run_all(resumed))
    whole_log, resumed_log = ({r["step"]: (r["loss"], r["lr"]) for r in T.read_log(tmp_path / n)} for n in ("whole", "half"))
    assert resumed_log and all(whole_log[step] == resumed_log[step] for step in resumed_log)


def test_loss_falls(tmp_path):
    training = started(tmp_path / "run", tiny(optim__steps=150, log_every=1))
    run_all(training)
    losses = [r["loss"] for r in T.read_log(tmp_path / "run")]
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


def test_log_forgets_what_will_be_done_again(tmp_path):
    run_all(started(tmp_path / "run"))
    assert [r["step"] for r in T.read_log(tmp_path / "run")] == [1, 3, 5, 7, 9]
    T.RunLog(tmp_path / "run", step=4, tensorboard=False)
    assert [r["step"] for r in T.read_log(tmp_path / "run")] == [1, 3]
    with open(tmp_path / "run" / "log.csv", "a") as file:
        file.write("5,0,0.")  # a crash in the middle of a line
    assert [r["step"] for r in T.read_log(tmp_path / "run")] == [1, 3]


def test_tensorboard_reads_back(tmp_path):
    training = started(tmp_path / "run")
    T.fit(training, progress=False)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    read = {e.step: e.value for e in events.Scalars("loss")}
    logged = {r["step"]: r["loss"] for r in T.read_log(tmp_path / "run")}
    assert read.keys() == logged.keys() and all(abs(read[s] - logged[s]) < 1e-5 for s in read)


def test_ctrl_c_leaves_a_checkpoint(tmp_path, monkeypatch):
    training = started(tmp_path / "run")
    advance = training.advance

    def interrupted(images, labels):
        if training.step == 7:
            raise KeyboardInterrupt
        return advance(images, labels)

    monkeypatch.setattr(training, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        T.fit(training, progress=False, tensorboard=False)
    resumed = started(tmp_path / "run")
    assert resumed.resume() and resumed.step == 7
    assert equal(run_all(resumed), run_all(started(tmp_path / "whole")))


@pytest.mark.parametrize("precision", ["bfloat16"])
def test_autocast_trains(tmp_path, precision):
    state = run_all(started(tmp_path / "run", tiny(optim__precision=precision)))
    assert all(v.isfinite().all() for v in state.values())


# Faults

def test_full_disk_keeps_the_checkpoint_before(tmp_path, monkeypatch):
    training = started(tmp_path / "run")
    training.save()

    def full(*args, **kwargs):
        Path(args[1]).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(T, "save_file", full)
    training.step = 4
    with pytest.raises(T.RunError, match="No space left.*intact.*make room"):
        training.save()
    assert sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir()) == ["step-00000000"]
    with pytest.raises(T.RunError, match="No space left.*make room"):
        T.save_model(training.model, tmp_path / "run")
    assert not list((tmp_path / "run").glob("*.safetensors")) and not (tmp_path / "run" / ".model.safetensors").exists()


def test_damaged_checkpoints_are_passed_over(tmp_path, capsys):
    training = started(tmp_path / "run")
    for step in (0, 4):
        training.step = step
        training.save()
    newest = tmp_path / "run" / "checkpoints" / "step-00000004"
    whole = (newest / "state.safetensors").read_bytes()
    for damage in (b"", b"\x00" * 8, whole[: len(whole) // 2]):
        (newest / "state.safetensors").write_bytes(damage)
        again = started(tmp_path / "run")
        assert again.resume() and again.step == 0
        assert "passed over damaged checkpoint" in capsys.readouterr().out
    (newest / "state.safetensors").write_bytes(whole)
    (newest / "state.json").write_text("{")
    again = started(tmp_path / "run")
    assert again.resume() and again.step == 0


def test_a_checkpoint_of_another_architecture(tmp_path):
    training = started(tmp_path / "run")
    training.save()
    other = T.prepare(tiny(model__dim=16), tmp_path / "run", torch.device("cpu"))
    with pytest.raises(T.RunError, match="belongs to another model.*--fresh"):
        other.resume()


def test_another_experiment_in_the_folder(tmp_path):
    T.open_run(tmp_path / "run", tiny())
    with pytest.raises(T.RunError, match=r"optim.lr: 0.001 -> 0.01.*--fresh"):
        T.open_run(tmp_path / "run", tiny(optim__lr=0.01))
    T.open_run(tmp_path / "run", tiny(optim__lr=0.01), fresh=True)


@pytest.mark.parametrize("kind, says", [("file", "is a file"), ("foreign", "holds no run"), ("forbidden", "cannot be written")])
def test_places_that_cannot_hold_a_run(tmp_path, kind, says):
    path = tmp_path / "run"
    if kind == "file":
        path.write_text("x")
    elif kind == "foreign":
        path.mkdir()
        (path / "letter.txt").write_text("do not delete")
    else:
        path = Path("/proc/nowhere/run")
    with pytest.raises(T.RunError, match=says):
        T.open_run(path, tiny(), fresh=True)
    if kind == "foreign":
        assert (path / "letter.txt").exists()


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, monkeypatch):
    training = started(tmp_path / "run")
    monkeypatch.setattr(training.loss, "forward", lambda e, y: e.sum() * math.nan)
    with pytest.raises(T.RunError, match="loss is nan at step 2: lower optim.lr"):
        T.fit(training, progress=False, tensorboard=False)


def test_one_class_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(T, "dataset_for", lambda e, s: ToyData(s, 16, classes=1))
    with pytest.raises(ValueError, match="only 1 classes have two images"):
        started(tmp_path / "run")


@pytest.mark.parametrize("loss, says", [({"name": "smoth_ap"}, "did you mean 'smooth_ap'"), ({"name": "smooth_ap", "tua": 1.0}, "did you mean 'tau'"),
                                        ({"name": "smooth_ap", "tau": 0.0}, "tau must be"), ({"name": "smooth_ap", "tau": -1.0}, "tau must be")])
def test_losses_that_cannot_be_had(loss, says):
    with pytest.raises(ConfigError, match=says):
        T.loss_from_config(loss)


def test_every_loss_by_name():
    for name in T.LOSSES:
        assert callable(T.loss_from_config({"name": name}))


def test_float16_needs_cuda():
    with pytest.raises(ConfigError, match="needs a CUDA device"):
        T.pick_precision("float16", torch.device("cpu"))


# A finished run

@pytest.fixture
def finished(tmp_path):
    training = started(tmp_path / "run", tiny(optim__steps=2))
    run_all(training)
    T.save_model(training.model, tmp_path / "run")
    return tmp_path / "run"


def test_load_run(finished):
    model, transform = T.load_run(finished, "cpu")
    from PIL import Image

    rows = model(transform(Image.new("L", (20, 30), 255))[None])
    assert rows.shape == (1, 8) and not model.training
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(1))


def test_runs_that_cannot_be_loaded(finished, tmp_path):
    for path, says in ((tmp_path / "nothing", "holds no run"), (tmp_path, "holds no run")):
        with pytest.raises(T.RunError, match=says):
            T.load_run(path)
    weights = finished / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    with pytest.raises(T.RunError, match="is damaged"):
        T.load_run(finished)
    save_file({"head.weight": torch.zeros(3, 3)}, weights)
    with pytest.raises(T.RunError, match="another architecture than resnet18 with 8 dimensions"):
        T.load_run(finished)
    weights.unlink()
    with pytest.raises(T.RunError, match="not finished"):
        T.load_run(finished)


# The plug

DRIVER = """
import sys; sys.path.insert(0, {tests!r})
import torch; torch.set_num_threads(1)
from smoothap_nb import training as T
from test_training import tiny
from toydata import ToyData, ToyNet
T.dataset_for, T.EmbeddingModel = (lambda e, s: ToyData(s, e.data.size)), ToyNet
e = tiny(optim__steps=40, checkpoint_every=3)
t = T.prepare(e, T.open_run(sys.argv[1], e), torch.device("cpu"))
t.resume()
T.fit(t, progress=False, tensorboard=False)
T.save_model(t.model, t.run)
"""


@pytest.mark.slow
def test_kill_9_and_resume_to_the_same_numbers(tmp_path):
    "Killed without warning at a handful of moments, started again each time: the end is the same to the bit."
    code = DRIVER.format(tests=str(ROOT / "tests"))
    start = lambda run: subprocess.Popen([sys.executable, "-c", code, str(run)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         env={**os.environ, "PYTHONPATH": str(ROOT)})
    whole = start(tmp_path / "whole")
    assert whole.wait(timeout=240) == 0, whole.stderr.read().decode()
    killed = 0
    for target in (2, 9, 16, 23, 30, 38):
        process, deadline = start(tmp_path / "killed"), time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            rows = T.read_log(tmp_path / "killed")
            if rows and rows[-1]["step"] >= target:
                process.send_signal(signal.SIGKILL)
                killed += process.wait() == -signal.SIGKILL
                break
            time.sleep(0.01)
    last = start(tmp_path / "killed")
    assert last.wait(timeout=240) == 0, last.stderr.read().decode()
    assert killed >= 3
    a, b = (load_file(tmp_path / n / "model.safetensors") for n in ("whole", "killed"))
    assert equal(a, b)


@pytest.mark.cuda
def test_mixed_precision_on_cuda(tmp_path):
    for precision in ("float16", "bfloat16"):
        experiment = tiny(optim__precision=precision, optim__steps=30)
        training = T.prepare(experiment, T.open_run(tmp_path / precision, experiment), torch.device("cuda"))
        T.fit(training, progress=False, tensorboard=False)
        losses = [r["loss"] for r in T.read_log(tmp_path / precision)]
        assert all(map(math.isfinite, losses)) and losses[-1] < losses[0]


@pytest.mark.parametrize("name", sorted(T.LOSSES))
def test_every_loss_trains_and_resumes(tmp_path, name):
    "Proxies and hierarchical labels included: one checkpoint brings them back to the bit."
    experiment = tiny(loss={"name": name})
    whole = started(tmp_path / "whole", experiment)
    run_all(whole)
    half = started(tmp_path / "half", experiment)
    for _ in range(4):
        half.advance(*half.fetch(half.step)[:2])
    half.save()
    resumed = started(tmp_path / "half", experiment)
    assert resumed.resume()
    assert equal(whole.model.state_dict(), run_all(resumed))
    assert equal(whole.loss.state_dict(), resumed.loss.state_dict())
    assert all(v.isfinite().all() for v in whole.model.state_dict().values())
