"""Forward and backward of the H-AP loss on unit embeddings of 512 dimensions, classes nested in three levels (4/8/16:
four images per fine class, eight per middle, sixteen per coarse class), one thread. A *pair* is a query with one of its
positives, at any
level: H-AP has five to twenty times as many as Smooth-AP on the fine classes of the same batch. The *cubic kind* is the
same loss in plain torch operations over all pairs of items of every query. Memory is what torch's allocator holds at
the peak of a call beyond what it held before (the scaled copy of the embeddings, the scores and both passes included),
in units of batch × batch float32 numbers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness import Row, not_run, race, wanted
from smoothap_nb import (
    HAPLoss,
    SmoothAPLoss,
    average_precision,
    h_ap,
    levels_from_labels,
    relevance_from_levels,
    step_lower,
    step_upper,
)

TITLE = "Hierarchical AP: speed and memory"
GROUPS = ((4, 8, 16), (4, 16, 64))


def batch(size: int, groups: tuple[int, ...], dim: int = 512, device: str = "cpu") -> tuple[Tensor, Tensor]:
    "Unit embeddings whose similarity follows the tree loosely, as in training, and labels (N, L), coarse to fine."
    generator, images = torch.Generator().manual_seed(size), torch.arange(size)
    labels = torch.stack([images // group for group in reversed(groups)], 1)
    centres = sum(torch.randn(int(column.max()) + 1, dim, generator=generator)[column] for column in labels.T)
    embeddings = F.normalize(0.7 * centres + 2 * torch.randn(size, dim, generator=generator), dim=1)
    return embeddings.to(device).requires_grad_(), labels.to(device)


def cubic_loss(embeddings: Tensor, labels: Tensor) -> Tensor:
    "The surrogate over all pairs at once, differentiated by autograd."
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    scores, levels = embeddings @ embeddings.T, levels_from_labels(labels).masked_fill(itself, 0)
    relevance = relevance_from_levels(levels, dtype=scores.dtype)
    gaps = scores[:, None, :] - scores[:, :, None]                                     # (q, k, j)
    mine, theirs, absent = levels[:, :, None], levels[:, None, :], itself[:, None, :] | itself[None]
    common, ahead = torch.minimum(relevance[:, :, None], relevance[:, None, :]), (gaps >= 0).to(scores.dtype)
    h_rank = relevance + (common * torch.where(theirs > mine, step_lower(gaps), ahead)).masked_fill(absent, 0).sum(2)
    rank = 1 + torch.where(theirs < mine, step_upper(gaps), ahead).masked_fill(absent, 0).sum(2)
    return 1 - ((h_rank / rank * (levels > 0)).sum(1) / relevance.sum(1)).mean()


def step(loss, embeddings: Tensor, labels: Tensor):
    "One call: forward and backward."
    def call():
        embeddings.grad = None
        loss(embeddings, labels).backward()

    return call


def peak(call) -> int:
    "Bytes that torch's allocator holds at the peak of a call beyond what it held before."
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    events = sorted((e.start_ns(), e.nbytes()) for e in seen.profiler.kineto_results.events() if e.name() == "[memory]")
    held = highest = 0
    for _, change in events:
        held += change
        highest = max(highest, held)
    return highest


def rows(tiny: bool = False):
    size, repeat, groupings = (32, 2, ((2, 4, 8),)) if tiny else (384, 9, GROUPS)
    for groups in groupings:
        name = f"B = {size}, groups {'/'.join(map(str, groups))}"
        embeddings, labels = batch(size, groups)
        fine, coarse = labels[:, -1], labels[:, 0]
        pairs = {"H-AP": size * (groups[-1] - 1), "Smooth-AP": size * (groups[0] - 1)}
        config = {"B": size, "D": 512, "groups": groups, "pairs": pairs, "repeat": repeat}
        if wanted(f"{name}: cost of a pair, against Smooth-AP") or wanted(
            f"{name}: against Smooth-AP with as many positives"
        ):
            times = race(
                {
                    "H-AP": step(HAPLoss(), embeddings, labels),
                    "Smooth-AP": step(SmoothAPLoss(), embeddings, fine),
                    "Smooth-AP, coarse labels": step(SmoothAPLoss(), embeddings, coarse),
                    "H-AP, exact H-rank": step(HAPLoss(smooth_hrank=False, offset=1.44), embeddings, labels),
                },
                repeat,
            )
            yield Row(
                f"{name}: cost of a pair, against Smooth-AP",
                times["H-AP"] / pairs["H-AP"] * pairs["Smooth-AP"] / times["Smooth-AP"],
                "times Smooth-AP's",
                "<= 3",
                times.only(*pairs),
                config,
            )
            yield Row(
                f"{name}: against Smooth-AP with as many positives",
                times["H-AP"] / times["Smooth-AP, coarse labels"],
                "times its time",
                "<= 3",
                times.only("H-AP", "H-AP, exact H-rank", "Smooth-AP, coarse labels"),
                config,
            )
        if wanted(f"{name}: peak memory"):
            extra = peak(step(HAPLoss(), embeddings, labels))
            yield Row(
                f"{name}: peak memory",
                extra / (4 * size**2),
                "B² floats",
                "< 6",
                config={**config, "bytes": extra},
                note=f"{extra / 1e6:.1f} MB",
            )
    small, groups = (16, (2, 4, 8)) if tiny else (128, (4, 8, 16))
    name = f"B = {small}: against the cubic kind"
    if wanted(name):
        embeddings, labels = batch(small, groups)
        times = race(
            {"H-AP": step(HAPLoss(), embeddings, labels), "cubic": step(cubic_loss, embeddings, labels)}, min(repeat, 5)
        )
        yield Row(name, times["cubic"] / times["H-AP"], "times faster", "", times, {"B": small, "groups": groups})
    large = 64 if tiny else 2048
    name = f"B = {large}: peak memory"
    if wanted(name):
        extra = peak(step(HAPLoss(), *batch(large, (4, 16, 64))))
        yield Row(
            name,
            extra / (4 * large**2),
            "B² floats",
            "< 6",
            config={"B": large, "bytes": extra},
            note=f"{extra / 1e6:.0f} MB",
        )
    yield from metric_rows(tiny)
    yield from cuda_rows(tiny)


def metric_rows(tiny: bool):
    "The metric: one sort and a few running counts."
    queries, gallery = (8, 50) if tiny else (500, 5000)
    name = f"h_ap of {queries} queries, gallery of {gallery}, three levels: against one AP"
    if wanted(name):
        scores = torch.rand(queries, gallery, generator=torch.Generator().manual_seed(0))
        levels = torch.randint(0, 4, scores.shape, generator=torch.Generator().manual_seed(1))
        relevance, relevant = relevance_from_levels(levels), levels == 3
        times = race(
            {"h_ap": lambda: h_ap(scores, relevance), "average_precision": lambda: average_precision(scores, relevant)},
            2 if tiny else 5,
        )
        yield Row(
            name, times["h_ap"] / times["average_precision"], "times its time", "", times, {"Q": queries, "G": gallery}
        )


def cuda_rows(tiny: bool):
    "The rows that need a GPU."
    for size, groups in ((384, (4, 16, 64)), (4096, (4, 16, 64))):
        name = f"B = {size}, groups {'/'.join(map(str, groups))}, one GPU: cost of a pair, against Smooth-AP"
        if tiny or not torch.cuda.is_available():
            yield not_run(name, "needs a CUDA device", "<= 3", "times Smooth-AP's")
        elif wanted(name):
            embeddings, labels = batch(size, groups, device="cuda")
            times = race(
                {
                    "H-AP": step(HAPLoss(), embeddings, labels),
                    "Smooth-AP": step(SmoothAPLoss(), embeddings, labels[:, -1]),
                }
            )
            yield Row(
                name,
                times["H-AP"] / (groups[-1] - 1) * (groups[0] - 1) / times["Smooth-AP"],
                "times Smooth-AP's",
                "<= 3",
                times,
                {"B": size, "groups": groups},
            )
