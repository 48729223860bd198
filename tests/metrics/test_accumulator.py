"RetrievalMetrics in a training loop: batches, padding, roles, processes."

from __future__ import annotations

import pickle
import socket
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F

from smoothap_nb import RetrievalMetrics, evaluate
from smoothap_nb.metrics import accumulator


def random_labels(count: int, depth: int, classes: int, seed: int) -> torch.Tensor:
    return torch.randint(0, classes, (count, depth), generator=torch.Generator().manual_seed(seed))


def unit_rows(count: int, dim: int, seed: int) -> torch.Tensor:
    return F.normalize(
        torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=1
    )


ROWS, LABELS = torch.eye(4), [0, 0, 1, 1]


def test_batches_and_padding_change_nothing():
    rows, labels = unit_rows(50, 6, 19), random_labels(50, 2, 4, 19)
    metric = RetrievalMetrics(("mAP", "H-AP"), alpha=2.0)
    for part in (*torch.randperm(50, generator=torch.Generator().manual_seed(1)).split(16), torch.arange(7)):
        assert metric(rows[part], labels[part], index=part) is None
    wanted = evaluate(rows, labels, metrics=("mAP", "H-AP"), alpha=2.0)
    found = metric.compute()
    assert list(found) == list(wanted) and all(
        found[name].item() == pytest.approx(wanted[name], abs=1e-6) for name in wanted
    )
    metric.reset()
    with pytest.raises(ValueError, match="call update"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric.compute()


def test_images_without_numbers_are_counted_as_they_come():
    rows, labels = unit_rows(20, 6, 20), random_labels(20, 1, 4, 20)[:, 0]
    metric = RetrievalMetrics("mAP")
    for part in torch.arange(20).split(6):
        metric.update(rows[part], labels[part])
    assert metric.compute()["mAP"].item() == pytest.approx(evaluate(rows, labels)["mAP"], abs=1e-6)


def test_queries_and_gallery_as_roles():
    rows, labels = unit_rows(30, 6, 21), random_labels(30, 1, 4, 21)[:, 0]
    metric = RetrievalMetrics(("mAP", "R@1"))
    metric.update(rows[:10], labels[:10], torch.arange(10), role="query")
    metric.update(rows[10:], labels[10:], torch.arange(20), role="gallery")
    wanted = evaluate(rows[:10], labels[:10], rows[10:], labels[10:], metrics=("mAP", "R@1"))
    assert metric.compute()["mAP"].item() == pytest.approx(wanted["mAP"], abs=1e-6)
    metric.update(rows[:2], labels[:2], torch.arange(2), role="both")
    with pytest.raises(ValueError, match="roles do not fit together"):
        metric.compute()


def test_a_metric_refuses_what_does_not_fit():
    metric = RetrievalMetrics()
    with pytest.raises(ValueError, match="length 1"):
        metric.update(ROWS, [0])
    with pytest.raises(ValueError, match="index must hold 4 integers"):
        metric.update(ROWS, LABELS, torch.arange(3))
    with pytest.raises(ValueError, match="role must be one of"):
        metric.update(ROWS, LABELS, role="test")
    metric.update(ROWS, LABELS, torch.arange(4))
    metric.update(ROWS, [0, 1, 1, 1], torch.arange(4))
    with pytest.raises(ValueError, match="image 1 came with two different labels"):
        metric.compute()


def test_a_metric_survives_pickling_and_is_a_torchmetrics_metric():
    import torchmetrics

    metric = RetrievalMetrics("R@1", ties="min")
    metric.update(ROWS, LABELS)
    copy = pickle.loads(pickle.dumps(metric))
    assert isinstance(copy, torchmetrics.Metric) and copy.compute() == metric.compute()


def test_without_torchmetrics_the_name_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    with pytest.raises(ImportError, match="pip install torchmetrics"):
        accumulator.metric_class()()


def _one_process(rank: int, port: int, rows, labels, path: str) -> None:
    import torch.distributed as dist
    from torch.utils.data import DistributedSampler

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    metric = RetrievalMetrics(("mAP", "R@1"))
    part = torch.tensor(list(DistributedSampler(range(len(rows)), 2, rank, shuffle=True, seed=3)))
    try:
        metric.update(rows[part], labels[part])
        raise AssertionError("several processes need the index")
    except ValueError as error:
        assert "index=" in str(error)
    for batch in part.split(5):
        metric.update(rows[batch], labels[batch], index=batch)
    found = metric.compute()
    torch.save({"found": found, "given": len(part)}, f"{path}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_with_an_odd_number_of_images(tmp_path):
    "The sampler gives each process 12 of 23 images: one comes twice."
    import torch.multiprocessing as mp

    rows, labels = unit_rows(23, 5, 22).float(), random_labels(23, 1, 5, 22)[:, 0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(_one_process, (port, rows, labels, str(tmp_path)), nprocs=2)
    wanted = evaluate(rows, labels, metrics=("mAP", "R@1"))
    for rank in range(2):
        saved = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert saved["given"] == 12
        assert all(saved["found"][name].item() == pytest.approx(wanted[name], abs=1e-6) for name in wanted)


def test_a_pass_without_positives_gives_nan_and_one_warning():
    "As Lightning's sanity check on two batches of a set with many classes."
    metric = RetrievalMetrics(("mAP", "R@1"))
    metric.update(ROWS, torch.arange(4))
    with pytest.warns(UserWarning, match="Every metric of this pass is NaN") as caught:
        found = metric.compute()
    assert len(caught) == 1 and found["mAP"].isnan() and found["R@1"].isnan() and found["queries_skipped"] == 4
    with pytest.raises(ValueError, match="no query has a positive"):
        evaluate(ROWS, [0, 1, 2, 3])


def test_lengths_are_told_once_for_a_metric():
    metric = RetrievalMetrics("mAP")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for epoch in range(3):
            metric.update(ROWS * (2 + epoch), LABELS)
            metric.compute()
            metric.reset()
    assert len([w for w in caught if "not of length 1" in str(w.message)]) == 1


def test_every_number_is_a_float_as_lightning_wants_it():
    "An integer among them costs a warning at every `log_dict`."
    metric = RetrievalMetrics(("mAP", "R@1"))
    metric.update(ROWS, LABELS)
    found = metric.compute()
    assert {name: value.dtype for name, value in found.items()} == dict.fromkeys(found, torch.float32)
    assert "queries_skipped" in found


def test_tags_and_distances_as_in_evaluate():
    rows = 3 * unit_rows(20, 4, 23)
    tags = torch.rand(20, 3, generator=torch.Generator().manual_seed(23)) < 0.5
    metric = RetrievalMetrics(("mAP", "MRR"), distance="euclidean")
    for part in torch.arange(20).split(7):
        metric.update(rows[part], tags[part], index=part)
    wanted = evaluate(rows, tags, metrics=("mAP", "MRR"), distance="euclidean")
    assert {name: value.item() for name, value in metric.compute().items()} == pytest.approx(wanted, abs=1e-6)


def test_several_processes_need_the_images_numbers(monkeypatch):
    "Without them a sampler's repeated images would be false hits; asked before anything is added."
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    metric = RetrievalMetrics("mAP")
    with pytest.raises(ValueError, match="several processes need index="):
        metric.update(ROWS, LABELS)
    metric.update(ROWS, LABELS, index=torch.arange(len(ROWS)))
    assert len(metric.embeddings) == 1
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    metric = RetrievalMetrics("mAP")
    metric.update(ROWS, LABELS)
    assert metric.index[0].tolist() == list(range(len(ROWS)))
