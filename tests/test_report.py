"The run's measurement and its page: right numbers, nothing from outside, and a browser shows it."

import json
import re
from pathlib import Path

import pytest
import torch

from smoothap_nb import report as R
from smoothap_nb import training as T
from smoothap_nb.average_precision import average_precision
from test_training import tiny
from toydata import ToyData, ToyNet


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    "A finished toy run, measured, with its page."
    patch = pytest.MonkeyPatch()
    for module in (T, R):
        patch.setattr(module, "dataset_for", lambda experiment, split: ToyData(split, experiment.data.size))
        patch.setattr(module, "EmbeddingModel", ToyNet)
    path = tmp_path_factory.mktemp("run") / "run"
    experiment = tiny(optim__steps=80)
    training = T.prepare(experiment, T.open_run(path, experiment), torch.device("cpu"))
    T.fit(training, progress=False, tensorboard=False)
    T.save_model(training.model, path)
    record, shown = R.measure(path, progress=False)
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
    assert list(record["metrics"]) == list(R.COMPETITORS)


def test_training_beats_the_start(run):
    _, record, _ = run
    assert record["metrics"]["trained"]["mAP"] > record["metrics"]["untrained"]["mAP"]


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


def test_test_images_are_whole_classes_and_seeded():
    data = ToyData("test")
    chosen = R.test_images(data, 5, seed=1)
    fine = data.labels[:, -1]
    assert len(fine[chosen].unique()) == 5 and len(chosen) == 30
    assert torch.equal(chosen, R.test_images(data, 5, seed=1)) and not torch.equal(chosen, R.test_images(data, 5, seed=2))
    assert len(R.test_images(data, 0, 0)) == len(data) == len(R.test_images(data, 99, 0))


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
            assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), f"scrolls sideways at {width} px"
            frame = page.locator("img.negative").first.evaluate("e => getComputedStyle(e).borderTopStyle + getComputedStyle(e).borderTopColor")
            assert frame == "dashedrgb(213, 94, 0)"
            assert problems == []
        browser.close()
