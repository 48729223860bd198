"""Average Precision and its relatives, held against counting by hand, scikit-learn and the laws they must obey."""

from fractions import Fraction
from itertools import permutations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from smoothap_nb import average_precision, map_at_r, precision_at_k, r_precision, recall_at_k
from smoothap_nb.metrics.flat import unchecked_average_precision

NAN = float("nan")
TOY_A = torch.tensor([[0.9, 0.7, 0.6, 0.2, 0.8, 0.5, 0.4, 0.3]], dtype=torch.float64)
TOY_A_RELEVANCE = torch.tensor([[True] * 4 + [False] * 4])
RELATIVES = {
    "recall": lambda s, r, **kw: recall_at_k(s, r, 2, **kw),
    "precision": lambda s, r, **kw: precision_at_k(s, r, 2, **kw),
    "r_precision": r_precision,
    "map_at_r": map_at_r,
}


def ap_loop(row, relevant, ties="max"):
    "AP of one query from the ratio of two ranks, in exact fractions."
    weight = {"max": Fraction(1), "min": Fraction(0), "average": Fraction(1, 2)}[ties]

    def rank(i, members):
        return 1 + sum(
            (Fraction(row[j] > row[i]) + (weight if row[j] == row[i] else 0) for j in members if j != i), Fraction(0)
        )

    positives = [i for i, is_positive in enumerate(relevant) if is_positive]
    if not positives:
        return NAN
    return float(sum(rank(i, positives) / rank(i, range(len(row))) for i in positives) / len(positives))


@st.composite
def rankings(draw, distinct=False, low=-4, high=4):
    "Scores on a coarse grid (ties), or all different, and any relevance."
    width, height = draw(st.integers(1, 10)), draw(st.integers(1, 3))
    if distinct:
        rows = [draw(st.permutations(range(width))) for _ in range(height)]
    else:
        rows = [draw(st.lists(st.integers(low, high), min_size=width, max_size=width)) for _ in range(height)]
    relevant = [draw(st.lists(st.booleans(), min_size=width, max_size=width)) for _ in range(height)]
    return torch.tensor(rows, dtype=torch.float64) / 8, torch.tensor(relevant)


def same(ours, theirs, atol=1e-12):
    torch.testing.assert_close(ours, torch.as_tensor(theirs, dtype=ours.dtype), rtol=0, atol=atol, equal_nan=True)


# ---------------------------------------------------------------- average precision


def test_toy_a_by_hand():
    same(average_precision(TOY_A, TOY_A_RELEVANCE), [float((1 + Fraction(2, 3) + Fraction(3, 4) + Fraction(4, 8)) / 4)])


@pytest.mark.parametrize("ties, expected", [("max", 1 / 2), ("min", 1.0), ("average", 2 / 3)])
def test_one_positive_tied_with_one_negative(ties, expected):
    same(average_precision(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[True, False]]), ties), [expected])


@given(rankings(), st.sampled_from(["max", "min", "average"]))
def test_against_fractions(ranking, ties):
    scores, relevance = ranking
    same(
        average_precision(scores, relevance, ties),
        [ap_loop(s, r, ties) for s, r in zip(scores.tolist(), relevance.tolist())],
    )


@settings(deadline=None)  # the first example pays for the import
@given(rankings())
def test_against_scikit_learn(ranking):
    metrics = pytest.importorskip("sklearn.metrics")
    scores, relevance = ranking
    for row, relevant, ours in zip(scores, relevance, average_precision(scores, relevance)):
        if relevant.any():
            same(ours, metrics.average_precision_score(relevant.numpy(), row.numpy()))


@given(rankings(), st.randoms(use_true_random=False))
def test_the_order_of_the_gallery_does_not_matter(ranking, random):
    scores, relevance = ranking
    order = list(range(scores.shape[1]))
    random.shuffle(order)
    for ties in ("max", "min", "average"):
        for metric in (average_precision, *RELATIVES.values()):
            same(metric(scores[:, order], relevance[:, order], ties=ties), metric(scores, relevance, ties=ties))


@given(rankings(), st.floats(0.1, 10), st.integers(-3, 3))
def test_only_the_order_of_the_scores_matters(ranking, factor, shift):
    scores, relevance = ranking
    same(average_precision(torch.exp(factor * scores) + shift, relevance), average_precision(scores, relevance))


