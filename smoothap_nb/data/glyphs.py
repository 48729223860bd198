"""Glyphs: a data set for retrieval that needs no download, thousands of characters drawn in matplotlib's own
typefaces (lesson 10)."""

from __future__ import annotations

import copy
import hashlib
import json
import unicodedata
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from ..checks import check_choice
from ..files import data_root
from .distortion import check_strength, distort, distortion_keys
from .drawing import FACES, SPLITS, draw_character, font_file, shrink, split_of
from .glyph_store import load_glyphs
from .interface import PictureSet, check_draw, class_sizes, places

__all__ = [
    "FACES",
    "SPLITS",
    "HALVES",
    "half_of",
    "font_file",
    "draw_character",
    "shrink",
    "distort",
    "distortion_keys",
    "data_root",
    "Glyphs",
    "glyph_statistics",
    "choose_batch",
    "glyph_batch",
]

GLYPH_BATCH = Path(__file__).with_name("glyph_batch.safetensors")
HALVES = ("pretext", "metric")  # of the training characters


def half_of(character: str, halving: int = 0) -> str:
    """The half of the training characters that a character belongs to: "pretext" or "metric".

    A second hash of the code point, independent of the one that makes "train", "val" and "test".

    Args:
        character: one character.
        halving: which way to halve, a whole number of at least 0; each is independent of the others.
    """
    digest = hashlib.sha256(f"glyphs halving {halving} {ord(character)}".encode()).digest()
    return HALVES[digest[0] % 2]


class Glyphs(PictureSet):
    """Characters of matplotlib's typefaces: about 5,000 classes of 4 to 16 pictures, in a tree of three levels.

    Splits share no character (open set), and a character is in the same split on every machine.

    Args:
        split: "train", "val" (carved out of the training characters), "test" or "all"; "pretext" and "metric" are
            halves of "train", for a network that is trained on the one and studied on the other.
        size: side of the pictures in pixels, 16 to 128.
        strength: of the distortion, >= 0; see `distort`.
        seed: of the distortion, a whole number.
        root: folder of the cache; left out, see `data_root`.
        halving: which way "train" is halved, a whole number of at least 0; it matters to "pretext" and "metric" alone.

    Attributes:
        images: (N, size, size) uint8, undistorted.
        labels: (N, 3) int64: group, family, character, coarse to fine; an id means the same in every split.
        characters, captions, faces: per image, the character, its Unicode name, and the typeface.
        level_names: ("group", "family", "character").
        group_names, family_names, character_names: the name of every id.
        identity: (N,) int64, what each image is (code point and face), the same in every split.
        draw: which distortion `dataset[i]` gives; 0, the one of evaluation.

    Raises:
        TypeError, ValueError: an unknown split; a size, strength, seed or halving that does not fit.
        NotADirectoryError: the root is a file.
    """

    level_names, classes_called = ("group", "family", "character"), "characters"

    def __init__(
        self, split: str = "train", size: int = 32, strength: float = 1.0, seed: int = 0, root=None, halving: int = 0
    ):
        check_choice("split", split, (*SPLITS, *HALVES))
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"seed must be a whole number, got {seed!r}")
        if isinstance(halving, bool) or not isinstance(halving, int) or halving < 0:
            raise ValueError(f"halving must be a whole number of at least 0, got {halving!r}")
        self.halving = halving
        self.name, self.split, self.draw = "glyphs", split, 0
        self.size, self.strength, self.seed, self.root = size, check_strength(strength), seed, root
        store = load_glyphs(size, root)
        table, codes = store.table, store.table["codes"]
        chosen = torch.tensor([self._holds(chr(code)) for code in codes])[store.character]
        self.images, character, face = store.images[chosen], store.character[chosen], store.face[chosen]
        self.labels = torch.tensor([table["group"], table["family"], list(range(len(codes)))]).T[character].contiguous()
        self.identity = torch.tensor(codes)[character] * 256 + face
        self.group_names, self.family_names = table["groups"], table["families"]
        self.character_names = [unicodedata.name(chr(code)) for code in codes]
        self.characters = [chr(codes[c]) for c in character.tolist()]
        self._captions = [self.character_names[c] for c in character.tolist()]
        self.faces = [list(FACES)[f] for f in face.tolist()]

    def _holds(self, character: str) -> bool:
        "Is the character in this split?"
        if self.split in HALVES:
            return split_of(character) == "train" and half_of(character, self.halving) == self.split
        return self.split in ("all", split_of(character))

    def raw(self, indices, draw: int = 0) -> Tensor:
        """Several images at once, each distorted by (seed, what it is, draw) alone, on the device where they lie.

        Args:
            indices: (B,) whole numbers, places in the data set: a list, range, array or tensor.
            draw: 0 is the fixed distortion of evaluation; training passes 1, 2, ... (the epoch + 1).

        Returns:
            (B, 1, size, size) float32 in [0, 1].

        Raises:
            TypeError: indices that are no whole numbers (a mask, for instance).
            ValueError: a draw that is not a whole number of at least 0.
            IndexError: an index outside the data set.
        """
        rows = places(indices, len(self)).to(self.images.device)
        return distort(
            self.images[rows], distortion_keys(self.identity[rows], self.seed, check_draw(draw)), self.strength
        )

    def subset(self, indices) -> Glyphs:
        """Some of the images, distorted as they are in the whole.

        Args:
            indices: (B,) whole numbers, places in the data set.
        """
        rows, part = places(indices, len(self)).to(self.images.device), copy.copy(self)
        part.images, part.labels, part.identity = self.images[rows], self.labels[rows], self.identity[rows]
        part.characters, part._captions, part.faces = (
            [names[i] for i in rows.tolist()] for names in (self.characters, self._captions, self.faces)
        )
        return part

    @property
    def captions(self) -> list[str]:
        "Per image, its character's Unicode name."
        return self._captions

    def to(self, device) -> Glyphs:
        "Keep pictures and labels on a device, so that `batch` distorts there. Returns the data set itself."
        self.images, self.labels, self.identity = (t.to(device) for t in (self.images, self.labels, self.identity))
        return self

    def workers(self, wanted: int) -> int:
        "One: a batch is distorted whole, and nothing is read."
        return 1

    def validation(self) -> Glyphs | None:
        "The validation characters of a training set, distorted as these are; None for the other splits."
        trains = self.split in ("train", *HALVES)
        return Glyphs("val", self.size, self.strength, self.seed, self.root) if trains else None

    def __repr__(self) -> str:
        counts = glyph_statistics(self)
        return (
            f"Glyphs({self.split!r}, size={self.size}, strength={self.strength:g}, seed={self.seed}"
            f"{f', halving={self.halving}' if self.split in HALVES else ''}): "
            f"{counts['images']:,} images of "
            f"{counts['character']:,} characters in {counts['family']} families and {counts['group']} groups"
        )


