"""Pretrained weights from files: the layouts in which people keep them, read without running anything that a file
holds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ..checks import ConfigError, reason
from .config import ModelConfig

__all__ = ['GLYPH_STAGES', 'read_state', 'fitted', 'glyph_stages', 'weights_hash']

GLYPH_STAGES = Path(__file__).with_name("glyph_stages.safetensors")  # written by tools/stages.py

NESTED = (
    "state_dict",
    "model_state_dict",
    "model",
    "net",
    "network",
    "backbone",
    "encoder",
)  # under which a checkpoint keeps its tensors
PREFIXES = (
    "module.",
    "_orig_mod.",
    "model.",
    "backbone.",
    "encoder.",
    "net.",
    "net.module.",
)  # what wrappers put before a name
CLASSIFIERS = ("fc", "classifier", "head", "head.fc", "last_linear")  # not needed: an embedding takes its place


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a .pth or .safetensors file, out of whatever they are wrapped in, without the prefixes of
    wrappers.

    Raises:
        ConfigError: no such file, a damaged one, one that holds more than tensors and numbers, or no tensors.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(
            f"model.weights: no file {path}; pass \"imagenet\", \"glyphs\", \"none\", or the path of a .pth or "
            ".safetensors file"
        )
    try:
        state = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except (SafetensorError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise ConfigError(f"{path} is damaged or is no weights file: {reason(error)}") from None
    except Exception as error:  # pickle.UnpicklingError: the file wants to run code
        raise ConfigError(f"{path} holds more than tensors and is not loaded: {reason(error)}") from None
    while isinstance(state, Mapping):  # numbers beside the weights, such as the best accuracy, may be tensors too
        inner = next((state[key] for key in NESTED if isinstance(state.get(key), Mapping)), None)
        if inner is None:
            break
        state = inner
    if not isinstance(state, Mapping) or not any(isinstance(v, Tensor) for v in state.values()):
        raise ConfigError(
            f"{path} holds no tensors by name, neither at the top nor under {', '.join(map(repr, NESTED))}"
        )
    return {str(k): v for k, v in state.items() if isinstance(v, Tensor)}


def fitted(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path, name: str) -> dict[str, Tensor]:
    """The tensors of `state` for a network: prefixes of wrappers are taken off, classifiers left out.

    Args:
        state: of `read_state`.
        wanted: the network's own state dict.
        path, name: of file and network, for messages.

    Returns:
        tensors for all names of `wanted` but the classifier's, for `load_state_dict(..., strict=False)`.

    Raises:
        ConfigError: tensors are missing or have another shape.
    """
    needed = [
        key for key in wanted if key.rpartition(".")[0] not in CLASSIFIERS and not key.endswith("num_batches_tracked")
    ]
    for _ in range(4):  # wrappers in wrappers
        if any(key in state for key in needed):
            break
        prefix = next((p for p in PREFIXES if state and sum(k.startswith(p) for k in state) > len(state) / 2), None)
        if prefix is None:
            break
        state = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    wrong = [k for k in needed if k not in state or state[k].shape != wanted[k].shape]
    if wrong:
        what = (
            f"has shape {tuple(state[wrong[0]].shape)}, {tuple(wanted[wrong[0]].shape)} is needed"
            if wrong[0] in state
            else f"is missing (the file begins with {next(iter(state), 'nothing')!r})"
        )
        raise ConfigError(
            f"{path} does not fit {name}: {len(wrong)} of {len(needed)} tensors are missing or of another shape, first "
            f"{wrong[0]!r}, which {what}"
        )
    return {k: state[k] for k in wanted if k in state and k.rpartition(".")[0] not in CLASSIFIERS}


def glyph_stages(config: ModelConfig) -> dict[str, Tensor]:
    """What the package brings: all but the last stage of a ResNet-18 that learnt to tell half of Glyphs' training
    characters apart (softmax, 32 px). It never saw a validation or test character.

    Args:
        config: of the network that they are for.

    Returns:
        float32 tensors by name, stored in float16.

    Raises:
        ConfigError: another network, or the file is missing.
    """
    if config.backbone != "resnet18" or config.stem != "imagenet":
        raise ConfigError(
            f"model.weights = \"glyphs\" are stages of a resnet18 with the stem \"imagenet\", and this is a "
            f"{config.backbone} with the stem {config.stem!r}: set both, or model.weights = \"none\""
        )
    return {name: tensor.float() for name, tensor in read_state(GLYPH_STAGES).items()}


def weights_hash(config: ModelConfig) -> str:
    """The first eight hexadecimal digits of the weights' SHA-256, as torchvision puts them in its files' names;
    empty where nothing can be said.
    """
    if config.weights == "none":
        return ""
    if config.weights == "imagenet":
        try:
            from torchvision.models import get_model_weights

            found = re.search(r"-([0-9a-f]{8})\.pth$", get_model_weights(config.backbone)["IMAGENET1K_V1"].url)
            return found.group(1) if found else ""
        except (ImportError, ValueError, KeyError):
            return ""
    path = GLYPH_STAGES if config.weights == "glyphs" else Path(config.weights)
    return _hash_of(path, path.stat().st_mtime_ns) if path.is_file() else ""


@lru_cache(8)
def _hash_of(path: Path, changed: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:8]
