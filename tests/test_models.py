"Backbones, pooling, batch norm, weights from files, pictures of every mode."

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from smoothap_nb.config import ConfigError, ModelConfig
from smoothap_nb.models import EmbeddingModel, GeM, ImageTransform, backbone_names


def small(**changes):
    return ModelConfig(**{"backbone": "resnet18", "dim": 16, "stem": "small", **changes})


@pytest.mark.parametrize("stem", ["small", "imagenet"])
@pytest.mark.parametrize("channels", [1, 3])
def test_unit_rows_from_grey_and_colour(stem, channels):
    out = EmbeddingModel(small(stem=stem)).eval()(torch.rand(3, channels, 32, 32))
    assert out.shape == (3, 16) and out.dtype == torch.float32
    torch.testing.assert_close(out.norm(dim=1), torch.ones(3))


def test_resnet50_is_the_default_and_known():
    assert ModelConfig().backbone == "resnet50" and {"resnet18", "resnet34", "resnet50"} <= set(backbone_names())


def test_wrong_image_shape_is_named():
    with pytest.raises(ValueError, match="images must have shape"):
        EmbeddingModel(small())(torch.rand(3, 32, 32))


def test_gem_lies_between_average_and_maximum():
    maps = torch.rand(4, 7, 3, 5)
    torch.testing.assert_close(GeM(p=1)(maps), maps.mean((2, 3)), atol=1e-5, rtol=0)
    assert (GeM(p=3)(maps) >= maps.mean((2, 3)) - 1e-6).all() and (GeM(p=3)(maps) <= maps.amax((2, 3)) + 1e-6).all()


@pytest.mark.parametrize("pool", ["avg", "max", "gem"])
def test_every_pooling_trains(pool):
    net = EmbeddingModel(small(pool=pool, layer_norm=True))
    net(torch.rand(2, 3, 32, 32)).square().sum().backward()
    net(torch.rand(2, 3, 32, 32))[:, 0].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("kind, moves, trains", [("live", True, True), ("frozen_statistics", False, True), ("frozen", False, False)])
def test_batch_norm_modes(kind, moves, trains):
    net = EmbeddingModel(small(batch_norm=kind)).train()
    before = net.backbone.bn1.running_mean.clone()
    net(torch.rand(4, 3, 32, 32))[:, 0].sum().backward()
    assert torch.equal(before, net.backbone.bn1.running_mean) != moves
    assert (net.backbone.bn1.weight.grad is not None) == trains


def test_unknown_backbone_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'resnet50'"):
        EmbeddingModel(ModelConfig(backbone="resnet5O"))


def test_weights_from_files(tmp_path):
    import torchvision

    donor = torchvision.models.resnet18()
    save_file(donor.state_dict(), tmp_path / "w.safetensors")
    torch.save(donor.state_dict(), tmp_path / "w.pth")
    for name in ("w.safetensors", "w.pth"):
        net = EmbeddingModel(small(stem="imagenet", weights=str(tmp_path / name)))
        assert torch.equal(net.backbone.layer4[0].conv1.weight, donor.layer4[0].conv1.weight)
        assert EmbeddingModel(small(stem="small", weights=str(tmp_path / name))).backbone.conv1.kernel_size == (3, 3)


class Evil:
    def __reduce__(self):
        return (open, ("/nonexistent-evil-path", "w"))


def test_bad_weight_files_are_named(tmp_path):
    import torchvision

    (tmp_path / "broken.safetensors").write_bytes(b"\x00" * 20)
    (tmp_path / "empty.pth").write_bytes(b"")
    save_file(torchvision.models.resnet34().state_dict(), tmp_path / "other.safetensors")
    torch.save({"a": Evil()}, tmp_path / "evil.pth")
    for name, says in (("missing.pth", "no file"), ("broken.safetensors", "damaged"), ("empty.pth", "damaged"), ("evil.pth", "more than tensors")):
        with pytest.raises(ConfigError, match=says):
            EmbeddingModel(small(weights=str(tmp_path / name)))
    with pytest.raises(ConfigError, match="does not fit resnet50"):
        EmbeddingModel(ModelConfig(weights=str(tmp_path / "other.safetensors")))


def test_imagenet_weights_that_cannot_be_had(monkeypatch, tmp_path):
    import urllib.error
    import torch.hub

    def refuse(*args, **kwargs):
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(ConfigError, match="could not be fetched.*model.weights"):
        EmbeddingModel(small(weights="imagenet"))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "I;16"])
@pytest.mark.parametrize("fit", ["crop", "pad"])
@pytest.mark.parametrize("gray", [True, False])
def test_pictures_of_every_mode(mode, fit, gray):
    out = ImageTransform(24, gray=gray, fit=fit)(Image.new(mode, (31, 50)))
    assert out.shape == (1 if gray else 3, 24, 24) and out.dtype == torch.float32
    assert out.min() >= 0 and out.max() <= 1


def test_transparent_is_white_and_padding_takes_the_border():
    assert ImageTransform(8)(Image.new("RGBA", (8, 8), (0, 0, 0, 0))).min() == 1
    tall = Image.fromarray(np.full((40, 10), 200, np.uint8))
    tall.paste(0, (3, 10, 7, 30))
    out = ImageTransform(40, gray=True, fit="pad")(tall)
    assert abs(out[0, 0, 0].item() - 200 / 255) < 1e-3 and abs(out[0, 20, 0].item() - 200 / 255) < 1e-3


def test_orientation_is_respected():
    image = Image.new("RGB", (40, 20), "white")
    image.paste("black", (0, 0, 20, 20))  # left half black
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees to the right
    import io

    buffer = io.BytesIO()
    image.save(buffer, "JPEG", exif=exif)
    turned = ImageTransform(20, gray=True, fit="pad")(Image.open(buffer))
    assert turned[0, 3, 10] < .2 and turned[0, 16, 10] > .8


def test_unknown_fit():
    with pytest.raises(ValueError, match="crop"):
        ImageTransform(8, fit="stretch")
