"""The one loop that turns pictures into embeddings, for validation, tests, reports and search alike."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from tqdm.auto import tqdm

from ..data.loading import Prefetcher, share_of
from .large_batches import gather_rows

__all__ = ['embed']


def _unseen(step: int, indices: Tensor, batch: int) -> tuple[np.ndarray, int]:
    "A plan for looking at pictures as they are: epoch -1, draw 0."
    return indices[step * batch : (step + 1) * batch].numpy(), -1


@torch.inference_mode()
def embed(
    model: nn.Module,
    data,
    indices=None,
    batch: int = 256,
    progress: bool = True,
    what: str = "embedding",
    workers: int = 1,
) -> Tensor:
    """Embeddings of chosen images, in the order of `indices`; with several processes each embeds a share, and all
    return the whole.

    Args:
        model: images (B, C, H, W) in [0, 1] to (B, D).
        data: has `batch(indices, draw=0)`, which gives images and labels.
        indices: (N,) integers; all images when left out.
        batch: images per forward pass.
        progress: show a bar.
        what: the bar's caption.
        workers: threads that read pictures; beside a GPU processes, where they come from files (`Prefetcher`).

    Returns:
        (N, D) float32 on the CPU.
    """
    device, was_training = next(model.parameters()).device, model.training
    indices = torch.arange(len(data)) if indices is None else torch.as_tensor(indices).cpu()
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    mine = torch.as_tensor(share_of(indices.numpy(), rank, world))
    steps, rows = -(-len(mine) // batch), []
    model.eval()
    with Prefetcher(data, lambda step: _unseen(step, mine, batch), steps, workers=workers, device=device) as coming:
        for part in tqdm(coming, desc=what, unit="batch", total=steps, disable=not progress or rank > 0, leave=False):
            rows.append(model(part.images).float())
    model.train(was_training)
    sizes = [len(share_of(indices.numpy(), r, world)) for r in range(world)]
    rows = torch.cat(rows) if rows else torch.empty(0, model.config.dim, device=device)
    return gather_rows(rows, sizes).cpu()
