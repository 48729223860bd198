"""Revisited Oxford/Paris: the judgement against its definition, files that must not be trusted, descriptors and their laws."""

from __future__ import annotations

import datetime
import json
import math
import os
import pickle
import pickletools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from smoothap_nb import (annotator_vote, average_precision, convert_ground_truth, distractor_scores, evaluate_revisited, extract_descriptors,
                         gem_pool, learn_whitening, load_distractors, load_revisited, mac_pool, query_expansion, rmac_pool)
from smoothap_nb.metrics.revisited import (KINDS, SETUPS, ImageList, capped_precision, read_ground_truth, read_image, read_plain_pickle, rmac_regions,
                                   trapezoidal_ap, write_miniature)

EXAMPLE = {"easy": [0, 5], "hard": [2], "junk": [1, 3]}


def entry(easy=(), hard=(), junk=(), bbx=(0.0, 0.0, 5.0, 5.0)) -> dict:
    return {"easy": list(easy), "hard": list(hard), "junk": list(junk), "bbx": list(bbx)}


# --------------------------------------------------------------------------------------------------------------------- the vote

@pytest.mark.parametrize("answers, verdict", [("EEHUU", "E"), ("EHUUN", "U"), ("HHUNN", "U"), ("EEHHN", "H"), ("EEEEE", "E"), ("NNNEU", "N"),
                                              ("EUUNN", "U"), ("HHHUN", "H"), ("E", "E"), (["U", "U", "E"], "U"), ("EHN", "H")])
def test_annotator_vote(answers, verdict):
    assert annotator_vote(answers) == verdict


@given(st.permutations(list("EEHUN")))
def test_annotator_vote_knows_no_order(answers):
    assert annotator_vote(answers) == annotator_vote("EEHUN")


@pytest.mark.parametrize("answers", ["", "EEX", ["easy"], "eehuu"])
def test_annotator_vote_refuses(answers):
    with pytest.raises(ValueError, match="answers must be letters out of E, H, U, N"):
        annotator_vote(answers)


# ---------------------------------------------------------------------------------------------------------------- the judgement

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
        assert [result[setup][k] for k in ("mAP", "mP@1", "mP@5", "mP@10")] == pytest.approx(want, abs=1e-12, nan_ok=True)


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
        assert flat(evaluate_revisited(scores, [truth], ties=ties)) == pytest.approx(flat(by_rank), abs=1e-12, nan_ok=True)


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
    got = {ties: evaluate_revisited(scores, [entry(easy=[2], junk=[0])], ties=ties)["easy"]["mAP"] for ties in ("max", "min", "average")}
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
        assert flat(evaluate_revisited(scores, truth, ties=ties)) == pytest.approx(flat(evaluate_revisited(scores[:, turn], turned, ties=ties)), abs=1e-12)


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
    assert flat(evaluate_revisited(ground_truth=[EXAMPLE] * 2, ranks=[[4, 0, 2, 5], [4, 0, 2, 5, 6, 7]]))  # lists of unlike length


def test_distractors_are_columns_beyond_the_gallery():
    scores = torch.tensor([[0.9, 0.8, 0.7]])
    more = torch.cat([scores, torch.tensor([[0.95, 0.1]])], 1)
    assert evaluate_revisited(scores, [entry(easy=[0])])["easy"]["mAP"] == 1
    assert evaluate_revisited(more, [entry(easy=[0])])["easy"]["mAP"] == 0.25


@pytest.mark.parametrize("make", [lambda s: s, lambda s: s.numpy(), lambda s: s.double(), lambda s: s.bfloat16(), lambda s: s.half(), lambda s: s.half().numpy()])
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
    assert evaluate_revisited(ground_truth=[EXAMPLE], ranks=torch.arange(10)[None].cuda()) == evaluate_revisited(scores, [EXAMPLE])


GOOD = torch.arange(10, 0, -1).float()[None]


