"""A small network for a loss of one's own: the thread of the problem sets. The student's function trains it on Glyphs,
and what comes out is looked at: a curve, and ranked rows.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .data.glyphs import Glyphs
from .data.sampling import MPerClassSampler
from .metrics.dataset import evaluate
from .metrics.graded import levels_from_labels

SIDE = 16  # pixels


@dataclass
class Trained:
    """What a training leaves.

    Attributes:
        network: from pictures (N, 1, 16, 16) to rows of length 1.
        steps: at which the network was measured.
        objective: what the student's own function gave there, a mean over batches since the last time.
        map: exact mAP of held-out characters there, in [0, 1].
        family: the same, where every picture of the query's family of characters counts as found.
    """

    network: nn.Module
    steps: list[int]
    objective: list[float]
    map: list[float]
    family: list[float]


class Small(nn.Module):
    "Three convolutions and a projection; 16 x 16 pixels in, a row of length 1 out."

    def __init__(self, width: int = 8, dim: int = 32):
        super().__init__()
        sides = [(1, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2)]
        self.body = nn.Sequential(*(
            layer for i, o, stride in sides
            for layer in (nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        ))
        self.head = nn.Linear(4 * width, dim)

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.normalize(self.head(self.body(images).mean((2, 3))), dim=1)


@functools.cache
def training_data() -> Glyphs:
    "The pictures to learn from; read once."
    return Glyphs("train", size=SIDE)


@functools.cache
def held_out(characters: int = 100) -> tuple[Tensor, Tensor]:
    "Pictures (N, 1, 16, 16) and labels (N, 3) of some characters that no training sees."
    data = Glyphs("val", size=SIDE, seed=0)
    chosen = torch.isin(data.labels[:, -1], data.labels[:, -1].unique()[:characters]).nonzero()[:, 0]
    images, labels = data.batch(chosen)
    return images, labels


def objective_of(
    objective: Callable[[Tensor, Tensor], Tensor], rows: Tensor, labels: Tensor, levels: bool = False
) -> Tensor:
    """What a student's function gives for a batch that ranks itself.

    Args:
        objective: gets scores (N, N - 1), each query's own picture taken out, and relevance (N, N - 1).
        rows: (N, D) of length 1.
        labels: (N, L) whole numbers, coarse to fine.
        levels: relevance counts the labels that two pictures share from the first on; else it is bool, the same class.

    Raises:
        ValueError: an objective that is no scalar, is not finite, or has no gradient.
    """
    shared = levels_from_labels(labels)
    relevance = shared if levels else shared == labels.shape[1]
    others = ~torch.eye(len(rows), dtype=torch.bool)
    value = objective((rows @ rows.T)[others].view(len(rows), -1), relevance[others].view(len(rows), -1))
    _usable(value)
    return value


def train_with(
    objective: Callable[[Tensor, Tensor], Tensor], *, steps: int = 300, classes: int = 16, images: int = 4,
    rate: float = 1e-2, seed: int = 0, measured: int = 6, levels: bool = False
) -> Trained:
    """Train a small network to raise `objective`, on one core in about half a minute.

    Args:
        objective: gets scores (Q, G) of a batch, each query's own picture taken out, and bool relevance (Q, G);
            returns a scalar to be raised.
        steps: of AdamW, under a cosine schedule. While a notebook is graded there are two: checks are what counts.
        classes: characters in a batch.
        images: pictures of each.
        rate: the largest learning rate.
        seed: of the network and the batches.
        measured: how often the held-out characters are ranked.
        levels: the objective gets levels in place of bool relevance: 3 the same character, 2 the same family, 1 the
            same group, 0 nothing in common.

    Raises:
        ValueError: an objective that is no scalar, is not finite, or has no gradient.
    """
    if os.environ.get("SMOOTHAP_GRADING"):
        steps, measured = 2, 2
    data, (pictures, kinds) = training_data(), held_out()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Small()
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    sampler = MPerClassSampler(data.labels[:, -1].numpy(), classes, images, seed=seed)
    run, recent = Trained(network, [], [], [], []), []
    marks = {round(n * (steps - 1) / (measured - 1)) for n in range(measured)}
    for step, batch in zip(range(steps), _batches(sampler)):
        shown, labels = data.batch(batch[1], draw=batch[0] + 1)
        value = objective_of(objective, network(shown), labels, levels)
        recent.append(float(value.detach()))
        optimizer.zero_grad()
        (-value).backward()
        optimizer.step()
        schedule.step()
        if step in marks:
            run.steps.append(step + 1)
            run.objective.append(sum(recent) / len(recent))
            rows = embed(network, pictures)
            run.map.append(_map(rows, kinds[:, -1]))
            run.family.append(_map(rows, kinds[:, -2]))
            recent = []
    return run


def _batches(sampler: MPerClassSampler):
    number = 0
    while True:
        yield from ((number, batch) for batch in sampler.epoch(number))
        number += 1


def _usable(value) -> None:
    if not torch.is_tensor(value) or value.ndim:
        raise ValueError("the objective must give one number as a tensor: return a mean over queries")
    if not value.requires_grad:
        raise ValueError("the objective has lost its graph: no float(...), .item(), .detach() or numpy on the way")
    if not torch.isfinite(value):
        raise ValueError(f"the objective is {float(value)}: look for a division by 0 or an exp that overflows")


@torch.no_grad()
def embed(network: nn.Module, pictures: Tensor) -> Tensor:
    "Rows of a network in its evaluation mode."
    was = network.training
    rows = torch.cat([network.eval()(part) for part in pictures.split(512)])
    network.train(was)
    return rows


def _map(rows: Tensor, kinds: Tensor) -> float:
    return float(evaluate(rows, kinds, metrics=("mAP",))["mAP"])


def side_by_side(runs: dict[str, Trained]):
    """What several teachers made of the same network: exact mAP of held-out characters, and of their families.

    Args:
        runs: of `train_with`, by what the lines are to be called.

    Returns:
        The figure.
    """
    import matplotlib.pyplot as plt

    from .show.figures import use_style

    use_style()
    figure, panels = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained", sharex=True)
    for axes, measured, title in zip(panels, ("map", "family"), ("the same character", "the same family")):
        for (name, run), line in zip(runs.items(), ("-", "--", ":", "-.") * len(runs)):
            axes.plot(run.steps, getattr(run, measured), line, marker="o", label=name)
        axes.set(xlabel="steps", ylabel="exact mAP, held out", title=title, ylim=(0, None))
    panels[0].legend()
    return figure


def look_at(run: Trained, queries=(0, 40, 80), length: int = 8):
    """The curve of a training, and what the trained network finds for some held-out queries.

    Args:
        run: of `train_with`.
        queries: places in the held-out pictures.
        length: pictures in a row.

    Returns:
        The figure.
    """
    import matplotlib.pyplot as plt

    from .show.figures import ranked_row, role, use_style

    use_style()
    figure = plt.figure(figsize=(8, 2.2 + 1.3 * len(queries)), layout="constrained")
    grid = figure.add_gridspec(1 + len(queries), length + 1, height_ratios=[2.2, *[1.3] * len(queries)])
    curve = figure.add_subplot(grid[0, :])
    curve.plot(run.steps, run.objective, label="your objective, batches", **role("smooth_ap"))
    curve.plot(run.steps, run.map, label="exact mAP, held-out characters", **role("exact"))
    curve.set(xlabel="steps", ylabel="share of 1", ylim=(0, 1))
    curve.legend()
    pictures, characters = held_out()
    characters = characters[:, -1]
    rows = embed(run.network, pictures)
    for n, query in enumerate(queries):
        scores = rows @ rows[query]
        scores[query] = -torch.inf
        best = scores.argsort(descending=True)[:length]
        axes = [figure.add_subplot(grid[1 + n, column]) for column in range(length + 1)]
        ranked_row(pictures[best, 0], characters[best] == characters[query], query=pictures[query, 0], axes=axes)
    return figure
