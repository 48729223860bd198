"""Graded metrics over a tree of labels: against naive definitions, their identities and their edges."""

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trees import is_ahead, ranking, rows, same, tree

from smoothap_nb import (ap_at_level, asi, average_precision, h_ap, levels_from_labels, ndcg, relevance_from_levels,
                         relevance_from_weights)
from smoothap_nb.metrics.graded import unchecked_h_ap

TIES = ("max", "min", "average")


def h_ap_naive(scores, rel, ties="max"):
    total = 0.0
    for k in [k for k, r in enumerate(rel) if r > 0]:
        others = [j for j in range(len(rel)) if j != k]
        rank = 1 + sum(is_ahead(scores[j] - scores[k], ties) for j in others)
        total += (rel[k] + sum(min(rel[j], rel[k]) * is_ahead(scores[j] - scores[k], ties) for j in others)) / rank
    return total / sum(rel) if sum(rel) else math.nan


# -------------------------------------------------------------------------------- levels

@given(st.integers(1, 7), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_levels_are_the_length_of_the_common_prefix(depth, seed):
    labels = tree(9, depth, seed)
    found = levels_from_labels(labels[:4], labels)
    for i in range(4):
        for j in range(9):
            assert found[i, j] == next((n for n in range(depth) if labels[i, n] != labels[j, n]), depth)
    assert torch.equal(levels_from_labels(labels), levels_from_labels(labels, labels))


def test_levels_stop_at_the_first_difference():
    assert levels_from_labels(torch.tensor([[0, 7], [1, 7]])).tolist() == [[2, 0], [0, 2]]


def test_flat_labels_are_one_level():
    assert levels_from_labels(torch.tensor([4, 5, 4])).tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]


