"""The closed form against the definition: values, gradients, ties, absent items, chunks, dtypes, autograd's odd
corners."""

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from smoothap_nb import SmoothAPLoss, smooth_ap, smooth_ap_with_gradient
from smoothap_nb.losses.gradient import _blocks, closed_form, unchecked_smooth_ap

NAN, INF = float("nan"), float("inf")
TOY_A = torch.tensor([[0.9, 0.7, 0.6, 0.2, 0.8, 0.5, 0.4, 0.3]], dtype=torch.float64)
TOY_A_RELEVANCE = torch.tensor([[True] * 4 + [False] * 4])


def definition(scores, relevance, tau):
    "Smooth-AP of each query with everything compared with everything, in plain torch."
    off = ~torch.eye(scores.shape[1], dtype=torch.bool, device=scores.device)
    ahead = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau) * off  # (Q, i, j)
    precision = (1 + (ahead * relevance[:, None, :]).sum(2)) / (1 + ahead.sum(2))
    return (precision * relevance).sum(1) / relevance.sum(1)


def with_gradient(function, scores, weights):
    "Values, and the gradient of their weighted sum over the queries that have one."
    scores = scores.detach().clone().requires_grad_()
    values = function(scores)
    torch.where(values.isnan(), 0, values * weights.to(values)).sum().backward()
    return values.detach(), scores.grad


def random_case(seed, queries=5, gallery=13, share=0.4, grid=40, dtype=torch.float64, device="cpu"):
    "Scores on a grid (ties), relevance of very different density per row, weights."
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-20, 20, (queries, gallery), generator=generator).to(dtype) / grid
    relevance = torch.rand(queries, gallery, generator=generator) < 2 * share * torch.rand(
        queries, 1, generator=generator
    )
    return scores.to(device), relevance.to(device), torch.randn(queries, generator=generator).to(device)


def close(ours, theirs, atol=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol, equal_nan=True)


# ---------------------------------------------------------------- against the definition


@given(
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.integers(1, 14),
    st.floats(0, 1),
    st.sampled_from([0.5, 0.1, 0.01, 0.001]),
    st.sampled_from([1, 30, 1 << 19]),
)
def test_value_and_gradient_follow_the_definition(seed, queries, gallery, share, tau, chunk):
    scores, relevance, weights = random_case(seed, queries, gallery, share)
    value, gradient = with_gradient(lambda s: unchecked_smooth_ap(s, relevance, tau, chunk), scores, weights)
    expected, expected_gradient = with_gradient(lambda s: definition(s, relevance, tau), scores, weights)
    close(value, expected)
    close(
        gradient, expected_gradient.nan_to_num(0), atol=1e-10
    )  # 0/0 of the definition: a row without positives has gradient 0 here


@pytest.mark.parametrize("tau, expected", [(0.1, 0.674846), (0.05, 0.705830), (0.01, 0.729157), (0.001, 0.729167)])
def test_toy_a(tau, expected):
    close(
        smooth_ap_with_gradient(TOY_A, TOY_A_RELEVANCE, tau)[0],
        torch.tensor([expected], dtype=torch.float64),
        atol=5e-7,
    )


def test_the_gradient_of_toy_a():
    expected = torch.tensor([[0.4141, 0.1298, 0.1444, 0.0405, -0.5504, -0.1171, -0.0247, -0.0366]], dtype=torch.float64)
    close(smooth_ap_with_gradient(TOY_A, TOY_A_RELEVANCE, 0.05)[1], expected, atol=5e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tau", [0.5, 0.05])
def test_gradcheck(seed, tau):
    scores, relevance, _ = random_case(seed, gallery=9)
    scores = scores.requires_grad_()
    has = relevance.any(1)
    assert torch.autograd.gradcheck(lambda s: unchecked_smooth_ap(s, relevance, tau)[has], scores)
    assert torch.autograd.gradcheck(lambda s: smooth_ap(s, relevance, tau)[has], scores)


@given(st.integers(0, 10**6), st.sampled_from([0.3, 0.02]), st.randoms(use_true_random=False))
def test_the_order_of_the_gallery_does_not_matter(seed, tau, random):
    scores, relevance, _ = random_case(seed)
    order = list(range(scores.shape[1]))
    random.shuffle(order)
    value, push = smooth_ap_with_gradient(scores, relevance, tau)
    moved, moved_push = smooth_ap_with_gradient(scores[:, order], relevance[:, order], tau)
    close(moved, value)
    close(moved_push, push[:, order])


@given(st.integers(0, 10**6), st.sampled_from([0.3, 0.02]))
def test_pushes_sum_to_zero(seed, tau):
    scores, relevance, _ = random_case(seed)
    _, push = smooth_ap_with_gradient(scores, relevance, tau)
    close(push.sum(1), torch.zeros(len(scores), dtype=torch.float64), atol=1e-11)
    assert (push.masked_select(~relevance) <= 0).all()


# ---------------------------------------------------------------- chunks


@pytest.mark.parametrize("dtype, atol", [(torch.float64, 1e-13), (torch.float32, 2e-6)])
def test_the_size_of_chunks_changes_nothing_but_rounding(dtype, atol):
    scores, relevance, _ = random_case(1, queries=9, gallery=37, dtype=dtype)
    value, push = closed_form(scores, relevance, 0.1, None, True)
    for chunk in (1, 37, 74, 100, 1000):
        other, other_push = closed_form(scores, relevance, 0.1, chunk, True)
        close(other, value, atol)
        close(other_push, push, 10 * atol)


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 12), st.floats(0, 1), st.integers(1, 200))
def test_blocks_hold_every_positive_once(seed, queries, gallery, share, chunk):
    _, relevance, _ = random_case(seed, queries, gallery, share)
    seen = torch.zeros_like(relevance, dtype=torch.int64)
    for rows, columns, present in _blocks(relevance, chunk):
        rows = torch.arange(queries)[rows]
        assert len(rows) == 1 or columns.numel() * gallery <= chunk
        seen[rows[:, None].expand_as(columns)[present], columns[present]] += 1
    assert torch.equal(seen, relevance.long())


