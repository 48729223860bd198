"""Where a student's code runs when it is graded: a kernel behind the walls of walls.py, and nbgrader outside.

nbgrader talks to the kernel through sockets in a small folder in memory, which is seen from outside by way of /proc, so
that nothing of the disk can be written inside. A watchdog ends kernels that take too much memory or time. Marks,
feedback and gradebook are written by nbgrader, outside.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import cells
import honesty
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
    Execute,
    IgnorePattern,
    LimitOutput,
    OverwriteCells,
    OverwriteKernelspec,
    SaveAutoGrades,
)
from walls import LIMITS, MB, SOCKETS, command, hand_over, unsafe, why_not  # noqa: F401

SLOW_SETS = {"set8_research_project": {"cell": 240, "notebook": 600}}


class SandboxedKernel(AsyncKernelManager):
    "A kernel manager whose kernels live in a sandbox and are reached through sockets in a folder of their own."

    def __init__(self, **keywords):
        # short: a socket's path has at most 107 letters
        self.sockets, self.limits = tempfile.mkdtemp(prefix="kernel-"), LIMITS
        super().__init__(transport="ipc", connection_file=f"{self.sockets}/k.json", **keywords)
        self.ip = f"{self.sockets}/{SOCKETS}/k"
        self.context.setsockopt(zmq.MAXMSGSIZE, 8 * MB)  # whoever prints more at once is cut off

    def write_connection_file(self, **keywords):
        super().write_connection_file(**keywords)
        if not unsafe():
            hand_over(self.connection_file)

    def format_kernel_cmd(self, extra_arguments=None):
        self.kernel_spec.interrupt_mode = "message"  # a signal would end bwrap, not reach the cell
        kernel = super().format_kernel_cmd(extra_arguments)
        if unsafe():
            os.makedirs(f"{self.sockets}/{SOCKETS}", exist_ok=True)
            return kernel
        return command(self.sockets, self._launch_args.get("cwd"), self.limits) + kernel

    async def find_sockets(self, seconds: float = 30):
        """Make the kernel's folder in memory a folder of ours: /proc shows the files of a process as the process
        sees them.
        """
        link, process = Path(self.sockets, SOCKETS), self.provisioner.process
        started = time.monotonic()
        while not unsafe() and process.poll() is None and time.monotonic() - started < seconds:
            for child in psutil.Process(process.pid).children():
                inside = Path(f"/proc/{child.pid}/root{link}")
                if inside.is_dir():
                    link.symlink_to(inside)
                    return
            await asyncio.sleep(0.05)

    def reason_to_stop(self, started: float) -> str:
        "What this kernel has too much of, in words for its author; empty if nothing."
        process = getattr(self.provisioner, "process", None)
        if process is None or process.poll() is not None:
            return ""
        family = psutil.Process(process.pid).children(recursive=True)
        memory = sum(p.memory_info().rss for p in family)
        if memory > 1.3 * self.limits["memory"]:
            return f"it used more than {self.limits['memory'] // MB} MB of memory"
        if time.monotonic() - started > self.limits["notebook"]:
            return f"the whole notebook took more than {self.limits['notebook']} s"
        if len(family) > self.limits["processes"]:
            return f"it started more than {self.limits['processes']} processes"
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
        locked = [c for c in nb.cells if c.cell_type == "code" and c.metadata.get("nbgrader", {}).get("locked")]
        self.modules = honesty.MODULE_NAMES
        self.ours = honesty.stood_on(nb.cells, {c.metadata.nbgrader.grade_id: c.source for c in locked})
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
        await self.km.find_sockets()
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
        marks = cell.metadata.get("nbgrader", {})
        self.graded = marks.get("grade", False)
        why = ""
        if cell.cell_type == "code" and not marks.get("locked"):
            why = honesty.held(cell.source, self.modules, self.ours[cell_index])
            self.modules = honesty.names_of(cell.source, self.modules)
        if why:
            told = f"Held back: this cell {why}. No answer needs that; a person will read it."
            cell.outputs = [nbformat.v4.new_output("error", ename="HeldBack", evalue=told, traceback=[told])]
            return cell
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

    async def _check_raise_for_error(self, cell, cell_index, exec_reply):
        "An error that leaves no message (SystemExit) is one all the same: nbgrader looks at outputs alone."
        content = (exec_reply or {}).get("content", {})
        if content.get("status") == "error" and not any(o.output_type == "error" for o in cell.outputs):
            told = f"{content.get('ename', 'Error')}: {content.get('evalue', '')}"[:1000]
            cell.outputs.append(nbformat.v4.new_output("error", ename="Stopped", evalue=told, traceback=[told]))
        await super()._check_raise_for_error(cell, cell_index, exec_reply)

    def process_message(self, msg, cell, cell_index):
        """Keeps the first megabyte of what a cell prints and shows; errors always. A warning is no error, and no test
        cell of ours
        gives a number as its result: nbgrader would take points away for the one, and give them for the other.
        """
        if msg["msg_type"] == "stream":
            msg["content"]["name"] = "stdout"
        if msg["msg_type"] == "execute_result" and self.graded:
            msg["msg_type"] = msg["header"]["msg_type"] = "display_data"
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


def configure(c, root: str):
    "What grading behind walls needs of nbgrader's settings, for the course in `root`."
    # nbgrader calls alembic by name
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    c.CourseDirectory.root = str(root)
    c.Autograde.sanitize_preprocessors = [
        ClearOutput,
        cells.FindCells,
        cells.OneOfEach,
        OverwriteKernelspec,
        cells.RestoreCells,
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
        cells.Harmless,
    ]
    c.LimitOutput.max_lines = 200
    c.HTMLExporter.sanitize_html = True
    return c
