"""Blocks of rows: what they may weigh, what is said of rows that do not do, which rows are copies of earlier ones."""

from __future__ import annotations

import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from smoothap_nb import evaluate, nearest_neighbours
from smoothap_nb.metrics import neighbours, positives, rows
from smoothap_nb.metrics.counting import at_or_above, count_at_or_above
from smoothap_nb.metrics.positives import Tags, count_by_sorting, pieces
from smoothap_nb.metrics.rows import Rows, full_precision, memory_bytes, own_rows, prepare, score_rows
from smoothap_nb.metrics.threads import on_threads


def random_rows(count: int, dim: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit_rows(count: int, dim: int, seed: int = 0) -> torch.Tensor:
    return torch.nn.functional.normalize(random_rows(count, dim, seed), dim=1)


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, size",
    [
        (1, 1),
        (2.9, 2),
        ("1", 1),
        ("1B", 1),
        ("1 b", 1),
        ("2k", 2000),
        ("3kB", 3000),
        ("2KiB", 2048),
        ("1.5MB", 1_500_000),
        ("1MiB", 1 << 20),
        ("1 GB", 10**9),
        ("2gib", 1 << 31),
        ("1T", 10**12),
        (" 1TiB ", 1 << 40),
        ("0.001kB", 1),
    ],
)
def test_sizes_of_memory(text, size):
    assert memory_bytes(text) == size


@pytest.mark.parametrize(
    "size", [0, 0.9, -1, True, float("inf"), float("nan"), "", "B", "0", "0.9B", "1PB", "-1", None]
)
def test_what_is_no_size_of_memory(size):
    with pytest.raises(ValueError, match="memory must be a size"):
        memory_bytes(size)


