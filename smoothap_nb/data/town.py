"""Town: a data set of the revisited protocol that draws itself, for systems that compare local features.

Streets of procedural houses, drawn from a seed: landmarks with a query and ten views each, houses that nobody looks
for (distractors), and houses of their own to learn a codebook, a whitening or a network from. Labels follow from what
a view shows of its house (`town_streets.judge`), the files from ROxford's layout.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smoothap_nb.checks import check_choice
from smoothap_nb.data.revisited_files import ImageList, Revisited, load_distractors, load_revisited
from smoothap_nb.extras import need
from smoothap_nb.files import data_root

__all__ = ["Town", "TownSize", "SIZES", "load_town", "draw_town"]

DRAWING = 1  # goes up when the same seed gives other pictures


@dataclass(frozen=True)
class TownSize:
    "How many houses of each kind, and how many views of one."

    landmarks: int
    views: int  # in the gallery; the query comes on top
    distractors: int
    distractor_views: int
    codebook: int
    codebook_views: int


SIZES = {
    "full": TownSize(70, 10, 150, 4, 60, 3),
    "small": TownSize(24, 10, 50, 4, 20, 3),  # a third: for continuous integration
    "mini": TownSize(8, 8, 16, 2, 12, 3),  # for the lesson and quick tests
}


@dataclass(frozen=True)
class Town:
    "What `load_town` gives: a revisited data set, its distractors, and pictures to learn from."

    data: Revisited  # gallery, queries, gnd
    distractors: ImageList
    codebook: ImageList  # houses that are in no other list
    codebook_labels: Tensor  # (codebook pictures,) which house
    records: dict[str, dict]  # by picture: what it shows of its house, and the label
    folder: Path

    @property
    def gnd(self) -> list[dict]:
        "The annotation that `evaluate_revisited` takes."
        return self.data.gnd


def load_town(size: str = "full", seed: int = 0, root=None, workers: int | None = None, progress: bool = False) -> Town:
    """A town, drawn at the first call and kept for the next ones.

    Args:
        size: "full" (70 landmarks, 1,550 pictures: some two minutes on two cores), "small" (a third) or "mini".
        seed: another seed is another town. The same seed gives the same houses, views and labels everywhere; pixels
            may differ by a few levels from one release of OpenCV to the next.
        root: where towns are kept; $SMOOTHAP_DATA or ~/.cache/smoothap_nb when left out.
        workers: threads that draw; the number of cores when left out.
        progress: show a bar.

    Returns:
        `Town`.

    Raises:
        ImportError: OpenCV is missing; the message names the extra.
        ValueError: an unknown size, a seed that is no whole number from 0 on.
    """
    check_choice("size", size, SIZES)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be a whole number from 0 on, got {seed!r}")
    folder = data_root(root) / "town" / f"{size}-{seed}-v{DRAWING}"
    draw_once(folder, SIZES[size], seed, workers, progress)
    content = json.loads((folder / "town.json").read_text(encoding="utf-8"))
    codebook = load_distractors(folder, "town-codebook")
    labels = torch.tensor([content["records"][Path(name).stem]["house"] for name in codebook.names])
    return Town(
        load_revisited(folder, "town"), load_distractors(folder, "town-distractors"), codebook, labels,
        content["records"], folder,
    )


def draw_once(folder: Path, size: TownSize, seed: int, workers: int | None = None, progress: bool = False) -> None:
    "`draw_town`, unless the folder holds a town already; the folder appears whole or not at all."
    if (folder / "town.json").is_file():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as unfinished:
        draw_town(unfinished, size, seed, workers, progress)
        shutil.rmtree(folder, ignore_errors=True)  # what a deleted file left of an older drawing
        os.rename(unfinished, folder)
        os.mkdir(unfinished)  # the context wants something to clear away


def draw_town(folder, size: TownSize, seed: int = 0, workers: int | None = None, progress: bool = False) -> Path:
    """Draw a town of any size into a folder.

    Args:
        folder: gets `town/` (`jpg/`, `gnd_town.pkl`), `town-distractors/`, `town-codebook/` and `town.json`, what
            every picture shows.
        size: of the town.
        seed: of all chance.
        workers: threads; the number of cores when left out.
        progress: show a bar.

    Returns:
        the folder.

    Raises:
        ImportError: OpenCV or matplotlib is missing; the message names the extra.
    """
    from smoothap_nb.data.town_houses import catalogue

    need("cv2", "drawing a town")
    need("matplotlib", "drawing a town")
    parts, jobs = catalogue(seed), list(_jobs(size))
    for name in ("town", "town-distractors", "town-codebook"):
        (Path(folder) / name / "jpg").mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        drawn = pool.map(lambda job: _draw_street(Path(folder), seed, parts, *job), jobs)
        if progress:
            from tqdm.auto import tqdm

            drawn = tqdm(drawn, total=len(jobs), desc="town", unit="street")
        streets = list(drawn)
    records = {name: record for street in streets for name, record in street.items()}
    _write_lists(Path(folder), records, seed)
    return Path(folder)


_KINDS = ("town", "town-distractors", "town-codebook")


def _jobs(size: TownSize) -> Iterator[tuple[int, int, int]]:
    "(kind, street, views) for every street; a landmark's view 0 is the query."
    yield from ((0, i, size.views + 1) for i in range(size.landmarks))
    yield from ((1, i, size.distractor_views) for i in range(size.distractors))
    yield from ((2, i, size.codebook_views) for i in range(size.codebook))


def _draw_street(folder: Path, seed: int, parts: dict, kind: int, number: int, views: int) -> dict[str, dict]:
    "Draw and save all views of a street; what each shows."
    from PIL import Image

    from smoothap_nb.data.town_streets import judge, make_street, photograph

    houses, records = make_street(seed, kind, number, parts), {}
    for view in range(views):
        chance = np.random.default_rng([seed, 20 + kind, number, view])
        first = kind == 0 and view == 0
        effort = 0.0 if first else (view - (kind == 0) + 0.5) / (views - (kind == 0))
        picture, shown, box = photograph(houses, chance, effort if kind < 2 else 0.6 * effort)
        # names say nothing about the house: numbers are dealt anew by a fixed shuffle
        name = _name(seed, kind, number, view, first)
        Image.fromarray(picture).save(folder / _KINDS[kind] / "jpg" / f"{name}.jpg", quality=92)
        records[name] = {
            "kind": kind, "house": number, "view": view, "query": first, "label": judge(shown),
            "box": [round(v, 1) for v in box], **shown.to_dict(),
        }
    return records


def _name(seed: int, kind: int, number: int, view: int, query: bool) -> str:
    "A name from which nobody can guess the house."
    if query:
        return f"town_query_{number:03d}"
    mixed = int(np.random.default_rng([seed, 99, kind, number, view]).integers(16**10))
    return f"{('town', 'crowd', 'lesson')[kind]}_{mixed:010x}"


def _write_lists(folder: Path, records: dict[str, dict], seed: int) -> None:
    "The annotation, the lists of names, and the records."
    gallery = sorted(name for name, r in records.items() if r["kind"] == 0 and not r["query"])
    queries = sorted(name for name, r in records.items() if r["query"])
    gnd = []
    for query in queries:
        own = [(i, records[name]["label"]) for i, name in enumerate(gallery)
               if records[name]["house"] == records[query]["house"]]
        gnd.append({kind: [i for i, label in own if label == kind] for kind in ("easy", "hard", "junk")})
        gnd[-1]["bbx"] = records[query]["box"]
    content = {"imlist": gallery, "qimlist": queries, "gnd": gnd}
    (folder / "town" / "gnd_town.pkl").write_bytes(pickle.dumps(content, protocol=2))
    for kind, name in ((1, "town-distractors"), (2, "town-codebook")):
        files = sorted(n for n, r in records.items() if r["kind"] == kind)
        (folder / name / f"{name}.txt").write_text("".join(f"{f}.jpg\n" for f in files), encoding="utf-8")
    text = json.dumps({"seed": seed, "drawing": DRAWING, "records": records})
    (folder / "town.json").write_text(text, encoding="utf-8")
