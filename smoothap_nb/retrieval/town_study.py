"""Systems on Town: the local and global methods that the revisited protocol was made to compare, in one table.

    python -m smoothap_nb.retrieval.town_study                        what is missing of the study, into
                                                                      docs/results/town.json
    python -m smoothap_nb.retrieval.town_study --part network         the learned descriptors alone
    python -m smoothap_nb.retrieval.town_study --seeds 0 --size mini --out /tmp/try.json

Settings are chosen on a town of their own (seed `VALIDATION`), by Medium mAP with distractors, and never again. Each
part of each town is stored as soon as it ends, so that a stopped study goes on where it was. Plain file.
"""

from __future__ import annotations

import argparse
import datetime
import json
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from smoothap_nb.checks import check_choice
from smoothap_nb.data.town import DRAWING, SIZES, Town, load_town
from smoothap_nb.files import data_root, write_atomic
from smoothap_nb.metrics.revisited import distractor_scores, evaluate_revisited
from smoothap_nb.retrieval.asmk import ASMKIndex
from smoothap_nb.retrieval.descriptors import Whitening, query_expansion
from smoothap_nb.retrieval.features import Codebook, LocalFeatures, features_of
from smoothap_nb.retrieval.local import diffuse, hamming_query_expansion, rerank, verify_top, vlad

__all__ = ["GRIDS", "PARTS", "VALIDATION", "local_rows", "main", "run_study"]

RESULTS = Path("docs/results/town.json")
VALIDATION = 100
PARTS = ("local", "network", "mining")
# what is tried on the validation town; the first of each is what the revisited paper names, where it names one
GRIDS = {
    "words": (4096, 1024),
    "vlad_words": (256, 64, 16),
    "least": (5, 10, 15, 20),  # inliers of a verified picture
    "hqe": (20, 10, 30),  # inliers of a picture that expands the query
    "average": (10, 5, 3, 2),  # pictures of average query expansion
    "alpha": ((50, 3.0), (10, 3.0), (5, 3.0), (3, 3.0)),  # pictures and exponent of alpha query expansion
    "diffusion": ((50, 0.99, 3.0), (20, 0.9, 3.0), (20, 0.5, 3.0), (10, 0.5, 3.0), (10, 0.9, 1.0), (10, 0.5, 1.0)),
    "recipe": ("first", "second"),  # of the network
    "dimensions": (64, 32, 128),  # of the whitened GeM
    "mix": (0.5, 0.3, 0.7, 0.85),  # share of the local scores where both are added
}

class Pack(NamedTuple):
    "The features of a town."

    town: Town
    gallery: list[LocalFeatures]  # distractors follow
    queries: list[LocalFeatures]
    whole: list[LocalFeatures]  # queries that are not cut to their box
    codebook: list[LocalFeatures]


def read_town(size: str, seed: int, root=None) -> Pack:
    "Draw a town, or take the one that is there; find its features, or read them."
    town = load_town(size, seed, root)
    cache = data_root(root) / "town" / "features"
    boxes = [(p, e["bbx"]) for p, e in zip(town.data.queries, town.gnd)]
    kept = {name: features_of(list(paths), cache=cache) for name, paths in
            (("gallery", town.data.gallery), ("crowd", town.distractors), ("queries", boxes),
             ("whole", town.data.queries), ("codebook", town.codebook))}
    return Pack(town, kept["gallery"] + kept["crowd"], kept["queries"], kept["whole"], kept["codebook"])


def judged(scores: Tensor, town: Town) -> dict:
    "mAP and mP@10 in the three setups, percent."
    result = evaluate_revisited(scores, town.gnd, ks=(10,))
    return {s: {m: round(100 * v[m], 2) for m in ("mAP", "mP@10")} for s, v in result.items()}


def medium(scores: Tensor, pack: Pack) -> float:
    "What settings are chosen by."
    return evaluate_revisited(scores, pack.town.gnd)["medium"]["mAP"]


def chosen(name: str, score, grid=None) -> dict:
    "Try every value of a grid; the best, and what each reached."
    reached = {json.dumps(value): round(100 * score(value), 2) for value in grid or GRIDS[name]}
    return {"value": json.loads(max(reached, key=reached.get)), "reached": reached}


