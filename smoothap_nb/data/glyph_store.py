"""All glyphs of one size, drawn once and kept on the disk under a fingerprint of everything that decides them."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..files import data_root, write_atomic
from .drawing import (
    CANVAS,
    EM,
    FACES,
    LIMIT,
    character_table,
    draw_face,
    font_file,
    lookalikes,
    select_characters,
    shrink,
)

__all__ = ["GlyphStore", "build_glyphs", "glyph_key", "write_glyphs", "read_glyphs", "load_glyphs"]


@dataclass
class GlyphStore:
    "All glyphs of one size: the pictures, and the table of characters that they point into."

    images: Tensor  # (N, size, size) uint8
    character: Tensor  # (N,) int64, row of the table
    face: Tensor  # (N,) int64, place in FACES
    table: dict  # see `character_table`; also "selection", the counts of `select_characters`


def build_glyphs(size: int = 32, progress: bool = True) -> GlyphStore:
    """Draw every character of every face, choose those that make a class, and give each its place in the tree.

    Args:
        size: side of the pictures in pixels.
        progress: show a bar on a terminal.

    Returns:
        the store: the same wherever typefaces and FreeType are the same, sorted by character, then face.
    """
    from tqdm import tqdm

    codes, small, sized = {}, {}, {}
    for face in tqdm(FACES, desc="drawing the glyphs", unit="face", leave=False, disable=None if progress else True):
        codes[face], large = draw_face(face)
        small[face] = shrink(large, 32)
        sized[face] = small[face] if size == 32 else shrink(large, size)
    faces = Counter(code for face in FACES for code in codes[face])
    rivals: dict[int, set[int]] = {}
    for face in FACES:
        for i, j in lookalikes(small[face]):
            rivals.setdefault(codes[face][i], set()).add(codes[face][j])
            rivals.setdefault(codes[face][j], set()).add(codes[face][i])
    kept, selection = select_characters(faces, rivals)
    table = character_table(kept)
    row = {code: n for n, code in enumerate(table["codes"])}
    found = sorted(
        (row[code], f, n) for f, face in enumerate(FACES) for n, code in enumerate(codes[face]) if code in row
    )
    images = torch.stack([sized[face][n] for face, n in ((list(FACES)[f], n) for _, f, n in found)])
    character, face, _ = torch.tensor(found).T.contiguous()
    return GlyphStore(images, character.clone(), face.clone(), {**table, "selection": selection})


_VERSION = 2  # of the rules: raise it when drawing, choice, tree or file change


def glyph_key(size: int) -> str:
    "Fingerprint of all that decides the pictures: rules, size, typefaces, FreeType."
    from PIL import features

    digest = hashlib.sha256(f"{_VERSION} {size} {CANVAS} {EM} {LIMIT} {features.version('freetype2')}".encode())
    for face in FACES:
        digest.update(f"{face} {FACES[face]}".encode() + font_file(face).read_bytes())
    return digest.hexdigest()


def _checksum(tensors: dict[str, Tensor], table: str) -> str:
    digest = hashlib.sha256(table.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].numpy().data)
    return digest.hexdigest()


def write_glyphs(store: GlyphStore, path: Path, key: str) -> None:
    "Write pictures and table with a checksum; a reader meets the old file or the new one, never half of one."
    tensors = {"images": store.images, "character": store.character, "face": store.face}
    table = json.dumps(store.table)
    content = save(tensors, {"key": key, "table": table, "sha256": _checksum(tensors, table)})
    write_atomic(path, content)


def read_glyphs(path: Path, key: str) -> tuple[GlyphStore | None, str]:
    "The stored glyphs and no trouble; or None and what is wrong (nothing is wrong with a file that is not there)."
    try:
        with safe_open(path, "pt") as file:
            meta = file.metadata() or {}
            if meta.get("key") != key:
                return None, "belongs to other typefaces or another version"
            tensors = {name: file.get_tensor(name).clone() for name in ("images", "character", "face")}
        if _checksum(tensors, meta["table"]) != meta["sha256"]:
            return None, "does not match its checksum"
        return GlyphStore(**tensors, table=json.loads(meta["table"])), ""
    except FileNotFoundError:
        return None, ""
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        return None, f"cannot be read ({error})"


_IN_MEMORY: dict[str, GlyphStore] = {}  # used only where nothing can be written


def load_glyphs(size: int = 32, root=None) -> GlyphStore:
    """The glyphs from the cache; drawn and cached where they are absent, damaged or out of date.

    Args:
        size: side of the pictures in pixels, 16 to 128.
        root: folder of the cache; left out, see `data_root`.

    Raises:
        TypeError, ValueError: a size that is not a whole number from 16 to 128.
        NotADirectoryError: the root, or a folder above it, is a file.
        FileNotFoundError: matplotlib came without its typefaces.
    """
    if isinstance(size, bool) or not isinstance(size, int):
        raise TypeError(f"size must be a whole number of pixels, got {size!r}")
    if not 16 <= size <= CANVAS:
        raise ValueError(f"size must lie between 16 and {CANVAS} pixels, got {size}")
    root = data_root(root)
    for folder in (root, *root.parents):
        if folder.is_file():
            raise NotADirectoryError(
                f"{folder} is a file, and the glyphs need a folder there: move it, pass root=..., or set SMOOTHAP_DATA"
            )
    path, key = root / f"glyphs-{size}.safetensors", glyph_key(size)
    store, trouble = read_glyphs(path, key)
    if store is not None:
        return store
    if trouble:
        warnings.warn(f"{path} {trouble}: the glyphs are drawn again", stacklevel=3)
    store = _IN_MEMORY.get(key) or build_glyphs(size)
    try:
        root.mkdir(parents=True, exist_ok=True)
        write_glyphs(store, path, key)
    except OSError as error:
        warnings.warn(
            f"the glyphs cannot be kept in {root} ({error.strerror or error}), so every process draws them again: "
            "set SMOOTHAP_DATA to a folder that can be written",
            stacklevel=3,
        )
        _IN_MEMORY[key] = store
    return store
