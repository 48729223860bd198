"""The memory against one long gallery: values, gradients, what is kept, how it resumes."""

import copy
import pickle

import pytest
import torch
from torch import nn

import smoothap_nb
from smoothap_nb import CSLLoss, EmbeddingMemory, HAPLoss, RankingLoss, SmoothAPLoss


def close(ours, theirs, atol=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol, equal_nan=True)


def batch(seed=0, count=24, dim=6, classes=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, dim, generator=generator, dtype=dtype), torch.randint(
        0, classes, (count,), generator=generator
    )


def steps(count, size=6, dim=4, classes=3, levels=0):
    generator = torch.Generator().manual_seed(count)
    shape = (size, levels) if levels else (size,)
    return [
        (
            torch.randn(size, dim, generator=generator, dtype=torch.float64),
            torch.randint(0, classes, shape, generator=generator),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    "make, levels",
    [(lambda: SmoothAPLoss(0.1), 0), (lambda: SmoothAPLoss(0.1, include_query=True), 0), (lambda: HAPLoss(), 2)],
)
def test_memory_ranks_against_batch_and_past(make, levels):
    batches, memory, loss = steps(4, levels=levels), EmbeddingMemory(make(), size=12), make()
    for i, (embeddings, labels) in enumerate(batches):
        past = batches[max(0, i - 2) : i]  # 12 rows are two batches
        gallery = torch.cat([embeddings, *(e for e, _ in past)])
        gallery_labels = torch.cat([labels, *(y for _, y in past)])
        leaf, other = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        ours = memory(leaf, labels)
        theirs = loss(
            other,
            labels,
            ref_emb=torch.cat([other, gallery[6:]]),
            ref_labels=gallery_labels,
            query_index=torch.arange(6),
        )
        close(ours.detach(), theirs.detach())
        ours.backward(), theirs.backward()
        close(leaf.grad, other.grad)
        assert memory.filled == min(12, 6 * (i + 1)) and not memory.embeddings.requires_grad


def every_loss():
    "Each public loss of `losses` that can rank against references, made with defaults."
    import inspect

    homes = smoothap_nb._HOME  # other packages ask for extras, which the oldest versions are tested without

    needed = {"num_classes": 3, "dim": 4}
    for name in [name for name in smoothap_nb.__all__ if homes[name].startswith("losses.")]:
        kind = getattr(smoothap_nb, name)
        if isinstance(kind, type) and issubclass(kind, nn.Module) and kind not in (RankingLoss, EmbeddingMemory):
            if {"ref_emb", "query_index"} <= set(inspect.signature(kind.forward).parameters):
                required = [p.name for p in inspect.signature(kind).parameters.values() if p.default is p.empty]
                if set(required) <= set(needed):
                    yield pytest.param(
                        lambda kind=kind, required=required: kind(*(needed[r] for r in required)), id=name
                    )


@pytest.mark.parametrize("make", list(every_loss()))
def test_memory_serves_every_loss_that_takes_references(make):
    torch.manual_seed(0)
    loss = make().double()
    levels = 0 if not (getattr(loss, "hierarchical", False) or hasattr(loss, "hap")) else 2
    (first, labels), (second, other) = steps(2, levels=levels)
    memory = EmbeddingMemory(loss, 20)
    memory(first, labels)
    leaf, twin = second.clone().requires_grad_(), second.clone().requires_grad_()
    ours = memory(leaf, other)
    theirs = loss(
        twin,
        other,
        ref_emb=torch.cat([twin, first]),
        ref_labels=torch.cat([other, labels]),
        query_index=torch.arange(6),
    )
    close(ours.detach(), theirs.detach())
    ours.backward(), theirs.backward()
    close(leaf.grad, twin.grad)
    assert memory.filled == 12


def test_the_first_batch_alone_is_the_plain_loss():
    embeddings, labels = batch()
    close(EmbeddingMemory(SmoothAPLoss(0.1), 10)(embeddings, labels), SmoothAPLoss(0.1)(embeddings, labels))


@pytest.mark.parametrize("size", [1, 5, 6, 8, 17, 100])
def test_the_oldest_rows_leave_first(size):
    memory, batches = EmbeddingMemory(SmoothAPLoss(), size), steps(4)
    for embeddings, labels in batches:
        memory(embeddings, labels)
    assert torch.equal(memory.embeddings, torch.cat([e for e, _ in batches])[-size:])
    assert torch.equal(memory.labels, torch.cat([y for _, y in batches])[-size:])
    memory.reset()
    assert memory.filled == 0
    memory(*steps(1, dim=9)[0])  # another dimension is fine now
    assert memory.filled == min(size, 6)


def test_eval_reads_and_training_writes():
    memory, ((first, second), labels) = EmbeddingMemory(SmoothAPLoss(0.1), 20), zip(*steps(2))
    with torch.no_grad():
        memory(first, labels[0])
    assert memory.filled == 6
    memory.eval()
    value = memory(second, labels[1])
    assert memory.filled == 6 and value == memory(second, labels[1]) != SmoothAPLoss(0.1)(second, labels[1])


def test_memory_resumes_from_its_state():
    memory, batches = EmbeddingMemory(SmoothAPLoss(0.1), 10), steps(3)
    memory(*batches[0]), memory(*batches[1])
    state = copy.deepcopy(memory.state_dict())
    assert set(state) == {"embeddings", "labels"} and all(t.is_contiguous() for t in state.values())
    again = EmbeddingMemory(SmoothAPLoss(0.1), 10)
    again.load_state_dict(state)
    assert again(*batches[2]) == memory(*batches[2]) and torch.equal(again.embeddings, memory.embeddings)
    shorter = EmbeddingMemory(SmoothAPLoss(0.1), 4)
    shorter.load_state_dict(state)
    assert torch.equal(shorter.embeddings, state["embeddings"][-4:]) and torch.equal(
        shorter.labels, state["labels"][-4:]
    )
    inside = nn.ModuleDict({"loss": EmbeddingMemory(HAPLoss(), 10)})
    inside.load_state_dict(inside.state_dict())
    assert inside["loss"].filled == 0


def test_memory_keeps_the_state_of_its_loss():
    class Learned(SmoothAPLoss):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

    assert set(EmbeddingMemory(Learned(), 3).state_dict()) == {"loss.scale", "embeddings", "labels"}
    assert len(list(EmbeddingMemory(Learned(), 3).parameters())) == 1


def test_memory_can_be_copied_and_pickled():
    memory = EmbeddingMemory(SmoothAPLoss(0.1), 10)
    memory(*steps(1)[0])
    for twin in (copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))):
        assert torch.equal(twin.embeddings, memory.embeddings) and twin.size == 10
    assert "size=10, filled=6" in repr(memory)


