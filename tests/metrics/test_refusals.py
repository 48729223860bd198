"""Where each refusal of the metrics begins: the last input that is taken, and the first that is refused, by name."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import smoothap_nb as s
from edges import takes_and_refuses
from smoothap_nb.metrics import accumulator
from smoothap_nb.metrics.from_ranks import reciprocal_rank
from smoothap_nb.metrics.two_galleries import evaluate_cross_modal, relevance_from_ids

ROWS, LABELS, TREE = torch.eye(4), [0, 0, 1, 1], [[0, 0], [0, 0], [1, 1], [1, 2]]
SCORES = torch.tensor([[0.9, 0.2, 0.4, 0.1], [0.3, 0.8, 0.6, 0.5]])
LEVELS = torch.tensor([[2, 0, 1, 0], [0, 2, 1, 1]])
TRUTH = [{"easy": [0], "hard": [1], "junk": [2]}, {"easy": [3], "hard": [], "junk": []}]


def gallery(**change):
    "A call with a gallery."
    return s.evaluate(ROWS, **{"labels": LABELS, "gallery_embeddings": ROWS, "gallery_labels": LABELS} | change)


def pair(images=3, texts=6, **change):
    data = torch.randn(images + texts, 4, generator=torch.Generator().manual_seed(0))
    return evaluate_cross_modal(data[:images], data[images:], **{"image_ids": torch.arange(texts) % images} | change)


def lists(rows=((1,), (0,), (3,), (2,)), labels=LABELS, **change):
    return s.evaluate_neighbours(np.array(rows), labels, **{"metrics": ("R@1",)} | change)


TAKEN_AND_REFUSED = [  # name, a call with one value, what it takes, what it refuses, what is said
    (
        "K",
        lambda k: s.evaluate(ROWS, LABELS, metrics=(f"R@{k}",)),
        [1, 3],
        [0, 4, -1, "1.5"],
        r"R@.*: K must be|asks for more images than a ranking has: the gallery holds 3",
    ),
    ("K in a gallery", lambda k: gallery(metrics=(f"P@{k}",)), [4], [5], "the gallery holds 4 beside"),
    (
        "K, some in the gallery",
        lambda k: gallery(metrics=(f"R@{k}",), query_index=[0, -1, -1, -1]),
        [3],
        [4],
        "the gallery holds 3 beside",
    ),
    ("NDCG at K", lambda k: s.evaluate(ROWS, TREE, metrics=(f"NDCG@{k}",)), [1, 3], [0, 4], "NDCG@"),
    (
        "levels",
        lambda n: s.evaluate(ROWS, TREE, metrics=(f"AP@level{n}",)),
        [1, 2],
        [0, 3, -1],
        r"the labels have 2 level\(s\)",
    ),
    (
        "names",
        lambda names: s.evaluate(ROWS, LABELS, metrics=names),
        ["MRR", ["MRR"], ("mAP@R", "mAP@R"), {"R-precision"}],
        [(), [], ""],
        "metrics is empty|no metric ''",
    ),
    (
        "weights",
        lambda w: s.evaluate(ROWS, TREE, metrics="H-AP", weights=w),
        [(1, 2), (0, 1)],
        [(1,), (1, 2, 3)],
        "weights must be 2 numbers",
    ),
    (
        "labels",
        lambda labels: s.evaluate(ROWS, labels),
        [LABELS, np.uint8(LABELS), TREE[:1] * 4],
        [LABELS[:3], LABELS * 2],
        "one label per image",
    ),
    (
        "columns of labels",
        lambda n: s.evaluate(ROWS, np.zeros((4, n), int)),
        [1, 2],
        [0],
        r"labels must have shape \(N,\)",
    ),
    (
        "axes of labels",
        lambda shape: s.evaluate(ROWS, np.zeros(shape, int)),
        [(4,), (4, 1)],
        [(4, 1, 1), ()],
        r"labels must have shape \(N,\)",
    ),
    (
        "columns of gallery_labels",
        lambda n: gallery(labels=TREE, gallery_labels=np.zeros((4, n), int)),
        [2],
        [1, 3],
        "the labels have 2",
    ),
    ("gallery without labels", lambda labels: gallery(gallery_labels=labels), [LABELS], [None], "belong together"),
    (
        "rows of a gallery",
        lambda n: gallery(gallery_embeddings=ROWS[:n], gallery_labels=LABELS[:n]),
        [1, 4],
        [0],
        "gallery|integers",
    ),
    (
        "dimensions of a gallery",
        lambda n: gallery(gallery_embeddings=torch.eye(4, n)),
        [4],
        [3, 5],
        "dimensions, the embeddings have 4",
    ),
    (
        "dimensions",
        lambda n: s.evaluate(torch.ones(4, n), LABELS),
        [1, 2],
        [0],
        r"must have shape \(images, dimensions\)",
    ),
    (
        "query_index alone",
        lambda own: s.evaluate(ROWS, LABELS, query_index=own),
        [None],
        [[0, 1, 2, 3]],
        "query_index points into gallery_embeddings",
    ),
    (
        "query_index",
        lambda own: gallery(query_index=own),
        [[0, 1, 2, 3], [-1] * 4, None],
        [[0, 1, 2, 4], [-2, 0, 0, 0]],
        r"query_index must lie in -1 \.\.\. 3",
    ),
    ("k", lambda k: s.nearest_neighbours(ROWS, k), [1, 3], [0, 4, True, 2.0], "k must be a whole number from 1 to 3"),
    ("k in a gallery", lambda k: s.nearest_neighbours(ROWS, k, ROWS), [4], [5], "from 1 to 4"),
    (
        "k, some in the gallery",
        lambda k: s.nearest_neighbours(ROWS, k, ROWS, query_index=[0, -1, -1, -1]),
        [3],
        [4],
        "from 1 to 3",
    ),
    (
        "query_index of neighbours",
        lambda own: s.nearest_neighbours(ROWS, 1, query_index=own),
        [None],
        [[0, 1, 2, 3]],
        "query_index points into",
    ),
    ("no query", lambda n: s.nearest_neighbours(ROWS[:n], 1, ROWS), [1], [0], "there is no query"),
    (
        "own row in a list",
        lambda q: lists([[(q == i) * (2 * i - 3) + 3 - i] for i in range(4)]),
        [9],
        [0, 1, 2, 3],
        "some lists hold their own query",
    ),
    (
        "rows of lists",
        lambda row: lists([[row], [0], [3], [2]]),
        [-1, 3],
        [-2, 4],
        r"neighbours must lie in -1 \.\.\. 3",
    ),
    (
        "axes of lists",
        lambda shape: lists(-np.ones(shape, int), np.zeros(4, int)),
        [(4, 1)],
        [(4,), (4, 0), (0, 4)],
        "neighbours must hold gallery rows",
    ),
    (
        "lists for R",
        lambda labels: lists(labels=labels, metrics="mAP@R"),
        [LABELS],
        [[0, 0, 0, 0]],
        r"need lists as long as the largest number of positives, 3; these hold 1",
    ),
    (
        "lists for metrics",
        lambda name: lists(metrics=name),
        ["mAP", "MRR", "mAP@1"],
        ["NDCG", "H-AP", "ASI", "AP@level1", "NDCG@1"],
        "lists that are cut short give",
    ),
    (
        "who belongs to whom",
        lambda given: pair(**given),
        [{}, {"image_ids": None, "relevance": torch.ones(3, 6) > 0}],
        [{"relevance": torch.ones(3, 6) > 0}, {"image_ids": None}],
        "exactly one of the two",
    ),
    (
        "relevance of pairs",
        lambda r: pair(image_ids=None, relevance=r),
        [torch.ones(3, 6) > 0],
        [torch.ones(6, 3) > 0, torch.ones(3, 6)],
        r"relevance must be bool \(3, 6\)",
    ),
    ("folds", lambda n: pair(folds=n), [1, 3], [2, 0], "folds"),
    ("block", lambda n: pair(block=n), [1, 2], [0], "block must be"),
    (
        "pictures that texts name",
        lambda top: pair(image_ids=torch.tensor([0, 0, 0, 1, 1, top])),
        [2],
        [3, -1],
        r"image_ids must lie in 0 \.\.\. 2",
    ),
    ("number of ids", lambda n: pair(image_ids=torch.zeros(n).long()), [6], [5, 7], "there are 6 texts"),
    (
        "depths",
        lambda ks: s.evaluate_revisited(SCORES, TRUTH, ks),
        [(1,), (), [np.int64(2)]],
        [(0,), (True,), (1.0,)],
        "ks must be whole numbers from 1 on",
    ),
    (
        "scores or ranks",
        lambda given: s.evaluate_revisited(ground_truth=TRUTH, **given),
        [{"scores": SCORES}, {"ranks": [[0], [3]]}],
        [{}, {"scores": SCORES, "ranks": [[0], [3]]}],
        "pass either scores",
    ),
    (
        "a positive somewhere",
        lambda t: s.evaluate_revisited(SCORES, t),
        [[{"easy": [], "hard": [1], "junk": []}] * 2],
        [[{"easy": [], "hard": [], "junk": [1]}] * 2],
        "none of the 2 queries",
    ),
    (
        "images of a truth",
        lambda i: s.evaluate_revisited(SCORES, [{"easy": [i], "hard": [1], "junk": []}, TRUTH[1]]),
        [0, 3],
        [-1, 4, 1],
        r"gallery indices from 0 on|gallery image 4|image 1 twice",
    ),
    (
        "entries of ranks",
        lambda i: s.evaluate_revisited(ground_truth=TRUTH, ranks=[[0, i], [3, 1]]),
        [-1, 1, 99],
        [-2, 0],
        r"ranks hold -2 in row 0|image twice in row 0",
    ),
    (
        "axes of ranks",
        lambda a: s.evaluate_revisited(ground_truth=TRUTH, ranks=a),
        [np.zeros((2, 1), int), [[], []], np.zeros((2, 0))],
        [np.zeros((2, 1, 1), int)],
        "two axes",
    ),
    (
        "rows of scores",
        lambda n: s.evaluate_revisited(SCORES.repeat(2, 1)[:n], TRUTH),
        [2],
        [1, 3],
        "the ground truth has 2 queries",
    ),
    (
        "candidates",
        lambda shape: s.distractor_scores(SCORES, torch.zeros(shape), TRUTH),
        [(2, 1), (2, 0)],
        [(2,), (1, 2)],
        "candidates must have shape",
    ),
    (
        "answers",
        lambda a: s.annotator_vote(a),
        ["E", ["E", "H"]],
        ["", [], "X", "EX", 3],
        "answers must be letters out of E, H, U, N",
    ),
    ("num_levels", lambda n: s.relevance_from_levels(LEVELS, num_levels=n), [2, 3, None], [1, 0], "num_levels"),
    (
        "weights of levels",
        lambda w: s.relevance_from_weights(LEVELS, w),
        [(1, 2), (1, 2, 3)],
        [(1,)],
        "num_levels is 1, but levels reach 2",
    ),
    (
        "columns of ref_labels",
        lambda n: s.levels_from_labels(torch.zeros(2, 2).long(), torch.zeros(2, n).long()),
        [2],
        [1, 3],
        "both need the same tree",
    ),
    (
        "index",
        lambda index: s.RetrievalMetrics().update(ROWS, torch.tensor(LABELS), index),
        [torch.arange(4), None, [3, 2, 1, 0]],
        [torch.arange(3), torch.arange(4.0)],
        "index must hold 4 integers",
    ),
]


@pytest.mark.parametrize("row", TAKEN_AND_REFUSED, ids=lambda row: row[0])
def test_what_is_taken_and_what_is_refused(row):
    takes_and_refuses(*row[1:])


NO_SUCH_KIND = [
    (lambda: s.evaluate(ROWS.tolist(), LABELS), "embeddings must be a torch.Tensor or a numpy array, got list"),
    (lambda: s.evaluate(ROWS.numpy().astype(int), LABELS), "embeddings must be floating point, got int64"),
    (lambda: s.evaluate(ROWS, [0.0] * 4), "labels must be integers"),
    (lambda: s.evaluate(ROWS, np.zeros(4, bool)), r"or bool of shape \(N, tags\); got bool"),
    (lambda: s.evaluate(ROWS, [[0], [0, 1], [1], [1]]), "labels must be integers"),
    (lambda: gallery(labels=np.ones((4, 2), bool), gallery_labels=TREE), "both be class numbers, or both bool tags"),
    (lambda: s.evaluate(ROWS, LABELS, metrics=3), "metrics must be a name, or a list of names, got 3"),
    (lambda: s.nearest_neighbours(ROWS, 1, index=3), "index must be a FAISS factory text such as 'Flat', got 3"),
    (lambda: relevance_from_ids(torch.zeros(2), 1, 2), "image_ids must be a torch.Tensor of integers"),
    (lambda: relevance_from_ids(torch.zeros(2) > 0, 1, 2), "image_ids must be a torch.Tensor of integers"),
    (lambda: relevance_from_ids([0, 0], 1, 2), "image_ids must be a torch.Tensor of integers"),
    (lambda: s.evaluate_revisited(SCORES.int(), TRUTH), "scores must be floating point, got int32 in row 0"),
    (lambda: s.evaluate_revisited(ground_truth=TRUTH, ranks=[[0.5], [1]]), "ranks must be rows of gallery indices"),
    (lambda: s.evaluate_revisited(ground_truth=TRUTH, ranks=[0, 1]), "ranks must be rows of gallery indices"),
    (lambda: s.RetrievalMetrics().update(ROWS[0], [0]), "embeddings must be a torch.Tensor of shape"),
    (lambda: s.RetrievalMetrics().update(ROWS.numpy(), LABELS), "embeddings must be a torch.Tensor of shape"),
]


@pytest.mark.parametrize("row", range(len(NO_SUCH_KIND)))
def test_what_is_of_another_kind(row):
    call, says = NO_SUCH_KIND[row]
    with pytest.raises(TypeError, match=says):
        call()


@pytest.mark.parametrize(
    "name, near",
    [
        ("map", "mAP"),
        ("MAP", "mAP"),
        ("r@1", "R@1"),
        ("ndgc", "NDCG"),
        ("h_ap", "H-AP"),
        ("R-Precision", "R-precision"),
        ("mapr", "mAP@R|mAP"),
        ("zzz", None),
    ],
)
def test_the_nearest_name_only_where_one_is_near(name, near):
    with pytest.raises(
        ValueError,
        match=f"^no metric '{name}'" + (rf"; the nearest is '({near})'\. Known: mAP, R@K" if near else r"\. Known"),
    ):
        s.evaluate(ROWS, LABELS, metrics=name)


def test_a_module_has_no_other_attributes():
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        accumulator.Nothing  # noqa: B018


def test_one_picture_may_have_all_texts():
    found = pair(images=1, texts=3)
    assert found["image->text R@1"] == found["text->image R@1"] == 1 and found["rsum"] == 600


def test_the_own_row_may_be_of_another_class():
    "It leaves the ranking and takes no positive along, whichever class stands before or behind in the gallery."
    rows = torch.nn.functional.normalize(torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), dim=1)
    labels = torch.tensor([0, 0, 1, 1, 2])
    for own in range(5):
        found = s.evaluate(rows[:1], torch.tensor([1]), rows, labels, metrics=("mAP", "R-precision"), query_index=[own])
        left = [i for i in range(5) if i != own]
        wanted = s.average_precision((rows[:1] @ rows.T)[:, left], (labels == 1)[None, left])
        assert found["mAP"] == pytest.approx(wanted.item())


def test_the_best_of_no_positives():
    member = torch.tensor([[True, False], [False, False], [False, False]])
    place, total = torch.tensor([[2.0, 1.0]] * 3), torch.tensor([1, 3, 0])
    assert reciprocal_rank(member, place, total)[:2].tolist() == [0.5, 0.0]  # the table shows none of three
    assert math.isnan(reciprocal_rank(member, place, total)[2])


def test_the_image_that_is_named_twice_is_named():
    for entry in ({"easy": [0, 3], "hard": [2], "junk": [2]}, {"easy": [3], "hard": [0, 2], "junk": [1, 2]}):
        with pytest.raises(ValueError, match=r"ground_truth\[1\] names image 2 twice"):
            s.evaluate_revisited(SCORES, [TRUTH[0], entry])
