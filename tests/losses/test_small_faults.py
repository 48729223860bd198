"Small faults that the other tests of the losses did not notice: bounds, schedules, draws, and refusals of parts."

import math

import pytest
import torch
from torch import nn

from smoothap_nb import StepSettings, fast_ap
from smoothap_nb.losses import sorters
from smoothap_nb.losses.peers import network_ranks, soft_sort_ranks, transport_ranks
from smoothap_nb.losses.sorters import GENERATORS, train_sorter

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
