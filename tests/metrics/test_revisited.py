"""Revisited Oxford/Paris: the judgement against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothap_nb import annotator_vote, average_precision, distractor_scores, evaluate_revisited
from smoothap_nb.metrics.revisited import KINDS, SETUPS, capped_precision, trapezoidal_ap

EXAMPLE = {"easy": [0, 5], "hard": [2], "junk": [1, 3]}


def entry(easy=(), hard=(), junk=(), bbx=(0.0, 0.0, 5.0, 5.0)) -> dict:
    return {"easy": list(easy), "hard": list(hard), "junk": list(junk), "bbx": list(bbx)}


# ---------------------------------------------------------------------------------------------------------------------
# the vote

@pytest.mark.parametrize(
    "answers, verdict",
    [
        ("EEHUU", "E"),
        ("EHUUN", "U"),
        ("HHUNN", "U"),
        ("EEHHN", "H"),
        ("EEEEE", "E"),
        ("NNNEU", "N"),
        ("EUUNN", "U"),
        ("HHHUN", "H"),
        ("E", "E"),
        (["U", "U", "E"], "U"),
        ("EHN", "H"),
    ],
)
def test_annotator_vote(answers, verdict):
    assert annotator_vote(answers) == verdict


@given(st.permutations(list("EEHUN")))
def test_annotator_vote_knows_no_order(answers):
    assert annotator_vote(answers) == annotator_vote("EEHUN")


@pytest.mark.parametrize("answers", ["", "EEX", ["easy"], "eehuu"])
def test_annotator_vote_refuses(answers):
    with pytest.raises(ValueError, match="answers must be letters out of E, H, U, N"):
        annotator_vote(answers)


# ---------------------------------------------------------------------------------------------------------------- the
# judgement

def judge_slowly(order, truth: dict, setup: str, ks=(1, 5, 10)):
    "Delete, look up positions, average: (AP, P@K ...), straight from the words of the protocol."
    positives = {i for kind in SETUPS[setup] for i in truth[kind]}
    ignored = {i for kind in KINDS if kind not in SETUPS[setup] for i in truth[kind]}
    if not positives:
        return [math.nan] * (1 + len(ks))
    kept = [i for i in order if i not in ignored]
    places = [p for p, i in enumerate(kept) if i in positives]
    area = sum(((j / r if r else 1.0) + (j + 1) / (r + 1)) / 2 for j, r in enumerate(places)) / len(positives)
    if not places:
        return [0.0] * (1 + len(ks))
    return [area] + [sum(p < min(places[-1] + 1, k) for p in places) / min(places[-1] + 1, k) for k in ks]


@st.composite
def rankings(draw, cut=True):
    "A gallery, one query's labels in it, and a ranking, perhaps cut short."
    size = draw(st.integers(1, 25))
    images = draw(st.permutations(range(size)))
    cuts = sorted(draw(st.lists(st.integers(0, size), min_size=3, max_size=3)))
    truth = entry(images[:cuts[0]], images[cuts[0]:cuts[1]], images[cuts[1]:cuts[2]])
    order = draw(st.permutations(range(size)))
    return order[:draw(st.integers(1, size))] if cut else order, truth, size


def flat(result: dict) -> list[float]:
    return [value for setup in SETUPS for name, value in result[setup].items() if name != "queries_skipped"]


def test_the_example_of_the_protocol():
    result = evaluate_revisited(ground_truth=[EXAMPLE], ranks=[list(range(10))])
    want = {"easy": (.791667, 1, .6667, .6667), "medium": (.902778, 1, .75, .75), "hard": (1, 1, 1, 1)}
    for setup, numbers in want.items():
        assert [result[setup][k] for k in ("mAP", "mP@1", "mP@5", "mP@10")] == pytest.approx(numbers, abs=5e-5)


def test_trapezoids_are_not_average_precision():
    result = evaluate_revisited(torch.tensor([[2.0, 1.0]]), [entry(easy=[1])])
    assert result["easy"]["mAP"] == 0.25
    assert average_precision(torch.tensor([[2.0, 1.0]]), torch.tensor([[False, True]])).item() == 0.5


@given(rankings())
@settings(max_examples=200, deadline=None)
def test_agrees_with_the_definition(case):
    order, truth, _ = case
    if not truth["easy"] + truth["hard"]:
        return
    result = evaluate_revisited(ground_truth=[truth], ranks=[order])
    for setup in SETUPS:
        want = judge_slowly(order, truth, setup)
        assert [result[setup][k] for k in ("mAP", "mP@1", "mP@5", "mP@10")] == pytest.approx(
            want, abs=1e-12, nan_ok=True
        )


@given(rankings(cut=False))
@settings(max_examples=100, deadline=None)
def test_scores_and_ranks_say_the_same(case):
    order, truth, size = case
    if not truth["easy"] + truth["hard"]:
        return
    scores = torch.empty(1, size)
    scores[0, list(order)] = torch.arange(size, 0, -1).float()
    by_rank = evaluate_revisited(ground_truth=[truth], ranks=[order])
    for ties in ("max", "min", "average"):
        assert flat(evaluate_revisited(scores, [truth], ties=ties)) == pytest.approx(
            flat(by_rank), abs=1e-12, nan_ok=True
        )


@given(rankings(cut=False), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_where_ignored_images_stand_changes_nothing(case, random):
    order, truth, _ = case
    if not truth["easy"] + truth["hard"]:
        return
    for setup, kinds in SETUPS.items():
        ignored = {i for kind in KINDS if kind not in kinds for i in truth[kind]}
        moved = [i for i in order if i not in ignored]
        for image in sorted(ignored):
            moved.insert(random.randint(0, len(moved)), image)
        a, b = (evaluate_revisited(ground_truth=[truth], ranks=[o], per_query=True)[setup] for o in (order, moved))
        assert a["AP"].tolist() == pytest.approx(b["AP"].tolist(), abs=1e-12, nan_ok=True)
        assert a["P@5"].tolist() == pytest.approx(b["P@5"].tolist(), abs=1e-12, nan_ok=True)


@given(rankings(cut=False))
@settings(max_examples=100, deadline=None)
def test_setups_nest_and_trapezoids_stay_below_ap(case):
    order, truth, size = case
    if not truth["easy"] + truth["hard"]:
        return
    result = evaluate_revisited(ground_truth=[truth], ranks=[order])
    if not truth["hard"]:  # Medium without hard images is Easy
        assert result["medium"]["mAP"] == pytest.approx(result["easy"]["mAP"], abs=1e-12)
    if not truth["easy"]:
        assert result["medium"]["mAP"] == pytest.approx(result["hard"]["mAP"], abs=1e-12)
    kept = [i for i in order if i not in truth["junk"]]
    relevance = torch.tensor([[i in truth["easy"] + truth["hard"] for i in kept]])
    plain = average_precision(torch.arange(len(kept), 0, -1)[None].double(), relevance).item()
    assert result["medium"]["mAP"] <= plain + 1e-12
    assert all(0 <= v <= 1 for v in flat(result) if not math.isnan(v))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12))
def test_loss_against_ap_in_closed_form(ahead):
    ahead = sorted(ahead)
    place = [j + a for j, a in enumerate(ahead)]
    plain = sum((j + 1) / (r + 1) for j, r in enumerate(place)) / len(place)
    loss = sum(a / (2 * r * (r + 1)) for a, r in zip(ahead, place) if r) / len(place)
    assert trapezoidal_ap(ahead) == pytest.approx(plain - loss, abs=1e-12)


def test_one_intruder_more_never_helps():
    for n in range(1, 6):
        for where in range(n):
            ahead = np.arange(n, dtype=float)
            worse = ahead.copy()
            worse[where:] += 1
            assert trapezoidal_ap(worse) < trapezoidal_ap(ahead)


def test_precision_is_read_no_deeper_than_the_last_positive():
    assert capped_precision([0, 1], 10) == pytest.approx(2 / 3)
    assert capped_precision([2], 1) == 0
    assert capped_precision([2], 5) == pytest.approx(1 / 3)
    assert capped_precision([math.inf], 5) == 0 and math.isnan(capped_precision([], 5))


def test_ties_are_an_argument():
    scores = torch.tensor([[0.5, 0.5, 0.5, 0.5]])
    got = {
        ties: evaluate_revisited(scores, [entry(easy=[2], junk=[0])], ties=ties)["easy"]["mAP"]
        for ties in ("max", "min", "average")
    }
    assert got["max"] == pytest.approx(1 / 6)  # two negatives stand before it; the ignored image does not count
    assert got["min"] == 1
    assert got["average"] == pytest.approx(0.25)


def test_ties_do_not_depend_on_the_order_of_columns():
    torch.manual_seed(0)
    scores = torch.randint(0, 4, (3, 30)).float()
    truth = [entry([1, 2], [5], [7, 8]), entry([3], [4], []), entry([], [9, 10], [11])]
    turn = torch.randperm(30)
    back = {int(old): new for new, old in enumerate(turn)}
    turned = [{k: [back[i] for i in v] if k in KINDS else v for k, v in t.items()} for t in truth]
    for ties in ("max", "min", "average"):
        assert flat(evaluate_revisited(scores, truth, ties=ties)) == pytest.approx(
            flat(evaluate_revisited(scores[:, turn], turned, ties=ties)), abs=1e-12
        )


def test_queries_without_positives_are_skipped_and_counted():
    truth = [entry(easy=[0]), entry(hard=[1]), entry(junk=[2])]
    result = evaluate_revisited(torch.tensor([[1.0, 0, 0]] * 3), truth, per_query=True)
    assert [result[s]["queries_skipped"] for s in SETUPS] == [2, 1, 2]
    assert result["easy"]["mAP"] == 1 and result["easy"]["AP"].isnan().tolist() == [False, True, True]
    assert result["medium"]["AP"].shape == result["medium"]["P@5"].shape == (3,)


def test_a_setup_without_any_query_is_nan():
    result = evaluate_revisited(torch.tensor([[1.0, 0.0]]), [entry(easy=[0])])
    assert math.isnan(result["hard"]["mAP"]) and result["hard"]["queries_skipped"] == 1 and result["easy"]["mAP"] == 1


def test_a_list_that_ends_before_its_first_positive_scores_zero():
    result = evaluate_revisited(ground_truth=[entry(easy=[7]), entry(easy=[1])], ranks=[[3, 1, 4], [1, 0, 2]])
    assert result["easy"]["mAP"] == 0.5 and result["easy"]["mP@1"] == 0.5 and result["easy"]["queries_skipped"] == 0


def test_gaps_as_faiss_leaves_them():
    full = evaluate_revisited(ground_truth=[EXAMPLE], ranks=[[4, 0, 2, 5]])
    gaps = evaluate_revisited(ground_truth=[EXAMPLE], ranks=np.array([[4, 0, 2, 5, -1, -1]]))
    assert full == gaps
    # lists of unlike length
    assert flat(evaluate_revisited(ground_truth=[EXAMPLE] * 2, ranks=[[4, 0, 2, 5], [4, 0, 2, 5, 6, 7]]))


def test_distractors_are_columns_beyond_the_gallery():
    scores = torch.tensor([[0.9, 0.8, 0.7]])
    more = torch.cat([scores, torch.tensor([[0.95, 0.1]])], 1)
    assert evaluate_revisited(scores, [entry(easy=[0])])["easy"]["mAP"] == 1
    assert evaluate_revisited(more, [entry(easy=[0])])["easy"]["mAP"] == 0.25


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s,
        lambda s: s.numpy(),
        lambda s: s.double(),
        lambda s: s.bfloat16(),
        lambda s: s.half(),
        lambda s: s.half().numpy(),
    ],
)
def test_any_floating_scores(make):
    scores = torch.arange(10, 0, -1).float()[None]
    assert evaluate_revisited(make(scores), [EXAMPLE]) == evaluate_revisited(scores, [EXAMPLE])


def test_scores_may_lie_in_a_file(tmp_path):
    table = np.lib.format.open_memmap(tmp_path / "scores.npy", mode="w+", dtype=np.float16, shape=(1, 10))
    table[:] = -np.arange(10)
    table.flush()
    opened = np.load(tmp_path / "scores.npy", mmap_mode="r")
    assert evaluate_revisited(opened, [EXAMPLE])["hard"]["mAP"] == 1


@pytest.mark.cuda
def test_scores_on_a_gpu():
    scores = torch.arange(10, 0, -1).float()[None]
    assert evaluate_revisited(scores.cuda(), [EXAMPLE]) == evaluate_revisited(scores, [EXAMPLE])
    assert evaluate_revisited(ground_truth=[EXAMPLE], ranks=torch.arange(10)[None].cuda()) == evaluate_revisited(
        scores, [EXAMPLE]
    )


GOOD = torch.arange(10, 0, -1).float()[None]


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: evaluate_revisited(GOOD), TypeError, "ground_truth must be a list"),
        (lambda: evaluate_revisited(ground_truth=[EXAMPLE]), ValueError, "either scores .* or ranks"),
        (lambda: evaluate_revisited(GOOD, [EXAMPLE], ranks=[[0]]), ValueError, "either scores .* or ranks"),
        (lambda: evaluate_revisited(GOOD, []), ValueError, "none of the 0 queries has a positive"),
        (lambda: evaluate_revisited(GOOD, [entry(junk=[1])]), ValueError, "none of the 1 queries has a positive"),
        (lambda: evaluate_revisited(GOOD, [{"easy": [1]}]), ValueError, "must have the keys easy, hard and junk"),
        (lambda: evaluate_revisited(GOOD, [{"ok": [1], "junk": []}]), ValueError, "first Oxford5k"),
        (lambda: evaluate_revisited(GOOD, [entry(easy=[-1])]), ValueError, "gallery indices from 0 on"),
        (lambda: evaluate_revisited(GOOD, [entry(easy=[0.5])]), ValueError, "gallery indices from 0 on"),
        (lambda: evaluate_revisited(GOOD, [entry(easy=[1], junk=[1])]), ValueError, "names image 1 twice"),
        (
            lambda: evaluate_revisited(GOOD, [entry(easy=[10])]),
            ValueError,
            "names gallery image 10, the scores have 10 columns",
        ),
        (lambda: evaluate_revisited(GOOD[0], [EXAMPLE]), ValueError, "two axes"),
        (lambda: evaluate_revisited(GOOD.T, [EXAMPLE]), ValueError, r"pass scores\.T"),
        (lambda: evaluate_revisited(GOOD.int(), [EXAMPLE]), TypeError, "floating point"),
        (lambda: evaluate_revisited(GOOD.log().log(), [EXAMPLE]), ValueError, "NaN or infinity, first in row 0"),
        (lambda: evaluate_revisited(GOOD, [EXAMPLE], ks=(0,)), ValueError, "whole numbers from 1"),
        (lambda: evaluate_revisited(GOOD, [EXAMPLE], ks=(1.5,)), ValueError, "whole numbers from 1"),
        (lambda: evaluate_revisited(GOOD, [EXAMPLE], ties="best"), ValueError, "ties must be one of"),
        (
            lambda: evaluate_revisited(ground_truth=[EXAMPLE], ranks=[[0, 0]]),
            ValueError,
            "name an image twice in row 0",
        ),
        (lambda: evaluate_revisited(ground_truth=[EXAMPLE], ranks=[[0, -2]]), ValueError, "-1 marks a gap"),
        (lambda: evaluate_revisited(ground_truth=[EXAMPLE], ranks=[[0.5]]), TypeError, "gallery indices"),
        (
            lambda: evaluate_revisited(ground_truth=[EXAMPLE], ranks=np.arange(10)[:, None]),
            ValueError,
            r"pass ranks\.T",
        ),
    ],
)
def test_evaluate_revisited_refuses(call, error, message):
    with pytest.raises(error, match=message):
        call()


# -----------------------------------------------------------------------------------------------------------------
# distractors

def test_distractor_scores_of_the_worked_example():
    scores = np.array([[6.0, 3.0, 1.0, 5.0, 2.0], [2.0, 1.0, 0.0, -1.0, -2.0]])
    truth = [entry(easy=[0], hard=[1, 2]), entry(easy=[0, 1])]
    assert distractor_scores(scores, np.array([[4.0], [3.0]]), truth).tolist() == pytest.approx([2 / 3 + 1])


@given(st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_distractor_scores_from_the_words(seed):
    chance = np.random.default_rng(seed)
    scores, candidates = chance.integers(0, 6, (4, 12)).astype(float), chance.integers(0, 6, (4, 5)).astype(float)
    truth = [entry([0, 1], [2]), entry([3]), entry(junk=[4]), entry(hard=[5, 6], junk=[7])]
    want = [
        sum(
            sum(scores[q, p] < candidates[q, x] for p in t["easy"] + t["hard"]) / max(1, len(t["easy"] + t["hard"]))
            for q, t in enumerate(truth)
        )
        for x in range(5)
    ]
    assert distractor_scores(scores, torch.from_numpy(candidates), truth).tolist() == pytest.approx(want)


def test_distractor_scores_refuse():
    with pytest.raises(ValueError, match="candidates must have shape"):
        distractor_scores(GOOD, torch.rand(2, 3), [EXAMPLE])


