"""What can go wrong in the middle of a run, each with what to do about it."""

from __future__ import annotations

import contextlib
import json
import math
import signal

import torch
from torch import Tensor

from ..files import write_atomic
from .checkpoints import RunError
from .run_folder import STOPPED

__all__ = ['Stopped', 'Interruption', 'finite', 'finite_rows', 'finite_weights', 'out_of_memory']


class Stopped(KeyboardInterrupt):
    "The end of a run that a signal asked for; its checkpoint is written. `number` is the signal's."

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interruption:
    """Ctrl-C, SIGTERM and SIGHUP noted instead of obeyed, until the step is done; a second Ctrl-C interrupts at once.

    A signal that is ignored stays ignored: so does `nohup` with SIGHUP.
    """

    def __enter__(self) -> Interruption:
        self.wanted: int | None = None
        self.before: dict = {}
        for number in filter(None, (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", None))):
            if signal.getsignal(number) == signal.SIG_IGN:
                continue
            try:
                self.before[number] = signal.signal(number, self._note)
            except ValueError:  # not the main thread: no signal arrives here
                break
        return self

    def _note(self, number, frame) -> None:
        if self.wanted is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.wanted = number

    def __exit__(self, *error) -> None:
        for number, handler in self.before.items():
            if handler is not None:
                signal.signal(number, handler)


def _diverged(what: str, training) -> RunError:
    "What to say, and to note in the run's folder, of a run whose numbers are none any more."
    if training.main:
        with contextlib.suppress(OSError):
            write_atomic(training.run / STOPPED, json.dumps({"step": training.step, "why": what}) + "\n")
    return RunError(
        f"{what} at step {training.step}: lower optim.lr (now {training.experiment.optim.lr:g}), set "
        f"optim.clip = 1.0, or use optim.precision = \"float32\"; with such a change this folder starts over. The "
        f"last checkpoint with finite weights is in {training.run / 'checkpoints'}"
    )


def finite(value: Tensor, training) -> float:
    "The loss as a number; a run whose loss is none stops here."
    read = float(value)
    if not math.isfinite(read):
        raise _diverged(f"the loss is {read}", training)
    return read


def finite_rows(rows: Tensor, training) -> Tensor:
    "Embeddings as they are; where they can be read without waiting (on a CPU) and are no numbers, the run stops here."
    if rows.device.type == "cpu" and not torch.isfinite(rows.detach().sum(dtype=torch.float64)):
        bad = int((~torch.isfinite(rows.detach()).all(1)).sum())
        raise _diverged(f"the network's embeddings hold NaN or infinity in {bad} of {len(rows)} rows", training)
    return rows


def finite_weights(training) -> None:
    "Refuse weights that are no numbers: their checkpoint would take the place of one that can be used."
    bad = [name for name, value in training.model.state_dict().items() if not torch.isfinite(value).all()]
    if bad:
        more = f" and {len(bad) - 1} others" if len(bad) > 1 else ""
        raise _diverged(f"the network's {bad[0]}{more} hold NaN or infinity", training)


def out_of_memory(training, images: int) -> RunError:
    "Which setting to lower, and to what, when so many images of one process do not fit."
    batch, frozen = training.experiment.batch, training.experiment.model.batch_norm != "live"
    at_once = batch.micro or images
    if frozen:
        mend = (
            f"--set batch.micro={max(1, at_once // 2)} (gradient caching: the same gradient in less memory; the run "
            f"goes on where it is)"
        )
    else:
        mend = (
            f"--set batch.classes={max(2, batch.classes // 2)}, or freeze the statistics and keep the batch: --set "
            f"model.batch_norm=frozen_statistics "
            f"--set batch.micro={max(1, images // 4)}"
        )
    return RunError(
        f"the GPU is out of memory with {at_once} images of {training.experiment.data.size} px at a time: try {mend}"
    )
