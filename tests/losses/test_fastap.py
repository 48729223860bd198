"""FastAP: against the definition, its true gradient, its limits, ties, every shape of batch, every bad input."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothap_nb import FastAPLoss, average_precision, fast_ap

FOUR = torch.tensor([[0.9, 0.8, 0.7, 0.6]], dtype=torch.float64)
FOUR_RELEVANCE = torch.tensor([[True, False, True, False]])


def same(ours, theirs, atol=1e-12):
    torch.testing.assert_close(ours, torch.as_tensor(theirs, dtype=ours.dtype), rtol=0, atol=atol, equal_nan=True)


def rankings(queries=5, gallery=20, seed=0, dtype=torch.float64):
    random = torch.Generator().manual_seed(seed)
    scores = 2 * torch.rand(queries, gallery, generator=random, dtype=torch.float64) - 1
    relevance = torch.rand(queries, gallery, generator=random) < 0.3
    relevance[:, 0] = True
    return scores.to(dtype), relevance


def batch(images=14, classes=4, dim=5, seed=0, dtype=torch.float64):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(images, dim, generator=random, dtype=torch.float64).to(dtype), torch.randint(
        classes, (images,), generator=random
    )


def gradient_of(function, values):
    values = values.detach().clone().requires_grad_()
    function(values).backward()
    return values.grad


def fast_ap_loop(scores, relevance, bins):
    "One query, node by node; NaN without positives."
    width, hits, seen, value = 4 / bins, 0.0, 0.0, 0.0
    for node in range(bins + 1):
        share = [max(0.0, 1 - abs((2 - 2 * s) / width - node)) for s in scores]
        here = sum(w for w, yes in zip(share, relevance) if yes)
        hits, seen = hits + here, seen + sum(share)
        value += here * hits / seen if seen > 0 else 0.0
    return value / sum(relevance) if any(relevance) else float("nan")


# ----------------------------------------------------------------------------------------------------------------------
# values

@pytest.mark.parametrize("bins, expected", [(10, 0.675), (20, 5 / 6)])
def test_numbers_by_hand(bins, expected):
    same(fast_ap(FOUR, FOUR_RELEVANCE, bins), [expected])


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 60), st.booleans())
def test_against_the_loop(seed, bins, tied):
    scores, relevance = rankings(4, 15, seed)
    scores = (scores * 4).round() / 4 if tied else scores
    relevance[1] = False
    same(
        fast_ap(scores, relevance, bins),
        [fast_ap_loop(s, y, bins) for s, y in zip(scores.tolist(), relevance.tolist())],
        atol=1e-10,
    )


@pytest.mark.parametrize(
    "dtype, back, atol",
    [
        (torch.float16, torch.float32, 2e-3),
        (torch.bfloat16, torch.float32, 2e-2),
        (torch.float32, torch.float32, 1e-6),
        (torch.float64, torch.float64, 1e-12),
    ],
)
def test_dtypes(dtype, back, atol):
    scores, relevance = rankings(dtype=dtype)
    exact, _ = rankings()
    values = fast_ap(scores.requires_grad_(), relevance)
    assert values.dtype == back
    same(values, fast_ap(exact, relevance).to(back), atol=atol)
    values.sum().backward()
    assert scores.grad.dtype == dtype and scores.grad.isfinite().all()


@given(st.integers(1, 9), st.integers(1, 40), st.floats(-1, 1), st.integers(1, 50))
def test_all_scores_equal(positives, gallery, score, bins):
    "A point has no order: the value is the share of positives, which is AP with pessimistic ties."
    positives = min(positives, gallery)
    scores, relevance = torch.full((1, gallery), score, dtype=torch.float64), (torch.arange(gallery) < positives)[None]
    same(fast_ap(scores, relevance, bins), [positives / gallery], atol=1e-9)
    same(average_precision(scores, relevance), [positives / gallery])


def test_scores_on_the_nodes_give_ap():
    "Where every score lies on a node nothing is shared, ties included."
    random = torch.Generator().manual_seed(0)
    scores = torch.randint(-8, 9, (30, 25), generator=random).double() / 8
    relevance = torch.rand(30, 25, generator=random) < 0.3
    same(fast_ap(scores, relevance, bins=16), average_precision(scores, relevance))


def test_fine_bins_leave_a_gap():
    "AP minus f (1 - f) (B - A) / ((B + 1) (B + 1 - f)) per positive, however fine the bins."
    scores, relevance = rankings(6, 12)
    bins = 40_009
    order = scores.argsort(dim=1, descending=True)
    place, yes = (1 - scores.gather(1, order)) * bins / 2, relevance.gather(1, order).double()
    f, before = place - place.floor(), torch.arange(12.0, dtype=torch.float64)
    hits = yes.cumsum(1) - yes
    terms = (hits + 1) / (before + 1) - f * (1 - f) * (before - hits) / ((before + 1) * (before + 1 - f))
    values = fast_ap(scores, relevance, bins)
    same(values, (terms * yes).sum(1) / yes.sum(1), atol=1e-9)
    assert (values <= average_precision(scores, relevance) + 1e-12).all()


@given(st.integers(0, 10**6), st.integers(1, 30))
def test_bounds_and_perfect_rankings(seed, bins):
    scores, relevance = rankings(4, 15, seed)
    values = fast_ap(scores, relevance, bins)
    assert ((values > 0) & (values <= 1 + 1e-12)).all()
    apart = torch.where(relevance, 1.0, -1.0).double()
    same(fast_ap(apart, relevance, bins=2 * bins), [1.0] * 4)


@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_the_order_of_the_gallery_does_not_matter(seed, random):
    scores, relevance = rankings(3, 15, seed)
    order = list(range(15))
    random.shuffle(order)
    same(fast_ap(scores[:, order], relevance[:, order]), fast_ap(scores, relevance))


def test_edges():
    scores, relevance = rankings(3)
    relevance[1] = False
    assert fast_ap(scores, relevance).isnan().tolist() == [False, True, False]
    assert fast_ap(scores[:0], relevance[:0]).shape == (0,)
    same(fast_ap(scores[:, :1], relevance[:, :1] | True), [1.0] * 3)
    assert fast_ap(scores, torch.ones_like(relevance)).tolist() == pytest.approx([1.0] * 3)
    extremes = torch.tensor([[1.0, -1.0, 1.0000001, -1.0000001]])
    same(fast_ap(extremes, torch.tensor([[True, False, True, False]])), [1.0], atol=1e-6)


# -------------------------------------------------------------------------------------------------------------------
# gradients

def away_from_nodes(scores, bins):
    place = (1 - scores) * bins / 2
    return ((place - place.round()).abs() > 1e-3).all()


@pytest.mark.parametrize("bins", [1, 5, 10, 20])
def test_gradcheck(bins):
    checked = 0
    for seed in range(12):
        scores, relevance = rankings(2, 6, seed)
        if away_from_nodes(scores, bins):
            assert torch.autograd.gradcheck(lambda s: fast_ap(s, relevance, bins), scores.requires_grad_())
            assert torch.autograd.gradgradcheck(lambda s: fast_ap(s, relevance, bins), scores)
            checked += 1
    assert checked >= 4


@pytest.mark.parametrize("include_query", [False, True])
def test_gradcheck_of_the_loss(include_query):
    embeddings, labels = batch(8, 3, 4)
    loss = FastAPLoss(7, include_query=include_query)
    if not include_query:  # a query's score to itself is 1: a kink in every row
        assert torch.autograd.gradcheck(lambda e: loss(e, labels), (embeddings.requires_grad_(),))
    assert gradient_of(lambda e: loss(e, labels), embeddings).isfinite().all()


def test_gradient_at_a_node_is_that_of_one_side():
    scores = torch.tensor([[0.6, 0.2, 0.7]], dtype=torch.float64)  # .6 and .2 lie on nodes of 10 bins
    relevance = torch.tensor([[True, False, False]])
    ours = gradient_of(lambda s: fast_ap(s, relevance).sum(), scores)
    step = 1e-7 * torch.eye(3, dtype=torch.float64)
    expand = lambda s: fast_ap(s, relevance.expand(len(s), 3))
    left, right = (expand(scores) - expand(scores - step)) / 1e-7, (expand(scores + step) - expand(scores)) / 1e-7
    for value, a, b in zip(ours[0], left, right):
        assert min(abs(value - a), abs(value - b)) < 1e-5


def test_a_factor_in_front_of_the_loss_multiplies_its_gradient():
    embeddings, labels = batch()
    plain = gradient_of(lambda e: FastAPLoss()(e, labels), embeddings)
    assert plain.any()
    same(gradient_of(lambda e: 0.1 * FastAPLoss()(e, labels), embeddings), 0.1 * plain)


# --------------------------------------------------------------------------------------------------------------------
# loss

def test_the_loss_on_cut_scores():
    embeddings, labels = batch()
    labels[3] = 99
    itself = torch.eye(14, dtype=torch.bool)
    rows = torch.nn.functional.normalize(embeddings, dim=1)
    cut = lambda matrix: matrix[~itself].view(14, 13)
    for bins in (5, 10, 20):
        values = fast_ap(cut(rows @ rows.T), cut(labels[:, None] == labels), bins)
        assert values.isnan().sum() == 1
        same(FastAPLoss(bins)(embeddings, labels), 1 - values.nanmean())


def test_equals_pytorch_metric_learning():
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    for seed in range(5):
        embeddings, labels = batch(20, 5, 6, seed)
        for bins in (5, 10):
            ours, theirs = FastAPLoss(bins), losses.FastAPLoss(num_bins=bins)
            same(ours(embeddings, labels), theirs(embeddings, labels))
            same(
                gradient_of(lambda e: ours(e, labels), embeddings),
                gradient_of(lambda e: theirs(e, labels), embeddings),
                atol=1e-9,
            )


def test_references_with_query_index_equal_self_retrieval():
    embeddings, labels = batch()
    order = torch.randperm(14, generator=torch.Generator().manual_seed(0))
    loss = FastAPLoss()
    ours = gradient_of(
        lambda e: loss(e, labels, ref_emb=e[order], ref_labels=labels[order], query_index=order.argsort()), embeddings
    )
    same(ours, gradient_of(lambda e: loss(e, labels), embeddings))


def test_batches_of_every_kind():
    embeddings, _ = batch()
    for labels in (torch.arange(14), torch.zeros(14, dtype=torch.long), torch.tensor([5] * 13 + [-9])):
        leaf = embeddings.clone().requires_grad_()
        loss = FastAPLoss()(leaf, labels)
        loss.backward()
        assert loss.isfinite() and leaf.grad.isfinite().all()
    assert FastAPLoss()(embeddings, torch.arange(14)) == 0
    duplicates = embeddings[:1].expand(6, -1).clone().requires_grad_()
    FastAPLoss()(duplicates, torch.tensor([0, 0, 1, 1, 2, 2])).backward()
    assert duplicates.grad.isfinite().all()


def test_autocast_copies_and_printing():
    embeddings, labels = batch(dtype=torch.float32)
    loss = pickle.loads(pickle.dumps(copy.deepcopy(FastAPLoss(20))))
    assert "bins=20" in repr(loss)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(loss(embeddings, labels), FastAPLoss(20)(embeddings, labels))


def test_training_improves_ap():
    embeddings, labels = batch(40, 8, 16, seed=3)
    embeddings = torch.nn.functional.normalize(embeddings, dim=1).requires_grad_()
    before, optimiser = FastAPLoss()(embeddings, labels).item(), torch.optim.Adam([embeddings], 0.01)
    for _ in range(80):
        optimiser.zero_grad()
        FastAPLoss()(embeddings, labels).backward()
        optimiser.step()
    assert FastAPLoss()(embeddings, labels).item() < 0.3 * before


def test_memory_does_not_grow_with_the_bins():
    code = """
