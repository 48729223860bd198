"The machine that a training stands on."

import ctypes
import platform
import subprocess
import sys

import pytest

from smoothap_nb.train import machine

FAULTS = """
import resource, torch
from smoothap_nb.train.machine import keep_memory
torch.set_num_threads(1)
{setting}

def faults(steps=20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):  # what a step does: large pieces come and go
        pieces = [torch.ones(12_000_000) for _ in range(3)]
        del pieces
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / steps

faults(12)  # until the heap has found its shape, which is another in each process
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
def test_freed_memory_stays_with_a_process_that_asks_for_it():
    told = "assert keep_memory()"
    kept, given_back = (
        float(subprocess.run([sys.executable, "-c", FAULTS.format(setting=setting)], capture_output=True, text=True,
                             check=True).stdout)
        for setting in (told, "")
    )  # fmt: skip
    assert kept < 100 and given_back > 20 * max(kept, 1)  # pages that the kernel hands out anew, a step


def test_other_allocators_go_on_as_they_are(monkeypatch):
    class Without:
        def __init__(self, name):
            pass

        def __getattr__(self, name):
            raise AttributeError(name)

    monkeypatch.setattr(ctypes, "CDLL", Without)
    assert machine.keep_memory() is False
