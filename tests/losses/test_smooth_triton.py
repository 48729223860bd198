"""The kernel of Smooth-AP against the same function in PyTorch: in Triton's interpreter on any machine that has Triton,
and with `-m cuda` on a card.
"""

import os
import subprocess
import sys

import pytest
import torch

from benchmarks.pretend import pretended_cuda
from smoothap_nb import SmoothAPLoss
from smoothap_nb.losses import fused
from smoothap_nb.losses.gradient import closed_form

NAN, INF = float("nan"), float("inf")


def rows(queries, gallery, share, seed=0, grid=0):
    "Random scores (on a grid: ties) and relevance, the second row without positives."
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(queries, gallery, generator=generator, dtype=torch.float64) * 2 - 1
    scores = (scores * grid).round() / grid if grid else scores
    relevance = torch.rand(queries, gallery, generator=generator) < share
    relevance[1:2] = False
    return scores, relevance


def absent(scores, relevance):
    "The diagonal, some others and a whole row at -inf; some of them are called relevant."
    scores = scores.clone()
    scores.fill_diagonal_(-INF)
    scores[:, 3::7], scores[2] = -INF, -INF
    return scores, relevance


def with_nan(scores, relevance):
    "NaN at a positive, at a negative, and in a row without positives."
    scores, relevance = scores.clone(), relevance.clone()
    relevance[0, :2], relevance[3, :2] = torch.tensor([True, False]), torch.tensor([True, False])
    scores[0, 0], scores[3, 1], scores[1, 0] = NAN, NAN, NAN
    return scores, relevance


def classes(size, per_class):
    "A batch that is its own gallery: each row's positives are the others of its class, itself is absent."
    scores, labels = rows(size, size, 0)[0], torch.arange(size) // per_class
    return scores.fill_diagonal_(-INF), (labels[:, None] == labels).fill_diagonal_(False)


CASES = {
    "four a class": lambda: classes(24, 4),
    "two tiles": lambda: rows(3, 700, 0.02),
    "positives far apart, ties": lambda: rows(3, 1100, 0.004, grid=20),
    "many positives": lambda: rows(4, 61, 0.5),
    "all positives": lambda: rows(3, 17, 1.1),
    "ties": lambda: rows(4, 40, 0.3, grid=5),
    "absent items": lambda: absent(*rows(5, 45, 0.3)),
    "all rows without positives": lambda: rows(3, 9, 0),
    "one candidate": lambda: rows(3, 1, 1.1),
    "one query": lambda: rows(1, 30, 0.2),
    "turned over": lambda: tuple(t.T for t in rows(20, 6, 0.3)),
    "expanded": lambda: tuple(t[:1].expand(3, -1) for t in rows(2, 20, 0.3)),
    "NaN": lambda: with_nan(*rows(5, 33, 0.2)),
}
LARGE = {
    "the usual batch": lambda: classes(384, 4),
    "few classes": lambda: classes(512, 64),
    "a long gallery": lambda: absent(*rows(70, 20_000, 0.0003)),
    "a large batch": lambda: classes(2048, 4),
}


def compare(name, dtype, device, tau=0.05):
    "The kernel gives the numbers of PyTorch, with and without the gradient, and the same bits twice."
    from smoothap_nb.losses.smooth_triton import fused_closed_form

    scores, relevance = (t.to(device) for t in (CASES | LARGE)[name]())
    scores, atol = scores.to(dtype), 1e-12 if dtype == torch.float64 else 2e-6
    value, push = closed_form(scores, relevance, tau, 1 << 26, True)  # with a chunk it takes no kernel
    found, moved = fused_closed_form(scores, relevance, tau, True)
    alone, nothing = fused_closed_form(scores, relevance, tau, False)
    assert found.dtype == moved.dtype == dtype and moved.shape == scores.shape and nothing.numel() == 0
    torch.testing.assert_close(found, value, rtol=0, atol=atol, equal_nan=True)
    torch.testing.assert_close(alone, value, rtol=0, atol=atol, equal_nan=True)
    torch.testing.assert_close(moved, push, rtol=10 * atol, atol=10 * atol, equal_nan=True)
    again = fused_closed_form(scores, relevance, tau, True)
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(again, (found, moved)))


SOME = "four a class", "positives far apart, ties", "absent items", "all rows without positives", "NaN"


