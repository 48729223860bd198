"""Fill the tables of README.md and the guides from the files in docs/results/, the test vectors and the library itself.

    python tools/results.py           rewrite every part between markers, and the plots
    python tools/results.py --check   say which pages or plots are not what their sources give

A part starts with `<!-- results:NAME (made by tools/results.py) -->` and ends with `<!-- end of results:NAME -->`.
NAME is looked up in BLOCKS below; a results file that cannot be read is named and passed over.
"""

from __future__ import annotations

import itertools
import json
import re
import statistics
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
PART = re.compile(r"<!-- results:([\w-]+) \(made by tools/results\.py\) -->\n(.*?)<!-- end of results:\1 -->", re.S)
METRICS = ("mAP", "R@1", "R@10", "R@100", "H-AP", "ASI", "NDCG")


# --- reading --------------------------------------------------------------------------------------------------------

@cache
def stored() -> dict[str, dict]:
    "Every results file that can be read, by name; a damaged one is named and passed over."
    found = {}
    for path in sorted(RESULTS.glob("*.json")):
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(value, dict):
                raise ValueError("not a JSON object")
            found[path.name] = value
        except ValueError as error:
            print(f"passed over {path}: {error}", file=sys.stderr)
    return found


def experiments() -> dict[str, list[dict]]:
    "Records of runs, by experiment: what `smoothap train --record` and its relatives write."
    found: dict[str, list[dict]] = {}
    for record in stored().values():
        if isinstance(record.get("metrics"), dict) and record["metrics"] and "experiment" in record:
            found.setdefault(str(record["experiment"]), []).append(record)
    return {name: sorted(group, key=lambda r: r.get("seed", 0)) for name, group in sorted(found.items())}


def measurements() -> list[dict]:
    "Benchmark files: a title, environments and rows."
    return [value for value in stored().values() if isinstance(value.get("rows"), list) and "title" in value]


def named_rows() -> dict[str, dict[str, dict]]:
    "Files whose rows have names, such as those of the GPU suite: file -> name -> row."
    found = {}
    for name, value in stored().items():
        if isinstance(value.get("rows"), dict):
            rows = {
                key: row
                for key, row in value["rows"].items()
                if isinstance(row, dict) and isinstance(row.get("metrics"), dict)
            }
            found |= {name: rows} if rows else {}
    return found


# --- tables ---------------------------------------------------------------------------------------------------------

def table(header: list[str], rows: list[list]) -> str:
    "A Markdown table."
    written = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in [header, *rows]]
    return "\n".join([written[0].replace("|  |", "| |", 1), "|" + "---|" * len(header), *written[1:]])


def spread(values: list[float]) -> str:
    "Mean, and lowest to highest where there is more than one."
    middle = f"{statistics.mean(values):.3f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.3f} to {max(values):.3f})"


def metrics_table(records: list[dict], metrics: tuple = METRICS) -> str:
    "Competitors down, metrics across, over the seeds of one experiment."
    who = list(dict.fromkeys(name for r in records for name in r["metrics"]))
    keys = [k for k in metrics if any(k in r["metrics"][w] for r in records for w in r["metrics"])]
    rows = []
    for name in who:
        values = {key: [r["metrics"][name][key] for r in records if key in r["metrics"].get(name, {})] for key in keys}
        rows.append([name, *(spread(values[key]) if values[key] else "" for key in keys)])
    return table(["", *keys], rows)


def provenance(records: list[dict]) -> str:
    "What was run, where and when, in a sentence."
    first = records[0]
    config, training = first.get("config", {}), first.get("training", {})
    env = training.get("environment") or first.get("environment") or {}
    parts = [f"`{first['experiment']}`"]
    if config:
        parts[0] += f": {config['model']['backbone']}, {config['data']['size']} px, {config['optim']['steps']} steps"
    if "test_images" in first:
        parts.append(
            f"{first['test_images']:,} pictures of {first['test_classes']:,} held-out characters, default distortion"
        )
    if len(records) > 1:
        parts.append("mean (lowest to highest) over seeds " + ", ".join(str(r.get("seed", 0)) for r in records))
    text = "; ".join(parts) + "."
    seconds = [r["training"]["seconds"] for r in records if "seconds" in r.get("training", {})]
    if seconds and env:
        took = f"{min(seconds):.0f} to {max(seconds):.0f}" if len(seconds) > 1 else f"{seconds[0]:.0f}"
        text += (
            f" Training took {took} s on {env.get('hardware')} ({env.get('device')}, torch {env.get('torch')}), "
            f"{first.get('date')}, commit {env.get('commit')}."
        )
    return text


