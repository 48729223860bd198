"Our losses inside pytorch-metric-learning: its reducers, memory, wrappers; and without it one clear error."

import copy
import inspect
import pickle
import subprocess
import sys

import pytest
import torch
from clean import run_clean

import smoothap_nb
from smoothap_nb import EmbeddingMemory, FastAPLoss, HAPLoss, HAPPIERLoss, RecallLoss, ROADMAPLoss, SmoothAPLoss

pml = pytest.importorskip("pytorch_metric_learning")
from pytorch_metric_learning import losses, miners, reducers, regularizers
from pytorch_metric_learning.utils import distributed
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu

from smoothap_nb.checks import ConfigError
from smoothap_nb.losses.pml import CrossBatchMemory, PMLLoss, SelfSupervisedLoss, own_columns


def batch(seed=0, count=24, dim=8):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 6, (count,), generator=generator)
    labels[0] = 99  # an image alone of its class
    return torch.randn(count, dim, generator=generator, dtype=torch.float64), labels


def value_and_gradient(loss, embeddings, *rest, **more):
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, *rest, **more)
    value.backward()
    return value.detach(), leaf.grad


def same(ours, theirs):
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [SmoothAPLoss, FastAPLoss, RecallLoss, ROADMAPLoss, smoothap_nb.CalibrationLoss])
def test_a_mean_reducer_gives_what_the_loss_gives(kind):
    wrapped = PMLLoss(kind())
    assert isinstance(wrapped, losses.BaseMetricLossFunction)
    same(value_and_gradient(wrapped, *batch()), value_and_gradient(kind(), *batch()))
    gallery, theirs = batch(5, 40)
    more = {"ref_emb": gallery, "ref_labels": theirs}
    same(value_and_gradient(wrapped, *batch(), **more), value_and_gradient(kind(), *batch(), **more))
    assert wrapped(batch()[0].requires_grad_(), torch.arange(24)).item() == (0 if kind is SmoothAPLoss else kind()(
        batch()[0], torch.arange(24)).item())


def test_reducers_get_one_loss_per_query():
    embeddings, labels = batch()
    each = PMLLoss(SmoothAPLoss(0.1), reducer=reducers.DoNothingReducer())(embeddings, labels)["loss"]
    assert each["indices"].tolist() == [q for q in range(24) if (labels == labels[q]).sum() > 1]
    torch.testing.assert_close(each["losses"].mean(), SmoothAPLoss(0.1)(embeddings, labels))
    hard = PMLLoss(SmoothAPLoss(0.1), reducer=reducers.ThresholdReducer(low=0.7))(embeddings, labels)
    torch.testing.assert_close(hard, each["losses"][each["losses"] > 0.7].mean())
    weights = torch.rand(100, dtype=torch.float64)
    weighted = PMLLoss(SmoothAPLoss(0.1), reducer=reducers.ClassWeightedReducer(weights))(embeddings, labels)
    torch.testing.assert_close(weighted, (each["losses"] * weights[labels[each["indices"]]]).mean())
    long = PMLLoss(SmoothAPLoss(0.1), embedding_regularizer=regularizers.LpRegularizer(), embedding_reg_weight=0.5)
    expected = SmoothAPLoss(0.1)(embeddings, labels) + 0.5 * embeddings.norm(dim=1).mean()
    torch.testing.assert_close(long(embeddings, labels), expected)


def test_cross_batch_memory_ranks_against_what_it_remembers():
    memory, past = CrossBatchMemory(SmoothAPLoss(0.1), 8, memory_size=60).double(), []
    for step in range(4):
        embeddings, labels = batch(step, 20)
        past = (past + [(embeddings, labels)])[-3:]  # theirs holds the batch too
        gallery, theirs = (torch.cat(x) for x in zip(*past))
        own = len(gallery) - 20 + torch.arange(20)
        expected = value_and_gradient(SmoothAPLoss(0.1), embeddings, labels, ref_emb=gallery, ref_labels=theirs,
                                      query_index=own)
        same(value_and_gradient(memory, embeddings, labels), expected)
    mask = torch.arange(20) < 8  # what is remembered is not a query
    value = memory(embeddings, labels, enqueue_mask=mask)
    assert value.isfinite() and memory.queue_idx == 28
    assert isinstance(CrossBatchMemory(losses.NTXentLoss(), 8).loss, losses.NTXentLoss)
    with pytest.raises(ValueError, match="no pairs to mine"):
        CrossBatchMemory(SmoothAPLoss(), 8, miner=miners.MultiSimilarityMiner())


