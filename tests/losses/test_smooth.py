"""Smooth-AP and its loss: numbers by hand, laws, gradients, every shape of batch, every bad input."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from smoothap_nb import SmoothAPLoss, average_precision, smooth_ap

NAN = float("nan")
TOY_A = torch.tensor([[0.9, 0.7, 0.6, 0.2, 0.8, 0.5, 0.4, 0.3]], dtype=torch.float64)
TOY_A_RELEVANCE = torch.tensor([[True] * 4 + [False] * 4])


def smooth_ap_loop(row, relevant, tau):
    "Smooth-AP of one query, loop by loop; NaN without positives."

    def step(gap):
        return 1 / (1 + math.exp(-gap / tau)) if gap > -600 * tau else 0.0

    positives = [i for i, is_positive in enumerate(relevant) if is_positive]
    total = 0.0
    for i in positives:
        ahead = {j: step(row[j] - row[i]) for j in range(len(row)) if j != i}
        total += (1 + sum(ahead[j] for j in positives if j != i)) / (1 + sum(ahead.values()))
    return total / len(positives) if positives else NAN


def batch(count=12, classes=4, width=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    return torch.randn(count, width, generator=generator, dtype=dtype), labels


def loss_and_gradient(embeddings, labels, loss=None, autocast=None, **kwargs):
    embeddings = embeddings.detach().clone().requires_grad_()
    with torch.autocast(embeddings.device.type, dtype=autocast, enabled=autocast is not None):
        value = (loss or SmoothAPLoss(0.1))(embeddings, labels, **kwargs)
    value.backward()
    return value.detach(), embeddings.grad


def same(ours, theirs, atol=1e-12):
    torch.testing.assert_close(ours, torch.as_tensor(theirs, dtype=ours.dtype), rtol=0, atol=atol, equal_nan=True)


@st.composite
def rankings(draw, distinct=False):
    "A few rankings of up to ten items; on a grid (ties), or at least 1/16 apart."
    width, height = draw(st.integers(1, 10)), draw(st.integers(1, 3))
    rows = [
        draw(
            st.permutations(range(width)) if distinct else st.lists(st.integers(-8, 8), min_size=width, max_size=width)
        )
        for _ in range(height)
    ]
    relevant = [draw(st.lists(st.booleans(), min_size=width, max_size=width)) for _ in range(height)]
    return torch.tensor(rows, dtype=torch.float64) / 16, torch.tensor(relevant)


TAUS = st.sampled_from([0.5, 0.1, 0.01])


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("tau, expected", [(0.1, 0.674846), (0.05, 0.705830), (0.01, 0.729157), (0.001, 0.729167)])
def test_toy_a(tau, expected):
    same(smooth_ap(TOY_A, TOY_A_RELEVANCE, tau), [expected], atol=5e-7)


@given(rankings(), TAUS)
def test_against_loops(ranking, tau):
    scores, relevance = ranking
    same(
        smooth_ap(scores, relevance, tau),
        [smooth_ap_loop(s, r, tau) for s, r in zip(scores.tolist(), relevance.tolist())],
    )


@pytest.mark.parametrize("positives, gallery", [(2, 4), (1, 5), (3, 3), (7, 40)])
def test_all_scores_equal(positives, gallery):
    relevance = (torch.arange(gallery) < positives)[None]
    expected = (1 + (positives - 1) / 2) / (1 + (gallery - 1) / 2)
    same(smooth_ap(torch.zeros(1, gallery, dtype=torch.float64), relevance, 0.01), [expected])


def test_one_positive_gives_the_smooth_reciprocal_rank():
    scores, relevance = TOY_A, torch.arange(8)[None] == 3
    same(smooth_ap(scores, relevance, 0.1), 1 / (0.5 + torch.sigmoid((scores - 0.2) / 0.1).sum(1)))


def test_edges():
    scores = TOY_A.expand(3, -1)
    relevance = torch.stack([torch.zeros(8), torch.ones(8), TOY_A_RELEVANCE[0]]).bool()
    values = smooth_ap(scores, relevance, 0.05)
    assert values.isnan().tolist() == [True, False, False] and values[1] == 1
    assert smooth_ap(scores[:0], relevance[:0]).shape == (0,)
    assert smooth_ap(TOY_A[:, :1], TOY_A_RELEVANCE[:, :1]).tolist() == [1.0]


# ---------------------------------------------------------------- laws


@given(rankings(), TAUS, st.randoms(use_true_random=False))
def test_the_order_of_the_gallery_does_not_matter(ranking, tau, random):
    scores, relevance = ranking
    order = list(range(scores.shape[1]))
    random.shuffle(order)
    same(smooth_ap(scores[:, order], relevance[:, order], tau), smooth_ap(scores, relevance, tau))


@given(rankings(distinct=True))
def test_small_tau_tends_to_ap(ranking):
    scores, relevance = ranking
    exact = average_precision(scores, relevance)
    errors = [(smooth_ap(scores, relevance, tau) - exact).nan_to_num(0).abs().max() for tau in (0.02, 0.005, 0.001)]
    assert errors[2] <= errors[1] + 1e-12 and errors[1] <= errors[0] + 1e-12 and errors[2] < 1e-9


@given(rankings(), st.floats(-3, 3), st.floats(0.5, 20), TAUS)
def test_shift_and_scale_of_the_scores(ranking, shift, factor, tau):
    scores, relevance = ranking
    same(smooth_ap(scores + shift, relevance, tau), smooth_ap(scores, relevance, tau), atol=1e-9)
    same(smooth_ap(scores * factor, relevance, tau * factor), smooth_ap(scores, relevance, tau), atol=1e-9)


@given(rankings(), TAUS)
def test_score_gradients_sum_to_zero(ranking, tau):
    scores, relevance = ranking
    scores.requires_grad_()
    values = smooth_ap(scores, relevance, tau)
    torch.nansum(values * torch.arange(1.0, len(values) + 1)).backward()
    assert scores.grad.isfinite().all()
    same(scores.grad.sum(1), torch.zeros(len(scores)), atol=1e-10)


@given(rankings(distinct=True))
def test_positives_are_lifted_and_negatives_pushed_down_together(ranking):
    scores, relevance = ranking
    scores.requires_grad_()
    torch.nansum(smooth_ap(scores, relevance, 0.1)).backward()
    towards = scores.grad
    assert (towards.masked_fill(~relevance, 0).sum(1) >= -1e-12).all() and (
        towards.masked_fill(relevance, 0) <= 1e-12
    ).all()


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=14),
    st.integers(0, 10**6),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_renaming_labels_and_shuffling_rows_change_nothing(labels, seed, include_query, random):
    labels = torch.tensor(labels)
    embeddings = torch.randn(len(labels), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    loss = SmoothAPLoss(0.1, include_query=include_query)
    value, gradient = loss_and_gradient(embeddings, labels, loss)
    names = torch.tensor(random.sample(range(-1000, 1000), 5))
    order = list(range(len(labels)))
    random.shuffle(order)
    other_value, other_gradient = loss_and_gradient(embeddings[order], names[labels][order], loss)
    same(other_value, value), same(other_gradient, gradient[order], atol=1e-10)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=10), st.integers(0, 10**6))
def test_references_with_query_index_equal_self_retrieval(labels, seed):
    labels = torch.tensor(labels)
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(len(labels), 4, dtype=torch.float64, generator=generator)
    order = torch.randperm(len(labels), generator=generator)
    value, gradient = loss_and_gradient(embeddings, labels)
    leaf = embeddings.clone().requires_grad_()
    other = SmoothAPLoss(0.1)(leaf, labels, ref_emb=leaf[order], ref_labels=labels[order], query_index=order.argsort())
    other.backward()
    same(other.detach(), value), same(leaf.grad, gradient, atol=1e-10)


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("tau", [0.5, 0.1, 0.05])
def test_gradcheck_of_the_function(tau):
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(3, 7, dtype=torch.float64, generator=generator).mul(0.3).requires_grad_()
    relevance = torch.rand(3, 7, generator=generator) < 0.4
    relevance[2] = False
    assert torch.autograd.gradcheck(lambda s: smooth_ap(s, relevance, tau)[:2], (scores,))
    (gradient,) = torch.autograd.grad(smooth_ap(scores, relevance, tau).nansum(), scores)
    assert gradient[2].tolist() == [0.0] * 7


@pytest.mark.parametrize("include_query", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_gradcheck_of_the_loss(include_query, normalize):
    embeddings, labels = batch(8, 3, 4)
    loss = SmoothAPLoss(0.2, include_query=include_query, normalize=normalize)
    assert torch.autograd.gradcheck(lambda e: loss(e, labels), (embeddings.requires_grad_(),))


def test_gradcheck_with_references():
    embeddings, labels = batch(4, 2, 3)
    references, ref_labels = batch(6, 2, 3, seed=1)
    index = torch.tensor([0, -1, 5, 2])
    assert torch.autograd.gradcheck(
        lambda e, r: SmoothAPLoss(0.2)(e, labels, ref_emb=r, ref_labels=ref_labels, query_index=index),
        (embeddings.requires_grad_(), references.requires_grad_()),
    )


def test_toy_a_gradient():
    scores = TOY_A.clone().requires_grad_()
    smooth_ap(scores, TOY_A_RELEVANCE, 0.05).sum().backward()
    same(scores.grad, [[0.4141, 0.1298, 0.1444, 0.0405, -0.5504, -0.1171, -0.0247, -0.0366]], atol=6e-5)


def test_far_scores_give_no_nan():
    scores = torch.tensor([[1e4, -1e4, 0.0, 1.0]], requires_grad=True)
    smooth_ap(scores, torch.tensor([[False, True, False, True]]), 1e-6).sum().backward()
    assert scores.grad.isfinite().all()


# ---------------------------------------------------------------- every shape of a batch


def test_mean_over_the_queries_that_have_a_positive():
    embeddings, _ = batch(7)
    labels = torch.tensor([3, 3, 3, 1, 1, 8, 9])  # ragged classes, two singletons
    unit = nn.functional.normalize(embeddings)
    scores, relevance = unit @ unit.T, labels[:, None] == labels
    off = ~torch.eye(7, dtype=torch.bool)
    rows = smooth_ap(scores[off].view(7, 6), relevance[off].view(7, 6), 0.1)
    assert rows.isnan().tolist() == [False] * 5 + [True] * 2
    same(SmoothAPLoss(0.1)(embeddings, labels), 1 - rows[:5].mean())
    same(SmoothAPLoss(0.1, include_query=True)(embeddings, labels), 1 - smooth_ap(scores, relevance, 0.1).mean())


@pytest.mark.parametrize("labels", [[0, 1, 2, 3, 4], [7, 7, 7, 7, 7], [7]])
def test_no_positives_anywhere_or_nothing_else(labels):
    "No query has a positive, or no query has a negative: loss 0, with a graph, gradient 0."
    value, gradient = loss_and_gradient(torch.randn(len(labels), 3), torch.tensor(labels))
    same(value, 0.0, atol=1e-6), same(gradient, torch.zeros_like(gradient), atol=1e-6)


def test_references_without_positives():
    embeddings, labels = batch(4, 2)
    value, gradient = loss_and_gradient(embeddings, labels, ref_emb=embeddings + 1, ref_labels=labels + 10)
    assert value == 0 and not gradient.any()


def test_duplicate_images():
    row = torch.randn(1, 4, dtype=torch.float64)
    value, gradient = loss_and_gradient(row.repeat(5, 1), torch.tensor([0, 0, 1, 1, 1]))
    assert gradient.isfinite().all()
    same(value, 1 - (2 * 1 / 2.5 + 3 * 1.5 / 2.5) / 5)  # everything tied: (1 + (P - 1)/2) / (1 + (m - 1)/2), m = 4


def test_a_row_of_zeros():
    embeddings, labels = batch(6, 2)
    embeddings[2] = 0
    value, gradient = loss_and_gradient(embeddings, labels)
    assert value.isfinite() and gradient.isfinite().all() and not gradient[2].any()


def test_class_numbers_may_be_large_negative_and_of_any_integer_type():
    embeddings, labels = batch(8, 3)
    value, _ = loss_and_gradient(embeddings, labels)
    for other in (labels.int() - 2, labels.to(torch.uint8), labels * 2**40 - 2**50):
        same(loss_and_gradient(embeddings, other)[0], value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_embeddings(dtype):
    embeddings, labels = batch(12, 4, dtype=torch.float32)
    value, gradient = loss_and_gradient(embeddings.to(dtype), labels)
    assert value.dtype == torch.float32 and gradient.dtype == dtype and gradient.isfinite().all()
    same(value, loss_and_gradient(embeddings.to(dtype).float(), labels)[0], atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_changes_nothing(dtype):
    embeddings, labels = batch(12, 4, dtype=torch.float32)
    value, gradient = loss_and_gradient(embeddings, labels)
    other_value, other_gradient = loss_and_gradient(embeddings, labels, autocast=dtype)
    assert other_value.dtype == torch.float32
    assert torch.equal(value, other_value) and torch.equal(gradient, other_gradient)


def test_a_model_under_autocast_trains():
    torch.manual_seed(0)
    model, (images, labels) = nn.Linear(5, 3), batch(12, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        embeddings = model(images)
        assert embeddings.dtype == torch.bfloat16
        SmoothAPLoss(0.1)(embeddings, labels).backward()
    assert model.weight.grad.isfinite().all() and model.weight.grad.any()


def test_float64_stays_float64():
    embeddings, labels = batch()
    assert SmoothAPLoss()(embeddings, labels).dtype == torch.float64


def test_float32_close_to_float64():
    embeddings, labels = batch(40, 8, 16)
    value, gradient = loss_and_gradient(embeddings, labels)
    value32, gradient32 = loss_and_gradient(embeddings.float(), labels)
    same(value32.double(), value, atol=1e-5), same(gradient32.double(), gradient, atol=1e-5)


def test_a_loss_can_be_used_again_after_backward():
    embeddings, labels = batch()
    loss = SmoothAPLoss(0.1)
    first = loss_and_gradient(embeddings, labels, loss)
    second = loss_and_gradient(embeddings, labels, loss)
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])


def test_backward_twice_through_one_graph():
    embeddings, labels = batch()
    leaf = embeddings.requires_grad_()
    value = SmoothAPLoss(0.1)(leaf, labels)
    value.backward(retain_graph=True)
    once = leaf.grad.clone()
    value.backward()
    same(leaf.grad, 2 * once)


def test_the_incoming_gradient_counts():
    embeddings, labels = batch()
    leaf = embeddings.requires_grad_()
    loss = SmoothAPLoss(0.1)
    (single,) = torch.autograd.grad(loss(leaf, labels), leaf)
    (scaled,) = torch.autograd.grad(-3 * loss(leaf, labels) + leaf.sum(), leaf)
    same(scaled, -3 * single + 1, atol=1e-11)


def test_inputs_stay_as_they_were():
    embeddings, labels = batch()
    copies = embeddings.clone(), labels.clone()
    loss_and_gradient(embeddings, labels)
    scores = TOY_A.clone()
    smooth_ap(scores, TOY_A_RELEVANCE)
    assert torch.equal(embeddings, copies[0]) and torch.equal(labels, copies[1]) and torch.equal(scores, TOY_A)


def test_no_graph_where_none_is_wanted():
    embeddings, labels = batch()
    assert not SmoothAPLoss()(embeddings, labels).requires_grad
    with torch.no_grad():
        assert not SmoothAPLoss()(embeddings.requires_grad_(), labels).requires_grad


def test_frozen_references_give_a_gradient_to_queries_only():
    embeddings, labels = batch(6, 2)
    references, ref_labels = batch(9, 2, seed=1)
    value, gradient = loss_and_gradient(embeddings, labels, ref_emb=references, ref_labels=ref_labels)
    assert gradient.any() and references.grad is None


def test_views_and_columns_work():
    embeddings, labels = batch(10, 3, 4)
    value, gradient = loss_and_gradient(embeddings, labels)
    wide = torch.stack([embeddings.T, embeddings.T], 2)[..., 0].T  # not contiguous
    other_value, other_gradient = loss_and_gradient(wide, labels)
    same(other_value, value), same(other_gradient, gradient)


def test_a_module_like_any_other():
    loss = SmoothAPLoss(0.02, include_query=True)
    assert repr(loss) == "SmoothAPLoss(tau=0.02, include_query=True)"
    assert list(loss.parameters()) == [] and loss.state_dict() == {}
    embeddings, labels = batch()
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert torch.equal(twin(embeddings, labels), loss(embeddings, labels))


def test_gradient_descent_reaches_a_perfect_ranking():
    embeddings, labels = batch(16, 4, 6)
    embeddings.requires_grad_()
    loss, optimizer = SmoothAPLoss(0.05), torch.optim.Adam([embeddings], 0.05)
    for _ in range(150):
        optimizer.zero_grad()
        value = loss(embeddings, labels)
        value.backward()
        optimizer.step()
    assert value < 0.01


@pytest.mark.cuda
def test_cuda_agrees():
    embeddings, labels = batch(48, 8, 16)
    for include_query in (False, True):
        loss = SmoothAPLoss(0.05, include_query=include_query)
        here, there = loss_and_gradient(embeddings, labels, loss), loss_and_gradient(embeddings.cuda(), labels, loss)
        same(there[0].cpu(), here[0], atol=1e-10), same(there[1].cpu(), here[1], atol=1e-10)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cuda_autocast_changes_nothing(dtype):
    embeddings, labels = (x.cuda() for x in batch(48, 8, 16, dtype=torch.float32))
    value, gradient = loss_and_gradient(embeddings, labels)
    other_value, other_gradient = loss_and_gradient(embeddings, labels, autocast=dtype)
    same(other_value, value, atol=1e-6), same(other_gradient, gradient, atol=1e-6)


@pytest.mark.cuda
def test_a_nan_on_cuda_reaches_the_loss():
    embeddings, labels = (x.cuda() for x in batch(8, 2))
    embeddings[3] = NAN
    assert SmoothAPLoss()(embeddings, labels).isnan()
    with pytest.raises(ValueError, match="embeddings hold NaN or infinity in 1 of 8 rows, first in row 3"):
        SmoothAPLoss(validate=True)(embeddings, labels)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("tau", [0, -0.01, NAN, float("inf"), "0.01", None])
def test_bad_tau(tau):
    with pytest.raises(ValueError, match="tau must be a finite number above 0"):
        SmoothAPLoss(tau)
    with pytest.raises(ValueError, match="tau must be a finite number above 0"):
        smooth_ap(TOY_A, TOY_A_RELEVANCE, tau)


@pytest.mark.parametrize(
    "scores, relevance, error, words",
    [
        (TOY_A.tolist(), TOY_A_RELEVANCE, TypeError, "scores must be a torch.Tensor"),
        (TOY_A[0], TOY_A_RELEVANCE[0], ValueError, r"\(queries, gallery\)"),
        (TOY_A[:, :0], TOY_A_RELEVANCE[:, :0], ValueError, "the gallery is empty"),
        (TOY_A / 0, TOY_A_RELEVANCE, ValueError, "scores hold NaN or infinity in 1 of 1 rows"),
        (TOY_A, TOY_A_RELEVANCE.float(), TypeError, "relevance must be a bool tensor"),
        (TOY_A, TOY_A_RELEVANCE[:, :3], ValueError, "they must be equal"),
    ],
)
def test_bad_scores(scores, relevance, error, words):
    with pytest.raises(error, match=words):
        smooth_ap(scores, relevance)


@pytest.mark.parametrize(
    "embeddings, labels, error, words",
    [
        (
            torch.full((4, 3), NAN),
            torch.arange(4),
            ValueError,
            "embeddings hold NaN or infinity in 4 of 4 rows, first in row 0",
        ),
        (torch.tensor([[1.0], [float("-inf")]]), torch.arange(2), ValueError, "first in row 1"),
        (torch.ones(4), torch.arange(4), ValueError, r"\(images, dimensions\)"),
        (torch.ones(4, 3, 2), torch.arange(4), ValueError, r"got \(4, 3, 2\)"),
        (torch.ones(4, 3).long(), torch.arange(4), TypeError, "floating-point"),
        (torch.ones(4, 3), torch.arange(3), ValueError, "labels have length 3, the embeddings 4"),
        (torch.ones(4, 3), torch.arange(4).float(), TypeError, "labels must be integers"),
        (torch.ones(4, 3), torch.zeros(4, 2).long(), ValueError, "choose one, e.g. labels"),
        (torch.ones(0, 3), torch.zeros(0).long(), ValueError, "the batch is empty"),
    ],
)
def test_bad_batches(embeddings, labels, error, words):
    with pytest.raises(error, match=words):
        SmoothAPLoss()(embeddings, labels)


def test_a_miner_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="no pairs to mine"):
        SmoothAPLoss()(*batch(), (torch.arange(3),) * 4)


def test_an_empty_gallery_is_refused():
    with pytest.raises(ValueError, match="the gallery is empty: ref_emb has no rows"):
        SmoothAPLoss()(*batch(), ref_emb=torch.ones(0, 5), ref_labels=torch.zeros(0).long())
