"""Rows of a study on the disk: appended whole, by several workers, through kills; and work that only one does."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..checks import ConfigError, reason
from ..files import write_atomic

__all__ = ["Ledger", "only_one"]


@contextmanager
def only_one(folder: Path, name: str, wait: bool = False) -> Iterator[bool]:
    """Hold the right to do `name`: yields whether we have it. The system takes it back when the process dies, however.

    Args:
        folder: where the lock files lie; made where it is missing.
        name: of the work, any text.
        wait: wait for the one who has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


class Ledger:
    """The rows of a study in one JSON file, all made by one plan.

    Args:
        path: the JSON file; it comes into being with the first row.
        plan: hash of the plan.
        locks: folder of the lock files.
    """

    def __init__(self, path, plan: str, locks):
        self.path, self.plan, self.locks = Path(path), plan, Path(locks)

    def rows(self) -> dict:
        """All rows by name.

        Raises:
            ConfigError: a file that cannot be read, or that another plan made.
        """
        if not self.path.exists():
            return {}
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))
            plan, rows = kept["plan"], kept["rows"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{self.path} cannot be read: {reason(error)}. Mend it or move it away") from None
        if plan != self.plan:
            raise ConfigError(
                f"{self.path} was made by the plan {plan}, and the plan is now {self.plan}: a plan is fixed before its "
                f"first run. Take the plan back, or move the file away and begin anew"
            )
        return rows

    def add(self, name: str, row: dict) -> None:
        "Append a row; what other workers have written meanwhile stays."
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with only_one(self.locks, f"file {self.path.resolve()}", wait=True):
            rows = {**self.rows(), name: {**row, "plan": self.plan}}
            lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in rows.items())
            write_atomic(self.path, f'{{"plan": {json.dumps(self.plan)}, "rows": {{\n{lines}\n}}}}\n')
