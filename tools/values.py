"""Parts of the guides that the library computes when they are written: how values change between implementations and
protocols.

Numbers of other implementations come from tests/vectors, which were obtained by running them. Called by results.py.
"""

from __future__ import annotations

import json

import torch

from results import ROOT, table
from smoothap_nb import (
    BlackboxAPLoss,
    FastAPLoss,
    HAPLoss,
    HAPPIERLoss,
    MapLoss,
    RecallLoss,
    ROADMAPLoss,
    SmoothAPLoss,
    SupAPLoss,
    average_precision,
    blackbox_ap,
    blackbox_ranks,
    evaluate,
    evaluate_revisited,
    glyph_batch,
    map_at_r,
    precision_at_k,
    recall_at_k,
)


def case(name: str, identity: str) -> dict:
    "One recorded case of tests/vectors/NAME.json."
    cases = json.loads((ROOT / "tests" / "vectors" / f"{name}.json").read_text(encoding="utf-8"))["cases"]
    return next(c for c in cases if c["id"] == identity)


def tensor(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def batch(found: dict) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor(found["inputs"]["embeddings"]), torch.tensor(found["inputs"]["labels"])


def four(value) -> str:
    return f"{float(torch.as_tensor(value).detach()):.4f}"


def migration() -> str:
    "What a released loss returns, what ours returns out of the box, and which arguments make the two equal."
    rows = []

    def row(theirs: str, recorded, ours: str, plain, settings: str, same) -> None:
        equal = abs(float(recorded) - float(torch.as_tensor(same).detach())) < 2e-6
        rows.append(
            [
                theirs,
                four(recorded),
                f"`{ours}` {four(plain)}",
                f"`{settings}`" if settings else "the same call",
                four(same) if equal else f"**{four(same)}**",
            ]
        )

    c = case("smooth_ap_official", "C6m4d8_tau0.01")
    e, y = batch(c)
    row(
        "Smooth_AP `SmoothAP(0.01, 24, 6, 8)`",
        c["outputs"]["loss"],
        "SmoothAPLoss(0.01)",
        SmoothAPLoss(0.01)(e, y),
        "SmoothAPLoss(0.01, include_query=True, normalize=False)",
        SmoothAPLoss(0.01, include_query=True, normalize=False)(e, y),
    )
    for identity, what in (
        ("sorted_C4_m4_tau0.01", "4 classes of 4, sorted"),
        ("sorted_C6_m4_tau0.01", "6 classes of 4, sorted"),
        ("shuffled_C4_m4", "4 classes of 4, shuffled"),
    ):
        c = case("pml_smooth_ap_deviations", identity)
        e, y = batch(c)
        row(
            f"pytorch-metric-learning `SmoothAPLoss(0.01)`, {what}",
            c["outputs"]["pml_loss"],
            "SmoothAPLoss(0.01)",
            SmoothAPLoss(0.01)(e, y),
            "SmoothAPLoss(0.01, include_query=True)",
            SmoothAPLoss(0.01, include_query=True)(e, y),
        )
    c = case("fastap", "case0_bins10")
    e, y = batch(c)
    row(
        "FastAP `FastAPLoss(10)`",
        c["outputs"]["official_loss"],
        "FastAPLoss(10)",
        FastAPLoss(10)(e, y),
        "",
        FastAPLoss(10)(e, y),
    )
    row(
        "pytorch-metric-learning `FastAPLoss(10)`",
        c["outputs"]["pml_loss"],
        "FastAPLoss(10)",
        FastAPLoss(10)(e, y),
        "",
        FastAPLoss(10)(e, y),
    )
    c = case("rambo_recall_loss", "square_self_in_relevance_lam4.0_margin0.02")
    e, y = tensor(c["inputs"]["embeddings"]), torch.tensor(c["inputs"]["relevance"]).int().argmax(1)
    theirs = {"include_query": True, "reduction": "positives", "scale": "rows", "normalize": False}
    row(
        "blackbox-backprop `RecallLoss(4., 0.02, log1p)`",
        c["outputs"]["loss"],
        'RecallLoss(4, 0.02, "log")',
        RecallLoss(4, 0.02, "log")(e, y),
        'RecallLoss(4, 0.02, "log", reduction="positives", scale="rows", include_query=True, normalize=False)',
        RecallLoss(4, 0.02, "log", **theirs)(e, y),
    )
    c = case("rambo_map_loss", "lam4.0_margin0.02")
    step, p = c["steps"][0], c["params"]
    scores, targets = tensor(step["scores"]), torch.tensor(step["targets"]).bool()
    loss = MapLoss(p["lambda_val"], p["margin"], p["interclass_coef"], eps=1e-5)
    same = loss(
        scores, targets, tensor(step["randn_cross_batch"]).T, tensor(step["randn_interclass"]).view(scores.shape)
    )
    row(
        "blackbox-backprop `MapLoss(4., 0.02, 0.)`",
        step["loss"],
        "MapLoss(4, 0.02, 0)",
        MapLoss(4, 0.02, 0)(scores, targets),
        "MapLoss(4, 0.02, 0, eps=1e-5)(scores, targets, noise)",
        same,
    )
    c = case("rambo_ap_roadmap", "self_included_quick_lam4.0_margin0.02")
    e, y = batch(c)
    scores, target = tensor(c["inputs"]["scores"]), torch.tensor(c["inputs"]["target"]).bool()
    row(
        "ROADMAP `BlackBoxAP(4., 0.02)`",
        c["outputs"]["loss"],
        "BlackboxAPLoss(4, 0.02)",
        BlackboxAPLoss(4, 0.02)(e, y),
        "1 - blackbox_ap(scores, relevance, 4, 0.02, noise=draws, eps=1e-5).mean()",
        1 - blackbox_ap(scores, target, 4.0, 0.02, noise=tensor(c["inputs"]["randn"]), eps=1e-5).mean(),
    )
    c = case("roadmap_total", "case0")
    e, y = batch(c)
    rows_of_one = torch.nn.functional.normalize(e, dim=1)
    row("ROADMAP `SupAP` + `CalibrationLoss`", c["outputs"]["roadmap_total"], "ROADMAPLoss()", ROADMAPLoss()(e, y),
        "ROADMAPLoss(offset=1.44, include_query=True)", ROADMAPLoss(offset=1.44, include_query=True)(rows_of_one, y))
    c = case("hap_loss", "L2_default_quick")
    e, y = tensor(c["inputs"]["embeddings"]), torch.tensor(c["inputs"]["labels"]).flip(1)
    row(
        "HAPPIER `HAPLoss()`",
        c["outputs"]["loss"],
        "HAPLoss()",
        HAPLoss()(e, y),
        "HAPLoss(offset=1.44, smooth_hrank=False, include_query=True)",
        HAPLoss(offset=1.44, smooth_hrank=False, include_query=True, normalize=False)(e, y),
    )
    c = case("happier_cluster_csl", "case0")
    e, y = tensor(c["inputs"]["embeddings"]), torch.tensor(c["inputs"]["labels"]).flip(1)
    built = []
    for extra in ({}, {"offset": 1.44, "smooth_hrank": False, "include_query": True, "normalize": False}):
        loss = HAPPIERLoss(len(c["inputs"]["cluster_weight"]), e.shape[1], 0.1, **extra)
        loss.cluster.proxies.data = tensor(c["inputs"]["cluster_weight"])
        built.append(loss(e, y))
    row("HAPPIER, weights 0.9 and 0.1", c["outputs"]["happier_total_weight0_1"], "HAPPIERLoss(C, D)", built[0],
        "HAPPIERLoss(C, D, offset=1.44, smooth_hrank=False, include_query=True)", built[1])
    return table(["their call", "their value", "ours by default", "ours, as released", "value"], rows)


def conventions() -> str:
    "The same batch, one argument changed at a time."
    e, y = batch(case("smooth_ap_official", "C6m4d8_tau0.01"))
    ragged = torch.tensor([0] * 10 + [1] * 6 + [2] * 4 + [3] * 2 + [4] * 2)
    rows = [
        [
            "the query in its own ranking",
            "`SmoothAPLoss(0.01)`",
            four(SmoothAPLoss(0.01)(e, y)),
            "`include_query=True`",
            four(SmoothAPLoss(0.01, include_query=True)(e, y)),
        ]
    ]
    rows.append(
        [
            "a larger temperature",
            "`SmoothAPLoss(0.01)`",
            four(SmoothAPLoss(0.01)(e, y)),
            "`SmoothAPLoss(0.1)`",
            four(SmoothAPLoss(0.1)(e, y)),
        ]
    )
    rows.append(
        [
            "embeddings three times as long, unit length inside or not",
            "`SmoothAPLoss(0.1)`",
            four(SmoothAPLoss(0.1)(3 * e, y)),
            "`normalize=False`",
            four(SmoothAPLoss(0.1, normalize=False)(3 * e, y)),
        ]
    )
    plain, joined = RecallLoss(4, 0.02, "log")(e, ragged), RecallLoss(4, 0.02, "log", reduction="positives")(e, ragged)
    rows.append(
        [
            "a mean over queries, or over all positives (classes of 10, 6, 4, 2, 2)",
            '`RecallLoss(4, 0.02, "log")`',
            four(plain),
            '`reduction="positives"`',
            four(joined),
        ]
    )
    short = recall_rows(e, y)
    rows.append(
        [
            "8 queries against a gallery of 16: ranks counted in the gallery, or scaled by the number of rows",
            '`recall_loss(scores, relevance, 4, 0.02, "log")`',
            four(short[0]),
            '`scale="rows"`',
            four(short[1]),
        ]
    )
    rows.append(
        [
            "log or log-log weights",
            '`RecallLoss(4, 0.02, "log")`',
            four(RecallLoss(4, 0.02, "log")(e, y)),
            '`"log_log"`',
            four(RecallLoss(4, 0.02, "log_log")(e, y)),
        ]
    )
    rows.append(
        [
            "the upper step, continuous or with the released offset",
            "`SupAPLoss()`",
            four(SupAPLoss()(e, y)),
            "`SupAPLoss(offset=1.44)`",
            four(SupAPLoss(offset=1.44)(e, y)),
        ]
    )
    return table(["what changes", "default", "value", "changed", "value"], rows)


def recall_rows(e, y):
    from smoothap_nb import recall_loss

    queries = torch.arange(len(e)) % 3 == 0
    scores, relevance = e[queries] @ e[~queries].T, y[queries, None] == y[~queries]
    return [recall_loss(scores, relevance, 4, 0.02, "log", scale=scale) for scale in ("gallery", "rows")]


def gradients() -> str:
    "Where the value is equal and the gradient is not: lambda's convention, FastAP's backward."
    e, y = batch(case("smooth_ap_official", "C6m4d8_tau0.01"))
    scores = (e @ e.T).fill_diagonal_(-2)
    weights = torch.linspace(0, 1, scores.shape[1], dtype=torch.float64)
    rows = []
    for text, lam, normalize in (
        ("code: ranks divided by n = 24, lambda 4", 4.0, True),
        ("paper: whole ranks, lambda 4", 4.0, False),
        ("paper: whole ranks, lambda 24 x 4 = 96", 96.0, False),
    ):
        leaf = scores.clone().requires_grad_()
        ranks = blackbox_ranks(leaf, lam, normalize)
        (ranks * weights * (1 if normalize else 1 / 24)).sum().backward()
        rows.append(
            [
                f"`blackbox_ranks(scores, {lam:g}" + ("" if normalize else ", normalize=False") + ")`",
                text,
                f"{float((leaf.grad != 0).double().mean()):.2f}",
                four(leaf.grad.abs().sum() / len(scores)),
            ]
        )
    c = case("fastap", "case0_bins10")
    leaf, labels = tensor(c["inputs"]["embeddings"]).requires_grad_(), torch.tensor(c["inputs"]["labels"])
    FastAPLoss(10, normalize=False)(leaf, labels).backward()
    released = tensor(c["outputs"]["official_grad_embeddings"])
    valid = int(((labels[:, None] == labels).sum(1) > 1).sum())
    ratio = float((released.norm() / leaf.grad.norm()))
    lines = table(
        ["call", "convention", "share of scores with a gradient", "sum of absolute gradients per query"], rows
    )
    return lines + (
        f"\n\nFastAP: on a batch with $V={valid}$ queries that have a positive, the released backward pass returns a "
        f"gradient {ratio:.1f} times the gradient of "
        f"its own loss ($V/2={valid / 2:.1f}$). A learning rate tuned for it is {ratio:.1f} times too small here; Adam "
        f"does not notice, SGD and weight decay do."
    )


def protocols() -> str:
    "One ranking, and one set of embeddings, under the protocols that all call their number mAP."
    relevance = torch.tensor([[True, False, True, False, False, True, False, False, False, True]])
    scores = torch.linspace(.95, .5, 10, dtype=torch.float64)[None]
    tied = scores.clone()
    tied[0, 1] = tied[0, 2]
    with_query = (
        torch.cat([torch.ones(1, 1, dtype=torch.float64), scores], 1),
        torch.cat([torch.ones(1, 1, dtype=torch.bool), relevance], 1),
    )
    truth = [{"easy": relevance[0].nonzero()[:, 0].tolist(), "hard": [], "junk": []}]
    revisited = evaluate_revisited(scores, truth, ks=(10,))["easy"]
    rows = [
        [
            "AP, the query left out (our default)",
            "`average_precision(scores, relevance)`",
            four(average_precision(scores, relevance)),
        ],
        [
            "AP, the query left in as its own first hit",
            "the query's own score and relevance joined to the row",
            four(average_precision(*with_query)),
        ],
        ["AP, ranks 2 and 3 tied, counted against", '`ties="max"`', four(average_precision(tied, relevance))],
        ["AP, the same tie, counted in favour", '`ties="min"`', four(average_precision(tied, relevance, ties="min"))],
        ["AP as an area of trapezoids (revisited Oxford and Paris)", "`evaluate_revisited`", four(revisited["mAP"])],
        ["mAP@R: stops at rank R = 4, divides by 4", "`map_at_r`", four(map_at_r(scores, relevance))],
        ["R@1, a hit or none", "`recall_at_k(scores, relevance, 1)`", four(recall_at_k(scores, relevance, 1))],
        ["P@10", "`precision_at_k(scores, relevance, 10)`", four(precision_at_k(scores, relevance, 10))],
    ]
    return (
        "One ranking of ten, positives at ranks 1, 3, 6 and 10:\n\n"
        + table(["what is called mAP, or stands beside it", "how to get it", "value"], rows)
        + "\n\n"
        + whole_set()
    )


def whole_set() -> str:
    glyphs = glyph_batch()
    e, y = torch.as_tensor(glyphs["trained"]).double(), torch.as_tensor(glyphs["labels"])
    fine = y[:, -1]
    out = lambda metrics, **kw: evaluate(e, fine, metrics=metrics, progress=False, **kw)
    left_out, left_in = out(("mAP", "mAP@R", "R@1")), out(("mAP", "mAP@R", "R@1"), include_query=True)
    first = {int(label): n for n, label in reversed(list(enumerate(fine.tolist())))}
    gallery = torch.tensor(sorted(first.values()))
    queries = torch.tensor([n for n in range(len(fine)) if n not in set(gallery.tolist())])
    one = evaluate(
        e[queries], fine[queries], e[gallery], fine[gallery], metrics=("mAP", "mAP@R", "R@1"), progress=False
    )
    levels = evaluate(e, y, metrics=tuple(f"AP@level{n}" for n in range(1, y.shape[1] + 1)), progress=False)
    rows = [
        [
            "every picture against all others (all versus the rest)",
            *(f"{left_out[k]:.3f}" for k in ("mAP", "mAP@R", "R@1")),
        ],
        ["the same with each query left in", *(f"{left_in[k]:.3f}" for k in ("mAP", "mAP@R", "R@1"))],
        [
            "one picture of each class as gallery, the others as queries",
            *(f"{one[k]:.3f}" for k in ("mAP", "mAP@R", "R@1")),
        ],
    ]
    by_level = ", ".join(f"{name} {value:.3f}" for name, value in levels.items() if name.startswith("AP@"))
    values = [value for name, value in levels.items() if name.startswith("AP@")]
    return (
        f"{len(fine)} glyphs of {len(first)} characters, embedded by the trained network that the lessons use:\n\n"
        + table(["protocol", "mAP", "mAP@R", "R@1"], rows)
        + f"\n\nThe same embeddings judged at every level of the label tree (1 is the coarsest): {by_level}; their "
          f"plain mean, DyML's way, is {sum(values) / len(values):.3f}."
    )
