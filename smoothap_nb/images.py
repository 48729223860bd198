"""From a file to pixels: which files are pictures, and how any of them becomes upright red, green and blue.

Training, evaluation, search and the report all come through `open_rgb`, so that a picture is the same numbers
everywhere.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from .checks import reason
from .files import OutsideError, inside

__all__ = ["FORMATS", "PhotoError", "readable", "format_of", "unreadable", "walk_pictures", "to_rgb", "open_rgb"]


class PhotoError(ValueError):
    "A picture file that cannot be used; the message names the file and says why."


FORMATS = {  # the formats of pixels that we know, by Pillow's name for them -> the endings that files of it bear
    "JPEG": (".jpg", ".jpeg", ".jfif"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "TIFF": (".tif", ".tiff"),
    "PPM": (".ppm", ".pgm", ".pbm"),
    "JPEG2000": (".jp2",),
    "TGA": (".tga",),
    "AVIF": (".avif",),
    "HEIF": (".heic", ".heif"),
}
_INSIDE = ("MPO",)  # has no ending of its own: what some cameras put into a .jpg
_PARTS = {"AVIF": "avif", "WEBP": "webp", "JPEG2000": "jpg_2000"}  # a Pillow built without one lists its format still
_MENDS = {"HEIF": "pip install pillow-heif", "AVIF": "pip install --upgrade 'pillow>=11.3', whose wheels read it"}
_BY_ENDING = {ending: name for name, endings in FORMATS.items() for ending in endings}


@lru_cache(None)
def readable() -> tuple[str, ...]:
    "The formats that this Pillow can open; HEIF (.heic) where the package pillow-heif is installed."
    from PIL import Image, features

    # of pictures from 89 million pixels on Pillow warns, without a name; from twice as many on it refuses (see `_why`)
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    try:
        from pillow_heif import register_heif_opener

        register_heif_opener()
    except ImportError:
        pass
    Image.init()
    asked = {*features.modules, *features.codecs}  # an older Pillow knows less
    absent = {name for name, part in _PARTS.items() if part in asked and not features.check(part)}
    return tuple(name for name in (*FORMATS, *_INSIDE) if name in Image.OPEN and name not in absent)


def format_of(name) -> str | None:
    "The format that a file's ending promises, or None where it is not a picture's."
    return _BY_ENDING.get(os.path.splitext(str(name))[1].lower())


def unreadable(names: Iterable) -> str:
    """One sentence on the pictures among some files that this Pillow cannot open: how many, which, and what to
    install. Empty where there are none."""
    lacking: dict[str, list[str]] = {}
    for name in names:
        if (kind := format_of(name)) is not None and kind not in readable():
            lacking.setdefault(kind, []).append(str(name))
    said = [
        f"{len(files):,} {'picture' if len(files) == 1 else 'pictures'} in the format {kind} "
        f"({files[0]}{', ...' if len(files) > 1 else ''}): "
        f"{_MENDS.get(kind, 'install a Pillow that reads it')}, or convert them"
        for kind, files in sorted(lacking.items())
    ]
    return f"this installation cannot read {'; nor '.join(said)}" if said else ""


def walk_pictures(folder, key: Callable | None = None) -> Iterator[str]:
    """The pictures in a folder and below it, by their endings; hidden files and folders (a leading dot) are left out.

    Args:
        folder: where to look.
        key: sort key of names; None: as strings. Folders come before what is below them.

    Yields:
        paths relative to the folder, "/" between folders; files of a format that this Pillow cannot open among them
        (see `unreadable`).
    """
    for parent, below, files in os.walk(folder):
        below[:] = sorted((name for name in below if not name.startswith(".")), key=key)
        here = Path(parent).relative_to(folder).as_posix().removeprefix(".")
        for name in sorted(files, key=key):
            if not name.startswith(".") and format_of(name) is not None:
                yield f"{here}/{name}".lstrip("/")


def to_rgb(image):
    """A PIL picture of any mode as an RGB one, turned as the camera was held.

    Transparent parts become white. Greys of 16 bits are scaled by 65,535. Whole numbers of 32 bits and floating-point
    greys come without a range: the smallest of 1 (floating point only), 255 and 65,535 that holds the largest value is
    taken for white, else that value itself; negative values are lifted until the smallest is black, NaN is black,
    infinity white or black. Colour profiles are not applied.

    Args:
        image: `PIL.Image.Image`; of an animation, its current frame.

    Returns:
        `PIL.Image.Image` of mode RGB.

    Raises:
        TypeError, ValueError: no PIL picture, or one without a pixel.
    """
    from PIL import Image, ImageOps

    if not isinstance(image, Image.Image):
        raise TypeError(f"image must be a PIL picture, got {type(image).__name__}")
    if 0 in image.size:
        raise ValueError(f"image has no pixels: it is {image.width} x {image.height}")
    image.load()
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":
        image = _eight_bits(image)
    if image.mode in ("RGBA", "RGBa", "LA", "La", "PA") or "transparency" in image.info:
        image = image.convert("LA").convert("RGBA") if image.mode == "La" else image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(image):
    "Greys of more than 8 bits as L, or as LA where one value is declared transparent."
    from PIL import Image

    values = np.asarray(image).astype(np.float64)
    clear = image.info.get("transparency")
    alpha = None if not isinstance(clear, int) else np.where(values == clear, 0, 255).astype(np.uint8)
    if ";16" in image.mode:
        top = 65535.0
    else:
        known = values[np.isfinite(values)]
        low, high = (min(known.min(), 0.0), known.max()) if known.size else (0.0, 0.0)
        values, high = np.nan_to_num(values, nan=low, posinf=high, neginf=low) - low, high - low
        top = next((t for t in ((1.0,) if image.mode == "F" else ()) + (255.0, 65535.0) if high <= t), high)
    grey = Image.fromarray((values * (255 / top)).round().astype(np.uint8))
    if alpha is not None:
        grey.putalpha(Image.fromarray(alpha))
    return grey


def open_rgb(path, root=None):
    """One picture file as a PIL picture: RGB, upright; of an animation the first frame. See `to_rgb` for what becomes
    of other modes.

    Args:
        path: the file; relative paths count from `root`.
        root: the folder that the file must lie in, links followed; None: anywhere.

    Returns:
        `PIL.Image.Image` of mode RGB.

    Raises:
        PhotoError: no such file, a file outside of `root`, one that is empty, damaged, cut short, or no picture; the
            file is named.
    """
    from PIL import Image

    for name, value in (("path", path), ("root", root)):
        if not isinstance(value, (str, os.PathLike)) and (name == "path" or value is not None):
            raise TypeError(f"{name} must be a path, got {type(value).__name__}")
    try:
        path = Path(path).expanduser() if root is None else inside(path, root)
    except OutsideError as error:
        raise PhotoError(
            f"{error} and is not read: correct the list of images, or pass the folder that holds all of them as root"
        ) from None
    try:
        with open(path, "rb") as file, Image.open(file, formats=readable()) as image:
            return to_rgb(image)
    except FileNotFoundError:
        raise PhotoError(f"{path} is missing") from None
    except MemoryError:
        raise
    except Exception as error:  # Pillow raises a dozen kinds for damaged files
        raise PhotoError(f"{path} cannot be read: {_why(error, path)}") from None


def _why(error: Exception, path: Path) -> str:
    if path.is_dir():
        return "it is a folder"
    if isinstance(error, PermissionError):
        return "permission denied"
    if type(error).__name__ == "DecompressionBombError":
        return "it has more than 178 million pixels, which Pillow takes for an attack: shrink it"
    if type(error).__name__ == "UnidentifiedImageError":
        if path.stat().st_size == 0:
            return "the file is empty"
        return unreadable([path.name]) or "no picture in a known format"
    return f"damaged ({reason(error)})"
