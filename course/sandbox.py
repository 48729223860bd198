"""Where a student's code runs when it is graded: a kernel inside bubblewrap, and nbgrader outside.

Inside there is no network, a system to read but not to write, nothing of the course but the answer's own helper files,
and a
folder in memory. A watchdog ends kernels that take too much memory, time or space. nbgrader talks to the kernel through
sockets in a
folder made for it alone; marks, feedback and gradebook are written by nbgrader, outside.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import site
import subprocess
import sys
import tempfile
import threading
import time
from copy import deepcopy
from pathlib import Path

import nbformat
import psutil
import zmq
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbconvert.preprocessors import ClearMetadataPreprocessor
from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    ClearOutput,
    DeduplicateIds,
    Execute,
    IgnorePattern,
    LimitOutput,
    NbGraderPreprocessor,
    OverwriteCells,
    OverwriteKernelspec,
    SaveAutoGrades,
)

MB = 1 << 20
# seconds and bytes
LIMITS = {"cell": 30, "notebook": 240, "memory": 3000 * MB, "folder": 64 * MB, "output": MB, "processes": 200}
SLOW_SETS = {"set8_research_project": {"cell": 240, "notebook": 600}}
HOME = "/home/student"


def unsafe() -> bool:
    "Has the teacher asked to run submissions without a sandbox?"
    return os.environ.get("UNSAFE", "") not in ("", "0")


def why_not() -> str:
    "Why bubblewrap cannot start here; empty if it can."
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (Debian and Ubuntu: apt-get install bubblewrap)"
    with tempfile.TemporaryDirectory() as sockets:
        done = subprocess.run(
            [*command(sockets, None), sys.executable, "-c", "import ipykernel, torch"], capture_output=True, text=True
        )
    return (
        "" if done.returncode == 0 else f"bubblewrap is installed but cannot start Python: {done.stderr.strip()[-600:]}"
    )


def command(sockets: str, folder: str | None, limits: dict = LIMITS) -> list[str]:
    """The beginning of a command line: what follows it runs inside. `sockets` stays writable, the files of `folder`
    can be read in the home.
    """
    package = Path(importlib.util.find_spec("smoothap_nb").submodule_search_locations[0]).resolve()
    seen = [
        "/usr",
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/etc/fonts",
        "/etc/alternatives",
        sys.prefix,
        sys.base_prefix,
        os.path.realpath(sys.base_prefix),
        *site.getsitepackages(),
        *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),
    ]
    words = ["bwrap", "--die-with-parent", "--unshare-all", "--clearenv", "--proc", "/proc", "--dev", "/dev"]
    for path in dict.fromkeys(seen):
        words += ["--ro-bind-try", path, path]
    words += ["--ro-bind", str(package), str(package)]
    for path in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            words += ["--ro-bind", path, path]
    size = ["--size", str(limits["folder"]), "--tmpfs"]
    words += [*size, "/dev/shm", "--remount-ro", "/dev", *size, "/tmp", *size, HOME, "--bind", sockets, sockets]
    for path in sorted(Path(folder).rglob("*")) if folder else []:  # not the notebook: it holds the hidden tests
        if path.is_file() and not path.is_symlink() and path.suffix != ".ipynb":
            words += ["--ro-bind", str(path), f"{HOME}/{path.relative_to(folder)}"]
    # drawn once, read by all
    for path in (
        Path(os.environ.get("SMOOTHAP_DATA") or "~/.cache/smoothap_nb").expanduser().glob("glyphs-*.safetensors")
    ):
        words += ["--ro-bind", str(path.resolve()), f"{HOME}/.cache/smoothap_nb/{path.name}"]
    for name, value in {
        "HOME": HOME,
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(package.parent),
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
        "SMOOTHAP_GRADING": "1",
    }.items():
        words += ["--setenv", name, value]
    return [
        *words,
        "--chdir",
        HOME,
        "--",
        "prlimit",
        f"--data={limits['memory']}",
        f"--fsize={limits['folder']}",
        "--core=0",
        "--",
    ]


class SandboxedKernel(AsyncKernelManager):
    "A kernel manager whose kernels live in a sandbox and are reached through sockets in a folder of their own."

    def __init__(self, **keywords):
        # short: a socket's path has at most 107 letters
        self.sockets, self.limits = tempfile.mkdtemp(prefix="kernel-"), LIMITS
        super().__init__(transport="ipc", connection_file=f"{self.sockets}/k.json", **keywords)
        self.context.setsockopt(zmq.MAXMSGSIZE, 8 * MB)  # whoever prints more at once is cut off

    def format_kernel_cmd(self, extra_arguments=None):
        self.kernel_spec.interrupt_mode = "message"  # a signal would end bwrap, not reach the cell
        kernel = super().format_kernel_cmd(extra_arguments)
        return kernel if unsafe() else command(self.sockets, self._launch_args.get("cwd"), self.limits) + kernel

    def reason_to_stop(self, started: float) -> str:
        "What this kernel has too much of, in words for its author; empty if nothing."
        process = getattr(self.provisioner, "process", None)
        if process is None or process.poll() is not None:
            return ""
        family = psutil.Process(process.pid).children(recursive=True)
        memory = sum(p.memory_info().rss for p in family)
        files = [p.lstat().st_size for p in Path(self.sockets).iterdir()]
        if memory > 1.3 * self.limits["memory"]:
            return f"it used more than {self.limits['memory'] // MB} MB of memory"
        if time.monotonic() - started > self.limits["notebook"]:
            return f"the whole notebook took more than {self.limits['notebook']} s"
        if len(family) > self.limits["processes"]:
            return f"it started more than {self.limits['processes']} processes"
        if len(files) > 16 or sum(files) > MB:
            return "it wrote where it must not write"
        return ""


class SandboxedExecute(Execute):
    """nbgrader's execution in a sandboxed kernel. If the kernel is stopped, what was answered before keeps its marks,
    and the feedback says why.
    """

    def __init__(self, *args, **keywords):
        super().__init__(*args, **keywords)
        self.kernel_manager_class, self.store_widget_state = SandboxedKernel, False

    def preprocess(self, nb, resources, km=None):
        self.limits = {**LIMITS, **SLOW_SETS.get(resources["nbgrader"]["assignment"], {})}
        self.timeout, self.stopped, self.reason, self.sockets = self.limits["cell"], False, "", ""
        # importing torch may take long
        self.timeout_func = lambda cell: self.limits[
            "notebook" if cell.metadata.get("nbgrader", {}).get("grade_id") == "setup" else "cell"
        ]
        told = f"Stopped: this cell took more than {self.timeout} s. Is there a loop that does not end?"
        self.error_on_timeout = {"ename": "Stopped", "evalue": told, "traceback": [told]}
        try:
            return super().preprocess(nb, resources, km=km)
        finally:
            shutil.rmtree(self.sockets, ignore_errors=True)

    async def async_start_new_kernel(self, **keywords):
        self.km.limits, self.sockets = self.limits, self.km.sockets
        await super().async_start_new_kernel(**keywords)
        threading.Thread(target=self._watch, args=(self.km, time.monotonic()), daemon=True).start()

    start_new_kernel = run_sync(async_start_new_kernel)  # nbconvert calls the synchronous twins

    def _watch(self, km, started):
        process = km.provisioner.process
        while process.poll() is None:
            try:
                self.reason = km.reason_to_stop(started)
            except (psutil.Error, OSError):
                pass  # a process or file that went away while we looked
            if self.reason:
                process.kill()
                return
            time.sleep(0.2)

    async def async_execute_cell(self, cell, cell_index, **keywords):
        self._room = self.limits["output"]
        if not self.stopped:
            try:
                return await super().async_execute_cell(cell, cell_index, **keywords)
            except (DeadKernelError, CellTimeoutError) as error:
                self.stopped = True
                self.reason = self.reason or (
                    "it did not answer" if isinstance(error, CellTimeoutError) else "its Python ended"
                )
                self.km.provisioner.process.kill() if self.km.provisioner.process else None
                cell.setdefault("outputs", [])
        if cell.cell_type == "code" and cell.source.strip():
            told = f"Grading this notebook stopped: {self.reason}. Cells from here on were not run."
            cell.outputs = [
                *cell.get("outputs", []),
                nbformat.v4.new_output("error", ename="Stopped", evalue=told, traceback=[told]),
            ]
        return cell

    execute_cell = run_sync(async_execute_cell)

    def process_message(self, msg, cell, cell_index):
        "Keeps the first megabyte of what a cell prints and shows; errors always."
        if msg["msg_type"] in ("stream", "display_data", "execute_result", "update_display_data"):
            self._room -= len(str(msg["content"]))
            if self._room < 0:
                return None
        elif msg["msg_type"] == "error":
            msg["content"] = {
                **msg["content"],
                "evalue": msg["content"]["evalue"][:10_000],
                "traceback": [t[:10_000] for t in msg["content"]["traceback"][:100]],
            }
        elif msg["msg_type"].startswith("comm"):
            return None
        return super().process_message(msg, cell, cell_index)


class RestoreCells(NbGraderPreprocessor):
    "Puts back locked cells (imports, tests) that a student has deleted."

    def preprocess(self, nb, resources):
        course, name, notebook = (
            Path(self.config.CourseDirectory.root),
            resources["nbgrader"]["assignment"],
            resources["nbgrader"]["notebook"],
        )
        source = nbformat.read(course / "source" / name / f"{notebook}.ipynb", as_version=4)
        place = 0
        for wanted in source.cells:
            grade_id = wanted.metadata.get("nbgrader", {}).get("grade_id")
            if grade_id is None:
                continue
            here = [
                n for n, cell in enumerate(nb.cells) if cell.metadata.get("nbgrader", {}).get("grade_id") == grade_id
            ]
            if here:
                place = here[0] + 1
            elif wanted.metadata.nbgrader.locked:
                nb.cells.insert(place, deepcopy(wanted))
                place += 1
        return nb, resources


def configure(c, root: str):
    "nbgrader's settings for the course in `root`."
    # nbgrader calls alembic by name
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    c.CourseDirectory.root, c.CourseDirectory.course_id = str(root), "smoothap"
    c.CourseDirectory.db_url = f"sqlite:///{root}/gradebook.db?timeout=120"  # two graders write to it
    c.Autograde.sanitize_preprocessors = [
        ClearOutput,
        DeduplicateIds,
        OverwriteKernelspec,
        RestoreCells,
        OverwriteCells,
        CheckCellMetadata,
    ]
    c.Autograde.autograde_preprocessors = [
        SandboxedExecute,
        IgnorePattern,
        ClearMetadataPreprocessor,
        LimitOutput,
        SaveAutoGrades,
        AssignLatePenalties,
        CheckCellMetadata,
    ]
    c.LimitOutput.max_lines = 200
    c.HTMLExporter.sanitize_html = True
    return c
