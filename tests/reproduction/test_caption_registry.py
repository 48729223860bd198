"The settings of the image-caption runs: sources, paper against code, and the reason why a run cannot be made."

import numpy as np
import pytest

from smoothap_nb.data.karpathy import caption_miniature
from smoothap_nb.losses.contrast import SETTINGS, check_settings
from smoothap_nb.reproduction.captions import caption_registry, find_caption_entry, published_settings, why_not_run


def test_every_setting_has_a_source_and_every_loss_is_ours():
    for entry in caption_registry().values():
        assert set(entry.settings) == set(entry.sources) and all(entry.sources.values())
        loss = entry.settings["loss"]
        check_settings(loss, {key: entry.settings[key] for key in SETTINGS[loss] if key in entry.settings})
        assert entry.printed.startswith("cited")


def test_paper_and_code_differ_where_the_job_files_do():
    found = published_settings()
    twice = {name.removesuffix("@code") for name in found if name.endswith("@code")}
    assert twice == {name for name in found if name.endswith("smooth-ap")}
    assert (found["coco/vse-smooth-ap"]["epochs"], found["coco/vse-smooth-ap@code"]["epochs"]) == (30, 150)
    assert found["flickr30k/vsrn-smooth-ap@code"]["lr_update"] == 50
    assert found["coco/vsrn-smooth-ap@code"]["lr_update"] == 75
    vse = found["flickr30k/vse-nt-xent"]
    assert (vse["batch"], vse["lr"], vse["tau"], vse["epochs"]) == (128, 2e-4, 0.1, 30)
    assert found["coco/vse-hardest-triplet"]["margin"] == 0.2 and found["coco/vse-smooth-ap"]["tau"] == 0.01


def test_a_run_that_cannot_be_made_says_why(tmp_path):
    assert why_not_run("flickr30k/vse-nt-xent", tmp_path / "nowhere").startswith("not run: there is no folder")
    assert "Faster R-CNN" in why_not_run("coco/vsrn-nt-xent", tmp_path)
    folder = caption_miniature("flickr30k", tmp_path / "mini")
    assert why_not_run("flickr30k/vse-nt-xent", folder) == ""
    np.save(tmp_path / "test_ims.npy", np.zeros((2, 36, 2048), dtype=np.float16))
    (tmp_path / "test_caps.txt").write_text("a\n" * 10)
    assert "not part of this package" in why_not_run("flickr30k/vsrn-smooth-ap", tmp_path)
    with pytest.raises(ValueError, match="no image-caption experiment 'coco/vse-smoothap'.*coco/vse-smooth-ap"):
        find_caption_entry("coco/vse-smoothap")
