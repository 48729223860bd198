"""The settings that the data read: which pictures and how they are cut, and what a batch holds."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ['DataConfig', 'BatchConfig']


@dataclass
class DataConfig:
    "Which pictures, and how they are cut."
    name: str = "glyphs"  # a name from `smoothap data list`
    root: str = "none"  # its folder; "none": the default cache (Glyphs need none)
    size: int = 32  # side of the square picture the network sees, pixels
    strength: float = 1.0  # distortion of the glyphs, 0 = none
    resize: int = 256  # photographs, evaluation: the shorter side before the centre crop of `size`
    # photographs, evaluation: squash to resize x resize before the centre crop, whatever the picture's shape
    squash: bool = False
    train_resize: int = 0  # photographs, training: the shorter side before the random crop, 0 = as it is
    # photographs, training: share of the area the random crop takes
    crop_scale: list = field(default_factory=lambda: [0.08, 1.0])
    # photographs, training: width to height of the random crop
    crop_ratio: list = field(default_factory=lambda: [0.75, 1.3333])
    flip: bool = True  # photographs, training: mirror every second one
    # threads that prepare batches ahead, beside a GPU processes where files are read; 0: one for each core that the
    # trainer may use, 16 at most
    workers: int = 0
    cache: str = "none"  # folder of the decoded cache; "none": decode the files each time
    cache_side: int = 512  # side of the cache's squares, pixels; below 512 small crops lose detail
    damaged_share: float = 0.001  # of the pictures may be unreadable before the run stops
    levels: int = 0  # levels of the label tree to use, counted from the finest; 0 = all
    protocol: str = "default"  # VehicleID: "all_vs_rest" or "one_gallery"

    @property
    def folder(self) -> str | None:
        "The root, or None where the default cache is meant."
        return None if self.root == "none" else self.root


@dataclass
class BatchConfig:
    "What a batch holds, over all processes together."
    classes: int = 28  # classes in a batch
    images: int = 4  # images of each
    sampler: str = "m_per_class"  # a name from `training.SAMPLERS`
    super_classes: int = 2  # super-classes in a batch, for the samplers that pair them
    per_pair: int = 5  # batches from each pair of super-classes, for the same samplers
    micro: int = 0  # gradient caching: images the network sees at a time, in each process; 0 = the whole batch at once
    # allow gradient caching although live batch norm makes its gradient differ from the direct one
    micro_with_live_batch_norm: bool = False