@pytest.mark.parametrize("call, error, message", [
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
    (lambda: evaluate_revisited(GOOD, [entry(easy=[10])]), ValueError, "names gallery image 10, the scores have 10 columns"),
    (lambda: evaluate_revisited(GOOD[0], [EXAMPLE]), ValueError, "two axes"),
    (lambda: evaluate_revisited(GOOD.T, [EXAMPLE]), ValueError, r"pass scores\.T"),
    (lambda: evaluate_revisited(GOOD.int(), [EXAMPLE]), TypeError, "floating point"),
    (lambda: evaluate_revisited(GOOD.log().log(), [EXAMPLE]), ValueError, "NaN or infinity, first in row 0"),
    (lambda: evaluate_revisited(GOOD, [EXAMPLE], ks=(0,)), ValueError, "whole numbers from 1"),
    (lambda: evaluate_revisited(GOOD, [EXAMPLE], ks=(1.5,)), ValueError, "whole numbers from 1"),
    (lambda: evaluate_revisited(GOOD, [EXAMPLE], ties="best"), ValueError, "ties must be one of"),
    (lambda: evaluate_revisited(ground_truth=[EXAMPLE], ranks=[[0, 0]]), ValueError, "name an image twice in row 0"),
    (lambda: evaluate_revisited(ground_truth=[EXAMPLE], ranks=[[0, -2]]), ValueError, "-1 marks a gap"),
    (lambda: evaluate_revisited(ground_truth=[EXAMPLE], ranks=[[0.5]]), TypeError, "gallery indices"),
    (lambda: evaluate_revisited(ground_truth=[EXAMPLE], ranks=np.arange(10)[:, None]), ValueError, r"pass ranks\.T"),
])
def test_evaluate_revisited_refuses(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --------------------------------------------------------------------------------------------------------------------- pickles

class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


class Opened:
    def __reduce__(self):
        return open, ("/etc/hostname",)


class Evaluated:
    def __reduce__(self):
        return eval, ("__import__('os').getpid()",)


@pytest.mark.parametrize("protocol", range(0, 6))
def test_a_pickle_that_runs_code_is_refused_by_name(tmp_path, protocol):
    target = tmp_path / "touched"
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps({"gnd": [Touch(target)]}, protocol=protocol))
    with pytest.raises(ValueError, match=r"refused: it asks for (posix|nt)\.system"):
        read_plain_pickle(tmp_path / "evil.pkl")
    assert not target.exists()
    pickle.loads((tmp_path / "evil.pkl").read_bytes())  # the file is real: plain pickle does touch it
    assert target.exists()


def test_an_annotation_that_runs_code_stops_the_loader(tmp_path):
    (tmp_path / "roxford5k").mkdir()
    (tmp_path / "roxford5k" / "gnd_roxford5k.pkl").write_bytes(pickle.dumps({"imlist": Touch(tmp_path / "touched")}))
    with pytest.raises(ValueError, match="system"):
        load_revisited(tmp_path)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("what, name", [
    (Opened(), r"open"), (Evaluated(), r"builtins\.eval"), (datetime.date(2018, 6, 18), r"datetime\.date"), (torch.zeros(2), "torch"), (np.random.default_rng(0), "numpy.random"),
    (nn.Linear(1, 1), "torch"), (Image.Image, "PIL"), (len, r"builtins\.len"), (complex, r"builtins\.complex"),
])
def test_pickles_of_anything_but_data_are_refused(tmp_path, what, name):
    (tmp_path / "x.pkl").write_bytes(pickle.dumps([what]))
    with pytest.raises(ValueError, match=name):
        read_plain_pickle(tmp_path / "x.pkl")


PLAIN = {"list": [1, 2.5, "x", None, True, (3, "é")], "set": {1, 2}, "frozen": frozenset({3}), "none": b"", "array": bytearray(b"ab"), "bytes": b"\x00\xff", "big": 2 ** 70, "dict": {1: {"a": []}}}
ARRAYS = {"ints": np.array([3, 1, 2]), "small": np.array([[1, 2], [3, 4]], dtype=np.uint8), "floats": np.array([0.5, -1e300]), "big endian": np.array([1, 2], dtype=">i4"),
          "text": np.array(["ab", "ç"]), "bools": np.array([True, False]), "empty": np.empty(0), "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
          "half": np.array([1.5], dtype=np.float16), "strided": np.arange(10)[::2]}


@pytest.mark.parametrize("protocol", range(0, 6))
def test_plain_data_is_read(tmp_path, protocol):
    content = PLAIN | ARRAYS | {"number": np.float64(2.5), "index": np.int32(7), "shared": [ARRAYS["ints"]] * 2, "names": np.array(["a", "b"], dtype=object)}
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(content, protocol=protocol))
    got = read_plain_pickle(tmp_path / "x.pkl")
    assert {k: got[k] for k in PLAIN} == PLAIN
    for name, array in ARRAYS.items():
        assert isinstance(got[name], np.ndarray) and got[name].shape == array.shape and (got[name] == array).all(), name
    assert got["number"] == 2.5 and got["index"] == 7 and got["names"] == ["a", "b"] and (got["shared"][1] == ARRAYS["ints"]).all()


