"""The networks that cnnimageretrieval-pytorch publishes, from files that the reader has fetched: convolutions, pooling,
whitening, and what their pages say they reach on the revisited sets.

A checkpoint is a dict of `meta` (architecture, pooling, mean, std, whitenings learnt beforehand) and `state_dict`. It
is read without running anything it holds: beside tensors and numbers only numpy's plain arrays are let in.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smoothap_nb.checks import check_choice, reason
from smoothap_nb.retrieval.descriptors import (
    SCALES,
    Whitening,
    extract_descriptors,
    gem_pool,
    mac_pool,
    rmac_pool,
    spoc_pool,
)

__all__ = ["PRINTED", "Printed", "PublishedNetwork", "load_published"]


class Printed(NamedTuple):
    "mAP, percent, three scales."

    whitened: bool  # by a whitening that was learnt behind the network
    roxford5k: tuple[float, float]  # Medium, Hard
    rparis6k: tuple[float, float]


PRINTED = {  # by the beginning of the file's name; from the README and the network list of cnnimageretrieval-pytorch
    "retrievalSfM120k-vgg16-gem": Printed(True, (60.9, 32.9), (69.3, 44.2)),
    "retrievalSfM120k-resnet101-gem": Printed(True, (65.4, 40.1), (76.7, 55.2)),
    "rSfM120k-tl-resnet50-gem-w": Printed(False, (64.7, 39.0), (76.3, 54.9)),
    "gl18-tl-resnet50-gem-w": Printed(False, (63.6, 40.9), (78.0, 57.5)),
}
_CUT = {"alexnet": 1, "vgg": 1, "resnet": 2}  # layers behind the last map, which are left out


class _Pool(nn.Module):
    "Pooling, and the whitening layer of networks that have one."

    def __init__(self, kind: str, p: Tensor | None, whiten: nn.Linear | None):
        super().__init__()
        self.kind, self.p, self.whiten = kind, None if p is None else float(p), whiten

    def forward(self, maps: Tensor) -> Tensor:
        if self.kind == "gem":
            rows = gem_pool(maps, self.p)
        else:
            # theirs averages for SPoC where ours adds up: the same at length 1, which every descriptor is brought to
            rows = {"mac": mac_pool, "spoc": spoc_pool, "rmac": rmac_pool}[self.kind](maps)
        return rows if self.whiten is None else self.whiten(F.normalize(rows, dim=1))


@dataclass(frozen=True)
class PublishedNetwork:
    "What `load_published` gives."

    name: str  # of the file, without its ending
    backbone: nn.Module  # (B, 3, h, w) in [0, 1] to maps
    pool: nn.Module  # maps to descriptors
    power: float  # by which the scales of a picture are joined
    whitenings: dict[str, dict[str, Whitening]]  # by training set, then "ss" (one scale) or "ms" (several)

    def describe(self, images: Iterable[Tensor], scales=SCALES, whitening: str | None = None, **settings) -> Tensor:
        """Descriptors (N, d) of length 1, as the published evaluation makes them.

        Args:
            images: (3, H, W) each, in [0, 1].
            scales: three as published, or (1.0,).
            whitening: the training set of a whitening that the file holds; none when left out.
            **settings: `out` and `progress` of `extract_descriptors`.

        Raises:
            ValueError: a whitening that the file does not hold, no pictures.
        """
        if whitening is not None:
            check_choice("whitening", whitening, self.whitenings)
        power = self.power if len(scales) > 1 else 1.0
        rows = extract_descriptors(self.backbone, images, self.pool, scales, power, **settings)
        return rows if whitening is None else self.whitenings[whitening]["ms" if len(scales) > 1 else "ss"](rows)

    @property
    def printed(self) -> Printed | None:
        "What its page says it reaches; None for a network that is not in `PRINTED`."
        return next((v for k, v in PRINTED.items() if self.name.startswith(k)), None)


def load_published(path) -> PublishedNetwork:
    """A network of cnnimageretrieval-pytorch.

    Args:
        path: of a `.pth` file with `meta` and `state_dict`.

    Returns:
        `PublishedNetwork`, in evaluation mode on the CPU.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged file, one that wants to run code, another layout, an architecture or a pooling that is not
            built here, tensors that are missing or too many.
    """
    from torchvision import models, transforms

    path = Path(path)
    state = _read(path)
    meta, tensors = state["meta"], dict(state["state_dict"])
    if missing := [k for k in ("architecture", "pooling", "mean", "std") if k not in meta]:
        raise ValueError(f"{path}: its meta says nothing of {', '.join(missing)}")
    kind, family = meta["architecture"], next((f for f in _CUT if str(meta["architecture"]).startswith(f)), None)
    if family is None or not hasattr(models, kind):
        raise ValueError(f"{path}: its architecture is {kind!r}; AlexNet, VGG and ResNet are built here")
    pooling = meta["pooling"]
    if pooling not in ("gem", "mac", "spoc", "rmac") or meta.get("regional") or meta.get("local_whitening"):
        raise ValueError(f"{path}: pooling {pooling!r}, regional or behind a local whitening, is not built here")
    whole = getattr(models, kind)(weights=None)
    layers = list((whole if family == "resnet" else whole.features).children())[: -_CUT[family]]
    p = tensors.pop("pool.p", None)
    if (pooling == "gem") != (p is not None and p.numel() == 1):
        raise ValueError(f"{path}: GeM needs one power, pool.p")
    net = nn.Module()
    net.features = nn.Sequential(*layers)
    net.whiten = nn.Linear(*tensors["whiten.weight"].shape[::-1]) if "whiten.weight" in tensors else None
    try:
        net.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"{path}: its tensors are not those of {kind}: {reason(error)}") from None
    backbone = nn.Sequential(transforms.Normalize(meta["mean"], meta["std"]), *net.features).eval()
    plain_gem = pooling == "gem" and net.whiten is None
    return PublishedNetwork(path.stem, backbone, _Pool(pooling, p, net.whiten).eval(), float(p) if plain_gem else 1.0,
                            {name: {k: _whitening(v) for k, v in kinds.items()}
                             for name, kinds in meta.get("Lw", {}).items()})


def _whitening(stored: dict) -> Whitening:
    "Their m (D, 1) and P (d, D) as ours."
    mean, rows = (torch.as_tensor(np.asarray(stored[k]), dtype=torch.float32) for k in ("m", "P"))
    return Whitening(mean.flatten(), rows.T.contiguous())


@contextmanager
def _plain_arrays():
    "Let numpy's arrays of numbers through a reader that else takes tensors and numbers alone."
    core = np._core.multiarray if hasattr(np, "_core") else np.core.multiarray
    admitted = [np.ndarray, np.dtype, *{type(np.dtype(k)) for k in ("f4", "f8", "i4", "i8")}]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        admitted += [(core._reconstruct, f"{module}._reconstruct"), (core.scalar, f"{module}.scalar")]
    with torch.serialization.safe_globals(admitted):
        yield


def _read(path: Path) -> dict:
    if not path.is_file():
        raise FileNotFoundError(f"no network {path}")
    try:
        with _plain_arrays():
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is damaged or is no network: {reason(error)}") from None
    except Exception as error:  # pickle.UnpicklingError: the file wants to run code
        raise ValueError(f"{path} holds more than tensors and arrays and is not loaded: {reason(error)}") from None
    if not isinstance(state, dict) or not all(isinstance(state.get(k), dict) for k in ("meta", "state_dict")):
        raise ValueError(f"{path} must hold meta and state_dict, as cnnimageretrieval-pytorch writes them")
    return state