def demo(page: Path) -> str:
    "What `make demo` reaches."
    records = experiments().get("demo", [])
    if not records:
        return "`make demo`: not run."
    where = "docs/reproduction.md" if page.name == "README.md" else "reproduction.md"
    return (
        f"{metrics_table(records, ('mAP', 'R@1', 'R@10', 'R@100', 'H-AP', 'NDCG'))}\n\n{provenance(records)} The "
        f"raw numbers are in [the results]({where})."
    )


def all_experiments(page: Path) -> str:
    "A table and a plot for every experiment that has been recorded."
    parts = []
    for name, records in experiments().items():
        alt = f"Metrics of {name}: one dot for each seed, a bar at the mean"
        parts.append(
            f"### {name}\n\n{metrics_table(records)}\n\n{provenance(records)}\n\n![{alt}](images/{plot_name('experiment', name)})"  # noqa: E501
        )
    return "\n\n".join(parts) or "No experiment has been recorded: not run."


def seconds(value: float) -> str:
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1, 1e3, "ms"), (float("inf"), 1, "s")):
        if value < limit:
            return f"{value * factor:.3g} {unit}"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def all_benchmarks(page: Path) -> str:
    "For every benchmark file: the plot of its times, its targets, and what has not been run."
    parts = []
    for bench in measurements():
        timed = [r for r in bench["rows"] if r["value"] is not None and r.get("times")]
        absent = [r for r in bench["rows"] if r["value"] is None]
        text = f"### {bench['title']}\n"
        if timed:
            text += (
                f"\n![{bench['title']}: time of each contender, one row for each measurement, logarithmic axis; "
                f"further left is faster]"
                f"(images/{plot_name('times', bench['benchmark'])})\n"
            )
        judged = [
            [r["name"], f"{number(r['value'])} {r['unit']}", r["target"]]
            for r in bench["rows"]
            if r["value"] is not None and r["target"]
        ]
        if judged:
            text += "\n" + table(["measurement with a target", "measured", "target"], judged) + "\n"
        if absent:
            text += "\n" + table(["not run", "why"], [[r["name"], r["note"]] for r in absent]) + "\n"
        parts.append(text.rstrip())
    return "\n\n".join(parts) or "No benchmark has been recorded: not run."


def megabytes(row: dict) -> float | None:
    "Peak memory of a row, in MB, where it measures one."
    if row["value"] is None or "memory" not in row["name"]:
        return None
    if row["unit"] in ("GB", "MB"):
        return row["value"] * (1000 if row["unit"] == "GB" else 1)
    return row["config"]["bytes"] / 1e6 if "bytes" in row.get("config", {}) else None


def memory(page: Path) -> str:
    "Every row that measured a peak of memory, and every one that waits for a machine."
    rows = []
    for bench in measurements():
        for row in bench["rows"]:
            if "memory" in row["name"] and (megabytes(row) is not None or row["value"] is None):
                size = "not run: " + row["note"] if row["value"] is None else f"{number(megabytes(row))} MB"
                rows.append([bench["title"].split(":")[0], row["name"], size])
    for name, stored_rows in named_rows().items():
        for key, row in stored_rows.items():
            rows += [
                [
                    Path(name).stem,
                    f"{key}: {what.removesuffix(', MB').removesuffix('MB') or 'one step'}",
                    f"{number(value)} MB",
                ]
                for what, value in row["metrics"].items()
                if what.endswith("MB") and value
            ]
            if "caching" in key and not row["metrics"]:
                rows.append([Path(name).stem, key, f"not run: {row.get('not_run', 'no reason given')}"])
    return table(["benchmark", "what", "peak memory (evaluation: the whole process; losses: what a call adds)"], rows)


