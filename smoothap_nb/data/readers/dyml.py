"""DyML: the same pictures searched at three scales, fine, middle and coarse."""

from __future__ import annotations

from pathlib import Path

from ..lists import Listing, read_table
from ..protocols import Protocol
from ..settings import DataConfig
from ..sources import Count, DatasetInfo, OpenSets


SCALES = ("fine", "middle", "coarse")
_COLUMNS = {"path": "fname", "coarse": "coarse_id", "middle": "middle_id", "fine": "fine_id"}


def read_dyml(root: Path, split: str) -> Listing:
    """DyML: `train/label.csv` (fname, fine, middle, coarse id) and `train/imgs/`; tests
    `bmk_LEVEL/{query,gallery}.csv` with a folder each; for
    DyML-Product one test file with three levels, `mini-bmk_all_in_one/label.csv`.

    Args:
        root: the folder of one of the three sets.
        split: "train"; "test" (DyML-Product); "query_fine", "gallery_fine" and so on for middle and coarse.
    """
    if split in ("train", "test"):
        folder = "train" if split == "train" else "mini-bmk_all_in_one"
        files, *names = read_table(root, f"{folder}/label.csv", _COLUMNS)
        return Listing([f"{folder}/imgs/{file}" for file in files], names, ("coarse", "middle", "fine"), "split")
    part, level = split.split("_")
    files, labels = read_table(root, f"bmk_{level}/{part}.csv", {"path": "fname", "label": "labels"})
    return Listing([f"bmk_{level}/{part}/{file}" for file in files], [labels], (level,))


def lists_of_each_scale(open_sets: OpenSets, info: DatasetInfo, data: DataConfig, seed: int) -> list[Protocol]:
    """Three tests, one for each scale, each with its own queries and gallery; the galleries hold the queries again,
    under other names."""
    return [
        Protocol(level, *open_sets(f"query_{level}", f"gallery_{level}"), metrics=info.metrics, shared=True)
        for level in SCALES
    ]


def one_list_three_scales(open_sets: OpenSets, info: DatasetInfo, data: DataConfig, seed: int) -> list[Protocol]:
    "DyML-Product: every test image against all others, at each of three levels of the labels."
    (images,) = open_sets("test")
    above = images.labels.shape[1]
    return [
        Protocol(level, images, metrics=info.metrics, level=above - 1 - n)
        for n, level in enumerate(SCALES)
        if n < above
    ]


_SOURCE = (
    "github.com/SupetZYK/DynamicMetricLearning: the OneDrive link there is dead (issue 3 of "
    "github.com/elias-ramzi/HAPPIER), the Baidu link works"
)
_LAYOUT = (
    "train/label.csv",
    "train/imgs",
    *(
        f"bmk_{level}/{file}"
        for level in ("fine", "middle", "coarse")
        for file in ("query.csv", "gallery.csv", "query", "gallery")
    ),
)
_LISTS = {
    "splits": ("train", *(f"{part}_{level}" for level in SCALES for part in ("query", "gallery"))),
    "tests": lists_of_each_scale,
    "made_of": {level: (f"query_{level}", f"gallery_{level}") for level in SCALES},
    "note": "the tests are lists of queries and galleries, a pair for each scale: load_protocols() gives them",
}


def _dyml(name: str, title: str, train: tuple, code: tuple, sizes: dict, layout: tuple = _LAYOUT, **how) -> DatasetInfo:
    "A DyML set: the paper's counts (rounded to 100) beside those in the authors' configuration."
    counts = {
        "train": (
            Count(train[0], train[1:], "HAPPIER, Table 8 (rounded)", False),
            Count(None, code, "configuration of the HAPPIER code", False),
        )
    }
    counts |= {
        level: (Count(images, classes, "HAPPIER, Table 8 (rounded)", False),)
        for level, (images, classes) in sizes.items()
    }
    return DatasetInfo(
        name,
        title,
        ("coarse", "middle", "fine"),
        counts,
        layout,
        _SOURCE,
        name,
        "Sun et al. 2021; HAPPIER",
        metrics=("mAP", "ASI", "R@1"),
        read=read_dyml,
        apart=None,
        **how,
    )


VEHICLE = _dyml(
    "dyml_vehicle",
    "DyML-Vehicle",
    (343_100, 5, 89, 36_301),
    (5, 93, 39_491),
    {"fine": (63_500, 8_183), "middle": (34_300, 127), "coarse": (5_900, 6)},
    **_LISTS,
)
ANIMAL = _dyml(
    "dyml_animal",
    "DyML-Animal",
    (407_800, 5, 28, 495),
    (5, 28, 495),
    {"fine": (11_300, 162), "middle": (23_100, 17), "coarse": (12_500, 5)},
    **_LISTS,
)
PRODUCT = _dyml(
    "dyml_product",
    "DyML-Product",
    (747_100, 36, 169, 1_609),
    (36, 171, 1_639),
    {"fine": (1_500, 315), "middle": (1_500, 37), "coarse": (1_500, 6)},
    ("train/label.csv", "train/imgs", "mini-bmk_all_in_one/label.csv", "mini-bmk_all_in_one/imgs"),
    tests=one_list_three_scales,
    made_of={level: ("test",) for level in SCALES},
)
