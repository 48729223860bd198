"""`evaluate` inside a training loop: a torchmetrics Metric that gathers embeddings over batches and processes.

A distributed sampler gives every process the same number of images and repeats some to make up the number. In retrieval
a repeated image is a false hit at rank 1, so the state carries each image's number in the data set and counts it once.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..checks import TIES, check_choice
from .dataset import evaluate
from .labels import NoPositives, read_labels
from .names import as_names

if TYPE_CHECKING:  # at run time torchmetrics joins at first use only
    from torchmetrics import Metric as _Base
else:
    _Base = object

__all__ = ["RetrievalMetrics"]
_ROLES = {"both": 0, "query": 1, "gallery": 2}


def metric_class():
    "The class `RetrievalMetrics`; without torchmetrics, one that says what to install."
    try:
        from torchmetrics import Metric
    except ImportError:

        def refuse(self, *args, **kwargs):
            "Needs torchmetrics."
            raise ImportError("RetrievalMetrics needs torchmetrics, which is not installed: pip install torchmetrics")

        return type("RetrievalMetrics", (), {"__init__": refuse, "__module__": __name__, "__doc__": refuse.__doc__})

    return type("RetrievalMetrics", (_Accumulator, Metric), {"__module__": __name__, "__doc__": _Accumulator.__doc__})


class RetrievalMetrics(_Base):
    """`evaluate` as a torchmetrics Metric: gathers embeddings over batches and processes, each image once.

    Args:
        metrics: names, as in `evaluate`.
        ties, memory, include_query, normalize, distance, alpha, weights, extra_fine, engine: as in `evaluate`.
        **kwargs: of `torchmetrics.Metric`, e.g. `compute_on_cpu=True`.

    Raises:
        ImportError: torchmetrics is not installed.
        TypeError, ValueError: an unknown tie rule or role; in `update`, embeddings, labels or numbers that do not fit,
            or no numbers where several processes run; in `compute`, no images at all, roles that do not go together, an
            image that came with two labels.

    `update(embeddings, labels, index=None, role="both")` takes a batch: (B, D) embeddings, (B,), (B, L) or bool
    (B, T) labels, and (B,) the images' numbers in the data set. Without numbers images are counted as they come, in
    a single process only. `role` is "query" or "gallery" where those are two sets, each with numbers of its own.
    `compute()` gives a dict of floating-point scalars, the count `queries_skipped` too: in Lightning
    `self.log_dict(metric.compute())` at the end of an epoch, followed by `metric.reset()`. A pass in which no query has
    a positive, as in a sanity check on two batches, gives NaN and one warning.
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = True
    embeddings: list[Tensor]  # the states: one entry a batch
    labels: list[Tensor]
    index: list[Tensor]
    role: list[Tensor]

    def __init__(self, metrics=("mAP", "mAP@R", "R@1"), *, ties: str = "max", memory="1GB",
                 include_query: bool = False, normalize=None, distance: str = "cosine", alpha: float = 1.0,
                 weights=None, extra_fine: int = 0, engine: str = "auto", **kwargs):
        super().__init__(**kwargs)
        check_choice("ties", ties, TIES)
        self.metrics = as_names(metrics)
        self.options = {"ties": ties, "memory": memory, "include_query": include_query, "normalize": normalize,
                        "distance": distance, "alpha": alpha, "weights": weights, "extra_fine": extra_fine,
                        "engine": engine}
        self.noticed = False
        for state in ("embeddings", "labels", "index", "role"):
            self.add_state(state, default=[], dist_reduce_fx="cat")

    def update(self, embeddings: Tensor, labels: Tensor, index: Tensor | None = None, role: str = "both") -> None:
        "Add a batch."
        check_choice("role", role, tuple(_ROLES))
        if not isinstance(embeddings, Tensor) or embeddings.ndim != 2:
            raise TypeError("embeddings must be a torch.Tensor of shape (images, dimensions)")
        labels = torch.as_tensor(labels, device=embeddings.device)
        read_labels(labels, len(embeddings), "labels", "the embeddings")
        index = torch.as_tensor(self._numbers(len(embeddings), role) if index is None else index)
        if index.shape != labels.shape[:1] or index.is_floating_point():
            raise ValueError(f"index must hold {len(embeddings)} integers, the images' numbers in the data set; "
                             f"got {index.dtype} {tuple(index.shape)}")
        index = index.to(embeddings.device).long()
        self.embeddings.append(embeddings.detach())
        self.labels.append(labels if labels.dtype == torch.bool else labels.long())
        self.index.append(index)
        self.role.append(torch.full_like(index, _ROLES[role]))

    def _numbers(self, count: int, role: str) -> Tensor:
        "Numbers for images that came without: as they come."
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            raise ValueError("several processes need index=: a distributed sampler repeats images, and only their "
                             "numbers in the data set tell")
        seen = sum(int((part == _ROLES[role]).sum()) for part in self.role)
        return torch.arange(seen, seen + count)

    def forward(self, *args, **kwargs) -> None:
        "Add a batch. A batch has no value of its own: its images are ranked against the whole set."
        self.update(*args, **kwargs)

    def compute(self) -> dict[str, Tensor]:
        "Metrics of all images so far."
        if not len(self.embeddings):
            raise ValueError("there is nothing to evaluate: call update(embeddings, labels, index) first")
        states = (self.embeddings, self.labels, self.index, self.role)
        embeddings, labels, index, role = (torch.cat(s) if isinstance(s, (list, tuple)) else s for s in states)
        sets = {c: _once(embeddings[role == c], labels[role == c], index[role == c]) for c in role.unique().tolist()}
        if set(sets) not in ({0}, {1, 2}):
            raise ValueError("roles do not fit together: give every batch the role 'both', or some 'query' and some "
                             "'gallery'")
        parts = [part for code in sorted(sets) for part in sets[code]]
        with warnings.catch_warnings():
            if self.noticed:  # said once for a metric, not once an epoch
                warnings.filterwarnings("ignore", message=".*not of length 1")
            found = self._evaluate(parts)
        self.noticed = True
        return {name: torch.tensor(float(value), device=embeddings.device) for name, value in found.items()}

    def _evaluate(self, parts: list[Tensor]) -> dict:
        "`evaluate`, and NaN where nothing can be measured."
        try:
            return evaluate(*parts, metrics=self.metrics, progress=False, **self.options)
        except NoPositives as error:
            warnings.warn(f"{error} Every metric of this pass is NaN.", stacklevel=4)
            return dict.fromkeys(self.metrics, float("nan")) | {"queries_skipped": len(parts[0])}


def _once(embeddings: Tensor, labels: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    "Each image once, in the order of their numbers."
    number, place = torch.unique(index, return_inverse=True)
    first = torch.full_like(number, len(index))
    first.scatter_reduce_(0, place, torch.arange(len(index), device=index.device), "amin")
    if not torch.equal(labels[first][place], labels):
        image = int(index[(labels[first][place] != labels).reshape(len(labels), -1).any(1)][0])
        raise ValueError(f"image {image} came with two different labels: index must be its number in the data set")
    return embeddings[first], labels[first]


_Accumulator = RetrievalMetrics
if not TYPE_CHECKING:
    del RetrievalMetrics  # for `__getattr__` to give, joined with torchmetrics


def __getattr__(name: str):
    if name == "RetrievalMetrics":  # made at first use: torchmetrics is not needed for anything else
        globals()[name] = metric_class()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
