"""Files that are old or new, never half; and paths that stay in the folder they belong to."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

__all__ = [
    "check_path", "check_target", "OutsideError", "fsync", "replacing", "write_atomic", "is_inside", "inside",
    "data_root",
]  # fmt: skip

_COUNTER = itertools.count()  # two threads of a process may write the same file
_STALE = 3600.0  # seconds after which an unfinished file has lost its writer


class OutsideError(ValueError):
    "A path that leads out of the folder it must lie in; the message names both."


def fsync(path) -> None:
    "Wait until a file, or a folder's list of files, is on the disk."
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replacing(path, durable: bool = True) -> Iterator[Path]:
    """A path beside the target to write to; when the block ends well it takes the target's place, otherwise it is gone.

    A reader meets the old file or the new one. The file's mode follows the umask, whatever wrote it. What a killed
    writer left behind is cleared away an hour later by the next one.

    Args:
        path: the target; its folder must exist.
        durable: wait until the content is on the disk, so that a loss of power leaves the old file or the new one too.

    Raises:
        OSError: the disk is full, the folder is missing or read-only. The old file is untouched.
    """
    path = Path(path)
    for stray in path.parent.glob(f".{path.name}.*.part"):
        with contextlib.suppress(OSError):  # another writer's, just moved into place
            if time.time() - stray.stat().st_mtime > _STALE:
                stray.unlink()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}-{next(_COUNTER)}.part")
    try:
        with open(unfinished, "xb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777  # what the umask allows; some writers would give 0600
        yield unfinished
        os.chmod(unfinished, mode)
        if durable:
            fsync(unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_atomic(path, content: str | bytes, durable: bool = True) -> None:
    """Write a file so that it is old or new, never half.

    Args:
        path: the file; its folder must exist.
        content: text (written as UTF-8) or bytes.
        durable: wait until it is on the disk.

    Raises:
        OSError: see `replacing`.
    """
    with replacing(path, durable) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


@lru_cache(64)
def _real(folder: str) -> str:
    return os.path.join(os.path.realpath(folder), "")


def is_inside(real: str, folder) -> bool:
    "Does a real path (links followed) lie in a folder, or is it the folder itself?"
    return os.path.join(real, "").startswith(_real(str(folder)))


def inside(path, folder) -> Path:
    """The real path of a file, if it lies inside a folder.

    Args:
        path: absolute, or relative to `folder`.
        folder: where it must lie.

    Returns:
        the path, links followed; it need not exist.

    Raises:
        OutsideError: the path leads outside, by "..", by a link, or because it is absolute.
    """
    full = os.path.realpath(os.path.join(folder, path))
    if not is_inside(full, folder):
        raise OutsideError(f"{path} lies outside of the folder {folder} (it leads to {full})")
    return Path(full)


def check_path(name: str, value) -> Path:
    "A path from a caller; what cannot be one is refused by the argument's name."
    if not isinstance(value, (str, os.PathLike)) or isinstance(value, str) and ("\0" in value or not value):
        raise TypeError(f"{name} must be the path of a file or folder, got {value!r}")
    return Path(value).expanduser()


def check_target(name: str, path, *inputs) -> None:
    """A file that is to be written when the work is done, looked at before it begins.

    Args:
        name: of the option, for messages.
        path: the file, or None.
        inputs: what the work reads; None is passed over.

    Raises:
        ValueError: a folder, a file in a folder that does not exist, or one of the inputs.
    """
    if path is None:
        return
    path = Path(path).expanduser()
    if path.is_dir():
        raise ValueError(f"{name} names the file to write, and {path} is a folder")
    if not path.parent.is_dir():
        raise ValueError(f"{name}: there is no folder {path.parent} to write {path.name} to")
    for given in filter(None, inputs):
        if path.exists() and Path(given).exists() and path.samefile(given):
            raise ValueError(f"{name} would overwrite {given}, which is read here: name another file")


def data_root(root=None) -> Path:
    "The folder for data: the argument, else the environment variable SMOOTHAP_DATA, else ~/.cache/smoothap_nb."
    if root is not None and not isinstance(root, (str, os.PathLike)):
        raise TypeError(f"root must be the path of a folder, got {type(root).__name__}")
    try:
        return Path(root or os.environ.get("SMOOTHAP_DATA") or "~/.cache/smoothap_nb").expanduser()
    except RuntimeError:
        raise FileNotFoundError(
            "this user has no home folder for a cache: pass root=..., or set SMOOTHAP_DATA to a folder"
        ) from None
