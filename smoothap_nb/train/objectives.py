"""One loss, or a weighted sum of several; ours, or one of pytorch-metric-learning; with or without a memory of earlier
batches.
"""

from __future__ import annotations

import inspect

import torch
from torch import Tensor, nn

from ..checks import ConfigError, nearest
from ..losses.memory import EmbeddingMemory, takes_references

__all__ = ['LOSSES', 'loss_from_config', 'Objective']

LOSSES = {  # name in an experiment: (class, whether it takes the labels of all levels)
    "smooth_ap": ("SmoothAPLoss", False),
    "sup_ap": ("SupAPLoss", False),
    "roadmap": ("ROADMAPLoss", False),
    "soft_bin_ap": ("SoftBinAPLoss", False),
    "recall": ("RecallLoss", False),
    "blackbox_ap": ("BlackboxAPLoss", False),
    "fast_ap": ("FastAPLoss", False),
    "recall_at_k": ("RecallAtKLoss", False),
    "sup_recall": ("SupRecallLoss", False),
    "pnp": ("PNPLoss", False),
    "smooth_ndcg": ("SmoothNDCGLoss", True),
    "sup_ndcg": ("SupNDCGLoss", True),
    "calibration": ("CalibrationLoss", False),
    "cluster": ("ClusterLoss", False),
    "h_ap": ("HAPLoss", True),
    "happier": ("HAPPIERLoss", True),
    "csl": ("CSLLoss", True),
}


def loss_from_config(settings: dict, class_labels: Tensor | None = None, dim: int = 2) -> nn.Module:
    """The loss that a table names: ``{"name": "smooth_ap", "tau": 0.01}``.

    Args:
        settings: the loss's name (one of `LOSSES`, or ``"pml.NAME"`` for a class of pytorch_metric_learning.losses)
            and its own arguments;
            the word "none" stands for None.
        class_labels: (C, L) labels of the training classes, coarse to fine, for losses that learn a proxy for each
            class.
        dim: length of the embeddings, for the same losses.

    Returns:
        the loss, called as ``loss(embeddings, labels)``.

    Raises:
        ConfigError: an unknown loss or argument (with the nearest known one), a value out of range, a package that
            is missing.
    """
    if not isinstance(settings, dict):
        raise ConfigError(f"settings of a loss must be a table, {{'name': ..., ...}}, got {settings!r}")
    settings = {k: None if isinstance(v, str) and v == "none" else v for k, v in settings.items()}  # TOML has no null
    name = settings.pop("name", None)
    if isinstance(name, str) and name.startswith("pml."):
        kind = _peer("losses", name)
    elif not isinstance(name, str) or name not in LOSSES:
        raise ConfigError(
            f"no loss {name!r}: {nearest(str(name), LOSSES)} (or pml.NAME for one of pytorch-metric-learning)"
        )
    else:
        import smoothap_nb

        kind = getattr(smoothap_nb, LOSSES[name][0])
    if class_labels is not None and not (isinstance(class_labels, Tensor) and class_labels.ndim == 2):
        raise ConfigError(f"class_labels must be a tensor (classes, levels), got {type(class_labels).__name__}")
    if class_labels is None:  # only to try the settings: as many levels as they speak of
        levels = settings.get("margins")
        class_labels = torch.arange(2)[:, None].repeat(1, max(1, len(levels)) if isinstance(levels, list) else 1)
    given = {"class_labels": class_labels, "num_classes": len(class_labels), "dim": dim, "embedding_size": dim}
    return _build(kind, name, settings, given)


