"""How each row of `gpu_suite` is measured: every function takes the device and whether toy sizes are asked for, and
returns numbers.
"""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F

from smoothap_nb.data.interface import PictureSet

ROOT = Path(__file__).resolve().parent.parent


class NotHere(RuntimeError):
    "A row that this machine cannot measure; the message is the reason."


# --- tools ----------------------------------------------------------------------------------------------------------

def _clock(call: Callable, device: torch.device, repeat: int = 7) -> float:
    "Median seconds, after two calls to warm up."
    taken = []
    for _ in range(repeat + 2):
        _wait(device)
        start = time.perf_counter()
        call()
        _wait(device)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[2:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _peak(call: Callable, device: torch.device) -> float:
    "MB that a call adds to what was held, at its peak; 0 on a CPU, where nothing counts it."
    if device.type != "cuda":
        call()
        return 0.0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def _batch(size: int, dim: int, device, per_class: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    "Unit rows around class centres, and labels of two levels."
    generator = torch.Generator().manual_seed(size)
    fine = torch.arange(size) // per_class
    rows = (
        torch.randn(size, dim, generator=generator) + torch.randn(int(fine.max()) + 1, dim, generator=generator)[fine]
    )
    return F.normalize(rows, dim=1).to(device), torch.stack([fine % 7, fine], 1).to(device)


def every_loss(classes: int, dim: int) -> dict:
    from smoothap_nb import (
        BlackboxAPLoss,
        FastAPLoss,
        HAPLoss,
        HAPPIERLoss,
        RecallLoss,
        ROADMAPLoss,
        SmoothAPLoss,
        SoftBinAPLoss,
        SupAPLoss,
    )

    torch.manual_seed(0)
    return {
        "Smooth-AP": SmoothAPLoss(),
        "FastAP": FastAPLoss(),
        "recall": RecallLoss(),
        "blackbox AP": BlackboxAPLoss(),
        "SupAP": SupAPLoss(),
        "SoftBin": SoftBinAPLoss(),
        "ROADMAP": ROADMAPLoss(),
        "H-AP": HAPLoss(),
        "HAPPIER": HAPPIERLoss(classes, dim),
    }


# --- parity ---------------------------------------------------------------------------------------------------------

def parity_of_losses(device, tiny: bool) -> dict:
    """Largest relative difference of value and gradient between this device in float32 and the CPU in float64, over
    all losses.
    """
    size, dim = (32, 16) if tiny else (384, 128)
    rows, labels = _batch(size, dim, "cpu")
    out = {}
    for name, loss in every_loss(size // 4, dim).items():
        wanted = labels if getattr(loss, "hierarchical", False) else labels[:, -1]
        exact = rows.double().clone().requires_grad_()
        value = loss.double()(exact, wanted)
        value.backward()
        here = rows.to(device).clone().requires_grad_()
        found = loss.float().to(device)(here, wanted.to(device))
        found.backward()
        gap = (here.grad.cpu().double() - exact.grad).norm() / exact.grad.norm().clamp(min=1e-12)
        out[f"{name} value"], out[f"{name} gradient"] = (
            float((found.detach().cpu() - value.detach()).abs() / value.detach().abs().clamp(min=1e-12)),
            float(gap),
        )
    return out


def parity_of_metrics(device, tiny: bool) -> dict:
    "Largest difference of any metric between this device and the CPU in float64."
    from smoothap_nb import evaluate

    rows, labels = _batch(200 if tiny else 4000, 16 if tiny else 128, "cpu", per_class=5)
    metrics = ("mAP", "R@1", "R@10", "mAP@R", "AP@level1", "H-AP", "ASI", "NDCG")
    exact = evaluate(rows.double(), labels, metrics=metrics, progress=False)
    here = evaluate(rows.to(device), labels.to(device), metrics=metrics, device=device, progress=False)
    return {"largest difference": max(abs(exact[m] - here[m]) for m in metrics)}


def parity_by_pytest(device, tiny: bool) -> dict:
    """The tests marked cuda: files without any are not collected, since some need tools that a machine for training
    lacks.
    """
    if importlib.util.find_spec("pytest") is None:
        raise NotHere("needs pytest")
    if device.type != "cuda":
        raise NotHere("needs a CUDA device")
    every = sorted((ROOT / "tests").rglob("test_*.py"))
    where = ["tests/test_ranking.py"] if tiny else [str(f) for f in every if "mark.cuda" in f.read_text("utf-8")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *where, "-q", "-m", "cuda", "-p", "no:cacheprovider",
         "--override-ini=addopts="],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    counts = {
        word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)
    }
    if not counts:
        raise NotHere(f"pytest said: {(done.stdout + done.stderr)[-200:]!r}")
    if done.returncode:
        print(done.stdout[-6000:])
    return {
        "passed": counts.get("passed", 0),
        "failed": counts.get("failed", 0) + counts.get("error", 0),
        "skipped": counts.get("skipped", 0),
    }


# --- losses, lists, evaluation ----------------------------------------------------------------------------------------

def time_of_losses(size: int):
    def measure(device, tiny: bool) -> dict:
        B, dim = (32, 16) if tiny else (size, 512)
        rows, labels = _batch(B, dim, device)
        out = {}
        for name, loss in every_loss(B // 4, dim).items():
            loss, wanted = loss.to(device), labels if getattr(loss, "hierarchical", False) else labels[:, -1]

            def step():
                loss(rows.clone().requires_grad_(), wanted).backward()

            out[f"{name} ms"], out[f"{name} MB"] = 1e3 * _clock(step, device, 3 if tiny else 7), _peak(step, device)
        return out

    return measure


def time_of_smooth_ap(size: int):
    "Smooth-AP alone, on a batch that the other losses need not bear."
    def measure(device, tiny: bool) -> dict:
        from smoothap_nb import SmoothAPLoss

        rows, labels = _batch(64 if tiny else size, 16 if tiny else 512, device)

        def step():
            SmoothAPLoss()(rows.clone().requires_grad_(), labels[:, -1]).backward()

        return {"ms": 1e3 * _clock(step, device, 3), "GB": _peak(step, device) / 1024}

    return measure


def kernel_against_torch(size: int, per_class: int = 4):
    "Smooth-AP forward and backward by the Triton kernel and by PyTorch's operations, and how far each is from float64."
    def measure(device, tiny: bool) -> dict:
        from smoothap_nb import SmoothAPLoss
        from smoothap_nb.losses import fused

        if device.type != "cuda" or not fused.use_triton:
            raise NotHere("needs a CUDA device and Triton")
        rows, labels = _batch(64, 16, device) if tiny else _batch(size, 512, device, per_class)

        def step(numbers=rows):
            leaf = numbers.clone().requires_grad_()
            value = SmoothAPLoss()(leaf, labels[:, -1])
            value.backward()
            return value.detach().double(), leaf.grad.double()

        out = {}
        try:
            fused.use_triton = False
            exact = step(rows.double())
            for name, fused.use_triton in (("kernel", True), ("PyTorch", False)):
                (value, push), (true_value, true_push) = step(), exact
                out[f"{name} value, less float64's"] = float(value - true_value)  # near 0 where all are found
                out[f"{name} gradient from float64"] = float((push - true_push).norm() / true_push.norm())
                if name == "kernel" and not fused.use_triton:
                    raise NotHere("Triton could not build the kernel")
                out[f"{name} ms"], out[f"{name} MB"] = 1e3 * _clock(step, device), _peak(step, device)
        finally:
            fused.use_triton = True
        return out

    return measure


def time_of_list(length: int):
    def measure(device, tiny: bool) -> dict:
        from smoothap_nb import blackbox_ap

        n = min(length, 2000) if tiny else length
        generator = torch.Generator(device).manual_seed(0)
        relevance = torch.rand(1, n, generator=generator, device=device) < 0.01
        relevance[0, 0] = True
        scores = (torch.randn(1, n, generator=generator, device=device) * 0.2 + 0.2 * relevance).requires_grad_()

        def step():
            scores.grad = None
            (1 - blackbox_ap(scores, relevance, 4.0, 0.02)).sum().backward()

        return {"ms": 1e3 * _clock(step, device, 3), "MB": _peak(step, device)}

    return measure


def time_of_evaluation(images: int, dim: int, classes: tuple):
    def measure(device, tiny: bool) -> dict:
        from benchmarks.evaluation import FLAT, LEVELS, test_set
        from smoothap_nb import evaluate

        rows, labels = (
            test_set(200, 16, tuple(min(c, 40) if i else 3 for i, c in enumerate(classes)))
            if tiny
            else test_set(images, dim, classes)
        )
        rows, labels = rows.to(device), labels.to(device)
        flat = [m for m in FLAT if not tiny or m != "R@1000"]
        out = {}
        for name, metrics in (("flat", flat), ("hierarchical", [*flat, *LEVELS])):
            call = lambda: evaluate(rows, labels, metrics=tuple(metrics), device=device, progress=False, memory="4GB")
            call()
            _wait(device)
            start = time.perf_counter()
            call()
            _wait(device)
            out[f"{name} s"] = time.perf_counter() - start
            out[f"{name} MB"] = _peak(call, device) if name == "flat" else 0.0
        return {k: v for k, v in out.items() if k != "hierarchical MB"}

    return measure


# --- training ---------------------------------------------------------------------------------------------------------

class Noise(PictureSet):
    "Pictures of noise in the device's memory, as fast as a data set can be: what is left is the trainer's own work."

    def __init__(self, count: int, size: int, device):
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(0, 256, (min(count, 512), 3, size, size), generator=generator, dtype=torch.uint8)
        self.pixels = pixels.to(device)
        self.labels, self.identity = (torch.arange(count) // 4)[:, None], torch.arange(count)
        self.level_names = ("class",)

    def raw(self, indices, draw: int = 0) -> torch.Tensor:
        return self.pixels[(torch.as_tensor(indices) % len(self.pixels)).to(self.pixels.device)]

    def workers(self, wanted: int) -> int:
        return 1


def _trainer(device, tiny: bool, steps: int, data, folder: Path):
    "The trainer of `smoothap train`, on pictures of our own."
    from smoothap_nb.data.sampling import MPerClassSampler
    from smoothap_nb.train.config import experiment_from_dict
    from smoothap_nb.train.loop import BatchPlan
    from smoothap_nb.train.setup import prepare

    experiment = experiment_from_dict(
        {
            "name": "throughput",
            "checkpoint_minutes": 0.0,
            "data": {"name": "glyphs", "size": 32},
            "model": {"backbone": "resnet18" if tiny else "resnet50", "dim": 32 if tiny else 512},
            "batch": {"classes": 4 if tiny else 96, "images": 4},
            "optim": {"steps": steps, "warmup": 0},
        }
    )
    folder.mkdir()
    training = prepare(experiment, folder, device)
    training.data = data
    training.labels = data.labels  # on the CPU, like those of every data set
    training.plan = BatchPlan(MPerClassSampler(data.labels[:, 0].numpy(), experiment.batch.classes, 4, 0))
    return training


def throughput(source: str):
    """Pictures per second of the trainer on pictures in the device's memory ("device"), from the decoded cache
    ("cache") or from JPEG files ("files"), and of a bare loop of forward, loss, backward and step on a batch that
    lies ready.
    """
    def measure(device, tiny: bool) -> dict:
        import tempfile

        from benchmarks.loading import Photos
        from smoothap_nb.data.cache import DecodedCache
        from smoothap_nb.data.transforms import PhotoTransform
        from smoothap_nb.train.machine import threads

        steps, size, side = (4, 16, 32) if tiny else (40, 384, 224)
        with tempfile.TemporaryDirectory() as folder:
            data = Noise(2 * size, side, device) if source == "device" else Photos(
                Path(folder) / "photos", 2 * size, 60 if tiny else 500, PhotoTransform(side, round(side * 8 / 7))
            )
            if source == "cache":
                data = DecodedCache(data, Path(folder) / "cache", 40 if tiny else 512, threads(), progress=False)
            training = _trainer(device, tiny, 2 * steps, data, Path(folder) / "run")
            return _beside_a_bare_loop(training, steps, size, device)

    return measure


def _beside_a_bare_loop(training, steps: int, size: int, device) -> dict:
    "Pictures per second of both, the loss's share of a bare step, and the share of the time that the trainer waited."
    from smoothap_nb.train.loop import fit

    images, labels = training.data.batch(torch.arange(size))
    images, labels = images.to(device), labels.to(device)

    def bare():
        training.optimizers[0].zero_grad(set_to_none=True)
        training.criterion(training.embed(images), labels).backward()
        for optimizer in training.optimizers:
            optimizer.step()

    def bare_loop():
        for _ in range(steps):
            bare()

    finish = lambda raw: training.data.finish(raw, range(size), 1)
    read = _clock(lambda: training.data.raw(range(size), 1), torch.device("cpu"), 3)  # by one thread
    raw = training.data.raw(range(size), 1)
    carry = _clock(lambda: finish(raw.to(device)), device, 3)
    with torch.no_grad():
        rows = training.embed(images)
    alone = _clock(lambda: training.criterion(rows.detach().requires_grad_(), labels).backward(), device)
    bare()
    step = _clock(bare_loop, device, 1) / steps
    _run_until(training, steps // 2)
    _wait(device)
    training.save = lambda together=True: None  # a run writes one checkpoint at its end, not one in 40 steps
    start, done, waited = time.perf_counter(), training.step, training.waited
    fit(training, progress=False, tensorboard=False)
    _wait(device)
    spent = time.perf_counter() - start
    ours = spent / (training.step - done)
    return {
        "images per second": size / ours,
        "bare loop": size / step,
        "share of the bare loop": step / ours,
        "loss's share of a bare step": alone / step,
        "share of the time waiting for pictures": (training.waited - waited) / spent,
        "ms of reading a batch, one thread": 1e3 * read,
        "ms of carrying and finishing it": 1e3 * carry,
    }


def _run_until(training, step: int) -> None:
    "The first steps, so that what is timed is not the start."
    from smoothap_nb.train.loop import advance

    while training.step < step:
        images, labels, _ = training.fetch(training.step)
        advance(training, images, labels)


def caching(device, tiny: bool) -> dict:
    "Peak memory and time of one gradient of a batch of 4,096, 128 images at a time, and of 384 images at once."
    from smoothap_nb import SmoothAPLoss
    from smoothap_nb.train.config import ModelConfig
    from smoothap_nb.train.large_batches import cached_backward
    from smoothap_nb.train.models import EmbeddingModel

    size, micro, once, side = (32, 8, 8, 32) if tiny else (4096, 128, 384, 224)
    model = (
        EmbeddingModel(
            ModelConfig(backbone="resnet18" if tiny else "resnet50", dim=512, batch_norm="frozen_statistics")
        )
        .to(device)
        .train()
    )
    loss, images, labels = (
        SmoothAPLoss(),
        torch.rand(size, 3, side, side, device=device),
        torch.arange(size, device=device) // 4,
    )
    precision = torch.bfloat16 if device.type == "cuda" else torch.float32

    def embed(part):
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            return model(part)

    def direct():
        model.zero_grad()
        loss(embed(images[:once]), labels[:once]).backward()

    def cached():
        model.zero_grad()
        cached_backward(embed, images, micro, lambda rows: loss(rows, labels))

    return {
        f"direct, batch {once}, MB": _peak(direct, device),
        f"cached, batch {size}, MB": _peak(cached, device),
        f"direct, batch {once}, s": _clock(direct, device, 1),
        f"cached, batch {size}, s": _clock(cached, device, 1),
    }


# --- whole commands -------------------------------------------------------------------------------------------------

def demo(device, tiny: bool) -> dict:
    "`smoothap train demo-cuda`, to its report."
    import contextlib
    import io
    import tempfile

    from smoothap_nb.cli.commands import app
    from typer.main import get_command

    small = {"optim.steps": 2, "optim.warmup": 0, "batch.classes": 4, "model.dim": 16, "evaluate.classes": 12}
    words = ["train", "demo-cuda", "--quiet", *(["--cpu"] if device.type == "cpu" else [])]
    words += [f"--set={key}={value}" for key, value in small.items()] if tiny else []
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with contextlib.redirect_stdout(io.StringIO()):
            get_command(app)([*words, "--run", str(run)], standalone_mode=False)
        record = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
        if not (run / "report.html").is_file():
            raise RuntimeError("smoothap train demo-cuda wrote no report")
    return {**record["metrics"]["trained"], "seconds of training": record["training"]["seconds"]}


def one_row_of_a_table(device, tiny: bool) -> dict:
    "`smoothap reproduce sop/smooth-ap-bs384` and a hierarchical loss, on miniatures: from pictures to metrics."
    from smoothap_nb.reproduction import reproduce

    out = {}
    for name in ("sop/smooth-ap-bs384", "dyml-vehicle/happier"):
        found = reproduce(name, miniature=True, progress=False, device=device.type, say=lambda text: None)
        test, values = next(iter(found["metrics"].items()))
        out[f"{name}, {test}, mAP"] = values["mAP"]
    return out
