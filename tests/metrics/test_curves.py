"Precision against recall: against the definition, scikit-learn, and AP as its area."

import numpy as np
import pytest
import torch

from smoothap_nb import average_precision, precision_recall_curve


@pytest.mark.parametrize("ties", ["max", "min", "average"])
def test_the_mean_of_the_precisions_is_ap(ties):
    generator = torch.Generator().manual_seed(0)
    scores, relevance = (
        torch.randint(0, 6, (40, 25), generator=generator).double(),
        torch.rand(40, 25, generator=generator) < 0.2,
    )
    recall, precision = precision_recall_curve(scores, relevance, ties)
    np.testing.assert_allclose(precision.nanmean(1), average_precision(scores, relevance, ties), atol=1e-12)
    found = relevance.sum(1)
    assert torch.equal((~recall.isnan()).sum(1), found)
    assert all(row[n - 1] == 1 for row, n in zip(recall, found.tolist()) if n)


def test_by_hand():
    "Positives at ranks 1, 3, 4 and 8 of toy A."
    scores = torch.tensor([[0.9, 0.7, 0.6, 0.2, 0.8, 0.5, 0.4, 0.3]])
    recall, precision = precision_recall_curve(scores, torch.tensor([[True] * 4 + [False] * 4]))
    assert recall.tolist() == [[0.25, 0.5, 0.75, 1]]
    torch.testing.assert_close(precision, torch.tensor([[1, 2 / 3, 3 / 4, 1 / 2]]))


def test_ties_do_not_depend_on_the_order_of_the_gallery():
    scores, relevance = torch.tensor([[0.5, 0.5, 0.5, 0.1]]), torch.tensor([[True, False, False, True]])
    for ties, first in (("max", 1 / 3), ("min", 1.0), ("average", 1 / 2)):
        for order in ([0, 1, 2, 3], [2, 1, 0, 3], [3, 1, 2, 0]):
            precision = precision_recall_curve(scores[:, order], relevance[:, order], ties)[1]
            assert precision[0].tolist() == pytest.approx([first, 1 / 2])


def test_scikit_learn_passes_through_the_same_points():
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(1)
    scores, relevance = torch.rand(1, 60, generator=generator).double(), torch.rand(1, 60, generator=generator) < 0.3
    recall, precision = precision_recall_curve(scores, relevance)
    theirs = metrics.precision_recall_curve(relevance[0].numpy(), scores[0].numpy())
    points = set(zip(theirs[1].round(9).tolist(), theirs[0].round(9).tolist()))
    assert set(zip(recall[0].numpy().round(9).tolist(), precision[0].numpy().round(9).tolist())) <= points


def test_no_positive_gives_an_empty_curve_and_bad_input_is_named():
    recall, precision = precision_recall_curve(torch.rand(2, 3), torch.zeros(2, 3, dtype=torch.bool))
    assert recall.shape == precision.shape == (2, 0)
    with pytest.raises(ValueError, match="ties must be one of"):
        precision_recall_curve(torch.rand(2, 3), torch.zeros(2, 3, dtype=torch.bool), "worst")