def test_a_tall_relevance_is_read_in_slabs(monkeypatch):
    scores, relevance, _ = random_case(3, queries=50, gallery=11)
    whole = closed_form(scores, relevance, 0.1, None, True)
    monkeypatch.setattr("smoothap_nb.losses.gradient._SLAB", 1)
    for chunk in (1, 40, 100):
        for one, other in zip(closed_form(scores, relevance, 0.1, chunk, True), whole):
            close(one, other)


# ---------------------------------------------------------------- absent items


@given(st.integers(0, 10**6), st.sampled_from([0.2, 0.01]), st.sampled_from([1, 1 << 19]))
def test_an_item_at_minus_infinity_is_not_there(seed, tau, chunk):
    scores, relevance, weights = random_case(seed, queries=4, gallery=9)
    scores[:, 4], relevance[:, 4] = -INF, False
    rest = [0, 1, 2, 3, 5, 6, 7, 8]
    value, gradient = with_gradient(lambda s: unchecked_smooth_ap(s, relevance, tau, chunk), scores, weights)
    expected, expected_gradient = with_gradient(
        lambda s: unchecked_smooth_ap(s, relevance[:, rest], tau, chunk), scores[:, rest], weights
    )
    close(value, expected)
    close(gradient[:, rest], expected_gradient)
    assert (gradient[:, 4] == 0).all() and gradient.isfinite().all()


def test_an_absent_positive_does_not_count():
    scores, relevance = TOY_A.clone(), TOY_A_RELEVANCE.clone()
    scores[0, 1] = -INF
    value, push = closed_form(scores, relevance, 0.05, None, True)
    relevance[0, 1] = False
    expected, expected_push = closed_form(scores, relevance, 0.05, None, True)
    close(value, expected)
    close(push, expected_push)
    assert push[0, 1] == 0
    nothing, no_push = closed_form(torch.full((1, 3), -INF), torch.ones(1, 3).bool(), 0.05, None, True)
    assert nothing.isnan().all() and (no_push == 0).all()


@pytest.mark.parametrize("column", [1, 5])  # a positive, a negative
def test_a_nan_that_was_let_in_shows(column):
    scores = TOY_A.repeat(2, 1)
    scores[0, column] = NAN
    assert closed_form(scores, TOY_A_RELEVANCE.expand(2, -1), 0.05, None, True)[0].isnan().tolist() == [True, False]


