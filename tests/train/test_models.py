"Backbones, pooling, batch norm, weights from files, pictures of every mode."

from hashlib import sha256

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from smoothap_nb.checks import ConfigError
from smoothap_nb.train.config import ModelConfig
from smoothap_nb.train.weights import GLYPH_STAGES, weights_hash
from smoothap_nb.data.transforms import ImageTransform
from smoothap_nb.train.models import EmbeddingModel, GeM, backbone_names, se_resnet50


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


@pytest.mark.parametrize(
    "kind, moves, trains", [("live", True, True), ("frozen_statistics", False, True), ("frozen", False, False)]
)
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
        with pytest.raises(ConfigError, match='stem = "small" replaces the first layers'):
            EmbeddingModel(small(stem="small", weights=str(tmp_path / name)))


def test_weights_in_the_layouts_that_people_keep(tmp_path):
    "Without a classifier, with another one, inside a checkpoint, with the prefixes of wrappers."
    import torchvision

    plain = torchvision.models.resnet18().state_dict()
    bare = {k: v for k, v in plain.items() if not k.startswith("fc.")}
    other = bare | {"fc.weight": torch.zeros(7, 512), "fc.bias": torch.zeros(7)}
    layouts = {
        "bare": bare,
        "other classes": other,
        "nested": {"epoch": 3, "state_dict": plain},
        "beside tensors": {"epoch": 3, "best_acc1": torch.tensor(76.1), "state_dict": plain, "optimizer": {}},
        "wrapped": {f"module.{k}": v for k, v in plain.items()},
        "both": {"model": {f"module.backbone.{k}": v for k, v in bare.items()}, "step": 1},
        "compiled": {f"_orig_mod.{k}": v for k, v in plain.items()},
    }
    for name, layout in layouts.items():
        torch.save(layout, tmp_path / "w.pth")
        net = EmbeddingModel(small(stem="imagenet", weights=str(tmp_path / "w.pth")))
        assert all(torch.equal(v, bare[k]) for k, v in net.backbone.state_dict().items()), name
    torch.save({"epoch": 3, "lr": 0.1}, tmp_path / "w.pth")
    with pytest.raises(ConfigError, match="holds no tensors by name"):
        EmbeddingModel(small(weights=str(tmp_path / "w.pth"), stem="imagenet"))
    torch.save({k.replace("layer1", "block1"): v for k, v in plain.items()}, tmp_path / "w.pth")
    with pytest.raises(ConfigError, match="first 'layer1.0.conv1.weight', which is missing"):
        EmbeddingModel(small(weights=str(tmp_path / "w.pth"), stem="imagenet"))


def test_the_hash_of_weights_is_that_of_their_bytes(tmp_path):
    (tmp_path / "w.pth").write_bytes(b"weights")
    assert weights_hash(small(weights=str(tmp_path / "w.pth"))) == sha256(b"weights").hexdigest()[:8]
    assert weights_hash(ModelConfig(weights="imagenet")) == "0676ba61" and weights_hash(small(weights="none")) == ""


class Evil:
    def __reduce__(self):
        return (open, ("/nonexistent-evil-path", "w"))


def test_bad_weight_files_are_named(tmp_path):
    import torchvision

    (tmp_path / "broken.safetensors").write_bytes(b"\x00" * 20)
    (tmp_path / "empty.pth").write_bytes(b"")
    save_file(torchvision.models.resnet34().state_dict(), tmp_path / "other.safetensors")
    torch.save({"a": Evil()}, tmp_path / "evil.pth")
    for name, says in (
        ("missing.pth", "no file"),
        ("broken.safetensors", "damaged"),
        ("empty.pth", "damaged"),
        ("evil.pth", "more than tensors"),
    ):
        with pytest.raises(ConfigError, match=says):
            EmbeddingModel(small(stem="imagenet", weights=str(tmp_path / name)))
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
        EmbeddingModel(small(stem="imagenet", weights="imagenet"))


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "I;16"]
)
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


# --- the papers' settings ---------------------------------------------------------------------------------------------

def norms(net):
    return [m for m in net.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]


