"""A few hundred small pictures in the exact layout of each benchmark, drawn from typefaces: what reads the miniature
reads the real thing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from .glyphs import Glyphs
from .interface import DatasetError
from .readers import dataset_info
from .sources import MARKER

__all__ = [
    "MARKER",
    "SOP_CATEGORIES",
    "INSHOP_CATEGORIES",
    "INAT_CATEGORIES",
    "DYML_HEADER",
    "WRITERS",
    "glyph_photographs",
    "make_miniature",
]


def _glyph_classes(count: int, images: int, groups: int = 4) -> list[tuple[int, int, list[int]]]:
    """`count` characters with at least `images` pictures: (group, family, rows of Glyphs('all')), evenly from
    `groups` groups, families together."""
    rows: dict[int, list[int]] = {}
    tree: dict[int, dict[int, list[int]]] = {}
    data = _glyphs()
    for row, (group, family, character) in enumerate(data.labels.tolist()):
        if character not in rows:
            tree.setdefault(group, {}).setdefault(family, []).append(character)
        rows.setdefault(character, []).append(row)
    ink = data.images.float().mean((1, 2)).tolist()  # no dots and dashes
    tree = {
        g: {f: [c for c in cs if len(rows[c]) >= images and ink[rows[c][0]] > 20] for f, cs in fs.items()}
        for g, fs in tree.items()
    }
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


class _Writer:
    "Collects the pictures and text files of a miniature, and writes them."

    def __init__(self, name: str, folder, classes: int, images: int, seed: int, least: int = 4):
        for key, value, low in (("classes", classes, 4), ("images", images, 5)):
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ValueError(f"{key} must be a whole number of at least {low}, got {value!r}")
        self.name, self.folder, self.seed, self.files = name, Path(folder).expanduser(), seed, []
        if self.folder.is_file() or (self.folder.is_dir() and any(self.folder.iterdir())):
            raise DatasetError(
                f"{self.folder} is {'a file' if self.folder.is_file() else 'not empty'}: name a new or empty folder "
                f"for the miniature"
            )
        held_out = max(4, classes * 3 // 4)
        found = _glyph_classes(classes + held_out, images)
        share = classes / len(found)  # every group gives to both sides
        first = [int((i + 1) * share + 1e-9) > int(i * share + 1e-9) for i in range(len(found))]
        sized = [
            (g, f, rows[: images - n % 3 if images - n % 3 >= least else images])
            for n, (g, f, rows) in enumerate(found)
        ]  # ragged, as real classes are
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
            photos[same].save(
                self.folder / path,
                **(
                    {"format": "JPEG", "quality": 90} if path.lower().endswith((".jpg", ".jpeg")) else {"format": "PNG"}
                ),
            )
        self.text(
            MARKER,
            [
                f"A miniature of {self.name}, drawn from typefaces by smoothap_nb (seed {self.seed}): for tests and "
                f"lessons, not for results."
            ],
        )
        return self.folder


SOP_CATEGORIES = (
    "bicycle",
    "cabinet",
    "chair",
    "coffee_maker",
    "fan",
    "kettle",
    "lamp",
    "mug",
    "sofa",
    "stapler",
    "table",
    "toaster",
)


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
            path = w.photo(
                f"img/{INSHOP_CATEGORIES[group]}/id_{c + 1:08d}/{k // 4 + 1:02d}_{k % 4 + 1}_{('front', 'side', 'back', 'full')[k % 4]}.jpg",  # noqa: E501
                row,
            )
            rows.append((path, f"id_{c + 1:08d}", "train" if c < len(w.train) else "query" if k % 2 else "gallery"))
    w.text(
        "Eval/list_eval_partition.txt",
        [str(len(rows)), "image_name item_id evaluation_status", *(f"{p:<70}{i} {s}" for p, i, s in rows)],
    )


def _write_cub(w: _Writer) -> None:
    images, labels, classes = [], [], []
    for c, (group, _, rows) in enumerate(w.train + w.test, 1):
        classes.append(f"{c} {c:03d}.Glyph_{c}")
        for k, row in enumerate(rows):
            images.append(
                f"{len(images) + 1} "
                + w.photo(f"images/{c:03d}.Glyph_{c}/Glyph_{c}_{k:04d}.jpg", row).removeprefix("images/")
            )
            labels.append(f"{len(images)} {c}")
    for file, lines in (("images.txt", images), ("image_class_labels.txt", labels), ("classes.txt", classes)):
        w.text(file, lines)


def _write_vehicleid(w: _Writer) -> None:
    number, models = 0, []
    sizes = np.array_split(np.arange(len(w.test)), 3)
    tests = [
        [w.test[i] for part in sizes[: k + 1] for i in part] for k in range(3)
    ]  # here the small test set lies within the larger ones
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
            categories.append(
                {
                    "id": c,
                    "name": name,
                    "genus": f"Genus{family}",
                    "family": f"Family{group}-{family // 2}",
                    "order": f"Order{group}-{family // 4}",
                    "class": INAT_CATEGORIES[group],
                    "phylum": f"Phylum{group}",
                    "kingdom": f"Kingdom{group // 2}",
                }
            )
            lines += [
                w.photo(f"train_val2018/{INAT_CATEGORIES[group]}/{c}/{c:04d}{k:028x}.jpg", row)
                for k, row in enumerate(rows)
            ]
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
                lines.append(
                    f"{Path(w.photo(f'mini-bmk_all_in_one/imgs/{number}.jpg', row)).name},{c},{family},{group}"
                )
        return w.text("mini-bmk_all_in_one/label.csv", lines)
    for level in ("fine", "middle", "coarse"):
        for part in ("query", "gallery"):
            lines = ["fname, labels0.jpg"]
            for c, (group, family, rows) in enumerate(w.test):
                for k, row in enumerate(rows):
                    if part == "gallery" or k % 3 == 0:  # the gallery holds the queries too
                        lines.append(f"{len(lines)}.jpg,{ {'fine': c, 'middle': family, 'coarse': group}[level] }")
                        w.photo(f"bmk_{level}/{part}/{len(lines) - 1}.jpg", row, same=f"{level} {c} {k}")
            w.text(f"bmk_{level}/{part}.csv", lines)


def _write_vggface2(w: _Writer) -> None:
    people = ["Class_ID, Name, Sample_Num, Flag, Gender"]
    for part, classes, start in (("train", w.train, 2), ("test", w.test, len(w.train) + 2)):
        lines = []
        for c, (_, _, rows) in enumerate(classes, start):
            lines += [
                w.photo(f"{part}/n{c:06d}/{k:04d}_01.jpg", row).removeprefix(f"{part}/")
                for k, row in enumerate(rows, 1)
            ]
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
            lines += [
                f"{w.photo(f'photos/{c}_{k}.png', row)},group {group},family {family},character {c},{part}"
                for k, row in enumerate(rows)
            ]
    w.text("images.csv", lines)


WRITERS = {
    "sop": _write_sop,
    "inshop": _write_inshop,
    "cub": _write_cub,
    "vehicleid": _write_vehicleid,
    "inat_base": _write_inat,
    "inat_full": _write_inat,
    "dyml_vehicle": _write_dyml,
    "dyml_animal": _write_dyml,
    "dyml_product": _write_dyml,
    "vggface2": _write_vggface2,
    "ijbc": _write_ijbc,
    "folder": _write_folder,
    "csv": _write_csv,
}


def make_miniature(name: str, folder, *, classes: int = 16, images: int = 6, seed: int = 0) -> Path:
    """A few hundred small pictures in the exact layout of a benchmark, drawn from typefaces.

    A file `MINIATURE.txt` marks the folder. The same arguments give the same bytes (under one version of Pillow and
    of the typefaces).

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
    if name not in WRITERS:
        raise DatasetError(f"{info.title} come with the package and need no miniature")
    writer = _Writer(name, folder, classes, images, seed)
    WRITERS[name](writer)
    return writer.finish()
