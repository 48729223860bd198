"""Glyphs: the embedded data set, its tree, its split, its distortion and its cache."""

import errno
import os
import shutil
import subprocess
import sys
import threading
import unicodedata
import warnings
from pathlib import Path
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothap_nb import Glyphs, glyph_statistics
from smoothap_nb import files
from smoothap_nb.data import distortion, glyph_store
from smoothap_nb.data.distortion import distort, distortion_keys
from smoothap_nb.data.drawing import (
    FACES,
    SPLITS,
    cut_name,
    draw_character,
    drawable,
    font_file,
    lookalikes,
    name_tree,
    select_characters,
    shrink,
    split_of,
)
from smoothap_nb.data.glyph_store import GlyphStore, glyph_key, load_glyphs, read_glyphs, write_glyphs
from smoothap_nb.files import data_root


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    "A cache for these tests: a copy of the user's, which carries the key of the code that drew it."
    folder = tmp_path_factory.mktemp("glyphs")
    load_glyphs(32)
    if (drawn := data_root() / "glyphs-32.safetensors").exists():  # else the tests draw their own
        shutil.copy(drawn, folder)
    load_glyphs(32, folder)
    return folder


@pytest.fixture(scope="session")
def store(root):
    return load_glyphs(32, root)


@pytest.fixture(scope="session")
def splits(root):
    return {split: Glyphs(split, root=root) for split in SPLITS}


@pytest.fixture(scope="session")
def few(store):
    "The first 600 pictures of the store: quick to write and read."
    return GlyphStore(store.images[:600].clone(), store.character[:600].clone(), store.face[:600].clone(), store.table)


@pytest.fixture
def no_drawing(monkeypatch, few):
    "Drawing is replaced by a few pictures drawn already; the list counts how often."
    calls = []

    def fake(size=32, progress=True):
        calls.append(size)
        return few

    monkeypatch.setattr(glyph_store, "build_glyphs", fake)
    monkeypatch.setattr(glyph_store, "_IN_MEMORY", {})
    return calls


# the classes


def test_shapes_and_types(splits):
    data = splits["train"]
    n = len(data)
    assert data.images.shape == (n, 32, 32) and data.images.dtype == torch.uint8
    assert data.labels.shape == (n, 3) and data.labels.dtype == torch.int64
    assert len(data.captions) == len(data.characters) == len(data.faces) == n
    assert data.level_names == ("group", "family", "character")
    image, labels = data[5]
    assert image.shape == (1, 32, 32) and image.dtype == torch.float32 and 0 <= image.min() and image.max() <= 1
    assert torch.equal(labels, data.labels[5])
    assert torch.equal(data[-1][0], data[n - 1][0])


def test_every_class_has_four_images_and_no_face_twice(splits):
    counts = Counter(splits["all"].labels[:, 2].tolist())
    assert min(counts.values()) >= 4 and max(counts.values()) <= len(FACES)
    pairs = Counter(zip(splits["all"].characters, splits["all"].faces))
    assert max(pairs.values()) == 1
    assert splits["all"].identity.unique().numel() == len(splits["all"])


def test_size_is_near_the_plan(splits):
    "About five thousand classes, eight or nine images each; a change of the rules shows here."
    statistics = glyph_statistics(splits["all"])
    assert 4500 < statistics["classes"] < 5500
    assert 7.5 < statistics["images_per_class"] < 9.5


def test_no_two_classes_look_alike_in_a_face(splits):
    data = splits["all"]
    faces = np.array(data.faces)
    for face in FACES:
        pictures = data.images[torch.from_numpy(np.flatnonzero(faces == face))]
        assert len(pictures.flatten(1).unique(dim=0)) == len(pictures)
        assert not lookalikes(pictures, 4.0), face


def test_no_picture_is_the_empty_box(splits):
    from PIL import ImageFont

    data, faces = splits["all"], np.array(splits["all"].faces)
    for face in FACES:
        font = ImageFont.truetype(str(font_file(face)), 96, layout_engine=ImageFont.Layout.BASIC)
        box = draw_character("\U0010ffff", font)
        if box is None:
            continue
        box = shrink(torch.from_numpy(box)[None], 32)[0]
        pictures = data.images[torch.from_numpy(np.flatnonzero(faces == face))]
        assert not (pictures == box).flatten(1).all(1).any()