@pytest.mark.parametrize("tau", [1e-6, 1e-12, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_tau_stays_finite(tau, dtype):
    value, push = smooth_ap_with_gradient(TOY_A.to(dtype), TOY_A_RELEVANCE, tau)
    assert push.isfinite().all() and 0 < value < 1


# ---------------------------------------------------------------- dtypes


@pytest.mark.parametrize("tau", [0.1, 0.01])
def test_float32_agrees_with_the_definition_in_float64(tau):
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(40, 300, generator=generator) * 2 - 1
    relevance = torch.rand(40, 300, generator=generator) < 0.03
    value, push = smooth_ap_with_gradient(scores, relevance, tau)
    exact = definition(scores.double(), relevance, tau)
    _, exact_push = with_gradient(lambda s: definition(s, relevance, tau), scores.double(), torch.ones(40))
    assert value.dtype == push.dtype == torch.float32
    close(value.double(), exact, atol=1e-6)
    close(push.double(), exact_push.nan_to_num(0), atol=1e-5 * float(exact_push.nan_to_num(0).abs().max()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_scores_are_ranked_in_float32(dtype):
    value, push = smooth_ap_with_gradient(TOY_A.to(dtype), TOY_A_RELEVANCE, 0.05)
    expected, _ = smooth_ap_with_gradient(TOY_A.to(dtype).float(), TOY_A_RELEVANCE, 0.05)
    assert value.dtype == push.dtype == torch.float32 and torch.equal(value, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_leaves_the_loss_alone(dtype):
    torch.manual_seed(0)
    network, images, labels = nn.Linear(7, 5), torch.randn(12, 7), torch.arange(12) % 4
    with torch.autocast("cpu", dtype):
        out = network(images)
        inside = SmoothAPLoss(0.1)(out, labels)
        inside.backward()
    assert out.dtype == dtype and inside.dtype == torch.float32 and network.weight.grad.isfinite().all()
    torch.testing.assert_close(inside, SmoothAPLoss(0.1)(out.float(), labels))


# ---------------------------------------------------------------- autograd's corners


def test_no_gradient_is_computed_where_none_is_wanted():
    assert closed_form(TOY_A, TOY_A_RELEVANCE, 0.05, None, False)[1].numel() == 0
    scores = TOY_A.clone().requires_grad_()
    with torch.no_grad():
        assert not unchecked_smooth_ap(scores, TOY_A_RELEVANCE, 0.05).requires_grad
    with torch.inference_mode():
        close(
            unchecked_smooth_ap(TOY_A, TOY_A_RELEVANCE, 0.05).clone(), unchecked_smooth_ap(TOY_A, TOY_A_RELEVANCE, 0.05)
        )


def test_the_inputs_are_left_alone():
    scores, relevance, weights = random_case(2)
    before = scores.clone(), relevance.clone()
    with_gradient(lambda s: unchecked_smooth_ap(s, relevance, 0.1), scores, weights)
    leaf = scores.requires_grad_()
    smooth_ap_with_gradient(leaf, relevance)
    assert torch.equal(scores, before[0]) and torch.equal(relevance, before[1]) and leaf.grad is None


def test_backward_twice_through_a_kept_graph():
    scores = TOY_A.clone().requires_grad_()
    value = smooth_ap(scores, TOY_A_RELEVANCE, 0.05).sum()
    value.backward(retain_graph=True)
    once = scores.grad.clone()
    value.backward()
    close(scores.grad, 2 * once, atol=0)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        value.backward()


def test_a_second_derivative_is_an_error_not_a_wrong_number():
    scores = TOY_A.clone().requires_grad_()
    (first,) = torch.autograd.grad(smooth_ap(scores, TOY_A_RELEVANCE, 0.05).sum(), scores, create_graph=True)
    close(first.detach(), smooth_ap_with_gradient(TOY_A, TOY_A_RELEVANCE, 0.05)[1])
    with pytest.raises(RuntimeError, match="first derivative only"):
        first.square().sum().backward()
    embeddings = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (first,) = torch.autograd.grad(SmoothAPLoss(0.1)(embeddings, torch.arange(6) % 2), embeddings, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivative only"):
        first.square().sum().backward()


def test_functorch_takes_the_gradient():
    scores, relevance, _ = random_case(5)
    ours = torch.func.grad(lambda s: torch.nansum(smooth_ap(s, relevance, 0.1)))(scores)
    close(ours, torch.where(relevance.any(1, keepdim=True), smooth_ap_with_gradient(scores, relevance, 0.1)[1], 0))


def test_the_same_input_gives_the_same_bits():
    embeddings = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, 9, (64,), generator=torch.Generator().manual_seed(1))

    def gradient():
        leaf = embeddings.clone().requires_grad_()
        SmoothAPLoss()(leaf, labels).backward()
        return leaf.grad

    first = gradient()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(first, gradient()) and torch.equal(first, gradient())
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("whole", [False, True], ids=["model", "model and loss"])
def test_a_compiled_model_trains_with_it(backend, whole):
    torch.manual_seed(0)
    network, images, labels = (
        nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)),
        torch.randn(12, 6),
        torch.arange(12) % 4,
    )
    loss = SmoothAPLoss(0.1)

    def train(images):
        return loss(network(images), labels)

    expected = torch.autograd.grad(train(images), network.parameters())
    if whole:
        run = torch.compile(train, backend=backend)
    else:
        compiled = torch.compile(network, backend=backend)
        run = lambda images: loss(compiled(images), labels)  # noqa: E731
    for _ in range(2):
        for ours, theirs in zip(torch.autograd.grad(run(images), network.parameters()), expected):
            torch.testing.assert_close(ours, theirs)
    torch._dynamo.reset()


# ---------------------------------------------------------------- as a product


def batch(seed=0, count=24, dim=6, classes=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, dim, generator=generator, dtype=dtype), torch.randint(
        0, classes, (count,), generator=generator
    )


def loss_and_gradient(loss, embeddings, labels, **kwargs):
    leaf = embeddings.detach().clone().requires_grad_()
    value = loss(leaf, labels, **{name: leaf if other is embeddings else other for name, other in kwargs.items()})
    value.backward()
    return value.detach(), leaf.grad


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 12), st.booleans(), st.booleans())
def test_the_loss_is_the_definition_on_cosines(seed, classes, include_query, normalize):
    embeddings, labels = batch(seed, 14, classes=classes)
    value, gradient = loss_and_gradient(
        SmoothAPLoss(0.1, include_query=include_query, normalize=normalize), embeddings, labels
    )
    leaf = embeddings.clone().requires_grad_()
    rows = leaf / leaf.norm(dim=1, keepdim=True) if normalize else leaf
    per_query = []
    for q in range(14):
        others = [j for j in range(14) if include_query or j != q]
        relevant = labels[others] == labels[q]
        if relevant.any():
            per_query.append(1 - definition((rows[q] @ rows[others].T)[None], relevant[None], 0.1)[0])
    expected = torch.stack(per_query).mean() if per_query else (leaf * 0).sum()
    close(value, expected.detach())
    close(gradient, torch.autograd.grad(expected, leaf)[0], atol=1e-11)


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_references_with_query_index_equal_self_retrieval(seed, classes):
    embeddings, labels = batch(seed, classes=classes)
    ours = loss_and_gradient(
        SmoothAPLoss(0.1), embeddings, labels, ref_emb=embeddings, ref_labels=labels, query_index=torch.arange(24)
    )
    for one, other in zip(ours, loss_and_gradient(SmoothAPLoss(0.1), embeddings, labels)):
        close(one, other)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_nothing_cubic_is_held():
    from benchmarks.harness import peak_memory

    assert peak_memory("benchmarks.losses:prepare", kind="ours", size=2048) < 4 * 4 * 2048**2


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(scores=[[1.0]]), TypeError, "scores must be a torch.Tensor"),
        (dict(scores=torch.tensor([[0.1, NAN]])), ValueError, "NaN or infinity"),
        (dict(scores=torch.tensor([[0.1, -INF]])), ValueError, "NaN or infinity"),
        (dict(relevance=torch.ones(1, 2)), TypeError, "relevance must be a bool tensor"),
        (dict(relevance=torch.ones(1, 3).bool()), ValueError, "they must be equal"),
        (dict(tau=0), ValueError, "tau must be a finite number above 0"),
        (dict(tau=INF), ValueError, "tau must be a finite number above 0"),
    ],
)
def test_bad_input_is_named(change, error, words):
    arguments = dict(scores=torch.rand(1, 2), relevance=torch.ones(1, 2).bool(), tau=0.1) | change
    with pytest.raises(error, match=words):
        smooth_ap_with_gradient(**arguments)


