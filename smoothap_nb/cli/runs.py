"""`smoothap train`, `smoothap evaluate`, `smoothap experiments`: networks and embeddings, and what they are worth."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from .app import Cpu, Fresh, Quiet, exit_codes_of_signals, say, table
from .names import check_experiment, complete_experiment

if TYPE_CHECKING:
    import torch

    from ..train.config import Experiment

__all__ = ['train', 'evaluate', 'experiments']


def train(
    experiment: Annotated[
        str,
        typer.Argument(help="A name from `smoothap experiments`, or a .toml file.", autocompletion=complete_experiment),
    ],
    settings: Annotated[
        Optional[list[str]],
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. --set optim.lr=3e-4. Repeatable."),
    ] = None,
    run: Annotated[Optional[Path], typer.Option(help="Folder of the run; runs/NAME when left out.")] = None,
    fresh: Fresh = False,
    cpu: Cpu = False,
    record_to: Annotated[
        Optional[Path], typer.Option("--record", help="Also write the measured numbers to this JSON file.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Train an experiment, measure it on held-out classes, write report.html. The same command resumes a run that was
    stopped or killed.
    """
    check_experiment(experiment)  # before torch is loaded, which takes seconds
    import torch

    from ..detection.command import is_detection, run_detection
    from ..files import check_target
    from ..train.config import load_experiment
    from ..train.machine import engine_for, on_main, pick_device
    from ..train.run_folder import hold
    from ..train.runs import open_run

    device = torch.device("cpu") if cpu else pick_device()
    if is_detection(experiment):
        tell = (lambda text: None) if quiet else say
        run_detection(experiment, settings or [], run, fresh=fresh, device=device, record_to=record_to, say=tell)
        return
    chosen = load_experiment(experiment, settings or [])
    if device.type == "cuda" and chosen.on_cuda != "none":
        say(f"CUDA device found: {chosen.on_cuda} takes the place of {chosen.name}")
        chosen = load_experiment(chosen.on_cuda, settings or [])
    engine = engine_for(cpu=device.type == "cpu")  # one process, or as many as torchrun or accelerate launch started
    run = run or Path("runs") / chosen.name
    tell = say if engine.is_main_process else lambda text: None
    with exit_codes_of_signals(), ExitStack() as held:

        def take() -> None:
            held.enter_context(hold(run))
            open_run(run, chosen, fresh)

        on_main(engine, take)
        check_target("--record", record_to, experiment)  # the folder of the run is there now
        if not _is_trained(run, tell):
            _train(chosen, run, device, engine.num_processes, tell, progress=not quiet)
        if engine.is_main_process:  # measured by the main process alone
            _measure(run, record_to, progress=not quiet)


def _is_trained(run: Path, tell: Callable[[str], None]) -> bool:
    "Does the folder hold a finished run that can be read? Says what it found."
    from ..train.checkpoints import RunError
    from ..train.runs import load_run

    if not (run / "model.safetensors").exists():
        return False
    try:
        load_run(run, "cpu")
    except RunError as error:
        tell(f"{error}")
        return False
    tell(f"{run} is trained already; measuring it again (--fresh starts over)")
    return True


def _train(
    chosen: Experiment, run: Path, device: torch.device, processes: int, tell: Callable[[str], None], progress: bool
) -> None:
    "Train, from the last checkpoint where there is one, and keep the facts of the run in run.json."
    from ..files import write_atomic
    from ..train.loop import fit
    from ..train.machine import environment, keep_memory
    from ..train.setup import prepare
    from ..train.validation import finish

    keep_memory()
    training = prepare(chosen, run, device)
    tell(
        f"{chosen.name}: {chosen.model.backbone}, {len(training.data):,} pictures of "
        f"{len(training.labels[:, -1].unique()):,} classes, "
        f"batches of {chosen.batch.classes} x {chosen.batch.images}, {training.times.steps:,} steps on "
        f"{training.device}" + (f", {processes} processes" if processes > 1 else "")
    )
    if training.resume():
        tell(f"resumed at step {training.step}")
    here = environment(training.device)  # asked now: the checkout may change while the network trains
    fit(training, progress=progress)
    facts = finish(training) | {"environment": here}
    if training.main:
        write_atomic(run / "run.json", json.dumps(facts, indent=1) + "\n")
    tell(
        f"trained in {facts['seconds']:.0f} s, of which {facts['waited_for_data']:.0%} waiting for data; weights "
        f"of step {facts['weights']['step']} ({facts['weights']['why']})"
    )
    training.close()


