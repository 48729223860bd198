"""Retrieval between two galleries, measured both ways: pictures look for texts, texts look for pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from smoothap_nb.metrics.flat import average_precision
from smoothap_nb.checks import (
    TIES, check_choice, check_count, check_counts, check_dense, check_embeddings, check_references,
)
from smoothap_nb.similarity import cosine_scores

DIRECTIONS = ("image->text", "text->image")


def relevance_from_ids(image_ids: Tensor, images: int, texts: int) -> Tensor:
    """(images, texts) bool from the row of the picture that each text describes.

    Args:
        image_ids: (texts,) integers, rows of `images`.
        images, texts: how many there are.

    Raises:
        TypeError: not integers.
        ValueError: another number than there are texts, or a row that does not exist.
    """
    if not isinstance(image_ids, Tensor) or image_ids.is_floating_point() or image_ids.dtype == torch.bool:
        raise TypeError(
            "image_ids must be a torch.Tensor of integers: for each text the row of its picture in `images`"
        )
    if image_ids.shape != (texts,):
        raise ValueError(
            f"image_ids have shape {tuple(image_ids.shape)}, there are {texts} texts: one row number per text is needed"
        )
    if image_ids.device.type == "cpu" and not 0 <= int(image_ids.min()) <= int(image_ids.max()) < images:
        raise ValueError(
            f"image_ids must lie in 0 ... {images - 1} (rows of `images`), got {int(image_ids.min())} ... "
            f"{int(image_ids.max())}: "
            "number the pictures of this batch, not those of the data set"
        )
    return torch.arange(images, device=image_ids.device)[:, None] == image_ids


def evaluate_cross_modal(
    images: Tensor,
    texts: Tensor,
    relevance: Tensor | None = None,
    *,
    image_ids: Tensor | None = None,
    ks: Sequence[int] = (1, 5, 10),
    folds: int = 1,
    ties: str = "max",
    block: int = 1024,
) -> dict[str, float]:
    """Recall, mAP and median rank in both directions.

    With five captions a picture, ``folds=1`` over 5,000 pictures is COCO's 5k protocol, and ``folds=5`` its 1k
    protocol: the mean over five runs of
    consecutive pictures, each ranked with the captions of its own fold alone.

    Args:
        images: (I, D) embeddings, scaled to length 1 here.
        texts: (T, D).
        relevance: (I, T) bool; or
        image_ids: (T,) integers, the row of `images` that each text describes. One of the two.
        ks: cut-offs of the recall.
        folds: parts of equal size that the pictures are cut into.
        ties: how equal scores count, as in `ranks`.
        block: queries ranked at a time.

    Returns:
        dict with, for both directions ("image->text", "text->image"), `R@K` (a hit rate in [0, 1]: the best positive
        counts), `mAP`, `median rank` of the best positive, and `queries_skipped` (those without a positive), e.g. under
        "text->image R@5"; and `rsum`, the sum of all R@K in points of 100.

    Raises:
        TypeError, ValueError: what does not fit, ids that name no picture, folds of unequal size, a direction without
            a single positive.
    """
    images = check_embeddings(images, "images")
    texts = check_references(check_embeddings(texts, "texts"), images)
    if (relevance is None) == (image_ids is None):
        raise ValueError("pass relevance (pictures, texts) or image_ids (texts), exactly one of the two")
    if relevance is None:
        relevance = relevance_from_ids(cast(Tensor, image_ids), len(images), len(texts))  # one of the two is there
    shape = (len(images), len(texts))
    if not isinstance(relevance, Tensor) or relevance.dtype != torch.bool or relevance.shape != shape:
        raise ValueError(
            f"relevance must be bool ({len(images)}, {len(texts)}), pictures by texts; got "
            + (f"{relevance.dtype} {tuple(relevance.shape)}" if isinstance(relevance, Tensor) else f"{type(relevance)}")
        )
    if len(images) == 0 or len(images) % check_count("folds", folds):
        raise ValueError(f"{len(images)} pictures cannot be cut into {folds} folds of equal size")
    check_choice("ties", ties, TIES)
    check_count("block", block)
    ks = check_counts("ks", ks)
    check_dense("relevance", relevance)
    size, parts = len(images) // folds, []
    for start in range(0, len(images), size):
        own = relevance[start : start + size]
        mine = own.any(0) if folds > 1 else torch.ones_like(own[0])
        parts.append(
            _one_fold(
                images[start : start + size], texts[mine], own[:, mine], ks, ties, block
            )
        )
    out = {
        key: sum(part[key] for part in parts) if key.endswith("skipped") else sum(part[key] for part in parts) / folds
        for key in parts[0]
    }
    return out | {"rsum": 100 * sum(value for key, value in out.items() if " R@" in key)}


def _one_fold(
    images: Tensor, texts: Tensor, relevance: Tensor, ks: Sequence[int], ties: str, block: int
) -> dict[str, float]:
    "Both directions of one gallery of pictures and one of texts."
    out = {}
    for way, queries, gallery, wanted in zip(DIRECTIONS, (images, texts), (texts, images), (relevance, relevance.T)):
        best, precisions = [], []
        for rows in torch.arange(len(queries), device=queries.device).split(block):
            scores, positive = cosine_scores(queries[rows], gallery), wanted[rows]
            precisions.append(average_precision(scores, positive, ties))
            best.append(_best_rank(scores, positive, ties))
        place, precision = torch.cat(best), torch.cat(precisions)
        found = ~precision.isnan()
        if not found.any():
            raise ValueError(f"{way}: no query has a positive in this gallery")
        out |= {f"{way} R@{k}": float((place[found] <= k).double().mean()) for k in ks}
        out |= {
            f"{way} mAP": float(precision[found].double().mean()),
            f"{way} median rank": float(place[found].double().median()),
            f"{way} queries_skipped": int((~found).sum()),
        }
    return out


def _best_rank(scores: Tensor, relevance: Tensor, ties: str) -> Tensor:
    "(Q,) rank of the best positive among the negatives and itself; 1 where there is none."
    best = scores.masked_fill(~relevance, -torch.inf).amax(1, keepdim=True)
    rivals = scores.masked_fill(relevance, -torch.inf)
    ahead, level = (rivals > best).sum(1), ((rivals == best) & ~relevance).sum(1)
    return 1 + ahead + {"max": level, "min": 0 * level, "average": level / 2}[ties]
