"""Ranked lists that are cut short, as a search engine gives them: how to get them, and what they are worth."""

from __future__ import annotations

from collections.abc import Sized

import numpy as np
import torch
from torch import Tensor

from ..checks import check_count
from .dataset import RankedPositives, measure
from .labels import NoPositives, mean_of, read_gallery_labels, read_labels
from .names import GRADED, read_names, split_name
from .positives import Classes, Tags, class_paths
from .rows import Rows, full_precision, gallery_rows, memory_bytes, own_rows, prepare, score_rows

_BYTES_PER_PASS = 2**27


def nearest_neighbours(
    embeddings, k: int, gallery_embeddings=None, *, query_index=None, include_query: bool = False, normalize=None,
    distance: str = "cosine", memory="1GB", device=None, index: str | None = None, probes: int = 8,
    progress: bool = True,
) -> tuple[Tensor, Tensor]:
    """The K nearest gallery images of each query: exactly, or by a FAISS index.

    Args:
        embeddings: (Q, D) queries, in any form that `evaluate` takes.
        k: length of the lists.
        gallery_embeddings: (G, D); the queries themselves when left out, each query then missing from its own list.
        query_index: (Q,) each query's own row in the gallery, -1 where it is absent; that row leaves the list.
        include_query: leave the own row in.
        normalize: as in `evaluate`.
        distance: "cosine", or "euclidean" between rows as they are.
        memory: working memory beside the inputs. A FAISS index holds the gallery in memory, beside that.
        device: where to compute; where `embeddings` are when left out.
        index: None searches exactly; else a FAISS factory text such as "Flat", "IVF256,Flat" or "HNSW32" (needs
            `faiss-cpu`).
        probes: cells that an IVF index looks into; more find more.
        progress: show a bar when it takes longer than a few seconds.

    Returns:
        scores (Q, K), best first: dot products, or with `distance="euclidean"` minus the distances; and gallery rows
        (Q, K). Where an index found fewer, score -inf and row -1. Order inside a tie is arbitrary.

    Raises:
        TypeError, ValueError: what does not fit is named.
        ImportError: an `index` is asked for and FAISS is not installed.
    """
    if index is not None and not isinstance(index, str):
        raise TypeError(f"index must be a FAISS factory text such as 'Flat', got {index!r}")
    queries = Rows(embeddings, "embeddings")
    if len(queries) == 0:
        raise ValueError("there is no query: embeddings have no rows")
    gallery = queries if gallery_embeddings is None else gallery_rows(gallery_embeddings, queries)
    if gallery is queries and query_index is not None:
        raise ValueError("query_index points into gallery_embeddings: pass a gallery with it")
    numbers = np.arange(len(queries)) if gallery is queries else query_index
    own = own_rows(numbers, len(queries), len(gallery), include_query)
    most = len(gallery) - bool((own >= 0).any())
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= most:
        raise ValueError(f"k must be a whole number from 1 to {most}, the images in a ranking; got {k!r}")
    memory = memory_bytes(memory)
    queries, gallery = prepare(queries, gallery, normalize, distance, "cpu" if index else device, memory)
    if index is not None:
        scores, rows = _faiss_search(queries, gallery, own, k, index, check_count("probes", probes))
    else:
        scores, rows = _exact_search(queries, gallery, own, k, memory, progress)
    return (_minus_distance(scores, queries), rows) if distance == "euclidean" else (scores, rows)