def test_gathered_references_are_what_is_remembered():
    (mine, labels), (others, other_labels) = steps(2)
    memory = EmbeddingMemory(SmoothAPLoss(0.1), 50)
    gathered, gathered_labels = torch.cat([others, mine]), torch.cat([other_labels, labels])
    first = memory(mine, labels, ref_emb=gathered, ref_labels=gathered_labels, query_index=torch.arange(6, 12))
    close(
        first,
        SmoothAPLoss(0.1)(mine, labels, ref_emb=gathered, ref_labels=gathered_labels, query_index=torch.arange(6, 12)),
    )
    assert torch.equal(memory.embeddings, gathered)


def test_a_failed_call_remembers_nothing():
    memory = EmbeddingMemory(SmoothAPLoss(), 10)
    embeddings, labels = steps(1)[0]
    with pytest.raises(ValueError, match="indices_tuple is not used"):
        memory(embeddings, labels, (labels,))
    assert memory.filled == 0


def test_memory_names_what_is_wrong():
    memory = EmbeddingMemory(SmoothAPLoss(), 10)
    memory(*steps(1)[0])
    with pytest.raises(ValueError, match=r"holds embeddings of 4 dimensions .* this batch has 7 .* call reset\(\)"):
        memory(*steps(1, dim=7)[0])
    deep = EmbeddingMemory(HAPLoss(), 10)
    deep(*steps(1, levels=2)[0])
    with pytest.raises(ValueError, match=r"labels of shape \(N, 2\), this batch has .* \(N, 3\)"):
        deep(*steps(1, levels=3)[0])
    with pytest.raises(TypeError, match="ref_emb, ref_labels, query_index.*got CrossEntropyLoss"):
        EmbeddingMemory(nn.CrossEntropyLoss(), 10)
    with pytest.raises(TypeError, match="got str"):
        EmbeddingMemory("smooth_ap", 10)
    with pytest.raises(ValueError, match="size"):
        EmbeddingMemory(SmoothAPLoss(), 0)
    embeddings, labels = steps(1)[0]
    with pytest.raises(ValueError, match="pass both or neither"):
        memory(embeddings, labels, ref_emb=embeddings)
    with pytest.raises(ValueError, match="query_index points into ref_emb"):
        memory(embeddings, labels, query_index=torch.arange(6))
    with pytest.raises(ValueError, match="labels have length 5"):
        memory(embeddings, labels[:5])
    with pytest.raises(ValueError, match="NaN or infinity"):
        memory(embeddings * float("nan"), labels)
    assert memory.filled == 6


