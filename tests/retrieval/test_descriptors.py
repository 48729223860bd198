"""Descriptors: pooling, scales, whitening and query expansion, and their laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from smoothap_nb import extract_descriptors, gem_pool, learn_whitening, mac_pool, query_expansion, rmac_pool
from smoothap_nb.retrieval.descriptors import rmac_regions

# -----------------------------------------------------------------------------------------------------------------
# descriptors

MAPS = torch.rand(2, 5, 7, 9, generator=torch.Generator().manual_seed(0)) + 0.01


def test_gem_ends_in_average_and_maximum():
    torch.testing.assert_close(gem_pool(MAPS, 1), MAPS.mean((2, 3)))
    torch.testing.assert_close(gem_pool(MAPS, 3), MAPS.pow(3).mean((2, 3)).pow(1 / 3))
    assert torch.equal(gem_pool(MAPS, math.inf), MAPS.amax((2, 3))) and torch.equal(mac_pool(MAPS), MAPS.amax((2, 3)))
    torch.testing.assert_close(gem_pool(MAPS, 1e5), MAPS.amax((2, 3)), rtol=1e-3, atol=0)


@given(st.floats(0.2, 500), st.floats(0.2, 500))
def test_gem_grows_with_p(a, b):
    a, b = sorted((a, b))
    assert (gem_pool(MAPS, a) <= gem_pool(MAPS, b) + 1e-5).all()


def test_gem_does_not_overflow_and_has_a_gradient():
    assert torch.isfinite(gem_pool(1e30 * MAPS, 50)).all()
    maps = (MAPS - 0.5).relu().double().requires_grad_()
    gem_pool(maps, 3).sum().backward()
    assert torch.isfinite(maps.grad).all() and maps.grad.abs().sum() > 0
    assert torch.isfinite(gem_pool(torch.zeros(1, 2, 3, 3))).all()


def test_rmac_regions():
    assert rmac_regions(12, 12, 1) == [(0, 0, 12)]
    assert sorted(rmac_regions(12, 16, 1)) == [(0, 0, 12), (0, 4, 12)]
    assert len(rmac_regions(12, 12, 3)) == 1 + 4 + 9 and len(rmac_regions(12, 16, 3)) == 2 + 6 + 12
    for shape in ((5, 5), (3, 20), (20, 3), (1, 1), (1, 6), (31, 17)):
        for top, left, side in rmac_regions(*shape, 4):
            assert top >= 0 and left >= 0 and side >= 1 and top + side <= shape[0] and left + side <= shape[1]


def test_rmac_sums_normalised_regions():
    maps = torch.zeros(1, 2, 4, 4)
    maps[0, 0, 0, 0], maps[0, 1, 3, 3] = 1.0, 100.0
    loud = mac_pool(maps)[0] / mac_pool(maps).norm()
    even = rmac_pool(maps, 3)[0] / rmac_pool(maps, 3).norm()
    assert even[0] > 10 * loud[0]  # the small feature is heard in its own region
    halves = rmac_pool(MAPS, 2, whitening=lambda d: d[:, :3])
    assert halves.shape == (2, 3)


@pytest.mark.parametrize("maps", [torch.rand(3, 4), torch.rand(1, 2, 0, 4), "maps"])
@pytest.mark.parametrize("pool", [gem_pool, mac_pool, rmac_pool])
def test_pools_refuse_what_is_no_map(pool, maps):
    with pytest.raises(ValueError, match="cut the network before its pooling"):
        pool(maps)
    with pytest.raises(ValueError, match="p must be"):
        gem_pool(MAPS, 0)


class Colours(nn.Module):
    "Feature maps that are the picture itself, pooled by two."

    def forward(self, x):
        assert not self.training
        return nn.functional.avg_pool2d(x, 2)


def test_extract_descriptors_of_any_sizes():
    chance = torch.Generator().manual_seed(0)
    images = [torch.rand(3, h, w, generator=chance) for h, w in ((8, 10), (6, 6), (20, 4))]
    net = Colours().train()
    rows = extract_descriptors(net, iter(images), gem_pool, scales=(1.0, 0.5), power=3.0)
    assert rows.shape == (3, 3) and net.training and not rows.requires_grad
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(3))
    one = extract_descriptors(net, images[1:2], gem_pool, scales=(1.0, 0.5), power=3.0)
    assert torch.equal(one[0], rows[1])
    out = np.zeros((3, 3), dtype=np.float32)
    assert extract_descriptors(net, images, gem_pool, scales=(1.0, 0.5), power=3.0, out=out) is out
    assert np.array_equal(out, rows.numpy())
    single = extract_descriptors(net, images, mac_pool)
    want = nn.functional.normalize(torch.stack([nn.functional.avg_pool2d(i, 2).amax((1, 2)) for i in images]), dim=1)
    torch.testing.assert_close(single, want)


def test_extract_descriptors_joins_scales_by_a_mean():
    image = [torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0))]
    parts = [extract_descriptors(Colours(), image, scales=(s,)) for s in (1.0, 0.5)]
    torch.testing.assert_close(
        extract_descriptors(Colours(), image, scales=(1.0, 0.5)), nn.functional.normalize(sum(parts), dim=1)
    )


@pytest.mark.parametrize(
    "keywords, message",
    [
        (dict(scales=()), "scales must be"),
        (dict(scales=(1, 0)), "scales must be"),
        (dict(power=0.5), "power must be"),
        (dict(images=[]), "no pictures"),
        (dict(images=[torch.rand(1, 8, 8)]), "picture 0 must be a tensor"),
        (dict(images=["x"]), "picture 0"),
        (dict(backbone=nn.Flatten()), "feature maps must be"),
    ],
)
def test_extract_descriptors_refuses(keywords, message):
    keywords = {"backbone": Colours(), "images": [torch.rand(3, 8, 8)]} | keywords
    with pytest.raises(ValueError, match=message):
        extract_descriptors(**keywords)


# -------------------------------------------------------------------------------------------------------------------
# whitening

def cloud(n=400, d=6, seed=0):
    chance = torch.Generator().manual_seed(seed)
    return (
        torch.randn(n, d, generator=chance, dtype=torch.float64)
        @ torch.randn(d, d, generator=chance, dtype=torch.float64)
        + 1
    )


def test_pca_whitening_whitens():
    x = cloud()
    w = learn_whitening(x)
    y = (x - w.mean) @ w.projection
    torch.testing.assert_close(y.T @ y / len(y), torch.eye(6, dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(y.mean(0), torch.zeros(6, dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(w(x).norm(dim=1), torch.ones(400, dtype=torch.float64))
    assert torch.equal(w(x, 3), nn.functional.normalize(y[:, :3], dim=1)) and w(x, 3).shape == (400, 3)
    spread = [(x - w.mean) @ (p / p.norm()) for p in w.projection.T]
    assert all(a.var() >= b.var() - 1e-9 for a, b in zip(spread, spread[1:]))  # the strongest direction first


def test_pca_whitening_is_the_same_for_a_turned_cloud():
    x = cloud()
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    a, b = learn_whitening(x)(x), learn_whitening(x @ turn)(x @ turn)
    torch.testing.assert_close(a @ a.T, b @ b.T, atol=1e-8, rtol=0)


def test_whitening_keeps_directions_with_variance_only():
    x = torch.cat([cloud(), torch.ones(400, 2, dtype=torch.float64)], 1)
    assert learn_whitening(x).projection.shape == (8, 6)
    assert learn_whitening(cloud(4).float()).projection.shape == (6, 3)  # four points span three directions
    assert learn_whitening(x, dimensions=2).projection.shape == (8, 2)


def test_whitening_from_pairs_makes_pairs_round():
    chance = torch.Generator().manual_seed(0)
    objects = torch.randn(300, 4, generator=chance, dtype=torch.float64) * torch.tensor([1.0, 1, 1, 0.2])
    noise = torch.tensor([2.0, 0.1, 0.1, 0.1])
    x = (objects[:, None] + torch.randn(300, 2, 4, generator=chance, dtype=torch.float64) * noise).flatten(0, 1)
    pairs = torch.arange(600).view(300, 2)
    w = learn_whitening(x, pairs)
    d = (x[pairs[:, 0]] - x[pairs[:, 1]]) @ w.projection
    torch.testing.assert_close(d.T @ d / 300, torch.eye(4, dtype=torch.float64), atol=1e-8, rtol=0)

    def hits(y):
        y = nn.functional.normalize(y, dim=1)
        scores = y[::2] @ y[1::2].T
        return (scores.argmax(1) == torch.arange(300)).double().mean()

    assert hits(w(x)) > hits(learn_whitening(x)(x)) > 0


def test_whitening_as_a_layer():
    x = cloud().float()
    w = learn_whitening(x, dimensions=4)
    torch.testing.assert_close(nn.functional.normalize(w.as_linear()(x), dim=1), w(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("call, message", [
    (lambda: learn_whitening(torch.rand(1, 3)), "at least two"),
    (lambda: learn_whitening(torch.ones(5, 3)), "no variance"),
    (lambda: learn_whitening(torch.rand(9, 3), dimensions=4), "dimensions must lie in 1 ... 3"),
    (lambda: learn_whitening(torch.rand(9, 3), dimensions=0), "dimensions must lie"),
    (lambda: learn_whitening(torch.rand(9, 3), torch.tensor([[0, 9]])), "rows 0 ... 8"),
    (lambda: learn_whitening(torch.rand(9, 3), torch.tensor([0, 1])), "pairs must be integers"),
    (lambda: learn_whitening(torch.rand(9, 3), torch.empty(0, 2, dtype=torch.long)), "pairs must be integers"),
    (lambda: learn_whitening(torch.rand(9, 3), torch.tensor([[0, 1], [2, 3]])), "vary in 2 of 3 directions"),
    (lambda: learn_whitening(torch.rand(9, 3))(torch.rand(2, 4)), "learnt on 3 dimensions"),
    (lambda: learn_whitening(torch.rand(9, 3))(torch.rand(2, 3), 5), "dimensions must lie in 1 ... 3"),
    (lambda: learn_whitening(torch.full((4, 3), math.nan)), "NaN or infinity"),
])
def test_whitening_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ------------------------------------------------------------------------------------------------- query expansion,
# distractors

def unit(rows, seed=0):
    return nn.functional.normalize(torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed)), dim=1)


def test_query_expansion_is_the_mean_it_says():
    queries, gallery = unit(3), unit(20, 1)
    best = (queries @ gallery.T).topk(4)
    torch.testing.assert_close(
        query_expansion(queries, gallery, 4), nn.functional.normalize(queries + gallery[best.indices].sum(1), dim=1)
    )
    weights = best.values.clamp(min=0) ** 3
    torch.testing.assert_close(
        query_expansion(queries, gallery, 4, 3.0),
        nn.functional.normalize(queries + (weights[..., None] * gallery[best.indices]).sum(1), dim=1),
    )
    # a huge alpha trusts nobody
    torch.testing.assert_close(query_expansion(queries, gallery, 4, 500.0), queries, atol=1e-3, rtol=0)


@pytest.mark.parametrize("call, message", [
    (lambda: query_expansion(unit(2), unit(5), top=6), "top must be a whole number in 1 ... 5"),
    (lambda: query_expansion(unit(2), unit(5), top=0), "top must be"),
    (lambda: query_expansion(unit(2), unit(5), top=2, alpha=-1.0), "alpha must be"),
    (lambda: query_expansion(unit(2), torch.rand(5, 3), top=2), "8 dimensions, the gallery has 3"),
])
def test_query_expansion_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
