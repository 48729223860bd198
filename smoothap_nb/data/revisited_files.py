"""The files of the revisited protocol: annotations that are read and never run, lists of images, distractors."""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smoothap_nb.checks import check_positive
from smoothap_nb.files import check_path
from smoothap_nb.metrics.revisited_inputs import KINDS, labelled_images


class _Part:
    "A call that a pickle asked for, noted and not made."

    def __init__(self, what: str, args: tuple):
        self.what, self.args, self.state = what, args, None

    def __setstate__(self, state):
        self.state = state


class _StandIn:
    "Takes the place of a function that a pickle names."

    __slots__ = ("what",)

    def __init__(self, what: str):
        self.what = what

    def __call__(self, *args):
        return _Part(self.what, args)

    def __setstate__(self, state):
        raise ValueError(f"it tries to change {self.what}")


_ADMITTED = {("numpy", "ndarray"): "ndarray", ("numpy", "dtype"): "dtype", ("_codecs", "encode"): "encode"}
for _core in ("numpy.core", "numpy._core"):  # before and since numpy 2
    _ADMITTED |= {
        (f"{_core}.multiarray", "_reconstruct"): "array",
        (f"{_core}.multiarray", "scalar"): "scalar",
        (f"{_core}.numeric", "_frombuffer"): "frombuffer",
    }
_ADMITTED |= {
    (module, name): name
    for module in ("builtins", "__builtin__")
    for name in ("set", "frozenset", "bytes", "bytearray")
}  # protocols 0 to 3


class _PlainUnpickler(pickle.Unpickler):
    "Admits containers, numbers, strings and numpy arrays of them. Nothing is imported, nothing is called."

    def find_class(self, module, name):
        if (module, name) not in _ADMITTED:
            raise ValueError(f"it asks for {module}.{name}")
        return _StandIn(_ADMITTED[module, name])

    def persistent_load(self, key):
        raise ValueError(f"it asks for an outside object {key!r}")


def read_plain_pickle(path):
    """What a pickle holds, if that is plain data: lists, tuples, dicts, sets, numbers, strings, None and numpy arrays
    of numbers or strings.

    The file cannot run code: whatever else it asks for is refused by name.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a pickle that asks for anything else, that is damaged, or that is larger than 256 MB.
    """
    path = Path(path)
    if path.stat().st_size > 256e6:
        raise ValueError(f"{path} has {path.stat().st_size / 1e6:.0f} MB: a ground-truth file has less than one")
    try:
        with open(path, "rb") as file:
            return _plain(_PlainUnpickler(file, encoding="latin1").load(), {}, 0)
    except ValueError as error:
        raise ValueError(
            f"{path} is refused: {error}. Only lists, dicts, numbers, strings and numpy arrays of them are read"
        ) from None
    except Exception as error:  # a damaged file can break an unpickler in many ways
        raise ValueError(f"{path} is damaged or no pickle: {type(error).__name__}: {error}") from None


def _plain(value, seen: dict, depth: int):
    "Turn the notes of the stand-ins into arrays, everywhere inside containers."
    if isinstance(value, (str, int, float, complex, bytes, bytearray, type(None))):  # bool is an int
        return value
    if depth > 20:
        raise ValueError("it is nested more than 20 deep")
    if id(value) not in seen:
        inner = lambda item: _plain(item, seen, depth + 1)  # noqa: E731
        if isinstance(value, dict):
            made = {inner(k): inner(v) for k, v in value.items()}
        elif isinstance(value, (list, tuple, set, frozenset)):
            made = type(value)(map(inner, value))
        elif isinstance(value, _Part):
            made = _array(value, inner)
        else:
            raise ValueError(f"it holds a {value.what if isinstance(value, _StandIn) else type(value).__name__}")
        seen[id(value)] = made
    return seen[id(value)]


