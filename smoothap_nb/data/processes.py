"""Reading in processes of their own, so that the one that computes has its interpreter to itself.

Why not `DataLoader` or `ProcessPoolExecutor`: tensors come back from both through files in /dev/shm, of which a
container has 64 MB, and a worker that runs out of them dies of a bus error; both hand whole items to a worker, and both
lose their workers to the signal at which the trainer still has a checkpoint to write. Here a child writes its pictures
into memory that it has shared since the fork, which has no name and no other limit than the machine's. A fork, and not
a fresh interpreter, because it needs no guard in the user's script and no copy of the data set; the children never
touch the device.
"""

from __future__ import annotations

import gc
import math
import mmap
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from contextlib import suppress
from multiprocessing import Pipe
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor

__all__ = ["ReadingProcesses", "CAN_FORK"]

CAN_FORK = sys.platform.startswith("linux")  # macOS has a fork that its own libraries do not survive


class ReadingProcesses:
    """Children with a copy of the data set each, which read parts of batches into shared memory.

    They end with `close`, and with this process, however it dies: the pipe on which they wait breaks.

    Args:
        dataset: its `raw` is called in the children; what they add to its `damaged` comes back through its `note`.
        count: how many children.
        like: (B, ...) what `raw` gives, on the CPU.
        slots, rows: batches that are under way at a time, and their pictures; a part that finds no room comes
            through the pipe.

    Raises:
        OSError: the system refuses memory or processes.
    """

    def __init__(self, dataset, count: int, like: Tensor, slots: int, rows: int):
        shape, kind = (slots, rows, *like.shape[1:]), like.numpy().dtype
        self._memory = np.frombuffer(mmap.mmap(-1, max(1, math.prod(shape) * kind.itemsize)), kind, math.prod(shape))
        self._memory = self._memory.reshape(shape)
        self._dataset, self._noting, self._idle, self.children = dataset, threading.Lock(), SimpleQueue(), {}
        try:
            for _ in range(count):
                ours, theirs = Pipe()
                self.children[_fork(dataset, ours, theirs, self._memory)] = ours
                theirs.close()
        except OSError:
            self.close()
            raise
        for child in self.children.items():
            self._idle.put(child)

    def read(self, part: np.ndarray, draw: int, slot: int, start: int) -> Tensor:
        """`dataset.raw(part, draw)`, by a child that is free; called by as many threads as there are children.

        Args:
            part: (B,) places in the data set.
            draw: 0 = evaluation, 1, 2, ... = training.
            slot, start: where in the shared memory the pictures go; whoever asks keeps parts apart.

        Returns:
            what `raw` gives, in the shared memory.

        Raises:
            what `raw` raises there; RuntimeError where a child was killed.
        """
        number, pipe = child = self._idle.get()
        try:
            pipe.send((part, draw, slot, start))
            pictures, found, error = pipe.recv()
        except (EOFError, ConnectionError):
            raise RuntimeError(
                f"process {number}, which read pictures, was killed; by the system, where memory ran out: a smaller "
                f"data.workers needs less"
            ) from None
        finally:
            self._idle.put(child)
        if found:
            with self._noting:
                self._dataset.note(found)
        if error is not None:
            raise error
        return torch.from_numpy(self._memory[slot, start : start + len(part)] if pictures is None else pictures)

    def close(self) -> None:
        "End the children, who have nothing to lose."
        for number, pipe in self.children.items():
            with suppress(ProcessLookupError, ChildProcessError):  # SIGCHLD may be ignored, or waited for elsewhere
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)
            pipe.close()
        self.children = {}


def _fork(dataset, ours, theirs, memory: np.ndarray) -> int:
    "A child that serves; its number."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, of forks beside threads
        number = os.fork()
    if number == 0:
        try:
            ours.close()  # or the pipe would never break; ends of older siblings go when the youngest does
            _serve(dataset, theirs, memory)
        finally:
            os._exit(0)
    return number


def _serve(dataset, pipe, memory: np.ndarray) -> None:
    "What a child does until its parent is gone."
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the parent, who may need pictures still
        signal.signal(ending, signal.SIG_IGN)
    gc.freeze()  # what lies on the device is not this process's to free
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", ".*another picture of its class takes its place")  # the parent says it
    while True:
        try:
            part, draw, slot, start = pipe.recv()
        except (EOFError, OSError):
            return
        damaged = getattr(dataset, "damaged", {})
        known, pictures, error = len(damaged), None, None
        try:
            pictures, room = dataset.raw(part, draw).numpy(), memory[slot, start : start + len(part)]
            if pictures.shape == room.shape and pictures.dtype == room.dtype:
                room[:] = pictures
                pictures = None
        except Exception as raised:
            error = _portable(raised)
        pipe.send((pictures, dict(list(damaged.items())[known:]), error))


def _portable(error: Exception) -> Exception:
    "The error as it was, with the line it came from, able to travel."
    last = traceback.extract_tb(error.__traceback__)[-1]
    error.add_note(f"in a process that reads pictures: {last.filename}, line {last.lineno}, in {last.name}")
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