def _measure(run: Path, record_to: Path | None, progress: bool) -> None:
    "Measure a trained run, print the table, write its report."
    from ..files import write_atomic
    from ..show.report import write_report
    from ..train.measure import measure

    record, shown = measure(run, progress=progress)
    say(table(record["metrics"]))  # first of all: what follows may meet a full disk
    if record_to is not None:
        write_atomic(record_to, json.dumps(record, indent=1) + "\n")
    _say_report(lambda: write_report(run, record, shown))


def _say_report(write: Callable[[], Path] | None) -> None:
    "Write a page, where one is asked for, and say where it is, or why it is not: the numbers are out already."
    if write is None:
        return
    try:
        say(f"report: {write()}")
    except OSError as error:
        say(f"no report: {error}")


def evaluate(
    target: Annotated[
        Path,
        typer.Argument(help="The folder that `smoothap train` wrote, or a .npy or .safetensors file of embeddings."),
    ],
    labels: Annotated[
        Optional[Path],
        typer.Option(help="Labels of the embeddings: .npy, or .csv with a column for each level, coarse to fine."),
    ] = None,
    gallery: Annotated[Optional[Path], typer.Option(help="Embeddings of a separate gallery.")] = None,
    gallery_labels: Annotated[Optional[Path], typer.Option(help="Labels of the gallery.")] = None,
    metric: Annotated[
        Optional[list[str]], typer.Option(help="A metric, e.g. mAP, R@10, H-AP. Repeatable; a good set when left out.")
    ] = None,
    ties: Annotated[
        str, typer.Option(help="How equal scores count: max (against), min (in favour) or average.")
    ] = "max",
    memory: Annotated[str, typer.Option(help="Working memory beside the inputs.")] = "1GB",
    normalize: Annotated[
        str,
        typer.Option(
            help="Embeddings that are not of length 1: yes (scale them, with a notice), refuse, or no (compare raw dot "
                 "products)."
        ),
    ] = "yes",
    json_to: Annotated[Optional[Path], typer.Option("--json", help="Write the numbers to this JSON file.")] = None,
    markdown_to: Annotated[
        Optional[Path], typer.Option("--markdown", help="Write the table to this Markdown file.")
    ] = None,
    report: Annotated[
        Optional[Path],
        typer.Option(help="Write a page with the metrics per class (a run always gets its report.html)."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Measure a finished run again on its held-out classes, or embeddings from files; as a table, JSON, Markdown and a
    page.
    """
    from ..checks import ConfigError
    from ..files import write_atomic
    from ..show.report import markdown_table, write_files_report, write_report
    from ..train.measure import measure, measure_files

    _check_targets(json_to, markdown_to, report, target, labels, gallery, gallery_labels)

    if target.is_file():
        options = {"ties": ties, "memory": memory, "normalize": _scaling(normalize), "progress": not quiet}
        record, values = measure_files(target, labels, gallery, gallery_labels, metric or (), **options)
        metrics = {target.name: record["metrics"]}
        page = None if report is None else lambda: write_files_report(report, record, values)
    else:
        if any(option is not None for option in (labels, gallery, gallery_labels, metric)):
            raise ConfigError("--labels, --gallery, --gallery-labels and --metric go with a file of embeddings; a run "
                              "is measured on its own held-out classes with the metrics of its experiment.toml")
        record, shown = measure(target, progress=not quiet)
        metrics, page = record["metrics"], lambda: write_report(target, record, shown)
    say(table(metrics))
    for path, text in ((json_to, json.dumps(record, indent=1) + "\n"), (markdown_to, markdown_table(metrics))):
        if path is not None:
            write_atomic(path, text)
            say(f"written: {path}")
    _say_report(page)


def _check_targets(json_to: Path | None, markdown_to: Path | None, report: Path | None, *inputs: Path | None) -> None:
    "Look at the files that `evaluate` is to write, before it measures."
    from ..files import check_target

    for option, path in (("--json", json_to), ("--markdown", markdown_to), ("--report", report)):
        check_target(option, path, *inputs)


def _scaling(normalize: str) -> bool | str:
    "What `--normalize` means to `evaluate`: True, 'refuse' or False."
    from ..checks import ConfigError, nearest

    scaling = {"yes": True, "refuse": "refuse", "no": False}
    if normalize not in scaling:
        raise ConfigError(f"--normalize is {normalize!r}: {nearest(normalize, scaling)}")
    return scaling[normalize]


def experiments() -> None:
    "List the experiments that come with the package."
    from ..detection.settings import detection_names, load_detection_experiment
    from ..train.config import experiment_names, load_experiment

    names = experiment_names()
    for name in names:
        say(f"{name:<{max(map(len, names)) + 2}}{load_experiment(name).description}")
    say("\ndetection:")
    for name in detection_names():
        say(f"{name:<{max(map(len, detection_names())) + 2}}{load_detection_experiment(name).description}")
