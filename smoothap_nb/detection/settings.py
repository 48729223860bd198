"""One detection experiment: what is trained, on which pictures, with which loss. Plain file; the experiments lie in
`experiments/`."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path

from ..checks import ConfigError, nearest
from ..train.config import parse_setting, read_toml

FOLDER = Path(__file__).parent / "experiments"
CHOICES = {
    "data": ("pages", "voc"),
    "loss": ("cross_entropy", "rambo", "both"),
    "optimizer": ("adamw", "sgd"),
    "schedule": ("cosine", "step"),
    "scores": ("auto", "softmax", "sigmoid"),
}
LOWEST = {
    "seed": 0,
    "pages": 1,
    "test_pages": 1,
    "margin": 0,
    "memory": 0,
    "epochs": 0,
    "steps": 1,
    "batch": 1,
    "weight_decay": 0,
    "warmup": 0,
    "clip": 0,
    "side": 32,
    "width": 1,
    "workers": 0,
}


@dataclass
class DetectionExperiment:
    """One training run of a detector, whole.

    Raises:
        ConfigError: a value of the wrong type, out of range, or unknown; the message names it.
    """

    name: str = "pages"
    description: str = ""
    seed: int = 0
    data: str = "pages"  # "pages" (drawn) or "voc" (a folder in VOC's layout)
    root: str = "none"  # voc: the folder VOCdevkit
    train: list = field(default_factory=list)  # voc: what is trained on, such as "2007_trainval"
    test: list = field(default_factory=list)  # voc: what is measured on, such as "2007_test"
    pages: int = 800  # pages: how many are trained on
    test_pages: int = 300  # pages: how many are measured on
    test_split: str = "test"  # pages: "test", or "val" to choose settings by
    backbone: str = "small"  # "small", or voc: "resnet50", "resnet101", "resnext101_32x8d"
    pretrained: bool = True  # voc: start from ImageNet
    side: int = 128  # pages: pixels
    width: int = 24  # small: channels of its first layer
    min_size: int = 600  # voc: the shorter side, unless the longer one would pass max_size
    max_size: int = 1000
    loss: str = "rambo"  # "cross_entropy", "rambo", or "both" (their sum)
    lam: float = 0.5  # of RaMBO, authors' convention
    margin: float = 0.0  # in units of a logit
    noise: bool = False  # |N(0, 1)| factors on the margin, as the authors draw them
    interclass: float = 1 / 3  # weight of the list of all classes together
    memory: int = 0  # batches whose lists are appended
    scores: str = "auto"  # "softmax", "sigmoid"; "auto": sigmoid where the background is not trained
    optimizer: str = "adamw"  # or "sgd" with momentum 0.9
    lr: float = 8e-3  # peak
    weight_decay: float = 1e-4
    steps: int = 300  # with epochs = 0
    epochs: int = 0  # above 0: passes over the data; warmup counts steps all the same
    batch: int = 8
    warmup: int = 30  # steps of linear warm-up
    schedule: str = "cosine"  # or "step": divided by ten at each of `milestones`
    milestones: list = field(default_factory=list)  # for "step": epochs, or steps where epochs = 0
    clip: float = 10.0  # largest gradient norm, 0 = off
    flip: bool = False  # voc: mirror every second picture
    workers: int = 2  # voc: processes that read pictures

    def __post_init__(self):
        for entry in dataclasses.fields(self):
            value, kind = getattr(self, entry.name), entry.type
            if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
                setattr(self, entry.name, float(value))
            elif type(value).__name__ != kind:
                raise ConfigError(f"{entry.name} must be of type {kind}, got {value!r}")
            if kind == "float" and not math.isfinite(getattr(self, entry.name)):
                raise ConfigError(f"{entry.name} must be finite, got {value}")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} is {getattr(self, name)!r}: {nearest(getattr(self, name), known)}")
        for name, low in LOWEST.items():
            if getattr(self, name) < low:
                raise ConfigError(f"{name} must be at least {low}, got {getattr(self, name)}")
        for name in ("lam", "lr"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")
        if not 0 <= self.interclass <= 1:
            raise ConfigError(f"interclass must lie in 0 ... 1, got {self.interclass}")
        if self.test_split not in ("test", "val"):
            raise ConfigError(f"test_split is {self.test_split!r}: test or val")
        if self.data == "voc" and not (self.train and self.test):
            raise ConfigError(
                'data = "voc" needs train and test, such as train = ["2007_trainval"] and test = ["2007_test"]'
            )


def detection_names() -> list[str]:
    "The detection experiments that come with the package."
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_detection_experiment(name: str, settings: list[str] | tuple = ()) -> DetectionExperiment:
    """The detection experiment of that name (or file), with settings changed.

    Args:
        name: one of `detection_names()`, or the path of a .toml file.
        settings: changes such as "lr=0.01".

    Raises:
        ConfigError: an unknown name or key (with the nearest known one), a file that cannot be read, a value that
            does not fit.
    """
    if name.endswith(".toml"):
        values = read_toml(Path(name))
    elif name in detection_names():
        values = read_toml(FOLDER / f"{name}.toml")
    else:
        raise ConfigError(
            f"no detection experiment {name!r}: {nearest(name, detection_names())} (a file's name ends in .toml)"
        )
    values = {"name": Path(name).stem} | values
    for setting in settings:
        keys, value = parse_setting(setting)
        values[".".join(keys)] = value
    return detection_from_dict(values)


def detection_from_dict(values: dict) -> DetectionExperiment:
    "An experiment from a table, every key checked."
    known = [entry.name for entry in dataclasses.fields(DetectionExperiment)]
    for key in values:
        if key not in known:
            raise ConfigError(f"no setting {key!r}: {nearest(key, known)}")
    return DetectionExperiment(**values)