def test_self_supervised_loss_knows_two_views():
    first, second = batch()[0], batch(1)[0]
    numbers = torch.arange(24)
    both = SmoothAPLoss(0.1)(torch.cat([first, second]), torch.cat([numbers, numbers]))
    torch.testing.assert_close(SelfSupervisedLoss(SmoothAPLoss(0.1))(first, second), both)
    one_way = SmoothAPLoss(0.1)(first, numbers, ref_emb=second, ref_labels=numbers)
    torch.testing.assert_close(SelfSupervisedLoss(SmoothAPLoss(0.1), symmetric=False)(first, second), one_way)


def test_other_parts_take_it():
    embeddings, labels = batch()
    wrapped = PMLLoss(SmoothAPLoss(0.1))
    several = losses.MultipleLosses([wrapped, losses.TripletMarginLoss()], weights=[1, 0.5])
    expected = SmoothAPLoss(0.1)(embeddings, labels) + 0.5 * losses.TripletMarginLoss()(embeddings, labels)
    torch.testing.assert_close(several(embeddings, labels), expected)
    for part in (wrapped, CrossBatchMemory(wrapped, 8)):
        again = pickle.loads(pickle.dumps(copy.deepcopy(part))).double()
        torch.testing.assert_close(again(embeddings, labels), part.double()(embeddings, labels))
    tree = torch.stack([labels // 3, labels % 7], 1)
    torch.testing.assert_close(PMLLoss(HAPLoss())(embeddings, tree), HAPLoss()(embeddings, tree))
    happier = HAPPIERLoss(7, 8).double()
    torch.testing.assert_close(PMLLoss(happier)(embeddings, tree), happier(embeddings, tree))
    remembering = PMLLoss(EmbeddingMemory(SmoothAPLoss(0.1), 30))
    assert remembering(embeddings, labels) == SmoothAPLoss(0.1)(embeddings, labels) and remembering.loss.filled == 24
    batch_itself = wrapped(embeddings, labels, ref_emb=embeddings, ref_labels=labels)
    assert batch_itself == wrapped(embeddings, labels)


def test_pairs_of_the_wrappers_are_each_querys_own_column():
    labels, gallery = torch.arange(12) % 4, torch.arange(40) % 4
    everything = lmu.get_all_pairs_indices(labels, gallery)
    assert own_columns(everything, 12, 40).tolist() == [-1] * 12
    left = lmu.remove_self_comparisons(everything, torch.arange(8, 20), 40)
    assert own_columns(left, 12, 40).tolist() == list(range(8, 20))
    embeddings, labels = batch()
    mined = miners.MultiSimilarityMiner()(embeddings, labels)
    for pairs in (mined, miners.TripletMarginMiner()(embeddings, labels), 3,
                  tuple(torch.cat([x, x]) for x in lmu.get_all_pairs_indices(labels))):
        with pytest.raises(ValueError, match="drop the miner"):
            PMLLoss(SmoothAPLoss())(embeddings, labels, pairs)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: PMLLoss(torch.nn.Linear(2, 2)), "embedding loss"),
        (lambda: PMLLoss(SmoothAPLoss), "SmoothAPLoss"),
        (lambda: PMLLoss("smooth_ap"), "got str"),
        (lambda: PMLLoss(SmoothAPLoss())(batch()[0]), "labels are missing"),
        (lambda: PMLLoss(SmoothAPLoss())(*batch(), ref_emb=batch()[0]), "belong together"),
        (lambda: own_columns([torch.tensor([x]) for x in (5, 0, 0, 0)], 2, 2), "beyond"),
    ],
)
def test_what_does_not_fit_is_refused(call, says):
    with pytest.raises((TypeError, ValueError), match=says):
        call()