@pytest.mark.parametrize("backbone", ["resnet18", "se_resnet50", "timm/test_resnet", "timm/test_efficientnet"])
@pytest.mark.parametrize(
    "kind, moves, trains", [("live", True, True), ("frozen_statistics", False, True), ("frozen", False, False)]
)
def test_every_batch_norm_of_every_backbone_obeys(backbone, kind, moves, trains):
    "Also timm's BatchNormAct2d; and again after evaluation."
    net = EmbeddingModel(ModelConfig(backbone=backbone, dim=8, batch_norm=kind)).train()
    net.eval()
    net.train()
    assert len(norms(net)) > 5 and net.training
    before = [(m.running_mean.clone(), m.running_var.clone()) for m in norms(net)]
    net(torch.rand(4, 3, 64, 64))[:, 0].sum().backward()
    for module, (mean, spread) in zip(norms(net), before):
        assert module.training == moves
        assert torch.equal(mean, module.running_mean) != moves and torch.equal(spread, module.running_var) != moves
        assert all((p.grad is not None) == trains for p in module.parameters())
    assert net.head.weight.grad is not None and all(p.grad is not None for p in net.parameters() if p.requires_grad)


@pytest.mark.parametrize("kind", ["frozen_statistics", "frozen"])
def test_frozen_statistics_make_embeddings_independent_of_their_batch(kind):
    net, images = EmbeddingModel(small(batch_norm=kind)).train(), torch.rand(6, 3, 32, 32)
    torch.testing.assert_close(net(images)[:2], net(images[:2]))
    live = EmbeddingModel(small()).train()
    assert (live(images)[:2] - live(images[:2])).abs().max() > 1e-2


def test_names_in_a_checkpoint_stay():
    "Committed runs and lessons hold weights under these names."
    import torchvision

    for name in ("resnet18", "resnet50"):
        names = {
            f"backbone.{k}" for k in torchvision.models.get_model(name).state_dict() if not k.startswith("fc.")
        } | {"head.weight", "head.bias"}
        assert set(EmbeddingModel(ModelConfig(backbone=name, dim=4)).state_dict()) == names
    assert set(
        EmbeddingModel(ModelConfig(backbone="resnet18", dim=4, pool="gem", layer_norm=True)).state_dict()
    ) - names == {"pool.gem.p"}


@pytest.mark.parametrize("layer_norm", [False, True])
def test_layer_norm_has_no_scale_and_comes_before_the_head(layer_norm):
    net = EmbeddingModel(small(layer_norm=layer_norm)).eval()
    seen = []
    net.head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    net(torch.rand(3, 3, 32, 32))
    spread = seen[0].std(1, unbiased=False)
    assert bool(((spread - 1).abs() < 1e-2).all()) == layer_norm and not list(net.norm.parameters())


def test_senet_50_equals_timms():
    timm = pytest.importorskip("timm")
    theirs, ours = timm.create_model("seresnet50").eval(), se_resnet50().eval()
    ours.load_state_dict(theirs.state_dict())
    images = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(ours(images), theirs(images), atol=1e-4, rtol=1e-4)


def test_senet_50_takes_weights_from_a_file(tmp_path):
    donor = se_resnet50()
    save_file(donor.state_dict(), tmp_path / "w.safetensors")
    net = EmbeddingModel(ModelConfig(backbone="se_resnet50", dim=4, weights=str(tmp_path / "w.safetensors")))
    assert torch.equal(net.backbone.layer1[0].se.fc1.weight, donor.layer1[0].se.fc1.weight)


@pytest.mark.parametrize(
    "name", ["test_resnet", "test_efficientnet", "test_convnext", "test_vit", "swin_tiny_patch4_window7_224"]
)
@pytest.mark.parametrize("pool", ["avg", "gem"])
def test_timm_backbones_embed(name, pool):
    timm = pytest.importorskip("timm")
    net = EmbeddingModel(ModelConfig(backbone=f"timm/{name}", dim=8, pool=pool)).eval()
    size = 224 if name.startswith("swin") else 96
    out = net(torch.rand(2, 1, size, size))
    assert out.shape == (2, 8) and net.width == timm.create_model(name, num_classes=0).num_features
    torch.testing.assert_close(out.norm(dim=1), torch.ones(2))


def test_timm_average_pooling_is_timms_own():
    timm = pytest.importorskip("timm")
    net = EmbeddingModel(ModelConfig(backbone="timm/resnet18", dim=8)).eval()
    theirs = timm.create_model("resnet18", num_classes=0).eval()
    theirs.load_state_dict(net.backbone.net.state_dict())
    images = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(net.features(images), theirs((images - net.mean) / net.std), atol=1e-5, rtol=1e-4)