def passed_over(page: Path) -> str:
    "Files of docs/results that this page shows nothing of."
    from smoothap_nb.reproduction.page import SUITE, TOO_EARLY

    apart = (SUITE, TOO_EARLY)  # by `smoothap reproduce --render`
    shown = [*measurements(), *(r for group in experiments().values() for r in group)]
    left = [name for name, value in stored().items() if not any(value is s for s in shown) and name not in apart]
    damaged = sorted(p.name for p in RESULTS.glob("*.json") if p.name not in stored())
    lines = [f"- `{name}`: of another kind, shown elsewhere" for name in left] + [
        f"- `{name}`: cannot be read, passed over" for name in damaged
    ]
    return "\n".join(lines) or "Every file is shown."


def plot_name(kind: str, name: str) -> str:
    return f"results-{kind}-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.png"


def computed(name: str):
    "A block that the library computes now; values.py is imported when one is asked for."
    def block(page: Path) -> str:
        import values

        return getattr(values, name)()
    return block


def teaching(page) -> str:
    "CPU time of every lesson and problem set."
    found = stored().get("teaching.json")
    if not found:
        return "Not measured yet: `python tools/teaching.py`."
    times = found["cpu_seconds"]
    lessons, sets = ([n for n in times if n.startswith("set") == wanted] for wanted in (False, True))
    rows = [[cell for n in pair for cell in ((n.replace("_", " ", 1), f"{times[n]:.0f} s") if n else ("", ""))]
            for pair in itertools.zip_longest(lessons, sets)]
    where = found["environment"]
    return (
        f"{table(['lesson', 'CPU', 'problem set', 'CPU'], rows)}\n\n"
        f"{where['hardware']} (torch {where['torch']}), {found['date']}, commit {where['commit']}; "
        f"`{found['command']}`."
    )


def grading(page) -> str:
    "What grading a class takes."
    found = stored().get("course.json")
    if not found:
        return "Not measured yet: `python tools/course.py measure`."
    rows = [
        [name.split("_")[0].replace("set", "set "), f"{one['cpu_s']:.1f} s", f"{one['wall_s']:.1f} s"]
        for name, one in found["per_submission"].items()
    ]
    where, sets = found["environment"], list(found["per_submission"].values())

    def minutes(many: int) -> str:
        wall, cpu = (50 * sum(one[key] for one in sets[:many]) / 60 for key in ("wall_s", "cpu_s"))
        return f"{many} sets {wall:.0f} minutes ({cpu / 2:.0f} by the CPU time alone)"

    return (
        f"{table(['problem set', 'CPU of one submission', 'wall, by submission'], rows)}\n\n"
        f"So 50 submissions of each take, for the first {minutes(8)}, for all {minutes(len(sets))}: extrapolated from "
        f"{found['submissions_per_set']} submissions per set (half of them right, half blank), graded two at a time. "
        f"Taken under a load of {found['load_of_the_machine']}, two of it the graders', on "
        f"{where['hardware']['cores']} cores ({where['hardware']['cpu']}), {where['date']}, commit {where['commit']}; "
        f"`{found['command']}`."
    )


def mutation(page: Path) -> str:
    "How many small faults the default tests notice."
    found = stored().get("mutation.json")
    if not found:
        return "Not measured yet: `python tools/mutate.py`."
    where, left = found["environment"], len(found["survivors"])
    return (
        f"The default tests killed {found['killed']} of {found['mutants']} mutants drawn with seed {found['seed']}, "
        f"{found['score']:.1%}" + (f" ({left} survived)" if left else "") + f"; {len(found['equivalent'])} drawn "
        f"beside them are known to change nothing. `{found['command']}`, {found['date']}, commit {where['commit']}, "
        f"torch {where['torch']}."
    )


