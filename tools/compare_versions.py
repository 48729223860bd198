"""Measure this checkout against another one of the same project, in turns, in one run.

    git worktree add ../before v0.1.0
    python tools/compare_versions.py ../before                 prints a table
    python tools/compare_versions.py ../before --record FILE   and writes it as JSON

Each round starts a fresh process of either version, one thread each; a ratio is that of the medians, beside that of the
minima.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

WORK = """
import json, sys, time
started = time.perf_counter()
import torch
torch.set_num_threads(1)
before = time.perf_counter()
import smoothap_nb
loaded = time.perf_counter() - before
def best(do, repeats):
    do()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter(); do(); times.append(time.perf_counter() - begin)
    return min(times)
out = {"import smoothap_nb (after torch)": loaded}
g = torch.Generator().manual_seed(0)
for size, repeats in ((384, 20), (4096, 2)):
    x, y = torch.randn(size, 512, generator=g, requires_grad=True), torch.arange(size) // 4
    loss = smoothap_nb.SmoothAPLoss()
    def step():
        x.grad = None
        loss(x, y).backward()
    out[f"SmoothAPLoss, B = {size}"] = best(step, repeats)
scores = torch.randn(1, 10**6, generator=g, requires_grad=True)
relevance = torch.rand(1, 10**6, generator=g) < 1e-3
def rambo():
    scores.grad = None
    smoothap_nb.blackbox_ap(scores, relevance).sum().backward()
out["blackbox_ap, 1e6 scores"] = best(rambo, 8)
rows = torch.nn.functional.normalize(torch.randn(10_000, 128, generator=g), dim=1)
labels = torch.arange(10_000) // 5
out["evaluate, N = 10,000"] = best(lambda: smoothap_nb.evaluate(rows, labels, metrics=("mAP", "R@1", "R@10"), progress=False), 2)
hap = smoothap_nb.HAPLoss()
x = torch.randn(384, 512, generator=g, requires_grad=True)
tree = torch.stack([torch.arange(384) // 16, torch.arange(384) // 4], 1)
def hierarchical():
    x.grad = None
    hap(x, tree).backward()
out["HAPLoss, B = 384"] = best(hierarchical, 8)
print(json.dumps(out))
"""  # noqa: E501


def measured(folder: Path) -> dict[str, float]:
    "Seconds of each piece of work in a fresh process of one version."
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, cwd=folder,
                          env={**os.environ, **one, "PYTHONPATH": str(folder)})
    if done.returncode:
        sys.exit(f"{folder}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    runs = [(measured(args.before.resolve()), measured(ROOT)) for _ in range(args.rounds)]
    rows = {}
    for name in runs[0][0]:
        old, new = ([pair[i][name] for pair in runs] for i in (0, 1))
        rows[name] = {"before": statistics.median(old), "now": statistics.median(new),
                      "ratio": statistics.median(new) / statistics.median(old), "ratio of minima": min(new) / min(old)}
        print(f"{name:<34} before {rows[name]['before'] * 1e3:>9.2f} ms   now {rows[name]['now'] * 1e3:>9.2f} ms   "
              f"ratio {rows[name]['ratio']:.2f} (of minima {rows[name]['ratio of minima']:.2f})")
    if args.record:
        from smoothap_nb.train.machine import environment

        import torch

        facts = {
            "command": "python tools/compare_versions.py BEFORE --record FILE",
            "date": datetime.date.today().isoformat(),
            "rounds": args.rounds,
            "threads": 1,
            "environment": environment(torch.device("cpu")),
            "rows": rows,
        }
        args.record.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