def _build(kind: type, name: str, settings: dict, given: dict | None = None):
    "An object of class `kind` from the settings of a file, with what the run knows where the class asks for it."
    known = [
        k
        for c in kind.__mro__
        for k, p in inspect.signature(c.__init__).parameters.items()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    known = list(dict.fromkeys(k for k in known if k != "self"))
    for key in settings:
        if key not in known:
            raise ConfigError(f"unknown setting 'loss.{key}' of {name}: {nearest(key, known)}")
    try:
        return kind(**{k: v for k, v in (given or {}).items() if k in known} | settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"loss {name}: {error}") from None


def _peer(part: str, name: str) -> type:
    "A class of pytorch-metric-learning, or a clear line about what is missing."
    try:
        from importlib import import_module

        module = import_module(f"pytorch_metric_learning.{part}")
    except ImportError:
        raise ConfigError(
            f"{name} is a part of pytorch-metric-learning, which is not installed: pip install pytorch-metric-learning"
        ) from None
    kind = getattr(module, name.removeprefix("pml."), None)
    if not isinstance(kind, type):
        raise ConfigError(
            f"pytorch_metric_learning.{part} has no {name.removeprefix('pml.')!r}: "
            + nearest(name.removeprefix("pml."), [k for k in vars(module) if isinstance(getattr(module, k), type)])
        )
    return kind


class Objective(nn.Module):
    """Weighted sum of losses, as an experiment's ``[loss]`` and ``[memory]`` describe it.

    Args:
        settings: ``{"name": ..., ...}``, or ``{"terms": [{"name": ..., "weight": ..., ...}, ...]}``. A loss of
            pytorch-metric-learning may have a ``miner``, ``{"name": "TripletMarginMiner", ...}``. A term may have a
            ``level``, 1 for the coarsest: it then sees the labels of that level in place of the finest.
        class_labels: (C, L) labels of the training classes, coarse to fine, each level numbered from 0.
        dim: length of the embeddings.
        memory: rows of `EmbeddingMemory` for every term that ranks, 0 for none.
        memory_start: step from which the memory is used; it is filled only from there, so that it never holds rows
            of an untrained network.

    Raises:
        ConfigError: an unknown loss or argument, no terms, a weight that is not a number, a memory that no term can
            use.
    """

    def __init__(
        self, settings: dict, class_labels: Tensor | None = None, dim: int = 2, memory: int = 0, memory_start: int = 0
    ):
        super().__init__()
        if not isinstance(settings, dict):
            raise ConfigError(f"settings of a loss must be a table, {{'name': ..., ...}}, got {settings!r}")
        if class_labels is not None and not (isinstance(class_labels, Tensor) and class_labels.ndim == 2):
            raise ConfigError(f"class_labels must be a tensor (classes, levels), got {type(class_labels).__name__}")
        if isinstance(memory, bool) or not isinstance(memory, int) or memory < 0:
            raise ConfigError(f"memory must be a whole number of rows, 0 for none, got {memory!r}")
        terms = settings.get("terms", [settings])
        if "terms" in settings and (
            len(settings) > 1 or not isinstance(terms, list) or not terms or not all(isinstance(t, dict) for t in terms)
        ):
            raise ConfigError(
                "loss.terms must be a list of tables, {name = ..., weight = ..., ...}, and stand alone in [loss]"
            )
        self.memory_start, self.takes_levels, self.levels, self.weights, self.miners = memory_start, [], [], [], []
        self.names = [str(term.get("name")) for term in terms]
        self.losses = nn.ModuleList()
        for term in terms:
            term = dict(term)
            # a word as weight is RaMBO's own argument and stays with the loss
            weight, miner, level = (
                1.0 if isinstance(term.get("weight"), str) else term.pop("weight", 1.0),
                term.pop("miner", None),
                term.pop("level", None),
            )
            if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not weight == weight:
                raise ConfigError(f"the weight of {term.get('name')} must be a number, got {weight!r}")
            known = class_labels
            if level is not None:
                depth = 64 if class_labels is None else class_labels.shape[1]
                if (
                    isinstance(level, bool)
                    or not isinstance(level, int)
                    or not 1 <= level <= depth
                    or LOSSES.get(term.get("name"), ("", False))[1]
                ):
                    raise ConfigError(
                        f"level of {term.get('name')} must be a whole number from 1 (the coarsest) to the number of "
                        f"levels, for a loss that takes one "
                        f"level; got {level!r}" + ("" if class_labels is None else f" for {depth} levels")
                    )
                known = None if class_labels is None else class_labels[:, level - 1 : level].unique(dim=0)
            loss = loss_from_config(term, known, dim)
            if miner is not None:
                miner = dict(miner)
                miner = _build(_peer("miners", str(miner.get("name"))), str(miner.pop("name")), miner)
            self.weights.append(float(weight))
            self.miners.append(miner)
            self.takes_levels.append(LOSSES.get(term["name"], ("", False))[1])
            self.levels.append(-1 if level is None else level - 1)
            lengthens = takes_references(loss) and not getattr(loss, "compares_with_proxies", False)
            self.losses.append(EmbeddingMemory(loss, memory) if memory and lengthens else loss)
        if memory and not any(isinstance(loss, EmbeddingMemory) for loss in self.losses):
            raise ConfigError(
                f"memory.size is {memory}, but {' and '.join(self.names)} cannot rank against a gallery: set "
                f"memory.size = 0, or use a ranking loss"
            )

    def forward(self, embeddings: Tensor, labels: Tensor, step: int = 0) -> Tensor:
        """The weighted sum.

        Args:
            embeddings: (B, D) of the whole batch.
            labels: (B, L) coarse to fine, classes of each level numbered from 0.
            step: of the run; before `memory_start` the memory stays empty.

        Returns:
            scalar.
        """
        if not isinstance(labels, Tensor) or labels.ndim != 2 or not labels.shape[1]:
            got = tuple(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
            raise ValueError(f"labels must be a tensor of integers (images, levels), coarse to fine, got {got}")
        total = None
        for weight, loss, levels, level, miner in zip(
            self.weights, self.losses, self.takes_levels, self.levels, self.miners
        ):
            if isinstance(loss, EmbeddingMemory) and step < self.memory_start:
                loss = loss.loss
            wanted = labels if levels else labels[:, level]
            value = loss(embeddings, wanted) if miner is None else loss(embeddings, wanted, miner(embeddings, wanted))
            total = weight * value if total is None else total + weight * value
        return total
