"""A run's folder: what may stand in it, its log, and the finished model."""

from __future__ import annotations

import csv
from pathlib import Path

import torch
from tqdm.auto import tqdm

from ..data.readers import dataset_info
from ..data.settings import DataConfig
from ..data.transforms import ImageTransform, PhotoTransform
from ..files import check_path, write_atomic
from .checkpoints import RunError, read_weights
from .config import Experiment, load_experiment
from .machine import pick_device, place
from .models import EmbeddingModel
from .run_folder import STOPPED, clear_run, describe, foreign_files, took_a_step
from .weights import weights_hash

__all__ = ['HARMLESS', 'differences', 'open_run', 'RunLog', 'read_log', 'transform_for', 'load_run']


HARMLESS = {  # settings that cannot change the weights: where things lie, how many hands there are, what is measured at
    # the end (it is measured again)
    "name",
    "description",
    "on_cuda",
    "checkpoint_every",
    "checkpoint_minutes",
    "log_every",
    "data.root",
    "data.workers",
    "evaluate.batch",
    "evaluate.classes",
    "evaluate.metrics",
    "evaluate.baselines",
}
# pixels: the side of the decoded cache from which on it counts as harmless: 88 % of the finest octave's energy stays
# (of 256: 32 %; tests/data/test_cache_detail.py)
FINE_ENOUGH = 512


def differences(old: Experiment, new: Experiment) -> list[tuple[str, object, object]]:
    """The settings in which two experiments differ and which may change what comes out.

    Harmless are those of `HARMLESS`; the size of pieces in gradient caching where batch norm has fixed statistics (the
    gradient is the same); weights that come another way but are the same to the byte; and a decoded cache whose squares
    are fine enough.

    Returns:
        (dotted key, old value, new value), in order.
    """
    out = _differences(old.to_dict(), new.to_dict(), "")
    if old.model.batch_norm != "live" and new.model.batch_norm != "live":
        out = [d for d in out if d[0] not in ("batch.micro", "batch.micro_with_live_batch_norm")]
    if all(e.data.cache == "none" or e.data.cache_side >= FINE_ENOUGH for e in (old, new)):
        out = [d for d in out if d[0] not in ("data.cache", "data.cache_side")]
    if (
        old.model.weights != new.model.weights
        and weights_hash(old.model)
        and weights_hash(old.model) == weights_hash(new.model)
    ):
        out = [d for d in out if d[0] != "model.weights"]
    return out


def _differences(old: dict, new: dict, where: str) -> list[tuple[str, object, object]]:
    out = []
    for key in sorted({*old, *new}):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            out += _differences(a, b, f"{where}{key}.")
        elif a != b and f"{where}{key}" not in HARMLESS:
            out.append((f"{where}{key}", a, b))
    return out


def open_run(run: Path, experiment: Experiment, fresh: bool = False) -> Path:
    """Make or reopen the folder of a run.

    A run that never took a step, or whose loss became no number, starts over where the settings have changed.

    Args:
        run: the folder.
        experiment: what is to be trained.
        fresh: delete what a run wrote there, and nothing else.

    Returns:
        the folder.

    Raises:
        RunError: a file in its place, a folder that cannot be written, another experiment in it, with `fresh` files
            that no run wrote.
    """
    run = Path(run)
    if run.exists() and not run.is_dir():
        raise RunError(f"{run} is a file; name a folder for the run (--run)")
    described = run / "experiment.toml"
    try:
        run.mkdir(parents=True, exist_ok=True)
        if described.exists():
            different = [] if fresh else _changes(described, experiment)
            started = took_a_step(run) and not (run / STOPPED).exists()
            if different and started:
                raise RunError(
                    f"{run} holds a run with other settings ({'; '.join(different)}). Name another folder with --run, "
                    "or start over with --fresh"
                )
            if fresh or different:
                clear_run(run)
            if different:
                tqdm.write(f"{run} holds a run that came to nothing; it starts over with {'; '.join(different)}")
        elif foreign_files(run):
            raise RunError(f"{run} is not empty and holds no run; name another folder with --run")
        describe(described, experiment)
    except OSError as error:
        raise RunError(
            f"{run} cannot be written: {error.strerror or error}. Name a folder on a disk with room that you may write "
            f"to (--run)"
        ) from None
    return run