def house(page: Path) -> str:
    "How large the library is, and how long its default tests take."
    found = stored().get("house.json")
    if not found:
        return "Not measured yet: `python tools/house.py --tests`."
    size = found["library"]
    (then, now), (code_then, code_now) = size["in both"]["lines"], size["in both"]["without docstrings"]
    shrank = size["now"]["lines"] < size["before"]["lines"]
    most = ", ".join(f"{room} {lines:,}" for room, lines in list(size["new"]["rooms"].items())[:6])
    lines = [
        f"The library has {size['now']['lines']:,} lines (commit {size['now']['commit']}); before it became a house it "
        f"had {size['before']['lines']:,} and was to shrink. "
        f"{'So it did.' if shrank else 'That was missed.'} "
        f"{size['new']['names']} functions and classes are new ({size['new']['lines']:,} lines: {most}), "
        f"{size['gone']['names']} are gone ({size['gone']['lines']:,}); the {size['in both']['names']} that both have "
        f"went from {then:,} to {now:,} lines, without docstrings from {code_then:,} to {code_now:,}."
    ]
    if tests := found.get("tests"):
        rooms = ", ".join(f"{room} {seconds}" for room, seconds in list(tests["seconds by room"].items())[:6])
        where, (minutes, rest) = tests["environment"], divmod(tests["seconds"], 60)
        lines.append(
            f"\nThe default tests ({tests['tests']:,}) took {minutes} min {rest} s with {tests['workers']} workers on "
            f"{tests['cores']} cores ({where['hardware']}); six minutes are wanted. "
            f"Seconds of a worker by room: {rooms}. `python tools/house.py --tests`, {tests['date']}, "
            f"commit {where['commit']}."
        )
    return "\n".join(lines)


def first_bottleneck(page: Path) -> str:
    "What bounds Smooth-AP on Stanford Online Products at batch 384: reading or the card, by the model of `--show`."
    from smoothap_nb import reproduction as rp

    entry, numbers = rp.find_entry("sop/smooth-ap-bs384"), (8, 16, 32)
    cost = rp.cost_of(entry)
    half = rp.cost_of(entry, entry.experiment({"optim.precision": "bfloat16"}))
    rows = []
    for bits, found in (("32", cost), ("16", half)):
        for card, rate in found["rates"].items():
            bounds = [rp.bottleneck(found, card, cores) for cores in numbers]
            rows.append(
                [card, bits, f"{rate:,.0f}", f"{found['cores'][card]:.1f}", *(f"{w}, {v:,.0f}/s" for w, v in bounds)]
            )
    pixels = entry.experiment().data.size
    fitting = [name for name, hours in cost["hours"].items() if hours is not None]
    return (
        f"{cost['steps']:,} steps, {cost['pictures']:,} pictures, about {cost['memory']:.0f} GB in 32 bits (it fits "
        f"{', '.join(fitting)} without micro-batches), {cost['gflop']:.1f} GFLOP for a picture's forward pass at "
        f"{pixels} px; one core reads and crops {rp.PICTURES_PER_CORE} photographs a second "
        f"([measured](benchmarks.md)).\n\n"
        + table(
            ["card", "bits", "pictures/s it computes", "cores that keep up"]
            + [f"first bottleneck, {cores} cores" for cores in numbers],
            rows,
        )
        + "\n"
    )


def official_hours(page: Path) -> str:
    "Hours of one core and gigabytes for the official revisited sets, extrapolated from a few pictures."
    path = ROOT / "docs" / "results" / "official-hours.json"
    if not path.is_file():
        return "Not timed yet: `python -m smoothap_nb.retrieval.official hours`.\n"
    found = json.loads(path.read_text(encoding="utf-8"))
    where, hours, size = found["environment"], found["hours"], found["gigabytes"]
    steps = {"features": "local features", "words": "words and index", "network": "a ResNet-101, three scales"}
    rows = [
        [name, *(f"{hours[name][s]:,.1f}" for s in steps), *(f"{size[name][k]:,.1f}" for k in ("features", "index"))]
        for name in hours
    ]
    return (
        f"Expected hours of one core ({where['hardware']}), extrapolated from the CPU seconds of {found['pictures']} "
        f"(pictures of Town, enlarged to 1,024 pixels; {found['date']}). The codebook of {found['words']:,} words, "
        f"which is learnt once, takes {found['codebook_hours']:,.1f} hours more. A GPU does it sooner.\n\n"
        + table(["set", *(f"{v}, hours" for v in steps.values()), "features, GB", "index, GB"], rows)
        + "\n"
    )


