"""The research project's workbench: a recipe of settings, its cost, a training, and one honest number.

A recipe is a dictionary of numbers and words, never code. `cost` counts the multiply-adds that its training takes, so a budget is the same on every
machine; `train` runs it on one core, the same recipe and seed giving the same network; `measure` ranks held-out characters.
"""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path

import torch
from torch import Tensor, nn

import smoothap_nb
from smoothap_nb import Glyphs, MPerClassSampler, average_precision
from smoothap_nb.workshop import objective_of

SIDE = 16                                            # pixels
BUDGETS = {"quick": 20e9, "full": 400e9}             # multiply-adds of one training, forward and backward
LOSSES = {"smooth_ap": "SmoothAPLoss", "fast_ap": "FastAPLoss", "blackbox_ap": "BlackboxAPLoss", "recall": "RecallLoss", "sup_ap": "SupAPLoss",
          "soft_bin_ap": "SoftBinAPLoss", "roadmap": "ROADMAPLoss", "hierarchical_ap": "HAPLoss"}
BASELINE = {"width": 12, "dim": 32, "pool": "avg", "loss": "smooth_ap", "loss_settings": {"tau": 0.01}, "classes": 16, "images": 4, "steps": 150,
            "lr": 1e-3, "schedule": "constant", "weight_decay": 1e-4, "strength": 1.0}
RANGES = {"width": (4, 96), "dim": (4, 256), "classes": (2, 256), "images": (2, 8), "steps": (1, 20_000), "lr": (1e-6, 1.0), "weight_decay": (0.0, 1.0),
          "strength": (0.0, 3.0)}
WHOLE = ("width", "dim", "classes", "images", "steps")
CHOICES = {"pool": ("avg", "max"), "loss": tuple(LOSSES), "schedule": ("constant", "linear", "cosine")}
LARGEST_BATCH, LARGEST_FILE = 512, 16_384            # images; bytes


_TRAINED: dict[str, "Network"] = {}


class RecipeError(ValueError):
    "A recipe that cannot be run, and what to change."


def check_recipe(recipe: dict, budget: str = "full") -> dict:
    """The recipe with the baseline's settings where it says nothing.

    Args:
        recipe: settings, see BASELINE, RANGES and CHOICES.
        budget: "quick" or "full".

    Raises:
        RecipeError: an unknown setting, a value out of range, a cost above the budget.
    """
    if not isinstance(recipe, dict):
        raise RecipeError(f"a recipe is a dictionary of settings, this is a {type(recipe).__name__}")
    unknown = sorted(set(map(str, recipe)) - set(BASELINE))
    if unknown:
        raise RecipeError(f"unknown setting {unknown[0]!r}; there are {', '.join(BASELINE)}")
    full = {**BASELINE, **recipe}
    if "loss" in recipe and recipe["loss"] != BASELINE["loss"] and "loss_settings" not in recipe:
        full["loss_settings"] = {}
    for name, (low, high) in RANGES.items():
        value, kind = full[name], int if name in WHOLE else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
            raise RecipeError(f"{name} must be a {'whole ' if name in WHOLE else ''}number from {low:g} to {high:g}, got {value!r}")
    for name, words in CHOICES.items():
        if full[name] not in words:
            raise RecipeError(f"{name} must be one of {', '.join(words)}, got {full[name]!r}")
    if full["classes"] * full["images"] > LARGEST_BATCH:
        raise RecipeError(f"a batch holds at most {LARGEST_BATCH} images, classes × images = {full['classes'] * full['images']}")
    settings = full["loss_settings"]
    if not isinstance(settings, dict) or not all(isinstance(v, (int, float, str)) for v in settings.values()):
        raise RecipeError("loss_settings is a dictionary of numbers and words")
    make_loss(full)
    if cost(full) > BUDGETS[budget]:
        raise RecipeError(f"this costs {cost(full) / 1e9:.1f} billion multiply-adds, the {budget} budget is {BUDGETS[budget] / 1e9:g}: "
                          "fewer steps, a smaller batch, or a narrower network")
    return full


def make_loss(recipe: dict) -> nn.Module:
    "The library's loss of this name, with the recipe's settings; what it refuses is a RecipeError."
    kind, settings = getattr(smoothap_nb, LOSSES[recipe["loss"]]), recipe["loss_settings"]
    known = set(inspect.signature(kind.__init__).parameters) - {"self", "memory", "include_query", "validate"}
    unknown = sorted(set(map(str, settings)) - known)
    if unknown:
        raise RecipeError(f"{recipe['loss']} has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}")
    try:
        return kind(**settings)
    except (TypeError, ValueError, OverflowError) as error:
        raise RecipeError(f"{recipe['loss']} refuses its settings: {error}") from None


class Network(nn.Module):
    "Three convolutions, the first on the full picture, the others at half and quarter side; pooled, projected, of length 1."

    def __init__(self, width: int, dim: int, pool: str):
        super().__init__()
        self.plan = [(1, width, 3, 1), (width, 2 * width, 3, 2), (2 * width, 4 * width, 3, 2)]  # in, out, kernel, stride
        self.body = nn.Sequential(*(layer for i, o, k, s in self.plan for layer in (nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.ReLU())))
        self.head, self.pool = nn.Linear(4 * width, dim), pool

    def forward(self, images: Tensor) -> Tensor:
        features = self.body(images).flatten(2)
        return nn.functional.normalize(self.head(features.mean(2) if self.pool == "avg" else features.amax(2)), dim=1)


