"The loop: exact resume, checkpoints that are whole or absent, one clear line for every fault."

import errno
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from smoothap_nb import train as T
from smoothap_nb.checks import ConfigError
from smoothap_nb.train import checkpoints, loop, setup
from smoothap_nb.train.config import experiment_from_dict
from smoothap_nb.train.machine import pick_precision
from smoothap_nb.train.objectives import LOSSES, Objective, loss_from_config
from smoothap_nb.train.optimizers import optimizers_for
from smoothap_nb.train.runs import RunLog, differences
from toydata import ToyData, ToyNet, use_toys

ROOT = Path(__file__).resolve().parents[2]


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
    use_toys(monkeypatch)


def started(path, experiment=None):
    experiment = experiment or tiny()
    return T.prepare(experiment, T.open_run(path, experiment), torch.device("cpu"))


def run_all(training):
    T.fit(training, progress=False, tensorboard=False)
    return training.model.state_dict()


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_rate_climbs_then_falls():
    rates = [loop.rate_at(s, 100, 10) for s in range(100)]
    assert (
        all(0 < r <= 1 for r in rates)
        and rates[:10] == sorted(rates[:10])
        and rates[10:] == sorted(rates[10:], reverse=True)
    )
    assert rates[10] == 1 and rates[-1] < .001 and loop.rate_at(99, 100, 0, "constant") == 1


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
        T.advance(half, *half.fetch(half.step)[:2])
        if half.step % 4 == 0:
            half.save()
    resumed = started(tmp_path / "half")
    assert resumed.resume() and resumed.step == stop - stop % 4
    assert equal(whole, run_all(resumed))
    whole_log, resumed_log = (
        {r["step"]: (r["loss"], r["lr"]) for r in T.read_log(tmp_path / n)} for n in ("whole", "half")
    )
    assert resumed_log and all(whole_log[step] == resumed_log[step] for step in resumed_log)


def test_loss_falls(tmp_path):
    training = started(tmp_path / "run", tiny(optim__steps=150, log_every=1))
    run_all(training)
    losses = [r["loss"] for r in T.read_log(tmp_path / "run")]
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


def test_log_forgets_what_will_be_done_again(tmp_path):
    run_all(started(tmp_path / "run"))
    assert [r["step"] for r in T.read_log(tmp_path / "run")] == [1, 3, 5, 7, 9]
    RunLog(tmp_path / "run", step=4, tensorboard=False)
    assert [r["step"] for r in T.read_log(tmp_path / "run")] == [1, 3]
    with open(tmp_path / "run" / "log.csv", "a") as file:
        file.write("5,0,0.")  # a crash in the middle of a line
    assert [r["step"] for r in T.read_log(tmp_path / "run")] == [1, 3]
    with open(tmp_path / "run" / "log.csv", "a") as file:
        file.write("7,0.01,300,0.1")  # every field is there, but is the last one whole?
    assert [r["step"] for r in T.read_log(tmp_path / "run")] == [1, 3]
    (tmp_path / "run" / "log.csv").write_text("step,epo")  # not even the header
    assert T.read_log(tmp_path / "run") == [] and RunLog(tmp_path / "run", step=4, tensorboard=False)


