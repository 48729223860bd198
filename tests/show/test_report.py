"The run's measurement and its page: right numbers, nothing from outside, and a browser shows it."

import json
import re

import pytest
import torch

from smoothap_nb.data import embedding_files as E
from smoothap_nb.show import report as R
from smoothap_nb import train as T
from smoothap_nb.train import measure as M
from smoothap_nb.metrics.flat import average_precision
from smoothap_nb.train.checkpoints import write_tensors
from smoothap_nb.train.models import EmbeddingModel
from test_loop import tiny
from toydata import ToyData, use_toys


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    "A finished toy run, measured, with its page."
    patch = pytest.MonkeyPatch()
    use_toys(patch)
    path = tmp_path_factory.mktemp("run") / "run"
    experiment = tiny(optim__steps=80)
    training = T.prepare(experiment, T.open_run(path, experiment), torch.device("cpu"))
    T.fit(training, progress=False, tensorboard=False)
    T.save_model(training.model, path)
    record, shown = M.measure(path, progress=False)
    R.write_report(path, record, shown)
    yield path, record, shown
    patch.undo()


def test_metrics_are_the_definition(run):
    path, record, shown = run
    fine = shown["labels"][:, -1]
    for who, rows in shown["embeddings"].items():
        scores = (rows @ rows.T).double()
        keep = ~torch.eye(len(fine), dtype=torch.bool)
        relevance = (fine[:, None] == fine[None])[keep].view(len(fine), -1)
        ap = average_precision(scores[keep].view(len(fine), -1), relevance)
        assert abs(record["metrics"][who]["mAP"] - ap.mean().item()) < 1e-4
        assert abs(shown["per_query"][who] - ap).max() < 1e-3
    assert json.loads((path / "metrics.json").read_text())["metrics"] == record["metrics"]
    assert list(record["metrics"]) == [name for name in M.COMPETITORS if name != "start"]


def test_training_beats_the_start(run):
    _, record, _ = run
    assert record["metrics"]["trained"]["mAP"] > record["metrics"]["untrained"]["mAP"]


def test_a_network_that_starts_from_weights_is_measured_beside_its_start(tmp_path, monkeypatch):
    monkeypatch.setattr(M, "EmbeddingModel", EmbeddingModel)  # the run of this file puts a toy in its place
    torch.manual_seed(1)
    known = EmbeddingModel(tiny(model__stem="imagenet").model)
    write_tensors(tmp_path / "known.safetensors", {k: v.clone() for k, v in known.state_dict().items()})
    assert list(M.starts(tiny(), torch.device("cpu"))) == ["untrained"]
    given = tiny(model__stem="imagenet", model__weights=str(tmp_path / "known.safetensors"))
    found = M.starts(given, torch.device("cpu"))
    assert list(found) == ["untrained", "start"]
    same = lambda name, part: torch.equal(found[name].state_dict()[part], known.state_dict()[part])
    assert same("start", "backbone.conv1.weight") and not same("untrained", "backbone.conv1.weight")
    rows = found["start"](torch.rand(3, 1, 32, 32))
    assert rows.shape == (3, 512)  # the features that the weights bring, and no layer at random above them
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(3))
    shipped = M.starts(tiny(model__stem="imagenet", model__weights="glyphs"), torch.device("cpu"))["start"]
    assert shipped(torch.rand(3, 1, 32, 32)).shape == (3, 1024)  # the map of its third stage
    assert {"raw pixels", *found, "trained"} <= set(R._COLOURS) and set(R._COLOURS) == set(R._LINES)


def test_page_is_self_contained_and_says_everything(run):
    path, record, _ = run
    page = (path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", page) and "<script" not in page
    assert page.count('class="query"') == 15 and 'class="positive"' in page and 'class="negative"' in page
    for number in record["metrics"]["trained"].values():
        assert f"{number:.3f}" in page or number == 0
    for word in ("raw pixels", "untrained", "seed 0", "torch", "checkpoint_every", "commit"):
        assert word in page
    assert not re.search(r"<img(?![^>]*alt=)", page)


def test_images_of_classes_are_whole_classes_and_seeded():
    data = ToyData("test")
    chosen = M.images_of_classes(data, 5, seed=1)
    fine = data.labels[:, -1]
    assert len(fine[chosen].unique()) == 5 and len(chosen) == 30
    assert torch.equal(chosen, M.images_of_classes(data, 5, seed=1)) and not torch.equal(
        chosen, M.images_of_classes(data, 5, seed=2)
    )
    assert len(M.images_of_classes(data, 0, 0)) == len(data) == len(M.images_of_classes(data, 99, 0))


def test_precision_recall_ends_at_one():
    recall, precision = R.precision_recall(torch.tensor([.9, .8, .7]), torch.tensor([False, True, False]))
    assert recall.tolist() == [1.0] and precision.tolist() == [0.5]
    at, mean = R.mean_precision_recall(torch.eye(4)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]))
    assert (mean == 1).all() and at[0] == 0 and at[-1] == 1


