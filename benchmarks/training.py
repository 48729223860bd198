"""What the training engine adds to a step beside the network, the loss and the data: batch plan, prefetching, schedule,
log, progress bar, signals. A small network and pictures that lie ready make the rest visible; the bare loop calls the
same network, loss and optimiser. The times of the first two rows are of 300 steps. Gradient caching is measured against
the direct step of the same
batch: a second forward pass is its price."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

import torch
from torch import nn

from benchmarks.harness import Row, not_run, race, wanted
from smoothap_nb import train as T
from smoothap_nb.train.config import ModelConfig, experiment_from_dict
from smoothap_nb.train.models import EmbeddingModel
from smoothap_nb.train.optimizers import optimizers_for
from smoothap_nb.train.small_maps import for_small_maps

TITLE = "The training engine"


class Small(nn.Module):
    "A linear embedding with the face of `EmbeddingModel`."

    def __init__(self, config):
        super().__init__()
        self.config, self.head = config, nn.Linear(256, config.dim)

    def forward(self, images):
        return nn.functional.normalize(self.head(images.flatten(1)), dim=1)


class Ready:
    "Pictures that are there already."

    def __init__(self, data):
        self.images, self.labels = torch.rand(len(data), 1, 16, 16), data.labels

    def __len__(self):
        return len(self.labels)

    def workers(self, wanted):
        return 1

    def batch(self, indices, draw=0):
        return self.images[torch.as_tensor(indices)], self.labels[torch.as_tensor(indices)]


def engine(folder: Path, steps: int):
    "A training of the small network, ready for its first step."
    experiment = experiment_from_dict(
        {
            "name": "overhead",
            "checkpoint_every": 10**6,
            "data": {"size": 16},
            "model": {"backbone": "resnet18", "dim": 64, "stem": "small"},
            "optim": {"steps": steps, "precision": "float32"},
        }
    )
    training = T.prepare(experiment, T.open_run(folder, experiment), torch.device("cpu"))
    training.model = training.forward = Small(experiment.model)
    training.optimizers, training.data = (
        optimizers_for(training.model, training.loss, experiment.optim),
        Ready(training.data),
    )
    return training


def bare(training, batches: list) -> None:
    "The same steps without the engine, on batches that lie ready."
    (optimizer,) = training.optimizers
    for images, labels in batches:
        optimizer.zero_grad(set_to_none=True)
        training.loss(training.model(images), labels).backward()
        optimizer.step()


def on_a_cpu(images: torch.Tensor, ours: bool):
    "A step of the demo's network: torch's defaults, or what `prepare` makes of them on a CPU."
    torch.manual_seed(0)
    model = EmbeddingModel(ModelConfig(backbone="resnet18", dim=128)).train()
    model = for_small_maps(model) if ours else model
    optimizer = torch.optim.Adam(model.parameters(), fused=ours)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(images).square().sum(1).mean().backward()
        optimizer.step()

    return step


def rows(tiny: bool):
    steps, repeat = (20, 1) if tiny else (300, 7)
    with tempfile.TemporaryDirectory() as tmp:
        if wanted("the engine's own work"):
            plain, made = engine(Path(tmp) / "plain", steps), iter(range(10**6))

            def whole(tensorboard):
                """All steps through `fit`, in a new folder; `prepare` reads the glyphs and is not timed, and a
                checkpoint is a matter of the disk.
                """
                again = copy.copy(plain)
                again.run, again.save = Path(tmp) / f"run-{next(made)}", lambda together=True: None
                again.run.mkdir()
                T.fit(again, progress=False, tensorboard=tensorboard)

            batches = [plain.fetch(step)[:2] for step in range(steps)]
            times = race(
                {
                    "bare": lambda: bare(plain, batches),
                    "engine": lambda: whole(False),
                    "engine, TensorBoard": lambda: whole(True),
                },
                repeat=repeat,
            )
            config = {"steps": steps, "batch": "28 x 4", "network": "linear, 256 to 64"}
            yield Row(
                "the engine's own work in a step",
                1e3 * (times["engine"] - times["bare"]) / steps,
                "ms",
                "<= 2",
                times,
                config,
                "a line of the log every 10 steps; no checkpoint",
            )
            yield Row(
                "the same with TensorBoard",
                1e3 * (times["engine, TensorBoard"] - times["bare"]) / steps,
                "ms",
                "<= 2",
                times,
                config,
            )
        if wanted("gradient caching against the direct step"):
            size, classes = (32, 8) if tiny else (64, 24)
            experiments = {
                name: experiment_from_dict(
                    {
                        "name": "cached",
                        "data": {"size": size},
                        "batch": {"classes": classes, "images": 4, "micro": micro},
                        "model": {"backbone": "resnet18", "dim": 64, "batch_norm": "frozen_statistics"},
                        "optim": {"precision": "float32"},
                    }
                )
                for name, micro in (("direct", 0), ("cached", 16))
            }
            ready = {
                name: T.prepare(e, T.open_run(Path(tmp) / f"micro-{name}", e), torch.device("cpu"))
                for name, e in experiments.items()
            }
            images, labels, _ = ready["direct"].fetch(0)
            times = race(
                {
                    name: lambda training=training: T.advance(training, images, labels)
                    for name, training in ready.items()
                },
                repeat=repeat,
            )
            yield Row(
                "gradient caching against the direct step",
                times["cached"] / times["direct"],
                "times the step",
                "",
                times,
                {"batch": len(images), "at a time": 16, "network": "resnet18", "size": size},
                "about 4/3 is expected: one more forward pass",
            )
    if wanted("a step of the demo's network on a CPU"):
        batch = 16 if tiny else 112
        images = torch.rand(batch, 1, 32, 32)
        times = race({name: on_a_cpu(images, ours) for name, ours in (("plain", False), ("ours", True))}, repeat=repeat)
        yield Row(
            "a step of the demo's network on a CPU",
            times["plain"] / times["ours"],
            "times faster",
            "",
            times,
            {"batch": batch, "network": "resnet18", "size": 32},
            "the last maps by products, Adam in one pass; plain: torchvision's layers, torch's default Adam",
        )
    for name in (
        "ResNet-50, 224 px, bf16, batch 384: share of a bare loop's pictures per second, from the decoded cache",
        "the same from JPEG files",
        "gradient caching, batch 4,096 of 224 px on ResNet-50: peak GB",
    ):
        yield not_run(name, "needs a CUDA device: python -m benchmarks.gpu_suite")
