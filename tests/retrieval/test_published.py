"Networks in the layout of cnnimageretrieval-pytorch: made small here, read safely, and measured on a miniature."

import copy
import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from smoothap_nb.data.revisited_files import load_revisited
from smoothap_nb.data.revisited_miniature import write_miniature
from smoothap_nb.retrieval import published
from smoothap_nb.retrieval.official import compare_network
from smoothap_nb.retrieval.published import Printed, load_published


def checkpoint(seed=0, whiten=False, **meta):
    "A ResNet-18 as their training saves it."
    from torchvision.models import resnet18

    torch.manual_seed(seed)
    features = nn.Sequential(*list(resnet18(weights=None).children())[:-2])
    state = {f"features.{k}": v for k, v in features.state_dict().items()} | {"pool.p": torch.tensor([2.7])}
    if whiten:
        layer = nn.Linear(512, 512)
        state |= {"whiten.weight": layer.weight.detach(), "whiten.bias": layer.bias.detach()}
    about = {"architecture": "resnet18", "pooling": "gem", "local_whitening": False, "regional": False,
             "whitening": whiten, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "outputdim": 512}
    chance = np.random.default_rng(seed)
    learnt = {"m": chance.random((512, 1)), "P": chance.standard_normal((512, 512))}
    if not whiten:
        about["Lw"] = {"retrieval-SfM-120k": {"ss": learnt, "ms": learnt}}
    return {"meta": about | meta, "state_dict": state}, features.eval()


@pytest.mark.parametrize("whiten", [False, True])
def test_a_network_describes_as_its_own_code_would(tmp_path, whiten):
    content, features = checkpoint(whiten=whiten)
    torch.save(content, tmp_path / "net.pth")
    network = load_published(tmp_path / "net.pth")
    image = torch.rand(3, 70, 90)

    def one(view):
        mean, std = (torch.tensor(content["meta"][k])[:, None, None] for k in ("mean", "std"))
        o = features(((view - mean) / std)[None]).clamp(min=1e-6).pow(2.7).mean((2, 3)).pow(1 / 2.7)
        o = F.normalize(o, dim=1)
        if whiten:
            o = F.normalize(o @ content["state_dict"]["whiten.weight"].T + content["state_dict"]["whiten.bias"], dim=1)
        return o[0]

    with torch.no_grad():
        half = F.interpolate(image[None], size=(35, 45), mode="bilinear", align_corners=False)[0]
        power = 1.0 if whiten else 2.7
        both = ((one(image) ** power + one(half) ** power) / 2) ** (1 / power)
        assert torch.allclose(network.describe([image], (1.0,)), one(image)[None], atol=1e-5)
        assert torch.allclose(network.describe([image], (1.0, 0.5)), F.normalize(both, dim=0)[None], atol=1e-5)
    if not whiten:
        learnt = content["meta"]["Lw"]["retrieval-SfM-120k"]["ss"]
        wanted = learnt["P"] @ (one(image).detach().numpy()[:, None] - learnt["m"])
        found = network.describe([image], (1.0,), whitening="retrieval-SfM-120k")[0]
        assert np.allclose(found, wanted[:, 0] / np.linalg.norm(wanted), atol=1e-4)
        with pytest.raises(ValueError, match="retrieval-SfM-120k"):
            network.describe([image], whitening="another")


def test_spoc_is_the_average_of_theirs_at_length_one(tmp_path):
    content, features = checkpoint(pooling="spoc")
    content["state_dict"].pop("pool.p")
    torch.save(content, tmp_path / "net.pth")
    network, image = load_published(tmp_path / "net.pth"), torch.rand(3, 64, 80)
    with torch.no_grad():
        wanted = F.normalize(network.backbone(image[None]).mean((2, 3)), dim=1)
    assert torch.allclose(network.describe([image], (1.0,)), wanted, atol=1e-5)


class Burglar:
    def __reduce__(self):
        return os.system, ("touch burgled",)


def test_files_that_are_no_such_network(tmp_path):
    path, good = tmp_path / "net.pth", checkpoint()[0]
    with pytest.raises(FileNotFoundError, match="no network"):
        load_published(path)

    def refused(content, match):
        torch.save(content, path)
        with pytest.raises(ValueError, match=match):
            load_published(path)

    refused(good | {"meta": good["meta"] | {"note": Burglar()}}, "more than tensors")
    assert not os.path.exists("burgled")
    refused(good["state_dict"], "must hold meta and state_dict")
    refused({"meta": {"architecture": "resnet18"}, "state_dict": {}}, "says nothing of pooling, mean, std")
    for change, match in (({"architecture": "vit_b_16"}, "AlexNet, VGG and ResNet"), ({"regional": True}, "regional"),
                          ({"pooling": "mac"}, "one power"), ({"pooling": "softmax"}, "not built here")):
        refused({"meta": good["meta"] | change, "state_dict": good["state_dict"]}, match)
    fewer = copy.copy(good["state_dict"])
    fewer.pop("features.0.weight")
    refused({"meta": good["meta"], "state_dict": fewer}, "not those of resnet18")
    torch.save(good, path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ValueError, match="damaged"):
        load_published(path)


def test_a_network_is_compared_with_what_its_page_prints(tmp_path, monkeypatch):
    write_miniature(tmp_path, landmarks=4, others=6)
    data = load_revisited(tmp_path, "rglyphs")
    torch.save(checkpoint()[0], tmp_path / "try-resnet18.pth")
    network = load_published(tmp_path / "try-resnet18.pth")
    rows = compare_network(network, data, scales=(1.0,), side=64)
    assert [r["whitening"] for r in rows] == [None, "retrieval-SfM-120k"] and {r["agrees"] for r in rows} == {None}
    assert all(0 <= r["hard"] <= 100 and 0 <= r["medium"] <= 100 for r in rows)
    near = Printed(True, (rows[1]["medium"] + 0.2, rows[1]["hard"]), (0.0, 0.0))
    monkeypatch.setitem(published.PRINTED, "try", near)
    object.__setattr__(data, "name", "roxford5k")
    again = compare_network(network, data, scales=(1.0,), side=64)
    assert again[0]["agrees"] is None and again[1]["agrees"] is True and again[1]["printed"] == near.roxford5k
    monkeypatch.setitem(published.PRINTED, "try", near._replace(roxford5k=(99.0, 99.0)))
    assert compare_network(network, data, scales=(1.0,), side=64)[1]["agrees"] is False
