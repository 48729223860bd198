"Photographs: files good and bad, torchvision's geometry, draws that depend on nothing but (seed, image, draw)."

import io

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from smoothap_nb.loading import PhotoError, PhotoTransform, crop_boxes, read_photo


def noise(width, height, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("width, height", [(500, 375), (375, 500), (256, 256), (257, 300), (30, 700), (100, 90), (1000, 333), (1, 1)])
@pytest.mark.parametrize("size, resize", [(224, 256), (32, 40), (48, 48), (33, 40)])
@pytest.mark.parametrize("squash", [False, True])
def test_evaluation_equals_torchvision(width, height, size, resize, squash):
    picture = noise(width, height)
    papers = transforms.Compose([transforms.Resize((resize, resize) if squash else resize), transforms.CenterCrop(size), transforms.ToTensor()])
    assert torch.equal(PhotoTransform(size, resize, squash)(picture), papers(picture))


@pytest.mark.parametrize("train_resize", [0, 40])
def test_training_equals_torchvision_for_the_same_box(train_resize):
    picture, transform = noise(61, 90), PhotoTransform(32, 40, train_resize=train_resize, seed=5)
    for draw in range(1, 8):
        resized, boxes, mirrored = transform.plan([picture.size], [3], draw)
        left, top, width, height = boxes[0].tolist()
        wanted = transforms.functional.resize(picture, train_resize) if train_resize else picture
        assert wanted.size == tuple(resized[0])
        wanted = transforms.functional.resized_crop(wanted, top, left, height, width, [32, 32])
        wanted = transforms.functional.to_tensor(transforms.functional.hflip(wanted) if mirrored[0] else wanted)
        assert torch.equal(transform(picture, 3, draw), wanted)


def test_boxes_stay_inside_and_keep_the_bounds():
    sizes = np.random.default_rng(0).integers(1, 400, (2000, 2))
    boxes, mirrored = crop_boxes(sizes, np.arange(2000), 1)
    assert (boxes[:, :2] >= 0).all() and (boxes[:, 2:] >= 1).all() and (boxes[:, :2] + boxes[:, 2:] <= sizes).all()
    assert 0.4 < mirrored.mean() < 0.6
    large = np.full((2000, 2), 1000)
    boxes, _ = crop_boxes(large, np.arange(2000), 2, scale=(0.2, 0.5), ratio=(0.5, 1.5))
    share, aspect = boxes[:, 2] * boxes[:, 3] / 1e6, boxes[:, 2] / boxes[:, 3]
    assert share.min() > 0.199 and share.max() < 0.501 and aspect.min() > 0.49 and aspect.max() < 1.51
    assert share.mean() == pytest.approx(0.35, abs=0.01)


def test_where_no_attempt_fits_the_largest_box_is_taken():
    boxes, _ = crop_boxes([(1000, 10), (10, 1000)], [0, 1], 1, scale=(1, 1), ratio=(0.75, 1.25))
    assert boxes.tolist() == [[494, 0, 12, 10], [0, 493, 10, 13]]


def test_a_draw_depends_on_seed_image_and_draw_alone():
    sizes, identity = [(300, 200)] * 6, [4, 8, 15, 16, 23, 42]
    together = crop_boxes(sizes, identity, 3, seed=7)
    for i, one in enumerate(identity):
        alone = crop_boxes(sizes[:1], [one], 3, seed=7)
        assert (alone[0][0] == together[0][i]).all() and alone[1][0] == together[1][i]
    for other in (crop_boxes(sizes, identity, 4, seed=7), crop_boxes(sizes, identity, 3, seed=8), crop_boxes(sizes, identity[::-1], 3, seed=7)):
        assert (other[0] != together[0]).any()


def test_transform_is_described_and_checked():
    transform = PhotoTransform(96, 110, True, 120, (0.2, 1), (0.5, 2), False, 3)
    assert PhotoTransform(**transform.to_dict()).to_dict() == transform.to_dict() and "train_resize=120" in repr(transform)
    for wrong, says in (({"size": 300}, "resize must be at least size"), ({"crop_scale": (0, 1)}, "crop_scale"), ({"crop_scale": (0.5, 2)}, "crop_scale"),
                        ({"crop_ratio": (2, 1)}, "crop_ratio"), ({"size": 0}, "size must be"), ({"train_resize": -1}, "train_resize")):
        with pytest.raises(ValueError, match=says):
            PhotoTransform(**wrong)
    with pytest.raises(ValueError, match="draw"):
        transform(noise(9, 9), 0, -1)


def test_from_config_takes_the_data_table():
    from smoothap_nb.config import DataConfig

    config = DataConfig(size=64)
    transform = PhotoTransform.from_config(config, seed=9)
    assert transform.size == 64 and transform.seed == 9 and transform.resize == getattr(config, "resize", 256)


@pytest.mark.parametrize("mode, suffix", [("1", "png"), ("L", "jpg"), ("LA", "png"), ("P", "gif"), ("RGB", "webp"), ("RGBA", "png"), ("CMYK", "jpg"), ("I;16", "png")])
def test_files_of_every_mode(tmp_path, mode, suffix):
    Image.new(mode, (31, 50)).save(tmp_path / f"x.{suffix}")
    photo = read_photo(f"x.{suffix}", tmp_path)
    assert photo.mode == "RGB" and photo.size == (31, 50)
    assert PhotoTransform(24, 24)(photo, 0, 1).shape == (3, 24, 24)


def test_sixteen_bits_and_alpha_keep_their_meaning(tmp_path):
    Image.fromarray(np.full((8, 8), 32896, np.uint16)).save(tmp_path / "deep.png")
    assert read_photo(tmp_path / "deep.png").getpixel((0, 0)) == (128, 128, 128)
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert read_photo(tmp_path / "clear.png").getpixel((0, 0)) == (255, 255, 255)


def test_photos_are_turned_upright(tmp_path):
    image = Image.new("RGB", (40, 20), "white")
    image.paste("black", (0, 0, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "x.jpg", exif=exif)
    photo = read_photo(tmp_path / "x.jpg")
    assert photo.size == (20, 40) and photo.getpixel((10, 3))[0] < 60 and photo.getpixel((10, 36))[0] > 200


def test_files_that_cannot_be_used_are_named(tmp_path):
    good = io.BytesIO()
    noise(64, 64).save(good, "JPEG")
    for name, data, says in (("empty.jpg", b"", "is empty"), ("text.png", b"hello " * 50, "no picture"), ("cut.jpg", good.getvalue()[:-900], "damaged"),
                             ("run.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no picture")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(PhotoError, match=f"{name} cannot be read: .*{says}"):
            read_photo(name, tmp_path)
    with pytest.raises(PhotoError, match="gone.jpg is missing"):
        read_photo("gone.jpg", tmp_path)
    (tmp_path / "folder.jpg").mkdir()
    with pytest.raises(PhotoError, match="it is a folder"):
        read_photo("folder.jpg", tmp_path)


def test_files_outside_of_the_root_are_refused(tmp_path):
    (tmp_path / "set").mkdir()
    noise(8, 8).save(tmp_path / "private.png")
    (tmp_path / "set" / "link.png").symlink_to(tmp_path / "private.png")
    noise(8, 8).save(tmp_path / "set" / "in.png")
    for name in ("../private.png", str(tmp_path / "private.png"), "link.png"):
        with pytest.raises(PhotoError, match="outside of the data set's folder"):
            read_photo(name, tmp_path / "set")
    (tmp_path / "shortcut").symlink_to(tmp_path / "set")  # the root itself may be a link
    assert read_photo("in.png", tmp_path / "shortcut").size == (8, 8)