def test_a_pickle_of_python_2_is_read(tmp_path):
    "Protocol 2 as Python 2 and an old numpy wrote it: byte strings, numpy.core, Latin letters for bytes."
    stream = (b"\x80\x02}q\x00(U\x06imlistq\x01]q\x02U\x03oneq\x03aU\x03gndq\x04cnumpy.core.multiarray\n_reconstruct\nq\x05cnumpy\nndarray\nq\x06K\x00\x85q\x07U\x01bq\x08\x87q\tRq\n"
              b"(K\x01K\x02\x85q\x0bcnumpy\ndtype\nq\x0cU\x02i4q\rK\x00K\x01\x87q\x0eRq\x0f(K\x03U\x01<q\x10NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x11b"
              b"\x89U\x08\x05\x00\x00\x00\xff\xff\xff\xffq\x12tq\x13bu.")
    pickletools.dis(stream, out=open(os.devnull, "w"))
    (tmp_path / "old.pkl").write_bytes(stream)
    got = read_plain_pickle(tmp_path / "old.pkl")
    assert got["imlist"] == ["one"] and got["gnd"].tolist() == [5, -1]


def test_admitted_names_cannot_be_bent(tmp_path):
    "Stand-ins with wrong arguments, changed stand-ins, self-containing lists, persistent ids: refused, never run."
    reconstruct = b"cnumpy._core.multiarray\n_reconstruct\n"
    streams = {
        "array without state": b"\x80\x02" + reconstruct + b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R.",
        "object dtype from bytes": b"\x80\x02" + reconstruct + b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x01\x85cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R\x89U\x08aaaaaaaatb.",
        "shape that lies": b"\x80\x02" + reconstruct + b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x7f\x85cnumpy\ndtype\nU\x02i4K\x00K\x01\x87R(K\x03U\x01<NNNK\x00K\x00K\x00tb\x89U\x04aaaatb.",
        "a function itself": b"\x80\x02" + reconstruct + b".",
        "a function changed": b"\x80\x02" + reconstruct + b"}U\x01xK\x01sb.",
        "a list in itself": b"\x80\x02]q\x00h\x00a.",
        "persistent": b"\x80\x02K\x01Q.",
        "new object": b"\x80\x02cnumpy\nndarray\n)\x81.",
        "a huge allocation": b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
        "cut off": pickle.dumps(PLAIN)[:-9],
        "not a pickle": b"hello",
        "empty": b"",
    }
    for name, stream in streams.items():
        (tmp_path / "x.pkl").write_bytes(stream)
        with pytest.raises(ValueError, match="refused|damaged"):
            print(name, read_plain_pickle(tmp_path / "x.pkl"))


def test_deep_nesting_is_refused(tmp_path):
    value = []
    for _ in range(60):
        value = [value]
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value))
    with pytest.raises(ValueError, match="nested"):
        read_plain_pickle(tmp_path / "x.pkl")


def test_shared_parts_do_not_explode(tmp_path):
    "Lists of lists of the same list, fifteen deep: 2^15 leaves if they were copied."
    value = ["x"]
    for _ in range(15):
        value = [value] * 20
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value))
    got = read_plain_pickle(tmp_path / "x.pkl")
    assert got[0] is got[19]


# ----------------------------------------------------------------------------------------------------------------------- files

def picture(path, size=(40, 30), colour=(200, 30, 60)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, quality=95)


@pytest.fixture
def town(tmp_path):
    "A data set of three gallery images and one query in the official layout."
    content = {"imlist": ["a", "b", "c"], "qimlist": ["q"], "gnd": [entry([0], [2], [1], bbx=[4.6, 3.0, 20.2, 25.0])]}
    for name in "abcq":
        picture(tmp_path / "town" / "jpg" / f"{name}.jpg")
    (tmp_path / "town" / "gnd_town.pkl").write_bytes(pickle.dumps(content))
    return tmp_path, content


def rewrite(root, content):
    (root / "town" / "gnd_town.pkl").write_bytes(pickle.dumps(content))


def test_load_revisited(town):
    root, content = town
    data = load_revisited(root, "town")
    assert len(data.gallery) == 3 and data.gallery[1] == root / "town" / "jpg" / "b.jpg" and data.queries[0].name == "q.jpg"
    assert data.gallery[:2] == [data.gallery[0], data.gallery[1]] and data.gallery[-1].name == "c.jpg"
    assert data.gnd == [{"bbx": [4.6, 3.0, 20.2, 25.0], "easy": [0], "hard": [2], "junk": [1]}]
    assert evaluate_revisited(torch.tensor([[3.0, 2.0, 1.0]]), data)["medium"]["mAP"] == 1
    assert evaluate_revisited(torch.tensor([[3.0, 2.0, 1.0]]), content)["medium"]["mAP"] == 1


