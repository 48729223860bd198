"""Read and write a .safetensors file with what torch and Python have: the losses depend on nothing else. Plain file."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a .safetensors file: eight bytes of length, a JSON header, the numbers.

    Args:
        path: the file.

    Returns:
        tensors by name, and the header's text entries.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file of another kind, or one that is cut short.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    content = path.read_bytes()
    try:
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8: 8 + size])
        facts = header.pop("__metadata__", {})
        tensors = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            part = bytearray(content[8 + size + begin: 8 + size + end])
            if len(part) != end - begin:
                raise ValueError("it is cut short")
            tensors[name] = torch.frombuffer(part, dtype=_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{path} is no .safetensors file that can be read here ({error})") from None
    return tensors, facts


def write_weights(path: Path, tensors: dict[str, Tensor], facts: dict[str, str]) -> None:
    """Write tensors and text entries as a .safetensors file, whole or not at all.

    Args:
        path: the file; one of that name is replaced.
        tensors: by name, of a type that `read_weights` knows.
        facts: entries of the header.
    """
    names = {dtype: name for name, dtype in _DTYPES.items()}
    header: dict[str, dict] = {"__metadata__": dict(facts)}
    parts, end = [], 0
    for name, tensor in tensors.items():
        part = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [end, end + len(part)],
        }
        parts.append(part)
        end += len(part)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))
    temporary.replace(path)
