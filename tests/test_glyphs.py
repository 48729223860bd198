"""Glyphs: the embedded data set, its tree, its split, its distortion and its cache."""

import pytest
import torch

from smoothap_nb import Glyphs
from smoothap_nb.glyphs import SPLITS, distort, distortion_keys


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    "One cache, built once."
    folder = tmp_path_factory.mktemp("glyphs")
    Glyphs("val", root=folder)
    return folder


@pytest.fixture(scope="session")
def splits(root):
    return {split: Glyphs(split, root=root) for split in SPLITS}


def test_open_set(splits):
    characters = {name: set(splits[name].characters) for name in ("train", "val", "test")}
    assert not characters["train"] & characters["test"]
    assert not characters["train"] & characters["val"]
    assert not characters["val"] & characters["test"]
    assert set.union(*characters.values()) == set(splits["all"].characters)


def test_batch_is_independent_of_its_company(splits):
    data = splits["test"]
    together, labels = data.batch(range(300), draw=3)
    assert together.shape == (300, 1, 32, 32) and together.dtype == torch.float32 and labels.shape == (300, 3)
    shuffled = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    assert torch.equal(data.batch(shuffled, draw=3)[0], together[shuffled])
    assert torch.equal(data.batch([7], draw=3)[0][0], together[7])
    assert not torch.equal(data.batch(range(300))[0], together)


def test_strength_zero_changes_nothing(splits):
    images = splits["val"].images[:10]
    assert torch.equal(distort(images, distortion_keys(torch.arange(10)), 0)[:, 0], images.float() / 255)
