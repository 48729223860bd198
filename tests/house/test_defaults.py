"""Every default of a public callable stands in a table: one that changes, changes results of who did not name it, and
must be changed here too, on purpose."""

from __future__ import annotations

import inspect
from pathlib import Path

import smoothap_nb

TABLE = Path(__file__).with_name("defaults.txt")


def defaults() -> dict[str, str]:
    "`callable(argument)` -> its default, as Python writes it."
    found = {}
    for name in smoothap_nb.__all__:
        value = getattr(smoothap_nb, name)
        if not callable(value):
            continue
        try:
            parameters = inspect.signature(value).parameters.values()
        except ValueError:  # an exception class
            continue
        for parameter in parameters:
            default = parameter.default
            if default is parameter.empty:
                continue
            text = getattr(default, "__name__", None) or repr(default)
            found[f"{name}({parameter.name})"] = type(default).__name__ if " at 0x" in text else text
    return found


def test_every_public_default_is_in_the_table():
    table = dict(line.split(" = ", 1) for line in TABLE.read_text(encoding="utf-8").splitlines())
    today = defaults()
    changed = {key: (table.get(key), today.get(key)) for key in {*table, *today} if table.get(key) != today.get(key)}
    assert not changed, f"(in {TABLE.name}, today): {changed}"
