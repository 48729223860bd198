"""A training batch of photographs, random crops of 224 px: from JPEG files of about 500 x 400 px by Pillow, or from the
decoded cache (squares of 256 px), on a CPU. The files are made up (smooth colours under grain), JPEG quality 90.
`DataLoader` is PyTorch's, with as many persistent worker processes as we take threads, on the same transform. The times
of a row are of batches of its own size; waiting is the share of time that a consumer which works as long as one batch
takes to be read spends waiting for the next. Small operations are a thousand additions to 4,096 numbers by the main
thread, which threads that read hold up by Python's lock, and processes do not."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.harness import Row, not_run, race, threads, wanted
from smoothap_nb.data.cache import DecodedCache
from smoothap_nb.data.loading import Prefetcher
from smoothap_nb.data.photographs import ImageSet
from smoothap_nb.data.transforms import PhotoTransform

TITLE = "Loading photographs"


class Photos(ImageSet):
    "JPEG files in a folder."

    def __init__(self, root: Path, count: int, width: int, transform: PhotoTransform):
        rng, names = np.random.default_rng(0), [f"{i:05d}.jpg" for i in range(count)]
        super().__init__(root, names, torch.arange(count)[:, None] // 4, ("class",), transform=transform)
        root.mkdir()
        for path in self.paths:
            size = (int(width * rng.uniform(0.8, 1.2)), int(0.8 * width * rng.uniform(0.8, 1.2)))
            coarse = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
            smooth = np.asarray(coarse.resize(size, Image.Resampling.BICUBIC), dtype=np.float32)
            grain = rng.normal(0, 8, (*smooth.shape[:2], 1))
            Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8)).save(path, quality=90)

    def __getitem__(self, index):  # for DataLoader
        return self.raw([index], 1)[0], self.labels[index]


def rows(tiny: bool):
    batch, batches, width, size, side = (8, 2, 60, 32, 40) if tiny else (32, 6, 500, 224, 256)
    repeat, count = (1, 16) if tiny else (5, 192)
    with tempfile.TemporaryDirectory() as folder:
        photos = Photos(Path(folder) / "photos", count, width, PhotoTransform(size, round(size * 8 / 7)))
        cache = DecodedCache(photos, Path(folder) / "cache", side=side, workers=2, progress=False)
        places = np.arange(count)
        bytes_each = np.mean([p.stat().st_size for p in photos.paths])
        config = {
            "batch": batch,
            "size": size,
            "side": side,
            "JPEG bytes": round(float(bytes_each)),
            "cache bytes": 3 * side * side,
            "load of the machine": round(os.getloadavg()[0], 1),
        }

        def plan(step):
            return np.roll(places, -step * batch)[:batch], 0

        name = "decoded cache against JPEG files, one thread"
        if wanted(name):
            times = race(
                {"cache": lambda: cache.batch(places[:batch], 1), "JPEG": lambda: photos.batch(places[:batch], 1)},
                repeat,
            )
            yield Row(
                name, times["JPEG"] / times["cache"], "times faster", "", times, {**config, **_rates(times, batch)}
            )

        name = "reading squares alone (what a GPU waits for), against JPEG files, one thread"
        if wanted(name):
            parts = np.split(places, batches)
            times = race(
                {
                    "squares": lambda: [cache.raw(part) for part in parts],
                    "JPEG": lambda: [photos.raw(part, 1) for part in parts],
                },
                repeat,
            )
            yield Row(
                name, times["JPEG"] / times["squares"], "times faster", "", times, {**config, **_rates(times, count)}
            )

        def ahead(data, workers):
            return lambda: [None for _ in Prefetcher(data, plan, batches, workers=workers)]

        cores = os.cpu_count() or 1
        name = "two threads against one, JPEG files"
        if cores < 2:
            yield not_run(name, "one core")
        elif wanted(name):
            times = race({"two": ahead(photos, 2), "one": ahead(photos, 1)}, repeat)
            yield Row(
                name,
                times["one"] / times["two"],
                "times faster",
                "",
                times,
                {**config, **_rates(times, batch * batches)},
            )

        name = "two threads of Prefetcher against two processes of DataLoader, JPEG files"
        if cores < 2:
            yield not_run(name, "one core")
        elif wanted(name):
            order = [plan(step)[0].tolist() for step in range(batches)]
            loader = torch.utils.data.DataLoader(photos, batch_sampler=order, num_workers=2, persistent_workers=True)
            times = race(
                {"threads": ahead(photos, 2), "processes": lambda: [images.float() / 255 for images, _ in loader]},
                repeat,
            )
            del loader
            yield Row(
                name,
                times["processes"] / times["threads"],
                "times faster",
                "",
                times,
                {**config, **_rates(times, batch * batches)},
            )

        name = "small operations of torch while two workers read JPEG files: processes against threads"
        if cores < 2:
            yield not_run(name, "one core")
        elif wanted(name):
            with threads(1):
                seconds = {  # of a thousand
                    "processes": _beside_readers(photos, plan, True, repeat),
                    "threads": _beside_readers(photos, plan, False, repeat),
                }
            yield Row(name, seconds["threads"] / seconds["processes"], "times faster", "", seconds, config)

        name = "time waiting, cache, for a consumer as slow as one batch"
        if wanted(name):
            with threads(1):
                shares = sorted(_waiting(cache, plan, batch, batches) for _ in range(repeat))
            yield Row(name, shares[len(shares) // 2], "share of the time", "", {}, config)


def _waiting(data, plan, batch: int, batches: int) -> float:
    "Share of its time that a consumer waits, which sleeps for as long as a batch takes to be made."
    begun = time.perf_counter()
    data.batch(plan(0)[0], 1)
    pause = time.perf_counter() - begun
    begun, waited = time.perf_counter(), 0.0
    for number, part in enumerate(Prefetcher(data, plan, batches + 1, workers=1)):
        if number == 0:
            begun = time.perf_counter()  # nobody can prepare the first one ahead
        else:
            waited += part.waited
        time.sleep(pause)
    return waited / (time.perf_counter() - begun)


def _beside_readers(data, plan, processes: bool, repeat: int) -> float:
    """Seconds for a thousand operations as a training loop launches them, while files are read as fast as may be:
    beside a GPU this is the thread that drives it."""
    number, enough, spent, done = torch.ones(4096), threading.Event(), 0.0, 0
    with Prefetcher(data, plan, 10**9, workers=2, processes=processes) as batches:
        coming = iter(batches)
        next(coming)

        def consume():
            while not enough.is_set():
                next(coming)

        consumer = threading.Thread(target=consume)
        consumer.start()
        begun = time.perf_counter()
        while spent < 0.2 * repeat:
            for _ in range(100):
                number.add_(1)
            done, spent = done + 100, time.perf_counter() - begun
        enough.set()
        consumer.join()
    return 1000 * spent / done


def _rates(times: dict, pictures: int) -> dict:
    return {f"{name}, pictures/s": round(pictures / seconds) for name, seconds in times.items()}
