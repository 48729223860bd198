"""Files that are whole or absent: checkpoints, weights, and what brings a run back to the bit."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm.auto import tqdm

from ..checks import reason
from ..files import fsync, replacing

__all__ = [
    'RunError',
    'write_tensors',
    'read_tensors',
    'save_checkpoint',
    'load_checkpoint',
    'pack',
    'unpack',
    'random_states',
    'restore_random',
    'save_model',
    'read_weights',
]


class RunError(RuntimeError):
    "A run that cannot start or go on; the message says why and what to do."


def _checksum(tensors: dict[str, Tensor]) -> str:
    "SHA-256 of the names, types, shapes and bytes of tensors on the CPU."
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors on the CPU as a safetensors file with a checksum in its header; atomically, its mode by the umask.

    Raises:
        OSError, SafetensorError: it cannot be written; an old file is untouched.
    """
    tensors = {name: value.contiguous() for name, value in tensors.items()}
    with replacing(path) as unfinished:
        save_file(tensors, unfinished, metadata={"format": "pt", "sha256": _checksum(tensors)})


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file, compared with its checksum where it has one.

    Raises:
        OSError, SafetensorError: a file that cannot be read.
        ValueError: bytes that are not those that were written.
    """
    with safe_open(path, "pt") as file:
        said = (file.metadata() or {}).get("sha256")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if said is not None and said != _checksum(tensors):
        raise ValueError("its checksum is wrong: a byte has changed since it was written")
    return tensors


def _signed(state: dict) -> str:
    "JSON of a state with its checksum."
    return json.dumps(state | {"sha256": hashlib.sha256(json.dumps(state).encode()).hexdigest()})


def _read_signed(path: Path) -> dict:
    "The state of such a file; files of version 0.1 have no checksum."
    state = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(state, dict):
        raise ValueError("state.json holds no table")
    said = state.pop("sha256", None)
    if said is not None and said != hashlib.sha256(json.dumps(state).encode()).hexdigest():
        raise ValueError("the checksum of state.json is wrong: a byte has changed since it was written")
    return state


def save_checkpoint(folder: Path, step: int, tensors: dict[str, Tensor], state: dict, keep: int = 2) -> Path:
    """Write `folder`/step-N whole or not at all, then delete all but the newest `keep`.

    Raises:
        RunError: the disk is full or read-only; what was there before is untouched.
    """
    final = folder / f"step-{step:08d}"
    temporary = folder / f".writing-{step:08d}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        write_tensors(temporary / "state.safetensors", {k: v.detach().to("cpu", copy=True) for k, v in tensors.items()})
        (temporary / "state.json").write_text(_signed(state), encoding="utf-8")
        fsync(temporary / "state.json")
        fsync(temporary)
        shutil.rmtree(final, ignore_errors=True)
        os.replace(temporary, final)
        fsync(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise RunError(
            f"the checkpoint of step {step} could not be written to {folder}: {error}. The checkpoints before it are "
            f"intact: make "
            f"room (about {sum(v.numel() * v.element_size() for v in tensors.values()) / 2**20:.0f} MB), then start "
            f"the same command again"
        ) from None
    for old in sorted(folder.glob("step-*"))[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict] | None:
    "The newest checkpoint that can be read, or None; a damaged one is named and passed over."
    for path in sorted(folder.glob("step-*"), reverse=True):
        try:
            return read_tensors(path / "state.safetensors"), _read_signed(path / "state.json")
        except (OSError, SafetensorError, ValueError) as error:
            tqdm.write(f"passed over damaged checkpoint {path}: {reason(error)}")
    return None


def pack(model: nn.Module, optimizers: list[torch.optim.Optimizer], loss: nn.Module) -> tuple[dict[str, Tensor], dict]:
    "Tensors and numbers that bring model, loss and optimisers back."
    tensors = {f"model.{k}": v for k, v in model.state_dict().items()}
    tensors |= {f"loss.{k}": v for k, v in loss.state_dict().items()}
    tensors |= {f"random.{k}": v for k, v in random_states().items()}
    state = {"optimizers": []}
    for place, optimizer in enumerate(optimizers):
        saved, numbers = optimizer.state_dict(), {}
        for index, entries in saved["state"].items():
            for key, value in entries.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer{place}.{index}.{key}"] = value
                else:
                    numbers[f"{index}.{key}"] = value
        state["optimizers"].append({"groups": saved["param_groups"], "numbers": numbers})
    return tensors, state


def unpack(
    tensors: dict[str, Tensor], state: dict, model: nn.Module, optimizers: list[torch.optim.Optimizer], loss: nn.Module
) -> None:
    "Put a checkpoint back into model, loss, optimisers and random generators."
    part = lambda name: {k[len(name) + 1 :]: v for k, v in tensors.items() if k.startswith(f"{name}.")}
    model.load_state_dict(part("model"))
    loss.load_state_dict(part("loss"))
    for place, (optimizer, saved) in enumerate(zip(optimizers, state["optimizers"], strict=True)):
        if [set(group) for group in saved["groups"]] != [
            set(group) for group in optimizer.state_dict()["param_groups"]
        ]:
            raise KeyError("its optimiser has other groups.")
        entries: dict[int, dict] = {}
        for key, value in [*part(f"optimizer{place}").items(), *saved["numbers"].items()]:
            index, name = key.split(".", 1)
            entries.setdefault(int(index), {})[name] = value
        optimizer.load_state_dict({"state": entries, "param_groups": saved["groups"]})
    restore_random(part("random"))


def random_states() -> dict[str, Tensor]:
    "Where torch's random generators stand in this process."
    rank = dist.get_rank() if dist.is_initialized() else 0
    states = {f"cpu{rank}": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states[f"cuda{rank}"] = torch.cuda.get_rng_state()
    return states


def restore_random(states: dict[str, Tensor]) -> None:
    "Put this process's generators back; a process that was not there when the checkpoint was written keeps its own."
    rank = dist.get_rank() if dist.is_initialized() else 0
    if f"cpu{rank}" in states:
        torch.set_rng_state(states[f"cpu{rank}"])
    if f"cuda{rank}" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states[f"cuda{rank}"])


def save_model(model: nn.Module, run: Path, name: str = "model.safetensors") -> None:
    "Write a run's weights, atomically."
    try:
        write_tensors(run / name, {k: v.detach().cpu() for k, v in model.state_dict().items()})
    except (OSError, SafetensorError) as error:
        raise RunError(
            f"the weights could not be written to {run}: {error}. The checkpoints are intact: make room and start the "
            f"same command again"
        ) from None


def read_weights(path: Path) -> dict[str, Tensor]:
    "The tensors of a run's own file; a damaged one is named."
    try:
        return read_tensors(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise RunError(
            f"{path} is damaged: {error}. Start the training command again: it rewrites the file from the last "
            f"checkpoint"
        ) from None
