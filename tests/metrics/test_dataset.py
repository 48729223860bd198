"""Dataset-level metrics against their definitions written out in plain Python, against peers, and against themselves
cut differently.
"""

from __future__ import annotations

import sys
import warnings

import naive_metrics as naive
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from clean import run_clean
from hypothesis import given, settings, strategies as st

from smoothap_nb import (
    asi,
    average_precision,
    evaluate,
    h_ap,
    levels_from_labels,
    map_at_r,
    ndcg,
    nearest_neighbours,
    r_precision,
    recall_at_k,
    precision_at_k,
    relevance_from_levels,
    relevance_from_weights,
)
from smoothap_nb.metrics import positives


KS = (1, 3)
FLAT = ("mAP", "mAP@R", "R-precision", "R@1", "R@3", "P@1", "P@3")
ENGINES = ("torch", "numba")
TIES = ("max", "min", "average")


def all_metrics(depth: int) -> tuple[str, ...]:
    return (*FLAT, *(f"AP@level{n}" for n in range(1, depth + 1)), "H-AP", "ASI", "NDCG")


def exact_rows(count: int, dim: int, seed: int, dtype=torch.float32) -> torch.Tensor:
    "Rows whose products are exact, with many ties."
    return torch.randint(-2, 3, (count, dim), generator=torch.Generator().manual_seed(seed)).to(dtype)


def random_labels(count: int, depth: int, classes: int, seed: int) -> torch.Tensor:
    return torch.randint(0, classes, (count, depth), generator=torch.Generator().manual_seed(seed))


def unit_rows(count: int, dim: int, seed: int) -> torch.Tensor:
    return F.normalize(
        torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=1
    )


def same(one: dict, other: dict, atol: float = 1e-12) -> None:
    "Equal results, per query where both have that."
    assert one.keys() == other.keys()
    for name in one.keys() - {"per_query"}:
        assert one[name] == pytest.approx(other[name], abs=atol), name
    for name in one.get("per_query", ()):
        np.testing.assert_allclose(one["per_query"][name], other["per_query"][name], rtol=0, atol=atol, err_msg=name)


@pytest.fixture
def sort_always(monkeypatch):
    "Every row is sorted, as those with many positives are."
    monkeypatch.setattr(positives, "FEW", 0)


# ---------------------------------------------------------------------------------------------------------------- the
# definition

def check_definition(seed: int, ties: str, engine: str) -> None:
    depth = 1 + seed % 3
    rows, labels = exact_rows(26, 3, seed), random_labels(26, depth, 3, seed)
    names = [name for name in all_metrics(depth) if name not in ("ASI", "NDCG")]
    found = evaluate(rows, labels, metrics=names, ties=ties, normalize=False, per_query=True, alpha=2.0, engine=engine)[
        "per_query"
    ]
    scores = (rows @ rows.T).tolist()
    for q in range(len(rows)):
        others = [j for j in range(len(rows)) if j != q]
        s, levels = (
            [scores[q][j] for j in others],
            naive.levels_between(labels[q].tolist(), [labels[j].tolist() for j in others]),
        )
        wanted = naive.cutoff_metrics(s, levels, depth, ties, KS)
        wanted |= {f"AP@level{n}": naive.average_precision(s, levels, n, ties) for n in range(1, depth + 1)}
        wanted |= {
            "mAP": wanted[f"AP@level{depth}"],
            "H-AP": naive.hierarchical_ap(s, levels, naive.relevance_by_alpha(levels, depth, 2.0), ties),
        }
        for name in names:
            assert found[name][q] == pytest.approx(wanted[name], abs=1e-12, nan_ok=True), (name, q)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("seed", range(4))
def test_every_metric_follows_its_definition(seed, ties, engine):
    check_definition(seed, ties, engine)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("seed", range(3))
