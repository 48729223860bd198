"""Where each refusal of the losses begins: the last input that is taken, and the first that is refused, by name."""

from __future__ import annotations

import importlib
import importlib.util
import math

import numpy as np
import pytest
import torch
from torch import nn

import smoothap_nb as s
from smoothap_nb.losses import pml
from smoothap_nb.losses.base import RankingLoss
from smoothap_nb.losses.blackbox_modules import BlackboxLoss
from smoothap_nb.losses.contrast import nt_xent, push_weights
from smoothap_nb.losses.counting import walk
from smoothap_nb.losses.sorters import CNNSorter, LSTMSorter, SoDeepRanks, save_sorter, train_sorter
from smoothap_nb.losses.weights import read_weights, write_weights
from edges import takes_and_refuses

ROWS = nn.functional.normalize(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), dim=1)
LABELS, TREE = torch.arange(6) // 2, torch.stack([torch.arange(6) // 4, torch.arange(6) // 2], 1)
SCORES = ROWS[:2] @ ROWS[2:].T
WHO = torch.tensor([[True, False, False, True], [False, True, False, False]])
LEVELS = torch.tensor([[2, 1, 0, 0], [0, 2, 1, 0]])
OWN = torch.tensor([[0, 0], [0, 1], [1, 2]])  # paths of three classes
NAN = math.nan


def reference(loss=None, **change):
    "A call with a gallery."
    loss = s.SmoothAPLoss() if loss is None else loss
    return loss(**{"embeddings": ROWS, "labels": LABELS, "ref_emb": ROWS.clone(), "ref_labels": LABELS} | change)


