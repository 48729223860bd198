"""Which classes are held back while a run trains, how they are measured, and which weights are kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..checks import ConfigError
from ..data.settings import DataConfig
from ..metrics.dataset import evaluate
from ..files import write_atomic
from .checkpoints import read_weights, save_model
from .config import ValidateConfig
from .faults import finite_weights
from .runs import RunLog
from .state import Training

__all__ = ['set_aside', 'look', 'patience_is_over', 'finish']


def set_aside(
    wanted: ValidateConfig, pictures: DataConfig, data, seed: int = 0, device: torch.device | None = None
) -> tuple[Tensor | None, list]:
    """Choose what trains and what is measured meanwhile.

    Args:
        wanted: the [validate] table.
        pictures: the [data] table.
        data: the training pictures.
        seed: of the draw of classes.
        device: that computes the metric; None: the CPU.

    Returns:
        places (M,) of the images that are left for training, None for all; and what is measured on the rest, pairs
        of a name and a function that takes `rows(pictures, places)` -> embeddings and returns the metric.

    Raises:
        ConfigError: a share that leaves fewer than two classes to measure.
    """
    if not wanted.every:
        return None, []
    if wanted.as_paper:
        from ..data.datasets import load_protocols

        root = None if pictures.root == "none" else pictures.root
        return None, [
            (f"{p.name} (test)", partial(_by_protocol, p, wanted.metric, device))
            for p in load_protocols(pictures.name, root, data=pictures)
        ]
    own = data.validation()
    if own is not None:
        return None, [("validation", partial(_alone, own, torch.arange(len(own)), wanted.metric, device))]
    fine = data.labels[:, -1]
    known = fine.unique()
    out = known[
        torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))[: round(wanted.share * len(known))]
    ]
    if len(out) < 2:
        raise ConfigError(
            f"validate.share = {wanted.share:g} sets aside {len(out)} of {len(known)} training classes: at least 2 are "
            f"needed, raise it, or set validate.every = 0"
        )
    away = torch.isin(fine, out)
    return (~away).nonzero()[:, 0], [("validation", partial(_alone, data, away.nonzero()[:, 0], wanted.metric, device))]


def _alone(pictures, places: Tensor, metric: str, device: torch.device | None, rows: Callable) -> float:
    "Every chosen image against all others."
    labels = pictures.labels[places].cpu()
    return evaluate(rows(pictures, places), labels, metrics=(metric,), device=device, progress=False)[metric]


def _by_protocol(protocol, metric: str, device: torch.device | None, rows: Callable) -> float:
    "A benchmark's own test."
    return protocol.evaluate(rows, metrics=(metric,), device=device, progress=False)[metric]


def look(training: Training, log: RunLog | None = None) -> float:
    """Measure the held-out classes, keep the weights if they are the best so far, write a line to `validation.csv`.

    Args:
        training: of `prepare`.
        log: of the run; its TensorBoard gets the value too.

    Returns:
        the metric, a mean where the data have several tests.
    """
    metric = training.experiment.validate.metric
    values = {name: float(measure(training.rows)) for name, measure in training.held_out}
    mean = sum(values.values()) / len(values)
    better = mean > training.best
    training.looks = 0 if better else training.looks + 1
    if better:
        training.best, training.best_step = mean, training.step
    if better:
        finite_weights(training)
    if training.main:
        if better:
            save_model(training.model, training.run, "best.safetensors")
        path, several = training.run / "validation.csv", len(values) > 1
        rows = path.read_text(encoding="utf-8", errors="replace").splitlines()[1:] if path.exists() else []
        place = lambda row: row.split(",", 1)[0]
        kept = [row for row in rows if place(row).isdecimal() and int(place(row)) < training.step]
        head = ",".join(["step", metric, *(f"{metric} {name}" for name in values if several)])
        line = ",".join([str(training.step), f"{mean:.6g}", *(f"{v:.6g}" for v in values.values() if several)])
        write_atomic(path, "\n".join([head, *kept, line]) + "\n")
        if log is not None:
            log.scalar(f"validation/{metric}", mean, training.step)
    return mean


def patience_is_over(training: Training) -> bool:
    "Have there been as many looks without a gain as the experiment bears?"
    return bool(training.experiment.validate.patience) and training.looks >= training.experiment.validate.patience


def finish(training: Training) -> dict:
    """Write `model.safetensors`: the best weights that validation saw, or the last ones where there was none.

    Returns:
        what `run.json` says of the run: steps, seconds, the share of time spent waiting for data, which weights were
        kept and why.
    """
    kept = {"step": training.step, "why": "the last step"}
    if training.best_step >= 0:
        training.model.load_state_dict(read_weights(training.run / "best.safetensors"))
        where = (
            "the TEST set, as public code does"
            if training.experiment.validate.as_paper
            else "held-out training classes"
        )
        kept = {
            "step": training.best_step,
            "why": f"the best {training.experiment.validate.metric} on {where}",
            "value": training.best,
        }
    finite_weights(training)
    if training.main:
        save_model(training.model, training.run)
    return {
        "experiment": training.experiment.name,
        "steps": training.step,
        "seconds": round(training.seconds, 1),
        "waited_for_data": round(training.waited / training.seconds, 4) if training.seconds else 0.0,
        "processes": training.engine.num_processes,
        "weights": kept,
    }
