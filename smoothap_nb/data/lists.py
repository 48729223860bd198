"""What the readers of official lists have in common: lines, columns, tables, and the files that a list names."""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..files import is_inside
from .interface import DatasetError, MissingData

__all__ = [
    "Listing",
    "natural",
    "read_lines",
    "read_columns",
    "read_table",
    "look_up",
    "astray_message",
    "find_missing",
    "finest_levels",
    "first_with_two_parents",
    "check_level",
    "AGAIN",
]

AGAIN = "fetch the official list again"


@dataclass
class Listing:
    "Images of one split as their list gives them, before any picture is opened."

    paths: list[str]  # relative to the root, "/" between folders
    names: list[list[str]]  # one column per level, coarse to fine
    level_names: tuple[str, ...]
    # "strict": a class has one parent; "path": a class is its whole path; "split": path, with a warning where names
    # repeat
    tree: str = "strict"
    boxes: list[tuple[float, ...]] | None = None  # left, top, width, height of what counts in the picture
    instances: list[str] | None = None  # images with the same name are averaged (video frames)
    left_out: list[str] = field(default_factory=list)  # pictures in a format that this installation cannot read


def natural(name: str) -> list:
    "Sort key: runs of digits as numbers."
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def read_lines(root: Path, path: str, mend: str = AGAIN) -> list[str]:
    "The lines of a text file in the root; what is wrong with it is named."
    full = root / path
    if not full.exists():
        raise MissingData(
            f"{full} is missing"
            + (": it belongs to the data set's own archives, unpack all of them" if mend == AGAIN else f": {mend}")
        )
    if full.is_dir():
        raise DatasetError(f"{full} is a folder, and a list of images is expected there")
    try:
        lines = full.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DatasetError(f"{full} is no text file: {mend}") from None
    if not any(line.strip() for line in lines):
        raise DatasetError(f"{full} is empty: {mend}")
    return lines


def read_columns(root: Path, path: str, count: int, header: int = 0, expect: str = "") -> list[list[str]]:
    "Columns of a list separated by blanks; the header is checked, empty lines are passed over."
    lines = read_lines(root, path)
    if expect and lines[header - 1].split()[:count] != expect.split():
        raise DatasetError(
            f"{root / path} does not begin with the header {expect!r} but with {lines[header - 1][:60]!r}: is it "
            f"the right file?"
        )
    out: list[list[str]] = [[] for _ in range(count)]
    for number, line in enumerate(lines[header:], header + 1):
        parts = line.split(None, count - 1)
        if not parts:
            continue
        if len(parts) != count:
            raise DatasetError(
                f"line {number} of {root / path} has {len(parts)} columns, not {count}: {line[:60]!r}. Fetch the "
                f"official list again"
            )
        for column, part in zip(out, parts):
            column.append(part.strip())
    if not out[0]:
        raise DatasetError(f"{root / path} lists no image: fetch the official list again")
    return out


def read_table(root: Path, file: str, columns: dict[str, str]) -> list[list[str]]:
    "Columns of a comma-separated file, found by the beginning of their names; blanks do not count."
    rows = list(csv.reader(io.StringIO("\n".join(read_lines(root, file)))))
    head = [name.strip() for name in rows[0]]
    where = []
    for start in columns.values():
        found = [i for i, name in enumerate(head) if name.lower().startswith(start.lower())]
        if not found:
            raise DatasetError(
                f"{root / file} has no column {start!r}, only {', '.join(repr(name) for name in rows[0])}: is it "
                f"the right file?"
            )
        where.append(found[0])
    out: list[list[str]] = [[] for _ in where]
    for number, row in enumerate(rows[1:], 2):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) <= max(where):
            raise DatasetError(
                f"line {number} of {root / file} has {len(row)} columns, not {len(head)}: fetch it again"
            )
        for column, place in zip(out, where):
            column.append(row[place].strip())
    if not out[0]:
        raise DatasetError(f"{root / file} lists no image: fetch it again")
    return out


