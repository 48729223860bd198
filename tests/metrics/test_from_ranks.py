"""Metrics by name that look at the first places, tags and Euclidean distances: against definitions, scikit-learn and
trec_eval.
"""

from __future__ import annotations

import naive_metrics as naive
import numpy as np
import pytest
import torch

from smoothap_nb import evaluate, evaluate_neighbours, levels_from_labels, map_at_r, nearest_neighbours
from smoothap_nb.metrics.from_ranks import reciprocal_rank, row_sums, worth_by_alpha

TIES = ("max", "min", "average")
KS = (1, 3, 7)


def tied_rows(count: int, seed: int) -> torch.Tensor:
    return torch.randint(-2, 3, (count, 3), generator=torch.Generator().manual_seed(seed)).double()


def random_labels(count: int, depth: int, classes: int, seed: int) -> torch.Tensor:
    return torch.randint(0, classes, (count, depth), generator=torch.Generator().manual_seed(seed))


def rankings(rows: torch.Tensor):
    "Scores of each query with all others, as lists."
    for q, row in enumerate((rows @ rows.T).tolist()):
        yield q, [j for j in range(len(row)) if j != q], row


@pytest.mark.parametrize("engine", ["torch", "numba"])
@pytest.mark.parametrize("ties", TIES)
def test_early_places_follow_their_definition(ties, engine):
    rows, labels = tied_rows(30, 1), random_labels(30, 2, 3, 1)
    names = ("MRR", *(f"{kind}@{k}" for kind in ("mAP", "NDCG") for k in KS), "NDCG")
    found = evaluate(rows, labels, metrics=names, ties=ties, normalize=False, per_query=True, engine=engine)[
        "per_query"
    ]
    for q, others, row in rankings(rows):
        s, levels = (
            [row[j] for j in others],
            naive.levels_between(labels[q].tolist(), [labels[j].tolist() for j in others]),
        )
        wanted = naive.early_metrics(s, levels, 2, ties, KS)
        wanted |= {f"NDCG@{k}": naive.ndcg_at(s, levels, k, ties) for k in KS} | {
            "NDCG": naive.ndcg_at(s, levels, None, ties)
        }
        for name in names:
            assert found[name][q] == pytest.approx(wanted[name], abs=1e-12, nan_ok=True), (name, q)


def test_map_at_the_largest_cut_is_map_and_at_r_it_is_map_at_r():
    rows, labels = torch.randn(20, 6, generator=torch.Generator().manual_seed(3)), torch.arange(20) % 4
    found = evaluate(rows, labels, metrics=("mAP", "mAP@19", "mAP@4", "mAP@R"), normalize=True)
    assert found["mAP@19"] == pytest.approx(found["mAP"], abs=1e-12)
    assert found["mAP@4"] == pytest.approx(found["mAP@R"], abs=1e-12)  # every query has four positives


def test_trec_eval_agrees():
    "trec_eval divides map_cut by all positives, where mAP@K divides by min(K, R); its ndcg takes relevances as gains."
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rows, labels = torch.randn(40, 8, generator=torch.Generator().manual_seed(4)).double(), random_labels(40, 2, 3, 4)
    names = ("mAP", "MRR", "P@5", "R-precision", "mAP@5", "NDCG", "NDCG@5")
    found = evaluate(rows, labels, metrics=names, per_query=True, normalize=False)["per_query"]
    levels, scores = levels_from_labels(labels), rows @ rows.T
    away = [[j for j in range(40) if j != q] for q in range(40)]
    run = {str(q): {str(j): float(scores[q, j]) for j in away[q]} for q in range(40)}

    def theirs(relevance, measures):
        truth = {str(q): {str(j): int(relevance(int(levels[q, j]))) for j in away[q]} for q in range(40)}
        return pytrec_eval.RelevanceEvaluator(truth, measures).evaluate(run)

    fine = theirs(lambda level: level == 2, {"map", "recip_rank", "P.5", "Rprec", "map_cut.5"})
    graded = theirs(lambda level: 2 ** level - 1, {"ndcg", "ndcg_cut.5"})
    for q in range(40):
        positives = sum(int(levels[q, j]) == 2 for j in away[q])
        one, all_levels = fine[str(q)], graded[str(q)]
        if positives:
            wanted = {"mAP": one["map"], "MRR": one["recip_rank"], "P@5": one["P_5"], "R-precision": one["Rprec"],
                      "mAP@5": one["map_cut_5"] * positives / min(5, positives)}
            assert all(found[name][q] == pytest.approx(value, abs=1e-9) for name, value in wanted.items()), q
        if any(int(levels[q, j]) for j in away[q]):
            assert found["NDCG"][q] == pytest.approx(all_levels["ndcg"], abs=1e-9)
            assert found["NDCG@5"][q] == pytest.approx(all_levels["ndcg_cut_5"], abs=1e-9)


