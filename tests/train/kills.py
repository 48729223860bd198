"""Kill a training of two processes without warning, again and again: does it end as one that nobody disturbed?

    python tests/train/kills.py FOLDER --kills 50 --seed 0

The command `smoothap train` on toy pictures, with a memory, a mixed loss and validation. The processes are forked from
this one, which has torch loaded. A blow comes a moment after a step of the log, or at any time of the start; it hits
both processes (a power cut) or one, and then the other is asked to end, as torchrun does.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "train")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

import accelerate  # noqa: F401
import pytest
import torch
from safetensors.torch import load_file

from smoothap_nb import train as T
from smoothap_nb.cli.runs import train
from smoothap_nb.train.config import to_toml
from smoothap_nb.train.faults import Stopped
from test_loop import frozen_tiny
from toydata import use_toys

STEPS = 240
SETTINGS = {
    "optim__steps": STEPS, "checkpoint_every": 3, "log_every": 1, "memory__size": 20,
    "validate": {"every": 10},
    "loss": {"terms": [{"name": "smooth_ap", "weight": 0.5}, {"name": "cluster"}]},
}  # fmt: skip


def process(rank: int, port: int, experiment: Path, run: Path, log: Path) -> int:
    "One of the two, forked; its id."
    number = os.fork()
    if number:
        return number
    code = 1
    try:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip
        with open(log, "a") as file:
            os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
        train(str(experiment), run=run, cpu=True, quiet=True)
        code = 0
    except BaseException as error:
        if not isinstance(error, Stopped):
            print(f"process {rank}: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)


def pair(experiment: Path, run: Path, log: Path) -> list[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [process(rank, port, experiment, run, log) for rank in (0, 1)]


def ended(one: int) -> int | None:
    "The exit code of a process, or None while it runs."
    found, status = os.waitpid(one, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def wait(processes: list[int], seconds: float) -> list[int | None]:
    "Exit codes, None for a process that still runs then."
    codes, until = [None] * len(processes), time.monotonic() + seconds
    while None in codes and time.monotonic() < until:
        for place, one in enumerate(processes):
            if codes[place] is None:
                codes[place] = ended(one)
        time.sleep(0.01)
    return codes


def end(processes: list[int]) -> None:
    "Ask, wait, kill: what torchrun does with those that are left."
    for one in processes:
        os.kill(one, signal.SIGTERM)
    for one, code in zip(processes, wait(processes, 10)):
        if code is None:
            os.kill(one, signal.SIGKILL)
            os.waitpid(one, 0)


def blow(processes: list[int], run: Path, draw: random.Random) -> str | None:
    "Let the two train for a while, and kill; what was hit, or None where they ended by themselves."
    rows = T.read_log(run)
    step = rows[-1]["step"] if rows else 0
    early = draw.random() < 0.2
    until = time.monotonic() + (draw.uniform(0, 2.5) if early else 120)
    target = step + draw.randint(1, 6)
    while time.monotonic() < until:
        codes = [ended(one) for one in processes]
        if any(code is not None for code in codes):
            end([one for one, code in zip(processes, codes) if code is None])
            return None
        if (rows := T.read_log(run)) and rows[-1]["step"] >= target:
            break
        time.sleep(0.002)
    time.sleep(draw.uniform(0, 0.03))
    which = draw.choice(["both", "first", "second"])
    hit = {"both": processes, "first": processes[:1], "second": processes[1:]}[which]
    for one in hit:
        os.kill(one, signal.SIGKILL)
    for one in hit:
        os.waitpid(one, 0)
    end([one for one in processes if one not in hit])
    return which


def result(run: Path) -> dict:
    "What must not depend on what befell the run."
    digest = hashlib.sha256()  # of the tensors: a file's header has its entries in any order
    for name, value in sorted(load_file(run / "model.safetensors").items()):
        digest.update(name.encode() + value.numpy().tobytes())
    log = {row["step"]: (row["loss"], row["lr"]) for row in T.read_log(run)}
    with open(run / "validation.csv", newline="") as file:
        looks = [{k: v for k, v in row.items() if k not in ("seconds", "time")} for row in csv.DictReader(file)]
    metrics = json.loads((run / "metrics.json").read_text())["metrics"]["trained"]
    return {"weights": digest.hexdigest(), "log": log, "looks": looks, "metrics": metrics}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    use_toys(pytest.MonkeyPatch())
    args.folder.mkdir(parents=True, exist_ok=True)
    experiment = args.folder / "tiny.toml"
    experiment.write_text(to_toml(frozen_tiny(**SETTINGS)))
    began = time.monotonic()
    codes = wait(pair(experiment, args.folder / "whole", args.folder / "whole.log"), 300)
    assert codes == [0, 0], (codes, (args.folder / "whole.log").read_text()[-2000:])
    draw, hits, starts = random.Random(args.seed), [], 0
    run, log = args.folder / "killed", args.folder / "killed.log"
    while len(hits) < args.kills and starts < 2 * args.kills and not (run / "model.safetensors").exists():
        starts += 1
        hits += filter(None, [blow(pair(experiment, run, log), run, draw)])
    codes = wait(pair(experiment, run, log), 300)
    assert codes == [0, 0], (codes, log.read_text()[-2000:])
    whole, killed = result(args.folder / "whole"), result(run)
    equal = {key: whole[key] == killed[key] for key in whole}
    said = {"kills": len(hits), "of": {w: hits.count(w) for w in ("both", "first", "second")}, "starts": starts + 1,
            "steps": STEPS, "equal": equal, "seconds": round(time.monotonic() - began)}  # fmt: skip
    print(json.dumps(said))
    return int(len(hits) < args.kills or not all(equal.values()))


if __name__ == "__main__":
    sys.exit(main())