@given(rankings(distinct=True))
def test_without_ties_the_rules_agree(ranking):
    scores, relevance = ranking
    for metric in (average_precision, *RELATIVES.values()):
        values = [metric(scores, relevance, ties=ties) for ties in ("max", "min", "average")]
        same(values[0], values[1]), same(values[0], values[2])


@given(rankings())
def test_the_pessimist_never_beats_the_optimist(ranking):
    scores, relevance = ranking
    for metric in RELATIVES.values():
        low, high = (metric(scores, relevance, ties=ties).nan_to_num(0) for ties in ("max", "min"))
        assert (low <= high).all() and (0 <= low).all() and (high <= 1).all()


def test_for_ap_the_tie_rules_are_rules_not_bounds():
    """Two equal positives behind one negative, and nothing else: every order gives (1/2 + 2/3) / 2, the rules give
    2/3 and 1/2."""
    scores, relevance = torch.tensor([[0.9, 0.5, 0.5]], dtype=torch.float64), torch.tensor([[False, True, True]])
    same(average_precision(scores, relevance, "max"), [2 / 3])
    same(average_precision(scores, relevance, "min"), [1 / 2])


def test_edges():
    scores = torch.tensor([[0.9, 0.5, 0.1]] * 4, dtype=torch.float64)
    relevance = torch.tensor([[False] * 3, [True] * 3, [False, True, False], [True, True, False]])
    same(average_precision(scores, relevance), [NAN, 1.0, 1 / 2, 1.0])
    same(average_precision(scores[:0], relevance[:0]), [])


@pytest.mark.parametrize(
    "dtype, expected", [(torch.float16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)]
)
def test_dtypes(dtype, expected):
    for metric in (average_precision, *RELATIVES.values()):
        assert metric(TOY_A.to(dtype), TOY_A_RELEVANCE).dtype == expected


def test_float32_is_as_good_as_its_last_digit():
    generator = torch.Generator().manual_seed(0)
    scores, relevance = torch.rand(4, 5000, generator=generator), torch.rand(4, 5000, generator=generator) < 0.2
    same(average_precision(scores, relevance), average_precision(scores.double(), relevance), atol=1e-6)


def test_an_absent_item_changes_nothing():
    scores = torch.cat([TOY_A, torch.tensor([[-torch.inf, -torch.inf]])], 1)
    relevance = torch.cat([TOY_A_RELEVANCE, torch.tensor([[False, False]])], 1)
    for ties in ("max", "min", "average"):
        same(unchecked_average_precision(scores, relevance, ties), average_precision(TOY_A, TOY_A_RELEVANCE, ties))


@pytest.mark.cuda
def test_cuda_agrees():
    generator = torch.Generator().manual_seed(0)
    scores, relevance = (
        torch.randint(0, 50, (8, 300), generator=generator) / 50,
        torch.rand(8, 300, generator=generator) < 0.1,
    )
    for metric in (average_precision, *RELATIVES.values()):
        same(metric(scores.cuda(), relevance.cuda()).cpu(), metric(scores, relevance), atol=1e-6)


# ---------------------------------------------------------------- relatives


def orders_of(row, relevant):
    "Every order of the gallery that the scores allow, as lists of relevance, best first."
    return [
        [relevant[i] for i in order]
        for order in permutations(range(len(row)))
        if all(row[a] >= row[b] for a, b in zip(order, order[1:]))
    ]


def relatives_of(hits, k):
    "R@K, P@K, R-precision and AP@R of one ordered list of relevance, straight from their definitions."
    total = sum(hits)
    return {
        "recall": float(any(hits[:k])),
        "precision": sum(hits[:k]) / k,
        "r_precision": sum(hits[:total]) / total,
        "map_at_r": sum(sum(hits[: n + 1]) / (n + 1) for n in range(total) if hits[n]) / total,
    }


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=5).flatmap(
        lambda row: st.tuples(st.just(row), st.lists(st.booleans(), min_size=len(row), max_size=len(row)))
    )
)
def test_relatives_are_the_worst_and_the_best_order(ranking):
    row, relevant = ranking
    assume(any(relevant))
    scores, relevance = torch.tensor([row], dtype=torch.float64), torch.tensor([relevant])
    values = [relatives_of(hits, 2) for hits in orders_of(row, relevant)]
    for name, metric in RELATIVES.items():
        same(metric(scores, relevance, ties="max"), [min(v[name] for v in values)])
        same(metric(scores, relevance, ties="min"), [max(v[name] for v in values)])


