"""Data sets: each layout through its miniature, protocols against counts by hand, and every way in which a copy can
be wrong."""

import json
import re
import shutil
import sys
import warnings

import numpy as np
import pytest
import torch

from smoothap_nb.cli import commands as cli
from smoothap_nb.data import datasets as D
from smoothap_nb.data import checking, miniatures as M, sources
from smoothap_nb.data.readers import nature
from smoothap_nb.data.settings import DataConfig
from smoothap_nb.data.transforms import PhotoTransform

NAMES = [name for name in D.DATASETS if name != "glyphs"]
pytestmark = pytest.mark.filterwarnings("ignore:.*results will not compare")
TRAINED = [name for name in NAMES if name != "ijbc"]
SMALL = dict(size=32, resize=32, squash=True)


@pytest.fixture(scope="session")
def miniatures(tmp_path_factory):
    "Every miniature, written once; not to be changed."
    home = tmp_path_factory.mktemp("miniatures")
    return {name: M.make_miniature(name, home / name) for name in NAMES}


@pytest.fixture
def copy(miniatures, tmp_path):
    "A copy of a miniature, to be spoilt."
    return lambda name: shutil.copytree(miniatures[name], tmp_path / name, symlinks=True)


def oracle(images):
    return torch.nn.functional.one_hot(images.labels[:, -1]).float()


def noise(images):
    rows = torch.randn(len(images), 16, generator=torch.Generator().manual_seed(len(images)))
    return torch.nn.functional.normalize(rows, dim=1)


def edit(path, old, new, count=1):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, count))


# ---------------------------------------------------------------- the layouts


@pytest.mark.parametrize("name", TRAINED)
def test_training_set_is_read(name, miniatures):
    info = D.DATASETS[name]
    images = D.load_dataset(name, "train", miniatures[name], data=DataConfig(**SMALL))
    assert (
        images.labels.shape == (len(images), max(len(info.levels), images.labels.shape[1]))
        and images.labels.dtype == torch.int64
    )
    if info.levels:
        assert images.level_names == info.levels
    for level, ids in enumerate(images.class_names):  # ids run from 0 and every one has a name
        assert images.labels[:, level].unique().tolist() == list(range(len(ids)))
    parents = {}
    for row in images.labels.tolist():
        for level in range(1, len(row)):
            assert parents.setdefault((level, row[level]), row[level - 1]) == row[level - 1]
    assert images.statistics()["smallest_class"] >= 4 and images.statistics()["classes"] >= 14
    assert all(path.exists() for path in images.paths)
    pictures, labels = images.batch([0, 5, -1], draw=1)
    assert pictures.shape == (3, 3, 32, 32) and 0 <= pictures.min() < pictures.max() <= 1
    assert torch.equal(labels, images.labels[[0, 5, len(images) - 1]])


@pytest.mark.parametrize("name", NAMES)
def test_protocols_score_a_perfect_and_a_random_embedding(name, miniatures):
    protocols = D.load_protocols(name, miniatures[name], data=DataConfig(**SMALL))
    for protocol in protocols:
        finest = protocol.queries.labels[:, -1 if protocol.level is None else protocol.level]

        def perfect(images, level=protocol.level):
            return torch.nn.functional.one_hot(
                images.labels[:, -1 if level is None else level], int(finest.max()) + 2
            ).float()

        good = protocol.evaluate(perfect, ["mAP", "R@1"], progress=False)
        assert good["mAP"] == pytest.approx(1) and good["R@1"] == 1 and good["queries_skipped"] == 0
        chance = protocol.evaluate(noise, progress=False)
        assert set(chance) - {"queries_skipped"} <= set(D.DATASETS[name].metrics) | {
            "mAP",
            "R@1",
            "R@10",
            "H-AP",
            "ASI",
            "NDCG",
            "AP@level1",
            "AP@level2",
            "AP@level3",
        }
        assert 0 < chance["mAP"] < 0.6
    assert "AP@level1" in chance or name not in ("sop", "inat_base", "inat_full", "folder", "csv")


@pytest.mark.parametrize("name", NAMES)
def test_check_says_miniature_and_finds_no_fault(name, miniatures):
    lines = checking.check_dataset(name, miniatures[name])
    assert not [line for line in lines if line[1] == "fail"]
    assert any("MINIATURE" in line[2] for line in lines if line[1] == "note")


# ---------------------------------------------------------------- what each list says, by hand


def test_sop_labels_by_hand(tmp_path):
    root = tmp_path / "Stanford_Online_Products"
    for folder in ("chair_final", "sofa_final"):
        (root / folder).mkdir(parents=True)
        for k in range(4):
            (root / folder / f"{k}_0.JPG").write_bytes(b"x")
    head = "image_id class_id super_class_id path\n"
    (root / "Ebay_train.txt").write_text(
        head + "1 10 1 chair_final/0_0.JPG\n2 9 1 chair_final/1_0.JPG\n3 10 1 chair_final/2_0.JPG\n4 11 9 "
        "sofa_final/0_0.JPG\n"
    )
    (root / "Ebay_test.txt").write_text(head + "5 12 1 chair_final/3_0.JPG\n6 13 9 sofa_final/1_0.JPG\n")
    with pytest.warns(UserWarning, match="4 images of 3 classes"):
        images = D.load_dataset("sop", "train", tmp_path)  # the folder above will do
    assert images.labels.tolist() == [[0, 1], [0, 0], [0, 1], [1, 2]] and images.class_names == [
        ["1", "9"],
        ["9", "10", "11"],
    ]
    assert [p.name for p in images.paths] == ["0_0.JPG", "1_0.JPG", "2_0.JPG", "0_0.JPG"] and images.root == root
    assert D.load_dataset("sop", "train", root, data=DataConfig(levels=1)).labels.tolist() == [[1], [0], [1], [2]]
    assert D.load_dataset("sop", "test", data=DataConfig(root=str(root))).labels.tolist() == [[0, 0], [1, 1]]


