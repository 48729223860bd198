"""The data sets that are known, one file for each family: how their lists are read, how they are tested, how many
images they have."""

from __future__ import annotations

from ...checks import nearest
from ..interface import DatasetError
from ..lists import Listing
from ..sources import DatasetInfo
from .drawn import GLYPHS
from .dyml import ANIMAL, PRODUCT, VEHICLE
from .faces import IJBC, VGGFACE2
from .nature import CUB, INAT_BASE, INAT_FULL
from .own import CSV, FOLDER
from .products import INSHOP, SOP
from .vehicles import VEHICLEID

__all__ = ["DATASETS", "DatasetInfo", "Listing", "dataset_info"]

DATASETS: dict[str, DatasetInfo] = {
    info.name: info
    for info in (
        GLYPHS,
        SOP,
        INSHOP,
        CUB,
        VEHICLEID,
        INAT_BASE,
        INAT_FULL,
        VEHICLE,
        ANIMAL,
        PRODUCT,
        VGGFACE2,
        IJBC,
        FOLDER,
        CSV,
    )
}


def dataset_info(name: str) -> DatasetInfo:
    """A data set's line in the registry.

    Raises:
        DatasetError: no such data set; the nearest name is given.
    """
    if not isinstance(name, str) or name not in DATASETS:
        raise DatasetError(f"no data set {name!r}: {nearest(name, DATASETS)}")
    return DATASETS[name]
