"""A network for Town: a small ResNet that learns houses of towns that nobody judges, and its descriptors, pooled in all
the ways of lesson 16.

It sees houses of other towns, eight views each, first as classes (a softmax over cosines), then by Smooth-AP. It is
trained once for all towns, as the published networks are trained once for Oxford and Paris, and so is its whitening.
Two recipes are kept: the first one gave a weak network, and the second asks whether more houses, more pixels and more
steps mend that. The validation town chooses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smoothap_nb.data.revisited_files import load_distractors, read_image
from smoothap_nb.data.town import DRAWING, Town, TownSize, draw_once
from smoothap_nb.data.town_streets import WIDE
from smoothap_nb.files import data_root, write_atomic
from smoothap_nb.losses.smooth import SmoothAPLoss
from smoothap_nb.retrieval.descriptors import (
    crow_pool,
    gem_pool,
    learn_whitening,
    mac_pool,
    query_expansion,
    rmac_pool,
    spoc_pool,
)
from smoothap_nb.retrieval.local import diffuse
from smoothap_nb.retrieval.netvlad import NetVLAD

__all__ = ["POOLINGS", "RECIPES", "Recipe", "training_houses", "train_backbone", "kept_backbone", "train_netvlad",
           "town_descriptors", "global_scores", "whiten"]

POOLINGS = {"MAC": mac_pool, "SPoC": spoc_pool, "CroW": crow_pool, "R-MAC": rmac_pool, "GeM": gem_pool}


class Recipe(NamedTuple):
    "How a network is trained."

    towns: int  # with 50 houses each
    side: int  # pixels of a picture's longer side, as the network sees it
    crop: int  # pixels of a house that is cut out, in training
    reach: float  # how much larger than the house what is cut out may be
    epochs: int  # houses as classes
    steps: int  # Smooth-AP


RECIPES = {"first": Recipe(4, 128, 64, 1.3, 30, 100), "second": Recipe(8, 192, 96, 1.6, 30, 200)}
FIRST_TOWN = 300  # seed of the first; the others follow
HOUSES = TownSize(0, 0, 50, 8, 0, 0)  # of each town
VERSION = 1  # goes up when training changes


def training_houses(recipe: Recipe, root=None, houses: TownSize = HOUSES) -> tuple[Tensor, Tensor, Tensor]:
    """Houses that are in no judged town, drawn at the first call.

    Returns:
        pictures (N, 3, side, side) in [0, 1], black where a picture is not square, boxes (N, 4) of the houses in their
        pixels, and (N,) which house.
    """
    pictures, boxes, labels, side = [], [], [], recipe.side
    for town in range(recipe.towns):
        seed = FIRST_TOWN + town
        folder = data_root(root) / "town" / f"training-{houses.distractors}x{houses.distractor_views}-{seed}-v{DRAWING}"
        draw_once(folder, houses, seed)
        records = json.loads((folder / "town.json").read_text(encoding="utf-8"))["records"]
        for path in load_distractors(folder, "town-distractors"):
            picture, record = read_image(path, size=side), records[Path(path).stem]
            pictures.append(F.pad(picture, (0, side - picture.shape[2], 0, side - picture.shape[1])))
            boxes.append([v * side / max(WIDE) for v in record["box"]])
            labels.append(record["house"] + houses.distractors * town)
    return torch.stack(pictures), torch.tensor(boxes), torch.tensor(labels)


def _views(pictures: Tensor, boxes: Tensor, chance: torch.Generator | None, recipe: Recipe) -> Tensor:
    """Houses cut out, (B, 3, crop, crop).

    With `chance` at other sizes, a little aside, in another light.
    """
    crop = recipe.crop
    draw = lambda *shape: torch.rand(shape, generator=chance) if chance else torch.full(shape, 0.5)  # noqa: E731
    low, high = boxes[:, :2], boxes[:, 2:]
    sides = (high - low).amax(1, keepdim=True)
    middle = (low + high) / 2 + 0.3 * sides * (draw(len(boxes), 2) - 0.5)
    half = sides / 2 * (0.7 + (recipe.reach - 0.7) * draw(len(boxes), 1) if chance else 1.0)
    steps = (torch.arange(crop) + 0.5) / crop * 2 - 1
    x, y = (middle[:, i : i + 1] + half * steps for i in (0, 1))
    grid = torch.stack([x[:, None].expand(-1, crop, -1), y[:, :, None].expand(-1, -1, crop)], 3)
    views = F.grid_sample(pictures, grid * 2 / recipe.side - 1, padding_mode="border", align_corners=False)
    light = (0.75 + 0.5 * draw(len(boxes), 1, 1, 1)) * (0.95 + 0.1 * draw(len(boxes), 3, 1, 1))
    return (views * light).clamp(0, 1)


def _small_resnet() -> nn.Module:
    "A ResNet with one block for each of three widths: (B, 3, h, w) in [0, 1] to (B, 128, h / 16, w / 16)."
    from torchvision.models.resnet import BasicBlock
    from torchvision.transforms import Normalize

    def block(inside: int, outside: int) -> nn.Module:
        down = nn.Sequential(nn.Conv2d(inside, outside, 1, 2, bias=False), nn.BatchNorm2d(outside))
        return BasicBlock(inside, outside, 2, down)

    stem = nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    return nn.Sequential(Normalize([0.5] * 3, [0.25] * 3), *stem, BasicBlock(32, 32), block(32, 64), block(64, 128))


def train_backbone(pictures: Tensor, boxes: Tensor, labels: Tensor, recipe: Recipe, seed: int = 0,
                   tell=None) -> nn.Module:
    """The small ResNet, from random weights, with GeM: first houses as classes, then Smooth-AP (tau 0.05).

    Args:
        pictures, boxes, labels: of `training_houses`.
        recipe: its epochs are of the softmax over cosines, batches of 64, AdamW at 3e-3 that warms up and falls to 0;
            its steps of Smooth-AP, 16 houses with 4 pictures each, at 5e-4 falling to 0.
        seed: of weights, batches and crops.
        tell: receives a line now and then.

    Returns:
        (B, 3, h, w) in [0, 1] to (B, 128, h / 16, w / 16), in evaluation mode.
    """
    torch.manual_seed(seed)
    chance, tell = torch.Generator().manual_seed(seed), tell or (lambda line: None)
    network, houses = _small_resnet().train(), int(labels.max()) + 1
    classes, neck = nn.Parameter(torch.randn(houses, 128)), nn.BatchNorm1d(128, affine=False)

    def describe(rows):
        return F.normalize(neck(gem_pool(network(_views(pictures[rows], boxes[rows], chance, recipe)))), dim=1)

    optimizer, per_epoch = torch.optim.AdamW([*network.parameters(), classes], weight_decay=5e-3), len(labels) // 64
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=max(1, recipe.epochs * per_epoch))
    for epoch in range(recipe.epochs):
        order, right = torch.randperm(len(labels), generator=chance), 0
        for rows in order[: per_epoch * 64].view(-1, 64):
            cosines = describe(rows) @ F.normalize(classes, dim=1).T
            _step(optimizer, schedule, F.cross_entropy(16 * cosines, labels[rows]))
            right += (cosines.argmax(1) == labels[rows]).sum().item()
        tell(f"epoch {epoch}: {right / max(1, 64 * per_epoch):.0%} of the views named")
    members = [(labels == h).nonzero()[:, 0] for h in range(houses)]
    optimizer, loss = torch.optim.AdamW(network.parameters(), lr=5e-4, weight_decay=5e-3), SmoothAPLoss(tau=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, recipe.steps))
    for step in range(recipe.steps):
        rows = _some(members, chance)
        value = loss(describe(rows), labels[rows])
        _step(optimizer, schedule, value)
        if step % 20 == 0:
            tell(f"step {step}: Smooth-AP loss {value.item():.3f}")
    return network.eval()


def _some(members: list[Tensor], chance: torch.Generator) -> Tensor:
    "Rows of 16 houses, four pictures of each."
    houses = torch.randperm(len(members), generator=chance)[:16].tolist()
    return torch.cat([members[h][torch.randperm(len(members[h]), generator=chance)[:4]] for h in houses])


def _step(optimizer, schedule, value: Tensor) -> None:
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    schedule.step()


def kept_backbone(recipe: Recipe, root=None, tell=None) -> nn.Module:
    "The network of `train_backbone` on `training_houses`, trained at the first call and kept beside the towns."
    from safetensors.torch import load_file, save

    name = "-".join(f"{v:g}" for v in recipe)
    path = data_root(root) / "town" / f"network-{VERSION}-v{DRAWING}-{name}.safetensors"
    if not path.is_file():
        network = train_backbone(*training_houses(recipe, root), recipe, tell=tell)
        write_atomic(path, save({k: v.contiguous() for k, v in network.state_dict().items()}))
    network = _small_resnet()
    network.load_state_dict(load_file(path))
    return network.eval()


def train_netvlad(columns: Tensor, labels: Tensor, seed: int = 0, steps: int = 60) -> NetVLAD:
    """NetVLAD with 16 words over maps that stay as they are: k-means, then Smooth-AP.

    Args:
        columns: (N, C, h, w) maps of the training pictures.
        labels: (N,), which house.
        seed: of k-means and batches.
        steps: 16 houses with 4 pictures each, AdamW at 1e-3.
    """
    import faiss

    rows = F.normalize(columns, dim=1).transpose(1, -1).reshape(-1, columns.shape[1])
    means = faiss.Kmeans(rows.shape[1], 16, niter=20, seed=seed)
    means.train(rows[:: max(1, len(rows) // 20_000)].contiguous().numpy())
    torch.manual_seed(seed)
    head = NetVLAD(columns.shape[1], 16).start_from(torch.from_numpy(np.array(means.centroids)))
    chance = torch.Generator().manual_seed(seed)
    members = [(labels == h).nonzero()[:, 0] for h in range(int(labels.max()) + 1)]
    optimizer, loss = torch.optim.AdamW(head.parameters(), lr=1e-3), SmoothAPLoss(tau=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps))
    for _ in range(steps):
        batch = _some(members, chance)
        _step(optimizer, schedule, loss(head(columns[batch]), labels[batch]))
    return head.eval()


def town_descriptors(town: Town, recipe: Recipe, root=None, tell=None) -> dict[str, dict[str, Tensor]]:
    """Queries and gallery (distractors behind it) in every way of pooling, and two floors: the pixels themselves, and
    the network before training.

    Returns:
        {method: {"queries", "gallery": (N, D) of length 1}}; under "GeM" also "lesson", the houses of training, and
        "pairs" (M, 2), which of them are the same.
    """
    network = kept_backbone(recipe, root, tell)
    pictures, boxes, labels = training_houses(recipe, root)
    with torch.no_grad():
        learnt = torch.cat([
            network(_views(p, b, None, recipe)) for p, b in zip(pictures.split(100), boxes.split(100))
        ])
    lists = {
        "queries": [town.data.query_image(q, size=recipe.side) for q in range(len(town.gnd))],
        "gallery": [read_image(p, size=recipe.side) for p in [*town.data.gallery, *town.distractors]],
    }
    maps = {name: _maps(network, some) for name, some in lists.items()}
    torch.manual_seed(0)
    floor = _small_resnet().eval()
    out = {
        "pixels, 12 x 12": {name: torch.stack([_pixels(p) for p in some]) for name, some in lists.items()},
        "GeM, not trained": {n: _pooled(gem_pool, _maps(floor, some)) for n, some in lists.items()},
    }
    for method, pool in (POOLINGS | {"NetVLAD": train_netvlad(learnt, labels)}).items():
        out[method] = {name: _pooled(pool, found) for name, found in maps.items()}
    same = torch.ones(len(labels), len(labels), dtype=torch.bool).triu(1) & (labels[:, None] == labels)
    out["GeM"] |= {"lesson": _pooled(gem_pool, [learnt]), "pairs": same.nonzero()}
    return out


def _pixels(picture: Tensor) -> Tensor:
    small = F.interpolate(picture[None], size=(12, 12), mode="area")[0]
    return F.normalize((small - small.mean()).flatten(), dim=0)


@torch.no_grad()
def _maps(network: nn.Module, pictures: list[Tensor]) -> list[Tensor]:
    return [network(p[None]) for p in pictures]


@torch.no_grad()
def _pooled(pool, maps: list[Tensor]) -> Tensor:
    return torch.cat([F.normalize(pool(m), dim=1) for m in maps])


def global_scores(described: dict, stop: int | None, settings: dict) -> dict[str, Tensor]:
    """Scores (Q, G) of every pooling, and of the whitened GeM with expansion and diffusion.

    Args:
        described: what `town_descriptors` gives, and "GeM, whitened".
        stop: pictures of the gallery that count; all when None.
        settings: "alpha" (pictures, exponent) and "diffusion" (k, alpha, gamma).
    """
    out = {method: d["queries"] @ d["gallery"][:stop].T for method, d in described.items()}
    queries, gallery = described["GeM, whitened"]["queries"], described["GeM, whitened"]["gallery"][:stop]
    expanded = query_expansion(queries, gallery, *settings["alpha"])
    out["GeM, whitened + αQE"] = expanded @ gallery.T
    out["GeM, whitened + diffusion"] = diffuse(gallery @ gallery.T, queries @ gallery.T, *settings["diffusion"])
    return out


def whiten(described: dict[str, Tensor], dimensions: int) -> dict[str, Tensor]:
    "Queries and gallery, whitened by what the houses of training and their pairs teach."
    whitening = learn_whitening(described["lesson"], described["pairs"], dimensions)
    return {name: whitening(described[name]) for name in ("queries", "gallery")}
