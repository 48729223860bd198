"Small faults that the other tests of the losses did not notice: bounds, schedules, draws, and refusals of parts."

import inspect
import math

import pytest
import torch
from torch import nn

from smoothap_nb import ClusterLoss, EmbeddingMemory, RankingLoss, SmoothAPLoss, StepSettings, blackbox_ap, fast_ap
from smoothap_nb.losses import beyond_ap, counting, sorters
from smoothap_nb.losses.contrast import hardest_triplet
from smoothap_nb.losses.long_lists import find_positives
from smoothap_nb.losses.peers import network_ranks, soft_sort_ranks, transport_ranks
from smoothap_nb.losses.sorters import GENERATORS, train_sorter
from smoothap_nb.losses.weights import write_weights
from smoothap_nb.similarity import SelfScores

RELEVANCE = torch.tensor([[True, False, False]])


@pytest.mark.parametrize("sign", [1, -1])
def test_cosines_may_leave_their_range_by_a_hundredth(sign):
    "Rounding of half precision is let through; what is no cosine is not."
    at, beyond, far = (torch.tensor([[0.5, 0.2, sign * top]]) for top in (1.0, 1.009, 1.02))
    torch.testing.assert_close(fast_ap(beyond, RELEVANCE), fast_ap(at, RELEVANCE))
    with pytest.raises(ValueError, match="cosine similarities"):
        fast_ap(far, RELEVANCE)


class Guess(nn.Module):
    "A sorter that keeps what it is shown."

    def __init__(self):
        super().__init__()
        self.scale, self.seen = nn.Parameter(torch.tensor(3.0)), []

    def forward(self, scores):
        self.seen.append(scores.shape)
        return self.scale * 1000 * scores


def test_the_rate_of_a_sorters_training_falls_along_a_cosine(monkeypatch):
    rates, norms, step = [], [], torch.optim.Adam.step

    def noted(self, *rest):
        rates.append(self.param_groups[0]["lr"])
        norms.append(self.param_groups[0]["params"][0].grad.norm().item())
        return step(self, *rest)

    monkeypatch.setattr(torch.optim.Adam, "step", noted)
    told = list(train_sorter(Guess(), lengths=(4, 4), batch=3, lr=0.4, steps=8))
    assert [n for n, _ in told] == list(range(1, 9))
    assert rates == pytest.approx([0.2 * (1 + math.cos(math.pi * done / 8)) for done in range(8)])
    assert max(norms) <= 1 + 1e-6  # a steep loss: clipped


def test_a_sorters_lists_have_all_lengths_inclusive():
    guess = Guess()
    list(train_sorter(guess, lengths=(3, 5), batch=2, steps=60))
    assert {shape[1] for shape in guess.seen} == {3, 4, 5} and {shape[0] for shape in guess.seen} == {2}


def test_a_joined_list_begins_with_its_first_generator():
    "The place of the change is drawn from 1 to the length: the first score is always the first generator's."
    generator = torch.Generator().manual_seed(0)
    lists = GENERATORS["uniform, normal"][0](4000, 2, generator)
    assert lists[:, 0].abs().max() <= 1
    share = (lists[:, 1].abs() > 1).double().mean().item()  # half of the lists, and of these 32 in 100
    assert 0.12 < share < 0.20


def test_the_shares_of_the_mixture_are_the_authors():
    assert {name: share for name, (_, share) in GENERATORS.items()} == {
        "uniform": 0.3, "normal": 0.1, "steps": 0.1, "shuffled": 0.1, "grid": 0.1, "uniform, normal": 0.2,
        "shuffled, uniform": 0.1,
    }  # fmt: skip
    assert sorters.GENERATORS["grid"][0](1, 4, None).tolist() == [[-1.0, -0.5, 0.0, 0.5]]