def test_scikit_learn_agrees_on_ndcg():
    metrics = pytest.importorskip("sklearn.metrics")
    rows, labels = torch.randn(30, 8, generator=torch.Generator().manual_seed(5)).double(), random_labels(30, 3, 2, 5)
    found = evaluate(rows, labels, metrics=("NDCG", "NDCG@4"), per_query=True, normalize=False)["per_query"]
    levels, scores = levels_from_labels(labels), rows @ rows.T
    for q in range(30):
        others = torch.arange(30) != q
        gain = 2.0 ** levels[q, others].numpy() - 1
        for name, k in (("NDCG", None), ("NDCG@4", 4)):
            theirs = metrics.ndcg_score(gain[None], scores[q, others].numpy()[None], k=k, ignore_ties=True)
            assert found[name][q] == pytest.approx(theirs, abs=1e-12)


# --------------------------------------------------------------------------------------------------------------------
# tags

@pytest.mark.parametrize("ties", TIES)
def test_images_match_that_share_a_tag(ties):
    rows = tied_rows(24, 6)
    tags = torch.rand(24, 5, generator=torch.Generator().manual_seed(6)) < 0.3
    tags[7] = False  # no tag, no match
    found = evaluate(rows, tags, metrics=("mAP", "R@1", "MRR"), ties=ties, normalize=False, per_query=True)
    for q, others, row in rankings(rows):
        levels = [int((tags[q] & tags[j]).any()) for j in others]
        s = [row[j] for j in others]
        wanted = naive.early_metrics(s, levels, 1, ties) | naive.cutoff_metrics(s, levels, 1, ties, (1,))
        wanted["mAP"] = naive.average_precision(s, levels, 1, ties)
        for name in ("mAP", "R@1", "MRR"):
            assert found["per_query"][name][q] == pytest.approx(wanted[name], abs=1e-12, nan_ok=True)
    assert found["queries_skipped"] == sum(np.isnan(found["per_query"]["mAP"])) >= 1


def test_one_tag_each_is_a_class():
    rows, classes = tied_rows(30, 7), torch.arange(30) % 5
    tags = torch.nn.functional.one_hot(classes).bool()
    options = {"metrics": ("mAP", "R@1", "P@3"), "normalize": False}
    assert evaluate(rows, tags, **options) == evaluate(rows, classes, **options)
    parted = evaluate(rows[:9], tags[:9], rows[9:], tags[9:], **options)
    assert parted == evaluate(rows[:9], classes[:9], rows[9:], classes[9:], **options)


def test_lists_of_tagged_images():
    rows, classes = torch.randn(30, 6, generator=torch.Generator().manual_seed(8)), torch.arange(30) % 5
    lists = nearest_neighbours(rows, 10, normalize=False)[1]
    tags, names = torch.nn.functional.one_hot(classes).bool(), ("R@1", "mAP@5", "MRR")
    assert evaluate_neighbours(lists, tags, metrics=names) == evaluate_neighbours(lists, classes, metrics=names)


@pytest.mark.parametrize("labels, other, error, words", [
    (torch.ones(4, 2, dtype=torch.bool), torch.zeros(4, dtype=torch.int64), TypeError, "both be class numbers"),
    (torch.ones(4, 2, dtype=torch.bool), torch.ones(4, 3, dtype=torch.bool), ValueError, "3 tags, the labels have 2"),
    (torch.zeros(4, 2, dtype=torch.bool), None, ValueError, "no query has a positive"),
    (torch.ones(4, dtype=torch.bool), None, TypeError, r"bool of shape \(N, tags\)"),
])
def test_tags_that_do_not_fit_are_refused(labels, other, error, words):
    with pytest.raises(error, match=words):
        evaluate(torch.eye(4), labels, None if other is None else torch.eye(4), other)


# ---------------------------------------------------------------------------------------------------------------------
# distances

@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_euclidean_distance_ranks_rows_as_they_are(dtype):
    rows = (3 * torch.randn(60, 5, generator=torch.Generator().manual_seed(9), dtype=torch.float64)).to(dtype)
    labels = torch.arange(60) % 12
    nearness, away = -torch.cdist(rows.double(), rows.double()), ~torch.eye(60, dtype=torch.bool)
    relevant = (labels[:, None] == labels)[away].view(60, 59)
    wanted = map_at_r(nearness[away].view(60, 59), relevant)
    found = evaluate(rows, labels, metrics="mAP@R", distance="euclidean", per_query=True)["per_query"]["mAP@R"]
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-6)
    assert evaluate(rows, labels, metrics="mAP@R", normalize=True)["mAP@R"] != pytest.approx(
        wanted.mean().item(), abs=1e-3
    )
    scores, listed = nearest_neighbours(rows, 5, distance="euclidean")
    best = nearness.masked_fill(~away, -torch.inf).topk(5)
    assert torch.equal(listed, best.indices)
    torch.testing.assert_close(scores.double(), best.values, rtol=1e-4, atol=1e-4)


