"""From an experiment's settings to the parts of a run. The settings are read here, and each part is handed its own
table.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from ..checks import ConfigError
from ..data.readers import dataset_info
from ..data.sampling import sampler_from_config
from ..data.settings import BatchConfig, DataConfig
from .config import Experiment
from .loop import BatchPlan, compact_labels, timetable
from .machine import engine_for, pick_device, pick_precision, place, threads
from .models import EmbeddingModel
from .objectives import Objective
from .optimizers import optimizers_for
from .small_maps import for_small_maps
from .state import Training
from .validation import set_aside

__all__ = ['dataset_for', 'prepare']


def dataset_for(pictures: DataConfig, split: str, seed: int = 0):
    """The pictures of a split.

    Args:
        pictures: the [data] table.
        split: "train", "test", or another that the data set has.
        seed: of the experiment; what it decides of the pictures, the data set says (`DatasetInfo.pictures_seed`).

    Returns:
        a data set with `batch(indices, draw)` and `labels` (N, L).
    """
    info = dataset_info(pictures.name)
    data = info.load(split, pictures.folder, pictures, info.pictures_seed(seed))
    if split != "train" or pictures.cache == "none" or info.in_memory:
        return data
    from ..data.cache import DecodedCache

    return DecodedCache(
        data,
        Path(pictures.cache) / f"{pictures.name}-{split}",
        max(pictures.size, pictures.cache_side),
        pictures.workers or threads(),
        damaged_share=pictures.damaged_share,
    )


def _check_batch(batch: BatchConfig, batch_norm: str, processes: int) -> None:
    "Refuse what no batch of this run could be."
    if batch.micro and batch_norm == "live" and not batch.micro_with_live_batch_norm:
        raise ConfigError(
            "batch.micro with live batch norm does not give the gradient of the whole batch (lesson 18): set "
            "model.batch_norm = "
            "\"frozen_statistics\", or batch.micro_with_live_batch_norm = true if you want it all the same"
        )
    if processes > batch.classes * batch.images:
        raise ConfigError(
            f"{processes} processes cannot share a batch of {batch.classes} x {batch.images} images: start fewer"
        )


def _divide(
    experiment: Experiment, data, known: torch.Tensor, device: torch.device
) -> tuple[torch.Tensor | None, list, object]:
    "What trains, what is held out, and the batches; all that stands against it is said at once."
    obstacles: list[ValueError] = []
    places, held_out, sampler = None, [], None
    try:
        places, held_out = set_aside(experiment.validate, experiment.data, data, experiment.seed, device)
    except ValueError as error:
        obstacles.append(error)
    try:
        sampler = sampler_from_config(experiment.batch, known if places is None else known[places], experiment.seed)
    except ValueError as error:
        obstacles.append(error)
    if len(obstacles) > 1:
        raise ConfigError("; and ".join(map(str, obstacles)))
    if obstacles:
        raise obstacles[0]
    return places, held_out, sampler


def prepare(experiment: Experiment, run: Path, device: torch.device | None = None) -> Training:
    """Data, batches, model, loss and optimisers of an experiment, seeded and in place.

    Args:
        experiment: what `load_experiment` gives.
        run: the folder that `open_run` made.
        device: CUDA where it works, else the CPU.

    Raises:
        ConfigError, ValueError: a setting that cannot be used, data that do not fit; before any work.
    """
    device = device or pick_device()
    engine = engine_for(cpu=device.type == "cpu")
    device = engine.device if engine.num_processes > 1 else device
    precision = pick_precision(experiment.optim.precision, device)
    Objective(experiment.loss, memory=experiment.memory.size)  # a wrong setting is told before the data are read
    _check_batch(experiment.batch, experiment.model.batch_norm, engine.num_processes)

    data = dataset_for(experiment.data, "train", experiment.seed)
    known = data.labels.cpu()
    places, held_out, sampler = _divide(experiment, data, known, device)
    plan = BatchPlan(sampler, None if places is None else places.numpy())
    labels = compact_labels(known[:, -experiment.data.levels :])  # 0: all levels

    torch.manual_seed(experiment.seed)
    model = EmbeddingModel(experiment.model)
    model = place(for_small_maps(model) if device.type == "cpu" else model, device).train()
    classes = labels.unique(dim=0)
    loss = Objective(
        experiment.loss,
        classes[classes[:, -1].argsort()],
        experiment.model.dim,
        experiment.memory.size,
        experiment.memory.start,
    ).to(device)
    optimizers = optimizers_for(model, loss, experiment.optim)
    model, forward = _connect(
        model, engine, experiment.optim.compile, device.type == "cuda" and experiment.model.batch_norm == "live"
    )
    if device.type == "cuda" and dataset_info(experiment.data.name).in_memory:
        data = data.to(device)  # they are distorted there; photographs are read ahead and copied (`Prefetcher`)
    return Training(
        experiment,
        Path(run),
        data,
        labels,
        plan,
        model,
        forward,
        loss,
        optimizers,
        timetable(experiment.optim, experiment.validate.every, len(sampler)),
        held_out,
        device,
        precision,
        torch.amp.GradScaler(device.type, enabled=precision == torch.float16),
        engine,
    )


def _connect(model: nn.Module, engine, compiled: bool, share_statistics: bool) -> tuple[nn.Module, nn.Module]:
    "The model, and the model as a step calls it: compiled, with processes that exchange gradients."
    several = engine.num_processes > 1
    if several and share_statistics:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    forward = torch.compile(model) if compiled else model
    return model, engine.prepare_model(forward, device_placement=False) if several else forward