@pytest.mark.parametrize("call, name", [
    (lambda: soft_sort_ranks(torch.zeros(1, 4), tau=0), "tau"),
    (lambda: network_ranks(torch.zeros(1, 4), steepness=0), "steepness"),
    (lambda: transport_ranks(torch.zeros(1, 4), epsilon=0), "epsilon"),
    (lambda: transport_ranks(torch.zeros(1, 4), rounds=0), "rounds"),
])
def test_settings_of_the_peers_are_named(call, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        call()


@pytest.mark.parametrize("name, bad", [
    ("tau", 0), ("rho", -1), ("delta", -1), ("offset", math.nan), ("start", math.nan), ("leak", -1), ("slope", -1),
    ("intercept", math.inf),
])
def test_constants_of_a_step_are_named(name, bad):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        StepSettings(**{name: bad})


@pytest.mark.parametrize("dim", [4, 400])
def test_proxies_begin_within_one_over_the_root_of_their_length(dim):
    torch.manual_seed(0)
    proxies = ClusterLoss(50, dim).proxies.detach() * dim**0.5
    assert proxies.abs().max() <= 1 and proxies.min() < -0.9 and proxies.max() > 0.9 and abs(proxies.mean()) < 0.2


def test_no_block_of_competitors_is_larger_than_it_may_be(monkeypatch):
    monkeypatch.setattr(beyond_ap, "BLOCK", 300)
    scores = torch.randn(20, 15, generator=torch.Generator().manual_seed(0))
    positives, sizes = find_positives(torch.arange(15).expand(20, 15) < 4), []

    def step(gaps):
        sizes.append(gaps.numel())
        return gaps.sigmoid()

    found = beyond_ap.count_ahead_of_positives(step, scores, positives)
    assert sizes == [300] * 4
    torch.testing.assert_close(found, (scores[:, None, :] - scores[:, :4, None]).sigmoid().sum(2))


def test_long_lists_on_a_cpu_take_the_compiled_walk(monkeypatch):
    taken, walk = [], counting.compiled_walk()
    monkeypatch.setattr(counting, "LONG", 1)
    monkeypatch.setattr(counting, "compiled_walk", lambda: lambda *given: (taken.append(1), walk(*given)))
    scores = torch.randn(2, 50, generator=torch.Generator().manual_seed(0), requires_grad=True)
    blackbox_ap(scores, torch.arange(50).expand(2, 50) < 3).sum().backward()
    fast, scores.grad = scores.grad, None
    assert taken
    monkeypatch.setattr(counting, "LONG", 10**9)
    blackbox_ap(scores, torch.arange(50).expand(2, 50) < 3).sum().backward()
    torch.testing.assert_close(scores.grad, fast)


def test_defaults_of_parts_that_are_not_public():
    assert inspect.signature(hardest_triplet).parameters["margin"].default == 0.2
    assert [step for step, _ in train_sorter(Guess(), lengths=(1, 1), batch=2, steps=2)] == [1, 2]  # the shortest lists


def test_the_diagonal_that_is_left_out_gets_no_gradient():
    rows = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    push = torch.rand(5, 5, dtype=torch.float64)  # on the diagonal too
    (found,) = torch.autograd.grad(SelfScores.apply(rows, True), rows, push)
    both = push + push.T
    torch.testing.assert_close(found, (both - both.diag().diag()) @ rows)


def test_a_loss_behind_pml_computes_in_full_precision_within_autocast():
    PMLLoss = pytest.importorskip("smoothap_nb.losses.pml").PMLLoss

    class Squares(RankingLoss):
        def query_losses(self, scores, target):
            scores = scores.masked_fill(scores.isinf(), 0)
            return (scores @ scores.T).diagonal()  # a product, which autocast would round

    rows, labels = torch.randn(8, 4), torch.arange(4).repeat_interleave(2)
    loss = PMLLoss(Squares())
    wanted = loss(rows, labels)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loss(rows, labels), wanted)


def test_an_empty_memory_takes_the_state_of_an_empty_memory():
    state = EmbeddingMemory(SmoothAPLoss(), 4).state_dict()
    assert state["embeddings"].shape == (0, 0) and state["labels"].shape == (0,)


def test_tensors_of_a_weights_file_begin_at_a_multiple_of_eight(tmp_path):
    for facts in ({}, *({"told": "x" * n} for n in range(8))):
        write_weights(tmp_path / "w.safetensors", {"a": torch.arange(3.0)}, facts)
        assert int.from_bytes((tmp_path / "w.safetensors").read_bytes()[:8], "little") % 8 == 0
