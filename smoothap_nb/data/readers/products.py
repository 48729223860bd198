"""Stanford Online Products and In-Shop: things to buy."""

from __future__ import annotations

from pathlib import Path

from ..interface import DatasetError
from ..lists import Listing, read_columns, read_lines
from ..sources import TREE, DatasetInfo, queries_and_gallery, recalls, sure


def read_sop(root: Path, split: str) -> Listing:
    """Stanford Online Products: `Ebay_train.txt`, `Ebay_test.txt` (header, then image, class, super-class, path),
    pictures in `CATEGORY_final/`.

    Args:
        root: the folder `Stanford_Online_Products`.
        split: "train" or "test".
    """
    file = f"Ebay_{split}.txt"
    _, fine, coarse, paths = read_columns(root, file, 4, 1, "image_id class_id super_class_id path")
    folders: dict[str, str] = {}
    for super_class, path in zip(coarse, paths):
        folder = path.partition("/")[0]
        if folders.setdefault(super_class, folder) != folder:
            raise DatasetError(
                f"{root / file} gives super-class {super_class} to pictures of {folders[super_class]} and of {folder}: "
                "the labels contradict the folders. Fetch the official list again"
            )
    return Listing(paths, [coarse, fine], ("category", "product"))


def read_inshop(root: Path, split: str) -> Listing:
    """In-Shop: `list_eval_partition.txt` (count; header; image, item, status) in the root or `Eval/`, pictures below
    `img/GENDER/CATEGORY/ITEM/`.

    Args:
        root: the folder that holds `img`.
        split: "train", "query", "gallery", or "test" (both of them).
    """
    file = next(
        (f for f in ("list_eval_partition.txt", "Eval/list_eval_partition.txt") if (root / f).exists()),
        "list_eval_partition.txt",
    )
    paths, items, status = read_columns(root, file, 3, 2, "image_name item_id evaluation_status")
    if other := set(status) - {"train", "query", "gallery"}:
        raise DatasetError(
            f"{root / file} has the status {sorted(other)[0]!r}; known: train, query, gallery. Fetch the official "
            f"partition again"
        )
    stated = read_lines(root, file)[0].strip()
    if stated.isdigit() and int(stated) != len(paths):
        raise DatasetError(
            f"{root / file} says {int(stated):,} images in its first line and lists {len(paths):,}: it is cut "
            f"short, fetch it again"
        )
    wanted = {"test": ("query", "gallery")}.get(split, (split,))
    rows = [i for i, s in enumerate(status) if s in wanted]
    for i in rows:
        if paths[i].count("/") < 3:
            raise DatasetError(f"{root / file}: {paths[i]!r} is not img/GENDER/CATEGORY/ITEM/PICTURE")
    return Listing(
        [paths[i] for i in rows],
        [["/".join(paths[i].split("/")[1:-2]) for i in rows], [items[i] for i in rows]],
        ("category", "item"),
    )


SOP = DatasetInfo(
    "sop",
    "Stanford Online Products",
    ("category", "product"),
    {"train": sure(59_551, (12, 11_318), "official list"), "test": sure(60_502, (12, 11_316), "official list")},
    ("Ebay_train.txt", "Ebay_test.txt"),
    "cvgl.stanford.edu/projects/lifted_struct (ftp://cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip)",
    "Stanford_Online_Products",
    "Oh Song et al. 2016; Smooth-AP, RaMBO, HAPPIER, FastAP",
    metrics=("mAP", *recalls(1, 10, 100, 1000), "AP@level1", "AP@level2", *TREE),
    read=read_sop,
)

INSHOP = DatasetInfo(
    "inshop",
    "In-Shop Clothes Retrieval (DeepFashion)",
    ("category", "item"),
    {
        "train": sure(25_882, 3_997, "official partition"),
        "query": sure(14_218, 3_985, "official partition"),
        "gallery": sure(12_612, 3_985, "official partition"),
    },
    ("list_eval_partition.txt", "img"),
    "mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html (agreement by e-mail, password for the archives)",
    "In-shop Clothes Retrieval Benchmark",
    "Liu et al. 2016; RaMBO, FastAP",
    metrics=("mAP", *recalls(1, 10, 20, 30, 50)),
    read=read_inshop,
    splits=("train", "test", "query", "gallery"),
    tests=queries_and_gallery,
    elsewhere={"list_eval_partition.txt": "Eval/list_eval_partition.txt"},
)
