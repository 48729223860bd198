"""Who asks, who may answer, and what is averaged: the protocols of the benchmarks (lesson 11b)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..metrics.dataset import evaluate
from .galleries import average_groups, mean_results, one_of_each, own_rows
from .interface import DatasetError, Embed, RetrievalDataset

__all__ = ["Protocol", "average_groups", "evaluate_protocols", "mean_results", "own_rows"]


@dataclass
class Protocol:
    """One benchmark number: who asks, who may answer, and what is averaged.

    Attributes:
        name: "test", "small", "fine", ...
        queries: the images that ask.
        gallery: the images that answer; None: the queries themselves, each without its own row (or see `draws`).
        groups: (N,) int64; embeddings of queries with one number are averaged to one item (video frames). Only
            without a gallery.
        metrics: computed where the caller names none.
        level: column of the labels that decides what is relevant; None: all levels, the first metrics at the finest.
        draws: above 0: that many times one image of every class, drawn at random, makes the gallery, the others ask;
            metrics are means over the draws.
        seed: of the draws.
        shared: queries may be in the gallery under another name; each leaves its own ranking.

    Raises:
        DatasetError, ValueError: in `evaluate`, embeddings, groups or draws that do not fit the images.
    """

    name: str
    queries: RetrievalDataset
    gallery: RetrievalDataset | None = None
    groups: Tensor | None = None
    metrics: tuple[str, ...] = ("mAP", "R@1")
    level: int | None = None
    draws: int = 0
    seed: int = 0
    shared: bool = False

    def _labels(self, images: RetrievalDataset) -> Tensor:
        return images.labels if self.level is None else images.labels[:, self.level]

    def gallery_draw(self, draw: int) -> tuple[Tensor, Tensor]:
        "Rows that ask and rows that answer (one of every class) in one draw, decided by (seed, draw) alone."
        asks, answers = one_of_each(self.queries.labels[:, -1], self.seed, draw)
        if not len(asks):
            raise DatasetError(f"protocol {self.name!r}: every class has one image, so that none is left to ask")
        return asks, answers

    def embeddings(self, embed: Embed, images: RetrievalDataset) -> Tensor:
        "What `embed` gives for the images, checked."
        found = embed(images)
        if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != len(images):
            shape = tuple(found.shape) if hasattr(found, "shape") else type(found).__name__
            raise DatasetError(f"embed must return a tensor with one row per image, ({len(images)}, D); got {shape}")
        return found

    def evaluate(self, embed: Embed, metrics: Sequence[str] | None = None, **options) -> dict:
        """Metrics under this protocol.

        Args:
            embed: takes a data set of images, returns its embeddings (N, D).
            metrics: names as in `evaluate`; None: the data set's own. (Cut-offs beyond the size of the gallery are
                left out of its own ones.)
            **options: of `evaluate`: ties, memory, device, per_query (not with `draws`), and so on.

        Returns:
            a dict as from `evaluate`.
        """
        queries = self.embeddings(embed, self.queries)
        labels = self._labels(self.queries)
        if self.groups is not None:
            first = torch.full((int(self.groups.max()) + 1,), len(self.groups))
            first = first.scatter_reduce(
                0, self.groups, torch.arange(len(self.groups)), "amin"
            )  # where each group begins
            queries, labels = average_groups(queries, self.groups), labels[first]
        if self.draws:
            if options.get("per_query"):
                raise ValueError(
                    f"protocol {self.name!r} averages {self.draws} draws with different queries: per_query is not "
                    f"defined"
                )
            results = []
            for draw in range(self.draws):
                ask, answer = self.gallery_draw(draw)
                names = self._chosen(metrics, len(answer), labels)
                results.append(evaluate(queries[ask], labels[ask], queries[answer], labels[answer], names, **options))
            return mean_results(results)
        if self.gallery is None:
            return evaluate(queries, labels, metrics=self._chosen(metrics, len(labels) - 1, labels), **options)
        gallery = self.embeddings(embed, self.gallery)
        own = own_rows(self.queries, self.gallery) if self.shared else None
        size = len(gallery) - int(own is not None and bool((own >= 0).any()))
        return evaluate(
            queries,
            labels,
            gallery,
            self._labels(self.gallery),
            self._chosen(metrics, size, labels),
            query_index=own,
            **options,
        )

    def _chosen(self, metrics, size: int, labels: Tensor) -> tuple[str, ...]:
        if metrics is not None:
            return (metrics,) if isinstance(metrics, str) else tuple(metrics)
        depth = labels.shape[1] if labels.ndim == 2 else 1
        fits = [m for m in self.metrics if not (m[:2] in ("R@", "P@") and int(m[2:]) > size)]
        return tuple(m for m in fits if not m.startswith("AP@level") or int(m[8:]) <= depth)


def evaluate_protocols(
    protocols: Sequence[Protocol], embed: Embed, metrics: Sequence[str] | None = None, **options
) -> dict[str, dict]:
    """All protocols of a benchmark; for DyML their mean too.

    Args:
        protocols: from `load_protocols`.
        embed: takes a data set of images, returns its embeddings (N, D); called once for each set of images.
        metrics, **options: as in `Protocol.evaluate`.

    Returns:
        a dict of metrics per protocol name; "mean" over DyML's three scales.
    """
    kept: dict[int, tuple] = {}

    def once(images: RetrievalDataset) -> Tensor:
        if id(images) not in kept:
            kept[id(images)] = images, embed(images)  # the images are kept too, or another set might get the same id
        return kept[id(images)][1]

    results = {protocol.name: protocol.evaluate(once, metrics, **options) for protocol in protocols}
    if {"fine", "middle", "coarse"} <= set(results):
        results["mean"] = mean_results([results[level] for level in ("fine", "middle", "coarse")])
    return results