def test_json_round_trip(town):
    root, _ = town
    before = load_revisited(root, "town")
    written = convert_ground_truth(root / "town" / "gnd_town.pkl")
    assert written == root / "town" / "gnd_town.json" and read_ground_truth(written) == read_ground_truth(root / "town" / "gnd_town.pkl")
    (root / "town" / "gnd_town.pkl").write_bytes(b"the JSON goes first")
    assert load_revisited(root, "town").gnd == before.gnd
    assert sorted(p.name for p in (root / "town").iterdir()) == ["gnd_town.json", "gnd_town.pkl", "jpg"]
    assert convert_ground_truth(written, root / "copy.json").read_text() == written.read_text()


def test_the_query_is_its_box(town):
    root, _ = town
    data = load_revisited(root, "town")
    assert data.query_image(0).shape == (3, 22, 15)  # 4.6 ... 20.2 is rounded to 5 ... 20
    assert data.gallery_image(0).shape == (3, 30, 40)
    assert data.query_image(0, size=20).shape == (3, 11, 8)  # the factor of the whole image, 20 / 40
    assert data.gallery_image(0, size=20).shape == (3, 15, 20) and data.gallery_image(0, size=900).shape == (3, 30, 40)


def test_boxes_cut_the_right_pixels(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    got = read_image(tmp_path / "x.png", bbx=(5, 2, 15, 12))
    assert torch.equal(got, torch.from_numpy(pixels[2:12, 5:15]).permute(2, 0, 1).float() / 255)
    assert read_image(tmp_path / "x.png", bbx=(-3, -3, 400, 400)).shape == (3, 30, 40)
    with pytest.raises(ValueError, match="holds no pixel"):
        read_image(tmp_path / "x.png", bbx=(50, 0, 60, 5))


def test_missing_images_are_named_with_their_source(town):
    root, _ = town
    (root / "town" / "jpg" / "b.jpg").unlink()
    with pytest.raises(FileNotFoundError, match="1 of 4 images are not in .*first 'b'"):
        load_revisited(root, "town")
    assert len(load_revisited(root, "town", images=False).gallery) == 3


@pytest.mark.parametrize("name, where", [("roxford5k", "cmp.felk.cvut.cz/revisitop/data/datasets/roxford5k/gnd_roxford5k.pkl"), ("rparis6k", "gnd_rparis6k.pkl")])
def test_a_missing_annotation_is_named_with_its_source(tmp_path, name, where):
    with pytest.raises(FileNotFoundError, match=where):
        load_revisited(tmp_path, name)
    with pytest.raises(FileNotFoundError, match="revisitop1m.txt"):
        load_distractors(tmp_path)


def test_images_of_the_real_sets_are_named_with_their_source(tmp_path):
    folder = tmp_path / "roxford5k"
    folder.mkdir()
    names = [f"all_souls_{i:06d}" for i in range(4993)]
    (folder / "gnd_roxford5k.json").write_text(json.dumps({"imlist": names, "qimlist": ["q"], "gnd": [entry([0])]}))
    with pytest.raises(FileNotFoundError, match="oxbuild_images-v1.tgz"):
        load_revisited(tmp_path)
    (folder / "gnd_roxford5k.json").write_text(json.dumps({"imlist": names[1:], "qimlist": ["q"], "gnd": [entry([0])]}))
    with pytest.raises(ValueError, match="lists 4992 gallery images, roxford5k has 4993"):
        load_revisited(tmp_path)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "..", "c:\\x", "a\\b", "", "x\0y", 7])
def test_names_stay_in_their_folder(town, name):
    root, _ = town
    with pytest.raises(ValueError, match="must stay inside"):
        ImageList(root / "town" / "jpg", ["a", name])


def test_an_annotation_with_a_path_out_is_refused(town):
    root, content = town
    rewrite(root, content | {"imlist": ["a", "b", "../../secret"]})
    with pytest.raises(ValueError, match="1 image names are refused"):
        load_revisited(root, "town")


def test_links_do_not_lead_out(town, tmp_path_factory):
    root, _ = town
    outside = tmp_path_factory.mktemp("outside") / "secret.jpg"
    picture(outside)
    (root / "town" / "jpg" / "b.jpg").unlink()
    (root / "town" / "jpg" / "b.jpg").symlink_to(outside)
    data = load_revisited(root, "town")
    with pytest.raises(ValueError, match="leads out of"):
        data.gallery[1]
    moved = root / "elsewhere"  # the folder itself may be a link
    (root / "town" / "jpg").rename(moved)
    (root / "town" / "jpg").symlink_to(moved)
    assert load_revisited(root, "town").gallery_image(0).shape == (3, 30, 40)


