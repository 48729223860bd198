"The official sets' plumbing on miniatures: features on disk, indexes in shards, codebooks kept, hours estimated."

import json

import numpy as np
import pytest
import torch
from test_local_features import facade, made_up

from smoothap_nb import ASMKIndex, Codebook
from smoothap_nb.data.revisited_files import ImageList, Revisited
from smoothap_nb.images import open_rgb
from smoothap_nb.retrieval import official
from smoothap_nb.retrieval.features import StoredFeatures, features_of, local_features


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    from PIL import Image

    folder = tmp_path_factory.mktemp("album")
    for i in range(7):
        Image.fromarray(facade(i)).save(folder / f"{i}.png")
    return ImageList(folder, [f"{i}.png" for i in range(7)])


def test_stored_features_are_read_one_by_one(album, tmp_path):
    stored = StoredFeatures(list(album), cache=tmp_path, shard=3)
    assert len(stored) == 7 and len(list(tmp_path.iterdir())) == 3
    for found, path in zip(stored, album):
        wanted = local_features(path)
        for part in ("descriptors", "points", "scales"):
            assert np.array_equal(getattr(found, part), getattr(wanted, part))
        assert found.size == wanted.size
    before = {p: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    StoredFeatures(list(album), cache=tmp_path, shard=3)
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    with pytest.raises(IndexError):
        stored[7]
    with pytest.raises(ValueError, match="give cache"):
        StoredFeatures(list(album))


def test_a_box_is_reduced_by_its_picture_s_factor(album):
    whole, part = features_of([album[0], (album[0], (40, 30, 140, 130))], side=100)
    with open_rgb(album[0]) as picture:
        assert max(picture.size) == 200
    assert max(whole.size) == 100 and part.size == (50, 50)


def test_shards_score_as_one_index(tmp_path):
    pictures = [made_up(n, seed) for seed, n in enumerate((40, 25, 60, 3, 33))]
    book = Codebook.learn(pictures, 12, seed=1)
    wanted = ASMKIndex(book).add(pictures).search(pictures[:2])
    assert torch.equal(official.sharded_scores(book, pictures[:2], pictures, tmp_path, shard=2), wanted)
    assert len(list(tmp_path.iterdir())) == 3
    assert torch.equal(official.sharded_scores(book, pictures[:2], pictures, tmp_path, shard=2), wanted)  # from files


def test_what_cannot_be_ranked_is_named(tmp_path):
    book, path = Codebook(np.eye(128)[:16]), tmp_path / "book.safetensors"
    with pytest.raises(ValueError, match="gallery is empty"):
        official.sharded_scores(book, [made_up(9, 0)], [], tmp_path)
    path.write_bytes(b"no codebook")
    with pytest.raises(ValueError, match="damaged or is no codebook"):
        official.kept_codebook(path, [])
    path.unlink()
    with pytest.raises(ValueError, match="take a smaller codebook"):
        official.kept_codebook(path, [], 16)


def test_a_set_is_ranked_from_the_disk(album, tmp_path):
    truth = [{"easy": [0], "hard": [], "junk": [], "bbx": [0, 0, 200, 160]}]
    data = Revisited("tiny", ImageList(album.folder, album.names[:5]), ImageList(album.folder, album.names[:1]), truth)
    book = official.kept_codebook(tmp_path / "book.safetensors", album, words=16, sample=10)
    again = official.kept_codebook(tmp_path / "book.safetensors", [], words=16)
    assert again.fingerprint == book.fingerprint and len(book) == 16
    with pytest.raises(ValueError, match="holds 16 words"):
        official.kept_codebook(tmp_path / "book.safetensors", [], words=32)
    result = official.rank_local(data, book, tmp_path, album[5:])
    assert set(result) == {"rSIFT-ASMK*", "rSIFT-ASMK* + SP"}
    assert all(row["easy"]["mAP"] == 1 for row in result.values())


def test_hours_follow_from_a_trial(album):
    found = official.expected_hours(list(album)[:2], words=64)
    each, hours = found["seconds"], found["hours"]
    assert hours["revisitop1m"]["words"] == pytest.approx(each["words"] * 1_001_001 / 3600)
    assert hours["roxford5k"]["features"] < hours["rparis6k"]["features"] < hours["revisitop1m"]["features"]
    assert found["gigabytes"]["revisitop1m"]["index"] > 0 and "network" not in each


def test_the_command(album, tmp_path, capsys):
    from smoothap_nb.data.revisited_miniature import write_miniature

    write_miniature(tmp_path, landmarks=2, others=2)
    official.main(["hours", "--root", str(tmp_path), "--set", "rglyphs", "--pictures", "1", "--words", "8",
                   "--out", str(tmp_path / "hours.json")])
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "hours.json").read_text())
    with pytest.raises(SystemExit):
        official.main(["network", "--root", str(tmp_path), "--set", "rglyphs"])
    with pytest.raises(SystemExit):
        official.main(["local", "--root", str(tmp_path), "--set", "rglyphs", "--words-of", "rglyphs"])
