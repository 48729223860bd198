"""Exact metrics of a whole test set, every image a query, two threads. *Stanford Online Products' shape* is 60,502
images of 512 dimensions in 11,316 classes and 12 super-classes, *iNaturalist's* 136,093 images with 7 levels;
embeddings are drawn at random around class centres. The *product* is the one matrix product that turns embeddings into
scores, in blocks, without keeping them; nothing exact can do with less. *Every row sorted* is what most code does:
scores, `argsort`, precision at each hit. Memory is the peak of the whole process, libraries and embeddings included."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness import ROOT, Row, Times, not_run, race, threads, wanted
from smoothap_nb import evaluate, evaluate_neighbours, nearest_neighbours

TITLE = "Evaluation: a whole test set"
LONG = ("Stanford", "iNaturalist", "R1M")  # --quick leaves these out
FULL = "BENCH_FULL"  # set to 1 for the rows that write a file of 4 GB
FLAT = ("R@1", "R@10", "R@100", "R@1000", "mAP")
LEVELS = ("AP@level1", "AP@level2", "H-AP", "ASI", "NDCG")
SOP = {"images": 60_502, "dim": 512, "classes": (12, 11_316)}
INATURALIST = {"images": 136_093, "dim": 512, "classes": (3, 13, 51, 273, 1_103, 2_900, 5_700)}


def test_set(images: int, dim: int, classes: tuple[int, ...], dtype=torch.float32) -> tuple[Tensor, Tensor]:
    """Unit embeddings around nested class centres, and (N, L) labels, coarse to fine; most classes hold about equally
    many images.
    """
    generator = torch.Generator().manual_seed(0)
    fine = torch.cat(
        [torch.arange(classes[-1]), torch.randint(0, classes[-1], (max(0, images - classes[-1]),), generator=generator)]
    )[:images]
    labels, rows = [fine], torch.randn(images, dim, generator=generator)
    for count in classes[-2::-1]:
        labels.insert(0, labels[0] % count)
    for level, column in enumerate(labels, start=1):
        centres = torch.randn(classes[level - 1], dim, generator=generator)
        for part in range(0, images, 8192):
            rows[part:part + 8192] += centres[column[part:part + 8192]] * (0.6 / len(classes) ** 0.5)
    for part in range(0, images, 8192):
        rows[part:part + 8192] = F.normalize(rows[part:part + 8192], dim=1)
    return rows.to(dtype), torch.stack(labels, 1)


def product(embeddings: Tensor, rows: int = 1024) -> None:
    "All scores, a block at a time, each thrown away."
    block = torch.empty(rows, len(embeddings), device=embeddings.device)
    for part in embeddings.split(rows):
        torch.mm(part, embeddings.T, out=block[:len(part)])


def by_sorting(embeddings: Tensor, labels: Tensor, rows: int = 1024) -> Tensor:
    "AP of every query as it is usually computed: sort each row, then walk down it."
    found = []
    for begin in range(0, len(embeddings), rows):
        scores = embeddings[begin:begin + rows] @ embeddings.T
        own = torch.arange(begin, begin + len(scores))
        scores[torch.arange(len(scores)), own] = -2
        hit = (labels[scores.argsort(dim=1, descending=True)] == labels[own, None])[:, :-1]
        precision = hit.cumsum(1) / torch.arange(1, hit.shape[1] + 1)
        found.append((precision * hit).sum(1) / hit.sum(1))
    return torch.cat(found)


def by_suprank(embeddings: Tensor, labels: Tensor):
    "A call of SupRank's evaluator for AP alone."
    from suprank.engine.accuracy_calculator import AccuracyCalculator

    every = [name for kind in AccuracyCalculator().METRICS_DICT.values() for name in kind]
    calculator = AccuracyCalculator(convert_to_cuda=False, exclude=[name for name in every if name != "AP"])
    return lambda: calculator.batch_metrics(embeddings, labels[:, None], True)


def turns(contenders: dict, repeat: int) -> Times:
    "`race` for long calls, without a run of each beforehand."
    return race(contenders, repeat, warm=False)


def prepare(images: int, dim: int = 64, classes=(12, 3000), memory: str = "1GB"):
    "A call to watch: all metrics of a set, loops compiled before."
    embeddings, labels = test_set(images, dim, tuple(classes))
    metrics = ("mAP", "R@1", "AP@level1", "H-AP", "ASI", "NDCG")
    evaluate(embeddings[:500], labels[:500] // torch.tensor([1, 100]), metrics=metrics, engine="numba", progress=False)
    return lambda: evaluate(embeddings, labels, metrics=metrics, memory=memory, progress=False)


def alone(task: str, **config) -> dict:
    "Run one of the tasks below in a process of its own: its seconds, its peak memory in bytes, and what it found."
    program = (
        "import json, sys, torch\nimport benchmarks.evaluation as tasks\nfrom benchmarks.harness import _status\n"
        "torch.set_num_threads(2)\nfound = getattr(tasks, sys.argv[1])(**json.loads(sys.argv[2]))\n"
        "print(json.dumps(found | {'peak': _status('VmHWM')}))\n"
    )
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", program, task, json.dumps(config)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode:
        raise RuntimeError(f"{task} failed in its own process:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def task_whole(images: int, dim: int, classes: tuple[int, ...]) -> dict:
    "All metrics of a shape."
    embeddings, labels = test_set(images, dim, tuple(classes))
    metrics = tuple(name for name in FLAT if name[2:] != "1000" or images > 1001) + tuple(
        f"AP@level{n + 1}" for n in range(len(classes))
    )
    start = time.perf_counter()
    found = evaluate(embeddings, labels, metrics=metrics + ("H-AP", "ASI", "NDCG"), progress=False)
    return {"seconds": time.perf_counter() - start, "found": found}


def write_gallery(path: str, images: int, dim: int, queries: int) -> None:
    "Unit rows in half precision, written block by block; the first rows resemble the queries."
    generator = torch.Generator().manual_seed(1)
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(images, dim))
    near = F.normalize(torch.randn(queries, dim, generator=torch.Generator().manual_seed(2)), dim=1)
    for begin in range(0, images, 16384):
        rows = F.normalize(torch.randn(min(16384, images - begin), dim, generator=generator), dim=1)
        if begin == 0:
            first = rows[:queries * 40]  # forty positives of each query, closer than chance
            rows[:len(first)] = F.normalize(first + 0.06 * near.repeat_interleave(40, 0)[:len(first)], dim=1)
        file[begin:begin + len(rows)] = rows.half().numpy()
    file.flush()


def task_million(path: str, queries: int, memory: str) -> dict:
    "Metrics of a few queries against a gallery in a file."
    gallery = np.load(path, mmap_mode="r")
    embeddings = F.normalize(torch.randn(queries, gallery.shape[1], generator=torch.Generator().manual_seed(2)), dim=1)
    labels = np.full(len(gallery), -1)
    labels[:queries * 40] = np.repeat(np.arange(queries), 40)[:len(labels)]
    start = time.perf_counter()
    found = evaluate(
        embeddings, np.arange(queries), gallery, labels, metrics=("mAP", "R@1", "R@10"), memory=memory, progress=False
    )
    return {"seconds": time.perf_counter() - start, "found": found}


def rows(tiny):
    with threads(2):
        yield from _sop(tiny)
        yield from _inaturalist(tiny)
        yield from _peers(tiny)
        yield from _million(tiny)
        yield from _faiss(tiny)
        yield from _gpu(tiny)


def _shape(shape: dict, tiny: bool) -> dict:
    return {"images": 1200, "dim": 32, "classes": tuple(min(c, 300) for c in shape["classes"])} if tiny else shape


def _sop(tiny):
    shape, names = (
        _shape(SOP, tiny),
        (
            "Stanford Online Products' shape, R@{1, 10, 100, 1000} and mAP, against the product",
            "Stanford Online Products' shape, all metrics, against the product",
        ),
    )
    if any(map(wanted, names)):
        embeddings, labels = test_set(**shape)
        for metrics in (FLAT, LEVELS):  # compile
            evaluate(
                embeddings[:1100],
                labels[:1100] // torch.tensor([1, 100]),
                metrics=metrics,
                engine="numba",
                progress=False,
            )
        times = turns(
            {
                "product": lambda: product(embeddings),
                "R@K and mAP": lambda: evaluate(embeddings, labels[:, 1], metrics=FLAT, progress=False),
                "all metrics": lambda: evaluate(embeddings, labels, metrics=FLAT + LEVELS, progress=False),
            },
            repeat=3,
        )
        for name, contender, target in zip(names, ("R@K and mAP", "all metrics"), ("<= 1.5", "<= 4")):
            yield Row(name, times[contender] / times["product"], "times the product's time", target,
                      times.only(contender, "product"), shape)
    name = "Stanford Online Products' shape, peak memory"
    if wanted(name):
        done = alone("task_whole", **shape)
        yield Row(name, done["peak"] / 1e9, "GB", "< 2", {"all metrics": done["seconds"]}, shape)


def _inaturalist(tiny):
    name = "iNaturalist's shape, 7 levels, all metrics: peak memory"
    if wanted(name):
        done = alone("task_whole", **_shape(INATURALIST, tiny))
        yield Row(name, done["peak"] / 1e9, "GB", "< 2", {"all metrics": done["seconds"]}, _shape(INATURALIST, tiny))


def _peers(tiny):
    shape = {"images": 600 if tiny else 10_000, "dim": 512, "classes": (12, 150 if tiny else 1_870)}
    names = (
        "10,000 images: mAP against every row sorted",
        "10,000 images: mAP@R against pytorch-metric-learning",
        "10,000 images: mAP@R against pytorch-metric-learning, told the largest class",
        "10,000 images: AP of 50 queries against scikit-learn",
        "10,000 images: mAP against SupRank's evaluator",
    )
    if not any(map(wanted, names)):
        return
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from sklearn.metrics import average_precision_score

    (embeddings, labels), repeat = test_set(**shape), 1 if tiny else 3
    labels = labels[:, 1]
    evaluate(embeddings, labels, metrics="mAP", engine="numba", progress=False)
    theirs = {
        k: AccuracyCalculator(include=("mean_average_precision_at_r",), k=k, device=torch.device("cpu"))
        for k in (None, "max_bin_count")
    }
    times = race(
        {
            "ours": lambda: evaluate(embeddings, labels, metrics="mAP", progress=False),
            "sorted": lambda: by_sorting(embeddings, labels),
        },
        repeat,
    )
    yield Row(names[0], times["sorted"] / times["ours"], "times faster", ">= 5", times, shape)
    for name, k, target in ((names[1], None, ">= 10"), (names[2], "max_bin_count", "")):
        if wanted(name):
            times = turns({"ours": lambda: evaluate(embeddings, labels, metrics="mAP@R", progress=False),
                           "pytorch-metric-learning": lambda: theirs[k].get_accuracy(embeddings, labels)}, repeat)
            yield Row(name, times["pytorch-metric-learning"] / times["ours"], "times faster", target, times, shape)
    if wanted(names[4]):
        if importlib.util.find_spec("suprank") is None:
            yield not_run(names[4], "needs a checkout of elias-ramzi/SupRank on PYTHONPATH, hydra-core and rich")
        else:
            times = turns({"ours": lambda: evaluate(embeddings, labels, metrics="mAP", progress=False),
                           "SupRank": by_suprank(embeddings, labels)}, repeat)
            yield Row(names[4], times["SupRank"] / times["ours"], "times faster", "", times, shape)
    found = evaluate(embeddings, labels, metrics="mAP", per_query=True, progress=False)["per_query"]["mAP"]
    gaps = []
    for query in np.nonzero(~np.isnan(found))[0][:: max(1, len(found) // 50)][:50]:
        others = torch.arange(len(labels)) != int(query)
        scores = (embeddings @ embeddings[query])[others]
        gaps.append(
            abs(found[query] - average_precision_score((labels == labels[query])[others].numpy(), scores.numpy()))
        )
    yield Row(names[3], max(gaps), "largest difference", "<= 1e-6", {}, shape)


def _million(tiny):
    for name, images, full in (
        ("a tenth of R1M (100,100 × 2048, half precision, on disk), 70 queries: peak memory", 100_100, False),
        ("R1M's shape (1,001,001 × 2048, half precision, on disk), 70 queries: peak memory", 1_001_001, True),
    ):
        if full and os.environ.get(FULL) != "1" or not wanted(name):
            yield not_run(name, f"needs {FULL}=1: it writes a file of 4 GB", "< 2", "GB")
            continue
        images = 4000 if tiny else images
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
            path = str(Path(folder) / "gallery.npy")
            write_gallery(path, images, 2048, 70)
            done = alone("task_million", path=path, queries=70, memory="1GB")
        yield Row(
            name,
            done["peak"] / 1e9,
            "GB",
            "< 2",
            {"all metrics": done["seconds"]},
            {"images": images, "dim": 2048, "queries": 70, "memory": "1GB"},
        )


def _faiss(tiny):
    shape = _shape(SOP, tiny)
    name = "Stanford Online Products' shape, R@1 by a FAISS index (IVF, 16 of 246 cells) less exact R@1"
    if not wanted(name):
        return
    try:
        import faiss  # noqa: F401
    except ImportError:
        yield not_run(name, "needs faiss-cpu")
        return
    embeddings, labels = test_set(**shape)
    cells = 8 if tiny else 246
    found = {}
    times = _index_times(embeddings, labels[:, 1], cells, found)
    yield Row(name, found["index"]["R@1"] - found["exact"]["R@1"], "", "", times, {**shape, "cells": cells})


def _index_times(embeddings: Tensor, labels: Tensor, cells: int, found: dict) -> Times:
    def exact():
        found["exact"] = evaluate(embeddings, labels, metrics="R@1", progress=False)

    def index():
        lists = nearest_neighbours(embeddings, 1, index=f"IVF{cells},Flat", probes=16)[1]
        found["index"] = evaluate_neighbours(lists, labels, metrics="R@1")

    return turns({"index, training included": index, "exact": exact}, 1)


def _gpu(tiny):
    name = "Stanford Online Products' shape, all metrics, on a GPU"
    if not torch.cuda.is_available():
        yield not_run(name, "needs a CUDA device", "< 5", "s")
        return
    if wanted(name):
        embeddings, labels = (part.cuda() for part in test_set(**_shape(SOP, tiny)))
        times = race(
            {"all metrics": lambda: evaluate(embeddings, labels, metrics=FLAT + LEVELS, memory="8GB", progress=False)},
            3,
        )
        yield Row(name, times["all metrics"], "s", "< 5", times, _shape(SOP, tiny))
