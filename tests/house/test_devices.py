"""What moves to a card, asked three times: on the CPU, on a pretended card (`benchmarks/pretend.py`: the CPU computes,
what a card would refuse is refused), and, with `-m cuda`, on a real one.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.pretend import pretended_cuda
from smoothap_nb import RetrievalMetrics, ScoreMemory, SmoothAPLoss, evaluate, recall_loss
from smoothap_nb import train as T
from smoothap_nb.retrieval.descriptors import extract_descriptors, learn_whitening, query_expansion
from smoothap_nb.retrieval.local import diffuse
from smoothap_nb.retrieval.netvlad import NetVLAD
from smoothap_nb.train.config import experiment_from_dict
from smoothap_nb.train.large_batches import cached_backward
from smoothap_nb.train.machine import pick_device, pick_precision
from toydata import use_toys


@pytest.fixture(params=["cpu", "pretended", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    if request.param == "pretended":
        with pretended_cuda():
            yield torch.device("cuda")
    else:
        yield torch.device(request.param)


def batch(classes: int, images: int, dim: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    "Unit rows around class centres, in double precision, and their labels."
    generator = torch.Generator().manual_seed(classes)
    labels = torch.arange(classes).repeat_interleave(images)
    centres = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    rows = centres[labels] + torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    return F.normalize(rows, dim=1), labels


def by_definition(rows: torch.Tensor, labels: torch.Tensor, tau: float) -> torch.Tensor:
    "1 - Smooth-AP, by Eq. 7 of the paper, with all B^3 comparisons."
    scores, positive = rows @ rows.T, labels[:, None] == labels
    own = torch.eye(len(rows), dtype=torch.bool)
    step = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau).masked_fill(own[None], 0)  # (q, i, j)
    step, positive = step.masked_fill(own[:, None, :], 0), positive & ~own
    among, all_ = 1 + (step * positive[:, None, :]).sum(2), 1 + step.sum(2)
    return 1 - ((among / all_ * positive).sum(1) / positive.sum(1)).mean()


def test_the_closed_form_of_the_usual_batch(device):
    "28 classes, four pictures of each: every query has as many positives, and the rows are taken as one slice."
    rows, labels = batch(28, 4)
    exact = rows.clone().requires_grad_()
    value = by_definition(exact, labels, 0.05)
    value.backward()
    here = rows.to(device).requires_grad_()
    found = SmoothAPLoss(tau=0.05, normalize=False)(here, labels.to(device))
    found.backward()
    torch.testing.assert_close(found.detach().cpu(), value.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(here.grad.cpu(), exact.grad, rtol=1e-8, atol=1e-10)


def test_gradient_caching_draws_the_dropout_again(device):
    "Each piece's second pass has the masks of its first: the gradient is that of the pieces in one graph."
    rows, labels = batch(8, 4)
    rows, labels = rows.to(device), labels.to(device)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.Dropout(), nn.Linear(32, 8)).double().to(device)
    loss = SmoothAPLoss(tau=0.1)
    torch.manual_seed(1)
    value = loss(torch.cat([net(part) for part in rows.split(5)]), labels)
    value.backward()
    wanted, after = [p.grad.clone() for p in net.parameters()], torch.rand(3, device=device)
    net.zero_grad()
    torch.manual_seed(1)
    cached = cached_backward(net, rows, 5, lambda found: loss(found, labels))
    torch.testing.assert_close(cached, value.detach())
    for parameter, gradient in zip(net.parameters(), wanted):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)
    assert torch.equal(torch.rand(3, device=device), after)  # the generator stands where one pass leaves it


def test_a_run_in_half_precision_goes_on_where_it_stopped(device, tmp_path, monkeypatch):
    "float16 with its GradScaler on a card, float32 on a CPU: scale, weights and random numbers come back."
    use_toys(monkeypatch)
    experiment = experiment_from_dict(
        {
            "name": "half",
            "checkpoint_minutes": 0.0,
            "data": {"size": 16},
            "model": {"backbone": "resnet18", "dim": 8, "stem": "small"},
            "batch": {"classes": 4, "images": 3},
            "optim": {"steps": 6, "warmup": 1, "precision": "float32" if device.type == "cpu" else "float16"},
        }
    )

    def started(name):
        return T.prepare(experiment, T.open_run(tmp_path / name, experiment), device)

    whole, half = started("whole"), started("half")
    assert (
        whole.scaler.is_enabled() == (device.type == "cuda")
        and next(whole.model.parameters()).device.type == device.type
    )
    for training in (whole, half):
        if training.scaler.is_enabled():
            training.scaler = torch.amp.GradScaler(device.type, init_scale=1024.0, growth_interval=2)
    T.fit(whole, progress=False, tensorboard=False)
    for _ in range(3):
        T.advance(half, *half.fetch(half.step)[:2])
    half.save()
    resumed = started("half")
    assert resumed.resume() and resumed.step == 3
    assert resumed.scaler.state_dict() == half.scaler.state_dict()
    T.fit(resumed, progress=False, tensorboard=False)
    assert resumed.scaler.state_dict() == whole.scaler.state_dict()
    if device.type == "cuda":
        assert resumed.scaler.get_scale() > 1024  # it moved
    for key, value in whole.model.state_dict().items():  # a real card's convolutions do not repeat their bits
        torch.testing.assert_close(resumed.model.state_dict()[key], value, rtol=1e-3, atol=1e-3, msg=key)


def test_the_score_memory_stays_with_its_scores(device):
    generator, memory = torch.Generator().manual_seed(0), ScoreMemory(2)
    there, kept = ScoreMemory(2).to(device), None
    for _ in range(4):
        scores = torch.randn(6, 12, generator=generator, dtype=torch.float64)
        relevance = torch.rand(6, 12, generator=generator) < 0.3
        relevance[:, 0] = True
        kept = memory(scores, relevance), there(scores.to(device).requires_grad_(), relevance.to(device))
    (scores, relevance), (ours, marked) = kept
    assert ours.shape == (18, 12) and ours.device.type == device.type
    assert torch.equal(ours.detach().cpu(), scores) and torch.equal(marked.cpu(), relevance)
    recall_loss(ours, marked, 4.0, 0.02).backward()
    again = ScoreMemory(2).to(device)
    again.load_state_dict(there.state_dict())
    assert again.scores.device.type == device.type and torch.equal(again.scores, there.scores)


def test_retrieval_metrics_are_those_of_evaluate(device):
    pytest.importorskip("torchmetrics")
    rows, labels = batch(10, 5)
    metric = RetrievalMetrics(("mAP", "R@1", "mAP@R")).to(device)
    for part in torch.arange(len(rows)).split(16):
        metric.update(rows[part].to(device), labels[part].to(device), index=part)
    found = metric.compute()
    for name, value in evaluate(rows, labels, metrics=("mAP", "R@1", "mAP@R"), progress=False).items():
        assert found[name].device.type == device.type and float(found[name]) == pytest.approx(value, abs=1e-6), name


def test_evaluation_on_the_device(device):
    rows, labels = batch(12, 5)
    labels = torch.stack([labels % 3, labels], 1)
    names = ("mAP", "R@1", "AP@level1", "H-AP", "ASI", "NDCG")
    wanted = evaluate(rows, labels, metrics=names, progress=False)
    found = evaluate(rows, labels, metrics=names, device=device, progress=False)
    assert found == pytest.approx(wanted, abs=1e-9)


def test_descriptors_whitening_and_expansion(device):
    "A network on the device, descriptors on the CPU, whitening wherever its descriptors are."
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU())
    pictures = [torch.rand(3, 20 + n % 3, 24) for n in range(24)]
    wanted = extract_descriptors(net, pictures, scales=(1.0, 0.5))
    found = extract_descriptors(net.to(device), pictures, scales=(1.0, 0.5))
    assert found.device.type == "cpu"
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
    rows, labels = batch(12, 4, 8)
    pairs = torch.arange(48).view(-1, 2)
    for which in (None, pairs):
        there = learn_whitening(rows.to(device), which, 6)
        white, exact = there(rows.to(device)), learn_whitening(rows, which, 6)(rows)
        assert white.device.type == device.type
        torch.testing.assert_close((white @ white.T).cpu(), exact @ exact.T, rtol=1e-6, atol=1e-8)
    expanded = query_expansion(rows[:5].to(device), rows.to(device), top=3, alpha=1.0)
    torch.testing.assert_close(expanded.cpu(), query_expansion(rows[:5], rows, top=3, alpha=1.0))


def test_netvlad_trains_where_its_maps_are(device):
    "The one local descriptor with weights: values and gradients of the CPU."
    torch.manual_seed(0)
    layer, maps = NetVLAD(8, 4).double(), torch.randn(3, 8, 5, 6, dtype=torch.float64)
    layer.start_from(layer.centres.detach())  # in double precision
    wanted = layer(maps)
    wanted[:, ::3].sum().backward()
    gradients = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    layer.to(device).start_from(layer.centres.detach())
    found = layer(maps.to(device))
    found[:, ::3].sum().backward()
    torch.testing.assert_close(found.detach().cpu(), wanted.detach(), rtol=1e-6, atol=1e-8)
    for parameter, gradient in zip(layer.parameters(), gradients):
        torch.testing.assert_close(parameter.grad.cpu(), gradient, rtol=1e-6, atol=1e-8)


def test_metrics_of_a_whole_set_are_computed_on_the_device(device, tmp_path, monkeypatch):
    "By the looks at held-out classes and by the measuring at the end, not on the CPU that has to decode pictures."
    from smoothap_nb.data import protocols
    from smoothap_nb.train import measure, validation

    use_toys(monkeypatch)
    asked = []

    def noting(*args, device=None, **options):
        asked.append(torch.device(device).type)
        return evaluate(*args, device=device, **options)

    for module in (validation, protocols):
        monkeypatch.setattr(module, "evaluate", noting)
    monkeypatch.setattr(measure, "pick_device", lambda: device)
    experiment = experiment_from_dict(
        {
            "name": "looks",
            "data": {"size": 16},
            "model": {"backbone": "resnet18", "dim": 8, "stem": "small"},
            "batch": {"classes": 4, "images": 3},
            "optim": {"steps": 2, "warmup": 0, "precision": "float32"},
            "validate": {"every": 1, "metric": "R@1"},
            "evaluate": {"metrics": ["mAP", "R@1"]},
        }
    )
    training = T.prepare(experiment, T.open_run(tmp_path / "run", experiment), device)
    T.fit(training, progress=False, tensorboard=False)
    T.finish(training)
    assert len(asked) == 2
    record, _ = measure.measure(tmp_path / "run", progress=False)
    assert len(asked) > 4 and set(asked) == {device.type} and 0 <= record["metrics"]["trained"]["mAP"] <= 1


def test_diffusion_takes_scores_from_the_device_and_hands_them_back(device):
    own = torch.rand(12, 12, generator=torch.Generator().manual_seed(0))
    own, first = (own + own.T) / 2, torch.rand(3, 12, generator=torch.Generator().manual_seed(1))
    found = diffuse(own.to(device), first.to(device), k=4, alpha=0.5)
    assert found.device.type == device.type
    torch.testing.assert_close(found.cpu(), diffuse(own, first, k=4, alpha=0.5))


# --- the pretended card itself --------------------------------------------------------------------------------------

REFUSED = {
    "two devices in a sum": lambda a, b: a + b,
    "two devices in a list": lambda a, b: torch.cat([a, b]),
    "a layer elsewhere": lambda a, b: nn.Linear(3, 2)(b),
    "NumPy's view": lambda a, b: b.numpy(),
    "pinning what lies on the card": lambda a, b: b.pin_memory(),
    "an index on the card into the CPU's memory": lambda a, b: a[torch.tensor([1]).to(b.device)],
    "a generator of the other device": lambda a, b: torch.rand(2, generator=torch.Generator("cuda")),
    "a stream for the CPU": lambda a, b: a.record_stream(torch.cuda.current_stream()),
    "a scalar of the card with rows of the CPU": lambda a, b: a * b.sum(),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("card", ["pretended", pytest.param("real", marks=pytest.mark.cuda)])
def test_what_a_card_refuses_is_refused(call, card):
    "The same on a real card: else the pretended one would be wrong."
    from contextlib import nullcontext

    with pretended_cuda() if card == "pretended" else nullcontext(), pytest.raises((RuntimeError, TypeError)):
        call(torch.rand(4, 3), torch.rand(4, 3).cuda())


def test_what_a_card_allows_is_allowed():
    with pretended_cuda() as card:
        a, b = torch.rand(4, 3), torch.rand(4, 3, device="cuda")
        assert (b * torch.tensor(2.0)).is_cuda and b[torch.tensor([1])].is_cuda and not b.cpu().is_cuda
        assert torch.as_tensor(a, device="cuda").is_cuda and torch.zeros_like(b, device="cpu").device.type == "cpu"
        b[:2] = a[:2]
        assert a.pin_memory().to("cuda", non_blocking=True).is_cuda and card.calls > 5
        there = a.to("cuda")
        there.zero_()
        assert a.any()  # a copy
    assert not torch.cuda.is_available() or torch.rand(1, device="cuda").is_cuda  # and everything is as it was


@pytest.mark.parametrize(
    "capability, wanted", [((7, 0), "float16"), ((7, 5), "float16"), ((8, 0), "bfloat16"), ((9, 0), "bfloat16")]
)
def test_auto_takes_the_format_that_the_card_computes_in(capability, wanted):
    "Cards before compute capability 8 emulate bfloat16; float16 they compute themselves."
    with pretended_cuda(capability):
        assert pick_device().type == "cuda"
        assert pick_precision("auto", pick_device()) == getattr(torch, wanted)


@pytest.mark.parametrize("cores, processes, wanted", [(1, 1, 1), (8, 1, 8), (8, 2, 4), (3, 4, 1), (64, 1, 16)])
def test_threads_follow_the_cores(cores, processes, wanted, monkeypatch):
    "One for each core that this process may use, shared among the processes of the machine, sixteen at most."
    import os

    from smoothap_nb.train.machine import threads

    monkeypatch.setattr(os, "sched_getaffinity", lambda number: set(range(cores)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert threads(processes) == wanted
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    assert threads() == wanted


@pytest.mark.cuda
def test_the_demo_of_a_card_from_end_to_end(tmp_path):
    "`smoothap train demo` on a card is demo-cuda: trained, measured, reported, and resumed after the weights are gone."
    settings = ("optim.steps=8", "optim.warmup=2", "checkpoint_every=4", "evaluate.classes=40")
    words = ["train", "demo", "--quiet", "--run", str(tmp_path / "run"), *(f"--set={one}" for one in settings)]
    command = [sys.executable, "-m", "smoothap_nb.cli", *words]
    for said in ("demo-cuda takes the place of demo", "resumed at step 8"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0 and said in done.stdout, (done.stdout, done.stderr)
        metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]["trained"]
        assert 0 < metrics["mAP"] <= 1 and (tmp_path / "run" / "report.html").exists()
        (tmp_path / "run" / "model.safetensors").unlink()
