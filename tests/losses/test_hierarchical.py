"""The surrogate of H-AP and HAPPIER: against naive definitions, the bound, gradients, edges."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trees import ranking, rows, same, tree

from smoothap_nb import (ClusterLoss, EmbeddingMemory, HAPLoss, HAPPIERLoss, h_ap, levels_from_labels,
                         relevance_from_levels, relevance_from_weights,
                         smooth_h_ap, step_lower, step_upper, sup_ap)
from smoothap_nb.losses.hierarchical import StepSettings, unchecked_smooth_h_ap

SETTINGS = [{}, {"offset": 1.44, "smooth_hrank": False}, {"start": 0.0, "offset": 1.0}, {"rho": None},
            {"delta": None, "offset": 0.5, "rho": 10.0},
            {"tau": 0.1, "rho": 10.0, "delta": 0.2, "leak": 1.0, "slope": 5.0, "intercept": 0.25}, {"intercept": 2.0},
            {"ties": "max"}]
SOFT = {"tau": 0.1, "rho": 10.0, "delta": 0.2, "leak": 1.0, "slope": 5.0, "intercept": 0.25}


def batch(images=18, depth=3, dim=6, seed=0, dtype=torch.float64):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(images, dim, generator=random, dtype=torch.float64).to(dtype), tree(images, depth, seed)


def graph_of(loss, embeddings, labels, *more, **kwargs):
    "Value and gradient."
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, labels, *more, **kwargs)
    value.backward()
    return value.detach(), leaf.grad


# -------------------------------------------------------------------------------- naive definitions


def upper_naive(t, tau=0.01, rho=100.0, delta=0.05, offset=None, start=0.5, ties="average"):
    sigmoid = lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0  # noqa: E731
    if rho is None:
        return sigmoid(t / tau)
    delta = delta or 0.0
    if t > delta:
        return rho * (t - delta) + (sigmoid(delta / tau) + start if offset is None else offset)
    return sigmoid(t / tau) + (start if t > 0 or (t == 0 and ties == "max") else 0.0)


def lower_naive(t, leak=10.0, slope=25.0, intercept=0.5):
    return min(slope * t + intercept, 1.0) if t > 0 else leak * t


def smooth_naive(scores, levels, rel, smooth_hrank=True, **constants):
    up = {k: v for k, v in constants.items() if k in ("tau", "rho", "delta", "offset", "start", "ties")}
    low = {k: v for k, v in constants.items() if k in ("leak", "slope", "intercept")}
    total = 0.0
    for k in [k for k, r in enumerate(rel) if r > 0]:
        h_rank, rank = rel[k], 1.0
        for j in [j for j in range(len(rel)) if j != k]:
            t = scores[j] - scores[k]
            h_rank += min(rel[j], rel[k]) * (lower_naive(t, **low) if levels[j] > levels[k] and smooth_hrank
                                             else float(t >= 0))
            rank += upper_naive(t, **up) if levels[j] < levels[k] else float(t >= 0)
        total += h_rank / rank
    return total / sum(rel) if sum(rel) else math.nan


# -------------------------------------------------------------------------------- input

@pytest.mark.parametrize("relevance, error, says", [
    (torch.tensor([[1, 0]]), TypeError, "floating-point"),
    (torch.tensor([[1.0, 0.0, 0.0]]), ValueError, "must be equal"),
    (torch.tensor([[1.0, math.nan]]), ValueError, "finite"),
    (torch.tensor([[1.0, 0.5]]), ValueError, "above 0 for items of level 0"),
])
def test_surrogate_names_bad_relevance(relevance, error, says):
    with pytest.raises(error, match=says):
        smooth_h_ap(torch.tensor([[0.2, 0.1]]), torch.tensor([[1, 0]]), relevance)


def test_surrogate_names_bad_scores_and_ties():
    levels = torch.tensor([[1, 0]])
    with pytest.raises(ValueError, match="NaN or infinity"):
        smooth_h_ap(torch.tensor([[0.1, math.nan]]), levels, levels.float())
    with pytest.raises(TypeError, match="floating point"):
        smooth_h_ap(levels, levels, levels.float())
    with pytest.raises(ValueError, match="ties must be one of"):
        smooth_h_ap(torch.rand(1, 2), levels, levels.float(), ties="min")


def test_surrogate_of_nothing():
    none = torch.empty(0, 4)
    assert len(smooth_h_ap(none, none.long(), none)) == 0
    levels = torch.tensor([[0, 0], [1, 0]])
    assert smooth_h_ap(torch.rand(2, 2), levels, levels.float()).isnan().tolist() == [True, False]


def test_settings_are_frozen_checked_and_comparable():
    plain = StepSettings(rho=None)
    assert (plain.rho, plain.delta, plain.start) == (0.0, math.inf,
                                                     0.0) and StepSettings(**vars(StepSettings())) == StepSettings()
    with pytest.raises(AttributeError):
        plain.rho = 1.0
    with pytest.raises(ValueError, match="tau"):
        StepSettings(tau=0.0)


# -------------------------------------------------------------------------------- steps

GRID = torch.cat([torch.linspace(-1, 1, 40_001), torch.tensor([0.0, 1e-9, -1e-9, 0.05])]).double()


@given(st.floats(0.002, 0.5), st.floats(0, 500), st.floats(0, 0.5), st.floats(0.5, 2))
@settings(max_examples=40, deadline=None)
def test_joined_upper_step_is_above_the_step(tau, rho, delta, start):
    value = step_upper(GRID, tau, rho, delta, start=start)
    assert (value[GRID > 0] >= 1).all() and (value >= 0).all()
    assert (step_upper(GRID, tau, rho, delta, start=start, ties="max")[GRID == 0] >= 1).all()
    edge = step_upper(torch.tensor([delta, delta + 1e-12], dtype=torch.float64), tau, rho, delta, start=start)
    if delta > 0:
        assert edge[0] == pytest.approx(edge[1].item(), abs=1e-6)


@given(st.floats(0, 100), st.floats(0, 500), st.floats(-1, 3))
@settings(max_examples=40, deadline=None)
def test_lower_step_is_below_the_step(leak, slope, intercept):
    value = step_lower(GRID, leak, slope, intercept)
    assert (value[GRID > 0] <= 1).all() and (value[GRID <= 0] <= 0).all()


@pytest.mark.parametrize("constants", SETTINGS)
def test_steps_are_their_formulas(constants):
    up = {k: v for k, v in constants.items() if k in ("tau", "rho", "delta", "offset", "start", "ties")}
    low = {k: v for k, v in constants.items() if k in ("leak", "slope", "intercept")}
    at = GRID[::97]
    same(step_upper(at, **up), torch.tensor([upper_naive(t, **up) for t in at.tolist()], dtype=torch.float64))
    same(step_lower(at, **low), torch.tensor([lower_naive(t, **low) for t in at.tolist()], dtype=torch.float64))


def test_published_values_of_theStepSettings():
    same(step_upper(torch.tensor([-0.01, 0.01, 0.05, 0.1, 0.5]).double()),
         torch.tensor([0.2689, 1.2311, 1.4933, 6.4933, 46.4933]).double(), 1e-4)
    same(step_lower(torch.tensor([-0.1, -0.01, 0.01, 0.02]).double()), torch.tensor([-1, -0.1, 0.75, 1]).double(), 1e-6)
    # iNaturalist: no bound
    assert step_upper(torch.tensor(0.001), start=0.0, offset=1.0).item() == pytest.approx(0.525, abs=1e-3)


@pytest.mark.parametrize("constants", [{"tau": 0.0}, {"tau": math.nan}, {"rho": -1.0}, {"delta": -0.1},
                                       {"delta": math.inf}, {"offset": math.nan},
                                       {"start": math.inf}, {"leak": -1.0}, {"slope": -1.0}, {"intercept": math.nan},
                                       {"tau": "0.1"}])
def test_constants_out_of_range_are_named(constants):
    name, = constants
    scores, levels = torch.rand(1, 2), torch.tensor([[1, 0]])
    with pytest.raises(ValueError, match=name):
        smooth_h_ap(scores, levels, levels.float(), **constants)
    with pytest.raises(ValueError, match=name):
        HAPLoss(**constants)
    with pytest.raises(ValueError, match=name):
        (step_lower if name in ("leak", "slope", "intercept") else step_upper)(torch.zeros(1), **constants)


@pytest.mark.parametrize("step", [step_upper, step_lower])
@pytest.mark.parametrize("t", [0.1, torch.tensor([1])])
def test_steps_want_score_differences(step, t):
    with pytest.raises(TypeError, match="floating-point tensor of score differences"):
        step(t)


# -------------------------------------------------------------------------------- surrogate

@given(st.sampled_from(SETTINGS), st.booleans(), st.sampled_from([1, 2, 3, 7]), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_surrogate_is_its_definition(constants, tied, depth, seed):
    scores, levels = ranking(queries=8, gallery=13, depth=depth, seed=seed, ties=tied)
    levels[2] = 0
    for relevance in (relevance_from_levels(levels, 2.0),
                      (levels > 0) * torch.rand(8, 13, generator=torch.Generator().manual_seed(1)).double()):
        same(smooth_h_ap(scores, levels, relevance, **constants),
             rows(smooth_naive, scores, levels, relevance, **constants), 1e-11)


@given(st.integers(1, 7), st.integers(0, 10**6), st.sampled_from([0.01, 0.1, 0.5]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_surrogate_never_exceeds_h_ap(depth, seed, spread, smooth_hrank):
    scores, levels = ranking(depth=depth, seed=seed, spread=spread)
    for relevance in (relevance_from_levels(levels), relevance_from_levels(levels, 3.0),
                      relevance_from_weights(levels, [1.0] * depth)):
        assert (smooth_h_ap(scores, levels, relevance, smooth_hrank=smooth_hrank) <= h_ap(scores, relevance)
                + 1e-12).all()
        assert (smooth_h_ap(scores, levels, relevance, offset=1.44) <= h_ap(scores, relevance) + 1e-12).all()


@given(st.integers(1, 7), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_surrogate_never_exceeds_h_ap_at_ties_either(depth, seed):
    scores, levels = ranking(depth=depth, seed=seed, ties=True)
    relevance = relevance_from_levels(levels)
    assert (smooth_h_ap(scores, levels, relevance, ties="max") <= h_ap(scores, relevance, "max") + 1e-12).all()


@pytest.mark.parametrize("constants", [{"start": 0.0, "offset": 1.0, "smooth_hrank": False},
                                       {"rho": None, "smooth_hrank": False}])
def test_some_settings_are_no_bound(constants):
    scores, levels = ranking(queries=500, spread=0.02)
    relevance = relevance_from_levels(levels)
    assert (smooth_h_ap(scores, levels, relevance, **constants) > h_ap(scores, relevance) + 1e-3).any()


def test_hand_worked_surrogate():
    scores, levels = torch.tensor([[0.80, 0.78, 0.70, 0.65]]).double(), torch.tensor([[1, 2, 0, 2]])
    relevance = torch.tensor([[0.5, 1.0, 0.0, 1.0]]).double()
    assert 1 - smooth_h_ap(scores, levels, relevance).item() == pytest.approx(0.821286, abs=1e-6)
    assert 1 - h_ap(scores, relevance).item() == pytest.approx(0.25)


def test_loss_may_exceed_one():
    scores, levels = torch.tensor([[0.9, 0.1, 0.1, 0.1]]).double(), torch.tensor([[1, 2, 2, 2]])
    assert smooth_h_ap(scores, levels, relevance_from_levels(levels)).item() < 0


@pytest.mark.parametrize("tied", [False, True])
def test_one_level_is_sup_ap(tied):
    scores, levels = ranking(depth=1, ties=tied)
    for constants in ({}, {"offset": 1.44}, {"start": 0.0, "offset": 1.0}):
        same(smooth_h_ap(scores, levels, relevance_from_levels(levels), **constants),
             sup_ap(scores, levels > 0, **constants))


@pytest.mark.parametrize("constants", [{}, SOFT, {**SOFT, "smooth_hrank": False}, {**SOFT, "ties": "max"},
                                       {"rho": None, "tau": 0.1}])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_gradcheck(constants, depth):
    scores, levels = ranking(queries=5, gallery=9, depth=depth, seed=2)
    relevance = relevance_from_levels(levels, 2.0)
    assert torch.autograd.gradcheck(lambda s: smooth_h_ap(s, levels, relevance, **constants), scores.requires_grad_(),
                                    eps=1e-7, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("loss", [HAPLoss(**SOFT), HAPLoss(**SOFT, include_query=True),
                                  HAPLoss(weights=(1, 2, 3), **SOFT), HAPPIERLoss(8, 6, **SOFT).double()])
def test_gradcheck_of_the_losses(loss):
    embeddings, labels = batch(images=10)
    assert torch.autograd.gradcheck(lambda e: loss(e, labels), embeddings.requires_grad_(), eps=1e-7, atol=1e-4,
                                    rtol=1e-4)


@given(st.integers(1, 7), st.integers(0, 10**6), st.sampled_from(SETTINGS))
@settings(max_examples=40, deadline=None)
def test_gradients_of_a_row_sum_to_zero_and_stay_in_their_row(depth, seed, constants):
    scores, levels = ranking(depth=depth, seed=seed)
    scores.requires_grad_()
    smooth_h_ap(scores, levels, relevance_from_levels(levels), **constants)[3].backward()
    assert abs(scores.grad[3].sum()) < 1e-9 * (1 + scores.grad.abs().max())
    assert not scores.grad[torch.arange(len(scores)) != 3].any()


def test_blocks_change_nothing():
    "Many queries are worked through in blocks; one alone is not."
    scores, levels = ranking(queries=70, gallery=90, seed=5)
    relevance = relevance_from_levels(levels)
    leaf = scores.clone().requires_grad_()
    together = smooth_h_ap(leaf, levels, relevance)
    together.sum().backward()
    for q in (0, 13, 69):
        alone = scores[[q]].clone().requires_grad_()
        value = smooth_h_ap(alone, levels[[q]], relevance[[q]])
        value.sum().backward()
        same(value.detach(), together[[q]].detach(), 1e-13)
        same(alone.grad, leaf.grad[[q]], 1e-11)


def test_queries_without_positives_get_no_gradient():
    scores, levels = ranking()
    levels[4] = 0
    scores.requires_grad_()
    smooth_h_ap(scores, levels, relevance_from_levels(levels)).nansum().backward()
    assert scores.grad.isfinite().all() and not scores.grad[4].any()


def test_absent_items_are_outranked_by_nobody():
    scores, levels = ranking(seed=7)
    levels[:, -1] = 0
    absent, steps = scores.clone(), StepSettings()
    absent[:, -1] = -torch.inf
    absent.requires_grad_()
    relevance = relevance_from_levels(levels)
    value = unchecked_smooth_h_ap(absent, levels, relevance, steps)
    value.sum().backward()
    same(value.detach(), smooth_h_ap(scores[:, :-1], levels[:, :-1], relevance[:, :-1]))
    assert absent.grad.isfinite().all() and not absent.grad[:, -1].any()


@pytest.mark.parametrize("column", range(5))
def test_a_nan_that_nobody_looked_for_shows(column):
    "On a GPU scores are not searched for NaN; whichever item has one, its query's value tells."
    scores, levels = torch.rand(2, 5).double(), torch.tensor([[3, 2, 2, 1, 0]]).expand(2, 5)
    scores[0, column] = torch.nan
    value = unchecked_smooth_h_ap(scores, levels, relevance_from_levels(levels), StepSettings())
    assert value.isnan().tolist() == [True, False]


def test_levels_of_any_integer_dtype():
    scores, levels = ranking()
    relevance = relevance_from_levels(levels)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        same(smooth_h_ap(scores, levels.to(dtype), relevance), smooth_h_ap(scores, levels, relevance), 0)


def test_no_gradient_is_worked_out_when_none_is_wanted():
    scores, levels = ranking()
    with torch.no_grad():
        value = smooth_h_ap(scores.requires_grad_(), levels, relevance_from_levels(levels))
    assert not value.requires_grad
    assert not smooth_h_ap(scores.detach(), levels, relevance_from_levels(levels)).requires_grad


def test_backward_twice_and_second_derivative():
    scores, levels = ranking()
    scores.requires_grad_()
    total = smooth_h_ap(scores, levels, relevance_from_levels(levels)).sum()
    first, = torch.autograd.grad(total, scores, retain_graph=True)
    second, = torch.autograd.grad(total, scores, retain_graph=True)
    assert torch.equal(first, second)
    once, = torch.autograd.grad(total, scores, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivative only"):
        once.sum().backward()


def test_raw_dot_products_of_any_size():
    scores, levels = ranking(spread=1e4, dtype=torch.float32)
    scores.requires_grad_()
    smooth_h_ap(scores, levels, relevance_from_levels(levels)).sum().backward()
    assert scores.grad.isfinite().all()


# -------------------------------------------------------------------------------- HAPLoss

def test_loss_is_one_minus_the_mean_surrogate():
    embeddings, labels = batch()
    rows_ = torch.nn.functional.normalize(embeddings, dim=1)
    others = ~torch.eye(18, dtype=torch.bool)
    scores, levels = ((rows_ @ rows_.T)[others].view(18, -1), levels_from_labels(labels)[others].view(18, -1))
    same(HAPLoss()(embeddings, labels), 1 - smooth_h_ap(scores, levels, relevance_from_levels(levels)).nanmean())
    same(HAPLoss(alpha=3)(embeddings, labels),
         1 - smooth_h_ap(scores, levels, relevance_from_levels(levels, 3)).nanmean())
    weighted = relevance_from_weights(levels, (1, 2, 3))
    same(HAPLoss(weights=(1, 2, 3))(embeddings, labels), 1 - smooth_h_ap(scores, levels, weighted).nanmean())


@given(st.integers(1, 7), st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_order_of_the_batch_changes_nothing(depth, seed):
    embeddings, labels = batch(depth=depth, seed=seed)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    value, grad = graph_of(HAPLoss(), embeddings, labels)
    shuffled, shuffled_grad = graph_of(HAPLoss(), embeddings[order], 5 - 3 * labels[order])
    same(shuffled, value, 1e-11)
    same(shuffled_grad, grad[order], 1e-9)


def test_references_with_query_index_are_self_retrieval():
    embeddings, labels = batch()
    index = torch.arange(len(labels))
    same(HAPLoss()(embeddings, labels, None, embeddings, labels, query_index=index), HAPLoss()(embeddings, labels))
    apart = HAPLoss()(embeddings[:6], labels[:6], ref_emb=embeddings[6:], ref_labels=labels[6:])
    same(HAPLoss()(embeddings[:6], labels[:6], None, embeddings[6:], labels[6:], query_index=torch.full((6,), -1)),
         apart)


def test_query_in_its_own_ranking():
    embeddings, labels = batch()
    rows_ = torch.nn.functional.normalize(embeddings, dim=1)
    levels = levels_from_labels(labels)
    same(HAPLoss(include_query=True)(embeddings, labels),
         1 - smooth_h_ap(rows_ @ rows_.T, levels, relevance_from_levels(levels)).mean())


def test_flat_labels_make_one_level():
    embeddings, labels = batch()
    same(HAPLoss()(embeddings, labels[:, -1]), HAPLoss()(embeddings, labels[:, [-1]]))


def test_weight_zero_turns_coarse_levels_into_negatives():
    embeddings, labels = batch(images=30)
    value, grad = graph_of(HAPLoss(weights=(0, 0, 1)), embeddings, labels)
    fine, fine_grad = graph_of(HAPLoss(), embeddings, labels[:, -1])
    same(value, fine)
    same(grad, fine_grad)


@pytest.mark.parametrize("labels", [torch.arange(18)[:, None].expand(18, 3), torch.zeros(18, 3, dtype=torch.long)],
                         ids=["singletons", "one class"])
def test_batches_without_a_contest(labels):
    embeddings, _ = batch()
    value, grad = graph_of(HAPLoss(), embeddings, labels.contiguous())
    assert value == pytest.approx(0, abs=1e-12) and grad.isfinite().all() and not grad.any()


def test_singletons_beside_classes():
    embeddings, labels = batch(images=8)
    labels[0], labels[1] = 100, 101  # alone at every level
    keep = torch.arange(2, 8)
    gallery = HAPLoss()(embeddings[keep], labels[keep], None, embeddings, labels, query_index=keep)
    same(HAPLoss()(embeddings, labels), gallery)


def test_more_levels_than_a_byte_holds():
    embeddings, labels = batch(images=6, depth=1)
    deep = labels.expand(6, 200).contiguous()
    same(HAPLoss()(embeddings, deep), HAPLoss()(embeddings, labels))


def test_a_relevance_of_ones_own():
    class Gains(HAPLoss):
        def worth_of_levels(self, levels, dtype):
            return (2 ** torch.arange(4) - 1).to(dtype).expand(len(levels), 4)

    embeddings, labels = batch()
    rows_, others = torch.nn.functional.normalize(embeddings, dim=1), ~torch.eye(18, dtype=torch.bool)
    levels = levels_from_labels(labels)[others].view(18, -1)
    same(Gains()(embeddings, labels), 1 - smooth_h_ap((rows_ @ rows_.T)[others].view(18, -1), levels,
                                                      2.0 ** levels.double() - 1).nanmean())


def test_embedding_memory_takes_hierarchical_labels():
    embeddings, labels = batch()
    memory = EmbeddingMemory(HAPLoss(), size=40)
    first = memory(embeddings.clone().requires_grad_(), labels)
    second = memory(embeddings.flip(0).clone().requires_grad_(), labels.flip(0))
    second.backward()
    assert first.isfinite() and second.isfinite() and memory.filled == 36


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_ranks_in_float32(dtype):
    embeddings, labels = batch(dtype=torch.float32)
    plain, grad = graph_of(HAPLoss(), embeddings, labels)
    with torch.autocast("cpu", dtype=dtype if dtype is torch.bfloat16 else torch.bfloat16):
        cast, cast_grad = graph_of(HAPLoss(), embeddings, labels)
    same(cast, plain, 0)
    same(cast_grad, grad, 0)
    assert HAPLoss()(embeddings.to(dtype), labels).dtype == torch.float32


def test_second_call_after_backward():
    embeddings, labels = batch()
    loss = HAPPIERLoss(8, 6).double()
    same(graph_of(loss, embeddings, labels)[0], graph_of(loss, embeddings, labels)[0], 0)


def test_a_descent_lowers_the_true_loss():
    torch.manual_seed(0)
    labels = tree(40, 3)
    embeddings = torch.randn(40, 16, requires_grad=True)

    def true_h_ap():
        rows_ = torch.nn.functional.normalize(embeddings.detach(), dim=1)
        others = ~torch.eye(40, dtype=torch.bool)
        levels = levels_from_labels(labels)[others].view(40, -1)
        return h_ap((rows_ @ rows_.T)[others].view(40, -1), relevance_from_levels(levels)).nanmean().item()

    before, optimiser = true_h_ap(), torch.optim.Adam([embeddings], lr=0.05)
    for _ in range(60):
        optimiser.zero_grad()
        HAPLoss()(embeddings, labels).backward()
        optimiser.step()
    assert true_h_ap() > before + 0.3


@pytest.mark.parametrize("call, error, says", [
    (lambda e, v: HAPLoss(alpha=-1.0), ValueError, "alpha"),
    (lambda e, v: HAPLoss(weights=(1.0, -1.0)), ValueError, "weight"),
    (lambda e, v: HAPLoss(weights=(1.0, 1.0))(e, v), ValueError, "3 levels, but there are 2 weights"),
    (lambda e, v: HAPLoss()(e, v[:5]), ValueError, "length 5"),
    (lambda e, v: HAPLoss()(e, v.float()), TypeError, "integers"),
    (lambda e, v: HAPLoss()(e, v, ref_emb=e.clone(), ref_labels=v[:, :2]), ValueError, "levels"),
    (lambda e, v: HAPLoss()(e, v, (1, 2, 3)), ValueError, "indices_tuple"),
    (lambda e, v: HAPLoss()(e * math.nan, v), ValueError, "NaN"),
    (lambda e, v: HAPLoss()(e[:0], v[:0]), ValueError, "empty"),
])
def test_wrong_calls_of_the_loss_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call(*batch())


def test_losses_say_what_they_are():
    assert "alpha=1.0" in repr(HAPLoss()) and "weights=(1.0, 2.0)" in repr(HAPLoss(weights=(1, 2)))
    assert "cluster_weight=0.2" in repr(HAPPIERLoss(3, 4, 0.2)) and "num_classes=3" in repr(HAPPIERLoss(3, 4))


# -------------------------------------------------------------------------------- clustering and HAPPIER

def test_cluster_loss_by_hand():
    for temperature, value in ((1.0, 0.371101), (0.05, 1.125e-7)):
        loss = ClusterLoss(2, 2, temperature).double()
        loss.proxies.data = torch.tensor([[1.6, 1.2], [0.0, 3.0]]).double()  # proxies are normalised
        assert loss(torch.tensor([[2.0, 0.0]]).double(), torch.tensor([0])).item() == pytest.approx(value, rel=1e-3)


def test_cluster_loss_takes_the_finest_column():
    embeddings, labels = batch()
    loss = ClusterLoss(8, 6).double()
    same(loss(embeddings, labels), loss(embeddings, labels[:, -1]), 0)
    same(ClusterLoss.forward(loss, embeddings, labels, ref_emb=embeddings, ref_labels=labels), loss(embeddings, labels),
         0)


def test_cluster_loss_trains_its_proxies():
    embeddings, labels = batch()
    loss = ClusterLoss(8, 6).double()
    assert torch.autograd.gradcheck(lambda e, p: torch.func.functional_call(loss, {"proxies": p}, (e, labels)),
                                    (embeddings.requires_grad_(), loss.proxies.detach().clone().requires_grad_()))
    optimiser = torch.optim.SGD([{"params": [embeddings], "lr": 0.0}, loss.parameter_group(lr=1.0, weight_decay=0.0)],
                                lr=0.1)
    before = loss(embeddings, labels)
    before.backward()
    optimiser.step()
    assert loss(embeddings, labels) < before
    assert optimiser.param_groups[1]["lr"] == 1.0 and optimiser.param_groups[1]["params"] == [loss.proxies]


@pytest.mark.parametrize("call, error, says", [
    (lambda e, v: ClusterLoss(0, 6), ValueError, "num_classes"),
    (lambda e, v: ClusterLoss(8, 0), ValueError, "dim"),
    (lambda e, v: ClusterLoss(8, 6, 0.0), ValueError, "temperature"),
    (lambda e, v: ClusterLoss(8, 5)(e, v), ValueError, "6 dimensions, the proxies have 5"),
    (lambda e, v: ClusterLoss(3, 6)(e, v), ValueError, "proxies for 0 ... 2"),
    (lambda e, v: ClusterLoss(8, 6)(e, v - 20), ValueError, "number the training classes from 0"),
    (lambda e, v: ClusterLoss(8, 6)(e, v.double()), TypeError, "integers"),
    (lambda e, v: ClusterLoss(8, 6)(e, v, (1,)), ValueError, "indices_tuple"),
    (lambda e, v: ClusterLoss(8, 6)(e[:0], v[:0]), ValueError, "empty"),
    (lambda e, v: HAPPIERLoss(8, 6, 1.5), ValueError, "cluster_weight"),
    (lambda e, v: HAPPIERLoss(8, 6, -0.5), ValueError, "cluster_weight"),
    (lambda e, v: HAPPIERLoss(8, 6, alpha=-1.0), ValueError, "alpha"),
])
def test_wrong_calls_of_cluster_and_happier_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call(*batch())


@pytest.mark.parametrize("weight", [0.0, 0.1, 0.5, 1.0])
def test_happier_mixes_its_parts(weight):
    embeddings, labels = batch()
    loss = HAPPIERLoss(8, 6, weight).double()
    same(loss(embeddings, labels).detach(), ((1 - weight) * loss.hap(embeddings, labels)
                                             + weight * loss.cluster(embeddings, labels)).detach())


def test_happier_takes_references_and_gives_its_proxies():
    embeddings, labels = batch()
    loss = HAPPIERLoss(8, 6).double()
    value = loss(embeddings, labels, ref_emb=embeddings, ref_labels=labels, query_index=torch.arange(18))
    same(value.detach(), loss(embeddings, labels).detach())
    assert loss.parameter_group(lr=3.0) == {"params": [loss.cluster.proxies], "lr": 3.0}
    assert EmbeddingMemory(loss, 20)(embeddings, labels).isfinite()
    copy = HAPPIERLoss(8, 6).double()
    copy.load_state_dict(loss.state_dict())
    same(copy(embeddings, labels), loss(embeddings, labels), 0)


# -------------------------------------------------------------------------------- CUDA

@pytest.mark.cuda
@pytest.mark.parametrize("dtype, atol", [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_cuda_gives_the_same_numbers(dtype, atol):
    scores, levels = ranking(queries=60, gallery=80, dtype=dtype)
    relevance = relevance_from_levels(levels)
    there = [x.cuda() for x in (scores, levels, relevance)]
    for constants in SETTINGS:
        leaf, other = scores.clone().requires_grad_(), there[0].clone().requires_grad_()
        here, far = smooth_h_ap(leaf, levels, relevance, **constants), smooth_h_ap(other, *there[1:], **constants)
        here.sum().backward(), far.sum().backward()
        same(far.detach().cpu(), here.detach(), atol)
        same(other.grad.cpu(), leaf.grad, atol * 100)


@pytest.mark.cuda
def test_cuda_losses_match():
    embeddings, labels = batch(images=64)
    for loss in (HAPLoss(), HAPLoss(weights=(1, 1, 1)), HAPPIERLoss(8, 6).double()):
        here = graph_of(loss, embeddings, labels)
        there = graph_of(loss.cuda(), embeddings.cuda(), labels)  # labels follow the embeddings
        same(there[0].cpu(), here[0], 1e-10)
        same(there[1].cpu(), here[1], 1e-8)


@pytest.mark.parametrize("steps", [{"rho": None, "smooth_hrank": False}, {"rho": None}, {}])
def test_places_without_a_positive_leave_the_gradient_finite(steps):
    "Queries with few positives beside queries with many, and the plain sigmoid, which has no line that would bound it."
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        fine = torch.randint(0, 6, (24,), generator=generator)
        rows = torch.randn(24, 32, generator=generator) * 0.1 + torch.randn(2, 32, generator=generator)[fine // 3]
        rows = torch.nn.functional.normalize(rows, dim=1).requires_grad_()
        HAPLoss(**steps)(rows, torch.stack([fine // 3, fine], 1)).backward()
        assert rows.grad.isfinite().all(), seed
