"""Pictures with boxes on disk: read and write PASCAL VOC's layout, write COCO's, and make a miniature of VOC. Plain
file."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..checks import nearest

VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
"""The twenty classes in VOC's order; class k + 1 is the k-th, 0 is the background."""


class VOCFolder(torch.utils.data.Dataset):
    """Pictures and boxes in VOC's layout: `root/VOC2007/{ImageSets/Main,Annotations,JPEGImages}`.

    `folder[i]` is an image (3, H, W) in [0, 1] and its target: "boxes" (n, 4) as x1, y1, x2, y2 in pixels (VOC counts
    them from 1 and includes the last one; here the left edge of the first pixel is 0), "labels" (n,), "difficult" (n,).

    Args:
        root: the folder VOCdevkit.
        splits: such as "2007_trainval"; several are joined.
        classes: names, in the order of the labels.

    Raises:
        FileNotFoundError: a folder, list or picture that is not there; the message says what was expected.
        ValueError: an annotation that cannot be used: an unknown class, a box outside its picture or without area.
    """

    def __init__(self, root: str | Path, splits: Sequence[str], classes: Sequence[str] = VOC_CLASSES):
        self.root, self.classes = Path(root), tuple(classes)
        self.rows: list[tuple[Path, str]] = []
        for split in splits:
            year, _, name = split.partition("_")
            folder = self.root / f"VOC{year}"
            listed = folder / "ImageSets" / "Main" / f"{name}.txt"
            if not listed.is_file():
                raise FileNotFoundError(
                    f"no list {listed} for the split {split!r}: root must be the folder VOCdevkit that "
                    f"holds VOC{year}, and a split is a year and a list, such as 2007_trainval"
                )
            self.rows += [(folder, line.split()[0]) for line in listed.read_text().splitlines() if line.strip()]
        if not self.rows:
            raise ValueError(f"the lists of {', '.join(splits)} in {self.root} are empty")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, dict[str, Tensor]]:
        folder, name = self.rows[index]
        image = read_picture(folder / "JPEGImages" / f"{name}.jpg")
        return image, self.target(index, tuple(image.shape[-2:]))

    def target(self, index: int, size: tuple[int, int] | None = None) -> dict[str, Tensor]:
        "The boxes of one picture; with the (height, width) of the picture they are checked against it."
        folder, name = self.rows[index]
        return read_annotation(folder / "Annotations" / f"{name}.xml", self.classes, size)


def read_picture(path: Path) -> Tensor:
    "(3, H, W) float32 in [0, 1]."
    if not path.is_file():
        raise FileNotFoundError(f"no picture {path}: it is listed, its file is missing")
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255


