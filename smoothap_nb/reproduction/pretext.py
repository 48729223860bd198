"""Networks trained by softmax on one half of the training characters, and their features of everybody else, on the
disk under a hash of what made them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ..checks import ConfigError, reason
from ..data.glyph_store import glyph_key
from ..data.glyphs import Glyphs
from ..files import write_atomic
from ..losses.happier import ClusterLoss
from ..train.checkpoints import load_checkpoint, pack, read_tensors, save_checkpoint, unpack, write_tensors
from ..train.config import ModelConfig
from ..train.loop import compact_labels, rate_at
from ..train.models import EmbeddingModel
from ..train.small_maps import for_small_maps
from ..train.weights import read_state
from .ledger import only_one

__all__ = [
    "glyphs_of",
    "network_file",
    "train_resumable",
    "train_pretext",
    "load_pretext",
    "fingerprint",
    "save_stages",
    "load_stages",
    "stage_three",
    "load_features",
]


def glyphs_of(plan: dict, split: str, network: int = 0) -> Glyphs:
    "A split in the plan's size, with the network's halving; the first characters alone where the plan is a trial."
    data, few = Glyphs(split, size=plan["networks"]["size"], halving=network), plan["networks"]["characters"]
    if not few:
        return data
    fine = data.labels[:, -1]
    return data.subset(torch.isin(fine, fine.unique()[:few]).nonzero()[:, 0])


def _key(plan: dict, network: int) -> str:
    "Twelve digits of everything that decides a network: its table, its number, the pictures."
    table = {k: v for k, v in plan["networks"].items() if k not in ("count", "checkpoint", "draws")}
    text = json.dumps([table, network, glyph_key(table["size"])], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def network_file(plan: dict, network: int, folder: Path) -> Path:
    "Where a pretext network is kept."
    return Path(folder) / f"pretext-{network}-{_key(plan, network)}.safetensors"


def _model(plan: dict, seed: int) -> EmbeddingModel:
    torch.manual_seed(seed)
    table = plan["networks"]
    stem = {"stem": table["stem"]} if "stem" in table else {}
    return for_small_maps(EmbeddingModel(ModelConfig(backbone=table["backbone"], dim=plan["track-f"]["dim"], **stem)))


def train_resumable(
    model: nn.Module,
    loss: nn.Module,
    groups: list[dict],
    batch: Callable[[int], tuple[Tensor, Tensor]],
    steps: int,
    warmup: int,
    folder: Path | None = None,
    every: int = 0,
) -> list[float]:
    """AdamW with a cosine, from the newest checkpoint where there is one.

    Args:
        model: inputs to embeddings.
        loss: called as loss(embeddings, labels).
        groups: `params` and `lr` (the peak) of each group.
        batch: step to inputs and labels, a function of the step alone.
        steps: in all.
        warmup: steps of linear warm-up.
        folder: of the checkpoints; none are written without it.
        every: steps between checkpoints.

    Returns:
        the loss of each step of this call.

    Raises:
        ValueError: the loss is not finite any more.
    """
    given = [{**g, "peak": g["lr"]} for g in groups if g["params"]]
    optimizer = torch.optim.AdamW(given, weight_decay=1e-4, fused=True)  # on a CPU an eighth of the time
    start, values = 0, []
    kept = load_checkpoint(folder) if folder is not None else None
    if kept is not None:
        unpack(*kept, model, [optimizer], loss)
        start = kept[1]["step"]
    for step in range(start, steps):
        inputs, labels = batch(step)
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * rate_at(step, steps, warmup)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16) if inputs.is_cuda else nullcontext():
            found = model(inputs)
        value = loss(found.float(), labels)
        if not torch.isfinite(value):
            raise ValueError(f"the loss is {value.item()} at step {step}")
        value.backward()
        optimizer.step()
        values.append(value.item())
        if folder is not None and every and (step + 1) % every == 0 and step + 1 < steps:
            tensors, state = pack(model, [optimizer], loss)
            save_checkpoint(folder, step + 1, tensors, {**state, "step": step + 1}, keep=1)
    return values


def train_pretext(plan: dict, network: int, folder: Path, device: str = "cpu") -> Path:
    """Train a pretext network and keep it; one that is there is left as it is, one that was stopped goes on.

    Args:
        plan: of `read_plan`.
        network: its number: halving and seed.
        folder: of networks and features.
        device: where it is trained.
    """
    path, table = network_file(plan, network, folder), plan["networks"]
    with only_one(Path(folder) / "locks", path.name, wait=True):
        if path.exists():
            return path
        data = glyphs_of(plan, "pretext", network)
        labels, data = compact_labels(data.labels).to(device), data.to(device)
        model = _model(plan, network).to(device).train()
        loss = ClusterLoss(int(labels[:, -1].max()) + 1, plan["track-f"]["dim"], temperature=1 / table["scale"])
        loss = loss.to(device)
        size = min(table["batch"], len(data))

        def batch(step: int) -> tuple[Tensor, Tensor]:
            epoch, place = divmod(step, len(data) // size)
            order = np.random.default_rng([network, epoch]).permutation(len(data))
            rows = torch.as_tensor(order[place * size : (place + 1) * size])
            return data.batch(rows, draw=epoch + 1)[0], labels[rows, -1]

        groups = [
            {"params": list(model.parameters()), "lr": table["rate"]},
            {"params": list(loss.parameters()), "lr": 10 * table["rate"]},
        ]
        checkpoints = Path(folder) / f"{path.stem}-checkpoints"
        train_resumable(
            model, loss, groups, batch, table["steps"], table["steps"] // 20, checkpoints, table["checkpoint"]
        )
        write_tensors(path, {k: v.detach().cpu().clone() for k, v in model.state_dict().items()})
    return path


def load_pretext(
    plan: dict, network: int, folder: Path, weights: str = "", device: str = "cpu"
) -> EmbeddingModel:
    """A pretext network, trained first where it is not on the disk.

    Args:
        plan: of `read_plan`.
        network: its number.
        folder: of networks and features.
        weights: fingerprint that the network must have, where rows were made with it already.
        device: where it is trained.

    Returns:
        the network, on the CPU.

    Raises:
        ConfigError: the network was lost, and what was trained in its place is another.
    """
    model = _model(plan, network)
    model.load_state_dict(read_tensors(train_pretext(plan, network, folder, device)))
    found = fingerprint(model)
    if weights and found != weights:
        raise ConfigError(
            f"the rows of pretext network {network} were made with weights of fingerprint {weights}, and those in "
            f"{folder} have {found}: another processor or version rounds otherwise. Bring back the weights, or move "
            f"network-{network}.json away, so that this network alone begins anew (tuning stays)"
        )
    return model.eval()


def fingerprint(model: nn.Module) -> str:
    "Sixteen digits of a network's weights."
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode() + value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def save_stages(path: Path, model: EmbeddingModel, **header: str) -> None:
    """Keep what Track F needs of a pretext network: all but its last stage, in float16 (5.6 MB of a ResNet-18). Small
    enough to travel with the rows, since another processor would train another network.

    Args:
        path: the file.
        model: the network.
        header: what else the file says of itself, beside the network's fingerprint.
    """
    kept = {k: v for k, v in model.backbone.state_dict().items() if not k.startswith(("layer4.", "fc."))}
    kept = {k: v.half() for k, v in kept.items() if not k.endswith("num_batches_tracked")}
    write_atomic(path, save(kept, {**header, "fingerprint": fingerprint(model)}))


def load_stages(plan: dict, network: int, path: Path, weights: str) -> EmbeddingModel | None:
    """A network with the lower stages that a file of `save_stages` brings; the last stage is nobody's.

    Args:
        plan: of `read_plan`.
        network: its number.
        path: the file.
        weights: fingerprint of the network that is asked for.

    Returns:
        the network; None where there is no such file, or it is another network's.

    Raises:
        ConfigError: a damaged file.
    """
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            made = (file.metadata() or {}).get("fingerprint")
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path} is damaged: {reason(error)}. Take it from the repository again") from None
    if made != weights:
        return None
    model = _model(plan, network)
    model.backbone.load_state_dict({k: v.float() for k, v in read_state(path).items()}, strict=False)
    return model.eval()


@torch.inference_mode()
def stage_three(model: EmbeddingModel, data: Glyphs, draw: int = 0, block: int = 256) -> Tensor:
    """Features of the third stage, every place of its map.

    Args:
        model: with a torchvision ResNet.
        data: the pictures.
        draw: which distortion.
        block: pictures at a time.

    Returns:
        (N, F) float16; F = 1,024 for a ResNet-18 and 32 px.
    """
    net, rows = model.backbone, []
    for places in torch.arange(len(data)).split(block):
        x = (data.batch(places, draw)[0].expand(-1, 3, -1, -1) - model.mean) / model.std
        x = net.maxpool(net.relu(net.bn1(net.conv1(x))))
        rows.append(net.layer3(net.layer2(net.layer1(x))).flatten(1).half())
    return torch.cat(rows)


def load_features(
    plan: dict, network: int, folder: Path, weights: str = "", stages: Sequence[Path] = ()
) -> dict[str, Tensor]:
    """Features of the metric half (several draws), of validation and of test characters; made where they are missing.

    Args:
        plan: of `read_plan`.
        network: its number.
        folder: of networks and features.
        weights: fingerprint that the network must have, where rows were made with it already.
        stages: files that may hold its lower stages (see `save_stages`): the first that does takes the place of a
            training, on every machine alike.

    Returns:
        `train` (draws, N, F) float16, `val`, `test` (N, F).

    Raises:
        ConfigError: the network was lost, and what was trained in its place is another.
    """
    brought = (load_stages(plan, network, path, weights) for path in stages if weights)
    model = next((found for found in brought if found is not None), None)
    kind = "" if model is None else "-half"
    if model is None:
        model = load_pretext(plan, network, folder, weights)
    made_of = f"{network}-{weights or fingerprint(model)}{kind}-{_key(plan, network)[:6]}-{plan['networks']['draws']}"
    path = Path(folder) / f"features-{made_of}.safetensors"
    with only_one(Path(folder) / "locks", path.name, wait=True):
        if not path.exists():
            half, draws = glyphs_of(plan, "metric", network), range(1, plan["networks"]["draws"] + 1)
            made = {split: stage_three(model, glyphs_of(plan, split)) for split in ("val", "test")}
            made["train"] = torch.stack([stage_three(model, half, draw) for draw in draws])
            write_tensors(path, made)
    return read_tensors(path)
