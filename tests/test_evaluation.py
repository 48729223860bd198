"Dataset-level metrics against their definitions written out in plain Python."

import naive_metrics as naive
import numpy as np
import pytest
import torch

from smoothap_nb import evaluate

KS = (1, 3)


def exact_rows(count: int, dim: int, generator: torch.Generator) -> torch.Tensor:
    "Rows whose products are exact in float32, with many ties."
    return torch.randint(-2, 3, (count, dim), generator=generator).float()


@pytest.mark.parametrize("engine", ["torch", "numba"])
@pytest.mark.parametrize("ties", ["max", "min", "average"])
@pytest.mark.parametrize("seed", range(4))
def test_every_metric_follows_its_definition(seed, ties, engine):
    generator = torch.Generator().manual_seed(seed)
    rows, depth = exact_rows(26, 3, generator), 1 + seed % 3
    labels = torch.randint(0, 3, (26, depth), generator=generator)
    names = ["mAP", "mAP@R", "R-precision", "H-AP", *(f"AP@level{n}" for n in range(1, depth + 1)), *(f"{a}@{k}" for a in "RP" for k in KS)]
    found = evaluate(rows, labels, metrics=names, ties=ties, normalize=False, per_query=True, alpha=2.0, engine=engine)["per_query"]
    scores = (rows @ rows.T).tolist()
    for q in range(len(rows)):
        others = [j for j in range(len(rows)) if j != q]
        s, levels = [scores[q][j] for j in others], naive.levels_between(labels[q].tolist(), [labels[j].tolist() for j in others])
        wanted = naive.cutoff_metrics(s, levels, depth, ties, KS)
        wanted |= {f"AP@level{n}": naive.average_precision(s, levels, n, ties) for n in range(1, depth + 1)}
        wanted |= {"mAP": wanted[f"AP@level{depth}"], "H-AP": naive.hierarchical_ap(s, levels, naive.relevance_by_alpha(levels, depth, 2.0), ties)}
        for name in names:
            assert found[name][q] == pytest.approx(wanted[name], abs=1e-12, nan_ok=True), (name, q)


def test_means_leave_out_queries_without_positives():
    found = evaluate(torch.eye(3)[[0, 0, 1]], torch.tensor([7, 7, 8]), metrics=("mAP", "R@1"), per_query=True)
    assert found["mAP"] == found["R@1"] == 1.0 and found["queries_skipped"] == 1
    assert np.isnan(found["per_query"]["mAP"][2])
