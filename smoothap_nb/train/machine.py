"""What a run stands on: device, number format, processes, and the versions that a number must be read with."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from ..checks import ConfigError

__all__ = ['pick_device', 'place', 'pick_precision', 'engine_for', 'on_main', 'threads', 'keep_memory', 'environment']


def pick_device() -> torch.device:
    "CUDA where it works, else the CPU."
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def place(model: nn.Module, device: torch.device) -> nn.Module:
    """Move a model to its device, in the memory layout that is fast there: channels last on CUDA; on a CPU it costs
    time.
    """
    return model.to(device, memory_format=torch.channels_last if device.type == "cuda" else torch.contiguous_format)


def pick_precision(wanted: str, device: torch.device) -> torch.dtype:
    """The number format of the forward pass; `auto` is bfloat16 on CUDA (float16 on cards without it) and float32 on
    a CPU.
    """
    if wanted == "auto":
        return (
            torch.float32 if device.type == "cpu" else (torch.bfloat16 if _computes_bfloat16(device) else torch.float16)
        )
    if wanted == "float16" and device.type == "cpu":
        raise ConfigError("optim.precision = \"float16\" needs a CUDA device; use \"float32\" or \"bfloat16\" on a CPU")
    return getattr(torch, wanted)


def _computes_bfloat16(device: torch.device) -> bool:
    """Does the card compute in bfloat16 itself? (torch also says yes where it would emulate it, at a fraction of the
    speed.)
    """
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)


def engine_for(cpu: bool = False):
    "accelerate's view of the processes: one, or as many as `torchrun` or `accelerate launch` started."
    from accelerate import Accelerator

    return Accelerator(device_placement=False, cpu=cpu and int(os.environ.get("WORLD_SIZE", 1)) > 1)


def on_main(engine, work: Callable):
    """Do something once, in the main process; all processes get what it gave, or the error that it raised.

    Args:
        engine: of `engine_for`.
        work: takes nothing; its result and its errors must be picklable.

    Returns:
        what `work` returned in the main process.
    """
    outcome: list = [None, None]
    if engine.is_main_process:
        try:
            outcome[0] = work()
        except Exception as error:
            outcome[1] = error
    if engine.num_processes > 1:
        dist.broadcast_object_list(outcome, 0, device=engine.device)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def threads(processes: int = 1, most: int = 16) -> int:
    "Readers of pictures for each of so many trainers on this machine: one for each core, `most` at most."
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(most, cores // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", processes)))))


def keep_memory() -> bool:
    """Ask glibc to keep memory that was freed for the next step. By itself it gives large pieces back to the kernel
    and takes them anew, page by page, up to a hundred thousand pages a step: up to half of a training's time on a CPU.

    For a process of our own (a command, a worker): the setting holds until its end.

    Returns:
        whether the allocator knows the setting (glibc does; macOS, Windows and musl go on as they are).
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    trim, pieces = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    return bool(set_option(trim, 2**31 - 1) and set_option(pieces, 2**30))


def environment(device: torch.device) -> dict:
    "What a number must be read with: versions and hardware."
    import torchvision

    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "numpy": np.__version__,
        "smoothap_nb": _version(),
        "commit": _commit(),
        "device": device.type,
        "hardware": hardware,
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        names = [
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ]
        return f"{names[0]}, {len(names)} cores"
    except (OSError, IndexError):
        return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def _version() -> str:
    from smoothap_nb import __version__

    return __version__


def _commit() -> str:
    "The commit of the checkout that this module lies in, with a + where files were changed; 'unknown' outside one."
    import subprocess

    home = Path(__file__).resolve()
    try:
        ask = lambda *words: subprocess.run(
            ["git", "-C", str(home.parent), *words], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
        ask("ls-files", "--error-unmatch", home.name)  # an installed copy in somebody's checkout is not that commit
        code = (":(top)", ":(top,exclude)docs/results")  # a study that writes its rows there changes no code
        return ask("rev-parse", "--short=12", "HEAD") + (
            "+" if ask("status", "--porcelain", "--untracked-files=no", "--", *code) else ""
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