def glyph_statistics(dataset: Glyphs) -> dict:
    """Counts of a data set.

    Args:
        dataset: a `Glyphs`.

    Returns:
        images, classes, images_per_class (mean), smallest_class, largest_class; then group, family, character: ids
        that occur at each level.
    """
    return class_sizes(dataset.labels, dataset.level_names)


def choose_batch(
    labels: Tensor, groups: int = 8, families: int = 3, characters: int = 4, images: int = 4, skip: tuple[int, ...] = ()
) -> Tensor:
    """Indices of a batch with every level of the tree in it: the groups with the most families that are large enough,
    then the first of everything.

    Args:
        labels: (N, 3) group, family, character.
        groups, families, characters, images: how many of each; families in each group, characters in each family, and
            so on.
        skip: groups to leave out.

    Returns:
        (groups * families * characters * images,) indices, pictures of one character together.

    Raises:
        ValueError: the labels do not hold that many.
    """
    of_character: dict[int, list[int]] = {}
    tree: dict[int, dict[int, dict[int, None]]] = {}
    for index, (group, family, character) in enumerate(labels.tolist()):
        of_character.setdefault(character, []).append(index)
        tree.setdefault(group, {}).setdefault(family, {})[character] = None
    enough = {
        g: {f: [c for c in cs if len(of_character[c]) >= images] for f, cs in fs.items()}
        for g, fs in tree.items()
        if g not in skip
    }
    enough = {g: [f for f, cs in fs.items() if len(cs) >= characters] for g, fs in enough.items()}
    chosen = sorted((g for g, fs in enough.items() if len(fs) >= families), key=lambda g: (-len(enough[g]), g))[:groups]
    if len(chosen) < groups:
        raise ValueError(
            f"only {len(chosen)} groups have {families} families of {characters} characters with {images} images; "
            f"{groups} were asked for"
        )
    picked = []
    for g in chosen:
        for f in enough[g][:families]:
            for c in [c for c in tree[g][f] if len(of_character[c]) >= images][:characters]:
                picked += of_character[c][:images]
    return torch.tensor(picked)


def glyph_batch() -> dict:
    """A batch of 384 held-out glyphs with the demo network's embeddings, from a file in the package.

    Returns:
        dict with `images` (384, 32, 32) uint8, distorted as in evaluation; `labels` (384, 3) group, family, character;
        `trained` and `untrained` (384, D) float32 with rows of length 1; `captions`, a list of Unicode names;
        `made`, a dict that says by which commit, experiment and seed.

    Raises:
        FileNotFoundError: the package was installed without its data.
    """
    path = GLYPH_BATCH
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing: reinstall smoothap_nb, or make the file with python tools/glyph_batch.py RUN"
        )
    with safe_open(path, "pt") as file:
        out = {key: file.get_tensor(key) for key in ("images", "labels", "trained", "untrained")}
        facts = file.metadata()
    out |= {name: F.normalize(out[name].float(), dim=1) for name in ("trained", "untrained")}
    return out | {"captions": json.loads(facts["captions"]), "made": json.loads(facts["made"])}