def test_characters_come_from_the_character_map(splits):
    data = splits["all"]
    for face in ("DejaVu Sans Mono", "STIX Italic"):
        has = set(drawable(face))
        assert all(ord(c) in has for c, f in zip(data.characters, data.faces) if f == face)


def test_every_picture_has_ink(splits):
    assert (splits["all"].images.flatten(1).amax(1) > 60).all()


# the tree


def test_labels_nest_and_captions_fit(splits):
    data = splits["all"]
    parents = defaultdict(set)
    for group, family, character in data.labels.unique(dim=0).tolist():
        parents["family", family].add(group)
        parents["character", character].add((group, family))
    assert all(len(above) == 1 for above in parents.values())
    for i in range(0, len(data), 997):
        group, family, character = data.labels[i].tolist()
        assert data.captions[i] == data.character_names[character] == unicodedata.name(data.characters[i])
        if data.group_names[group] != "OTHER":
            assert data.captions[i].split()[0] == data.group_names[group]
        if data.family_names[family] != "OTHER":
            assert cut_name(data.captions[i]).startswith(data.family_names[family])


def test_ids_are_dense_and_shared_by_the_splits(splits):
    data = splits["all"]
    for level, names in enumerate((data.group_names, data.family_names, data.character_names)):
        assert data.labels[:, level].unique().tolist() == list(range(len(names)))
        assert len(set(names)) == len(names)
    ids = dict(zip(data.identity.tolist(), data.labels.tolist()))
    for split in ("train", "val", "test"):
        assert all(ids[i] == row for i, row in zip(splits[split].identity.tolist(), splits[split].labels.tolist()))


@pytest.mark.parametrize("split", SPLITS)
def test_no_level_is_degenerate(splits, split):
    statistics = glyph_statistics(splits[split])
    assert 20 <= statistics["group"] < statistics["family"] / 3
    assert statistics["family"] < statistics["character"] / 2


def test_groups_and_families_have_members(splits):
    data = splits["all"]
    characters = data.labels.unique(dim=0)
    groups, families = Counter(characters[:, 0].tolist()), Counter(characters[:, 1].tolist())
    assert all(size >= 20 for size in groups.values())
    assert np.median(list(families.values())) >= 4
    small = [data.family_names[f] for f, size in families.items() if size < 4]
    assert set(small) <= set(data.group_names), "only what a group has left over may be a small family"


def test_cut_name():
    assert cut_name("LATIN SMALL LETTER A WITH ACUTE") == "LATIN SMALL LETTER A"
    assert cut_name("ARABIC LETTER ALEF WITH HAMZA ABOVE FINAL FORM") == "ARABIC LETTER ALEF"
    assert cut_name("ARABIC LETTER BEH MEDIAL FORM") == "ARABIC LETTER BEH"
    assert cut_name("SNOWMAN") == "SNOWMAN"


def test_name_tree_by_hand():
    names = [
        "LATIN SMALL LETTER A",
        "LATIN SMALL LETTER A WITH ACUTE",
        "LATIN SMALL LETTER E",
        "LATIN SMALL LETTER O",
        "SNOWMAN",
    ]
    groups, families = name_tree(names, least_group=4, least_family=2)
    assert groups == ["LATIN"] * 4 + ["OTHER"]
    assert families == ["LATIN SMALL LETTER A"] * 2 + ["LATIN SMALL LETTER"] * 2 + ["OTHER"]
    assert name_tree([]) == ([], [])


# the choice of characters


