"""What a gradient of the rank costs, against the length n of the list: forward and backward of one list of n random
scores, a tenth of them positives, one thread, the least CPU time of several calls. The slope is the exponent fitted to
the four longest lists, so that an O(n) method shows about 1 and an O(n²) method about 2; logarithms hide in the second
digit. Memory is what one call adds at its peak to what the process held, in a process of its own, as bytes per score.
The formulas that RaMBO's Table 1 prints were read uncertainly (its
column was lost in the text at hand): they stand in the notes with that mark, and three of its rows (Mohapatra, Chen,
Yue) have no code here. Sorting networks, soft sort and optimal-transport ranks are the plain forms of lesson 09; tuned
libraries are faster by constants."""

from __future__ import annotations

import math
import time

import torch

from benchmarks.harness import Row, peak_memory, wanted
from smoothap_nb import ap_from_ranks, blackbox_ap, fast_ap, smooth_ap
from smoothap_nb.losses.peers import network_ranks, soft_sort_ranks, transport_ranks
from smoothap_nb.losses.sorters import SoDeepRanks

TITLE = "Learned and other ranks: cost against the length of the list"
READ = "printed, read uncertainly: "
METHODS = {  # name -> (longest list, what Table 1 prints)
    "RaMBO": (10**6, READ + "O(n log n)"),
    "FastAP": (10**6, READ + "O((n + p) L)"),
    "SoDeep": (3 * 10**4, READ + "O((n + p) h²)"),
    "Smooth-AP": (10**4, "not in the table"),
    "soft sort": (3000, "not in the table"),
    "optimal transport": (1000, "not in the table"),
    "sorting network": (300, "not in the table"),
}


def method(name: str):
    "(scores, relevance) to a loss."
    if name == "SoDeep":
        sorter = SoDeepRanks()
        sorter.lengths = None  # its ranks are wrong out there; what they cost is not
        return lambda s, y: 1 - ap_from_ranks(sorter(s), y)
    rankers = {"soft sort": soft_sort_ranks, "optimal transport": transport_ranks, "sorting network": network_ranks}
    if name in rankers:
        return lambda s, y: 1 - ap_from_ranks(rankers[name](s), y)
    return {
        "RaMBO": lambda s, y: 1 - blackbox_ap(s, y, 0.5, 0.0),
        "FastAP": lambda s, y: 1 - fast_ap(s, y, 10),
        "Smooth-AP": lambda s, y: 1 - smooth_ap(s, y, 0.01),
    }[name]


def prepare(name: str, length: int):
    "One call: forward and backward on a list of that length."
    generator = torch.Generator().manual_seed(length)
    scores = (2 * torch.rand(1, length, generator=generator) - 1).requires_grad_()
    relevance = torch.rand(1, length, generator=generator) < 0.1
    relevance[0, 0] = True
    loss = method(name)

    def call():
        scores.grad = None
        loss(scores, relevance).sum().backward()

    return call


def cpu_seconds(call, repeat: int) -> float:
    "The least CPU time of several calls: this process's own, so that a busy machine does not bend the curve."
    call()
    found = []
    for _ in range(repeat):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return min(found)


def lengths(longest: int, tiny: bool) -> list[int]:
    "1, 3, 10 ... times a hundred, up to the longest."
    steps = [100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
    return [n for n in steps if n <= longest][: 2 if tiny else None]


def slope(seconds: dict[int, float]) -> float:
    "The exponent of a power law through the times of the four longest lists."
    points = [(math.log(n), math.log(t)) for n, t in seconds.items()][-4:]
    x, y = torch.tensor(points, dtype=torch.float64).T
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def rows(tiny: bool = False):
    for name, (longest, printed) in METHODS.items():
        title = f"{name}: exponent of time"
        if not wanted(title):
            continue
        seconds = {}
        for n in lengths(longest, tiny):
            seconds[n] = cpu_seconds(prepare(name, n), 1 if tiny else 7 if n < 10**4 else 4)
        largest = max(seconds)
        memory = None if tiny else peak_memory("benchmarks.sorters:prepare", name=name, length=largest) / largest
        times = {f"n = {n:,}": time for n, time in seconds.items()}
        yield Row(
            title,
            slope(seconds),
            "of n",
            "",
            times,
            {"longest": largest, "bytes per score": memory},
            printed + ("" if memory is None else f"; {memory:,.0f} bytes per score at n = {largest:,}"),
        )


def figures(rows):
    "Time against length, from the stored rows."
    import matplotlib.pyplot as plt

    from smoothap_nb.show.figures import MARKERS, PALETTE

    roles = {
        "RaMBO": "rambo",
        "FastAP": "fast_ap",
        "SoDeep": "sodeep",
        "Smooth-AP": "smooth_ap",
        "soft sort": "sup_ap",
        "optimal transport": "h_ap",
        "sorting network": "soft_bin",
    }
    fig, ax = plt.subplots(figsize=(7, 3.6))
    for row in rows:
        name = row["name"].split(":")[0]
        points = {int(key[4:].replace(",", "")): value for key, value in row["times"].items()}
        kind = roles[name]
        ax.plot(
            list(points),
            [1000 * t for t in points.values()],
            marker=MARKERS[kind],
            color=PALETTE[kind],
            markersize=4,
            linewidth=1.2,
            label=f"{name}: n^{row['value']:.2f}",
        )
    ax.set(xscale="log", yscale="log", xlabel="length of the list n", ylabel="forward and backward, ms")
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return {
        "times": (
            fig,
            "time against length on two logarithmic scales: RaMBO and FastAP rise about linearly up to a million, "
            "the pairwise methods "
            "quadratically",
        )
    }
