"""`smoothap`: train, evaluate, search, and find out what this machine can do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

__all__ = ['app', 'data_app', 'say', 'train', 'table', 'evaluate', 'search', 'reproduce', 'data_list', 'data_check',
           'data_miniature', 'experiments', 'doctor', 'checks', 'run']

app = typer.Typer(
    help="Ranking losses for image retrieval: train, evaluate, search.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def say(text: str) -> None:
    "A line for the person at the terminal."
    typer.echo(text)


@app.command()
def train(
    experiment: Annotated[str, typer.Argument(help="A name from `smoothap experiments`, or a .toml file.")],
    settings: Annotated[
        Optional[list[str]],
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. --set optim.lr=3e-4. Repeatable."),
    ] = None,
    run: Annotated[Optional[Path], typer.Option(help="Folder of the run; runs/NAME when left out.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete what the folder holds and start over.")] = False,
    cpu: Annotated[bool, typer.Option("--cpu", help="Use the CPU even where a CUDA device is found.")] = False,
    record_to: Annotated[
        Optional[Path], typer.Option("--record", help="Also write the measured numbers to this JSON file.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Train an experiment, measure it on held-out classes, write report.html. The same command resumes a run that was
    stopped or killed.
    """
    import torch

    from ..detection.command import is_detection, run_detection
    from ..train.config import load_experiment
    from ..show.report import write_report
    from ..files import write_atomic
    from ..train.checkpoints import RunError
    from ..train.loop import fit
    from ..train.machine import engine_for, environment, pick_device
    from ..train.measure import measure
    from ..train.runs import load_run, open_run
    from ..train.setup import prepare
    from ..train.validation import finish

    device = torch.device("cpu") if cpu else pick_device()
    if is_detection(experiment):
        tell = (lambda text: None) if quiet else say
        run_detection(experiment, settings or [], run, fresh=fresh, device=device, record_to=record_to, say=tell)
        return
    chosen = load_experiment(experiment, settings or [])
    if device.type == "cuda" and chosen.on_cuda != "none":
        say(f"CUDA device found: {chosen.on_cuda} takes the place of {chosen.name}")
        chosen = load_experiment(chosen.on_cuda, settings or [])
    engine = engine_for(cpu=device.type == "cpu")  # one process, or as many as torchrun or accelerate launch started
    run = run or Path("runs") / chosen.name
    if engine.is_main_process:
        open_run(run, chosen, fresh)
    engine.wait_for_everyone()
    tell = say if engine.is_main_process else lambda text: None
    finished = False
    if (run / "model.safetensors").exists():
        try:
            load_run(run, "cpu")
            finished = True
            tell(f"{run} is trained already; measuring it again (--fresh starts over)")
        except RunError as error:
            tell(f"{error}")
    if not finished:
        training = prepare(chosen, run, device)
        tell(
            f"{chosen.name}: {chosen.model.backbone}, {len(training.data):,} pictures of "
            f"{len(training.labels[:, -1].unique()):,} classes, "
            f"batches of {chosen.batch.classes} x {chosen.batch.images}, {training.times.steps:,} steps on "
            f"{training.device}"
            + (f", {engine.num_processes} processes" if engine.num_processes > 1 else "")
        )
        if training.resume():
            tell(f"resumed at step {training.step}")
        here = environment(training.device)  # asked now: the checkout may change while the network trains
        fit(training, progress=not quiet)
        facts = finish(training) | {"environment": here}
        if training.main:
            write_atomic(run / "run.json", json.dumps(facts, indent=1) + "\n")
        tell(
            f"trained in {facts['seconds']:.0f} s, of which {facts['waited_for_data']:.0%} waiting for data; weights "
            f"of step {facts['weights']['step']} "
            f"({facts['weights']['why']})"
        )
        training.close()
    if not engine.is_main_process:
        return  # measured by the main process alone
    record, shown = measure(run, progress=not quiet)
    page = write_report(run, record, shown)
    if record_to is not None:
        write_atomic(record_to, json.dumps(record, indent=1) + "\n")
    say(table(record["metrics"]))
    say(f"report: {page}")