def test_memory_trains_with_a_model_step_by_step():
    torch.manual_seed(0)
    network, memory = nn.Linear(5, 3), EmbeddingMemory(SmoothAPLoss(0.1), 12)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        memory(network(torch.randn(6, 5)), torch.arange(6) % 3).backward()
        assert network.weight.grad.isfinite().all()
        optimizer.step()


def test_the_shared_call_is_kept():
    import inspect

    ours, theirs = (inspect.signature(kind.forward).parameters for kind in (EmbeddingMemory, RankingLoss))
    assert list(ours) == list(theirs)


# ------------------------------------------------------------ one guard for all losses


def test_every_loss_that_brings_its_gradient_refuses_the_second_in_one_place():
    """The guard's own contract: values and gradient as computed, a kept graph may run twice, the second derivative
    names the lesson."""
    from smoothap_nb.losses.scaffolding import value_with_gradient

    def compute(scores, factor, gradient):
        return factor * scores.square().sum(1), 2 * factor * scores if gradient else None

    scores = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    value = value_with_gradient(compute, scores, 3.0, name="a sum of squares", lesson="99")
    assert value.tolist() == [15.0, 75.0]
    assert torch.autograd.grad(value.sum(), scores, retain_graph=True)[0].tolist() == [[6.0, 12.0], [18.0, 24.0]]
    (first,) = torch.autograd.grad(value.sum(), scores, create_graph=True)
    assert first.tolist() == [[6.0, 12.0], [18.0, 24.0]]
    with pytest.raises(RuntimeError, match="a sum of squares is given with its first derivative only.*lesson 99"):
        first.sum().backward()
    assert not value_with_gradient(compute, scores.detach(), 3.0, name="", lesson="").requires_grad


# ------------------------------------------------------------ what may be wrapped, and the edge


def test_a_compiled_loss_may_be_wrapped():
    memory, plain = (
        EmbeddingMemory(torch.compile(SmoothAPLoss(0.1), backend="eager"), 20),
        EmbeddingMemory(SmoothAPLoss(0.1), 20),
    )
    for embeddings, labels in steps(3):
        close(memory(embeddings, labels), plain(embeddings, labels))


def test_an_attribute_or_the_arguments_say_whether_a_loss_takes_references():
    class Wrapped(nn.Module):
        takes_references = True

        def __init__(self):
            super().__init__()
            self.loss = SmoothAPLoss(0.1)

        def forward(self, *args, **kwargs):
            return self.loss(*args, **kwargs)

    class Declines(SmoothAPLoss):
        takes_references = False

    memory, plain = EmbeddingMemory(Wrapped(), 20), EmbeddingMemory(SmoothAPLoss(0.1), 20)
    for embeddings, labels in steps(3):
        close(memory(embeddings, labels), plain(embeddings, labels))
    with pytest.raises(TypeError, match="got Declines"):
        EmbeddingMemory(Declines(), 10)


def test_memory_around_cross_scale_learning_keeps_labels_of_all_levels():
    "CSL compares with proxies alone: the memory changes nothing, and remembers (N, L) labels all the same."
    tree = torch.tensor([[0, 0], [0, 1], [1, 2]])
    torch.manual_seed(0)
    plain = CSLLoss(tree, 4).double()
    memory = EmbeddingMemory(copy.deepcopy(plain), size=10)
    for embeddings, labels in steps(3):
        close(memory(embeddings, tree[labels]), plain(embeddings, tree[labels]))
    assert memory.filled == 10 and torch.equal(memory.labels[-6:], tree[labels])
    assert torch.equal(memory.embeddings[-6:], embeddings)
    with pytest.raises(ValueError, match="2 levels|shape"):
        memory(embeddings, labels)