def _array(part: _Part, inner: Callable):
    "What a stand-in was called for: an array, a numpy number, bytes or a set."
    if part.what == "array" and isinstance(part.state, tuple) and len(part.state) == 5:
        _, shape, dtype, by_columns, data = part.state
        if isinstance(data, list):  # an array of objects: a list is plainer
            return [inner(item) for item in data]
        return _from_bytes(data, dtype, shape, "F" if by_columns else "C")
    if part.what == "frombuffer" and len(part.args) == 4:
        return _from_bytes(*part.args)
    if part.what == "scalar" and len(part.args) == 2:
        return _from_bytes(part.args[1], part.args[0], (1,), "C")[0].item()
    if part.what == "encode" and part.args and isinstance(part.args[0], str):
        return part.args[0].encode("latin1")
    if part.what in ("set", "frozenset") and len(part.args) == 1 and isinstance(part.args[0], list):
        return {"set": set, "frozenset": frozenset}[part.what](map(inner, part.args[0]))
    if part.what in ("bytes", "bytearray") and len(part.args) < 2:
        content = inner(part.args[0]) if part.args else b""
        if isinstance(content, bytes):
            return {"bytes": bytes, "bytearray": bytearray}[part.what](content)
    raise ValueError(f"it misuses {part.what}")


def _from_bytes(data, dtype, shape, order) -> np.ndarray:
    data = _array(data, None) if isinstance(data, _Part) else data
    data = data.encode("latin1") if isinstance(data, str) else data  # Python 2 wrote bytes as text
    name = dtype.args[0] if isinstance(dtype, _Part) and dtype.what == "dtype" and dtype.args else None
    byte_order = dtype.state[1] if name and isinstance(dtype.state, tuple) and len(dtype.state) > 1 else "|"
    if (
        not isinstance(name, str)
        or not re.fullmatch(r"[biufSU]\d{1,3}", name)
        or byte_order not in ("<", ">", "|", "=")
    ):
        raise ValueError(f"it holds an array of type {name!r}")
    if (
        not isinstance(data, (bytes, bytearray))
        or not isinstance(shape, tuple)
        or not all(type(n) is int and n >= 0 for n in shape)
    ):
        raise ValueError("it holds an array without shape or bytes")
    made = np.frombuffer(bytes(data), dtype=np.dtype(name).newbyteorder(byte_order))
    if made.size != math.prod(shape):
        raise ValueError(f"it holds an array of shape {shape} with {made.size} entries")
    return made.astype(made.dtype.newbyteorder("=")).reshape(shape, order="F" if order == "F" else "C")


def read_ground_truth(path) -> dict:
    """An annotation file of the revisited protocol, `.pkl` as published or `.json` as `convert_ground_truth` writes it.

    Returns:
        {"imlist": names of the gallery images, "qimlist": names of the query images, "gnd": one dict per query with
        "bbx" (4 numbers: left, top, right, bottom, in pixels) and "easy", "hard", "junk" (lists of gallery indices)}.

    Raises:
        FileNotFoundError, ValueError: a file that is missing, refused, damaged, or not of this form; what is wrong is
            named.
    """
    path = Path(path)
    if path.suffix == ".json":
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is no JSON: {error}") from None
    else:
        content = read_plain_pickle(path)
    if not isinstance(content, dict) or any(key not in content for key in ("imlist", "qimlist", "gnd")):
        raise ValueError(
            f"{path} must hold imlist, qimlist and gnd, it holds "
            f"{sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__}"
        )
    images, queries, truth = (list(content[key]) for key in ("imlist", "qimlist", "gnd"))
    if len(queries) != len(truth):
        raise ValueError(
            f"{path}: qimlist has {len(queries)} names, gnd has {len(truth)} entries; one per query is needed"
        )
    try:
        checked = [
            {"bbx": _box(entry, q)} | {k: v.tolist() for k, v in labelled_images(entry, q).items()}
            for q, entry in enumerate(truth)
        ]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    outside = [q for q, entry in enumerate(checked) for k in KINDS if entry[k] and max(entry[k]) >= len(images)]
    if outside:
        raise ValueError(f"{path}: gnd[{outside[0]}] names an image beyond the {len(images)} of imlist")
    both = set(map(str, images)) & set(map(str, queries))
    if both:
        raise ValueError(
            f"{path}: {len(both)} query images are in the gallery too, first {min(both)!r}: the revisited protocol "
            "takes them out"
        )
    return {"imlist": [str(n) for n in images], "qimlist": [str(n) for n in queries], "gnd": checked}


def _box(entry, q: int) -> list[float]:
    values = np.asarray(entry.get("bbx", ()) if isinstance(entry, dict) else ()).reshape(-1)
    if (
        len(values) != 4
        or values.dtype.kind not in "iuf"
        or not np.isfinite(values).all()
        or values[0] >= values[2]
        or values[1] >= values[3]
    ):
        raise ValueError(
            f"gnd[{q}]['bbx'] must be left < right, top < bottom in pixels, as (left, top, right, bottom); got "
            f"{values.tolist()}"
        )
    return [float(v) for v in values]