def test_levels_refuse_what_does_not_fit():
    with pytest.raises(TypeError, match="integers"):
        levels_from_labels(torch.rand(3, 2))
    with pytest.raises(ValueError, match="2 levels, ref_labels have 3"):
        levels_from_labels(torch.zeros(3, 2, dtype=torch.long), torch.zeros(3, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="shape"):
        levels_from_labels(torch.zeros(3, 2, 2, dtype=torch.long))


# -------------------------------------------------------------------------------- relevance

@given(st.integers(1, 7), st.floats(0, 5), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_relevance_of_a_level_is_shared_out(depth, alpha, seed):
    _, levels = ranking(depth=depth, seed=seed)
    relevance = relevance_from_levels(levels, alpha, depth)
    assert (relevance[levels == 0] == 0).all() and (relevance[levels > 0] > 0).all()
    for level in range(1, depth + 1):
        worth = (relevance * (levels == level)).sum(1)
        same(worth, (levels == level).any(1) * torch.tensor((level / depth) ** alpha, dtype=torch.float64))


def test_extra_fine_counts_the_query():
    levels = torch.tensor([[2, 1, 1, 0]])
    assert relevance_from_levels(levels, extra_fine=1).tolist() == [[0.5, 0.25, 0.25, 0.0]]
    with_query = torch.tensor([[2, 2, 1, 1, 0]])
    same(relevance_from_levels(levels, extra_fine=1)[0], relevance_from_levels(with_query)[0, 1:])
    same(relevance_from_weights(levels, (0.3, 0.7), extra_fine=1)[0],
         relevance_from_weights(with_query, (0.3, 0.7))[0, 1:])


def test_num_levels_scales_and_places_the_extra_item():
    levels = torch.tensor([[1, 1, 0]])
    assert relevance_from_levels(levels, num_levels=2).tolist() == [[0.25, 0.25, 0.0]]
    # nobody at level 2 but the query
    assert relevance_from_levels(levels, num_levels=2, extra_fine=1).tolist() == [[0.25, 0.25, 0.0]]


def test_eq_4_can_break_its_own_order():
    levels = torch.tensor([[2] * 10 + [1] * 2])
    relevance = relevance_from_levels(levels)
    assert relevance[0, 0] < relevance[0, -1]
    assert h_ap(torch.arange(12, 0, -1.0)[None], relevance).item() < 0.83


@given(st.integers(1, 7), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_relevance_from_weights_grows_with_the_level(depth, seed):
    _, levels = ranking(depth=depth, seed=seed)
    weights = torch.rand(depth, generator=torch.Generator().manual_seed(seed)).tolist()
    relevance = relevance_from_weights(levels, weights)
    for row, found in zip(levels, relevance):
        order = row.argsort()
        assert (found[order].diff() >= 0).all()
    same(relevance.sum(1), torch.full((len(levels),), sum(weights), dtype=torch.float64), 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_relevance_comes_in_the_asked_dtype(dtype):
    levels = torch.tensor([[1, 0]])
    assert relevance_from_levels(levels, dtype=dtype).dtype == relevance_from_weights(levels, (1,),
                                                                                      dtype=dtype).dtype == dtype


@pytest.mark.parametrize("call, says", [
    (lambda v: relevance_from_levels(v, -1.0), "alpha"),
    (lambda v: relevance_from_levels(v, math.inf), "alpha"),
    (lambda v: relevance_from_levels(v, num_levels=1), "levels reach 2"),
    (lambda v: relevance_from_levels(v, extra_fine=-1), "extra_fine"),
    (lambda v: relevance_from_levels(-v), "below 0"),
    (lambda v: relevance_from_levels(v[0]), "queries, gallery"),
    (lambda v: relevance_from_weights(v, (1.0,)), "levels reach 2"),
    (lambda v: relevance_from_weights(v, (0.0, 0.0)), "not all of them 0"),
    (lambda v: relevance_from_weights(v, (1.0, -0.1)), ">= 0 per level"),
    (lambda v: relevance_from_weights(v, ()), "per level, the coarsest first"),
])
def test_relevance_refuses_what_does_not_fit(call, says):
    with pytest.raises(ValueError, match=says):
        call(torch.tensor([[2, 1, 0]]))


def test_relevance_refuses_levels_that_are_no_integers():
    with pytest.raises(TypeError, match="integers"):
        relevance_from_levels(torch.tensor([[0.5, 1.0]]))
    with pytest.raises(TypeError, match="integers"):
        relevance_from_weights(torch.tensor([[True, False]]), (1.0,))


# -------------------------------------------------------------------------------- H-AP

def test_the_papers_figure():
    for rel, value in (((2 / 3, 1, 0, 1 / 3, 1), 47 / 60), ((1 / 3, 1, 0, 1 / 3, 1), 107 / 160)):
        assert h_ap(torch.arange(5, 0, -1.0).double()[None],
                    torch.tensor([rel], dtype=torch.float64)).item() == pytest.approx(value, abs=1e-12)


def test_toy_ranking_by_hand():
    levels, scores = torch.tensor([[2, 1, 0, 2, 1, 1]]), torch.arange(6, 0, -1.0).double()[None]
    for alpha, value in ((0, 0.855556), (1, 0.820370), (3, 0.773457), (5, 0.756397)):
        assert h_ap(scores, relevance_from_levels(levels, alpha)).item() == pytest.approx(value, abs=1e-6)
    assert h_ap(scores, relevance_from_weights(levels, (0.4, 0.6))).item() == pytest.approx(0.4 * 0.876667 + 0.6 * 0.75,
                                                                                            abs=1e-6)
    assert ndcg(scores, levels).item() == pytest.approx(0.912356, abs=1e-6)
    assert asi(scores, levels).item() == pytest.approx(0.743333, abs=1e-6)
    assert [ap_at_level(scores, levels, n).item() for n in (1, 2)] == pytest.approx([0.876667, 0.75], abs=1e-6)


@given(st.integers(1, 7), st.integers(0, 10**6), st.booleans(), st.sampled_from(TIES),
       st.sampled_from(["levels", "weights", "any"]))
@settings(max_examples=80, deadline=None)
def test_h_ap_is_its_definition(depth, seed, tied, ties, kind):
    scores, levels = ranking(queries=4, gallery=11, depth=depth, seed=seed, ties=tied)
    relevance = {
        "levels": lambda: relevance_from_levels(levels, 1.5),
        "weights": lambda: relevance_from_weights(levels, [1.0] * depth),
        "any": lambda: (levels > 0) * torch.rand(levels.shape, generator=torch.Generator().manual_seed(seed)).double(),
    }[kind]()
    levels_gone = relevance.clone()
    levels_gone[1] = 0
    same(h_ap(scores, levels_gone, ties), rows(h_ap_naive, scores, levels_gone, ties=ties))


@given(st.integers(1, 7), st.integers(0, 10**6), st.booleans(), st.sampled_from(TIES))
@settings(max_examples=60, deadline=None)
def test_property_1(depth, seed, tied, ties):
    "H-AP is the weighted mean of the levels' APs; a level at which a query has nothing falls out of its mean."
    scores, levels = ranking(depth=depth, seed=seed, ties=tied)
    levels[0] = levels[0].clamp(max=max(1, depth - 1))
    weights = torch.rand(depth, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.01
    ap = torch.stack([ap_at_level(scores, levels, level, ties) for level in range(1, depth + 1)], 1)
    there = ~ap.isnan()
    mean = (ap.nan_to_num() * weights).sum(1) / (there * weights).sum(1)
    same(h_ap(scores, relevance_from_weights(levels, weights.tolist()), ties), mean)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("tied", [False, True])
def test_one_level_is_ap(ties, tied):
    scores, levels = ranking(depth=1, ties=tied)
    expected = average_precision(scores, levels > 0, ties)
    same(h_ap(scores, relevance_from_levels(levels), ties), expected)
    same(h_ap(scores, (levels > 0).double() * 0.37, ties), expected)


@given(st.integers(1, 7), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_h_ap_laws(depth, seed):
    scores, levels = ranking(depth=depth, seed=seed)
    relevance = relevance_from_levels(levels)
    value = h_ap(scores, relevance)
    assert (0 < value).all() and (value <= 1 + 1e-12).all()
    same(h_ap(scores, relevance * 7), value)
    same(h_ap(3 * scores + 5, relevance), value)
    order = torch.randperm(scores.shape[1], generator=torch.Generator().manual_seed(seed))
    same(h_ap(scores[:, order], relevance[:, order]), value)
    same(h_ap(relevance.clone(), relevance), torch.ones_like(value))  # sorted by relevance, best first


def test_equal_relevance_at_two_levels_counts_once():
    same(h_ap(torch.arange(5, 0, -1.0)[None], torch.tensor([[0.5, 0.5, 0.5, 0.5, 0.0]])), torch.ones(1))


def test_float32_scores_keep_the_definition():
    scores, levels = ranking(gallery=400, dtype=torch.float32)
    relevance = relevance_from_levels(levels)
    for value in (h_ap(scores, relevance.float()), h_ap(scores, relevance)):
        assert value.dtype == torch.float32
        same(value.double(), h_ap(scores.double(), relevance), 1e-6)


def test_absent_items_do_not_count():
    scores, levels = ranking(seed=3)
    absent = scores.clone()
    absent[:, -1] = -torch.inf
    relevance = relevance_from_levels(levels.index_fill(1, torch.tensor([16]), 0))
    same(unchecked_h_ap(absent, relevance), h_ap(scores[:, :-1], relevance[:, :-1]))


def test_metrics_are_nan_without_positives():
    scores, levels = torch.rand(2, 5), torch.tensor([[0, 0, 0, 0, 0], [0, 2, 1, 0, 0]])
    for value in (h_ap(scores, relevance_from_levels(levels)), ndcg(scores, levels), asi(scores, levels),
                  ap_at_level(scores, levels, 1)):
        assert value.isnan().tolist() == [True, False]
    assert ap_at_level(scores, levels, 3).isnan().all()


def test_empty_and_single():
    one = torch.tensor([[0.3]])
    assert h_ap(one, torch.ones(1, 1)).item() == ndcg(one, torch.ones(1, 1, dtype=torch.long)).item() == 1
    none, levels = torch.empty(0, 4), torch.empty(0, 4, dtype=torch.long)
    assert all(len(value) == 0 for value in (h_ap(none, torch.empty(0, 4)), ndcg(none, levels), asi(none, levels)))


@pytest.mark.parametrize("relevance, error, says", [
    (torch.tensor([[1, 0]]), TypeError, "floating-point"),
    ([[1.0, 0.0]], TypeError, "floating-point"),
    (torch.tensor([[1.0, 0.0, 0.0]]), ValueError, "must be equal"),
    (torch.tensor([[1.0, -0.1]]), ValueError, "not below 0"),
    (torch.tensor([[1.0, math.nan]]), ValueError, "finite"),
    (torch.tensor([[1.0, math.inf]]), ValueError, "finite"),
])
def test_bad_relevance_is_named(relevance, error, says):
    with pytest.raises(error, match=says):
        h_ap(torch.tensor([[0.2, 0.1]]), relevance)


@pytest.mark.parametrize("function", [ndcg, asi, lambda s, v: ap_at_level(s, v, 1)])
@pytest.mark.parametrize("levels, error, says", [
    (torch.tensor([[1.0, 0.0]]), TypeError, "integers"),
    (torch.tensor([[True, False]]), TypeError, "integers"),
    ([[1, 0]], TypeError, "integers"),
    (torch.tensor([[1, 0, 0]]), ValueError, "that of the scores"),
    (torch.tensor([[1, -1]]), ValueError, "below 0"),
])
def test_bad_levels_are_named(function, levels, error, says):
    with pytest.raises(error, match=says):
        function(torch.tensor([[0.2, 0.1]]), levels)


@pytest.mark.parametrize("call", [lambda s: h_ap(s, torch.ones(1, 2)), lambda s: ndcg(s, torch.ones(1, 2).long()),
                                  lambda s: asi(s, torch.ones(1, 2).long())])
def test_bad_scores_are_named(call):
    with pytest.raises(ValueError, match="NaN or infinity"):
        call(torch.tensor([[0.1, math.nan]]))
    with pytest.raises(TypeError, match="floating point"):
        call(torch.tensor([[1, 2]]))


def test_unknown_words_and_levels_are_named():
    scores, levels = torch.rand(1, 2), torch.tensor([[1, 0]])
    for call in (lambda: h_ap(scores, levels.float(), "first"), lambda: ndcg(scores, levels, "first"),
                 lambda: asi(scores, levels, "first")):
        with pytest.raises(ValueError, match="ties must be one of"):
            call()
    with pytest.raises(ValueError, match="level must be"):
        ap_at_level(scores, levels, 0)


# -------------------------------------------------------------------------------- NDCG and ASI

def ndcg_naive(scores, levels, ties="max"):
    rank = [1 + sum(is_ahead(scores[j] - s, ties) for j in range(len(scores)) if j != k) for k, s in enumerate(scores)]
    best = sorted(levels, reverse=True)
    return sum((2**v - 1) / math.log2(1 + r) for v, r in zip(levels, rank)) / sum((2**v - 1) / math.log2(2 + n) for n,
                                                                                  v in enumerate(best))


def asi_naive(scores, levels, ties="max"):
    """The set intersection itself, with the ideal list that agrees best: one of its items is taken out for each
    retrieved one it holds.
    """
    order = sorted(range(len(levels)), key=lambda k: (-scores[k], levels[k] if ties == "max" else -levels[k]))
    ideal, total, positives = sorted(levels, reverse=True), 0.0, sum(v > 0 for v in levels)
    for n in range(1, positives + 1):
        left, common = ideal[:n], 0
        for k in order[:n]:
            if levels[k] in left:
                left.remove(levels[k])
                common += 1
        total += common / n
    return total / positives


@given(st.integers(1, 7), st.integers(0, 10**6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_ndcg_and_asi_are_their_definitions(depth, seed, tied):
    scores, levels = ranking(queries=4, gallery=11, depth=depth, seed=seed, ties=tied)
    for ties in TIES:
        same(ndcg(scores, levels, ties), rows(ndcg_naive, scores, levels, ties=ties))
    best, worst = (rows(asi_naive, scores, levels, ties=ties) for ties in ("min", "max"))
    same(asi(scores, levels, "max"), worst)
    same(asi(scores, levels, "min"), best)
    same(asi(scores, levels, "average"), (best + worst) / 2)
    assert (worst <= best + 1e-12).all()
    order = torch.randperm(11, generator=torch.Generator().manual_seed(seed))
    same(asi(scores[:, order], levels[:, order]), worst)


def test_tied_order_is_pointwise_worst_and_best():
    "The order inside a tie group that `asi` takes as worst and best really is."
    from itertools import permutations

    levels = [1, 2, 0, 2, 1]
    scores = [0.5, 0.3, 0.3, 0.3, 0.3]
    found = [asi_naive([-order.index(k) for k in range(5)], levels) for order in permutations(range(5))
             if all(scores[a] >= scores[b] for a, b in zip(order, order[1:]))]
    worst, best = (asi(torch.tensor([scores]), torch.tensor([levels]), ties).item() for ties in ("max", "min"))
    assert (min(found), max(found)) == (pytest.approx(worst, abs=1e-6), pytest.approx(best, abs=1e-6))


def test_graded_levels_of_any_integer_dtype():
    scores, levels = ranking()
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        same(relevance_from_levels(levels.to(dtype)), relevance_from_levels(levels), 0)
        same(ndcg(scores, levels.to(dtype)), ndcg(scores, levels), 0)
        same(asi(scores, levels.to(dtype)), asi(scores, levels), 0)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_cuda_measures_the_same(dtype):
    scores, levels = ranking(queries=60, gallery=80, dtype=dtype)
    relevance = relevance_from_levels(levels)
    for ties in TIES:
        same(h_ap(scores.cuda(), relevance.cuda(), ties).cpu(), h_ap(scores, relevance, ties), 1e-6)
        same(ndcg(scores.cuda(), levels.cuda(), ties).cpu(), ndcg(scores, levels, ties), 1e-6)
        same(asi(scores.cuda(), levels.cuda(), ties).cpu(), asi(scores, levels, ties), 1e-6)


def test_relevance_may_lie_in_memory_in_any_order():
    "No warning of torch's about it, and the same numbers."
    scores, levels, worth = (torch.rand(6, 4, generator=torch.Generator().manual_seed(n)) for n in range(3))
    values = torch.where(levels > 0.5, worth, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        turned = h_ap(scores.T.contiguous().T, values.T.contiguous().T)
    torch.testing.assert_close(turned, h_ap(scores, values), equal_nan=True)
