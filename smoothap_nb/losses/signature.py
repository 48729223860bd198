"""What a loss says of its settings: our names, where somebody brings another library's, and a repr of what was set."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

# a setting of pytorch-metric-learning or of the authors' code -> what it is called here
OUR_NAMES = {
    "temperature": ("tau",),
    "anneal": ("tau",),
    "num_bins": ("bins", "centres"),
    "nq": ("centres",),
    "lambda_val": ("lam",),
    "lambda_": ("lam",),
    "weight_fn": ("weight",),
    "interclass_coef": ("interclass",),
    "batch_memory": ("memory",),
    "memory_size": ("size",),
    "embedding_size": ("dim",),
    "embedding_dim": ("dim",),
    "beta": ("slope",),
    "gamma": ("intercept",),
    "k_vals": ("ks",),
    "sigmoid_temperature": ("temperature", "tau"),
}
_SIZES = "sizes come from the batch, so leave it out"
_WRAPPED = "wrap it for pytorch-metric-learning's parts: smoothap_nb.losses.pml.PMLLoss({}(...), {}=...)"
REASONS = {
    **dict.fromkeys(("batch_size", "num_id", "feat_dims", "embedding_size"), _SIZES),
    **dict.fromkeys(("reducer", "embedding_regularizer", "embedding_reg_weight", "collect_stats"), _WRAPPED),
    "distance": "rows are compared by cosine, or by their dot product with normalize=False",
    "miner": "a ranking has no pairs to mine",
}
_ABSENT = object()


def settings_of(kind: type) -> dict[str, inspect.Parameter]:
    "The parameters of a class, those of its parents where it passes keywords on."
    found: dict[str, inspect.Parameter] = {}
    for parent in kind.__mro__:
        if "__init__" not in parent.__dict__ or parent is nn.Module:
            continue
        own = list(inspect.signature(parent.__init__).parameters.values())[1:]
        found |= {p.name: p for p in own if p.name not in found and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        if not any(p.kind is p.VAR_KEYWORD for p in own):
            break
    return found


def refuse_foreign_names(
    kind: type,
    given: Mapping[str, Any],
    names: Mapping[str, tuple[str, ...]] = OUR_NAMES,
    reasons: Mapping[str, str] = REASONS,
) -> None:
    "A TypeError for the first setting that bears another library's name, with ours, or why there is none."
    known = settings_of(kind)
    for name in given:
        if name in known:
            continue
        ours = next((ours for ours in names.get(name, ()) if ours in known), None)
        if ours is not None:
            raise TypeError(f"{kind.__name__} has no {name!r}: it is called {ours!r} here")
        if name in reasons:
            raise TypeError(f"{kind.__name__} has no {name!r}: {reasons[name].format(kind.__name__, name)}")


class LossModule(nn.Module):
    """What every loss module does with its settings.

    Another library's name for a setting is refused with ours, and the repr shows the first setting, all that have no
    default and all that are not at their default. A setting is looked for where it is kept: as an attribute, or in
    `steps`, the constants of a surrogate step.
    """

    def __new__(cls, *args, **kwargs):
        refuse_foreign_names(cls, kwargs)
        return super().__new__(cls)

    def setting(self, name: str) -> Any:
        "The value of a setting as it is now."
        steps = self.__dict__.get("steps")
        inner = steps.get(name, _ABSENT) if isinstance(steps, dict) else getattr(steps, name, _ABSENT)
        return inner if inner is not _ABSENT else getattr(self, name, _ABSENT)

    def extra_repr(self) -> str:
        shown = []
        for place, (name, parameter) in enumerate(settings_of(type(self)).items()):
            value = self.setting(name)
            if value is _ABSENT or isinstance(value, (nn.Module, Tensor)):  # a part shows its own
                continue
            if place == 0 or parameter.default is parameter.empty or value != parameter.default:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)