@pytest.mark.parametrize("memory", [30_000, 7_000, 100_000, 3_000])
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("dim", [4, 30])
def test_blocks_fill_what_may_be_filled(memory, kept, dim, monkeypatch):
    "A quarter stays free. A gallery that must be prepared is, where it fits into half of the memory."
    data = unit_rows(100, dim).float() * (1 if kept else 3)  # rows as they are need no copy
    gallery = Rows(data, "embeddings")
    gallery.scale, cost = not kept, 8
    taken = 0 if kept or len(data) * 4 * dim > memory // 2 else len(data) * 4 * dim
    need, left = 100 * cost + 2 * 4 * dim, memory - taken
    sizes, slices = [], Rows.slices
    monkeypatch.setattr(Rows, "slices", lambda self, step: (sizes.append(step), slices(self, step))[1])
    blocks = [
        (part.copy(), scores.clone())
        for part, scores in score_rows(gallery, gallery, np.arange(100), memory, cost, False)
    ]
    assert (gallery.kept is not None) == (kept or taken > 0)
    assert {len(part) for part, _ in blocks[:-1]} <= {(left - left // 4) // need}
    assert len(blocks[0][0]) == min(100, (left - left // 4) // need)
    assert [q for part, _ in blocks for q in part] == list(range(100))
    if (
        gallery.kept is None
    ):  # read anew for every block of queries, some columns at a time: three copies in the quarter
        assert set(sizes) == {max(1, left // 4 // (3 * 4 * dim))}
    wanted = torch.nn.functional.normalize(data) @ torch.nn.functional.normalize(data).T
    torch.testing.assert_close(torch.cat([scores for _, scores in blocks]), wanted, atol=1e-6, rtol=0)


def test_one_query_must_fit():
    gallery = Rows(unit_rows(50, 4).float(), "embeddings")
    need = 50 * 4 + 2 * 16
    assert len(next(score_rows(gallery, gallery, np.arange(50), need * 4 // 3 + 1, 4, False))[0]) == 1
    with pytest.raises(
        ValueError, match=f"memory of {need:,} bytes is too small.* 50 images take {need * 4 // 3 + 4:,}"
    ):
        next(score_rows(gallery, gallery, np.arange(50), need, 4, False))


def test_a_bar_after_three_seconds_that_leaves_nothing(monkeypatch):
    import tqdm

    bars = []

    class Bar:
        def __init__(self, **given):
            self.given, self.done = given, 0
            bars.append(self)

        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda self, *_: None  # noqa: E731

        def update(self, count):
            self.done += count

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    for progress in (True, False):
        evaluate(unit_rows(30, 4), torch.arange(30) // 2, memory="3kB", progress=progress)
        assert bars[-1].given == {
            "total": 30,
            "desc": "evaluating",
            "unit": "query",
            "disable": not progress,
            "delay": 3,
            "leave": False,
        }
        assert bars[-1].done == 30


# --- one look at all rows ---------------------------------------------------------------------------------------------


def looked_at(data, normalize=None, memory=2_000) -> Rows:
    table = Rows(data, "embeddings")
    prepare(table, table, normalize, "cosine", None, memory)
    return table


@pytest.mark.parametrize(
    "bad, said",
    [
        ([5, 17], "in 2 of 90 rows: row 5, 17"),
        ([0, 20, 40, 60, 89], "in 5 of 90 rows: row 0, 20, 40, 60, 89"),
        (range(80, 86), r"in 6 of 90 rows: row 80, 81, 82, 83, 84, \.\.\."),
    ],
)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_rows_that_are_no_numbers_are_named(bad, said, value):
    data = unit_rows(90, 6)
    data[list(bad), 2] = value
    with pytest.raises(ValueError, match=f"^embeddings hold NaN or infinity {said}$"):
        looked_at(data)
    assert looked_at(torch.full((3, 2), 1e30)).scale  # so long that its square overflows, and a number all the same


@pytest.mark.parametrize(
    "length, scaled, told",
    [
        (1, False, False),
        (1 + 8e-7, False, False),
        (1 - 8e-7, False, False),
        (1 + 1.5e-6, True, False),
        (1 - 1.5e-6, True, False),
        (1.008, True, False),
        (0.992, True, False),
        (1.012, True, True),
        (0.988, True, True),
    ],
)
def test_lengths_that_are_told_and_lengths_that_are_mended(length, scaled, told):
    data = unit_rows(40, 6)
    data[33] *= length
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert looked_at(data).scale == scaled
    assert bool(caught) == told
    assert not looked_at(data, normalize=False).scale
    if told:
        with pytest.raises(
            ValueError, match=rf"^1 of 40 rows of embeddings are not of length 1 \(row 33 has length {length}"
        ):
            looked_at(data, normalize="refuse")


def test_the_first_of_many_lengths_is_named_and_all_are_counted():
    data = unit_rows(90, 6)
    data[[31, 50, 88]] *= torch.tensor([[2.0], [3.0], [4.0]])
    with pytest.raises(ValueError, match=r"^3 of 90 rows of embeddings are not of length 1 \(row 31 has length 2\)"):
        looked_at(data, normalize="refuse")
    with pytest.warns(UserWarning, match="rows of embeddings and of gallery_embeddings are not"):
        evaluate(data, torch.arange(90) // 2, data, torch.arange(90) // 2, progress=False)


def test_products_may_reach_half_of_the_largest_number():
    one, labels = torch.tensor([[1e19], [-1e19]]), torch.tensor([0, 0])
    for factor, refused in ((1.6, False), (1.8, True)):
        if refused:
            with pytest.raises(ValueError, match="products overflow"):
                evaluate(one, labels, factor * one, labels, normalize=False)
        else:
            assert evaluate(one, labels, factor * one, labels, normalize=False)["mAP"] == 1
    assert evaluate(one, labels, 1.8 * one, labels, normalize=True)["mAP"] == 1


def first_equals(data) -> dict[int, int]:
    listed = [tuple(row) for row in (data + 0.0).tolist()]
    return {i: listed.index(row) for i, row in enumerate(listed) if listed.index(row) < i}


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("dim", [1, 3, 16, 33, 70])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copies_are_found_with_the_first_of_them(dim, dtype, small, monkeypatch):
    if small:
        monkeypatch.setattr(rows, "_BYTES_PER_PASS", 1)  # one row at a time
    generator = torch.Generator().manual_seed(dim)
    data = torch.randint(-1, 2, (40, dim), generator=generator).to(dtype)
    data[20:] = data[torch.randint(0, 20, (20,), generator=generator)]
    data[25, dim // 2] += 1  # nearly a copy, often in a column that the first look leaves out
    data[data == 0] = -0.0 if small else 0.0
    data[3][data[3] == 0] *= -1
    table = Rows(data, "embeddings")
    table.look(False, 10**6)
    assert dict(zip(*(part.tolist() for part in table.twins))) == first_equals(data)


def test_rows_of_equal_fingerprint_are_compared(monkeypatch):
    monkeypatch.setattr(rows, "_fingerprint", lambda block: np.zeros(len(block), np.int64))
    data = torch.tensor([[1.0, 2], [1, 3], [4, 2], [1, 2], [1, 2]])
    table = Rows(data, "embeddings")
    table.look(False, 10**6)
    assert [part.tolist() for part in table.twins] == [[3, 4], [0, 0]]


def test_own_rows():
    assert own_rows(None, 3, 5, False).tolist() == [-1, -1, -1]
    for index in (np.array([4, -1, 0]), torch.tensor([4, -1, 0]), [4, -1, 0]):
        assert own_rows(index, 3, 5, False).tolist() == [4, -1, 0]
        assert own_rows(index, 3, 5, True).tolist() == [-1, -1, -1]
    for index in ([-2, 0, 0], [0, 0, 5]):
        with pytest.raises(ValueError, match=r"query_index must lie in -1 \.\.\. 4"):
            own_rows(index, 3, 5, False)
    for index in ([0, 0], [0.0, 1.0, 2.0], [[0, 1, 2]]):
        with pytest.raises(ValueError, match="query_index must hold 3 integers"):
            own_rows(index, 3, 5, False)


def test_where_and_in_what_precision():
    "Without float64 on its device a Mac computes on its processor."
    single, double = unit_rows(4, 3).float(), unit_rows(4, 3)
    for pair, dtype in (
        ((single, single), torch.float32),
        ((single, double), torch.float64),
        ((double, single), torch.float64),
        ((single.numpy(), single.half()), torch.float32),
    ):
        queries, gallery = prepare(Rows(pair[0], "a"), Rows(pair[1], "b"), None, "cosine", "mps", 10**6)
        assert {queries.device.type, gallery.device.type} == {"cpu"} and {queries.dtype, gallery.dtype} == {dtype}
    with pytest.raises(ValueError, match="normalize must be True, False or 'refuse', got 'always'"):
        prepare(queries, gallery, "always", "cosine", None, 10**6)


@pytest.mark.parametrize("old", [True, False])
def test_rough_products_are_off_inside_and_as_they_were_outside(old, monkeypatch):
    if old:  # torch before 2.9 has one switch
        monkeypatch.setattr(torch.backends, "mkldnn", SimpleNamespace())
        state, change = torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
        rough, exact = "medium", "highest"
    else:
        backend = torch.backends.mkldnn.matmul
        state, change = lambda: backend.fp32_precision, lambda word: setattr(backend, "fp32_precision", word)
        rough, exact = "bf16", "ieee"
    before = state()
    try:
        change(rough)
        with warnings.catch_warnings(), torch.autocast("cpu", dtype=torch.bfloat16):
            warnings.simplefilter("error")  # to switch a card's autocast on is a warning where there is none
            with full_precision():
                assert state() == exact and not torch.is_autocast_enabled("cpu") and torch.is_inference_mode_enabled()
        assert state() == rough
    finally:
        change(before)


# --- counting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 9])
def test_counts_by_the_plain_loop(count, strict):
    "The loop as Python runs it, its compiled form, and the sort, against comparing everything with everything."
    generator = torch.Generator().manual_seed(count)
    scores = torch.randint(0, 6, (5, 13), generator=generator).double().numpy()
    which, values = (
        np.array([3, 0, 3]),
        -np.sort(-torch.randint(-1, 7, (3, count), generator=generator).double().numpy()),
    )
    compare = np.greater if strict else np.greater_equal
    wanted = compare(scores[which][:, None, :], values[:, :, None]).sum(2)
    counts = np.full(values.shape, -1)
    at_or_above(scores, which, values, strict, counts)
    assert counts.tolist() == wanted.tolist()
    assert count_at_or_above(scores, which, values, strict).tolist() == wanted.tolist()
    assert count_by_sorting(scores, which, values, strict).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    "threads, count, step, others",
    [(1, 40, 16, False), (3, 16, 16, False), (3, 17, 16, True), (3, 40, 7, True), (3, 0, 16, False)],
)
def test_work_is_spread_over_threads(threads, count, step, others, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    seen = []
    on_threads(lambda part: seen.append((part, threading.current_thread())), count, step)
    assert sorted(n for part, _ in seen for n in part) == list(range(count))
    assert all(0 < len(part) <= step for part, _ in seen)
    assert any(thread is not threading.main_thread() for _, thread in seen) == others


@pytest.mark.parametrize("limit", [1, 4, 10, 1000])
def test_pieces_are_as_large_as_they_may_be(limit):
    widths = np.array([3, 0, 5, 1, 1, 0, 12, 3])
    found = [part.tolist() for part in pieces(widths, limit)]
    assert sorted(sum(found, [])) == list(range(8))
    entries = lambda part: len(part) * max(1, max(widths[part]))  # noqa: E731
    assert all(len(part) == 1 or entries(part) <= limit for part in found)
    assert all(entries([*part, later[0]]) > limit for part, later in zip(found, found[1:]))
    assert list(pieces(widths[:0], limit)) == []


def test_which_engine_counts():
    cpu, card = torch.device("cpu"), torch.device("cuda")
    assert positives.may_compile("numba", cpu, 1) and not positives.may_compile("torch", cpu, 10**9)
    assert not positives.may_compile("auto", cpu, 1000) and not positives.may_compile("torch", card, 10**9)
    with pytest.raises(ValueError, match="engine='numba' computes on a CPU, not on cuda"):
        positives.may_compile("numba", card, 10**9)
    with pytest.raises(ValueError, match="engine must be one of"):
        positives.may_compile("cuda", cpu, 1)


@pytest.mark.parametrize("apart", [False, True])
def test_tags_by_loops(apart):
    generator = torch.Generator().manual_seed(3)
    tags, others = (torch.rand(n, 4, generator=generator) < 0.3 for n in (9, 14))
    own = np.array([3, -1, 0, 8, 2, -1, 7, 1, 5])
    gallery = others if apart else tags
    who = Tags(tags.numpy(), others.numpy() if apart else None, own)
    wanted = [[g for g in range(len(gallery)) if (tags[q] & gallery[g]).any() and g != own[q]] for q in range(9)]
    assert who.counts.tolist() == [[len(found) for found in wanted]]
    chosen = np.array([4, 0, 8])
    columns, levels = who.positives(chosen, torch.device("cpu"))
    assert [c[v > 0].tolist() for c, v in zip(columns, levels)] == [wanted[q] for q in chosen]
    assert (
        who.widths(chosen).tolist() == [len(wanted[q]) for q in chosen] and columns.shape[1] == who.widths(chosen).max()
    )


# --- lists of neighbours ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("index", [None, "Flat"])
def test_neighbours_in_passes_of_one_row(distance, index, monkeypatch):
    if index:
        pytest.importorskip("faiss")
    data = random_rows(40, 5, 1).float()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = nearest_neighbours(data, 6, distance=distance, progress=False)
        monkeypatch.setattr(neighbours, "_BYTES_PER_PASS", 1)
        monkeypatch.setattr(rows, "_BYTES_PER_PASS", 1)
        scores, found = nearest_neighbours(data, 6, distance=distance, index=index, progress=False)
    torch.testing.assert_close(scores, wanted[0], atol=1e-4, rtol=0)
    assert torch.equal(found, wanted[1])
    if distance == "euclidean":
        apart = torch.cdist(data, data)
        torch.testing.assert_close(-scores, apart.gather(1, found), atol=1e-4, rtol=0)


def test_a_look_takes_a_quarter_and_what_is_kept_is_counted(monkeypatch):
    table, sizes, raw = Rows(2 * unit_rows(50, 5), "embeddings"), [], Rows.raw
    monkeypatch.setattr(Rows, "raw", lambda self, which: (sizes.append(which), raw(self, which))[1])
    assert table.width == 40 and table.look(None, 4 * 40 * 7)
    assert [part.stop - part.start for part in sizes if isinstance(part, slice)] == [7] * 7 + [1]
    assert table.keep(50 * 40 - 1) == 0 and table.kept is None
    assert table.keep(50 * 40) == 50 * 40
    torch.testing.assert_close(table.kept, unit_rows(50, 5))
    as_it_is = Rows(unit_rows(50, 5), "embeddings")
    assert as_it_is.keep(0) == 0 and as_it_is.kept is as_it_is.rows
    table.kept, table.extra = None, "square"
    assert table.width == 48 and table.keep(50 * 48) == 50 * 48
    torch.testing.assert_close(table.kept[:, -1], torch.full((50,), -0.5, dtype=torch.float64))