def _described(pack: Pack, codebook: Codebook) -> tuple[list, list]:
    return [codebook.describe(f) for f in pack.queries], [codebook.describe(f) for f in pack.gallery]


def _expanded(pack: Pack, found: list, least: int) -> list[LocalFeatures]:
    return [
        hamming_query_expansion(q, [(pack.gallery[i], check) for i, check in checks.items()], least)
        for q, checks in zip(pack.queries, found)
    ]


def _vlads(pack: Pack, words: int, seed: int) -> dict[str, Tensor]:
    book = Codebook.learn(pack.codebook, words, seed=seed)
    return {
        name: torch.stack([vlad(f, book) for f in getattr(pack, name)])
        for name in ("gallery", "queries", "whole", "codebook")
    }


def _principal(rows: Tensor, dimensions: int) -> Whitening:
    "PCA whitening of descriptors that are longer than there are pictures: by the pictures' singular vectors."
    mean = rows.mean(0)
    _, values, vectors = torch.linalg.svd(rows - mean, full_matrices=False)
    keep = min(dimensions, len(rows) - 1)
    return Whitening(mean, vectors[:keep].T / values[:keep])


def tune_local(pack: Pack, seed: int = 0) -> dict:
    "Settings of the local methods, chosen on this town one after the other."
    out = {}

    def asmk(words):
        book = Codebook.learn(pack.codebook, words, seed=seed)
        return medium(ASMKIndex(book).add(pack.gallery).search(pack.queries), pack)

    out["words"] = chosen("words", asmk)
    book = Codebook.learn(pack.codebook, out["words"]["value"], seed=seed)
    index = ASMKIndex(book).add(pack.gallery)
    scores = index.search(pack.queries)
    found = verify_top(*_described(pack, book), scores)
    out["least"] = chosen("least", lambda n: medium(rerank(scores, found, n), pack))
    out["hqe"] = chosen("hqe", lambda n: medium(index.search(_expanded(pack, found, n)), pack))
    own = index.search(pack.gallery, 1)
    out["asmk_diffusion"] = chosen("diffusion", lambda s: medium(diffuse(own, scores, *s), pack))

    def plain(words):
        v = _vlads(pack, words, seed)
        return medium(v["queries"] @ v["gallery"].T, pack)

    out["vlad_words"] = chosen("vlad_words", plain)
    v = _vlads(pack, out["vlad_words"]["value"], seed)
    out["average"] = chosen("average", lambda n: medium(query_expansion(v["queries"], v["gallery"], n) @ v["gallery"].T,
                                                        pack))
    own, first = v["gallery"] @ v["gallery"].T, v["queries"] @ v["gallery"].T
    out["vlad_diffusion"] = chosen("diffusion", lambda s: medium(diffuse(own, first, *s), pack))
    return out


def local_rows(pack: Pack, settings: dict, seed: int = 0) -> dict[str, dict]:
    "Every local method, without and with distractors, by the settings of `tune_local`."
    n, value = len(pack.town.data.gallery), {k: v["value"] for k, v in settings.items()}
    book = Codebook.learn(pack.codebook, value["words"], seed=seed)
    v = _vlads(pack, value["vlad_words"], seed)
    whitening = _principal(v["codebook"], 128)
    out = {}
    for crowd in (False, True):
        some = pack if crowd else pack._replace(gallery=pack.gallery[:n])
        gallery = v["gallery"][: len(some.gallery)]
        index, smk = ASMKIndex(book).add(some.gallery), ASMKIndex(book, "smk").add(some.gallery)
        asmk, pairs = index.search(some.queries), smk.search(some.queries)
        queries, described = _described(some, book)
        found, found_smk = (verify_top(queries, described, s) for s in (asmk, pairs))
        wider = index.search(_expanded(some, found, value["hqe"]))
        first = v["queries"] @ gallery.T
        table = {
            "rSIFT-VLAD": first,
            "rSIFT-VLAD, whole query": v["whole"] @ gallery.T,
            "rSIFT-VLAD + PCA": whitening(v["queries"]) @ whitening(gallery).T,
            "rSIFT-VLAD + QE": query_expansion(v["queries"], gallery, value["average"]) @ gallery.T,
            "rSIFT-VLAD + diffusion": diffuse(gallery @ gallery.T, first, *value["vlad_diffusion"]),
            "rSIFT-SMK*": pairs,
            "rSIFT-SMK*, no burst weights": ASMKIndex(book, "smk", burst=False).add(some.gallery).search(some.queries),
            "rSIFT-SMK* + SP": rerank(pairs, found_smk, value["least"]),
            "rSIFT-ASMK*": asmk,
            "rSIFT-ASMK*, whole query": index.search(some.whole),
            "rSIFT-ASMK* + SP": rerank(asmk, found, value["least"]),
            "rSIFT-ASMK* + HQE": wider,
            "rSIFT-ASMK* + SP + HQE": rerank(wider, found, value["least"]),
            "rSIFT-ASMK* + diffusion": diffuse(index.search(some.gallery, 1), asmk, *value["asmk_diffusion"]),
        }
        for method, scores in table.items():
            out.setdefault(method, {})["with distractors" if crowd else "alone"] = judged(scores, pack.town)
    return out


