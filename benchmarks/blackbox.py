"""One list with 1% positives, forward and backward of 1 - AP, lambda 4, one thread. *Sorting twice* ranks the whole
list by argsort of argsort, forward and backward, which is the published way; both return the same gradient. Memory is
what a call adds to the process at its peak, in units of one float32 list (one unit is the gradient that it returns).
FastAP runs on unit embeddings of 128 dimensions, 4 images per class, 10 bins.

What is left between this and *one sort* of the list, by a profile of a list of a million: placing the marks of the
positives among themselves and in the table (searchsorted) takes over a third, the two walks through the list another
third, joining pieces of lists a seventh. One sort of float32 in numpy uses AVX-512 and moves four bytes a score; the
walks read every score twice and write its gradient."""

from __future__ import annotations

import importlib.util

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import Row, not_run, peak_memory, race, wanted
from smoothap_nb import FastAPLoss, RecallLoss, blackbox_ap, blackbox_ranks

TITLE = "RaMBO and FastAP"
LONG = ("AP, a list of 100,000,000, seconds",)  # --quick leaves this out
LAM, SHARE = 4.0, 0.01


def double_argsort(scores: Tensor) -> Tensor:
    return scores.argsort(dim=-1, descending=True).argsort(dim=-1) + 1


class SortingTwice(torch.autograd.Function):
    "Ranks / length; backward by ranking the moved list."

    @staticmethod
    def forward(ctx, scores, lam):
        found = double_argsort(scores).to(scores.dtype) / scores.shape[-1]
        ctx.save_for_backward(scores, found)
        ctx.lam = lam
        return found

    @staticmethod
    def backward(ctx, grad):
        scores, found = ctx.saved_tensors
        return -(found - double_argsort(scores + ctx.lam * grad).to(scores.dtype) / scores.shape[-1]) / ctx.lam, None


def published_ap_loss(scores: Tensor, relevance: Tensor) -> Tensor:
    "1 - AP of one list, ranking everything twice."
    found = SortingTwice.apply(scores, LAM)[relevance]
    among_positives = double_argsort(scores.detach()[relevance]) / scores.shape[-1]
    return 1 - (among_positives / found).mean()


