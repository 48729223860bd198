"""Ranks by counting, and what every loss shares: checks, cosine scores, the call."""

from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import smoothap_nb
from smoothap_nb import RankingLoss, cosine_scores, pairwise_differences, ranks, similarity
from smoothap_nb.checks import (
    TIES,
    check_choice,
    check_count,
    check_embeddings,
    check_finite,
    check_labels,
    check_positive,
    check_relevance,
    check_scores,
)
from smoothap_nb.ranking import unchecked_ranks
from smoothap_nb.losses.base import mean_over_queries


def rank_loop(row, ties):
    "Rank by counting, straight from the definition."
    weight = {"max": 1.0, "min": 0.0, "average": 0.5}[ties]
    return [
        1 + sum((1.0 if other > mine else weight if other == mine else 0.0) for j, other in enumerate(row) if j != i)
        for i, mine in enumerate(row)
    ]


GRIDS = st.integers(1, 12).flatmap(
    lambda width: st.lists(st.lists(st.integers(-3, 3), min_size=width, max_size=width), min_size=1, max_size=4)
)


# ---------------------------------------------------------------- ranks


@given(GRIDS, st.sampled_from(TIES), st.sampled_from([torch.float32, torch.float64]))
def test_ranks_count_who_is_ahead(rows, ties, dtype):
    ours = ranks(torch.tensor(rows, dtype=dtype) / 4, ties)
    assert ours.tolist() == [rank_loop(row, ties) for row in rows]
    assert ours.dtype == (dtype if ties == "average" else torch.int64)


@given(GRIDS)
def test_ranks_from_differences(rows):
    scores = torch.tensor(rows, dtype=torch.float64)
    ahead = (pairwise_differences(scores) > 0).sum(-1)
    assert torch.equal(1 + ahead, ranks(scores, "min"))


@given(GRIDS, st.sampled_from(TIES), st.randoms(use_true_random=False))
def test_ranks_move_with_the_gallery(rows, ties, random):
    scores = torch.tensor(rows, dtype=torch.float64)
    order = list(range(scores.shape[1]))
    random.shuffle(order)
    assert torch.equal(ranks(scores[:, order], ties), ranks(scores, ties)[:, order])


def test_average_rank_is_the_mean_over_orders_of_tied_items():
    row = [0.5, 0.9, 0.5, 0.5, 0.1]
    orders = [sorted(range(5), key=lambda i, p=p: (-row[i], p.index(i))) for p in permutations(range(5))]
    mean = [sum(order.index(i) + 1 for order in orders) / len(orders) for i in range(5)]
    assert ranks(torch.tensor([row]), "average").tolist() == [mean]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_ranks_of_every_float(dtype):
    assert ranks(torch.tensor([[0.5, 1.0, 0.25]], dtype=dtype)).tolist() == [[2, 1, 3]]


def test_ranks_cut_the_graph_and_leave_the_input_alone():
    scores = torch.tensor([[0.3, 0.1, 0.2]], requires_grad=True)
    before = scores.detach().clone()
    assert not ranks(scores).requires_grad and torch.equal(scores, before)


def test_ranks_of_a_view():
    scores = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ranks(scores.T), ranks(scores.T.contiguous()))


def test_an_absent_item_outranks_nobody():
    scores = torch.tensor([[0.2, -torch.inf, 0.9, -torch.inf]])
    assert unchecked_ranks(scores)[0, [0, 2]].tolist() == [2, 1]


def test_zero_and_minus_zero_tie():
    assert ranks(torch.tensor([[0.0, -0.0]]), "max").tolist() == [[2, 2]]


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "scores, error, words",
    [
        ([[0.1, 0.2]], TypeError, "scores must be a torch.Tensor, got list"),
        (torch.tensor([[1, 2]]), TypeError, "call scores.float"),
        (torch.tensor([0.1, 0.2]), ValueError, r"shape \(queries, gallery\), got \(2,\)"),
        (torch.zeros(2, 3, 4), ValueError, r"got \(2, 3, 4\)"),
        (torch.zeros(2, 0), ValueError, "the gallery is empty"),
        (torch.tensor([[0.1, 0.2], [0.3, torch.nan]]), ValueError, "NaN or infinity in 1 of 2 rows, first in row 1"),
        (torch.tensor([[torch.inf, -torch.inf]]), ValueError, "first in row 0"),
    ],
)
def test_bad_scores(scores, error, words):
    for call in (check_scores, ranks, pairwise_differences):
        with pytest.raises(error, match=words):
            call(scores)


