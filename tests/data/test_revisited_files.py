"""The files of the revisited protocol: what must not be trusted is refused by name, and the miniature runs the whole
protocol.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import pickle
import pickletools

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from smoothap_nb import (
    convert_ground_truth,
    evaluate_revisited,
    extract_descriptors,
    learn_whitening,
    load_distractors,
    load_revisited,
    query_expansion,
)
from smoothap_nb.data.revisited_files import ImageList, read_ground_truth, read_image, read_plain_pickle
from smoothap_nb.data.revisited_miniature import write_miniature
from smoothap_nb.metrics.revisited import SETUPS

EXAMPLE = {"easy": [0, 5], "hard": [2], "junk": [1, 3]}


def entry(easy=(), hard=(), junk=(), bbx=(0.0, 0.0, 5.0, 5.0)) -> dict:
    return {"easy": list(easy), "hard": list(hard), "junk": list(junk), "bbx": list(bbx)}


# ---------------------------------------------------------------------------------------------------------------------
# pickles

class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


class Opened:
    def __reduce__(self):
        return open, ("/etc/hostname",)


class Evaluated:
    def __reduce__(self):
        return eval, ("__import__('os').getpid()",)


@pytest.mark.parametrize("protocol", range(0, 6))
def test_a_pickle_that_runs_code_is_refused_by_name(tmp_path, protocol):
    target = tmp_path / "touched"
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps({"gnd": [Touch(target)]}, protocol=protocol))
    with pytest.raises(ValueError, match=r"refused: it asks for (posix|nt)\.system"):
        read_plain_pickle(tmp_path / "evil.pkl")
    assert not target.exists()
    pickle.loads((tmp_path / "evil.pkl").read_bytes())  # the file is real: plain pickle does touch it
    assert target.exists()


def test_an_annotation_that_runs_code_stops_the_loader(tmp_path):
    (tmp_path / "roxford5k").mkdir()
    (tmp_path / "roxford5k" / "gnd_roxford5k.pkl").write_bytes(pickle.dumps({"imlist": Touch(tmp_path / "touched")}))
    with pytest.raises(ValueError, match="system"):
        load_revisited(tmp_path)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    "what, name",
    [
        (Opened(), r"open"),
        (Evaluated(), r"builtins\.eval"),
        (datetime.date(2018, 6, 18), r"datetime\.date"),
        (torch.zeros(2), "torch"),
        (np.random.default_rng(0), "numpy.random"),
        (nn.Linear(1, 1), "torch"),
        (Image.Image, "PIL"),
        (len, r"builtins\.len"),
        (complex, r"builtins\.complex"),
    ],
)
def test_pickles_of_anything_but_data_are_refused(tmp_path, what, name):
    (tmp_path / "x.pkl").write_bytes(pickle.dumps([what]))
    with pytest.raises(ValueError, match=name):
        read_plain_pickle(tmp_path / "x.pkl")


PLAIN = {
    "list": [1, 2.5, "x", None, True, (3, "é")],
    "set": {1, 2},
    "frozen": frozenset({3}),
    "none": b"",
    "array": bytearray(b"ab"),
    "bytes": b"\x00\xff",
    "big": 2**70,
    "dict": {1: {"a": []}},
}
ARRAYS = {
    "ints": np.array([3, 1, 2]),
    "small": np.array([[1, 2], [3, 4]], dtype=np.uint8),
    "floats": np.array([0.5, -1e300]),
    "big endian": np.array([1, 2], dtype=">i4"),
    "text": np.array(["ab", "ç"]),
    "bools": np.array([True, False]),
    "empty": np.empty(0),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "half": np.array([1.5], dtype=np.float16),
    "strided": np.arange(10)[::2],
}


@pytest.mark.parametrize("protocol", range(0, 6))
def test_plain_data_is_read(tmp_path, protocol):
    content = (
        PLAIN
        | ARRAYS
        | {
            "number": np.float64(2.5),
            "index": np.int32(7),
            "shared": [ARRAYS["ints"]] * 2,
            "names": np.array(["a", "b"], dtype=object),
        }
    )
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(content, protocol=protocol))
    got = read_plain_pickle(tmp_path / "x.pkl")
    assert {k: got[k] for k in PLAIN} == PLAIN
    for name, array in ARRAYS.items():
        assert isinstance(got[name], np.ndarray) and got[name].shape == array.shape and (got[name] == array).all(), name
    assert (
        got["number"] == 2.5
        and got["index"] == 7
        and got["names"] == ["a", "b"]
        and (got["shared"][1] == ARRAYS["ints"]).all()
    )


def test_a_pickle_of_python_2_is_read(tmp_path):
    "Protocol 2 as Python 2 and an old numpy wrote it: byte strings, numpy.core, Latin letters for bytes."
    stream = (
        b"\x80\x02}q\x00(U\x06imlistq\x01]q\x02U\x03oneq\x03aU\x03gndq\x04cnumpy.core.multiarray\n_reconstruct\nq\x05cnumpy\nndarray\nq\x06K\x00\x85q\x07U\x01bq\x08\x87q\tRq\n"  # noqa: E501
        b"(K\x01K\x02\x85q\x0bcnumpy\ndtype\nq\x0cU\x02i4q\rK\x00K\x01\x87q\x0eRq\x0f(K\x03U\x01<q\x10NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x11b"  # noqa: E501
        b"\x89U\x08\x05\x00\x00\x00\xff\xff\xff\xffq\x12tq\x13bu."
    )
    pickletools.dis(stream, out=open(os.devnull, "w"))
    (tmp_path / "old.pkl").write_bytes(stream)
    got = read_plain_pickle(tmp_path / "old.pkl")
    assert got["imlist"] == ["one"] and got["gnd"].tolist() == [5, -1]


def test_admitted_names_cannot_be_bent(tmp_path):
    "Stand-ins with wrong arguments, changed stand-ins, self-containing lists, persistent ids: refused, never run."
    reconstruct = b"cnumpy._core.multiarray\n_reconstruct\n"
    streams = {
        "array without state": b"\x80\x02" + reconstruct + b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R.",
        "object dtype from bytes": b"\x80\x02"
        + reconstruct
        + b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x01\x85cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R\x89U\x08aaaaaaaatb.",  # noqa: E501
        "shape that lies": b"\x80\x02"
        + reconstruct
        + b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x7f\x85cnumpy\ndtype\nU\x02i4K\x00K\x01\x87R(K\x03U\x01<NNNK\x00K\x00K\x00tb\x89U\x04aaaatb.",  # noqa: E501
        "a function itself": b"\x80\x02" + reconstruct + b".",
        "a function changed": b"\x80\x02" + reconstruct + b"}U\x01xK\x01sb.",
        "a list in itself": b"\x80\x02]q\x00h\x00a.",
        "persistent": b"\x80\x02K\x01Q.",
        "new object": b"\x80\x02cnumpy\nndarray\n)\x81.",
        "a huge allocation": b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
        "cut off": pickle.dumps(PLAIN)[:-9],
        "not a pickle": b"hello",
        "empty": b"",
    }
    for name, stream in streams.items():
        (tmp_path / "x.pkl").write_bytes(stream)
        with pytest.raises(ValueError, match="refused|damaged"):
            print(name, read_plain_pickle(tmp_path / "x.pkl"))


def test_deep_nesting_is_refused(tmp_path):
    value = []
    for _ in range(60):
        value = [value]
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value))
    with pytest.raises(ValueError, match="nested"):
        read_plain_pickle(tmp_path / "x.pkl")


def test_shared_parts_do_not_explode(tmp_path):
    "Lists of lists of the same list, fifteen deep: 2^15 leaves if they were copied."
    value = ["x"]
    for _ in range(15):
        value = [value] * 20
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value))
    got = read_plain_pickle(tmp_path / "x.pkl")
    assert got[0] is got[19]


# --------------------------------------------------------------------------------------------------------------------
# files

def picture(path, size=(40, 30), colour=(200, 30, 60)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, quality=95)


@pytest.fixture
def town(tmp_path):
    "A data set of three gallery images and one query in the official layout."
    content = {"imlist": ["a", "b", "c"], "qimlist": ["q"], "gnd": [entry([0], [2], [1], bbx=[4.6, 3.0, 20.2, 25.0])]}
    for name in "abcq":
        picture(tmp_path / "town" / "jpg" / f"{name}.jpg")
    (tmp_path / "town" / "gnd_town.pkl").write_bytes(pickle.dumps(content))
    return tmp_path, content


def rewrite(root, content):
    (root / "town" / "gnd_town.pkl").write_bytes(pickle.dumps(content))


def test_load_revisited(town):
    root, content = town
    data = load_revisited(root, "town")
    assert (
        len(data.gallery) == 3
        and data.gallery[1] == root / "town" / "jpg" / "b.jpg"
        and data.queries[0].name == "q.jpg"
    )
    assert data.gallery[:2] == [data.gallery[0], data.gallery[1]] and data.gallery[-1].name == "c.jpg"
    assert data.gnd == [{"bbx": [4.6, 3.0, 20.2, 25.0], "easy": [0], "hard": [2], "junk": [1]}]
    assert evaluate_revisited(torch.tensor([[3.0, 2.0, 1.0]]), data)["medium"]["mAP"] == 1
    assert evaluate_revisited(torch.tensor([[3.0, 2.0, 1.0]]), content)["medium"]["mAP"] == 1


def test_json_round_trip(town):
    root, _ = town
    before = load_revisited(root, "town")
    written = convert_ground_truth(root / "town" / "gnd_town.pkl")
    assert written == root / "town" / "gnd_town.json" and read_ground_truth(written) == read_ground_truth(
        root / "town" / "gnd_town.pkl"
    )
    (root / "town" / "gnd_town.pkl").write_bytes(b"the JSON goes first")
    assert load_revisited(root, "town").gnd == before.gnd
    assert sorted(p.name for p in (root / "town").iterdir()) == ["gnd_town.json", "gnd_town.pkl", "jpg"]
    assert convert_ground_truth(written, root / "copy.json").read_text() == written.read_text()


def test_the_query_is_its_box(town):
    root, _ = town
    data = load_revisited(root, "town")
    assert data.query_image(0).shape == (3, 22, 15)  # 4.6 ... 20.2 is rounded to 5 ... 20
    assert data.gallery_image(0).shape == (3, 30, 40)
    assert data.query_image(0, size=20).shape == (3, 11, 8)  # the factor of the whole image, 20 / 40
    assert data.gallery_image(0, size=20).shape == (3, 15, 20) and data.gallery_image(0, size=900).shape == (3, 30, 40)


def test_boxes_cut_the_right_pixels(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    got = read_image(tmp_path / "x.png", bbx=(5, 2, 15, 12))
    assert torch.equal(got, torch.from_numpy(pixels[2:12, 5:15]).permute(2, 0, 1).float() / 255)
    assert read_image(tmp_path / "x.png", bbx=(-3, -3, 400, 400)).shape == (3, 30, 40)
    with pytest.raises(ValueError, match="holds no pixel"):
        read_image(tmp_path / "x.png", bbx=(50, 0, 60, 5))


def test_missing_images_are_named_with_their_source(town):
    root, _ = town
    (root / "town" / "jpg" / "b.jpg").unlink()
    with pytest.raises(FileNotFoundError, match="1 of 4 images are not in .*first 'b'"):
        load_revisited(root, "town")
    assert len(load_revisited(root, "town", images=False).gallery) == 3


@pytest.mark.parametrize(
    "name, where",
    [
        ("roxford5k", "cmp.felk.cvut.cz/revisitop/data/datasets/roxford5k/gnd_roxford5k.pkl"),
        ("rparis6k", "gnd_rparis6k.pkl"),
    ],
)
def test_a_missing_annotation_is_named_with_its_source(tmp_path, name, where):
    with pytest.raises(FileNotFoundError, match=where):
        load_revisited(tmp_path, name)
    with pytest.raises(FileNotFoundError, match="revisitop1m.txt"):
        load_distractors(tmp_path)


def test_images_of_the_real_sets_are_named_with_their_source(tmp_path):
    folder = tmp_path / "roxford5k"
    folder.mkdir()
    names = [f"all_souls_{i:06d}" for i in range(4993)]
    (folder / "gnd_roxford5k.json").write_text(json.dumps({"imlist": names, "qimlist": ["q"], "gnd": [entry([0])]}))
    with pytest.raises(FileNotFoundError, match="oxbuild_images-v1.tgz"):
        load_revisited(tmp_path)
    (folder / "gnd_roxford5k.json").write_text(json.dumps({"imlist": names[1:], "qimlist": ["q"], "gnd": [entry([0])]}))
    with pytest.raises(ValueError, match="lists 4992 gallery images, roxford5k has 4993"):
        load_revisited(tmp_path)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "..", "c:\\x", "a\\b", "", "x\0y", 7])
def test_names_stay_in_their_folder(town, name):
    root, _ = town
    with pytest.raises(ValueError, match="must stay inside"):
        ImageList(root / "town" / "jpg", ["a", name])


def test_an_annotation_with_a_path_out_is_refused(town):
    root, content = town
    rewrite(root, content | {"imlist": ["a", "b", "../../secret"]})
    with pytest.raises(ValueError, match="1 image names are refused"):
        load_revisited(root, "town")


def test_links_do_not_lead_out(town, tmp_path_factory):
    root, _ = town
    outside = tmp_path_factory.mktemp("outside") / "secret.jpg"
    picture(outside)
    (root / "town" / "jpg" / "b.jpg").unlink()
    (root / "town" / "jpg" / "b.jpg").symlink_to(outside)
    data = load_revisited(root, "town")
    with pytest.raises(ValueError, match="leads out of"):
        data.gallery[1]
    moved = root / "elsewhere"  # the folder itself may be a link
    (root / "town" / "jpg").rename(moved)
    (root / "town" / "jpg").symlink_to(moved)
    assert load_revisited(root, "town").gallery_image(0).shape == (3, 30, 40)


def test_names_like_dots_are_fine(tmp_path):
    names = ["..hidden..", "a..b", "deep/er/x"]
    assert [p.name for p in ImageList(tmp_path, names, ".jpg")] == ["..hidden...jpg", "a..b.jpg", "x.jpg"]
    with pytest.raises(ValueError, match="more than once"):
        ImageList(tmp_path, ["a", "a"])


@pytest.mark.parametrize("change, message", [
    (lambda c: {"imlist": []}, "must hold imlist, qimlist and gnd"),
    (lambda c: [1], "must hold imlist, qimlist and gnd"),
    (lambda c: c | {"qimlist": ["q", "p"]}, "qimlist has 2 names, gnd has 1"),
    (lambda c: c | {"qimlist": ["a"]}, "1 query images are in the gallery too, first 'a'"),
    (lambda c: c | {"gnd": [entry([3])]}, r"gnd\[0\] names an image beyond the 3"),
    (lambda c: c | {"gnd": [{"easy": [], "hard": [], "junk": []}]}, "bbx"),
    (lambda c: c | {"gnd": [entry([0], bbx=[5, 0, 5, 9])]}, "left < right"),
    (lambda c: c | {"gnd": [entry([0], bbx=[5, 0, math.nan, 9])]}, "left < right"),
    (lambda c: c | {"gnd": [{"bbx": [0, 0, 1, 1], "ok": []}]}, "first Oxford5k"),
])
def test_damaged_annotations_are_named(town, change, message):
    root, content = town
    rewrite(root, change(content))
    with pytest.raises(ValueError, match=message):
        load_revisited(root, "town")


def test_bad_json_and_bad_pictures_are_named(town):
    root, _ = town
    (root / "town" / "gnd_town.json").write_text("{")
    with pytest.raises(ValueError, match="is no JSON"):
        load_revisited(root, "town")
    (root / "x.jpg").write_bytes(b"not a picture")
    with pytest.raises(ValueError, match=r"x\.jpg is damaged or is no picture"):
        read_image(root / "x.jpg")
    with pytest.raises(FileNotFoundError):
        read_image(root / "nowhere.jpg")
    with pytest.raises(ValueError, match="size must be"):
        read_image(root / "town" / "jpg" / "a.jpg", size=0)


def test_truncated_distractors_are_read_when_asked(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "whole.jpg")
    data = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "half.jpg").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="damaged"):
        read_image(tmp_path / "half.jpg")
    assert read_image(tmp_path / "half.jpg", damaged=True).shape == (3, 64, 64)
    with pytest.raises(ValueError, match="damaged"):  # and the tolerance does not outlive the call
        read_image(tmp_path / "half.jpg")


def test_load_distractors(tmp_path):
    for name in ("x/1.jpg", "2.png"):
        picture(tmp_path / "crowd" / "jpg" / name)
    (tmp_path / "crowd" / "crowd.txt").write_text("x/1.jpg\n2.png\n\n3.jpg\n")
    assert load_distractors(tmp_path, "crowd").names == ["x/1.jpg", "2.png", "3.jpg"]
    with pytest.raises(FileNotFoundError, match="1 of 3 images .*'3.jpg'"):
        load_distractors(tmp_path, "crowd", images=True)
    (tmp_path / "crowd" / "crowd.txt").write_text("../1.jpg\n")
    with pytest.raises(ValueError, match="must stay inside"):
        load_distractors(tmp_path, "crowd")
    (tmp_path / "crowd" / "crowd.txt").write_text("\n")
    with pytest.raises(ValueError, match="lists no image"):
        load_distractors(tmp_path, "crowd")


# -------------------------------------------------------------------------------------------------------------------
# miniature

def test_the_miniature_runs_the_whole_protocol(tmp_path):
    write_miniature(tmp_path, "small", landmarks=3, others=15, distractors=5)
    data = load_revisited(tmp_path, "small")
    crowd = load_distractors(tmp_path, "small-distractors", images=True)
    assert (
        len(data.queries) == 6
        and len(crowd) == 5
        and data.query_image(0).shape == (3, 32, 32)
        and data.gallery_image(0).shape == (3, 32, 48)
    )
    labelled = [set(e["easy"] + e["hard"] + e["junk"]) for e in data.gnd]
    assert all(e["easy"] and e["hard"] and e["junk"] for e in data.gnd)
    assert all(labelled[q] == labelled[q + 1] for q in (0, 2, 4)) and not labelled[0] & labelled[2]
    assert not set(data.queries.names) & set(data.gallery.names)
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 16, 5, stride=2), nn.ReLU())
    gallery = extract_descriptors(backbone, map(data.gallery_image, range(len(data.gallery))), scales=(1.0, 0.7))
    queries = extract_descriptors(backbone, map(data.query_image, range(len(data.queries))), scales=(1.0, 0.7))
    whitening = learn_whitening(extract_descriptors(backbone, map(read_image, crowd)), dimensions=3)
    queries, gallery = query_expansion(whitening(queries), whitening(gallery), top=3, alpha=3.0), whitening(gallery)
    full = evaluate_revisited(queries @ gallery.T, data)
    cut = evaluate_revisited(ground_truth=data, ranks=(queries @ gallery.T).topk(10).indices)
    assert all(0 < full[s]["mAP"] <= 1 and cut[s]["mAP"] <= full[s]["mAP"] for s in SETUPS)
    perfect = torch.tensor([[float(i in labelled[q]) for i in range(len(data.gallery))] for q in range(6)])
    assert all(evaluate_revisited(perfect, data)[s]["mAP"] == 1 for s in SETUPS)


def test_the_miniature_is_the_same_every_time(tmp_path):
    a, b = (write_miniature(tmp_path / str(i), landmarks=2, others=4) for i in range(2))
    assert (a / "gnd_rglyphs.pkl").read_bytes() == (b / "gnd_rglyphs.pkl").read_bytes()
    assert all((b / "jpg" / p.name).read_bytes() == p.read_bytes() for p in (a / "jpg").iterdir())
    assert (write_miniature(tmp_path / "2", landmarks=2, others=4, seed=1) / "gnd_rglyphs.pkl").read_bytes() != (
        a / "gnd_rglyphs.pkl"
    ).read_bytes()
