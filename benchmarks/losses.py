"""Forward and backward of the loss on unit embeddings of 512 dimensions, 4 images per class, tau 0.01, one thread. The
*cubic kind* is written as the published code works: one batch × batch × batch array of differences, a sigmoid with
clamped exponents, masks. The *product* is the one matrix product that turns embeddings into scores, with which all of
these losses begin. Memory is what a call adds to the process at its peak, in units of batch × batch float32 numbers.

With a long memory and tau 0.01 most sigmoids are 0 or 1 to the last bit, so that sorted scores and a window around each
positive would do. The row *sorting first* shows why it is not done: the gradient needs to know where each score came
from, and that sort alone takes longer than the whole inner loop, while a good part of the pairs lies within reach.

*ranks* gives the rank of every item, ties shared; *one sort* is `torch.sort` of the same scores, descending."""

from __future__ import annotations

import math
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness import Row, not_run, peak_memory, race, wanted
from smoothap_nb import EmbeddingMemory, RecallAtKLoss, SmoothAPLoss, average_precision, ranks
from smoothap_nb.losses.gradient import closed_form as torch_closed_form

TITLE = "Smooth-AP: speed and memory"
TAU, PER_CLASS = 0.01, 4
RANKED = {"ranks": "<= 1", "average_precision": ""}  # and their targets


def cubic_smooth_ap_loss(embeddings: Tensor, per_class: int = PER_CLASS, tau: float = TAU) -> Tensor:
    """Smooth-AP the way it was published: everything compared with everything for every query at once. Classes are
    consecutive rows.
    """
    batch, classes = len(embeddings), len(embeddings) // per_class

    def step(gaps):
        return 1 / (1 + torch.exp((-gaps / tau).clamp(-50, 50)))

    def ranks_within(scores, others):
        gaps = scores.unsqueeze(-2) - scores.unsqueeze(-1)
        return 1 + (step(gaps) * others).sum(-1)

    scores = embeddings @ embeddings.T
    others = (1 - torch.eye(batch, device=scores.device)).repeat(batch, 1, 1)
    all_ranks = ranks_within(scores, others)
    groups = embeddings.view(classes, per_class, -1)
    positive_ranks = ranks_within(groups @ groups.transpose(1, 2), others[0, :per_class, :per_class])
    ap = 0.0
    for c in range(classes):
        own = slice(c * per_class, (c + 1) * per_class)
        ap = ap + (positive_ranks[c] / all_ranks[own, own]).mean() / classes
    return 1 - ap


