"""The folder of a run: what a run writes into it, who trains in it now, and its description that a person may have
written."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

from ..checks import ConfigError
from ..files import write_atomic
from .checkpoints import RunError
from .config import Experiment, experiment_from_dict, to_toml, toml_value

__all__ = ["WRITTEN", "STOPPED", "foreign_files", "clear_run", "took_a_step", "hold", "describe"]

STOPPED = "stopped.json"  # a run that ended because its loss was no number: where, and why
# what a run writes, and in folders of its own the names of what lies in them
WRITTEN = {
    "experiment.toml": "", "log.csv": "", "validation.csv": "", "run.json": "", "metrics.json": "", "report.html": "",
    "reproduce.json": "", "detection.json": "", "model.safetensors": "", "best.safetensors": "", STOPPED: "",
    "checkpoints": "step-*", "tensorboard": "events.out.tfevents.*",
}  # fmt: skip
_PASSING = re.compile(r"\.lock|\.(experiment\.toml|.*\.part)(\..*)?|\.writing-\d+")  # there while something is written


def foreign_files(run: Path) -> list[str]:
    "What lies in a run's folder and was not written by a run, relative to it."
    out = []
    for path in sorted(run.iterdir()):
        if path.name not in WRITTEN and not _PASSING.fullmatch(path.name):
            out.append(path.name)
        elif WRITTEN.get(path.name) and path.is_dir():
            out += [
                f"{path.name}/{inner.name}"
                for inner in sorted(path.iterdir())
                if not inner.match(WRITTEN[path.name]) and not _PASSING.fullmatch(inner.name)
            ]
    return out


def clear_run(run: Path, keep: tuple[str, ...] = ("experiment.toml",)) -> None:
    """Delete what a run wrote.

    Args:
        run: its folder.
        keep: names that stay; a description may hold a person's comments.

    Raises:
        RunError: the folder holds other files too. Nothing is deleted then.
    """
    if others := foreign_files(run):
        more = f" and {len(others) - 3:,} more" if len(others) > 3 else ""
        raise RunError(
            f"{run} also holds what no run wrote ({', '.join(others[:3])}{more}): move it away, or name another "
            "folder with --run. Nothing was deleted"
        )
    for name in WRITTEN:
        path = run / name
        if name in keep or not path.exists():
            continue
        for inner in path.iterdir() if path.is_dir() else (path,):  # a folder may be a link to another disk: it stays
            shutil.rmtree(inner) if inner.is_dir() and not inner.is_symlink() else inner.unlink()


def took_a_step(run: Path) -> bool:
    "Would something be lost if the run started over: a checkpoint after a step, or finished weights?"
    steps = [path.name for path in (run / "checkpoints").glob("step-*")]
    return (run / "model.safetensors").exists() or any(int(name[5:] or 0) > 0 for name in steps if name[5:].isdigit())


@contextlib.contextmanager
def hold(run: Path) -> Iterator[None]:
    """One training in a folder at a time, as long as the block lasts. The lock goes with the process, however it ends.

    Where the folder cannot be written, or its file system has no locks, nothing is held.

    Raises:
        RunError: another process trains there; its number is named.
    """
    file = _locked(Path(run))
    try:
        yield
    finally:
        if file is not None:
            with contextlib.suppress(OSError):
                os.unlink(Path(run) / ".lock")  # while it is ours; who waits looks at the name again
            file.close()


def _locked(run: Path):
    "The open and locked file `.lock` of a folder, or None where there are no locks."
    try:
        import fcntl

        run.mkdir(parents=True, exist_ok=True)
        while True:
            file = open(run / ".lock", "a+", encoding="utf-8")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                who = file.read().strip() or "another process"
                file.close()
                raise RunError(
                    f"{who} is training in {run} right now: wait for its end, or name another folder with --run"
                ) from None
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(run / ".lock")):
                    file.truncate(0)
                    file.write(f"process {os.getpid()} on {platform.node()}\n")
                    file.flush()
                    return file
            file.close()  # its owner has just gone and taken the name along: once more
    except (ImportError, OSError):
        return None


def describe(path: Path, experiment: Experiment) -> None:
    """Write a run's experiment.toml: every setting, in the file that is there already, whose comments stay.

    Args:
        path: of the file; it may be there or not.
        experiment: what it must say afterwards.
    """
    wanted, there = to_toml(experiment), None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        there = path.read_text(encoding="utf-8")
    if there is not None and "#" in there:
        wanted = _with_comments(there, experiment) or wanted + "\n# The file as it was:\n" + "".join(
            f"# {line}\n".replace(" \n", "\n") for line in there.splitlines()
        )
    if wanted != there:
        write_atomic(path, wanted)


_TABLE = re.compile(r"\s*\[\s*([A-Za-z0-9_-]+)\s*\]\s*(#.*)?")
_SETTING = re.compile(r"\s*([A-Za-z0-9_-]+)\s*=.*")


def _with_comments(text: str, experiment: Experiment) -> str | None:
    "A description with its values changed and the missing ones added; None where its form is beyond us."
    values = experiment.to_dict()
    left = {"": {k: v for k, v in values.items() if not isinstance(v, dict)}}
    left |= {k: dict(v) for k, v in values.items() if isinstance(v, dict)}
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        if table := _TABLE.fullmatch(line):
            parts.append((table[1], [line]))
            continue
        name, lines = parts[-1]
        setting = _SETTING.fullmatch(line)
        if setting and setting[1] in left.get(name, {}):
            line = _changed(line, setting[1], left[name].pop(setting[1]))
        lines.append(line)
    out: list[str] = []
    for name, lines in parts:
        end = len(lines)
        while end and not lines[end - 1].strip():
            end -= 1
        added = [f"{key} = {toml_value(value)}" for key, value in left.pop(name, {}).items()]
        out += [*lines[:end], *added, *lines[end:]]
    for name, table in left.items():
        out += ["", f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in table.items())]
    merged = "\n".join(out) + "\n"
    try:
        read = experiment_from_dict(tomllib.loads(merged))
    except (tomllib.TOMLDecodeError, ConfigError):
        return None
    return merged if json.dumps(read.to_dict()) == json.dumps(experiment.to_dict()) else None


def _changed(line: str, key: str, value) -> str:
    "The line of a setting with that value; what stands behind it stays."
    for end in [i for i, letter in enumerate(line) if letter == "#"] + [len(line)]:
        try:
            old = tomllib.loads(line[:end])[key]
        except (tomllib.TOMLDecodeError, KeyError):
            continue
        return line if old == value else f"{key} = {toml_value(value)}" + ("  " + line[end:] if line[end:] else "")
    return line
