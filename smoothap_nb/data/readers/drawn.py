"""Glyphs: drawn, not read."""

from __future__ import annotations

from dataclasses import dataclass

from ..glyphs import Glyphs
from ..protocols import Protocol
from ..settings import DataConfig
from ..sources import DatasetInfo
from ..transforms import ImageTransform


@dataclass(frozen=True)
class DrawnInfo(DatasetInfo):
    """Characters of matplotlib's typefaces: nothing lies on a disk but a cache, and a picture is grey and padded,
    never cropped."""

    def load(self, split: str = "train", root=None, data: DataConfig | None = None, seed: int = 0) -> Glyphs:
        "See `load_dataset`."
        data = data or DataConfig()
        return Glyphs(split, data.size, data.strength, seed, root)

    def protocols(self, root=None, data: DataConfig | None = None, seed: int = 0) -> list[Protocol]:
        "See `load_protocols`."
        self.check_kind(data)
        return [Protocol("test", self.load("test", root, data, seed), metrics=self.metrics)]

    def transform(self, data: DataConfig, seed: int = 0) -> ImageTransform:
        "A user's own picture: grey, whole, padded to a square."
        return ImageTransform(data.size, gray=True, fit="pad")

    def check_settings(self, data: DataConfig) -> None:
        "Every side can be drawn; `Glyphs` says which."

    def pictures_seed(self, seed: int) -> int:
        """Zero: the distortions belong to the data set, and experiments of any seed see and are measured on the same
        pictures."""
        return 0


GLYPHS = DrawnInfo(
    "glyphs",
    "Glyphs",
    Glyphs.level_names,
    {},
    (),
    "drawn from matplotlib's typefaces, nothing to fetch",
    "",
    "lesson 10",
    metrics=("mAP", "R@1", "R@10"),
    in_memory=True,
)
