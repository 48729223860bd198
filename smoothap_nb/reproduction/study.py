"""The papers' claims on Glyphs: which runs there are, and how they are done and kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from ..checks import ConfigError, nearest, reason
from ..train.config import Experiment, experiment_from_dict
from .recipes import nest, read_papers

__all__ = [
    'GlyphRun',
    'GRIDS',
    'UNTRAINED',
    'glyph_file',
    'glyph_runs',
    'tuned_settings',
    'glyph_experiment',
    'run_glyphs',
    'read_rows',
    'glyph_grid',
    'is_done',
]


@dataclass(frozen=True)
class GlyphRun:
    "One run of the comparison on Glyphs."

    name: str  # "main/smooth-ap/seed0", "tau/tau=0.1", "tune/triplet/lr=0.001, loss.margin+..."
    method: str
    split: str  # characters it is measured on: "val" for tuning, else "test"
    seed: int
    steps: int
    settings: tuple  # ((dotted key, value), ...) beyond [base] and the method's own loss
    tuned: bool  # start from the method's tuned settings?

    @property
    def grid(self) -> str:
        return self.name.split("/")[0] if self.name.startswith(("tune/", "main/")) else "ablations"


GRIDS = ("tune", "main", "ablations")
UNTRAINED = ("raw pixels", "untrained")  # rivals that learn nothing


def glyph_file(device: str = "cpu") -> Path:
    "Where the rows of a device's comparison are kept; on CUDA beside everything else that the GPU suite measures."
    return Path("docs") / "results" / ("gpu-suite.json" if device == "cuda" else "glyph-claims-cpu.json")


def glyph_runs(device: str = "cpu") -> list[GlyphRun]:
    """Every run of the comparison, in the order in which they are done: tuning, the main comparison seed by seed,
    ablations.

    Args:
        device: "cpu" or "cuda"; the latter has a larger network, larger pictures and more steps.
    """
    plan = read_papers("glyphs.toml")
    budget = plan["budget"] | (plan["cuda"]["budget"] if device == "cuda" else {})
    seeds, steps, runs = budget["seeds"], budget["steps"], []
    for method, entry in plan["methods"].items():
        ((knob, values),) = entry["tune"].items()
        for rate in budget["rates"]:
            for value in values:
                settings = (("optim.lr", rate), ("optim.head_lr", rate), *((key, value) for key in knob.split("+")))
                runs.append(
                    GlyphRun(
                        f"tune/{method}/lr={rate:g}, {knob.split('.')[-1]}={value:g}",
                        method,
                        "val",
                        seeds[0],
                        budget["tune_steps"],
                        settings,
                        False,
                    )
                )
    for seed in seeds:
        runs += [
            GlyphRun(f"main/{method}/seed{seed}", method, "test", seed, steps, (), True) for method in plan["methods"]
        ]
        runs += [
            GlyphRun(f"main/{rival}/seed{seed}", rival, "test", seed, 0, (), False)
            for rival in UNTRAINED
            if seed == seeds[0] or rival == "untrained"
        ]
    for name, entry in plan["ablations"].items():
        for point in entry["points"]:
            settings = {**point}
            share = settings.pop("steps", 1.0)
            value = {
                "B": plan["base"]["batch.images"] * point.get("batch.classes", 0),
                "steps": round(steps * share),
            }.get(entry["label"]) or list(settings.values())[-1]
            runs.append(
                GlyphRun(
                    f"{name}/{entry['label']}={value:g}",
                    entry["method"],
                    "test",
                    seeds[0],
                    round(steps * share),
                    tuple(settings.items()),
                    True,
                )
            )
    return runs


def tuned_settings(method: str, rows: dict, device: str = "cpu") -> tuple:
    """The settings of the method's best tuning run.

    Raises:
        ConfigError: a tuning run is missing, or all of them failed.
    """
    wanted = [r for r in glyph_runs(device) if r.grid == "tune" and r.method == method]
    missing = [r.name for r in wanted if not is_done(rows, r.name)]
    if missing:
        raise ConfigError(
            f"{method} is not tuned yet ({len(missing)} of {len(wanted)} runs are missing): smoothap reproduce glyphs "
            f"--grid tune"
        )
    select = read_papers("glyphs.toml")["methods"][method]["select"]
    good = [r for r in wanted if rows[r.name]["metrics"]]
    if not good:
        raise ConfigError(
            f"every tuning run of {method} failed, so there is nothing to choose from: {rows[wanted[0].name]['failed']}"
        )
    return max(good, key=lambda r: rows[r.name]["metrics"][select]).settings


def glyph_experiment(run: GlyphRun, rows: dict, device: str = "cpu", changes: dict | None = None) -> Experiment:
    "The experiment of a run, tuned settings included; `changes` go on top of everything."
    plan = read_papers("glyphs.toml")
    loss = (
        plan["methods"][run.method]["loss"] if run.method in plan["methods"] else plan["methods"]["smooth-ap"]["loss"]
    )
    larger = {k: v for k, v in plan["cuda"].items() if k != "budget"} if device == "cuda" else {}
    tuned = dict(tuned_settings(run.method, rows, device)) if run.tuned else {}
    fixed = {
        "name": f"glyphs/{run.name}",
        "seed": run.seed,
        "loss": loss,
        "optim.steps": max(1, run.steps),
        "optim.warmup": run.steps // 12,
        "checkpoint_every": max(1, run.steps),
    }
    return experiment_from_dict(nest(plan["base"], larger, fixed, tuned, dict(run.settings), changes or {}))


def run_glyphs(run: GlyphRun, experiment: Experiment, device: str = "cpu", threads: int = 1) -> dict:
    """Train and measure one run; returns its row, ready for JSON.

    Args:
        run: which one.
        experiment: of `glyph_experiment`.
        device: "cpu" or "cuda".
        threads: of torch on a CPU; one, so that the numbers depend on nothing else.
    """
    import torch

    from ..metrics.dataset import evaluate
    from ..data.glyphs import Glyphs
    from ..train import embed, environment, fit, prepare
    from ..train.measure import images_of_classes, pixel_embeddings

    if device == "cpu":
        torch.set_num_threads(threads)
    started, cpu, root = (
        time.perf_counter(),
        time.process_time(),
        None if experiment.data.root == "none" else experiment.data.root,
    )
    here = environment(torch.device(device))
    with tempfile.TemporaryDirectory() as folder:
        training = prepare(experiment, Path(folder), torch.device(device)) if run.method != "raw pixels" else None
        if run.steps and training is not None:
            fit(training, progress=False, tensorboard=False)
    data = Glyphs(run.split, size=experiment.data.size, strength=experiment.data.strength, seed=0, root=root)
    chosen = images_of_classes(data, experiment.evaluate.classes, 0)
    labels = data.labels[chosen]
    data = data.to(device)
    rows = (
        pixel_embeddings(data, chosen)
        if training is None
        else embed(training.model, data, chosen, experiment.evaluate.batch, progress=False)
    )
    found = evaluate(rows, labels, metrics=tuple(experiment.evaluate.metrics), device=device, progress=False)
    return {
        "method": run.method,
        "seed": run.seed,
        "split": run.split,
        "steps": experiment.optim.steps if run.steps else 0,
        "settings": dict(run.settings),
        "images": len(chosen),
        "metrics": {k: round(v, 6) for k, v in found.items()},
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "environment": here,
        "config": experiment.to_dict(),
    }


def _in_a_process(run: GlyphRun, experiment: Experiment, device: str) -> dict:
    "`run_glyphs` in a process of its own, with one thread where it computes on a CPU."
    code = (
        "import json, sys; from smoothap_nb.train.config import experiment_from_dict; from "
        "smoothap_nb.reproduction.study import GlyphRun, run_glyphs; "
        "given = json.load(sys.stdin); run = GlyphRun(**given['run']); "
        "row = run_glyphs(run, experiment_from_dict(given['experiment']), given['device']); print(chr(10) + "
        "json.dumps(row))"
    )
    given = json.dumps({"run": vars(run), "experiment": experiment.to_dict(), "device": device})
    one = {key: "1" for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")} if device == "cpu" else {}
    home = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=given,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            **one,
            "PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")])),
        },
    )
    if done.returncode:
        raise ConfigError(f"{run.name} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def read_rows(path) -> tuple[dict, list[str]]:
    """The rows of a comparison, and what is wrong with the file (nothing where it does not exist yet).

    Returns:
        rows by name; complaints, each naming the file.
    """
    path = Path(path)
    if not path.exists():
        return {}, []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        good = {
            name: row for name, row in rows.items() if isinstance(row, dict) and isinstance(row.get("metrics"), dict)
        }
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        return {}, [f"{path} cannot be read and is skipped: {reason(error)}"]
    return good, [f"{path}: the row {name!r} is damaged and is skipped" for name in rows if name not in good]


def glyph_grid(
    grid: str = "all",
    device: str = "cpu",
    path=None,
    workers: int = 1,
    changes: dict | None = None,
    only: str = "",
    minutes: float = 0,
    say=print,
) -> dict:
    """Do the runs of a grid that are not in the file yet, or there with other settings than the plan's; each row is
    stored as soon as it is done.

    Args:
        grid: "tune", "main", "ablations" or "all".
        device: "cpu" or "cuda".
        path: the JSON file; `glyph_file(device)` when left out.
        workers: runs side by side, each in a process with one thread, so that the numbers do not depend on it.
        changes: settings on top of every run, {"optim.steps": 2}: for trials; the rows then say so in their `config`.
        only: do only runs whose name holds this text.
        minutes: start no run after so many minutes, 0 = no limit.
        say: called with a line of text for each row.

    Returns:
        all rows of the file.

    Raises:
        ConfigError: an unknown grid, a damaged file, a run that failed, or runs before their tuning.
    """
    if grid not in (*GRIDS, "all"):
        raise ConfigError(f"--grid is {grid!r}: {nearest(grid, [*GRIDS, 'all'])}")
    path = Path(path or glyph_file(device))
    rows, trouble = read_rows(path)
    if trouble:
        raise ConfigError(f"{trouble[0]}. Mend it or move it away: its rows would be lost")
    runs, lock, started = glyph_runs(device), threading.Lock(), time.perf_counter()

    def one(run: GlyphRun) -> None:
        if minutes and time.perf_counter() - started > 60 * minutes:
            return
        experiment = glyph_experiment(run, rows, device, changes)
        same = _twin(run, experiment, rows)
        row = (
            {**rows[same], "same_run_as": rows[same].get("same_run_as", same)}
            if same
            else _attempt(run, experiment, device)
        )
        with lock:
            rows[run.name] = row
            known = {name: rows[name] for name in dict.fromkeys([*(r.name for r in runs), *rows]) if name in rows}
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, json.dumps({"rows": known}, indent=1, ensure_ascii=False) + "\n")
        if row.get("failed"):
            return say(f"{run.name}: failed, {row['failed']}")
        say(
            f"{run.name}: mAP {row['metrics']['mAP']:.4f}, R@1 {row['metrics']['R@1']:.4f} "
            f"({'same run as ' + same if same else str(row['seconds']) + ' s'})"
        )

    for part in GRIDS if grid == "all" else (grid,):
        todo = [
            r
            for r in runs
            if r.grid == part
            and only in r.name
            and not (is_done(rows, r.name) and _of_the_plan(r, rows, device, changes))
        ]
        for run in todo:
            if is_done(rows, run.name):
                say(f"{run.name}: made with other settings than the plan's, so it is done again")
        with ThreadPoolExecutor(workers) as pool:
            for waiting in [pool.submit(one, r) for r in todo]:
                waiting.result()
    return rows


def _twin(run: GlyphRun, experiment: Experiment, rows: dict) -> str | None:
    "The name of a row that the same training on the same split has made already, if there is one."
    for name, row in rows.items():
        alike = row.get("split") == run.split and row.get("method") == run.method
        if alike and _same(row["config"], experiment.to_dict()):
            return name
    return None


def _attempt(run: GlyphRun, experiment: Experiment, device: str) -> dict:
    "The row of a run; a run whose numbers left the finite is a row too, one that says so and has no metrics."
    from ..train.checkpoints import RunError

    try:
        return (_in_a_process if device == "cpu" else run_glyphs)(run, experiment, device)
    except (ConfigError, RunError, ValueError) as error:
        if not any(word in str(error) for word in ("NaN", "the loss is")):
            raise
        return {
            "method": run.method,
            "seed": run.seed,
            "split": run.split,
            "settings": dict(run.settings),
            "metrics": {},
            "failed": str(error),
            "config": experiment.to_dict(),
        }


def is_done(rows: dict, name: str) -> bool:
    "Is the row there, with numbers or with a failure? (The GPU suite also writes rows that say why they were not run.)"
    row = rows.get(name, {})
    return bool(row.get("metrics") or row.get("failed"))


def _of_the_plan(run: GlyphRun, rows: dict, device: str = "cpu", changes: dict | None = None) -> bool:
    "Was the row made with the settings that the plan gives the run now?"
    try:
        planned = glyph_experiment(run, rows, device, changes)
    except ConfigError:  # the tuning is gone, so nobody can tell
        return True
    try:
        return _same(rows[run.name]["config"], planned.to_dict())
    except (ConfigError, KeyError):
        return False


def _same(a: dict, b: dict) -> bool:
    "Are two experiments the same but for what cannot change a number?"
    from ..train.runs import differences

    return not differences(experiment_from_dict(a), experiment_from_dict(b))


def _write(path: Path, text: str) -> None:
    from ..files import write_atomic

    write_atomic(path, text)