def test_names_like_dots_are_fine(tmp_path):
    names = ["..hidden..", "a..b", "deep/er/x"]
    assert [p.name for p in ImageList(tmp_path, names, ".jpg")] == ["..hidden...jpg", "a..b.jpg", "x.jpg"]
    with pytest.raises(ValueError, match="more than once"):
        ImageList(tmp_path, ["a", "a"])


@pytest.mark.parametrize("change, message", [
    (lambda c: {"imlist": []}, "must hold imlist, qimlist and gnd"),
    (lambda c: [1], "must hold imlist, qimlist and gnd"),
    (lambda c: c | {"qimlist": ["q", "p"]}, "qimlist has 2 names, gnd has 1"),
    (lambda c: c | {"qimlist": ["a"]}, "1 query images are in the gallery too, first 'a'"),
    (lambda c: c | {"gnd": [entry([3])]}, r"gnd\[0\] names an image beyond the 3"),
    (lambda c: c | {"gnd": [{"easy": [], "hard": [], "junk": []}]}, "bbx"),
    (lambda c: c | {"gnd": [entry([0], bbx=[5, 0, 5, 9])]}, "left < right"),
    (lambda c: c | {"gnd": [entry([0], bbx=[5, 0, math.nan, 9])]}, "left < right"),
    (lambda c: c | {"gnd": [{"bbx": [0, 0, 1, 1], "ok": []}]}, "first Oxford5k"),
])
def test_damaged_annotations_are_named(town, change, message):
    root, content = town
    rewrite(root, change(content))
    with pytest.raises(ValueError, match=message):
        load_revisited(root, "town")


def test_bad_json_and_bad_pictures_are_named(town):
    root, _ = town
    (root / "town" / "gnd_town.json").write_text("{")
    with pytest.raises(ValueError, match="is no JSON"):
        load_revisited(root, "town")
    (root / "x.jpg").write_bytes(b"not a picture")
    with pytest.raises(ValueError, match=r"x\.jpg is damaged or is no picture"):
        read_image(root / "x.jpg")
    with pytest.raises(FileNotFoundError):
        read_image(root / "nowhere.jpg")
    with pytest.raises(ValueError, match="size must be"):
        read_image(root / "town" / "jpg" / "a.jpg", size=0)


def test_truncated_distractors_are_read_when_asked(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "whole.jpg")
    data = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "half.jpg").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="damaged"):
        read_image(tmp_path / "half.jpg")
    assert read_image(tmp_path / "half.jpg", damaged=True).shape == (3, 64, 64)
    with pytest.raises(ValueError, match="damaged"):  # and the tolerance does not outlive the call
        read_image(tmp_path / "half.jpg")


def test_load_distractors(tmp_path):
    for name in ("x/1.jpg", "2.png"):
        picture(tmp_path / "crowd" / "jpg" / name)
    (tmp_path / "crowd" / "crowd.txt").write_text("x/1.jpg\n2.png\n\n3.jpg\n")
    assert load_distractors(tmp_path, "crowd").names == ["x/1.jpg", "2.png", "3.jpg"]
    with pytest.raises(FileNotFoundError, match="1 of 3 images .*'3.jpg'"):
        load_distractors(tmp_path, "crowd", images=True)
    (tmp_path / "crowd" / "crowd.txt").write_text("../1.jpg\n")
    with pytest.raises(ValueError, match="must stay inside"):
        load_distractors(tmp_path, "crowd")
    (tmp_path / "crowd" / "crowd.txt").write_text("\n")
    with pytest.raises(ValueError, match="lists no image"):
        load_distractors(tmp_path, "crowd")


# ----------------------------------------------------------------------------------------------------------------- descriptors

MAPS = torch.rand(2, 5, 7, 9, generator=torch.Generator().manual_seed(0)) + 0.01


def test_gem_ends_in_average_and_maximum():
    torch.testing.assert_close(gem_pool(MAPS, 1), MAPS.mean((2, 3)))
    torch.testing.assert_close(gem_pool(MAPS, 3), MAPS.pow(3).mean((2, 3)).pow(1 / 3))
    assert torch.equal(gem_pool(MAPS, math.inf), MAPS.amax((2, 3))) and torch.equal(mac_pool(MAPS), MAPS.amax((2, 3)))
    torch.testing.assert_close(gem_pool(MAPS, 1e5), MAPS.amax((2, 3)), rtol=1e-3, atol=0)