def cost(recipe: dict) -> float:
    "Multiply-adds of the training: per image and step one forward pass, and twice as many for the way back."
    side, per_image, width = SIDE, 0, recipe["width"]
    for i, o, k, s in ((1, width, 3, 1), (width, 2 * width, 3, 2), (2 * width, 4 * width, 3, 2)):
        side = -(-side // s)
        per_image += side * side * k * k * i * o
    per_image += 4 * width * recipe["dim"]
    return 3.0 * per_image * recipe["classes"] * recipe["images"] * recipe["steps"]


def rate(step: int, recipe: dict) -> float:
    "Share of the learning rate at a step, after a warm-up over the first twentieth."
    done, warmup = step / recipe["steps"], min(1.0, (step + 1) / max(1, recipe["steps"] // 20))
    return warmup * {"constant": 1.0, "linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done))}[recipe["schedule"]]


def train(recipe: dict, budget: str = "full", seed: int = 0, objective=None) -> Network:
    """Train a recipe on the training characters, on one core. What was trained before in this session is not trained again.

    Args:
        objective: in place of the recipe's loss, a function of scores (Q, G) and bool relevance (Q, G), to be raised.
    """
    recipe, threads = check_recipe(recipe, budget), torch.get_num_threads()
    key = json.dumps([recipe, seed], sort_keys=True)
    if objective is None and key in _TRAINED:
        return _TRAINED[key]
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            data = Glyphs("train", size=SIDE, strength=recipe["strength"])
            network, loss = Network(recipe["width"], recipe["dim"], recipe["pool"]), make_loss(recipe)
            optimizer = torch.optim.AdamW(network.parameters(), lr=recipe["lr"], weight_decay=recipe["weight_decay"])
            sampler = MPerClassSampler(data.labels[:, -1].numpy(), recipe["classes"], recipe["images"], seed=seed)
            step, number = 0, 0
            while step < recipe["steps"]:
                for batch in sampler.epoch(number)[: recipe["steps"] - step]:
                    optimizer.param_groups[0]["lr"] = recipe["lr"] * rate(step, recipe)
                    images, labels = data.batch(batch, draw=number + 1)
                    if objective is None:
                        value = loss(network(images), labels if recipe["loss"] == "hierarchical_ap" else labels[:, -1])
                    else:
                        value = -objective_of(objective, network(images), labels)
                    optimizer.zero_grad()
                    value.backward()
                    optimizer.step()
                    step += 1
                number += 1
    finally:
        torch.set_num_threads(threads)
    if objective is None:
        _TRAINED[key] = network
    return network.eval()


def held_out(split: str = "val", seed: int = 0, every: int = 3) -> tuple[Tensor, Tensor]:
    "Pictures and character labels of every third held-out character, distorted as the seed says."
    data = Glyphs(split, size=SIDE, seed=seed)
    chosen = torch.isin(data.labels[:, -1], data.labels[:, -1].unique()[::every]).nonzero()[:, 0]
    images, labels = data.batch(chosen)
    return images, labels[:, -1]


def ap_per_query(embeddings: Tensor, labels: Tensor) -> Tensor:
    "Exact AP of every image against all others, in blocks of queries."
    found = []
    embeddings = nn.functional.normalize(embeddings.double(), dim=1)
    for rows in torch.arange(len(labels)).split(256):
        others = torch.arange(len(labels))[None, :] != rows[:, None]
        scores, same = embeddings[rows] @ embeddings.T, labels[rows][:, None] == labels
        found.append(average_precision(scores[others].view(len(rows), -1), same[others].view(len(rows), -1)))
    return torch.cat(found)


def measure(network: nn.Module, split: str = "val", seed: int = 0) -> tuple[Tensor, Tensor]:
    "AP of every held-out query, and its character; the mean of the first is the mAP."
    images, labels = held_out(split, seed)
    with torch.no_grad():
        return ap_per_query(torch.cat([network(part) for part in images.split(512)]), labels), labels


def standings(networks: dict[str, Network], seed: int = 0) -> str:
    "A board: mAP of validation characters, the best first. The same networks and seed give the same board."
    values = {name: float(measure(network, "val", seed)[0].mean()) for name, network in networks.items()}
    ranked = sorted(values.items(), key=lambda entry: -entry[1])
    return "\n".join(["place  mAP    name", *(f"{place:5}  {value:.3f}  {name}" for place, (name, value) in enumerate(ranked, 1))])


def read_submission(path) -> dict:
    """A submission file: {"name": ..., "recipe": {...}, "claim": mAP}. Read as plain JSON, whatever it holds.

    Raises:
        RecipeError: not a small file of valid JSON with these keys, or a recipe that cannot be run.
    """
    path = Path(path)
    if path.is_symlink() or not path.is_file():
        raise RecipeError(f"{path.name} is not a file")
    if path.stat().st_size > LARGEST_FILE:
        raise RecipeError(f"{path.name} is larger than {LARGEST_FILE} bytes")
    try:
        found = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda word: _refuse(f"{word} is not a number"))
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{path.name} is not JSON: {error}") from None
    if not isinstance(found, dict) or set(found) != {"name", "recipe", "claim"}:
        raise RecipeError(f"{path.name} must hold exactly the keys name, recipe and claim")
    if not isinstance(found["name"], str) or not found["name"].strip() or len(found["name"]) > 40:
        raise RecipeError("name must be a text of 1 to 40 characters")
    if isinstance(found["claim"], bool) or not isinstance(found["claim"], (int, float)) or not 0 <= found["claim"] <= 1:
        raise RecipeError(f"claim is a mAP between 0 and 1, got {found['claim']!r}")
    return {**found, "recipe": check_recipe(found["recipe"], "full")}


def _refuse(why: str):
    raise ValueError(why)


def write_submission(path, name: str, recipe: dict, claim: float) -> dict:
    "Write what the leaderboard reads, and read it back."
    Path(path).write_text(json.dumps({"name": name, "recipe": recipe, "claim": round(float(claim), 4)}, indent=1), encoding="utf-8")
    return read_submission(path)
