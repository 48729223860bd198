"""The settings of Bleeker and de Rijke's image-caption runs, each with its source, and why a run cannot be made."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothap_nb.checks import nearest
from smoothap_nb.data.karpathy import load_captions, region_features
from smoothap_nb.data.readers import DatasetError

SETTINGS_FILE = Path(__file__).parent / "papers" / "captions.toml"


@dataclass(frozen=True)
class CaptionEntry:
    """One experiment.

    Attributes:
        name: "flickr30k/vse-smooth-ap", or with "@code" what the authors ran where it differs.
        settings: by name.
        sources: where each setting comes from.
    """

    name: str
    settings: dict[str, Any]
    sources: dict[str, str]

    @property
    def printed(self) -> str:
        "What the authors report of it."
        return "cited: the appendix prints no result number"


@functools.cache
def caption_registry() -> dict[str, CaptionEntry]:
    "Every experiment by name; those whose code differs from the appendix twice, as NAME and NAME@code."
    content, out = tomllib.loads(SETTINGS_FILE.read_text(encoding="utf-8")), {}
    for name, parts in content["experiments"].items():
        paper: dict[str, list] = {}
        code: dict[str, list] = {}
        for part in parts:
            own = content["parts"][part]
            paper |= {key: pair for key, pair in own.items() if key != "code"}
            code |= own.get("code", {})
        for label, pairs in ((name, paper), *([(f"{name}@code", paper | code)] if code else [])):
            settings = {key: value for key, (value, _) in pairs.items()}
            out[label] = CaptionEntry(label, settings, {key: source for key, (_, source) in pairs.items()})
    return out


def find_caption_entry(name: str) -> CaptionEntry:
    """The experiment of that name.

    Raises:
        ValueError: there is none; the nearest name is given.
    """
    if name not in caption_registry():
        raise ValueError(f"no image-caption experiment {name!r}: {nearest(name, caption_registry())}")
    return caption_registry()[name]


def published_settings() -> dict[str, dict[str, Any]]:
    "Settings of every experiment by name."
    return {name: entry.settings for name, entry in caption_registry().items()}


def why_not_run(name: str, root: str | Path | None = None) -> str:
    """What stands in the way of an experiment on this machine.

    Args:
        name: of `caption_registry`.
        root: the data set's folder (VSRN: the folder of its region features); None: its place in the cache.

    Returns:
        one sentence that starts with "not run", or "" where everything needed is there.

    Raises:
        ValueError: an unknown name.
    """
    entry = find_caption_entry(name)
    dataset, system = entry.name.split("/")
    try:
        if system.startswith("vsrn"):
            short = {"flickr30k": "f30k_precomp", "coco": "coco_precomp"}[dataset]
            region_features(root if root is not None else short)
            return (
                "not run: the region features are there, but VSRN's network (graph over regions) is not part of "
                "this package"
            )
        load_captions(dataset, root, "train", check=False)
        load_captions(dataset, root, "test")
        return ""
    except DatasetError as error:
        text = str(error)
        return text if text.startswith("not run") else f"not run: {text}"