def test_cub_first_half_trains_and_families_make_a_level(copy):
    root = copy("cub")
    train, test = (D.load_dataset("cub", split, root) for split in ("train", "test"))
    numbers = [{int(path.split("/")[1][:3]) for path in images.relative} for images in (train, test)]
    assert numbers == [set(range(1, 15)), set(range(15, 29))]
    lines = (root / "classes.txt").read_text().splitlines()
    (root / "classes.txt").write_text("\n".join(f"{line} family{i // 4}" for i, line in enumerate(lines)))
    assert D.load_dataset("cub", "train", root).level_names == ("family", "species")


def test_captions_are_the_names_of_the_classes(miniatures):
    images = D.load_dataset("inshop", "train", miniatures["inshop"])
    assert images.captions[0] == "MEN/Denim, id_00000001" and len(images.captions) == len(images)
    assert images.subset([5]).captions[0] == images.captions[5]
    assert D.load_dataset("cub", "train", miniatures["cub"]).captions[0] == "001.Glyph_1"


def test_inshop_super_class_is_the_folder_and_statuses_share_ids(miniatures):
    (protocol,) = D.load_protocols("inshop", miniatures["inshop"])
    assert (
        protocol.queries.class_names[0] == protocol.gallery.class_names[0]
        and "WOMEN/Dresses" in protocol.queries.class_names[0]
    )
    for images in (protocol.queries, protocol.gallery):
        assert all(
            path.split("/")[3] == images.class_names[1][label]
            for path, label in zip(images.relative, images.labels[:, 1].tolist())
        )


def test_vehicleid_models_and_tests(miniatures, copy):
    images = D.load_dataset("vehicleid", "test", miniatures["vehicleid"])
    sizes = [len(D.load_dataset("vehicleid", size, miniatures["vehicleid"])) for size in ("small", "medium", "large")]
    assert sizes == sorted(sizes) and len(images) == sizes[-1]  # here small lies within large; each picture once
    assert "unknown" in images.class_names[0]
    root = copy("vehicleid")
    (root / "attribute" / "model_attr.txt").unlink()
    assert D.load_dataset("vehicleid", "train", root).level_names == ("vehicle",)


def test_inat_levels_come_from_the_json(miniatures):
    base, full = (D.load_dataset(name, "train", miniatures[name]) for name in ("inat_base", "inat_full"))
    assert full.level_names == nature.INAT_LEVELS and base.class_names[0] == sorted(M.INAT_CATEGORIES)
    assert len(base.labels[:, 1].unique()) == len(full.labels[:, -1].unique())
    categories = json.loads((miniatures["inat_full"] / "train2018.json").read_text())["categories"]
    number = int(full.relative[7].split("/")[2])
    row = next(c for c in categories if c["id"] == number)
    for level, name in enumerate(nature.INAT_LEVELS[:-1]):
        assert full.class_names[level][int(full.labels[7, level])] == row[name]


def test_dyml_header_with_blanks_and_clean_header(copy):
    root = copy("dyml_vehicle")
    before = D.load_dataset("dyml_vehicle", "train", root).labels
    edit(root / "train" / "label.csv", M.DYML_HEADER, "fname,fine_id,middle_id,coarse_id")
    assert torch.equal(D.load_dataset("dyml_vehicle", "train", root).labels, before)
    edit(root / "train" / "label.csv", "fname,fine_id", "fname,label")
    with pytest.raises(D.DatasetError, match="no column 'fine_id'"):
        D.load_dataset("dyml_vehicle", "train", root)


def test_dyml_fine_class_with_two_parents_is_said_and_split(copy):
    root = copy("dyml_animal")
    lines = (root / "train" / "label.csv").read_text().splitlines()
    name, fine, _, coarse = lines[1].split(",")
    (root / "train" / "label.csv").write_text("\n".join([lines[0], f"{name},{fine},999,{coarse}", *lines[2:]]))
    with pytest.warns(UserWarning, match="fine '0' lies in middle"):
        images = D.load_dataset("dyml_animal", "train", root)
    assert len(images.labels[:, -1].unique()) == 17


def test_dyml_query_leaves_its_own_ranking(miniatures):
    fine = D.load_protocols("dyml_animal", miniatures["dyml_animal"], data=DataConfig(**SMALL))[0]
    own = D.own_rows(fine.queries, fine.gallery)
    assert (own >= 0).all() and torch.equal(fine.gallery.labels[own], fine.queries.labels)
    for query, row in enumerate(own.tolist()):
        assert fine.queries.paths[query].read_bytes() == fine.gallery.paths[row].read_bytes()
    # an embedding that knows only the picture itself would be perfect if the query stayed
    pictures = {path.read_bytes(): i for i, path in enumerate(fine.gallery.paths)}
    found = fine.evaluate(
        lambda images: torch.eye(len(pictures))[[pictures[p.read_bytes()] for p in images.paths]],
        ["R@1"],
        progress=False,
    )
    assert found["R@1"] == 0


def test_dyml_product_scales_share_pictures_and_the_mean_is_the_mean(miniatures):
    protocols = D.load_protocols("dyml_product", miniatures["dyml_product"], data=DataConfig(**SMALL))
    assert [p.name for p in protocols] == ["fine", "middle", "coarse"] and len({id(p.queries) for p in protocols}) == 1
    calls = []

    def embed(images):
        calls.append(images)
        return noise(images)

    found = D.evaluate_protocols(protocols, embed, progress=False)
    assert len(calls) == 1
    for metric in ("mAP", "ASI", "R@1"):
        assert found["mean"][metric] == pytest.approx(
            np.mean([found[level][metric] for level in ("fine", "middle", "coarse")])
        )
    assert found["fine"]["mAP"] < found["coarse"]["mAP"]


