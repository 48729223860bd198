"""The clock held against a training step or a long list."""

from __future__ import annotations

import time

from ..checks import ConfigError
from .recipes import Entry

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
    import statistics

    import torch

    from ..train.config import ModelConfig
    from ..train.models import EmbeddingModel

    device = torch.device(entry.settings.get("device", device))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"{entry.name} needs a CUDA device")

    def seconds(call) -> float:
        taken = []
        for _ in range(repeat + 1):
            wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
            wait()
            start = time.perf_counter()
            call()
            wait()
            taken.append(time.perf_counter() - start)
        return statistics.median(taken[1:])

    generator = torch.Generator().manual_seed(0)
    if entry.measure == "list":
        from ..losses.blackbox import blackbox_ap

        def once(scores, relevance):
            blackbox_ap(scores.requires_grad_(), relevance, lam=4.0, margin=0.02).sum().backward()

        out = {}
        for label, length in (
            (("1k", 1000), ("10k", 10_000))
            if miniature
            else (("100k", 10**5), ("1M", 10**6), ("10M", 10**7), ("100M", 10**8))
        ):
            scores, relevance = (
                torch.rand(1, length, generator=generator),
                torch.rand(1, length, generator=generator) < 0.01,
            )
            relevance[0, 0] = True
            scores, relevance = scores.to(device), relevance.to(device)
            out[label] = seconds(lambda: once(scores, relevance))
        return out
    import smoothap_nb
    from smoothap_nb import SmoothAPLoss

    settings = dict(entry.settings["loss"])
    kind = {"smooth_ap": SmoothAPLoss, "fast_ap": smoothap_nb.FastAPLoss, "recall": smoothap_nb.RecallLoss}[
        settings.pop("name")
    ]
    loss, batch, side = kind(**settings), 16 if miniature else 112, 32 if miniature else 224
    model = EmbeddingModel(ModelConfig(backbone="resnet18" if miniature else "resnet50", dim=512)).to(device).train()
    images, labels = (
        torch.rand(batch, 3, side, side, generator=generator).to(device),
        torch.arange(batch, device=device) // 4,
    )
    embeddings = torch.nn.functional.normalize(torch.randn(batch, 512, generator=generator), dim=1).to(device)
    return {
        "backbone time (ms)": 1e3 * seconds(lambda: model(images).sum().backward()),
        "loss time (ms)": 1e3 * seconds(lambda: loss(embeddings.requires_grad_(), labels).backward()),
    }
