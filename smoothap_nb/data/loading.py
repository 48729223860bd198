"""From a data set to batches on the device, the same pictures whatever does the work."""

from __future__ import annotations

import time
import warnings
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .cache import onto
from .interface import RetrievalDataset
from .processes import CAN_FORK, ReadingProcesses

__all__ = ["share_of", "Batch", "Prefetcher"]


def share_of(indices, rank: int, world: int) -> np.ndarray:
    "The part of a global batch that process `rank` of `world` works on: contiguous, sizes differ by at most one."
    return np.array_split(np.asarray(indices), world)[rank]


class Batch(NamedTuple):
    "What a `Prefetcher` hands over for one step."

    images: Tensor  # (B, C, H, W) float32 in [0, 1], on the device
    labels: Tensor  # (B, L) int64, on the device
    indices: np.ndarray  # (B,) places in the data set
    epoch: int
    waited: float  # seconds that the consumer waited for this batch


class Prefetcher:
    """Batches of a plan, in order, prepared ahead by threads or processes.

    Any number of either gives the same pictures. On CUDA the batch is copied from pinned memory while the device works
    on the one before, as bytes where the data set has them (`raw`), and becomes numbers there (`finish`): squares of a
    `DecodedCache` are cut on the device. Threads that decode files would hold up the one that drives the device (they
    share Python's lock), so that there processes do it. Leaving the loop, an exception and Ctrl-C end the workers; an
    error in one is raised here as it was.

    Args:
        dataset: a `RetrievalDataset`.
        plan: step -> (indices of the global batch, epoch); the draw is epoch + 1.
        steps: where to end (this step is not handed over).
        start: where to begin.
        workers: threads or processes, at least 1.
        device: where the batches go; None: they stay on the CPU.
        rank, world: this process's number and how many there are; each takes its `share_of` the global batch.
        ahead: batches that are prepared at the same time or wait, at least 1.
        processes: read in processes (on Linux; elsewhere threads read); None: on CUDA, where the data set
            `reads_files`.

    Raises:
        ValueError: counts that do not fit.
    """

    def __init__(
        self,
        dataset: RetrievalDataset,
        plan,
        steps: int,
        start: int = 0,
        workers: int = 4,
        device=None,
        rank: int = 0,
        world: int = 1,
        ahead: int = 2,
        processes: bool | None = None,
    ):
        if workers < 1 or ahead < 1:
            raise ValueError(f"workers and ahead must be at least 1, got workers={workers}, ahead={ahead}")
        if not 0 <= rank < world:
            raise ValueError(f"rank must be in 0 ... world - 1, got rank={rank}, world={world}")
        self.dataset, self.plan, self.steps, self.start, self.workers = dataset, plan, steps, start, workers
        self.device, self.rank, self.world, self.ahead = torch.device(device or "cpu"), rank, world, ahead
        self.processes = processes
        self.waited = 0.0  # seconds, over all batches so far
        self._open = None

    def __len__(self) -> int:
        return max(0, self.steps - self.start)

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def close(self) -> None:
        "End the workers; what is not begun is not done."
        if self._open is not None:
            self._open.close()
            self._open = None

    def __iter__(self):
        self.close()
        self._open = self._batches()
        return self._open

    def _children(self) -> ReadingProcesses | None:
        "Processes that read, where they pay; forked before this loop has threads."
        pays = self.device.type == "cuda" and getattr(self.dataset, "reads_files", False)
        if not CAN_FORK or self.start >= self.steps or not (pays if self.processes is None else self.processes):
            return None
        indices, epoch = self.plan(self.start)
        indices = share_of(indices, self.rank, self.world)
        like = self.dataset.raw(indices[:1], epoch + 1)
        if like.device.type != "cpu":
            return None
        try:
            return ReadingProcesses(self.dataset, self.workers, like, self.ahead, len(indices))
        except OSError as error:
            warnings.warn(f"pictures are read by threads, which is slower: no processes for it ({error})", stacklevel=3)
            return None

    def _batches(self):
        on_cuda = self.device.type == "cuda"
        copies, children = torch.cuda.Stream(self.device) if on_cuda else None, self._children()
        with ThreadPoolExecutor(self.workers, "reader") as readers, ThreadPoolExecutor(1, "joiner") as joiner:

            def read(part, draw, slot, start, whole):
                if children:
                    return (children.read(part, draw, slot, start),)
                if whole is not None:
                    return (self.dataset.raw(part, draw, whole[start : start + len(part)]),)
                return (self.dataset.raw(part, draw),) if on_cuda else self.dataset.batch(part, draw)

            def begin(step):
                indices, epoch = self.plan(step)
                indices = share_of(indices, self.rank, self.world)
                parts = [p for p in np.array_split(indices, self.workers) if len(p)] or [indices]
                starts = np.cumsum([0, *map(len, parts)]).tolist()
                fills = on_cuda and not children and hasattr(self.dataset, "room")  # its parts, in one pinned whole
                whole = self.dataset.room(len(indices)) if fills else None
                slot = step % self.ahead  # free again: the batch that had it has been joined
                futures = [readers.submit(read, p, epoch + 1, slot, at, whole) for p, at in zip(parts, starts)]
                batch = joiner.submit(_joined, futures, whole, self.device, copies, children is not None)
                return batch, futures, indices, epoch

            waiting, step = deque(), self.start
            try:
                while waiting or step < self.steps:
                    while step < self.steps and len(waiting) < self.ahead:
                        waiting.append(begin(step))
                        step += 1
                    future, _, indices, epoch = waiting.popleft()
                    asked = time.perf_counter()
                    (images, *labels), copied = future.result()
                    waited = time.perf_counter() - asked
                    self.waited += waited
                    if step < self.steps:
                        waiting.append(begin(step))
                        step += 1
                    if copied is not None:  # from here on the tensors belong to the stream that computes
                        torch.cuda.current_stream(self.device).wait_event(copied)
                        for tensor in (images, *labels):
                            tensor.record_stream(torch.cuda.current_stream(self.device))
                    if not labels:  # bytes
                        images = self.dataset.finish(images, indices, epoch + 1)
                        known = self.dataset.labels
                        labels = [onto(known[torch.as_tensor(indices, device=known.device)], self.device)]
                    yield Batch(images, labels[0], indices, epoch, waited)
            finally:
                for _, futures, _, _ in waiting:
                    for future in futures:
                        future.cancel()
                joiner.shutdown(wait=False, cancel_futures=True)
                readers.shutdown(wait=True, cancel_futures=True)
                if children:
                    children.close()


def _joined(futures, whole: Tensor | None, device: torch.device, copies, copied: bool) -> tuple[list[Tensor], object]:
    """The parts of a batch as one, on the device; with the event that says when the copy is done, on CUDA.
    `whole`: what the parts have filled, if it is that; `copied`: their memory will be used again."""
    parts = [future.result() for future in futures]
    out = [] if whole is None else [whole]
    for pieces in zip(*parts) if whole is None else ():
        pinned = copies is not None and pieces[0].device.type == "cpu"
        if len(pieces) > 1 or pinned or copied:
            whole = torch.empty(
                (sum(map(len, pieces)), *pieces[0].shape[1:]),
                dtype=pieces[0].dtype,
                device=pieces[0].device,
                pin_memory=pinned,
            )
            torch.cat(pieces, out=whole)
        out.append(whole if len(pieces) > 1 or pinned or copied else pieces[0])
    if copies is None:
        return [tensor.to(device) for tensor in out], None
    with torch.cuda.stream(copies):
        out = [tensor.to(device, non_blocking=True) for tensor in out]
        return out, copies.record_event()
