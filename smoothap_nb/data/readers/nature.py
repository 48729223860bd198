"""CUB-200-2011 and iNaturalist 2018: birds, and everything that lives."""

from __future__ import annotations

import json
from pathlib import Path

from ..interface import DatasetError
from ..lists import Listing, read_columns, read_lines
from ..sources import TREE, Count, DatasetInfo, recalls, sure


def read_cub(root: Path, split: str) -> Listing:
    """CUB-200-2011: `images.txt`, `image_class_labels.txt`, `classes.txt`; the first half of the classes trains, the
    rest tests.

    A third column in `classes.txt` (the family of each species) becomes a level of its own. `train_test_split.txt` is
    the split for classification, not used.

    Args:
        root: the folder `CUB_200_2011`.
        split: "train" or "test".
    """
    numbers, paths = read_columns(root, "images.txt", 2)
    labelled, classes = read_columns(root, "image_class_labels.txt", 2)
    if numbers != labelled:
        odd = next((a for a, b in zip(numbers, labelled) if a != b), "the last one")
        raise DatasetError(
            f"images.txt and image_class_labels.txt in {root} do not list the same images (first difference: image "
            f"{odd}): fetch both again"
        )
    known = {parts[0]: parts[1:] for parts in map(str.split, read_lines(root, "classes.txt")) if len(parts) > 1}
    for path, label in zip(paths, classes):
        if label not in known or known[label][0] != path.partition("/")[0]:
            raise DatasetError(
                f"{root / 'image_class_labels.txt'} gives class {label} ({known.get(label, ['unknown'])[0]}) to "
                f"{path}: labels and folders "
                "contradict each other. Fetch the official archive again"
            )
    order = sorted(known, key=int)
    half = set(order[: len(order) // 2] if split == "train" else order[len(order) // 2 :])
    rows = [i for i, label in enumerate(classes) if label in half]
    names = [[known[classes[i]][0] for i in rows]]
    families = all(len(parts) > 1 for parts in known.values())
    return Listing(
        [f"images/{paths[i]}" for i in rows],
        [[known[classes[i]][1] for i in rows], *names] if families else names,
        ("family", "species") if families else ("species",),
    )


INAT_LEVELS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")


def read_inat(root: Path, split: str, full: bool = False) -> Listing:
    """iNaturalist 2018, retrieval split: `Inat_dataset_splits/Inaturalist_SPLIT_set1.txt`, a path
    `.../SUPER-CATEGORY/CLASS/PICTURE` per line.

    Args:
        root: the folder that holds `train_val2018`, the lists, and (for seven levels) `train2018.json`.
        split: "train" or "test".
        full: the seven levels of `train2018.json` in place of super-category and species.
    """
    file = f"Inat_dataset_splits/Inaturalist_{split}_set1.txt"
    paths = [line.strip() for line in read_lines(root, file) if line.strip()]
    for number, path in enumerate(paths, 1):
        if path.count("/") < 2:
            raise DatasetError(
                f"line {number} of {root / file} is not .../SUPER-CATEGORY/CLASS/PICTURE: {path[:60]!r}. Is it the "
                f"right file?"
            )
    parts = [path.rsplit("/", 3)[-3:-1] for path in paths]
    if not full:
        return Listing(paths, [[p[0] for p in parts], [p[1] for p in parts]], ("super-category", "species"))
    try:
        categories = json.loads("\n".join(read_lines(root, "train2018.json")))["categories"]
        known = {
            str(c["id"]): [*(c[level] for level in INAT_LEVELS[:-1]), f"{c['id']} {c['name']}"] for c in categories
        }
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DatasetError(
            f"{root / 'train2018.json'} holds no list 'categories' with id, name, {', '.join(INAT_LEVELS[:-1])} "
            f"({type(error).__name__}: {error}): take train2018.json of the 2018 competition"
        ) from None
    if (odd := next((p[1] for p in parts if p[1] not in known), None)) is not None:
        raise DatasetError(
            f"{root / file} names class {odd!r}, which {root / 'train2018.json'} does not know: one of them is the "
            f"wrong file"
        )
    return Listing(paths, [list(column) for column in zip(*(known[p[1]] for p in parts))], INAT_LEVELS, "path")


_INAT_SOURCE = (
    "images and train2018.json: github.com/visipedia/inat_comp, folder 2018 (the file server changes now and then: "
    "see issue 16 there); the retrieval "
    "lists Inat_dataset_splits: the Smooth-AP authors' README (github.com/Andrew-Brown1/Smooth_AP)"
)

CUB = DatasetInfo(
    "cub",
    "CUB-200-2011",
    ("species",),
    {
        "train": sure(5_864, 100, "official lists, first 100 classes"),
        "test": sure(5_924, 100, "official lists, last 100 classes"),
    },
    ("images.txt", "image_class_labels.txt", "classes.txt", "images"),
    "vision.caltech.edu/datasets/cub_200_2011 (data.caltech.edu/records/65de6-vp158)",
    "CUB_200_2011",
    "Wah et al. 2011; RaMBO, ROADMAP",
    metrics=("mAP", "mAP@R", *recalls(1, 2, 4, 8)),
    read=read_cub,
    apart=None,
)

INAT_BASE = DatasetInfo(
    "inat_base",
    "iNaturalist 2018, retrieval split, two levels",
    ("super-category", "species"),
    {"train": sure(325_846, (13, 5_690), "Smooth-AP, Table 1"), "test": sure(136_093, 2_452, "Smooth-AP, Table 1")},
    (
        "Inat_dataset_splits/Inaturalist_train_set1.txt",
        "Inat_dataset_splits/Inaturalist_test_set1.txt",
        "train_val2018",
    ),
    _INAT_SOURCE,
    "Inaturalist",
    "Van Horn et al. 2018; Smooth-AP, HAPPIER",
    metrics=("mAP", *recalls(1, 4, 16, 32), "AP@level1", "AP@level2", *TREE),
    read=read_inat,
)

INAT_FULL = DatasetInfo(
    "inat_full",
    "iNaturalist 2018, retrieval split, seven levels",
    INAT_LEVELS,
    {
        "train": (
            Count(325_846, None, "Smooth-AP, Table 1"),
            Count(325_846, (5, 23, 54, 249, 961, 3_438, 5_690), "configuration of the HAPPIER code", False),
        ),
        "test": sure(136_093, 2_452, "Smooth-AP, Table 1"),
    },
    (
        "Inat_dataset_splits/Inaturalist_train_set1.txt",
        "Inat_dataset_splits/Inaturalist_test_set1.txt",
        "train2018.json",
        "train_val2018",
    ),
    _INAT_SOURCE,
    "Inaturalist",
    "Van Horn et al. 2018; HAPPIER",
    metrics=("mAP", *recalls(1, 4, 16, 32), *(f"AP@level{n}" for n in range(1, 8)), *TREE),
    read=lambda root, split: read_inat(root, split, full=True),
)
