"""The clock held against a training step or a long list."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..checks import ConfigError
from .recipes import Entry

if TYPE_CHECKING:
    import torch

__all__ = ['measure_times']


def measure_times(entry: Entry, miniature: bool = False, device="cpu", repeat: int = 5) -> dict[str, float]:
    """The clock held against a training step (Smooth-AP, Table S1) or against long lists (RaMBO, Table 6).

    Args:
        entry: of the registry, with `measure` "step" or "list".
        miniature: toy sizes; the numbers mean nothing.
        device: for "step"; a "list" names its own.
        repeat: the median of so many runs counts.

    Returns:
        milliseconds ("backbone time (ms)", "loss time (ms)") of one iteration with 112 images, or seconds by length
        of the list.

    Raises:
        ConfigError: the entry needs a CUDA device and there is none.
    """
    import torch

    device = torch.device(entry.settings.get("device", device))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"{entry.name} needs a CUDA device")
    clock = partial(_seconds, device=device, repeat=repeat)
    return _lists(miniature, device, clock) if entry.measure == "list" else _step(entry, miniature, device, clock)


def _seconds(call: Callable[[], None], device: torch.device, repeat: int) -> float:
    "The median of some runs after one that does not count, each waited for."
    import statistics

    import torch

    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    taken = []
    for _ in range(repeat + 1):
        wait()
        start = time.perf_counter()
        call()
        wait()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:])


def _lists(miniature: bool, device: torch.device, clock: Callable) -> dict[str, float]:
    "Seconds of the blackbox AP and its gradient, by length of the list."
    import torch

    from ..losses.blackbox import blackbox_ap

    def once(scores, relevance):
        blackbox_ap(scores.requires_grad_(), relevance, lam=4.0, margin=0.02).sum().backward()

    generator = torch.Generator().manual_seed(0)
    lengths = {"1k": 1000, "10k": 10_000} if miniature else {"100k": 10**5, "1M": 10**6, "10M": 10**7, "100M": 10**8}
    out = {}
    for label, length in lengths.items():
        scores = torch.rand(1, length, generator=generator)
        relevance = torch.rand(1, length, generator=generator) < 0.01
        relevance[0, 0] = True
        out[label] = clock(partial(once, scores.to(device), relevance.to(device)))
    return out


def _step(entry: Entry, miniature: bool, device: torch.device, clock: Callable) -> dict[str, float]:
    "Milliseconds of the network and of the loss in one training step."
    import torch

    from smoothap_nb import FastAPLoss, RecallLoss, SmoothAPLoss

    from ..train.config import ModelConfig
    from ..train.models import EmbeddingModel

    settings = dict(entry.settings["loss"])
    kind = {"smooth_ap": SmoothAPLoss, "fast_ap": FastAPLoss, "recall": RecallLoss}[settings.pop("name")]
    loss, batch, side = kind(**settings), 16 if miniature else 112, 32 if miniature else 224
    model = EmbeddingModel(ModelConfig(backbone="resnet18" if miniature else "resnet50", dim=512)).to(device).train()
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(batch, 3, side, side, generator=generator).to(device)
    labels = torch.arange(batch, device=device) // 4
    embeddings = torch.nn.functional.normalize(torch.randn(batch, 512, generator=generator), dim=1).to(device)
    return {
        "backbone time (ms)": 1e3 * clock(lambda: model(images).sum().backward()),
        "loss time (ms)": 1e3 * clock(lambda: loss(embeddings.requires_grad_(), labels).backward()),
    }
