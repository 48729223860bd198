"""Lists and folders of eleven benchmarks as their authors give them out: read, registered, and written in miniature."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..checks import nearest
from .glyphs import Glyphs, data_root

__all__ = ['VEHICLEID_LISTS', 'INAT_LEVELS', 'DATASETS', 'READERS', 'SPLITS', 'MARKER', 'SOP_CATEGORIES', 'INSHOP_CATEGORIES',
           'INAT_CATEGORIES', 'DYML_HEADER', 'DatasetError', 'MissingData', 'Listing', 'read_sop', 'label_tree',
           'find_missing', 'read_inshop', 'read_cub', 'read_vehicleid', 'read_inat', 'read_dyml', 'read_vggface2',
           'read_ijbc', 'read_folder', 'read_csv', 'Count', 'DatasetInfo', 'dataset_info', 'find_root',
           'glyph_photographs', 'make_miniature']


class DatasetError(ValueError):
    "A data set that cannot be used as it lies on the disk; the message names the thing and the mend."


class MissingData(DatasetError, FileNotFoundError):
    "A folder, list or picture that is not there."

    __str__ = Exception.__str__


def _lines(root: Path, path: str) -> list[str]:
    "The lines of a text file in the root; what is wrong with it is named."
    full = root / path
    if not full.exists():
        raise MissingData(f"{full} is missing: it belongs to the data set's own archives, unpack all of them")
    if full.is_dir():
        raise DatasetError(f"{full} is a folder, and a list of images is expected there")
    try:
        lines = full.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DatasetError(f"{full} is no text file: fetch the official list again") from None
    if not any(line.strip() for line in lines):
        raise DatasetError(f"{full} is empty: fetch the official list again")
    return lines


def _columns(root: Path, path: str, count: int, header: int = 0, expect: str = "") -> list[list[str]]:
    "Columns of a list separated by blanks; the header is checked, empty lines are passed over."
    lines = _lines(root, path)
    if expect and lines[header - 1].split()[:count] != expect.split():
        raise DatasetError(f"{root / path} does not begin with the header {expect!r} but with {lines[header - 1][:60]!r}: is it the right file?")
    out: list[list[str]] = [[] for _ in range(count)]
    for number, line in enumerate(lines[header:], header + 1):
        parts = line.split(None, count - 1)
        if not parts:
            continue
        if len(parts) != count:
            raise DatasetError(f"line {number} of {root / path} has {len(parts)} columns, not {count}: {line[:60]!r}. Fetch the official list again")
        for column, part in zip(out, parts):
            column.append(part.strip())
    if not out[0]:
        raise DatasetError(f"{root / path} lists no image: fetch the official list again")
    return out


@dataclass
class Listing:
    "Images of one split as their list gives them, before any picture is opened."

    paths: list[str]  # relative to the root, "/" between folders
    names: list[list[str]]  # one column per level, coarse to fine
    level_names: tuple[str, ...]
    tree: str = "strict"  # "strict": a class has one parent; "path": a class is its whole path; "split": path, with a warning where names repeat
    boxes: list[tuple[float, ...]] | None = None  # left, top, width, height of what counts in the picture
    instances: list[str] | None = None  # images with the same name are averaged (video frames)


def read_sop(root: Path, split: str) -> Listing:
    """Stanford Online Products: `Ebay_train.txt`, `Ebay_test.txt` (header, then image, class, super-class, path), pictures in `CATEGORY_final/`.

    Args:
        root: the folder `Stanford_Online_Products`.
        split: "train" or "test".
    """
    file = f"Ebay_{split}.txt"
    _, fine, coarse, paths = _columns(root, file, 4, 1, "image_id class_id super_class_id path")
    folders: dict[str, str] = {}
    for super_class, path in zip(coarse, paths):
        folder = path.partition("/")[0]
        if folders.setdefault(super_class, folder) != folder:
            raise DatasetError(f"{root / file} gives super-class {super_class} to pictures of {folders[super_class]} and of {folder}: "
                               "the labels contradict the folders. Fetch the official list again")
    return Listing(paths, [coarse, fine], ("category", "product"))


def _natural(name: str) -> list:
    "Sort key: runs of digits as numbers."
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def label_tree(names: list[list[str]], tree: str = "strict", what: str = "the list", level_names: Sequence[str] = ()) -> tuple[Tensor, list[list[str]]]:
    """Integer labels from columns of names.

    Args:
        names: one column of N names per level, coarse to fine.
        tree: "strict": a name means the same class everywhere and has one parent. "path": a name below another parent is another class, as in
            folders. "split": as "path", with a warning where that happens.
        what: where the names come from, for messages.
        level_names: what the levels are called, for messages.

    Returns:
        labels (N, L) int64, ids from 0 in natural order at each level; the name of every id per level.

    Raises:
        DatasetError: a class with two parents, named; an empty name.
    """
    called = list(level_names) or [f"level {n + 1}" for n in range(len(names))]
    parent, out, id_names = None, [], []
    for level, column in enumerate(names):
        if "" in (known := set(column)):
            raise DatasetError(f"{what}: image {column.index('') + 1} has an empty {called[level]}: every image needs a name at every level")
        keys = column if parent is None or tree == "strict" else list(zip(parent, column))
        if parent is not None:
            above: dict[str, int] = {}
            for n, (name, up) in enumerate(zip(column, parent)):
                if above.setdefault(name, up) != up and tree != "path":
                    both = f"{called[level]} {name!r} lies in {called[level - 1]} {id_names[-1][above[name]]!r} and in {id_names[-1][up]!r}"
                    if tree == "strict":
                        raise DatasetError(f"{what}: {both}: a class has one parent. Correct the labels, or use the finest level alone (data.levels = 1)")
                    warnings.warn(f"{what}: {both}, perhaps among others: counted as two classes", stacklevel=2)
                    break
            order = sorted(set(keys), key=(lambda k: (k[0], _natural(k[1]))) if tree != "strict" else _natural)
        else:
            order = sorted(known, key=_natural)
        number = {key: i for i, key in enumerate(order)}
        parent = [number[key] for key in keys]
        out.append(torch.tensor(parent, dtype=torch.int64))
        id_names.append([key if isinstance(key, str) else key[1] for key in order])
    return torch.stack(out, 1) if out else torch.zeros(0, 0, dtype=torch.int64), id_names


def find_missing(root: Path, paths: Sequence[str], what: str = "the list") -> list[str]:
    """The images that are not there; a path that leads out of the root is refused.

    Args:
        root: the data set's folder.
        paths: relative to it.
        what: where the paths come from, for messages.

    Returns:
        the missing ones, in the order of the list.

    Raises:
        DatasetError: an absolute path, one with "..", or a link to somewhere outside, named.
    """
    inside = os.path.join(os.path.realpath(root), "")

    def refuse(path: str, why: str):
        raise DatasetError(f"{what} names {path!r}, {why}: images must lie in {root}. Correct the list, or pass the folder that holds all images as root")

    folders: dict[str, dict[str, bool]] = {}
    missing = []
    for path in paths:
        folder, _, name = path.rpartition("/")
        if path[:1] in ("/", "\\") or path[1:2] == ":":
            refuse(path, "an absolute path")
        if folder not in folders:
            if ".." in folder.split("/") or "\\" in folder or "\0" in path:
                refuse(path, "which leads upwards")
            real = os.path.realpath(os.path.join(root, folder))
            if not os.path.join(real, "").startswith(inside):
                refuse(path, f"and its folder is a link to {real}")
            try:
                with os.scandir(real) as entries:
                    folders[folder] = {entry.name: entry.is_symlink() for entry in entries}
            except (FileNotFoundError, NotADirectoryError):
                folders[folder] = {}
        if name in ("..", ""):
            refuse(path, "which is no file")
        link = folders[folder].get(name)
        if link is None:
            missing.append(path)
        elif link and not os.path.realpath(os.path.join(root, path)).startswith(inside):
            refuse(path, "a link to somewhere else")
    return missing


def read_inshop(root: Path, split: str) -> Listing:
    """In-Shop: `list_eval_partition.txt` (count; header; image, item, status) in the root or `Eval/`, pictures below `img/GENDER/CATEGORY/ITEM/`.

    Args:
        root: the folder that holds `img`.
        split: "train", "query", "gallery", or "test" (both of them).
    """
    file = next((f for f in ("list_eval_partition.txt", "Eval/list_eval_partition.txt") if (root / f).exists()), "list_eval_partition.txt")
    paths, items, status = _columns(root, file, 3, 2, "image_name item_id evaluation_status")
    if (other := set(status) - {"train", "query", "gallery"}):
        raise DatasetError(f"{root / file} has the status {sorted(other)[0]!r}; known: train, query, gallery. Fetch the official partition again")
    stated = _lines(root, file)[0].strip()
    if stated.isdigit() and int(stated) != len(paths):
        raise DatasetError(f"{root / file} says {int(stated):,} images in its first line and lists {len(paths):,}: it is cut short, fetch it again")
    wanted = {"test": ("query", "gallery")}.get(split, (split,))
    rows = [i for i, s in enumerate(status) if s in wanted]
    for i in rows:
        if paths[i].count("/") < 3:
            raise DatasetError(f"{root / file}: {paths[i]!r} is not img/GENDER/CATEGORY/ITEM/PICTURE")
    return Listing([paths[i] for i in rows], [["/".join(paths[i].split("/")[1:-2]) for i in rows], [items[i] for i in rows]], ("category", "item"))


def read_cub(root: Path, split: str) -> Listing:
    """CUB-200-2011: `images.txt`, `image_class_labels.txt`, `classes.txt`; the first half of the classes trains, the rest tests.

    A third column in `classes.txt` (the family of each species) becomes a level of its own. `train_test_split.txt` is the split for classification, not used.

    Args:
        root: the folder `CUB_200_2011`.
        split: "train" or "test".
    """
    numbers, paths = _columns(root, "images.txt", 2)
    labelled, classes = _columns(root, "image_class_labels.txt", 2)
    if numbers != labelled:
        odd = next((a for a, b in zip(numbers, labelled) if a != b), "the last one")
        raise DatasetError(f"images.txt and image_class_labels.txt in {root} do not list the same images (first difference: image {odd}): fetch both again")
    known = {parts[0]: parts[1:] for parts in map(str.split, _lines(root, "classes.txt")) if len(parts) > 1}
    for path, label in zip(paths, classes):
        if label not in known or known[label][0] != path.partition("/")[0]:
            raise DatasetError(f"{root / 'image_class_labels.txt'} gives class {label} ({known.get(label, ['unknown'])[0]}) to {path}: labels and folders "
                               "contradict each other. Fetch the official archive again")
    order = sorted(known, key=int)
    half = set(order[:len(order) // 2] if split == "train" else order[len(order) // 2:])
    rows = [i for i, label in enumerate(classes) if label in half]
    names = [[known[classes[i]][0] for i in rows]]
    families = all(len(parts) > 1 for parts in known.values())
    return Listing([f"images/{paths[i]}" for i in rows], [[known[classes[i]][1] for i in rows], *names] if families else names,
                   ("family", "species") if families else ("species",))


VEHICLEID_LISTS = {"train": "train_list", "small": "test_list_800", "medium": "test_list_1600", "large": "test_list_2400"}


def read_vehicleid(root: Path, split: str) -> Listing:
    """PKU VehicleID: `train_test_split/LIST.txt` (picture number, vehicle), `image/NUMBER.jpg`, `attribute/model_attr.txt` (vehicle, model) if it is there.

    Args:
        root: the folder `VehicleID_V1.0`.
        split: "train", "small", "medium", "large", or "test" (all three, each picture once).
    """
    files = [f"train_test_split/{VEHICLEID_LISTS[s]}.txt" for s in (("small", "medium", "large") if split == "test" else (split,))]
    seen: dict[str, str] = {}
    for file in files:
        for number, vehicle in zip(*_columns(root, file, 2)):
            path = f"image/{number.zfill(7)}.jpg"
            if seen.setdefault(path, vehicle) != vehicle:
                raise DatasetError(f"{root / file} gives picture {number} to vehicle {vehicle}, and to {seen[path]} elsewhere: fetch the official lists again")
    paths, vehicles = list(seen), list(seen.values())
    if not (root / "attribute/model_attr.txt").exists():
        return Listing(paths, [vehicles], ("vehicle",))
    models: dict[str, str] = {}
    for vehicle, model in zip(*_columns(root, "attribute/model_attr.txt", 2)):
        if models.setdefault(vehicle, model) != model:
            raise DatasetError(f"attribute/model_attr.txt in {root} gives vehicle {vehicle} two models, {models[vehicle]} and {model}: a class has one parent. "
                               "Fetch the official archive again")
    return Listing(paths, [[models.get(v, "unknown") for v in vehicles], vehicles], ("model", "vehicle"))


INAT_LEVELS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")


def read_inat(root: Path, split: str, full: bool = False) -> Listing:
    """iNaturalist 2018, retrieval split: `Inat_dataset_splits/Inaturalist_SPLIT_set1.txt`, a path `.../SUPER-CATEGORY/CLASS/PICTURE` per line.

    Args:
        root: the folder that holds `train_val2018`, the lists, and (for seven levels) `train2018.json`.
        split: "train" or "test".
        full: the seven levels of `train2018.json` in place of super-category and species.
    """
    file = f"Inat_dataset_splits/Inaturalist_{split}_set1.txt"
    paths = [line.strip() for line in _lines(root, file) if line.strip()]
    for number, path in enumerate(paths, 1):
        if path.count("/") < 2:
            raise DatasetError(f"line {number} of {root / file} is not .../SUPER-CATEGORY/CLASS/PICTURE: {path[:60]!r}. Is it the right file?")
    parts = [path.rsplit("/", 3)[-3:-1] for path in paths]
    if not full:
        return Listing(paths, [[p[0] for p in parts], [p[1] for p in parts]], ("super-category", "species"))
    try:
        categories = json.loads("\n".join(_lines(root, "train2018.json")))["categories"]
        known = {str(c["id"]): [*(c[level] for level in INAT_LEVELS[:-1]), f"{c['id']} {c['name']}"] for c in categories}
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DatasetError(f"{root / 'train2018.json'} holds no list 'categories' with id, name, {', '.join(INAT_LEVELS[:-1])} "
                           f"({type(error).__name__}: {error}): take train2018.json of the 2018 competition") from None
    if (odd := next((p[1] for p in parts if p[1] not in known), None)) is not None:
        raise DatasetError(f"{root / file} names class {odd!r}, which {root / 'train2018.json'} does not know: one of them is the wrong file")
    return Listing(paths, [list(column) for column in zip(*(known[p[1]] for p in parts))], INAT_LEVELS, "path")


def _table(root: Path, file: str, columns: dict[str, str]) -> list[list[str]]:
    "Columns of a comma-separated file, found by the beginning of their names; blanks do not count."
    rows = list(csv.reader(io.StringIO("\n".join(_lines(root, file)))))
    head = [name.strip() for name in rows[0]]
    where = []
    for start in columns.values():
        found = [i for i, name in enumerate(head) if name.lower().startswith(start.lower())]
        if not found:
            raise DatasetError(f"{root / file} has no column {start!r}, only {', '.join(repr(name) for name in rows[0])}: is it the right file?")
        where.append(found[0])
    out: list[list[str]] = [[] for _ in where]
    for number, row in enumerate(rows[1:], 2):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) <= max(where):
            raise DatasetError(f"line {number} of {root / file} has {len(row)} columns, not {len(head)}: fetch it again")
        for column, place in zip(out, where):
            column.append(row[place].strip())
    if not out[0]:
        raise DatasetError(f"{root / file} lists no image: fetch it again")
    return out


_DYML_COLUMNS = {"path": "fname", "coarse": "coarse_id", "middle": "middle_id", "fine": "fine_id"}


def read_dyml(root: Path, split: str) -> Listing:
    """DyML: `train/label.csv` (fname, fine, middle, coarse id) and `train/imgs/`; tests `bmk_LEVEL/{query,gallery}.csv` with a folder each; for
    DyML-Product one test file with three levels, `mini-bmk_all_in_one/label.csv`.

    Args:
        root: the folder of one of the three sets.
        split: "train"; "test" (DyML-Product); "query_fine", "gallery_fine" and so on for middle and coarse.
    """
    if split in ("train", "test"):
        folder = "train" if split == "train" else "mini-bmk_all_in_one"
        files, *names = _table(root, f"{folder}/label.csv", _DYML_COLUMNS)
        return Listing([f"{folder}/imgs/{file}" for file in files], names, ("coarse", "middle", "fine"), "split")
    part, level = split.split("_")
    files, labels = _table(root, f"bmk_{level}/{part}.csv", {"path": "fname", "label": "labels"})
    return Listing([f"bmk_{level}/{part}/{file}" for file in files], [labels], (level,))


def _walk(root: Path, folder: str) -> list[str]:
    "Pictures in a folder and below it, relative to the root, in natural order; hidden ones are left out."
    found = []
    for parent, below, files in os.walk(root / folder):
        below[:] = sorted((name for name in below if not name.startswith(".")), key=_natural)
        here = Path(parent).relative_to(root).as_posix().removeprefix(".")
        found += [f"{here}/{name}".lstrip("/") for name in sorted(files, key=_natural)
                  if name.lower().endswith((".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")) and not name.startswith(".")]
    return found


def read_vggface2(root: Path, split: str) -> Listing:
    """VGGFace2: `train/nNNNNNN/IIII_FF.jpg` and `test/...`, loosely cropped faces in one folder per identity.

    The layout is that of the distribution's read-me; `train_list.txt` or `test_list.txt` (one path per line, below the split's folder) is used where it lies
    in the root, otherwise the folders are read.

    Args:
        root: the folder that holds `train` and `test`.
        split: "train" or "test".
    """
    if (root / f"{split}_list.txt").exists():
        paths = [f"{split}/{line.strip()}" for line in _lines(root, f"{split}_list.txt") if line.strip()]
    else:
        paths = _walk(root, split)
    if not paths:
        raise DatasetError(f"{root / split} holds no picture: unpack the archive vggface2_{split} there")
    for path in paths:
        if path.count("/") != 2:
            raise DatasetError(f"{root}: {path!r} is not {split}/IDENTITY/PICTURE: is it the right list or folder?")
    return Listing(paths, [[path.split("/")[1] for path in paths]], ("identity",))


def read_ijbc(root: Path, split: str = "test", least: int = 5) -> Listing:
    """IJB-C: `protocols/ijbc_metadata.csv` (or in `protocols/archive/`), pictures `images/img/N.jpg` and `images/frames/VIDEO_FRAME.png`.

    The columns SUBJECT_ID, FILENAME, FACE_X, FACE_Y, FACE_WIDTH, FACE_HEIGHT are read; the layout is that of the distribution as public readers of the
    file describe it. A still is an instance; all frames of one subject in one video are one instance (the number before "_" in the file's name tells
    the video). Subjects with fewer than `least` instances are left out (Smooth-AP, section 5.1), rows without a subject or a box too.

    Args:
        root: the folder `IJB-C`.
        split: "test", the only one.
        least: instances that a subject needs.
    """
    file = next((f for f in ("protocols/ijbc_metadata.csv", "protocols/archive/ijbc_metadata.csv") if (root / f).exists()), "protocols/ijbc_metadata.csv")
    columns = ("SUBJECT_ID", "FILENAME", "FACE_X", "FACE_Y", "FACE_WIDTH", "FACE_HEIGHT")
    rows = []
    for subject, name, *box in zip(*_table(root, file, {c: c for c in columns})):
        try:
            box, known = tuple(map(float, box)), float(subject or "nan")
        except ValueError:
            if "" in box:
                continue
            raise DatasetError(f"{root / file}: subject {subject!r} of {name} has the box {box}, which is not four numbers: fetch it again") from None
        if known == known and all(v == v for v in box):
            video = name.rsplit("/", 1)[-1].rpartition("_")[0] if "frames/" in name else ""
            rows.append((name, f"{known:g}", f"{known:g} video {video}" if video else f"{known:g} {name} {box}", box))
    instances: dict[str, set[str]] = {}
    for _, subject, instance, _ in rows:
        instances.setdefault(subject, set()).add(instance)
    rows = [row for row in rows if len(instances[row[1]]) >= least]
    if not rows:
        raise DatasetError(f"{root / file}: no subject has {least} instances. Is it the right file?")
    prefix = "" if (root / rows[0][0]).exists() else "images/"
    return Listing([prefix + row[0] for row in rows], [[row[1] for row in rows]], ("subject",), boxes=[row[3] for row in rows], instances=[row[2] for row in rows])


def _half(names: list[list[str]], split: str, tree: str, what: str, level_names: Sequence[str] = ()) -> list[int]:
    "Rows of the first (train) or second (test) half of the finest classes, in natural order."
    if split not in ("train", "test"):
        raise MissingData(f"{what} has no split {split!r}: it has no splits of its own, so the first half of the classes is 'train' and the rest 'test'")
    labels, known = label_tree(names, tree, what, level_names)
    half = len(known[-1]) // 2
    return [i for i, label in enumerate(labels[:, -1].tolist()) if (label < half) == (split == "train")]


def read_folder(root: Path, split: str) -> Listing:
    """A folder of folders: every folder between the root (or its `train`, `test`, `query`, `gallery`) and a picture is a level of the label tree.

    Args:
        root: the folder.
        split: "train", "test", "query", "gallery"; without folders of these names "train" is the first half of the classes and "test" the rest.
    """
    base = split if (root / split).is_dir() else ""
    if not base and split == "test" and (root / "query").is_dir():
        parts = [read_folder(root, part) for part in ("query", "gallery")]
        return Listing(parts[0].paths + parts[1].paths, [a + b for a, b in zip(parts[0].names, parts[1].names)], parts[0].level_names, "path")
    if not base and any((root / part).is_dir() for part in ("train", "test", "query", "gallery")):
        raise MissingData(f"{root} has no folder {split!r} beside its other splits: make one, or move all classes into {root} itself")
    paths = _walk(root, base)
    if not paths:
        raise DatasetError(f"{root / base} holds no picture: expected ROOT/{'SPLIT/' if base else ''}LEVEL/.../CLASS/picture.jpg")
    parts = [path.split("/")[bool(base):-1] for path in paths]
    depth = len(parts[0])
    for path, part in zip(paths, parts):
        if len(part) != depth or depth == 0:
            raise DatasetError(f"{root}: {path} lies {len(part)} folders deep and {paths[0]} {depth}: every picture needs the same number of folders above it, "
                               "one for each level, the last one its class")
    names = [list(column) for column in zip(*parts)]
    rows = range(len(paths)) if base else _half(names, split, "path", str(root))
    return Listing([paths[i] for i in rows], [[column[i] for i in rows] for column in names], tuple(f"level{n + 1}" for n in range(depth - 1)) + ("class",), "path")


def read_csv(root: Path, split: str) -> Listing:
    """A CSV file `images.csv` (or the only .csv in the root): a column `path`, a column per level from coarse to fine, and perhaps a column `split`.

    Commas, semicolons or tabs between the columns; a backslash in a path counts as a slash.

    Args:
        root: the folder that holds the file and the pictures.
        split: "train", "test", "query", "gallery"; without a column `split` "train" is the first half of the classes and "test" the rest.
    """
    tables = sorted(path.name for path in root.glob("*.csv"))
    file = "images.csv" if "images.csv" in tables or not tables else tables[0]
    if file != "images.csv" and len(tables) > 1:
        raise DatasetError(f"{root} holds {len(tables)} .csv files ({', '.join(tables[:3])}): call the list of images images.csv")
    lines = _lines(root, file)
    rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=max((",", ";", "\t"), key=lines[0].count)))
    head = [name.strip() for name in rows[0]]
    if "path" not in head or len(set(head)) != len(head):
        raise DatasetError(f"{root / file} needs a header line with a column 'path' and no name twice, got {', '.join(map(repr, head))}")
    levels = [i for i, name in enumerate(head) if name not in ("path", "split")]
    if not levels:
        raise DatasetError(f"{root / file} has no column of labels: add one for each level, coarse to fine")
    found = []
    for number, row in enumerate(rows[1:], 2):
        if any(cell.strip() for cell in row):
            if len(row) != len(head):
                raise DatasetError(f"line {number} of {root / file} has {len(row)} columns, not {len(head)}")
            found.append([cell.strip() for cell in row])
    paths, names = [row[head.index("path")].replace("\\", "/") for row in found], [[row[i] for row in found] for i in levels]
    if "split" not in head:
        chosen = _half(names, split, "strict", str(root / file), [head[i] for i in levels]) if found else []
    else:
        said = [row[head.index("split")] for row in found]
        if (odd := sorted(set(said) - {"train", "test", "query", "gallery"})):
            raise DatasetError(f"{root / file} has the split {odd[0]!r}; known: train, test, query, gallery")
        wanted = ("query", "gallery") if split == "test" and "test" not in said else (split,)
        chosen = [i for i, s in enumerate(said) if s in wanted]
    if not chosen:
        raise DatasetError(f"{root / file} lists no image of the split {split!r}")
    return Listing([paths[i] for i in chosen], [[column[i] for i in chosen] for column in names], tuple(head[i] for i in levels))


@dataclass(frozen=True)
class Count:
    "How many images and classes a split has, and who says so."

    images: int | None
    classes: tuple[int, ...] | int | None  # at the finest level, or at every level, coarse to fine
    source: str
    sure: bool = True  # False: sources disagree or round, so that another number is no fault


@dataclass(frozen=True)
class DatasetInfo:
    "One line of the registry."

    name: str
    title: str
    levels: tuple[str, ...]
    counts: dict[str, tuple[Count, ...]]  # split -> what different sources say
    layout: tuple[str, ...]  # files and folders that must be there
    source: str  # where to get it
    folder: str  # what the official archive unpacks to
    papers: str = ""
    note: str = ""
    metrics: tuple[str, ...] = ("mAP", "R@1")


def _sure(images, classes, source):
    return (Count(images, classes, source),)


_RECALLS = {"sop": (1, 10, 100, 1000), "cub": (1, 2, 4, 8), "inshop": (1, 10, 20, 30, 50), "inat": (1, 4, 16, 32), "vehicleid": (1, 5)}
_R = {key: tuple(f"R@{k}" for k in ks) for key, ks in _RECALLS.items()}
_TREE = ("H-AP", "ASI", "NDCG")
_INAT_SOURCE = ("images and train2018.json: github.com/visipedia/inat_comp, folder 2018 (the file server changes now and then: see issue 16 there); the retrieval "
                "lists Inat_dataset_splits: the Smooth-AP authors' README (github.com/Andrew-Brown1/Smooth_AP)")
_DYML_SOURCE = ("github.com/SupetZYK/DynamicMetricLearning: the OneDrive link there is dead (issue 3 of github.com/elias-ramzi/HAPPIER), the Baidu link works")
_DYML_LAYOUT = ("train/label.csv", "train/imgs", *(f"bmk_{level}/{file}" for level in ("fine", "middle", "coarse") for file in ("query.csv", "gallery.csv", "query", "gallery")))


def _dyml(name: str, title: str, train: tuple, code: tuple, tests: dict, layout: tuple = _DYML_LAYOUT) -> DatasetInfo:
    "A DyML set: the paper's counts (rounded to 100) beside those in the authors' configuration."
    counts = {"train": (Count(train[0], train[1:], "HAPPIER, Table 8 (rounded)", False), Count(None, code, "configuration of the HAPPIER code", False))}
    counts |= {level: (Count(images, classes, "HAPPIER, Table 8 (rounded)", False),) for level, (images, classes) in tests.items()}
    return DatasetInfo(name, title, ("coarse", "middle", "fine"), counts, layout, _DYML_SOURCE, name, "Sun et al. 2021; HAPPIER", metrics=("mAP", "ASI", "R@1"))


def _registry() -> dict[str, DatasetInfo]:
    infos = [
        DatasetInfo("glyphs", "Glyphs", Glyphs.level_names, {}, (), "drawn from matplotlib's typefaces, nothing to fetch", "", "lesson 10", metrics=("mAP", "R@1", "R@10")),
        DatasetInfo("sop", "Stanford Online Products", ("category", "product"),
                    {"train": _sure(59_551, (12, 11_318), "official list"), "test": _sure(60_502, (12, 11_316), "official list")},
                    ("Ebay_train.txt", "Ebay_test.txt"), "cvgl.stanford.edu/projects/lifted_struct (ftp://cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip)",
                    "Stanford_Online_Products", "Oh Song et al. 2016; Smooth-AP, RaMBO, HAPPIER, FastAP",
                    metrics=("mAP", *_R["sop"], "AP@level1", "AP@level2", *_TREE)),
        DatasetInfo("inshop", "In-Shop Clothes Retrieval (DeepFashion)", ("category", "item"),
                    {"train": _sure(25_882, 3_997, "official partition"), "query": _sure(14_218, 3_985, "official partition"),
                     "gallery": _sure(12_612, 3_985, "official partition")},
                    ("list_eval_partition.txt", "img"), "mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html (agreement by e-mail, password for the archives)",
                    "In-shop Clothes Retrieval Benchmark", "Liu et al. 2016; RaMBO, FastAP", metrics=("mAP", *_R["inshop"])),
        DatasetInfo("cub", "CUB-200-2011", ("species",),
                    {"train": _sure(5_864, 100, "official lists, first 100 classes"), "test": _sure(5_924, 100, "official lists, last 100 classes")},
                    ("images.txt", "image_class_labels.txt", "classes.txt", "images"), "vision.caltech.edu/datasets/cub_200_2011 (data.caltech.edu/records/65de6-vp158)",
                    "CUB_200_2011", "Wah et al. 2011; RaMBO, ROADMAP", metrics=("mAP", "mAP@R", *_R["cub"])),
        DatasetInfo("vehicleid", "PKU VehicleID", ("model", "vehicle"),
                    {"train": (Count(110_178, 13_134, "Smooth-AP, Table 1", False), Count(None, 13_164, "read-me of the archive", False)),
                     "small": _sure(7_332, 800, "Smooth-AP, Table 1"), "medium": _sure(12_995, 1_600, "Smooth-AP, Table 1"),
                     "large": _sure(20_038, 2_400, "Smooth-AP, Table 1")},
                    ("train_test_split/train_list.txt", "train_test_split/test_list_800.txt", "train_test_split/test_list_1600.txt",
                     "train_test_split/test_list_2400.txt", "image"), "pkuml.org (access by e-mail)", "VehicleID_V1.0", "Liu et al. 2016; Smooth-AP, FastAP",
                    metrics=("mAP", *_R["vehicleid"])),
        DatasetInfo("inat_base", "iNaturalist 2018, retrieval split, two levels", ("super-category", "species"),
                    {"train": _sure(325_846, (13, 5_690), "Smooth-AP, Table 1"), "test": _sure(136_093, 2_452, "Smooth-AP, Table 1")},
                    ("Inat_dataset_splits/Inaturalist_train_set1.txt", "Inat_dataset_splits/Inaturalist_test_set1.txt", "train_val2018"), _INAT_SOURCE,
                    "Inaturalist", "Van Horn et al. 2018; Smooth-AP, HAPPIER", metrics=("mAP", *_R["inat"], "AP@level1", "AP@level2", *_TREE)),
        DatasetInfo("inat_full", "iNaturalist 2018, retrieval split, seven levels", INAT_LEVELS,
                    {"train": (Count(325_846, None, "Smooth-AP, Table 1"), Count(325_846, (5, 23, 54, 249, 961, 3_438, 5_690), "configuration of the HAPPIER code", False)),
                     "test": _sure(136_093, 2_452, "Smooth-AP, Table 1")},
                    ("Inat_dataset_splits/Inaturalist_train_set1.txt", "Inat_dataset_splits/Inaturalist_test_set1.txt", "train2018.json", "train_val2018"), _INAT_SOURCE,
                    "Inaturalist", "Van Horn et al. 2018; HAPPIER", metrics=("mAP", *_R["inat"], *(f"AP@level{n}" for n in range(1, 8)), *_TREE)),
        _dyml("dyml_vehicle", "DyML-Vehicle", (343_100, 5, 89, 36_301), (5, 93, 39_491),
              {"fine": (63_500, 8_183), "middle": (34_300, 127), "coarse": (5_900, 6)}),
        _dyml("dyml_animal", "DyML-Animal", (407_800, 5, 28, 495), (5, 28, 495), {"fine": (11_300, 162), "middle": (23_100, 17), "coarse": (12_500, 5)}),
        _dyml("dyml_product", "DyML-Product", (747_100, 36, 169, 1_609), (36, 171, 1_639),
              {"fine": (1_500, 315), "middle": (1_500, 37), "coarse": (1_500, 6)},
              ("train/label.csv", "train/imgs", "mini-bmk_all_in_one/label.csv", "mini-bmk_all_in_one/imgs")),
        DatasetInfo("vggface2", "VGGFace2", ("identity",),
                    {"train": (Count(3_141_890, 8_631, "total of the distribution less its test set", False),),
                     "test": _sure(169_396, 500, "Smooth-AP, Table 1")},
                    ("train", "test"), "robots.ox.ac.uk/~vgg/data/vgg_face2 (withdrawn there; copies are shared among those who signed the licence)", "VGG-Face2",
                    "Cao et al. 2018; Smooth-AP", metrics=("mAP", "R@1")),
        DatasetInfo("ijbc", "IJB-C", ("subject",), {"test": (Count(148_824, 3_531, "Smooth-AP, Table 1", False),)},
                    ("protocols/ijbc_metadata.csv", "images"), "nist.gov/programs-projects/face-challenges (on application)", "IJB-C",
                    "Maze et al. 2018; Smooth-AP", "test only: train on vggface2", metrics=("mAP", "R@1")),
        DatasetInfo("folder", "a folder of folders", (), {}, (), "your own pictures: ROOT/[train, test or query and gallery/]LEVEL/.../CLASS/picture.jpg, any depth", "",
                    note="without train and test: the first half of the classes trains, the rest tests"),
        DatasetInfo("csv", "a CSV file", (), {}, (), "your own pictures: ROOT/images.csv with a column path, one column per level, coarse to fine, and if you like "
                    "a column split (train, test, query, gallery)", "", note="without a split column: the first half of the classes trains, the rest tests"),
    ]
    return {info.name: info for info in infos}


DATASETS: dict[str, DatasetInfo] = _registry()


def dataset_info(name: str) -> DatasetInfo:
    """A data set's line in the registry.

    Raises:
        DatasetError: no such data set; the nearest name is given.
    """
    if name not in DATASETS:
        raise DatasetError(f"no data set {name!r}: {nearest(name, DATASETS)}")
    return DATASETS[name]


READERS = {"sop": read_sop, "inshop": read_inshop, "cub": read_cub, "vehicleid": read_vehicleid, "inat_base": read_inat,
            "inat_full": lambda root, split: read_inat(root, split, full=True), "dyml_vehicle": read_dyml, "dyml_animal": read_dyml, "dyml_product": read_dyml,
            "vggface2": read_vggface2, "ijbc": read_ijbc, "folder": read_folder, "csv": read_csv}
_SCALES = tuple(f"{part}_{level}" for level in ("fine", "middle", "coarse") for part in ("query", "gallery"))
SPLITS = {"inshop": ("train", "test", "query", "gallery"), "vehicleid": ("train", "test", "small", "medium", "large"), "dyml_vehicle": ("train", *_SCALES),
           "dyml_animal": ("train", *_SCALES), "ijbc": ("test",), "folder": ("train", "test", "query", "gallery"), "csv": ("train", "test", "query", "gallery")}


def find_root(name: str, root=None) -> Path:
    """The folder of a data set, looked up in `root` and in the folder of the official name below it.

    Args:
        name: a data set of `DATASETS`.
        root: the folder; None: a folder of the data set's name in the cache (see `glyphs.data_root`).

    Raises:
        MissingData: no such folder, or what the data set consists of is not in it; says what and where to get it.
        DatasetError: a file in place of a folder.
    """
    info = dataset_info(name)
    given = data_root() / name if root in (None, "none") else Path(root).expanduser()
    fetch = f"Get {info.title}: {info.source}"
    for folder in (given, *given.parents):
        if folder.is_file():
            raise DatasetError(f"{folder} is a file, and {info.title} is a folder"
                               + (": name the folder that holds it" if name == "csv" else ". Unpack the archive and name the folder it makes"))
    if not given.exists():
        raise MissingData(f"there is no folder {given} for {info.title}: pass root=... (data.root, --root). {fetch}")
    tried = [given] + ([given / info.folder] if info.folder else [])
    for folder in tried:
        lacking = [part for part in info.layout if not _there(folder, part)]
        if not lacking:
            return folder
    lacking = [part for part in info.layout if not _there(given, part)]
    wrong = "is not the folder of" if len(lacking) == len(info.layout) else "is incomplete for"
    listed = ", ".join(lacking[:4]) + (", ..." if len(lacking) > 4 else "")
    raise MissingData(f"{given} {wrong} {info.title}: {listed} {'is' if len(lacking) == 1 else 'are'} missing. {fetch}")


def _there(folder: Path, part: str) -> bool:
    elsewhere = {"list_eval_partition.txt": "Eval/list_eval_partition.txt", "protocols/ijbc_metadata.csv": "protocols/archive/ijbc_metadata.csv"}
    return (folder / part).exists() or (part in elsewhere and (folder / elsewhere[part]).exists())


def _glyph_classes(count: int, images: int, groups: int = 4) -> list[tuple[int, int, list[int]]]:
    "`count` characters with at least `images` pictures: (group, family, rows of Glyphs('all')), evenly from `groups` groups, families together."
    rows: dict[int, list[int]] = {}
    tree: dict[int, dict[int, list[int]]] = {}
    data = _glyphs()
    for row, (group, family, character) in enumerate(data.labels.tolist()):
        if character not in rows:
            tree.setdefault(group, {}).setdefault(family, []).append(character)
        rows.setdefault(character, []).append(row)
    ink = data.images.float().mean((1, 2)).tolist()  # no dots and dashes
    tree = {g: {f: [c for c in cs if len(rows[c]) >= images and ink[rows[c][0]] > 20] for f, cs in fs.items()} for g, fs in tree.items()}
    size = {g: sum(map(len, fs.values())) for g, fs in tree.items()}
    best = sorted(sorted(size, key=lambda g: (-size[g], g))[:groups])
    quota = [count // groups + (k < count % groups) for k in range(groups)]
    if any(size[g] < q for g, q in zip(best, quota)):
        raise ValueError(f"{count} classes of {images} images are more than the glyphs give: ask for fewer")
    chosen = []
    for g, q in zip(best, quota):
        most, picked = 2, []
        while len(picked) < q:  # few characters of each family first, more where families run out
            most *= 2
            picked = [(g, f, rows[c]) for f, cs in tree[g].items() if len(cs) > 1 or most > 64 for c in cs[:most]][:q]
        chosen += picked
    return chosen


@lru_cache(1)
def _glyphs() -> Glyphs:
    return Glyphs("all", size=32, strength=0.5)


def glyph_photographs(rows: Sequence[int], seed: int = 0) -> list:
    """Glyphs as small colour photographs: tinted, unevenly lit, of different shapes.

    Args:
        rows: places in `Glyphs("all")`.
        seed: of tint, light and shape.

    Returns:
        one RGB `PIL.Image.Image` per row, 40 to 72 pixels a side.
    """
    from PIL import Image

    rng = np.random.default_rng([seed, 1971])
    ink = _glyphs().batch(list(rows))[0][:, 0].numpy()
    n = len(ink)
    paper, pen = rng.uniform(0.0, 0.45, (n, 1, 1, 3)), rng.uniform(0.55, 1.0, (n, 1, 1, 3))
    x, y = np.meshgrid(np.linspace(-1, 1, 32), np.linspace(-1, 1, 32))
    slope = rng.uniform(-0.15, 0.15, (n, 2, 1, 1))
    light = (1 + slope[:, 0] * x + slope[:, 1] * y)[..., None]
    values = (np.clip((paper + (pen - paper) * ink[..., None]) * light, 0, 1) * 255).round().astype(np.uint8)
    sides = rng.integers(40, 73, (n, 2)).tolist()
    return [Image.fromarray(v).resize(side, Image.Resampling.BILINEAR) for v, side in zip(values, sides)]


MARKER = "MINIATURE.txt"  # lies in a miniature's folder, so that nobody takes it for the real thing


class _Writer:
    "Collects the pictures and text files of a miniature, and writes them."

    def __init__(self, name: str, folder, classes: int, images: int, seed: int, least: int = 4):
        for key, value, low in (("classes", classes, 4), ("images", images, 5)):
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ValueError(f"{key} must be a whole number of at least {low}, got {value!r}")
        self.name, self.folder, self.seed, self.files = name, Path(folder).expanduser(), seed, []
        if self.folder.is_file() or (self.folder.is_dir() and any(self.folder.iterdir())):
            raise DatasetError(f"{self.folder} is {'a file' if self.folder.is_file() else 'not empty'}: name a new or empty folder for the miniature")
        held_out = max(4, classes * 3 // 4)
        found = _glyph_classes(classes + held_out, images)
        share = classes / len(found)  # every group gives to both sides
        first = [int((i + 1) * share + 1e-9) > int(i * share + 1e-9) for i in range(len(found))]
        sized = [(g, f, rows[:images - n % 3 if images - n % 3 >= least else images]) for n, (g, f, rows) in enumerate(found)]  # ragged, as real classes are
        groups = sorted({g for g, _, _ in found})
        families = sorted({f for _, f, _ in found})
        sized = [(groups.index(g), families.index(f), rows) for g, f, rows in sized]
        self.train = [c for c, t in zip(sized, first) if t]
        self.test = [c for c, t in zip(sized, first) if not t]

    def photo(self, path: str, row: int, same: str = "") -> str:
        "Ask for a picture; files with the same `same` are copies of one photograph."
        self.files.append((path, row, same or path))
        return path

    def text(self, path: str, lines) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def finish(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        for part in {str(Path(path).parent) for path, _, _ in self.files}:
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        rows = {same: row for _, row, same in self.files}
        photos = dict(zip(rows, glyph_photographs(list(rows.values()), self.seed)))
        for path, _, same in self.files:
            photos[same].save(self.folder / path, **({"format": "JPEG", "quality": 90} if path.lower().endswith((".jpg", ".jpeg")) else {"format": "PNG"}))
        self.text(MARKER, [f"A miniature of {self.name}, drawn from typefaces by smoothap_nb (seed {self.seed}): for tests and lessons, not for results."])
        return self.folder


SOP_CATEGORIES = ("bicycle", "cabinet", "chair", "coffee_maker", "fan", "kettle", "lamp", "mug", "sofa", "stapler", "table", "toaster")


def _write_sop(w: _Writer) -> None:
    number = 0
    for name, classes, start in (("train", w.train, 1), ("test", w.test, len(w.train) + 1)):
        lines = ["image_id class_id super_class_id path"]
        for c, (group, _, rows) in enumerate(classes):
            for k, row in enumerate(rows):
                number += 1
                category = SOP_CATEGORIES[group]
                path = w.photo(f"{category}_final/{111000000000 + start + c}_{k}.JPG", row)
                lines.append(f"{number} {start + c} {group + 1} {path}")
        w.text(f"Ebay_{name}.txt", lines)


INSHOP_CATEGORIES = ("MEN/Denim", "MEN/Jackets_Vests", "WOMEN/Dresses", "WOMEN/Skirts")  # 4 of the 23
INAT_CATEGORIES = ("Aves", "Insecta", "Mammalia", "Plantae")  # 4 of the 13


def _write_inshop(w: _Writer) -> None:
    rows = []
    for c, (group, _, found) in enumerate(w.train + w.test):
        for k, row in enumerate(found):
            path = w.photo(f"img/{INSHOP_CATEGORIES[group]}/id_{c + 1:08d}/{k // 4 + 1:02d}_{k % 4 + 1}_{('front', 'side', 'back', 'full')[k % 4]}.jpg", row)
            rows.append((path, f"id_{c + 1:08d}", "train" if c < len(w.train) else "query" if k % 2 else "gallery"))
    w.text("Eval/list_eval_partition.txt", [str(len(rows)), "image_name item_id evaluation_status", *(f"{p:<70}{i} {s}" for p, i, s in rows)])


def _write_cub(w: _Writer) -> None:
    images, labels, classes = [], [], []
    for c, (group, _, rows) in enumerate(w.train + w.test, 1):
        classes.append(f"{c} {c:03d}.Glyph_{c}")
        for k, row in enumerate(rows):
            images.append(f"{len(images) + 1} " + w.photo(f"images/{c:03d}.Glyph_{c}/Glyph_{c}_{k:04d}.jpg", row).removeprefix("images/"))
            labels.append(f"{len(images)} {c}")
    for file, lines in (("images.txt", images), ("image_class_labels.txt", labels), ("classes.txt", classes)):
        w.text(file, lines)


def _write_vehicleid(w: _Writer) -> None:
    number, lists, models = 0, {}, []
    sizes = np.array_split(np.arange(len(w.test)), 3)
    tests = [[w.test[i] for part in sizes[:k + 1] for i in part] for k in range(3)]  # here the small test set lies within the larger ones
    vehicle = {id(c): n for n, c in enumerate(w.train + w.test, 1)}
    photos: dict[int, list[int]] = {}
    for c in w.train + w.test:
        photos[id(c)] = []
        for row in c[2]:
            number += 1
            w.photo(f"image/{number:07d}.jpg", row)
            photos[id(c)].append(number)
        if vehicle[id(c)] % 5:  # not every vehicle's model is known
            models.append(f"{vehicle[id(c)]} {c[1]}")
    for file, classes in zip(("train_list", "test_list_800", "test_list_1600", "test_list_2400"), (w.train, *tests)):
        w.text(f"train_test_split/{file}.txt", [f"{n:07d} {vehicle[id(c)]}" for c in classes for n in photos[id(c)]])
    w.text("attribute/model_attr.txt", models)


def _write_inat(w: _Writer) -> None:
    categories = []
    for file, classes, start in (("train", w.train, 0), ("test", w.test, len(w.train))):
        lines = []
        for c, (group, family, rows) in enumerate(classes, start):
            name = f"Glyphus minor{c}"
            categories.append({"id": c, "name": name, "genus": f"Genus{family}", "family": f"Family{group}-{family // 2}",
                               "order": f"Order{group}-{family // 4}", "class": INAT_CATEGORIES[group], "phylum": f"Phylum{group}", "kingdom": f"Kingdom{group // 2}"})
            lines += [w.photo(f"train_val2018/{INAT_CATEGORIES[group]}/{c}/{c:04d}{k:028x}.jpg", row) for k, row in enumerate(rows)]
        w.text(f"Inat_dataset_splits/Inaturalist_{file}_set1.txt", lines)
    w.text("train2018.json", [json.dumps({"info": {"description": "miniature"}, "categories": categories})])


DYML_HEADER = "fname, fine_id0.jpg, middle_id, coarse_id"  # as distributed: blanks and all


def _write_dyml(w: _Writer) -> None:
    lines, number = [DYML_HEADER], 0
    for c, (group, family, rows) in enumerate(w.train):
        for row in rows:
            number += 1
            lines.append(f"{Path(w.photo(f'train/imgs/{number}.jpg', row)).name},{c},{family},{group}")
    w.text("train/label.csv", lines)
    if w.name == "dyml_product":
        lines = [DYML_HEADER]
        for c, (group, family, rows) in enumerate(w.test, len(w.train)):
            for row in rows:
                number += 1
                lines.append(f"{Path(w.photo(f'mini-bmk_all_in_one/imgs/{number}.jpg', row)).name},{c},{family},{group}")
        return w.text("mini-bmk_all_in_one/label.csv", lines)
    for level in ("fine", "middle", "coarse"):
        for part in ("query", "gallery"):
            lines = ["fname, labels0.jpg"]
            for c, (group, family, rows) in enumerate(w.test):
                for k, row in enumerate(rows):
                    if part == "gallery" or k % 3 == 0:  # the gallery holds the queries too
                        lines.append(f"{len(lines)}.jpg,{ {'fine': c, 'middle': family, 'coarse': group}[level]}")
                        w.photo(f"bmk_{level}/{part}/{len(lines) - 1}.jpg", row, same=f"{level} {c} {k}")
            w.text(f"bmk_{level}/{part}.csv", lines)


def _write_vggface2(w: _Writer) -> None:
    people = ["Class_ID, Name, Sample_Num, Flag, Gender"]
    for part, classes, start in (("train", w.train, 2), ("test", w.test, len(w.train) + 2)):
        lines = []
        for c, (_, _, rows) in enumerate(classes, start):
            lines += [w.photo(f"{part}/n{c:06d}/{k:04d}_01.jpg", row).removeprefix(f"{part}/") for k, row in enumerate(rows, 1)]
            people.append(f'n{c:06d}, "Glyph_{c}", {len(rows)}, {int(part == "train")}, f')
        w.text(f"{part}_list.txt", lines)
    w.text("meta/identity_meta.csv", people)


def _write_ijbc(w: _Writer) -> None:
    lines, image, video = ["SUBJECT_ID,FILENAME,SIGHTING_ID,FACE_X,FACE_Y,FACE_WIDTH,FACE_HEIGHT"], 0, 0
    for c, (_, _, rows) in enumerate(w.train + w.test, 1):
        rows = list(rows) + list(rows)[:3]
        for k, row in enumerate(rows[:3] if c % 7 == 0 else rows):  # one in seven subjects is left with too few
            if k < 3:
                image += 1
                path = w.photo(f"images/img/{image}.jpg", row)
            else:
                video += (k - 3) % 2 == 0
                path = w.photo(f"images/frames/{video}_{(k - 3) % 2 + 1:02d}.png", row)
            lines.append(f"{c},{path.removeprefix('images/')},{k},2,2,36,36")
    lines.append(f",{path.removeprefix('images/')},0,2,2,36,36")  # somebody nobody knows
    w.text("protocols/ijbc_metadata.csv", lines)


def _write_folder(w: _Writer) -> None:
    for part, classes, start in (("train", w.train, 0), ("test", w.test, len(w.train))):
        for c, (group, family, rows) in enumerate(classes, start):
            for k, row in enumerate(rows):
                w.photo(f"{part}/group{group}/family{family}/class{c}/{k}.png", row)


def _write_csv(w: _Writer) -> None:
    lines = ["path,group,family,character,split"]
    for part, classes, start in (("train", w.train, 0), ("test", w.test, len(w.train))):
        for c, (group, family, rows) in enumerate(classes, start):
            lines += [f"{w.photo(f'photos/{c}_{k}.png', row)},group {group},family {family},character {c},{part}" for k, row in enumerate(rows)]
    w.text("images.csv", lines)


_WRITERS = {"sop": _write_sop, "inshop": _write_inshop, "cub": _write_cub, "vehicleid": _write_vehicleid, "inat_base": _write_inat, "inat_full": _write_inat,
            "dyml_vehicle": _write_dyml, "dyml_animal": _write_dyml, "dyml_product": _write_dyml, "vggface2": _write_vggface2, "ijbc": _write_ijbc,
            "folder": _write_folder, "csv": _write_csv}


def make_miniature(name: str, folder, *, classes: int = 16, images: int = 6, seed: int = 0) -> Path:
    """A few hundred small pictures in the exact layout of a benchmark, drawn from typefaces.

    A file `MINIATURE.txt` marks the folder. The same arguments give the same bytes (under one version of Pillow and of the typefaces).

    Args:
        name: a data set of `DATASETS`.
        folder: a new or an empty one.
        classes: training classes, at least 4; three quarters as many are held out for testing.
        images: pictures of the largest classes, at least 5; classes are ragged.
        seed: of the pictures' tints and shapes.

    Returns:
        the folder, ready as `root`.

    Raises:
        DatasetError: an unknown name; a folder that holds something else.
        ValueError: sizes too small, or more classes than there are characters.
    """
    info = dataset_info(name)
    if name not in _WRITERS:
        raise DatasetError(f"{info.title} come with the package and need no miniature")
    writer = _Writer(name, folder, classes, images, seed)
    _WRITERS[name](writer)
    return writer.finish()
