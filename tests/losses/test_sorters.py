"""Learned ranks: the authors' networks to the last digit, lists, training, the layer and its file, losses, every bad
input.
"""

import json
import warnings
from pathlib import Path

import pytest
import torch

from smoothap_nb import (
    CNNSorter,
    LSTMSorter,
    SoDeepAPLoss,
    SoDeepRanks,
    ap_from_ranks,
    average_precision,
    blackbox_ranks,
    hardest_rank_loss,
    mean_rank_loss,
    ranks,
    score_lists,
    spearman,
    spearman_loss,
    train_sorter,
)
from smoothap_nb.losses.peers import network_ranks, soft_sort_ranks, transport_ranks
from smoothap_nb.losses.sorters import GENERATORS, load_sorter, save_sorter, sorter_quality, standardized
from smoothap_nb.losses.weights import read_weights, write_weights

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "sodeep_sorters.json").read_text())["cases"]
EXACT = lambda scores: blackbox_ranks(scores, lam=1.0)  # noqa: E731


def filled(state):
    "Weights that need no file: whole-number arithmetic on the place of each weight, as when the vectors were made."
    out = {}
    for number, (name, tensor) in enumerate(state.items()):
        if not tensor.is_floating_point():
            out[name] = tensor.clone()
            continue
        place = torch.arange(tensor.numel(), dtype=torch.int64)
        unit = ((place * 2654435761 + (number + 1) * 40503001) % 4294967296).double() / 4294967296
        if tensor.ndim == 1:
            value = 0.5 + unit if name.endswith("running_var") else 0.2 * (unit - 0.5)
        else:
            value = (2 * unit - 1) * 2 / (tensor.numel() / tensor.shape[0]) ** 0.5
        out[name] = value.view(tensor.shape)
    return out


def released_exact(scores):
    "The authors' hand-made sorter: sigmoids as steep as the list is narrow."
    gaps = scores[:, None, :] - scores[:, :, None]
    tau = gaps.triu(1).flatten(1).std(1)[:, None, None] / 6.8
    return (torch.sigmoid(gaps / tau).sum(2) + 0.5) / scores.shape[1]


def double(case, key="scores"):
    return torch.tensor(VECTORS[case][key], dtype=torch.float64)


@pytest.mark.parametrize(("kind", "build"), [("lstm", lambda n: LSTMSorter(128, 2, length=n)), ("cnn", CNNSorter)])
def test_networks_are_the_authors(kind, build):
    case = VECTORS[kind]
    network = build(case["length"]).double().eval()
    assert [list(t.shape) for t in network.state_dict().values()] == case["shapes"]
    network.load_state_dict(filled(network.state_dict()))
    scores = double(kind).requires_grad_()
    guessed = network(scores)
    torch.testing.assert_close(guessed, double(kind, "ranks"), rtol=1e-9, atol=1e-11)
    weights = torch.linspace(-1, 1, case["length"], dtype=torch.float64)
    (gradient,) = torch.autograd.grad((guessed * weights).sum(), scores)
    torch.testing.assert_close(gradient, double(kind, "gradient_of_weighted_sum"), rtol=1e-8, atol=1e-11)


def test_losses_are_the_authors():
    torch.testing.assert_close(released_exact(double("exa")), double("exa", "ranks"))
    loss = spearman_loss(double("spearman", "predicted")[None], double("spearman", "wanted")[None], released_exact)
    assert loss.item() == pytest.approx(VECTORS["spearman"]["loss"], rel=1e-9)
    relevance = torch.tensor(VECTORS["map"]["relevance"]).T
    present = relevance.any(1)
    per_class = mean_rank_loss(double("map").T[present], relevance[present], released_exact)
    assert (per_class * relevance[present].sum(1)).sum().item() == pytest.approx(VECTORS["map"]["loss"], rel=1e-9)
    scores, own = double("recall"), torch.eye(6, dtype=torch.bool)
    both_ways = sum(mean_rank_loss(each, own, released_exact).sum() for each in (scores, scores.T))
    assert both_ways.item() == pytest.approx(VECTORS["recall"]["loss"], rel=1e-9)
    hard = sum(hardest_rank_loss(each, own, released_exact).sum() for each in (scores, scores.T))
    assert hard.item() == pytest.approx(VECTORS["recall"]["hard"], rel=1e-9)


