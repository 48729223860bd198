"Shared by all tests: one torch thread per worker, the folder of golden vectors, where Chromium is."

import os
import shutil
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
torch.set_num_threads(1)
settings.register_profile("untimed", deadline=None)  # a busy machine must not fail a test
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def root() -> Path:
    "The checkout."
    return ROOT


@pytest.fixture(scope="session")
def chromium() -> str:
    "Path of the browser, or skip."
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    return path
