"""Train a detector, predict with it, measure it. Plain file: the loss and the measure are derived in lesson 31."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from ..losses.map_over_classes import MapLoss
from .loss import detection_ap
from .networks import small_detector, voc_detector
from .pages import GlyphPages, PageSettings
from .settings import DetectionExperiment


def detector_for(experiment: DetectionExperiment, classes: int, blank: bool = False) -> nn.Module:
    "The network of an experiment, seeded; `blank` where weights are about to be loaded."
    torch.manual_seed(experiment.seed)
    ranking = (
        None
        if experiment.loss == "cross_entropy"
        else MapLoss(
            experiment.lam, experiment.margin, experiment.interclass, memory=experiment.memory, noise=experiment.noise
        )
    )
    heads = {
        "cross_entropy": 0.0 if experiment.loss == "rambo" else 1.0,
        "scores": None if experiment.scores == "auto" else experiment.scores,
    }
    if experiment.backbone == "small":
        return small_detector(classes, ranking, side=experiment.side, width=experiment.width, **heads)
    return voc_detector(
        classes,
        ranking,
        backbone=experiment.backbone,
        pretrained=experiment.pretrained,
        min_size=experiment.min_size,
        max_size=experiment.max_size,
        blank=blank,
        **heads,
    )


def data_for(experiment: DetectionExperiment) -> tuple:
    "What an experiment is trained on and what it is measured on."
    if experiment.data == "pages":
        settings = PageSettings(side=experiment.side)
        return GlyphPages("train", experiment.pages, 0, settings), GlyphPages(
            experiment.test_split, experiment.test_pages, 0, settings
        )
    from .voc import VOCFolder

    return VOCFolder(experiment.root, experiment.train), VOCFolder(experiment.root, experiment.test)


def optimizer_for(
    experiment: DetectionExperiment, model: nn.Module, per_epoch: int
) -> tuple[torch.optim.Optimizer, Callable[[int], float], int]:
    "The optimiser, the learning rate's share of its peak at each step, and the number of steps."
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if experiment.optimizer == "sgd":
        optimizer = torch.optim.SGD(weights, experiment.lr, momentum=0.9, weight_decay=experiment.weight_decay)
    else:
        optimizer = torch.optim.AdamW(weights, experiment.lr, weight_decay=experiment.weight_decay)
    unit = per_epoch if experiment.epochs else 1
    steps = experiment.epochs * per_epoch or experiment.steps

    def share(step: int) -> float:
        warm = min(1.0, (step + 1) / max(1, experiment.warmup))
        if experiment.schedule == "cosine":
            return warm * 0.5 * (1 + math.cos(math.pi * step / steps))
        return warm * 0.1 ** sum(step >= milestone * unit for milestone in experiment.milestones)

    return optimizer, share, steps


def check_target(image: Tensor, target: dict[str, Tensor], classes: int, name: str) -> None:
    """Refuse a picture whose objects could not be trained on.

    Args:
        image: (3, H, W).
        target: "boxes" (n, 4) and "labels" (n,); n may be 0.
        classes: their number.
        name: what the picture is called in the message.

    Raises:
        ValueError: boxes outside the picture, boxes without area, labels outside 1 ... classes.
    """
    boxes, labels = target["boxes"], target["labels"]
    if len(boxes) != len(labels):
        raise ValueError(f"{name}: {len(boxes)} boxes, {len(labels)} labels")
    height, width = image.shape[-2:]
    for number, (x1, y1, x2, y2) in enumerate(boxes.tolist()):
        if not (x2 > x1 and y2 > y1):
            raise ValueError(f"{name}: box {number} has no area: ({x1:g}, {y1:g}) to ({x2:g}, {y2:g})")
        if x1 < 0 or y1 < 0 or x2 > width or y2 > height:
            raise ValueError(
                f"{name}: box {number}, ({x1:g}, {y1:g}) to ({x2:g}, {y2:g}), leaves the picture of "
                f"{width} x {height} pixels"
            )
    if len(labels) and not (1 <= int(labels.min()) and int(labels.max()) <= classes):
        raise ValueError(
            f"{name}: labels must lie in 1 ... {classes} (0 is the background), got {sorted(set(labels.tolist()))}"
        )


def batches(dataset, experiment: DetectionExperiment, steps: int) -> Iterator[tuple[list[Tensor], list[dict]]]:
    "Shuffled batches, pass after pass, the same for the same seed; with `flip`, every second picture mirrored."
    generator = torch.Generator().manual_seed(experiment.seed)
    loader = torch.utils.data.DataLoader(
        dataset,
        experiment.batch,
        shuffle=True,
        drop_last=len(dataset) >= experiment.batch,
        generator=generator,
        collate_fn=lambda rows: tuple(zip(*rows)),
        num_workers=experiment.workers if experiment.data == "voc" else 0,
    )
    done = 0
    while done < steps:
        for images, targets in loader:
            if done == steps:
                return
            yield [
                list(part)
                for part in zip(*(_flipped(i, t, experiment.flip, generator) for i, t in zip(images, targets)))
            ]
            done += 1


def _flipped(
    image: Tensor, target: dict[str, Tensor], flip: bool, generator: torch.Generator
) -> tuple[Tensor, dict[str, Tensor]]:
    if not flip or torch.rand((), generator=generator) < 0.5:
        return image, target
    boxes = target["boxes"].clone()
    boxes[:, [0, 2]] = image.shape[-1] - boxes[:, [2, 0]]
    return image.flip(-1), {**target, "boxes": boxes}


def easy_objects(target: dict[str, Tensor], device) -> dict[str, Tensor]:
    "Boxes and labels to train on, without VOC's difficult objects: they become background, as in py-faster-rcnn."
    kept = ~target["difficult"] if "difficult" in target else slice(None)
    return {name: target[name][kept].to(device) for name in ("boxes", "labels")}


def train_detector(
    model: nn.Module,
    dataset,
    experiment: DetectionExperiment,
    tell: Callable[[int, dict[str, float]], None] | None = None,
) -> dict:
    """Train a detector on the device where its weights are.

    Args:
        model: from `detector_for`, or any of torchvision's with `RankedRoIHeads`.
        dataset: gives (image (3, H, W) in [0, 1], target) for 0 ... len - 1; `dataset.classes` are the names.
        experiment: optimiser, schedule, batch, seed.
        tell: called after each step with its number and the parts of the loss.

    Returns:
        "steps", "cpu_seconds" of this process, "seconds".

    Raises:
        ValueError: a target that cannot be trained on, or a loss that is no longer finite.
    """
    device = next(model.parameters()).device
    per_epoch = max(1, len(dataset) // experiment.batch)
    optimizer, share, steps = optimizer_for(experiment, model, per_epoch)
    torch.manual_seed(experiment.seed + 1)  # sampling of proposals
    model.train()
    began, cpu = time.perf_counter(), time.process_time()
    for step, (images, targets) in enumerate(batches(dataset, experiment, steps)):
        for number, (image, target) in enumerate(zip(images, targets)):
            check_target(image, target, len(dataset.classes), f"step {step}, picture {number}")
        kept = [easy_objects(target, device) for target in targets]
        losses = model([image.to(device) for image in images], kept)
        total = sum(losses.values())
        if not torch.isfinite(total):
            raise ValueError(
                f"the loss is {total.item()} at step {step} "
                f"({', '.join(f'{part} {value.item():.3g}' for part, value in losses.items())}): "
                f"lower lr (now {experiment.lr:g}) or clip"
            )
        for group in optimizer.param_groups:
            group["lr"] = experiment.lr * share(step)
        optimizer.zero_grad()
        total.backward()
        if experiment.clip:
            nn.utils.clip_grad_norm_(model.parameters(), experiment.clip)
        optimizer.step()
        if tell is not None:
            tell(step, {name: value.item() for name, value in losses.items()})
    return {"steps": steps, "cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - began}


@torch.no_grad()
def predict(model: nn.Module, dataset, batch: int = 16) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
    """Detections on every picture of a data set, and the targets beside them, on the CPU.

    Args:
        model: a detector; it is put into evaluation mode.
        dataset: as in `train_detector`.
        batch: pictures at a time.

    Returns:
        predictions, targets: a dict per picture each.
    """
    device = next(model.parameters()).device
    model.eval()
    predictions, truth = [], []
    for start in range(0, len(dataset), batch):
        images, targets = zip(*(dataset[number] for number in range(start, min(start + batch, len(dataset)))))
        found = model([image.to(device) for image in images])
        predictions += [{name: value.cpu() for name, value in each.items()} for each in found]
        truth += targets
    return predictions, truth


def measure_detector(model: nn.Module, dataset, batch: int = 16) -> dict:
    """The numbers that a detector is judged by, on a data set.

    Returns:
        "AP50" and "AP75" (all points), "AP50 (11 points)": means over the classes that occur; "per class": AP50 of
        each, None where it does not.
    """
    predictions, targets = predict(model, dataset, batch)
    classes = dataset.classes
    fifty = detection_ap(predictions, targets, len(classes))
    values = {
        "AP50": fifty,
        "AP50 (11 points)": detection_ap(predictions, targets, len(classes), points="11"),
        "AP75": detection_ap(predictions, targets, len(classes), iou=0.75),
    }
    if fifty.isnan().all():
        raise ValueError("no picture of this data set shows an object: there is nothing to measure")
    means = {name: float(value.nanmean()) for name, value in values.items()}
    return means | {"per class": {name: None if value.isnan() else float(value) for name, value in zip(classes, fifty)}}
