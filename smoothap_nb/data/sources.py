"""What a line of the registry knows about its data set: where it lies, how it is read and checked, cut and tested."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ..checks import ConfigError, nearest
from ..files import check_path, data_root
from ..images import unreadable
from .interface import DatasetError, MissingData, RetrievalDataset
from .labels import label_tree
from .lists import Listing, find_missing, finest_levels, natural
from .photographs import ImageSet, damage_report
from .protocols import Protocol
from .settings import DataConfig
from .transforms import ImageTransform, PhotoTransform

__all__ = [
    "MARKER",
    "TREE",
    "Count",
    "DatasetInfo",
    "OpenSets",
    "sure",
    "recalls",
    "all_against_all",
    "queries_and_gallery",
]

MARKER = "MINIATURE.txt"  # lies in a miniature's folder, so that nobody takes it for the real thing
TREE = ("H-AP", "ASI", "NDCG")  # measures of hierarchical labels


@dataclass(frozen=True)
class Count:
    "How many images and classes a split has, and who says so."

    images: int | None
    classes: tuple[int, ...] | int | None  # at the finest level, or at every level, coarse to fine
    source: str
    sure: bool = True  # False: sources disagree or round, so that another number is no fault

    def __str__(self) -> str:
        classes = self.classes[-1] if isinstance(self.classes, tuple) else self.classes
        known = (f"{self.images:,} images" if self.images else "", f"{classes:,} classes" if classes else "")
        return f"{self.source}: " + " of ".join(filter(None, known))

    def agrees(self, images: int, classes: tuple[int, ...]) -> bool:
        """Is this what was counted? Numbers that a paper rounded agree within 50 images; fewer levels than the source
        counts agree."""
        wanted = self.classes if isinstance(self.classes, tuple) else (self.classes,)
        room = 50 if "rounded" in self.source else 0
        near = self.images is None or abs(images - self.images) <= room
        return near and (self.classes is None or len(wanted) > len(classes) or wanted == classes[-len(wanted) :])


def sure(images: int, classes, source: str) -> tuple[Count, ...]:
    "The one count that nobody disputes."
    return (Count(images, classes, source),)


def recalls(*ks: int) -> tuple[str, ...]:
    "Names of the metrics R@k."
    return tuple(f"R@{k}" for k in ks)


class OpenSets:
    "Gives the image sets of some splits, with ids that mean the same in all of them; keeps their listings."

    def __init__(self, info: DatasetInfo, folder: Path, data: DataConfig | None, seed: int):
        self.info, self.folder, self.data, self.seed, self.listings = info, folder, data, seed, {}

    def __call__(self, *splits: str) -> list[ImageSet]:
        listings = {split: self.info.listing(self.folder, split) for split in splits}
        for split, listing in listings.items():
            self.info.warn_counts(self.folder, split, listing)
        self.listings |= listings
        return self.info.image_sets(self.folder, listings, self.data, self.seed)


def all_against_all(open_sets: OpenSets, info: DatasetInfo, data: DataConfig, seed: int) -> list[Protocol]:
    "Every test image against all others."
    return [Protocol("test", *open_sets("test"), metrics=info.metrics)]


def queries_and_gallery(open_sets: OpenSets, info: DatasetInfo, data: DataConfig, seed: int) -> list[Protocol]:
    "A list of queries against a list of answers."
    return [Protocol("test", *open_sets("query", "gallery"), metrics=info.metrics)]


def classes_by_list(info: DatasetInfo, root: Path, train: Listing | None = None) -> tuple[set, set]:
    "The names of the classes of either split, as their lists give them."
    keys = []
    for split in ("train", "test"):
        listing = train if split == "train" and train is not None else info.listing(root, split)
        keys.append(set(zip(*listing.names)) if listing.tree == "path" else set(listing.names[-1]))
    return keys[0], keys[1]


@dataclass(frozen=True)
class DatasetInfo:
    """One line of the registry: what belongs to a data set, and how it is read and tested.

    Attributes:
        name, title, papers, note: of the data set.
        levels: names of the label tree's levels, coarse to fine; empty where the pictures are one's own.
        counts: split -> what different sources say about its size.
        layout: files and folders that must be there; `elsewhere` says where some of them may lie instead.
        source: where to get it.
        folder: what the official archive unpacks to.
        metrics: what the papers report.
        read: (root, split) -> `Listing`; None where nothing is read.
        splits: the splits that `read` knows.
        tests: (open sets, this line, settings, seed) -> protocols.
        apart: (this line, root, the training listing or None) -> names of the classes of either split, which must not
            meet; None: apart by rule.
        made_of: test, as the counts call it -> the splits it is made of.
        kinds: protocols that can be asked for by `data.protocol`.
        own: pictures of one's own, with no official list to compare with.
        in_memory: pictures lie in memory, which may be a device's: no files are decoded, and no decoded cache is worth
            having.
    """

    name: str
    title: str
    levels: tuple[str, ...]
    counts: dict[str, tuple[Count, ...]]
    layout: tuple[str, ...]
    source: str
    folder: str
    papers: str = ""
    note: str = ""
    metrics: tuple[str, ...] = ("mAP", "R@1")
    read: Callable[[Path, str], Listing] | None = None
    splits: tuple[str, ...] = ("train", "test")
    tests: Callable[..., list[Protocol]] = all_against_all
    apart: Callable[..., tuple[set, set]] | None = classes_by_list
    made_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kinds: tuple[str, ...] = ("default",)
    elsewhere: dict[str, str] = field(default_factory=dict)
    own: bool = False
    in_memory: bool = False

    @property
    def mend(self) -> str:
        "What to do about a list that is wrong."
        return "correct it" if self.own else f"get it again: {self.source}"

    def find(self, root=None) -> Path:
        """The folder of the data set, looked up in `root` and in the folder of the official name below it.

        Args:
            root: the folder; None: a folder of the data set's name in the cache (see `files.data_root`).

        Raises:
            MissingData: no such folder, or what the data set consists of is not in it; says what and where to get it.
            DatasetError: a file in place of a folder.
        """
        given = data_root() / self.name if root is None or root == "none" else check_path("root", root)
        fetch = f"Get {self.title}: {self.source}"
        for folder in (given, *given.parents):
            if folder.is_file():
                raise DatasetError(
                    f"{folder} is a file, and {self.title} is a folder"
                    + (
                        ": name the folder that holds it"
                        if self.own
                        else ". Unpack the archive and name the folder it makes"
                    )
                )
        if not given.exists():
            raise MissingData(
                f"there is no folder {given} for {self.title}: pass root=... (data.root, --root). {fetch}"
            )
        for folder in [given] + ([given / self.folder] if self.folder else []):
            if not self._lacking(folder):
                return folder
        lacking = self._lacking(given)
        wrong = "is not the folder of" if len(lacking) == len(self.layout) else "is incomplete for"
        listed = ", ".join(lacking[:4]) + (", ..." if len(lacking) > 4 else "")
        raise MissingData(
            f"{given} {wrong} {self.title}: {listed} {'is' if len(lacking) == 1 else 'are'} missing. {fetch}"
        )

    def _lacking(self, folder: Path) -> list[str]:
        there = lambda part: (
            (folder / part).exists() or part in self.elsewhere and (folder / self.elsewhere[part]).exists()
        )
        return [part for part in self.layout if not there(part)]

    def listing(self, folder: Path, split: str) -> Listing:
        "What a split's list says, with the split's name checked; repetitions and empty splits are refused."
        if split not in self.splits:
            hint = f"; {self.note}" if self.note else ""
            raise DatasetError(f"{self.title} has no split {split!r}; it has {', '.join(self.splits)}{hint}")
        listing = self.read(folder, split)
        again = "add some" if self.own else "Fetch the official lists again"
        if not listing.paths:
            raise DatasetError(f"{self.title} in {folder}: the split {split!r} lists no image. {again}")
        if len(set(listing.paths)) < len(listing.paths) and listing.boxes is None:
            path, times = Counter(listing.paths).most_common(1)[0]
            raise DatasetError(
                f"{self.title} in {folder}: {path} is listed {times} times in the split {split!r}: remove the "
                f"repetitions"
            )
        return listing

    def check_apart(self, folder: Path, train: Listing | None = None) -> None:
        "Refuse lists in which a class both trains and tests; of one's own pictures it is said in a warning."
        if self.apart is None:
            return
        try:
            keys = self.apart(self, folder, train)
        except DatasetError:
            if self.own:  # there may be one split alone
                return
            raise
        if not (shared := keys[0] & keys[1]):
            return
        first = min((key if isinstance(key, str) else "/".join(key) for key in shared), key=natural)
        fact = (
            f"{self.title} in {folder}: {len(shared):,} of {len(keys[0]):,} training classes are test classes "
            f"too (e.g. {first})"
        )
        if not self.own:
            raise DatasetError(f"{fact}: in retrieval they are disjoint. One of the two lists is the wrong file")
        warnings.warn(f"{fact}: the result will say how well known classes are found, not new ones", stacklevel=3)

    def image_sets(
        self, folder: Path, listings: dict[str, Listing], data: DataConfig | None, seed: int
    ) -> list[ImageSet]:
        "One ImageSet per listing, with ids that mean the same in all of them; missing files are counted over all."
        data = data or DataConfig(name=self.name, size=224)
        parts = [finest_levels(listing, data.levels) for listing in listings.values()]
        what = f"{self.title} in {folder}"
        joined = [sum((part.names[level] for part in parts), []) for level in range(len(parts[0].names))]
        labels, names = label_tree(joined, parts[0].tree, what, parts[0].level_names)
        transform, out, start = self.transform(data, seed), [], 0
        for split, part in zip(listings, parts):
            missing = find_missing(folder, part.paths, what)
            if len(missing) > data.damaged_share * len(part.paths):
                raise MissingData(damage_report(missing, len(part.paths), what, data.damaged_share))
            boxes = None if part.boxes is None else torch.tensor(part.boxes)
            images = ImageSet(
                folder,
                part.paths,
                labels[start : start + len(part.paths)],
                part.level_names,
                names,
                transform,
                data.damaged_share,
                boxes,
                self.name,
                split,
            )
            start += len(part.paths)
            if missing:
                images.damaged.update({path: f"{folder / path} is missing" for path in missing})
                warnings.warn(
                    f"{what}: {len(missing)} of {len(part.paths):,} pictures are missing "
                    f"({', '.join(missing[:3])}); others of their "
                    "classes take their places",
                    stacklevel=3,
                )
            if part.left_out:
                warnings.warn(
                    f"{what}: {len(part.left_out):,} of {len(part.left_out) + len(part.paths):,} pictures are left "
                    f"out, for "
                    f"{unreadable(part.left_out)}",
                    stacklevel=3,
                )
            out.append(images)
        return out

    def warn_counts(self, folder: Path, split: str, listing: Listing) -> None:
        "A warning where a copy has other counts than the official one, and does not call itself a miniature."
        if split in self.counts and not (folder / MARKER).exists():
            state, fact = self.compare(split, [listing])
            if state == "fail":
                warnings.warn(
                    f"{self.title} in {folder}, {split}: {fact}: results will not compare with published ones. "
                    f"`smoothap data check {self.name} --root {folder}` says more",
                    stacklevel=3,
                )

    def compare(self, split: str, found: list[Listing], miniature: bool = False) -> tuple[str, str]:
        'Images and classes of a split against what the sources say: "ok", "note" or "fail", and the fact.'
        images, classes = sum(len(listing.paths) for listing in found), count_classes(found, split)
        levels = f" (levels: {', '.join(f'{n:,}' for n in classes)})" if len(classes) > 1 else ""
        fact, counts = f"{images:,} images of {classes[-1]:,} classes{levels}", self.counts.get(split, ())
        official = "; ".join(map(str, counts))
        if not counts:
            return "ok", fact
        if miniature:
            return "note", f"{fact}: a miniature ({official})"
        if not all(count.agrees(images, classes) for count in counts if count.sure):
            return "fail", f"{fact}; {official}"
        if any(count.agrees(images, classes) for count in counts):
            return "ok", f"{fact}, as it should be"
        return "note", f"{fact}; sources say {official}, and do not agree with each other or are rounded"

    def load(self, split: str = "train", root=None, data: DataConfig | None = None, seed: int = 0) -> RetrievalDataset:
        "See `load_dataset`."
        folder = self.find(root)
        listing = self.listing(folder, split)
        self.check_apart(folder, listing if split == "train" else None)
        self.warn_counts(folder, split, listing)
        (images,) = self.image_sets(folder, {split: listing}, data, seed)
        if split == "train" and len(images.labels[:, -1].unique()) < 2:
            raise DatasetError(
                f"{self.title} in {folder}: all training images are of one class, and there is nothing to rank them "
                f"against. "
                "Add a second class"
            )
        return images

    def protocols(self, root=None, data: DataConfig | None = None, seed: int = 0) -> list[Protocol]:
        "See `load_protocols`."
        self.check_kind(data)
        folder = self.find(root)
        self.check_apart(folder)
        return self.tests(OpenSets(self, folder, data, seed), self, data or DataConfig(name=self.name, size=224), seed)

    def check_kind(self, data: DataConfig | None) -> None:
        "Refuse a protocol that the data set does not have."
        if data is not None and data.protocol not in self.kinds:
            raise DatasetError(
                f"data.protocol is {data.protocol!r} for {self.title}: {nearest(data.protocol, self.kinds)}"
            )

    def transform(self, data: DataConfig, seed: int = 0) -> PhotoTransform | ImageTransform:
        "How its pictures are prepared, and a user's own for a model trained on them."
        return PhotoTransform.from_config(data, seed)

    def check_settings(self, data: DataConfig) -> None:
        """Refuse settings that do not fit its pictures, before anything is read.

        Raises:
            ConfigError: a crop larger than the picture it is cut from.
        """
        if not data.squash and data.resize < data.size:
            raise ConfigError(
                f"data.resize ({data.resize}) must be at least data.size ({data.size}): the crop is cut from the "
                f"resized picture"
            )

    def pictures_seed(self, seed: int) -> int:
        "The seed of the pictures in an experiment of a given seed: photographs are cropped anew for each."
        return seed


def count_classes(found: list[Listing], split: str) -> tuple[int, ...]:
    "Classes at each level, coarse to fine; of a test at one scale of several (DyML-Product), at that scale."
    first = found[0]
    if split in first.level_names and len(first.level_names) > 1:
        return (len(set(first.names[first.level_names.index(split)])),)
    if first.tree == "path":
        return tuple(len(set(zip(*first.names[: level + 1]))) for level in range(len(first.names)))
    return tuple(len(set(sum(map(list, column), []))) for column in zip(*[listing.names for listing in found]))