@given(st.floats(0.2, 500), st.floats(0.2, 500))
def test_gem_grows_with_p(a, b):
    a, b = sorted((a, b))
    assert (gem_pool(MAPS, a) <= gem_pool(MAPS, b) + 1e-5).all()


def test_gem_does_not_overflow_and_has_a_gradient():
    assert torch.isfinite(gem_pool(1e30 * MAPS, 50)).all()
    maps = (MAPS - 0.5).relu().double().requires_grad_()
    gem_pool(maps, 3).sum().backward()
    assert torch.isfinite(maps.grad).all() and maps.grad.abs().sum() > 0
    assert torch.isfinite(gem_pool(torch.zeros(1, 2, 3, 3))).all()


def test_rmac_regions():
    assert rmac_regions(12, 12, 1) == [(0, 0, 12)]
    assert sorted(rmac_regions(12, 16, 1)) == [(0, 0, 12), (0, 4, 12)]
    assert len(rmac_regions(12, 12, 3)) == 1 + 4 + 9 and len(rmac_regions(12, 16, 3)) == 2 + 6 + 12
    for shape in ((5, 5), (3, 20), (20, 3), (1, 1), (1, 6), (31, 17)):
        for top, left, side in rmac_regions(*shape, 4):
            assert top >= 0 and left >= 0 and side >= 1 and top + side <= shape[0] and left + side <= shape[1]


def test_rmac_sums_normalised_regions():
    maps = torch.zeros(1, 2, 4, 4)
    maps[0, 0, 0, 0], maps[0, 1, 3, 3] = 1.0, 100.0
    loud = mac_pool(maps)[0] / mac_pool(maps).norm()
    even = rmac_pool(maps, 3)[0] / rmac_pool(maps, 3).norm()
    assert even[0] > 10 * loud[0]  # the small feature is heard in its own region
    halves = rmac_pool(MAPS, 2, whitening=lambda d: d[:, :3])
    assert halves.shape == (2, 3)


@pytest.mark.parametrize("maps", [torch.rand(3, 4), torch.rand(1, 2, 0, 4), "maps"])
@pytest.mark.parametrize("pool", [gem_pool, mac_pool, rmac_pool])
def test_pools_refuse_what_is_no_map(pool, maps):
    with pytest.raises(ValueError, match="cut the network before its pooling"):
        pool(maps)
    with pytest.raises(ValueError, match="p must be"):
        gem_pool(MAPS, 0)


class Colours(nn.Module):
    "Feature maps that are the picture itself, pooled by two."

    def forward(self, x):
        assert not self.training
        return nn.functional.avg_pool2d(x, 2)


def test_extract_descriptors_of_any_sizes():
    chance = torch.Generator().manual_seed(0)
    images = [torch.rand(3, h, w, generator=chance) for h, w in ((8, 10), (6, 6), (20, 4))]
    net = Colours().train()
    rows = extract_descriptors(net, iter(images), gem_pool, scales=(1.0, 0.5), power=3.0)
    assert rows.shape == (3, 3) and net.training and not rows.requires_grad
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(3))
    one = extract_descriptors(net, images[1:2], gem_pool, scales=(1.0, 0.5), power=3.0)
    assert torch.equal(one[0], rows[1])
    out = np.zeros((3, 3), dtype=np.float32)
    assert extract_descriptors(net, images, gem_pool, scales=(1.0, 0.5), power=3.0, out=out) is out
    assert np.array_equal(out, rows.numpy())
    single = extract_descriptors(net, images, mac_pool)
    want = nn.functional.normalize(torch.stack([nn.functional.avg_pool2d(i, 2).amax((1, 2)) for i in images]), dim=1)
    torch.testing.assert_close(single, want)


def test_extract_descriptors_joins_scales_by_a_mean():
    image = [torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0))]
    parts = [extract_descriptors(Colours(), image, scales=(s,)) for s in (1.0, 0.5)]
    torch.testing.assert_close(extract_descriptors(Colours(), image, scales=(1.0, 0.5)), nn.functional.normalize(sum(parts), dim=1))


@pytest.mark.parametrize("keywords, message", [
    (dict(scales=()), "scales must be"), (dict(scales=(1, 0)), "scales must be"), (dict(power=0.5), "power must be"), (dict(images=[]), "no pictures"),
    (dict(images=[torch.rand(1, 8, 8)]), "picture 0 must be a tensor"), (dict(images=["x"]), "picture 0"), (dict(backbone=nn.Flatten()), "feature maps must be"),
])
def test_extract_descriptors_refuses(keywords, message):
    keywords = {"backbone": Colours(), "images": [torch.rand(3, 8, 8)]} | keywords
    with pytest.raises(ValueError, match=message):
        extract_descriptors(**keywords)


