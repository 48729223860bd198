"""A network for Town: a ResNet-18 trained with Smooth-AP on the houses of the codebook, and its descriptors, pooled in
all the ways of lesson 16.

From random weights, 80 steps on the 60 codebook pictures of a "small" town teach it next to nothing: on the validation
town every pooling stayed below 6 mAP on Medium, where VLAD reaches 60. So `docs/results/town.json` holds no global
rows; more codebook houses, more steps, or weights that know photographs are what it wants.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smoothap_nb.data.revisited_files import read_image
from smoothap_nb.data.town import Town
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

__all__ = ["POOLINGS", "train_backbone", "town_descriptors", "global_scores"]

POOLINGS = {"MAC": mac_pool, "SPoC": spoc_pool, "CroW": crow_pool, "R-MAC": rmac_pool, "GeM": gem_pool}
SIDE = 160  # pixels of a picture's longer side, as the network sees it
_CROP = 112


def train_backbone(town: Town, seed: int = 0, steps: int = 80, houses: int = 10) -> nn.Module:
    """A ResNet-18 without its pooling, from random weights, trained with GeM and Smooth-AP (tau 0.02).

    Args:
        town: its codebook pictures are the training set.
        seed: of weights, batches and crops.
        steps: of AdamW at 1e-3, falling to 0 along a cosine.
        houses: in a batch, three pictures of each.

    Returns:
        (B, 3, h, w) in [0, 1] to (B, 512, h / 32, w / 32), in evaluation mode.
    """
    from torchvision.models import resnet18

    torch.manual_seed(seed)
    chance = torch.Generator().manual_seed(seed)
    pictures = [read_image(path, size=SIDE) for path in town.codebook]
    members = [(town.codebook_labels == h).nonzero()[:, 0].tolist() for h in town.codebook_labels.unique()]
    network = nn.Sequential(*list(resnet18(weights=None).children())[:-2])
    optimizer, loss = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-4), SmoothAPLoss(tau=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    network.train()
    for _ in range(steps):
        batch = torch.randperm(len(members), generator=chance)[:houses].tolist()
        rows = [i for h in batch for i in members[h]]
        views = torch.stack([_crop(pictures[i], chance) for i in rows])
        value = loss(F.normalize(gem_pool(network(views)), dim=1), town.codebook_labels[rows])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    return network.eval()


def _crop(picture: Tensor, chance: torch.Generator) -> Tensor:
    "A random part of a picture at another size and in another light, (3, 112, 112)."
    draw = lambda low, high: low + (high - low) * float(torch.rand(1, generator=chance))  # noqa: E731
    h, w = picture.shape[1:]
    side = draw(0.6, 1.0) * min(h, w)
    top, left = draw(0, h - side), draw(0, w - side)
    part = picture[:, int(top) : int(top + side) + 1, int(left) : int(left + side) + 1]
    part = F.interpolate(part[None], size=(_CROP, _CROP), mode="bilinear", align_corners=False)[0]
    tint = 1 + 0.1 * torch.randn(3, 1, 1, generator=chance)
    return (part * tint * draw(0.6, 1.3)).clamp(0, 1) ** draw(0.8, 1.25)


def _netvlad(network: nn.Module, pictures: list[Tensor], seed: int) -> NetVLAD:
    "NetVLAD with words from k-means on the training pictures' columns, not trained further."
    import faiss

    with torch.no_grad():
        columns = torch.cat([F.normalize(network(p[None]), dim=1)[0].flatten(1).T for p in pictures])
    means = faiss.Kmeans(columns.shape[1], 16, niter=20, seed=seed, min_points_per_centroid=1)
    means.train(columns.numpy())
    torch.manual_seed(seed)
    return NetVLAD(columns.shape[1], 16).start_from(torch.from_numpy(np.array(means.centroids)))


def town_descriptors(town: Town, seed: int = 0, steps: int = 80) -> dict[str, dict[str, Tensor]]:
    """Train, and describe queries, gallery (distractors behind it) and training pictures in every way of pooling.

    Returns:
        {method: {"queries", "gallery", "codebook": (N, D) of length 1}}; "GeM, whitened" is PCA-whitened on the
        training pictures.
    """
    network = train_backbone(town, seed, steps)
    lists = {
        "queries": [town.data.query_image(q, size=SIDE) for q in range(len(town.gnd))],
        "gallery": [read_image(p, size=SIDE) for p in [*town.data.gallery, *town.distractors]],
        "codebook": [read_image(p, size=SIDE) for p in town.codebook],
    }
    pools = POOLINGS | {"NetVLAD, not trained": _netvlad(network, lists["codebook"], seed)}
    maps = {name: _maps(network, pictures) for name, pictures in lists.items()}
    out = {}
    with torch.no_grad():
        for method, pool in pools.items():
            out[method] = {
                name: torch.cat([F.normalize(pool(m), dim=1) for m in found]) for name, found in maps.items()
            }
    whitening = learn_whitening(out["GeM"]["codebook"], dimensions=min(32, len(town.codebook) - 1))
    out["GeM, whitened"] = {name: whitening(rows) for name, rows in out["GeM"].items()}
    return out


@torch.no_grad()
def _maps(network: nn.Module, pictures: list[Tensor]) -> list[Tensor]:
    return [network(p[None]) for p in pictures]


def global_scores(described: dict, stop: int | None, settings: dict) -> dict[str, Tensor]:
    """Scores (Q, G) of every pooling, and of the whitened GeM with expansion and diffusion.

    Args:
        described: what `town_descriptors` gives.
        stop: pictures of the gallery that count; all when None.
        settings: "alpha" (pictures, exponent) and "diffusion" (k, alpha, gamma).
    """
    out = {method: d["queries"] @ d["gallery"][:stop].T for method, d in described.items()}
    queries, gallery = described["GeM, whitened"]["queries"], described["GeM, whitened"]["gallery"][:stop]
    expanded = query_expansion(queries, gallery, *settings["alpha"])
    out["GeM, whitened + αQE"] = expanded @ gallery.T
    out["GeM, whitened + diffusion"] = diffuse(gallery @ gallery.T, queries @ gallery.T, *settings["diffusion"])
    return out