def test_log_is_never_half_rewritten(tmp_path, monkeypatch):
    "A run killed while it forgets lines keeps the old ones."
    run_all(started(tmp_path / "run"))
    before = T.read_log(tmp_path / "run")
    # as late as a kill can come
    monkeypatch.setattr(checkpoints.os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        RunLog(tmp_path / "run", step=4, tensorboard=False)
    assert T.read_log(tmp_path / "run") == before


def test_tensorboard_reads_back(tmp_path):
    training = started(tmp_path / "run")
    T.fit(training, progress=False)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    read = {e.step: e.value for e in events.Scalars("loss")}
    logged = {r["step"]: r["loss"] for r in T.read_log(tmp_path / "run")}
    assert read.keys() == logged.keys() and all(abs(read[s] - logged[s]) < 1e-5 for s in read)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_a_checkpoint(tmp_path, monkeypatch, number):
    training = started(tmp_path / "run")
    advance, before = loop.advance, signal.getsignal(number)

    def interrupted(training, images, labels):
        if training.step == 6:
            os.kill(os.getpid(), number)  # arrives inside the step, which is finished first
        return advance(training, images, labels)

    monkeypatch.setattr(loop, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        T.fit(training, progress=False, tensorboard=False)
    assert signal.getsignal(number) is before
    monkeypatch.setattr(loop, "advance", advance)
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

    monkeypatch.setattr(checkpoints, "save_file", full)
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
    run_all(started(tmp_path / "run", tiny(optim__steps=4)))
    with pytest.raises(T.RunError, match=r"optim.lr: 0.001 -> 0.01.*--fresh"):
        T.open_run(tmp_path / "run", tiny(optim__lr=0.01))
    T.open_run(tmp_path / "run", tiny(optim__lr=0.01), fresh=True)


@pytest.mark.parametrize(
    "kind, says", [("file", "is a file"), ("foreign", "holds no run"), ("forbidden", "cannot be written")]
)
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
    monkeypatch.setattr(training.loss, "forward", lambda e, y, step: e.sum() * math.nan)
    with pytest.raises(T.RunError, match="embeddings hold NaN or infinity in 12 of 12 rows at step 1: lower optim.lr"):
        T.fit(training, progress=False, tensorboard=False)


def test_one_class_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(setup, "dataset_for", lambda pictures, split, seed=0: ToyData(split, 16, classes=1))
    with pytest.raises(ValueError, match="only 1 classes have two images"):
        started(tmp_path / "run")


@pytest.mark.parametrize(
    "loss, says",
    [
        ({"name": "smoth_ap"}, "did you mean 'smooth_ap'"),
        ({"name": "smooth_ap", "tua": 1.0}, "did you mean 'tau'"),
        ({"name": "smooth_ap", "tau": 0.0}, "tau must be"),
        ({"name": "smooth_ap", "tau": -1.0}, "tau must be"),
    ],
)
def test_losses_that_cannot_be_had(loss, says):
    with pytest.raises(ConfigError, match=says):
        loss_from_config(loss)


def test_every_loss_by_name():
    for name in LOSSES:
        assert callable(loss_from_config({"name": name}))


def test_float16_needs_cuda():
    with pytest.raises(ConfigError, match="needs a CUDA device"):
        pick_precision("float16", torch.device("cpu"))


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
import sys; sys.path[:0] = {tests!r}
import torch; torch.set_num_threads(1)
import pytest
from smoothap_nb import train as T
from test_loop import tiny
from toydata import use_toys
use_toys(pytest.MonkeyPatch())
e = tiny(optim__steps=60, checkpoint_every=3, log_every=1)
t = T.prepare(e, T.open_run(sys.argv[1], e), torch.device("cpu"))
t.resume()
T.fit(t, progress=False, tensorboard=False)
T.save_model(t.model, t.run)
"""


@pytest.mark.slow
def test_kill_9_and_resume_to_the_same_numbers(tmp_path):
    "Killed without warning at ten random moments, started again each time: the end is the same to the bit."
    targets = sorted(random.Random(0).sample(range(1, 59), 10))
    code = DRIVER.format(tests=[str(ROOT / "tests"), str(ROOT / "tests" / "train")])
    start = lambda run: subprocess.Popen(
        [sys.executable, "-c", code, str(run)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    whole = start(tmp_path / "whole")
    assert whole.wait(timeout=240) == 0, whole.stderr.read().decode()
    killed = 0
    for target in targets:
        process, deadline = start(tmp_path / "killed"), time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            rows = T.read_log(tmp_path / "killed")
            if rows and rows[-1]["step"] >= target:
                process.send_signal(signal.SIGKILL)
                killed += process.wait() == -signal.SIGKILL
                break
            time.sleep(0.002)
    last = start(tmp_path / "killed")
    assert last.wait(timeout=240) == 0, last.stderr.read().decode()
    assert killed >= 8  # a machine in a hurry may finish before the last blows
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


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_trains_and_resumes(tmp_path, name):
    "Proxies and hierarchical labels included: one checkpoint brings them back to the bit."
    experiment = tiny(loss={"name": name})
    whole = started(tmp_path / "whole", experiment)
    run_all(whole)
    half = started(tmp_path / "half", experiment)
    for _ in range(4):
        T.advance(half, *half.fetch(half.step)[:2])
    half.save()
    resumed = started(tmp_path / "half", experiment)
    assert resumed.resume()
    assert equal(whole.model.state_dict(), run_all(resumed))
    assert equal(whole.loss.state_dict(), resumed.loss.state_dict())
    assert all(v.isfinite().all() for v in whole.model.state_dict().values())


# The papers' schedules

def test_step_schedule_and_floor():
    rates = [loop.rate_at(s, 10, 0, "step", milestones=(4, 8), gamma=0.3) for s in range(10)]
    assert rates == [1.0] * 4 + [0.3] * 4 + [0.3 ** 2] * 2
    assert loop.rate_at(100, 100, floor=0.1) == pytest.approx(0.1) and loop.rate_at(
        50, 100, floor=0.1
    ) == pytest.approx(0.55)


def test_epochs_count_steps():
    times = loop.timetable(
        tiny(optim__epochs=5, optim__warmup=1, optim__head_warmup=2, optim__milestones=[3, 4]).optim, 1, batches=7
    )
    assert times == loop.Timetable(35, 7, 14, (21, 28), 7)
    assert loop.timetable(tiny().optim, 0, batches=7) == loop.Timetable(10, 2, 0, (), 0)
    # the schedule stands still while the head warms up
    assert times.share(13, tiny().optim) == times.share(14, tiny().optim)


def test_head_warmup_leaves_the_backbone_alone(tmp_path):
    training = started(tmp_path / "run", tiny(optim__head_warmup=3, optim__warmup=0))
    before = {
        k: v.clone() for k, v in training.model.state_dict().items() if "running" not in k and "num_batches" not in k
    }
    moved = []
    for _ in range(4):
        T.advance(training, *training.fetch(training.step)[:2])
        now = training.model.state_dict()
        moved.append({k for k in before if not torch.equal(before[k], now[k])})
    assert moved[2] == {"head.weight", "head.bias"} and any(k.startswith("features") for k in moved[3])


def test_proxies_have_their_own_optimiser(tmp_path):
    experiment = tiny(loss={"name": "happier"}, optim__proxy_optimizer="sgd", optim__proxy_lr=10.0, optim__warmup=0)
    training = started(tmp_path / "run", experiment)
    assert [type(o).__name__ for o in training.optimizers] == ["AdamW", "SGD"]
    (group,) = training.optimizers[1].param_groups
    assert (
        group["peak_lr"] == 10.0
        and group["weight_decay"] == 0
        and [id(p) for p in group["params"]] == [id(p) for p in training.loss.parameters()]
    )
    before = [p.clone() for p in training.loss.parameters()]
    T.advance(training, *training.fetch(0)[:2])
    assert not any(torch.equal(a, b) for a, b in zip(before, training.loss.parameters()))
    training.save()
    again = started(tmp_path / "run", experiment)
    assert again.resume() and all(
        torch.equal(a, b) for a, b in zip(training.loss.parameters(), again.loss.parameters())
    )


def test_decay_of_scales_and_biases():
    model = ToyNet(tiny().model)
    of = lambda decay: {
        g["name"] + str(i): g["weight_decay"]
        for i, g in enumerate(
            optimizers_for(model, torch.nn.Identity(), tiny(optim__decay=decay).optim)[0].param_groups
        )
    }
    assert sorted(set(of("weights").values())) == [0, 1e-4] and set(of("all").values()) == {1e-4}


# Gradient caching, mixed losses, memory

@pytest.mark.parametrize("name", sorted(LOSSES))
def test_gradient_caching_gives_the_direct_gradient(tmp_path, name):
    frozen = {"model__batch_norm": "frozen_statistics", "loss": {"name": name}}
    grads = {}
    for micro in (0, 5):
        training = started(tmp_path / str(micro), tiny(**frozen, batch__micro=micro))
        training.model.double().eval(), training.loss.double()
        for optimizer in training.optimizers:
            optimizer.step = lambda: None
        images, labels, _ = training.fetch(0)
        torch.manual_seed(0)
        T.advance(training, images.double(), labels)
        grads[micro] = torch.cat([p.grad.flatten() for p in training.model.parameters()])
    torch.testing.assert_close(grads[0], grads[5], rtol=1e-9, atol=1e-12)
    assert grads[0].abs().max() > 0


def test_gradient_caching_is_refused_with_live_batch_norm(tmp_path):
    with pytest.raises(ConfigError, match="frozen_statistics.*micro_with_live_batch_norm"):
        started(tmp_path / "run", tiny(batch__micro=4))
    run_all(started(tmp_path / "asked", tiny(batch__micro=4, batch__micro_with_live_batch_norm=True, optim__steps=2)))


def test_weighted_losses_with_memory_train_and_resume(tmp_path):
    experiment = tiny(
        loss={"terms": [{"name": "smooth_ap", "tau": 0.05, "weight": 0.7}, {"name": "cluster", "weight": 0.3}]},
        memory__size=30,
        memory__start=2,
    )
    whole = started(tmp_path / "whole", experiment)
    run_all(whole)
    assert whole.loss.losses[0].filled == 30
    half = started(tmp_path / "half", experiment)
    for _ in range(5):
        T.advance(half, *half.fetch(half.step)[:2])
    half.save()
    resumed = started(tmp_path / "half", experiment)
    assert resumed.resume() and resumed.loss.losses[0].filled == 30
    assert equal(whole.model.state_dict(), run_all(resumed)) and equal(
        whole.loss.state_dict(), resumed.loss.state_dict()
    )


def test_memory_waits_for_its_start(tmp_path):
    training = started(tmp_path / "run", tiny(memory__size=30, memory__start=3))
    filled = []
    for _ in range(5):
        T.advance(training, *training.fetch(training.step)[:2])
        filled.append(training.loss.losses[0].filled)
    assert filled == [0, 0, 0, 12, 24]


# Validation

def test_the_best_weights_are_kept(tmp_path, monkeypatch):
    training = started(tmp_path / "run", tiny(validate={"every": 2, "patience": 3}))
    values, weights = iter([.1, .5, .4, .3, .2]), {}

    def measure():
        weights[training.step] = {k: v.clone() for k, v in training.model.state_dict().items()}
        return next(values)

    training.held_out = [("validation", lambda rows: measure())]
    T.fit(training, progress=False, tensorboard=False)
    facts = T.finish(training)
    assert training.step == 10 and facts["weights"] == {
        "step": 4,
        "why": "the best mAP on held-out training classes",
        "value": 0.5,
    }
    assert equal(load_file(training.run / "model.safetensors"), weights[4])
    assert (training.run / "validation.csv").read_text().splitlines()[:3] == ["step,mAP", "2,0.1", "4,0.5"]


def test_patience_stops_and_a_stopped_run_stays_stopped(tmp_path):
    experiment = tiny(validate={"every": 1, "patience": 2})
    training = started(tmp_path / "run", experiment)
    values = iter([.5, .4, .3, .9, .9])
    training.held_out = [("validation", lambda rows: next(values))]
    T.fit(training, progress=False, tensorboard=False)
    assert training.step == 3
    again = started(tmp_path / "run", experiment)
    assert again.resume() and (again.step, again.best_step, again.looks) == (3, 1, 2)
    T.fit(again, progress=False, tensorboard=False)
    assert again.step == 3 and T.finish(again)["weights"]["step"] == 1


def test_validation_classes_are_not_trained_on(tmp_path, monkeypatch):
    monkeypatch.setattr(ToyData, "own_validation", False)
    experiment = tiny(validate={"every": 5, "share": .34}, data__name="toy")
    training = started(tmp_path / "run", experiment)
    trained = {int(c) for t in range(30) for c in training.data.labels[torch.as_tensor(training.plan(t)[0]), -1]}
    assert len(trained) == 8 and len(training.plan.sampler.members) == 8
    T.fit(training, progress=False, tensorboard=False)
    rows = (training.run / "validation.csv").read_text().splitlines()
    assert rows[0] == "step,mAP" and [r.split(",")[0] for r in rows[1:]] == ["5", "10"]
    with pytest.raises(ConfigError, match="at least 2 are needed"):
        started(tmp_path / "few", tiny(validate={"every": 5, "share": .05}, data__name="toy"))


def test_choosing_on_the_test_set_says_so(tmp_path, monkeypatch):
    from smoothap_nb.data.protocols import Protocol

    monkeypatch.setattr(
        "smoothap_nb.data.datasets.load_protocols", lambda name, root, data: [Protocol("test", ToyData("test"))]
    )
    training = started(tmp_path / "run", tiny(validate={"every": 5, "as_paper": True}))
    T.fit(training, progress=False, tensorboard=False)
    assert "TEST set" in T.finish(training)["weights"]["why"]


# Resuming with other settings

def test_harmless_settings_may_change(tmp_path):
    run_all(started(tmp_path / "run"))
    T.open_run(tmp_path / "run", tiny(checkpoint_every=3, data__workers=2, data__root="elsewhere", evaluate__batch=8))
    with pytest.raises(T.RunError, match="batch.micro: 0 -> 4"):
        T.open_run(tmp_path / "run", tiny(batch__micro=4))


def test_what_cannot_change_a_number(tmp_path):
    "Micro-batches with fixed statistics, a fine cache, and the same weights by another way; not their opposites."
    keys = lambda a, b: [key for key, _, _ in differences(tiny(**a), tiny(**b))]
    frozen = {"model__batch_norm": "frozen_statistics"}
    assert keys(frozen, {**frozen, "batch__micro": 4}) == [] and keys({}, {"batch__micro": 4}) == ["batch.micro"]
    assert keys({}, {"data__cache": "c"}) == [] and keys({}, {"data__cache": "c", "data__cache_side": 256}) == [
        "data.cache",
        "data.cache_side",
    ]
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / name).write_bytes(content)
    weights = lambda name: {"model__weights": str(tmp_path / name)}
    assert (
        keys(weights("a"), weights("b")) == []
        and keys(weights("a"), weights("c")) == ["model.weights"]
        and keys({}, weights("a")) == ["model.weights"]
    )
    assert keys(
        {}, {"data__workers": 7, "evaluate__batch": 3, "checkpoint_minutes": 1.0, "name": "other"}
    ) == [] and keys({}, {"optim__lr": 0.5}) == ["optim.lr"]
    T.open_run(tmp_path / "run", tiny(**frozen))
    T.open_run(tmp_path / "run", tiny(**frozen, batch__micro=4))  # what the out-of-memory message asks for


def test_an_opened_run_may_be_opened_by_others_at_the_same_time(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".experiment.toml.123").write_text("half")  # another process is about to write it
    T.open_run(tmp_path / "run", tiny())


def test_checkpoints_by_the_clock(tmp_path, monkeypatch):
    now = iter(range(0, 10**6, 40))  # every look at the clock is 40 seconds later
    monkeypatch.setattr("smoothap_nb.train.state.time.monotonic", lambda: float(next(now)))
    training = started(tmp_path / "run", tiny(checkpoint_every=0, checkpoint_minutes=1.0, log_every=1))
    saved = []
    monkeypatch.setattr(
        "smoothap_nb.train.state.save_checkpoint", lambda folder, step, tensors, state: saved.append(step)
    )
    T.fit(training, progress=False, tensorboard=False)
    assert saved == [0, 2, 4, 6, 8, 10]


def test_bfloat16_only_where_the_card_computes_in_it(monkeypatch):
    for capability, wanted in (((7, 5), torch.float16), ((8, 0), torch.bfloat16), ((9, 0), torch.bfloat16)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None, capability=capability: capability)
        assert pick_precision("auto", torch.device("cuda")) == wanted


def test_groups_end_at_floors_of_their_own(tmp_path):
    training = started(
        tmp_path / "run",
        tiny(
            loss={"name": "cluster"}, optim__floor=0.1, optim__head_floor=0.05, optim__proxy_floor=0.01, optim__warmup=0
        ),
    )
    loop.set_rates(training.optimizers, lambda floor: training.times.share(10, training.experiment.optim, floor))
    ends = {group["name"]: group["lr"] / group["peak_lr"] for group in training.optimizers[0].param_groups}
    assert ends == pytest.approx({"backbone": 0.1, "head": 0.05, "proxies": 0.01})


def test_out_of_memory_names_the_setting(tmp_path, monkeypatch):
    def full(training, images, labels):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    for changes, says in (
        ({}, "batch.classes=2.*frozen_statistics.*batch.micro=3"),
        ({"model__batch_norm": "frozen"}, "batch.micro=6"),
        ({"model__batch_norm": "frozen", "batch__micro": 5}, "batch.micro=2"),
    ):
        training = started(tmp_path / says[-1] , tiny(**changes))
        monkeypatch.setattr(loop, "advance", full)
        with pytest.raises(T.RunError, match=f"(?s)out of memory.*{says}"):
            T.fit(training, progress=False, tensorboard=False)


# Several processes

TOGETHER = """
import json, sys; sys.path[:0] = {tests!r}
import torch; torch.set_num_threads(1)
import pytest
from smoothap_nb import train as T
from smoothap_nb.train.machine import engine_for
from test_loop import frozen_tiny
from toydata import use_toys
from pathlib import Path
from safetensors.torch import save_file
use_toys(pytest.MonkeyPatch())
engine = engine_for(cpu=True)
for name, changes in json.loads({cases!r}).items():
    e = frozen_tiny(**changes)
    run = Path({out!r}) / name
    if engine.is_main_process: T.open_run(run, e)
    engine.wait_for_everyone()
    t = T.prepare(e, run, torch.device("cpu"))
    T.fit(t, progress=False, tensorboard=False)
    rows = T.embed(t.model, t.data, progress=False, batch=10)
    if engine.is_main_process: save_file({{**t.model.state_dict(), **{{"loss." + k: v for k, v in t.loss.state_dict().items()}}, "rows": rows}}, run / "end.safetensors")
    engine.wait_for_everyone()
t.close()
"""  # noqa: E501


def frozen_tiny(**changes):
    return tiny(
        **{
            "model__batch_norm": "frozen_statistics",
            "optim__steps": 4,
            "optim__optimizer": "sgd",
            "batch__classes": 3,
            **changes,
        }
    )


def test_two_processes_equal_one(tmp_path, monkeypatch):
    "Every loss; gradient caching, memory, a mixed loss, validation: two gloo processes, odd batches, against this one."
    cases = {name: {"loss": {"name": name}} for name in sorted(LOSSES)}
    cases["noisy"] = {"loss": {"name": "blackbox_ap", "noise": True}}
    cases["cached"] = {"batch__micro": 2}
    cases["mixed"] = {
        "loss": {"terms": [{"name": "smooth_ap", "weight": 0.5}, {"name": "cluster"}]},
        "memory__size": 20,
    }
    cases["looked"] = {"validate": {"every": 2}}
    (tmp_path / "program.py").write_text(
        TOGETHER.format(
            tests=[str(ROOT / "tests"), str(ROOT / "tests" / "train")], cases=json.dumps(cases), out=str(tmp_path)
        )
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            str(tmp_path / "program.py"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for name, changes in cases.items():
        if name == "noisy":
            continue  # its draws follow from the step only with several processes
        alone = T.prepare(
            frozen_tiny(**changes), T.open_run(tmp_path / f"{name}-alone", frozen_tiny(**changes)), torch.device("cpu")
        )
        run_all(alone)
        state, end = (
            alone.model.state_dict() | {f"loss.{k}": v for k, v in alone.loss.state_dict().items()},
            load_file(tmp_path / name / "end.safetensors"),
        )
        rows = end.pop("rows")
        assert state.keys() == end.keys(), name
        for key in state:
            torch.testing.assert_close(
                end[key], state[key], rtol=1e-4, atol=1e-6, msg=lambda m, key=key: f"{name} {key}: {m}"
            )
        torch.testing.assert_close(rows, T.embed(alone.model, alone.data, progress=False), rtol=1e-4, atol=1e-5)


def test_a_term_may_see_the_labels_of_one_level():
    rows = torch.nn.functional.normalize(torch.randn(12, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    labels = torch.stack([torch.arange(12) // 6, torch.arange(12) // 3], 1)
    both = Objective({"terms": [{"name": "smooth_ap", "level": 1}, {"name": "smooth_ap", "level": 2}]})(rows, labels)
    alone = [Objective({"name": "smooth_ap"})(rows, labels[:, :depth]) for depth in (1, 2)]
    assert float(both) == pytest.approx(float(sum(alone)), rel=1e-6)
    proxies = Objective({"terms": [{"name": "cluster", "level": 1}]}, labels.unique(dim=0), 8)
    assert proxies.losses[0].num_classes == 2
    with pytest.raises(ConfigError, match="level of smooth_ap"):
        Objective({"terms": [{"name": "smooth_ap", "level": 3}]}, labels, 8)


def test_a_word_as_weight_is_the_losss_own():
    assert Objective({"name": "recall", "weight": "log"}).losses[0].weight == "log"
    assert Objective({"terms": [{"name": "recall", "weight": 0.5}]}).weights == [0.5]


@pytest.mark.slow
def test_a_compiled_network_trains_and_is_saved_plain(tmp_path):
    ends = {}
    for name in (True, False):
        training = started(tmp_path / str(name), tiny(optim__compile=name, optim__steps=3, log_every=1))
        ends[name] = run_all(training).keys(), [row["loss"] for row in T.read_log(training.run)]
    assert ends[True][0] == ends[False][0] and ends[True][1] == pytest.approx(ends[False][1], rel=1e-3)
    training = started(tmp_path / "True", tiny(optim__compile=True, optim__steps=3, log_every=1))
    assert training.resume()
    T.finish(training)
    assert T.load_run(tmp_path / "True", "cpu")[0] is not None


def test_margins_of_many_levels_pass_the_trial_of_settings():
    assert len(Objective({"name": "csl", "margins": [0.4, 0.3, 0.2]}).losses[0].margins) == 3


def test_results_written_since_do_not_change_the_commit_that_a_row_names(tmp_path, monkeypatch):
    import subprocess

    from smoothap_nb.train import machine

    git = lambda *words: subprocess.run(
        ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c", *words], check=True,
        capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    (tmp_path / "docs" / "results").mkdir(parents=True)
    for name in ("machine.py", "docs/results/rows.json"):
        (tmp_path / name).write_text("{}")
    git("init", "-q"), git("add", "."), git("commit", "-q", "-m", "one")
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "machine.py"))
    (tmp_path / "docs/results/rows.json").write_text("[]")
    assert machine._commit() == git("rev-parse", "--short=12", "HEAD")
    (tmp_path / "machine.py").write_text("[]")
    assert machine._commit() == git("rev-parse", "--short=12", "HEAD") + "+"
