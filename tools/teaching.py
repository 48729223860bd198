"""Measure what a class will wait for: every lesson and every problem set, run from top to bottom in a fresh kernel.

    python tools/teaching.py            measure all, write docs/results/teaching.json
    python tools/teaching.py set3 10    measure these only, keep the rest of the file
    python tools/teaching.py slides FOLDER    the lessons' figures as PNG files, and index.md with what each shows

What is kept is the CPU time of the kernel on one thread, imports included: it depends on the machine, not on what
    else runs there.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import re
import resource
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from course import in_order
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "docs" / "results" / "teaching.json"
LESSONS = (
    "01",
    "02",
    "03",
    "04",
    "05",
    "06",
    "07",
    "08",
    "10",
    "11",
    "12",
    "13",
    "14",
    "15",
    "16",
    "17",
    "18",
    "20",
    "21",
)


def notebooks() -> dict[str, Path]:
    "What is measured, by name: the lessons, and the source notebooks of the sets."
    lessons = {p.stem: p for p in sorted((ROOT / "nbs").glob("*.ipynb")) if p.stem[:2] in LESSONS}
    return lessons | {p.stem: p for p in in_order(ROOT / "course" / "source")}


def cpu_seconds(path: Path) -> float:
    "CPU time of a fresh kernel that runs the whole notebook."
    with tempfile.TemporaryDirectory() as folder:
        place = path.parent
        if place.name.startswith("set"):  # as a student has it: the helpers beside it
            place = Path(folder) / place.name
            shutil.copytree(path.parent, place)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        NotebookClient(
            nbformat.read(path, as_version=4),
            timeout=600,
            kernel_name="python3",
            resources={"metadata": {"path": str(place)}},
        ).execute()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def slides(folder: Path) -> int:
    "Write every committed figure of the lessons; return how many there are."
    folder.mkdir(parents=True, exist_ok=True)
    lines, count = ["# Figures of the lessons", ""], 0
    for path in sorted((ROOT / "nbs").glob("*.ipynb")):
        if path.stem[:2] not in LESSONS:
            continue
        section = path.stem
        for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
            section = (
                (re.findall(r"^#+ (.+)$", cell.source, re.M) or [section])[-1]
                if cell.cell_type == "markdown"
                else section
            )
            for output in cell.get("outputs", []):
                picture = output.get("data", {}).get("image/png")
                if picture:
                    shown = output["metadata"].get("image/png", {}).get("alt", section)
                    name = (
                        f"{path.stem[:2]}-{number:03d}-{re.sub(r'[^a-z0-9]+', '-', shown.lower())[:50].strip('-')}.png"
                    )
                    (folder / name).write_bytes(base64.b64decode(picture))
                    lines += [f"## {path.stem[:2]}, {section}", "", f"![{shown}]({name})", "", shown, ""]
                    count += 1
    (folder / "index.md").write_text("\n".join(lines), encoding="utf-8")
    return count


def main(wanted: list[str]) -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    sys.path.insert(0, str(ROOT))
    import torch
    from smoothap_nb.train.machine import environment

    found = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {"cpu_seconds": {}}
    for name, path in notebooks().items():
        if not wanted or any(name.startswith(w) for w in wanted):
            found["cpu_seconds"][name] = round(cpu_seconds(path), 1)
            print(f"{name}: {found['cpu_seconds'][name]} s", flush=True)
    found["cpu_seconds"] = {name: found["cpu_seconds"][name] for name in notebooks() if name in found["cpu_seconds"]}
    found |= {
        "command": "python tools/teaching.py",
        "date": datetime.date.today().isoformat(),
        "environment": environment(torch.device("cpu")),
    }
    RESULT.write_text(json.dumps(found, indent=1, default=str) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["slides"]:
        if len(sys.argv) != 3:
            raise SystemExit("say where: python tools/teaching.py slides FOLDER")
        print(f"{slides(Path(sys.argv[2]))} figures in {sys.argv[2]}, described in index.md")
    else:
        main(sys.argv[1:])