def test_relatives_by_hand():
    scores = torch.arange(8, 0, -1, dtype=torch.float64)[None] / 8
    relevance = torch.tensor([[False, True, True, False, False, True, False, False]])  # places 2, 3, 6
    same(recall_at_k(scores, relevance, 1), [0.0])
    same(recall_at_k(scores, relevance, 2), [1.0])
    same(precision_at_k(scores, relevance, 5), [2 / 5])
    same(r_precision(scores, relevance), [2 / 3])
    same(map_at_r(scores, relevance), [(1 / 2 + 2 / 3) / 3])
    same(average_precision(scores, relevance), [(1 / 2 + 2 / 3 + 3 / 6) / 3])


def test_recall_at_1_of_the_published_example():
    "Positives at ranks 2 and 3: r@1 = 0, r@2 = r@3 = 1."
    scores, relevance = torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[False, True, True]])
    assert [recall_at_k(scores, relevance, k).item() for k in (1, 2, 3)] == [0, 1, 1]


def test_two_equal_positives_do_not_push_each_other_back():
    scores, relevance = torch.tensor([[0.9, 0.9, 0.1]]), torch.tensor([[True, True, False]])
    for ties in ("max", "min", "average"):
        assert recall_at_k(scores, relevance, 1, ties).item() == 1
        assert precision_at_k(scores, relevance, 2, ties).item() == r_precision(scores, relevance, ties).item() == 1


def test_half_of_the_tied_negatives():
    scores, relevance = torch.tensor([[0.5, 0.5, 0.5]]), torch.tensor([[True, False, False]])
    assert [recall_at_k(scores, relevance, 2, ties).item() for ties in ("max", "average", "min")] == [0, 1, 1]
    assert [recall_at_k(scores, relevance, 1, ties).item() for ties in ("max", "average", "min")] == [0, 0, 1]


@given(rankings(distinct=True))
def test_relatives_obey_their_laws(ranking):
    scores, relevance = ranking
    found = relevance.any(1)
    ap, at_r = average_precision(scores, relevance)[found], map_at_r(scores, relevance)[found]
    assert (at_r <= ap + 1e-12).all() and (at_r <= r_precision(scores, relevance)[found] + 1e-12).all()
    hits = torch.stack([recall_at_k(scores, relevance, k)[found] for k in range(1, scores.shape[1] + 1)])
    assert (hits.diff(dim=0) >= 0).all() and (hits[-1] == 1).all()
    same(precision_at_k(scores, relevance, 1)[found], hits[0])
    same(precision_at_k(scores, relevance, scores.shape[1])[found], relevance.double().mean(1)[found])


def test_no_positives_is_nan():
    scores, relevance = torch.rand(2, 3, dtype=torch.float64), torch.tensor([[False] * 3, [True] * 3])
    for metric in RELATIVES.values():
        assert metric(scores, relevance).isnan().tolist() == [True, False]


def test_k_beyond_the_gallery():
    scores, relevance = torch.tensor([[0.2, 0.1]], dtype=torch.float64), torch.tensor([[False, True]])
    same(recall_at_k(scores, relevance, 100), [1.0]), same(precision_at_k(scores, relevance, 100), [0.01])


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("metric", [average_precision, *RELATIVES.values()])
def test_bad_input(metric):
    scores, relevance = torch.rand(2, 3), torch.rand(2, 3) > 0.5
    with pytest.raises(ValueError, match="ties must be one of"):
        metric(scores, relevance, ties="best")
    with pytest.raises(TypeError, match="relevance must be a bool tensor"):
        metric(scores, relevance.long())
    with pytest.raises(ValueError, match="they must be equal"):
        metric(scores, relevance[:, :2])
    with pytest.raises(ValueError, match="the gallery is empty"):
        metric(scores[:, :0], relevance[:, :0])
    with pytest.raises(ValueError, match="NaN or infinity"):
        metric(scores / 0, relevance)
    with pytest.raises(TypeError, match="scores must be a torch.Tensor"):
        metric(scores.tolist(), relevance)


@pytest.mark.parametrize("metric", [recall_at_k, precision_at_k])
@pytest.mark.parametrize("k", [0, -3, 1.5, None])
def test_bad_k(metric, k):
    with pytest.raises(ValueError, match="k must be a whole number from 1 on"):
        metric(torch.rand(1, 3), torch.ones(1, 3, dtype=torch.bool), k)
