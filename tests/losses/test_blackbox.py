"""RaMBO: exact ranks, the backward rule against its definition, the counting path against two rankings, losses,
memory, every bad input.
"""

import copy
import itertools
import math
import pickle
import subprocess
import sys

import pytest
import torch
from clean import run_clean
from hypothesis import given, settings
from hypothesis import strategies as st

import smoothap_nb.losses.blackbox as blackbox
import smoothap_nb.losses.counting as counting
from smoothap_nb.losses.long_lists import positive_ranks
from smoothap_nb import (
    BlackboxAPLoss,
    MapLoss,
    RecallLoss,
    ScoreMemory,
    average_precision,
    blackbox_ap,
    blackbox_ranks,
    ranks,
    recall_loss,
)

TIES = ("max", "min", "average")
FOUR = torch.tensor([[0.5, 0.9, 0.1, 0.7]], dtype=torch.float64)
FOUR_RELEVANCE = torch.tensor([[True, False, False, True]])
G = torch.tensor([[0.25, 0, 0, 0.25]], dtype=torch.float64)


def same(ours, theirs, atol=1e-12):
    torch.testing.assert_close(ours, torch.as_tensor(theirs, dtype=ours.dtype), rtol=0, atol=atol, equal_nan=True)


def rankings(queries=4, gallery=30, seed=0, dtype=torch.float64, levels=None, share=0.2):
    "Random scores and relevance; with `levels`, scores that tie."
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(queries, gallery, generator=random, dtype=torch.float64)
    if levels:
        scores = (scores * levels).round() / levels
    relevance = torch.rand(queries, gallery, generator=random) < share
    relevance[:, 0] = True
    return scores.to(dtype), relevance


def batch(images=14, classes=4, dim=5, seed=0, dtype=torch.float64):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(images, dim, generator=random, dtype=torch.float64).to(dtype), torch.randint(
        classes, (images,), generator=random
    )


def gradient_of(function, scores):
    scores = scores.detach().clone().requires_grad_()
    function(scores).backward()
    return scores.grad


# ------------------------------------------------------------------------------------------------------------ the
# backward rule

def rule(scores, g, lam, unit=1, ties="max"):
    "Algorithm 1, written down: rank, move, rank again."
    return ((ranks(scores + lam * g, ties).double() - ranks(scores, ties)) / (lam * unit)).to(scores.dtype)


@pytest.mark.parametrize("lam, expected", [(1.0, [0, 1, 0, -1]), (0.5, [0, 0, 0, 0]), (4.0, [-0.25, 0.5, 0, -0.25])])
def test_worked_example(lam, expected):
    scores = FOUR.clone().requires_grad_()
    found = blackbox_ranks(scores, lam, normalize=False)
    assert found.tolist() == [[3, 1, 4, 2]]
    found.backward(G)
    same(scores.grad[0], expected)