# ---------------------------------------------------------------- CUDA


@pytest.mark.cuda
@pytest.mark.parametrize("dtype, atol", [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("chunk", [1, 100, None])
def test_cuda_gives_the_numbers_of_the_cpu(dtype, atol, chunk):
    for seed in range(5):
        scores, relevance, weights = random_case(seed, 20, 50, dtype=dtype)
        scores[:, 7], relevance[:, 7] = -INF, False
        value, gradient = with_gradient(lambda s: unchecked_smooth_ap(s, relevance, 0.05, chunk), scores, weights)
        ours, our_gradient = with_gradient(
            lambda s: unchecked_smooth_ap(s, relevance.cuda(), 0.05, chunk), scores.cuda(), weights.cuda()
        )
        close(ours.cpu(), value, atol)
        close(our_gradient.cpu(), gradient, 30 * atol)


@pytest.mark.cuda
@pytest.mark.parametrize("autocast", [None, torch.float16, torch.bfloat16])
def test_the_loss_on_cuda(autocast):
    embeddings, labels = batch(dtype=torch.float32)
    value, gradient = loss_and_gradient(SmoothAPLoss(0.1), embeddings, labels)
    with torch.autocast("cuda", autocast or torch.float16, enabled=autocast is not None):
        ours, our_gradient = loss_and_gradient(SmoothAPLoss(0.1), embeddings.cuda(), labels.cuda())
    assert ours.dtype == torch.float32
    close(ours.cpu(), value, 1e-5)
    close(our_gradient.cpu(), gradient, 1e-4)


@pytest.mark.cuda
def test_cuda_repeats_its_bits():
    embeddings, labels = batch(count=200, dtype=torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        runs = [loss_and_gradient(SmoothAPLoss(), embeddings.cuda(), labels.cuda()) for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0]))