def test_the_sorting_path_follows_the_definition(seed, ties, sort_always):
    check_definition(seed, ties, "numba")


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_functions_of_the_lessons_agree(engine, ties):
    rows, labels = exact_rows(60, 3, 1, torch.float64), random_labels(60, 3, 2, 1)
    away = ~torch.eye(60, dtype=torch.bool)
    scores, levels = (rows @ rows.T)[away].view(60, 59), levels_from_labels(labels)[away].view(60, 59)
    fine = levels == 3
    wanted = {
        "mAP": average_precision(scores, fine, ties),
        "mAP@R": map_at_r(scores, fine, ties),
        "R-precision": r_precision(scores, fine, ties),
        "R@3": recall_at_k(scores, fine, 3, ties),
        "P@3": precision_at_k(scores, fine, 3, ties),
        "AP@level1": average_precision(scores, levels >= 1, ties),
        "AP@level2": average_precision(scores, levels >= 2, ties),
        "NDCG": ndcg(scores, levels, ties),
        "ASI": asi(scores, levels, ties),
        "H-AP": h_ap(scores, relevance_from_levels(levels, 3.0, num_levels=3, extra_fine=1), ties),
    }
    options = {"ties": ties, "engine": engine, "normalize": False, "per_query": True, "extra_fine": 1}
    found = evaluate(rows, labels, metrics=tuple(wanted), alpha=3.0, **options)["per_query"]
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value.numpy(), atol=1e-12, err_msg=name)
    weights = (0.2, 0.0, 0.5)
    found = evaluate(rows, labels, metrics="H-AP", weights=weights, **options)["per_query"]["H-AP"]
    np.testing.assert_allclose(
        found, h_ap(scores, relevance_from_weights(levels, weights, extra_fine=1), ties).numpy(), atol=1e-12
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_property_1_makes_h_ap_a_weighted_mean_of_level_aps(engine):
    rows, labels = unit_rows(80, 8, 2), random_labels(80, 2, 3, 2)
    found = evaluate(
        rows, labels, metrics=("H-AP", "AP@level1", "AP@level2"), weights=(0.4, 0.6), engine=engine, per_query=True
    )["per_query"]
    both = ~np.isnan(found["AP@level2"])
    np.testing.assert_allclose(
        found["H-AP"][both], (0.4 * found["AP@level1"] + 0.6 * found["AP@level2"])[both], atol=1e-12
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_levels_of_equal_relevance_count_each_item_once(engine):
    "Weights (1, 0) give both levels one relevance, where the released code exceeds 1."
    line = torch.tensor([[0.9], [0.8], [0.7], [0.6], [0.5]])
    labels = torch.tensor([[0, 0], [0, 0], [0, 1], [0, 1], [1, 2]])
    query = (torch.ones(1, 1), torch.zeros(1, 2, dtype=torch.int64))
    assert evaluate(*query, line, labels, metrics="H-AP", weights=(1, 0), normalize=False, engine=engine)[
        "H-AP"
    ] == pytest.approx(1, abs=1e-12)


def test_scikit_learn_agrees_without_ties():
    from sklearn.metrics import average_precision_score

    rows, labels = unit_rows(400, 16, 3), random_labels(400, 1, 30, 3)[:, 0]
    found = evaluate(rows, labels, metrics="mAP", per_query=True, engine="numba")["per_query"]["mAP"]
    for query in range(0, 400, 9):
        others = torch.arange(400) != query
        theirs = average_precision_score(
            (labels == labels[query])[others].numpy(), (rows @ rows[query])[others].numpy()
        )
        assert found[query] == pytest.approx(theirs, abs=1e-12)


# --------------------------------------------------------------------------------------------------- laws, whatever the
# data

sets = st.tuples(
    st.integers(4, 40),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(0, 10**6),
    st.sampled_from(TIES),
    st.sampled_from(ENGINES),
)


def result_or_none(*args, **kwargs):
    try:
        return evaluate(*args, **kwargs)
    except ValueError as error:
        assert "no query has a positive" in str(error)


@settings(max_examples=40, deadline=None)
@given(sets, st.integers(1, 40))
def test_any_chunk_gives_what_the_whole_gives(drawn, chunk):
    count, depth, classes, seed, ties, engine = drawn
    rows, labels = exact_rows(count, 3, seed), random_labels(count, depth, classes, seed)
    options = {"metrics": all_metrics(depth), "ties": ties, "engine": engine, "normalize": False, "per_query": True}
    whole = result_or_none(rows, labels, **options)
    memory = 4 * (count * chunk * (4 if engine == "numba" else 12) + 24 * chunk) // 3 + 8
    if whole is not None:
        same(whole, evaluate(rows, labels, memory=memory, **options))
        same(whole, evaluate(rows.half().numpy(), labels, memory=memory + 1000, **options))


@settings(max_examples=40, deadline=None)
@given(sets)
def test_the_order_of_the_images_does_not_matter(drawn):
    count, depth, classes, seed, ties, engine = drawn
    rows, labels = exact_rows(count, 3, seed), random_labels(count, depth, classes, seed)
    options = {"metrics": all_metrics(depth), "ties": ties, "engine": engine, "normalize": False}
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    one, other = result_or_none(rows, labels, **options), result_or_none(rows[order], labels[order], **options)
    assert (one is None) == (other is None)
    if one:
        same(one, other)


@settings(max_examples=40, deadline=None)
@given(sets)
def test_both_engines_and_a_gallery_of_the_same_images_agree(drawn):
    count, depth, classes, seed, ties, _ = drawn
    rows, labels = exact_rows(count, 3, seed, torch.float64), random_labels(count, depth, classes, seed)
    options = {"metrics": all_metrics(depth), "ties": ties, "normalize": False, "per_query": True}
    one = result_or_none(rows, labels, engine="torch", **options)
    if one:
        same(one, evaluate(rows, labels, engine="numba", **options))
        same(
            one,
            evaluate(rows, labels, rows.clone(), labels, query_index=torch.arange(count), engine="numba", **options),
        )


@settings(max_examples=25, deadline=None)
@given(
    st.integers(3, 30),
    st.integers(0, 10**6),
    st.sampled_from((torch.float32, torch.float64)),
    st.sampled_from(ENGINES),
    st.integers(1, 60),
)
def test_copies_of_an_image_tie_exactly(count, seed, dtype, engine, dim):
    "A copy of each image under another label: the pessimist sees every hit behind its copy, the optimist before it."
    rows = F.normalize(torch.randn(count, dim, generator=torch.Generator().manual_seed(seed)).to(dtype), dim=1)
    rows = torch.cat([rows, rows])
    labels = torch.cat([torch.zeros(count), torch.ones(count)]).long()
    found = {ties: evaluate(rows, labels, metrics=("R@1", "mAP"), ties=ties, engine=engine) for ties in ("max", "min")}
    if len(rows.unique(dim=0)) == count:
        assert found["max"]["R@1"] == 0.0  # the query's own copy, a negative, stands at least level with everything
        assert found["max"]["mAP"] < found["min"]["mAP"]


def test_a_copy_of_the_query_stays_and_only_its_own_row_leaves():
    rows = torch.eye(3)[[0, 0, 1, 1, 2]]
    found = evaluate(rows, [0, 0, 1, 2, 1], metrics=("R@1", "mAP"), per_query=True)
    assert found["per_query"]["R@1"].tolist()[:2] == [1.0, 1.0]  # the copy, a positive
    assert found["per_query"]["R@1"][2] == 0.0                   # the copy, of another class


@pytest.mark.parametrize("engine", ENGINES)
def test_tied_positives_do_not_push_each_other_back(engine):
    rows = torch.eye(2)[[0, 0, 0, 1]]
    assert evaluate(rows, [0, 0, 0, 1], metrics=("R@1", "P@1", "mAP@R"), engine=engine)["R@1"] == 1.0


# ------------------------------------------------------------------------------------------------- queries, galleries,
# the own row

def test_means_leave_out_queries_without_positives():
    found = evaluate(torch.eye(3)[[0, 0, 1]], torch.tensor([7, 7, 8]), metrics=("mAP", "R@1"), per_query=True)
    assert found["mAP"] == found["R@1"] == 1.0 and found["queries_skipped"] == 1
    assert np.isnan(found["per_query"]["mAP"][2])


def test_skipped_are_those_without_a_positive_at_the_finest_level_asked_for():
    labels = torch.tensor([[0, 0], [0, 0], [0, 1], [1, 2], [1, 3]])
    rows = unit_rows(5, 4, 0)
    assert evaluate(rows, labels, metrics=("mAP", "AP@level1"))["queries_skipped"] == 3
    assert evaluate(rows, labels, metrics=("AP@level1",))["queries_skipped"] == 0
    found = evaluate(rows, labels, metrics=("mAP", "AP@level1", "H-AP"), per_query=True)["per_query"]
    assert np.isnan(found["mAP"][2]) and not np.isnan(found["AP@level1"][2]) and not np.isnan(found["H-AP"][2])


def test_a_query_in_its_own_gallery_lifts_every_number():
    rows, labels = unit_rows(60, 8, 5), random_labels(60, 1, 12, 5)[:, 0]
    out, inside = (
        evaluate(rows, labels, metrics=("mAP", "mAP@R", "R@1"), include_query=include) for include in (False, True)
    )
    assert (
        inside["R@1"] == 1.0
        and all(inside[name] > out[name] for name in ("mAP", "mAP@R", "R@1"))
        and inside["queries_skipped"] == 0
    )
    same(inside, evaluate(rows, labels, rows, labels, metrics=("mAP", "mAP@R", "R@1")))


def test_query_index_takes_out_members_and_leaves_strangers():
    rows, labels = unit_rows(30, 5, 6), random_labels(30, 1, 4, 6)[:, 0]
    strangers, index = unit_rows(6, 5, 7), torch.tensor([3, 9, -1, -1])
    queries, wanted = torch.cat([rows[[3, 9]], strangers[:2]]), torch.tensor([*labels[[3, 9]], 0, 1])
    found = evaluate(queries, wanted, rows, labels, query_index=index, per_query=True)["per_query"]["mAP"]
    alone = evaluate(rows, labels, per_query=True)["per_query"]["mAP"]
    apart = evaluate(strangers[:2], wanted[2:], rows, labels, per_query=True)["per_query"]["mAP"]
    np.testing.assert_allclose(found, [*alone[[3, 9]], *apart], atol=1e-12)


def test_labels_may_be_lists_arrays_or_tensors_of_any_integers():
    rows = unit_rows(6, 3, 8)
    names = torch.tensor([-5, -5, 10 ** 12, 10 ** 12, 3, 3])
    wanted = evaluate(rows, names)
    for labels in (names.tolist(), names.numpy(), names[:, None], names.numpy().astype(object).astype(np.int64)):
        same(wanted, evaluate(rows, labels))


def test_a_finer_label_counts_only_below_the_same_coarser_one():
    "Class 7 of family 0 and class 7 of family 1 are two classes."
    labels = torch.tensor([[0, 7], [0, 7], [1, 7], [1, 7]])
    found = evaluate(torch.eye(2)[[0, 0, 1, 1]], labels, metrics=("mAP", "P@1"))
    assert found["mAP"] == 1.0 and found["P@1"] == 1.0


def test_metrics_keep_their_order_and_come_once():
    found = evaluate(unit_rows(8, 3, 1), [0, 0, 0, 0, 1, 1, 1, 1], metrics=["R@3", "mAP", "R@3", "P@2", "R@1"])
    assert list(found) == ["R@3", "mAP", "P@2", "R@1", "queries_skipped"]
    assert all(isinstance(found[name], float) for name in list(found)[:-1]) and isinstance(
        found["queries_skipped"], int
    )


# ------------------------------------------------------------------------------------------------------------ numbers
# and memory

@pytest.mark.parametrize("dtype, atol", [(torch.float32, 1e-5), (torch.float16, 3e-3), (torch.bfloat16, 2e-2)])
def test_half_precision_stays_close_to_float64(dtype, atol):
    """Stated error: float32 1e-5, float16 3e-3, bfloat16 2e-2 in any mean over 600 queries; what is lost is lost in the
    embeddings, the products are made in float32."""
    centres = unit_rows(60, 32, 9)
    labels = torch.arange(600) % 60
    rows = F.normalize(
        centres[labels]
        + 1.2 / 32**0.5 * torch.randn(600, 32, generator=torch.Generator().manual_seed(9), dtype=torch.float64),
        dim=1,
    )
    names = ("mAP", "R@1", "R@10", "mAP@R")
    wanted, found = evaluate(rows, labels, metrics=names), evaluate(rows.to(dtype), labels, metrics=names)
    assert max(abs(wanted[name] - found[name]) for name in names) <= atol
    upcast = evaluate(rows.to(dtype).float(), labels, metrics=names)
    same(found, upcast, atol=1e-12)


def test_rougher_products_of_the_caller_are_not_used():
    rows, labels = unit_rows(200, 32, 10).float(), random_labels(200, 1, 20, 10)[:, 0]
    wanted, before = evaluate(rows, labels), torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = evaluate(rows, labels)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    same(wanted, found, 1e-12)
    if not hasattr(torch.backends.mkldnn, "matmul"):  # torch before 2.9 has no newer way to ask for it
        return
    kind = torch.backends.mkldnn.matmul  # the newer way does not mix with the older
    before, kind.fp32_precision = kind.fp32_precision, "bf16"
    try:
        same(wanted, evaluate(rows, labels), 1e-12)
        assert kind.fp32_precision == "bf16"
    finally:
        kind.fp32_precision = before


def test_embeddings_that_carry_a_gradient_are_taken_as_they_are():
    rows = unit_rows(6, 3, 1).requires_grad_()
    evaluate(rows, [0, 0, 1, 1, 2, 2])
    assert rows.grad is None


def test_a_file_on_disk_gives_what_memory_gives(tmp_path):
    rows, labels = unit_rows(300, 24, 11).half(), random_labels(300, 1, 40, 11)[:, 0]
    np.save(tmp_path / "rows.npy", rows.numpy())
    file = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for memory in ("30kB", "1GB"):
        same(evaluate(rows, labels, per_query=True), evaluate(file, labels, memory=memory, per_query=True), 1e-12)
        same(
            evaluate(rows[:20], labels[:20], rows, labels),
            evaluate(file[:20], labels[:20], file, labels.numpy(), memory=memory),
            1e-12,
        )


def test_columns_of_a_gallery_in_blocks(monkeypatch):
    "A gallery that is never whole in memory, with copies in different blocks."
    rows = unit_rows(90, 8, 12)[torch.arange(100) % 90].float() * 2
    labels = random_labels(100, 1, 9, 12)[:, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(evaluate(rows, labels, per_query=True), evaluate(rows, labels, memory=6_000, per_query=True), 1e-12)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_stays_within_what_was_given():
    "8,000 images: all scores would take 256 MB. Twice the sum of what was given and what compiled loops need."
    from benchmarks.harness import peak_memory

    extra = peak_memory("benchmarks.evaluation:prepare", images=8_000, memory="24MB")
    assert extra < 80e6


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_at_a_larger_size():
    from benchmarks.harness import peak_memory

    assert peak_memory("benchmarks.evaluation:prepare", images=40_000, memory="200MB") < 300e6


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_gallery_on_disk_does_not_fill_memory(tmp_path):
    from benchmarks.evaluation import alone, write_gallery

    write_gallery(str(tmp_path / "gallery.npy"), 60_000, 2048, 20)  # 246 MB; in float32 twice that
    small = alone("task_million", path=str(tmp_path / "gallery.npy"), queries=20, memory="100MB")
    write_gallery(str(tmp_path / "gallery.npy"), 2_000, 2048, 20)
    base = alone("task_million", path=str(tmp_path / "gallery.npy"), queries=20, memory="100MB")
    assert small["peak"] - base["peak"] < 200e6


def test_without_numba_torch_does_it(monkeypatch):
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert positives.may_compile("auto", cpu, 10 ** 9) and not positives.may_compile("auto", cuda, 10 ** 9)
    monkeypatch.setattr(positives.importlib.util, "find_spec", lambda name: None)
    assert not positives.may_compile("auto", cpu, 10 ** 9)
    with pytest.raises(ImportError, match="pip install numba"):
        positives.may_compile("numba", cpu, 1)


def test_several_threads_give_the_same(monkeypatch):
    rows, labels = unit_rows(300, 8, 13), random_labels(300, 2, 5, 13)
    wanted = evaluate(rows, labels, metrics=all_metrics(2), engine="numba", per_query=True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    same(wanted, evaluate(rows, labels, metrics=all_metrics(2), engine="numba", per_query=True))


def test_importing_the_package_does_not_import_numba():
    code = "import sys, smoothap_nb; smoothap_nb.evaluate; print('numba' in sys.modules, 'torchmetrics' in sys.modules)"
    assert run_clean(code).stdout.split() == ["False", "False"]


# --------------------------------------------------------------------------------------------------------------------
# bad input

ROWS, LABELS = torch.eye(4), [0, 0, 1, 1]


@pytest.mark.parametrize("change, words", [
    ({"embeddings": ROWS.tolist()}, "embeddings must be a torch.Tensor or a numpy array"),
    ({"embeddings": ROWS.int()}, "embeddings must be floating point"),
    ({"embeddings": ROWS[0]}, r"shape \(images, dimensions\)"),
    ({"embeddings": ROWS[:0], "labels": []}, "labels must be integers"),
    ({"embeddings": ROWS[:0], "labels": torch.zeros(0, dtype=torch.int64)}, "there is no query"),
    ({"labels": [0, 0, 1]}, "labels have length 3, the embeddings 4"),
    ({"labels": [0.0, 0, 1, 1]}, "labels must be integers"),
    ({"labels": [0, 1, 2, 3]}, "no query has a positive"),
    ({"metrics": ("R@0",)}, "K must be a whole number from 1 on, got 0"),
    ({"metrics": ("R@-3",)}, "K must be a whole number from 1 on, got -3"),
    ({"metrics": ("P@1.5",)}, "K must be a whole number"),
    ({"metrics": ("R@4",)}, "the gallery holds 3 beside the query"),
    ({"metrics": ("map",)}, "nearest is 'mAP'"),
    ({"metrics": ("recall@1",)}, "no metric 'recall@1'"),
    ({"metrics": ("HAP",)}, "nearest is 'H-AP'"),
    ({"metrics": ("R@K",)}, "no metric"),
    ({"metrics": (3,)}, "no metric 3"),
    ({"metrics": ()}, "metrics is empty"),
    ({"metrics": ("AP@level2",)}, "1 level"),
    ({"metrics": ("AP@level0",)}, "numbered from 1"),
    ({"ties": "worst"}, "ties must be one of"),
    ({"engine": "gpu"}, "engine must be one of"),
    ({"memory": "much"}, "memory must be a size"),
    ({"memory": 0}, "memory must be a size"),
    ({"memory": "20B"}, "too small"),
    ({"normalize": "yes"}, "normalize must be"),
    ({"alpha": -1.0, "metrics": "H-AP"}, "alpha must be"),
    ({"weights": (1, 1), "metrics": "H-AP"}, "weights must be 1 numbers"),
    ({"weights": (-1,), "metrics": "H-AP"}, "weights must"),
    ({"extra_fine": -1, "metrics": "H-AP"}, "extra_fine"),
    ({"gallery_embeddings": ROWS}, "belong together"),
    ({"gallery_labels": LABELS}, "belong together"),
    ({"gallery_embeddings": ROWS[:0], "gallery_labels": torch.zeros(0, dtype=torch.int64)}, "the gallery is empty"),
    ({"gallery_embeddings": torch.eye(3), "gallery_labels": [0, 0, 1]}, "3 dimensions"),
    ({"gallery_embeddings": ROWS, "gallery_labels": [[0, 1]] * 4}, "gallery_labels have 2 levels"),
    ({"query_index": [0, 1, 2, 3]}, "pass a gallery"),
    ({"gallery_embeddings": ROWS, "gallery_labels": LABELS, "query_index": [0, 1, 2]}, "4 integers"),
    ({"gallery_embeddings": ROWS, "gallery_labels": LABELS, "query_index": [0, 1, 2, 4]}, r"-1 \.\.\. 3"),
])
def test_bad_input_is_named(change, words):
    arguments = {"embeddings": ROWS, "labels": LABELS} | change
    with pytest.raises((TypeError, ValueError), match=words):
        evaluate(**arguments)


def test_nan_rows_are_named_in_queries_and_gallery():
    rows = torch.ones(9, 3) / 3 ** 0.5
    rows[4, 1], rows[7, 0] = float("nan"), float("inf")
    with pytest.raises(ValueError, match="embeddings hold NaN or infinity in 2 of 9 rows: row 4, 7"):
        evaluate(rows, [0, 1, 2] * 3)
    with pytest.raises(ValueError, match="gallery_embeddings hold NaN or infinity in 2 of 9 rows"):
        evaluate(rows[:2], [0, 1], rows.numpy(), [0, 1, 2] * 3)


def test_rows_of_another_length_are_normalised_with_a_notice_or_refused():
    rows, labels = unit_rows(20, 5, 14), random_labels(20, 1, 4, 14)[:, 0]
    longer = rows * torch.linspace(0.5, 3, 20, dtype=torch.float64)[:, None]
    with pytest.warns(UserWarning, match=r"rows of embeddings are not of length 1"):
        same(evaluate(rows, labels), evaluate(longer, labels))
    with pytest.raises(ValueError, match=r"row 0 has length 0.5\): .* normalize=True"):
        evaluate(longer, labels, normalize="refuse")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for factor in (1, 2, 3):  # epochs
            evaluate(factor * longer, labels)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(rows, labels)
        evaluate(rows.half(), labels, normalize="refuse")  # rounding is no other length
        dots = evaluate(longer, labels, normalize=False, per_query=True)["per_query"]["mAP"]
    scores, away = longer @ longer.T, ~torch.eye(20, dtype=torch.bool)
    relevant = (labels[:, None] == labels)[away].view(20, 19)
    np.testing.assert_allclose(dots, average_precision(scores[away].view(20, 19), relevant).numpy(), atol=1e-12)


def test_products_that_overflow_are_refused():
    with pytest.raises(ValueError, match="overflow"):
        evaluate(torch.full((4, 2), 1e30), LABELS, normalize=False)


def test_weights_that_leave_nothing_are_an_error():
    with pytest.raises(ValueError, match="relevance above 0"):
        evaluate(torch.eye(4), [[0, 0], [0, 1], [1, 2], [1, 3]], metrics="H-AP", weights=(0, 1))


# --------------------------------------------------------------------------------------------------------------------
# CUDA

@pytest.mark.cuda
@pytest.mark.parametrize("ties", TIES)
def test_cuda_gives_the_numbers_of_the_cpu(ties):
    rows, labels = exact_rows(300, 4, 23), random_labels(300, 3, 4, 23)
    options = {"metrics": all_metrics(3), "ties": ties, "normalize": False, "per_query": True, "alpha": 2.0}
    wanted = evaluate(rows, labels, engine="numba", **options)
    for memory in ("1GB", "2MB"):
        same(wanted, evaluate(rows.cuda(), labels.cuda(), memory=memory, **options), 1e-9)
    same(wanted, evaluate(rows.numpy(), labels, device="cuda", **options), 1e-9)
    same(wanted, evaluate(rows.cuda(), labels, device="cpu", **options), 1e-12)


@pytest.mark.cuda
def test_cuda_in_true_float32_whatever_the_settings():
    rows, labels = unit_rows(2000, 64, 24).float(), random_labels(2000, 1, 200, 24)[:, 0]
    wanted = evaluate(rows, labels)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        same(wanted, evaluate(rows.cuda(), labels), 1e-4)
    finally:
        torch.set_float32_matmul_precision(before)
    listed = nearest_neighbours(rows.cuda(), 10)[1]
    assert (listed == nearest_neighbours(rows, 10)[1]).double().mean() > 0.999


@pytest.mark.cuda
def test_numba_refuses_a_gpu():
    with pytest.raises(ValueError, match="engine='torch'"):
        evaluate(torch.eye(4).cuda(), LABELS, engine="numba")