import resource, torch
from smoothap_nb import fast_ap
def step(n, bins):
    s = (2 * torch.rand(1, n) - 1).requires_grad_()
    fast_ap(s, torch.rand(1, n) < .01, bins).sum().backward()
    assert s.grad.isfinite().all()
torch.set_num_threads(1)
step(100_000, 10)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
step(1_000_000, 1000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < 40 * 4 * 1_000_000  # a block of pulses would be 1000 lists


def test_a_long_list_adds_up():
    "A million items in a few bins: float32 counts would have lost their last digits."
    random = torch.Generator().manual_seed(0)
    scores = 2 * torch.rand(1, 1_000_000, generator=random) - 1
    relevance = torch.rand(1, 1_000_000, generator=random) < 0.01
    same(fast_ap(scores, relevance), fast_ap(scores.double(), relevance), atol=1e-7)


# ----------------------------------------------------------------------------------------------------------------------
# bad input

BAD = [
    (lambda: fast_ap(FOUR, FOUR_RELEVANCE, bins=0), "bins must be a whole number from 1 on"),
    (lambda: fast_ap(FOUR, FOUR_RELEVANCE, bins=2.5), "bins must be"),
    (lambda: fast_ap(3 * FOUR, FOUR_RELEVANCE), "cosine similarities.*from 1.8 to 2.7.*normalise the embeddings"),
    (lambda: fast_ap(-3 * FOUR, FOUR_RELEVANCE), "cosine similarities"),
    (lambda: fast_ap(FOUR, FOUR_RELEVANCE.float()), "relevance must be a bool tensor"),
    (lambda: fast_ap(FOUR, FOUR_RELEVANCE[:, :3]), "relevance has shape"),
    (lambda: fast_ap(FOUR[0], FOUR_RELEVANCE[0]), "shape \\(queries, gallery\\)"),
    (lambda: fast_ap(FOUR * float("nan"), FOUR_RELEVANCE), "NaN or infinity"),
    (lambda: FastAPLoss(bins=-1), "bins must be"),
    (
        lambda: FastAPLoss(normalize=False)(
            5 * torch.eye(3), torch.tensor([0, 0, 1]), ref_emb=torch.eye(3), ref_labels=torch.arange(3)
        ),
        "cosine similarities",
    ),
    (lambda: FastAPLoss()(*batch(), indices_tuple=(1,)), "there are no pairs to mine"),
]


@pytest.mark.parametrize("call, message", BAD, ids=[message[:30] + f"-{i}" for i, (_, message) in enumerate(BAD)])
def test_bad_input_is_named(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


# --------------------------------------------------------------------------------------------------------------------
# CUDA

@pytest.mark.cuda
def test_cuda_equals_cpu():
    scores, relevance = rankings(6, 500, dtype=torch.float32)
    same(fast_ap(scores.cuda(), relevance.cuda()).cpu(), fast_ap(scores, relevance), atol=1e-6)
    ours = gradient_of(lambda s: fast_ap(s, relevance.cuda()).sum(), scores.cuda()).cpu()
    same(ours, gradient_of(lambda s: fast_ap(s, relevance).sum(), scores), atol=1e-6)
    embeddings, labels = batch(64, 8, 16, dtype=torch.float32)
    same(FastAPLoss()(embeddings.cuda(), labels.cuda()).cpu(), FastAPLoss()(embeddings, labels), atol=1e-5)
