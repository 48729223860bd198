"""Every public callable with hostile arguments: within a second it refuses in one line that names the argument, or
gives an answer of finite numbers (NaN where its contract has it: queries without positives)."""

from __future__ import annotations

import zlib

import pytest

import hostile
import smoothap_nb

SHARE = 4  # the default tests take every fourth hostile value of each argument, another one for each argument


def faults(share: int) -> list[str]:
    "What went wrong."
    found = []
    for name, key, number, call, may_be_nan, names in hostile.cases():
        if (number + zlib.crc32(f"{name} {key}".encode())) % share == 0:
            wrong = hostile.verdict(call, key, may_be_nan, names)
            if wrong:
                found.append(f"{name}({key}=<hostile value {number}>): {wrong}")
    return found


def test_every_public_name_is_called_or_excused():
    excused = {name for names in hostile.OTHERWISE.values() for name in names.split()}
    called = {*hostile.FUNCTIONS, *hostile.CLASSES}
    assert called.isdisjoint(excused)
    assert called | excused == set(smoothap_nb.__all__), (called | excused) ^ set(smoothap_nb.__all__)


def test_hostile_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = faults(SHARE)
    assert not wrong, "\n".join(wrong[:40])


@pytest.mark.slow
def test_all_hostile_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import torch._dynamo  # some of torch's own refusals load it, and an import must not be cut short

    assert torch._dynamo
    wrong = faults(1)
    assert not wrong, "\n".join(wrong[:40])
