"""VGGFace2 and IJB-C: people."""

from __future__ import annotations

from pathlib import Path

from ...images import walk_pictures
from ..interface import DatasetError
from ..labels import label_tree
from ..lists import Listing, natural, read_lines, read_table
from ..protocols import Protocol
from ..settings import DataConfig
from ..sources import Count, DatasetInfo, OpenSets, sure


def read_vggface2(root: Path, split: str) -> Listing:
    """VGGFace2: `train/nNNNNNN/IIII_FF.jpg` and `test/...`, loosely cropped faces in one folder per identity.

    The layout is that of the distribution's read-me; `train_list.txt` or `test_list.txt` (one path per line, below the
    split's folder) is used where it lies in the root, otherwise the folders are read.

    Args:
        root: the folder that holds `train` and `test`.
        split: "train" or "test".
    """
    if (root / f"{split}_list.txt").exists():
        paths = [f"{split}/{line.strip()}" for line in read_lines(root, f"{split}_list.txt") if line.strip()]
    else:
        paths = [f"{split}/{path}" for path in walk_pictures(root / split, natural)]
    if not paths:
        raise DatasetError(f"{root / split} holds no picture: unpack the archive vggface2_{split} there")
    for path in paths:
        if path.count("/") != 2:
            raise DatasetError(f"{root}: {path!r} is not {split}/IDENTITY/PICTURE: is it the right list or folder?")
    return Listing(paths, [[path.split("/")[1] for path in paths]], ("identity",))


def people(info: DatasetInfo, root: Path, train: Listing | None = None) -> tuple[set, set]:
    "Who is in either split, by the names of the folders."
    return tuple({entry.name for entry in (root / split).iterdir() if entry.is_dir()} for split in ("train", "test"))


def read_ijbc(root: Path, split: str = "test", least: int = 5) -> Listing:
    """IJB-C: `protocols/ijbc_metadata.csv` (or in `protocols/archive/`), pictures `images/img/N.jpg` and
    `images/frames/VIDEO_FRAME.png`.

    The columns SUBJECT_ID, FILENAME, FACE_X, FACE_Y, FACE_WIDTH, FACE_HEIGHT are read; the layout is that of the
    distribution as public readers of the file describe it. A still is an instance; all frames of one subject in one
    video are one instance (the number before "_" in the file's name tells the video). Subjects with fewer than `least`
    instances are left out (Smooth-AP, section 5.1), rows without a subject or a box too.

    Args:
        root: the folder `IJB-C`.
        split: "test", the only one.
        least: instances that a subject needs.
    """
    file = next(
        (f for f in ("protocols/ijbc_metadata.csv", "protocols/archive/ijbc_metadata.csv") if (root / f).exists()),
        "protocols/ijbc_metadata.csv",
    )
    columns = ("SUBJECT_ID", "FILENAME", "FACE_X", "FACE_Y", "FACE_WIDTH", "FACE_HEIGHT")
    rows = []
    for subject, name, *box in zip(*read_table(root, file, {c: c for c in columns})):
        try:
            box, known = tuple(map(float, box)), float(subject or "nan")
        except ValueError:
            if "" in box:
                continue
            raise DatasetError(
                f"{root / file}: subject {subject!r} of {name} has the box {box}, which is not four numbers: fetch "
                f"it again"
            ) from None
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
    return Listing(
        [prefix + row[0] for row in rows],
        [[row[1] for row in rows]],
        ("subject",),
        boxes=[row[3] for row in rows],
        instances=[row[2] for row in rows],
    )


def videos_averaged(open_sets: OpenSets, info: DatasetInfo, data: DataConfig, seed: int) -> list[Protocol]:
    "Every still or video against all others, the frames of a video averaged to one item."
    (images,) = open_sets("test")
    return [
        Protocol(
            "test", images, groups=label_tree([open_sets.listings["test"].instances])[0][:, 0], metrics=info.metrics
        )
    ]


VGGFACE2 = DatasetInfo(
    "vggface2",
    "VGGFace2",
    ("identity",),
    {
        "train": (Count(3_141_890, 8_631, "total of the distribution less its test set", False),),
        "test": sure(169_396, 500, "Smooth-AP, Table 1"),
    },
    ("train", "test"),
    "robots.ox.ac.uk/~vgg/data/vgg_face2 (withdrawn there; copies are shared among those who signed the licence)",
    "VGG-Face2",
    "Cao et al. 2018; Smooth-AP",
    metrics=("mAP", "R@1"),
    read=read_vggface2,
    apart=people,
)

IJBC = DatasetInfo(
    "ijbc",
    "IJB-C",
    ("subject",),
    {"test": (Count(148_824, 3_531, "Smooth-AP, Table 1", False),)},
    ("protocols/ijbc_metadata.csv", "images"),
    "nist.gov/programs-projects/face-challenges (on application)",
    "IJB-C",
    "Maze et al. 2018; Smooth-AP",
    "test only: train on vggface2",
    metrics=("mAP", "R@1"),
    read=read_ijbc,
    splits=("test",),
    tests=videos_averaged,
    apart=None,
    elsewhere={"protocols/ijbc_metadata.csv": "protocols/archive/ijbc_metadata.csv"},
)