def test_ijbc_drops_small_subjects_groups_videos_and_cuts_faces(tmp_path):
    root = tmp_path / "IJB-C"
    (root / "protocols").mkdir(parents=True)
    (root / "images" / "img").mkdir(parents=True)
    (root / "images" / "frames").mkdir()
    from PIL import Image

    def picture(path, colour):
        image = Image.new("RGB", (40, 30), "black")
        image.paste(colour, (10, 5, 20, 15))
        image.save(root / "images" / path)

    rows = []
    for subject, files in {
        "1": ["img/1.png", "img/2.png", "img/3.png", "frames/7_01.png", "frames/7_02.png", "frames/8_01.png"],
        "2": ["img/4.png", "frames/9_01.png", "frames/9_02.png", "frames/9_03.png", "frames/9_04.png"],
    }.items():
        for file in files:
            picture(file, "red")
            rows.append(f"{subject},{file},0,10,5,10,10")
    rows.append("1,img/9.png,0,,,,")  # a picture without a box
    (root / "protocols" / "ijbc_metadata.csv").write_text(
        "SUBJECT_ID,FILENAME,SIGHTING_ID,FACE_X,FACE_Y,FACE_WIDTH,FACE_HEIGHT\n" + "\n".join(rows) + "\n"
    )
    (protocol,) = D.load_protocols("ijbc", root, data=DataConfig(**SMALL))
    assert len(protocol.queries) == 6 and protocol.groups.unique().numel() == 5  # subject 2 has two instances only
    assert protocol.groups[3] == protocol.groups[4]
    image = protocol.queries.batch([0])[0][0]
    assert image[0].mean() > 0.95 and image[1].mean() < 0.05  # the face, not the black around it
    with pytest.raises(D.DatasetError, match="no split 'train'.*vggface2"):
        D.load_dataset("ijbc", "train", root)


def test_average_groups_by_hand():
    found = D.average_groups(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, -3.0]]), torch.tensor([1, 1, 0]))
    assert torch.allclose(found, torch.tensor([[0.0, -1.0], [0.5**0.5, 0.5**0.5]]))


def test_groups_are_averaged_before_ranking(miniatures):
    (protocol,) = D.load_protocols("ijbc", miniatures["ijbc"], data=DataConfig(**SMALL))
    flat = D.Protocol("flat", protocol.queries)
    pictures = noise(protocol.queries)
    assert protocol.evaluate(lambda images: pictures, ["mAP"], per_query=True, progress=False)["per_query"][
        "mAP"
    ].shape == (protocol.groups.max() + 1,)
    assert protocol.evaluate(lambda images: pictures, ["mAP"], progress=False) != flat.evaluate(
        lambda images: pictures, ["mAP"], progress=False
    )


class Labelled:
    "Labels and a length, in place of pictures."

    def __init__(self, labels):
        self.labels = torch.as_tensor(labels)[:, None]

    def __len__(self):
        return len(self.labels)


def test_one_gallery_image_by_hand():
    "Two cars, two pictures each: in every draw each remaining picture asks for the one drawn of its car."
    points = torch.tensor(
        [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, 1.0]]
    )  # pictures 1 and 3 look alike though the cars differ
    protocol = D.Protocol("x", Labelled([0, 0, 1, 1]), draws=40, seed=3)
    expected = []
    for draw in range(40):
        ask, answer = protocol.gallery_draw(draw)
        assert len(answer) == 2 and sorted(protocol.queries.labels[answer, 0].tolist()) == [0, 1] and len(ask) == 2
        hits = []
        for q in ask.tolist():
            own = next(g for g in answer.tolist() if protocol.queries.labels[g, 0] == protocol.queries.labels[q, 0])
            other = next(g for g in answer.tolist() if g != own)
            hits.append(float(points[q] @ points[own] > points[q] @ points[other]))  # ties count against
        expected.append(np.mean(hits))
    assert len({tuple(protocol.gallery_draw(draw)[1].tolist()) for draw in range(40)}) == 4
    found = protocol.evaluate(lambda images: points, ["R@1"], progress=False)
    assert found["R@1"] == pytest.approx(np.mean(expected))
    with pytest.raises(ValueError, match="per_query"):
        protocol.evaluate(lambda images: points, ["R@1"], per_query=True, progress=False)
    with pytest.raises(D.DatasetError, match="none is left to ask"):
        D.Protocol("x", Labelled([0, 1, 2]), draws=1).gallery_draw(0)


def test_vehicleid_protocols_differ_only_in_the_gallery(miniatures):
    kinds = {
        kind: D.load_protocols("vehicleid", miniatures["vehicleid"], data=DataConfig(protocol=kind, **SMALL))
        for kind in ("default", "all_vs_rest", "one_gallery")
    }
    assert [[p.draws for p in kinds[kind]] for kind in kinds] == [[0] * 3, [0] * 3, [10] * 3]
    assert [p.name for p in kinds["default"]] == ["small", "medium", "large"]
    large = kinds["one_gallery"][-1]
    ask, answer = large.gallery_draw(0)
    assert len(answer) == len(large.queries.labels[:, -1].unique()) and len(ask) + len(answer) == len(large.queries)
    assert torch.equal(
        answer,
        D.load_protocols("vehicleid", miniatures["vehicleid"], data=DataConfig(protocol="one_gallery", **SMALL))[
            -1
        ].gallery_draw(0)[1],
    )
    with pytest.raises(D.DatasetError, match="did you mean 'one_gallery'"):
        D.load_protocols("vehicleid", miniatures["vehicleid"], data=DataConfig(protocol="one_galery"))
    with pytest.raises(D.DatasetError, match="protocol"):
        D.load_protocols("sop", miniatures["sop"], data=DataConfig(protocol="one_gallery"))