def batch(size: int, dim: int = 512, device: str = "cpu") -> tuple[Tensor, Tensor]:
    "Unit embeddings of loose classes, as in training, and their labels; consecutive rows share a class."
    generator = torch.Generator().manual_seed(size)
    labels = torch.arange(size) // PER_CLASS
    centres = torch.randn(size // PER_CLASS, dim, generator=generator)
    embeddings = F.normalize(centres[labels] + 2 * torch.randn(size, dim, generator=generator), dim=1)
    return embeddings.to(device).requires_grad_(), labels.to(device)


def step(kind: str, size: int, device: str = "cpu"):
    "One call: forward and backward of `kind` on a batch of `size`."
    embeddings, labels = batch(size, device=device)
    if kind == "product":
        plain = embeddings.detach()
        return lambda: plain @ plain.T
    if kind.startswith("products"):  # scores of a batch against itself and a memory, and their way back to the batch
        plain = embeddings.detach()
        others = torch.randn(int(kind.split()[1]), plain.shape[1], device=device)
        gallery = torch.cat([plain, F.normalize(others, dim=1)])
        return lambda: (plain @ gallery.T) @ gallery
    if kind == "cubic":
        loss = lambda embeddings, labels: cubic_smooth_ap_loss(embeddings)  # noqa: E731
    elif kind == "pytorch-metric-learning":
        from pytorch_metric_learning.losses import SmoothAPLoss as Theirs

        loss = Theirs(temperature=TAU)
    elif kind.startswith("memory"):
        loss = EmbeddingMemory(SmoothAPLoss(TAU), size=int(kind.split()[1]))
        while loss.filled < loss.size:  # other classes, as in a training set of many
            loss(
                batch(size, device=device)[0].detach(), labels + 1 + loss.labels.max() if loss.filled else labels + size
            )
        loss.eval()
    else:
        loss = RecallAtKLoss(tau=TAU) if kind == "recall@k" else SmoothAPLoss(TAU)

    def call():
        embeddings.grad = None
        loss(embeddings, labels).backward()

    return call


def prepare(kind: str, size: int):
    "For `peak_memory`: warm up on a small batch, then hand out the call to be watched."
    step(kind, 64)()
    return step(kind, size)


def rows(tiny: bool = False):
    small, large, repeat = (16, 32, 2) if tiny else (384, 4096, 9)
    name = f"forward + backward, B = {small}"
    if wanted(f"{name}, against the cubic kind") or wanted(f"{name}, against pytorch-metric-learning"):
        times = race(
            {
                "ours": step("ours", small),
                "product": step("product", small),
                "pytorch-metric-learning": step("pytorch-metric-learning", small),
                "cubic": step("cubic", small),
            },
            repeat,
        )
        config = {"B": small, "D": 512, "per_class": PER_CLASS, "tau": TAU, "repeat": repeat}
        yield Row(f"{name}, against the cubic kind", times["cubic"] / times["ours"], "times faster", ">= 350",
                  times.only("ours", "cubic", "product"), config)
        yield Row(
            f"{name}, against pytorch-metric-learning",
            times["pytorch-metric-learning"] / times["ours"],
            "times faster",
            ">= 170",
            times.only("ours", "pytorch-metric-learning"),
            config,
        )
    name = f"forward + backward, B = {large}, against its own matrix product"
    if wanted(name):
        times = race({"ours": step("ours", large), "product": step("product", large)}, repeat)
        yield Row(
            name,
            times["ours"] / times["product"],
            "times the product's time",
            "<= 5",
            times,
            {"B": large, "D": 512, "repeat": repeat},
        )
    for size, kind, target in ((large, "ours", "< 4"), (small, "ours", ""), (small, "cubic", ""))[:1 if tiny else 3]:
        name = f"peak memory, B = {size}, {kind}"
        if wanted(name):
            extra = peak_memory("benchmarks.losses:prepare", kind=kind, size=size)
            yield Row(
                name,
                extra / (4 * size**2),
                "B² floats",
                target,
                config={"B": size, "bytes": extra},
                note=f"{extra / 1e6:,.0f} MB",
            )
    for size in (small, large):
        name = f"inner loop alone, B = {size}, torch operations against a numba kernel"
        if wanted(name):
            yield inner_loop(name, size, repeat)
    for length in (16,) if tiny else (4096, 16384):
        name = f"forward + backward, B = {small}, memory of {length} embeddings, against its own two products"
        if wanted(name):
            kinds = {"ours": step(f"memory {length}", small), "two products": step(f"products {length}", small)}
            times = race(kinds, repeat)
            target = "<= 2.5" if length == 16384 else ""
            yield Row(name, times["ours"] / times["two products"], "times their time", target, times,
                      {"B": small, "memory": length})
    length = 16 if tiny else 16384
    name = f"sorting first: one argsort of the scores of B = {small} with a memory of {length}, against the inner loop"
    if wanted(name):
        yield sorting_first(name, small, length, repeat)
    size = 32 if tiny else 4000
    name = f"recall@k surrogate, forward + backward, B = {size} of the paper, against its own matrix product"
    if wanted(name):
        times = race({"ours": step("recall@k", size), "product": step("product", size)}, min(repeat, 5))
        yield Row(name, times["ours"] / times["product"], "times the product's time", "", times, {"B": size, "D": 512})
    name = f"peak memory, B = {size}, recall@k surrogate"
    if wanted(name):
        extra = peak_memory("benchmarks.losses:prepare", kind="recall@k", size=size)
        yield Row(name, extra / (4 * size**2), "B² floats", "", config={"B": size, "bytes": extra},
                  note=f"{extra / 1e6:,.0f} MB")
    for queries, items in ((16, 16), (8, 64)) if tiny else ((384, 384), (500, 5000)):
        if any(wanted(f"{kind} of {queries} x {items:,} scores, against one sort") for kind in RANKED):
            yield from ranks_and_ap(queries, items, repeat)
    for size in (16, 32) if tiny else (64, 128, 256, 512, 1024, 2048, 4096):
        name = f"scaling, B = {size}"
        if wanted(name):
            kinds = ["ours", "product"] + ["pytorch-metric-learning", "cubic"] * (size <= 256)
            times = race({kind: step(kind, size) for kind in kinds}, 2 if tiny else 5)
            yield Row(
                name, times["ours"] / times["product"], "times the product's time", "", times, {"B": size, "D": 512}
            )
    yield from cuda_rows(tiny)


def ranks_and_ap(queries: int, items: int, repeat: int):
    "The exact rank of every item, and AP, beside `torch.sort` of the same scores."
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(queries, items, generator=generator)
    relevance = torch.rand(queries, items, generator=generator) < 0.02
    relevance[:, 0] = True
    times = race(
        {
            "ranks": lambda: ranks(scores),
            "average_precision": lambda: average_precision(scores, relevance),
            "one sort": lambda: scores.sort(dim=1, descending=True),
        },
        repeat,
    )
    for kind, target in RANKED.items():
        yield Row(f"{kind} of {queries} x {items:,} scores, against one sort", times[kind] / times["one sort"],
                  "times the sort's time", target, times.only(kind, "one sort"), {"queries": queries, "items": items})


def sorting_first(name: str, size: int, length: int, repeat: int) -> Row:
    "What a window in sorted scores would cost before it begins, and how much of the work it would leave."
    embeddings, labels = batch(size)
    past = F.normalize(torch.randn(length, embeddings.shape[1], generator=torch.Generator().manual_seed(0)), dim=1)
    scores = (embeddings @ torch.cat([embeddings, past]).T).detach()
    scores[:, :size].fill_diagonal_(-torch.inf)
    relevance = F.pad((labels[:, None] == labels).fill_diagonal_(False), (0, length))
    query, item = relevance.nonzero(as_tuple=True)
    gaps = (scores[query] - scores[query, item][:, None]).abs()
    share = float((gaps < TAU * -math.log(torch.finfo(torch.float32).eps)).float().mean())  # a sigmoid short of 0 or 1
    rows = scores.numpy()
    times = race(
        {
            "inner loop": lambda: torch_closed_form(scores, relevance, TAU, None, True),
            "numpy argsort": lambda: np.argsort(rows, axis=1),
            "numpy sort": lambda: np.sort(rows, axis=1),
        },
        min(repeat, 5),
    )
    return Row(name, times["numpy argsort"] / times["inner loop"], "times the inner loop's time", "", times,
               {"B": size, "memory": length, "share of pairs within reach": share},
               note=f"{share:.0%} of the pairs lie within reach of a positive")


def inner_loop(name: str, size: int, repeat: int) -> Row:
    "Scores in, Smooth-AP and its gradient out: what the library does, and what a kernel compiled by numba would do."
    from benchmarks.compiled import closed_form

    embeddings, labels = batch(size)
    scores = (embeddings @ embeddings.T).detach().fill_diagonal_(-torch.inf)
    relevance = (labels[:, None] == labels).fill_diagonal_(False)
    start = time.perf_counter()
    closed_form(scores[:8], relevance[:8], TAU)
    compiling = time.perf_counter() - start
    times = race(
        {
            "torch": lambda: torch_closed_form(scores, relevance, TAU, None, True),
            "numba": lambda: closed_form(scores, relevance, TAU),
        },
        repeat,
    )
    return Row(
        name,
        times["torch"] / times["numba"],
        "times the kernel's time",
        times=times,
        config={"B": size, "first_call_seconds": compiling},
        note=f"numba's first call takes {compiling:.1f} s" if compiling > 0.1 else "",
    )


def cuda_rows(tiny: bool):
    "The rows that need a GPU."
    share = "loss as a share of a ResNet-50 training step, 224 px, bf16, B = {}, one GPU"
    names = {384: share.format(384), 112: share.format(112)}
    huge = "peak memory, B = 16384, one GPU"
    if tiny or not torch.cuda.is_available():
        why = "needs a CUDA device"
        yield not_run(names[384], why, "< 1", "%")
        yield not_run(names[112], why, "", "%")
        yield not_run(huge, why, "< 8", "GB")
        return
    for size, name in names.items():
        if wanted(name):
            loss, network = _seconds(step("ours", size, "cuda")), _seconds(resnet_step(size))
            yield Row(
                name,
                100 * loss / network,
                "%",
                "< 1" if size == 384 else "",
                {"loss": loss, "ResNet-50 step": network},
                {"B": size},
            )
    if wanted(huge):
        call = step("ours", 16384, "cuda")
        step("ours", 64, "cuda")()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        seconds = _seconds(call, repeat=3)
        yield Row(
            huge,
            (torch.cuda.max_memory_allocated() - before) / 1e9,
            "GB",
            "< 8",
            {"ours": seconds},
            {"B": 16384, "D": 512},
        )


def resnet_step(size: int):
    "Forward and backward of ResNet-50 without the loss, and an optimiser step, in bf16."
    from torchvision.models import resnet50

    network = resnet50(num_classes=512).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5)
    images = torch.randn(size, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)

    def call():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            out = network(images)
        out.float().square().mean().backward()
        optimizer.step()

    return call


