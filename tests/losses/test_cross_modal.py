"Losses between two galleries: worked numbers, gradients both ways, independent loops, two processes, bad input."

import math

import pytest
import torch

from smoothap_nb.losses.contrast import (
    SETTINGS,
    contributing_samples,
    hardest_triplet,
    nt_xent,
    push_weights,
    triplet,
)
from smoothap_nb.losses.cross_modal import LOSSES, CrossModalLoss
from smoothap_nb.metrics.two_galleries import relevance_from_ids

S = torch.tensor([[0.6, 0.5, 0.55, 0.1], [0.2, 0.65, 0.7, 0.4]], dtype=torch.float64)  # two pictures, two captions each
R = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1]]).bool()


def towers(images=5, texts=9, dim=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    make = lambda n: torch.randn(n, dim, generator=g, dtype=torch.float64).requires_grad_()
    relevance = torch.rand(images, texts, generator=g) < 0.3
    relevance[0], relevance[1, :2], relevance[:, -1] = (
        False,
        True,
        False,
    )  # a picture without captions, a caption without a picture
    return make(images), make(texts), relevance


def loops(name, scores, relevance, tau=0.1, margin=0.2):
    "The definitions, one query at a time."
    out = []
    for s, r in zip(scores.tolist(), relevance.tolist()):
        positive, negative = [x for x, y in zip(s, r) if y], [x for x, y in zip(s, r) if not y]
        cost = {
            "triplet": lambda p: sum(max(0, margin + n - p) for n in negative),
            "hardest_triplet": lambda p: max([max(0, margin + n - p) for n in negative], default=0),
            "nt_xent": lambda p: (
                -math.log(math.exp(p / tau) / (math.exp(p / tau) + sum(math.exp(n / tau) for n in negative)))
            ),
            "smooth_ap": lambda p: (
                1
                - (lambda a: a / (a + sum(1 / (1 + math.exp(-(n - p) / tau)) for n in negative)))(
                    0.5 + sum(1 / (1 + math.exp(-(x - p) / tau)) for x in positive)
                )
            ),
        }[name]
        out.append(sum(map(cost, positive)) / len(positive) if positive else math.nan)
    return torch.tensor(out, dtype=torch.float64)


@pytest.mark.parametrize("tau, value", [(0.01, 0.147310), (0.1, 0.223270)])
def test_image_caption_loss_of_the_worked_example(tau, value):
    "Scores are given, not embeddings: the two directions are put together by hand."
    loss = CrossModalLoss("smooth_ap", tau=tau)
    both = 0.5 * loss.query_losses(S, R).mean() + 0.5 * loss.query_losses(S.T, R.T).mean()
    assert float(both) == pytest.approx(value, abs=5e-7)


@pytest.mark.parametrize("name", LOSSES)
def test_loss_equals_its_definition(name):
    images, texts, relevance = towers()
    images, texts = (torch.nn.functional.normalize(x.detach()) for x in (images, texts))
    settings = {"tau": 0.1} if "tau" in SETTINGS[name] else {"margin": 0.2}
    loss = CrossModalLoss(name, 0.25, **settings)
    scores = images @ texts.T
    forth, back = loops(name, scores, relevance), loops(name, scores.T, relevance.T)
    torch.testing.assert_close(loss.query_losses(scores, relevance), forth, equal_nan=True)
    torch.testing.assert_close(loss(images, texts, relevance), 0.25 * forth.nanmean() + 0.75 * back.nanmean())


def test_triplets_are_those_of_vse_up_to_their_factor():
    "VSE++ sums over a batch with one caption per picture; ours is the mean of both directions: 2 B times less."
    g = torch.Generator().manual_seed(1)
    im, s = (torch.nn.functional.normalize(torch.randn(6, 4, generator=g, dtype=torch.float64)) for _ in range(2))
    scores, ids = im @ s.T, torch.arange(6)
    for name, reduce in (("triplet", lambda c: c.sum(1)), ("hardest_triplet", lambda c: c.amax(1))):
        total = 0.0
        for table in (scores, scores.T):
            cost = (0.2 + table - table.diag()[:, None]).clamp(min=0).fill_diagonal_(0)
            total += float(reduce(cost).sum())
        assert float(CrossModalLoss(name)(im, s, image_ids=ids)) * 12 == pytest.approx(total)


def test_nt_xent_with_one_positive_is_cross_entropy():
    g = torch.Generator().manual_seed(2)
    scores = torch.rand(7, 7, generator=g, dtype=torch.float64)
    want = torch.nn.functional.cross_entropy(scores / 0.07, torch.arange(7), reduction="none")
    torch.testing.assert_close(nt_xent(scores, torch.eye(7).bool(), 0.07), want)


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_of_both_towers(name):
    images, texts, relevance = towers()
    settings = {"tau": 0.3} if "tau" in SETTINGS[name] else {"margin": 0.2}
    loss = CrossModalLoss(name, **settings)
    assert torch.autograd.gradcheck(lambda a, b: loss(a, b, relevance), (images, texts))
    assert torch.autograd.gradcheck(
        lambda a, b: CrossModalLoss(name, 0.0, **settings)(a, b, relevance), (images, texts)
    )


@pytest.mark.parametrize("name", LOSSES)
def test_weights_are_the_gradient_by_the_negatives(name):
    _, _, relevance = towers(images=8, texts=12)
    scores = torch.randn(8, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    tau = {"smooth_ap": 0.4, "nt_xent": 0.5}.get(name)
    loss = CrossModalLoss(name, **({"tau": tau} if tau else {}))
    (found,) = torch.autograd.grad(loss.query_losses(scores, relevance).nansum(), scores)
    weights, query = push_weights(scores, relevance, name, **({"tau": tau} if tau else {}))
    mine = (
        torch.zeros_like(scores).index_add(0, query, weights) / relevance.sum(1, keepdim=True).clamp(min=1) / (tau or 1)
    )
    torch.testing.assert_close(mine[~relevance], found[~relevance])
    assert (weights[relevance[query]] == 0).all()


def test_contributing_samples_by_hand():
    scores, relevance = torch.tensor([[0.5, 0.45, 0.2, 0.9]]), torch.tensor([[True, False, False, True]])
    # margin .2: only 0.45 comes within .2 of 0.5; nothing comes within .2 of 0.9
    assert contributing_samples(scores, relevance, "triplet") == {"negatives": 0.5, "without": 0.5, "effective": 1.0}
    wide = contributing_samples(scores, relevance, "triplet", margin=0.4)  # 0.45 and 0.2 for 0.5, and 0.45 misses 0.9
    assert wide == {"negatives": 1.0, "without": 0.5, "effective": 2.0}
    one = contributing_samples(scores, relevance, "hardest_triplet", margin=0.5)
    assert one == {"negatives": 1.0, "without": 0.0, "effective": 1.0}
    reach = contributing_samples(scores, relevance, "smooth_ap", tau=0.05, by_rank=False)
    assert reach["negatives"] == 0.5 and reach["without"] == 0.5
    none = contributing_samples(scores, torch.zeros_like(relevance), "nt_xent")
    assert math.isnan(none["negatives"]) and math.isnan(none["without"])


def test_queries_without_positives_or_negatives():
    images, texts, relevance = towers()
    for name in LOSSES:
        loss = CrossModalLoss(name)
        nothing = loss(images, texts, torch.zeros_like(relevance))
        nothing.backward()
        assert nothing.item() == 0 and images.grad is not None and not images.grad.any()
        everything = loss(images, texts, torch.ones_like(relevance))
        everything.backward()
        assert everything.item() == 0 and torch.isfinite(images.grad).all()
        images.grad = texts.grad = None


def test_permutation_and_own_function():
    images, texts, relevance = (x.detach() for x in towers())
    order = torch.randperm(9, generator=torch.Generator().manual_seed(4))
    loss = CrossModalLoss(lambda scores, relevance: hardest_triplet(scores, relevance, 0.1))
    torch.testing.assert_close(loss(images, texts, relevance), loss(images, texts[order], relevance[:, order]))
    torch.testing.assert_close(
        loss(images, texts, relevance), CrossModalLoss("hardest_triplet", margin=0.1)(images, texts, relevance)
    )


def test_half_precision_and_autocast_are_computed_in_float32():
    images, texts, relevance = (x.detach() for x in towers())
    loss = CrossModalLoss("nt_xent")
    full = loss(images.float(), texts.float(), relevance)
    with torch.autocast("cpu", torch.bfloat16):
        inside = loss(images.float(), texts.float(), relevance)
    assert inside.dtype == torch.float32 and torch.equal(inside, full)
    assert loss(images.bfloat16(), texts.bfloat16(), relevance).dtype == torch.float32


def test_ids_stand_for_relevance():
    images, texts, _ = towers()
    ids = torch.tensor([0, 0, 1, 2, 4, 4, 4, 3, 1])
    relevance = relevance_from_ids(ids, 5, 9)
    assert relevance.sum(0).tolist() == [1] * 9 and relevance[4].nonzero().flatten().tolist() == [4, 5, 6]
    assert torch.equal(CrossModalLoss()(images, texts, relevance), CrossModalLoss()(images, texts, image_ids=ids))


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: CrossModalLoss("clip"), ValueError, "loss must be one of 'smooth_ap'"),
        (lambda: CrossModalLoss(weight=1.5), ValueError, "weight must lie between 0 and 1"),
        (lambda: CrossModalLoss("triplet", tau=0.1), ValueError, "tau is no setting of the loss 'triplet'"),
        (lambda: CrossModalLoss("nt_xent", tau=0), ValueError, "tau must be a finite number above 0"),
        (lambda: triplet(S, R, margin=-1), ValueError, "margin"),
        (lambda: nt_xent(S, R.int()), TypeError, "relevance must be a bool tensor"),
        (lambda: CrossModalLoss()(S, S.T), ValueError, "dimensions"),
        (lambda: CrossModalLoss()(S, S), ValueError, "exactly one of the two"),
        (lambda: CrossModalLoss()(S, S, R, image_ids=torch.tensor([0, 1])), ValueError, "exactly one of the two"),
        (
            lambda: CrossModalLoss()(S, S, image_ids=torch.tensor([0, 2])),
            ValueError,
            "number the pictures of this batch",
        ),
        (lambda: CrossModalLoss()(S, S, image_ids=torch.tensor([0])), ValueError, "one row number per text"),
        (lambda: CrossModalLoss()(S, S, image_ids=torch.tensor([0.0, 1.0])), TypeError, "integers"),
        (lambda: CrossModalLoss()(S[:0], S, torch.zeros(0, 2).bool()), ValueError, "empty"),
        (lambda: push_weights(S, R, "clip"), ValueError, "loss must be one of"),
    ],
)
def test_bad_input_is_named(make, error, words):
    if "dimensions" in words:
        make = lambda: CrossModalLoss()(S, S.T, R)
    with pytest.raises(error, match=words):
        make()