@pytest.mark.parametrize(
    "names, dtypes",
    [
        pytest.param(SOME, ["float32"], id="some"),
        pytest.param(tuple(CASES), ["float32", "float64"], id="all", marks=pytest.mark.slow),
    ],
)
def test_the_kernel_in_the_interpreter(names, dtypes):
    "In a process of its own: Triton asks for the interpreter where it is imported, once for all."
    reason = "Triton comes with torch for CUDA; the interpreters before 3.8 fail with NumPy 2.4"
    pytest.importorskip("triton", minversion="3.8", reason=reason)
    program = (
        "import torch, test_smooth_triton as t\n"
        f"for name in {names}:\n"
        f"    for dtype in {dtypes}:\n"
        "        print(name, dtype, flush=True); t.compare(name, getattr(torch, dtype), 'cpu')\n"
    )
    here = os.path.dirname(__file__)
    path = os.pathsep.join([os.path.join(here, "..", ".."), here, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path},
    )
    assert done.returncode == 0, (done.stdout, done.stderr[-3000:])


# ---------------------------------------------------------------- who takes it


def embeddings(size=96, device="cpu"):
    "Rows of a batch with four images a class, and their labels."
    generator = torch.Generator().manual_seed(0)
    return torch.randn(size, 16, generator=generator).to(device), (torch.arange(size) // 4).to(device)


def loss_and_gradient(batch, labels):
    leaf = batch.clone().requires_grad_()
    value = SmoothAPLoss()(leaf, labels)
    value.backward()
    return value.detach(), leaf.grad


@pytest.mark.parametrize("error, said", [(ImportError("no triton"), 0), (RuntimeError("Failed to find C compiler"), 1)])
def test_without_triton_or_its_compiler_torch_does_it(error, said, monkeypatch, recwarn):
    "A missing package is the rule on most machines; a kernel that cannot be built is told, once."

    class Broken:
        def __getattr__(self, name):
            raise error

    wanted = loss_and_gradient(*embeddings())
    with pretended_cuda():
        monkeypatch.setitem(sys.modules, "smoothap_nb.losses.smooth_triton", Broken())
        monkeypatch.setattr(fused, "use_triton", True)
        for _ in range(2):
            found = loss_and_gradient(*embeddings(device="cuda"))
            assert not fused.use_triton
        assert torch.equal(found[0].cpu(), wanted[0]) and torch.equal(found[1].cpu(), wanted[1])
    told = [str(w.message) for w in recwarn if "Triton" in str(w.message)]
    assert len(told) == said and all("Failed to find C compiler" in text for text in told)


def test_a_kernel_is_asked_for_on_a_card_alone(monkeypatch):
    "Not on a CPU, not where a chunk is wanted, not for few queries of a long gallery, not when it is switched off."
    from types import SimpleNamespace

    asked = []

    def note(scores, relevance, tau, gradient):
        asked.append(tuple(scores.shape))
        return torch.zeros(len(scores)), torch.zeros_like(scores)

    monkeypatch.setitem(sys.modules, "smoothap_nb.losses.smooth_triton", SimpleNamespace(fused_closed_form=note))
    scores, relevance = rows(3, 5, 0.5)
    with pretended_cuda():
        on_card = scores.to("cuda"), relevance.to("cuda")
        closed_form(*on_card, 0.1, None, True)  # the pretended card has no kernels
        monkeypatch.setattr(fused, "use_triton", True)
        closed_form(*on_card, 0.1, 100, True)
        long = tuple(t.to("cuda") for t in rows(3, 5000, 0.001))
        closed_form(*long, 0.1, None, True)
        closed_form(scores, relevance, 0.1, None, True)
        assert asked == []
        closed_form(*on_card, 0.1, None, True)
        assert asked == [(3, 5)]


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES | LARGE)
def test_the_kernel_on_a_card(name, dtype):
    pytest.importorskip("triton")
    compare(name, dtype, "cuda")


@pytest.mark.cuda
@pytest.mark.parametrize("tau", [1e-6, 0.01, 0.07, 10])
def test_the_kernel_at_any_tau(tau):
    pytest.importorskip("triton")
    for dtype in (torch.float32, torch.float64):
        scores, relevance = (t.cuda() for t in classes(96, 4))
        found = closed_form(scores.to(dtype), relevance, tau, None, True)
        wanted = closed_form(scores.to(dtype), relevance, tau, 1 << 26, True)
        for ours, theirs in zip(found, wanted):
            scale = float(theirs.abs().max())
            torch.testing.assert_close(ours, theirs, rtol=0, atol=scale * (1e-11 if dtype == torch.float64 else 5e-5))


@pytest.mark.cuda
def test_the_loss_never_waits_for_the_card():
    "Forward and backward: the device's queue stays full."
    pytest.importorskip("triton")
    batch = embeddings(384, "cuda")
    loss_and_gradient(*batch)  # builds the kernel
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss_and_gradient(*batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert fused.use_triton  # it was the kernel
