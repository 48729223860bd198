"""What a CUDA device is asked, the most telling first; stopped at any time, taken up again where it stopped.

    python -m benchmarks.gpu_suite                        everything that docs/results/gpu-suite.json does not hold yet
    python -m benchmarks.gpu_suite --minutes 9            start nothing that would not be done by then
    python -m benchmarks.gpu_suite --out FILE.json        another results file
    python -m benchmarks.gpu_suite --list                 the rows, and whether they are there
    python -m benchmarks.gpu_suite --only glyphs/         rows whose name holds this text
    python -m benchmarks.gpu_suite --tiny --out FILE      toy sizes, on a CPU too: shows that everything runs, measures
    nothing

Needs torch, torchvision and this package; rows that need more (pytest, pytorch-metric-learning) say so and are left out
where it is missing.
Without a CUDA device every row is written as not run. `smoothap reproduce --render` puts the rows on
docs/reproduction.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "results" / "gpu-suite.json"


class NotHere(RuntimeError):
    "A row that this machine cannot measure; the message is the reason."


@dataclass(frozen=True)
class Item:
    "One row: `measure(device, tiny)` returns its numbers, or a whole row for runs on Glyphs."

    name: str
    measure: Callable
    seconds: float = 20  # guess of what it takes on a recent device, for --minutes
    config: dict | None = None


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


def _losses(classes: int, dim: int) -> dict:
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
    for name, loss in _losses(size // 4, dim).items():
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
    "The tests marked cuda."
    if importlib.util.find_spec("pytest") is None:
        raise NotHere("needs pytest")
    if device.type != "cuda":
        raise NotHere("needs a CUDA device")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider", "--override-ini=addopts="],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    counts = {
        word: int(number) for number, word in __import__("re").findall(r"(\d+) (passed|failed|skipped|error)", last)
    }
    if not counts:
        raise NotHere(f"pytest said: {(done.stdout + done.stderr)[-200:]!r}")
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
        for name, loss in _losses(B // 4, dim).items():
            loss, wanted = loss.to(device), labels if getattr(loss, "hierarchical", False) else labels[:, -1]

            def step():
                loss(rows.clone().requires_grad_(), wanted).backward()

            out[f"{name} ms"], out[f"{name} MB"] = 1e3 * _clock(step, device, 3 if tiny else 7), _peak(step, device)
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

class Photographs:
    "A data set of noise in memory, as fast as a data set can be: what is left is the trainer's own work."

    def __init__(self, count: int, size: int, device):
        generator = torch.Generator().manual_seed(0)
        self.pixels = torch.randint(
            0, 256, (min(count, 512), 3, size, size), generator=generator, dtype=torch.uint8
        ).to(device)
        self.labels = (torch.arange(count) // 4)[:, None]

    def __len__(self) -> int:
        return len(self.labels)

    def workers(self, wanted: int) -> int:
        return 1

    def batch(self, indices, draw: int = 0):
        indices = torch.as_tensor(indices)
        return self.pixels[(indices % len(self.pixels)).to(self.pixels.device)].float() / 255, self.labels[indices]


def _trainer(device, tiny: bool, steps: int, folder):
    "The trainer of `smoothap train`, on `Photographs`."
    from smoothap_nb.train.config import experiment_from_dict
    from smoothap_nb.data.sampling import MPerClassSampler
    from smoothap_nb.train.loop import BatchPlan
    from smoothap_nb.train.setup import prepare

    experiment = experiment_from_dict(
        {
            "name": "throughput",
            "checkpoint_every": 10**6,
            "data": {"name": "glyphs", "size": 32},
            "model": {"backbone": "resnet18" if tiny else "resnet50", "dim": 32 if tiny else 512},
            "batch": {"classes": 4 if tiny else 96, "images": 4},
            "optim": {"steps": steps, "warmup": 0},
        }
    )
    training = prepare(experiment, folder, device)
    size = experiment.batch.classes * 4
    training.data = Photographs(2 * size, 32 if tiny else 224, device)
    training.labels = training.data.labels  # on the CPU, like those of every data set
    training.plan = BatchPlan(MPerClassSampler(training.data.labels[:, 0].numpy(), experiment.batch.classes, 4, 0))
    return training


def throughput(device, tiny: bool) -> dict:
    """Images per second of the trainer, and of a bare loop of forward, loss, backward and step on a batch that lies
    ready.
    """
    import tempfile

    from smoothap_nb.train.loop import fit

    steps, size = (4, 16) if tiny else (40, 384)
    with tempfile.TemporaryDirectory() as folder:
        training = _trainer(device, tiny, 2 * steps, Path(folder))
        images, labels = training.data.batch(torch.arange(size))
        labels = labels.to(device)

        def bare():
            training.optimizers[0].zero_grad(set_to_none=True)
            training.criterion(training.embed(images), labels).backward()
            for optimizer in training.optimizers:
                optimizer.step()

        def bare_loop():
            for _ in range(steps):
                bare()

        bare()
        once = _clock(bare_loop, device, 1)
        _run_until(training, steps // 2)
        _wait(device)
        start = time.perf_counter()
        done = training.step
        fit(training, progress=False, tensorboard=False)
        _wait(device)
        ours = (time.perf_counter() - start) / (training.step - done)
    return {
        "images per second": size / ours,
        "bare loop": size * steps / once,
        "share of the bare loop": once / steps / ours,
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


# --- Glyphs -----------------------------------------------------------------------------------------------------------

def glyph_run(run):
    "One run of the papers' claims on Glyphs; its whole row."
    def measure(device, tiny: bool, rows: dict) -> dict:
        from smoothap_nb.checks import ConfigError
        from smoothap_nb.reproduction import glyph_experiment, run_glyphs

        changes = (
            {
                "model.backbone": "resnet18",
                "model.dim": 16,
                "data.size": 32,
                "batch.classes": 4,
                "batch.images": 4,
                "optim.steps": 1,
                "optim.warmup": 0,
                "evaluate.classes": 12,
            }
            if tiny
            else {}
        )
        try:
            experiment = glyph_experiment(run, rows, "cuda", changes)
        except ConfigError as error:
            raise NotHere(str(error)) from None
        if "pml." in json.dumps(experiment.loss) and importlib.util.find_spec("pytorch_metric_learning") is None:
            raise NotHere("needs pytorch-metric-learning")
        return run_glyphs(run, experiment, device.type)

    return measure


# --- the list ---------------------------------------------------------------------------------------------------------

def items() -> list[Item]:
    "Everything, the most telling first."
    from benchmarks.evaluation import INATURALIST, SOP
    from smoothap_nb.reproduction import glyph_runs

    glyphs = [Item(run.name, glyph_run(run), 5 + 0.03 * run.steps, {"run": run.name}) for run in glyph_runs("cuda")]
    return [
        Item("parity/losses", parity_of_losses, 15),
        Item("parity/metrics", parity_of_metrics, 15),
        Item("parity/pytest -m cuda", parity_by_pytest, 90),
        Item("loss/batch 384", time_of_losses(384), 15, {"B": 384, "dim": 512}),
        Item("training/ResNet-50, 224 px, bfloat16, batch 384", throughput, 60),
        Item("training/gradient caching, ResNet-50, 224 px", caching, 60),
        Item("loss/batch 4096", time_of_losses(4096), 40, {"B": 4096, "dim": 512}),
        *(
            Item(f"list/RaMBO, {n:.0e} scores".replace("e+0", "e"), time_of_list(n), 15, {"length": n})
            for n in (10**5, 10**6, 10**7, 10**8)
        ),
        Item("evaluation/shape of SOP", time_of_evaluation(**SOP), 40, SOP),
        Item("evaluation/shape of iNaturalist", time_of_evaluation(**INATURALIST), 90, INATURALIST),
        *glyphs,
    ]


def measure_items(
    path: Path = FILE, device: str | None = None, minutes: float = 0, only: str = "", tiny: bool = False, say=print
) -> dict:
    """Measure what is not in the file yet, row by row.

    Args:
        path: the results file; written after every row.
        device: "cuda" or "cpu"; the latter only makes sense with `tiny`.
        minutes: start nothing that is guessed to end later than this; 0 = no limit.
        only: rows whose name holds this text.
        tiny: toy sizes.
        say: called with lines of text.

    Returns:
        the rows of the file.

    Raises:
        ConfigError: a damaged results file.
    """
    from smoothap_nb.checks import ConfigError
    from smoothap_nb.reproduction import read_rows
    from smoothap_nb.files import write_atomic
    from smoothap_nb.train.machine import environment

    rows, trouble = read_rows(path)
    if trouble:
        raise ConfigError(f"{trouble[0]}. Mend it or move it away: its rows would be lost")
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    wanted, started = [item for item in items() if only in item.name], time.perf_counter()
    for item in wanted:
        if rows.get(item.name, {}).get("metrics"):
            continue
        if minutes and time.perf_counter() - started + item.seconds > 60 * minutes:
            say(f"stopped before {item.name}: {minutes:g} minutes are nearly over. The same command goes on from here")
            break
        here = {
            "seed": 0,
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "environment": environment(device),
            "config": item.config or {},
            "tiny": tiny,
        }
        begun = time.perf_counter()
        try:
            if device.type == "cpu" and not tiny:
                raise NotHere("needs a CUDA device")
            glyph = "run" in (item.config or {})
            found = item.measure(device, tiny, rows) if glyph else {"metrics": item.measure(device, tiny)}
            rows[item.name] = {**here, **found, "seconds": round(time.perf_counter() - begun, 1)}
        except (RuntimeError, ValueError) as error:  # one row that fails, or does not fit, must not end the list
            rows[item.name] = {"metrics": {}, "not_run": (str(error).splitlines() or [type(error).__name__])[0]}
        order = dict.fromkeys([*(i.name for i in items()), *rows])
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(
            path,
            json.dumps({"rows": {name: rows[name] for name in order if name in rows}}, indent=1, ensure_ascii=False)
            + "\n",
        )
        row = rows[item.name]
        say(
            f"{item.name}: "
            + (", ".join(f"{k} {v:.4g}" for k, v in row["metrics"].items()) or f"not run, {row['not_run']}")
        )
    return rows


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_suite", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, default=0, help="start nothing that would end later than this; 0 = no limit"
    )
    parser.add_argument("--out", type=Path, default=FILE, help="results file (default: docs/results/gpu-suite.json)")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--tiny", action="store_true", help="toy sizes, on a CPU too")
    parser.add_argument("--list", action="store_true", help="print the rows and stop")
    args = parser.parse_args(argv)
    if args.tiny and args.out == FILE:
        parser.error("--tiny numbers mean nothing: give them a file of their own with --out")
    from smoothap_nb.checks import ConfigError
    from smoothap_nb.reproduction import read_rows

    if args.list:
        rows, trouble = read_rows(args.out)
        for item in items():
            if args.only in item.name:
                print(f"{'there' if rows.get(item.name, {}).get('metrics') else 'not run':<9}{item.name}")
        print("\n".join(trouble))
        return 0
    try:
        measure_items(
            args.out, "cpu" if args.tiny and not torch.cuda.is_available() else None, args.minutes, args.only, args.tiny
        )
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