def test_on_unit_rows_both_distances_rank_alike():
    rows = torch.nn.functional.normalize(
        torch.randn(40, 6, generator=torch.Generator().manual_seed(10)).double(), dim=1
    )
    labels = torch.arange(40) % 8
    names = ("mAP", "R@1", "MRR")
    near, cosine = (evaluate(rows, labels, metrics=names, distance=kind) for kind in ("euclidean", "cosine"))
    assert all(near[name] == pytest.approx(cosine[name], abs=1e-12) for name in near)


def test_pytorch_metric_learnings_default_is_euclidean_on_raw_rows():
    accuracy = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    rows, labels = 3 * torch.randn(60, 5, generator=torch.Generator().manual_seed(11)), torch.arange(60) % 12
    include = ("mean_average_precision_at_r", "precision_at_1", "r_precision")
    theirs = accuracy.AccuracyCalculator(include=include, k="max_bin_count", device=torch.device("cpu")).get_accuracy(
        rows, labels
    )
    ours = evaluate(rows, labels, metrics=("mAP@R", "P@1", "R-precision"), distance="euclidean")
    for name, theirs_by in zip(("mAP@R", "P@1", "R-precision"), include):
        assert ours[name] == pytest.approx(theirs[theirs_by], abs=1e-6)


def test_equal_distances_tie_in_a_lattice_and_copies_tie_always():
    lattice = torch.tensor([[0.0, 0], [1, 0], [0, 1], [5, 5]])
    assert (
        evaluate(lattice, [0, 0, 1, 1], metrics="R@1", distance="euclidean", per_query=True)["per_query"]["R@1"][0] == 0
    )
    copies = torch.randn(9, 7, generator=torch.Generator().manual_seed(12))
    labels = torch.tensor([0] * 9 + [1] * 9)
    assert evaluate(torch.cat([copies, copies]), labels, metrics="R@1", distance="euclidean")["R@1"] == 0


def test_an_unknown_distance_is_named():
    with pytest.raises(ValueError, match="distance must be one of 'cosine', 'euclidean'"):
        evaluate(torch.eye(4), [0, 0, 1, 1], distance="manhattan")


# --------------------------------------------------------------------------------------------------------------------
# numbers

def test_padding_changes_no_bit_of_a_sum():
    values = torch.rand(50, 37, dtype=torch.float64, generator=torch.Generator().manual_seed(13))
    padded = torch.nn.functional.pad(values, (0, 400))
    assert torch.equal(row_sums(values), row_sums(padded))


@pytest.mark.parametrize("memory", ["3kB", "20kB", "1GB"])
def test_chunks_change_no_bit_in_float64(memory):
    rows, labels = tied_rows(60, 14), random_labels(60, 2, 3, 14)
    options = {"metrics": ("mAP", "mAP@R", "MRR", "H-AP", "NDCG@5", "ASI"), "normalize": False, "per_query": True}
    whole, cut = (
        evaluate(rows, labels, **options)["per_query"],
        evaluate(rows, labels, memory=memory, **options)["per_query"],
    )
    assert all(np.array_equal(whole[name], cut[name], equal_nan=True) for name in whole)


def test_relevance_by_alpha_shares_a_level_out():
    sizes = torch.tensor([[0, 3, 2]])
    assert worth_by_alpha(sizes, 1.0)[0].tolist() == pytest.approx([0, 1 / 6, 1 / 2])
    assert worth_by_alpha(sizes, 1.0, extra_fine=1)[0].tolist() == pytest.approx([0, 1 / 6, 1 / 3])
    assert worth_by_alpha(sizes, 0.0)[0].tolist() == pytest.approx([0, 1 / 3, 1 / 2])


def test_the_reciprocal_rank_of_a_query_without_positives_is_no_number():
    "Nothing to find is NaN and leaves the mean; a positive beyond the end of the list is 0 and stays in it."
    member = torch.tensor([[False, True, True], [False, False, False], [False, False, False]])
    place = torch.tensor([[1, 2, 3]] * 3)
    found = reciprocal_rank(member, place, torch.tensor([2, 4, 0]))
    assert found[:2].tolist() == [0.5, 0.0] and found[2].isnan()
    rows = torch.nn.functional.normalize(torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    measured = evaluate(rows, [0, 0, 1, 1, 2], metrics=("MRR",), progress=False, per_query=True)
    assert np.isnan(measured["per_query"]["MRR"][4]) and measured["MRR"] == measured["per_query"]["MRR"][:4].mean()


def test_ndcg_at_k_reads_every_level_when_it_is_asked_for_alone():
    rows = torch.randn(12, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    rows = torch.nn.functional.normalize(rows, dim=1)
    labels = torch.stack([torch.arange(12) // 6, torch.arange(12) // 2], 1)
    whole, cut = (evaluate(rows, labels, metrics=name, progress=False)[name] for name in ("NDCG", "NDCG@11"))
    assert cut == pytest.approx(whole)
    assert cut != pytest.approx(evaluate(rows, labels[:, 1], metrics="NDCG@11", progress=False)["NDCG@11"])
