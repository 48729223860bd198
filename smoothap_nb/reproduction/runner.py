"""One row of a table, from pictures to metrics, by one process or by as many as torchrun started."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

from ..checks import ConfigError
from ..train.config import Experiment
from .recipes import Entry, find_entry
from .results import RECORD, keep, result_file
from .times import measure_times

__all__ = ['MINIATURE', 'miniature_settings', 'changed_settings', 'measure_protocols', 'reproduce']

MINIATURE = {  # what makes an experiment small; sampler, loss and protocol stay as the paper has them
    "model.backbone": "resnet18",
    "model.weights": "none",
    "model.dim": 32,
    "data.size": 32,
    "data.resize": 36,
    "batch.per_pair": 1,
    "optim.lr": 1e-3,
    "optim.head_lr": 1e-3,
    "optim.precision": "auto",
    "data.workers": 1,
    "evaluate.batch": 64,
    "log_every": 1,
}


def miniature_settings(entry: Entry) -> dict:
    """The changes that let an experiment run in about a minute on a CPU, on a miniature of its data set: small
    pictures and batches, two epochs.
    """
    has = entry.settings
    changes = MINIATURE | {"batch.images": min(4, has["batch.images"]), "batch.classes": 6, "optim.epochs": 2}
    changes |= {"model.backbone": "se_resnet50"} if has["model.backbone"] == "se_resnet50" else {}
    changes |= {"data.train_resize": 36} if has.get("data.train_resize") else {}
    changes |= {"optim.milestones": [1]} if has.get("optim.milestones") else {}
    changes |= {"optim.head_warmup": 1} if has.get("optim.head_warmup") else {}
    changes |= {"optim.proxy_lr": 0.1} if has.get("optim.proxy_lr") else {}
    changes |= {"validate.every": 1} if has.get("validate.every") else {}
    return changes


def changed_settings(entry: Entry, experiment: Experiment, miniature: bool = False) -> dict:
    """The settings of a run that are not the row's own and may change its number: a table leaves such a run out.

    What cannot change the number does not count: folders, threads, sizes of pieces, weights by another way (see
    `train.runs.differences`), the seed.

    Args:
        entry: the row's experiment.
        experiment: what is run.
        miniature: compare with the shrunk experiment.

    Returns:
        {setting: value}, empty where the row is kept.
    """
    from ..train.runs import differences

    planned = entry.experiment(miniature_settings(entry) if miniature else {})
    return {key: new for key, _, new in differences(planned, experiment) if key != "seed"}


def measure_protocols(
    embed: Callable, data: dict[str, list], metrics, main: bool = True, device=None, progress: bool = True
) -> dict[str, dict]:
    """Every protocol of the data sets, with the metrics that the tables ask for.

    Args:
        embed: a set of images -> (N, D) embeddings; with several processes all must call.
        data: protocol prefix ("" for the data set itself, "ijbc" for a second one) -> list of protocols.
        metrics: names; cut-offs that a gallery cannot fill are left out.
        main: measure here; False: take part in embedding alone.
        device: where metrics are computed; None: on the CPU.
        progress: show bars.

    Returns:
        {protocol: {metric: value}}, empty where `main` is False.
    """
    from ..data.datasets import evaluate_protocols

    out: dict[str, dict] = {}
    for prefix, protocols in data.items():
        rows: dict[int, tuple] = {}
        for images in (images for p in protocols for images in (p.queries, p.gallery) if images is not None):
            if id(images) not in rows:
                rows[id(images)] = images, embed(images)
        if not main:
            continue
        smallest = min(len(p.queries if p.gallery is None else p.gallery) - (p.gallery is None) for p in protocols)
        depth = min(
            1 if p.level is not None or p.queries.labels.ndim == 1 else p.queries.labels.shape[1] for p in protocols
        )
        fits = tuple(
            m
            for m in metrics
            if not (m.startswith("R@") and int(m[2:]) > smallest)
            and not (m.startswith("AP@level") and int(m[8:]) > depth)
        )
        found = evaluate_protocols(
            protocols, lambda images: rows[id(images)][1], fits, progress=progress, device=device
        )
        out |= {prefix or name: values for name, values in found.items()}
    return out


def reproduce(
    name: str,
    root=None,
    settings: dict | None = None,
    run=None,
    *,
    also_root=None,
    miniature: bool = False,
    record=None,
    fresh: bool = False,
    progress: bool = True,
    device: str | None = None,
    say=print,
) -> dict:
    """Run one experiment of the papers' tables, from pictures to metrics; the same call resumes a run that was stopped.

    Under `torchrun` or `accelerate launch` all processes share one run: process 0 opens its folder, writes and
    speaks, the others help.

    Args:
        name: of `registry()`, such as "sop/smooth-ap-bs384" or "inat/smooth-ap-bs384@code".
        root: the data set's folder.
        settings: changes, {"optim.lr": 3e-4}; a run with changes that may move the number is kept apart from the
            tables.
        run: folder of the run, runs/NAME/seedN when left out.
        also_root: folder of the second data set (IJB-C).
        miniature: shrink the experiment and draw a small copy of the data set from typefaces (or take the one in
            `root`); about a minute. No table shows it.
        record: JSON file that the result is appended to, beside RUN/reproduce.json; left out: one in docs/results
            where that folder exists (never for a miniature).
        fresh: start over.
        progress: show bars.
        device: "cpu" or "cuda"; CUDA where it works when left out.
        say: called with lines of text.

    Returns:
        the result: metrics by protocol, settings, seed, environment, date; without metrics in processes other than
            the first.

    Raises:
        ConfigError: an unknown name, a setting that does not fit, a row that cannot be reproduced.
        DatasetError, RunError: pictures that are not there, a run that cannot go on.
    """
    import torch

    from ..train.machine import engine_for, on_main, pick_device
    from ..train.run_folder import hold

    entry = find_entry(name)
    device = torch.device(device) if device else pick_device()
    if entry.measure != "retrieval":
        return _timed(entry, settings or {}, miniature, device, record, say)
    engine = engine_for(cpu=device.type == "cpu")
    if not engine.is_main_process:
        say = lambda text: None
    with tempfile.TemporaryDirectory() as scratch:
        scratch = on_main(engine, lambda: Path(scratch))  # one folder for all
        roots = on_main(engine, lambda: _roots(entry, root, also_root, miniature, scratch))
        experiment = entry.experiment(
            (miniature_settings(entry) if miniature else {})
            | ({"data.root": str(roots[0])} if roots[0] else {})
            | (settings or {})
        )
        changed = changed_settings(entry, experiment, miniature)
        if entry.obstacle and not miniature and not changed:
            raise ConfigError(
                f"{name} cannot be reproduced here: {entry.obstacle}. --miniature walks the way; with --set "
                f"model.weights=FILE it runs as an "
                "experiment of your own"
            )
        run = Path(run) if run else scratch / "run" if miniature else Path("runs") / name / f"seed{experiment.seed}"
        with ExitStack() as held:
            on_main(engine, lambda: held.enter_context(hold(run)))
            result = _train_and_measure(
                entry, experiment, run, roots, engine, device, miniature, changed, fresh, progress, say
            )
        if result["metrics"]:
            keep(result, run / RECORD, say)
            record = record or (None if miniature else result_file(name))
            if record:
                keep(result, record, say)
            for key, value in changed.items():
                say(f"{key} = {value!r} may change the number: the tables leave this run out")
    return result


def _timed(entry: Entry, settings: dict, miniature: bool, device, record, say: Callable) -> dict:
    "The result of a row that reports times, kept like any other."
    from ..train.machine import environment

    times = {"times": measure_times(entry, miniature, device)}
    result = _result(entry, times, 0, miniature, settings, environment(device), {})
    record = record or (None if miniature else result_file(entry.name))
    return keep(result, record, say) if record else result


def _roots(entry: Entry, root, also_root, miniature: bool, scratch: Path) -> list:
    "Folders of the data set and of the second one; miniatures are drawn where none were named."
    from ..data.miniatures import make_miniature

    names = [entry.settings["data.name"], entry.also]
    return [
        make_miniature(n, scratch / n) if miniature and n and not given else given
        for n, given in zip(names, (root, also_root))
    ]


def _train_and_measure(
    entry: Entry,
    experiment: Experiment,
    run: Path,
    roots: list,
    engine,
    device,
    miniature: bool,
    changed: dict,
    fresh: bool,
    progress: bool,
    say: Callable,
) -> dict:
    """Training from where it was stopped, then the protocols: with the last weights, and with the best on the test
    set where the row chose so.
    """
    from ..data.datasets import load_protocols
    from ..train import embed, environment, finish, fit, open_run, prepare
    from ..train.machine import on_main

    on_main(engine, lambda: open_run(run, experiment, fresh))
    training = prepare(experiment, run, device)
    say(
        f"{entry.name}: {experiment.model.backbone}, {len(training.data):,} pictures, batches of "
        f"{experiment.batch.classes} x {experiment.batch.images}, "
        f"{training.times.steps:,} steps on {training.device}"
        + (f", {engine.num_processes} processes" if engine.num_processes > 1 else "")
    )
    if training.resume():
        say(f"resumed at step {training.step}")
    here = environment(training.device) | {"processes": engine.num_processes}
    fit(training, progress=progress, tensorboard=not miniature)
    data = {"": load_protocols(entry.settings["data.name"], roots[0], data=experiment.data)}
    if entry.also and roots[1]:
        data[entry.also] = load_protocols(entry.also, roots[1], data=experiment.data)

    def measured() -> dict:
        rows = lambda images: embed(
            training.model, images, None, experiment.evaluate.batch, progress, workers=training.workers
        )
        return measure_protocols(rows, data, experiment.evaluate.metrics, training.main, training.device, progress)

    last = measured()
    facts = finish(training)
    metrics = measured() if training.best_step >= 0 else last
    result = _result(entry, metrics, experiment.seed, miniature, changed, here, experiment.to_dict())
    chosen = (
        "last" if training.best_step < 0 else "best on test" if experiment.validate.as_paper else "best on validation"
    )
    result |= {
        "run": str(run),
        "weights": {**facts["weights"], "chosen": chosen},
        "seconds": facts["seconds"],
        "metrics_last": last,
    }
    training.close()
    return result


def _result(entry: Entry, metrics: dict, seed: int, miniature: bool, changed: dict, here: dict, config: dict) -> dict:
    return {
        "experiment": entry.name,
        "kind": entry.kind,
        "miniature": miniature,
        "changed": changed,
        "seed": seed,
        "metrics": metrics,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "environment": here,
        "config": config,
    }