def one_list(length: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(length)
    relevance = torch.rand(1, length, generator=generator, device=device) < SHARE
    scores = torch.randn(1, length, generator=generator, device=device) * 0.2 + 0.2 * relevance
    return scores.requires_grad_(), relevance


def soft_ranks(scores: Tensor) -> Tensor:
    "torchsort's ranks, 1 for the best."
    import torchsort

    return torchsort.soft_rank(-scores, regularization_strength=0.1) / scores.shape[1]


def step(kind: str, length: int, device: str = "cpu"):
    "One call: forward and backward on a list."
    scores, relevance = one_list(length, device)
    weight = torch.randn(1, length, device=device)
    losses = {
        "ours": lambda: (1 - blackbox_ap(scores, relevance, LAM, margin=0.0)).sum(),
        "sorting twice": lambda: published_ap_loss(scores, relevance),
        "our ranks": lambda: (weight * blackbox_ranks(scores, LAM)).sum(),
        "their ranks": lambda: (weight * SortingTwice.apply(scores, LAM)).sum(),
        "torchsort": lambda: (weight * soft_ranks(scores)).sum(),
    }

    def call():
        scores.grad = None
        losses[kind]().backward()
        return scores.grad

    return call


def prepare(kind: str, length: int):
    call, _ = step(kind, length), step(kind, 100_000)()  # compiled before anybody watches
    return call


def recall_step(kind: str, size: int):
    "A batch of embeddings: our loss on scores, or the published way on the same square scores."
    embeddings, labels = batch(size)
    ours = RecallLoss(LAM, 0.0, reduction="positives", include_query=True)
    relevance = (labels[:, None] == labels).float()

    def published():
        scores = embeddings @ embeddings.T
        ahead = (
            SortingTwice.apply(scores, LAM) * size - double_argsort(scores.detach() * relevance - 9 * (1 - relevance))
        ) * relevance
        return torch.log1p(torch.log1p(ahead)).sum() / relevance.sum()

    def call():
        embeddings.grad = None
        (published() if kind == "sorting twice" else ours(embeddings, labels)).backward()

    return call


def batch(size: int, dim: int = 128) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(size)
    labels = torch.arange(size) // 4
    centres = torch.randn(size // 4, dim, generator=generator)
    rows = centres[labels] + 2 * torch.randn(size, dim, generator=generator)
    return torch.nn.functional.normalize(rows, dim=1).requires_grad_(), labels


def fastap_step(kind: str, size: int):
    embeddings, labels = batch(size)
    if kind == "ours":
        loss = FastAPLoss(10)
    else:
        from pytorch_metric_learning.losses import FastAPLoss as Theirs

        loss = Theirs(num_bins=10)

    def call():
        embeddings.grad = None
        loss(embeddings, labels).backward()

    return call


def rows(tiny: bool):
    for length, target in ((3_000, ""),) if tiny else ((10**5, ">= 5"), (10**6, ">= 5"), (10**7, ">= 10")):
        if wanted(name := f"AP, a list of {length:,}"):
            times = race(
                {kind: step(kind, length) for kind in ("ours", "sorting twice")}, repeat=3 if length > 10**6 else 9
            )
            yield Row(
                name,
                times["sorting twice"] / times["ours"],
                "times faster",
                target,
                times,
                {"length": length, "positives": SHARE},
            )
    length = 3_000 if tiny else 10**6
    if wanted(name := f"Ranks with a gradient on every item, a list of {length:,}"):
        times = race({"ours": step("our ranks", length), "sorting twice": step("their ranks", length)}, repeat=5)
        yield Row(name, times["sorting twice"] / times["ours"], "times faster", "", times, {"length": length})
    length = 3_000 if tiny else 10**5
    if wanted(name := f"Ranks with a gradient on every item, a list of {length:,}, against torchsort"):
        if importlib.util.find_spec("torchsort") is None:
            yield not_run(name, "needs torchsort: pip install torchsort")
        else:
            times = race({"ours": step("our ranks", length), "torchsort": step("torchsort", length)}, repeat=5)
            yield Row(name, times["torchsort"] / times["ours"], "times faster", "", times, {"length": length})
    for length in (3_000,) if tiny else (10**6, 10**7):
        if wanted(name := f"AP, a list of {length:,}, against one sort"):
            plain = one_list(length)[0].detach()
            times = race({"ours": step("ours", length), "one numpy sort": lambda: np.sort(plain.numpy())}, repeat=5)
            yield Row(name, times["ours"] / times["one numpy sort"], "times the sort's time", "", times,
                      {"length": length, "positives": SHARE})
    length = 3_000 if tiny else 10**8
    if wanted(name := f"AP, a list of {length:,}, seconds"):
        times = race({"ours": step("ours", length)}, repeat=1)
        yield Row(
            name,
            times["ours"],
            "s",
            "",
            times,
            {"length": length, "positives": SHARE},
            note="the paper's Table 6 has 36.4 s on one CPU core",
        )
    length = 100_000 if tiny else 10**7
    if wanted(name := f"AP, peak memory for a list of {length:,}"):
        yield Row(
            name,
            peak_memory("benchmarks.blackbox:prepare", kind="ours", length=length) / (4 * length),
            "lists",
            "",
            {},
            {"length": length},
        )
    size = 32 if tiny else 384
    if wanted(name := f"Recall loss on a batch of {size}"):
        times = race({kind: recall_step(kind, size) for kind in ("ours", "sorting twice")})
        yield Row(name, times["sorting twice"] / times["ours"], "times faster", "", times, {"B": size})
    for size in (32,) if tiny else (128, 384):
        if wanted(name := f"FastAP against pytorch-metric-learning, a batch of {size}"):
            times = race({kind: fastap_step(kind, size) for kind in ("ours", "pytorch-metric-learning")})
            yield Row(
                name,
                times["pytorch-metric-learning"] / times["ours"],
                "times faster",
                ">= 1",
                times,
                {"B": size, "bins": 10},
            )
    if wanted(name := "AP, a list of 100,000,000 on a GPU"):
        if tiny or not torch.cuda.is_available():
            yield not_run(name, "needs a CUDA device", "< 0.1", "s")
        else:
            times = race({"ours": step("ours", 10**8, "cuda")}, repeat=5)
            yield Row(name, times["ours"], "s", "< 0.1", times, {"length": 10**8, "positives": SHARE})
