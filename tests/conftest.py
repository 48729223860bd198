"Shared by all tests: one torch thread per worker, the folder of golden vectors, where Chromium is, a JupyterLab."

import contextlib
import gc
import importlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
torch.set_num_threads(1)
settings.register_profile("untimed", deadline=None)  # a busy machine must not fail a test
settings.load_profile("untimed")
# A run in the background, or under nohup, is started deaf to signals, and so are its children: the tests send some.
for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, heard)


def pytest_configure(config):
    "Where CI is set, a missing development package is an error: a test that skips there would be skipped for ever."
    if os.environ.get("CI", "").lower() not in ("1", "true"):
        return

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    listed = {re.split(r"[\[<>=!~; ]", need)[0].lower() for needs in extras.values() for need in needs}
    other_names = {
        "sklearn": "scikit-learn", "faiss": "faiss-cpu", "cv2": "opencv-python-headless", "PIL": "pillow",
        "yaml": "pyyaml",
    }
    skip = pytest.importorskip

    def demand(name, minversion=None, reason=None, **_):
        top = name.partition(".")[0]
        if other_names.get(top, top.replace("_", "-")).lower() not in listed:
            return skip(name, minversion, reason)  # an optional peer, which nothing installs
        try:
            return importlib.import_module(name)
        except ImportError as error:
            message = f"{name} is needed here and is missing ({error}), though pyproject.toml lists its package"
            pytest.fail(message, pytrace=False)

    pytest.importorskip = demand


def pytest_collection_finish():
    "A million objects of imported modules stay to the end: no collection need walk over them again."
    gc.freeze()


def pytest_collection_modifyitems(items):
    "Without a CUDA device its tests are skipped, also when they are asked for by `-m cuda`."
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))


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


@pytest.fixture(scope="module")
def browser(chromium):
    "A running Chromium; each test opens a tab of its own."
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def serve_lab(root):
    """`with serve_lab(home) as url`: JupyterLab on home/work, everything of its own under `home`; nothing is trusted
    there.
    """
    pytest.importorskip("jupyterlab")

    @contextlib.contextmanager
    def serve(home: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        env = (
            os.environ
            | {f"JUPYTER_{name}_DIR": str(home / name) for name in ("DATA", "CONFIG", "RUNTIME")}
            | {"IPYTHONDIR": str(home / "ipython")}
        )
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), env.get("PYTHONPATH", "")]))
        with open(home / "log", "w") as log:
            server = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "jupyterlab",
                    "--no-browser",
                    "--allow-root",
                    f"--ServerApp.port={port}",
                    "--ServerApp.port_retries=0",
                    "--IdentityProvider.token=",
                    f"--ServerApp.root_dir={home / 'work'}",
                ],
                env=env,
                stdout=log,
                stderr=log,
            )
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(240):
                try:
                    urllib.request.urlopen(url + "/api", timeout=5)
                    break
                except OSError:
                    if server.poll() is not None:
                        raise RuntimeError((home / "log").read_text()[-2000:])
                    time.sleep(.5)
            yield url
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()

    return serve
