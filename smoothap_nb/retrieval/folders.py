"""The pictures of a folder as embeddings: found by their endings, decoded on threads, kept between calls."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ..checks import check_count
from ..files import is_inside, write_atomic
from ..images import FORMATS, PhotoError, open_rgb, to_rgb, unreadable, walk_pictures
from .fingerprints import VERSION, model_fingerprint

__all__ = [
    "MARK",
    "PictureError",
    "FolderEmbeddings",
    "embed_folder",
    "embed_pictures",
    "check_sheet",
    "is_sheet",
    "embed_one",
    "list_images",
    "open_picture",
    "query_picture",
    "to_stderr",
]

PictureError = PhotoError  # the name it had in search
MARK = "smoothap_nb contact sheet"  # stands in the comment of the sheets that a search writes


def list_images(folder) -> list[Path]:
    """Pictures in a folder and below it, by file ending (`images.FORMATS`), sorted by path.

    Args:
        folder: where to look. Hidden files and folders (a leading dot) and links that lead out of the folder are left
            out.

    Returns:
        paths that start with `folder`; the list may be empty.

    Raises:
        FileNotFoundError: no such folder.
        NotADirectoryError: a file in place of a folder.
    """
    folder = Path(folder).expanduser()
    if not folder.exists():
        raise FileNotFoundError(f"no folder {folder}")
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file: name the folder of pictures to look in")
    found = [folder / path for path in walk_pictures(folder)]
    return [path for path in found if not path.is_symlink() or is_inside(os.path.realpath(path), folder)]


def is_sheet(path: Path) -> bool:
    "Is a file the contact sheet of an earlier search? Its comment stands before the pixels."
    if path.suffix.lower() != ".png" or not path.is_file():
        return False
    with open(path, "rb") as file:
        return MARK.encode() in file.read(512)


def check_sheet(path) -> Path:
    """Where a contact sheet may be written: a new file, or in the place of an earlier sheet. A photograph stays.

    Raises:
        ValueError: another ending than .png, or a file that no search wrote.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() != ".png":
        raise ValueError(f"a contact sheet is a PNG file: its name must end in .png, got {path}")
    if path.exists() and not is_sheet(path):
        raise ValueError(f"{path} is there already and is no contact sheet: choose another file for the contact sheet")
    return path


def open_picture(path):
    """A picture file as an upright RGB image; see `images.open_rgb`.

    Args:
        path: the file.

    Returns:
        `PIL.Image.Image` of mode "RGB".

    Raises:
        PictureError: no such file, an empty, truncated or unreadable one, one that is no picture, or the contact
            sheet of an earlier search.
    """
    path = Path(path).expanduser()
    if is_sheet(path):
        raise PictureError(f"{path} is the contact sheet of an earlier search")
    return open_rgb(path)


def query_picture(image):
    "The query as an RGB picture, whether it comes as a path or as a PIL image."
    from PIL import Image

    if isinstance(image, Image.Image):
        return to_rgb(image)
    if not isinstance(image, (str, os.PathLike)):
        raise TypeError(f"image must be a path or a PIL image, got {type(image).__name__}")
    if not Path(image).expanduser().exists():
        raise FileNotFoundError(f"no picture {image}")
    return open_picture(image)


class _Cache:
    """Embeddings of one folder under one fingerprint; rows are found by a picture's relative path, size and time of
    change."""

    def __init__(self, path: Path | None, notify: Callable[[str], None]):
        self.path, self.notify, self.rows, self.stored = path, notify, {}, set()
        if path is not None and path.is_file():
            try:
                with safe_open(path, framework="pt") as file:
                    keys, values = json.loads(file.metadata()["pictures"]), file.get_tensor("embeddings")
                if (
                    values.ndim != 2
                    or len(values) != len(keys)
                    or values.dtype != torch.float32
                    or not torch.isfinite(values).all()
                ):
                    raise ValueError("its parts do not fit together")
                self.rows = {tuple(key): row for key, row in zip(keys, values)}
                self.stored = set(self.rows)
            except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
                notify(f"the kept embeddings in {path} cannot be used ({error}) and are made anew")

    def write(self, wanted: list[tuple]) -> None:
        """Keep the wanted rows; the file appears whole or not at all. A disk that is full or read-only costs the
        cache, nothing else."""
        keys = [key for key in wanted if key in self.rows]
        if self.path is None or not keys or set(keys) == self.stored:
            return
        content = save({"embeddings": torch.stack([self.rows[key] for key in keys])}, {"pictures": json.dumps(keys)})
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, content)
        except OSError as error:
            self.notify(f"the embeddings could not be kept for next time: {error}")


def _open_cache(where, folder: Path, fingerprint: str | None, model: nn.Module, transform, notify) -> _Cache:
    "The cache of a folder under a fingerprint; one that keeps nothing where there is no place or no fingerprint."
    if where is not None and fingerprint is None:
        fingerprint = model_fingerprint(model, transform)
        if fingerprint is None:
            notify("embeddings cannot be kept: the transform has no to_dict() that describes it; pass fingerprint=...")
    if where is None or fingerprint is None:
        return _Cache(None, notify)
    name = hashlib.sha256(f"{VERSION}\n{folder.resolve()}\n{fingerprint}".encode()).hexdigest()[:24]
    return _Cache(Path(where).expanduser() / f"{name}.safetensors", notify)


def _key(path: Path, folder: Path) -> tuple[str, int, int] | None:
    "What tells a picture's version; None where the file has vanished or may not be looked at."
    try:
        stat = path.stat()
    except OSError:
        return None
    return path.relative_to(folder).as_posix(), stat.st_size, stat.st_mtime_ns