def test_cut_offs_beyond_the_gallery_are_left_out_of_the_defaults_only(miniatures):
    (protocol,) = D.load_protocols("sop", miniatures["sop"], data=DataConfig(**SMALL))
    assert "R@1000" not in protocol.evaluate(noise, progress=False)
    with pytest.raises(ValueError, match="R@1000"):
        protocol.evaluate(noise, ["R@1000"], progress=False)


def test_embed_is_checked(miniatures):
    (protocol,) = D.load_protocols("cub", miniatures["cub"])
    for wrong in (lambda images: torch.zeros(3, 4), lambda images: None, lambda images: np.zeros((len(images), 2))):
        with pytest.raises(D.DatasetError, match="one row per image"):
            protocol.evaluate(wrong)


def test_glyphs_come_through_the_same_door():
    images = D.load_dataset("glyphs", "test", data=DataConfig(size=32))
    (protocol,) = D.load_protocols("glyphs", data=DataConfig(size=32))
    assert len(images) == len(protocol.queries) and protocol.gallery is None
    assert checking.check_dataset("glyphs")[0][1] == "ok"


# ---------------------------------------------------------------- one's own pictures


def picture(path):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 16), (hash(path.name) % 255, 90, 20)).save(path)


def test_folder_without_splits_halves_the_classes(tmp_path):
    for group in ("b", "a"):
        for kind in ("2", "10"):
            for k in range(2):
                picture(tmp_path / group / kind / f"{k}.png")
    (tmp_path / "a" / "notes.txt").write_text("not a picture")
    train, test = (D.load_dataset("folder", split, tmp_path) for split in ("train", "test"))
    assert train.relative == ["a/2/0.png", "a/2/1.png", "a/10/0.png", "a/10/1.png"] and test.relative[0] == "b/2/0.png"
    assert train.level_names == ("level1", "class") and train.labels.tolist() == [[0, 0], [0, 0], [0, 1], [0, 1]]
    assert D.load_dataset("folder", "train", tmp_path, data=DataConfig(levels=1)).class_names == [["a / 2", "a / 10"]]
    with pytest.raises(D.MissingData, match="no split 'query'"):
        D.load_dataset("folder", "query", tmp_path)
    picture(tmp_path / "deep" / "er" / "still" / "x.png")
    with pytest.raises(D.DatasetError, match="same number of folders"):
        D.load_dataset("folder", "train", tmp_path)


def test_folder_with_query_and_gallery(tmp_path):
    for part in ("train", "query", "gallery"):
        for kind in ("x", "y") if part == "train" else ("u", "v", "w"):
            for k in range(2):
                picture(tmp_path / part / kind / f"{part}{k}.png")
    (protocol,) = D.load_protocols("folder", tmp_path, data=DataConfig(**SMALL))
    assert len(protocol.queries) == len(protocol.gallery) == 6 and protocol.queries.split == "query"
    assert protocol.evaluate(oracle, ["mAP"], progress=False)["mAP"] == 1
    shutil.rmtree(tmp_path / "train")
    with pytest.raises(D.MissingData, match="no folder 'train'"):
        D.load_dataset("folder", "train", tmp_path)


@pytest.mark.parametrize(
    "sizes, says",
    [
        ([3], "all training images are of one class"),
        ([1, 1, 1, 1, 1], "0 of 5 training classes have two pictures or more"),
        ([2, 1, 1], "1 of 3 training classes have two pictures or more"),
        ([2, 2], r"validation sets at least two aside, and what is left \(0\)"),
        ([2, 3, 2, 1], r"validation sets at least two aside, and what is left \(1\)"),
        ([2, 2, 2, 2], None),
    ],
)
def test_sets_that_cannot_train_are_not_called_right(tmp_path, sizes, says):
    for split, counts in (("train", sizes), ("test", [2, 2])):
        for number, count in enumerate(counts):
            for k in range(count):
                picture(tmp_path / split / f"{split}{number}" / f"{k}.png")
    lines = [line for line in checking.check_dataset("folder", tmp_path) if line[0] == "training"]
    failed = [line for line in lines if line[1] == "fail"]
    if says is None:
        assert not failed and [line[1] for line in lines] == ["note"]
    else:
        assert len(lines) == 1 and re.search(says, failed[0][2]) and failed[0][3]


def test_own_pictures_are_looked_at_to_the_end(tmp_path):
    "All broken links and unreadable formats are counted, and nobody is told to fetch an official list."
    for split in ("train", "test"):
        for kind in "abcd":
            for k in range(2):
                picture(tmp_path / split / f"{split}{kind}" / f"{k}.png")
    for k in range(3):
        (tmp_path / "train" / "traina" / f"link{k}.png").symlink_to(tmp_path / "nowhere.png")
    lines = checking.check_dataset("folder", tmp_path)
    assert any("3 of 11 are missing" in line[2] and "link0" in line[2] and "link2" in line[2] for line in lines)
    shutil.rmtree(tmp_path / "test")
    for root in (tmp_path, tmp_path / "train" / "traina"):
        lines += checking.check_dataset("folder", root)
    for text in ("", "path,kind\n", "path\na.png\n", "path,kind\n../a.png,x\n", "path,kind,split\na.png,x,test\n"):
        lines += checking.check_dataset("csv", write_csv(tmp_path / f"csv{len(lines)}", text))
    assert sum(line[1] == "fail" for line in lines) >= 7
    assert not [line for line in lines if "official" in line[2] + line[3]]


def test_pictures_in_a_format_that_cannot_be_read_are_counted(tmp_path, monkeypatch):
    "24 of 30 pictures of a phone's folder vanished without a word."
    from smoothap_nb import images as files
    from smoothap_nb.data.readers import own

    for split in ("train", "test"):
        for kind in "abcd":
            for k in range(2):
                picture(tmp_path / split / f"{split}{kind}" / f"{k}.png")
            (tmp_path / split / f"{split}{kind}" / "phone.heic").write_bytes(b"\0\0\0 ftypheic" + b"\0" * 64)
    for module in (own, files):
        monkeypatch.setattr(module, "readable", lambda: ("PNG",))
    with pytest.warns(UserWarning, match=r"4 of 12 pictures are left out.*4 pictures in the format HEIF.*pillow-heif"):
        D.load_dataset("folder", "train", tmp_path)
    lines = [line for line in checking.check_dataset("folder", tmp_path) if "left out" in line[2]]
    assert [line[1] for line in lines] == ["note"] * 2 and all("pip install pillow-heif" in line[3] for line in lines)