TAKEN_AND_REFUSED = [  # name, a call with one value, what it takes, what it refuses, what is said
    ("a batch", lambda n: s.SmoothAPLoss()(ROWS[:n], LABELS[:n]), [1], [0], "the batch is empty"),
    ("a batch of proxies", lambda n: s.ClusterLoss(3, 4)(ROWS[:n], LABELS[:n]), [1], [0], "the batch is empty"),
    ("labels of tags", lambda tags: reference(labels=tags, ref_labels=tags), [WHO.new_ones(6, 2)], [], ""),
    (
        "columns of labels",
        lambda n: reference(s.HAPLoss(), labels=TREE, ref_labels=TREE[:, :n]),
        [2],
        [1],
        "labels have 2 levels, ref_labels 1",
    ),
    (
        "columns of tags",
        lambda n: reference(labels=torch.ones(6, 2) > 0, ref_labels=torch.ones(6, n) > 0),
        [2],
        [1, 3],
        "labels have 2 tags",
    ),
    (
        "pairs of a miner",
        lambda pairs: s.SmoothAPLoss()(ROWS, LABELS, pairs),
        [None],
        [(1, 2)],
        "indices_tuple is not used",
    ),
    (
        "pairs of a miner, proxies",
        lambda pairs: s.ClusterLoss(3, 4)(ROWS, LABELS, pairs),
        [None],
        [(1, 2)],
        "indices_tuple is not used",
    ),
    (
        "dimensions of proxies",
        lambda n: s.ClusterLoss(3, 4)(ROWS[:, :n], LABELS),
        [4],
        [3],
        "the embeddings have 3 dimensions, the proxies have 4",
    ),
    (
        "query_index",
        lambda own: s.SmoothAPLoss()(ROWS, LABELS, query_index=own),
        [None],
        [torch.arange(6)],
        "query_index points into ref_emb",
    ),
    (
        "rows of query_index",
        lambda i: reference(query_index=torch.full((6,), i)),
        [-1, 0, 5],
        [-2, 6],
        "query_index must lie in -1",
    ),
    ("references without labels", lambda labels: reference(ref_labels=labels), [LABELS], [None], "belong together"),
    (
        "ks",
        lambda ks: s.recall_at_k_surrogate(SCORES, WHO, ks),
        [(1,), [1, 2], range(1, 3)],
        [(), [0], (1, 0), 2, {1}, (1.5,)],
        "ks must be whole",
    ),
    (
        "temperatures",
        lambda t: s.recall_at_k_surrogate(SCORES, WHO, (1, 2), temperature=t),
        [1, (1, 2), [2, 1]],
        [(1,), (1, 2, 3)],
        "one for each of the 2 ks",
    ),
    (
        "temperature",
        lambda t: s.sup_recall(SCORES, WHO, (1, 2), temperature=t),
        [0.1, (1, 2)],
        [0, (1, 0), -1, NAN],
        "temperature must be",
    ),
    (
        "margin of RaMBO",
        lambda m: s.blackbox_ap(SCORES, WHO, margin=m),
        [0, 0.5, 1e30],
        [-1e-9, 2e30, math.inf, NAN, True, "0"],
        "margin must be a finite",
    ),
    (
        "eps",
        lambda eps: s.blackbox_ap(SCORES, WHO, eps=eps),
        [0, 0.999],
        [-1e-9, 1, 1.5, NAN, True, "0"],
        "eps must lie in 0",
    ),
    (
        "noise",
        lambda noise: s.blackbox_ap(SCORES, WHO, noise=noise),
        [None, True, False, SCORES],
        [SCORES[:1], 0.5, "x"],
        "noise must be a tensor",
    ),
    (
        "interclass",
        lambda b: s.MapLoss(interclass=b),
        [0, 1, 0.5],
        [-1e-9, 1 + 1e-9, NAN, "0"],
        "interclass must lie in 0",
    ),
    (
        "weight of a direction",
        lambda w: s.CrossModalLoss(weight=w),
        [0, 1, 0.5],
        [-1e-9, 1 + 1e-9],
        "weight must lie between 0 and 1",
    ),
    (
        "a setting of another loss",
        lambda m: s.CrossModalLoss("triplet", **m),
        [{}, {"margin": 1}],
        [{"tau": 1}],
        "tau is no setting of the loss 'triplet', which has margin",
    ),
    (
        "a setting of a function",
        lambda m: s.CrossModalLoss(nt_xent, **m),
        [{}],
        [{"tau": 1}],
        "tau is no setting of a function of your own",
    ),
    (
        "who belongs to whom",
        lambda given: s.CrossModalLoss()(ROWS[:3], ROWS[3:], **given),
        [{"relevance": torch.eye(3) > 0}, {"image_ids": torch.arange(3)}],
        [{}, {"relevance": torch.eye(3) > 0, "image_ids": torch.arange(3)}],
        "exactly one of the two",
    ),
    ("pictures", lambda n: s.CrossModalLoss()(ROWS[:n], ROWS, torch.ones(n, 6) > 0), [1], [0], "images have no rows"),
    (
        "numbers of pictures",
        lambda v: s.CrossModalLoss()(v * ROWS[:3], ROWS[3:], torch.eye(3) > 0),
        [1],
        [NAN, math.inf],
        "images hold NaN or infinity",
    ),
    (
        "numbers of texts",
        lambda v: s.CrossModalLoss()(ROWS[:3], v * ROWS[3:], torch.eye(3) > 0),
        [1],
        [NAN, math.inf],
        "texts hold NaN|ref_emb",
    ),
    (
        "levels of csl_loss",
        lambda top: s.csl_loss(SCORES, LEVELS + (LEVELS == 2) * (top - 2), (0.1, 0.2)),
        [1, 2],
        [3],
        "levels reach 3, but there are 2 margins",
    ),
    (
        "margins",
        lambda m: s.csl_loss(SCORES, LEVELS.clamp(max=1), m),
        [(0.1,), [0.1, 0.2], iter([0.1])],
        [()],
        "margins are empty",
    ),
    (
        "columns of class_labels",
        lambda n: s.CSLLoss(OWN[:, 2 - n :], 4),
        [2, 1],
        [0],
        "class_labels must have a column for each level",
    ),
    ("rows of class_labels", lambda n: s.CSLLoss(OWN[:n], 4), [1, 2, 3], [0], "class_labels hold 0 rows"),
    (
        "repeated class_labels",
        lambda rows: s.CSLLoss(OWN[rows], 4),
        [[2, 0]],
        [[0, 0, 1]],
        "class_labels hold 3 rows, 2 of them different",
    ),
    (
        "number of margins",
        lambda m: s.CSLLoss(OWN, 4, m),
        [(0.1, 0.2), None],
        [(0.1,), (1, 2, 3)],
        "margins and 2 levels",
    ),
    (
        "levels of CSLLoss",
        lambda t: s.CSLLoss(OWN, 4)(ROWS[:2], t),
        [OWN[:2]],
        [OWN[:2, :1], torch.zeros(2, 3).long()],
        "class_labels have 2",
    ),
    (
        "labels of CSLLoss",
        lambda t: s.CSLLoss(OWN, 4)(ROWS[:2], torch.tensor([[0, 0], t])),
        [[1, 2], [0, 1]],
        [[1, 1], [2, 2]],
        "which is not among the 3 class_labels",
    ),
    (
        "cosines of FastAP",
        lambda x: s.fast_ap(x * torch.ones(1, 2), WHO[:1, :2]),
        [1.0099, -1.0099],
        [1.011, -1.011],
        "bins hold cosine similarities",
    ),
    (
        "cosines of FastAPLoss",
        lambda x: s.FastAPLoss(normalize=False)(x * ROWS, LABELS),
        [1, 0.1],
        [1.5],
        "bins hold cosine similarities",
    ),
    (
        "weights of levels",
        lambda w: s.HAPLoss(weights=w)(ROWS, TREE),
        [(1, 2), (0, 1)],
        [(1,), (1, 2, 3)],
        "labels have 2 levels, but there are",
    ),
    (
        "fine labels",
        lambda f: s.ClusterLoss(3, 4)(ROWS[:2], torch.tensor([0, f])),
        [0, 2],
        [-1, 3],
        "fine labels run from",
    ),
    ("cluster_weight", lambda w: s.HAPPIERLoss(3, 4, w), [0, 1], [-1e-9, 1 + 1e-9], "cluster_weight must"),
    (
        "worth of negatives",
        lambda w: s.smooth_h_ap(SCORES, LEVELS, LEVELS.float() + w * (LEVELS == 0)),
        [0],
        [1e-9, 1],
        "relevance_values are above 0 for items of level 0",
    ),
    (
        "references of a memory",
        lambda labels: reference(s.EmbeddingMemory(s.SmoothAPLoss(), 4), ref_labels=labels),
        [LABELS],
        [None],
        "belong together",
    ),
    (
        "query_index of a memory",
        lambda own: s.EmbeddingMemory(s.SmoothAPLoss(), 4)(ROWS, LABELS, query_index=own),
        [None],
        [torch.arange(6)],
        "query_index points into",
    ),
    (
        "a miner for a loss of ours",
        lambda m: pml.CrossBatchMemory(s.SmoothAPLoss(), 4, miner=m),
        [None],
        [nn.Identity()],
        "no pairs to mine",
    ),
    (
        "length of a score memory",
        lambda n: s.ScoreMemory(n),
        [0, 1, torch.tensor([3]).shape[0]],
        [-1, True, 1.0, "1"],
        "length must be a whole number, 0 or more",
    ),
    ("dim of a score memory", lambda n: s.ScoreMemory(1, n), [0, 1], [-1, 2], "dim must be one of"),
    (
        "kind of lists",
        lambda kind: s.score_lists(2, 3, kind),
        ["mixed", "grid"],
        ["Grid", 1, None],
        "kind must be 'mixed' or one of",
    ),
    (
        "lists of a fixed sorter",
        lambda n: LSTMSorter(2, 1, length=3)(torch.zeros(1, n)),
        [3],
        [2, 4],
        "reads lists of 3 scores, got",
    ),
    ("lists of the convolutions", lambda n: CNNSorter(n), [37], [36], "lists of at least 37 scores, got length=36"),
    (
        "lengths of training",
        lambda ends: next(train_sorter(LSTMSorter(2, 1), lengths=ends, batch=2, steps=1)),
        [(1, 1), (2, 3)],
        [(0, 1), (3, 2)],
        "lengths must be",
    ),
    ("centres", lambda n: s.soft_bin_ap(SCORES, WHO, n), [2], [1, 0], "centres must be"),
    (
        "weights of ROADMAP",
        lambda w: s.ROADMAPLoss(sup_ap_weight=w, calibration_weight=w),
        [0, 1],
        [-1e-9],
        "sup_ap_weight must be at least 0",
    ),
    (
        "second weight of ROADMAP",
        lambda w: s.ROADMAPLoss(calibration_weight=w),
        [0, 1],
        [-1e-9],
        "calibration_weight must be at least 0",
    ),
    (
        "threshold of a push",
        lambda t: s.contributing_samples(SCORES, WHO, threshold=t),
        [1e-9],
        [0, -1],
        "threshold must be",
    ),
    ("a setting of a push", lambda t: push_weights(SCORES, WHO, "triplet", margin=t), [0.1], [0], "margin must be"),
]


