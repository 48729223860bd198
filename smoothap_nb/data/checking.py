"""What is right and wrong with a copy of a data set, line by line; behind `smoothap data check`."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ..images import PhotoError, open_rgb, unreadable
from .interface import DatasetError
from .labels import label_tree
from .lists import Listing, astray_message, look_up
from .readers import DatasetInfo, dataset_info
from .sources import MARKER

__all__ = ["check_dataset"]

Line = tuple[str, str, str, str]  # what was looked at, "ok" | "note" | "fail", the fact, what to do


def check_dataset(name: str, root=None, *, every_picture: bool = False) -> list[Line]:
    """What is right and wrong with a copy of a data set.

    Args:
        name: a data set of `DATASETS`.
        root: as in `load_dataset`.
        every_picture: open all pictures; otherwise sixteen of each split, spread evenly.

    Returns:
        lines (what was looked at, "ok" | "note" | "fail", fact, what to do). A miniature's counts are a "note".

    Raises:
        DatasetError: no data set of that name. Everything else is a line of the answer.
    """
    info = dataset_info(name)
    if info.read is None:
        found = info.load("all", root).statistics()
        return [("pictures", "ok", f"{found['images']:,} glyphs of {found['classes']:,} characters", "")]
    try:
        folder = info.find(root)
    except DatasetError as error:
        fact, _, mend = str(error).partition(" Get ")
        return [("folder", "fail", fact, f"get {mend}" if mend else info.source)]
    out: list[Line] = [("folder", "ok", str(folder), "")]
    miniature = (folder / MARKER).exists()
    if miniature:
        drawn = f"{MARKER} says that these are drawn pictures: counts below are not those of {info.title}"
        out.append(("miniature", "note", drawn, f"for results, {info.mend}"))
    listings = _read_all(info, folder, miniature, out)
    for split, listing in listings.items():
        out += _said(
            f"{split} tree", lambda: label_tree(listing.names, listing.tree, split, listing.level_names), info.mend
        )
    if "train" in listings:
        out += _apart(info, folder, listings["train"])
        out += _trainable(listings["train"], info.mend)
    for split, listing in listings.items():
        out += _files(split, listing, folder, every_picture, info.mend)
    return out


def _read_all(info: DatasetInfo, folder: Path, miniature: bool, out: list[Line]) -> dict[str, Listing]:
    "The listings of all splits that can be read; a line for each."
    listings: dict[str, Listing] = {}
    for split in info.counts or info.splits:
        parts = info.made_of.get(split, (split,))
        try:
            found = [info.listing(folder, part) for part in parts]
        except DatasetError as error:
            if info.counts or split == "train":
                out.append((split, "fail", str(error), info.mend))
            continue
        listings.update(zip(parts, found))
        state, fact = info.compare(split, found, miniature)
        out.append((split, state, fact, info.mend if state == "fail" else ""))
    return listings


def _said(what: str, call: Callable[[], object], mend: str, state: str = "fail") -> list[Line]:
    "Lines for what a call warns of, and for what it refuses."
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
    except DatasetError as error:
        return [(what, state, str(error), mend)]
    return [(what, "note", str(w.message), "") for w in caught]


def _apart(info: DatasetInfo, folder: Path, train: Listing) -> list[Line]:
    lines = _said("disjoint", lambda: info.check_apart(folder, train), info.mend)
    return lines or [("disjoint", "ok", "no class both trains and tests", "")]


def _trainable(train: Listing, mend: str) -> list[Line]:
    """Is there something to rank? At least two classes, with two pictures each; more where some are set aside for
    validation."""
    classes = Counter(zip(*train.names)) if train.tree == "path" else Counter(train.names[-1])
    pairs, alone = sum(n > 1 for n in classes.values()), sum(n == 1 for n in classes.values())
    if len(classes) < 2:
        fact = "all training images are of one class, and there is nothing to rank them against"
        return [("training", "fail", fact, "add a second class")]
    if pairs < 2:
        fact = (
            f"{pairs} of {len(classes):,} training classes have two pictures or more: a picture alone has nothing to "
            f"find"
        )
        return [("training", "fail", fact, "add pictures to the classes")]
    if pairs < 4:
        fact = (
            f"{pairs} training classes with two pictures or more: validation sets at least two aside, and what is "
            f"left ({pairs - 2}) is nothing to rank"
        )
        return [("training", "fail", fact, "add classes until there are four; fewer train with validate.every=0 alone")]
    lines: list[Line] = []
    if alone:
        lines.append(
            (
                "training",
                "note",
                f"{alone:,} of {len(classes):,} training classes have one picture and are never drawn",
                "",
            )
        )
    if pairs < 28:
        lines.append(
            (
                "training",
                "note",
                f"{pairs} classes with two pictures or more: the default batch asks for 28",
                f"--set batch.classes={max(2, pairs)}; with validation (validate.every), fewer, for some classes "
                f"are set aside",
            )
        )
    return lines


def _files(split: str, listing: Listing, folder: Path, every_picture: bool, mend: str) -> list[Line]:
    "Lines on the files of a split: those that lead out, are missing, cannot be read."
    out: list[Line] = []
    missing, astray = look_up(folder, listing.paths)
    if astray:
        path, why = next(iter(astray.items()))
        more = f" ({len(astray):,} such paths in all)" if len(astray) > 1 else ""
        out.append((f"{split} files", "fail", astray_message(path, why, folder, split) + more, mend))
    if listing.left_out:
        out.append(
            (f"{split} files", "note", f"{len(listing.left_out):,} pictures are left out", unreadable(listing.left_out))
        )
    gone = {*missing, *astray}
    present = [path for path in listing.paths if path not in gone]
    if missing:
        fact = f"{len(missing):,} of {len(listing.paths):,} are missing, e.g. {', '.join(missing[:3])}"
        out.append((f"{split} files", "fail", fact, mend))
    looked = present if every_picture else present[:: max(1, len(present) // 16)][:16]
    damaged = []
    for path in looked:
        try:
            open_rgb(path, folder)
        except PhotoError as error:
            damaged.append(str(error))
    if damaged:
        fact = f"{len(damaged):,} of {len(looked):,} pictures opened are damaged: {'; '.join(damaged[:3])}"
        out.append((f"{split} files", "fail", fact, mend))
    elif not gone:
        out.append(
            (f"{split} files", "ok", f"all {len(listing.paths):,} are there, {len(looked):,} of them opened", "")
        )
    return out