def read_annotation(path: Path, classes: Sequence[str], size: tuple[int, int] | None = None) -> dict[str, Tensor]:
    """The objects of one picture from VOC's XML.

    Args:
        path: the file.
        classes: known names.
        size: height and width of the picture, which the boxes must not leave.

    Returns:
        "boxes" (n, 4) float32, "labels" (n,) int64 from 1, "difficult" (n,) bool; n may be 0.

    Raises:
        FileNotFoundError, ValueError: see `VOCFolder`.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no annotation {path}: its picture is listed, its boxes are missing")
    text = path.read_text(encoding="utf-8")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # entities can be made to fill the memory
        raise ValueError(f"{path} declares entities, which no annotation needs: it is not read")
    try:
        objects = ElementTree.fromstring(text).findall("object")
    except ElementTree.ParseError as error:
        raise ValueError(f"{path} is no XML ({error})") from None
    boxes, labels, difficult = [], [], []
    for number, entry in enumerate(objects):
        name = (entry.findtext("name") or "").strip()
        if name not in classes:
            raise ValueError(f"{path}: object {number} is a {name!r}: {nearest(name, classes)}")
        boxes.append(_read_box(entry, size, f"{path}: object {number} ({name})"))
        labels.append(classes.index(name) + 1)
        difficult.append((entry.findtext("difficult") or "0").strip() == "1")
    return {
        "boxes": torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        "labels": torch.tensor(labels, dtype=torch.int64),
        "difficult": torch.tensor(difficult, dtype=torch.bool),
    }


def _read_box(
    entry: ElementTree.Element, size: tuple[int, int] | None, where: str
) -> tuple[float, float, float, float]:
    try:
        x1, y1, x2, y2 = (float(entry.findtext(f"bndbox/{side}") or "") for side in ("xmin", "ymin", "xmax", "ymax"))
    except ValueError:
        raise ValueError(f"{where} has no box of four numbers xmin, ymin, xmax, ymax") from None
    x1, y1 = x1 - 1, y1 - 1  # from pixels counted from 1, both ends included, to edges
    if not (x2 > x1 and y2 > y1):
        raise ValueError(f"{where}: a box without area, ({x1:g}, {y1:g}) to ({x2:g}, {y2:g})")
    if x1 < 0 or y1 < 0 or (size is not None and (y2 > size[0] or x2 > size[1])):
        held = "" if size is None else f" of {size[1]} x {size[0]} pixels"
        raise ValueError(f"{where}: the box ({x1:g}, {y1:g}) to ({x2:g}, {y2:g}) leaves its picture{held}")
    return x1, y1, x2, y2


def write_voc(root: str | Path, dataset, split: str, classes: Sequence[str] | None = None) -> Path:
    """Write a data set of pictures and boxes in VOC's layout.

    Args:
        root: becomes the folder VOCdevkit; made where it is missing.
        dataset: gives (image (3, H, W) in [0, 1], target) as `VOCFolder` does; `dataset.classes` are the names.
        split: a year and a list, such as "2007_trainval".
        classes: other names for the same labels.

    Returns:
        the folder of the year.
    """
    year, _, name = split.partition("_")
    folder, names = Path(root) / f"VOC{year}", tuple(classes or dataset.classes)
    for part in ("ImageSets/Main", "Annotations", "JPEGImages"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    listed = []
    for number in range(len(dataset)):
        image, target = dataset[number]
        listed.append(f"{name}{number:06d}")
        pixels = (image.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
        Image.fromarray(pixels).save(folder / "JPEGImages" / f"{listed[-1]}.jpg", quality=95)
        (folder / "Annotations" / f"{listed[-1]}.xml").write_text(
            _annotation(listed[-1], image, target, names), encoding="utf-8"
        )
    (folder / "ImageSets" / "Main" / f"{name}.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")
    return folder


def _annotation(name: str, image: Tensor, target: dict[str, Tensor], names: Sequence[str]) -> str:
    "VOC's XML of one picture."
    tree = ElementTree.Element("annotation")
    ElementTree.SubElement(tree, "filename").text = f"{name}.jpg"
    size = ElementTree.SubElement(tree, "size")
    for side, value in zip(("width", "height", "depth"), (image.shape[2], image.shape[1], 3)):
        ElementTree.SubElement(size, side).text = str(value)
    difficult = target.get("difficult", torch.zeros(len(target["labels"]), dtype=torch.bool))
    for box, label, hard in zip(target["boxes"].tolist(), target["labels"].tolist(), difficult.tolist()):
        entry = ElementTree.SubElement(tree, "object")
        ElementTree.SubElement(entry, "name").text = names[label - 1]
        ElementTree.SubElement(entry, "difficult").text = str(int(hard))
        edges = ElementTree.SubElement(entry, "bndbox")
        for side, value in zip(("xmin", "ymin", "xmax", "ymax"), (box[0] + 1, box[1] + 1, box[2], box[3])):
            ElementTree.SubElement(edges, side).text = f"{value:g}"
    ElementTree.indent(tree)
    return ElementTree.tostring(tree, encoding="unicode") + "\n"


def make_voc_miniature(root: str | Path, pictures: int = 12, test: int = 6) -> Path:
    """A few glyph pages under VOC's names: the layout of 2007 and 2012 to try a reader or a command on.

    Args:
        root: folder to write into; it becomes VOCdevkit.
        pictures: in each of 2007_trainval and 2012_trainval.
        test: in 2007_test.

    Returns:
        the root.
    """
    from .pages import GlyphPages

    names = VOC_CLASSES[:8]
    for split, pages, number, seed in (
        ("2007_trainval", "train", pictures, 10), ("2012_trainval", "train", pictures, 11), ("2007_test", "test",
        test, 10),
    ):  # fmt: skip
        write_voc(root, GlyphPages(pages, number, seed), split, names)
    return Path(root)


def write_coco(path: str | Path, dataset, file_name: str = "{:06d}.jpg") -> None:
    """Write the boxes of a data set as one COCO file: images, annotations (x, y, width, height), categories.

    Args:
        path: of the JSON file.
        dataset: as for `write_voc`.
        file_name: how picture i is called.
    """
    images, annotations = [], []
    for number in range(len(dataset)):
        image, target = dataset[number]
        images.append(
            {"id": number, "file_name": file_name.format(number), "height": image.shape[1], "width": image.shape[2]}
        )
        for (x1, y1, x2, y2), label in zip(target["boxes"].tolist(), target["labels"].tolist()):
            annotations.append({
                "id": len(annotations) + 1, "image_id": number, "category_id": label, "bbox": [x1, y1, x2 - x1, y2 -
                y1], "area": (x2 - x1) * (y2 - y1), "iscrowd": 0,
            })  # fmt: skip
    categories = [{"id": number, "name": name} for number, name in enumerate(dataset.classes, 1)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    Path(path).write_text(json.dumps(content) + "\n", encoding="utf-8")


def coco_ap(predictions: list[dict], targets: list[dict], backend: str = "pycocotools") -> dict[str, float]:
    """COCO's mean average precision of a set of detections, by torchmetrics.

    Args:
        predictions, targets: as for `detection_ap`.
        backend: "pycocotools" or "faster_coco_eval".

    Returns:
        "mAP" (overlaps .5 to .95), "AP50", "AP75".

    Raises:
        ImportError: torchmetrics, or the backend, is not installed.
    """
    try:
        from torchmetrics.detection import MeanAveragePrecision

        metric = MeanAveragePrecision(backend=backend)
    except (ImportError, ModuleNotFoundError) as error:
        raise ImportError(
            f"COCO's measure needs torchmetrics and {backend}: pip install torchmetrics {backend} ({error})"
        ) from None
    metric.warn_on_many_detections = False
    metric.update(predictions, [{name: target[name] for name in ("boxes", "labels")} for target in targets])
    found = metric.compute()
    return {"mAP": float(found["map"]), "AP50": float(found["map_50"]), "AP75": float(found["map_75"])}
