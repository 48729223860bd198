"""Every default of a public callable stands in a table: one that changes, changes results of who did not name it, and
must be changed here too, on purpose. So do the numbers and switches that functions and classes of losses and metrics
bear without being public."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import smoothap_nb

TABLE = Path(__file__).with_name("defaults.txt")


def parameters_of(value) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(value).parameters.values())
    except ValueError:  # an exception class
        return []


def defaults() -> dict[str, str]:
    "`callable(argument)` -> its default, as Python writes it."
    found = {}
    for name in smoothap_nb.__all__:
        value = getattr(smoothap_nb, name)
        for parameter in parameters_of(value) if callable(value) else ():
            default = parameter.default
            if default is parameter.empty:
                continue
            text = getattr(default, "__name__", None) or repr(default)
            found[f"{name}({parameter.name})"] = type(default).__name__ if " at 0x" in text else text
    return found


def modules() -> Iterator:
    "The mathematics: losses, metrics, ranking, similarity."
    for package in ("losses", "metrics"):
        for module in pkgutil.iter_modules([str(Path(smoothap_nb.__file__).parent / package)]):
            yield importlib.import_module(f"smoothap_nb.{package}.{module.name}")
    yield from (importlib.import_module(f"smoothap_nb.{name}") for name in ("ranking", "similarity"))


def numbers_within() -> dict[str, str]:
    "Numbers and switches that are defaults of a module's own functions and methods, or attributes of its classes."
    found, public = {}, [getattr(smoothap_nb, name) for name in smoothap_nb.__all__]
    for module in modules():
        short = module.__name__.removeprefix("smoothap_nb.")
        for name, value in vars(module).items():
            if getattr(value, "__module__", "") != module.__name__ or not callable(value):
                continue
            of = {f"{short}.{name}": value}
            if isinstance(value, type):
                of = {f"{short}.{name}.{k}": v for k, v in vars(value).items() if inspect.isfunction(v)}
                found |= {f"{short}.{name}.{k}": repr(v) for k, v in vars(value).items()
                          if isinstance(v, (bool, int, float)) and not k.startswith("__")}  # fmt: skip
            found |= {f"{key}({p.name})": repr(p.default) for key, one in of.items() for p in parameters_of(one)
                      if isinstance(p.default, (bool, int, float)) and value not in public}  # fmt: skip
    return found


def test_every_default_is_in_the_table():
    pytest.importorskip("pytorch_metric_learning")
    table = dict(line.split(" = ", 1) for line in TABLE.read_text(encoding="utf-8").splitlines())
    today = defaults() | numbers_within()
    changed = {key: (table.get(key), today.get(key)) for key in {*table, *today} if table.get(key) != today.get(key)}
    assert not changed, f"(in {TABLE.name}, today): {changed}"