@pytest.mark.parametrize("row", TAKEN_AND_REFUSED, ids=lambda row: row[0])
def test_what_is_taken_and_what_is_refused(row):
    takes_and_refuses(*row[1:])


NO_SUCH_KIND = [
    (lambda: reference(labels=torch.ones(6, 2) > 0, ref_labels=LABELS), "both be class numbers, or both bool tags"),
    (lambda: s.csl_loss(SCORES, LEVELS, "12"), "margins must be a list of numbers"),
    (lambda: s.csl_loss(SCORES, LEVELS, {0.1: 1}), "margins must be a list of numbers"),
    (lambda: s.csl_loss(SCORES, LEVELS, 0.1), "margins must be a list of numbers"),
    (lambda: s.step_lower(torch.arange(3)), "t must be a floating-point tensor of score differences, got torch.int64"),
    (lambda: s.step_upper([0.5]), "t must be a floating-point tensor of score differences, got list"),
    (lambda: s.EmbeddingMemory(nn.Linear(2, 2), 4), "needs a loss that ranks queries against references"),
    (lambda: s.EmbeddingMemory(s.SmoothAPLoss, 4), "needs a loss that ranks queries against references"),
    (lambda: s.EmbeddingMemory(lambda *_: 0, 4), "needs a loss that ranks queries against references"),
    (lambda: pml.PMLLoss(nn.Linear(2, 2)), "takes an embedding loss such as"),
    (lambda: pml.PMLLoss(s.SmoothAPLoss), "takes an embedding loss such as .* got SmoothAPLoss"),
    (lambda: SoDeepRanks(sorter="mine"), "sorter must be a trained nn.Module, got str"),
    (lambda: s.SmoothAPLoss(temperature=1), "has no 'temperature': it is called 'tau' here"),
    (lambda: s.SmoothAPLoss(batch_size=1), "has no 'batch_size': sizes come from the batch"),
    (lambda: s.SmoothAPLoss(reducer=1), r"PMLLoss\(SmoothAPLoss\(\.\.\.\), reducer=\.\.\.\)"),
]


