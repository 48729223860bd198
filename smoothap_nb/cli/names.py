"""Names on the command line, checked and completed before anything heavy is loaded."""

from __future__ import annotations

import tomllib
from pathlib import Path

from ..naming import ConfigError, nearest

__all__ = ["experiment_names", "data_names", "paper_names", "check_experiment", "check_data", "check_paper",
           "complete_experiment", "complete_data", "complete_paper"]  # fmt: skip

HOME = Path(__file__).resolve().parents[1]


def experiment_names() -> list[str]:
    "What `smoothap train` knows by name: experiments and detection experiments."
    folders = (HOME / "experiments", HOME / "detection" / "experiments")
    return sorted(path.relative_to(f).with_suffix("").as_posix() for f in folders for path in f.rglob("*.toml"))


def data_names() -> list[str]:
    "The data sets; the registry in `data.readers` says all of each (a test compares the two)."
    return ["glyphs", "sop", "inshop", "cub", "vehicleid", "inat_base", "inat_full", "dyml_vehicle", "dyml_animal",
            "dyml_product", "vggface2", "ijbc", "folder", "csv"]  # fmt: skip


def paper_names() -> list[str]:
    "The experiments of the papers' tables, without those in the manner of the authors' code (NAME@code)."
    text = (HOME / "reproduction" / "papers" / "registry.toml").read_text(encoding="utf-8")
    listed = tomllib.loads(text)
    return [*listed["experiments"], *listed["times"]]


def check_experiment(name: str) -> None:
    "Refuse a name that `smoothap train` does not know, or a file that is not there."
    if name.endswith(".toml"):
        if not Path(name).exists():
            raise ConfigError(f"no file {name}")
    elif name not in experiment_names():
        raise ConfigError(f"no experiment {name!r}: {nearest(name, experiment_names())} (a file's name ends in .toml)")


def check_data(name: str) -> None:
    "Refuse a data set that is not known."
    if name not in data_names():
        raise ConfigError(f"no data set {name!r}: {nearest(name, data_names())}")


def check_paper(name: str) -> None:
    "Refuse an experiment that is in no table of the papers and none of our own."
    known = paper_names()
    if name.removesuffix("@code") not in known:
        near = nearest(name, known) if "/" in name else "smoothap reproduce --list shows them all"
        if name.split("/")[0] == "glyphs":
            near = "smoothap reproduce claims asks the papers' claims of Glyphs"
        raise ConfigError(f"no experiment {name!r}: {near}")


def complete_experiment(incomplete: str) -> list[str]:
    "For the shell."
    return [name for name in experiment_names() if name.startswith(incomplete)]


def complete_data(incomplete: str) -> list[str]:
    "For the shell."
    return [name for name in data_names() if name.startswith(incomplete)]


def complete_paper(incomplete: str) -> list[str]:
    "For the shell."
    return [name for name in paper_names() if name.startswith(incomplete)]
