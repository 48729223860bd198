"""Before the first hour on a GPU: steps, pictures, memory and hours of an experiment, by a model whose terms are said;
and the experiment as TOML.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from math import comb

from ..train.config import Experiment, to_toml
from .recipes import Entry, row_name

__all__ = [
    'Card',
    'CARDS',
    'PICTURES_PER_CORE',
    'batches_in_epoch',
    'cost_of',
    'bottleneck',
    'cost_in_words',
    'as_toml',
]


@dataclass(frozen=True)
class Card:
    "A GPU by its data sheet."

    name: str
    half: float  # dense TFLOP/s in 16 bits
    single: float  # TFLOP/s in 32 bits, as torch's convolutions compute them: TF32 where the card has it
    memory: int  # GB
    tensor: bool = True  # are its 32 bits those of tensor cores?

    def reached(self, half: bool) -> float:
        """TFLOP/s that a ResNet reaches in training: a fifth of what tensor cores promise, half of what plain ones
        do. An assumption, good to a factor of two.
        """
        return 0.2 * self.half if half else (0.2 if self.tensor else 0.5) * self.single


CARDS = (
    Card("T4", 65, 8.1, 16, False),
    Card("V100", 125, 15.7, 32, False),
    Card("RTX 4090", 165, 82.6, 24),
    Card("A100", 312, 156, 80),
    Card("H100", 989, 494, 80),
)
PICTURES_PER_CORE = (
    375  # JPEG files of 500 x 400 read and cropped in a second by one core (docs/results/bench_loading.json)
)


def batches_in_epoch(entry: Entry, labels=None) -> tuple[int, bool]:
    """Batches in an epoch of an experiment's sampler.

    Args:
        entry: of the registry.
        labels: (N, L) of the training pictures; None: from the official counts.

    Returns:
        their number, and whether it is exact.
    """
    from ..data.readers import DATASETS
    from ..data.sampling import sampler_from_config

    batch = entry.experiment().batch
    if labels is not None:
        return len(sampler_from_config(batch, labels, 0)), True
    counts = [c for c in DATASETS[entry.settings["data.name"]].counts.get("train", ()) if c.images]
    if not counts:
        return 0, False
    classes = counts[0].classes if isinstance(counts[0].classes, tuple) else (counts[0].classes,)
    if batch.sampler in ("super_pairs", "super_pairs_random", "paired_classes") and len(classes) > 1:
        return comb(classes[0], 2) * batch.per_pair, True
    return max(1, counts[0].images // (batch.classes * batch.images)), False


@cache
def _network(backbone: str, dim: int, size: int, stem: str, pool: str) -> tuple[float, float, float]:
    """GFLOP of a picture's forward pass, MB that a backward pass keeps of it in 32 bits, and millions of numbers;
    computed without a picture.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from ..train.config import ModelConfig
    from ..train.models import EmbeddingModel

    with torch.device("meta"):
        model = EmbeddingModel(
            ModelConfig(backbone=backbone, dim=dim, stem=stem, pool=pool, batch_norm="frozen_statistics")
        ).train()
        picture = torch.rand(2, 3, size, size)
    kept: dict[int, object] = {}

    def pack(tensor):
        if not isinstance(tensor, torch.nn.Parameter):
            kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    with (
        FlopCounterMode(display=False) as counter,
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        model(picture)
    numbers = sum(p.numel() for p in model.parameters())
    return (
        counter.get_total_flops() / 2e9,
        sum(storage.nbytes() for storage in kept.values()) / 2 / 2**20,
        numbers / 1e6,
    )


def cost_of(entry: Entry, experiment: Experiment | None = None, labels=None) -> dict:
    """What an experiment asks for.

    Args:
        entry: of the registry.
        experiment: with settings of one's own; the entry's when left out.
        labels: (N, L) of the training pictures, for the exact length of an epoch.

    Returns:
        steps, exact (whether they are), pictures, gflop (of a picture's forward pass), memory (GB, by lesson 18: what
        is kept for the backward pass of the pictures seen at a time, and weights, gradients and moments), hours by card
        (None where the memory does not suffice), rates (pictures per second that it computes), cores (that have to
        decode to keep up), by card.
    """
    experiment = experiment or entry.experiment()
    optim, batch = experiment.optim, experiment.batch
    length, exact = batches_in_epoch(entry, labels)
    steps = optim.epochs * length if optim.epochs else optim.steps
    images = batch.classes * batch.images
    gflop, kept, numbers = _network(
        experiment.model.backbone,
        experiment.model.dim,
        experiment.data.size,
        experiment.model.stem,
        experiment.model.pool,
    )
    half = optim.precision != "float32"
    seen = min(batch.micro or images, images)
    memory = (
        seen * kept * (0.5 if half else 1.0) + 4 * 4 * numbers
    ) / 1024  # weights, gradients and Adam's two moments: four numbers of 4 bytes
    passes = (
        4 if batch.micro and batch.micro < images else 3
    )  # forward and twice as much backward; gradient caching embeds once more
    hours, rates, cores = {}, {}, {}
    for card in CARDS:
        rate = 1e3 * card.reached(half) / (passes * gflop)  # pictures per second
        hours[card.name] = steps * images / rate / 3600 if memory < 0.9 * card.memory else None
        rates[card.name], cores[card.name] = rate, rate / PICTURES_PER_CORE
    return {
        "steps": steps,
        "exact": exact or not optim.epochs,
        "pictures": steps * images,
        "gflop": gflop,
        "memory": memory,
        "hours": hours,
        "rates": rates,
        "cores": cores,
        "half": half,
    }


def bottleneck(cost: dict, card: str, cores: int) -> tuple[str, float]:
    """What bounds training from JPEG files, and how many pictures a second it lets through.

    Args:
        cost: of `cost_of`.
        card: name out of `CARDS`.
        cores: that read and crop.

    Returns:
        "reading" or "the card", and its pictures per second, the lower of the two.
    """
    return min((cores * PICTURES_PER_CORE, "reading"), (cost["rates"][card], "the card"))[::-1]


def cost_in_words(cost: dict) -> list[str]:
    "The cost as lines of text, with what the numbers rest on."
    about = "" if cost["exact"] else "about "
    lines = [
        f"{about}{cost['steps']:,} steps, {cost['pictures']:,} pictures; about {cost['memory']:.0f} GB on the GPU "
        f"(lesson 18)",
        f"hours on one card in {'16' if cost['half'] else '32'} bits, if it reaches a fifth of what its tensor cores "
        f"promise (half of plain ones); good to a factor of two:",
    ]
    for name, hours in cost["hours"].items():
        took = (
            "does not fit: --set batch.micro=N"
            if hours is None
            else f"{hours:,.0f} h"
            if hours >= 1
            else f"{60 * hours:.0f} min"
        )
        lines.append(f"  {name:<10}{took:<36}{cost['cores'][name]:.1f} cores must decode to keep up")
    lines.append(
        f"(a core reads and crops {PICTURES_PER_CORE} photographs a second; with fewer cores reading is the "
        f"bottleneck, and data.cache = FOLDER helps)"
    )
    return lines


def as_toml(entry: Entry, experiment: Experiment | None = None, cost: dict | None = None) -> str:
    """The experiment as a file that `smoothap train` takes, each setting with its source, the costs on top.

    Args:
        entry: of the registry.
        experiment: with settings of one's own; the entry's when left out.
        cost: of `cost_of`.
    """
    head = [f"# {entry.name} ({entry.kind})", *(f"# for {row_name(row)}" for row in entry.rows)]
    head += [f"# cannot be reproduced here: {entry.obstacle}"] if entry.obstacle else []
    head += [f"# {line}" for line in cost_in_words(cost)] if cost else []
    lines, group = [], ""
    for line in to_toml(experiment or entry.experiment()).splitlines():
        if line.startswith("["):
            group = line.strip("[]")
        key = line.partition(" = ")[0]
        source = entry.sources.get("loss" if group == "loss" and key == "name" else f"{group}.{key}" if group else key)
        lines.append(line + (f"  # {json.dumps(source, ensure_ascii=False)[1:-1]}" if source and " = " in line else ""))
    return "\n".join([*head, "", *lines]) + "\n"
