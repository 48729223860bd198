"""Recall at k, NDCG and PNP: values by loops, limits, gradients, public code, blocks, modules, every bad input."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import smoothap_nb.losses.beyond_ap as beyond_ap
from smoothap_nb import (
    EmbeddingMemory,
    PNPLoss,
    RecallAtKLoss,
    SmoothNDCGLoss,
    SupNDCGLoss,
    SupRecallLoss,
    levels_from_labels,
    ndcg,
    pnp,
    recall_at_k_surrogate,
    smooth_ndcg,
    sup_ndcg,
    sup_recall,
)

FUNCTIONS = {  # name -> (function of scores and target, whether the target is a level)
    "recall_at_k_surrogate": (lambda s, y: recall_at_k_surrogate(s, y, (1, 2, 4)), False),
    "sup_recall": (lambda s, y: sup_recall(s, y, (1, 2, 4)), False),
    "smooth_ndcg": (lambda s, y: smooth_ndcg(s, y, 0.05), True),
    "sup_ndcg": (lambda s, y: sup_ndcg(s, y, 0.05), True),
    **{f"pnp {v}": (lambda s, y, v=v: pnp(s, y, 0.05, v), False) for v in beyond_ap.VARIANTS},
}


def same(ours, theirs, atol=1e-12):
    torch.testing.assert_close(ours, torch.as_tensor(theirs, dtype=ours.dtype), rtol=0, atol=atol, equal_nan=True)


def rankings(queries=4, gallery=15, seed=0, graded=False, spread=0.3):
    random = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(queries, gallery, generator=random, dtype=torch.float64)
    target = torch.randint(-2, 3, (queries, gallery), generator=random).clamp(min=0)
    target[:, 0] = 2
    return scores, target if graded else target > 0


def batch(seed=0, dtype=torch.float64):
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (14,), generator=random)
    return (
        torch.randn(14, 5, generator=random, dtype=torch.float64).to(dtype),
        labels,
        torch.stack([labels // 2, labels], 1),
    )


# ---------------------------------------------------------------------------------------------------- against the
# definitions

def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def step(t, tau=0.01, rho=100.0, delta=0.05):
    if t <= 0:
        return sigmoid(t / tau)
    return 0.5 + sigmoid(t / tau) if t <= delta else rho * (t - delta) + sigmoid(delta / tau) + 0.5


def soft_rank(scores, i, tau):
    return 1 + sum(sigmoid((s - scores[i]) / tau) for j, s in enumerate(scores) if j != i)


def sup_rank(scores, levels, i):
    return 1 + sum(
        step(s - scores[i]) if levels[j] < levels[i] else float(s >= scores[i]) for j, s in enumerate(scores) if j != i
    )


def recall(ranks_, ks, temperatures, gallery, cap):
    total = 0
    for k, temperature in zip(ks, temperatures):
        k = min(k, gallery) if cap else k
        inside = sum(sigmoid((k - r) / temperature) for r in ranks_)
        total += (min(k, inside) if cap else inside) / min(k, len(ranks_))
    return total / len(ks)


@pytest.mark.parametrize("seed", range(5))
def test_recall_word_for_word(seed):
    scores, relevance = rankings(seed=seed)
    ks, soft = (1, 3, 8, 99), (0.3, 1.0, 2.0, 4.0)
    for name, cap in (("rs", True), ("sup", False)):
        expected = []
        for s, y in zip(scores.tolist(), relevance.tolist()):
            found = [soft_rank(s, i, 0.02) if name == "rs" else sup_rank(s, y, i) for i in range(15) if y[i]]
            expected.append(recall(found, ks, soft, 15, cap))
        ours = (
            recall_at_k_surrogate(scores, relevance, ks, 0.02, soft)
            if name == "rs"
            else sup_recall(scores, relevance, ks, temperature=soft)
        )
        same(ours, expected)


@pytest.mark.parametrize("seed", range(5))
def test_ndcg_word_for_word(seed):
    scores, levels = rankings(seed=seed, graded=True)
    for name, ours in (("smooth", smooth_ndcg(scores, levels, 0.02)), ("sup", sup_ndcg(scores, levels))):
        for q, (s, l) in enumerate(zip(scores.tolist(), levels.tolist())):
            found = [soft_rank(s, i, 0.02) if name == "smooth" else sup_rank(s, l, i) for i in range(15)]
            gain = sum((2 ** level - 1) / math.log2(1 + r) for level, r in zip(l, found))
            best = sum((2 ** level - 1) / math.log2(2 + place) for place, level in enumerate(sorted(l, reverse=True)))
            same(ours[q], gain / best)


def test_pnp_by_hand():
    "Two positives with one and with two negatives far ahead: R = 1 and 2 up to 1e-9."
    scores, relevance = (
        torch.tensor([[0.9, 0.7, 0.5, 0.3]], dtype=torch.float64),
        torch.tensor([[False, True, False, True]]),
    )
    mean = lambda cost: (cost(1) + cost(2)) / 2
    expected = {
        "O": mean(lambda r: r),
        "Iu": mean(lambda r: (1 + r) * math.log(1 + r)),
        "Ib": mean(lambda r: (2 * r - math.log(1 + 2 * r)) / 4),
        "Ds": mean(lambda r: math.log(1 + r)),
        "Dq": mean(lambda r: 1 - 1 / (1 + r)),
    }
    for variant, value in expected.items():
        same(pnp(scores, relevance, variant=variant), [value], atol=1e-7)
    same(pnp(scores, relevance, variant="Dq", alpha=2.0), [mean(lambda r: 1 - (1 + r) ** -2)], atol=1e-7)
    same(pnp(scores, relevance, variant="Ib", b=3.0), [mean(lambda r: (3 * r - math.log(1 + 3 * r)) / 9)], atol=1e-7)


# --------------------------------------------------------------------------------------------------------------- limits
# and laws

@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_limits(seed):
    # gaps of 1/12
    scores = (
        torch.stack([torch.randperm(12, generator=torch.Generator().manual_seed(seed + q)) for q in range(3)]).double()
        / 12
    )
    _, levels = rankings(3, 12, seed, graded=True)
    same(smooth_ndcg(scores, levels, 1e-3), ndcg(scores, levels), atol=1e-9)
    assert (sup_ndcg(scores, levels) <= ndcg(scores, levels) + 1e-9).all()
    for s, y, ours in zip(scores, levels > 0, recall_at_k_surrogate(scores, levels > 0, (3,), 1e-3, 1e-3)):
        places = (s.argsort(descending=True).argsort()[y] + 1).tolist()
        inside = sum(1.0 if place < 3 else 0.5 if place == 3 else 0.0 for place in places)  # rank k itself counts half
        same(ours, min(3, inside) / min(3, len(places)), atol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck(name):
    function, graded = FUNCTIONS[name]
    scores, target = rankings(3, 8, 1, graded)
    assert torch.autograd.gradcheck(lambda s: function(s, target), scores.requires_grad_(), eps=1e-7, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_order_shift_and_empty_rows(name):
    function, graded = FUNCTIONS[name]
    scores, target = rankings(4, 15, 2, graded)
    target[1] = 0
    order, values = torch.randperm(15, generator=torch.Generator().manual_seed(0)), function(scores, target)
    assert values.isnan().tolist() == [False, True, False, False]
    same(function(scores[:, order], target[:, order]), values)
    same(function(scores + 3, target), values, atol=1e-9)
    assert function(scores.float(), target).dtype == torch.float32
    assert function(scores[:0], target[:0]).shape == (0,)
    leaf = scores.clone().requires_grad_()
    function(leaf, target).nansum().backward()
    assert leaf.grad.isfinite().all() and not leaf.grad[1].any() and leaf.grad[0].any()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_absent_items_change_nothing(name, monkeypatch):
    "-inf, as the modules mark a query in its own row, in one piece and in blocks."
    scores, target = rankings(4, 15, 3, FUNCTIONS[name][1])
    function, longer = FUNCTIONS[name][0], torch.cat([scores, torch.full((4, 1), -torch.inf, dtype=torch.float64)], 1)
    monkeypatch.setattr(beyond_ap, "check_scores", lambda scores, validate=False: scores)
    leaf, short = longer.requires_grad_(), scores.clone().requires_grad_()
    values, expected = function(leaf, torch.cat([target, torch.zeros_like(target[:, :1])], 1)), function(short, target)
    same(values, expected.detach())
    same(torch.autograd.grad(values.sum(), leaf)[0][:, :-1], torch.autograd.grad(expected.sum(), short)[0])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_blocks_give_the_same(name, monkeypatch):
    function, graded = FUNCTIONS[name]
    scores, target = rankings(7, 20, 4, graded)
    whole = scores.clone().requires_grad_()
    expected = function(whole, target)
    expected.sum().backward()
    monkeypatch.setattr(beyond_ap, "BLOCK", 300)
    leaf = scores.clone().requires_grad_()
    values = function(leaf, target)
    values.sum().backward()
    same(values, expected.detach())
    same(leaf.grad, whole.grad)


# --------------------------------------------------------------------------------------------------------------------
# modules

MODULES = [
    RecallAtKLoss(),
    RecallAtKLoss((1, 3), 0.05, (0.5, 2.0)),
    SupRecallLoss(),
    SupRecallLoss((2,), offset=1.44),
    SmoothNDCGLoss(0.05),
    SupNDCGLoss(),
    *(PNPLoss(0.05, v) for v in beyond_ap.VARIANTS),
]
names = [f"{type(m).__name__}-{i}" for i, m in enumerate(MODULES)]


def of_scores(module, scores, target):
    "What the module computes, from the pure functions."
    if isinstance(module, RecallAtKLoss):
        return 1 - recall_at_k_surrogate(scores, target, module.ks, module.tau, module.temperature)
    if isinstance(module, SupRecallLoss):
        return 1 - sup_recall(scores, target, module.ks, temperature=module.temperature, **module.steps)
    if isinstance(module, SmoothNDCGLoss):
        return 1 - smooth_ndcg(scores, target, module.tau)
    if isinstance(module, SupNDCGLoss):
        return 1 - sup_ndcg(scores, target, **module.steps)
    return pnp(scores, target, module.tau, module.variant, module.b, module.alpha)


@pytest.mark.parametrize("module", MODULES, ids=names)
@pytest.mark.parametrize("include_query", [False, True])
def test_module_equals_the_function(module, include_query):
    module = copy.deepcopy(module)
    module.include_query = include_query
    embeddings, flat, tree = batch()
    labels, itself = tree if module.hierarchical else flat, torch.eye(14, dtype=torch.bool)
    target = levels_from_labels(tree) if module.hierarchical else flat[:, None] == flat

    def plain(e):
        rows = torch.nn.functional.normalize(e, dim=1)
        if include_query:
            return of_scores(
                module, rows @ rows.T, target & ~itself if isinstance(module, RecallAtKLoss) else target
            ).nanmean()
        return of_scores(module, (rows @ rows.T)[~itself].view(14, 13), target[~itself].view(14, 13)).nanmean()

    ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    module(ours, labels).backward(), plain(theirs).backward()
    same(module(embeddings, labels), plain(embeddings))
    same(ours.grad, theirs.grad, atol=1e-9)


@pytest.mark.parametrize("module", MODULES, ids=names)
@pytest.mark.parametrize("include_query", [False, True])
def test_references_with_query_index_equal_self_retrieval(module, include_query):
    module = copy.deepcopy(module)
    module.include_query = include_query
    embeddings, flat, tree = batch()
    labels, order = (
        tree if module.hierarchical else flat,
        torch.randperm(14, generator=torch.Generator().manual_seed(0)),
    )
    same(
        module(embeddings, labels, ref_emb=embeddings[order], ref_labels=labels[order], query_index=order.argsort()),
        module(embeddings, labels),
    )
    memory = EmbeddingMemory(copy.deepcopy(module), 20)
    same(memory(embeddings, labels), module(embeddings, labels))
    assert memory(embeddings, labels).isfinite()


@pytest.mark.parametrize("module", MODULES, ids=names)
def test_modules_are_copied_printed_and_hold_odd_batches(module):
    again = pickle.loads(pickle.dumps(copy.deepcopy(module)))
    assert repr(again) == repr(module)
    embeddings, _, _ = batch(dtype=torch.float32)
    for classes in (torch.arange(14), torch.zeros(14, dtype=torch.long)):
        leaf = embeddings.clone().requires_grad_()
        loss = module(leaf, classes[:, None] if module.hierarchical else classes)
        loss.backward()
        assert loss.isfinite() and leaf.grad.isfinite().all()
    alone = torch.arange(14)[:, None] if module.hierarchical else torch.arange(14)
    assert module(embeddings, alone) == 0


def test_training_with_each_lifts_its_metric():
    embeddings, flat, tree = batch()
    for module in MODULES[::2]:
        labels = tree if module.hierarchical else flat
        rows = embeddings.clone().requires_grad_()
        optimiser, before = torch.optim.Adam([rows], 0.05), module(embeddings, labels).item()
        for _ in range(60):
            optimiser.zero_grad()
            module(rows, labels).backward()
            optimiser.step()
        assert module(rows, labels).item() < 0.8 * before, repr(module)


def test_pnp_of_pytorch_metric_learning():
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    embeddings = batch()[0][:12].float()
    labels = torch.arange(4).repeat_interleave(3)
    for variant in beyond_ap.VARIANTS:
        theirs = losses.PNPLoss(b=2, alpha=1, anneal=0.05, variant=variant)(embeddings, labels)
        same(PNPLoss(0.05, variant, include_query=True)(embeddings, labels), theirs, atol=1e-5)


# ----------------------------------------------------------------------------------------------------------------------
# bad input

S, Y = rankings()
L = Y.long()
BAD = [
    (lambda: recall_at_k_surrogate(S, Y, ()), "ks must be whole numbers"),
    (lambda: recall_at_k_surrogate(S, Y, (0, 1)), "ks must be whole numbers"),
    (lambda: recall_at_k_surrogate(S, Y, 4), "ks must be whole numbers"),
    (lambda: recall_at_k_surrogate(S, Y, (1.5,)), "ks must be whole numbers"),
    (lambda: recall_at_k_surrogate(S, Y, (1, 2), temperature=(1.0,)), "one for each of the 2 ks, got 1"),
    (lambda: recall_at_k_surrogate(S, Y, temperature=0), "temperature must be"),
    (lambda: recall_at_k_surrogate(S, Y, tau=-1), "tau must be"),
    (lambda: recall_at_k_surrogate(S, L), "relevance must be a bool"),
    (lambda: recall_at_k_surrogate(S[0], Y), "shape \\(queries, gallery\\)"),
    (lambda: sup_recall(S, Y, rho=-1), "rho"),
    (lambda: sup_recall(S * float("nan"), Y), "NaN or infinity"),
    (lambda: smooth_ndcg(S, Y.double()), "levels"),
    (lambda: smooth_ndcg(S, L, tau=0), "tau must be"),
    (lambda: sup_ndcg(S, L, delta=-1), "delta"),
    (lambda: pnp(S, Y, variant="P"), "variant must be one of"),
    (lambda: pnp(S, Y, b=0), "b must be"),
    (lambda: pnp(S, Y, alpha=float("inf")), "alpha must be"),
    (lambda: PNPLoss(variant="o"), "variant must be one of"),
    (lambda: SupNDCGLoss(tau=0), "tau must be"),
    (lambda: SupRecallLoss(ks=[]), "ks must be"),
    (lambda: RecallAtKLoss(temperature=[1.0, 2.0]), "one for each of the 5 ks"),
]


@pytest.mark.parametrize("call, message", BAD, ids=[f"{message[:24]}-{i}" for i, (_, message) in enumerate(BAD)])
def test_bad_input_is_named(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