def test_timm_brings_its_own_colours():
    pytest.importorskip("timm")
    assert EmbeddingModel(ModelConfig(backbone="timm/vit_tiny_patch16_224", dim=4)).mean.flatten().tolist() == [0.5] * 3
    assert EmbeddingModel(ModelConfig(backbone="timm/test_resnet", dim=4)).mean.shape == (1, 3, 1, 1)


def test_timm_weights_from_a_file(tmp_path):
    timm = pytest.importorskip("timm")
    donor = timm.create_model("test_resnet", num_classes=10)
    save_file(donor.state_dict(), tmp_path / "w.safetensors")
    net = EmbeddingModel(ModelConfig(backbone="timm/test_resnet", dim=4, weights=str(tmp_path / "w.safetensors")))
    assert all(torch.equal(v, donor.state_dict()[k]) for k, v in net.backbone.net.state_dict().items())
    with pytest.raises(ConfigError, match="does not fit timm/test_vit"):
        EmbeddingModel(ModelConfig(backbone="timm/test_vit", dim=4, weights=str(tmp_path / "w.safetensors")))


def test_timm_names_and_stems_are_checked(monkeypatch):
    pytest.importorskip("timm")
    for name, says in (
        ("timm/resnet5O", "timm has no model 'resnet5O': did you mean .*resnet50"),
        ("timm/zzzzqqqq", "list_models"),
        ("timm/resnet18.no_such_tag", "tag"),
        ("convnext_tiny", "timm/NAME"),
    ):
        with pytest.raises(ConfigError, match=says):
            EmbeddingModel(ModelConfig(backbone=name, dim=4))
    with pytest.raises(ConfigError, match="keeps its own: set model.stem"):
        EmbeddingModel(ModelConfig(backbone="timm/test_resnet", dim=4, stem="small"))
    import timm

    def refuse(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(timm, "create_model", refuse)
    for name in ("timm/resnet18", "se_resnet50"):
        with pytest.raises(ConfigError, match="could not be fetched .*no route to host.*model.weights"):
            EmbeddingModel(ModelConfig(backbone=name, dim=4, weights="imagenet"))


def test_timm_is_needed_only_for_its_own_names(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "timm", None)
    EmbeddingModel(small())
    EmbeddingModel(ModelConfig(backbone="se_resnet50", dim=4))
    with pytest.raises(ConfigError, match="pip install timm"):
        EmbeddingModel(ModelConfig(backbone="timm/resnet18", dim=4))


def test_small_stem_of_senet():
    assert EmbeddingModel(ModelConfig(backbone="se_resnet50", dim=4, stem="small")).backbone.conv1.kernel_size == (3, 3)


def test_the_stages_of_the_package_are_put_under_a_last_stage_at_random():
    with safe_open(GLYPH_STAGES, "pt") as file:
        made_by, kept = file.metadata(), {k: file.get_tensor(k) for k in file.keys()}
    assert made_by["command"] == "python tools/stages.py" and len(made_by["commit"]) == 40
    assert {t.dtype for t in kept.values()} == {torch.float16} and sum(t.numel() for t in kept.values()) > 2.7e6
    torch.manual_seed(0)
    found = EmbeddingModel(small(stem="imagenet", weights="glyphs")).backbone.state_dict()
    torch.manual_seed(0)
    plain = EmbeddingModel(small(stem="imagenet")).backbone.state_dict()
    for name, tensor in found.items():
        wanted = kept[name].float() if name in kept else plain[name]
        assert torch.equal(tensor, wanted), name
    assert any(name.startswith("layer4.") for name in found) and not any(k.startswith("layer4.") for k in kept)
    assert weights_hash(small(stem="imagenet", weights="glyphs")) == sha256(GLYPH_STAGES.read_bytes()).hexdigest()[:8]


@pytest.mark.parametrize("changes", [{"backbone": "resnet50"}, {"backbone": "timm/resnet18"}, {"stem": "small"}])
def test_the_stages_of_the_package_fit_one_network(changes):
    if changes["backbone" if "backbone" in changes else "stem"].startswith("timm"):
        pytest.importorskip("timm")
    with pytest.raises(ConfigError, match="model.weights|the weights 'glyphs'"):
        EmbeddingModel(small(**{"stem": "imagenet", "weights": "glyphs", **changes}))