def network_part(pack: Pack, settings: dict | None, local: dict, root=None) -> tuple[dict, dict]:
    "Rows of the global methods, and their settings: chosen here where none are given."
    from smoothap_nb.retrieval.town_network import RECIPES, global_scores, town_descriptors, whiten

    def plain(d):
        return medium(d["queries"] @ d["gallery"].T, pack)

    found = {name: town_descriptors(pack.town, RECIPES[name], root, print)
             for name in (GRIDS["recipe"] if settings is None else [settings["recipe"]["value"]])}
    recipe = chosen("recipe", lambda name: plain(found[name]["GeM"]), list(found))
    described = found[recipe["value"]]
    book = Codebook.learn(pack.codebook, local["words"]["value"], seed=0)
    asmk = ASMKIndex(book).add(pack.gallery).search(pack.queries)
    if settings is None:
        gem = lambda d: whiten(described["GeM"], d)  # noqa: E731
        settings = {"recipe": recipe, "dimensions": chosen("dimensions", lambda d: plain(gem(d)))}
        queries, gallery = (gem(settings["dimensions"]["value"])[k] for k in ("queries", "gallery"))
        own, first = gallery @ gallery.T, queries @ gallery.T
        settings["alpha"] = chosen(
            "alpha", lambda s: medium(query_expansion(queries, gallery, *s) @ gallery.T, pack)
        )
        settings["diffusion"] = chosen("diffusion", lambda s: medium(diffuse(own, first, *s), pack))
        settings["mix"] = chosen("mix", lambda w: medium(mixed(asmk, first, w), pack))
    value = {k: v["value"] for k, v in settings.items()}
    described["GeM, whitened"] = whiten(described["GeM"], value["dimensions"])
    n, out = len(pack.town.data.gallery), {}
    for crowd in (False, True):
        stop = None if crowd else n
        table = global_scores(described, stop, value)
        table["rSIFT-ASMK* and GeM, whitened"] = mixed(
            asmk[:, :stop], table["GeM, whitened"], value["mix"]
        )
        for method, scores in table.items():
            out.setdefault(method, {})["with distractors" if crowd else "alone"] = judged(scores, pack.town)
    return out, settings


def mining_part(pack: Pack, settings: dict, seed: int = 0) -> dict[str, dict]:
    """The procedure by which the paper chose its million, on Town's distractors.

    The quarter that disturbs VLAD and SMK* most, against any quarter and all of them; ASMK* took no part in the choice.
    """
    n, value = len(pack.town.data.gallery), {k: v["value"] for k, v in settings.items()}
    book, v = Codebook.learn(pack.codebook, value["words"], seed=seed), _vlads(pack, value["vlad_words"], seed)
    scores = {"rSIFT-VLAD": v["queries"] @ v["gallery"].T}
    for kernel in ("smk", "asmk"):
        scores[f"rSIFT-{kernel.upper()}*"] = ASMKIndex(book, kernel).add(pack.gallery).search(pack.queries)
    nuisance = sum(distractor_scores(scores[m][:, :n], scores[m][:, n:], pack.town.gnd)
                   for m in ("rSIFT-VLAD", "rSIFT-SMK*"))
    quarter, crowd = len(nuisance) // 4, n + torch.arange(len(nuisance))
    any_order = torch.randperm(len(crowd), generator=torch.Generator().manual_seed(seed))
    sets = {"none": crowd[:0], "any quarter": crowd[any_order[:quarter]],
            "mined quarter": crowd[nuisance.argsort(descending=True, stable=True)[:quarter]], "all": crowd}
    return {method: {name: judged(torch.cat([s[:, :n], s[:, rows]], 1), pack.town) for name, rows in sets.items()}
            for method, s in scores.items()}