def convert_ground_truth(source, target=None) -> Path:
    """Write an annotation file as JSON, which any program can read without running it.

    Args:
        source: a `.pkl` of the revisited protocol.
        target: where to write; beside the source, with the ending `.json`, when left out.

    Returns:
        the path written. The file appears whole or not at all.

    Raises:
        TypeError, ValueError, FileNotFoundError: no path, a file that is missing, refused or damaged.
    """
    source = check_path("source", source)
    target = source.with_suffix(".json") if target is None else check_path("target", target)
    content = json.dumps(read_ground_truth(source))
    handle, unfinished = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(unfinished, target)
    except BaseException:
        os.unlink(unfinished)
        raise
    return target


class ImageList(Sequence):
    """Paths of images that a list names, all inside one folder.

    Args:
        folder: where the images lie; it may itself be a link.
        names: one name per image, with "/" for folders below.
        extension: added to every name, such as ".jpg".

    Raises:
        ValueError: a name that is not text, that occurs twice, or that leads out of the folder.
    """

    _OUTSIDE = re.compile(r"^$|^/|^[A-Za-z]:|\\|\0|(^|/)\.\.(/|$)")

    def __init__(self, folder, names: Sequence[str], extension: str = ""):
        self.folder, self.names, self.extension = Path(folder), list(names), extension
        wrong = [n for n in self.names if not isinstance(n, str) or self._OUTSIDE.search(n)]
        if wrong:
            raise ValueError(
                f"{len(wrong)} image names are refused, first {wrong[0]!r}: a name must stay inside {self.folder}"
            )
        if len(set(self.names)) < len(self.names):
            twice = next(n for n, c in Counter(self.names).items() if c > 1)
            raise ValueError(f"the image list names {twice!r} more than once")

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        path = self.folder / (self.names[index] + self.extension)
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise ValueError(f"{path} leads out of {self.folder} to {path.resolve()}: it is not opened")
        return path

    def missing(self) -> list[str]:
        "Names whose file is not there."
        return [name for name in self.names if not os.path.isfile(self.folder / (name + self.extension))]

    def __repr__(self) -> str:
        return f"ImageList({len(self)} images in {self.folder})"


_ANNOTATION = "http://cmp.felk.cvut.cz/revisitop/data/datasets/{name}/gnd_{name}.pkl"
_IMAGES = {
    "roxford5k": ("oxbuild_images-v1.tgz from https://www.robots.ox.ac.uk/~vgg/data/oxbuildings/", 4993),
    "rparis6k": (
        "paris_1-v1.tgz and paris_2-v1.tgz from https://www.robots.ox.ac.uk/~vgg/data/parisbuildings/ (move all "
        "images out of their subfolders)",
        6322,
    ),
    "revisitop1m": (
        "revisitop1m.1.tar.gz ... revisitop1m.100.tar.gz from http://ptak.felk.cvut.cz/revisitop/revisitop1m/jpg/",
        1001001,
    ),
}


@dataclass(frozen=True)
class Revisited:
    """A data set of the revisited protocol: `gallery` and `queries` are lists of paths, `gnd` holds one dict per query.

    Query q is the part `gnd[q]["bbx"]` of the image `queries[q]`, never the whole image: read it with `query_image`.
    """

    name: str
    gallery: ImageList
    queries: ImageList
    gnd: list[dict]

    def gallery_image(self, index: int, size: int | None = None) -> Tensor:
        "(3, H, W) picture in [0, 1]; see `read_image`."
        return read_image(self.gallery[index], size=size)

    def query_image(self, index: int, size: int | None = None) -> Tensor:
        "(3, H, W) picture of the query's box alone, in [0, 1]; see `read_image`."
        return read_image(self.queries[index], bbx=self.gnd[index]["bbx"], size=size)


