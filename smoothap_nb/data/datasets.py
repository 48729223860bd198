"""One door for all data sets: Glyphs, the papers' benchmarks as they lie on a disk, a folder or a table of your own."""

from __future__ import annotations

from .interface import DatasetError, MissingData, PictureSet, RetrievalDataset
from .photographs import DamagedImages, ImageSet
from .protocols import Protocol, average_groups, evaluate_protocols, own_rows
from .readers import DATASETS, dataset_info
from .settings import DataConfig

__all__ = [
    "DATASETS",
    "DamagedImages",
    "DatasetError",
    "ImageSet",
    "MissingData",
    "PictureSet",
    "Protocol",
    "RetrievalDataset",
    "average_groups",
    "dataset_info",
    "evaluate_protocols",
    "load_dataset",
    "load_protocols",
    "own_rows",
]


def load_dataset(
    name: str, split: str = "train", root=None, *, data: DataConfig | None = None, seed: int = 0
) -> RetrievalDataset:
    """A data set from its official layout.

    Args:
        name: a data set of `DATASETS`.
        split: "train" or "test"; In-Shop, folders and CSV files also have "query" and "gallery", VehicleID "small",
            "medium" and "large", Glyphs "val" and "all".
        root: the folder that the official archive unpacks to, or the one above; None: `data.root`, else a folder of
            that name in the cache.
        data: how pictures are cut, how many levels are used, how many pictures may be damaged; None: 224 pixels, all
            levels, one in a thousand.
        seed: of the training crops.

    Returns:
        an `ImageSet`, its labels (N, L) coarse to fine with ids from 0 in natural order of the names; for "glyphs" a
        `Glyphs`.

    Raises:
        DatasetError: an unknown name or split, a wrong or damaged list, labels that contradict the tree, a class on
            both sides of the split, a path outside of the root, a file in place of a folder.
        MissingData: folder, list or (more than `data.damaged_share` of the) pictures are not there.
    """
    return dataset_info(name).load(split, _root(root, data), data, seed)


def load_protocols(name: str, root=None, *, data: DataConfig | None = None, seed: int = 0) -> list[Protocol]:
    """The protocols of a benchmark, as the papers measure it.

    SOP, CUB, iNaturalist, VGGFace2, Glyphs: every test image against all others. In-Shop: queries against the
    gallery. VehicleID: three tests, each
    image against all others, or with `data.protocol = "one_gallery"` against one image of every vehicle, averaged
    over ten seeded draws. IJB-C:
    videos averaged to one item. DyML: three tests, one for each scale; papers report their mean (see
    `evaluate_protocols`). Folders and CSV files:
    queries against the gallery where there are both, else every test image against all others.

    Args:
        name: a data set of `DATASETS`.
        root: as in `load_dataset`.
        data: as in `load_dataset`; `data.protocol` is read for VehicleID.
        seed: of the gallery draws.

    Returns:
        protocols, ready to `evaluate`.

    Raises:
        DatasetError, MissingData: as `load_dataset`; an unknown protocol.
    """
    return dataset_info(name).protocols(_root(root, data), data, seed)


def _root(root, data: DataConfig | None):
    if data is not None and not isinstance(data, DataConfig):
        raise TypeError(f"data must be a DataConfig, got {type(data).__name__}")
    return data.folder if root is None and data is not None else root
