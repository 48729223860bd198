"""Fill the tables of README.md from the files in docs/results/.

    python tools/results.py           rewrite the part between the markers
    python tools/results.py --check   say whether it would change anything
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results:demo (made by tools/results.py) -->", "<!-- end of results:demo -->"


def records(pattern: str) -> list[dict]:
    "The results files of one kind that can be read, in order; a damaged one is named and passed over."
    found = []
    for path in sorted((ROOT / "docs" / "results").glob(pattern)):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            print(f"passed over {path}: {error}", file=sys.stderr)
    return found


def demo_table() -> str:
    "What `make demo` reaches: mean over seeds, with the lowest and the highest."
    found = records("demo-seed*.json")
    if not found:
        return "`make demo`: not run."
    keys = [k for k in ("mAP", "R@1", "R@10", "R@100", "H-AP", "NDCG") if k in found[0]["metrics"]["trained"]]
    lines = ["| | " + " | ".join(keys) + " |", "|---|" + "---|" * len(keys)]
    for who in found[0]["metrics"]:
        cells = []
        for key in keys:
            values = [r["metrics"][who][key] for r in found]
            cells.append(f"{statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})")
        lines.append(f"| {who} | " + " | ".join(cells) + " |")
    first, env = found[0], found[0]["training"]["environment"]
    seconds = [r["training"]["seconds"] for r in found]
    seeds = ", ".join(str(r["seed"]) for r in found)
    lines += ["", f"`{first['experiment']}`: {first['config']['model']['backbone']}, {first['config']['data']['size']} px, {first['config']['optim']['steps']} steps; "
              f"{first['test_images']:,} pictures of {first['test_classes']:,} held-out characters, default distortion; mean (lowest to highest) over seeds {seeds}. Training took "
              f"{min(seconds):.0f} to {max(seconds):.0f} s on {env['hardware']} ({env['device']}, torch {env['torch']}), {first['date']}, commit {env['commit']}. "
              "The raw numbers are in [docs/results](docs/results)."]
    return "\n".join(lines)


def rendered() -> str:
    "README.md with its tables made anew."
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{demo_table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    new = rendered()
    if "--check" in sys.argv:
        sys.exit(0 if new == (ROOT / "README.md").read_text(encoding="utf-8") else "README.md is not what docs/results gives: run python tools/results.py")
    (ROOT / "README.md").write_text(new, encoding="utf-8")