@pytest.mark.parametrize("levels", [0, 2])
def test_memory_around_somebody_elses_loss(levels):
    "A loss that only shares the call: it gets the batch, then the remembered rows, and each query's own place."

    class Foreign(nn.Module):
        def forward(self, embeddings, labels, indices_tuple=None, ref_emb=None, ref_labels=None, *, query_index=None):
            self.seen = embeddings, labels, indices_tuple, ref_emb, ref_labels, query_index
            return (embeddings @ ref_emb.T).sum()

    memory, batches = EmbeddingMemory(Foreign(), size=9), steps(3, levels=levels)
    for i, (embeddings, labels) in enumerate(batches):
        value = memory(embeddings, labels, indices_tuple="mined")
        past = [torch.cat(part)[-9:] for part in zip(*batches[:i])] if i else [embeddings[:0], labels[:0]]
        gallery, gallery_labels = torch.cat([embeddings, past[0]]), torch.cat([labels, past[1]])
        close(value, (embeddings @ gallery.T).sum())
        for found, wanted in zip(
            memory.loss.seen, (embeddings, labels, None, gallery, gallery_labels, torch.arange(6))
        ):
            assert torch.equal(found, wanted) if wanted is not None else found == "mined"


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("gathered", [False, True])
def test_scaling_remembered_rows_once_changes_nothing(normalize, gathered):
    """The short way of a plain loss against the long one, over more steps than the memory holds, with a state loaded
    half-way."""
    loss = SmoothAPLoss(0.1, normalize=normalize)
    memory, kept = EmbeddingMemory(loss, 15), []
    for step, (embeddings, labels) in enumerate(steps(7)):
        if step == 4:
            memory.load_state_dict(copy.deepcopy(memory.state_dict()))
        leaf, twin = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        own = dict(ref_emb=leaf, ref_labels=labels, query_index=torch.arange(6)) if gathered else {}
        past = torch.cat([e for e, _ in kept])[-15:] if kept else embeddings[:0]
        past_labels = torch.cat([y for _, y in kept])[-15:] if kept else labels[:0]
        ours = memory(leaf, labels, **own)
        theirs = loss(
            twin,
            labels,
            ref_emb=torch.cat([twin, past]),
            ref_labels=torch.cat([labels, past_labels]),
            query_index=torch.arange(6),
        )
        close(ours.detach(), theirs.detach())
        ours.backward(), theirs.backward()
        close(leaf.grad, twin.grad)
        kept.append((embeddings, labels))


@pytest.mark.parametrize("factor", [1e-37, 1e-20, 1e-13, 1e19, 3e37])
@pytest.mark.parametrize("references", [False, True])
def test_rows_of_any_length_have_a_direction(factor, references):
    "Squares of 1e19 overflow and squares of 1e-23 vanish in float32: neither makes a row of zeros."
    embeddings, labels = batch(dtype=torch.float32)
    embeddings = embeddings / embeddings.abs().max()
    one, other = embeddings.clone().requires_grad_(), (embeddings * factor).requires_grad_()
    for leaf in (one, other):
        gallery = dict(ref_emb=leaf, ref_labels=labels, query_index=torch.arange(24)) if references else {}
        leaf.loss = SmoothAPLoss(0.1)(leaf, labels, **gallery)
        leaf.loss.backward()
    torch.testing.assert_close(other.loss, one.loss, rtol=1e-5, atol=1e-6)
    assert other.grad.isfinite().all()
    if 1e-20 <= factor <= 1e19:
        torch.testing.assert_close(other.grad.double() * factor, one.grad.double(), rtol=1e-3, atol=1e-5)


def test_powers_of_two_cost_no_digit():
    from smoothap_nb.similarity import unit_rows

    rows = torch.randn(200, 65, generator=torch.Generator().manual_seed(0))
    assert torch.equal(unit_rows(rows), rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True))
    assert torch.equal(unit_rows(torch.zeros(2, 3)), torch.zeros(2, 3))


@pytest.mark.parametrize("factor", [1e-20, 1e19])
def test_evaluate_gives_rows_of_any_length_a_direction(factor):
    embeddings, labels = batch(dtype=torch.float32)
    assert smoothap_nb.evaluate(embeddings * factor, labels, metrics=("mAP",)) == smoothap_nb.evaluate(
        embeddings, labels, metrics=("mAP",)
    )


@pytest.mark.cuda
def test_memory_follows_its_batch_to_the_gpu():
    memory, batches = EmbeddingMemory(SmoothAPLoss(0.1), 20), steps(3)
    memory(*batches[0])
    memory(*(t.cuda() for t in batches[1]))
    assert memory.embeddings.is_cuda and memory.filled == 12
    memory.cpu()
    memory(*batches[2])
    assert not memory.embeddings.is_cuda and memory.filled == 18
