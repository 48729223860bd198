"""Convolutions over maps of one or two pixels, on a CPU, as the matrix products that they are.

At 32 px the last stages of a ResNet see maps of 2 x 2 and of one pixel. Most taps of a 3 x 3 kernel then fall on the
padding, and what is left connects every place with every other: a dense product. A convolution routine goes through all
nine taps all the same, and through nine times the gradient.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["SmallMapConv", "for_small_maps"]

LARGEST = 2  # side of a map that counts as small


@lru_cache(16)
@torch.inference_mode(False)  # who asks first may be measuring, who asks next trains
def _taps(side: int, stride: int) -> Tensor:
    "(9, places out, places in), 1 where a tap of the kernel connects the two."
    out = (side - 1) // stride + 1
    found = torch.zeros(3, 3, out, out, side, side)
    for y in range(out):
        for x in range(out):
            for v in range(side):
                for u in range(side):
                    down, across = v - stride * y + 1, u - stride * x + 1
                    if 0 <= down <= 2 and 0 <= across <= 2:
                        found[down, across, y, x, v, u] = 1
    return found.reshape(9, out * out, side * side)


class SmallMapConv(nn.Conv2d):
    """A 3 x 3 convolution with padding 1 that takes the product where the map is small and on a CPU, and the routine
    elsewhere. The same function up to rounding; the same parameters.
    """

    def forward(self, input: Tensor) -> Tensor:
        side = input.shape[-1]
        if input.device.type != "cpu" or side > LARGEST or input.shape[-2] != side or input.dtype != self.weight.dtype:
            return super().forward(input)
        if side == 1:  # the centre alone
            return F.linear(input.flatten(1), self.weight[:, :, 1, 1])[:, :, None, None]
        taps, (high, low) = _taps(side, self.stride[0]), self.weight.shape[:2]
        places = taps.shape[1:]
        dense = self.weight.reshape(high * low, 9) @ taps.reshape(9, -1).to(self.weight.dtype)
        dense = dense.view(high, low, *places).permute(0, 2, 1, 3).reshape(high * places[0], -1)
        out = round(places[0] ** 0.5)
        return F.linear(input.flatten(1), dense).view(len(input), high, out, out)


def for_small_maps(model: nn.Module) -> nn.Module:
    "Turn the 3 x 3 convolutions of a network (padding 1, no groups, no bias) into `SmallMapConv`, in place."
    wanted = ((3, 3), (1, 1), (1, 1), 1, None, "zeros")
    for layer in model.modules():
        if type(layer) is nn.Conv2d and len(set(layer.stride)) == 1:
            bias, kind = layer.bias, layer.padding_mode
            if (layer.kernel_size, layer.padding, layer.dilation, layer.groups, bias, kind) == wanted:
                layer.__class__ = SmallMapConv
    return model
