"""The detection study: cross entropy against RaMBO's loss on glyph pages, and the paper's ablations (Table 8), with
seeds and paired intervals.

    python -m smoothap_nb.detection.study                      what is missing of the whole study, into
    docs/results/detection-pages.json python -m smoothap_nb.detection.study --only rambo         only variants whose
    name begins so python -m smoothap_nb.detection.study --seeds 3            the first three seeds

Each run is stored as soon as it ends, so that a stopped study goes on where it was. Plain file.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import hashlib
import json
import math
import statistics
from pathlib import Path

import torch

from .settings import detection_from_dict
from .training import data_for, detector_for, measure_detector, train_detector

RESULTS = Path("docs/results/detection-pages.json")
RATES = (2e-3, 4e-3, 8e-3, 1.6e-2)

COMPARISON: dict[str, dict] = {
    "cross entropy": {"loss": "cross_entropy"},
    "cross entropy, twice the steps": {"loss": "cross_entropy", "steps": 600},
    "rambo": {"loss": "rambo"},
    "rambo, margin .15": {"loss": "rambo", "margin": 0.15},
}
"""What is compared. Margin 0, lambda .5 and interclass 1/3 unless a name says otherwise; both losses run at the rate
that validation chose for them."""

ABLATIONS: dict[str, dict] = {
    "rambo, interclass 0": {"loss": "rambo", "interclass": 0.0},
    "both": {"loss": "both"},
    "rambo, twice the steps": {"loss": "rambo", "steps": 600},
    "rambo, margin .05": {"loss": "rambo", "margin": 0.05},
    "rambo, margin .02": {"loss": "rambo", "margin": 0.02},
    "rambo, margin .15, random": {"loss": "rambo", "margin": 0.15, "noise": True},
    "rambo, memory 7": {"loss": "rambo", "memory": 7},
    "rambo, lambda .1": {"loss": "rambo", "lam": 0.1},
    "rambo, lambda 2.5": {"loss": "rambo", "lam": 2.5},
}
"""The paper's Table 8 and section 5.2, one setting at a time."""


def study_runs(seeds: int) -> list[tuple[str, dict]]:
    "Name and settings of every run: those that choose the rates (on validation pages), the comparison, the ablations."
    runs = [
        (f"tune/{loss}/lr={rate:g}", {"loss": loss, "lr": rate, "test_split": "val", "seed": 100})
        for loss in ("cross_entropy", "rambo")
        for rate in RATES
    ]
    for variants in (COMPARISON, ABLATIONS):
        for seed in range(seeds):
            runs += [(f"{name}/seed {seed}", {**settings, "seed": seed}) for name, settings in variants.items()]
    return runs


def chosen_rates(rows: dict) -> dict[str, float]:
    "The learning rate of each loss with the highest AP50 on the validation pages."
    best = {}
    for loss in ("cross_entropy", "rambo"):
        tuned = {rate: rows[f"tune/{loss}/lr={rate:g}"]["measured"]["AP50"] for rate in RATES}
        best[loss] = max(tuned, key=tuned.get)
    return best | {"both": best["cross_entropy"]}


def source_digest() -> str:
    "A fingerprint of the code that a number hangs on: pages, networks, loss, training."
    home = Path(__file__).parent
    return hashlib.sha256(
        b"".join((home / f"{name}.py").read_bytes() for name in ("pages", "networks", "loss", "training"))
    ).hexdigest()[:16]


def run_study(path: Path = RESULTS, seeds: int = 3, only: str = "", extra: dict | None = None) -> dict:
    """Run what is missing and store it.

    Args:
        path: JSON file of the rows; made, or continued.
        seeds: how many of each variant.
        only: variants whose name begins with this.
        extra: settings for all runs, such as few steps for a test.

    Returns:
        what is stored: "rows" by name.
    """
    from ..files import write_atomic
    from ..train.machine import environment

    stored = (
        json.loads(path.read_text(encoding="utf-8"))
        if path.exists()
        else {"about": __doc__.splitlines()[0], "rows": {}}
    )
    rows = stored["rows"]
    for name, settings in study_runs(seeds):
        if name in rows or not (name.startswith(only) or name.startswith("tune/")):
            continue
        if not name.startswith("tune/"):
            settings = {"lr": chosen_rates(rows)[settings["loss"]], **settings}
        experiment = detection_from_dict({**settings, "name": name, **(extra or {})})
        train, test = data_for(experiment)
        for dataset in (train, test):
            [dataset[number] for number in range(len(dataset))]  # drawn before the clock starts
        model = detector_for(experiment, len(train.classes))
        losses: list[dict] = []
        facts = train_detector(model, train, experiment, lambda step, parts: losses.append(parts))
        measured = measure_detector(model, test)
        if experiment.loss == "rambo":  # the same network, ranked by a softmax whose background nobody trained
            model.roi_heads.scores = "softmax"
            measured["AP50, softmax scores"] = measure_detector(model, test)["AP50"]
        tail = losses[-max(1, len(losses) // 10) :]
        rows[name] = {
            "config": dataclasses.asdict(experiment),
            "measured": measured,
            **facts,
            "last losses": {part: statistics.mean(each[part] for each in tail) for part in tail[0]},
            "date": datetime.date.today().isoformat(),
            "environment": environment(torch.device("cpu")) | {"sources": source_digest()},
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
        print(
            f"{name}: AP50 {100 * measured['AP50']:.2f} after {facts['steps']} steps, "
            f"{facts['cpu_seconds']:.0f} CPU seconds",
            flush=True,
        )
    return stored


def paired(rows: dict, ours: str, theirs: str, metric: str = "AP50") -> tuple[int, float, float]:
    """How much better one variant is than another on the same seeds.

    Args:
        rows: of `run_study`.
        ours, theirs: names of variants.
        metric: a key of "measured".

    Returns:
        number of seeds n, mean difference in points (0 ... 100), and half the width of its 95 % interval (Student's
            t; infinite for n = 1).
    """
    gains = []
    for name in rows:
        variant, _, seed = name.rpartition("/")
        if variant == ours and f"{theirs}/{seed}" in rows:
            gains.append(100 * (rows[name]["measured"][metric] - rows[f"{theirs}/{seed}"]["measured"][metric]))
    if not gains:
        raise ValueError(f"no seed has both {ours!r} and {theirs!r}")
    n = len(gains)
    return (
        n,
        statistics.mean(gains),
        math.inf if n < 2 else student_quantile(n - 1) * statistics.stdev(gains) / math.sqrt(n),
    )


def student_quantile(freedom: int) -> float:
    "The 97.5 % quantile of Student's t."
    table = (
        12.706,
        4.303,
        3.182,
        2.776,
        2.571,
        2.447,
        2.365,
        2.306,
        2.262,
        2.228,
        2.201,
        2.179,
        2.160,
        2.145,
        2.131,
        2.120,
        2.110,
        2.101,
        2.093,
    )
    return table[freedom - 1] if freedom <= len(table) else 1.96 + 2.4 / freedom


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m smoothap_nb.detection.study",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    run_study(args.out, args.seeds, args.only)


if __name__ == "__main__":
    main()