def test_large_scores_are_not_taken_for_infinite():
    check_scores(torch.full((2, 3), 3e38))


@pytest.mark.parametrize(
    "relevance, error, words",
    [
        ([[True, False]], TypeError, "relevance must be a bool tensor, got list"),
        (torch.tensor([[1, 0]]), TypeError, "got torch.int64"),
        (torch.tensor([True, False]), ValueError, r"relevance has shape \(2,\), scores have \(1, 2\)"),
    ],
)
def test_bad_relevance(relevance, error, words):
    with pytest.raises(error, match=words):
        check_relevance(relevance, torch.zeros(1, 2))


def test_relevance_without_numbers():
    with pytest.raises(TypeError, match="relevance must be a dense tensor, got one on meta"):
        check_relevance(torch.zeros(1, 2, dtype=torch.bool, device="meta"), torch.zeros(1, 2))


@pytest.mark.parametrize(
    "embeddings, error, words",
    [
        ([[1.0, 2.0]], TypeError, "embeddings must be a floating-point torch.Tensor, got list"),
        (torch.ones(2, 3, dtype=torch.int64), TypeError, "got torch.int64"),
        (torch.ones(3), ValueError, r"shape \(images, dimensions\), got \(3,\)"),
        (torch.ones(3, 0), ValueError, r"got \(3, 0\)"),
        (
            torch.tensor([[1.0], [torch.nan]]),
            ValueError,
            "embeddings hold NaN or infinity in 1 of 2 rows, first in row 1",
        ),
        (torch.tensor([[torch.inf], [1.0]]), ValueError, "first in row 0"),
    ],
)
def test_bad_embeddings(embeddings, error, words):
    for call in (check_embeddings, cosine_scores):
        with pytest.raises(error, match=words):
            call(embeddings)


@pytest.mark.parametrize(
    "labels, error, words",
    [
        ([0, 1, 2], TypeError, "labels must be a torch.Tensor of integers, got list"),
        (torch.tensor([0.0, 1.0, 2.0]), TypeError, "must be integers"),
        (torch.tensor([True, False, True]), TypeError, "must be integers"),
        (torch.tensor([0, 1]), ValueError, "labels have length 2, the embeddings 3"),
        (torch.zeros(3, 2, dtype=torch.int64), ValueError, "choose one, e.g. labels"),
    ],
)
def test_bad_labels(labels, error, words):
    with pytest.raises(error, match=words):
        check_labels(labels, torch.zeros(3, 4))


def test_labels_of_several_levels():
    assert check_labels(torch.tensor([0, 1, 2]), torch.zeros(3, 4), hierarchical=True).shape == (3, 1)
    with pytest.raises(ValueError, match="coarse to fine"):
        check_labels(torch.zeros(3, 2, 2, dtype=torch.int64), torch.zeros(3, 4), hierarchical=True)


@pytest.mark.parametrize("value", [0, -0.1, float("nan"), float("inf"), "0.1", None, True])
def test_not_a_positive_number(value):
    with pytest.raises(ValueError, match="tau must be a finite number above 0"):
        check_positive("tau", value)


@pytest.mark.parametrize("value", [0, -1, 1.0, "1", None, True])
def test_not_a_count(value):
    with pytest.raises(ValueError, match="k must be a whole number from 1 on"):
        check_count("k", value)


def test_numpy_numbers_pass():
    numpy = pytest.importorskip("numpy")
    assert check_positive("tau", numpy.float32(0.5)) == 0.5 and check_count("k", numpy.int64(3)) == 3


def test_an_unknown_word_names_the_known():
    with pytest.raises(ValueError, match="ties must be one of 'max', 'min', 'average', got 'mean'"):
        check_choice("ties", "mean", TIES)
    with pytest.raises(ValueError, match="'mean'"):
        ranks(torch.zeros(1, 2), "mean")


