"""SupAP, calibration, ROADMAP, SoftBin and CSL: against naive definitions, their bounds, their gradients, their edges.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothap_nb import (
    CalibrationLoss,
    CSLLoss,
    ROADMAPLoss,
    SoftBinAPLoss,
    SupAPLoss,
    average_precision,
    calibration_loss,
    csl_loss,
    soft_bin_ap,
    sup_ap,
)

LOSSES = [SupAPLoss, SoftBinAPLoss, CalibrationLoss, ROADMAPLoss]
names = [loss.__name__ for loss in LOSSES]


def rankings(queries=6, gallery=15, seed=0, dtype=torch.float64):
    random = torch.Generator().manual_seed(seed)
    scores = (2 * torch.rand(queries, gallery, generator=random, dtype=torch.float64) - 1).to(dtype)
    relevance = torch.rand(queries, gallery, generator=random) < 0.3
    relevance[:, 0] = True
    return scores, relevance


def batch(images=14, classes=4, dim=5, seed=0, dtype=torch.float64):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(images, dim, generator=random, dtype=torch.float64).to(dtype), torch.randint(
        classes, (images,), generator=random
    )


# ------------------------------------------------------------------------------------------------------------ naive
# definitions

def step_loop(t, tau, rho, delta, offset, start):
    if t <= 0:
        return 1 / (1 + math.exp(-t / tau)) if -t / tau < 700 else 0.0
    if delta is not None and t <= delta:
        return start + 1 / (1 + math.exp(-t / tau))
    delta = delta or 0.0
    return rho * (t - delta) + (start + 1 / (1 + math.exp(-delta / tau)) if offset is None else offset)


def sup_ap_loop(scores, relevance, tau=0.01, rho=100.0, delta=0.05, offset=None, start=0.5):
    total, positives = 0.0, [i for i, yes in enumerate(relevance) if yes]
    for k in positives:
        rank_in_p = sum(scores[j] >= scores[k] for j in positives)
        ahead = sum(
            step_loop(scores[j] - scores[k], tau, rho, delta, offset, start)
            for j in range(len(scores))
            if not relevance[j]
        )
        total += rank_in_p / (rank_in_p + ahead)
    return total / len(positives) if positives else math.nan


def soft_bin_loop(scores, relevance, centres):
    width, value, hits, seen = 2 / (centres - 1), 0.0, 0.0, 0.0
    for b in range(centres):
        weight = [max(0.0, 1 - abs(min(1, max(-1, s)) - (1 - b * width)) / width) for s in scores]
        here = sum(w for w, yes in zip(weight, relevance) if yes)
        hits, seen = hits + here, seen + sum(weight)
        value += here * hits / seen if seen else 0.0
    return value / sum(relevance) if any(relevance) else math.nan


SETTINGS = [
    {},
    {"offset": 1.44},
    {"offset": 1.0, "start": 0.0},
    {"tau": 0.1, "rho": 10.0, "delta": 0.2},
    {"rho": 5.0, "offset": 0.5, "delta": None},
    {"delta": None},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("grid", [False, True], ids=["untied", "ties"])
def test_sup_ap_equals_its_definition(setting, grid):
    scores, relevance = rankings()
    scores = (scores * 4).round() / 4 if grid else scores
    relevance[2] = False
    want = [sup_ap_loop(s.tolist(), r.tolist(), **setting) for s, r in zip(scores, relevance)]
    torch.testing.assert_close(
        sup_ap(scores, relevance, **setting),
        torch.tensor(want, dtype=torch.float64),
        rtol=0,
        atol=1e-12,
        equal_nan=True,
    )


@pytest.mark.parametrize("centres", [2, 7, 20])
def test_soft_bin_equals_its_definition(centres):
    scores, relevance = rankings()
    scores, relevance[1] = scores * 1.2, False  # some beyond [-1, 1]
    want = [soft_bin_loop(s.tolist(), r.tolist(), centres) for s, r in zip(scores, relevance)]
    torch.testing.assert_close(
        soft_bin_ap(scores, relevance, centres),
        torch.tensor(want, dtype=torch.float64),
        rtol=0,
        atol=1e-12,
        equal_nan=True,
    )


def test_calibration_equals_its_definition():
    scores, relevance = rankings()
    short = [0.9 - s for s, yes in zip(scores.flatten().tolist(), relevance.flatten().tolist()) if yes and s < 0.9]
    above = [s - 0.6 for s, yes in zip(scores.flatten().tolist(), relevance.flatten().tolist()) if not yes and s > 0.6]
    assert calibration_loss(scores, relevance).item() == pytest.approx(
        sum(short) / len(short) + sum(above) / len(above), abs=1e-12
    )
    assert calibration_loss(scores, relevance, pos_margin=-1.0, neg_margin=1.0).item() == 0  # nothing violates


def test_csl_equals_its_definition():
    random = torch.Generator().manual_seed(1)
    scores = 2 * torch.rand(3, 5, generator=random, dtype=torch.float64) - 1
    levels = torch.tensor([[2, 1, 0, 0, 0], [1, 2, 1, 1, 1], [1, 0, 2, 0, 1]])
    for row, shared, value in zip(scores.tolist(), levels.tolist(), csl_loss(scores, levels, (0.45, 0.25), 8.0)):
        own, want = row[shared.index(2)], 0.0
        for level, margin in ((1, 0.45), (2, 0.25)):
            want += math.log1p(sum(math.exp(8 * (s - own + margin)) for s, have in zip(row, shared) if have < level))
        assert value.item() == pytest.approx(want, abs=1e-10)


# --------------------------------------------------------------------------------------------------------------------
# bounds

@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(0, 2**31),
    st.floats(0.001, 1.0),
    st.floats(0.001, 0.3),
    st.floats(0, 200),
    st.floats(0.005, 2),
)
def test_sup_ap_loss_is_at_least_the_ap_loss(positives, seed, tau, delta, rho, spread):
    "For every tau, delta and rho >= 0 with the default start and offset."
    random = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(3, 14, generator=random, dtype=torch.float64)
    relevance = torch.zeros(3, 14, dtype=torch.bool)
    relevance[:, :positives] = True
    exact = average_precision(scores, relevance)
    assert (1 - sup_ap(scores, relevance) >= 1 - exact - 1e-12).all()
    assert (1 - sup_ap(scores, relevance, tau, rho, delta) >= 1 - exact - 1e-12).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=12))
def test_sup_ap_bounds_pessimistic_ap_through_ties(items):
    scores = torch.tensor([[s / 4 for s, _ in items]], dtype=torch.float64)
    relevance = torch.tensor([[yes for _, yes in items]])
    exact, bound = average_precision(scores, relevance), sup_ap(scores, relevance, ties="max")
    assert bound.isnan().equal(exact.isnan()) and not (bound > exact + 1e-12).any()


def test_published_settings_that_lose_the_bound():
    scores, relevance = torch.tensor([[0.501, 0.5]]), torch.tensor([[False, True]])
    exact = 1 - average_precision(scores, relevance)
    assert 1 - sup_ap(scores, relevance) >= exact
    assert 1 - sup_ap(scores, relevance, offset=1.0, start=0.0) < exact  # iNaturalist's configuration


# --------------------------------------------------------------------------------------------------------------------
# gradients

@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_sup_ap_gradcheck(setting):
    scores, relevance = rankings(4, 9, seed=3)
    relevance[1] = False
    keep = torch.tensor([0, 2, 3])
    assert torch.autograd.gradcheck(
        lambda s: sup_ap(s, relevance, **setting)[keep], scores.requires_grad_(), atol=1e-5, eps=1e-7
    )


def test_soft_bin_calibration_and_csl_gradcheck():
    scores, relevance = rankings(4, 9, seed=3)
    levels = torch.randint(3, (4, 9), generator=torch.Generator().manual_seed(0))
    levels[:, 0] = 2
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: soft_bin_ap(s, relevance, 7), scores)
    assert torch.autograd.gradcheck(lambda s: calibration_loss(s, relevance, 0.5, 0.1), scores)
    assert torch.autograd.gradcheck(lambda s: csl_loss(s, levels, (0.4, 0.2), 4.0), scores)


@pytest.mark.parametrize("loss", LOSSES, ids=names)
@pytest.mark.parametrize("include_query", [False, True])
def test_embedding_losses_gradcheck(loss, include_query):
    embeddings, labels = batch()
    module = loss() if loss is CalibrationLoss else loss(include_query=include_query)
    if include_query and "SoftBin" in loss.__name__:
        pytest.skip("a query's score to itself is 1: a kink of the last bin")
    assert torch.autograd.gradcheck(lambda e: module(e, labels), embeddings.requires_grad_(), atol=1e-5, eps=1e-7)


def test_sup_ap_memory_and_chunks_do_not_change_the_value():
    scores, relevance = rankings(40, 3000, seed=5)  # more cells than one chunk holds
    chunked, scores_grad = sup_ap(scores.requires_grad_(), relevance), None
    chunked.sum().backward()
    scores_grad = scores.grad.clone()
    for row in (0, 17, 39):
        alone = scores.detach()[row:row + 1].requires_grad_()
        value = sup_ap(alone, relevance[row:row + 1])
        value.sum().backward()
        torch.testing.assert_close(value[0].detach(), chunked[row].detach(), rtol=0, atol=1e-14)
        torch.testing.assert_close(alone.grad[0], scores_grad[row], rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------------------------- laws of
# a ranking

@pytest.mark.parametrize("function", [sup_ap, soft_bin_ap])
def test_permuting_the_gallery_changes_nothing(function):
    scores, relevance = rankings()
    order = torch.randperm(scores.shape[1], generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        function(scores[:, order], relevance[:, order]), function(scores, relevance), rtol=0, atol=1e-12
    )


def test_relatives_under_other_names():
    "SupAP is the surrogate of H-AP on a tree of one level, SoftBin is FastAP with one bin fewer."
    from smoothap_nb import fast_ap, smooth_h_ap
    scores, relevance = rankings()
    torch.testing.assert_close(
        sup_ap(scores, relevance), smooth_h_ap(scores, relevance.long(), relevance.double()), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(
        soft_bin_ap(scores, relevance, 11), fast_ap(scores, relevance, bins=10), rtol=0, atol=1e-12
    )


def test_a_perfect_ranking_costs_nothing_once_the_gap_is_wide():
    scores, relevance = torch.tensor([[0.9, 0.8, 0.1, 0.0]]), torch.tensor([[True, True, False, False]])
    assert sup_ap(scores, relevance).item() == pytest.approx(1, abs=1e-6)
    assert soft_bin_ap(scores, relevance).item() == pytest.approx(1, abs=1e-6)


def test_sup_ap_keeps_pushing_a_negative_that_is_far_ahead():
    "The sigmoid of Smooth-AP is flat there."
    from smoothap_nb import smooth_ap
    scores, relevance = torch.tensor([[0.9, 0.1]], requires_grad=True), torch.tensor([[False, True]])
    flat, = torch.autograd.grad(smooth_ap(scores, relevance).sum(), scores)
    steep, = torch.autograd.grad(sup_ap(scores, relevance).sum(), scores)
    assert flat.abs().max() < 1e-12 and steep[0, 0] < -1e-3 and steep[0, 1] > 1e-3


@pytest.mark.parametrize("loss", LOSSES, ids=names)
def test_an_absent_item_and_label_order_change_nothing(loss):
    embeddings, labels = batch()
    whole = loss()(embeddings, labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(loss()(embeddings[order], 5 - labels[order]), whole, rtol=0, atol=1e-12)
    as_references = loss()(
        embeddings, labels, ref_emb=embeddings, ref_labels=labels, query_index=torch.arange(len(labels))
    )
    torch.testing.assert_close(as_references, whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=names)
def test_batches_without_positives_or_without_negatives(loss):
    embeddings, _ = batch()
    embeddings.requires_grad_()
    for labels in (torch.arange(len(embeddings)), torch.zeros(len(embeddings), dtype=torch.long)):
        value = loss()(embeddings, labels)
        value.backward()
        assert value.isfinite() and embeddings.grad.isfinite().all()
    if loss in (SupAPLoss, SoftBinAPLoss):
        assert loss()(embeddings, torch.arange(len(embeddings))).item() == 0
        assert loss()(embeddings, torch.zeros(len(embeddings), dtype=torch.long)).item() == pytest.approx(0, abs=1e-12)


def test_queries_without_positives_are_nan_and_leave_the_gradient_finite():
    scores, relevance = rankings()
    relevance[1] = False
    for function in (sup_ap, soft_bin_ap):
        leaf = scores.clone().requires_grad_()
        values = function(leaf, relevance)
        assert values.isnan().tolist() == [False, True, False, False, False, False]
        values[~values.isnan()].sum().backward()
        assert leaf.grad.isfinite().all() and (leaf.grad[1] == 0).all()


def test_roadmap_is_the_weighted_sum_of_its_parts():
    embeddings, labels = batch()
    loss = ROADMAPLoss(sup_ap_weight=0.25, calibration_weight=2.0, offset=1.44, include_query=True)
    parts = 0.25 * SupAPLoss(offset=1.44, include_query=True)(embeddings, labels) + 2 * CalibrationLoss()(
        embeddings, labels
    )
    torch.testing.assert_close(loss(embeddings, labels), parts)


# --------------------------------------------------------------------------------------------------------------------
# dtypes

@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes(dtype):
    scores, relevance = rankings(dtype=dtype)
    kept = torch.float64 if dtype == torch.float64 else torch.float32
    for function in (sup_ap, soft_bin_ap, calibration_loss):
        value = function(scores, relevance)
        assert value.dtype == kept
        torch.testing.assert_close(value.double(), function(scores.double(), relevance), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES, ids=names)
def test_under_autocast(loss):
    embeddings, labels = batch(dtype=torch.float32)
    want = loss()(embeddings, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = loss()(embeddings, labels)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, want)


@pytest.mark.cuda
@pytest.mark.parametrize("loss", LOSSES, ids=names)
def test_cuda_agrees_with_the_cpu(loss):
    embeddings, labels = batch(images=60, classes=9)
    values = []
    for device in ("cpu", "cuda"):
        leaf = embeddings.to(device).detach().requires_grad_()
        value = loss()(leaf, labels.to(device))
        value.backward()
        values.append((value.detach().cpu(), leaf.grad.cpu()))
    for a, b in zip(*values):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.cuda
def test_csl_on_cuda():
    labels = torch.tensor([[0, 0], [0, 1], [1, 2], [1, 3]])
    loss, embeddings = CSLLoss(labels, 5), batch(4)[0].float()
    torch.testing.assert_close(loss.cuda()(embeddings.cuda(), labels.cuda()).cpu(), loss.cpu()(embeddings, labels))


# --------------------------------------------------------------------------------------------------------------------
# CSL

def test_csl_loss_takes_any_class_numbers_and_prefix_levels():
    # fine numbers repeat across groups: only a whole prefix counts
    classes = torch.tensor([[7, 3], [7, 9], [2, 3], [2, 9]])
    loss = CSLLoss(classes, 6).double()
    assert loss.margins == pytest.approx((0.45, 0.25))
    embeddings = batch(5, dim=6)[0]
    labels = classes[torch.tensor([3, 0, 0, 2, 1])]
    levels = torch.tensor([[0, 0, 1, 2], [2, 1, 0, 0], [2, 1, 0, 0], [0, 0, 2, 1], [1, 2, 0, 0]])
    rows, proxies = (torch.nn.functional.normalize(x, dim=1) for x in (embeddings, loss.proxies))
    torch.testing.assert_close(
        loss(embeddings, labels), csl_loss(rows @ proxies.T, levels, loss.margins, loss.scale).mean()
    )
    loss(embeddings.requires_grad_(), labels).backward()
    assert embeddings.grad.isfinite().all() and loss.proxies.grad.abs().sum() > 0


def test_csl_with_one_group_has_a_finite_gradient():
    "All classes share the coarse label: that level has no negatives."
    classes = torch.tensor([[0, 0], [0, 1], [0, 2]])
    loss = CSLLoss(classes, 4)
    embeddings = batch(3, dim=4, dtype=torch.float32)[0].requires_grad_()
    loss(embeddings, classes).backward()
    assert embeddings.grad.isfinite().all() and embeddings.grad.abs().sum() > 0


def test_csl_ignores_references_and_offers_its_proxies_to_an_optimiser():
    classes = torch.tensor([[0, 0], [0, 1]])
    loss, embeddings = CSLLoss(classes, 4), batch(2, dim=4, dtype=torch.float32)[0]
    with_references = loss(embeddings, classes, ref_emb=embeddings, ref_labels=classes, query_index=torch.arange(2))
    assert torch.equal(with_references, loss(embeddings, classes))
    assert loss.parameter_group(lr=10.0) == {"params": [loss.proxies], "lr": 10.0}


def test_csl_margins_follow_the_published_ones():
    assert CSLLoss(torch.tensor([[0, 0, 0], [0, 0, 1]]), 4).margins == pytest.approx((0.45, 0.35, 0.25))
    assert CSLLoss(torch.tensor([0, 1]), 4).margins == pytest.approx((0.45,))


# ---------------------------------------------------------------------------------------------------------------------
# bad input

@pytest.mark.parametrize(
    "setting, message",
    [
        ({"tau": 0.0}, "tau must be a finite number above 0"),
        ({"tau": float("nan")}, "tau"),
        ({"delta": -0.1}, "delta"),
        ({"rho": -1.0}, "rho must be a finite number from 0 up"),
        ({"rho": float("inf")}, "rho must be a finite number"),
        ({"offset": float("nan")}, "offset must be a finite number"),
        ({"start": "half"}, "start must be a finite number"),
        ({"ties": "min"}, "ties must be one of 'average', 'max'"),
    ],
    ids=str,
)
def test_settings_of_sup_ap_are_checked(setting, message):
    scores, relevance = rankings()
    with pytest.raises(ValueError, match=message):
        sup_ap(scores, relevance, **setting)
    for loss in (SupAPLoss, ROADMAPLoss):
        with pytest.raises(ValueError, match=message):
            loss(**setting)


@pytest.mark.parametrize("function", [sup_ap, soft_bin_ap, calibration_loss])
def test_scores_and_relevance_are_checked(function):
    scores, relevance = rankings()
    with pytest.raises(TypeError, match="relevance must be a bool tensor"):
        function(scores, relevance.long())
    with pytest.raises(ValueError, match="they must be equal"):
        function(scores, relevance[:, :-1])
    with pytest.raises(TypeError, match="scores must be a torch.Tensor"):
        function(scores.numpy(), relevance)
    with pytest.raises(ValueError, match="NaN or infinity in 1 of 6 rows, first in row 2"):
        function(
            scores.index_put((torch.tensor(2), torch.tensor(3)), torch.tensor(math.nan, dtype=scores.dtype)), relevance
        )


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: SoftBinAPLoss(1), "centres must be at least 2"),
        (lambda: SoftBinAPLoss(20.0), "centres must be a whole number"),
        (lambda: CalibrationLoss(pos_margin=math.inf), "pos_margin must be a finite number"),
        (lambda: CalibrationLoss(neg_margin=None), "neg_margin"),
        (lambda: ROADMAPLoss(calibration_weight=-1), "calibration_weight must be at least 0"),
        (lambda: ROADMAPLoss(sup_ap_weight=math.nan), "sup_ap_weight"),
        (lambda: CSLLoss(torch.tensor([[0, 1], [0, 1]]), 4), "2 rows, 1 of them different"),
        (lambda: CSLLoss(torch.tensor([[0, 1]]), 0), "dim must be a whole number"),
        (lambda: CSLLoss(torch.tensor([[0, 1], [0, 2]]), 4, margins=(0.3,)), "1 margins and 2 levels"),
        (lambda: CSLLoss(torch.tensor([[0, 1], [0, 2]]), 4, margins=()), "margins are empty"),
        (lambda: CSLLoss(torch.tensor([0, 1]), 4, scale=0), "scale"),
    ],
)
def test_settings_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_csl_inputs_are_checked():
    classes = torch.tensor([[0, 0], [0, 1]])
    loss, embeddings = CSLLoss(classes, 4), batch(2, dim=4)[0].float()
    with pytest.raises(ValueError, match=r"labels hold \[0, 7\], which is not among the 2 class_labels"):
        loss(embeddings, torch.tensor([[0, 0], [0, 7]]))
    with pytest.raises(ValueError, match="indices_tuple is not used: every embedding is compared with every proxy"):
        loss(embeddings, classes, (torch.tensor([0]),) * 3)
    with pytest.raises(ValueError, match="dimensions, the proxies have 4"):
        loss(torch.randn(2, 3), classes)
    with pytest.raises(ValueError, match="labels have 3 levels, class_labels have 2"):
        loss(embeddings, torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(TypeError, match="class_labels must be integers"):
        CSLLoss(torch.rand(3, 2), 4)
    with pytest.raises(ValueError, match="levels reach 2, but there are 1 margins"):
        csl_loss(torch.rand(1, 2), torch.tensor([[2, 0]]), (0.3,))
    with pytest.raises(TypeError, match="levels must be a tensor of integers"):
        csl_loss(torch.rand(1, 2), torch.rand(1, 2), (0.3,))
    with pytest.raises(ValueError, match="levels have shape"):
        csl_loss(torch.rand(1, 2), torch.zeros(1, 3, dtype=torch.long), (0.3,))


@pytest.mark.parametrize("loss", LOSSES, ids=names)
def test_a_miner_is_refused(loss):
    embeddings, labels = batch()
    with pytest.raises(ValueError, match="no pairs to mine"):
        loss()(embeddings, labels, (torch.tensor([0]),) * 4)


def test_calibration_module_follows_the_function_on_a_batch_without_positives():
    "A loss of pairs: where no image has a partner, the negatives still have a scale."
    embeddings = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows, labels = torch.nn.functional.normalize(embeddings, dim=1), torch.arange(6)
    itself = torch.eye(6, dtype=torch.bool)
    others = (rows @ rows.T)[~itself].view(6, 5)
    expected = calibration_loss(others, torch.zeros(6, 5, dtype=torch.bool))
    assert expected > 0
    torch.testing.assert_close(CalibrationLoss()(embeddings, labels), expected)
    torch.testing.assert_close(ROADMAPLoss()(embeddings, labels), expected)
    torch.testing.assert_close(
        CalibrationLoss()(embeddings, labels, ref_emb=embeddings, ref_labels=labels, query_index=labels), expected
    )
