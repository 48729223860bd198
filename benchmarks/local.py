"""Local features on a town of 1,300 pictures, 4,096 words (`load_town("full", seed=100)`, drawn at the first run). *A
query* goes from up to 700 descriptors to the scores of all pictures: three words for each descriptor, aggregation, the
inverted file. The [asmk](https://github.com/jenicek/asmk) package has the same codebook and the same entries.
*Verification* takes the 100 best answers of one query, whose words are known. CPU time of one thread, the least of
several calls: a town in memory, one process."""

from __future__ import annotations

import importlib.util

import numpy as np

from benchmarks.harness import Row, not_run, wanted
from benchmarks.sorters import cpu_seconds
from smoothap_nb import ASMKIndex, Codebook, load_town
from smoothap_nb.files import data_root
from smoothap_nb.retrieval.features import LocalFeatures, features_of
from smoothap_nb.retrieval.local import verify_top

TITLE = "Local features: a query and its verification"
LONG = ("ASMK*", "verification")  # they draw a town


def made_up(pictures: int) -> list[LocalFeatures]:
    "Pictures that share a few patches, for a trial."
    chance = np.random.default_rng(0)
    rows = np.sqrt(chance.dirichlet(np.full(128, 0.3), 60)).astype(np.float32)
    return [LocalFeatures(rows[chance.permutation(60)[:40]], chance.uniform(0, 300, (40, 2)).astype(np.float32),
                          np.ones(40, np.float32), (300, 300)) for _ in range(pictures)]


def stage(tiny: bool):
    "Gallery, queries, and a codebook."
    if tiny:
        gallery = made_up(12)
        return gallery, gallery[:2], Codebook.learn(gallery, 16)
    town = load_town("full", 100)
    cache = data_root() / "town" / "features"
    boxes = [(p, e["bbx"]) for p, e in zip(town.data.queries, town.gnd)]
    find = lambda pictures: features_of(list(pictures), cache=cache)  # noqa: E731
    return find(town.data.gallery) + find(town.distractors), find(boxes), Codebook.learn(find(town.codebook), 4096)


def by_asmk(codebook: Codebook, gallery: list[LocalFeatures]):
    "A search by the package."
    from asmk import codebook as books
    from asmk import index, inverted_file, kernel

    book = books.Codebook.initialize_from_state(
        {"type": "Codebook", "params": {"size": len(codebook)}, "state": {"centroids": codebook.words}},
        index.initialize_index(gpu_id=None),
    )
    kern = kernel.ASMKKernel(book, binary=True)
    ivf = inverted_file.IVF.initialize_empty(codebook_size=len(codebook), use_idf=False)
    for i, picture in enumerate(gallery):
        ivf.add(*kern.aggregate(*book.quantize(picture.descriptors, np.full(len(picture), i), multiple_assignment=1)))

    def search(query: LocalFeatures):
        rows, words = book.quantize(query.descriptors, multiple_assignment=3)
        return ivf.search(
            *kern.aggregate_image(rows, words), topk=len(gallery),
            similarity_func=lambda *a: kern.similarity(*a, alpha=3.0, similarity_threshold=0.0),
        )

    return search


def rows(tiny: bool = False):
    names = ("ASMK*, one query", "verification, 100 candidates")
    if not any(map(wanted, names)):
        return
    repeat, (gallery, queries, book) = 1 if tiny else 7, stage(tiny)
    queries = [q for q in queries if len(q)][:10]
    index = ASMKIndex(book).add(gallery)
    length = sum(map(len, queries)) / len(queries)
    config = {"pictures": len(gallery), "words": len(book), "features of a query": length}
    if wanted(names[0]):
        ours = cpu_seconds(lambda: index.search(queries), repeat) / len(queries)
        if importlib.util.find_spec("asmk"):
            search = by_asmk(book, gallery)
            theirs = cpu_seconds(lambda: [search(q) for q in queries], repeat) / len(queries)
            yield Row(names[0], theirs / ours, "times faster", ">= 1", {"ours": ours, "asmk": theirs}, config)
        else:
            yield not_run(names[0], "needs asmk (PyPI), which needs a compiler", ">= 1", "times faster")
    if wanted(names[1]):
        described, asked = [book.describe(f) for f in gallery], [book.describe(q) for q in queries]
        scores = index.search(queries)
        taken = cpu_seconds(lambda: verify_top(asked, described, scores), repeat) / len(queries)
        yield Row(names[1], 1000 * taken, "ms", "<= 200", {"ours": taken}, config)
