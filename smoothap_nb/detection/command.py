"""`smoothap train voc-07`: what the command line does with a detection experiment. Plain file."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from ..checks import ConfigError
from .settings import DetectionExperiment, detection_from_dict, detection_names, load_detection_experiment
from .training import data_for, detector_for, measure_detector, train_detector


def is_detection(name: str) -> bool:
    "Is this the name of a detection experiment, or a .toml file that holds one (`data` is a word there and no table)?"
    import tomllib

    if name in detection_names():
        return True
    try:
        return name.endswith(".toml") and isinstance(
            tomllib.loads(Path(name).read_text(encoding="utf-8")).get("data"), str
        )
    except (OSError, ValueError):
        return False


def run_detection(
    name: str,
    settings: list[str],
    run: Path | None = None,
    *,
    fresh: bool = False,
    device: torch.device | None = None,
    record_to: Path | None = None,
    say: Callable[[str], None] = print,
) -> dict:
    """Train a detector, measure it, store weights and numbers. A run that was stopped starts over.

    Args:
        name: a detection experiment, or a .toml file.
        settings: changes such as "lr=0.01".
        run: folder of the run; runs/NAME when left out.
        fresh: delete what a run wrote there.
        device: where to train; the CPU when left out.
        record_to: also write the numbers to this file.
        say: what to do with a line for the person who waits.

    Returns:
        the record: "config", "measured", "steps", "seconds", "environment", "date".

    Raises:
        ConfigError: an experiment that does not fit, or a folder that holds something else.
    """
    from ..files import check_target
    from ..train.run_folder import clear_run, hold

    experiment, device = load_detection_experiment(name, settings), device or torch.device("cpu")
    folder = run or Path("runs") / experiment.name
    with hold(folder):
        if fresh and (folder / "detection.json").exists():
            clear_run(folder, keep=())
        if folder.exists() and any(path.name != ".lock" for path in folder.iterdir()):
            raise ConfigError(
                f"{folder} is not empty: take another folder (--run), or --fresh to delete a detection run"
            )
        check_target("--record", record_to)
        return _train_and_store(experiment, folder, device, record_to, say)


def _train_and_store(
    experiment: DetectionExperiment,
    folder: Path,
    device: torch.device,
    record_to: Path | None,
    say: Callable[[str], None],
) -> dict:
    "The record of a training; weights and numbers are in the folder."
    from ..files import replacing, write_atomic
    from ..train.machine import environment

    train, test = data_for(experiment)
    here = environment(device)  # asked now: the checkout may change while the network trains
    model = detector_for(experiment, len(train.classes)).to(device)
    say(f"{experiment.name}: {experiment.backbone}, {len(train):,} pictures, {len(train.classes)} classes, "
        f"batches of {experiment.batch}, {experiment.loss} on {device}")  # fmt: skip
    facts = train_detector(model, train, experiment, _reporter(say))
    record = {
        "config": dataclasses.asdict(experiment), **facts, "measured": measure_detector(model, test),
        "date": datetime.date.today().isoformat(), "environment": here,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "model.safetensors") as unfinished:
        save_file({key: value.contiguous().cpu() for key, value in model.state_dict().items()}, unfinished)
    text = json.dumps(record, indent=1) + "\n"
    for path in filter(None, (folder / "detection.json", record_to)):
        write_atomic(Path(path), text)
    say(f"AP50 {record['measured']['AP50']:.3f} (11 points {record['measured']['AP50 (11 points)']:.3f}), "
        f"AP75 {record['measured']['AP75']:.3f} after {facts['seconds']:.0f} s; {folder}/detection.json")  # fmt: skip
    return record


def _reporter(say: Callable[[str], None]) -> Callable[[int, dict[str, float]], None]:
    "A line every hundred steps."

    def tell(step: int, losses: dict[str, float]) -> None:
        if (step + 1) % 100 == 0:
            say(
                f"  step {step + 1}: "
                + ", ".join(f"{part.removeprefix('loss_')} {value:.3f}" for part, value in losses.items())
            )

    return tell


def load_detector(folder: str | Path) -> tuple[torch.nn.Module, DetectionExperiment, tuple[str, ...]]:
    """A detector that `run_detection` stored, ready to predict.

    Returns:
        the network in evaluation mode, its experiment, the names of its classes.

    Raises:
        FileNotFoundError: a folder without a finished detection run.
    """
    from .pages import CLASSES
    from .voc import VOC_CLASSES

    folder = Path(folder)
    if not (folder / "detection.json").is_file():
        raise FileNotFoundError(
            f"{folder} holds no finished detection run: train one with smoothap train pages --run {folder}"
        )
    experiment = detection_from_dict(json.loads((folder / "detection.json").read_text(encoding="utf-8"))["config"])
    classes = CLASSES if experiment.data == "pages" else VOC_CLASSES
    model = detector_for(experiment, len(classes), blank=True)
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.eval(), experiment, classes