def _seconds(call, repeat: int = 9) -> float:
    "Median seconds of a call on the GPU, each waited for."
    seconds = []
    for _ in range(3):
        call()
    for _ in range(repeat):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def figures(rows: list[dict]) -> dict:
    "Time against batch size, from the rows of the scaling series."
    import matplotlib.pyplot as plt

    from smoothap_nb.show.figures import role

    looks = {
        "ours": ("smooth_ap", "this package"),
        "product": ("exact", "matrix product alone"),
        "cubic": ("rambo", "cubic kind"),
        "pytorch-metric-learning": ("fast_ap", "pytorch-metric-learning"),
    }
    series = [row for row in rows if row["name"].startswith("scaling") and row["value"] is not None]
    if not series:
        return {}
    figure, ax = plt.subplots(figsize=(6, 3.6))
    for who, (look, label) in looks.items():
        points = [(row["config"]["B"], row["times"][who]) for row in series if who in row["times"]]
        ax.plot(*zip(*points), marker="o", markersize=4, **role(look))
        ax.annotate(
            label,
            points[-1],
            xytext=(6, 5 if who == "cubic" else -5 if points[-1][0] < series[-1]["config"]["B"] else 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    ax.set(xscale="log", yscale="log", xlabel="batch size B", ylabel="seconds, forward + backward")
    ax.set_xlim(0.7 * series[0]["config"]["B"], 8 * series[-1]["config"]["B"])
    return {
        "scaling": (
            figure,
            "time against batch size: from a thousand images on the loss costs two to three matrix products, the cubic "
            "implementations "
            "leave the picture at a few hundred images",
        )
    }