def test_select_characters():
    kept, counts = select_characters({1: 4, 2: 4, 3: 3, 4: 9, 5: 4}, {1: {2}, 2: {1, 5}, 3: {4}, 4: {3}, 5: {2}})
    assert kept == [1, 4, 5]  # 2 looks like 1; 3 is rare, so 4 stays; 5 looks like 2 only, which left
    assert counts == {"drawn": 5, "in fewer than four faces": 1, "look-alikes": 1}


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), tolerance=st.sampled_from([0.0, 1.0, 4.0, 20.0]))
def test_lookalikes_is_every_pair_against_the_definition(seed, tolerance):
    rng = np.random.default_rng(seed)
    bases = rng.integers(0, 256, (3, 8, 8))
    pictures = np.clip(
        bases[rng.integers(0, 3, 12)] + rng.normal(0, rng.choice([0, 1, 4, 15], (12, 1, 1)), (12, 8, 8)), 0, 255
    ).astype(np.uint8)
    gaps = ((pictures[:, None].astype(int) - pictures[None].astype(int)) ** 2).mean((2, 3))
    expected = [(i, j) for i in range(12) for j in range(i + 1, 12) if gaps[i, j] <= tolerance**2]
    assert lookalikes(torch.from_numpy(pictures), tolerance) == expected


def test_the_well_known_twins_are_one_class(splits):
    characters = set(splits["all"].characters)
    assert "A" in characters and not characters & {"\N{GREEK CAPITAL LETTER ALPHA}", "\N{CYRILLIC CAPITAL LETTER A}"}


# the splits


def test_open_set(splits):
    characters = {name: set(splits[name].characters) for name in ("train", "val", "test")}
    assert not characters["train"] & characters["test"]
    assert not characters["train"] & characters["val"]
    assert not characters["val"] & characters["test"]
    assert set.union(*characters.values()) == set(splits["all"].characters)
    share = {name: len(found) / len(set(splits["all"].characters)) for name, found in characters.items()}
    assert abs(share["train"] - 0.6) < 0.03 and abs(share["val"] - 0.1) < 0.02 and abs(share["test"] - 0.3) < 0.03


def test_split_of_stays_as_it_is():
    "Numbers are compared across versions: nobody may move from test to train."
    assert [split_of(c) for c in "aáàeéð☃"] == ["train", "test", "test", "val", "train", "test", "test"]


# the distortion


def test_batch_is_independent_of_its_company(splits):
    data = splits["test"]
    together, labels = data.batch(range(301), draw=3)
    assert (
        together.shape == (301, 1, 32, 32)
        and together.dtype == torch.float32
        and torch.equal(labels, data.labels[:301])
    )
    shuffled = torch.randperm(301, generator=torch.Generator().manual_seed(0))
    assert torch.equal(data.batch(shuffled, draw=3)[0], together[shuffled])
    for i in (0, 7, 300):
        assert torch.equal(data.batch([i], draw=3)[0][0], together[i])
    for length in (2, 3, 5, 17):
        assert torch.equal(data.batch(np.arange(length), draw=3)[0], together[:length])
    assert torch.equal(data.batch([4, 4], draw=3)[0], together[[4, 4]])


def test_distortion_does_not_depend_on_split_or_threads(splits):
    test, everything = splits["test"], splits["all"]
    place = {identity: i for i, identity in enumerate(everything.identity.tolist())}
    same = [place[i] for i in test.identity[:40].tolist()]
    assert torch.equal(test.batch(range(40))[0], everything.batch(same)[0])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = test.batch(range(200))[0]
        torch.set_num_threads(4)
        assert torch.equal(test.batch(range(200))[0], one)
    finally:
        torch.set_num_threads(threads)


def test_seed_draw_and_global_generator(splits, root):
    data = splits["test"]
    first = data.batch(range(50))[0]
    torch.manual_seed(1)
    np.random.seed(1)
    assert torch.equal(data.batch(range(50))[0], first)
    assert not torch.equal(data.batch(range(50), draw=1)[0], first)
    assert not torch.equal(Glyphs("test", seed=1, root=root).batch(range(50))[0], first)
    assert torch.equal(data[3][0], first[3])


