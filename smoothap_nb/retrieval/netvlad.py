"""NetVLAD (Arandjelović et al., CVPR 2016): VLAD over the columns of a feature map, its words learnt by a network."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smoothap_nb.checks import check_count, check_positive

__all__ = ["NetVLAD"]


class NetVLAD(nn.Module):
    """Soft-assigned residuals of a map's columns, to be trained with the network below it. It brings no weights.

    Args:
        channels: C of the maps.
        clusters: number of words.
        sharpness: of the assignment at the start, > 0: the softmax is over minus this times the squared distance.

    Raises:
        ValueError: a count below 1, a sharpness that is not above 0.
    """

    def __init__(self, channels: int, clusters: int = 16, sharpness: float = 30.0):
        super().__init__()
        channels, clusters = check_count("channels", channels), check_count("clusters", clusters)
        centres = F.normalize(torch.randn(clusters, channels), dim=1)
        self.centres = nn.Parameter(centres)  # mu_c
        self.assign = nn.Conv2d(channels, clusters, 1)  # w_c, b_c: free after the start, as in the paper
        self.start_from(centres, sharpness)

    @torch.no_grad()
    def start_from(self, centres: Tensor, sharpness: float = 30.0) -> NetVLAD:
        "Take centres (clusters, C), say of k-means on normalised columns, for words; the assignment follows them."
        if centres.shape != self.centres.shape:
            raise ValueError(f"centres must be {tuple(self.centres.shape)}, got {tuple(centres.shape)}")
        check_positive("sharpness", sharpness)
        self.centres.copy_(centres)
        self.assign.weight.copy_(2 * sharpness * centres[:, :, None, None])
        self.assign.bias.copy_(-sharpness * (centres**2).sum(1))
        return self

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (B, C, h, w) to descriptors (B, clusters * C): normalised per word, then of length 1.

        Raises:
            ValueError: maps of another number of channels.
        """
        if maps.ndim != 4 or maps.shape[1] != self.centres.shape[1]:
            raise ValueError(f"maps must be (B, {self.centres.shape[1]}, h, w), got {tuple(maps.shape)}")
        maps = F.normalize(maps, dim=1)
        weights, columns = self.assign(maps).softmax(1).flatten(2), maps.flatten(2)
        # sum over places of a_c(x) (x - mu_c)
        residuals = weights @ columns.transpose(1, 2) - weights.sum(2)[..., None] * self.centres
        return F.normalize(F.normalize(residuals, dim=2).flatten(1), dim=1)
