"Convolutions over maps of one or two pixels are the same function by a product."

import pytest
import torch
from torch import nn

from smoothap_nb.train.config import ModelConfig
from smoothap_nb.train.models import EmbeddingModel
from smoothap_nb.train.small_maps import SmallMapConv, _taps, for_small_maps


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 3), (1, 2), (7, 7)])
def test_a_small_map_gives_what_the_routine_gives(shape, stride):
    torch.manual_seed(0)
    plain = nn.Conv2d(5, 4, 3, stride=stride, padding=1, bias=False).double()
    ours = SmallMapConv(5, 4, 3, stride=stride, padding=1, bias=False).double()
    ours.load_state_dict(plain.state_dict())
    x = torch.randn(6, 5, *shape, dtype=torch.float64)
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    a, b = ours(mine), plain(other)
    push = torch.randn_like(b)
    a.backward(push), b.backward(push)
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(mine.grad, other.grad)
    torch.testing.assert_close(ours.weight.grad, plain.weight.grad)


@pytest.mark.parametrize("backbone", ["resnet18", "resnet50"])
def test_a_network_keeps_its_names_and_its_function(backbone):
    torch.manual_seed(0)
    model = EmbeddingModel(ModelConfig(backbone=backbone, dim=8)).eval()
    names, x = list(model.state_dict()), torch.randn(3, 1, 32, 32)
    with torch.inference_mode():
        before = model(x)
        after = for_small_maps(model)(x)
    assert list(model.state_dict()) == names
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    assert sum(isinstance(layer, SmallMapConv) for layer in model.modules()) == 16


def test_a_network_that_was_measured_first_can_be_trained():
    layer = SmallMapConv(3, 4, 3, padding=1, bias=False)
    _taps.cache_clear()
    with torch.inference_mode():
        layer(torch.randn(2, 3, 2, 2))
    layer(torch.randn(2, 3, 2, 2)).sum().backward()
    assert layer.weight.grad is not None


def test_other_convolutions_are_left_alone():
    layers = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1, bias=False),
                           nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False))  # fmt: skip
    assert all(type(layer) is nn.Conv2d for layer in for_small_maps(layers))