@pytest.mark.parametrize("kind", [*GENERATORS, "mixed"])
def test_lists(kind):
    draw = lambda: score_lists(7, 13, kind, torch.Generator().manual_seed(1))  # noqa: E731
    lists = draw()
    assert lists.shape == (7, 13) and lists.dtype == torch.float32 and lists.isfinite().all()
    assert torch.equal(lists, draw())
    if kind in ("steps", "grid"):
        steps = lists.diff(dim=1)
        assert (steps - steps[:, :1]).abs().max() < 1e-6
    if kind == "shuffled":
        steps = lists.sort(dim=1).values.diff(dim=1)
        assert (steps - steps[:, :1]).abs().max() < 1e-6


def test_shares_are_those_of_ten_kinds():
    assert sum(share for _, share in GENERATORS.values()) == pytest.approx(1)
    assert {round(10 * share) for _, share in GENERATORS.values()} == {1, 2, 3}


def test_spearman_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    first, second = (
        torch.randn(6, 15, generator=torch.Generator().manual_seed(seed)).mul(4).round() for seed in (0, 1)
    )
    expected = [stats.spearmanr(a, b).statistic for a, b in zip(first.numpy(), second.numpy())]
    torch.testing.assert_close(spearman(first, second), torch.tensor(expected), atol=1e-12, rtol=0)
    assert spearman(torch.zeros(1, 4), torch.rand(1, 4)).isnan().all()


def test_training_teaches_and_repeats():
    def course():
        torch.manual_seed(0)
        return [loss for _, loss in train_sorter(LSTMSorter(8, 1), lengths=(6, 8), batch=32, lr=0.03, steps=120)]

    losses = course()
    assert len(losses) == 120 and losses == course()
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    assert sum(1 for _ in train_sorter(LSTMSorter(2, 1), seconds=0.05, lengths=(4, 4), batch=4)) >= 1


def test_shipped_sorter_is_good_within_its_range():
    for length in (20, 100):
        quality = sorter_quality(SoDeepRanks(), length, count=100, seed=11)
        assert quality["uniform"]["L1"] < 0.05 and quality["normal"]["Spearman"] > 0.99, quality
        assert quality["shuffled"]["Spearman"] > 0.9, quality


def test_shipped_file_holds_numbers_and_no_code():
    tensors, facts = read_weights(Path(load_sorter.__globals__["HOME"]) / "sorter.safetensors")
    assert facts == {"hidden": "32", "layers": "2", "shortest": "8", "longest": "128"}
    assert all(tensor.dtype == torch.float32 and tensor.isfinite().all() for tensor in tensors.values())


def test_our_reader_of_weights_is_the_librarys(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = {
        "a": torch.randn(3, 2, dtype=torch.float64),
        "b": torch.arange(5),
        "c": torch.randn(()).to(torch.bfloat16),
    }
    safetensors.save_file(tensors, tmp_path / "x.safetensors", {"told": "1"})
    read, facts = read_weights(tmp_path / "x.safetensors")
    assert facts == {"told": "1"} and list(read) == list(safetensors.load_file(tmp_path / "x.safetensors"))
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    write_weights(tmp_path / "y.safetensors", tensors, {"told": "2"})
    back = safetensors.load_file(tmp_path / "y.safetensors")
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)
    assert read_weights(tmp_path / "y.safetensors")[1] == {"told": "2"}


def test_a_sorter_is_stored_and_read_again(tmp_path):
    sorter = LSTMSorter(4, 1)
    save_sorter(sorter, tmp_path / "mine.safetensors", (5, 9))
    layer, scores = SoDeepRanks(tmp_path / "mine.safetensors"), torch.randn(2, 7)
    torch.testing.assert_close(layer(scores), sorter(scores))
    assert layer.lengths == (5, 9)
    with pytest.raises(ValueError, match="one length"):
        save_sorter(LSTMSorter(4, 1, length=7), tmp_path / "fixed.safetensors", (7, 7))


@pytest.mark.parametrize("content", [b"", b"no weights", b'\x10\x00\x00\x00\x00\x00\x00\x00{"a": 1, "b": 2}'])
def test_files_that_hold_no_sorter(tmp_path, content):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="x.safetensors"):
        SoDeepRanks(path)