@pytest.mark.cuda
def test_cuda_values_are_read_only_on_request():
    scores = torch.tensor([[0.1, torch.nan]], device="cuda")
    check_finite("scores", scores)
    with pytest.raises(ValueError, match="scores hold NaN"):
        check_finite("scores", scores, validate=True)


# ---------------------------------------------------------------- cosine scores


def test_cosine_scores_by_hand():
    scores = cosine_scores(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, -4.0]]))
    torch.testing.assert_close(scores, torch.tensor([[0.6, 0.8, -1.0]]))
    assert torch.equal(
        cosine_scores(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]]), normalize=False), torch.tensor([[3.0]])
    )


def test_unit_rows_keep_their_dot_products():
    rows = nn.functional.normalize(torch.randn(9, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(cosine_scores(rows), cosine_scores(rows, normalize=False), rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    "dtype, expected", [(torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float64, torch.float64)]
)
def test_scores_are_at_least_float32(dtype, expected):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert cosine_scores(torch.ones(2, 3, dtype=dtype)).dtype == expected


def test_a_row_of_zeros_scores_zero_and_stays_put():
    rows = torch.tensor([[0.0, 0.0], [1.0, 2.0], [-1.0, 1.0]], dtype=torch.float64, requires_grad=True)
    scores = cosine_scores(rows)
    assert scores[0].tolist() == [0.0, 0.0, 0.0]
    scores.mul(torch.randn(3, 3, dtype=torch.float64)).sum().backward()
    assert rows.grad[0].tolist() == [0.0, 0.0] and rows.grad.isfinite().all() and rows.grad[1:].abs().max() < 10


def test_cosine_gradient():
    generator = torch.Generator().manual_seed(0)
    rows, refs = (torch.randn(n, 3, dtype=torch.float64, generator=generator, requires_grad=True) for n in (3, 4))
    assert torch.autograd.gradcheck(cosine_scores, (rows, refs))
    assert torch.autograd.gradcheck(cosine_scores, (rows,))


def test_galleries_that_do_not_fit():
    with pytest.raises(ValueError, match="ref_emb has 3 dimensions, the embeddings have 2"):
        cosine_scores(torch.ones(1, 2), torch.ones(4, 3))
    with pytest.raises(ValueError, match="the gallery is empty: ref_emb has no rows"):
        cosine_scores(torch.ones(1, 2), torch.ones(0, 2))


# ---------------------------------------------------------------- the shared call


class Seen(RankingLoss):
    "Keeps what it was given; each ranking costs the sum of its scores."

    def query_losses(self, scores, target):
        self.scores, self.relevance = scores, target
        return scores.masked_fill(scores == -torch.inf, 0).sum(1).masked_fill(~target.any(1), torch.nan)


@pytest.fixture
def batch():
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([5, -2, 5, 9, -2, 5])


def test_the_query_leaves_its_ranking(batch):
    embeddings, labels = batch
    loss = Seen()
    loss(embeddings, labels)
    assert (loss.scores.diagonal() == -torch.inf).all() and not loss.relevance.diagonal().any()
    off = ~torch.eye(6, dtype=torch.bool)
    torch.testing.assert_close(loss.scores[off], cosine_scores(embeddings)[off])
    assert torch.equal(loss.relevance[off], (labels[:, None] == labels)[off])


def test_or_stays_on_request(batch):
    embeddings, labels = batch
    loss = Seen(include_query=True)
    loss(embeddings, labels)
    torch.testing.assert_close(loss.scores.diagonal(), torch.ones(6))
    assert loss.relevance.diagonal().all()


def test_references_with_query_index_equal_self_retrieval(batch):
    embeddings, labels = batch
    alone, refs = Seen(), Seen()
    value = alone(embeddings, labels)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    other = refs(embeddings, labels, ref_emb=embeddings[order], ref_labels=labels[order], query_index=order.argsort())
    torch.testing.assert_close(value, other)
    assert torch.equal(refs.relevance, alone.relevance[:, order])
    assert torch.equal(refs.scores == -torch.inf, alone.scores[:, order] == -torch.inf)


def test_an_absent_query_keeps_every_reference(batch):
    embeddings, labels = batch
    loss = Seen()
    loss(embeddings, labels, ref_emb=embeddings, ref_labels=labels, query_index=torch.tensor([0, -1, 2, 3, -1, 5]))
    assert (loss.scores == -torch.inf).sum(1).tolist() == [1, 0, 1, 1, 0, 1]


def test_query_index_is_harmless_where_the_query_stays(batch):
    embeddings, labels = batch
    loss = Seen(include_query=True)
    loss(embeddings, labels, ref_emb=embeddings, ref_labels=labels, query_index=torch.arange(6))
    assert loss.scores.isfinite().all()


def test_queries_without_positives_leave_the_mean(batch):
    embeddings, labels = batch
    loss = Seen()
    value = loss(embeddings, labels)
    rows = loss.query_losses(loss.scores, loss.relevance)
    assert rows.isnan().tolist() == [False, False, False, True, False, False]
    torch.testing.assert_close(value, rows[~rows.isnan()].mean())


def test_a_nan_of_a_valid_query_shows():
    "On a GPU nobody looks at the embeddings: a NaN must not pass for a query without positives."

    class Broken(RankingLoss):
        def query_losses(self, scores, target):
            return scores.new_tensor([torch.nan, 1.0, torch.nan])

    assert Broken()(torch.eye(3), torch.tensor([0, 0, 1])).isnan()


def test_mean_over_queries():
    assert mean_over_queries(torch.tensor([1.0, torch.nan, 3.0])) == 2
    nothing = torch.full((2,), torch.nan, requires_grad=True)
    mean = mean_over_queries(nothing)
    mean.backward()
    assert mean == 0 and nothing.grad.tolist() == [0, 0]


def test_a_base_class_says_what_is_missing(batch):
    with pytest.raises(NotImplementedError, match="RankingLoss does not say what a ranking costs"):
        RankingLoss()(*batch)


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(indices_tuple=(1, 2, 3)), ValueError, "no pairs to mine"),
        (dict(embeddings=torch.ones(0, 4), labels=torch.ones(0, dtype=torch.int64)), ValueError, "the batch is empty"),
        (dict(embeddings=torch.full((6, 4), torch.nan)), ValueError, "embeddings hold NaN or infinity in 6 of 6 rows"),
        (dict(embeddings=torch.ones(6)), ValueError, "embeddings must have shape"),
        (dict(labels=torch.arange(5)), ValueError, "labels have length 5, the embeddings 6"),
        (dict(labels=list(range(6))), TypeError, "labels must be a torch.Tensor"),
        (dict(labels=torch.zeros(6, 2, dtype=torch.int64)), ValueError, "several levels choose one"),
        (dict(ref_emb=torch.ones(3, 4)), ValueError, "belong together"),
        (dict(ref_labels=torch.arange(3)), ValueError, "belong together"),
        (
            dict(ref_emb=torch.ones(3, 5), ref_labels=torch.arange(3)),
            ValueError,
            "ref_emb has 5 dimensions, the embeddings have 4",
        ),
        (
            dict(ref_emb=torch.ones(0, 4), ref_labels=torch.ones(0, dtype=torch.int64)),
            ValueError,
            "the gallery is empty",
        ),
        (
            dict(ref_emb=torch.full((3, 4), torch.inf), ref_labels=torch.arange(3)),
            ValueError,
            "ref_emb hold NaN or infinity",
        ),
        (dict(ref_emb=torch.ones(3, 4), ref_labels=torch.arange(2)), ValueError, "ref_labels have length 2"),
        (dict(query_index=torch.arange(6)), ValueError, "query_index points into ref_emb"),
        (
            dict(ref_emb=torch.ones(9, 4), ref_labels=torch.arange(9), query_index=[0] * 6),
            TypeError,
            "query_index must be a torch.Tensor",
        ),
        (
            dict(ref_emb=torch.ones(9, 4), ref_labels=torch.arange(9), query_index=torch.ones(6)),
            TypeError,
            "of integers, got torch.float32",
        ),
        (
            dict(ref_emb=torch.ones(9, 4), ref_labels=torch.arange(9), query_index=torch.arange(5)),
            ValueError,
            "6 integers, one per query",
        ),
        (
            dict(ref_emb=torch.ones(5, 4), ref_labels=torch.arange(5), query_index=torch.arange(6)),
            ValueError,
            r"-1 ... 4 .* got 0 ... 5",
        ),
    ],
)
def test_bad_calls(batch, change, error, words):
    embeddings, labels = batch
    arguments = dict(embeddings=embeddings, labels=labels) | change
    with pytest.raises(error, match=words):
        Seen()(arguments.pop("embeddings"), arguments.pop("labels"), **arguments)


