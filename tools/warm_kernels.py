"""Kernels that begin with the libraries loaded: forked from one process that has imported them and done nothing else.

A lesson's kernel spends some seconds on importing torch (and, with the first optimizer, its compiler) before its first
line runs; thirty lessons do so one after another. Each kernel is a process of its own with an empty namespace, as a
fresh one; what a module does when it is imported is done once. `tools/notebooks.py run` and the site take fresh ones.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

__all__ = ["WarmKernelManager"]

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ["torch", "torch._dynamo", "torchvision", "matplotlib.pyplot", "ipykernel.ipkernel", "ipykernel.kernelapp"]


def _be_a_kernel(arguments: list[str], env: dict[str, str], folder: str) -> None:
    "What a forked process does: nothing of the one that asked for it stays but where the libraries lie."
    from ipykernel.kernelapp import launch_new_instance

    gc.freeze()  # what was imported before stays: no collection walks over it again, or copies its pages
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.path[:] = [str(ROOT), *(p for p in sys.path if p and not Path(p).is_relative_to(ROOT) or "site-packages" in p)]
    launch_new_instance([*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])  # it ends with its parent


class _Process:
    "A process of multiprocessing, called as one of subprocess."

    stdin = stdout = stderr = None

    def __init__(self, process):
        self.process, self.pid = process, process.pid
        self.terminate, self.kill = process.terminate, process.kill

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self) -> int | None:
        self.process.join()
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


class _Forked(LocalProvisioner):
    "Where jupyter_client would start a program, a fork of the process that has the libraries."

    async def launch_kernel(self, cmd, **kwargs):
        arguments = cmd[cmd.index("-m") + 2 :]  # python -m ipykernel_launcher -f FILE
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(LIBRARIES)
        process = server.Process(target=_be_a_kernel, args=(arguments, kwargs["env"], str(kwargs["cwd"])))
        before = os.environ.get("MPLBACKEND")
        os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # read when matplotlib is imported
        try:
            process.start()
        finally:
            os.environ.pop("MPLBACKEND") if before is None else os.environ.update(MPLBACKEND=before)
        self.process = _Process(process)
        self.pid, self.cwd = process.pid, kwargs["cwd"]
        return self.connection_info


class WarmKernelManager(AsyncKernelManager):
    "The manager of a kernel that is forked: nbclient's NotebookClient(kernel_manager_class=...)."

    def __init__(self, **given):
        super().__init__(**given)
        self.provisioner = _Forked(kernel_id="warm", kernel_spec=self.kernel_spec, parent=self)
