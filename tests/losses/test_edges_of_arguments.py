"Values at the edges that mutants slipped through."

import math

import pytest
import torch

from smoothap_nb import (
    FastAPLoss,
    Objective,
    RecallLoss,
    SmoothAPLoss,
    blackbox_ap,
    cosine_scores,
    evaluate,
    fast_ap,
    ranks,
    recall_at_k,
    smooth_ap,
    sup_ap,
)
from smoothap_nb.checks import ConfigError

ROWS = torch.nn.functional.normalize(torch.randn(8, 5, generator=torch.Generator().manual_seed(3)), dim=1)
PAIRS = torch.arange(8) // 2


@pytest.mark.parametrize("index", [-2, 8])
def test_a_query_is_a_row_of_the_gallery_or_absent(index):
    with pytest.raises(ValueError, match=r"query_index must lie in -1 \.\.\. 7"):
        SmoothAPLoss()(ROWS[:1], PAIRS[:1], ref_emb=ROWS, ref_labels=PAIRS, query_index=torch.tensor([index]))


@pytest.mark.parametrize("length", [1e-8, 1e-20, 1e15])
def test_a_row_of_any_length_keeps_its_direction(length):
    torch.testing.assert_close(cosine_scores(ROWS * length), cosine_scores(ROWS))
    rows = (ROWS * length).requires_grad_()
    SmoothAPLoss(0.1)(rows, PAIRS).backward()
    assert (rows.grad * length).isfinite().all() and rows.grad.abs().max() > 0


def test_the_two_zeros_tie():
    scores = torch.tensor([[0.0, -0.0, -1.0]])
    assert ranks(scores, "max").tolist() == [[2, 2, 3]] and ranks(scores, "min").tolist() == [[1, 1, 3]]
    assert ranks(scores, "average").tolist() == [[1.5, 1.5, 3]]


def test_one_positive_each_makes_both_reductions_one():
    by_query, by_positive = (RecallLoss(reduction=how)(ROWS, PAIRS) for how in ("query", "positives"))
    torch.testing.assert_close(by_query, by_positive)


def test_k_may_be_the_gallerys_size_and_no_more():
    scores, relevance = cosine_scores(ROWS), PAIRS[:, None] == PAIRS
    assert recall_at_k(scores, relevance, 8).tolist() == [1.0] * 8
    assert evaluate(ROWS, PAIRS, metrics=("R@7",), progress=False)["R@7"] == 1.0
    with pytest.raises(ValueError, match="R@8 asks for more images"):
        evaluate(ROWS, PAIRS, metrics=("R@8",), progress=False)


@pytest.mark.parametrize("weight", [True, math.nan])
def test_weights_of_terms_are_numbers(weight):
    with pytest.raises(ConfigError, match="weight of smooth_ap must be a number"):
        Objective({"terms": [{"name": "smooth_ap", "weight": weight}]})


def test_fastap_takes_a_cosine_above_one_for_one():
    "Rounding gives 1.0000001; a negative there lies in the last bin, with the gradient that it has at 1."
    relevance = torch.tensor([[True, False, False]])
    at, above = (torch.tensor([[0.7, top, -0.2]]) for top in (1.0, 1.0000001))
    torch.testing.assert_close(fast_ap(above, relevance), fast_ap(at, relevance))
    assert fast_ap(above, relevance).isfinite().all() and FastAPLoss()(ROWS, PAIRS).isfinite()


@pytest.mark.parametrize("value", [blackbox_ap, smooth_ap, fast_ap, sup_ap])
def test_no_queries_have_no_values_and_an_empty_gradient(value):
    scores = torch.empty(0, 5, requires_grad=True)
    found = value(scores, torch.empty(0, 5, dtype=torch.bool))
    found.sum().backward()
    assert found.shape == (0,) and scores.grad.shape == (0, 5)
