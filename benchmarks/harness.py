"""The measuring tape: medians and minima in one process, how quiet the machine was meanwhile, peak memory in a fresh
process, provenance, JSON, and the page made from it.

A benchmark is a module of this folder; it is found by itself. It holds

    TITLE = "Smooth-AP against its peers"      # heading on the page; the module's docstring is the text below it

    def rows(tiny):                            # yields Row; `tiny` asks for toy sizes, so that a test can run it in
    seconds
        times = race({"ours": ours, "theirs": theirs})
        yield Row("ours against theirs, B = 384", times["theirs"] / times["ours"], "times faster", ">= 350", times,
        {"B": 384})
        yield not_run("the same on a GPU", "needs a CUDA device")

and may hold `figures(rows)`, which takes the stored rows (dicts, as in the JSON file) and gives {name: (Figure, alt
text)}. Work that is dear to prepare belongs after `if wanted(name):`, so that `-k` can skip it, and so can `--quick`:
it leaves out what the module names in `LONG`, a tuple of beginnings of names. Our own contender comes first. Threads
are one unless a block says `with threads(2):`; every row records how many there were.

Results are written to docs/results/bench_NAME.json. A row measured again replaces the old one; a row that could not be
run here leaves a number measured elsewhere in place, with its own date and hardware.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import importlib
import importlib.metadata
import inspect
import json
import os
import pkgutil
import platform
import re
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Callable, Iterator

import torch

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGES = (
    "smoothap_nb",
    "torch",
    "numpy",
    "numba",
    "pytorch-metric-learning",
    "torchmetrics",
    "scikit-learn",
    "faiss-cpu",
)
LOUD = 1.25  # a fixed loop takes so many times its least time: somebody else is computing
PATIENCE = 30.0  # seconds: a measurement on a loud machine that took no longer is done again
_only = ""  # the text of -k
_long: tuple[str, ...] = ()  # what --quick leaves out


@dataclass
class Row:
    """One line of a table.

    Args:
        name: what was measured, unique within its benchmark.
        value: the number that counts, usually a ratio taken in one process; None where nothing was run.
        unit: what the number means, e.g. "times faster".
        target: what it should reach, e.g. ">= 350"; empty where it is only reported.
        times: seconds behind the number, by contender; `race` gives them.
        config: sizes and settings.
        note: a remark; for a row that was not run, the reason.
        least: the shortest of the seconds, by contender.
        loud: how many times its least a fixed loop took around the measurement; None where nobody looked.
    """

    name: str
    value: float | None
    unit: str = ""
    target: str = ""
    times: dict = field(default_factory=dict)
    config: dict = field(default_factory=dict)
    note: str = ""
    threads: int = field(default_factory=torch.get_num_threads)
    least: dict = field(default_factory=dict)
    loud: float | None = None

    def __post_init__(self):
        if isinstance(self.times, Times):
            self.least, self.loud = self.least or self.times.least, self.times.loud
            self.times = dict(self.times)


def not_run(name: str, why: str, target: str = "", unit: str = "") -> Row:
    "A row that this machine cannot measure."
    return Row(name, None, unit, target, note=why)


def wanted(name: str) -> bool:
    "Did the caller ask for this row? (`-k TEXT`)"
    return _only in name and not name.startswith(_long or "\0")


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    "Run the block on so many threads."
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Times(dict):
    """Median seconds by contender.

    Attributes:
        least: the shortest, by contender.
        loud: how many times its least time a fixed loop took before or after, whichever was worse.
    """

    def __init__(self, seconds: dict[str, list[float]], loud: float):
        super().__init__({name: statistics.median(values) for name, values in seconds.items()})
        self.least, self.loud = {name: min(values) for name, values in seconds.items()}, loud

    def only(self, *names: str) -> Times:
        "Some of the contenders, in this order."
        part = Times({name: [self[name]] for name in names}, self.loud)
        part.least = {name: self.least[name] for name in names}
        return part


def race(contenders: dict[str, Callable], repeat: int = 9, warm: bool = True) -> Times:
    """Median and least seconds of each contender. They take turns, so that a busy moment of the machine hits all alike.

    Every contender runs once before the clock starts (with `warm`); a quick one (under 50 ms) also once before each
    timed call, because its slow neighbour has emptied the caches. CUDA work is waited for. On a loud machine it is all
    done again, up to twice, unless that would take long; the quietest turn counts, and says how loud it was.
    """
    quick = {name: warm and _timed(call) < 0.05 for name, call in contenders.items()}
    found: list[Times] = []
    for _ in range(3):
        start, before = time.perf_counter(), loudness()
        seconds = _turns(contenders, quick, repeat)
        found.append(Times(seconds, max(before, loudness())))
        if found[-1].loud <= LOUD or time.perf_counter() - start > PATIENCE:
            break
    return min(found, key=lambda times: times.loud)


def _turns(contenders: dict[str, Callable], quick: dict[str, bool], repeat: int) -> dict[str, list[float]]:
    "Seconds of `repeat` calls of each."
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeat):
            for name, call in contenders.items():
                if quick[name]:
                    call()
                seconds[name].append(_timed(call))
    finally:
        gc.enable()
    return seconds


_least_loop = [float("inf")]  # processor seconds of the fixed loop when nothing slowed it down


def loudness(rounds: int = 5) -> float:
    """How many times its least time a fixed loop takes now: 1 on a machine that is ours alone.

    The loop is a product of matrices that fit a core's cache and a sort, on one thread. Its least is that of processor
    time, all calls so far: waiting for a core does not enter it.
    """
    generator = torch.Generator().manual_seed(0)
    matrix, numbers = (torch.randn(size, generator=generator) for size in ((256, 256), (1 << 16,)))
    worst = []
    with threads(1):
        for _ in range(rounds):
            wall, own = time.perf_counter(), time.process_time()
            for _ in range(4):
                numbers.sort()
                matrix @ matrix
            _least_loop[0] = min(_least_loop[0], time.process_time() - own)
            worst.append(time.perf_counter() - wall)
    return statistics.median(worst) / _least_loop[0]


def _timed(call: Callable) -> float:
    _wait()
    start = time.perf_counter()
    call()
    _wait()
    return time.perf_counter() - start


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_memory(function: str, **kwargs) -> int:
    """Bytes that a call adds at its peak to what the process held before, seen in a fresh process.

    Args:
        function: "module:name" of a function that prepares its inputs and returns the call to be watched, e.g.
            "benchmarks.losses:prepare".
        **kwargs: its arguments (numbers and text).

    Returns:
        peak resident memory during the call less resident memory before it.
    """
    program = (
        "import importlib, json, sys, torch\n"
        "from benchmarks.harness import _watched\n"
        "module, name = sys.argv[1].split(':')\n"
        "torch.set_num_threads(int(sys.argv[3]))\n"
        "print(_watched(getattr(importlib.import_module(module), name)(**json.loads(sys.argv[2]))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, function, json.dumps(kwargs), str(torch.get_num_threads())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": _path()},
    )
    if done.returncode:
        raise RuntimeError(f"{function} failed in its own process:\n{done.stderr[-2000:]}")
    return int(done.stdout.split()[-1])


def _path() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))


def _watched(call: Callable) -> int:
    """Run `call`; how far did resident memory rise above where it stood? (Linux: the kernel's own high-water mark, set
    back first.)
    """
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    call()
    return _status("VmHWM") - before


def _status(key: str) -> int:
    text = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"^{key}:\s+(\d+) kB", text, re.M)[1])


# --- provenance -----------------------------------------------------------------------------------------------------

def environment() -> dict:
    "When, where and with what: goes into every results file."
    return {
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "hardware": _hardware(),
        "versions": _versions(),
    }


def _commit() -> str:
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "nbs", "smoothap_nb", "benchmarks")
        return git("rev-parse", "--short=10", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _hardware() -> dict:
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        cpu = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())[1]
    found = {"cpu": cpu, "cores": os.cpu_count(), "vector": torch.backends.cpu.get_cpu_capability()}
    with contextlib.suppress(ValueError, OSError):
        found["memory_gb"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def _versions() -> dict:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


# --- running and keeping --------------------------------------------------------------------------------------------

def discover() -> dict:
    "The benchmarks of this folder by name: every module with a TITLE and `rows`."
    import benchmarks

    modules = (
        importlib.import_module(f"benchmarks.{info.name}")
        for info in pkgutil.iter_modules(benchmarks.__path__)
        if info.name[0] != "_"
    )
    return {
        module.__name__.split(".")[-1]: module
        for module in modules
        if hasattr(module, "TITLE") and hasattr(module, "rows")
    }


def run(name: str, module, out: Path = DOCS, tiny: bool = False, only: str = "", quick: bool = False) -> dict:
    "Measure one benchmark and store its rows; returns what was stored. `quick` leaves out what takes minutes."
    global _only, _long
    _only, start, fresh = only, time.perf_counter(), []
    _long = left_out = tuple(getattr(module, "LONG", ())) if quick else ()
    loudness(20)  # so that its least is known
    print(f"{name}: {module.TITLE}", flush=True)
    try:
        with threads(1):
            for row in module.rows(tiny=tiny):
                if not wanted(row.name):
                    continue
                fresh.append(row)
                print("   ", _told(asdict(row)), flush=True)
    finally:
        _only, _long = "", ()
    print(f"    ({time.perf_counter() - start:.0f} s)", flush=True)
    stored = _merge(_load(out, name), fresh, environment(), "" if only else left_out)
    stored = {"benchmark": name, "title": module.TITLE, "about": inspect.getdoc(module) or "", **stored}
    stored["figures"] = _draw(name, module, stored["rows"], out)
    path = _results(out, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return stored


def _told(row: dict) -> str:
    value = "not run" if row["value"] is None else f"{_number(row['value'])} {row['unit']}"
    target = f" (target {row['target']}: {_verdict(row).strip('*') or 'not measured'})" if row["target"] else ""
    return f"{row['name']}: {value}{target}{_busy(row)}"


def _busy(row: dict) -> str:
    "A remark where the machine was busy."
    loud = row.get("loud")
    return f" (machine busy: a fixed loop took {loud:.2g} times its least)" if loud and loud > LOUD else ""


def _results(out: Path, name: str) -> Path:
    return out / "results" / f"bench_{name}.json"


def _load(out: Path, name: str) -> dict:
    path = _results(out, name)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": [], "environments": {}}


def _merge(old: dict, fresh: list[Row], where: dict, kept_names: str | tuple[str, ...]) -> dict:
    """Fresh rows replace stored ones of the same name, unless they were not run and the stored ones were; of the others
    those stay whose names begin with one of `kept_names` (with "", all).
    """
    rows = {row["name"]: row for row in old["rows"]}
    label = f"{where['commit']} {where['date']} {where['hardware'].get('gpu', where['hardware']['cpu'])}"
    for row in map(asdict, fresh):
        if row["value"] is not None or rows.get(row["name"], {"value": None})["value"] is None:
            rows[row["name"]] = {**row, "environment": label}
    new = {row.name for row in fresh}
    kept = [row for name, row in rows.items() if name in new or name.startswith(kept_names)]
    known = {**old["environments"], label: where}
    return {
        "environments": {key: known[key] for key in dict.fromkeys(row["environment"] for row in kept)},
        "rows": kept,
    }


def _draw(name: str, module, rows: list[dict], out: Path) -> list[dict]:
    "Draw the module's figures from the stored rows; returns file names and alt texts."
    if not hasattr(module, "figures"):
        return []
    import matplotlib

    matplotlib.use("Agg")
    from smoothap_nb.show.figures import to_png, use_style

    use_style()
    made = []
    for title, (figure, alt) in module.figures(rows).items():
        path = out / "results" / f"bench_{name}_{title}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_png(figure))
        made.append({"file": path.name, "alt": alt})
    return made


# --- the page -------------------------------------------------------------------------------------------------------

def page(out: Path = DOCS) -> str:
    "docs/benchmarks.md as it follows from the stored results."
    parts = [
        "# Benchmarks",
        "Made by `python -m benchmarks` (or `make bench`) from the JSON files in `results/`; nothing here is typed by "
        "hand. "
        "Contenders of one row ran in one process, taking turns; a time is the median of several, with the shortest "
        "in brackets. A ratio carries over to other machines better than a time does. Before and after each row a "
        "fixed loop looks whether the machine is quiet; a row that could not be had on a quiet one says so. Rows that "
        "no machine has measured yet say so, too.",
    ]
    for path in sorted((out / "results").glob("bench_*.json")):
        try:
            parts += _section(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, KeyError) as error:
            parts.append(f"`results/{path.name}` cannot be read ({type(error).__name__}); run its benchmark again.")
    return "\n\n".join(parts) + "\n"


def _section(stored: dict) -> list[str]:
    names = {key: number for number, key in enumerate(stored["environments"], 1)}
    many = len(names) > 1
    table = [
        "| what | ratio or size | ours | beside it | threads |" + (" run |" if many else ""),
        "|---|---|---|---|---|" + ("---|" if many else ""),
    ]
    for row in stored["rows"]:
        cells = [
            row["name"] + (f" ({row['note']})" if row["note"] and row["value"] is not None else "") + _busy(row),
            f"not run: {row['note']}" if row["value"] is None else f"**{_number(row['value'])}** {row['unit']}".strip(),
            "; ".join(_shown_times(row)[:1]),
            "; ".join(_shown_times(row)[1:]),
            str(row["threads"]),
        ]
        table.append("| " + " | ".join(cells + ([str(names[row["environment"]])] if many else [])) + " |")
    pictures = [f"![{figure['alt']}](results/{figure['file']})" for figure in stored.get("figures", [])]
    runs = [
        f"{'Run ' + str(number) + ': ' if many else 'Measured '}{_where(stored['environments'][key])}"
        for key, number in names.items()
    ]
    return [
        f"## {stored['title']}",
        stored["about"],
        "\n".join(table),
        *pictures,
        "\n".join(f"- {line}" for line in runs) if many else "".join(runs),
    ]


def _shown_times(row: dict) -> list[str]:
    "Median and, in brackets, least seconds of each contender."
    least = row.get("least", {})
    return [
        f"{who} {_seconds(t)}" + (f" ({_seconds(least[who])})" if who in least else "")
        for who, t in row["times"].items()
    ]


def _verdict(row: dict) -> str:
    "What developers see when they measure; the page has no targets."
    if row["value"] is None or not row["target"]:
        return ""
    sign, number = re.fullmatch(r"(<=|>=|<|>)\s*([\d.e+-]+)", row["target"]).groups()
    value, bound = row["value"], float(number)
    return (
        "yes"
        if {"<=": value <= bound, ">=": value >= bound, "<": value < bound, ">": value > bound}[sign]
        else "**no**"
    )


def _where(where: dict) -> str:
    hardware, versions = where["hardware"], where["versions"]
    machine = f"{hardware['cpu']}, {hardware['cores']} cores, {hardware.get('vector', '')}" + (
        f", {hardware['gpu']}" if "gpu" in hardware else ""
    )
    return (
        f"{where['date']} at commit `{where['commit']}` on {machine}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + "."
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _seconds(value: float) -> str:
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1, 1e3, "ms"), (float("inf"), 1, "s")):
        if value < limit:
            return f"{value * factor:.3g} {unit}"


def render(out: Path = DOCS) -> Path:
    "Write the page; returns its path."
    path = out / "benchmarks.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(out), encoding="utf-8")
    return path


def is_current(out: Path = DOCS) -> bool:
    "Does the page follow from the stored results?"
    path = out / "benchmarks.md"
    return path.exists() and path.read_text(encoding="utf-8") == page(out)
