"""How much fine detail of a small crop the decoded cache keeps, on pictures whose spectrum falls off as that of
photographs does.
"""

import numpy as np
import pytest
import torch
from PIL import Image

from smoothap_nb.data.cache import DecodedCache
from smoothap_nb.data.photographs import ImageSet
from smoothap_nb.data.transforms import PhotoTransform
from smoothap_nb.train.runs import FINE_ENOUGH

SIDE, SIZE = 500, 224  # a photograph of Stanford Online Products is about so large


def natural(seed: int) -> Image.Image:
    "Noise whose amplitude falls as 1/f, as in photographs."
    rng = np.random.default_rng(seed)
    f = np.hypot(*np.meshgrid(np.fft.fftfreq(SIDE), np.fft.rfftfreq(SIDE), indexing="ij"))
    f[0, 0] = 1
    pixels = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((SIDE, SIDE))) / f, s=(SIDE, SIDE))
    return Image.fromarray((128 + 40 * (pixels - pixels.mean()) / pixels.std()).clip(0, 255).astype(np.uint8)).convert(
        "RGB"
    )


def detail(images: torch.Tensor) -> float:
    "Energy in the finest octave."
    spectrum = torch.fft.rfft2(images.double()).abs() ** 2
    f = torch.hypot(*torch.meshgrid(torch.fft.fftfreq(SIZE), torch.fft.rfftfreq(SIZE), indexing="ij"))
    return float(spectrum[..., (f > 0.25) & (f < 0.5)].mean())


@pytest.mark.parametrize(
    "crops, side, least, most",
    [
        ((0.08, 1.0), 256, 0.2, 0.45),
        ((0.08, 1.0), FINE_ENOUGH, 0.8, 1.1),
        ((0.1, 0.3), 256, 0.0, 0.2),
        ((0.1, 0.3), FINE_ENOUGH, 0.4, 0.7),
    ],
)
def test_detail_that_the_cache_keeps(tmp_path, crops, side, least, most):
    """Over training's crops squares of 256 keep a third of the finest octave and squares of 512 nearly all; of crops
    below a third of the area a ninth, and half.
    """
    (tmp_path / "a").mkdir()
    for i in range(4):
        natural(i).save(tmp_path / "a" / f"{i}.png")
    data = ImageSet(
        tmp_path,
        [f"a/{i}.png" for i in range(4)],
        torch.zeros(4, 1, dtype=torch.int64),
        ["class"],
        [["a"]],
        PhotoTransform(SIZE, 256, crop_scale=crops),
    )
    cache = DecodedCache(data, tmp_path / "cache", side, workers=1, progress=False)
    kept = [detail(cache.batch(range(4), draw)[0]) / detail(data.batch(range(4), draw)[0]) for draw in (1, 2, 3, 4)]
    assert least < np.mean(kept) < most, kept
