"A tiny picture set with Glyphs' interface, so that training and reports are tested in seconds."

import copy

import numpy as np
import torch

from smoothap_nb.data.readers import DATASETS
from smoothap_nb.data.readers.drawn import DrawnInfo


class ToyData:
    "Each class is a random pattern, each image the pattern with noise; labels (N, 3) coarse to fine."

    level_names, classes_called = ("group", "family", "character"), "characters"
    own_validation = True

    def __init__(self, split="train", size=16, strength=1.0, seed=0, root=None, classes=12, images=6):
        offset = {"train": 0, "test": 1000, "val": 2000}[split]
        fine = torch.arange(classes).repeat_interleave(images) + offset
        self.labels = torch.stack([fine * 0, fine // 3, fine], 1)
        rng = np.random.default_rng(offset)
        patterns = rng.random((classes, 1, size, size)) > .5
        noise = rng.random((classes * images, 1, size, size))
        self.images = torch.tensor(255 * (.25 * patterns.repeat(images, 0) + .75 * noise)).to(torch.uint8)[:, 0]
        self.captions = [f"PATTERN {int(c)}" for c in fine]

    def __len__(self):
        return len(self.labels)

    def subset(self, indices):
        part = copy.copy(self)
        part.labels, part.images = self.labels[indices], self.images[indices]
        part.captions = [self.captions[int(i)] for i in indices]
        return part

    def workers(self, wanted):
        return 1

    def validation(self):
        return ToyData("val", self.images.shape[-1]) if self.own_validation else None

    def to(self, device):
        self.images = self.images.to(device)
        return self

    def raw(self, indices, draw=0):
        indices = torch.as_tensor(indices)
        generator = torch.Generator().manual_seed(draw)
        noise = torch.rand(len(self.labels), 1, 1, 1, generator=generator)[indices] * (.1 if draw else 0)
        pictures = self.images[indices.to(self.images.device)][:, None].float() / 255
        return (pictures + noise.to(pictures.device)).clamp(0, 1)

    def finish(self, raw, indices, draw=0):
        return raw

    def batch(self, indices, draw=0):
        return self.raw(indices, draw), self.labels[torch.as_tensor(indices)]


class ToyInfo(DrawnInfo):
    "The registry's line for these pictures."

    def load(self, split="train", root=None, data=None, seed=0):
        return ToyData(split, data.size)


class ToyNet(torch.nn.Module):
    "A network with EmbeddingModel's interface and a few thousand weights, batch norm included."

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, 2, 1),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(4),
            torch.nn.Flatten(),
        )
        self.head = torch.nn.Linear(128, config.dim)

    def forward(self, images):
        return torch.nn.functional.normalize(self.head(self.features(images)).float(), dim=1)

    def train(self, mode=True):
        super().train(mode)
        if self.config.batch_norm != "live":
            self.features[1].eval()
        return self


def use_toys(patch):
    "Let the trainer and its measuring take these in place of real data and networks; `patch` is pytest's MonkeyPatch."
    from smoothap_nb.train import measure, runs, setup

    for name in ("glyphs", "toy"):
        patch.setitem(DATASETS, name, ToyInfo(**vars(DATASETS["glyphs"]) | {"name": name}))
    for module in (setup, measure, runs):
        patch.setattr(module, "EmbeddingModel", ToyNet)
