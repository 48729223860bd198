"""`smoothap doctor`: what works on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from .app import say

__all__ = ['doctor', 'checks']


def doctor() -> None:
    "Say what works on this machine, and what to do about the rest."
    failed = 0
    for name, state, fact, mend in checks():
        failed += state == "fail"
        say(f"{state:<5} {name:<12} {fact}" + (f"\n{'':18} -> {mend}" if mend else ""))
    raise typer.Exit(1 if failed else 0)


def checks() -> list[tuple[str, str, str, str]]:
    "What `smoothap doctor` looks at: (name, 'ok' | 'note' | 'fail', fact, what to do)."
    import platform
    import shutil

    out = []
    good = sys.version_info >= (3, 11)
    out.append(
        ("Python", "ok" if good else "fail", platform.python_version(), "" if good else "install Python 3.11 or newer")
    )
    try:
        import torch
        import torchvision

        out.append(
            (
                "torch",
                "ok",
                f"{torch.__version__}, torchvision {torchvision.__version__}, {torch.get_num_threads()} threads",
                "",
            )
        )
    except ImportError as error:
        out.append(("torch", "fail", str(error), "pip install torch torchvision (versions that belong together)"))
        return out
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        out.append(
            ("CUDA", "ok", f"{torch.cuda.get_device_name()}, {free / 2**30:.1f} of {total / 2**30:.1f} GB free", "")
        )
    else:
        built = torch.version.cuda
        out.append(("CUDA", "note", f"no device (torch was built {'for CUDA ' + built if built else 'without CUDA'})",
                    "the demo runs on the CPU; for a GPU check `nvidia-smi` and install a CUDA build of torch"))
    memory = _memory()
    if memory is not None:
        out.append(
            (
                "memory",
                "ok" if memory > 3 else "note",
                f"{memory:.1f} GB available",
                "" if memory > 3 else "the demo needs about 3 GB: close other programs",
            )
        )
    from ..files import data_root

    cache = Path(data_root())
    for name, folder in (("cache", cache), ("runs", Path.cwd())):
        here = next(p for p in [folder, *folder.parents] if p.exists())
        writable = os.access(here, os.W_OK) and here.is_dir()
        free = shutil.disk_usage(here).free / 2**30
        state = "fail" if not writable and name == "runs" else "ok" if writable and free > 1 else "note"
        mend = (
            ""
            if state == "ok"
            else (
                f"make {here} writable"
                + (", or set SMOOTHAP_DATA to a folder that is" if name == "cache" else ", or work in another folder")
                if not writable
                else "less than 1 GB is free: make room"
            )
        )
        out.append((name, state, f"{folder} ({free:.0f} GB free)", mend))
    from ..train.objectives import LOSSES, loss_from_config

    broken = []
    for loss in LOSSES:
        try:
            loss_from_config({"name": loss})
        except Exception as error:
            broken.append(f"{loss}: {error}")
    out.append(
        (
            "losses",
            "fail" if broken else "ok",
            "; ".join(broken) or f"{', '.join(LOSSES)}",
            "reinstall smoothap_nb" if broken else "",
        )
    )
    for package, use in (
        ("tensorboard", "training curves"),
        ("ipywidgets", "live sliders in JupyterLab"),
        ("faiss", "approximate search in large galleries"),
    ):
        from importlib.util import find_spec

        there = find_spec(package) is not None
        out.append(
            (
                package,
                "ok" if there else "note",
                "installed" if there else "not installed",
                "" if there else f"only needed for {use}: pip install " + {"faiss": "faiss-cpu"}.get(package, package),
            )
        )
    return out


def _memory() -> float | None:
    "Available memory in GB, where the system tells it."
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) / 2**20
    except (OSError, KeyError, ValueError):
        return None
