"""A small data set of the revisited protocol, made of characters: the town of lesson 16 and of the tests."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from smoothap_nb.data.glyphs import Glyphs, distort
from smoothap_nb.metrics.revisited import annotator_vote

_CELL = 32  # pixels; a photograph of the miniature has 2 x 3 cells


def write_miniature(
    root, name: str = "rglyphs", landmarks: int = 16, others: int = 120, distractors: int = 0, seed: int = 0
) -> Path:
    """A small data set of the revisited protocol, in the official layout, with characters for landmarks.

    Args:
        root: where the folder `name` is made, for `load_revisited(root, name)`.
        name: of the data set.
        landmarks: characters to look for; each has two queries and about a dozen views in the gallery.
        others: gallery photographs that show no landmark.
        distractors: further photographs without a landmark, as a list for `load_distractors(root, name +
            "-distractors")`.
        seed: of the choice of characters, their places, their distortion and the annotators' tastes.

    Returns:
        the folder written: `jpg/` and `gnd_<name>.pkl`.
    """
    glyphs = Glyphs("test", size=_CELL)
    chance = torch.Generator().manual_seed(seed)
    views = glyphs.labels[:, 2].bincount()
    many = (views == views.max()).nonzero()[:, 0]
    chosen = many[torch.randperm(len(many), generator=chance)][: landmarks + 40]
    passers_by = chosen[landmarks:]
    folder = Path(root) / name
    photographs, truth, queries = [], [], []
    for landmark in chosen[:landmarks]:
        members = (glyphs.labels[:, 2] == landmark).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=chance)].tolist()
        verdict = {"E": [], "H": [], "U": [], "N": []}
        for member, strength in zip(members[2:], torch.linspace(0.2, 3.0, len(members) - 2).tolist()):
            verdict[annotator_vote(_jury(strength, chance))].append(len(photographs))
            photographs.append(_photograph(glyphs, member, strength, passers_by, chance)[0])
        for member in members[:2]:
            picture, box = _photograph(glyphs, member, 0.5, passers_by, chance)
            queries.append(picture)
            truth.append({"bbx": box, "easy": verdict["E"], "hard": verdict["H"], "junk": verdict["U"]})
    crowd = torch.isin(glyphs.labels[:, 2], passers_by).nonzero()[:, 0]
    without = [
        _photograph(
            glyphs,
            int(crowd[torch.randint(len(crowd), (1,), generator=chance)]),
            2 * float(torch.rand(1, generator=chance)),
            passers_by,
            chance,
        )[0]
        for _ in range(others + distractors)
    ]
    photographs += without[:others]
    order = torch.randperm(len(photographs), generator=chance).tolist()  # nobody shall guess from a file's number
    number = {old: new for new, old in enumerate(order)}
    truth = [{k: v if k == "bbx" else sorted(number[i] for i in v) for k, v in entry.items()} for entry in truth]
    names = {
        "imlist": [f"{name}_{i:06d}" for i in range(len(order))],
        "qimlist": [f"{name}_query_{q:03d}" for q in range(len(queries))],
    }
    _save_photographs(folder / "jpg", names["imlist"] + names["qimlist"], [photographs[i] for i in order] + queries)
    (folder / f"gnd_{name}.pkl").write_bytes(pickle.dumps(names | {"gnd": truth}, protocol=2))
    if distractors:
        crowd_folder, files = folder.with_name(f"{name}-distractors"), [f"crowd_{i:06d}" for i in range(distractors)]
        _save_photographs(crowd_folder / "jpg", files, without[others:])
        (crowd_folder / f"{crowd_folder.name}.txt").write_text("".join(f"{file}.jpg\n" for file in files))
    return folder


def _save_photographs(folder: Path, files: list[str], pictures: list[np.ndarray]) -> None:
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for file, picture in zip(files, pictures):
        Image.fromarray(picture).save(folder / f"{file}.jpg", quality=90)


def _jury(strength: float, chance: torch.Generator) -> str:
    "Five annotators; each finds a distorted view easy, hard, unclear, or sees nothing, at limits of his own."
    limits = torch.tensor([0.9, 1.7, 2.4]) + 0.25 * torch.randn(5, 1, generator=chance)
    return "".join("EHUN"[int((strength > row).sum())] for row in limits)


def _photograph(
    glyphs, member: int, strength: float, passers_by: Tensor, chance: torch.Generator
) -> tuple[np.ndarray, list[float]]:
    "(32, 48) uint8 with the member's view on one side and two small passers-by on the other, and the view's box."
    who = passers_by[torch.randint(len(passers_by), (2,), generator=chance)]
    small = [
        int(m[torch.randint(len(m), (1,), generator=chance)])
        for m in ((glyphs.labels[:, 2] == w).nonzero()[:, 0] for w in who)
    ]
    keys = torch.randint(2**62, (3,), generator=chance)
    view = distort(glyphs.images[[member]], keys[:1], strength)[0, 0]
    crowd = F.avg_pool2d(distort(glyphs.images[small], keys[1:], 0.5), 2).reshape(_CELL, _CELL // 2)
    right = bool(torch.rand(1, generator=chance) < 0.5)
    picture = torch.cat([crowd, view] if right else [view, crowd], 1)
    left = _CELL / 2 if right else 0.0
    return (picture * 255).round().to(torch.uint8).numpy(), [left, 0.0, left + _CELL, float(_CELL)]
