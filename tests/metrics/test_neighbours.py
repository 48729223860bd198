"Lists cut short: the best scores, and the metrics that a list can give."

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from smoothap_nb import evaluate, evaluate_neighbours, nearest_neighbours


def random_labels(count: int, depth: int, classes: int, seed: int) -> torch.Tensor:
    return torch.randint(0, classes, (count, depth), generator=torch.Generator().manual_seed(seed))


def unit_rows(count: int, dim: int, seed: int) -> torch.Tensor:
    return F.normalize(
        torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=1
    )


def test_exact_neighbours_are_the_best_scores():
    rows = unit_rows(50, 6, 15)
    scores, found = nearest_neighbours(rows, 7, memory="20kB")
    wanted = (rows @ rows.T).fill_diagonal_(-2).topk(7)
    torch.testing.assert_close(scores, wanted.values)
    assert torch.equal(found, wanted.indices)
    inside = nearest_neighbours(rows[:5], 3, rows)[1]
    assert inside[:, 0].tolist() == list(range(5))
    assert torch.equal(nearest_neighbours(rows[:5], 7, rows, query_index=torch.arange(5))[1], found[:5])


@pytest.mark.parametrize("kind", ["Flat", "IVF4,Flat"])
def test_a_faiss_index_that_looks_everywhere_is_exact(kind):
    pytest.importorskip("faiss")
    rows = unit_rows(300, 6, 16).float()
    exact, listed = nearest_neighbours(rows, 9), nearest_neighbours(rows, 9, index=kind, probes=4)
    torch.testing.assert_close(exact[0], listed[0], rtol=0, atol=1e-5)
    assert (exact[1] == listed[1]).double().mean() > 0.99
    fewer = nearest_neighbours(rows[:9], 250, rows, index="IVF50,Flat", probes=1)
    assert ((fewer[1] == -1) == fewer[0].isneginf()).all() and (fewer[1] == -1).any()


@pytest.mark.parametrize("k", [1, 5, 59])
def test_lists_give_the_metrics_that_they_can(k):
    rows, labels = unit_rows(60, 6, 17), random_labels(60, 1, 20, 17)[:, 0]
    listed = nearest_neighbours(rows, k)[1]
    names = tuple(name for name in ("R@1", "R@5", "P@5") if int(name[2:]) <= k)
    whole = evaluate(rows, labels, metrics=(*names, "mAP", "mAP@R", "R-precision"), per_query=True)
    short = evaluate_neighbours(listed, labels, metrics=(*names, "mAP"), per_query=True)
    for name in names:
        np.testing.assert_allclose(short["per_query"][name], whole["per_query"][name], atol=1e-12)
    assert short["queries_skipped"] == whole["queries_skipped"]
    assert (short["per_query"]["mAP"] <= whole["per_query"]["mAP"] + 1e-12)[~np.isnan(whole["per_query"]["mAP"])].all()
    if k == 59:
        full = evaluate_neighbours(listed, labels, metrics=("mAP", "mAP@R", "R-precision"))
        assert all(full[name] == pytest.approx(whole[name], abs=1e-12) for name in ("mAP", "mAP@R", "R-precision"))


def test_bad_lists_are_named():
    rows, labels = unit_rows(12, 4, 18), torch.arange(12) % 3
    listed = nearest_neighbours(rows, 2)[1]
    for arguments, words in (
        ((listed.float(), labels), "integers"),
        ((listed, labels[:5]), "length 5"),
        ((listed + 20, labels), "-1 ... 11"),
        ((torch.arange(12)[:, None], labels), "their own query"),
        ((listed, labels, None, ("mAP@R",)), "need lists as long as"),
        ((listed, labels, None, ("R@3",)), "R@3"),
        ((listed, labels, None, ("NDCG",)), "cut short"),
        ((listed, torch.stack([labels // 2, labels], 1), None, ("AP@level2",)), "cut short"),
        ((listed, torch.arange(12)), "no query has a positive"),
    ):
        with pytest.raises(ValueError, match=words):
            evaluate_neighbours(*arguments)
    for k in (0, 12, 1.5):
        with pytest.raises(ValueError, match="k must be a whole number from 1 to 11"):
            nearest_neighbours(rows, k)


def test_faiss_missing_or_asked_for_nonsense(monkeypatch):
    rows = unit_rows(12, 4, 18)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match="pip install faiss-cpu"):
        nearest_neighbours(rows, 2, index="Flat")
    monkeypatch.undo()
    pytest.importorskip("faiss")
    with pytest.raises(ValueError, match="FAISS does not know the index 'Nonsense'"):
        nearest_neighbours(rows, 2, index="Nonsense")


def test_distances_are_euclidean_however_small():
    rows = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.1
    rows[7] = rows[3]  # at distance 0
    scores, found = nearest_neighbours(rows, 5, distance="euclidean", progress=False)
    apart = torch.cdist(rows, rows).fill_diagonal_(torch.inf).sort(1)
    torch.testing.assert_close(-scores, apart.values[:, :5], rtol=1e-9, atol=1e-8)
    assert found[3, 0] == 7 and found[7, 0] == 3 and scores.max() <= 0