def _changes(described: Path, experiment: Experiment) -> list[str]:
    "What an experiment changes in the one that a folder describes, a line for each setting."
    there = load_experiment(str(described))
    out = [f"{key}: {a!r} -> {b!r}" for key, a, b in differences(there, experiment)]
    return [f"name: {there.name!r} -> {experiment.name!r}"] * (there.name != experiment.name) + out


class RunLog:
    "Lines of `log.csv` and TensorBoard scalars; reopened at `step`, it forgets what came after."

    FIELDS = ("step", "epoch", "loss", "lr", "images_per_second", "waited_for_data")

    def __init__(self, run: Path, step: int = 0, tensorboard: bool = True):
        self.path = run / "log.csv"
        kept = [row for row in read_log(run) if row["step"] < step]
        write_atomic(
            self.path,
            "".join(",".join(map(str, line)) + "\n" for line in (self.FIELDS, *(row.values() for row in kept))),
        )
        self.board = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter

                self.board = SummaryWriter(run / "tensorboard", purge_step=step)
            except ImportError:
                tqdm.write("TensorBoard is not installed: only log.csv is written (pip install tensorboard)")

    def line(self, **values) -> None:
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self.FIELDS, lineterminator="\n").writerow(
                {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in values.items()}
            )
        for key in self.FIELDS[2:]:
            self.scalar(key, values[key], values["step"])

    def scalar(self, name: str, value: float, step: int) -> None:
        "A number for TensorBoard alone."
        if self.board is not None:
            self.board.add_scalar(name, value, step)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def close(self) -> None:
        if self.board is not None:
            self.board.close()


def read_log(run: Path) -> list[dict]:
    "The lines of a run's `log.csv` as numbers; a line cut off by a crash is left out."
    path, rows = Path(run) / "log.csv", []
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    text = text.replace("\0", "")  # what a loss of power may leave
    lines = [line for line in text[: text.rfind("\n") + 1].splitlines() if len(line) < 1000]
    for row in csv.DictReader(lines):
        try:
            rows.append({k: int(row[k]) if k in ("step", "epoch") else float(row[k]) for k in RunLog.FIELDS})
        except (KeyError, TypeError, ValueError):
            continue
    return rows


def transform_for(pictures: DataConfig) -> ImageTransform | PhotoTransform:
    "How a user's own picture is prepared for a model that was trained on such pictures."
    return dataset_info(pictures.name).transform(pictures)


def load_run(path, device: torch.device | str | None = None) -> tuple[EmbeddingModel, ImageTransform]:
    """Model and transform of a run.

    Args:
        path: the folder that `smoothap train` wrote.
        device: where the model goes; CUDA where it works, else the CPU.

    Returns:
        the model in evaluation mode, (N, C, H, W) in [0, 1] to (N, dim) unit rows, and the transform from a PIL
        picture to (C, H, W).

    Raises:
        RunError: no run there, no weights yet, damaged weights, or weights of another architecture.
    """
    path = check_path("path", path)
    if not (path / "experiment.toml").is_file():
        raise RunError(
            f"{path} holds no run: name the folder that `smoothap train` wrote (it contains experiment.toml)"
        )
    experiment = load_experiment(str(path / "experiment.toml"))
    experiment.model.weights = "none"  # all weights come from the run itself
    weights = path / "model.safetensors"
    if not weights.is_file():
        raise RunError(
            f"{path} has no model.safetensors: its training is not finished; start the same command again to finish it"
        )
    device = torch.device(device) if device is not None else pick_device()
    model = EmbeddingModel(experiment.model)
    state = read_weights(weights)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise RunError(
            f"{weights} is a checkpoint of another architecture than {experiment.model.backbone} with "
            f"{experiment.model.dim} dimensions "
            f"({str(error).splitlines()[1].strip()[:120]})"
        ) from None
    return place(model, device).eval(), transform_for(experiment.data)