def load_revisited(root, name: str = "roxford5k", images: bool = True) -> Revisited:
    """Revisited Oxford ("roxford5k"), Paris ("rparis6k"), or any data set in their layout.

    Args:
        root: the folder that holds `<name>/gnd_<name>.pkl` (or `.json`, which goes first) and `<name>/jpg/`.
        name: the data set's folder.
        images: check that every image is there; without it the annotation alone is enough, as for descriptors computed
            elsewhere.

    Returns:
        Revisited: the gallery's and the queries' images, and the annotation that `evaluate_revisited` takes.

    Raises:
        FileNotFoundError: what is missing, and where it can be had.
        ValueError: an annotation that is refused or damaged, or names that lead out of the folder.
    """
    folder = check_path("root", root) / check_path("name", name)
    source = next((p for p in (folder / f"gnd_{name}.json", folder / f"gnd_{name}.pkl") if p.is_file()), None)
    if source is None:
        raise FileNotFoundError(
            f"no {folder / f'gnd_{name}.pkl'} (nor .json)"
            + (f": fetch {_ANNOTATION.format(name=name)}" if name in _IMAGES else "")
        )
    content = read_ground_truth(source)
    known = _IMAGES.get(name, (None, len(content["imlist"])))[1]
    if len(content["imlist"]) != known:
        raise ValueError(
            f"{source} lists {len(content['imlist'])} gallery images, {name} has {known}: fetch "
            f"{_ANNOTATION.format(name=name)} anew"
        )
    data = Revisited(
        name, *(ImageList(folder / "jpg", content[key], ".jpg") for key in ("imlist", "qimlist")), content["gnd"]
    )
    if images:
        _refuse_missing(
            name, data.gallery.missing() + data.queries.missing(), len(data.gallery) + len(data.queries), folder / "jpg"
        )
    return data


def load_distractors(root, name: str = "revisitop1m", images: bool = False) -> ImageList:
    """The million distractors of ROP, or any list of images to add to a gallery.

    Args:
        root: the folder that holds `<name>/<name>.txt` (one image per line, with its extension) and `<name>/jpg/`.
        name: the list's folder.
        images: check that every image is there (a million look-ups on disk).

    Returns:
        ImageList: the images in the order of the list.

    Raises:
        FileNotFoundError: what is missing, and where it can be had.
        ValueError: an empty list, a repeated name, a name that leads out of the folder.
    """
    folder = check_path("root", root) / check_path("name", name)
    source = folder / f"{name}.txt"
    if not source.is_file():
        raise FileNotFoundError(
            f"no {source}"
            + (f": fetch http://ptak.felk.cvut.cz/revisitop/{name}/{name}.txt" if name in _IMAGES else "")
        )
    names = [line.strip() for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not names:
        raise ValueError(f"{source} lists no image")
    found = ImageList(folder / "jpg", names)
    if images:
        _refuse_missing(name, found.missing(), len(found), folder / "jpg")
    return found


def _refuse_missing(name: str, missing: list[str], total: int, folder: Path) -> None:
    if missing:
        where = f". Fetch {_IMAGES[name][0]} and unpack it there" if name in _IMAGES else ""
        raise FileNotFoundError(f"{len(missing)} of {total} images are not in {folder}, first {missing[0]!r}{where}")


def read_image(path, bbx=None, size: int | None = None, damaged: bool = False) -> Tensor:
    """A photograph as the descriptor networks take it.

    Args:
        path: any format that Pillow reads; turned into RGB. Orientation tags are left alone, as in the official code:
            boxes refer to pixels as stored.
        bbx: (left, top, right, bottom) in pixels, rounded, cut to the image; only that part is returned.
        size: the longer side of the *whole* image is scaled down to this many pixels (never up); the crop by the same
            factor.
        damaged: take what there is of a truncated file (the official code does so for distractors) instead of refusing
            it.

    Returns:
        (3, H, W) float32 in [0, 1].

    Raises:
        FileNotFoundError, ValueError: no such file, not a picture, a box beside the picture.
    """
    from PIL import Image, ImageFile

    if size is not None:
        check_positive("size", size)
    tolerant, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, damaged
    try:
        with Image.open(path) as file:
            picture = file.convert("RGB")
    except FileNotFoundError:
        raise
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{path} is damaged or is no picture: {error}") from None
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = tolerant
    factor = min(1.0, size / max(picture.size)) if size else 1.0
    if bbx is not None:
        left, top, right, bottom = (round(float(v)) for v in bbx)
        box = (max(left, 0), max(top, 0), min(right, picture.width), min(bottom, picture.height))
        if box[0] >= box[2] or box[1] >= box[3]:
            raise ValueError(
                f"the box {[float(v) for v in bbx]} holds no pixel of {path}, which is {picture.width} x "
                f"{picture.height}"
            )
        picture = picture.crop(box)
    if factor < 1:
        picture = picture.resize([max(1, round(side * factor)) for side in picture.size], Image.Resampling.LANCZOS)
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255
