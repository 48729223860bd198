"""What a training run holds while it runs, how it goes to the disk and comes back, and its part of a step that several
processes share.
"""

from __future__ import annotations

import gc
import math
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals

import torch
import torch.distributed as dist
from torch import Tensor, nn
from tqdm.auto import tqdm

from ..checks import reason
from ..data.loading import Prefetcher, share_of
from .checkpoints import RunError, load_checkpoint, pack, random_states, save_checkpoint, unpack
from .config import Experiment
from .embedding import embed
from .faults import Stopped, finite_rows, finite_weights
from .large_batches import gather_rows
from .machine import threads
from .models import EmbeddingModel
from .objectives import Objective

__all__ = ['Training']


@dataclass
class Training:
    "The parts of a run, in the order in which a picture meets them, and how far it has come."

    experiment: Experiment
    run: Path
    data: object  # the training pictures
    labels: Tensor  # (N, L) of the training images, the classes of each level numbered from 0; on the CPU
    plan: object  # step -> (indices of the whole batch, epoch)
    model: EmbeddingModel
    forward: nn.Module  # the model as the step calls it: compiled, connected to the other processes
    loss: Objective
    optimizers: list
    times: object  # what happens when, in steps
    held_out: list  # what `look` measures: (name, function of `rows` that returns the metric)
    device: torch.device
    precision: torch.dtype
    scaler: torch.amp.GradScaler
    engine: object  # accelerate's view of the processes
    step: int = 0
    seconds: float = 0.0  # spent training, over all starts
    waited: float = 0.0  # of these, waiting for data
    best: float = -math.inf  # largest validation metric so far
    best_step: int = -1
    looks: int = 0  # looks at the held-out classes since then
    saved_at: float = field(default_factory=time.monotonic)  # when the last checkpoint was written

    @property
    def main(self) -> bool:
        "Is this the process that writes files and talks?"
        return self.engine.is_main_process

    @property
    def workers(self) -> int:
        "Threads or processes that prepare batches; one where the pictures lie in memory."
        return self.data.workers(self.experiment.data.workers or threads(self.engine.num_processes))

    def batches(self, until: int | None = None) -> Prefetcher:
        "This process's pictures of the steps from the current one on, prepared ahead."
        return Prefetcher(
            self.data,
            self.plan,
            self.times.steps if until is None else until,
            self.step,
            self.workers,
            self.device,
            self.engine.process_index,
            self.engine.num_processes,
        )

    def labels_of(self, indices) -> Tensor:
        "(B, L) labels of chosen images, where the device can fetch them without being waited for."
        labels = self.labels[torch.as_tensor(indices)]
        return labels.pin_memory() if self.device.type == "cuda" and labels.device.type == "cpu" else labels

    def fetch(self, step: int) -> tuple[Tensor, Tensor, int]:
        "One step's pictures of this process, the labels (B, L) of the whole batch, and the epoch."
        indices, epoch = self.plan(step)
        images, _ = self.data.batch(
            share_of(indices, self.engine.process_index, self.engine.num_processes), draw=epoch + 1
        )
        return images, self.labels_of(indices), epoch

    def embed(self, images: Tensor) -> Tensor:
        "Embeddings of this process's pictures, in the run's precision."
        mixed = torch.autocast(self.device.type, self.precision) if self.precision != torch.float32 else nullcontext()
        with mixed:
            return self.forward(images.to(self.device, non_blocking=True))

    def criterion(self, rows: Tensor, labels: Tensor) -> Tensor:
        "The loss of the whole batch from this process's share of the embeddings."
        world = self.engine.num_processes
        if world == 1:
            return self.loss(finite_rows(rows, self), labels, self.step)
        rows = finite_rows(
            gather_rows(rows, [len(share_of(range(len(labels)), r, world)) for r in range(world)]), self
        )
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(
                self.experiment.seed * 1_000_003 + self.step
            )  # a loss that draws must draw the same in every process
            return self.loss(rows, labels, self.step)

    def share_proxies(self) -> None:
        """Every process computed the gradient of the loss's own parameters; their mean keeps rounding from driving
        the copies apart.
        """
        if self.engine.num_processes > 1:
            for parameter in self.loss.parameters():
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= self.engine.num_processes

    def rows(self, pictures, places: Tensor | None = None) -> Tensor:
        "Embeddings of pictures by the network as it is now, all of them or those at `places`."
        rows = embed(self.model, pictures, places, self.experiment.evaluate.batch, progress=False, workers=self.workers)
        return finite_rows(rows, self)

    def due(self, what: str) -> bool:
        """Is it time, after the step just done, for a line of the "log", a "look" at held-out classes, or a
        "checkpoint"?
        """
        every = {
            "log": self.experiment.log_every,
            "look": self.times.validate_every,
            "checkpoint": self.experiment.checkpoint_every,
        }[what]
        last = self.step == self.times.steps
        if every and (self.step % every == 0 or last):
            return True
        return what == "checkpoint" and (last or self.due("log") and self._time_is_over())

    def _time_is_over(self) -> bool:
        "Have the minutes between checkpoints passed? The main process's clock decides for all."
        if not self.experiment.checkpoint_minutes:
            return False
        over = time.monotonic() - self.saved_at > 60 * self.experiment.checkpoint_minutes
        if self.engine.num_processes > 1:
            said = torch.tensor([float(over)], device=self.device)
            dist.broadcast(said, 0)
            over = bool(said.item())
        return over

    def leave_if(self, wanted: int | None) -> None:
        "Where somebody asked for the end (a signal): write a checkpoint and go."
        if wanted is None:
            return
        self.save(together=False)
        if self.main:
            with suppress(OSError):  # the terminal may be gone
                tqdm.write(
                    f"stopped at step {self.step} ({Signals(wanted).name}); a checkpoint was written. The same command "
                    "goes on from here"
                )
        raise Stopped(wanted)

    def save(self, together: bool = True) -> Path | None:
        """Write a checkpoint; `together` asks the other processes for their random states (all must call).

        Raises:
            RunError: weights that are not finite (what was there before stays), a full disk.
        """
        finite_weights(self)
        self.saved_at, states = time.monotonic(), [random_states()]
        if together and self.engine.num_processes > 1:
            states = [None] * self.engine.num_processes
            dist.all_gather_object(states, random_states())
        if not self.main:
            return None
        tensors, state = pack(self.model, self.optimizers, self.loss)
        tensors |= {f"random.{k}": v for one in states for k, v in one.items()}
        state |= {
            "step": self.step,
            "seconds": self.seconds,
            "waited": self.waited,
            "scaler": self.scaler.state_dict(),
            "best": None if self.best == -math.inf else self.best,
            "best_step": self.best_step,
            "looks": self.looks,
        }
        return save_checkpoint(self.run / "checkpoints", self.step, tensors, state)

    def resume(self) -> bool:
        "Go back to the newest checkpoint that can be read, if there is one."
        found = load_checkpoint(self.run / "checkpoints")
        if found is None:
            return False
        tensors, state = found
        try:
            unpack(tensors, state, self.model, self.optimizers, self.loss)
            self.step, self.seconds, self.waited = state["step"], state["seconds"], state["waited"]
            self.best, self.best_step, self.looks = (
                -math.inf if state["best"] is None else state["best"],
                state["best_step"],
                state["looks"],
            )
        except (RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise RunError(
                f"the checkpoint in {self.run} belongs to another model or an older version: {reason(error)} "
                "Start over with --fresh, or name another folder with --run"
            ) from None
        self.scaler.load_state_dict(state["scaler"])
        return True

    def close(self) -> None:
        "Wait for the other processes and part from them."
        if dist.is_initialized():
            self.forward = self.model
            gc.collect()
            dist.barrier()
            dist.destroy_process_group()
