"""`smoothap doctor`: what works on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from .app import say

__all__ = ['doctor', 'checks']

Check = tuple[str, str, str, str]  # name, 'ok' | 'note' | 'fail', fact, what to do


def doctor() -> None:
    "Say what works on this machine, and what to do about the rest."
    failed = 0
    for name, state, fact, mend in checks():
        failed += state == "fail"
        say(f"{state:<5} {name:<12} {fact}" + (f"\n{'':18} -> {mend}" if mend else ""))
    raise typer.Exit(1 if failed else 0)


def checks() -> list[Check]:
    "What `smoothap doctor` looks at."
    import platform

    good = sys.version_info >= (3, 11)
    out = [
        ("Python", "ok" if good else "fail", platform.python_version(), "" if good else "install Python 3.11 or newer")
    ]
    try:
        out += _torch()
    except ImportError as error:
        out.append(("torch", "fail", str(error), "pip install torch torchvision (versions that belong together)"))
        return out
    return out + _memory() + _folders() + _losses() + _extras()


def _torch() -> list[Check]:
    "torch and its device; an ImportError where torch is not whole."
    import torch
    import torchvision

    words = f"{torch.__version__}, torchvision {torchvision.__version__}, {torch.get_num_threads()} threads"
    whole = ("torch", "ok", words, "")
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        words = f"{torch.cuda.get_device_name()}, {free / 2**30:.1f} of {total / 2**30:.1f} GB free"
        return [whole, ("CUDA", "ok", words, "")]
    built = torch.version.cuda
    words = f"no device (torch was built {'for CUDA ' + built if built else 'without CUDA'})"
    mend = "the demo runs on the CPU; for a GPU check `nvidia-smi` and install a CUDA build of torch"
    return [whole, ("CUDA", "note", words, mend)]


def _memory() -> list[Check]:
    "Available memory; nothing where the system does not tell."
    free = _free_memory()
    if free is None:
        return []
    if free > 3:
        return [("memory", "ok", f"{free:.1f} GB available", "")]
    return [("memory", "note", f"{free:.1f} GB available", "the demo needs about 3 GB: close other programs")]


def _folders() -> list[Check]:
    "Can the cache and the working folder be written to, and is there room?"
    import shutil

    from ..files import data_root

    out = []
    for name, folder in (("cache", Path(data_root())), ("runs", Path.cwd())):
        here = next(p for p in [folder, *folder.parents] if p.exists())
        free = shutil.disk_usage(here).free / 2**30
        state, mend = "ok", ""
        if not (os.access(here, os.W_OK) and here.is_dir()):
            state = "fail" if name == "runs" else "note"
            other = "set SMOOTHAP_DATA to a folder that is" if name == "cache" else "work in another folder"
            mend = f"make {here} writable, or {other}"
        elif free <= 1:
            state, mend = "note", "less than 1 GB is free: make room"
        out.append((name, state, f"{folder} ({free:.0f} GB free)", mend))
    return out


def _losses() -> list[Check]:
    "Can each loss be made?"
    from ..train.objectives import LOSSES, loss_from_config

    broken = []
    for loss in LOSSES:
        try:
            loss_from_config({"name": loss})
        except Exception as error:
            broken.append(f"{loss}: {error}")
    if broken:
        return [("losses", "fail", "; ".join(broken), "reinstall smoothap_nb")]
    return [("losses", "ok", ", ".join(LOSSES), "")]


def _extras() -> list[Check]:
    "Packages that only some uses need."
    from importlib.util import find_spec

    out = []
    for package, use in (
        ("tensorboard", "training curves"),
        ("ipywidgets", "live sliders in JupyterLab"),
        ("faiss", "approximate search in large galleries"),
        ("cv2", "local features and Town"),
    ):
        if find_spec(package) is not None:
            out.append((package, "ok", "installed", ""))
        else:
            wheel = {"faiss": "faiss-cpu", "cv2": "opencv-python-headless"}.get(package, package)
            out.append((package, "note", "not installed", f"only needed for {use}: pip install {wheel}"))
    return out


def _free_memory() -> float | None:
    "Available memory in GB, where the system tells it."
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) / 2**20
    except (OSError, KeyError, ValueError):
        return None