@pytest.mark.browser
def test_a_browser_shows_the_page(run, chromium, tmp_path):
    from playwright.sync_api import sync_playwright

    path, _, _ = run
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width in (1280, 390):
            page = browser.new_page(viewport={"width": width, "height": 900})
            problems = []
            page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
            page.on("requestfailed", lambda r: problems.append(r.url[:80]))
            page.goto((path / "report.html").as_uri())
            assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
            assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), (
                f"scrolls sideways at {width} px"
            )
            frame = page.locator("img.negative").first.evaluate(
                "e => getComputedStyle(e).borderTopStyle + getComputedStyle(e).borderTopColor"
            )
            assert frame == "dashedrgb(213, 94, 0)"
            assert problems == []
        browser.close()


# Embeddings from files

@pytest.fixture
def files(tmp_path):
    "Embeddings and two-level labels in every accepted form."
    import numpy as np
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(40, 8, generator=generator)
    labels = torch.stack([torch.arange(40) // 20, torch.arange(40) // 5], 1)
    np.save(tmp_path / "rows.npy", rows.numpy())
    np.save(tmp_path / "labels.npy", labels.numpy())
    (tmp_path / "labels.csv").write_text("group,class\n" + "\n".join(f"g{a},c{b}" for a, b in labels.tolist()) + "\n")
    (tmp_path / "fine.csv").write_text("\n".join(str(b) for _, b in labels.tolist()))
    save_file({"embeddings": rows, "labels": labels}, tmp_path / "both.safetensors")
    return tmp_path, rows, labels


def test_every_form_gives_the_same_numbers(files):
    from smoothap_nb.metrics.dataset import evaluate

    folder, rows, labels = files
    want = evaluate(rows, labels, metrics=("mAP", "R@1", "AP@level1", "H-AP"), progress=False)
    for embeddings, given in (("rows.npy", "labels.npy"), ("rows.npy", "labels.csv"), ("both.safetensors", None)):
        record, values = M.measure_files(
            folder / embeddings, given and folder / given, metrics=("mAP", "R@1", "AP@level1", "H-AP"), progress=False
        )
        assert {k: record["metrics"][k] for k in want} == pytest.approx(want, abs=1e-12)
        assert len(values["per_query"]["mAP"]) == 40
    flat, _ = M.measure_files(folder / "rows.npy", folder / "fine.csv", progress=False)
    assert (
        flat["metrics"]["mAP"] == pytest.approx(want["mAP"], abs=1e-6)
        and "H-AP" not in flat["metrics"]
        and "R@10" in flat["metrics"]
    )


def test_query_and_gallery_files(files):
    folder, rows, labels = files
    record, _ = M.measure_files(
        folder / "rows.npy",
        folder / "fine.csv",
        folder / "both.safetensors",
        folder / "fine.csv",
        metrics=["R@1"],
        progress=False,
    )
    assert record["metrics"]["R@1"] == 1.0 and record["gallery"] == 40, (
        "every query is in the gallery, as another picture"
    )


def test_class_means_are_means_per_class():
    classes, means = R.class_means(torch.tensor([1., 0., .5, float("nan"), .25]), torch.tensor([3, 3, 5, 7, 5]))
    assert classes.tolist() == [3, 5] and means.tolist() == [.5, .375]


def test_page_and_tables_for_files(files):
    folder, _, _ = files
    record, values = M.measure_files(folder / "both.safetensors", progress=False)
    page = R.write_files_report(folder / "page.html", record, values).read_text()
    assert "ranked best" in page and "ranked worst" in page and not re.search(r"""(?:src|href)=["'](?!data:)""", page)
    lines = R.markdown_table({"a": record["metrics"]}).splitlines()
    assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|") and "queries_skipped" not in lines[0]


@pytest.mark.parametrize(
    "name, content, says",
    [
        ("labels.csv", "1\n2\n3,4\n", "line 3"),
        ("labels.csv", "a,b\n1,\n", "line"),
        ("labels.csv", "", "holds no labels"),
        ("labels.csv", b"\xff\xfe\x00\x01", "not a text file"),
        ("labels.npy", b"\x93NUMPY", "damaged"),
        ("labels.txt", "1\n", "neither .npy nor .csv"),
    ],
)
def test_label_files_that_do_not_fit(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=says):
        E.read_labels(path)


def test_embedding_files_that_do_not_fit(files):
    import numpy as np
    from safetensors.torch import save_file

    folder, rows, _ = files
    np.save(folder / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    save_file({"a": rows, "b": rows.clone()}, folder / "two.safetensors")
    (folder / "broken.safetensors").write_bytes(b"\x01\x02")
    (folder / "rows.txt").write_text("1 2")
    for name, says in (
        ("objects.npy", "more than numbers"),
        ("two.safetensors", "no tensor 'embeddings'"),
        ("broken.safetensors", "damaged"),
        ("rows.txt", "neither .npy nor .safetensors"),
        ("missing.npy", "no file"),
    ):
        with pytest.raises(ValueError, match=says):
            E.read_embeddings(folder / name)
    np.save(folder / "floats.npy", np.zeros(40))
    with pytest.raises(ValueError, match="must be integers"):
        E.read_labels(folder / "floats.npy")
    with pytest.raises(ValueError, match="--labels"):
        M.measure_files(folder / "rows.npy", progress=False)
    (folder / "short.csv").write_text("1\n2\n")
    with pytest.raises(ValueError, match="2.*40|40.*2"):
        M.measure_files(folder / "rows.npy", folder / "short.csv", progress=False)