@pytest.mark.parametrize("row", range(len(NO_SUCH_KIND)))
def test_what_is_of_another_kind(row):
    call, says = NO_SUCH_KIND[row]
    with pytest.raises(TypeError, match=says):
        call()


def test_a_subclass_says_what_is_missing():
    class Half(BlackboxLoss):
        pass

    for loss, name in ((RankingLoss(), "query_losses"), (Half(1, 0, ties="max", memory=0), "list_losses")):
        with pytest.raises(NotImplementedError, match=f"define {name}"):
            loss(ROWS, LABELS)


def test_a_memory_of_another_shape_is_refused():
    memory = s.EmbeddingMemory(s.SmoothAPLoss(), 8)
    memory(ROWS, LABELS)
    with pytest.raises(ValueError, match=r"holds embeddings of 4 dimensions .* this batch has 3 dimensions"):
        memory(ROWS[:, :3], LABELS)
    scores = s.ScoreMemory(2)
    scores(SCORES, WHO)
    with pytest.raises(ValueError, match="the memory holds rows of length 4, these scores have 3"):
        scores(SCORES[:, :3], WHO[:, :3])
    longer, _ = scores(SCORES[:1], WHO[:1])  # fewer queries are welcome
    assert longer.shape == (3, 4)


def test_a_memory_that_was_reset_holds_nothing():
    memory, scores = s.EmbeddingMemory(s.SmoothAPLoss(), 8), s.ScoreMemory(2)
    first = memory(ROWS, LABELS)
    memory(ROWS.flip(0), LABELS)
    scores(SCORES, WHO)
    memory.reset(), scores.reset()
    assert memory.filled == 0
    assert all(part.numel() == 0 and len(part) == 0 for module in (memory, scores) for part in module.buffers())
    assert torch.equal(memory(ROWS, LABELS), first) and scores(SCORES, WHO)[0].shape == SCORES.shape


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize(
    "marks",
    [
        [0.0],
        [1, 1, 1],
        [-5, 0, 0, 2, 2, 3, 9],
        [0.5, 0.5 + 1e-16, 0.5 + 3e-16, 0.7],
        [-1e308, 0, 1.7e308],
        [5e-324, 1e-323, 2e-323, 1.0],
        [10, 20],
        [-3, -2],
        [0, 1e9],
        list(range(12)),
    ],
)
def test_the_loop_that_is_compiled_counts_as_a_search_does(marks, above):
    "As Python runs it, where an index out of its range is an error."
    line = np.array(marks, np.float64)
    row = np.concatenate([line, (line[1:] + line[:-1]) / 2, [-2.0, 0.1, 2, 2.5, 3, 4, np.nan][: 6 + above]])
    out, table, after = (
        np.full((1, len(row)), -1.0),
        np.arange(len(line) + 1.0)[None],
        np.searchsorted(line, line, "right"),
    )
    lows, highs = np.nanmin(row)[None], np.nanmax(row)[None]
    padded = np.concatenate([line, [np.inf]])[None]
    walk(row[None], lows, highs, padded, np.array([len(line)]), np.append(after, len(line))[None], table, above, out)
    known = ~np.isnan(row)
    assert out[0, known].tolist() == np.searchsorted(line, row[known], "right" if above else "left").tolist()
    few = np.array([[line[0] - 1.0, line[0] - 0.5]])  # all scores in one gap, and marks that no score reaches
    out = np.full((1, 2), -1.0)
    walk(few, few[:, 0], few[:, 1], padded, np.array([len(line)]), np.append(after, len(line))[None], table, above, out)
    assert out.tolist() == [np.searchsorted(line, few[0], "right" if above else "left").tolist()]


