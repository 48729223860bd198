"""What can go wrong in the middle of a run, each with what to do about it."""

from __future__ import annotations

import math
import signal

from torch import Tensor

from .checkpoints import RunError

__all__ = ['Interruption', 'finite', 'out_of_memory']


class Interruption:
    "Ctrl-C and SIGTERM noted instead of obeyed, until the step is done; a second Ctrl-C interrupts at once."

    def __enter__(self) -> Interruption:
        self.wanted, self.before = None, {}
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self.before[number] = signal.signal(number, self._note)
            except ValueError:  # not the main thread: no signal arrives here
                break
        return self

    def _note(self, number, frame) -> None:
        if self.wanted is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.wanted = signal.Signals(number).name

    def __exit__(self, *error) -> None:
        for number, handler in self.before.items():
            if handler is not None:
                signal.signal(number, handler)


def finite(value: Tensor, training) -> float:
    "The loss as a number; a run whose loss is none stops here."
    read = float(value)
    if not math.isfinite(read):
        raise RunError(
            f"the loss is {read} at step {training.step}: lower optim.lr (now {training.experiment.optim.lr:g}), set "
            f"optim.clip = 1.0, "
            f"or use optim.precision = \"float32\". The last checkpoint with finite weights is in "
            f"{training.run / 'checkpoints'}"
        )
    return read


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
