"The network that a student's own loss trains learns, is the same each time, and refuses a loss without gradient."

import matplotlib

matplotlib.use("agg")
import pytest
import torch

from smoothap_nb import smooth_ap, workshop


def objective(scores, relevance):
    return smooth_ap(scores, relevance, 0.05).nanmean()


@pytest.mark.slow
def test_a_loss_of_ones_own_teaches_the_network(monkeypatch):
    monkeypatch.delenv("SMOOTHAP_GRADING", raising=False)
    run = workshop.train_with(objective, steps=60, measured=3)
    assert run.steps == [1, 31, 60] and len(run.objective) == len(run.map) == 3
    assert run.map[-1] > 1.5 * run.map[0] and run.objective[-1] > run.objective[0]
    again = [workshop.train_with(objective, steps=4, measured=2).objective for _ in range(2)]
    assert again[0] == again[1]
    figure = workshop.look_at(run, queries=(0, 7), length=5)
    assert len(figure.axes) == 1 + 2 * 6 and figure.axes[0].get_xlabel() == "steps"


def test_while_a_set_is_graded_the_training_is_cut_short(monkeypatch):
    monkeypatch.setenv("SMOOTHAP_GRADING", "1")
    assert workshop.train_with(objective, steps=5000).steps == [1, 2]


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda s, r: smooth_ap(s, r, 0.05), "one number"),
        (lambda s, r: s.sum().item(), "one number"),
        (lambda s, r: s.detach().sum(), "lost its graph"),
        (lambda s, r: s.sum() * float("nan"), "nan"),
    ],
)
def test_an_objective_that_cannot_teach_is_told_why(wrong, words):
    with pytest.raises(ValueError, match=words):
        workshop.train_with(wrong, steps=3, measured=2)


def test_the_network_gives_rows_of_length_one():
    rows = workshop.embed(workshop.Small(), torch.rand(3, 1, 16, 16))
    assert torch.allclose(rows.norm(dim=1), torch.ones(3), atol=1e-5) and rows.shape == (3, 32)


def test_levels_count_what_two_pictures_share():
    labels = torch.tensor([[0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]])
    rows, seen = torch.eye(5, requires_grad=True), []

    def sees(scores, relevance):
        seen.append(relevance[0].tolist())
        return scores.sum()

    for levels in (True, False):
        workshop.objective_of(sees, rows, labels, levels)
    assert seen == [[3, 2, 1, 0], [True, False, False, False]]


def test_two_teachers_are_drawn_side_by_side():
    ends = {"mine": 0.5, "theirs": 0.4}
    runs = {name: workshop.Trained(None, [1, 9], [0.0, 0.0], [0.1, end], [0.2, end]) for name, end in ends.items()}
    characters, families = workshop.side_by_side(runs).axes
    assert [line.get_label() for line in characters.lines] == ["mine", "theirs"]
    assert characters.lines[0].get_xydata().tolist() == [[1, 0.1], [9, 0.5]]
    assert families.lines[1].get_xydata().tolist() == [[1, 0.2], [9, 0.4]]