def _process(rank, world, path, out):
    import torch.distributed as dist

    from smoothap_nb.train.large_batches import gather_rows

    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
    try:
        images, texts, relevance = towers(images=4, texts=8, seed=5)
        mine = (
            images.detach().chunk(world)[rank].clone().requires_grad_(),
            texts.detach().chunk(world)[rank].clone().requires_grad_(),
        )
        value = CrossModalLoss("smooth_ap", tau=0.1)(gather_rows(mine[0]), gather_rows(mine[1]), relevance)
        value.backward()
        torch.save((value.detach(), mine[0].grad / world, mine[1].grad / world), f"{out}.{rank}")
        dist.barrier()  # torch 2.6 once left one of the two waiting for ever for the other
    finally:
        dist.destroy_process_group()


def test_two_processes_equal_one(tmp_path):
    import torch.multiprocessing as mp

    mp.spawn(_process, (2, tmp_path / "meet", tmp_path / "out"), nprocs=2)
    images, texts, relevance = towers(images=4, texts=8, seed=5)
    value = CrossModalLoss("smooth_ap", tau=0.1)(images, texts, relevance)
    value.backward()
    parts = [torch.load(f"{tmp_path / 'out'}.{rank}", weights_only=True) for rank in range(2)]
    assert all(torch.equal(part[0], parts[0][0]) for part in parts)
    torch.testing.assert_close(parts[0][0], value.detach())
    torch.testing.assert_close(torch.cat([p[1] for p in parts]), images.grad)
    torch.testing.assert_close(torch.cat([p[2] for p in parts]), texts.grad)
