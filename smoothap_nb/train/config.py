"""One readable TOML file per experiment, loaded into typed dataclasses; a wrong key is answered with the nearest right
one.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from ..checks import ConfigError, nearest
from ..data.readers import dataset_info
from ..data.settings import BatchConfig, DataConfig
from ..metrics.names import read_names

__all__ = [
    'RANGES',
    'CHOICES',
    'FOLDER',
    'DataConfig',
    'ModelConfig',
    'BatchConfig',
    'MemoryConfig',
    'OptimConfig',
    'ValidateConfig',
    'EvaluateConfig',
    'Experiment',
    'experiment_from_dict',
    'experiment_names',
    'read_toml',
    'parse_setting',
    'load_experiment',
    'toml_value',
    'to_toml',
]


@dataclass
class ModelConfig:
    "From a picture to a point on the sphere."

    backbone: str = "resnet50"  # a torchvision ResNet, "se_resnet50", or "timm/NAME"
    dim: int = 512  # length of the embedding
    # "none" (from scratch), "imagenet", "glyphs" (lower stages of a resnet18), or the path of a .pth or .safetensors file
    weights: str = "none"
    # "imagenet" (a quarter of the side after it) or "small" (half, for 32 to 64 px; four times the work)
    stem: str = "imagenet"
    pool: str = "avg"  # "avg", "max" or "gem"
    batch_norm: str = "live"  # "live", "frozen_statistics" (scale and shift still train) or "frozen"
    layer_norm: bool = False  # LayerNorm without scale and shift before the linear layer


@dataclass
class MemoryConfig:
    "Embeddings of earlier batches as further gallery."

    size: int = 0  # embeddings to remember, 0 = none
    start: int = 0  # step from which they are used


@dataclass
class OptimConfig:
    """How the weights move. With `epochs` above 0, `warmup`, `head_warmup` and `milestones` count epochs, otherwise
    steps.
    """

    optimizer: str = "adamw"  # "adamw", "adam" (decay added to the gradient, as in the papers) or "sgd"
    momentum: float = 0.9  # of sgd
    nesterov: bool = False  # of sgd
    steps: int = 1000  # optimiser steps in all
    epochs: int = 0  # above 0: passes over the sampler's batches, in place of `steps`
    lr: float = 1e-3  # peak learning rate of the backbone
    head_lr: float = 1e-3  # peak learning rate of the linear layer
    proxy_lr: float = 0.0  # peak learning rate of what the loss learns (proxies); 0 = head_lr
    proxy_optimizer: str = "same"  # "same", "adamw", "adam" or "sgd"
    proxy_weight_decay: float = 0.0
    weight_decay: float = 1e-4
    decay: str = (
        "weights"  # "weights": scales, shifts and biases are not decayed; "all": everything is, as in the papers' code
    )
    warmup: int = 50  # linear warm-up of all rates
    head_warmup: int = 0  # at the start only the linear layer and the proxies move, the schedule stands still
    schedule: str = "cosine"  # "cosine", "step" (times `gamma` at each of `milestones`) or "constant"
    floor: float = 0.0  # share of the peak where cosine ends
    head_floor: float = -1.0  # the same of the linear layer; below 0: as `floor`
    proxy_floor: float = -1.0  # the same of the proxies; below 0: as `floor`
    milestones: list = field(default_factory=list)  # for "step"
    gamma: float = 0.3  # for "step"
    clip: float = 0.0  # largest gradient norm, 0 = off
    precision: str = "auto"  # "float32", "bfloat16", "float16"; "auto": bfloat16 on CUDA, float32 on a CPU
    compile: bool = False  # torch.compile the network


@dataclass
class ValidateConfig:
    "Looking at held-out classes while it trains, to keep the best weights and to stop early."

    every: int = 0  # steps (epochs, with optim.epochs) between looks, 0 = never: the last weights are kept
    share: float = 0.1  # of the training classes set aside for it; Glyphs have their own validation characters
    metric: str = "mAP"  # larger is better
    patience: int = 0  # stop after so many looks without a gain, 0 = never
    as_paper: bool = False  # look at the TEST set instead, as public code does: its choice flatters the result


@dataclass
class EvaluateConfig:
    "What is measured at the end, on held-out classes."

    metrics: list = field(default_factory=lambda: ["mAP", "R@1", "R@10"])
    classes: int = 0  # number of test classes, the first ones of a seeded shuffle; 0 = all
    batch: int = 256  # images per forward pass
    baselines: bool = True  # measure raw pixels and the untrained network too


@dataclass
class Experiment:
    """One training run, whole.

    Attributes:
        name: of the experiment, as in `smoothap train NAME`.
        description: one line for `smoothap experiments`.
        seed: of weights, batches, augmentation and validation.
        on_cuda: the experiment that takes this one's place where a CUDA device is found, or "none".
        checkpoint_every: steps between checkpoints, 0 = by the clock alone.
        checkpoint_minutes: minutes between checkpoints, 0 = by steps alone.
        log_every: steps between lines of the log.
        data: which pictures, and how they are cut (`DataConfig`).
        model: the network (`ModelConfig`).
        loss: a loss's name and its own arguments, or `terms`, a list of such.
        memory: earlier batches that stay in the gallery (`MemoryConfig`).
        batch: what a batch holds (`BatchConfig`).
        optim: optimiser, schedule and length (`OptimConfig`).
        validate: classes held back while training (`ValidateConfig`).
        evaluate: metrics and baselines of the end (`EvaluateConfig`).
    """

    name: str = "experiment"
    description: str = ""
    seed: int = 0
    on_cuda: str = "none"  # the experiment that takes this one's place where a CUDA device is found
    checkpoint_every: int = 0  # steps between checkpoints; 0: by the clock alone
    checkpoint_minutes: float = 5.0  # between checkpoints, looked at with each line of the log; 0: by steps alone
    log_every: int = 10  # steps between lines of the log
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: dict = field(
        default_factory=lambda: {"name": "smooth_ap", "tau": 0.01}
    )  # a loss and its own arguments, or terms = [...]
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    validate: ValidateConfig = field(default_factory=ValidateConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)

    def to_dict(self) -> dict:
        "Nested plain dictionary, ready for JSON."
        return dataclasses.asdict(self)


def _typed(value, kind: str, key: str):
    "A value in the type its dataclass states, or a clear refusal."
    right = {
        "int": (int,),
        "float": (int, float),
        "str": (str,),
        "bool": (bool,),
        "list": (list, tuple),
        "dict": (dict,),
    }[kind]
    if not isinstance(value, right) or (isinstance(value, bool) and kind != "bool"):
        raise ConfigError(f"{key} must be {'a number' if kind == 'float' else kind}, got {value!r}")
    return {"float": float, "list": list}.get(kind, lambda v: v)(value)


def _fill(kind: type, values: dict, where: str):
    "Build the dataclass `kind` from a table, checking each key and type."
    fields = {f.name: f for f in dataclasses.fields(kind)}
    out = {}
    for key, value in values.items():
        full = f"{where}{key}"
        if key not in fields:
            raise ConfigError(f"unknown setting {full!r}: {nearest(key, fields)}")
        default = fields[key].default_factory() if fields[key].default is dataclasses.MISSING else fields[key].default
        if dataclasses.is_dataclass(default):
            if not isinstance(value, dict):
                raise ConfigError(f"{full} is a group of settings: write {full}.KEY = {value!r}")
            out[key] = _fill(type(default), value, f"{full}.")
        else:
            out[key] = _typed(value, fields[key].type, full)
    return kind(**out)


RANGES = (  # setting, smallest, largest
    ("seed", 0, 2**32 - 1),
    ("checkpoint_every", 0, math.inf),
    ("checkpoint_minutes", 0, math.inf),
    ("log_every", 1, math.inf),
    ("data.size", 8, 4096),
    ("data.strength", 0, 100),
    ("data.resize", 8, 8192),
    ("data.train_resize", 0, 8192),
    ("data.workers", 0, 256),
    ("data.cache_side", 32, 4096),
    ("data.damaged_share", 0, 1),
    ("data.levels", 0, math.inf),
    ("model.dim", 1, 65536),
    ("batch.classes", 2, math.inf),
    ("batch.images", 2, math.inf),
    ("batch.super_classes", 1, math.inf),
    ("batch.per_pair", 1, math.inf),
    ("batch.micro", 0, math.inf),
    ("memory.size", 0, math.inf),
    ("memory.start", 0, math.inf),
    ("optim.momentum", 0, 1),
    ("optim.steps", 1, math.inf),
    ("optim.epochs", 0, math.inf),
    ("optim.proxy_lr", 0, math.inf),
    ("optim.proxy_weight_decay", 0, math.inf),
    ("optim.weight_decay", 0, math.inf),
    ("optim.warmup", 0, math.inf),
    ("optim.head_warmup", 0, math.inf),
    ("optim.floor", 0, 1),
    ("optim.head_floor", -1, 1),
    ("optim.proxy_floor", -1, 1),
    ("optim.gamma", 0, 1),
    ("optim.clip", 0, math.inf),
    ("validate.every", 0, math.inf),
    ("validate.share", 0, 0.9),
    ("validate.patience", 0, math.inf),
    ("evaluate.batch", 1, math.inf),
    ("evaluate.classes", 0, math.inf),
)
CHOICES = {
    "model.stem": ("imagenet", "small"),
    "model.pool": ("avg", "max", "gem"),
    "model.batch_norm": ("live", "frozen_statistics", "frozen"),
    "data.protocol": ("default", "all_vs_rest", "one_gallery"),
    "batch.sampler": (
        "m_per_class",
        "m_per_class_official",
        "super_pairs",
        "super_pairs_random",
        "paired_classes",
        "hierarchical",
    ),
    "optim.optimizer": ("adamw", "adam", "sgd"),
    "optim.proxy_optimizer": ("same", "adamw", "adam", "sgd"),
    "optim.decay": ("weights", "all"),
    "optim.schedule": ("cosine", "constant", "step"),
    "optim.precision": ("auto", "float32", "bfloat16", "float16"),
}


def _at(experiment: Experiment, key: str):
    "The value of a dotted key."
    for part in key.split("."):
        experiment = getattr(experiment, part)
    return experiment


def experiment_from_dict(values: dict) -> Experiment:
    """An experiment from nested tables, every key and range checked.

    Raises:
        ConfigError: an unknown key (with the nearest known one), a value of the wrong type or out of range.
        DatasetError: an unknown data set, with the nearest known one.
    """
    experiment = _fill(Experiment, values, "")
    _check_finite(experiment.to_dict(), "")
    for key, low, high in RANGES:
        value = _at(experiment, key)
        if not low <= value <= high:
            raise ConfigError(
                f"{key} must be "
                + (f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}")
                + f", got {value}"
            )
    for key in ("lr", "head_lr"):
        if not getattr(experiment.optim, key) > 0:
            raise ConfigError(f"optim.{key} must be above 0, got {getattr(experiment.optim, key)}")
    _check_metrics(experiment)
    for key, known in CHOICES.items():
        if _at(experiment, key) not in known:
            raise ConfigError(f"{key} is {_at(experiment, key)!r}: {nearest(_at(experiment, key), known)}")
    for key in ("data.crop_scale", "data.crop_ratio"):
        pair = _at(experiment, key)
        if len(pair) != 2 or not all(isinstance(v, (int, float)) for v in pair) or not 0 < pair[0] <= pair[1]:
            raise ConfigError(f"{key} must be two numbers, smaller first, above 0; got {pair}")
    if not all(
        isinstance(m, int) and m > 0 for m in experiment.optim.milestones
    ) or experiment.optim.milestones != sorted(experiment.optim.milestones):
        raise ConfigError(
            f"optim.milestones must be whole numbers above 0 in rising order, got {experiment.optim.milestones}"
        )
    dataset_info(experiment.data.name).check_settings(experiment.data)
    return experiment


def _check_finite(value, where: str) -> None:
    "Refuse inf and nan, which TOML has and a run has no use for, and whole numbers of more than 63 bits; in lists too."
    inside = value.items() if isinstance(value, dict) else enumerate(value, 1) if isinstance(value, list) else ()
    for key, one in inside:
        _check_finite(one, f"{where}.{key}" if where else str(key))
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where} must be a finite number, got {value}")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ConfigError(f"{where} must have fewer digits, got {value}")


def _check_metrics(experiment: Experiment) -> None:
    "Names of metrics are read now and not after the training; what the data cannot give (a level, a K) is said later."
    asked = {"evaluate.metrics": experiment.evaluate.metrics, "validate.metric": experiment.validate.metric}
    for key, names in asked.items():
        try:
            read_names(names, 1_000, 2**62)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{key}: {error}") from None


FOLDER = Path(__file__).resolve().parents[1] / "experiments"


def experiment_names() -> list[str]:
    "The experiments that come with the package."
    return sorted(p.relative_to(FOLDER).with_suffix("").as_posix() for p in FOLDER.rglob("*.toml"))


def read_toml(path: Path) -> dict:
    "The tables of a TOML file; a missing or broken file is named."
    path = Path(path)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a .toml file in it")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def parse_setting(text: str) -> tuple[list[str], object]:
    "'optim.lr=3e-4' as a path of keys and a value, read as TOML reads it; a bare word is a word."
    key, found, value = text.partition("=")
    if not found or not key.strip():
        raise ConfigError(f"--set takes key=value, e.g. --set optim.lr=3e-4; got {text!r}")
    try:
        return key.strip().split("."), tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip().split("."), value.strip()


def load_experiment(name: str, settings: list[str] | tuple = ()) -> Experiment:
    """The experiment of that name (or file), with settings changed.

    Args:
        name: one of `experiment_names()`, or the path of a .toml file.
        settings: changes such as "optim.lr=3e-4".

    Returns:
        Experiment: checked; what the file leaves out has its default.

    Raises:
        ConfigError: an unknown name (with the nearest known one), a file that cannot be read, a setting that does
            not fit.
    """
    if not isinstance(name, str):
        raise ConfigError(f"name must be a word or the path of a .toml file, got {name!r}")
    if not isinstance(settings, (list, tuple)) or not all(isinstance(setting, str) for setting in settings):
        raise ConfigError(f"settings must be a list such as ['optim.lr=3e-4'], got {settings!r}")
    if name.endswith(".toml"):
        values = read_toml(Path(name))
    elif name in experiment_names():
        values = read_toml(FOLDER / f"{name}.toml")
    else:
        raise ConfigError(f"no experiment {name!r}: {nearest(name, experiment_names())} (a file's name ends in .toml)")
    values.setdefault("name", Path(name).stem)
    for setting in settings:
        keys, value = parse_setting(setting)
        table = values
        for i, key in enumerate(keys[:-1]):
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{'.'.join(keys[: i + 1])} is a single setting, it has no {keys[i + 1]!r}")
        table[keys[-1]] = value
    return experiment_from_dict(values)


# TOML is written here and not by tomli-w: an experiment is numbers, words, lists and tables of one depth, which are
# twenty lines, and `reproduce --show` puts the source of
# a setting behind it as a comment, which no writer of TOML can.


def toml_value(value) -> str:
    "A setting's value as TOML writes it."
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {toml_value(v)}" for k, v in value.items()) + "}"
    return (
        "[" + ", ".join(map(toml_value, value)) + "]"
        if isinstance(value, (list, tuple))
        else json.dumps(value, ensure_ascii=False)
    )


def to_toml(experiment: Experiment) -> str:
    "The whole experiment, defaults included, as a TOML file that `load_experiment` reads back to the same."
    values = experiment.to_dict()
    lines = [f"{k} = {toml_value(v)}" for k, v in values.items() if not isinstance(v, dict)]
    for group, table in values.items():
        if isinstance(table, dict):
            lines += ["", f"[{group}]"] + [f"{k} = {toml_value(v)}" for k, v in table.items()]
    return "\n".join(lines) + "\n"