def mixed(local: Tensor, learned: Tensor, share: float) -> Tensor:
    "Two kinds of scores added, each query's brought to length 1 about its mean."
    level = lambda s: F.normalize(s - s.mean(1, keepdim=True), dim=1)  # noqa: E731
    return share * level(local) + (1 - share) * level(learned)


def run_study(path: Path = RESULTS, seeds=(0, 1, 2), size: str = "full", part: str = "all", root=None,
              settings=None) -> dict:
    """What is missing of the study, stored as it comes.

    Args:
        path: of the results.
        seeds: of the towns that are judged; not `VALIDATION`.
        size: of all towns.
        part: one of `PARTS`, or "all".
        root: where towns are kept.
        settings: another file whose settings are taken over; the validation town is not drawn then.

    Returns:
        what the file holds.
    """
    check_choice("part", part, (*PARTS, "all"))
    if VALIDATION in seeds:
        raise ValueError(f"seed {VALIDATION} is the validation town: settings are chosen on it, so it judges nothing")
    path, stored = Path(path), {}
    if path.is_file():
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored.get("size") != size or stored.get("drawing") != DRAWING:
            raise ValueError(f"{path} holds a study of other towns: name another file with --out")
    stored |= {"title": "Systems on Town", "size": size, "drawing": DRAWING, "counts": asdict(SIZES[size])}
    for key in ("settings", "towns", "environments"):
        stored.setdefault(key, {})
    if settings is not None:
        other = json.loads(Path(settings).read_text(encoding="utf-8"))
        stored |= {"settings": other["settings"], "settings_from": f"the validation town of size {other['size']}"}
    for kind in PARTS if part == "all" else (part,):
        for seed in seeds if settings is not None else (VALIDATION, *seeds):
            if kind not in stored["towns"].setdefault(str(seed), {}):
                _measure(stored, kind, seed, size, root)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(path, json.dumps(stored, indent=1))
                print(f"town {seed}, {kind}: stored in {path}", flush=True)
    return stored


def _measure(stored: dict, kind: str, seed: int, size: str, root) -> None:
    "One part of one town, into what is stored."
    from smoothap_nb.train.machine import environment

    pack, done, settings = read_town(size, seed, root), stored["towns"][str(seed)], stored["settings"]
    if kind == "local":
        if seed == VALIDATION:
            settings["local"] = tune_local(pack)
        done[kind] = local_rows(pack, settings["local"])
    elif kind == "mining":
        done[kind] = mining_part(pack, settings["local"])
    else:
        done[kind], settings["network"] = network_part(pack, settings.get("network"), settings["local"], root)
    labels = [r["label"] for r in pack.town.records.values() if r["kind"] == 0 and not r["query"]]
    done["labels"] = {label: labels.count(label) for label in ("easy", "hard", "junk")}
    stored["environments"][f"{seed}, {kind}"] = environment(torch.device("cpu")) | {
        "date": datetime.date.today().isoformat()
    }


def main(argv: list[str] | None = None) -> None:
    "The command."
    parser = argparse.ArgumentParser(
        prog="python -m smoothap_nb.retrieval.town_study", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--size", choices=list(SIZES), default="full")
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--root", type=Path, help="where towns are kept")
    parser.add_argument("--settings", type=Path, help="a study whose settings are taken over")
    args = parser.parse_args(argv)
    run_study(args.out, tuple(args.seeds), args.size, args.part, args.root, args.settings)


if __name__ == "__main__":
    main()