def test_files_cut_short_or_of_another_network(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "x.safetensors"
    safetensors.save_file({"w": torch.zeros(40)}, path)
    with pytest.raises(ValueError, match="no sorter"):
        SoDeepRanks(path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="cut short"):
        SoDeepRanks(path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        SoDeepRanks(tmp_path / "nowhere.safetensors")
    with pytest.raises(ValueError, match="not both"):
        SoDeepRanks(path, sorter=LSTMSorter(2, 1))


def test_the_layer_is_frozen_and_gives_a_gradient():
    layer, scores = SoDeepRanks(), torch.randn(3, 20, dtype=torch.float64).requires_grad_()
    layer.train()
    guessed = layer(scores)
    assert guessed.dtype == torch.float64 and guessed.shape == scores.shape
    guessed.sum().backward()
    assert scores.grad.abs().sum() > 0 and all(weight.grad is None for weight in layer.parameters())
    assert layer.sorter.rnn.training, "on CUDA a recurrent layer has a gradient in training mode only"
    with_norm = SoDeepRanks(sorter=CNNSorter(40)).train()
    assert not any(part.training for part in with_norm.sorter.modules())


def test_lengths_outside_the_training_are_told():
    layer = SoDeepRanks()
    for length, warns in ((7, True), (8, False), (128, False), (129, True)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            layer(torch.randn(1, length))
        assert bool(told) == warns and (not warns or f"got {length}" in str(told[0].message))


def test_standardising_makes_shift_and_scale_harmless():
    scores = torch.randn(4, 30, dtype=torch.float64)
    torch.testing.assert_close(standardized(5 * scores - 90), standardized(scores))
    layer = SoDeepRanks(standardize=True)
    torch.testing.assert_close(layer(5 * scores - 90), layer(scores))
    assert layer(torch.ones(1, 30)).isfinite().all()


@pytest.mark.parametrize("ties", [False, True])
def test_ap_from_exact_ranks_is_ap(ties):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(200, 17, generator=generator, dtype=torch.float64)
    scores = (2 * scores).round() if ties else scores
    relevance = torch.rand(200, 17, generator=generator) < 0.3
    found, expected = ap_from_ranks(ranks(scores) / 17, relevance), average_precision(scores, relevance)
    torch.testing.assert_close(found, expected.to(found.dtype), equal_nan=True, rtol=1e-6, atol=1e-7)


def test_guessed_ranks_beyond_the_list_keep_ap_in_range():
    guessed = torch.tensor([[-0.2, 0.01, 1.7, 0.5]])
    value = ap_from_ranks(guessed, torch.tensor([[True, True, False, True]]))
    assert 0 <= value.item() <= 1


def test_rank_losses_by_hand():
    four, positives = torch.tensor([[0.5, 0.9, 0.1, 0.7]]), torch.tensor([[True, False, False, True]])
    assert mean_rank_loss(four, positives, EXACT).item() == pytest.approx(2.5 / 4)
    assert hardest_rank_loss(four, positives, EXACT).item() == pytest.approx(5 / 8)
    assert hardest_rank_loss(four, torch.ones(1, 4, dtype=torch.bool), EXACT).item() == 0
    assert mean_rank_loss(four, torch.zeros(1, 4, dtype=torch.bool), EXACT).isnan().all()
    first, second = torch.rand(5, 9), torch.rand(5, 9)
    torch.testing.assert_close(
        1 - 6 * 81 / 80 * spearman_loss(first, second, EXACT).double(), spearman(first, second), atol=1e-6, rtol=0
    )


def test_the_embedding_loss_leaves_the_query_out_and_descends():
    torch.manual_seed(0)
    embeddings, labels = torch.randn(24, 6).requires_grad_(), torch.arange(24) % 4
    loss = SoDeepAPLoss()
    value = loss(embeddings, labels)
    rows = torch.nn.functional.normalize(embeddings, dim=1)
    others = ~torch.eye(24, dtype=torch.bool)
    lists = (rows @ rows.T)[others].view(24, 23)
    relevance = (labels[:, None] == labels)[others].view(24, 23)
    torch.testing.assert_close(value, (1 - ap_from_ranks(SoDeepRanks(standardize=True)(lists), relevance)).mean())
    optimizer = torch.optim.SGD([embeddings], 2.0)
    for _ in range(60):
        optimizer.zero_grad()
        loss(embeddings, labels).backward()
        optimizer.step()
    assert loss(embeddings, labels) < value - 0.2
    with pytest.warns(UserWarning, match="got 2"):
        assert loss(embeddings[:3], torch.arange(3)).item() == 0


def test_the_embedding_loss_with_lists_of_different_lengths():
    torch.manual_seed(1)
    gallery, labels = torch.randn(20, 5), torch.arange(20) % 4
    own = torch.tensor([0, -1, 2])
    queries = gallery[[0, 1, 2]].clone().requires_grad_()
    together = SoDeepAPLoss()(queries, labels[:3], ref_emb=gallery, ref_labels=labels, query_index=own)
    alone = [
        SoDeepAPLoss()(
            queries[k : k + 1], labels[k : k + 1], ref_emb=gallery, ref_labels=labels, query_index=own[k : k + 1]
        )
        for k in range(3)
    ]
    torch.testing.assert_close(together, torch.stack(alone).mean())
    together.backward()
    assert (queries.grad.abs().sum(1) > 0).all()


@pytest.mark.parametrize(
    ("ranker", "sharp"),
    [
        (soft_sort_ranks, {"tau": 1e-4}),
        (network_ranks, {"steepness": 1e5}),
        (transport_ranks, {"epsilon": 2e-4, "rounds": 2000}),
    ],
)
def test_peers_become_exact(ranker, sharp):
    scores = torch.linspace(-1, 1, 9, dtype=torch.float64)[
        torch.randperm(9, generator=torch.Generator().manual_seed(0))
    ][None]
    scores = torch.cat([scores, -scores])
    torch.testing.assert_close(9 * ranker(scores, **sharp), ranks(scores).double(), atol=0.05, rtol=0)
    leaf = scores.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: ranker(s), leaf)
    with pytest.raises(ValueError, match="must be"):
        ranker(scores, **{next(iter(sharp)): 0.0})


def test_network_ranks_are_diffsorts():
    diffsort = pytest.importorskip("diffsort")
    scores = torch.randn(3, 8, generator=torch.Generator().manual_seed(2))
    network = diffsort.DiffSortNet("odd_even", 8, steepness=20.0, distribution="logistic")
    _, permutation = network(-scores)  # theirs sorts upwards
    torch.testing.assert_close(8 * network_ranks(scores), permutation @ torch.arange(1.0, 9.0), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: score_lists(0, 5), "count"),
        (lambda: score_lists(5, 0), "length"),
        (lambda: score_lists(2, 5, "zipf"), "'zipf'"),
        (lambda: LSTMSorter(0), "hidden"),
        (lambda: LSTMSorter(4, 0), "layers"),
        (lambda: LSTMSorter(4, 1, length=9)(torch.zeros(1, 8)), "reads lists of 9"),
        (lambda: CNNSorter(36), "at least 37"),
        (lambda: CNNSorter(40)(torch.zeros(1, 41)), "reads lists of 40"),
        (lambda: SoDeepRanks()(torch.full((1, 10), torch.nan)), "NaN"),
        (lambda: SoDeepRanks()(torch.zeros(10)), "shape"),
        (lambda: mean_rank_loss(torch.zeros(1, 4), torch.zeros(1, 3, dtype=torch.bool), EXACT), "shape"),
        (lambda: hardest_rank_loss(torch.zeros(1, 4), torch.zeros(1, 3, dtype=torch.bool), EXACT), "shape"),
        (lambda: spearman_loss(torch.zeros(1, 4), torch.zeros(1, 3), EXACT), "wanted has shape"),
        (lambda: spearman_loss(torch.zeros(1, 4), torch.full((1, 4), torch.nan), EXACT), "NaN"),
        (lambda: spearman(torch.zeros(1, 4), torch.zeros(1, 3)), "second has shape"),
        (lambda: ap_from_ranks(torch.zeros(4), torch.zeros(4, dtype=torch.bool)), "shape"),
        (lambda: ap_from_ranks(torch.full((1, 4), torch.nan), torch.ones(1, 4, dtype=torch.bool)), "NaN"),
        (lambda: SoDeepRanks()(torch.zeros(2, 0)), "empty"),
        (lambda: SoDeepRanks()(torch.full((1, 10), torch.inf)), "infinity"),
        (lambda: next(train_sorter(LSTMSorter(2, 1), lengths=(9, 3), steps=1)), "shortest and the longest"),
        (lambda: next(train_sorter(LSTMSorter(2, 1), lengths=(0, 3), steps=1)), "shortest and the longest"),
        (lambda: next(train_sorter(LSTMSorter(2, 1), seconds=0)), "seconds"),
        (lambda: next(train_sorter(LSTMSorter(2, 1), batch=0, steps=1)), "count"),
        (lambda: sorter_quality(EXACT, 0), "length"),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(ValueError, match=match):
        call()
