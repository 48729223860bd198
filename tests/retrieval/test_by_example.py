"""Query by example: any picture file, folders as they are, a cache that is never wrong, a sheet to look at."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from smoothap_nb.retrieval.by_example import search
from smoothap_nb.retrieval.fingerprints import model_fingerprint
from smoothap_nb.retrieval.folders import PictureError, embed_folder, list_images, open_picture
from smoothap_nb.retrieval.sheets import Result, contact_sheet


class Grid(nn.Module):
    "Mean colours of a 4 x 4 grid, of length 1; counts the pictures it has seen."

    def __init__(self, scale: float = 1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(scale))
        self.seen = 0

    def forward(self, images):
        self.seen += len(images)
        assert not self.training
        grid = nn.functional.adaptive_avg_pool2d(images, 4).flatten(1) * self.weight + 0.01
        return nn.functional.normalize(grid - grid.mean(1, keepdim=True) + 1e-3, dim=1)


class Resize:
    def __init__(self, size: int = 16):
        self.size = size

    def __call__(self, image):
        assert image.mode == "RGB"
        return torch.from_numpy(
            np.array(image.resize((self.size, self.size)), dtype=np.float32).transpose(2, 0, 1) / 255
        )

    def to_dict(self):
        return {"size": self.size}


def scene(seed: int, size=(60, 40)) -> Image.Image:
    "A smooth random colour field: different seeds are different scenes."
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


class Notes(list):
    def __call__(self, text):
        self.append(text)


@pytest.fixture
def gallery(tmp_path) -> Path:
    "Six scenes in six formats, in two folders."
    folder = tmp_path / "pictures"
    (folder / "deep" / "er").mkdir(parents=True)
    for seed, name in enumerate(["a.jpg", "b.png", "deep/c.webp", "deep/d.BMP", "deep/er/e.gif", "f.tiff"]):
        scene(seed).save(folder / name)
    (folder / "notes.txt").write_text("text")
    return folder


def look(image, folder, k=10, **keywords):
    keywords = {"progress": False, "notify": Notes()} | keywords
    return search(image, folder, keywords.pop("model", Grid()), keywords.pop("transform", Resize()), k, **keywords)


def names(results) -> list[str]:
    return [result.path.name for result in results]


# ---------------------------------------------------------------- which files


def test_list_images_goes_by_ending_in_all_folders(gallery):
    assert [p.relative_to(gallery).as_posix() for p in list_images(gallery)] == [
        "a.jpg",
        "b.png",
        "f.tiff",
        "deep/c.webp",
        "deep/d.BMP",
        "deep/er/e.gif",
    ]
    assert list_images(str(gallery)) == list_images(gallery)


def test_list_images_leaves_hidden_files_and_links_out_of_the_folder(gallery, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    scene(9).save(outside / "secret.jpg")
    (gallery / ".cache").mkdir()
    scene(9).save(gallery / ".cache" / "thumb.jpg")
    scene(9).save(gallery / "._a.jpg", format="JPEG")
    (gallery / "link.jpg").symlink_to(outside / "secret.jpg")
    (gallery / "linked").symlink_to(outside)
    (gallery / "dangling.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (gallery / "up").symlink_to(gallery.parent)  # a loop
    (gallery / "inside.jpg").symlink_to(gallery / "a.jpg")
    found = {p.name for p in list_images(gallery)}
    assert "inside.jpg" in found and not found & {"secret.jpg", "thumb.jpg", "._a.jpg", "link.jpg", "dangling.jpg"}


def test_list_images_refuses(tmp_path, gallery):
    with pytest.raises(FileNotFoundError, match="no folder"):
        list_images(tmp_path / "nowhere")
    with pytest.raises(NotADirectoryError, match="is a file: name the folder"):
        list_images(gallery / "a.jpg")
    (tmp_path / "empty").mkdir()
    assert list_images(tmp_path / "empty") == []


# ---------------------------------------------------------------- any picture

RED, WHITE = (200, 30, 30), (255, 255, 255)


# ---------------------------------------------------------------- a whole folder


def test_embed_folder(gallery):
    notes, model = Notes(), Grid().train()
    found = embed_folder(model, Resize(), gallery, progress=False, notify=notes)
    assert found.paths == list_images(gallery) and found.embeddings.shape == (6, 48) and not found.skipped and not notes
    torch.testing.assert_close(found.embeddings.norm(dim=1), torch.ones(6))
    assert model.training and found.embeddings.dtype == torch.float32 and not found.embeddings.requires_grad
    one = model.eval()(Resize()(open_picture(gallery / "b.png"))[None])[0]
    torch.testing.assert_close(found.embeddings[1], one)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 100])
def test_batches_change_nothing(gallery, batch_size):
    (gallery / "broken.png").touch()
    a = embed_folder(Grid(), Resize(), gallery, batch_size=batch_size, progress=False, notify=Notes())
    b = embed_folder(Grid(), Resize(), gallery, progress=False, notify=Notes())
    assert a.paths == b.paths
    torch.testing.assert_close(a.embeddings, b.embeddings)


def test_broken_pictures_are_named_skipped_and_counted(gallery):
    (gallery / "empty.jpg").touch()
    (gallery / "deep" / "note.png").write_text("text")
    data = (gallery / "a.jpg").read_bytes()
    (gallery / "half.jpg").write_bytes(data[: len(data) // 2])
    notes = Notes()
    found = embed_folder(Grid(), Resize(), gallery, progress=False, notify=notes)
    assert len(found.paths) == 6 and {p.name for p in found.skipped} == {"empty.jpg", "note.png", "half.jpg"}
    assert notes[-1] == "3 of 9 pictures skipped" and len(notes) == 4
    assert all(
        any(name in note for note in notes)
        for name in (
            "empty.jpg cannot be read: the file is empty",
            "note.png cannot be read: no picture",
            "half.jpg cannot be read: damaged",
        )
    )


def test_a_picture_that_vanishes_is_skipped(gallery, monkeypatch):
    real = Path.stat

    def stat(self, **keywords):
        if self.name == "b.png" and keywords.get("follow_symlinks", True):
            raise FileNotFoundError(self)
        return real(self, **keywords)

    monkeypatch.setattr(Path, "stat", stat)
    notes = Notes()
    found = embed_folder(Grid(), Resize(), gallery, progress=False, notify=notes)
    assert len(found.paths) == 5 and "b.png vanished" in notes[0]


def test_a_transform_may_keep_sizes(gallery):
    scene(7, size=(30, 30)).save(gallery / "square.png")
    keep = lambda image: torch.from_numpy(np.array(image, dtype=np.float32).transpose(2, 0, 1) / 255)  # noqa: E731
    assert embed_folder(Grid(), keep, gallery, progress=False, notify=Notes()).embeddings.shape == (7, 48)


class NoNumber(nn.Module):
    def forward(self, images):
        return torch.full((len(images), 3), float("nan"))


class Flat(nn.Module):
    def forward(self, images):
        return images.mean((1, 2, 3))


def test_embed_folder_refuses(gallery, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no picture"):
        embed_folder(Grid(), Resize(), tmp_path / "empty")
    (tmp_path / "empty" / "x.jpg").touch()
    with pytest.raises(ValueError, match="none of the 1 pictures"):
        embed_folder(Grid(), Resize(), tmp_path / "empty", progress=False, notify=Notes())
    with pytest.raises(ValueError, match="batch_size must be"):
        embed_folder(Grid(), Resize(), gallery, batch_size=0)
    with pytest.raises(ValueError, match="NaN or infinity for .*a.jpg"):
        embed_folder(NoNumber(), Resize(), gallery, progress=False)
    with pytest.raises(ValueError, match=r"one embedding per picture, \(N, D\)"):
        embed_folder(Flat(), Resize(), gallery, progress=False)


# ---------------------------------------------------------------- the cache


def embed(model, gallery, cache, transform=None, notes=None, **keywords):
    before = model.seen
    found = embed_folder(
        model,
        transform or Resize(),
        gallery,
        cache=cache,
        progress=False,
        notify=Notes() if notes is None else notes,
        **keywords,
    )
    return model.seen - before, found


def test_the_cache_embeds_only_what_is_new(gallery, tmp_path):
    model, cache = Grid(), tmp_path / "cache"
    first, found = embed(model, gallery, cache)
    again, same = embed(model, gallery, cache)
    assert (first, again) == (6, 0) and same.paths == found.paths and torch.equal(same.embeddings, found.embeddings)
    scene(20).save(gallery / "new.png")
    scene(21, size=(70, 50)).save(gallery / "a.jpg")
    (gallery / "b.png").unlink()
    count, changed = embed(model, gallery, cache)
    plain = embed_folder(Grid(), Resize(), gallery, progress=False)
    assert count == 2 and changed.paths == plain.paths
    torch.testing.assert_close(changed.embeddings, plain.embeddings)
    assert [p.suffix for p in cache.iterdir()] == [".safetensors"]


def test_the_cache_knows_the_network_and_the_transform(gallery, tmp_path):
    cache = tmp_path / "cache"
    embed(Grid(), gallery, cache)
    assert (
        embed(Grid(2.0), gallery, cache)[0] == 6
        and embed(Grid(), gallery, cache, Resize(8))[0] == 6
        and embed(Grid(), gallery, cache)[0] == 0
    )
    assert (
        embed(Grid(3.0), gallery, cache, fingerprint="mine")[0] == 6
        and embed(Grid(4.0), gallery, cache, fingerprint="mine")[0] == 0
    )
    assert embed(Grid(), gallery / "deep", cache)[0] == 3


def test_two_folders_do_not_share_a_cache(gallery, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    os.link(gallery / "a.jpg", other / "b.png")
    cache = tmp_path / "cache"
    embed(Grid(), gallery, cache)
    assert embed(Grid(), other, cache)[0] == 1


@pytest.mark.parametrize("damage", [b"", b"junk", None])
def test_a_damaged_cache_is_made_anew(gallery, tmp_path, damage):
    cache, notes = tmp_path / "cache", Notes()
    embed(Grid(), gallery, cache)
    (file,) = cache.iterdir()
    file.write_bytes(file.read_bytes()[:-40] if damage is None else damage)
    count, found = embed(Grid(), gallery, cache, notes=notes)
    assert count == 6 and "cannot be used" in notes[0] and embed(Grid(), gallery, cache)[0] == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda rows, keys: (rows[:-1], keys),
        lambda rows, keys: (rows, keys[1:]),
        lambda rows, keys: (rows[:, 0], keys),
        lambda rows, keys: (rows.double(), keys),
        lambda rows, keys: (rows.index_fill(0, torch.tensor([2]), float("nan")), keys),
    ],
    ids=["a row short", "a key short", "no rows", "another dtype", "NaN"],
)
def test_a_cache_whose_parts_do_not_fit_is_made_anew(gallery, tmp_path, change):
    "A whole file with wrong contents: rows must never be taken for those of other pictures."
    cache, notes = tmp_path / "cache", Notes()
    _, wanted = embed(Grid(), gallery, cache)
    (file,) = cache.iterdir()
    with safe_open(file, framework="pt") as stored:
        rows, keys = stored.get_tensor("embeddings"), json.loads(stored.metadata()["pictures"])
    rows, keys = change(rows, keys)
    save_file({"embeddings": rows.contiguous()}, file, {"pictures": json.dumps(keys)})
    count, found = embed(Grid(), gallery, cache, notes=notes)
    assert count == 6 and "its parts do not fit together" in notes[0]
    assert found.paths == wanted.paths and torch.equal(found.embeddings, wanted.embeddings)


def test_a_cache_that_cannot_be_written_costs_nothing_else(gallery, tmp_path):
    (tmp_path / "file").write_text("in the way")
    notes = Notes()
    count, found = embed(Grid(), gallery, tmp_path / "file", notes=notes)
    assert count == 6 and len(found.paths) == 6 and "could not be kept" in notes[-1]


def test_a_full_disk_leaves_the_old_cache(gallery, tmp_path, monkeypatch):
    import smoothap_nb.retrieval.folders as module

    cache = tmp_path / "cache"
    embed(Grid(), gallery, cache)
    before = {p: p.read_bytes() for p in cache.iterdir()}
    scene(30).save(gallery / "new.png")

    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_atomic", full)
    notes = Notes()
    embed(Grid(), gallery, cache, notes=notes)
    assert "No space left" in notes[-1] and {p: p.read_bytes() for p in cache.iterdir()} == before


def test_an_interruption_keeps_what_was_embedded(gallery, tmp_path):
    class Stops(Grid):
        def forward(self, images):
            if self.seen >= 4:
                raise KeyboardInterrupt
            return super().forward(images)

    with pytest.raises(KeyboardInterrupt):
        embed(Stops(), gallery, tmp_path / "cache", fingerprint="run", batch_size=2)
    assert embed(Grid(), gallery, tmp_path / "cache", fingerprint="run")[0] == 2


def test_fingerprints(gallery, tmp_path):
    assert model_fingerprint(Grid(), Resize()) == model_fingerprint(Grid(), Resize())
    assert (
        len(
            {
                model_fingerprint(Grid(), Resize()),
                model_fingerprint(Grid(2.0), Resize()),
                model_fingerprint(Grid(), Resize(8)),
            }
        )
        == 3
    )
    half = Grid().to(torch.bfloat16)
    assert model_fingerprint(half, Resize()) != model_fingerprint(Grid(), Resize())
    assert model_fingerprint(Grid(), lambda image: image) is None
    notes = Notes()
    count, _ = embed(Grid(), gallery, tmp_path / "cache", transform=lambda image: Resize()(image), notes=notes)
    assert count == 6 and "no to_dict()" in notes[0] and not (tmp_path / "cache").exists()


# ---------------------------------------------------------------- the search


def test_search_finds_the_scene_in_every_format(gallery):
    for seed, name in enumerate(["a.jpg", "b.png", "c.webp", "d.BMP", "e.gif", "f.tiff"]):
        results = look(scene(seed, size=(80, 60)), gallery, k=3)
        assert names(results)[0] == name and len(results) == 3
        assert all(isinstance(r, Result) and -1 <= r.score <= 1 for r in results)
        assert [r.score for r in results] == sorted([r.score for r in results], reverse=True)


def test_the_query_is_left_out_of_its_own_folder(gallery):
    assert "a.jpg" not in names(look(gallery / "a.jpg", gallery))
    assert names(look(str(gallery / "deep" / ".." / "a.jpg"), gallery, include_query=True))[0] == "a.jpg"
    (gallery.parent / "copy.jpg").write_bytes((gallery / "a.jpg").read_bytes())  # a file elsewhere is not the query
    assert names(look(gallery.parent / "copy.jpg", gallery))[0] == "a.jpg"


def test_a_query_by_another_name_is_left_out_all_the_same(gallery, monkeypatch):
    "A relative path, a path through a folder's parent, a link to the picture or to the folder: one file."
    monkeypatch.chdir(gallery.parent)
    (gallery.parent / "link.jpg").symlink_to(gallery / "a.jpg")
    (gallery.parent / "album").symlink_to(gallery, target_is_directory=True)
    for query, folder in (
        ("pictures/a.jpg", gallery),
        (gallery / "a.jpg", "pictures"),
        ("pictures/deep/../a.jpg", "pictures"),
        ("link.jpg", gallery),
        ("pictures/a.jpg", "album"),
        ("album/a.jpg", "pictures"),
    ):
        found = names(look(query, folder))
        assert len(found) == 5 and "a.jpg" not in found, (query, folder)


def test_equal_scores_come_in_the_order_of_paths(tmp_path):
    for name in ("c.png", "a.png", "b.png"):
        scene(1).save(tmp_path / name)
    assert names(look(scene(1), tmp_path)) == ["a.png", "b.png", "c.png"]


def test_k_larger_than_the_folder_gives_all_and_says_so(gallery):
    notes = Notes()
    assert len(look(scene(0), gallery, k=50, notify=notes)) == 6 and notes == [
        "k is 50, the folder holds 6 pictures: all are returned"
    ]
    notes = Notes()
    assert len(look(gallery / "a.jpg", gallery, k=6, notify=notes)) == 5 and notes == [
        "k is 6, the folder holds 5 other pictures: all are returned"
    ]


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3"])
def test_k_must_be_a_count(gallery, k):
    with pytest.raises(ValueError, match="k must be a whole number from 1 on"):
        look(scene(0), gallery, k=k)


def test_search_refuses(gallery, tmp_path):
    with pytest.raises(FileNotFoundError, match="no picture"):
        look(tmp_path / "nowhere.jpg", gallery)
    with pytest.raises(PictureError, match="notes.txt cannot be read: no picture"):
        look(gallery / "notes.txt", gallery)
    with pytest.raises(PictureError, match="it is a folder"):
        look(gallery, gallery)
    with pytest.raises(TypeError, match="path or a PIL image"):
        look(np.zeros((4, 4)), gallery)
    with pytest.raises(NotADirectoryError):
        look(scene(0), gallery / "a.jpg")
    (tmp_path / "alone").mkdir()
    scene(0).save(tmp_path / "alone" / "x.png")
    with pytest.raises(ValueError, match="no picture but the query itself"):
        look(tmp_path / "alone" / "x.png", tmp_path / "alone")


def test_notices_go_to_stderr(gallery, capsys):
    (gallery / "empty.jpg").touch()
    search(scene(0), gallery, Grid(), Resize(), k=1, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "skipped: " in err and "1 of 7 pictures skipped" in err and "embedding" in err


@pytest.mark.cuda
def test_search_on_a_gpu(gallery):
    a, b = look(scene(0), gallery, model=Grid().cuda()), look(scene(0), gallery)
    assert names(a) == names(b) and [r.score for r in a] == pytest.approx([r.score for r in b], abs=1e-5)


def test_photographs_and_drawings(tmp_path):
    """The pictures that scikit-learn and matplotlib bring along, and drawings, in several formats: versions of one
    picture find each other."""
    import matplotlib.cbook
    from sklearn.datasets import load_sample_images

    pictures = dict(zip(("china", "flower"), map(Image.fromarray, load_sample_images().images)))
    with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as file:
        pictures["hopper"] = Image.open(file).convert("RGB")
    for name, turn in (("house", 0), ("star", 36)):
        pictures[name] = Image.new("RGB", (120, 120), "white")
        pen = ImageDraw.Draw(pictures[name])
        pen.regular_polygon((60, 60, 50), 4 if name == "house" else 3, turn, outline="navy", width=9)
    for name, picture in pictures.items():
        small = picture.resize((90, 90))
        for form in ("png", "webp", "gif", "bmp"):
            small.save(tmp_path / f"{name}.{form}")
    for name, picture in pictures.items():
        assert {p.stem for p in [r.path for r in look(picture, tmp_path, k=4)]} == {name}


# ---------------------------------------------------------------- contact sheets


def test_contact_sheet(gallery, tmp_path):
    results = look(gallery / "a.jpg", gallery, k=4)
    path = contact_sheet(gallery / "a.jpg", results, tmp_path / "new" / "sheet.png")
    with Image.open(path) as sheet:
        assert sheet.format == "PNG" and sheet.size[0] > 300
        pixels = np.asarray(sheet.convert("RGB")).reshape(-1, 3)
    for colour in ((0, 0, 0), (0x77, 0x77, 0x77)):  # the query's frame and neutral ones
        assert (pixels == colour).all(1).sum() > 100
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):  # nobody said what is right
        assert not (pixels == colour).all(1).any()
    assert [p.name for p in path.parent.iterdir()] == ["sheet.png"]
    assert contact_sheet(scene(0), results, tmp_path / "other.png", columns=2).exists()


def test_a_contact_sheet_is_not_a_picture_of_the_folder(gallery):
    results = look(scene(0), gallery, k=3)
    contact_sheet(scene(0), results, gallery / "search.png")
    notes = Notes()
    assert look(scene(0), gallery, k=3, notify=notes) == results and "contact sheet of an earlier search" in notes[0]


def test_odd_file_names_are_shown(gallery):
    odd = gallery / "$x_1$ {\\alpha} 絵 & a very long name that goes on and on.png"
    scene(0).save(odd)
    assert contact_sheet(scene(0), [Result(odd, 1.0)], gallery / "sheet.png").exists()


def test_a_result_that_is_gone_leaves_a_gap(gallery):
    results = look(scene(0), gallery, k=2)
    results[0].path.unlink()
    assert contact_sheet(scene(0), results, gallery / "sheet.png").exists()


def test_contact_sheet_refuses(gallery):
    results = look(gallery / "b.png", gallery, k=2)
    before = {p: p.read_bytes() for p in list_images(gallery)}
    with pytest.raises(ValueError, match="must end in .png"):
        contact_sheet(scene(0), results, gallery / "sheet.jpg")
    with pytest.raises(ValueError, match="is there already and is no contact sheet"):
        contact_sheet(gallery / "b.png", results, gallery / "b.png")
    with pytest.raises(ValueError, match="is there already and is no contact sheet"):
        contact_sheet(scene(0), [Result(gallery / "b.png", 0.5)], gallery / "deep" / ".." / "b.png")
    with pytest.raises(ValueError, match="is no contact sheet"):  # a photograph that is not among the answers
        contact_sheet(scene(0), results[:1], next(p for p in before if p.suffix == ".png" and p != results[0].path))
    with pytest.raises(ValueError, match="no results"):
        contact_sheet(scene(0), [], gallery / "sheet.png")
    with pytest.raises(ValueError, match="columns must be"):
        contact_sheet(scene(0), results, gallery / "sheet.png", columns=0)
    assert {p: p.read_bytes() for p in list_images(gallery)} == before