def town_mining(page: Path) -> str:
    "What the quarter of Town's distractors that was mined costs, against any quarter and all: medians of the towns."
    found = stored().get("town.json", {})
    towns = [t["mining"] for seed, t in found.get("towns", {}).items() if seed != "100" and "mining" in t]
    if not towns:
        return "Not measured yet: `python -m smoothap_nb.retrieval.town_study --part mining`.\n"
    median = lambda *keys: statistics.median(_deep(t, *keys) for t in towns)  # noqa: E731
    sets = list(next(iter(towns[0].values())))
    rows = [
        [name.replace("*", "\\*"),
         *(" / ".join(f"{median(name, s, setup, 'mAP'):.1f}" for setup in ("medium", "hard")) for s in sets)]
        for name in towns[0]
    ]
    return (
        f"mAP in percent, Medium / Hard, medians of {len(towns)} towns of {found['counts']['landmarks']} houses "
        "each:\n\n"
        + table(["method", *(f"distractors: {s}" for s in sets)], rows)
        + "\n"
    )


def town_full(page: Path) -> str:
    "Local systems on towns of the full size, medians."
    found = stored().get("town-full.json", {})
    towns = [t["local"] for t in found.get("towns", {}).values() if "local" in t]
    if not towns:
        return "Not measured yet: `python -m smoothap_nb.retrieval.town_study --part local`.\n"
    setups, crowds, measures = ("easy", "medium", "hard"), ("alone", "with distractors"), ("mAP", "mP@10")
    rows = [
        [name.replace("*", "\\*")]
        + [" / ".join(f"{statistics.median(_deep(t, name, crowd, s, m) for t in towns):.1f}" for s in setups)
           for crowd in crowds for m in measures]
        for name in towns[0]
    ]
    return (
        f"Percent, Easy / Medium / Hard, medians of {len(towns)} towns of {found['counts']['landmarks']} houses each, "
        f"with the settings of {found['settings_from']}:\n\n"
        + table(["method", *(f"{m}, {crowd}" for crowd in crowds for m in measures)], rows)
        + "\n"
    )


def _deep(value: dict, *keys: str) -> float:
    for key in keys:
        value = value[key]
    return value


BLOCKS = {
    "mining": town_mining,
    "town-full": town_full,
    "official": official_hours,
    "teaching": teaching,
    "grading": grading,
    "mutation": mutation,
    "house": house,
    "demo": demo,
    "experiments": all_experiments,
    "benchmarks": all_benchmarks,
    "memory": memory,
    "bottleneck": first_bottleneck,
    "passed-over": passed_over,
    "migration": computed("migration"),
    "conventions": computed("conventions"),
    "protocols": computed("protocols"),
    "gradients": computed("gradients"),
}


# --- pages ----------------------------------------------------------------------------------------------------------

def pages() -> list[Path]:
    "README.md, CONTRIBUTING.md and the guides that hold a part of ours."
    return [
        p
        for p in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
        if p.exists() and PART.search(p.read_text(encoding="utf-8"))
    ]


def rendered(page: Path) -> str:
    "The page with its parts made anew."
    def fill(found: re.Match) -> str:
        name = found[1]
        if name not in BLOCKS:
            raise SystemExit(f"{page.name} asks for results:{name}; there are {', '.join(BLOCKS)}")
        return (
            f"<!-- results:{name} (made by tools/results.py) -->\n{BLOCKS[name](page).rstrip()}\n<!-- end of "
            f"results:{name} -->"
        )

    return PART.sub(fill, page.read_text(encoding="utf-8"))


def main(argv: list[str]) -> int:
    sys.path[:0] = [str(ROOT / "tools"), str(ROOT)]
    import plots

    check, stale = "--check" in argv, []
    for page in pages():
        text = rendered(page)
        if text != page.read_text(encoding="utf-8"):
            stale.append(page.relative_to(ROOT).as_posix())
            if not check:
                page.write_text(text, encoding="utf-8")
    stale += plots.refresh(check)
    if check and stale:
        print(f"{', '.join(stale)}: not what the sources give, run python tools/results.py", file=sys.stderr)
        return 1
    if stale:
        print("written: " + ", ".join(stale))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
