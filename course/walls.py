"""The walls around a student's code: the command line that starts a process inside bubblewrap, and what the process
may ask of the kernel.

Inside there is no network, a system to read but not to write, an empty environment, and three small folders in memory.
A filter refuses what would make memory that nobody counts (memfd, System V segments) and new namespaces with mounts in
them. Who grades as root has the student's code run as nobody. The README of the course says what holds and what does
not.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
import site
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

MB = 1 << 20
# seconds and bytes
LIMITS = {"cell": 30, "notebook": 240, "memory": 3000 * MB, "folder": 64 * MB, "output": MB, "processes": 200}
HOME = "/home/student"
NOBODY = 65534
SOCKETS = "s"  # inside a kernel's folder: the part in memory that holds its sockets

# What is refused, by its number on x86-64 and on ARM (asm/unistd.h). clone and clone3 have rules of their own.
REFUSED = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
}
MACHINES = {
    "x86_64": (0xC000003E, 0, 56),
    "aarch64": (0xC00000B7, 1, 220),
}  # audit number, column above, number of clone
NEW_NAMESPACE = 0x7E020000  # the flags of clone that make a namespace of any kind
ALLOW, REFUSE, ABSENT, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000  # errno 1 is EPERM, 38 ENOSYS


def kernel_filter(machine: str | None = None) -> bytes:
    """The filter for bubblewrap's --seccomp: a program of the classic Berkeley packet filter.

    Raises:
        LookupError: a processor for which the numbers of the calls are not listed here.
    """
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise LookupError(f"no list of system calls for the processor {machine}; there are {', '.join(MACHINES)}")
    audit, column, clone = MACHINES[machine]
    load, equal, at_least, any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06

    def test(kind, value, then):
        return [(kind, 0, 1, value), (answer, 0, 0, then)]  # go on behind the answer where the test fails

    program = [(load, 0, 0, 4), (equal, 1, 0, audit), (answer, 0, 0, KILL), (load, 0, 0, 0)]
    if machine == "x86_64":
        program += test(at_least, 0x40000000, REFUSE)  # the calls of x32
    for numbers in REFUSED.values():
        program += test(equal, numbers[column], REFUSE)
    program += test(equal, 435, ABSENT)  # clone3, whose flags a filter cannot read: libraries then take clone
    program += [(equal, 0, 3, clone), (load, 0, 0, 16), *test(any_bit, NEW_NAMESPACE, REFUSE), (answer, 0, 0, ALLOW)]
    return b"".join(struct.pack("=HBBI", *line) for line in program)


def unsafe() -> bool:
    "Has the teacher asked to run submissions without a sandbox?"
    return os.environ.get("UNSAFE", "") not in ("", "0")


def why_not() -> str:
    "Why bubblewrap cannot start here; empty if it can."
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (Debian and Ubuntu: apt-get install bubblewrap)"
    try:
        kernel_filter()
    except LookupError as error:
        return str(error)
    with tempfile.TemporaryDirectory(prefix="kernel-") as folder:
        done = subprocess.run(
            [*command(folder, None), sys.executable, "-c", "import ipykernel, torch"], capture_output=True, text=True
        )
    return (
        "" if done.returncode == 0 else f"bubblewrap is installed but cannot start Python: {done.stderr.strip()[-600:]}"
    )


@functools.cache
def knows(option: str) -> bool:
    "Whether this bubblewrap has the option; 0.8 brought --disable-userns."
    return option in subprocess.run(["bwrap", "--help"], capture_output=True, text=True).stdout


THE_LIMIT = "cat /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/memory.max"  # whole pages


@functools.cache
def control_group(memory: int, processes: int) -> tuple[str, ...]:
    """The beginning of a command line that limits memory and processes of all that follows together, where systemd
    can; else nothing. What it started is asked for its limit: where the memory of a user is nobody's to give away,
    systemd-run says yes and sets none.
    """
    words = (
        "systemd-run",
        *(("--user",) if os.geteuid() else ()),
        "--scope",
        "--quiet",
        "--collect",
        "-p",
        f"MemoryMax={memory}",
        "-p",
        "MemorySwapMax=0",
        "-p",
        f"TasksMax={4 * processes}",
    )  # threads are tasks
    if shutil.which("systemd-run") is None:
        return ()
    try:
        tried = subprocess.run([*words, "sh", "-c", THE_LIMIT], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return words if tried.returncode == 0 and tried.stdout.split() == [str(memory // 4096 * 4096)] else ()


def hand_over(path) -> None:
    "Give a file to the user that the student's code runs as: another one only where the teacher is root."
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)


def command(folder: str, files: str | None, limits: dict = LIMITS) -> list[str]:
    """The beginning of a command line: what follows it runs inside.

    Args:
        folder: of one kernel, outside; `SOCKETS` in it is a small folder in memory inside, and `k.json` can be read.
        files: a folder whose files, but not its notebooks, can be read in the home.
        limits: see `LIMITS`.
    """
    filter_file = Path(folder) / "filter"
    filter_file.write_bytes(kernel_filter())
    words = [
        *control_group(int(1.2 * limits["memory"]), limits["processes"]),
        # bubblewrap's own process shows its environment inside, as that of process 1: it gets none
        "/bin/sh",
        "-c",
        'exec "$@" 9<"$0"',
        str(filter_file),
        shutil.which("env"),
        "-i",
        shutil.which("bwrap"),
        "--seccomp",
        "9",
        *namespaces(),
        "--die-with-parent",
        "--clearenv",
        "--proc",
        "/proc",
        "--ro-bind",
        "/proc/sys",
        "/proc/sys",
        "--dev",
        "/dev",
    ]
    for place, size in (
        ("/dev/shm", limits["folder"]),
        ("/tmp", limits["folder"]),
        (HOME, limits["folder"]),
        (f"{folder}/{SOCKETS}", MB),
    ):  # first, for what is read may lie below one of them
        words += ["--perms", "1777", "--size", str(size), "--tmpfs", place]
    words += ["--remount-ro", "/dev", *readable(), "--ro-bind-try", f"{folder}/k.json", f"{folder}/k.json"]
    for path in sorted(Path(files).rglob("*")) if files else []:  # not the notebook: it holds the hidden tests
        if path.is_file() and not path.is_symlink() and path.suffix != ".ipynb":
            words += [
                *folders_above(f"{HOME}/{path.relative_to(files)}"),
                "--ro-bind",
                str(path),
                f"{HOME}/{path.relative_to(files)}",
            ]
    for name, value in surroundings().items():
        words += ["--setenv", name, value]
    nobody = [
        "setpriv",
        f"--reuid={NOBODY}",
        f"--regid={NOBODY}",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--",
    ]
    return [
        *words,
        "--remount-ro",
        "/",
        "--chdir",
        HOME,
        "--",
        *(nobody if os.geteuid() == 0 else []),
        "prlimit",
        f"--data={limits['memory']}",
        f"--fsize={limits['folder']}",
        "--core=0",
        "--nofile=1024",
        "--",
    ]


def namespaces() -> list[str]:
    """Options that part the inside from the system. Root sets up the walls without a user namespace, whose inside would
    still be root to /proc, and changes to nobody behind them.
    """
    if os.geteuid() == 0:
        return [
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-uts",
            "--unshare-cgroup-try",
            "--cap-drop",
            "ALL",
            *(word for name in ("SETUID", "SETGID", "SETPCAP") for word in ("--cap-add", f"CAP_{name}")),
        ]
    return ["--unshare-all", "--unshare-user", *(["--disable-userns"] if knows("--disable-userns") else [])]


def package() -> Path:
    "The folder of the library."
    return Path(importlib.util.find_spec("smoothap_nb").submodule_search_locations[0]).resolve()


def readable() -> list[str]:
    """Options for what can be read inside: the system's programs, Python with its packages, the library, its drawn
    glyphs.
    """
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
    seen = [path for path in dict.fromkeys([*map(str, seen), str(package())]) if os.path.exists(path)]
    above = sorted(
        {str(folder) for path in seen for folder in Path(path).parents}
        - {"/", "/tmp", *map(str, Path(HOME).parents), HOME}
    )
    words = [word for path in above for word in ("--perms", "0755", "--dir", path)]  # else they would be for root alone
    words += [word for path in seen for word in ("--ro-bind", path, path)]
    for path in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            words += ["--ro-bind", path, path]
    drawn = Path(os.environ.get("SMOOTHAP_DATA") or "~/.cache/smoothap_nb").expanduser()  # drawn once, read by all
    for path in drawn.glob("glyphs-*.safetensors"):
        inside = f"{HOME}/.cache/smoothap_nb/{path.name}"
        words += [*folders_above(inside), "--ro-bind", str(path.resolve()), inside]
    return words


def folders_above(path: str) -> list[str]:
    "Options that make the folders between the home and a file, for the student to write in."
    between = [folder for folder in Path(path).parents if HOME in map(str, folder.parents)]
    return [word for folder in reversed(between) for word in ("--perms", "1777", "--dir", str(folder))]


def surroundings() -> dict[str, str]:
    "The environment inside."
    return {
        "HOME": HOME,
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(package().parent),
        "OMP_NUM_THREADS": "1",
        "SMOOTHAP_GRADING": "1",
    }
