"Two towers: shapes, padding, saving and loading, a vocabulary of another run, encoders that are not there."

import json

import pytest
import torch

from smoothap_nb.data.captions import Vocabulary
from smoothap_nb.train.text import (
    FILE,
    PretrainedTextTower,
    SmallPictureTower,
    TextTower,
    TowerConfig,
    TowersError,
    TwoTowers,
    load_towers,
    save_towers,
)

WORDS = Vocabulary(("latin", "small", "letter", "a", "b"))
TINY = TowerConfig(dim=8, width=4, size=16, word_dim=6, hidden=10)


def towers(seed=0):
    torch.manual_seed(seed)
    return TwoTowers(WORDS, TINY).eval()


def test_both_sides_give_unit_rows():
    model = towers()
    images, texts = model.embed_images(torch.rand(3, 1, 16, 16)), model.embed_texts(["latin small letter a", "b"])
    assert images.shape == (3, 8) and texts.shape == (2, 8)
    for rows in (images, texts):
        torch.testing.assert_close(rows.norm(dim=1), torch.ones(len(rows)))


def test_padding_changes_nothing():
    model = towers()
    alone, beside = model.embed_texts(["a b"]), model.embed_texts(["a b", "latin small letter a b"])
    torch.testing.assert_close(alone[0], beside[0])
    assert not torch.allclose(model.embed_texts(["a b"]), model.embed_texts(["b a"]))  # a GRU hears the order


def test_gradients_reach_both_towers_and_leave_padding_alone():
    model = towers().train()
    (
        model.embed_images(torch.rand(4, 1, 16, 16)) @ model.embed_texts(["latin a", "small letter b", "a", "b"]).T
    ).sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    assert not model.text.words.weight.grad[0].any()


def test_a_run_comes_back_as_it_was(tmp_path):
    model = towers()
    save_towers(model, tmp_path / "run", {"training": {"seed": 0}})
    again = load_towers(tmp_path / "run")
    image = torch.rand(2, 1, 16, 16)
    assert (
        torch.equal(again.embed_images(image), model.embed_images(image))
        and again.vocabulary == model.vocabulary
        and not again.training
    )
    assert json.loads((tmp_path / "run" / FILE).read_text())["training"] == {"seed": 0}


def test_a_vocabulary_of_another_run_is_refused(tmp_path):
    save_towers(towers(), tmp_path / "one")
    path = tmp_path / "one" / FILE
    facts = json.loads(path.read_text())
    facts["vocabulary"]["words"].reverse()
    path.write_text(json.dumps(facts))
    with pytest.raises(TowersError, match="every word would mean another one"):
        load_towers(tmp_path / "one")


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(TowersError, match="holds no pictures-and-words run"):
        load_towers(tmp_path)
    save_towers(towers(), tmp_path / "cut")
    (tmp_path / "cut" / "model.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(TowersError, match="damaged or incomplete"):
        load_towers(tmp_path / "cut")
    save_towers(towers(), tmp_path / "other")
    facts = json.loads((tmp_path / "other" / FILE).read_text())
    facts["towers"]["hidden"] = 12
    (tmp_path / "other" / FILE).write_text(json.dumps(facts))
    with pytest.raises(TowersError, match="do not fit its settings"):
        load_towers(tmp_path / "other")


def test_settings_and_texts_that_do_not_fit():
    with pytest.raises(ValueError, match="dim must be a whole number"):
        TwoTowers(WORDS, TowerConfig(dim=0))
    with pytest.raises(ValueError, match="multiples of 8"):
        SmallPictureTower(size=20)
    with pytest.raises(ValueError, match="no word of the caption"):
        towers().embed_texts(["greek"])


def test_a_backbone_of_lesson_13_takes_the_place_of_the_small_tower():
    model = TwoTowers(WORDS, TowerConfig(dim=8, backbone="resnet18", frozen=True, word_dim=6, hidden=10)).train()
    assert model.embed_images(torch.rand(2, 3, 64, 64)).shape == (2, 8)
    assert [name for name, p in model.picture.named_parameters() if p.requires_grad] == ["head.weight", "head.bias"]
    assert isinstance(model.text, TextTower)


def test_a_pretrained_encoder_is_asked_for_by_folder(tmp_path, monkeypatch):
    "transformers itself is not installed here: a stand-in shows what is asked of it, and what happens without it."
    import sys
    import types

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"smoothap_nb\[text\]"):
        PretrainedTextTower(tmp_path)
    asked = {}

    class Tokens(dict):
        def to(self, device):
            return self

    class Encoder(torch.nn.Module):
        config = types.SimpleNamespace(hidden_size=3)

        def forward(self, input_ids, attention_mask):
            return types.SimpleNamespace(
                last_hidden_state=input_ids[..., None].float() * torch.tensor([1.0, 2.0, -1.0])
            )

    def tokenizer(folder, **options):
        asked["tokenizer"] = options
        return lambda captions, **_: Tokens(
            input_ids=torch.tensor([[1, 2], [3, 99]]), attention_mask=torch.tensor([[1, 1], [1, 0]])
        )

    def encoder(folder, **options):
        asked["model"] = options
        return Encoder()

    fake = types.SimpleNamespace(
        AutoTokenizer=types.SimpleNamespace(from_pretrained=tokenizer),
        AutoModel=types.SimpleNamespace(from_pretrained=encoder),
    )
    monkeypatch.setitem(sys.modules, "transformers", fake)
    with pytest.raises(FileNotFoundError, match="no folder"):
        PretrainedTextTower(tmp_path / "nowhere")
    tower = PretrainedTextTower(tmp_path, dim=5)
    rows = tower(["a", "b"])
    assert (
        all(options["local_files_only"] and not options["trust_remote_code"] for options in asked.values())
        and asked["model"]["use_safetensors"]
    )
    mean = torch.tensor([[1.5, 3.0, -1.5], [3.0, 6.0, -3.0]])  # the padded token of the second text stays out
    torch.testing.assert_close(rows, torch.nn.functional.normalize(tower.head(mean), dim=1))