PROCESS = """
import sys, torch, torch.distributed as dist
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from smoothap_nb import SmoothAPLoss
from smoothap_nb.losses.pml import CrossBatchMemory, PMLLoss
rank, file = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
generator = torch.Generator().manual_seed(0)
rows, labels = torch.randn(16, 4, generator=generator, dtype=torch.float64), torch.arange(16) % 5
mine = slice(8 * rank, 8 * rank + 8)
order = torch.cat([torch.arange(16)[mine], torch.arange(16)[8 * (1 - rank):16 - 8 * rank]])
whole = SmoothAPLoss(0.1)(rows, labels)
for efficient in (False, True):
    value = DistributedLossWrapper(PMLLoss(SmoothAPLoss(0.1)), efficient=efficient)(rows[mine], labels[mine])
    part = SmoothAPLoss(0.1)(rows[mine], labels[mine], ref_emb=rows[order], ref_labels=labels[order],
                             query_index=torch.arange(8))
    torch.testing.assert_close(value, 2 * (part if efficient else whole))
memory = CrossBatchMemory(SmoothAPLoss(0.1), 4, 32).double()
torch.testing.assert_close(DistributedLossWrapper(memory)(rows[mine], labels[mine]), 2 * whole)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_distributed_wrapper_ranks_against_all_processes(tmp_path):
    with pytest.warns(UserWarning, match="non-distributed"):
        alone = distributed.DistributedLossWrapper(PMLLoss(SmoothAPLoss(0.1)))(*batch())
    torch.testing.assert_close(alone, SmoothAPLoss(0.1)(*batch()))
    command = [sys.executable, "-c", PROCESS]
    runs = [subprocess.Popen([*command, str(rank), str(tmp_path / "meet")], stderr=subprocess.PIPE) for rank in (0, 1)]
    for run in runs:
        _, error = run.communicate(timeout=240)
        assert run.returncode == 0, error.decode()


def test_without_the_package_one_line_names_it():
    code = (
        "import sys; sys.modules['pytorch_metric_learning'] = None\n"
        "try: import smoothap_nb.losses.pml\n"
        "except ImportError as error: print(error)\n"
    )
    assert run_clean(code).stdout == ("smoothap_nb.losses.pml needs pytorch-metric-learning, which is not installed: "
                          "pip install pytorch-metric-learning\n")


def test_an_objective_hands_what_its_miner_found_to_the_loss():
    embeddings, labels = batch()
    tree = torch.stack([labels // 2, labels], 1)
    miner = miners.TripletMarginMiner(margin=0.1, type_of_triplets="hard")
    loss = losses.TripletMarginLoss(margin=0.05)
    settings = {"name": "pml.TripletMarginLoss", "margin": 0.05}
    plain = smoothap_nb.Objective(settings)
    hard = {"name": "TripletMarginMiner", "margin": 0.1, "type_of_triplets": "hard"}
    mining = smoothap_nb.Objective(settings | {"miner": hard})
    same(
        value_and_gradient(mining, embeddings, tree),
        value_and_gradient(loss, embeddings, labels, miner(embeddings, labels)),
    )
    assert not torch.allclose(mining(embeddings, tree), plain(embeddings, tree))
    coarse = smoothap_nb.Objective(
        {"terms": [settings | {"miner": hard, "level": 1, "weight": 3.0}]}
    )
    wanted = 3 * loss(embeddings, labels // 2, miner(embeddings, labels // 2))
    torch.testing.assert_close(coarse(embeddings, tree), wanted)
    for wrong, says in (
        ({"name": "TripletMarginMine"}, "did you mean 'TripletMarginMiner'"),
        ({"name": "TripletMarginMiner", "margn": 1}, "unknown setting 'loss.margn'"),
    ):
        with pytest.raises(ConfigError, match=says):
            smoothap_nb.Objective(settings | {"miner": wrong})


def test_the_memory_is_as_long_as_theirs_unless_it_is_said():
    ours, theirs = (inspect.signature(kind).parameters for kind in (CrossBatchMemory, losses.CrossBatchMemory))
    for name in ("memory_size", "miner"):
        assert ours[name].default == theirs[name].default