def test_distortion_is_the_same_in_another_process(splits, root):
    code = (
        "import sys, hashlib; from smoothap_nb import Glyphs; "
        "print(hashlib.sha256(Glyphs('test', root=sys.argv[1]).batch(range(64), "
        "draw=2)[0].numpy().tobytes()).hexdigest())"
    )
    import hashlib

    ours = hashlib.sha256(splits["test"].batch(range(64), draw=2)[0].numpy().tobytes()).hexdigest()
    theirs = subprocess.run(
        [sys.executable, "-c", code, str(root)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert theirs.stdout.strip() == ours


@pytest.mark.parametrize("size", [16, 33, 64])
def test_any_size_distorts(size):
    images = torch.randint(0, 256, (5, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    keys = distortion_keys(torch.arange(5))
    for strength in (0.1, 1, 3):
        out = distort(images, keys, strength)
        assert out.shape == (5, 1, size, size) and out.isfinite().all() and 0 <= out.min() and out.max() <= 1
    assert torch.equal(distort(images[:, None], keys), distort(images.float() / 255, keys))


def test_strength_zero_changes_nothing(splits):
    images = splits["val"].images[:10]
    assert torch.equal(distort(images, distortion_keys(torch.arange(10)), 0)[:, 0], images.float() / 255)


def test_strength_orders_the_damage(splits):
    images, keys = splits["test"].images[:300], distortion_keys(splits["test"].identity[:300])
    damage = [float((distort(images, keys, s)[:, 0] - images / 255).square().mean()) for s in (0, 0.25, 0.5, 1, 2)]
    assert damage == sorted(damage) and damage[0] == 0


def moved(images, angle=0.0, scale=1.0, shift=(0.0, 0.0)):
    return distortion.move(images[None, None], torch.tensor([angle]), torch.tensor([scale]), torch.tensor([shift]))[
        0, 0
    ]


def test_the_geometry_by_exact_cases():
    image = torch.rand(16, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(moved(image), image, atol=1e-5, rtol=0)
    torch.testing.assert_close(moved(image, angle=np.pi / 2), torch.rot90(image, -1), atol=1e-4, rtol=0)
    right_down = moved(image, shift=(2 * 3 / 16, 2 * 1 / 16))  # three pixels right, one down
    torch.testing.assert_close(right_down[1:, 3:], image[:-1, :-3], atol=1e-5, rtol=0)
    assert right_down[0].abs().max() < 1e-5 and right_down[:, :3].abs().max() < 1e-5
    blocks = (
        torch.rand(4, 4, generator=torch.Generator().manual_seed(1)).repeat_interleave(4, 0).repeat_interleave(4, 1)
    )
    twice = moved(blocks, scale=2.0)  # the middle 2 x 2 blocks fill the picture
    torch.testing.assert_close(twice[2:6, 2:6], blocks[4, 4].expand(4, 4), atol=1e-5, rtol=0)


def test_blur_keeps_the_light_and_follows_the_gaussian():
    images = torch.zeros(3, 1, 33, 33)
    images[:, :, 16, 16] = 1
    out = distortion.blur(images, torch.tensor([0.0, 1.0, 2.0]), radius=8)
    torch.testing.assert_close(out.sum((1, 2, 3)), torch.ones(3))
    torch.testing.assert_close(out[0], images[0])
    for sigma, picture in zip((1.0, 2.0), out[1:, 0]):
        assert abs(float(picture[16, 17] / picture[16, 16]) - np.exp(-0.5 / sigma**2)) < 1e-4
        torch.testing.assert_close(picture, picture.T)


def test_strength_one_keeps_its_promise():
    "On a white square: brightness, contrast and noise stay in the ranges of the docstring."
    images = torch.zeros(500, 32, 32)
    images[:, 8:24, 8:24] = 1
    out = distort(images, distortion_keys(torch.arange(500)))[:, 0]
    ink, ground = out[:, 14:18, 14:18].mean((1, 2)), out[:, :2].mean((1, 2))
    contrast = ink - ground
    assert 0.4 < contrast.min() < 0.55 and 0.95 < contrast.max() <= 1
    grain = out[:, 14:18, 14:18].flatten(1).std(1)
    assert 0 <= grain.min() and grain.max() < 0.06 * 1.7


def test_keys_spread():
    keys = distortion_keys(torch.arange(10_000))
    assert keys.unique().numel() == 10_000
    u = distortion.uniform(keys, 4)
    assert 0 <= u.min() and u.max() < 1
    assert (u.mean(0) - 0.5).abs().max() < 0.02
    assert not torch.equal(keys, distortion_keys(torch.arange(10_000), seed=1))
    assert not set(distortion_keys(torch.arange(1000), draw=1).tolist()) & set(
        distortion_keys(torch.arange(1000), draw=2).tolist()
    )
    for seed in (-1, 2**63, 2**64 - 1):
        distortion_keys(torch.arange(3), seed=seed)
    assert torch.equal(distortion_keys(torch.arange(3), seed=-1), distortion_keys(torch.arange(3), seed=2**64 - 1))


def test_empty_batch(splits):
    images, labels = splits["val"].batch([])
    assert images.shape == (0, 1, 32, 32) and labels.shape == (0, 3)


def test_works_in_a_data_loader(splits):
    loader = torch.utils.data.DataLoader(
        torch.utils.data.Subset(splits["val"], range(32)), batch_size=16, num_workers=0
    )
    images = torch.cat([images for images, _ in loader])
    assert torch.equal(images, splits["val"].batch(range(32))[0])


@pytest.mark.cuda
def test_cuda_distorts_as_the_cpu_does(splits):
    data = splits["test"]
    images, keys = data.images[:300], distortion_keys(data.identity[:300])
    there = distort(images.cuda(), keys.cuda())
    assert there.is_cuda
    torch.testing.assert_close(there.cpu(), distort(images, keys), atol=2e-4, rtol=0)


# the cache


def test_second_time_reads(root, no_drawing):
    load_glyphs(32, root)
    assert no_drawing == []


def test_read_gives_back_what_was_written(few, tmp_path):
    store = few
    write_glyphs(store, tmp_path / "copy", "key")
    again, trouble = read_glyphs(tmp_path / "copy", "key")
    assert not trouble and again.table == store.table
    assert all(torch.equal(getattr(again, name), getattr(store, name)) for name in ("images", "character", "face"))
    assert [p.name for p in tmp_path.iterdir()] == ["copy"]


def flip(path):
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 4]))


def change_a_name(path):
    content = path.read_bytes()
    path.write_bytes(content.replace(b"BRAILLE", b"BRAILLF", 1))


DAMAGE = {
    "flipped bit": flip,
    "flipped letter": change_a_name,
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "header only": lambda path: os.truncate(path, 100),
    "empty": lambda path: os.truncate(path, 0),
    "noise": lambda path: path.write_bytes(os.urandom(1000)),
    "another program's": lambda path: path.write_bytes(
        __import__("safetensors.torch").torch.save({"x": torch.zeros(3)})
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_cache_is_drawn_again(tmp_path, no_drawing, few, damage):
    load_glyphs(32, tmp_path)
    path = tmp_path / "glyphs-32.safetensors"
    DAMAGE[damage](path)
    with pytest.warns(UserWarning, match="drawn again") as caught:
        again = load_glyphs(32, tmp_path)
    assert len(caught) == 1 and str(path) in str(caught[0].message)
    assert no_drawing == [32, 32] and torch.equal(again.images, few.images)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_glyphs(32, tmp_path)
    assert no_drawing == [32, 32]


def test_other_fonts_make_the_cache_stale(tmp_path, no_drawing, monkeypatch):
    load_glyphs(32, tmp_path)
    monkeypatch.setattr(glyph_store, "_VERSION", glyph_store._VERSION + 1)
    with pytest.warns(UserWarning, match="other typefaces or another version"):
        load_glyphs(32, tmp_path)
    assert no_drawing == [32, 32]


def test_the_key_knows_the_font_files(tmp_path, monkeypatch):
    before = glyph_key(32)
    changed = tmp_path / "font.ttf"
    changed.write_bytes(font_file("STIX").read_bytes() + b"x")
    original = glyph_store.font_file
    monkeypatch.setattr(glyph_store, "font_file", lambda face: changed if face == "STIX" else original(face))
    assert glyph_key(32) != before
    monkeypatch.undo()
    assert glyph_key(32) == before != glyph_key(64)


def test_no_space_left_works_from_memory(tmp_path, no_drawing, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.warns(UserWarning, match="No space left on device.*SMOOTHAP_DATA"):
        first = load_glyphs(32, tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.warns(UserWarning):
        assert load_glyphs(32, tmp_path) is first
    assert no_drawing == [32]


def test_unwritable_root_works_from_memory(no_drawing):
    with pytest.warns(UserWarning, match="cannot be kept in /proc/nowhere.*set SMOOTHAP_DATA"):
        data = Glyphs("val", root="/proc/nowhere")
    assert len(data) and no_drawing == [32]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permissions do not bind the superuser")
def test_read_only_root_works_from_memory(tmp_path, no_drawing):
    tmp_path.chmod(0o555)
    with pytest.warns(UserWarning, match="SMOOTHAP_DATA"):
        assert len(Glyphs("val", root=tmp_path))


def test_a_file_in_the_place_of_the_root(tmp_path):
    file = tmp_path / "file"
    file.write_text("precious")
    for root in (file, file / "below"):
        with pytest.raises(NotADirectoryError, match="is a file.*SMOOTHAP_DATA"):
            Glyphs("val", root=root)
    assert file.read_text() == "precious"


def test_root_from_the_environment(tmp_path, monkeypatch, no_drawing):
    monkeypatch.setenv("SMOOTHAP_DATA", str(tmp_path / "data"))
    Glyphs("val")
    assert (tmp_path / "data" / "glyphs-32.safetensors").exists()
    monkeypatch.delenv("SMOOTHAP_DATA")
    assert data_root().parts[-2:] == (".cache", "smoothap_nb")


def test_missing_typeface_is_named(monkeypatch):
    monkeypatch.setitem(FACES, "STIX", "NoSuchFont")
    with pytest.raises(FileNotFoundError, match="STIX is missing.*reinstall matplotlib"):
        font_file("STIX")


def test_two_writers_and_a_reader(tmp_path, no_drawing, few):
    "Threads stand for processes: nobody ever reads half a file, nothing is left over."
    failures, key = [], glyph_key(32)

    def work():
        try:
            for _ in range(10):
                load_glyphs(32, tmp_path)
                write_glyphs(few, tmp_path / "glyphs-32.safetensors", key)
                again, trouble = read_glyphs(tmp_path / "glyphs-32.safetensors", key)
                assert again is not None, trouble
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    assert not failures
    assert [p.name for p in tmp_path.iterdir()] == ["glyphs-32.safetensors"]


def test_strays_of_killed_processes_are_swept(tmp_path, few):
    old, new, other = (
        tmp_path / name
        for name in (".glyphs-32.safetensors.1.part", ".glyphs-32.safetensors.2.part", ".glyphs-64.safetensors.1.part")
    )
    for path in (old, new, other):
        path.touch()
    os.utime(old, (0, 0))
    os.utime(other, (0, 0))
    write_glyphs(few, tmp_path / "glyphs-32.safetensors", "key")
    assert not old.exists() and new.exists() and other.exists()


@pytest.mark.slow
def test_two_processes_draw_at_once(tmp_path):
    code = "import sys; from smoothap_nb import Glyphs; print(Glyphs('all', root=sys.argv[1]).images.sum().item())"
    processes = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0] and answers[0] == answers[1]
    assert [p.name for p in tmp_path.iterdir()] == ["glyphs-32.safetensors"]


@pytest.mark.slow
def test_size_64_has_the_same_classes(tmp_path, store):
    large = load_glyphs(64, tmp_path)
    assert (
        large.table == store.table
        and torch.equal(large.character, store.character)
        and torch.equal(large.face, store.face)
    )
    halves = torch.nn.functional.avg_pool2d(large.images[:, None].float(), 2)[:, 0]
    assert (halves - store.images).abs().max() <= 1  # two roundings


# bad input


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (dict(split="validation"), ValueError, "split must be one of 'train', 'val', 'test', 'all'"),
        (dict(size=8), ValueError, "size must lie between 16 and 128"),
        (dict(size=300), ValueError, "size must lie between 16 and 128"),
        (dict(size=32.5), TypeError, "whole number of pixels"),
        (dict(size=True), TypeError, "whole number of pixels"),
        (dict(strength=-0.1), ValueError, "strength must be a finite number of at least 0"),
        (dict(strength=float("nan")), ValueError, "strength must be a finite number"),
        (dict(strength=float("inf")), ValueError, "strength must be a finite number"),
        (dict(strength="strong"), TypeError, "strength must be a number"),
        (dict(seed=0.5), TypeError, "seed must be a whole number"),
    ],
)
def test_refused_arguments(root, arguments, error, message):
    with pytest.raises(error, match=message):
        Glyphs(**{"split": "val", "root": root, **arguments})


def test_refused_indices(splits):
    data = splits["val"]
    with pytest.raises(TypeError, match="whole numbers, got torch.bool"):
        data.batch(torch.ones(len(data), dtype=torch.bool))
    with pytest.raises(TypeError, match="whole numbers, got torch.float32"):
        data.batch([0.5])
    for draw in (-1, 0.5):
        with pytest.raises(ValueError, match="draw must be a whole number"):
            data.batch([0], draw=draw)
    for index in (len(data), -len(data) - 1):
        with pytest.raises(IndexError):
            data[index]
        with pytest.raises(IndexError):
            data.batch([index])


def test_refused_pictures_and_keys():
    keys = distortion_keys(torch.arange(2))
    with pytest.raises(ValueError, match="images must have shape"):
        distort(torch.zeros(2, 3, 8, 8), keys)
    with pytest.raises(ValueError, match="images must have shape"):
        distort(torch.zeros(2, 8, 9), keys)
    with pytest.raises(ValueError, match="keys must be 3 int64"):
        distort(torch.zeros(3, 8, 8), keys)
    with pytest.raises(ValueError, match="keys must be 2 int64"):
        distort(torch.zeros(2, 8, 8), keys.float())


def test_statistics_and_description(splits):
    statistics = glyph_statistics(splits["val"])
    assert statistics["images"] == len(splits["val"]) and statistics["classes"] == statistics["character"] == len(
        set(splits["val"].characters)
    )
    assert 4 <= statistics["smallest_class"] <= statistics["images_per_class"] <= statistics["largest_class"] <= 16
    assert repr(splits["val"]).startswith("Glyphs('val', size=32, strength=1, seed=0): ")


def test_glyph_batch_is_the_data_it_says(monkeypatch):
    from smoothap_nb.data.glyphs import glyph_batch

    batch = glyph_batch()
    assert (
        batch["images"].shape == (384, 32, 32)
        and batch["images"].dtype == torch.uint8
        and batch["labels"].shape == (384, 3)
    )
    assert [len(batch["labels"][:, level].unique()) for level in range(3)] == [8, 24, 96]
    for name in ("trained", "untrained"):
        torch.testing.assert_close(batch[name].norm(dim=1), torch.ones(384))
    assert len(batch["captions"]) == 384 and {"commit", "experiment", "seed"} <= set(batch["made"])
    monkeypatch.setattr("smoothap_nb.data.glyphs.GLYPH_BATCH", Path("/nowhere"))
    with pytest.raises(FileNotFoundError, match="tools/glyph_batch.py"):
        glyph_batch()


def test_subset_shows_the_same_pictures():
    whole = Glyphs("val")
    rows = torch.tensor([5, 0, 17])
    part = whole.subset(rows)
    assert (
        len(part) == 3
        and part.captions == [whole.captions[int(i)] for i in rows]
        and torch.equal(part.labels, whole.labels[rows])
    )
    assert torch.equal(part.batch([0, 1, 2], draw=3)[0], whole.batch(rows, draw=3)[0])
