"""Optimisers with the groups that the papers tell apart: backbone, linear layer, proxies; matrices, and scales and
biases.
"""

from __future__ import annotations

import torch
from torch import nn

from .config import OptimConfig
from .models import EmbeddingModel

__all__ = ['optimizers_for']


def optimizers_for(model: EmbeddingModel, loss: nn.Module, optim: OptimConfig) -> list[torch.optim.Optimizer]:
    """One optimiser with groups for backbone, head and proxies, or two where proxies have their own; each group
    knows its peak rate and its name.
    """
    floor = lambda own: optim.floor if own < 0 else own
    proxies = {
        "params": list(loss.parameters()),
        "lr": optim.proxy_lr or optim.head_lr,
        "decay": optim.proxy_weight_decay,
        "name": "proxies",
        "floor": floor(optim.proxy_floor),
    }
    backbone = [p for n, p in model.named_parameters() if not n.startswith("head.")]
    parts = [
        {"params": backbone, "lr": optim.lr, "decay": optim.weight_decay, "name": "backbone", "floor": optim.floor},
        {
            "params": list(model.head.parameters()),
            "lr": optim.head_lr,
            "decay": optim.weight_decay,
            "name": "head",
            "floor": floor(optim.head_floor),
        },
    ]
    apart = optim.proxy_optimizer not in ("same", optim.optimizer)
    out = [_optimizer(optim.optimizer, [*parts, *([] if apart else [proxies])], optim)]
    if apart and any(p.requires_grad for p in proxies["params"]):
        out.append(_optimizer(optim.proxy_optimizer, [proxies], optim))
    return out


def _optimizer(kind: str, parts: list[dict], optim: OptimConfig) -> torch.optim.Optimizer:
    groups = []
    for part in parts:
        trained = [p for p in part["params"] if p.requires_grad]
        for weights in (True, False):  # matrices and filters; then scales, shifts and biases
            chosen = [p for p in trained if (p.ndim > 1) == weights]
            if chosen:
                groups.append(
                    {
                        "params": chosen,
                        "peak_lr": part["lr"],
                        "lr": part["lr"],
                        "name": part["name"],
                        "floor": part["floor"],
                        "weight_decay": part["decay"] if weights or optim.decay == "all" else 0.0,
                    }
                )
    if kind == "sgd":
        return torch.optim.SGD(groups, momentum=optim.momentum, nesterov=optim.nesterov)
    return (torch.optim.AdamW if kind == "adamw" else torch.optim.Adam)(groups, fused=True)  # one pass over each tensor
