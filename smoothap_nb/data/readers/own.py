"""Pictures of your own: a folder of folders, or a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from ...images import format_of, readable, unreadable, walk_pictures
from ..interface import DatasetError, MissingData
from ..labels import label_tree
from ..lists import Listing, natural, read_lines
from ..protocols import Protocol
from ..settings import DataConfig
from ..sources import TREE, DatasetInfo, OpenSets


def _half(names: list[list[str]], split: str, tree: str, what: str, level_names: Sequence[str] = ()) -> list[int]:
    "Rows of the first (train) or second (test) half of the finest classes, in natural order."
    if split not in ("train", "test"):
        raise MissingData(
            f"{what} has no split {split!r}: it has no splits of its own, so the first half of the classes is "
            f"'train' and the rest 'test'"
        )
    labels, known = label_tree(names, tree, what, level_names)
    half = len(known[-1]) // 2
    return [i for i, label in enumerate(labels[:, -1].tolist()) if (label < half) == (split == "train")]


def read_folder(root: Path, split: str) -> Listing:
    """A folder of folders: every folder between the root (or its `train`, `test`, `query`, `gallery`) and a picture
    is a level of the label tree.

    Args:
        root: the folder.
        split: "train", "test", "query", "gallery"; without folders of these names "train" is the first half of the
            classes and "test" the rest.
    """
    base = split if (root / split).is_dir() else ""
    if not base and split == "test" and (root / "query").is_dir():
        parts = [read_folder(root, part) for part in ("query", "gallery")]
        names = [a + b for a, b in zip(parts[0].names, parts[1].names)]
        return Listing(
            parts[0].paths + parts[1].paths,
            names,
            parts[0].level_names,
            "path",
            left_out=parts[0].left_out + parts[1].left_out,
        )
    if not base and any((root / part).is_dir() for part in ("train", "test", "query", "gallery")):
        raise MissingData(
            f"{root} has no folder {split!r} beside its other splits: make one, or move all classes into {root} itself"
        )
    seen = [f"{base}/{path}".lstrip("/") for path in walk_pictures(root / base, natural)]
    paths = [path for path in seen if format_of(path) in readable()]
    left_out = [path for path in seen if format_of(path) not in readable()]
    if not paths:
        why = f" ({unreadable(left_out)})" if left_out else ""
        raise DatasetError(
            f"{root / base} holds no picture{why}: expected ROOT/{'SPLIT/' if base else ''}LEVEL/.../CLASS/picture.jpg"
        )
    parts = [path.split("/")[bool(base) : -1] for path in paths]
    depth = len(parts[0])
    for path, part in zip(paths, parts):
        if len(part) != depth or depth == 0:
            raise DatasetError(
                f"{root}: {path} lies {len(part)} folders deep and {paths[0]} {depth}: every picture needs the same "
                f"number of folders above it, "
                "one for each level, the last one its class"
            )
    names = [list(column) for column in zip(*parts)]
    rows = range(len(paths)) if base else _half(names, split, "path", str(root))
    level_names = (*(f"level{n + 1}" for n in range(depth - 1)), "class")
    return Listing(
        [paths[i] for i in rows],
        [[column[i] for i in rows] for column in names],
        level_names,
        "path",
        left_out=left_out,
    )


def read_csv(root: Path, split: str) -> Listing:
    """A CSV file `images.csv` (or the only .csv in the root): a column `path`, a column per level from coarse to
    fine, and perhaps a column `split`.

    Commas, semicolons or tabs between the columns; a backslash in a path counts as a slash.

    Args:
        root: the folder that holds the file and the pictures.
        split: "train", "test", "query", "gallery"; without a column `split` "train" is the first half of the classes
            and "test" the rest.
    """
    tables = sorted(path.name for path in root.glob("*.csv"))
    file = "images.csv" if "images.csv" in tables or not tables else tables[0]
    if file != "images.csv" and len(tables) > 1:
        raise DatasetError(
            f"{root} holds {len(tables)} .csv files ({', '.join(tables[:3])}): call the list of images images.csv"
        )
    lines = read_lines(root, file, "write the list of your images there: a column path, and one for each level")
    rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=max((",", ";", "\t"), key=lines[0].count)))
    head = [name.strip() for name in rows[0]]
    if "path" not in head or len(set(head)) != len(head):
        raise DatasetError(
            f"{root / file} needs a header line with a column 'path' and no name twice, got "
            f"{', '.join(map(repr, head))}"
        )
    levels = [i for i, name in enumerate(head) if name not in ("path", "split")]
    if not levels:
        raise DatasetError(f"{root / file} has no column of labels: add one for each level, coarse to fine")
    found = []
    for number, row in enumerate(rows[1:], 2):
        if any(cell.strip() for cell in row):
            if len(row) != len(head):
                raise DatasetError(f"line {number} of {root / file} has {len(row)} columns, not {len(head)}")
            found.append([cell.strip() for cell in row])
    paths, names = (
        [row[head.index("path")].replace("\\", "/") for row in found],
        [[row[i] for row in found] for i in levels],
    )
    if "split" not in head:
        chosen = _half(names, split, "strict", str(root / file), [head[i] for i in levels]) if found else []
    else:
        said = [row[head.index("split")] for row in found]
        if odd := sorted(set(said) - {"train", "test", "query", "gallery"}):
            raise DatasetError(f"{root / file} has the split {odd[0]!r}; known: train, test, query, gallery")
        wanted = ("query", "gallery") if split == "test" and "test" not in said else (split,)
        chosen = [i for i, s in enumerate(said) if s in wanted]
    if not chosen:
        raise DatasetError(f"{root / file} lists no image of the split {split!r}")
    return Listing(
        [paths[i] for i in chosen], [[column[i] for i in chosen] for column in names], tuple(head[i] for i in levels)
    )


def own_tests(open_sets: OpenSets, info: DatasetInfo, data: DataConfig, seed: int) -> list[Protocol]:
    """Queries against the gallery where there are both, else every test image against all others; with measures of
    the tree where there is one."""
    try:
        protocol = Protocol("test", *open_sets("query", "gallery"))
    except DatasetError:
        protocol = Protocol("test", *open_sets("test"))
    depth = protocol.queries.labels.shape[1]
    levels = tuple(f"AP@level{n + 1}" for n in range(depth)) + TREE if depth > 1 else ()
    protocol.metrics = ("mAP", "R@1", "R@10", *levels)
    return [protocol]


_OWN = {"splits": ("train", "test", "query", "gallery"), "tests": own_tests, "own": True}
FOLDER = DatasetInfo(
    "folder",
    "a folder of folders",
    (),
    {},
    (),
    "your own pictures: ROOT/[train, test or query and gallery/]LEVEL/.../CLASS/picture.jpg, any depth",
    "",
    note="without train and test: the first half of the classes trains, the rest tests",
    read=read_folder,
    **_OWN,
)

CSV = DatasetInfo(
    "csv",
    "a CSV file",
    (),
    {},
    (),
    "your own pictures: ROOT/images.csv with a column path, one column per level, coarse to fine, and if you like "
    "a column split (train, test, query, gallery)",
    "",
    note="without a split column: the first half of the classes trains, the rest tests",
    read=read_csv,
    **_OWN,
)
