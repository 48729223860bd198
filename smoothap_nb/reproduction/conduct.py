"""Do the pieces of the study of the papers' claims: one command, started again until it is done."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import zlib
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checks import ConfigError
from ..data.glyphs import Glyphs
from ..data.sampling import MPerClassSampler
from ..files import data_root
from ..metrics.dataset import evaluate
from ..train.embedding import embed
from ..train.loop import BatchPlan, compact_labels
from ..train.machine import environment
from ..train.models import EmbeddingModel
from ..train.objectives import Objective
from ..train.weights import GLYPH_STAGES
from .ledger import Ledger, only_one
from .pretext import fingerprint, glyphs_of, load_features, load_pretext, load_stages, save_stages, train_resumable
from .tracks import Piece, estimate, pieces, plan_hash, read_plan

__all__ = ["RESULTS", "GPU_RESULTS", "Study", "conduct", "pack", "unpack", "character_values"]

RESULTS = Path("docs") / "results" / "claims"
GPU_RESULTS = RESULTS.with_name("claims-gpu")


class Head(nn.Module):
    "A linear layer over standardised features, and division by the norm."

    def __init__(self, width: int, dim: int):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, dim)

    def forward(self, features: Tensor) -> Tensor:
        return F.normalize(self.head(self.norm(features.float())), dim=1)


def _loss(plan: dict, piece: Piece, labels: Tensor) -> Objective:
    "The loss of a piece, its own settings put in."
    table = {k: dict(v) if isinstance(v, dict) else v for k, v in plan["methods"][piece.method]["loss"].items()}
    for key, value in piece.settings:
        if key.startswith("loss."):
            *path, last = key.split(".")[1:]
            place = table
            for word in path:
                place = place[word]
            place[last] = value
    classes = labels.unique(dim=0)
    return Objective(table, classes[classes[:, -1].argsort()], plan["track-f"]["dim"])


def pack(values: np.ndarray) -> str:
    "(C,) whole numbers from 0 to 255 as a row keeps them: compressed, in ASCII."
    return base64.b64encode(zlib.compress(values.astype(np.uint8).tobytes(), 9)).decode()


def unpack(text: str) -> np.ndarray:
    "(C,) uint8, what `pack` was given."
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)


def character_values(row: dict, metric: str) -> np.ndarray:
    "(C,) the metric's mean over the images of each test character, from a row; in steps of 1/255."
    return unpack(row["characters"][metric]) / 255.0


class Study:
    """A plan, its rows, and the folder of networks and features.

    The rows are what is kept, in the repository: tuning.json, and network-K.json for each network. Whatever lies in the
    folder can be made again.

    Args:
        results: folder of the rows.
        folder: of networks, features, checkpoints and locks; left out, below the data folder.
        changes: see `read_plan`.
        device: where whole networks are trained.
        tuned: folder of a study whose tuning counts here too; None: this one tunes for itself.
    """

    def __init__(
        self, results=RESULTS, folder=None, changes: dict | None = None, device: str = "cpu", tuned=None
    ):
        self.results, self.device = Path(results), device
        self.plan = read_plan(changes)
        self.hash = plan_hash(self.plan)
        self.folder = Path(folder) if folder is not None else data_root() / "claims"
        names = ["tuning", *(f"network-{k}" for k in range(self.plan["networks"]["count"]))]
        locks = self.folder / "locks"
        self.ledgers = {name: Ledger(self.results / f"{name}.json", self.hash, locks) for name in names}
        others = Study(tuned, self.folder).ledgers["tuning"].rows() if tuned is not None else {}
        self.tuned = {name: row for name, row in others.items() if name.startswith("tune/")}
        self.environment = lru_cache(1)(environment)  # it asks git, and that takes longer than a toy piece
        self.data = lru_cache(4)(self._data)
        self.features = lru_cache(2)(self._features)

    def rows(self) -> dict:
        "All rows, by name; and those of the tuning that was done elsewhere."
        return self.tuned | {name: row for ledger in self.ledgers.values() for name, row in ledger.rows().items()}

    def ledger(self, piece: Piece) -> Ledger:
        "Where the row of a piece is kept."
        tuning = piece.kind in ("tune", "length", "retune", "e-tune")
        return self.ledgers["tuning" if tuning else f"network-{piece.network}"]

    def _data(self, split: str, halving: int = 0) -> Glyphs:
        return glyphs_of(self.plan, split, halving)

    def _features(self, network: int) -> dict[str, Tensor]:
        return load_features(self.plan, network, self.folder, self._weights(network), self._stages(network))

    def _stages(self, network: int) -> tuple[Path, Path]:
        "Where the lower stages of a network may be: beside its rows, or (those of network 0) in the package."
        return self.results / f"network-{network}.safetensors", GLYPH_STAGES

    def _pretrained(self, network: int) -> EmbeddingModel:
        return load_pretext(self.plan, network, self.folder, self._weights(network), self.device)

    def _whole(self, network: int) -> EmbeddingModel:
        """A network for track E, whose last stage does not travel: trained anew where it was lost, so long as no row
        of this track stands on the lost one. The track compares losses with each other; they must start alike.
        """
        rows = self.ledgers[f"network-{network}"].rows()
        started = (row.get("weights") or self._weights(network) for name, row in rows.items() if name.startswith("e/"))
        return load_pretext(self.plan, network, self.folder, next(started, ""), self.device)

    def _weights(self, network: int) -> str:
        "The fingerprint that a network had when its rows were made; empty where there are none."
        return self.ledgers[f"network-{network}"].rows().get(f"pretext/net{network}", {}).get("weights", "")

    def measure(self, embeddings: Tensor, split: str) -> dict:
        "Metrics of the embeddings of a split; on test characters also of each character."
        labels, metrics = self.data(split).labels, tuple(self.plan["plan"]["metrics"])
        found = evaluate(embeddings.float(), labels, metrics=metrics, per_query=split == "test", progress=False)
        out = {"values": {k: round(float(found[k]), 6) for k in metrics}}
        if split == "test":
            place = labels[:, -1].unique(return_inverse=True)[1].numpy()
            count = np.bincount(place)
            out["characters"] = {}
            for k in metrics:
                means = np.bincount(place, np.nan_to_num(np.asarray(found["per_query"][k], float))) / count
                out["characters"][k] = pack(np.round(255 * means))
        return out

    def batches(self, piece: Piece) -> tuple[BatchPlan, Tensor]:
        "What each step sees, the same for every method with one seed; and the labels, numbered from 0."
        labels = compact_labels(self.data("metric", piece.network).labels.cpu())
        given, table = dict(piece.settings), self.plan["track-f"]
        classes, images = given.get("classes", table["classes"]), given.get("images", table["images"])
        return BatchPlan(MPerClassSampler(labels[:, -1].numpy(), classes, images, piece.seed)), labels

    def do(self, piece: Piece) -> dict:
        "The row of a piece."
        if piece.kind in ("start", "tune", "length", "main", "retune", "ablation"):
            self.features(piece.network)  # what is made anew here is no part of the piece's time
        elif piece.track == "e":
            self._whole(piece.network)
        started, cpu = time.perf_counter(), time.process_time()
        how = {"pretext": self._pretext, "features": self._extract, "start": self._start}
        work = how.get(piece.kind, self._whole_network if piece.track == "e" else self._head)
        try:
            row = work(piece)
        except ValueError as error:
            if "the loss is" not in str(error) and "NaN" not in str(error):
                raise
            row = {"values": {}, "failed": str(error)}
        return {
            "kind": piece.kind, "method": piece.method, "network": piece.network, "seed": piece.seed,
            "split": piece.split, "steps": piece.steps, "settings": dict(piece.settings), **row,
            "seconds": round(time.perf_counter() - started, 1), "cpu_seconds": round(time.process_time() - cpu, 1),
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "environment": self.environment(torch.device(self.device)),
        }  # fmt: skip

    def _pretext(self, piece: Piece) -> dict:
        return {"weights": fingerprint(self._pretrained(piece.network)), "values": {}}

    def _extract(self, piece: Piece) -> dict:
        network, weights = piece.network, self._weights(piece.network)
        if all(load_stages(self.plan, network, path, weights) is None for path in self._stages(network)):
            save_stages(self._stages(network)[0], self._pretrained(network))
        made = self.features(piece.network)
        return {"shapes": {k: list(v.shape) for k, v in made.items()}, "values": {}}

    def _start(self, piece: Piece) -> dict:
        rows, labels = self.features(piece.network)[piece.split].float(), self.data(piece.split).labels[:, -1]
        images = {"images": pack(labels.unique(return_counts=True)[1].numpy())} if piece.split == "test" else {}
        return images | self.measure(F.normalize(rows, dim=1), piece.split)

    def _head(self, piece: Piece) -> dict:
        "Track F: a layer over the features."
        features, given = self.features(piece.network), dict(piece.settings)
        plan, labels = self.batches(piece)
        torch.manual_seed(piece.seed)
        model, draws = Head(features["val"].shape[1], self.plan["track-f"]["dim"]), features["train"]
        loss = _loss(self.plan, piece, labels)

        def batch(step: int) -> tuple[Tensor, Tensor]:
            rows, epoch = plan(step)
            rows = torch.as_tensor(rows)
            return draws[epoch % len(draws), rows], labels[rows]

        groups = [
            {"params": list(model.parameters()), "lr": given["rate"]},
            {"params": list(loss.parameters()), "lr": given["rate"] * given.get("proxy_rate", 1)},
        ]
        values = train_resumable(model, loss, groups, batch, piece.steps, min(self._warmup(), piece.steps // 4))
        with torch.inference_mode():
            rows = model(features[piece.split])
        return {"loss": round(float(np.mean(values[-20:])), 5), **self.measure(rows, piece.split)}

    def _warmup(self) -> int:
        return self.plan["track-f"]["warmup"]

    def _whole_network(self, piece: Piece) -> dict:
        "Track E: the whole network, with checkpoints."
        given, data = dict(piece.settings), self.data("metric", piece.network).to(self.device)
        plan, labels = self.batches(piece)
        model = self._whole(piece.network)
        weights = fingerprint(model)
        torch.manual_seed(piece.seed)
        model.head.reset_parameters()
        loss, labels = _loss(self.plan, piece, labels).to(self.device), labels.to(self.device)
        head = list(model.to(self.device).head.parameters())
        body = [p for n, p in model.named_parameters() if not n.startswith("head.")]

        def batch(step: int) -> tuple[Tensor, Tensor]:
            rows, epoch = plan(step)
            return data.batch(rows, draw=epoch + 1)[0], labels[torch.as_tensor(rows)]

        groups = [
            {"params": head, "lr": given["rate"]},
            {"params": body, "lr": given["rate"] * given["network_rate"]},
            {"params": list(loss.parameters()), "lr": given["rate"] * given.get("proxy_rate", 1)},
        ]
        checkpoints = self.folder / "runs" / f"{self.hash}-{piece.name.replace('/', '-')}"
        steps, every = piece.steps, self.plan["track-e"]["checkpoint"]
        train_resumable(model.train(), loss, groups, batch, steps, min(self._warmup(), steps // 4), checkpoints, every)
        rows = embed(model.eval(), self.data(piece.split), progress=False)
        return {"weights": weights, **self.measure(rows, piece.split)}

    def work(self, tracks: str = "fe", minutes: float = 0, say=print) -> int:
        """Do pieces until none is left, or the time is up. Several workers may do this at once.

        Args:
            tracks: "fe", or "f" for the features alone.
            minutes: start no piece after so many, 0 = no limit.
            say: called with a line for each piece.

        Returns:
            how many were done here.
        """
        started, done = time.perf_counter(), 0
        while not minutes or time.perf_counter() - started < 60 * minutes:
            todo, took = pieces(self.plan, self.rows(), tracks), False
            for piece in todo:
                with only_one(self.folder / "locks", f"{self.hash} {piece.name}") as mine:
                    if not mine or piece.name in self.ledger(piece).rows():
                        continue
                    row = self.do(piece)
                    self.ledger(piece).add(piece.name, row)
                took, done = True, done + 1
                value = row["values"].get("mAP")
                say(f"{piece.name}: {row.get('failed') or ('done' if value is None else f'mAP {value:.4f}')} "
                    f"({row['seconds']} s)")  # fmt: skip
                break
            if not todo:
                break
            if not took:  # the others are at it, and what follows waits for them
                time.sleep(1)
        return done


def _announce(study: Study, workers: int, say) -> None:
    "What the plan can find, and how long it takes."
    from .referee import power_of

    found = power_of(study.plan)
    say(
        f"power for a difference of {2 * study.plan['plan']['smallest']:g}, with the spreads that the plan expects: "
        f"{found['alone']:.2f} for a claim alone, {found['among_all']:.2f} for one of {found['claims']}; .8 needs "
        f"{found['networks'] or 'more than 30'} networks, the plan has {study.plan['networks']['count']}"
    )
    hours = estimate(study.plan, workers)
    say(f"plan {study.hash}: about {sum(hours.values()):.1f} hours on {workers} idle cores in all "
        f"({', '.join(f'{k} {v:.2f}' for k, v in hours.items())})")  # fmt: skip


def _worker(given: dict) -> subprocess.Popen:
    "A process with one thread that does pieces, from `Study`'s arguments and `work`'s."
    code = (
        "import json, sys, torch; torch.set_num_threads(1); from smoothap_nb.reproduction.conduct import Study; "
        "from smoothap_nb.train.machine import keep_memory; keep_memory(); "
        "given = json.load(sys.stdin); tracks, minutes = given.pop('tracks'), given.pop('minutes'); "
        "Study(**given).work(tracks, minutes, lambda line: print(line, flush=True))"
    )
    home = str(Path(__file__).resolve().parents[2])
    one = {f"{k}_NUM_THREADS": "1" for k in ("OMP", "MKL", "NUMBA")} | {"OMP_WAIT_POLICY": "PASSIVE"}
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        text=True,
        env={**os.environ, **one, "PYTHONPATH": path},
    )
    if process.stdin is not None:
        process.stdin.write(json.dumps(given))
        process.stdin.close()
    return process


def conduct(
    results=RESULTS,
    workers: int = 2,
    tracks: str = "fe",
    minutes: float = 0,
    folder=None,
    changes: dict | None = None,
    device: str = "cpu",
    tuned=None,
    say=print,
) -> dict:
    """Run the study of the papers' claims, or go on with it.

    Args:
        results: folder of the rows; a study goes on from those that it finds there, whichever machine made them.
        workers: side by side, each a process with one thread, so that no number depends on them.
        tracks: see `tracks.pieces`.
        minutes: start no piece after so many, 0 = no limit.
        folder, changes, device, tuned: see `Study`.
        say: called with a line of text.

    Returns:
        all rows, by name.

    Raises:
        ConfigError: rows of another plan, or a worker that failed.
    """
    study = Study(results, folder, changes, device, tuned)
    study.rows()
    if "f" in tracks:
        _announce(study, workers, say)
    given = {"results": str(results), "folder": str(study.folder), "changes": changes}
    given |= {"device": device, "tuned": None if tuned is None else str(tuned), "tracks": tracks, "minutes": minutes}
    started = [_worker(given) for _ in range(workers)]
    failed = [process.wait() for process in started]
    rows = study.rows()
    left = pieces(study.plan, rows, tracks)
    say(
        f"{len(rows)} rows; " + (f"{len(left)} pieces can be done now: start it again" if left else "the study is done")
    )
    if any(failed):
        raise ConfigError("a worker stopped with an error (see above): the rows before it are kept")
    return rows