# ------------------------------------------------------------------------------------------------------------------- whitening

def cloud(n=400, d=6, seed=0):
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=chance, dtype=torch.float64) @ torch.randn(d, d, generator=chance, dtype=torch.float64) + 1


def test_pca_whitening_whitens():
    x = cloud()
    w = learn_whitening(x)
    y = (x - w.mean) @ w.projection
    torch.testing.assert_close(y.T @ y / len(y), torch.eye(6, dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(y.mean(0), torch.zeros(6, dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(w(x).norm(dim=1), torch.ones(400, dtype=torch.float64))
    assert torch.equal(w(x, 3), nn.functional.normalize(y[:, :3], dim=1)) and w(x, 3).shape == (400, 3)
    spread = [(x - w.mean) @ (p / p.norm()) for p in w.projection.T]
    assert all(a.var() >= b.var() - 1e-9 for a, b in zip(spread, spread[1:]))  # the strongest direction first


def test_pca_whitening_is_the_same_for_a_turned_cloud():
    x = cloud()
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    a, b = learn_whitening(x)(x), learn_whitening(x @ turn)(x @ turn)
    torch.testing.assert_close(a @ a.T, b @ b.T, atol=1e-8, rtol=0)


def test_whitening_keeps_directions_with_variance_only():
    x = torch.cat([cloud(), torch.ones(400, 2, dtype=torch.float64)], 1)
    assert learn_whitening(x).projection.shape == (8, 6)
    assert learn_whitening(cloud(4).float()).projection.shape == (6, 3)  # four points span three directions
    assert learn_whitening(x, dimensions=2).projection.shape == (8, 2)


def test_whitening_from_pairs_makes_pairs_round():
    chance = torch.Generator().manual_seed(0)
    objects = torch.randn(300, 4, generator=chance, dtype=torch.float64) * torch.tensor([1.0, 1, 1, 0.2])
    noise = torch.tensor([2.0, 0.1, 0.1, 0.1])
    x = (objects[:, None] + torch.randn(300, 2, 4, generator=chance, dtype=torch.float64) * noise).flatten(0, 1)
    pairs = torch.arange(600).view(300, 2)
    w = learn_whitening(x, pairs)
    d = (x[pairs[:, 0]] - x[pairs[:, 1]]) @ w.projection
    torch.testing.assert_close(d.T @ d / 300, torch.eye(4, dtype=torch.float64), atol=1e-8, rtol=0)

    def hits(y):
        y = nn.functional.normalize(y, dim=1)
        scores = y[::2] @ y[1::2].T
        return (scores.argmax(1) == torch.arange(300)).double().mean()

    assert hits(w(x)) > hits(learn_whitening(x)(x)) > 0


def test_whitening_as_a_layer():
    x = cloud().float()
    w = learn_whitening(x, dimensions=4)
    torch.testing.assert_close(nn.functional.normalize(w.as_linear()(x), dim=1), w(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("call, message", [
    (lambda: learn_whitening(torch.rand(1, 3)), "at least two"),
    (lambda: learn_whitening(torch.ones(5, 3)), "no variance"),
    (lambda: learn_whitening(torch.rand(9, 3), dimensions=4), "dimensions must lie in 1 ... 3"),
    (lambda: learn_whitening(torch.rand(9, 3), dimensions=0), "dimensions must lie"),
    (lambda: learn_whitening(torch.rand(9, 3), torch.tensor([[0, 9]])), "rows 0 ... 8"),
    (lambda: learn_whitening(torch.rand(9, 3), torch.tensor([0, 1])), "pairs must be integers"),
    (lambda: learn_whitening(torch.rand(9, 3), torch.empty(0, 2, dtype=torch.long)), "pairs must be integers"),
    (lambda: learn_whitening(torch.rand(9, 3), torch.tensor([[0, 1], [2, 3]])), "vary in 2 of 3 directions"),
    (lambda: learn_whitening(torch.rand(9, 3))(torch.rand(2, 4)), "learnt on 3 dimensions"),
    (lambda: learn_whitening(torch.rand(9, 3))(torch.rand(2, 3), 5), "dimensions must lie in 1 ... 3"),
    (lambda: learn_whitening(torch.full((4, 3), math.nan)), "NaN or infinity"),
])
def test_whitening_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ------------------------------------------------------------------------------------------------- query expansion, distractors

def unit(rows, seed=0):
    return nn.functional.normalize(torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed)), dim=1)


def test_query_expansion_is_the_mean_it_says():
    queries, gallery = unit(3), unit(20, 1)
    best = (queries @ gallery.T).topk(4)
    torch.testing.assert_close(query_expansion(queries, gallery, 4), nn.functional.normalize(queries + gallery[best.indices].sum(1), dim=1))
    weights = best.values.clamp(min=0) ** 3
    torch.testing.assert_close(query_expansion(queries, gallery, 4, 3.0), nn.functional.normalize(queries + (weights[..., None] * gallery[best.indices]).sum(1), dim=1))
    torch.testing.assert_close(query_expansion(queries, gallery, 4, 500.0), queries, atol=1e-3, rtol=0)  # a huge alpha trusts nobody


@pytest.mark.parametrize("call, message", [
    (lambda: query_expansion(unit(2), unit(5), top=6), "top must be a whole number in 1 ... 5"),
    (lambda: query_expansion(unit(2), unit(5), top=0), "top must be"),
    (lambda: query_expansion(unit(2), unit(5), top=2, alpha=-1.0), "alpha must be"),
    (lambda: query_expansion(unit(2), torch.rand(5, 3), top=2), "8 dimensions, the gallery has 3"),
])
def test_query_expansion_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()


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
    want = [sum(sum(scores[q, p] < candidates[q, x] for p in t["easy"] + t["hard"]) / max(1, len(t["easy"] + t["hard"])) for q, t in enumerate(truth)) for x in range(5)]
    assert distractor_scores(scores, torch.from_numpy(candidates), truth).tolist() == pytest.approx(want)


def test_distractor_scores_refuse():
    with pytest.raises(ValueError, match="candidates must have shape"):
        distractor_scores(GOOD, torch.rand(2, 3), [EXAMPLE])


# ------------------------------------------------------------------------------------------------------------------- miniature

def test_the_miniature_runs_the_whole_protocol(tmp_path):
    write_miniature(tmp_path, "small", landmarks=3, others=15, distractors=5)
    data = load_revisited(tmp_path, "small")
    crowd = load_distractors(tmp_path, "small-distractors", images=True)
    assert len(data.queries) == 6 and len(crowd) == 5 and data.query_image(0).shape == (3, 32, 32) and data.gallery_image(0).shape == (3, 32, 48)
    labelled = [set(e["easy"] + e["hard"] + e["junk"]) for e in data.gnd]
    assert all(e["easy"] and e["hard"] and e["junk"] for e in data.gnd)
    assert all(labelled[q] == labelled[q + 1] for q in (0, 2, 4)) and not labelled[0] & labelled[2]
    assert not set(data.queries.names) & set(data.gallery.names)
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 16, 5, stride=2), nn.ReLU())
    gallery = extract_descriptors(backbone, map(data.gallery_image, range(len(data.gallery))), scales=(1.0, 0.7))
    queries = extract_descriptors(backbone, map(data.query_image, range(len(data.queries))), scales=(1.0, 0.7))
    whitening = learn_whitening(extract_descriptors(backbone, map(read_image, crowd)), dimensions=3)
    queries, gallery = query_expansion(whitening(queries), whitening(gallery), top=3, alpha=3.0), whitening(gallery)
    full = evaluate_revisited(queries @ gallery.T, data)
    cut = evaluate_revisited(ground_truth=data, ranks=(queries @ gallery.T).topk(10).indices)
    assert all(0 < full[s]["mAP"] <= 1 and cut[s]["mAP"] <= full[s]["mAP"] for s in SETUPS)
    perfect = torch.tensor([[float(i in labelled[q]) for i in range(len(data.gallery))] for q in range(6)])
    assert all(evaluate_revisited(perfect, data)[s]["mAP"] == 1 for s in SETUPS)


def test_the_miniature_is_the_same_every_time(tmp_path):
    a, b = (write_miniature(tmp_path / str(i), landmarks=2, others=4) for i in range(2))
    assert (a / "gnd_rglyphs.pkl").read_bytes() == (b / "gnd_rglyphs.pkl").read_bytes()
    assert all((b / "jpg" / p.name).read_bytes() == p.read_bytes() for p in (a / "jpg").iterdir())
    assert (write_miniature(tmp_path / "2", landmarks=2, others=4, seed=1) / "gnd_rglyphs.pkl").read_bytes() != (a / "gnd_rglyphs.pkl").read_bytes()