def test_classes_on_both_sides_are_a_warning_for_own_pictures(tmp_path):
    for part in ("train", "test"):
        for kind in ("x", "y"):
            picture(tmp_path / part / kind / "0.png")
            picture(tmp_path / part / kind / "1.png")
    with pytest.warns(UserWarning, match="2 of 2 training classes are test classes too"):
        D.load_dataset("folder", "train", tmp_path)
    assert [line[1] for line in checking.check_dataset("folder", tmp_path) if line[0] == "disjoint"] == ["note"]


def write_csv(root, text):
    root.mkdir(exist_ok=True)
    for line in text.splitlines()[1:]:
        if line and not (root / line.split(",")[0]).exists() and ".." not in line:
            picture(root / line.split(",")[0])
    (root / "images.csv").write_text(text)
    return root


def test_csv_levels_splits_and_halves(tmp_path):
    root = write_csv(tmp_path / "a", "path,kind,split\na.png,x,train\nb.png,y,train\nc.png,z,query\nd.png,z,gallery\n")
    assert D.load_dataset("csv", "train", root).class_names == [["x", "y"]]
    (protocol,) = D.load_protocols("csv", root)
    assert protocol.gallery.relative == ["d.png"] and len(D.load_dataset("csv", "test", root)) == 2
    root = write_csv(tmp_path / "b", "path,family,kind\na.png,f,x\nb.png,f,y\nc.png,g,z\nd.png,g,w\n")
    assert D.load_dataset("csv", "train", root).relative == ["a.png", "d.png"]  # of the classes w, x | y, z
    assert D.load_protocols("csv", root)[0].gallery is None


def test_csv_as_a_spreadsheet_writes_it(tmp_path):
    picture(tmp_path / "photos" / "a.png")
    picture(tmp_path / "photos" / "b.png")
    (tmp_path / "images.csv").write_bytes(
        "\ufeffpath;kind;split\r\nphotos\\a.png;Äpfel;train\r\nphotos\\b.png;x, y;train\r\n".encode()
    )
    images = D.load_dataset("csv", "train", tmp_path)
    assert images.relative == ["photos/a.png", "photos/b.png"] and sorted(images.class_names[0]) == ["x, y", "Äpfel"]


@pytest.mark.parametrize(
    "text, says",
    [
        ("file,kind\na.png,x\n", "column 'path'"),
        ("path\na.png\n", "no column of labels"),
        ("path,kind,kind\na.png,x,y\n", "no name twice"),
        ("path,kind\na.png\n", "line 2 .* has 1 columns"),
        ("path,kind\na.png,\nb.png,y\n", "empty kind"),
        ("path,kind,split\na.png,x,training\n", "split 'training'"),
        ("path,kind,split\na.png,x,test\n", "no image of the split 'train'"),
        ("path,family,kind\na.png,f,x\nb.png,g,x\n", "kind 'x' lies in family 'f' and in 'g'"),
        ("path,kind,split\na.png,x,train\nb.png,x,train\n", "of one class"),
        ("path,kind,split\na.png,x,train\na.png,y,train\n", "listed 2 times"),
        ("path,kind\n", "no image"),
        ("", "is empty"),
    ],
)
def test_csv_faults(tmp_path, text, says):
    with pytest.raises(D.DatasetError, match=says):
        D.load_dataset("csv", "train", write_csv(tmp_path / "a", text))


def test_csv_root_faults(tmp_path):
    root = write_csv(tmp_path / "a", "path,kind\na.png,x\nb.png,y\n")
    with pytest.raises(D.DatasetError, match="name the folder that holds it"):
        D.load_dataset("csv", "train", root / "images.csv")
    (root / "images.csv").rename(root / "one.csv")
    (root / "two.csv").write_text("path,kind\n")
    with pytest.raises(D.DatasetError, match="2 .csv files"):
        D.load_dataset("csv", "train", root)


# ---------------------------------------------------------------- lists that lead out


@pytest.mark.parametrize(
    "name, file, old",
    [
        ("sop", "Ebay_train.txt", "bicycle_final/111000000001_0.JPG"),
        ("csv", "images.csv", "photos/0_0.png"),
        ("inat_base", "Inat_dataset_splits/Inaturalist_train_set1.txt", "train_val2018"),
    ],
)
def test_lists_that_lead_out_are_refused_on_loading(copy, name, file, old):
    root = copy(name)
    edit(root / file, old, "bicycle_final/../../../x.JPG" if name == "sop" else f"../{old}")
    with pytest.raises(D.DatasetError, match="leads upwards"):
        D.load_dataset(name, "train", root)
    assert any(line[1] == "fail" and "leads upwards" in line[2] for line in checking.check_dataset(name, root))


