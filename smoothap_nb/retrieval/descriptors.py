"""From feature maps to descriptors, and what sharpens them: pooling, whitening, query expansion."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smoothap_nb.checks import (
    check_callable, check_count, check_dense, check_embeddings, check_finite, check_number, check_positive, reason,
)


def mac_pool(maps: Tensor) -> Tensor:
    """Maximum of each feature over the map (Tolias, Sicre and Jégou 2016).

    Args:
        maps: (B, C, h, w) floating point.

    Returns:
        (B, C).

    Raises:
        ValueError: maps that are not (B, C, h, w) with h and w above 0.
    """
    return _check_maps(maps).amax((2, 3))


def gem_pool(maps: Tensor, p: float = 3.0, eps: float = 1e-6) -> Tensor:
    """Generalised mean of each feature over the map (Radenović, Tolias and Chum 2019, Eq. 3).

    Args:
        maps: (B, C, h, w), at least 0 (after a ReLU); what lies below `eps` counts as `eps`.
        p: 1 is the average, infinity the maximum.
        eps: smallest value, > 0.

    Returns:
        (B, C).

    Raises:
        ValueError: maps that are not (B, C, h, w) with h and w above 0, p or eps that is not above 0.
    """
    if isinstance(p, float) and p == math.inf:
        return mac_pool(maps)
    check_positive("p", p)
    maps = _check_maps(maps).clamp(min=check_positive("eps", eps))
    top = maps.amax((2, 3), keepdim=True)  # a power of values up to 1 cannot overflow
    return (maps / top).pow(p).mean((2, 3)).pow(1 / p) * top[:, :, 0, 0]


def spoc_pool(maps: Tensor, centre: bool = False) -> Tensor:
    """Sum of each feature over the map (Babenko and Lempitsky 2015).

    Args:
        maps: (B, C, h, w).
        centre: weigh places by a Gaussian about the middle, a third of the way to the nearest edge wide (their centre
            prior).

    Returns:
        (B, C).

    Raises:
        ValueError: maps that are not (B, C, h, w) with h and w above 0.
    """
    maps = _check_maps(maps)
    if not centre:
        return maps.sum((2, 3))
    h, w = maps.shape[2:]
    y, x = (torch.arange(n, dtype=maps.dtype, device=maps.device) - (n - 1) / 2 for n in (h, w))
    far = (y[:, None] ** 2 + x**2) / (min(h, w) / 2 / 3) ** 2
    return (maps * (-far / 2).exp()).sum((2, 3))


def crow_pool(maps: Tensor, a: float = 2.0, b: float = 2.0) -> Tensor:
    """Cross-dimensional weights before the sum (Kalantidis, Mellina and Osindero 2016).

    A place weighs as much as its features add up to, a feature as much as it is rare.

    Args:
        maps: (B, C, h, w), at least 0 (after a ReLU).
        a: norm that the spatial weights are divided by, > 0.
        b: root of the normalised spatial weights, > 0.

    Returns:
        (B, C).

    Raises:
        ValueError: maps that are not (B, C, h, w) with h and w above 0, a or b that is not above 0.
    """
    check_positive("a", a)
    check_positive("b", b)
    maps = _check_maps(maps)
    places = maps.sum(1, keepdim=True).clamp(min=0)
    places = (places / places.pow(a).sum((2, 3), keepdim=True).pow(1 / a).clamp(min=1e-12)).pow(1 / b)
    shares = (maps > 0).to(maps.dtype).mean((2, 3))  # how often a feature answers
    eps = 1e-6
    rare = ((eps + shares.sum(1, keepdim=True)) / (eps + shares)).log()
    # a feature that never answers has the greatest weight, and a sum of 0
    return (maps * places).sum((2, 3)) * rare


def rmac_pool(maps: Tensor, levels: int = 3, whitening: Callable | None = None) -> Tensor:
    """Sum of the regions' MACs, each of length 1 (Tolias, Sicre and Jégou 2016).

    Args:
        maps: (B, C, h, w).
        levels: scales of regions, from the largest square on; 100 at most.
        whitening: what to do with each region's (B, C) descriptor before the sum, such as a `Whitening`.

    Returns:
        (B, C), or (B, d) after a whitening to d dimensions.

    Raises:
        ValueError: maps that are not (B, C, h, w) with h and w above 0, levels that do not lie in 1 ... 100.
    """
    maps = _check_maps(maps)
    check_count("levels", levels, 100)
    if whitening is not None:
        check_callable("whitening", whitening)
    total = 0
    for top, left, side in rmac_regions(*maps.shape[2:], levels):
        region = F.normalize(maps[:, :, top : top + side, left : left + side].amax((2, 3)), dim=1)
        total = total + (region if whitening is None else F.normalize(whitening(region), dim=1))
    return total


def rmac_regions(height: int, width: int, levels: int = 3, overlap: float = 0.4) -> list[tuple[int, int, int]]:
    """Squares (top, left, side) that cover a map (Tolias, Sicre and Jégou 2016).

    Neighbours of the largest size share about 40 percent.

    At level l the side is 2 min(h, w) / (l + 1); there are l squares along the short side and l + m - 1 along the long
    one.
    """
    short, long = sorted((height, width))
    shared = {m: 1 - (long - short) / ((m - 1) * short) for m in range(2, 8)}
    extra = 0 if long == short else min(shared, key=lambda m: abs(shared[m] - overlap)) - 1
    regions = []
    for level in range(1, levels + 1):
        side = max(1, 2 * short // (level + 1))
        starts = [
            np.linspace(0, full - side, level + (extra if full == long else 0)).astype(int) for full in (height, width)
        ]
        regions += [(int(t), int(l), side) for t in starts[0] for l in starts[1]]
    return regions


def _check_maps(maps: Tensor) -> Tensor:
    if not isinstance(maps, Tensor) or maps.ndim != 4 or 0 in maps.shape[2:]:
        got = tuple(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__
        raise ValueError(
            f"maps: feature maps must be a tensor (images, features, height, width), got {got}: cut the network "
            "before its pooling layer"
        )
    check_dense("maps", maps)
    if not maps.is_floating_point():
        raise TypeError(f"maps must be floating point, got {maps.dtype}: call maps.float()")
    return check_finite("maps", maps.float() if maps.dtype in (torch.float16, torch.bfloat16) else maps)


SCALES = (1.0, 2**-0.5, 0.5)


def extract_descriptors(
    backbone: nn.Module,
    images: Iterable[Tensor],
    pool: Callable[[Tensor], Tensor] = gem_pool,
    scales: Sequence[float] = (1.0,),
    power: float = 1.0,
    out=None,
    progress: bool = False,
):
    """One descriptor of length 1 per picture, from any network that gives feature maps.

    For a torchvision ResNet: ``nn.Sequential(transforms.Normalize(mean, std), *list(resnet.children())[:-2])``.

    Args:
        backbone: takes (B, 3, H, W) in [0, 1] and gives (B, C, h, w). It is run in evaluation mode, where its
            parameters are.
        images: (3, H, W) each, of any sizes; a generator or a `DataLoader(batch_size=None)` will do: one is held at a
            time.
        pool: (B, C, h, w) to (B, d): `gem_pool`, `mac_pool`, `rmac_pool`, or any function like them.
        scales: factors by which each picture is resized (bilinear); Radenović et al. use `SCALES`.
        power: descriptors of the scales are joined by a generalised mean of this power, >= 1; above 1 they must not be
            negative.
        out: array (N, d) to write into, such as a `numpy.memmap` for a million pictures.
        progress: show a bar.

    Returns:
        (N, d) float32 tensor on the CPU, or `out`.

    Raises:
        ValueError: no pictures, a picture of another shape, feature maps that are none, scales or power out of range.
    """
    if not scales or any(not s > 0 for s in scales):
        raise ValueError(f"scales must be positive factors, at least one, got {scales!r}")
    if not 1 <= power < math.inf:
        raise ValueError(f"power must be a number from 1 on, got {power!r}")
    where = next(backbone.parameters(), torch.empty(0)).device
    was_training = backbone.training
    backbone.eval()
    rows = []
    try:
        for n, image in enumerate(_bar(images, progress)):
            if not isinstance(image, Tensor) or image.ndim != 3 or image.shape[0] != 3:
                raise ValueError(
                    f"picture {n} must be a tensor (3, height, width), got "
                    f"{tuple(image.shape) if isinstance(image, Tensor) else type(image).__name__}"
                )
            row = _describe(backbone, image.to(where)[None], pool, scales, power).cpu()
            if out is None:
                rows.append(row)
            else:
                out[n] = row.numpy()
    finally:
        backbone.train(was_training)
    if out is None and not rows:
        raise ValueError("there are no pictures to describe")
    return torch.stack(rows) if out is None else out


@torch.no_grad()
def _describe(backbone: nn.Module, image: Tensor, pool: Callable, scales: Sequence[float], power: float) -> Tensor:
    "(1, 3, H, W) to (d,)."
    total = 0
    for scale in scales:
        size = [max(1, int(side * scale)) for side in image.shape[2:]]
        view = image if scale == 1 else F.interpolate(image, size=size, mode="bilinear", align_corners=False)
        total = total + F.normalize(pool(backbone(view)).float(), dim=1).pow(power)
    return F.normalize((total / len(scales)).pow(1 / power), dim=1)[0]


def _bar(items: Iterable, progress: bool) -> Iterable:
    if not progress:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, desc="descriptors", unit="image")


@dataclass(frozen=True)
class Whitening:
    "A shift and a projection; call it on (N, D) descriptors to get (N, d) of length 1."

    mean: Tensor  # (D,)
    projection: Tensor  # (D, d), the strongest direction first

    def __call__(self, descriptors: Tensor, dimensions: int | None = None) -> Tensor:
        """(N, D) to (N, d), rows of length 1; the first `dimensions` directions, all when left out.

        Raises:
            ValueError: descriptors of another length, more dimensions than there are.
        """
        if descriptors.shape[-1] != len(self.mean):
            raise ValueError(
                f"this whitening was learnt on {len(self.mean)} dimensions, the descriptors have "
                f"{descriptors.shape[-1]}"
            )
        if dimensions is not None and not 1 <= dimensions <= self.projection.shape[1]:
            raise ValueError(f"dimensions must lie in 1 ... {self.projection.shape[1]}, got {dimensions}")
        mean, projection = self.mean.to(descriptors), self.projection[:, :dimensions].to(descriptors)
        return F.normalize((descriptors - mean) @ projection, dim=-1)

    def as_linear(self) -> nn.Linear:
        "The same as a layer, to start the last layer of a network from; normalise behind it."
        layer = nn.Linear(*self.projection.shape)
        with torch.no_grad():
            layer.weight.copy_(self.projection.T)
            layer.bias.copy_(-self.mean @ self.projection)
        return layer


def learn_whitening(descriptors: Tensor, pairs: Tensor | None = None, dimensions: int | None = None) -> Whitening:
    """PCA whitening, or with `pairs` the discriminative one, learnt on pictures that are not in the benchmark.

    Args:
        descriptors: (N, D) of a training set.
        pairs: (M, 2) rows of `descriptors` that show the same object. Without them: PCA (Jégou and Chum 2012). With
            them: the inverse square root of
            the pairs' covariance, then PCA (Radenović, Tolias and Chum 2019, section 3.4).
        dimensions: how many directions to keep; all that carry variance when left out.

    Returns:
        `Whitening`.

    Raises:
        ValueError: fewer than two descriptors or no variance; pairs that do not span the descriptors; more dimensions
            than there are.
    """
    descriptors = check_embeddings(descriptors, "descriptors")
    if len(descriptors) < 2:
        raise ValueError(f"whitening is learnt from at least two descriptors, got {len(descriptors)}")
    x = descriptors.detach().double()
    mean = x.mean(0)
    x = x - mean
    if pairs is None:
        values, vectors = _principal(x.T @ x / len(x))
        projection = vectors / values.sqrt()
    else:
        difference = x[_check_pairs(pairs, len(x))].diff(dim=1)[:, 0]
        values, vectors = _principal(difference.T @ difference / len(difference))
        if len(values) < x.shape[1]:
            raise ValueError(
                f"the pairs vary in {len(values)} of {x.shape[1]} directions only: give more pairs, or reduce the "
                "descriptors by PCA first"
            )
        within = vectors / values.sqrt() @ vectors.T
        projection = within @ _principal(within @ (x.T @ x / len(x)) @ within)[1]
    if dimensions is not None and not (isinstance(dimensions, int) and 1 <= dimensions <= projection.shape[1]):
        raise ValueError(
            f"dimensions must lie in 1 ... {projection.shape[1]} (directions with variance in this training set), "
            f"got {dimensions}"
        )
    return Whitening(mean.to(descriptors.dtype), projection[:, :dimensions].to(descriptors.dtype))


def _principal(covariance: Tensor) -> tuple[Tensor, Tensor]:
    "Eigenvalues above rounding, largest first, and their vectors, each with its largest entry positive."
    values, vectors = torch.linalg.eigh(covariance)
    keep = values.flip(0) > values[-1].clamp(min=0) * len(values) * 1e-13
    if not keep.any():
        raise ValueError("the descriptors are all alike: there is no variance to whiten")
    values, vectors = values.flip(0)[keep], vectors.flip(1)[:, keep]
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    return values, vectors * largest.sign()


def _check_pairs(pairs: Tensor, n: int) -> Tensor:
    try:
        pairs = torch.as_tensor(pairs)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"pairs must be integers (M, 2): {reason(error)}") from None
    if (
        pairs.ndim != 2
        or pairs.shape[1] != 2
        or pairs.is_floating_point()
        or len(pairs) == 0
        or pairs.min() < 0
        or pairs.max() >= n
    ):
        raise ValueError(
            f"pairs must be integers (M, 2) that name rows 0 ... {n - 1} of the descriptors, got "
            f"{tuple(pairs.shape)} {pairs.dtype}"
        )
    return pairs.long()


def query_expansion(queries: Tensor, gallery: Tensor, top: int = 10, alpha: float = 0.0) -> Tensor:
    """Queries joined by their best answers: in equal parts (Chum et al. 2007) or weighted (Radenović et al. 2019).

    Args:
        queries: (Q, D) descriptors of length 1.
        gallery: (G, D) descriptors of length 1.
        top: how many answers to add, 1 to G.
        alpha: each answer is weighted by its similarity (0 where negative) to this power, >= 0; 0 gives every answer
            the query's own weight.

    Returns:
        (Q, D) new queries of length 1.

    Raises:
        ValueError: dimensions that differ, top or alpha out of range.
    """
    queries, gallery = check_embeddings(queries, "queries"), check_embeddings(gallery, "gallery")
    if queries.shape[1] != gallery.shape[1]:
        raise ValueError(f"the queries have {queries.shape[1]} dimensions, the gallery has {gallery.shape[1]}")
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= len(gallery):
        raise ValueError(f"top must be a whole number in 1 ... {len(gallery)} (the gallery), got {top!r}")
    check_number("alpha", alpha, 0)
    best = (queries @ gallery.T.to(queries)).topk(top, dim=1)
    weights = best.values.clamp(0, 1) ** alpha if alpha > 0 else torch.ones_like(best.values)  # a cosine of 1 + 1e-7
    return F.normalize(queries + (weights[:, :, None] * gallery.to(queries)[best.indices]).sum(1), dim=1)
