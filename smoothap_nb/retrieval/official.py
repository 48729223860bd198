"""The official sets, where the reader has them: published networks against what their pages print, local features with
the paper's 65,536 words, a million distractors in shards, and how long that takes.

    python -m smoothap_nb.retrieval.official network FILE.pth --root DATA --set roxford5k
    python -m smoothap_nb.retrieval.official local --root DATA --set roxford5k --words-of rparis6k
    python -m smoothap_nb.retrieval.official local --root DATA --set roxford5k --distractors revisitop1m
    python -m smoothap_nb.retrieval.official hours --root DATA --set roxford5k

Everything is kept in a folder (`--keep`), features by the thousand pictures and indexes by the twenty thousand, so that
a stopped run goes on where it was. Plain file.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from smoothap_nb.data.revisited_files import Revisited, load_distractors, load_revisited, read_image
from smoothap_nb.files import data_root, write_atomic
from smoothap_nb.metrics.revisited import evaluate_revisited
from smoothap_nb.retrieval.asmk import ASMKIndex
from smoothap_nb.retrieval.descriptors import SCALES
from smoothap_nb.retrieval.features import Codebook, StoredFeatures, features_of
from smoothap_nb.retrieval.local import rerank, verify_top
from smoothap_nb.retrieval.published import PublishedNetwork, load_published

__all__ = ["compare_network", "kept_codebook", "sharded_scores", "rank_local", "expected_hours", "main"]

SIDE = 1024  # pixels of the longer side
CLOSE = 0.5  # mAP, percent: so near to the printed number is the same
COUNTS = {"roxford5k": 4_993, "rparis6k": 6_322, "revisitop1m": 1_001_001}  # pictures


def compare_network(network: PublishedNetwork, data: Revisited, scales=SCALES, side: int = SIDE) -> list[dict]:
    """A published network measured, beside the numbers on its page.

    Args:
        network: of `load_published`.
        data: of `load_revisited`.
        scales, side: as published.

    Returns:
        a row for the network as it is and one for each whitening in its file: "whitening", "medium", "hard" (mAP,
        percent), "printed" (Medium, Hard) or None, "agrees" (within `CLOSE`) or None where nothing is printed.
    """
    sets = [(data.query_image(i, size=side) for i in range(len(data.queries))),
            (data.gallery_image(i, size=side) for i in range(len(data.gallery)))]
    queries, gallery = (network.describe(images, scales) for images in sets)
    rows = []
    for name in (None, *network.whitenings):
        change = (lambda x: x) if name is None else network.whitenings[name]["ms" if len(scales) > 1 else "ss"]
        found = evaluate_revisited(change(queries) @ change(gallery).T, data.gnd)
        medium, hard = (100 * found[s]["mAP"] for s in ("medium", "hard"))
        page = network.printed
        printed = getattr(page, data.name, None) if page and page.whitened == (name is not None) else None
        agrees = printed and max(abs(medium - printed[0]), abs(hard - printed[1])) <= CLOSE
        rows.append({"whitening": name, "medium": medium, "hard": hard, "printed": printed, "agrees": agrees})
    return rows


def kept_codebook(path: Path, pictures: Sequence, words: int = 65_536, sample: int = 16, **settings) -> Codebook:
    """A codebook from a file, or learnt and written there.

    Args:
        path: of the file.
        pictures: of another set than the one that is searched.
        words: how many.
        sample: features per word that k-means sees; they come from as many pictures as that takes, evenly spaced.
        **settings: of `features_of`.

    Raises:
        ValueError: a damaged file, or one of another size.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file, save

    path = Path(path)
    if path.is_file():
        try:
            book = Codebook(load_file(path)["words"])
        except (SafetensorError, KeyError, OSError) as error:
            raise ValueError(f"{path} is damaged or is no codebook ({error}): delete it to learn one") from None
        if len(book) != words:
            raise ValueError(f"{path} holds {len(book)} words, {words} were asked for: name another file")
        return book
    some = max(1, len(pictures) * settings.get("limit", 700) // (sample * words))
    book = Codebook.learn(features_of(list(pictures)[::some], **settings), words)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, save({"words": book.words}))
    return book


def sharded_scores(codebook: Codebook, queries: Sequence, gallery: Sequence, folder, shard: int = 20_000,
                   **settings) -> Tensor:
    """Scores of a gallery that is larger than memory: one index after the other, each kept in a file.

    Args:
        codebook, **settings: of `ASMKIndex`.
        queries: their features.
        gallery: features, such as `StoredFeatures`.
        folder: of the indexes.
        shard: pictures in one index.

    Returns:
        (Q, G), as one index would give them.

    Raises:
        ValueError: an empty gallery.
    """
    if not len(gallery):
        raise ValueError("the gallery is empty: there is nothing to rank")
    scores = []
    for start in range(0, len(gallery), shard):
        path = Path(folder) / f"index-{codebook.fingerprint[:12]}-{start:07d}-{shard}.safetensors"
        stop = min(start + shard, len(gallery))
        index = ASMKIndex.load(path, codebook) if path.is_file() else None
        if index is None or len(index) != stop - start:
            index = ASMKIndex(codebook, **settings).add(gallery[i] for i in range(start, stop))
            path.parent.mkdir(parents=True, exist_ok=True)
            index.save(path)
        scores.append(index.search(queries))
    return torch.cat(scores, 1)


