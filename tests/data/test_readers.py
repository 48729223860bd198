"Layouts: the tree of labels, paths that lead out of the root, miniatures that are the same bytes."

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothap_nb.data import datasets as D
from smoothap_nb.data import lists
from smoothap_nb.data import miniatures as M
from smoothap_nb.data import readers as Y
from smoothap_nb.data.labels import label_tree


def picture(path):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 16), (40, 90, 20)).save(path)


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["1", "2", "10"]), st.sampled_from(["x", "y9", "y10"])),
        min_size=1,
        max_size=12,
    )
)
def test_path_labels_keep_exactly_the_paths_apart(rows):
    labels, names = label_tree([list(column) for column in zip(*rows)], "path")
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            for level in range(3):
                assert (labels[i, level] == labels[j, level]) == (a[: level + 1] == b[: level + 1])
        assert [names[level][labels[i, level]] for level in range(3)] == list(a)
    for level in range(3):
        assert labels[:, level].unique().tolist() == list(range(len(names[level])))


# ---------------------------------------------------------------- paths that lead out


@pytest.mark.parametrize(
    "path",
    [
        "../x.png",
        "a/../../x.png",
        "/etc/passwd",
        "/x.png",
        "C:\\x.png",
        "\\\\server\\x.png",
        "a\\..\\x.png/y.png",
        "..",
        "a/..",
    ],
)
def test_paths_out_of_the_root_are_refused(tmp_path, path):
    (tmp_path / "root" / "a").mkdir(parents=True)
    picture(tmp_path / "x.png")
    with pytest.raises(D.DatasetError, match="images must lie in"):
        lists.find_missing(tmp_path / "root", [path])


def test_links_out_of_the_root_are_refused_and_links_inside_are_not(tmp_path):
    root = tmp_path / "root"
    picture(root / "in" / "a.png")
    picture(tmp_path / "out" / "b.png")
    (root / "folder").symlink_to(tmp_path / "out")
    (root / "in" / "file.png").symlink_to(tmp_path / "out" / "b.png")
    (root / "in" / "same.png").symlink_to(root / "in" / "a.png")
    (root / "alias").symlink_to(root / "in")
    for path in ("folder/b.png", "in/file.png"):
        with pytest.raises(D.DatasetError, match="link"):
            lists.find_missing(root, [path])
    assert lists.find_missing(root, ["in/same.png", "alias/a.png", "in/none.png", "none/a.png"]) == [
        "in/none.png",
        "none/a.png",
    ]
    (tmp_path / "link").symlink_to(root)  # the root itself may be a link
    assert lists.find_missing(tmp_path / "link", ["in/a.png"]) == []


# ---------------------------------------------------------------- miniatures


@pytest.mark.parametrize("name", ["sop", "ijbc", "dyml_animal"])
def test_miniatures_are_the_same_bytes(name, tmp_path):
    def digest(folder):
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        return hashlib.sha256(b"".join(str(p.relative_to(folder)).encode() + p.read_bytes() for p in files)).hexdigest()

    assert digest(M.make_miniature(name, tmp_path / "again")) == digest(M.make_miniature(name, tmp_path / "first"))
    assert digest(M.make_miniature(name, tmp_path / "other", seed=1)) != digest(tmp_path / "first")


def test_miniature_sizes_and_faults(tmp_path):
    images = D.load_dataset("sop", "train", M.make_miniature("sop", tmp_path / "a", classes=9, images=8))
    assert images.statistics()["classes"] == 9 and images.statistics()["largest_class"] == 8
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("do not lose me")
    for folder in (tmp_path / "full", tmp_path / "full" / "thesis.tex", tmp_path / "a"):
        with pytest.raises(D.DatasetError, match="new or empty folder"):
            M.make_miniature("sop", folder)
    assert (tmp_path / "full" / "thesis.tex").read_text() == "do not lose me"
    with pytest.raises(ValueError, match="classes must be"):
        M.make_miniature("sop", tmp_path / "b", classes=2)
    with pytest.raises(ValueError, match="images must be"):
        M.make_miniature("sop", tmp_path / "b", images=3)
    with pytest.raises(ValueError, match="ask for fewer"):
        M.make_miniature("sop", tmp_path / "b", classes=6000)
    with pytest.raises(D.DatasetError, match="need no miniature"):
        M.make_miniature("glyphs", tmp_path / "b")


def test_every_data_set_has_its_reader_and_its_writer():
    assert (
        [info.name for info in Y.DATASETS.values() if info.read]
        == [name for name in Y.DATASETS if name != "glyphs"]
        == list(M.WRITERS)
    )
    for info in Y.DATASETS.values():
        assert info.source and info.title and info.metrics
