"""A sort on a CPU keeps equal values in order; on a card it need not. What rests on the order must ask for it
(`stable=True`), and nothing else may depend on it: so the losses and metrics are computed with sorts that turn equal
values around.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from benchmarks.gpu_rows import every_loss
from smoothap_nb import SmoothAPLoss, evaluate

SORT, TOPK = torch.sort, torch.topk


def turned(values: torch.Tensor, dim: int, descending: bool):
    "A correct sort that puts the later of two equal values first."
    found = SORT(values.flip(dim), dim=dim, descending=descending, stable=True)
    return torch.return_types.sort((found.values, values.shape[dim] - 1 - found.indices))


def install(patch, heeds: bool) -> None:
    "Sorts that are stable where they are asked to be (`heeds`), or never."

    def sort(values, dim=-1, descending=False, stable=False):
        if stable and heeds:
            return SORT(values, dim=dim, descending=descending, stable=True)
        return turned(values, dim, descending)

    def argsort(values, dim=-1, descending=False, stable=False):
        return sort(values, dim, descending, stable).indices

    def topk(values, k, dim=-1, largest=True, sorted=True):
        found = turned(values, dim, largest)
        return torch.return_types.topk((found.values.narrow(dim, 0, k), found.indices.narrow(dim, 0, k)))

    for owner in (torch, torch.Tensor):
        for name, stand_in in (("sort", sort), ("argsort", argsort), ("topk", topk)):
            patch.setattr(owner, name, stand_in)


@pytest.fixture
def unstable(monkeypatch):
    "A card's sorts."
    install(monkeypatch, heeds=True)


def batch(classes: int = 28, images: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    "Rows in double precision, some of them twice, and labels of two levels: every query has as many positives."
    fine = torch.arange(classes).repeat_interleave(images)
    generator = torch.Generator().manual_seed(0)
    rows = (
        torch.randn(len(fine), 16, generator=generator).double() + torch.randn(classes, 16, generator=generator)[fine]
    )
    rows[5::9] = rows[4::9][: len(rows[5::9])]  # ties
    return F.normalize(rows, dim=1), torch.stack([fine % 7, fine], 1)


def values(loss, rows, labels):
    torch.manual_seed(0)
    leaf = rows.clone().requires_grad_()
    value = loss(leaf, labels if getattr(loss, "hierarchical", False) else labels[:, -1])
    value.backward()
    return value.detach(), leaf.grad


CALM = {name: values(loss.double(), *batch()) for name, loss in every_loss(28, 16).items()}


@pytest.mark.parametrize("name", CALM)
def test_no_loss_rests_on_the_order_of_equal_values(name, unstable):
    for ours, wanted in zip(values(every_loss(28, 16)[name].double(), *batch()), CALM[name]):
        torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-12)


def test_the_closed_form_asks_for_a_stable_order_of_rows(monkeypatch):
    """Where all queries have as many positives, a block's rows are taken as one slice, so the sort by counts must
    leave them in place. Sorts that do not heed the asking move the gradient to other rows: this test would notice.
    """
    install(monkeypatch, heeds=False)
    gradient = values(SmoothAPLoss().double(), *batch())[1]
    assert not torch.allclose(gradient, CALM["Smooth-AP"][1], rtol=1e-2, atol=1e-4)


NAMES = ("mAP", "R@1", "R@10", "mAP@R", "AP@level1", "H-AP", "ASI", "NDCG")
MEASURED = {
    ties: evaluate(*batch(), metrics=NAMES, ties=ties, engine="torch", progress=False) for ties in ("max", "min")
}


@pytest.mark.parametrize("ties", MEASURED)
def test_no_metric_rests_on_the_order_of_equal_scores(ties, unstable):
    found = evaluate(*batch(), metrics=NAMES, ties=ties, engine="torch", progress=False)
    assert found == pytest.approx(MEASURED[ties], abs=1e-12)