# ---------------------------------------------------------------- wrong roots, lists, labels


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("folder", "csv")])
def test_wrong_roots(name, miniatures, tmp_path):
    with pytest.raises(D.MissingData, match="there is no folder .*pass root"):
        D.dataset_info(name).find(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="is not the folder of .* missing. Get"):
        D.dataset_info(name).find(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(D.DatasetError, match="is a file"):
            D.dataset_info(name).find(path)
    assert checking.check_dataset(name, tmp_path / "empty")[0][1] == "fail"


def test_part_of_the_layout_missing_is_incomplete(copy):
    root = copy("vehicleid")
    (root / "train_test_split" / "test_list_800.txt").unlink()
    with pytest.raises(
        D.MissingData, match="incomplete for PKU VehicleID: train_test_split/test_list_800.txt is missing"
    ):
        D.load_dataset("vehicleid", "train", root)


def test_unknown_names_and_splits(miniatures):
    with pytest.raises(D.DatasetError, match="did you mean 'inshop'"):
        D.load_dataset("in_shop")
    with pytest.raises(D.DatasetError, match="no split 'val'; it has train, test"):
        D.load_dataset("sop", "val", miniatures["sop"])
    with pytest.raises(D.DatasetError, match="load_protocols"):
        D.load_dataset("dyml_animal", "test", miniatures["dyml_animal"])
    with pytest.raises(D.DatasetError, match="data.levels is 3"):
        D.load_dataset("sop", "train", miniatures["sop"], data=DataConfig(levels=3))


def test_list_faults(copy):
    root = copy("sop")
    text = (root / "Ebay_train.txt").read_text()
    for spoilt, says in (
        (text.replace("image_id", "picture"), "does not begin with the header"),
        (text + "99 3\n", "line 83 .* has 2 columns, not 4"),
        ("", "is empty"),
        (text.splitlines()[0] + "\n", "lists no image"),
    ):
        (root / "Ebay_train.txt").write_text(spoilt)
        with pytest.raises(D.DatasetError, match=says):
            D.load_dataset("sop", "train", root)
    (root / "Ebay_train.txt").write_bytes(b"\xff\xfe\x00\x9c" * 9)
    with pytest.raises(D.DatasetError, match="no text file"):
        D.load_dataset("sop", "train", root)
    (root / "Ebay_train.txt").unlink()
    (root / "Ebay_train.txt").mkdir()
    with pytest.raises(D.DatasetError, match="is a folder, and a list"):
        D.load_dataset("sop", "train", root)


@pytest.mark.parametrize(
    "name, train, test",
    [
        ("sop", "Ebay_train.txt", "Ebay_test.txt"),
        (
            "inat_base",
            "Inat_dataset_splits/Inaturalist_train_set1.txt",
            "Inat_dataset_splits/Inaturalist_test_set1.txt",
        ),
        ("vehicleid", "train_test_split/train_list.txt", "train_test_split/test_list_2400.txt"),
    ],
)
def test_wrong_split_file_is_found(copy, name, train, test):
    root = copy(name)
    (root / test).write_text((root / train).read_text())
    for call in (
        lambda: D.load_dataset(name, "train", root),
        lambda: D.load_dataset(name, "test", root),
        lambda: D.load_protocols(name, root),
    ):
        with pytest.raises(D.DatasetError, match="16 of 16 training classes are test classes too"):
            call()
    assert any(line[0] == "disjoint" and line[1] == "fail" for line in checking.check_dataset(name, root))


def test_vggface2_identity_on_both_sides(copy):
    root = copy("vggface2")
    shutil.copytree(root / "train" / "n000002", root / "test" / "n000002")
    with pytest.raises(D.DatasetError, match="n000002"):
        D.load_dataset("vggface2", "train", root)


def test_vggface2_without_lists_reads_the_folders(copy):
    root = copy("vggface2")
    listed = D.load_dataset("vggface2", "train", root)
    (root / "train_list.txt").unlink()
    assert D.load_dataset("vggface2", "train", root).relative == listed.relative


def test_labels_that_contradict_the_tree(copy):
    root = copy("sop")
    lines = (root / "Ebay_train.txt").read_text().splitlines()
    number, _, coarse, path = lines[-1].split()
    (root / "Ebay_train.txt").write_text("\n".join([*lines[:-1], f"{number} 1 {coarse} {path}"]))
    with pytest.raises(D.DatasetError, match="product '1' lies in category '1' and in '4'"):
        D.load_dataset("sop", "train", root)
    assert (
        len(D.load_dataset("sop", "train", root, data=DataConfig(levels=1)).labels[0]) == 1
    )  # the way out that the message names
    assert any("tree" in line[0] and line[1] == "fail" for line in checking.check_dataset("sop", root))
    (root / "Ebay_train.txt").write_text("\n".join([*lines[:-1], f"{number} 777 1 {path}"]))
    with pytest.raises(D.DatasetError, match="super-class 1 to pictures of"):
        D.load_dataset("sop", "train", root)


def test_other_contradictions(copy):
    root = copy("cub")
    edit(root / "image_class_labels.txt", "1 1\n", "1 2\n")
    with pytest.raises(D.DatasetError, match="contradict each other"):
        D.load_dataset("cub", "train", root)
    root = copy("vehicleid")
    with open(root / "attribute" / "model_attr.txt", "a") as file:
        file.write("1 99999\n")
    with pytest.raises(D.DatasetError, match="vehicle 1 two models"):
        D.load_dataset("vehicleid", "train", root)
    root = copy("inshop")
    edit(root / "Eval" / "list_eval_partition.txt", " gallery", " galery")
    with pytest.raises(D.DatasetError, match="status 'galery'"):
        D.load_dataset("inshop", "train", root)
    edit(root / "Eval" / "list_eval_partition.txt", " galery", " gallery")
    edit(root / "Eval" / "list_eval_partition.txt", "141", "142")
    with pytest.raises(D.DatasetError, match="says 142 images in its first line and lists 141"):
        D.load_dataset("inshop", "train", root)
    root = copy("inat_full")
    (root / "train2018.json").write_text('{"categories": []}')
    with pytest.raises(D.DatasetError, match="does not know"):
        D.load_dataset("inat_full", "train", root)
    (root / "train2018.json").write_text('{"annotations": []}')
    with pytest.raises(D.DatasetError, match="no list 'categories'"):
        D.load_dataset("inat_full", "train", root)


# ---------------------------------------------------------------- missing and damaged pictures


def test_missing_pictures_are_named_and_counted(copy):
    root = copy("sop")
    (root / "bicycle_final" / "111000000001_0.JPG").unlink()
    (root / "bicycle_final" / "111000000001_2.JPG").unlink()
    with pytest.raises(D.MissingData, match="2 of 81 pictures of .* are missing.*bicycle_final/111000000001_0.JPG"):
        D.load_dataset("sop", "train", root)
    with pytest.warns(UserWarning, match="2 of 81 pictures are missing"):
        images = D.load_dataset("sop", "train", root, data=DataConfig(damaged_share=0.03, **SMALL))
    assert torch.equal(images.batch([0])[0], images.batch([1])[0]) and torch.equal(
        images.batch([2])[0], images.batch([3])[0]
    )
    lines = checking.check_dataset("sop", root)
    assert any(line[1] == "fail" and "2 of 81 are missing" in line[2] for line in lines)


def damaged_set(copy, share):
    root = copy("sop")
    images = D.load_dataset("sop", "train", root, data=DataConfig(damaged_share=share, **SMALL))
    for i in (0, 1, 20):
        images.paths[i].write_bytes(images.paths[i].read_bytes()[:200])
    return images


def test_damaged_pictures_are_replaced_by_their_class(copy):
    images = damaged_set(copy, 0.05)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        first, labels = images.batch([0, 1, 20])
        again, _ = images.batch([0, 1, 20])
    assert torch.equal(first, again) and torch.equal(labels, images.labels[[0, 1, 20]])
    assert len(said) == 3 and "111000000001_0.JPG" in str(said[0].message) and "1 of 81 so far" in str(said[0].message)
    assert torch.equal(first[0], images.batch([2])[0][0]) and torch.equal(first[1], images.batch([2])[0][0])
    assert len(images.damaged) == 3
    part = images.subset([20, 19, 1])
    assert torch.equal(part.batch([0])[0], part.batch([1])[0]) and part.damaged is images.damaged
    with pytest.raises(D.DamagedImages, match="every picture of the class"):
        part.batch([2])  # its class has no other picture in this subset


def test_too_many_damaged_pictures_stop(copy):
    images = damaged_set(copy, 0.025)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images.batch([0, 1])
        with pytest.raises(
            D.DamagedImages,
            match="3 of 81 pictures of sop are missing or damaged, more than the share of 0.025.*111000000001_0.JPG",
        ):
            images.batch([20])
    lines = checking.check_dataset("sop", images.root, every_picture=True)
    assert any("3 of 81 pictures opened are damaged" in line[2] for line in lines)


# ---------------------------------------------------------------- the object


def test_draws_and_subsets_are_decided_by_the_image(miniatures):
    images = D.load_dataset("sop", "train", miniatures["sop"], data=DataConfig(size=32, resize=40), seed=5)
    part = images.subset([7, 3, 7])
    for draw in (0, 1, 2):
        assert torch.equal(part.batch([0, 1, 2], draw)[0], images.batch([7, 3, 7], draw)[0])
    assert not torch.equal(images.batch([7], 1)[0], images.batch([7], 2)[0])
    other = D.load_dataset("sop", "train", miniatures["sop"], data=DataConfig(size=32, resize=40), seed=6)
    assert torch.equal(images.batch([7], 0)[0], other.batch([7], 0)[0]) and not torch.equal(
        images.batch([7], 1)[0], other.batch([7], 1)[0]
    )
    image, labels = images[7]
    assert torch.equal(image, images.batch([7])[0][0]) and labels.shape == (2,)
    assert images.paths[-1] == images.root / images.relative[-1] and len(images.paths[2:5]) == 3


def test_image_set_refuses_what_does_not_fit(miniatures):
    images = D.load_dataset("sop", "train", miniatures["sop"])
    for wrong, error in (
        ([0.5], TypeError),
        (torch.ones(3, dtype=torch.bool), TypeError),
        ([81], IndexError),
        ([-82], IndexError),
    ):
        with pytest.raises(error):
            images.batch(wrong)
    with pytest.raises(IndexError):
        images[81]
    with pytest.raises(ValueError, match="draw"):
        images.batch([0], -1)
    with pytest.raises(D.DatasetError, match="labels must be"):
        D.ImageSet(images.root, images.relative, images.labels[:5], ("a", "b"))
    with pytest.raises(D.DatasetError, match="damaged_share"):
        D.ImageSet(images.root, images.relative, images.labels, ("a", "b"), damaged_share=2)


def test_image_set_goes_through_pickle_for_worker_processes(miniatures):
    import pickle

    images = D.load_dataset("sop", "train", miniatures["sop"], data=DataConfig(**SMALL))
    assert torch.equal(pickle.loads(pickle.dumps(images)).batch([1, 2], 3)[0], images.batch([1, 2], 3)[0])


def test_any_callable_is_a_transform(miniatures):
    images = D.load_dataset("sop", "train", miniatures["sop"])
    images.transform = lambda picture, identity, draw: torch.full((1, 2, 2), identity / 100 + draw)
    assert images.batch([7], 2)[0].unique().tolist() == pytest.approx([2.07])
    assert isinstance(D.load_dataset("sop", "train", miniatures["sop"]).transform, PhotoTransform)


def test_official_counts_are_compared(monkeypatch, copy):
    root = copy("cub")
    (root / sources.MARKER).unlink()
    lines = {line[0]: line for line in checking.check_dataset("cub", root)}
    assert lines["train"][1] == "fail" and "5,864" in lines["train"][2] and "caltech" in lines["train"][3]
    info = D.DATASETS["cub"]
    right = {
        "train": (sources.Count(71, 14, "me"),),
        "test": (sources.Count(70, 14, "me"), sources.Count(71, 14, "somebody else", False)),
    }
    monkeypatch.setitem(D.DATASETS, "cub", sources.DatasetInfo(**{**vars(info), "counts": right}))
    lines = {line[0]: line for line in checking.check_dataset("cub", root)}
    assert lines["train"][1] == lines["test"][1] == "ok"
    unsure = {"train": (sources.Count(72, 14, "me", False),), "test": (sources.Count(110, 14, "rounded", False),)}
    monkeypatch.setitem(D.DATASETS, "cub", sources.DatasetInfo(**{**vars(info), "counts": unsure}))
    lines = {line[0]: line for line in checking.check_dataset("cub", root)}
    assert lines["train"][1] == "note" and "do not agree" in lines["train"][2]
    assert lines["test"][1] == "ok"  # rounded to hundreds, 70 is close enough


def test_other_counts_than_the_official_ones_are_a_warning(copy):
    root = copy("sop")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        D.load_protocols("sop", root)  # a miniature says what it is
    (root / sources.MARKER).unlink()
    with pytest.warns(UserWarning, match="81 images of 16 classes.*59,551.*smoothap data check sop"):
        D.load_dataset("sop", "train", root)
    with pytest.warns(UserWarning, match="60,502"):
        D.load_protocols("sop", root)


def test_counts_per_level(monkeypatch, copy):
    root = copy("inat_full")
    (root / sources.MARKER).unlink()
    info = D.DATASETS["inat_full"]
    images = D.load_dataset("inat_full", "train", root)
    levels = tuple(map(len, images.class_names))
    for counted, state in (
        (levels, "ok"),
        (levels[:-1] + (levels[-1] + 1,), "fail"),
        ((levels[0] + 1, *levels[1:]), "fail"),
    ):
        monkeypatch.setitem(
            D.DATASETS,
            "inat_full",
            sources.DatasetInfo(**{**vars(info), "counts": {"train": (sources.Count(81, counted, "me"),)}}),
        )
        assert {line[0]: line for line in checking.check_dataset("inat_full", root)}["train"][1] == state


# ---------------------------------------------------------------- the command line


def call(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["smoothap", "data", *map(str, words)])
    try:
        cli.run()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    out = capsys.readouterr()
    return code, out.out, out.err


def test_cli_lists_writes_and_checks(monkeypatch, capsys, tmp_path):
    code, out, _ = call(monkeypatch, capsys, "list")
    assert code == 0 and all(name in out for name in D.DATASETS)
    code, out, _ = call(monkeypatch, capsys, "list", "dyml_vehicle")
    assert code == 0 and "OneDrive link there is dead" in out and "39,491" in out
    code, out, err = call(monkeypatch, capsys, "miniature", "cub", "--to", tmp_path / "cub")
    assert code == 0, err
    code, out, _ = call(monkeypatch, capsys, "check", "cub", "--root", tmp_path / "cub")
    assert code == 0 and "miniature" in out and "disjoint" in out
    (tmp_path / "cub" / "images.txt").unlink()
    code, out, _ = call(monkeypatch, capsys, "check", "cub", "--root", tmp_path / "cub")
    assert code == 1 and "images.txt is missing" in out and "caltech" in out


@pytest.mark.parametrize(
    "words, says",
    [
        (["check", "cubb"], "did you mean 'cub'"),
        (["list", "sopp"], "did you mean 'sop'"),
        (["miniature", "cub", "--to", "{}", "--classes", "1"], "classes must be"),
        (["miniature", "cub", "--to", "{}/x"], "is a file"),
    ],
)
def test_cli_faults_are_one_line(monkeypatch, capsys, tmp_path, words, says):
    (tmp_path / "x").write_text("")
    code, _, err = call(monkeypatch, capsys, *(word.format(tmp_path) for word in words))
    assert code == 2 and says in err and err.count("\n") == 1


# ---------------------------------------------------------------- a short training of each, through its protocol


def short_training(name, root, folder, *more):
    from smoothap_nb import train as T
    from smoothap_nb.train.config import load_experiment

    settings = (
        f"data.name={name}",
        f"data.root={root}",
        "data.size=32",
        "data.resize=36",
        "data.workers=1",
        "data.crop_scale=[0.5, 1.0]",
        "model.backbone=resnet18",
        "model.dim=16",
        "batch.classes=6",
        "batch.images=3",
        "optim.steps=6",
        "optim.warmup=1",
        "loss.tau=0.05",
    )
    experiment = load_experiment("demo", (*settings, *more))
    run = T.open_run(folder, experiment)
    training = T.prepare(experiment, run, torch.device("cpu"))
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
    T.fit(training, progress=False, tensorboard=False)
    losses = [line["loss"] for line in T.read_log(run) if "loss" in line]
    assert losses and all(np.isfinite(losses)) and training.step == experiment.optim.steps
    assert any(not torch.equal(a, b) for a, b in zip(before, training.model.parameters()))
    return training, experiment


@pytest.mark.miniature
@pytest.mark.parametrize("name", NAMES)
def test_short_training_and_protocol(name, miniatures, tmp_path):
    from smoothap_nb.train import embed

    source = "vggface2" if name == "ijbc" else name  # IJB-C is for testing only
    more = ("loss.name=h_ap",) if name == "inat_full" else ()
    training, experiment = short_training(source, miniatures[source], tmp_path / "run", *more)
    protocols = D.load_protocols(name, miniatures[name], data=experiment.data)
    found = D.evaluate_protocols(
        protocols, lambda images: embed(training.model, images, progress=False), progress=False
    )
    assert len(found) == len(protocols) + name.startswith("dyml")
    for numbers in found.values():
        assert all(0 <= value <= 1 for key, value in numbers.items() if key != "queries_skipped")
        assert numbers["mAP"] > 0.05


@pytest.mark.miniature
def test_short_training_from_the_decoded_cache_sees_damage(copy, tmp_path):
    root = copy("sop")
    damaged = next((root / "chair_final").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:100])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        training, _ = short_training(
            "sop",
            root,
            tmp_path / "run",
            f"data.cache={tmp_path / 'cache'}",
            "data.damaged_share=0.05",
            "optim.steps=3",
        )
    assert training.step == 3