class FolderEmbeddings(NamedTuple):
    "What `embed_folder` gives."

    paths: list[Path]  # pictures that were embedded
    embeddings: Tensor  # (N, D) float32, rows of length 1
    skipped: dict[Path, str]  # pictures that were not, and why


def to_stderr(text: str) -> None:
    "The default way to tell a person something: a line on the terminal, beside the results and above a progress bar."
    from tqdm.auto import tqdm

    tqdm.write(text, file=sys.stderr)


@torch.no_grad()
def embed_folder(
    model: nn.Module,
    transform: Callable,
    folder,
    *,
    batch_size: int = 64,
    cache=None,
    fingerprint: str | None = None,
    progress: bool = True,
    notify: Callable[[str], None] = to_stderr,
) -> FolderEmbeddings:
    """Embeddings of all pictures in a folder and below it.

    Args:
        model: (N, C, H, W) to embeddings (N, D); used where its parameters are, in evaluation mode.
        transform: `PIL.Image.Image` of mode "RGB" to a float tensor (C, H, W).
        folder: where the pictures are; see `list_images`.
        batch_size: pictures embedded at once.
        cache: a folder in which embeddings are kept between calls; nothing is kept when left out. What was embedded
            before an interruption is kept as well.
        fingerprint: names what model and transform do, say a run's checksum; `model_fingerprint` when left out.
        progress: show a bar.
        notify: receives one line for each picture that is skipped, their count, and what else a person should know.

    Returns:
        `FolderEmbeddings`; pictures in the order of their paths.

    Raises:
        FileNotFoundError, NotADirectoryError: no such folder, or a file in its place.
        ValueError: a folder without a readable picture, a batch size below 1, a model whose embeddings are not (N, D)
            or not finite.
    """
    folder = Path(folder).expanduser()
    batch_size = check_count("batch_size", batch_size)
    paths = list_images(folder)
    if not paths:
        endings = ", ".join(ending for endings in FORMATS.values() for ending in endings)
        raise ValueError(f"{folder} holds no picture ({endings}), nor do the folders below it")
    memory = _open_cache(cache, folder, fingerprint, model, transform, notify)
    keys = {path: _key(path, folder) for path in paths}
    skipped = {path: f"{path} vanished or may not be read" for path in paths if keys[path] is None}
    for why in skipped.values():
        notify(f"skipped: {why}")
    waiting = [path for path in paths if path not in skipped and keys[path] not in memory.rows]
    try:
        for path, row in embed_pictures(model, transform, waiting, batch_size, progress, skipped, notify):
            memory.rows[keys[path]] = row
    finally:
        memory.write(list(keys.values()))
    good = [path for path in paths if path not in skipped]
    if skipped:
        lacking = unreadable(path.name for path in skipped)
        notify(f"{len(skipped)} of {len(paths)} pictures skipped" + (f"; {lacking}" if lacking else ""))
    if not good:
        raise ValueError(f"none of the {len(paths)} pictures in {folder} can be read")
    return FolderEmbeddings(good, torch.stack([memory.rows[keys[path]] for path in good]), skipped)


def embed_pictures(
    model: nn.Module,
    transform: Callable,
    paths: list[Path],
    batch_size: int,
    progress: bool,
    skipped: dict,
    notify: Callable,
):
    "Yield (path, row); pictures are decoded on threads while the batches keep their order."
    where = next((p.device for p in model.parameters()), torch.device("cpu"))

    def load(path: Path):
        try:
            return transform(open_picture(path))
        except (PhotoError, OSError) as error:
            return str(error)

    was_training = model.training
    model.eval()
    try:
        with ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as pool, _bar(len(paths), progress) as bar:
            for start in range(0, len(paths), batch_size):
                chunk = paths[start : start + batch_size]
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # odd tags and the like: the picture is what counts
                    loaded = dict(zip(chunk, pool.map(load, chunk)))
                for path, why in loaded.items():
                    if isinstance(why, str):
                        skipped[path] = why
                        notify(f"skipped: {why}")
                good = [path for path in chunk if path not in skipped]
                for path, row in zip(good, embed_tensors(model, [loaded[path] for path in good], where)):
                    if not torch.isfinite(row).all():
                        raise ValueError(f"the model gives NaN or infinity for {path}")
                    yield path, row
                bar.update(len(chunk))
    finally:
        model.train(was_training)


@torch.no_grad()
def embed_one(model: nn.Module, transform: Callable, picture) -> Tensor:
    """(D,) the embedding of one PIL picture, of length 1; the model is used where its parameters are, in evaluation
    mode."""
    where = next((p.device for p in model.parameters()), torch.device("cpu"))
    was_training = model.training
    model.eval()
    try:
        return embed_tensors(model, [transform(picture)], where)[0]
    finally:
        model.train(was_training)


def embed_tensors(model: nn.Module, tensors: list[Tensor], where) -> Tensor:
    "(N, D) on the CPU; pictures of unlike size go through one at a time."
    if not tensors:
        return torch.empty(0, 0)
    batches = [torch.stack(tensors)] if len({tuple(t.shape) for t in tensors}) == 1 else [t[None] for t in tensors]
    out = torch.cat([model(batch.to(where)).float().cpu() for batch in batches])
    if out.ndim != 2 or len(out) != len(tensors):
        raise ValueError(
            f"the model must give one embedding per picture, (N, D); for {len(tensors)} pictures it gave "
            f"{tuple(out.shape)}"
        )
    return F.normalize(out, dim=1)


def _bar(total: int, progress: bool):
    from tqdm.auto import tqdm

    return tqdm(total=total, desc="embedding", unit="picture", disable=not progress or total == 0)