def test_the_ranks_are_the_best_of_all_permutations():
    for seed in range(20):
        scores = torch.randn(1, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        best = min(itertools.permutations(range(1, 6)), key=lambda p: (scores[0] * torch.tensor(p)).sum())
        assert blackbox_ranks(scores, 1.0, normalize=False)[0].tolist() == list(best)


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.floats(0.01, 30),
    st.sampled_from(TIES),
    st.sampled_from([None, 1, 4]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_gradient_is_the_rule_bit_for_bit(seed, lam, ties, levels, dtype):
    scores, _ = rankings(3, 12, seed, dtype, levels)
    g = torch.randn(3, 12, generator=torch.Generator().manual_seed(seed + 1)).to(dtype)
    if levels:
        g = (g * 2).round() / 2
    for normalize, unit in ((True, 12), (False, 1)):
        leaf = scores.clone().requires_grad_()
        found = blackbox_ranks(leaf, lam, normalize, ties)
        assert torch.equal(found, ranks(scores, ties).to(dtype) / unit)
        found.backward(g)
        assert torch.equal(leaf.grad, rule(scores, g, lam, unit, ties))


def test_gradient_is_the_slope_of_the_interpolation():
    def interpolated(s, g, lam):
        smallest = lambda s: (s * ranks(s, "average")).sum(-1)
        return (smallest(s + lam * g) - smallest(s)) / lam

    for seed in range(40):
        scores, _ = rankings(1, 6, seed)
        g, lam, step = (
            torch.randn(1, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64),
            0.1 * 1.2**seed,
            1e-7,
        )
        moves = step * torch.eye(6, dtype=torch.float64)
        slope = (interpolated(scores + moves, g, lam) - interpolated(scores - moves, g, lam)) / (2 * step)
        ours = gradient_of(lambda s: (g * blackbox_ranks(s, lam, normalize=False)).sum(), scores)
        same(ours[0], slope, atol=1e-5)


@given(st.integers(0, 10**6), st.floats(0.05, 20))
def test_code_lambda_is_paper_lambda_over_the_length(seed, lam):
    scores, _ = rankings(2, 9, seed)
    g = torch.randn(2, 9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    in_code = gradient_of(lambda s: (g * blackbox_ranks(s, lam)).sum(), scores)
    same(in_code, gradient_of(lambda s: (g / 9 * blackbox_ranks(s, 9 * lam, normalize=False)).sum(), scores))


@given(st.integers(0, 10**6))
def test_gradients_of_a_row_sum_to_zero(seed):
    scores, _ = rankings(3, 15, seed)
    g = torch.randn(3, 15, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    same(gradient_of(lambda s: (g * blackbox_ranks(s, 2.0)).sum(), scores).sum(1), [0.0] * 3)
    tied = (scores * 2).round() / 2  # under ties, half a rank each keeps the sum
    same(gradient_of(lambda s: (g.round() * blackbox_ranks(s, 2.0, ties="average")).sum(), tied).sum(1), [0.0] * 3)


def test_ties():
    scores = torch.tensor([[0.5, 0.9, 0.1, 0.5]])
    expected = {"max": [3, 1, 4, 3], "min": [2, 1, 4, 2], "average": [2.5, 1, 4, 2.5]}
    for rule_, found in expected.items():
        assert blackbox_ranks(scores, 1.0, normalize=False, ties=rule_)[0].tolist() == found


@pytest.mark.parametrize(
    "dtype, back",
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_dtypes(dtype, back):
    scores, relevance = rankings(dtype=dtype)
    scores.requires_grad_()
    for value in (
        blackbox_ranks(scores, 4.0).sum(),
        blackbox_ap(scores, relevance).sum(),
        recall_loss(scores, relevance),
    ):
        assert value.dtype == back and value.isfinite()
        gradient, = torch.autograd.grad(value, scores)
        assert gradient.dtype == dtype and gradient.isfinite().all()


def test_backward_twice_and_no_further():
    scores, relevance = rankings()
    scores.requires_grad_()
    for value in (blackbox_ranks(scores, 4.0)[:, 0].sum(), blackbox_ap(scores, relevance).sum()):
        first, = torch.autograd.grad(value, scores, retain_graph=True)
        again, = torch.autograd.grad(value, scores, retain_graph=True)
        assert torch.equal(first, again) and first.any()
        second, = torch.autograd.grad(value, scores, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable|does not require grad"):
            second.sum().backward()


def test_a_broken_loss_shows():
    scores, relevance = rankings()
    for function in (lambda s: blackbox_ranks(s, 1.0).sum(), lambda s: blackbox_ap(s, relevance).sum()):
        assert gradient_of(lambda s: function(s) * float("nan"), scores).isnan().any()


# ------------------------------------------------------------------------------------------------- counting against two
# rankings

@pytest.fixture(params=["compiled", "torch", "torch in parts"])
def path(request, monkeypatch):
    "Each way of counting, forced on short lists."
    monkeypatch.setattr(counting, "LONG", 0 if request.param == "compiled" else 1 << 60)
    if request.param == "torch in parts":
        monkeypatch.setattr(counting, "CHUNK", 64)
    return request.param


def by_two_rankings(scores, relevance, incoming, lam, ties):
    """Ranks of the positives and the gradient, ranking the whole list twice. `incoming`: (Q, G), 0 on negatives, on
    integer ranks.
    """
    reach = lam * scores.shape[1]
    step = (reach * incoming).to(scores.dtype)
    return ranks(scores, ties).double(), ((ranks(scores + step, ties).double() - ranks(scores, ties)) / reach).to(
        scores.dtype
    )


def by_counting(scores, relevance, incoming, lam, ties):
    leaf = scores.clone().requires_grad_()
    positives, among_all, among_positives = positive_ranks(leaf, relevance, lam, scores.shape[1], ties)
    g = torch.zeros_like(among_all)
    g.view(-1)[positives.slot] = incoming[relevance]
    among_all.backward(g)
    return positives, among_all.detach(), among_positives, leaf.grad


def check_counting(scores, relevance, lam=3.0, ties="max", seed=0):
    incoming = (
        torch.rand(scores.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).masked_fill(
            ~relevance, 0
        )
        * 0.1
    )
    positives, among_all, among_positives, gradient = by_counting(scores, relevance, incoming, lam, ties)
    expected, expected_gradient = by_two_rankings(scores, relevance, incoming, lam, ties)
    assert torch.equal(among_all[positives.present], expected[relevance])
    within = torch.cat([ranks(row[yes][None], ties)[0].double() for row, yes in zip(scores, relevance) if yes.any()])
    assert torch.equal(among_positives[positives.present], within)
    assert torch.equal(gradient, expected_gradient)


# every pair of tie rule, number of distinct scores and share of positives once, each with either precision
@pytest.mark.parametrize("row", range(9))
def test_counting_equals_two_rankings(path, row):
    first, second = divmod(row, 3)
    ties, levels, share = TIES[first], (None, 3, 40)[second], (0.02, 0.3, 0.9)[(first + second) % 3]
    dtype = (torch.float32, torch.float64)[row % 2]
    scores, relevance = rankings(5, 200, 1, dtype, levels, share)
    relevance[1], relevance[2], relevance[3] = False, True, torch.arange(200) == 7  # none, all, one
    check_counting(scores, relevance, ties=ties)


def adversarial():
    "Lists on which a grid of equal cells is of no use, or breaks if it is careless."
    near = torch.full((60,), 0.5, dtype=torch.float64)
    near[1:] += torch.arange(1, 60) * 1e-16
    return {
        "all equal": torch.zeros(60),
        "two values": torch.arange(60.0) % 2,
        "crowded": near,
        "outlier": torch.cat([near[:59], torch.tensor([1e9])]),
        "huge": 1.7e308 * torch.linspace(-1, 1, 60, dtype=torch.float64),
        "tiny": torch.arange(60, dtype=torch.float64) * 5e-324,
        "signed zeros": torch.tensor([0.0, -0.0] * 30),
        "powers": 2.0 ** torch.arange(-300, 300, 10, dtype=torch.float64),
        "descending": -torch.arange(60.0),
    }


@pytest.mark.parametrize("name", adversarial())
@pytest.mark.parametrize("ties", ["max", "min"])
def test_counting_on_unkind_lists(path, name, ties):
    scores = adversarial()[name].double()[None].expand(2, 60).contiguous()
    check_counting(scores, torch.stack([torch.arange(60) % 3 == 0, torch.arange(60) > 20]), lam=1e-3, ties=ties)
    check_counting(scores, torch.stack([torch.arange(60) % 3 == 0, torch.arange(60) > 20]), lam=50.0, ties=ties)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_counting_on_anything(data):
    gallery = data.draw(st.integers(1, 25))
    scores = torch.tensor(
        [
            data.draw(
                st.lists(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 0.50000001, 3.0]), min_size=gallery, max_size=gallery)
            )
            for _ in range(2)
        ],
        dtype=data.draw(st.sampled_from([torch.float32, torch.float64])),
    )
    relevance = torch.tensor([data.draw(st.lists(st.booleans(), min_size=gallery, max_size=gallery)) for _ in range(2)])
    if not relevance.any():
        relevance[0, 0] = True
    long, ties, lam = (
        data.draw(st.sampled_from([0, 1 << 60])),
        data.draw(st.sampled_from(TIES)),
        data.draw(st.floats(0.01, 100)),
    )
    before, counting.LONG = counting.LONG, long
    try:
        check_counting(scores, relevance, lam, ties, data.draw(st.integers(0, 9)))
    finally:
        counting.LONG = before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_broken_score_shows_where_nobody_looked(path, value):
    "On CUDA nobody reads the scores first: the loss must not come out finite, and no index may run away."
    scores, relevance = rankings(3, 40)
    scores[1, 0], scores[1, 5] = value, value  # a positive, and some other item
    leaf = scores.clone().requires_grad_()
    values = blackbox.unchecked_blackbox_ap(leaf, relevance, 4.0, 0.02)
    assert values.isnan().tolist() == [False, True, False]
    values.sum().backward()
    assert leaf.grad[[0, 2]].isfinite().all()


def test_scores_that_are_not_contiguous():
    scores, relevance = rankings(40, 30)
    same(blackbox_ap(scores.T, relevance.T), blackbox_ap(scores.T.contiguous(), relevance.T.contiguous()))
    loss = lambda s: (1 - blackbox_ap(s.T, relevance.T)).nansum()
    assert torch.equal(
        gradient_of(loss, scores),
        gradient_of(lambda s: (1 - blackbox_ap(s, relevance.T)).nansum(), scores.T.contiguous()).T,
    )


def test_a_million_scores_need_memory_in_proportion():
    "The list, its gradient and little more: under ten lists of float32, forward and backward."
    code = """
import resource, torch
from smoothap_nb import blackbox_ap
def step(n):
    s = torch.randn(1, n).requires_grad_()
    (1 - blackbox_ap(s, torch.rand(1, n) < .01)).sum().backward()
    assert s.grad.isfinite().all() and s.grad.any()
torch.set_num_threads(1); torch.manual_seed(0)
step(100_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
step(4_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < 10 * 4 * 4_000_000


def test_short_lists_do_not_import_numba():
    code = """
import sys, torch
from smoothap_nb import blackbox_ap, RecallLoss
s = torch.randn(2, 50, requires_grad=True)
blackbox_ap(s, torch.rand(2, 50) < .5).nansum().backward()
assert 'numba' not in sys.modules
"""
    done = run_clean(code)
    assert done.returncode == 0, done.stderr


def test_long_lists_work_without_numba(monkeypatch):
    scores, relevance = rankings(1, 60_000, share=0.001)
    monkeypatch.setitem(sys.modules, "numba", None)
    counting.compiled_walk.cache_clear()
    try:
        assert counting.compiled_walk() is None
        same(blackbox_ap(scores, relevance, margin=0.0), average_precision(scores, relevance))
    finally:
        counting.compiled_walk.cache_clear()


# --------------------------------------------------------------------------------------------------------------------
# AP and recall

@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from(TIES), st.sampled_from([None, 2]))
def test_without_a_margin_the_value_is_ap(seed, ties, levels):
    scores, relevance = rankings(4, 18, seed, levels=levels)
    relevance[2] = False
    same(blackbox_ap(scores, relevance, margin=0.0, ties=ties), average_precision(scores, relevance, ties))


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(0.05, 20), st.floats(0, 0.5))
def test_ap_gradient_from_the_ranking_operator(seed, lam, margin):
    "The same loss built on blackbox_ranks, with the in-class ranks as constants."
    scores, relevance = rankings(3, 16, seed)

    def plain(s):
        shifted = s + margin * torch.where(relevance, -0.5, 0.5)
        within = ranks(shifted.detach().masked_fill(~relevance, -1e9)).double()
        precision = (within / 16 / blackbox_ranks(shifted, lam)).masked_fill(~relevance, 0)
        return 1 - (precision.sum(1) / relevance.sum(1)).mean()

    same(gradient_of(lambda s: 1 - blackbox_ap(s, relevance, lam, margin).mean(), scores), gradient_of(plain, scores))


@given(st.integers(0, 10**6), st.floats(0.05, 20))
def test_positives_are_lifted_and_negatives_pushed_down(seed, lam):
    scores, relevance = rankings(3, 20, seed)
    for loss in (lambda s: 1 - blackbox_ap(s, relevance, lam).mean(), lambda s: recall_loss(s, relevance, lam)):
        gradient = gradient_of(loss, scores)
        assert (gradient[~relevance] >= 0).all() and (gradient.masked_fill(~relevance, 0).sum(1) <= 1e-12).all()


def test_order_of_the_gallery_and_a_common_shift_change_nothing():
    scores, relevance = rankings(4, 25, levels=8)
    order = torch.randperm(25, generator=torch.Generator().manual_seed(0))
    for loss in (lambda s, y: 1 - blackbox_ap(s, y).mean(), recall_loss):
        gradient = gradient_of(lambda s: loss(s, relevance), scores)
        same(gradient_of(lambda s: loss(s, relevance[:, order]), scores[:, order]), gradient[:, order])
        same(gradient_of(lambda s: loss(s, relevance), scores + 4), gradient)


def recall_by_definition(scores, relevance, weight, margin):
    "The weighted sum over K, written out, of one minus the refined recall."
    total = []
    for row, yes in zip((scores + margin * torch.where(relevance, -0.5, 0.5)).tolist(), relevance.tolist()):
        ahead = [sum(s >= row[i] for s, y in zip(row, yes) if not y) for i in range(len(row)) if yes[i]]
        if ahead:
            total.append(sum(weight(K) * sum(r >= K for r in ahead) / len(ahead) for K in range(1, len(row) + 1)))
    return sum(total) / len(total)


@pytest.mark.parametrize("name, weight", [("log", lambda k: math.log1p(1 / k)), ("identity", lambda k: 1.0),
                                          ("log_log", lambda k: math.log1p(math.log1p(1 / k) / (1 + math.log(k))))])
@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_recall_is_the_sum_over_all_k(name, weight, margin):
    for levels in (None, 3):
        scores, relevance = rankings(5, 20, levels=levels)
        relevance[3] = False
        same(
            recall_loss(scores, relevance, margin=margin, weight=name),
            recall_by_definition(scores, relevance, weight, margin),
            atol=1e-9,
        )


def test_recall_numbers():
    for weight, margin, expected in (
        ("log", 0.0, 0.693147),
        ("log_log", 0.0, 0.526589),
        ("log", 0.5, 0.895880),
        ("log_log", 0.5, 0.633933),
    ):
        same(recall_loss(FOUR, FOUR_RELEVANCE, margin=margin, weight=weight), expected, atol=1e-6)
    for weight, expected in (("log", 1.059351), ("log_log", 0.632138)):
        same(blackbox.WEIGHTS[weight](torch.tensor([0.0, 3, 5]).double()).mean(), expected, atol=1e-6)


def test_recall_reductions_and_scales():
    scores, relevance = rankings(4, 30)
    relevance[1] = False
    each, count = recall_loss(scores, relevance, reduction="none"), relevance.sum(1)
    assert each.isnan().tolist() == [False, True, False, False]
    same(recall_loss(scores, relevance), each.nanmean())
    same(recall_loss(scores, relevance, reduction="positives"), (each.nan_to_num() * count).sum() / count.sum())
    identity = dict(weight="identity", reduction="none")
    same(recall_loss(scores, relevance, scale="rows", **identity), recall_loss(scores, relevance, **identity) * 4 / 30)


def test_margin_lowers_ap_and_noise_scales_it():
    scores, relevance = rankings(40, 50)
    plain, strict = blackbox_ap(scores, relevance, margin=0.0), blackbox_ap(scores, relevance, margin=0.3)
    assert (strict <= plain).all() and (strict < plain).any()
    assert torch.equal(blackbox_ap(scores, relevance, margin=0.3, noise=torch.ones_like(scores)), strict)
    assert torch.equal(blackbox_ap(scores, relevance, margin=0.3, noise=-torch.ones_like(scores)), strict)
    assert torch.equal(blackbox_ap(scores, relevance, margin=0.3, noise=torch.zeros_like(scores)), plain)
    assert torch.equal(blackbox_ap(scores, relevance, margin=0.3, noise=False), strict)
    drawn = [
        blackbox_ap(scores, relevance, margin=0.3, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    ]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    torch.manual_seed(5)
    first = blackbox_ap(scores, relevance, margin=0.3, noise=True)
    torch.manual_seed(5)
    assert torch.equal(first, blackbox_ap(scores, relevance, margin=0.3, noise=True))


def test_eps_is_added_to_the_number_of_positives():
    scores, relevance = rankings(3, 20)
    relevance[1] = False
    exact, count = blackbox_ap(scores, relevance), relevance.sum(1)
    same(blackbox_ap(scores, relevance, eps=1e-5), exact.nan_to_num() * count / (count + 1e-5))


def test_no_positives():
    scores, relevance = rankings(3, 20)
    none = torch.zeros_like(relevance)
    assert blackbox_ap(scores, none).isnan().all() and recall_loss(scores, none, reduction="none").isnan().all()
    for reduction in ("query", "positives"):
        leaf = scores.clone().requires_grad_()
        loss = recall_loss(leaf, none, reduction=reduction)
        loss.backward()
        assert loss.item() == 0 and torch.equal(leaf.grad, torch.zeros_like(scores))
    relevance[1] = False
    gradient = gradient_of(lambda s: recall_loss(s, relevance), scores)
    assert gradient.isfinite().all() and not gradient[1].any() and gradient[0].any()


def test_edges():
    scores, relevance = rankings(3, 20)
    assert blackbox_ap(scores[:0], relevance[:0]).shape == (0,) and recall_loss(scores[:0], relevance[:0]) == 0
    assert blackbox_ranks(scores[:0], 1.0).shape == (0, 20)
    one = torch.tensor([[0.3]], requires_grad=True)
    value = blackbox_ap(one, torch.tensor([[True]]))
    value.sum().backward()
    assert value.tolist() == [1.0] and one.grad.tolist() == [[0.0]]
    assert recall_loss(scores, torch.ones_like(relevance)) == 0


# --------------------------------------------------------------------------------------------------------------------
# modules

MODULES = [
    RecallLoss(),
    BlackboxAPLoss(),
    RecallLoss(0.5, 0.1, "log", reduction="positives"),
    BlackboxAPLoss(ties="average"),
]
names = [f"{type(m).__name__}-{i}" for i, m in enumerate(MODULES)]


def of_scores(module, scores, relevance):
    "What the module computes, from the pure functions."
    if isinstance(module, BlackboxAPLoss):
        value = 1 - blackbox_ap(scores, relevance, module.lam, module.margin, ties=module.ties)
        return value[relevance.any(1)].mean()
    return recall_loss(
        scores, relevance, module.lam, module.margin, module.weight, module.reduction, module.scale, module.ties
    )


@pytest.mark.parametrize("module", MODULES, ids=names)
@pytest.mark.parametrize("include_query", [False, True])
def test_module_equals_the_function_on_cut_scores(module, include_query):
    module = copy.deepcopy(module)
    module.include_query = include_query
    embeddings, labels = batch()
    itself, target = torch.eye(len(labels), dtype=torch.bool), labels[:, None] == labels

    def plain(e):
        rows = torch.nn.functional.normalize(e, dim=1)
        scores = rows @ rows.T
        if include_query:
            return of_scores(module, scores, target)
        return of_scores(module, scores[~itself].view(len(e), -1), target[~itself].view(len(e), -1))

    same(module(embeddings, labels), plain(embeddings))
    same(gradient_of(lambda e: module(e, labels), embeddings), gradient_of(plain, embeddings), atol=1e-10)


@pytest.mark.parametrize("module", MODULES, ids=names)
def test_references_with_query_index_equal_self_retrieval(module):
    embeddings, labels = batch()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    expected = gradient_of(lambda e: module(e, labels), embeddings)
    ours = gradient_of(
        lambda e: module(e, labels, ref_emb=e[order], ref_labels=labels[order], query_index=order.argsort()), embeddings
    )
    same(ours, expected, atol=1e-10)


@pytest.mark.parametrize("module", [*MODULES, RecallLoss(memory=2)], ids=[*names, "memory"])
def test_a_factor_in_front_of_the_loss_multiplies_its_gradient(module):
    embeddings, labels = batch()
    gradients = [
        gradient_of(lambda e: factor * copy.deepcopy(module)(e, labels), embeddings)
        for factor in (1.0, 65536.0, -0.1, 0.0)
    ]
    assert gradients[0].any()
    for gradient, factor in zip(gradients[1:], (65536.0, -0.1, 0.0)):
        same(gradient, factor * gradients[0], atol=1e-9 * max(1, factor))
    scores, relevance = rankings()  # the pure functions keep the published rule: the factor acts on lambda
    pure = lambda factor, lam: gradient_of(lambda s: factor * (1 - blackbox_ap(s, relevance, lam).mean()), scores)
    same(pure(8.0, 0.5), 8 * pure(1.0, 4.0))


@pytest.mark.parametrize("module", MODULES, ids=names)
def test_batches_of_every_kind(module):
    embeddings, _ = batch()
    for labels in (torch.arange(14), torch.zeros(14, dtype=torch.long), torch.tensor([5] * 13 + [-9])):
        leaf = embeddings.clone().requires_grad_()
        loss = module(leaf, labels)
        loss.backward()
        assert loss.isfinite() and leaf.grad.isfinite().all()
    assert module(embeddings, torch.arange(14)) == 0
    assert module(embeddings[:1], torch.zeros(1, dtype=torch.long)) == 0


@pytest.mark.parametrize("module", [*MODULES, MapLoss()], ids=[*names, "MapLoss"])
def test_modules_can_be_copied_pickled_and_printed(module):
    assert f"lam={module.lam}" in repr(pickle.loads(pickle.dumps(copy.deepcopy(module))))


def test_autocast_changes_nothing():
    embeddings, labels = batch(dtype=torch.float32)
    for module in MODULES[:2]:
        plain = module(embeddings, labels)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(module(embeddings, labels), plain)


def test_training_with_each_loss_improves_ap():
    for module in MODULES[:3]:
        embeddings, labels = batch(40, 8, 16, seed=3)
        before = module(embeddings, labels).item()
        embeddings = torch.nn.functional.normalize(embeddings, dim=1).requires_grad_()
        optimiser = torch.optim.Adam([embeddings], 0.01)
        for _ in range(60):
            optimiser.zero_grad()
            module(embeddings, labels).backward()
            optimiser.step()
        assert module(embeddings, labels).item() < 0.3 * before, type(module).__name__


# --------------------------------------------------------------------------------------------------------------------
# memory

def test_memory_keeps_the_last_batches_oldest_first():
    memory = ScoreMemory(2)
    batches = [rankings(3, 7, seed) for seed in range(4)]
    for number, (scores, relevance) in enumerate(batches):
        leaf = scores.clone().requires_grad_()
        longer, longer_relevance = memory(leaf, relevance)
        expected = [batches[number], *batches[max(0, number - 2):number]]
        assert torch.equal(longer, torch.cat([s for s, _ in expected])) and torch.equal(
            longer_relevance, torch.cat([r for _, r in expected])
        )
        longer.sum().backward()
        assert torch.equal(leaf.grad, torch.ones_like(scores))
    memory.reset()
    assert len(memory(*batches[0])[0]) == 3


def test_memory_can_extend_every_list():
    memory = ScoreMemory(1, dim=1)
    (first, y), (second, z) = rankings(3, 7, 0), rankings(3, 9, 1)
    memory(first, y)
    longer, relevance = memory(second, z)
    assert torch.equal(longer, torch.cat([second, first], 1)) and torch.equal(relevance, torch.cat([z, y], 1))


def test_memory_is_not_touched_by_what_happens_later():
    memory, (scores, relevance) = ScoreMemory(1), rankings(2, 5)
    kept = scores.clone()
    memory(scores, relevance)
    scores.zero_()
    assert torch.equal(memory(scores, relevance)[0][2:], kept)


@pytest.mark.parametrize("dim", [0, 1])
def test_memory_survives_saving_and_loading(dim):
    first, second = ScoreMemory(2, dim), ScoreMemory(2, dim)
    for seed in range(3):
        first(*rankings(3 + seed * (1 - dim), 7 + seed * dim, seed))
    second.load_state_dict(first.state_dict())
    for ours, theirs in zip(second(*rankings(3, 7)), first(*rankings(3, 7))):
        assert torch.equal(ours, theirs) and ours.shape[dim] > 7
    loss, other = RecallLoss(memory=2), RecallLoss(memory=2)
    loss(*batch(seed=0)), other.load_state_dict(loss.state_dict())
    assert torch.equal(loss(*batch(seed=1)), other(*batch(seed=1)))
    ScoreMemory(2).load_state_dict(ScoreMemory(2).state_dict())


def test_memory_rests_in_evaluation_and_at_length_zero():
    scores, relevance = rankings(2, 5)
    memory = ScoreMemory(3)
    memory(scores, relevance)
    assert memory.eval()(scores, relevance)[0] is scores
    assert len(memory.train()(scores, relevance)[0]) == 4
    assert ScoreMemory(0)(scores, relevance)[0] is scores


@pytest.mark.parametrize(
    "make",
    [
        lambda n: RecallLoss(memory=n),
        lambda n: RecallLoss(memory=n, reduction="positives"),
        lambda n: BlackboxAPLoss(memory=n),
    ],
    ids=["recall", "recall over positives", "AP"],
)
def test_module_memory_averages_over_all_rows(make):
    module, plain = make(2), make(0)
    rows = []
    for seed in range(4):
        embeddings, labels = batch(seed=seed)
        labels[0] = 99  # a query without positives
        unit = torch.nn.functional.normalize(embeddings, dim=1)
        itself = torch.eye(14, dtype=torch.bool)
        rows = [((unit @ unit.T)[~itself].view(14, 13), (labels[:, None] == labels)[~itself].view(14, 13)), *rows][:3]
        leaf = embeddings.clone().requires_grad_()
        loss = module(leaf, labels)
        same(loss, of_scores(plain, torch.cat([s for s, _ in rows]), torch.cat([y for _, y in rows])))
        loss.backward()
        assert leaf.grad.isfinite().all() and leaf.grad.any()


# --------------------------------------------------------------------------------------------------------------------
# MapLoss

S = torch.tensor([[0.9, 0.2], [0.6, 0.8], [0.3, 0.5]], dtype=torch.float64)
Y = torch.tensor([[1, 0], [0, 1], [1, 0]]).bool()


@pytest.mark.parametrize("interclass, expected", [(0.0, 1 / 12), (1.0, 2 / 15), (1 / 3, 0.1)])
def test_map_loss_numbers(interclass, expected):
    same(MapLoss(margin=0.0, interclass=interclass)(S, Y), expected)


def test_map_loss_leaves_absent_classes_out():
    scores, targets = rankings(10, 4)
    targets[:, 2] = False
    kept = [0, 1, 3]
    for eps in (0.0, 1e-5):
        same(
            MapLoss(interclass=0.0, eps=eps)(scores, targets),
            MapLoss(interclass=0.0, eps=eps)(scores[:, kept], targets[:, kept]),
        )


@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_map_loss_without_any_positive(eps):
    leaf = S.clone().requires_grad_()
    loss = MapLoss(eps=eps)(leaf, torch.zeros_like(Y))
    loss.backward()
    assert loss == 0 and torch.equal(leaf.grad, torch.zeros_like(S))


def test_map_loss_memory_extends_the_lists_of_the_first_term():
    module = MapLoss(memory=2)
    batches = [rankings(6, 3, seed, share=0.4) for seed in range(4)]
    for number, (scores, targets) in enumerate(batches):
        past = batches[max(0, number - 2):number]
        longer, longer_targets = (torch.cat(parts) for parts in zip((scores, targets), *past))
        expected = 2 / 3 * MapLoss(interclass=0.0)(longer, longer_targets) + 1 / 3 * MapLoss(interclass=1.0)(
            scores, targets
        )
        same(module(scores, targets), expected)


def test_map_loss_gradient_scales_with_the_loss():
    scores, targets = rankings(12, 5, share=0.4)
    plain = gradient_of(lambda s: MapLoss()(s, targets), scores)
    assert plain.any()
    same(gradient_of(lambda s: 1000 * MapLoss()(s, targets), scores) / 1000, plain)


def test_map_loss_noise():
    scores, targets = rankings(12, 5, share=0.4)
    module = MapLoss(margin=0.5, noise=True)
    torch.manual_seed(0)
    first, second = module(scores, targets), module(scores, targets)
    assert first != second
    ones = torch.ones_like(scores)
    same(module(scores, targets, ones, ones), MapLoss(margin=0.5)(scores, targets))


# ----------------------------------------------------------------------------------------------------------------------
# bad input

NAN_SCORES = torch.tensor([[0.1, float("nan")], [0.2, 0.3]])
TWO = torch.ones(2, 2, dtype=torch.bool)
BAD = [
    (lambda: blackbox_ranks(FOUR, 0), "lam must be a finite number above 0"),
    (lambda: blackbox_ranks(FOUR, -1.0), "lam must be"),
    (lambda: blackbox_ranks(FOUR, "4"), "lam must be"),
    (lambda: blackbox_ranks(FOUR, 1.0, ties="first"), "ties must be one of"),
    (lambda: blackbox_ranks(FOUR[0], 1.0), "shape \\(queries, gallery\\)"),
    (lambda: blackbox_ranks(FOUR[:, :0], 1.0), "the gallery is empty"),
    (lambda: blackbox_ranks(FOUR.int(), 1.0), "call scores.float"),
    (lambda: blackbox_ranks([[0.1]], 1.0), "must be a torch.Tensor"),
    (lambda: blackbox_ranks(NAN_SCORES, 1.0), "NaN or infinity in 1 of 2 rows, first in row 0"),
    (lambda: blackbox_ap(NAN_SCORES, TWO), "NaN or infinity"),
    (lambda: blackbox_ap(FOUR, FOUR_RELEVANCE, lam=0.0), "lam must be"),
    (lambda: blackbox_ap(FOUR, FOUR_RELEVANCE, margin=-0.1), "margin must be a finite number, 0 or above"),
    (lambda: blackbox_ap(FOUR, FOUR_RELEVANCE, margin=float("inf")), "margin must be"),
    (lambda: blackbox_ap(FOUR, FOUR_RELEVANCE, eps=-1e-5), "eps must lie in 0 ... 1"),
    (
        lambda: blackbox_ap(FOUR, FOUR_RELEVANCE, noise=torch.ones(4)),
        "noise must be a tensor of the scores' shape \\(1, 4\\)",
    ),
    (lambda: blackbox_ap(FOUR, FOUR_RELEVANCE, noise=2.0), "noise must be"),
    (lambda: blackbox_ap(FOUR, FOUR_RELEVANCE, ties="last"), "ties must be"),
    (lambda: blackbox_ap(FOUR, FOUR_RELEVANCE.int()), "relevance must be a bool tensor"),
    (lambda: blackbox_ap(FOUR, TWO), "relevance has shape"),
    (lambda: recall_loss(FOUR, FOUR_RELEVANCE, weight="loglog"), "weight must be one of 'log_log', 'log', 'identity'"),
    (lambda: recall_loss(FOUR, FOUR_RELEVANCE, reduction="mean"), "reduction must be one of"),
    (lambda: recall_loss(FOUR, FOUR_RELEVANCE, scale="columns"), "scale must be one of"),
    (lambda: recall_loss(FOUR, FOUR_RELEVANCE, lam=float("nan")), "lam must be"),
    (lambda: recall_loss(FOUR, FOUR_RELEVANCE, margin=True), "margin must be"),
    (lambda: RecallLoss(lam=0), "lam must be"),
    (lambda: RecallLoss(weight="sqrt"), "weight must be"),
    (lambda: RecallLoss(reduction="none"), "reduction must be one of 'query', 'positives'"),
    (lambda: RecallLoss(scale="all"), "scale must be"),
    (lambda: RecallLoss(memory=-1), "length must be a whole number, 0 or more"),
    (lambda: BlackboxAPLoss(margin=-1), "margin must be"),
    (lambda: BlackboxAPLoss(ties=None), "ties must be"),
    (lambda: BlackboxAPLoss()(*batch(), indices_tuple=(1, 2)), "there are no pairs to mine"),
    (lambda: MapLoss(interclass=1.5), "interclass must lie in 0 ... 1"),
    (lambda: MapLoss(eps=2), "eps must lie"),
    (lambda: MapLoss()(S, Y.float()), "relevance must be a bool tensor"),
    (lambda: MapLoss()(S, Y, noise=torch.ones(2, 2)), "noise must be"),
    (lambda: ScoreMemory(1.5), "length must be a whole number"),
    (lambda: ScoreMemory(True), "length must be"),
    (lambda: ScoreMemory(1, dim=2), "dim must be one of 0, 1"),
]


@pytest.mark.parametrize("call, message", BAD, ids=[message[:30] + f"-{i}" for i, (_, message) in enumerate(BAD)])
def test_bad_input_is_named(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize("dim, word", [(0, "rows of length 7"), (1, "columns of length 3")])
def test_memory_refuses_scores_that_do_not_line_up(dim, word):
    memory = ScoreMemory(1, dim)
    memory(*rankings(3, 7))
    with pytest.raises(ValueError, match=f"{word}.*drop_last=True.*reset"):
        memory(*rankings(4, 8))


# --------------------------------------------------------------------------------------------------------------------
# CUDA

@pytest.mark.cuda
@pytest.mark.parametrize("ties", TIES)
def test_cuda_equals_cpu(ties):
    scores, relevance = rankings(6, 3000, levels=100, dtype=torch.float32)
    relevance[2] = False
    g = torch.randn(6, 3000)
    for function in (
        lambda s, y: (g.to(s.device) * blackbox_ranks(s, 2.0, ties=ties)).sum(),
        lambda s, y: recall_loss(s, y, ties=ties),
        lambda s, y: 1 - blackbox_ap(s, y, ties=ties).nanmean(),
    ):
        on_cpu = gradient_of(lambda s: function(s, relevance), scores)
        on_gpu = gradient_of(lambda s: function(s, relevance.cuda()), scores.cuda())
        torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-5, atol=1e-7)
    assert math.isclose(
        blackbox_ap(scores.cuda(), relevance.cuda()).nanmean().item(),
        blackbox_ap(scores, relevance).nanmean().item(),
        rel_tol=1e-6,
    )


@pytest.mark.cuda
def test_modules_on_cuda():
    embeddings, labels = batch(64, 8, 16, dtype=torch.float32)
    for module in MODULES:
        same(module(embeddings.cuda(), labels.cuda()).cpu(), module(embeddings, labels), atol=1e-5)


@pytest.mark.cuda
def test_a_hundred_million_scores_fit_on_a_gpu():
    scores = torch.randn(1, 100_000_000, device="cuda").requires_grad_()
    relevance = torch.rand(1, 100_000_000, device="cuda") < 0.01
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    (1 - blackbox_ap(scores, relevance)).sum().backward()
    assert scores.grad.isfinite().all() and scores.grad.any()
    assert torch.cuda.max_memory_allocated() - before < 6e9
