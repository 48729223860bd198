"COCO and Flickr30k in Karpathy's split, on miniatures in their layout: what is read, what is refused, both protocols."

import json

import numpy as np
import pytest
import torch

from smoothap_nb.data.karpathy import caption_miniature, check_captions, load_captions, region_features
from smoothap_nb.data.interface import DatasetError, MissingData
from smoothap_nb.data.transforms import PhotoTransform


@pytest.fixture(scope="module", params=["coco", "flickr30k"])
def mini(request, tmp_path_factory):
    return request.param, caption_miniature(request.param, tmp_path_factory.mktemp("mini") / request.param)


def rewrite(folder, tmp_path, change):
    "A copy of a miniature whose list was changed."
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (path,) = copy.glob("dataset_*.json")
    content = json.loads(path.read_text())
    change(content["images"])
    path.write_text(json.dumps(content))
    return copy


def test_splits_are_read(mini):
    name, folder = mini
    train, test = load_captions(name, folder, "train"), load_captions(name, folder, "test")
    assert (len(train), len(load_captions(name, folder, "val")), len(test)) == (12, 5, 5)
    assert len(test.captions) == len(test.tokens) == len(test.image_ids) == 25 and test.image_ids.tolist() == sorted(
        test.image_ids.tolist()
    )
    assert torch.equal(test.image_ids.bincount(), torch.full((5,), 5)) and all(
        text.endswith(".") and text[0] == text[0].upper() for text in test.captions
    )
    if name == "coco":
        assert len(load_captions(name, folder, "train", with_restval=False)) == 6
        assert test.file_ids[0] == 117 and str(test.photos.relative[0]).startswith("val2014/COCO_val2014_")
    everything = load_captions(name, folder, "train", per_image=None)
    assert len(everything.captions) == 12 * 5 + 4 and not set(train.photos.relative) & set(test.photos.relative)


def test_batches_carry_their_own_rows(mini):
    from smoothap_nb import CrossModalLoss

    data = load_captions(*mini, "test", transform=PhotoTransform(size=24))
    images, texts, owners = data.batch([3, 1], draw=1)
    assert (
        images.shape[0] == 2
        and images.shape[2:] == (24, 24)
        and texts[:5] == data.captions_of(3)
        and owners.tolist() == [0] * 5 + [1] * 5
    )
    loss = CrossModalLoss("nt_xent")(torch.randn(2, 4), torch.randn(10, 4), image_ids=owners)
    assert torch.isfinite(loss)


def test_both_protocols_run_on_a_copy(mini):
    from smoothap_nb import evaluate_cross_modal

    data = load_captions(*mini, "test")
    rows = torch.nn.functional.normalize(torch.randn(5, 6, generator=torch.Generator().manual_seed(0)), dim=1)
    whole = evaluate_cross_modal(rows, rows[data.image_ids], image_ids=data.image_ids)
    folds = evaluate_cross_modal(rows, rows[data.image_ids], image_ids=data.image_ids, folds=5)
    assert whole["rsum"] == folds["rsum"] == 600


def test_counts_are_held_against_the_published_ones(mini):
    name, folder = mini
    said = check_captions(name, folder)
    assert "miniature" in said[0] and any(
        "published 5,000" in line if name == "coco" else "published 29,000" in line for line in said
    )
    assert not any("missing" in line or "fewer" in line for line in said)


def test_missing_things_are_named(mini, tmp_path):
    name, folder = mini
    with pytest.raises(MissingData, match="no folder"):
        load_captions(name, tmp_path / "nowhere")
    with pytest.raises(MissingData, match="holds the captions and the split"):
        load_captions(name, tmp_path)
    copy = rewrite(folder, tmp_path, lambda images: images[-1].update(filename="gone.jpg"))
    with pytest.raises(MissingData, match=r"(?s)1 of 5 pictures.*gone\.jpg"):
        load_captions(name, copy, "test")
    assert "missing, first" in check_captions(name, copy)[-1]
    assert len(load_captions(name, copy, "test", check=False)) == 5


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda images: images[-1]["sentences"][0].update(imgid=0), "ids that do not match"),
        (lambda images: images[-1].update(imgid=images[0]["imgid"]), "gives the id"),
        (lambda images: images[-1]["sentences"][0].update(raw=" "), "empty caption"),
        (lambda images: images[-1]["sentences"].__delitem__(slice(0, 3)), "captions, 5 are needed"),
        (lambda images: images[-1].pop("sentences"), "not Karpathy's list"),
        (lambda images: images[-1].update(filename="../../secret.jpg"), "leads upwards"),
    ],
)
def test_damaged_lists_are_refused(mini, tmp_path, change, words):
    name, folder = mini
    with pytest.raises(DatasetError, match=words):
        load_captions(name, rewrite(folder, tmp_path, change), "test")


def test_names_and_folders(mini, tmp_path):
    name, folder = mini
    with pytest.raises(DatasetError, match="'coco' or 'flickr30k'"):
        load_captions("flickr8k", folder)
    with pytest.raises(DatasetError, match="has no split 'dev'"):
        load_captions(name, folder, "dev")
    with pytest.raises(DatasetError, match="not empty"):
        caption_miniature(name, folder)
    with pytest.raises(ValueError, match="two training pictures"):
        caption_miniature(name, tmp_path / "new", train=1)


def test_region_features(tmp_path):
    with pytest.raises(MissingData, match="not run: .*test_ims.npy is missing"):
        region_features(tmp_path)
    values = np.random.default_rng(0).random((3, 4, 6), dtype=np.float32)
    (tmp_path / "test_caps.txt").write_text("".join(f"caption {i}\n" for i in range(15)))
    np.save(tmp_path / "test_ims.npy", values.repeat(5, 0))
    features, captions, owners = region_features(tmp_path, regions=4, width=6)
    assert (
        np.array_equal(features, values)
        and captions[7] == "caption 7"
        and owners.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    )
    with pytest.raises(DatasetError, match=r"expected \(pictures, 36, 2048\)"):
        region_features(tmp_path)
    np.save(tmp_path / "test_ims.npy", values[:2])
    with pytest.raises(DatasetError, match="15 captions for 2 pictures"):
        region_features(tmp_path, regions=4, width=6)