class _Described(Sequence):
    "Features with their words, found when they are asked for."

    def __init__(self, *lists: Sequence, codebook: Codebook):
        self.lists, self.codebook = lists, codebook

    def __len__(self) -> int:
        return sum(map(len, self.lists))

    def __getitem__(self, index: int):
        for part in self.lists:
            if index < len(part):
                return self.codebook.describe(part[index])
            index -= len(part)
        raise IndexError(index)


def rank_local(data: Revisited, codebook: Codebook, folder, distractors: Sequence = (), top: int = 100, least: int = 5,
               **settings) -> dict[str, dict]:
    """ASMK* and its verification on a revisited set, mAP and mP@10.

    Args:
        data: of `load_revisited`.
        codebook: learnt on another set.
        folder: for features and indexes.
        distractors: paths; they follow the gallery.
        top, least: answers that are verified, inliers of a verified one.
        **settings: `limit` and `side` of `features_of`.
    """
    settings = {"limit": 700, "side": SIDE, "cache": Path(folder) / "features"} | settings
    queries = features_of([(p, e["bbx"]) for p, e in zip(data.queries, data.gnd)], **settings)
    lists = [StoredFeatures(list(part), **settings) for part in (data.gallery, distractors) if len(part)]
    scores = torch.cat([
        sharded_scores(codebook, queries, part, Path(folder) / name)
        for part, name in zip(lists, (data.name, f"{data.name}-distractors"))
    ], 1)
    found = verify_top([codebook.describe(q) for q in queries], _Described(*lists, codebook=codebook), scores, top)
    table = {"rSIFT-ASMK*": scores, "rSIFT-ASMK* + SP": rerank(scores, found, least)}
    return {name: evaluate_revisited(s, data.gnd, ks=(10,)) for name, s in table.items()}


def expected_hours(pictures: Sequence, words: int = 65_536, sample: int = 16, network: PublishedNetwork | None = None,
                   limit: int = 700, side: int = SIDE) -> dict:
    """Hours of one core for the official sets, from a trial on a few pictures.

    Args:
        pictures: paths of a few pictures, at least 1,024 pixels long where the result should hold.
        words, sample: of the codebook, as for `kept_codebook`.
        network: is timed at three scales where there is one.
        limit, side: of the features.

    Returns:
        "seconds": of a picture by step, and of one round of k-means; "hours": {set: {step: hours}}; "gigabytes":
        {set: features and index on disk}.
    """
    def seconds(call) -> float:
        start = time.process_time()
        call()
        return time.process_time() - start

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = []
        each = {"features": seconds(lambda: found.extend(features_of(pictures, limit, side=side))) / len(pictures)}
        book = Codebook(torch.rand(words, 128, generator=torch.Generator().manual_seed(0)))
        each["words"] = seconds(lambda: [book.assign(f.descriptors) for f in found]) / len(pictures)
        if network is not None:
            images = (read_image(p, size=side) for p in pictures)
            each["network"] = seconds(lambda: network.describe(images)) / len(pictures)
    finally:
        torch.set_num_threads(before)
    many = sum(map(len, found)) / len(pictures)
    each["codebook"] = 20 * each["words"] / many * sample * words  # twenty rounds of assigning the sample
    hours = {name: {step: each[step] * count / 3600 for step in each if step != "codebook"}
             for name, count in COUNTS.items()}
    return {"seconds": each, "hours": hours, "codebook_hours": each["codebook"] / 3600, "features": many,
            "gigabytes": {name: {"features": 1e-9 * count * many * (128 + 12), "index": 1e-9 * count * many * 24}
                          for name, count in COUNTS.items()}}


def main(argv: list[str] | None = None) -> None:
    "The command."
    from smoothap_nb.train.machine import environment

    parser = argparse.ArgumentParser(prog="python -m smoothap_nb.retrieval.official", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["network", "local", "hours"])
    parser.add_argument("file", nargs="?", type=Path, help="of a published network")
    parser.add_argument("--root", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("--set", default="roxford5k", dest="name")
    parser.add_argument("--words-of", default="rparis6k", help="the set that the codebook is learnt from")
    parser.add_argument("--words", type=int, default=65_536)
    parser.add_argument("--distractors", help="a list of distractors, such as revisitop1m")
    parser.add_argument("--keep", type=Path, help="folder for features, codebooks and indexes")
    parser.add_argument("--pictures", type=int, default=20, help="of the trial")
    parser.add_argument("--out", type=Path, help="write the result there, as JSON")
    args = parser.parse_args(argv)
    if args.what == "network" and args.file is None:
        parser.error("name the network's file")
    data, network = load_revisited(args.root, args.name), args.file and load_published(args.file)
    if args.what == "network":
        result = compare_network(network, data)
    elif args.what == "hours":
        result = expected_hours(list(data.gallery)[: args.pictures], args.words, network=network)
        result |= {"pictures": f"{args.pictures} of {args.name}", "network": args.file and args.file.stem,
                   "words": args.words, "environment": environment(torch.device("cpu")),
                   "date": datetime.date.today().isoformat()}
    else:
        keep = (args.keep or data_root() / "official") / args.name
        if args.words_of == args.name:
            parser.error("the codebook must come from another set than the one that is searched")
        other = load_revisited(args.root, args.words_of)
        book = kept_codebook(keep / f"codebook-{args.words_of}-{args.words}.safetensors", other.gallery, args.words,
                             side=SIDE, cache=keep.parent / args.words_of / "features", progress=True)
        crowd = load_distractors(args.root, args.distractors) if args.distractors else ()
        result = rank_local(data, book, keep, crowd, progress=True)
    text = json.dumps(result, indent=1)
    print(text)
    if args.out:
        write_atomic(args.out, text)


if __name__ == "__main__":
    main()
