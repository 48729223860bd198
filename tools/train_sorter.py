"""Train the small sorter that comes with the package, and measure it beside the authors' networks on the same budget.

python tools/train_sorter.py                              smoothap_nb/losses/sorter.safetensors and
docs/results/sorters.json python tools/train_sorter.py --authors PATH               also their networks, from a
checkout of technicolor-research/sodeep python tools/train_sorter.py --seconds 110                CPU seconds for each
network, on one thread
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from smoothap_nb.losses.sorters import CNNSorter, LSTMSorter, save_sorter, sorter_quality, train_sorter  # noqa: E402

LENGTHS = (8, 128)


def ours(sorter, seconds: float, lengths: tuple[int, int], batch: int, lr: float) -> dict:
    "Train one of our sorters; how many steps it had, and how good it is at length 100."
    steps = loss = 0
    for steps, loss in train_sorter(sorter, seconds, lengths, batch, lr):
        if steps % 500 == 0:
            print(f"  step {steps}: {loss:.4f}", flush=True)
    return facts(sorter.eval(), steps, seconds, batch, lr)


def facts(sorter, steps: int, seconds: float, batch: int, lr: float) -> dict:
    return {
        "steps": steps,
        "cpu_seconds": seconds,
        "batch": batch,
        "lr": lr,
        "weights": sum(weight.numel() for weight in sorter.parameters()),
        "length": 100,
        "quality": sorter_quality(sorter, 100),
    }


def authors(folder: Path, kind: str, seconds: float) -> dict:
    "Train one of the authors' networks with their lists, their optimiser and their batch, for the same CPU seconds."
    sys.path.insert(0, str(folder))
    import dataset
    import model

    torch.manual_seed(0)
    network, lists = model.model_loader(kind, 100), dataset.SeqDataset(100)
    optimizer, began, steps = torch.optim.Adam(network.parameters(), 1e-3), time.process_time(), 0
    while time.process_time() - began < seconds:
        scores, places = map(torch.stack, zip(*(lists[0] for _ in range(256))))
        loss = (network(scores) - places).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"  {kind}: {steps} steps, loss {loss.item():.4f}", flush=True)
    return facts(network.eval(), steps, seconds, 256, 1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--authors", type=Path)
    parser.add_argument("--seconds", type=float, default=110.0)
    parser.add_argument("--weights", type=Path, default=ROOT / "smoothap_nb" / "losses" / "sorter.safetensors")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "sorters.json")
    args = parser.parse_args()

    from smoothap_nb.train.machine import environment

    torch.set_num_threads(1)
    torch.manual_seed(0)
    shipped, rows = LSTMSorter(32, 2), {}
    rows["ours: LSTM of 32, lists of 8 to 128 (shipped)"] = ours(shipped, args.seconds, LENGTHS, 64, 5e-3)
    save_sorter(shipped, args.weights, LENGTHS)
    rows["ours: LSTM of 32, lists of 8 to 128 (shipped)"]["other lengths"] = {
        str(length): sorter_quality(shipped, length, 100) for length in (8, 20, 50, 128, 256, 1000)
    }
    torch.manual_seed(0)
    rows["ours: CNN, lists of 100"] = ours(CNNSorter(100), args.seconds, (100, 100), 64, 1e-3)
    if args.authors is not None:
        for kind in ("lstm", "cnn"):
            rows[f"authors: {kind}, lists of 100"] = authors(args.authors, kind, args.seconds)
    stored = {
        "about": "Sorters after the same CPU seconds on one thread, on 500 held-out lists of each generator",
        "rows": rows,
        "date": datetime.date.today().isoformat(),
        "seed": 0,
        "environment": environment(torch.device("cpu")),
    }
    args.out.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
