"SPoC, CroW and NetVLAD against their definitions."

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from smoothap_nb import NetVLAD, crow_pool, spoc_pool


@pytest.fixture
def maps():
    return torch.randn(2, 5, 4, 6, generator=torch.Generator().manual_seed(0)).relu().double()


def test_spoc_is_the_sum_and_its_prior_a_gaussian(maps):
    assert torch.allclose(spoc_pool(maps), maps.sum((2, 3)))
    wanted = torch.zeros(2, 5, dtype=torch.double)
    for y in range(4):
        for x in range(6):
            # sigma: a third of the way from the middle to the nearest edge, 2 / 3
            wanted += maps[:, :, y, x] * np.exp(-((y - 1.5) ** 2 + (x - 2.5) ** 2) / (2 * (2 / 3) ** 2))
    assert torch.allclose(spoc_pool(maps, centre=True), wanted)


def test_crow_by_loops(maps):
    for n in range(2):
        places = maps[n].sum(0)
        places = (places / (places**2).sum() ** 0.5) ** 0.5
        shares = torch.tensor([(maps[n, c] > 0).double().mean() for c in range(5)]).double()
        wanted = torch.stack([(maps[n, c] * places).sum() * torch.log(shares.sum() / shares[c]) for c in range(5)])
        assert torch.allclose(crow_pool(maps)[n], wanted, rtol=1e-4)


def test_crow_of_maps_that_never_answer_is_finite(maps):
    assert torch.equal(crow_pool(torch.zeros(1, 3, 2, 2)), torch.zeros(1, 3))
    maps[:, 1] = 0
    assert torch.isfinite(crow_pool(maps)).all() and (crow_pool(maps)[:, 1] == 0).all()


def test_a_rare_feature_weighs_more():
    maps = torch.zeros(1, 2, 4, 4)
    maps[0, 0], maps[0, 1, 1, 1] = 1.0, 16.0  # the same sum
    pooled = crow_pool(maps)[0]
    assert spoc_pool(maps)[0, 0] == spoc_pool(maps)[0, 1] and pooled[1] > 3 * pooled[0]


@pytest.mark.parametrize("pool", [spoc_pool, crow_pool])
def test_maps_that_are_none_are_refused(pool):
    with pytest.raises(ValueError, match="feature maps"):
        pool(torch.zeros(3, 4))
    with pytest.raises(ValueError, match="a must be"):
        crow_pool(torch.zeros(1, 1, 1, 1), a=0)


def test_netvlad_by_loops(maps):
    layer = NetVLAD(5, 3, sharpness=4.0).double()
    x, mu = F.normalize(maps, dim=1), layer.centres
    for n in range(2):
        words = torch.zeros(3, 5, dtype=torch.double)
        for y in range(4):
            for z in range(6):
                v = x[n, :, y, z]
                # at the start the assignment is that of distances
                a = torch.softmax(torch.stack([-4 * ((v - mu[c]) ** 2).sum() for c in range(3)]), 0)
                words += torch.stack([a[c] * (v - mu[c]) for c in range(3)])
        wanted = F.normalize(F.normalize(words, dim=1).flatten(), dim=0)
        assert torch.allclose(layer(maps)[n], wanted, atol=1e-6)


def test_netvlad_becomes_vlad_when_sharp(maps):
    torch.manual_seed(0)
    layer = NetVLAD(5, 3).double().start_from(torch.rand(3, 5).double(), sharpness=1e6)
    x = F.normalize(maps, dim=1).flatten(2)[0].T
    words = torch.zeros(3, 5, dtype=torch.double)
    for v in x:
        c = ((v - layer.centres) ** 2).sum(1).argmin()
        words[c] += v - layer.centres[c].detach()
    assert torch.allclose(layer(maps)[0], F.normalize(F.normalize(words, dim=1).flatten(), dim=0), atol=1e-5)


def test_netvlad_learns_and_refuses(maps):
    layer = NetVLAD(5, 3).double()
    layer(maps)[:, 0].sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters())
    with pytest.raises(ValueError, match="maps must be"):
        layer(torch.zeros(1, 4, 2, 2))
    with pytest.raises(ValueError, match="centres must be"):
        layer.start_from(torch.zeros(2, 5))
    with pytest.raises(ValueError, match="clusters"):
        NetVLAD(5, 0)