@pytest.mark.parametrize("module", ["losses.counting", "metrics.counting"])
def test_where_no_cache_can_be_written_loops_are_compiled_all_the_same(module, monkeypatch):
    numba, asked = pytest.importorskip("numba"), []

    def njit(cache=False, **given):
        asked.append((cache, given))
        if cache:
            raise RuntimeError("no locator available")
        return lambda function: (function, given)

    loaded = importlib.import_module(f"smoothap_nb.{module}")
    monkeypatch.setattr(numba, "njit", njit)
    if module == "losses.counting":
        found = loaded.compiled_walk.__wrapped__()
    else:
        again = importlib.util.module_from_spec(loaded.__spec__)
        loaded.__spec__.loader.exec_module(again)
        found = again.compiled
    assert found[0].__name__ in ("walk", "at_or_above") and found[1] == {"nogil": True}
    assert asked == [(True, {"nogil": True}), (False, {"nogil": True})]  # threads work on rows of their own


def test_files_of_weights(tmp_path):
    path = tmp_path / "w.safetensors"
    with pytest.raises(FileNotFoundError, match="no file"):
        read_weights(path)
    write_weights(path, {"a": torch.arange(3.0)}, {"b": "c"})
    assert read_weights(path)[0]["a"].tolist() == [0, 1, 2] and len(path.read_bytes()) % 4 == 0
    header = int.from_bytes(path.read_bytes()[:8], "little")
    assert header % 8 == 0  # the numbers begin where a mapped file can be read from
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="no .safetensors file that can be read here .it is cut short"):
        read_weights(path)
    with pytest.raises(ValueError, match="a sorter of one length .3. is not stored this way"):
        save_sorter(LSTMSorter(2, 1, length=3), path, (3, 3))


@pytest.mark.parametrize(
    "function",
    [
        s.smooth_ap,
        s.fast_ap,
        s.sup_ap,
        s.blackbox_ap,
        s.calibration_loss,
        s.soft_bin_ap,
        s.recall_at_k_surrogate,
        s.sup_recall,
        s.pnp,
        s.recall_loss,
        nt_xent,
    ],
)
@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
def test_one_broken_score_in_the_last_place_is_refused_unasked(function, value):
    scores = SCORES.clone()
    scores[1, 3] = value
    with pytest.raises(ValueError, match="scores hold NaN or infinity in 1 of 2 rows, first in row 1"):
        function(scores, WHO)
