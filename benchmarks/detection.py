"""What the ranking loss adds to a training step of the small detector (batches of 8 pages, 48 boxes each, 8 classes),
and what it costs on a list as long as those of RaMBO's detector, which the paper puts at 320,000 entries: 8 pictures of
512 boxes and 20 classes make 81,920, and three remembered batches of the same size bring them to 327,680. CPU time of
one thread, the least of several calls."""

from __future__ import annotations

import torch

from benchmarks.harness import Row, not_run, race, wanted
from benchmarks.sorters import cpu_seconds
from smoothap_nb import GlyphPages, MapLoss, small_detector
from smoothap_nb.detection.loss import detection_class_loss

TITLE = "Detection: the price of a ranking loss"


def class_step(loss, weight: float, boxes: int, classes: int, device: str = "cpu"):
    "Forward and backward of the classification loss alone, on random logits of which one box in eight shows an object."
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(boxes, classes + 1, generator=generator).to(device).requires_grad_()
    labels = (
        torch.randint(1, classes + 1, (boxes,), generator=generator) * (torch.rand(boxes, generator=generator) < 0.125)
    ).to(device)

    def call():
        logits.grad = None
        detection_class_loss(logits, labels, loss, cross_entropy=weight).backward()

    return call


def training_step(loss):
    "A whole step of the small detector."
    pages = GlyphPages("train", 8)
    images, targets = map(list, zip(*(pages[number] for number in range(8))))
    torch.manual_seed(0)
    model = small_detector(8, loss).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def call():
        optimizer.zero_grad()
        sum(model(images, targets).values()).backward()
        optimizer.step()

    return call


def rows(tiny: bool = False):
    repeat = 1 if tiny else 9
    if wanted("share of a training step"):
        alone = cpu_seconds(class_step(MapLoss(0.5, 0.0), 0.0, 8 * 48, 8), repeat)
        entropy = cpu_seconds(class_step(None, 1.0, 8 * 48, 8), repeat)
        step = cpu_seconds(training_step(MapLoss(0.5, 0.0)), repeat)
        yield Row(
            "ranking loss, share of a training step",
            100 * alone / step,
            "% of the step",
            "<= 10",
            {"ranking loss": alone, "cross entropy": entropy, "whole step": step},
            {"boxes": 8 * 48, "classes": 8},
        )
    if wanted("320k entries"):
        boxes = 400 if tiny else 4 * 8 * 512
        taken = cpu_seconds(class_step(MapLoss(0.5, 0.0), 0.0, boxes, 20), repeat)
        yield Row(
            "ranking loss, 320k entries, CPU",
            1000 * taken,
            "ms",
            "",
            {"forward and backward": taken},
            {"boxes": boxes, "classes": 20},
            "both terms: twenty lists of 16,384 and one of 327,680",
        )
        name = "ranking loss, 320k entries, GPU"
        if torch.cuda.is_available():
            found = race({"call": class_step(MapLoss(0.5, 0.0), 0.0, boxes, 20, "cuda")}, repeat)["call"]
            yield Row(
                name, 1000 * found, "ms", "<= 5", {"forward and backward": found}, {"boxes": boxes, "classes": 20}
            )
        else:
            yield not_run(name, "needs a CUDA device; the paper says less than 5 ms", "<= 5", "ms")