def test_levels_must_agree():
    class Levels(Seen):
        hierarchical = True

    with pytest.raises(ValueError, match="labels have 2 levels, ref_labels 3"):
        Levels()(
            torch.ones(2, 3), torch.zeros(2, 2).long(), ref_emb=torch.ones(4, 3), ref_labels=torch.zeros(4, 3).long()
        )


@settings(max_examples=25)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=10), st.integers(0, 10**6))
def test_any_labels_give_a_finite_loss_with_a_graph(labels, seed):
    embeddings = torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(seed), requires_grad=True)
    loss = Seen()(embeddings, torch.tensor(labels))
    loss.backward()
    assert loss.isfinite() and embeddings.grad.isfinite().all()


# ---------------------------------------------------------------- the package


def test_no_module_bears_a_public_name():
    "`smoothap_nb.smooth_ap` is the function, whatever has been imported before."
    import pkgutil

    modules = {
        name
        for info in pkgutil.walk_packages(smoothap_nb.__path__, "smoothap_nb.")
        for name in info.name.split(".")[1:]
    }
    assert not modules & set(smoothap_nb.__all__)


# ---------------------------------------------------------------- a batch against itself: one product back


@pytest.mark.parametrize("leave_out", [False, True])
def test_self_scores_have_the_gradient_of_the_plain_product(leave_out, monkeypatch):
    rows = torch.randn(70, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weight = torch.randn(70, 70, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    plain = rows @ rows.T
    plain = plain.masked_fill(torch.eye(70, dtype=torch.bool), 0) if leave_out else plain
    (expected,) = torch.autograd.grad((plain * weight).sum(), rows)
    for block in (1, 1 << 20):  # rows in several blocks, and in one
        monkeypatch.setattr("smoothap_nb.similarity._BLOCK", (block, block))
        ours = similarity.SelfScores.apply(rows, leave_out)
        ours = ours.masked_fill(ours == -torch.inf, 0) if leave_out else ours
        torch.testing.assert_close(torch.autograd.grad((ours * weight).sum(), rows)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("leave_out", [False, True])
def test_self_scores_can_be_differentiated_twice(leave_out):
    rows = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    off = ~torch.eye(5, dtype=torch.bool) | (not leave_out)

    def finite(rows):
        return similarity.SelfScores.apply(rows, leave_out).masked_select(off)

    assert torch.autograd.gradcheck(finite, rows) and torch.autograd.gradgradcheck(finite, rows)


def test_the_backward_of_self_scores_ignores_autocast():
    rows = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (expected,) = torch.autograd.grad(cosine_scores(rows).square().sum(), rows)
    with torch.autocast("cpu", torch.bfloat16):
        (inside,) = torch.autograd.grad(cosine_scores(rows).square().sum(), rows)
    assert inside.dtype == torch.float32
    torch.testing.assert_close(inside, expected)


def test_cosine_scores_work_under_functorch():
    rows = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight = torch.arange(25.0, dtype=torch.float64).view(5, 5)
    ours = torch.func.grad(lambda rows: (cosine_scores(rows) * weight).sum())(rows)
    leaf = rows.clone().requires_grad_()
    unit = leaf / leaf.norm(dim=1, keepdim=True)
    torch.testing.assert_close(ours, torch.autograd.grad((unit @ unit.T * weight).sum(), leaf)[0])


def test_unit_rows_have_the_gradients_of_a_division():
    rows = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(similarity.unit_rows, rows) and torch.autograd.gradgradcheck(
        similarity.unit_rows, rows
    )
    torch.testing.assert_close(similarity.unit_rows(rows), rows / rows.norm(dim=1, keepdim=True))


def test_a_row_of_zeros_stays_put():
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    unit = similarity.unit_rows(rows)
    unit.sum().backward()
    assert unit.tolist() == [[0, 0], [pytest.approx(0.6), pytest.approx(0.8)]] and rows.grad[0].tolist() == [0, 0]
