"""The leaderboard of the research project (set 8): run every submitted recipe again, under the budget, and rank by
what comes out.

    python course/leaderboard.py [course/submitted] [--out course/leaderboard.md] [--seeds 2] [--secret 20250101]

Reads STUDENT/set8_research_project/submission.json, a recipe of settings in plain JSON. Nothing that a student hands in
is executed or unpickled.

Why recipes and not embeddings: the labels of all glyphs are public (they are Unicode names), so perfect embeddings
    can be made without a network, and
a budget can only be checked by whoever holds the clock. The board trains each recipe itself, in a process of its own
with a limit on time and memory, on seeds and distortions of its own, and ranks the *test* characters, which the problem
set never shows. Nobody gains by a lucky seed. With --embeddings it also lists embeddings.safetensors (a tensor
"embeddings", one row per picture of `held_out("test", secret)`), measured anew from the rows; that list is for methods
that no recipe can express, it stands apart, and it proves nothing about who made them.

Results are kept in a JSON file beside the board: a recipe that was run before is not run again.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SET = "set8_research_project"
sys.path.insert(0, str(HERE / "source" / SET))
LARGEST_EMBEDDINGS = 64 << 20  # bytes


def fingerprint(recipe: dict, secret: int, seeds: int) -> str:
    "What decides a measurement: the recipe, the board's seeds, the workbench, the library's version."
    import smoothap_nb
    import torch

    parts = [
        json.dumps(recipe, sort_keys=True),
        str(secret),
        str(seeds),
        (HERE / "source" / SET / "project.py").read_text(),
        smoothap_nb.__version__,
        torch.__version__,
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def run_recipe(recipe: dict, secret: int, seeds: int) -> dict:
    "Train and measure on the board's own seeds: runs inside the limited process."
    import project

    values, started = [], time.process_time()
    for n in range(seeds):
        ap, _ = project.measure(project.train(recipe, "full", secret + n), "test", secret)
        values.append(float(ap.mean()))
    return {"mAP": sum(values) / seeds, "values": values, "cpu_seconds": time.process_time() - started}


def run_limited(recipe: dict, secret: int, seeds: int, seconds: int) -> dict:
    """`run_recipe` in another process with a limit on CPU time, wall time and memory; an `error` where it does not end
    well.
    """
    def limits():
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))

    words = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--one",
        json.dumps(recipe),
        "--secret",
        str(secret),
        "--seeds",
        str(seeds),
    ]
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=3 * seconds,
            preexec_fn=limits if os.name == "posix" else None,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {3 * seconds} s"}
    if done.returncode:
        return {
            "error": f"took more than {seconds} s of CPU time"
            if done.returncode in (-9, -24)
            else (done.stderr.strip().splitlines() or ["it stopped"])[-1][:200]
        }
    return json.loads(done.stdout.splitlines()[-1])


def read_embeddings(path: Path, rows: int):
    """The tensor of a safetensors file, checked.

    Raises:
        project.RecipeError: not a small safetensors file with one finite float tensor of the right shape.
    """
    import torch
    from project import RecipeError
    from safetensors import SafetensorError, safe_open

    if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST_EMBEDDINGS:
        raise RecipeError(f"{path.name} must be a file of at most {LARGEST_EMBEDDINGS >> 20} MB")
    try:
        with safe_open(path, "pt") as file:
            if list(file.keys()) != ["embeddings"]:
                raise RecipeError(f"{path.name} must hold one tensor named embeddings")
            found = file.get_tensor("embeddings")
    except SafetensorError as error:
        raise RecipeError(f"{path.name} is not safetensors: {error}") from None
    if found.ndim != 2 or len(found) != rows or not 1 <= found.shape[1] <= 4096 or not found.is_floating_point():
        raise RecipeError(f"embeddings have shape {tuple(found.shape)}, they need ({rows}, D) floats")
    found = found.float()
    if not torch.isfinite(found).all() or not (found.norm(dim=1) > 0).all():
        raise RecipeError("embeddings hold NaN, infinity or a row of zeros")
    return found


def collect(
    folder: Path, secret: int, seeds: int, seconds: int, cache: Path, with_embeddings: bool, say=print
) -> list[dict]:
    "One entry per student: what was claimed, what came out, or why it could not be run."
    import project

    try:
        known = json.loads(cache.read_text()) if cache.exists() else {}
    except ValueError:
        known = {}  # a file that was cut short: run again
    entries = []
    for home in sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink()) if folder.is_dir() else []:
        place = home / SET
        if not place.is_dir():
            continue
        entry = {"student": home.name, "name": home.name}
        try:
            if place.is_symlink():
                raise project.RecipeError("the folder is a link; hand in files")
            recipe = (place / "submission.json").exists()
            rows = with_embeddings and (place / "embeddings.safetensors").exists()
            if not recipe and not rows:
                raise project.RecipeError(
                    "no submission.json beside the notebook: run the last cell of task 4 and hand the file in"
                )
            if recipe:
                sent = project.read_submission(place / "submission.json")
                key = fingerprint(sent["recipe"], secret, seeds)
                if key not in known:
                    say(
                        f"{home.name}: training, {project.cost(sent['recipe']) / 1e9:.0f} billion multiply-adds × "
                        f"{seeds} seeds"
                    )
                    found = run_limited(sent["recipe"], secret, seeds, seconds)
                    if "error" not in found:  # a failure may be the machine's: try again next time
                        known[key] = found
                        cache.write_text(json.dumps(known, indent=1))
                    entry |= found
                else:
                    entry |= known[key]
                entry |= {"name": sent["name"], "claim": sent["claim"], "cost": project.cost(sent["recipe"]),
                          "changed": {k: v for k, v in sent["recipe"].items() if v != project.BASELINE[k]}}
            if rows:
                _, labels = project.held_out("test", secret)
                entry["from_embeddings"] = float(
                    project.ap_per_query(read_embeddings(place / "embeddings.safetensors", len(labels)), labels).mean()
                )
        except project.RecipeError as error:
            entry["error"] = str(error)
        except Exception as error:  # one submission must not take the board down
            entry["error"] = f"{type(error).__name__}: {error}"[:200]
        entries.append(entry)
    return entries


def _text(words) -> str:
    "Words of a student, harmless in a Markdown table."
    plain = "".join(c if c.isprintable() else " " for c in str(words))
    return html.escape(plain).translate({ord(c): f"&#{ord(c)};" for c in "|[]`*_~\\"})


def board(entries: list[dict], seeds: int) -> str:
    "The page, in Markdown."
    ranked = sorted((e for e in entries if "mAP" in e), key=lambda e: -e["mAP"])
    lines = [
        "# Leaderboard",
        "",
        f"Test characters, mean over {seeds} seed{'s' * (seeds > 1)} of the board. In brackets lowest to highest. "
        f"There are three times as many "
        "pictures as in the validation split of the problem set, so mAP is lower here than claimed (lesson 02, *A "
        "mini-batch flatters*).",
        "",
        "| place | name | mAP | claimed (validation) | billion multiply-adds | CPU seconds | changed |",
        "|---|---|---|---|---|---|---|",
    ]
    for place, e in enumerate(ranked, 1):
        spread = f"{e['mAP']:.3f} ({min(e['values']):.3f} to {max(e['values']):.3f})"
        changed = ", ".join(f"{k} {v}" for k, v in e["changed"].items()) or "nothing"
        lines.append(
            f"| {place} | {_text(e['name'])} ({_text(e['student'])}) | {spread} | {e['claim']:.3f} | "
            f"{e['cost'] / 1e9:.0f} | {e['cpu_seconds'] / len(e['values']):.0f} | {_text(changed)} |"
        )
    free = sorted((e for e in entries if "from_embeddings" in e), key=lambda e: -e["from_embeddings"])
    if free:
        lines += [
            "",
            "## Embeddings handed in",
            "",
            "Measured from the rows; nobody has checked how they were made, and the labels are public.",
            "",
            "| name | mAP |",
            "|---|---|",
        ]
        lines += [f"| {_text(e['name'])} | {e['from_embeddings']:.3f} |" for e in free]
    failed = [e for e in entries if "error" in e]
    if failed:
        lines += [
            "",
            "## Not run",
            "",
            "| who | why |",
            "|---|---|",
            *(f"| {_text(e['student'])} | {_text(e['error'])} |" for e in failed),
        ]
    return "\n".join(lines) + "\n"


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submitted", nargs="?", default=HERE / "submitted", type=Path)
    parser.add_argument("--out", default=HERE / "leaderboard.md", type=Path)
    parser.add_argument("--seeds", default=2, type=int, help="trainings of each recipe (default 2)")
    parser.add_argument(
        "--secret",
        default=20250101,
        type=int,
        help="first seed of trainings, and seed of the distortions: keep your own to yourself",
    )
    parser.add_argument(
        "--seconds", default=900, type=int, help="CPU seconds that one recipe may take, all seeds together"
    )
    parser.add_argument(
        "--embeddings", action="store_true", help="list embeddings.safetensors too, in a table of their own"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.seeds < 1 or given.secret < 0:
        parser.error("--seeds must be 1 or more, --secret 0 or more")
    if given.one:
        print(json.dumps(run_recipe(json.loads(given.one), given.secret, given.seeds)))
        return 0
    entries = collect(
        given.submitted, given.secret, given.seeds, given.seconds, given.out.with_suffix(".json"), given.embeddings
    )
    if not entries:
        print(f"no submissions in {given.submitted}: it needs STUDENT/{SET}/submission.json", file=sys.stderr)
        return 1
    given.out.write_text(board(entries, given.seeds), encoding="utf-8")
    print(f"{given.out}: {sum('mAP' in e for e in entries)} ranked, {sum('error' in e for e in entries)} not run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