def table(metrics: dict[str, dict]) -> str:
    "Metrics of several competitors as aligned columns."
    keys = [k for k in next(iter(metrics.values())) if not k.endswith("queries_skipped")]
    width = max(map(len, metrics)) + 2
    if len(keys) > 12:  # several tests: a line for each metric
        lines = [f"{'':<{max(map(len, keys)) + 2}}" + "".join(f"{name:>{max(7, len(name)) + 2}}" for name in metrics)]
        return "\n".join(
            lines
            + [
                f"{k:<{max(map(len, keys)) + 2}}"
                + "".join(f"{row[k]:>{max(7, len(name)) + 2}.3f}" for name, row in metrics.items())
                for k in keys
            ]
        )
    lines = [" " * width + "".join(f"{k:>{max(7, len(k)) + 2}}" for k in keys)]
    lines += [
        f"{name:<{width}}" + "".join(f"{row[k]:>{max(7, len(k)) + 2}.3f}" for k in keys)
        for name, row in metrics.items()
    ]
    return "\n".join(lines)


@app.command()
def evaluate(
    target: Annotated[
        Path,
        typer.Argument(help="The folder that `smoothap train` wrote, or a .npy or .safetensors file of embeddings."),
    ],
    labels: Annotated[
        Optional[Path],
        typer.Option(help="Labels of the embeddings: .npy, or .csv with a column for each level, coarse to fine."),
    ] = None,
    gallery: Annotated[Optional[Path], typer.Option(help="Embeddings of a separate gallery.")] = None,
    gallery_labels: Annotated[Optional[Path], typer.Option(help="Labels of the gallery.")] = None,
    metric: Annotated[
        Optional[list[str]], typer.Option(help="A metric, e.g. mAP, R@10, H-AP. Repeatable; a good set when left out.")
    ] = None,
    ties: Annotated[
        str, typer.Option(help="How equal scores count: max (against), min (in favour) or average.")
    ] = "max",
    memory: Annotated[str, typer.Option(help="Working memory beside the inputs.")] = "1GB",
    normalize: Annotated[
        str,
        typer.Option(
            help="Embeddings that are not of length 1: yes (scale them, with a notice), refuse, or no (compare raw dot "
                 "products)."
        ),
    ] = "yes",
    json_to: Annotated[Optional[Path], typer.Option("--json", help="Write the numbers to this JSON file.")] = None,
    markdown_to: Annotated[
        Optional[Path], typer.Option("--markdown", help="Write the table to this Markdown file.")
    ] = None,
    report: Annotated[
        Optional[Path],
        typer.Option(help="Write a page with the metrics per class (a run always gets its report.html)."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Measure a finished run again on its held-out classes, or embeddings from files; as a table, JSON, Markdown and a
    page.
    """
    from ..checks import ConfigError, nearest
    from ..show.report import markdown_table, write_files_report, write_report
    from ..files import write_atomic
    from ..train.measure import measure, measure_files

    if target.is_file():
        scaling = {"yes": True, "refuse": "refuse", "no": False}
        if normalize not in scaling:
            raise ConfigError(f"--normalize is {normalize!r}: {nearest(normalize, scaling)}")
        record, values = measure_files(
            target,
            labels,
            gallery,
            gallery_labels,
            metric or (),
            progress=not quiet,
            ties=ties,
            memory=memory,
            normalize=scaling[normalize],
        )
        metrics = {target.name: record["metrics"]}
        page = write_files_report(report, record, values) if report is not None else None
    else:
        if any(option is not None for option in (labels, gallery, gallery_labels, metric)):
            raise ConfigError(
                "--labels, --gallery, --gallery-labels and --metric go with a file of embeddings; a run is measured on "
                "its own held-out classes "
                "with the metrics of its experiment.toml"
            )
        record, shown = measure(target, progress=not quiet)
        metrics, page = record["metrics"], write_report(target, record, shown)
    say(table(metrics))
    for path, text in ((json_to, json.dumps(record, indent=1) + "\n"), (markdown_to, markdown_table(metrics))):
        if path is not None:
            write_atomic(path, text)
            say(f"written: {path}")
    if page is not None:
        say(f"report: {page}")


@app.command()
def search(
    image: Annotated[Optional[Path], typer.Argument(help="The picture to look for; leave it out with --text.")] = None,
    gallery: Annotated[
        Optional[Path],
        typer.Option(
            help="The folder of pictures to look in, with its subfolders; with --text held-out glyphs when left out."
        ),
    ] = None,
    run: Annotated[Path, typer.Option(help="The run whose network compares the pictures.")] = ...,
    text: Annotated[
        str, typer.Option(help="Words to look for instead of a picture; the run is one of `smoothap captions`.")
    ] = "",
    k: Annotated[int, typer.Option("-k", help="How many pictures to return.")] = 10,
    sheet: Annotated[Path, typer.Option(help="Where the contact sheet goes.")] = Path("search.png"),
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    "Query by example on your own pictures, or by words: print the ranking, write a contact sheet."
    if text:
        from .captions import search_text

        if image is not None:
            raise ValueError(f"look for a picture ({image}) or for words (--text {text!r}), not for both")
        return search_text(text, run, gallery, k, sheet, progress=not quiet)
    if image is None or gallery is None:
        raise ValueError(
            "name the picture to look for and --gallery FOLDER to look in, or --text \"words\" with a run of `smoothap "
            "captions`"
        )
    from ..files import data_root
    from ..retrieval.by_example import contact_sheet
    from ..retrieval.by_example import search as look
    from ..train.runs import load_run

    model, transform = load_run(run)
    results = look(image, gallery, model, transform, k=k, cache=data_root() / "search", progress=not quiet)
    for place, (path, score) in enumerate(results, 1):
        say(f"{place:>4}  {score:.4f}  {path}")
    say(f"contact sheet: {contact_sheet(image, results, sheet)}")


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="A row's experiment, such as sop/smooth-ap-bs384; `glyphs`: the papers' claims on Glyphs "
                 "(`glyphs/TEXT`: only runs whose name holds the text)."
        ),
    ] = "",
    listing: Annotated[
        bool,
        typer.Option(
            "--list", help="List the experiments; with NAME, those that hold this text or fit the pattern (* and ?)."
        ),
    ] = False,
    show: Annotated[
        bool,
        typer.Option(
            "--show",
            help="Print what it takes (steps, memory, hours) and its settings with their sources, as a file that "
                 "`smoothap train` takes; with --root the epochs are counted.",
        ),
    ] = False,
    render: Annotated[
        bool, typer.Option("--render", help="Write docs/reproduction.md from the results in docs/results.")
    ] = False,
    root: Annotated[Optional[Path], typer.Option(help="Folder of the data set.")] = None,
    also_root: Annotated[
        Optional[Path], typer.Option(help="Folder of the second data set that faces/... is measured on (IJB-C).")
    ] = None,
    miniature: Annotated[
        bool,
        typer.Option(
            "--miniature", help="A small copy of the data set drawn from typefaces, a small network, about a minute."
        ),
    ] = False,
    settings: Annotated[
        Optional[list[str]],
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a setting; the tables then leave the result out. Repeatable."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the run.")] = 0,
    run: Annotated[
        Optional[Path],
        typer.Option(
            help="Folder of the run; runs/NAME/seedN when left out. (torchrun takes --run for its own: put -- before "
                 "the module, see docs/reproduce.md.)"
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete what the folder holds and start over.")] = False,
    record_to: Annotated[
        Optional[Path],
        typer.Option("--record", help="The JSON file that gets the numbers, instead of one in docs/results."),
    ] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Use the CPU even where a CUDA device is found.")] = False,
    grid: Annotated[str, typer.Option(help="Glyphs: tune, main, ablations or all.")] = "all",
    workers: Annotated[
        int, typer.Option(help="Glyphs: runs side by side, one CPU thread each; the numbers do not depend on it.")
    ] = 1,
    minutes: Annotated[
        float, typer.Option(help="Glyphs: start no run after so many minutes; the same command goes on. 0: no limit.")
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    "Repeat what the papers report: one row of a table on the real data, or their claims on the embedded Glyphs."
    from .. import reproduction as rp
    from ..checks import ConfigError
    from ..train.config import parse_setting
    from ..files import write_atomic
    from ..train.machine import pick_device

    if render:
        page = Path("docs") / "reproduction.md"
        if not page.parent.is_dir():
            raise ConfigError("--render writes docs/reproduction.md: start it in the root of the repository")
        write_atomic(page, rp.reproduction_page(page.parent / "results"))
        say(f"written: {page}")
    elif listing:
        found = rp.find_entries(name)
        for entry in found:
            say(f"{entry.name:<34}{entry.kind:<10}{'; '.join(map(rp.row_name, entry.rows))}")
        if not found:
            raise ConfigError(f"no experiment fits {name!r}: smoothap reproduce --list shows them all")
        if not name:
            say(
                f"{'glyphs':<34}{'ours':<10}the papers' claims on Glyphs, {len(rp.glyph_runs())} runs: --grid tune | "
                f"main | ablations | all"
            )
    elif not name:
        raise ConfigError(
            "name an experiment, e.g. smoothap reproduce sop/smooth-ap-bs384 --miniature; smoothap reproduce --list "
            "shows them all"
        )
    elif show:
        say(_shown(rp.find_entry(name), root, settings))
    else:
        changes = {".".join(keys): value for keys, value in map(parse_setting, settings or [])}
        if name.split("/")[0] == "glyphs":
            rows = rp.glyph_grid(
                grid,
                "cpu" if cpu else pick_device().type,
                record_to,
                workers,
                changes,
                name.partition("/")[2],
                minutes,
                say,
            )
            say(rp.claims_table(rp.claims(rows)))
        else:
            result = rp.reproduce(
                name,
                root,
                changes | {"seed": seed},
                run,
                also_root=also_root,
                miniature=miniature,
                record=record_to,
                fresh=fresh,
                progress=not quiet,
                device="cpu" if cpu else None,
                say=say,
            )
            if result["metrics"]:  # the main process
                say(rp.against_paper(result))


def _shown(entry, root, settings) -> str:
    "What `reproduce --show` prints: a file for `smoothap train`, with the costs on top."
    from .. import reproduction as rp
    from ..train.config import parse_setting

    if entry.measure != "retrieval":
        return rp.show_entry(entry)
    experiment, labels = (
        entry.experiment({".".join(keys): value for keys, value in map(parse_setting, settings or [])}),
        None,
    )
    if root is not None:
        from ..data.datasets import load_dataset

        labels = load_dataset(experiment.data.name, "train", root, data=experiment.data).labels
    return rp.as_toml(entry, experiment, rp.cost_of(entry, experiment, labels)).rstrip()


@app.command()
def results(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of runs (or docs/results); what lies below them counts too.")
    ],
    miniatures: Annotated[
        bool, typer.Option("--miniatures", help="Show runs on miniatures too, to see the table filled.")
    ] = False,
    write_to: Annotated[Optional[Path], typer.Option("--write", help="Write the table to this Markdown file.")] = None,
) -> None:
    "Collect the results of runs into the papers' tables: paper, obtained, gap."
    from .. import reproduction as rp
    from ..checks import ConfigError
    from ..files import write_atomic

    missing = [str(folder) for folder in folders if not folder.exists()]
    if missing:
        raise ConfigError(f"there is no {missing[0]}: name a folder of runs")
    runs, complaints = rp.read_runs(*folders, miniatures=miniatures)
    for line in complaints:
        say(f"note: {line}")
    table = rp.obtained_table(runs)
    say(table)
    if write_to is not None:
        write_atomic(write_to, table + "\n")
        say(f"written: {write_to}")


data_app = typer.Typer(
    help="The papers' data sets: which there are, is my copy complete, a small stand-in.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")


@data_app.command("list")
def data_list(name: Annotated[Optional[str], typer.Argument(help="Show one data set in full.")] = None) -> None:
    "List the data sets, or say about one of them what belongs to it and where to get it."
    from ..data.readers import DATASETS, dataset_info

    if name is None:
        for key, info in DATASETS.items():
            say(f"{key:<14}{info.title:<48}{' > '.join(info.levels)}")
        return
    info = dataset_info(name)
    say(f"{name}: {info.title}" + (f" ({info.papers})" if info.papers else ""))
    for title, value in (
        ("levels", " > ".join(info.levels)),
        ("files", ", ".join(info.layout)),
        ("from", info.source),
        ("note", info.note),
        ("metrics", ", ".join(info.metrics) if info.levels else ""),
    ):
        if value:
            say(f"  {title:<9}{value}")
    for split, counts in info.counts.items():
        for count in counts:
            classes = count.classes if isinstance(count.classes, tuple) else (count.classes,) if count.classes else ()
            say(
                f"  {split:<9}"
                + ", ".join(
                    filter(
                        None,
                        (
                            f"{count.images:,} images" if count.images else "",
                            f"{' > '.join(f'{n:,}' for n in classes)} classes" if classes else "",
                        ),
                    )
                )
                + f" ({count.source})"
            )


@data_app.command("check")
def data_check(
    name: Annotated[str, typer.Argument(help="A name from `smoothap data list`.")],
    root: Annotated[
        Optional[Path], typer.Option(help="The folder that the official archive unpacks to; the cache when left out.")
    ] = None,
    every_picture: Annotated[
        bool, typer.Option("--every-picture", help="Open every picture, not sixteen of each split.")
    ] = False,
) -> None:
    "Compare a copy of a data set with the official lists and counts: what is missing, and where to get it."
    from ..data.checking import check_dataset

    lines = check_dataset(name, root, every_picture=every_picture)
    for what, state, fact, mend in lines:
        say(f"{state:<5} {what:<20} {fact}" + (f"\n{'':26} -> {mend}" if mend else ""))
    raise typer.Exit(1 if any(state == "fail" for _, state, _, _ in lines) else 0)


@data_app.command("miniature")
def data_miniature(
    name: Annotated[str, typer.Argument(help="A name from `smoothap data list`.")],
    to: Annotated[Path, typer.Option(help="A new or empty folder.")],
    classes: Annotated[int, typer.Option(help="Training classes; three quarters as many are held out.")] = 16,
    images: Annotated[int, typer.Option(help="Pictures of the largest classes.")] = 6,
    seed: Annotated[int, typer.Option(help="Of the pictures.")] = 0,
) -> None:
    """Write a few hundred drawn pictures in the exact layout of a data set, to try its loader and protocol without the
    data.
    """
    from ..data.miniatures import make_miniature

    folder = make_miniature(name, to, classes=classes, images=images, seed=seed)
    say(f"{folder}: a miniature of {name}; smoothap data check {name} --root {folder}")


@app.command()
def experiments() -> None:
    "List the experiments that come with the package."
    from ..detection.settings import detection_names, load_detection_experiment
    from ..train.config import experiment_names, load_experiment

    names = experiment_names()
    for name in names:
        say(f"{name:<{max(map(len, names)) + 2}}{load_experiment(name).description}")
    say("\ndetection:")
    for name in detection_names():
        say(f"{name:<{max(map(len, detection_names())) + 2}}{load_detection_experiment(name).description}")


@app.command()
def doctor() -> None:
    "Say what works on this machine, and what to do about the rest."
    from .commands import checks

    failed = 0
    for name, state, fact, mend in checks():
        failed += state == "fail"
        say(f"{state:<5} {name:<12} {fact}" + (f"\n{'':18} -> {mend}" if mend else ""))
    raise typer.Exit(1 if failed else 0)


def checks() -> list[tuple[str, str, str, str]]:
    "What `smoothap doctor` looks at: (name, 'ok' | 'note' | 'fail', fact, what to do)."
    import platform
    import shutil

    out = []
    good = sys.version_info >= (3, 11)
    out.append(
        ("Python", "ok" if good else "fail", platform.python_version(), "" if good else "install Python 3.11 or newer")
    )
    try:
        import torch
        import torchvision

        out.append(
            (
                "torch",
                "ok",
                f"{torch.__version__}, torchvision {torchvision.__version__}, {torch.get_num_threads()} threads",
                "",
            )
        )
    except ImportError as error:
        out.append(("torch", "fail", str(error), "pip install torch torchvision (versions that belong together)"))
        return out
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        out.append(
            ("CUDA", "ok", f"{torch.cuda.get_device_name()}, {free / 2**30:.1f} of {total / 2**30:.1f} GB free", "")
        )
    else:
        built = torch.version.cuda
        out.append(("CUDA", "note", f"no device (torch was built {'for CUDA ' + built if built else 'without CUDA'})",
                    "the demo runs on the CPU; for a GPU check `nvidia-smi` and install a CUDA build of torch"))
    memory = _memory()
    if memory is not None:
        out.append(
            (
                "memory",
                "ok" if memory > 3 else "note",
                f"{memory:.1f} GB available",
                "" if memory > 3 else "the demo needs about 3 GB: close other programs",
            )
        )
    from ..files import data_root

    cache = Path(data_root())
    for name, folder in (("cache", cache), ("runs", Path.cwd())):
        here = next(p for p in [folder, *folder.parents] if p.exists())
        writable = os.access(here, os.W_OK) and here.is_dir()
        free = shutil.disk_usage(here).free / 2**30
        state = "fail" if not writable and name == "runs" else "ok" if writable and free > 1 else "note"
        mend = (
            ""
            if state == "ok"
            else (
                f"make {here} writable"
                + (", or set SMOOTHAP_DATA to a folder that is" if name == "cache" else ", or work in another folder")
                if not writable
                else "less than 1 GB is free: make room"
            )
        )
        out.append((name, state, f"{folder} ({free:.0f} GB free)", mend))
    from ..train.objectives import LOSSES, loss_from_config

    broken = []
    for loss in LOSSES:
        try:
            loss_from_config({"name": loss})
        except Exception as error:
            broken.append(f"{loss}: {error}")
    out.append(
        (
            "losses",
            "fail" if broken else "ok",
            "; ".join(broken) or f"{', '.join(LOSSES)}",
            "reinstall smoothap_nb" if broken else "",
        )
    )
    for package, use in (
        ("tensorboard", "training curves"),
        ("ipywidgets", "live sliders in JupyterLab"),
        ("faiss", "approximate search in large galleries"),
    ):
        from importlib.util import find_spec

        there = find_spec(package) is not None
        out.append(
            (
                package,
                "ok" if there else "note",
                "installed" if there else "not installed",
                "" if there else f"only needed for {use}: pip install " + {"faiss": "faiss-cpu"}.get(package, package),
            )
        )
    return out


def _memory() -> float | None:
    "Available memory in GB, where the system tells it."
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) / 2**20
    except (OSError, KeyError, ValueError):
        return None


def run() -> None:
    "Run a command; tell an input's fault in one line and exit with 2."
    try:
        code = app(standalone_mode=False)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if hasattr(error, "exit_code"):  # raised by the option parser, which shows how the command is used
            if hasattr(error, "show"):
                error.show()
            sys.exit(error.exit_code)
        if isinstance(error, ModuleNotFoundError) and error.name:
            from ..extras import which_extra

            error = OSError(which_extra(error, "this"))
        if os.environ.get("SMOOTHAP_DEBUG") or not isinstance(error, (ValueError, TypeError, OSError, RuntimeError)):
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


from . import captions  # noqa: E402, F401  its commands register themselves with `app`
