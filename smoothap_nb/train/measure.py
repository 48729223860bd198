"""Measure a finished run on held-out classes, beside raw pixels and the network before training; or embeddings from
files.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm.auto import tqdm

from ..checks import ConfigError
from ..data.protocols import Protocol, evaluate_protocols
from ..data.readers import dataset_info
from ..data.embedding_files import read_embeddings, read_labels
from ..metrics.dataset import evaluate
from ..files import write_atomic
from .config import load_experiment
from .embedding import embed
from .machine import environment, pick_device, place, threads
from .models import EmbeddingModel
from .runs import load_run, read_log

__all__ = [
    "COMPETITORS",
    "pixel_embeddings",
    "images_of_classes",
    "protocols_of",
    "starts",
    "measure",
    "default_metrics",
    "measure_files",
]


def pixel_embeddings(data, indices, batch: int = 256, side: int = 32) -> Tensor:
    "(N, D) raw pixels, pictures larger than `side` shrunk to it, each picture's mean taken out, rows of length 1."
    rows = []
    for part in torch.as_tensor(indices).split(batch):
        images = data.batch(part, draw=0)[0].float().cpu()
        rows.append(
            (F.interpolate(images, (side, side), mode="area") if images.shape[-1] > side else images).flatten(1)
        )
    pixels = torch.cat(rows)
    return F.normalize(pixels - pixels.mean(1, keepdim=True), dim=1)


def images_of_classes(data, classes: int, seed: int) -> Tensor:
    """Indices of the images of `classes` held-out classes, the first ones of a seeded shuffle; all images where
    `classes` is 0.
    """
    fine = data.labels[:, -1]
    known = fine.unique()
    if classes == 0 or classes >= len(known):
        return torch.arange(len(fine))
    chosen = known[torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))[:classes]]
    return torch.isin(fine, chosen).nonzero()[:, 0]


COMPETITORS = ("raw pixels", "untrained", "start", "trained")  # "start" where a network does not start from nothing


def protocols_of(experiment) -> list[Protocol]:
    """The protocols of the experiment's data set, with the experiment's metrics and, where it asks for fewer test
    classes, those alone.
    """
    info, settings = dataset_info(experiment.data.name), experiment.evaluate
    protocols = info.protocols(experiment.data.folder, experiment.data, info.pictures_seed(experiment.seed))
    metrics = tuple(dict.fromkeys([*settings.metrics, "mAP"]))
    few = lambda p: (
        p.queries.subset(images_of_classes(p.queries, settings.classes, experiment.seed))
        if settings.classes and p.gallery is None and p.groups is None
        else p.queries
    )
    return [replace(p, metrics=metrics, queries=few(p)) for p in protocols]


def _once(how):
    "The same, remembering what it gave for each set of images."
    known = {}

    def remembered(images):
        if id(images) not in known:
            known[id(images)] = images, how(images)
        return known[id(images)][1]

    return remembered


def starts(experiment, device) -> dict[str, EmbeddingModel]:
    """The network before its training: with random weights ("untrained"); and, where it starts from others, the
    features that those bring, with nothing random above them ("start").

    Args:
        experiment: settings of the run.
        device: where the networks are put.
    """
    weights = experiment.model.weights
    torch.manual_seed(experiment.seed)
    found = {"untrained": EmbeddingModel(replace(experiment.model, weights="none"))}
    if weights != "none":
        found["start"] = start = EmbeddingModel(experiment.model)
        start.head = torch.nn.Identity()
        if weights == "glyphs":  # the last stage is random: the map before it, every place of it
            start.backbone.layer4, start.pool = torch.nn.Identity(), torch.nn.Flatten()
    return {name: place(model, device).eval() for name, model in found.items()}


def measure(run, progress: bool = True) -> tuple[dict, dict]:
    """Measure a finished run on held-out classes; writes `metrics.json`.

    Args:
        run: the folder that `smoothap train` wrote.
        progress: show bars.

    Returns:
        the record (metrics of each competitor, counts, environment), and what the report draws from: indices,
        labels, embeddings, per-query AP.

    Raises:
        RunError: a run that is not finished or damaged.
    """
    run = Path(run)
    device = pick_device()
    model, _ = load_run(run, device)
    experiment = load_experiment(str(run / "experiment.toml"))
    settings, wanted = experiment.evaluate, experiment.data.workers or threads()

    def rows_of(network, what: str):
        "How a network embeds a data set, with the threads that are worth having for it."
        return lambda images: embed(
            network, images, None, settings.batch, progress, f"embedding, {what}", images.workers(wanted)
        )

    competitors = {"trained": rows_of(model, "trained")}
    if settings.baselines:
        before = {name: rows_of(network, name) for name, network in starts(experiment, device).items()}
        pixels = {"raw pixels": lambda images: pixel_embeddings(images, torch.arange(len(images)))}
        competitors = pixels | before | competitors
    protocols = protocols_of(experiment)
    metrics, per_query, embeddings, gallery = {}, {}, {}, {}
    queries, answers = protocols[0].queries, protocols[0].gallery
    for name, how in competitors.items():
        rows = _once(how)
        found = evaluate_protocols(protocols, rows, progress=False, device=device)
        metrics[name] = (
            found.popitem()[1]
            if len(found) == 1
            else {f"{test} {key}": value for test, values in found.items() for key, value in values.items()}
        )
        # what the report draws: the first test, every image ranked by itself
        per_query[name] = torch.as_tensor(
            replace(protocols[0], groups=None, draws=0).evaluate(
                rows, ("mAP",), per_query=True, progress=False, device=device
            )["per_query"]["mAP"]
        )
        embeddings[name], gallery[name] = rows(queries), None if answers is None else rows(answers)
    indices, labels = torch.arange(len(queries)), queries.labels.cpu()
    record = {
        "experiment": experiment.name,
        "seed": experiment.seed,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "test_images": len(indices),
        "test_classes": len(labels[:, -1].unique()),
        "metrics": metrics,
        "training": json.loads((run / "run.json").read_text()) if (run / "run.json").exists() else {},
        "environment": environment(device),
        "config": experiment.to_dict(),
    }
    try:
        write_atomic(run / "metrics.json", json.dumps(record, indent=1) + "\n")
    except OSError as error:  # a run on a read-only disk is worth its numbers all the same
        tqdm.write(f"{run / 'metrics.json'} is not written: {error.strerror or error}", file=sys.stderr)
    shown = {"data": queries, "indices": indices, "labels": labels, "embeddings": embeddings, "per_query": per_query}
    shown["log"] = read_log(run)
    if answers is not None:
        shown |= {"answers": answers, "gallery": gallery}
    return record, shown


def default_metrics(labels: np.ndarray, gallery: int) -> tuple[str, ...]:
    """What is measured when nobody says: mAP, R@K up to the gallery's size, mAP@R; and what needs levels, where
    there are levels.
    """
    cuts = tuple(f"R@{k}" for k in (1, 10, 100, 1000) if k < gallery)
    levels = labels.shape[1] if labels.ndim > 1 else 1
    return ("mAP", *cuts, "mAP@R") + (
        tuple(f"AP@level{i + 1}" for i in range(levels)) + ("H-AP", "ASI", "NDCG") if levels > 1 else ()
    )


def measure_files(
    embeddings, labels=None, gallery=None, gallery_labels=None, metrics=(), progress: bool = True, **settings
) -> tuple[dict, dict]:
    """Measure embeddings from files.

    Args:
        embeddings: a `.npy` or `.safetensors` file.
        labels: a `.npy` or `.csv` file; may be left out where the safetensors file holds labels.
        gallery, gallery_labels: the same for a separate gallery.
        metrics: names as in `evaluate`; `default_metrics` when empty.
        progress: show a bar.
        **settings: further arguments of `evaluate` (ties, memory, alpha, normalize, ...).

    Returns:
        the record, ready for JSON, and the per-query values with the (Q,) fine labels.

    Raises:
        ConfigError, ValueError: a file or a number that does not fit, named.
    """
    rows, known = read_embeddings(embeddings)
    labels = read_labels(labels) if labels is not None else known
    if labels is None:
        raise ConfigError(f"{embeddings} holds no labels: pass a .npy or .csv file with them (--labels)")
    references, reference_labels = (None, None) if gallery is None else read_embeddings(gallery)
    if gallery is not None:
        reference_labels = read_labels(gallery_labels) if gallery_labels is not None else reference_labels
        if reference_labels is None:
            raise ConfigError(f"{gallery} holds no labels: pass a .npy or .csv file with them (--gallery-labels)")
    size = len(rows) - 1 if references is None else len(references)
    metrics = tuple(metrics) or default_metrics(labels, size)
    found = evaluate(
        rows,
        labels,
        references,
        reference_labels,
        metrics=tuple(dict.fromkeys([*metrics, "mAP"])),
        per_query=True,
        progress=progress,
        **settings,
    )
    per_query = found.pop("per_query")
    record = {
        "embeddings": str(embeddings),
        "queries": len(rows),
        "gallery": size if references is None else len(references),
        "settings": settings,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "metrics": {k: found[k] for k in (*metrics, "queries_skipped")},
        "environment": environment(torch.device("cpu")),
    }
    return record, {
        "per_query": per_query,
        "fine": torch.as_tensor(labels if labels.ndim == 1 else labels[:, -1].copy()),
    }
