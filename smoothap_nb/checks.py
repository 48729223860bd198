"""One check per mistake: what each public function refuses, in one line that names the argument and the mend."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Callable, Sequence, TypeVar

import torch
from torch import Tensor

from .naming import ConfigError as ConfigError
from .naming import nearest as nearest

TIES = ("max", "min", "average")
Choice = TypeVar("Choice")
_Function = TypeVar("_Function", bound=Callable)


def reason(error: Exception) -> str:
    "The first line of what an error says, or its name where it says nothing."
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def check_choice(name: str, value: Choice, choices) -> Choice:
    "Refuse an unknown word, naming the ones that are known."
    if not any(type(value) is type(known) and value == known for known in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


LARGEST = 1e30  # of a number in an argument: float32 ends at 3e38, and such numbers are multiplied and divided by
SMALLEST = 1e-30
DEEPEST = 1000  # levels of a label tree: the gain of a level, 2 ** level, leaves float64 at 1,024
MOST = 2**31 - 1  # of what is counted


def check_positive(name: str, value: float) -> float:
    "Refuse a number that is not finite and above zero, or so large or small that float32 loses it."
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    if not SMALLEST <= value <= LARGEST or isinstance(value, Integral) and value >= 2**63:
        raise ValueError(f"{name} must lie between {SMALLEST:g} and {LARGEST:g}, as float32 needs it, got {value!r}")
    return value


def check_number(name: str, value: float, least: float = -float("inf")) -> float:
    "Refuse what is not a finite number from `least` up."
    if (
        not isinstance(value, Real)
        or isinstance(value, bool)
        or not least <= value < float("inf")
        or value == -float("inf")
    ):
        raise ValueError(
            f"{name} must be a finite number"
            + (f" from {least:g} up" if least > -float("inf") else "")
            + f", got {value!r}"
        )
    if abs(value) > LARGEST or isinstance(value, Integral) and abs(value) >= 2**63:
        raise ValueError(f"{name} must lie between {-LARGEST:g} and {LARGEST:g}, as float32 needs it, got {value!r}")
    return float(value)


def check_count(name: str, value: int, most: int = MOST) -> int:
    "Refuse what is not a whole number from 1 to `most`."
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number from 1 on, got {value!r}")
    if value > most:
        raise ValueError(f"{name} must be {most:,} at most, got {value!r}")
    return int(value)


def check_seed(value: int) -> int:
    "Refuse what seeds no generator: it must be a whole number from 0 to 2 ** 63 - 1."
    if not isinstance(value, Integral) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"seed must be a whole number from 0 to 2 ** 63 - 1, got {value!r}")
    return int(value)


def check_dense(name: str, values: Tensor) -> Tensor:
    "Refuse tensors whose numbers cannot be reached one by one: sparse and quantized ones, and those on `meta`."
    if values.layout != torch.strided or values.is_meta or values.is_quantized:
        kind = "one on meta, without numbers" if values.is_meta else f"a {values.layout} one of {values.dtype}"
        raise TypeError(f"{name} must be a dense tensor, got {kind}")
    return values


def as_signed(labels: Tensor) -> Tensor:
    "Integers that can be compared with others: torch knows no common kind for uint64, uint32, uint16 and int64."
    return labels.long() if labels.dtype in (torch.uint16, torch.uint32, torch.uint64) else labels


def check_finite(name: str, values: Tensor, validate: bool = False) -> Tensor:
    """Refuse NaN and infinity, naming the first row. CUDA inputs are read only with `validate=True`: a look at them
    waits for the GPU."""
    if (validate or values.device.type == "cpu") and not torch.isfinite(values.detach().sum()):
        bad = ~torch.isfinite(values.detach().flatten(1) if values.ndim > 1 else values.detach()[:, None]).all(1)
        if bad.any():
            raise ValueError(
                f"{name} hold NaN or infinity in {int(bad.sum())} of {len(bad)} rows, "
                f"first in row {int(bad.nonzero()[0])}"
            )
    return values


def check_scores(scores: Tensor, validate: bool = False, name: str = "scores") -> Tensor:
    """Scores fit to rank: a finite floating (Q, G) tensor with G > 0, in float32 or float64.

    Raises:
        TypeError: not a tensor, or not floating point.
        ValueError: not two-dimensional, an empty gallery, NaN or infinity.
    """
    if not isinstance(scores, Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor, got {type(scores).__name__}: wrap them in torch.as_tensor(...)"
        )
    if not scores.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {scores.dtype}: call {name}.float()")
    if scores.ndim != 2:
        raise ValueError(f"{name} must have shape (queries, gallery), got {tuple(scores.shape)}")
    check_dense(name, scores)
    if scores.shape[1] == 0:
        raise ValueError(f"the gallery is empty: {name} have shape {tuple(scores.shape)}")
    if scores.dtype != torch.float64:
        scores = scores.float()
    return check_finite(name, scores, validate)


def check_same_shape(name: str, values: Tensor, scores: Tensor) -> Tensor:
    "Refuse lists that do not belong to the scores one by one."
    if not isinstance(values, Tensor) or values.shape != scores.shape:
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"{name} has shape {shape}, the scores have {tuple(scores.shape)}: they must be equal")
    return values


def check_relevance(relevance: Tensor, scores: Tensor) -> Tensor:
    """Relevance that belongs to `scores`: bool, of the same shape and on the same device.

    Raises:
        TypeError: not a bool tensor.
        ValueError: another shape or device than `scores`.
    """
    if not isinstance(relevance, Tensor) or relevance.dtype != torch.bool:
        kind = relevance.dtype if isinstance(relevance, Tensor) else type(relevance).__name__
        raise TypeError(f"relevance must be a bool tensor, got {kind}: compare labels, or call relevance.bool()")
    if relevance.shape != scores.shape:
        raise ValueError(
            f"relevance has shape {tuple(relevance.shape)}, scores have {tuple(scores.shape)}: they must be equal"
        )
    check_dense("relevance", relevance)
    if relevance.device != scores.device:
        raise ValueError(f"relevance is on {relevance.device}, scores are on {scores.device}: move one of them")
    return relevance


def check_embeddings(embeddings: Tensor, name: str = "embeddings", validate: bool = False) -> Tensor:
    """Embeddings fit to compare: a finite floating (N, D) tensor with D > 0, in float32 or float64.

    Raises:
        TypeError: not a tensor, or not floating point.
        ValueError: not two-dimensional, no columns, NaN or infinity.
    """
    if not isinstance(embeddings, Tensor) or not embeddings.is_floating_point():
        kind = embeddings.dtype if isinstance(embeddings, Tensor) else type(embeddings).__name__
        raise TypeError(f"{name} must be a floating-point torch.Tensor, got {kind}")
    check_dense(name, embeddings)
    if embeddings.ndim != 2 or embeddings.shape[1] == 0:
        raise ValueError(f"{name} must have shape (images, dimensions), got {tuple(embeddings.shape)}")
    if embeddings.dtype != torch.float64:
        embeddings = embeddings.float()
    return check_finite(name, embeddings, validate)


def check_references(ref_emb: Tensor, embeddings: Tensor, validate: bool = False) -> Tensor:
    """A gallery that `embeddings` can be compared with: (G, D) with G > 0 and their D, brought to their dtype and
    device.

    Raises:
        TypeError: not a tensor, or not floating point.
        ValueError: not two-dimensional, empty, of another width, NaN or infinity.
    """
    ref_emb = check_embeddings(ref_emb, "ref_emb", validate)
    if len(ref_emb) == 0:
        raise ValueError("the gallery is empty: ref_emb has no rows")
    if ref_emb.shape[1] != embeddings.shape[1]:
        raise ValueError(f"ref_emb has {ref_emb.shape[1]} dimensions, the embeddings have {embeddings.shape[1]}")
    return ref_emb.to(embeddings)


def check_labels(labels: Tensor, embeddings: Tensor, name: str = "labels", hierarchical: bool = False) -> Tensor:
    """Labels that belong to `embeddings`, one row each: integers (N,), or tags, bool (N, T); where `hierarchical`
    integers (N, L), coarse to fine.

    Raises:
        TypeError: not a tensor of integers, nor of tags where these may be.
        ValueError: another length than `embeddings`, or the wrong number of axes.
    """
    if not isinstance(labels, Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor of integers, got {type(labels).__name__}: wrap them in torch.as_tensor(...)"
        )
    tags = labels.dtype == torch.bool and labels.ndim == 2 and labels.shape[1] > 0 and not hierarchical
    if labels.is_floating_point() or labels.is_complex() or (labels.dtype == torch.bool and not tags):
        also = "" if hierarchical else ", or bool of shape (N, tags)"
        raise TypeError(f"{name} must be integers (class numbers){also}; got {labels.dtype} {tuple(labels.shape)}")
    labels = as_signed(check_dense(name, labels))
    if hierarchical and labels.ndim == 1:
        labels = labels[:, None]
    if labels.ndim != 1 + hierarchical and not tags:
        want = (
            "(N, L), coarse to fine"
            if hierarchical
            else "(N,): for labels of several levels choose one, e.g. labels[:, -1]"
        )
        raise ValueError(f"{name} must have shape {want}; got {tuple(labels.shape)}")
    if len(labels) != len(embeddings):
        raise ValueError(
            f"{name} have length {len(labels)}, the embeddings {len(embeddings)}: one label per image is needed"
        )
    return labels.to(embeddings.device)


def check_query_index(query_index: Tensor, scores: Tensor) -> Tensor:
    """Refuse what cannot be each query's own column: one integer per query, -1 where absent. Values are read on a CPU
    only."""
    if not isinstance(query_index, Tensor) or query_index.is_floating_point() or query_index.dtype == torch.bool:
        kind = query_index.dtype if isinstance(query_index, Tensor) else type(query_index).__name__
        raise TypeError(f"query_index must be a torch.Tensor of integers, got {kind}")
    if query_index.shape != scores.shape[:1]:
        raise ValueError(
            f"query_index must hold {len(scores)} integers, one per query, got shape {tuple(query_index.shape)}"
        )
    if query_index.device.type == "cpu" and not -1 <= query_index.min() <= query_index.max() < scores.shape[1]:
        raise ValueError(
            f"query_index must lie in -1 ... {scores.shape[1] - 1} (rows of ref_emb), "
            f"got {int(query_index.min())} ... {int(query_index.max())}"
        )
    return query_index


def check_levels(levels: Tensor, scores: Tensor | None = None) -> Tensor:
    """Levels that belong to `scores`: integers from 0 up, of the same shape and on the same device.

    Raises:
        TypeError: not a tensor of integers.
        ValueError: not (Q, G), another shape or device than `scores`, a level below 0.
    """
    if (
        not isinstance(levels, Tensor)
        or levels.is_floating_point()
        or levels.is_complex()
        or levels.dtype == torch.bool
    ):
        kind = levels.dtype if isinstance(levels, Tensor) else type(levels).__name__
        raise TypeError(f"levels must be a tensor of integers, got {kind}: see levels_from_labels")
    if levels.ndim != 2 or (scores is not None and levels.shape != scores.shape):
        want = "(queries, gallery)" if scores is None else f"that of the scores, {tuple(scores.shape)}"
        raise ValueError(f"levels have shape {tuple(levels.shape)}, they need {want}")
    levels = as_signed(check_dense("levels", levels))
    if scores is not None and levels.device != scores.device:
        raise ValueError(f"levels are on {levels.device}, scores are on {scores.device}: move one of them")
    if levels.device.type == "cpu" and levels.numel() and levels.min() < 0:
        raise ValueError(f"levels must not be below 0 (0 marks a negative), got {int(levels.min())}")
    if levels.device.type == "cpu" and levels.numel() and int(levels.max()) > DEEPEST:  # int8 cannot hold DEEPEST
        raise ValueError(f"levels must not be above {DEEPEST:,} (the depth of a label tree), got {int(levels.max())}")
    return levels


def check_callable(name: str, value: _Function) -> _Function:
    "Refuse what cannot be called."
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {type(value).__name__}")
    return value


def check_counts(name: str, values: Sequence[int]) -> list[int]:
    "Refuse what is not a list of whole numbers from 1 on."
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise TypeError(f"{name} must be a list of whole numbers, got {type(values).__name__}")
    return [check_count(name, value) for value in values]


def check_relevance_values(relevance_values: Tensor, scores: Tensor, validate: bool = False) -> Tensor:
    """Graded relevance that belongs to `scores`: finite numbers >= 0, of the same shape and on the same device.

    Raises:
        TypeError: not a floating-point tensor.
        ValueError: another shape or device than `scores`, a relevance below 0, NaN or infinity.
    """
    if not isinstance(relevance_values, Tensor) or not relevance_values.is_floating_point():
        kind = relevance_values.dtype if isinstance(relevance_values, Tensor) else type(relevance_values).__name__
        raise TypeError(f"relevance_values must be a floating-point tensor, got {kind}: see relevance_from_levels")
    if relevance_values.shape != scores.shape:
        raise ValueError(
            f"relevance_values have shape {tuple(relevance_values.shape)}"
            f", scores have {tuple(scores.shape)}: they must be equal"
        )
    check_dense("relevance_values", relevance_values)
    if relevance_values.device != scores.device:
        raise ValueError(
            f"relevance_values are on {relevance_values.device}, scores are on {scores.device}: move one of them"
        )
    if (validate or scores.device.type == "cpu") and relevance_values.numel():
        least, most = (float(x) for x in relevance_values.detach().aminmax())
        if not 0 <= least <= most < float("inf"):
            raise ValueError(f"relevance_values must be finite and not below 0, they run from {least} to {most}")
    return relevance_values.detach()


def check_weights(weights: Sequence[float]) -> tuple[float, ...]:
    "Weights of the levels of a tree, the coarsest first: finite, not negative, not all 0."
    try:
        if isinstance(weights, (str, bytes)):
            raise TypeError
        weights = tuple(check_number("weights", w) for w in weights)
    except TypeError:
        raise TypeError(f"weights must be a list of numbers, one per level, got {type(weights).__name__}") from None
    if not all(0 <= w < float("inf") for w in weights) or sum(weights) == 0:
        raise ValueError(
            f"weights must hold one finite number >= 0 per level, the coarsest first, not all of them 0; got {weights}"
        )
    return weights


def check_extra_fine(extra_fine: int) -> int:
    "Refuse what is not a whole number from 0 on."
    if isinstance(extra_fine, Integral) and not isinstance(extra_fine, bool) and extra_fine == 0:
        return 0
    return check_count("extra_fine", extra_fine)