def _minus_distance(scores: Tensor, queries: Rows) -> Tensor:
    "q.g - |g|^2 / 2 turned into -|q - g|."
    for part in queries.slices(_BYTES_PER_PASS // queries.width):
        square = queries.block(part)[:, :-1].square().sum(1, keepdim=True).cpu()
        scores[part] = -(square - 2 * scores[part]).clamp(min=0).sqrt()
    return scores


def _exact_search(queries: Rows, gallery: Rows, own: np.ndarray, k: int, memory: int, progress: bool):
    "The best K of every row of scores."
    scores = torch.empty(len(queries), k, dtype=gallery.dtype)
    rows = torch.empty(len(queries), k, dtype=torch.int64)
    which, cost = np.arange(len(queries)), 3 * gallery.dtype.itemsize
    with full_precision():
        for part, block in score_rows(queries, gallery, which, memory, cost, progress):
            mine = torch.from_numpy(own[part]).to(block.device)
            block[mine >= 0, mine[mine >= 0]] = -torch.inf
            best = block.topk(k, dim=1)
            scores[part[0] : part[-1] + 1], rows[part[0] : part[-1] + 1] = best.values.cpu(), best.indices.cpu()
    return scores, rows


def _faiss_search(queries: Rows, gallery: Rows, own: np.ndarray, k: int, index: str, probes: int):
    "Lists from a FAISS index by inner product, one longer than asked for, so that the own row can leave."
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            "index= needs FAISS, which is not installed: pip install faiss-cpu, or search exactly with index=None"
        ) from error
    wide = gallery.width // gallery.dtype.itemsize
    try:
        engine = faiss.index_factory(wide, index, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise ValueError(f"FAISS does not know the index {index!r}: {str(error).splitlines()[-1]}") from error
    if not engine.is_trained:
        step = max(1, len(gallery) * gallery.width // (4 * _BYTES_PER_PASS))  # a sample of at most half a gigabyte
        engine.train(gallery.block(np.arange(0, len(gallery), step)).float().numpy())
    for part in gallery.slices(_BYTES_PER_PASS // gallery.width):
        engine.add(gallery.block(part).float().numpy())
    if hasattr(engine, "nprobe"):
        engine.nprobe = probes  # pyright: ignore[reportAttributeAccessIssue]  (hasattr has said so)
    longer = min(k + 1, len(gallery))
    found = [engine.search(queries.block(part).float().numpy(), longer) for part in queries.slices(4096)]
    scores, rows = (np.concatenate(parts) for parts in zip(*found))
    keep = (rows != own[:, None]) | (own[:, None] < 0)
    keep &= np.cumsum(keep, axis=1) <= k
    order = np.argsort(~keep, axis=1, kind="stable")[:, :k]  # the kept ones, in their order
    scores, rows, keep = (np.take_along_axis(x, order, axis=1) for x in (scores, rows, keep))
    rows = np.where(keep, rows, -1)
    return torch.from_numpy(np.where(rows >= 0, scores, -np.inf)), torch.from_numpy(rows)


def evaluate_neighbours(
    neighbours, labels, gallery_labels=None, metrics=("R@1", "mAP@R"), *, query_index=None, include_query: bool = False,
    per_query: bool = False,
) -> dict:
    """Metrics of ranked lists that are cut short, as a search engine gives them.

    `R@K`, `P@K` and `mAP@K` are exact for K up to the length of the lists, and `mAP@R` and `R-precision` where no query
    has more positives than that. `mAP` and `MRR` are lower bounds: positives beyond the list count, and add nothing.

    Args:
        neighbours: (Q, K) gallery rows, best first; -1 where a list ends earlier.
        labels: (Q,) integers of the queries; of (Q, L) labels the finest level counts; (Q, T) bool are tags.
        gallery_labels: (G,), (G, L) or (G, T); the queries' own when left out.
        metrics: out of `R@K`, `P@K`, `mAP@K`, `mAP@R`, `R-precision`, `mAP`, `MRR`.
        query_index: (Q,) each query's own row in the gallery, -1 where it is absent; it is no positive, and may not
            stand in its list.
        include_query: the own row is a positive like any other.
        per_query: as in `evaluate`.

    Returns:
        a dict as from `evaluate`.

    Raises:
        TypeError, ValueError: what does not fit is named.
    """
    rows = neighbours.detach().cpu().numpy() if isinstance(neighbours, Tensor) else np.asarray(neighbours)
    if rows.ndim != 2 or rows.dtype.kind not in "iu" or 0 in rows.shape:
        raise ValueError(f"neighbours must hold gallery rows, (Q, K) integers; got {rows.dtype} {rows.shape}")
    labels = read_labels(labels, len(rows), "labels", "neighbours")
    gallery = labels
    if gallery_labels is not None:
        count = len(gallery_labels) if isinstance(gallery_labels, Sized) else 0  # what has no length is named there
        gallery = read_gallery_labels(gallery_labels, count, labels, "gallery")
    if rows.max() >= len(gallery) or rows.min() < -1:
        raise ValueError(
            f"neighbours must lie in -1 ... {len(gallery) - 1} (gallery rows), got {rows.min()} ... {rows.max()}"
        )
    numbers = np.arange(len(labels)) if gallery_labels is None else query_index
    own = own_rows(numbers, len(labels), len(gallery), include_query)
    if ((rows == own[:, None]) & (own[:, None] >= 0)).any():
        raise ValueError("some lists hold their own query: leave it out of them, or pass include_query=True")
    hit, total = _hits(rows, labels, gallery, own)
    names = _names(metrics, labels, rows.shape[1], total)
    place = torch.arange(1, rows.shape[1] + 1).double().expand(rows.shape)
    ranked = RankedPositives(torch.from_numpy(hit).byte(), place, torch.from_numpy(total)[:, None])
    values = {name: measure(ranked, name, 1).numpy() for name in names}
    result = {name: mean_of(name, value) for name, value in values.items()}
    return result | {"queries_skipped": int((total == 0).sum())} | ({"per_query": values} if per_query else {})


def _hits(rows: np.ndarray, labels: np.ndarray, gallery: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    "(Q, K) bool, where a list holds a positive, and (Q,) how many positives the gallery has."
    if labels.dtype == bool:
        who = Tags(labels, gallery, own)
        hit = np.stack([who.shared(np.array([q]))[0].numpy()[row] for q, row in enumerate(rows)])
    else:
        depth = (labels.shape[1],)
        who, path = Classes(labels, gallery, depth, own), class_paths(np.concatenate([labels, gallery]), depth)[0]
        hit = path[: len(labels), None] == path[len(labels) :][rows]
    return hit & (rows >= 0), who.counts[0]


def _names(metrics, labels: np.ndarray, length: int, total: np.ndarray) -> tuple[str, ...]:
    "The metrics asked for, if lists of this length can give them."
    names = read_names(metrics, 1 if labels.dtype == bool else labels.shape[1], length).names
    if any(split_name(name)[0] in (*GRADED, "AP") for name in names):
        raise ValueError(
            "lists that are cut short give R@K, P@K, mAP@K, mAP@R, R-precision, mAP and MRR (lower bounds); "
            "evaluate() gives the rest"
        )
    if not total.any():
        raise NoPositives("no query has a positive in the gallery. Do the labels repeat?")
    if set(names) & {"mAP@R", "R-precision"} and total.max() > length:
        raise ValueError("mAP@R and R-precision need lists as long as the largest number of positives, "
                         f"{total.max()}; these hold {length}")
    return names
