"""Train two towers on captioned glyphs, count who pushes, and measure on characters that were never seen."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import torch
from torch import Tensor

from smoothap_nb.metrics.flat import average_precision
from smoothap_nb.checks import reason
from smoothap_nb.data.captions import GlyphCaptions
from smoothap_nb.data.karpathy import CaptionedPhotos, PhotoCaptions
from smoothap_nb.files import check_target, write_atomic
from smoothap_nb.losses.contrast import contributing_samples
from smoothap_nb.losses.cross_modal import CrossModalLoss
from smoothap_nb.metrics.two_galleries import evaluate_cross_modal
from smoothap_nb.train.text import TowerConfig, TwoTowers, save_towers

CONTENDERS = {  # what the lesson compares, all with the same batches, steps and rates
    "hardest triplet, warmed up": {"loss": "hardest_triplet", "warm_up": 150},
    "NT-Xent, tau 0.1": {"loss": "nt_xent", "tau": 0.1},
    "Smooth-AP, tau 0.01": {"loss": "smooth_ap", "tau": 0.01},
    "Smooth-AP, tau 0.05": {"loss": "smooth_ap", "tau": 0.05},
    "hardest triplet from scratch": {"loss": "hardest_triplet"},
}


@dataclass
class CaptionTraining:
    "One training, whole."

    loss: str = "nt_xent"  # "smooth_ap", "nt_xent", "triplet" or "hardest_triplet"
    tau: float = 0.0  # of Smooth-AP and NT-Xent, score units; 0: the loss's usual one
    margin: float = 0.2  # of the triplets, score units
    warm_up: int = 0  # steps in which the hardest triplet takes all violating negatives
    steps: int = 700
    characters: int = 64  # in a batch, one picture each
    per_image: int = 5  # captions of each picture
    subsets: float = 0.7  # share of the captions that are random subsets of the words
    lr: float = 4e-3  # peak, AdamW
    lr_warm_up: int = 50  # steps of linear rise; then cosine to 0
    weight_decay: float = 1e-4
    strength: float = 0.15  # distortion of the pictures, in training and testing
    least: int = 10  # training names that a word needs to be learnt
    log_every: int = 50  # steps between counts of contributing samples
    seed: int = 0  # of weights and batches
    towers: TowerConfig = field(default_factory=lambda: TowerConfig(width=40))

    def losses(self) -> tuple[CrossModalLoss, CrossModalLoss]:
        "The loss, and the one of the warm-up."
        own = {"tau": self.tau or None} if self.loss in ("smooth_ap", "nt_xent") else {"margin": self.margin}
        return CrossModalLoss(self.loss, **own), CrossModalLoss("triplet", margin=self.margin)


def rate(step: int, settings: CaptionTraining) -> float:
    "Learning rate of a step: linear rise, then half a cosine down to 0."
    rise = min(1.0, (step + 1) / max(1, settings.lr_warm_up))
    return settings.lr * rise * 0.5 * (1 + math.cos(math.pi * step / settings.steps))


def count_contributions(
    images: Tensor, texts: Tensor, relevance: Tensor, loss: CrossModalLoss
) -> dict[str, float]:
    """Contributing samples of a batch in both directions; see `contributing_samples`.

    Smooth-AP has also `reached` and `unreached`: negatives within the sigmoid's reach, and share of positives without
    any, whatever the rank.
    """
    scores, out = (images @ texts.T).detach(), {}
    for way, s, r in (("image->text", scores, relevance), ("text->image", scores.T, relevance.T)):
        found = contributing_samples(s, r, loss.name, **loss.settings)
        if loss.name == "smooth_ap":
            near = contributing_samples(s, r, loss.name, by_rank=False, **loss.settings)
            found |= {"reached": near["negatives"], "unreached": near["without"]}
        found["of"] = float((~r).sum(1).double().mean())
        out |= {f"{way} {key}": value for key, value in found.items()}
    return out


def train_towers(
    settings: CaptionTraining,
    data: GlyphCaptions | PhotoCaptions | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[TwoTowers, list[dict]]:
    """Train from scratch on a CPU or wherever the towers lie; the same settings give the same towers on one machine.

    Args:
        settings: see `CaptionTraining`.
        data: training pictures with captions, `GlyphCaptions` or `PhotoCaptions`; glyphs as the settings say when left
            out.
        say: is told how it goes.

    Returns:
        the towers in evaluation mode; every `log_every` steps a dict with step, loss, spread of the embeddings, and
        contributing samples.

    Raises:
        FloatingPointError: the loss is no longer finite.
        ValueError: settings that do not fit.
    """
    data = data or GlyphCaptions("train", least=settings.least, strength=settings.strength)
    torch.manual_seed(settings.seed)
    model, (loss, first) = TwoTowers(data.vocabulary, settings.towers).train(), settings.losses()
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
    log: list[dict] = []
    for step in range(settings.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, settings)
        pictures, captions, relevance = data.batch(
            settings.characters, settings.per_image, step, settings.seed, settings.subsets
        )
        images, texts = model.embed_images(pictures), model.embed_texts(captions)
        now = first if step < settings.warm_up else loss
        value = now(images, texts, relevance)
        if not torch.isfinite(value.detach()):
            raise FloatingPointError(f"the loss is {value.item()} at step {step}: a smaller lr, or a larger tau")
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if step % settings.log_every == 0 or step == settings.steps - 1:
            spread = float(1 - images.detach().mean(0).norm())  # 0: all pictures at one point
            log.append(
                {
                    "step": step,
                    "loss": value.item(),
                    "spread": spread,
                    **count_contributions(images, texts, relevance, now),
                }
            )
            say(
                f"step {step}: loss {value.item():.3f}, spread {spread:.2f}, "
                f"{log[-1]['image->text negatives']:.1f} negatives push"
            )
    return model.eval(), log


@torch.no_grad()
def embed_glyphs(model: TwoTowers, data: GlyphCaptions, block: int = 256) -> Tensor:
    "(N, dim) of all pictures, as they are in evaluation."
    return torch.cat([model.embed_images(data.glyphs.batch(rows)[0]) for rows in torch.arange(len(data)).split(block)])


@torch.no_grad()
def measure_photos(model: TwoTowers, data: CaptionedPhotos, folds: int = 1, block: int = 128) -> dict[str, float]:
    """Both directions on COCO or Flickr30k.

    Args:
        model: in evaluation mode.
        data: the test split, five captions a picture.
        folds: 1 for all pictures at once (COCO: the 5k protocol), 5 for COCO's 1k protocol.
        block: pictures and captions embedded at a time.

    Returns:
        what `evaluate_cross_modal` says.
    """
    rows = torch.arange(len(data)).split(block)
    images = torch.cat([model.embed_images(data.photos.batch(part)[0]) for part in rows])
    known = [i for i, text in enumerate(data.captions) if model.vocabulary.split(text)[0] or model.config.text != "gru"]
    texts = images.new_zeros(len(data.captions), images.shape[1])  # a caption without a known word scores 0 everywhere
    for part in (known[i : i + block] for i in range(0, len(known), block)):
        texts[part] = model.embed_texts([data.captions[i] for i in part])
    return evaluate_cross_modal(images, texts, image_ids=data.image_ids, folds=folds)


@torch.no_grad()
def measure_towers(model: TwoTowers, data: GlyphCaptions, queries: Sequence[str]) -> dict[str, float]:
    """Both directions over the five captions of every character, and mAP of the queries.

    Args:
        model: in evaluation mode.
        data: held-out pictures.
        queries: texts, such as pairs of words; relevance is containment.

    Returns:
        what `evaluate_cross_modal` says, and `two words mAP`.
    """
    images, (captions, _) = embed_glyphs(model, data), data.test_captions()
    out = evaluate_cross_modal(images, model.embed_texts(captions), data.relevance(captions))
    found = average_precision(model.embed_texts(queries) @ images.T, data.relevance(queries).T)
    return out | {"two words mAP": float(found.double().mean())}


def run_contender(
    name: str,
    seed: int,
    changes: dict | None = None,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict:
    """One line of the comparison: train, measure before and after, keep the towers if a folder is given.

    Args:
        name: of `CONTENDERS`.
        seed: of the run.
        changes: settings that differ from the comparison's.
        folder: where the towers go; None: nowhere.
        say: is told how it goes.

    Returns:
        record with settings, metrics, contributions on the way, seconds of processor time, date and environment.
    """
    from smoothap_nb.train.machine import environment

    settings = dataclasses.replace(CaptionTraining(seed=seed), **CONTENDERS[name], **(changes or {}))
    train = GlyphCaptions("train", least=settings.least, strength=settings.strength)
    test = GlyphCaptions("test", train.vocabulary, per_character=1, strength=settings.strength)
    queries, here = test.pair_queries(), environment(torch.device("cpu"))
    torch.manual_seed(settings.seed)
    untrained = measure_towers(TwoTowers(train.vocabulary, settings.towers).eval(), test, queries)
    start = time.process_time()
    model, log = train_towers(settings, train, say)
    seconds = time.process_time() - start
    record = {
        "contender": name,
        "seed": seed,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "settings": dataclasses.asdict(settings),
        "pictures": len(test),
        "characters": len(test.names),
        "queries": len(queries),
        "vocabulary": train.vocabulary.key,
        "untrained": untrained,
        "metrics": measure_towers(model, test, queries),
        "log": log,
        "cpu_seconds": round(seconds, 1),
        "environment": here,
    }
    if folder is not None:
        save_towers(
            model,
            folder,
            {
                "training": {
                    key: record[key] for key in ("contender", "seed", "date", "settings", "metrics", "environment")
                }
            },
        )
    return record


def _kept(record_to: Path, changes: dict) -> dict:
    "What a record holds already; it must be of the same settings."
    if not record_to.exists():
        return {"title": "Captioned glyphs: four losses, equal steps", "runs": []}
    try:
        kept = json.loads(record_to.read_text(encoding="utf-8"))
        settings = [run["settings"] for run in kept["runs"]]
    except (ValueError, KeyError, TypeError) as error:
        told = f"{record_to} is no record of such a comparison ({reason(error)}): take another file"
        raise ValueError(told) from None
    for key, value in changes.items():
        value = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value
        if other := [had[key] for had in settings if key in had and had[key] != value]:
            raise ValueError(f"the runs in {record_to} have {key} {other[0]!r}, not {value!r}: take another file")
    return kept


def compare(
    record_to: Path,
    seeds: int = 3,
    names: Sequence[str] = tuple(CONTENDERS),
    runs: Path | None = None,
    changes: dict | None = None,
    say: Callable[[str], None] = print,
) -> dict:
    """Run what is missing in a results file, one run after another; started again, it goes on where it was stopped.

    Args:
        record_to: JSON file, made if absent.
        seeds: draws of each contender, from 0 on.
        names: of `CONTENDERS`.
        runs: folder that keeps the towers of seed 0; None: none.
        changes: settings that differ from the comparison's; a file holds one kind of settings.
        say: is told how it goes.

    Returns:
        what the file holds.

    Raises:
        ValueError: an unknown contender; a record that cannot be read, that has no folder, or whose runs had other
            settings.
    """
    unknown = [name for name in names if name not in CONTENDERS]
    if unknown:
        raise ValueError(f"there is no contender {unknown[0]!r}: {', '.join(map(repr, CONTENDERS))}")
    record_to = Path(record_to)
    check_target("record_to", record_to)
    kept = _kept(record_to, changes or {})
    done = {(run["contender"], run["seed"]) for run in kept["runs"]}
    for seed in range(seeds):
        for name in names:
            if (name, seed) in done:
                continue
            folder = None if runs is None or seed else Path(runs) / name.replace(", ", "-").replace(" ", "-").lower()
            run = run_contender(name, seed, changes, folder)
            kept["runs"].append(run)
            write_atomic(record_to, json.dumps(kept, indent=1) + "\n")
            say(
                f"{name}, seed {seed}: two-word mAP {run['metrics']['two words mAP']:.3f}, text->image R@5 "
                f"{run['metrics']['text->image R@5']:.3f}, "
                f"{run['cpu_seconds']:.0f} s of processor time"
            )
    return kept
