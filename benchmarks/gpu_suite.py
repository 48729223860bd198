"""What a CUDA device is asked, the most telling first; stopped at any time, taken up again where it stopped.

    python -m benchmarks.gpu_suite                        everything that docs/results/gpu-suite.json does not hold yet
    python -m benchmarks.gpu_suite --minutes 9            start nothing that would not be done by then
    python -m benchmarks.gpu_suite --out FILE.json        another results file
    python -m benchmarks.gpu_suite --list                 the rows, and whether they are there
    python -m benchmarks.gpu_suite --only loss/           rows whose name holds this text
    python -m benchmarks.gpu_suite --tiny --out FILE      toy sizes, on a CPU too: shows that everything runs
    python -m benchmarks.gpu_suite --dry                  toy sizes on a pretended card (benchmarks/pretend.py): no
                                                          row may fail for a reason that a CPU could have shown

Needs torch, torchvision and this package; rows that need more (pytest) say so and are left out where it is missing.
Without a CUDA device every row is written as not run. `smoothap reproduce --render` puts the rows on
docs/reproduction.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Callable

import torch

from benchmarks.gpu_rows import (
    ROOT,
    NotHere,
    caching,
    demo,
    kernel_against_torch,
    one_row_of_a_table,
    parity_by_pytest,
    parity_of_losses,
    parity_of_metrics,
    throughput,
    time_of_evaluation,
    time_of_list,
    time_of_losses,
    time_of_smooth_ap,
)

FILE = ROOT / "docs" / "results" / "gpu-suite.json"


@dataclass(frozen=True)
class Item:
    "One row: `measure(device, tiny)` returns its numbers."

    name: str
    measure: Callable
    seconds: float = 20  # guess of what it takes on a recent device, for --minutes
    config: dict | None = None


# --- the list ---------------------------------------------------------------------------------------------------------

def items() -> list[Item]:
    "Everything, the most telling first."
    from benchmarks.evaluation import INATURALIST, SOP

    beside = "loss/Smooth-AP, kernel against PyTorch, batch"
    return [
        Item("parity/losses", parity_of_losses, 15),
        Item("parity/metrics", parity_of_metrics, 15),
        Item("parity/pytest -m cuda", parity_by_pytest, 90),
        Item("training/ResNet-50, 224 px, bfloat16, batch 384", throughput("device"), 60),
        Item("command/reproduce, two rows on miniatures", one_row_of_a_table, 40),
        Item("loss/batch 384", time_of_losses(384), 15, {"B": 384, "dim": 512}),
        Item("loss/Smooth-AP, batch 16384", time_of_smooth_ap(16384), 15, {"B": 16384, "dim": 512}),
        *(
            Item(f"{beside} {n}", kernel_against_torch(n), 15, {"B": n, "dim": 512, "images a class": 4})
            for n in (384, 4096, 16384)
        ),
        Item(f"{beside} 4096 of 8 classes", kernel_against_torch(4096, 512), 20, {"B": 4096, "images a class": 512}),
        Item("command/train demo-cuda, ResNet-50 on Glyphs", demo, 200),
        Item("training/from the decoded cache", throughput("cache"), 90),
        Item("training/from JPEG files", throughput("files"), 90),
        Item("training/gradient caching, ResNet-50, 224 px", caching, 60),
        Item("loss/batch 4096", time_of_losses(4096), 40, {"B": 4096, "dim": 512}),
        *(
            Item(f"list/RaMBO, {n:.0e} scores".replace("e+0", "e"), time_of_list(n), 15, {"length": n})
            for n in (10**5, 10**6, 10**7, 10**8)
        ),
        Item("evaluation/shape of SOP", time_of_evaluation(**SOP), 40, SOP),
        Item("evaluation/shape of iNaturalist", time_of_evaluation(**INATURALIST), 90, INATURALIST),
    ]


def measure_items(
    path: Path = FILE, device: str | None = None, minutes: float = 0, only: str = "", tiny: bool = False, say=print
) -> dict:
    """Measure what is not in the file yet, row by row.

    Args:
        path: the results file; written after every row.
        device: "cuda" or "cpu"; the latter only makes sense with `tiny`.
        minutes: start nothing that is guessed to end later than this; 0 = no limit.
        only: rows whose name holds this text.
        tiny: toy sizes.
        say: called with lines of text.

    Returns:
        the rows of the file.

    Raises:
        ConfigError: a damaged results file.
    """
    from smoothap_nb.checks import ConfigError
    from smoothap_nb.reproduction import read_rows
    from smoothap_nb.files import write_atomic
    from smoothap_nb.train.machine import environment

    rows, trouble = read_rows(path)
    if trouble:
        raise ConfigError(f"{trouble[0]}. Mend it or move it away: its rows would be lost")
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    wanted, started = [item for item in items() if only in item.name], time.perf_counter()
    for item in wanted:
        if rows.get(item.name, {}).get("metrics"):
            continue
        if minutes and time.perf_counter() - started + item.seconds > 60 * minutes:
            say(f"stopped before {item.name}: {minutes:g} minutes are nearly over. The same command goes on from here")
            break
        here = {
            "seed": 0,
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "environment": environment(device),
            "config": item.config or {},
            "tiny": tiny,
        }
        begun = time.perf_counter()
        try:
            if device.type == "cpu" and not tiny:
                raise NotHere("needs a CUDA device")
            found = item.measure(device, tiny)
            rows[item.name] = {**here, "metrics": found, "seconds": round(time.perf_counter() - begun, 1)}
        except NotHere as error:
            rows[item.name] = {"metrics": {}, "not_run": str(error)}
        except Exception as error:  # one row that fails, or does not fit, must not end the list
            said = (str(error).splitlines() or ["no message"])[0]
            rows[item.name] = {"metrics": {}, "not_run": f"{type(error).__name__}: {said}", "failed": True}
        order = dict.fromkeys([*(i.name for i in items()), *rows])
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(
            path,
            json.dumps({"rows": {name: rows[name] for name in order if name in rows}}, indent=1, ensure_ascii=False)
            + "\n",
        )
        row = rows[item.name]
        say(
            f"{item.name}: "
            + (", ".join(f"{k} {v:.4g}" for k, v in row["metrics"].items()) or f"not run, {row['not_run']}")
        )
    return rows


def dry_run(only: str = "", say=print) -> list[str]:
    """Every row in toy sizes on a pretended card; the numbers mean nothing and are kept nowhere.

    Returns:
        the names of the rows that failed.
    """
    from benchmarks.pretend import pretended_cuda

    with tempfile.TemporaryDirectory() as folder, pretended_cuda():
        rows = measure_items(Path(folder) / "rows.json", "cuda", only=only, tiny=True, say=say)
    return [name for name, row in rows.items() if row.get("failed")]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_suite", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, default=0, help="start nothing that would end later than this; 0 = no limit"
    )
    parser.add_argument("--out", type=Path, default=FILE, help="results file (default: docs/results/gpu-suite.json)")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--tiny", action="store_true", help="toy sizes, on a CPU too")
    parser.add_argument("--dry", action="store_true", help="toy sizes on a pretended card, kept nowhere")
    parser.add_argument("--list", action="store_true", help="print the rows and stop")
    args = parser.parse_args(argv)
    if args.tiny and args.out == FILE:
        parser.error("--tiny numbers mean nothing: give them a file of their own with --out")
    from smoothap_nb.checks import ConfigError
    from smoothap_nb.reproduction import read_rows

    if args.dry:
        failed = dry_run(args.only)
        print(f"{len(failed)} rows failed: {', '.join(failed)}" if failed else "no row failed")
        return int(bool(failed))
    if args.list:
        rows, trouble = read_rows(args.out)
        for item in items():
            if args.only in item.name:
                print(f"{'there' if rows.get(item.name, {}).get('metrics') else 'not run':<9}{item.name}")
        print("\n".join(trouble))
        return 0
    try:
        measure_items(
            args.out, "cpu" if args.tiny and not torch.cuda.is_available() else None, args.minutes, args.only, args.tiny
        )
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