def look_up(root: Path, paths: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The images that are not there, and the paths that must not be followed.

    Folders are read once each, so that a list of a million images takes seconds.

    Args:
        root: the data set's folder.
        paths: relative to it, "/" between folders.

    Returns:
        the missing ones, broken links among them, in the order of the list; path -> what is wrong, for absolute paths,
        those with "..", and links to somewhere outside.
    """
    folders: dict[str, dict[str, bool] | str] = {}
    missing: list[str] = []
    astray: dict[str, str] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder not in folders:
            folders[folder] = _entries(root, folder)
        entries = folders[folder]
        if path[:1] in ("/", "\\") or path[1:2] == ":":
            astray[path] = "an absolute path"
        elif "\0" in path or name in ("..", ""):
            astray[path] = "which is no file"
        elif isinstance(entries, str):
            astray[path] = entries
        elif name not in entries:
            missing.append(path)
        elif entries[name]:  # a link
            real = os.path.realpath(os.path.join(root, path))
            if not is_inside(real, root):
                astray[path] = "a link to somewhere else"
            elif not os.path.exists(real):
                missing.append(path)
    return missing, astray


def _entries(root: Path, folder: str) -> dict[str, bool] | str:
    "The entries of a folder below the root, and which of them are links; or why the folder must not be read."
    if ".." in folder.split("/") or "\\" in folder or "\0" in folder:
        return "which leads upwards"
    if folder[:1] == "/":
        return "an absolute path"
    real = os.path.realpath(os.path.join(root, folder))
    if not is_inside(real, root):
        return f"and its folder is a link to {real}"
    try:
        with os.scandir(real) as found:
            return {entry.name: entry.is_symlink() for entry in found}
    except (FileNotFoundError, NotADirectoryError):
        return {}


def astray_message(path: str, why: str, root: Path, what: str) -> str:
    "One sentence on a path that leads out of the data set's folder."
    return (
        f"{what} names {path!r}, {why}: images must lie in {root}. Correct the list, or pass the folder that "
        f"holds all images as root"
    )


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
    missing, astray = look_up(root, paths)
    for path, why in astray.items():
        raise DatasetError(astray_message(path, why, root, what))
    return missing


def finest_levels(listing: Listing, levels: int) -> Listing:
    "The same images with the finest `levels` levels only, 0 = all."
    known = len(listing.names)
    if levels < 0 or levels > known:
        raise DatasetError(
            f"data.levels is {levels}, the labels have {known} levels ({', '.join(listing.level_names)}); 0 takes all"
        )
    if levels in (0, known):
        return listing
    names = listing.names[-levels:]
    if listing.tree == "path":  # a name alone would not do
        joined = [" / ".join(parts) for parts in zip(*listing.names[: known - levels + 1])]
        names = [joined, *names[1:]]
    return replace(listing, names=names, level_names=listing.level_names[-levels:])


def first_with_two_parents(column: list[str], parent: list[int]) -> tuple[str, int, int] | None:
    "The first name of a level that lies below two parents, and both of them; None in a tree."
    above: dict[str, int] = {}
    for name, up in zip(column, parent):
        if above.setdefault(name, up) != up:
            return name, above[name], up
    return None


def check_level(
    names: list[list[str]],
    level: int,
    parent: list[int],
    known: list[list[str]],
    tree: str,
    what: str,
    level_names: Sequence[str] = (),
) -> None:
    "Refuse an empty name, and (but for paths) a class with two parents."
    called = list(level_names) or [f"level {n + 1}" for n in range(len(names))]
    if "" in names[level]:
        place = names[level].index("") + 1
        raise DatasetError(
            f"{what}: image {place} has an empty {called[level]}: every image needs a name at every level"
        )
    found = first_with_two_parents(names[level], parent) if level and tree != "path" else None
    if found is None:
        return
    name, one, other = found
    both = f"{called[level]} {name!r} lies in {called[level - 1]} {known[-1][one]!r} and in {known[-1][other]!r}"
    if tree == "strict":
        raise DatasetError(
            f"{what}: {both}: a class has one parent. Correct the labels, or use the finest level alone "
            "(data.levels = 1)"
        )
    warnings.warn(f"{what}: {both}, perhaps among others: counted as two classes", stacklevel=3)
