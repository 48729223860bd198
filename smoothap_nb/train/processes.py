"""Several processes of this machine from one program: to see on a desk what `torchrun` does across machines."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from ..checks import check_count

__all__ = ["run_in_processes"]


def run_in_processes(program: str, world: int, timeout: float = 120.0) -> str:
    """Run a program as several processes and wait for all of them.

    Args:
        program: Python source; finds its rank, the number of processes and the path of a file by which they meet
            (`init_method="file://..."`) in `sys.argv[1:4]`.
        world: how many processes, at least 1.
        timeout: seconds for each.

    Returns:
        what the first process printed, without blanks around it.

    Raises:
        ValueError: `world` is no whole number above 0.
        RuntimeError: a process failed; its last words are in the message.
        subprocess.TimeoutExpired: a process did not end in time.
    """
    check_count("world", world)
    with tempfile.TemporaryDirectory() as meeting:
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(rank), str(world), f"{meeting}/meeting"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(world)
        ]
        try:
            said = [process.communicate(timeout=timeout) for process in processes]
        finally:
            for process in processes:  # where one ran out of time, none is left behind
                process.kill()
                process.wait()
    for rank, (process, (_, errors)) in enumerate(zip(processes, said)):
        if process.returncode:
            raise RuntimeError(f"process {rank} of {world} ended with {process.returncode}: {errors[-2000:].strip()}")
    return said[0][0].strip()
