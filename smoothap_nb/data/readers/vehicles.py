"""PKU VehicleID: cars seen by many cameras."""

from __future__ import annotations

from pathlib import Path

from ..interface import DatasetError
from ..lists import Listing, read_columns
from ..protocols import Protocol
from ..settings import DataConfig
from ..sources import Count, DatasetInfo, OpenSets, recalls, sure


VEHICLEID_LISTS = {
    "train": "train_list",
    "small": "test_list_800",
    "medium": "test_list_1600",
    "large": "test_list_2400",
}


def read_vehicleid(root: Path, split: str) -> Listing:
    """PKU VehicleID: `train_test_split/LIST.txt` (picture number, vehicle), `image/NUMBER.jpg`,
    `attribute/model_attr.txt` (vehicle, model) if it is there.

    Args:
        root: the folder `VehicleID_V1.0`.
        split: "train", "small", "medium", "large", or "test" (all three, each picture once).
    """
    files = [
        f"train_test_split/{VEHICLEID_LISTS[s]}.txt"
        for s in (("small", "medium", "large") if split == "test" else (split,))
    ]
    seen: dict[str, str] = {}
    for file in files:
        for number, vehicle in zip(*read_columns(root, file, 2)):
            path = f"image/{number.zfill(7)}.jpg"
            if seen.setdefault(path, vehicle) != vehicle:
                raise DatasetError(
                    f"{root / file} gives picture {number} to vehicle {vehicle}, and to {seen[path]} elsewhere: "
                    f"fetch the official lists again"
                )
    paths, vehicles = list(seen), list(seen.values())
    if not (root / "attribute/model_attr.txt").exists():
        return Listing(paths, [vehicles], ("vehicle",))
    models: dict[str, str] = {}
    for vehicle, model in zip(*read_columns(root, "attribute/model_attr.txt", 2)):
        if models.setdefault(vehicle, model) != model:
            raise DatasetError(
                f"attribute/model_attr.txt in {root} gives vehicle {vehicle} two models, {models[vehicle]} and "
                f"{model}: a class has one parent. "
                "Fetch the official archive again"
            )
    return Listing(paths, [[models.get(v, "unknown") for v in vehicles], vehicles], ("model", "vehicle"))


def three_tests(open_sets: OpenSets, info: DatasetInfo, data: DataConfig, seed: int) -> list[Protocol]:
    """Three test sets of growing size; each image against all others, or with `one_gallery` against one image of
    every vehicle, over ten draws."""
    draws = 10 if data.protocol == "one_gallery" else 0
    return [
        Protocol(size, *open_sets(size), metrics=info.metrics, draws=draws, seed=seed)
        for size in ("small", "medium", "large")
    ]


VEHICLEID = DatasetInfo(
    "vehicleid",
    "PKU VehicleID",
    ("model", "vehicle"),
    {
        "train": (
            Count(110_178, 13_134, "Smooth-AP, Table 1", False),
            Count(None, 13_164, "read-me of the archive", False),
        ),
        "small": sure(7_332, 800, "Smooth-AP, Table 1"),
        "medium": sure(12_995, 1_600, "Smooth-AP, Table 1"),
        "large": sure(20_038, 2_400, "Smooth-AP, Table 1"),
    },
    (
        "train_test_split/train_list.txt",
        "train_test_split/test_list_800.txt",
        "train_test_split/test_list_1600.txt",
        "train_test_split/test_list_2400.txt",
        "image",
    ),
    "pkuml.org (access by e-mail)",
    "VehicleID_V1.0",
    "Liu et al. 2016; Smooth-AP, FastAP",
    metrics=("mAP", *recalls(1, 5)),
    read=read_vehicleid,
    splits=("train", "test", "small", "medium", "large"),
    tests=three_tests,
    kinds=("default", "all_vs_rest", "one_gallery"),
)
