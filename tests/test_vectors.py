"""Golden vectors: numbers obtained by running public implementations, replayed through the public API.

One JSON file per section. The folder is `tests/vectors`, or the one that the environment variable VECTORS_DIR names;
cases are read from the files, so that another set with the same schema replays as it is. A file that is not there is
skipped by name. Conventions, sources and tolerances stand in `tests/vectors/README.md`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from smoothap_nb import (
    ClusterLoss,
    CSLLoss,
    HAPLoss,
    HAPPIERLoss,
    ROADMAPLoss,
    SmoothAPLoss,
    SoftBinAPLoss,
    SupAPLoss,
    ap_at_level,
    asi,
    average_precision,
    calibration_loss,
    evaluate,
    evaluate_revisited,
    h_ap,
    levels_from_labels,
    ndcg,
    relevance_from_levels,
    relevance_from_weights,
    smooth_ap,
    smooth_h_ap,
    soft_bin_ap,
    step_lower,
    step_upper,
    sup_ap,
)
from smoothap_nb import RecallAtKLoss, SmoothNDCGLoss, SupNDCGLoss, SupRecallLoss, recall_at_k_surrogate
from smoothap_nb.losses.beyond_ap import recall_of_ranks, smooth_ranks
from smoothap_nb.losses.long_lists import find_positives
from smoothap_nb import (
    BlackboxAPLoss,
    FastAPLoss,
    MapLoss,
    RecallLoss,
    blackbox_ap,
    blackbox_ranks,
    fast_ap,
    recall_loss,
)

OURS = Path(__file__).parent / "vectors"
VECTORS = Path(os.environ.get("VECTORS_DIR") or OURS)


# ----------------------------------------------------------------------------------------------------------------------
# loading

def replay(name: str, keep=lambda case: True):
    """Parametrise a test with `case` over every case of NAME.json that `keep` accepts.

    A file missing from tests/vectors fails; a folder named by VECTORS_DIR may hold a part, the rest is skipped by name.
    """
    path = VECTORS / f"{name}.json"
    if path.exists():
        params = [
            pytest.param(case, id=f"{name}-{case['id']}")
            for case in json.loads(path.read_text())["cases"]
            if keep(case)
        ]
    else:
        if VECTORS == OURS:
            raise FileNotFoundError(f"{path} is missing: the golden vectors belong to the repository")
        params = [pytest.param(None, id=name, marks=pytest.mark.skip(reason=f"{path} is not there"))]
    return pytest.mark.parametrize("case", params)


def tensor(values, dtype=torch.float64) -> torch.Tensor:
    "A nested list as a tensor: null is NaN, 'inf' and '-inf' are infinities."
    def number(value):
        if isinstance(value, list):
            return [number(v) for v in value]
        return float("nan") if value is None else float(value) if isinstance(value, str) else value
    return torch.tensor(number(values), dtype=dtype)


def leaf(values) -> torch.Tensor:
    "A float64 tensor that collects a gradient."
    return tensor(values).requires_grad_()


def close(ours, theirs, atol: float, what: str) -> None:
    "Equal within an absolute tolerance, NaN where NaN."
    ours = ours.detach() if isinstance(ours, torch.Tensor) else torch.tensor(ours, dtype=torch.float64)
    theirs = theirs if isinstance(theirs, torch.Tensor) else tensor(theirs)
    torch.testing.assert_close(
        ours, theirs.to(ours.dtype), rtol=0, atol=atol, equal_nan=True, msg=lambda text: f"{what}: {text}"
    )


# ----------------------------------------------------------------------------------------------------------
# smooth_ap_official

def gradient_tolerance(tau: float) -> float:
    return 1e-9 if tau <= 0.001 else 1e-10


@replay("smooth_ap_official")
def test_smooth_ap_official(case):
    tau, embeddings = case["params"]["tau"], leaf(case["inputs"]["embeddings"])
    loss = SmoothAPLoss(tau, include_query=True, normalize=False)(embeddings, torch.tensor(case["inputs"]["labels"]))
    loss.backward()
    close(loss, case["outputs"]["loss"], 1e-12, "loss")
    close(embeddings.grad, case["outputs"]["grad_embeddings"], gradient_tolerance(tau), "gradient")


@replay("smooth_ap_official", keep=lambda case: "loss_float32_run" in case["outputs"])
def test_smooth_ap_official_in_float32(case):
    embeddings = tensor(case["inputs"]["embeddings"]).float()
    loss = SmoothAPLoss(case["params"]["tau"], include_query=True, normalize=False)(
        embeddings, torch.tensor(case["inputs"]["labels"])
    )
    # float32 scores are known to 1e-7, the sigmoid divides them by tau
    atol = 1e-6 / min(1.0, case["params"]["tau"] * 100)
    close(loss, case["outputs"]["loss"], atol, "loss")


@replay("smooth_ap_official")
def test_smooth_ap_official_in_any_label_order(case):
    tau, embeddings, labels = (
        case["params"]["tau"],
        tensor(case["inputs"]["embeddings"]),
        torch.tensor(case["inputs"]["labels"]),
    )
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    shuffled = embeddings[order].requires_grad_()
    loss = SmoothAPLoss(tau, include_query=True, normalize=False)(shuffled, 7 - 3 * labels[order])
    loss.backward()
    close(loss, case["outputs"]["loss"], 1e-12, "loss")
    close(shuffled.grad, tensor(case["outputs"]["grad_embeddings"])[order], gradient_tolerance(tau), "gradient")


# -----------------------------------------------------------------------------------------------------------
# smooth_ap_roadmap

@replay("smooth_ap_roadmap")
def test_smooth_ap_roadmap_on_scores(case):
    tau, outputs = case["params"]["tau"], case["outputs"]
    scores, relevance = leaf(case["inputs"]["scores"]), torch.tensor(case["inputs"]["target"]).bool()
    values = smooth_ap(scores, relevance, tau)
    close(values, outputs["ap"], 1e-12, "AP")
    finite = ~values.isnan()
    loss = 1 - values[finite].mean()
    loss.backward()
    recorded = outputs["loss"] if outputs["loss"] is not None else outputs["loss_over_finite_rows"]
    close(loss, recorded, 1e-12, "loss")
    gradient = outputs.get("grad_scores") or outputs["grad_scores_of_loss_over_finite_rows"]
    theirs = tensor(gradient)
    close(
        scores.grad[finite] if len(theirs) == finite.sum() else scores.grad, theirs, gradient_tolerance(tau), "gradient"
    )
    assert scores.grad.isfinite().all()


@replay("smooth_ap_roadmap", keep=lambda case: "grad_embeddings" in case["outputs"])
def test_smooth_ap_roadmap_on_embeddings(case):
    tau, embeddings = case["params"]["tau"], leaf(case["inputs"]["embeddings"])
    query_in = len(case["inputs"]["scores"][0]) == len(embeddings)  # else each row lacks the query's own column
    loss = SmoothAPLoss(tau, include_query=query_in, normalize=False)(
        embeddings, torch.tensor(case["inputs"]["labels"])
    )
    loss.backward()
    close(loss, case["outputs"]["loss"], 1e-12, "loss")
    close(embeddings.grad, case["outputs"]["grad_embeddings"], gradient_tolerance(tau), "gradient")


# ----------------------------------------------------------------------------------------------------
# pml_smooth_ap_deviations

def pml_is_right(case) -> bool:
    "pytorch-metric-learning 2.9.0 swaps the number of classes and their size, and groups by position."
    labels = case["inputs"]["labels"]
    sizes = {label: labels.count(label) for label in labels}
    return labels == sorted(labels) and set(sizes.values()) == {len(sizes)}


@replay("pml_smooth_ap_deviations")
def test_pml_smooth_ap_deviations(case):
    outputs, embeddings = case["outputs"], tensor(case["inputs"]["embeddings"])
    loss = SmoothAPLoss(case["params"]["temperature"], include_query=True)(
        embeddings, torch.tensor(case["inputs"]["labels"])
    )
    if "pml_error" in outputs:
        assert torch.isfinite(loss)  # classes of unequal size: refused there, fine here
        return
    close(loss, outputs["official_loss_on_rows_sorted_by_label"], 1e-12, "official loss")
    if pml_is_right(case):
        close(loss, outputs["pml_loss"], 1e-12, "pytorch-metric-learning's loss")
    else:
        assert abs(loss.item() - outputs["pml_loss"]) > 1e-3


# --------------------------------------------------------------------------------------------------------
# ap_heaviside_roadmap

@replay("ap_heaviside_roadmap")
def test_ap_heaviside_roadmap(case):
    scores, relevance = tensor(case["inputs"]["scores"]), torch.tensor(case["inputs"]["target"]).bool()
    values = average_precision(scores, relevance, ties="max")
    close(values, case["outputs"]["ap"], 1e-12, "AP")
    if case["outputs"]["loss"] is not None:
        close(1 - values.mean(), case["outputs"]["loss"], 1e-12, "loss")


# ------------------------------------------------------------------------------------------------------------------
# ap_metrics

@replay("ap_metrics")
def test_ap_metrics(case):
    scores, relevance = tensor(case["inputs"]["scores"]), torch.tensor(case["inputs"]["relevance"]).bool()
    ours = average_precision(scores, relevance, ties="max")
    for value, row, relevant, recorded in zip(ours, scores, relevance, case["outputs"]["per_row"]):
        # both read precision after a tie group
        for column in ("sklearn_average_precision_score", "roadmap_heaviside_ap"):
            if recorded.get(column) is not None:
                close(value, recorded[column], 1e-12, column)
        if len(row.unique()) == len(row) and recorded.get("happier_ap_after_stable_descending_sort") is not None:
            close(value, recorded["happier_ap_after_stable_descending_sort"], 1e-12, "HAPPIER")
        if (
            len(row.unique()) == len(row)
            and recorded.get("torchmetrics_on_scores_shifted_positive") is not None
            and not value.isnan()
        ):
            close(value, recorded["torchmetrics_on_scores_shifted_positive"], 1e-6, "torchmetrics")
        if recorded.get("revisitop_trapezoidal_ap") is not None:  # recorded in the order of a stable sort
            order = row.argsort(descending=True, stable=True)[None]
            truth = {"easy": relevant.nonzero()[:, 0].tolist(), "hard": [], "junk": []}
            close(
                evaluate_revisited(ground_truth=[truth], ranks=order)["easy"]["mAP"],
                recorded["revisitop_trapezoidal_ap"],
                1e-12,
                "revisitop",
            )
            if len(row.unique()) == len(row):
                close(
                    evaluate_revisited(row[None], [truth])["easy"]["mAP"],
                    recorded["revisitop_trapezoidal_ap"],
                    1e-12,
                    "revisitop from scores",
                )


# --------------------------------------------------------------------------------------------------------------
# sup_ap_roadmap

SUP_AP = ("tau", "rho", "delta", "offset", "start")


def sup_ap_settings(params) -> dict:
    return {name: params[name] for name in SUP_AP if name in params}


def check_scores_case(case, function, atol_gradient: float, smooth=None) -> None:
    "Value of each row and gradient of the mean over rows with positives; `smooth` tells where the gradient exists."
    outputs = case["outputs"]
    scores, relevance = leaf(case["inputs"]["scores"]), torch.tensor(case["inputs"]["target"]).bool()
    values = function(scores, relevance)
    close(values, outputs["ap"], 1e-12, "AP")
    finite = ~values.isnan()
    loss = 1 - values[finite].mean()
    loss.backward()
    close(loss, outputs["loss"] if outputs["loss"] is not None else outputs["loss_over_finite_rows"], 1e-12, "loss")
    theirs = tensor(outputs.get("grad_scores") or outputs["grad_scores_of_loss_over_finite_rows"])
    rows = finite if len(theirs) == finite.sum() else torch.ones_like(finite)
    keep = torch.ones_like(theirs, dtype=torch.bool) if smooth is None else smooth(scores.detach()[rows])
    close(scores.grad[rows][keep], theirs[keep], atol_gradient, "gradient")
    assert scores.grad.isfinite().all()


@replay("sup_ap_roadmap")
def test_sup_ap_roadmap_on_scores(case):
    settings = sup_ap_settings(case["params"])
    check_scores_case(case, lambda scores, relevance: sup_ap(scores, relevance, **settings), 1e-10)


def check_embeddings_case(case, loss_of, atol_gradient: float) -> None:
    embeddings = leaf(case["inputs"]["embeddings"])
    query_in = len(case["inputs"]["scores"][0]) == len(embeddings)  # else each row lacks the query's own column
    loss = loss_of(query_in)(embeddings, torch.tensor(case["inputs"]["labels"]))
    loss.backward()
    close(loss, case["outputs"]["loss"], 1e-12, "loss")
    close(embeddings.grad, case["outputs"]["grad_embeddings"], atol_gradient, "gradient")


@replay("sup_ap_roadmap", keep=lambda case: "grad_embeddings" in case["outputs"])
def test_sup_ap_roadmap_on_embeddings(case):
    settings = sup_ap_settings(case["params"])
    check_embeddings_case(case, lambda query_in: SupAPLoss(**settings, include_query=query_in, normalize=False), 1e-10)


# ----------------------------------------------------------------------------------------------------------
# softbin_ap_roadmap

@replay("softbin_ap_roadmap")
def test_softbin_ap_roadmap_on_scores(case):
    centres = case["params"]["nq"]
    assert (case["params"]["min"], case["params"]["max"]) == (-1, 1), "soft_bin_ap covers cosine scores"

    def smooth(scores):  # at a bin's centre the slope jumps, and each code takes one side
        grid = torch.linspace(1, -1, centres, dtype=scores.dtype)
        return (scores[..., None] - grid).abs().amin(-1) > 1e-12

    check_scores_case(case, lambda scores, relevance: soft_bin_ap(scores, relevance, centres), 1e-10, smooth)


@replay("softbin_ap_roadmap", keep=lambda case: "grad_embeddings" in case["outputs"])
def test_softbin_ap_roadmap_on_embeddings(case):
    embeddings = leaf(case["inputs"]["embeddings"])
    query_in = len(case["inputs"]["scores"][0]) == len(embeddings)
    loss = SoftBinAPLoss(case["params"]["nq"], include_query=query_in, normalize=False)(
        embeddings, torch.tensor(case["inputs"]["labels"])
    )
    loss.backward()
    close(loss, case["outputs"]["loss"], 1e-12, "loss")
    if not query_in:  # a query's score to itself is 1: a kink in every row
        close(embeddings.grad, case["outputs"]["grad_embeddings"], 1e-10, "gradient")


# ---------------------------------------------------------------------------------------------------------------
# roadmap_total

def official_step(case) -> dict:
    return {name: case["params"]["supap"][name] for name in SUP_AP}


@replay("roadmap_total")
def test_roadmap_calibration(case):
    embeddings, labels = leaf(case["inputs"]["embeddings"]), torch.tensor(case["inputs"]["labels"])
    rows = torch.nn.functional.normalize(embeddings, dim=1)
    relevance, itself = labels[:, None] == labels, torch.eye(len(labels), dtype=torch.bool)
    others = (rows @ rows.T)[~itself].view(len(labels), -1)
    loss = calibration_loss(
        others, relevance[~itself].view(len(labels), -1), case["params"]["pos_margin"], case["params"]["neg_margin"]
    )
    loss.backward()
    close(loss, case["outputs"]["calibration_loss"], 1e-12, "calibration")
    close(embeddings.grad, case["outputs"]["grad_calibration"], 1e-10, "gradient")


@replay("roadmap_total")
def test_roadmap_total(case):
    params, (calibration, sup) = case["params"], case["params"]["weights"]
    embeddings, labels = leaf(case["inputs"]["embeddings"]), torch.tensor(case["inputs"]["labels"])
    # the released code normalises in calibration alone: rows of unit length make both the same value, not the same
    # gradient
    rows = torch.nn.functional.normalize(embeddings, dim=1)
    close(
        SupAPLoss(**official_step(case), include_query=True, normalize=False)(embeddings, labels),
        case["outputs"]["supap_loss"],
        1e-12,
        "SupAP",
    )
    loss = ROADMAPLoss(
        **official_step(case),
        pos_margin=params["pos_margin"],
        neg_margin=params["neg_margin"],
        sup_ap_weight=sup,
        calibration_weight=calibration,
        include_query=True,
        normalize=False,
    )
    close(loss(rows, labels), case["outputs"]["roadmap_total"], 1e-12, "total")
    parts = calibration * loss.calibration(rows, labels) + sup * loss.sup_ap(embeddings, labels)
    parts.backward()
    close(parts, case["outputs"]["roadmap_total"], 1e-12, "sum of the parts")
    close(embeddings.grad, case["outputs"]["grad_total"], 1e-10, "gradient")


# -----------------------------------------------------------------------------------------------------------
# happier_cluster_csl

@replay("happier_cluster_csl")
def test_csl(case):
    inputs, outputs, params = case["inputs"], case["outputs"], case["params"]["csl"]
    finest_last = torch.tensor(inputs["csl_proxy_labels"]).flip(1)
    loss = CSLLoss(
        finest_last, len(inputs["embeddings"][0]), params["margins"][::-1], params["scale"], normalize=False
    ).double()
    loss.proxies.data = tensor(inputs["csl_weight"])
    embeddings = leaf(inputs["embeddings"])
    value = loss(embeddings, torch.tensor(inputs["labels"]).flip(1))
    value.backward()
    close(value, outputs["csl_loss"], 1e-12, "loss")
    close(embeddings.grad, outputs["grad_csl_embeddings"], 1e-10, "gradient of the embeddings")
    close(loss.proxies.grad, outputs["grad_csl_weight"], 1e-10, "gradient of the proxies")


@replay("happier_cluster_csl")
def test_cluster(case):
    inputs, outputs = case["inputs"], case["outputs"]
    loss = ClusterLoss(
        len(inputs["cluster_weight"]), len(inputs["embeddings"][0]), case["params"]["temperature"], normalize=False
    )
    loss.proxies.data = tensor(inputs["cluster_weight"])
    embeddings = leaf(inputs["embeddings"])
    value = loss(embeddings, finest_last(inputs["labels"]))
    value.backward()
    close(value, outputs["cluster_loss"], 1e-12, "loss")
    close(embeddings.grad, outputs["grad_embeddings"], 1e-10, "gradient of the embeddings")
    close(loss.proxies.grad, outputs["grad_cluster_weight"], 1e-10, "gradient of the proxies")


@replay("happier_cluster_csl")
@pytest.mark.parametrize("cluster_weight", [0.1, 0.5])
def test_happier_total(case, cluster_weight):
    inputs, outputs = case["inputs"], case["outputs"]
    loss = HAPPIERLoss(
        len(inputs["cluster_weight"]),
        len(inputs["embeddings"][0]),
        cluster_weight,
        temperature=case["params"]["temperature"],
        offset=1.44,
        smooth_hrank=False,
        include_query=True,
        normalize=False,
    )
    loss.cluster.proxies.data = tensor(inputs["cluster_weight"])
    embeddings, labels = leaf(inputs["embeddings"]), finest_last(inputs["labels"])
    close(loss.hap(embeddings, labels), outputs["hap_loss"], 1e-7, "H-AP loss")
    total = loss(embeddings, labels)
    total.backward()
    name = f"happier_total_weight{str(cluster_weight).replace('.', '_')}"
    close(total, outputs[name], 1e-7, "total")
    if f"grad_{name}" in outputs:
        close(embeddings.grad, outputs[f"grad_{name}"], 1e-6, "gradient")


# -------------------------------------------------------------------------------------------------------------
# surrogate_steps

def step_of(case):
    "Our function for the recorded one. Recorded settings are named as in the authors' code."
    params, what = case["params"], case["id"].split("_", 1)[1]
    if what.startswith(("step_rank_inferior", "step_rank_negative")):
        settings = {name: params[name] for name in ("tau", "delta", "offset", "start")}
        return lambda t: step_upper(t, rho=None if params["rho"] < 0 else params["rho"], **settings)
    if what.startswith("step_hrank_superior"):
        return lambda t: step_lower(t, leak=params["leak"], slope=params["beta"], intercept=params["gamma"])
    return lambda t: (t >= 0).to(t) + 0 * t  # the exact step of all other comparisons


@replay("surrogate_steps")
def test_surrogate_steps(case):
    t = leaf(case["inputs"]["t"])
    value = step_of(case)(t)
    value.sum().backward()
    close(value, case["outputs"]["value"], 1e-12, "value")
    close(t.grad, case["outputs"]["derivative"], 1e-10, "derivative")


# -----------------------------------------------------------------------------------------------------------
# happier_relevance

def finest_last(labels) -> torch.Tensor:
    "Recorded labels have the finest class in column 0; ours run from coarse to fine."
    return torch.tensor(labels).flip(1)


def relevance_of(levels, params, **more) -> torch.Tensor:
    if params["type"] == "map":
        return relevance_from_weights(levels, params["weights"], **more)
    return relevance_from_levels(levels, params["alpha"], params["L"], **more)


def in_their_scale(params) -> float:
    "The released code divides levels by L - 1 where the paper divides by L: a constant factor, without effect on H-AP."
    return 1.0 if params["type"] == "map" or params["L"] == 1 else (params["L"] / (params["L"] - 1)) ** params["alpha"]


@replay("happier_relevance")
def test_happier_relevance(case):
    params, outputs = case["params"], case["outputs"]
    levels = levels_from_labels(finest_last(case["inputs"]["labels"]))
    ours = relevance_of(levels, params) * in_their_scale(params)
    if "error" in outputs:  # one level: the released code divides by L - 1 = 0
        assert params["L"] == 1 and ours.isfinite().all() and ((ours > 0) == (levels > 0)).all()
        return
    torch.testing.assert_close(ours, tensor(outputs["relevance_per_level"]).gather(1, levels), rtol=1e-6, atol=0)
    if "label_match_count" in outputs:
        assert levels.tolist() == outputs["label_match_count"]
        torch.testing.assert_close(ours, tensor(outputs["relevance_matrix"]), rtol=1e-6, atol=0)
    # without the query's own column, extra_fine counts it all the same
    levels.fill_diagonal_(0)
    left_out = relevance_of(levels, params, extra_fine=1) * in_their_scale(params)
    if params["type"] != "map":
        torch.testing.assert_close(left_out, ours.clone().fill_diagonal_(0), rtol=1e-6, atol=0)


# ------------------------------------------------------------------------------------------------------------------
# hap_metric

def ranking_of(case, cases) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and levels without the query's own column, from embeddings, or from a list of levels that is ranked
    already.
    """
    inputs = case["inputs"]
    if "sorted_level" in inputs:
        levels = torch.tensor(inputs["sorted_level"])
        return -torch.arange(levels.shape[1], dtype=torch.float64).expand(levels.shape).contiguous(), levels
    inputs = cases[inputs["same_as"]]["inputs"] if "same_as" in inputs else inputs
    embeddings, others = tensor(inputs["embeddings"]), ~torch.eye(len(inputs["embeddings"]), dtype=torch.bool)
    scores, levels = embeddings @ embeddings.T, levels_from_labels(finest_last(inputs["labels"]))
    return scores[others].view(len(scores), -1), levels[others].view(len(levels), -1)


def hap_metric_cases() -> dict:
    path = VECTORS / "hap_metric.json"
    return {case["id"]: case for case in json.loads(path.read_text())["cases"]} if path.exists() else {}


HAP_METRIC = hap_metric_cases()


@replay("hap_metric")
def test_hap_metric(case):
    outputs, (scores, levels) = case["outputs"], ranking_of(case, HAP_METRIC)
    recorded, per_level = tensor(outputs["per_query"]["hap"]), tensor(case["inputs"]["relevance_per_level"])
    ours = h_ap(scores, per_level.gather(1, levels))
    wrong = torch.tensor(outputs.get("rows_hit_by_double_count_bug") or [False] * len(ours)) | (recorded > 1 + 1e-9)
    close(ours[~wrong], recorded[~wrong], 1e-9, "H-AP")
    assert (ours[wrong] < recorded[wrong] - 1e-6).all() and (ours[wrong] <= 1 + 1e-12).all(), (
        "items counted twice by the released code"
    )
    if case["id"].endswith("raw_equal_relevance_two_levels"):
        close(ours, [1.0], 1e-12, "a perfect ranking")


@replay("hap_metric", keep=lambda case: case["params"].get("relevance") in ("pop", "counts exclude the query"))
def test_hap_metric_from_our_own_relevance(case):
    scores, levels = ranking_of(case, HAP_METRIC)
    extra = int(case["params"]["relevance"] == "pop")  # there the query is counted, though not ranked
    ours = h_ap(scores, relevance_from_levels(levels, case["params"]["alpha"], case["params"]["L"], extra_fine=extra))
    right = ~torch.tensor(case["outputs"]["rows_hit_by_double_count_bug"])
    close(ours[right], tensor(case["outputs"]["per_query"]["hap"])[right], 1e-6, "H-AP")


@replay("hap_metric", keep=lambda case: "ndcg" in case["outputs"]["per_query"])
def test_hap_metric_relatives(case):
    recorded, (scores, levels) = case["outputs"]["per_query"], ranking_of(case, HAP_METRIC)
    close(ndcg(scores, levels), recorded["ndcg"], 1e-6, "NDCG")
    close(asi(scores, levels), recorded["asi"], 1e-9, "ASI")
    for column in range(case["params"]["L"]):  # their column 0 is the finest, our level L
        if f"ap_level{column}" in recorded:
            close(
                ap_at_level(scores, levels, case["params"]["L"] - column),
                recorded[f"ap_level{column}"],
                1e-9,
                f"AP, column {column}",
            )


@replay("hap_metric", keep=lambda case: "batch_mean" in case["outputs"])
def test_hap_metric_batch_mean(case):
    (scores, levels), means, params = ranking_of(case, HAP_METRIC), case["outputs"]["batch_mean"], case["params"]
    relevance = tensor(case["inputs"]["relevance_per_level"]).gather(1, levels)
    close(ndcg(scores, levels).nanmean(), means["NDCG_multi"], 1e-6, "NDCG")
    close(asi(scores, levels).nanmean(), means["ASI_multi"], 1e-6, "ASI")
    if not any(case["outputs"]["rows_hit_by_double_count_bug"]):
        close(h_ap(scores, relevance).nanmean(), means["H-AP_multi"], 1e-6, "H-AP")
    for column in range(params["L"]):
        ap = ap_at_level(scores, levels, params["L"] - column)
        if ap.isnan().any():  # the released mean is 0 as soon as one query has no positive at that level
            assert means[f"AP_level{column}"] != pytest.approx(ap.nanmean().item(), abs=1e-3)
        else:
            close(ap.mean(), means[f"AP_level{column}"], 1e-6, f"AP, column {column}")


# ------------------------------------------------------------------------------------------- hap_metric, a whole set at
# once

def whole_set(case) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings and labels (coarse to fine) of a case; a list of levels that is ranked already becomes a gallery of
    one dimension.
    """
    inputs = HAP_METRIC[case["inputs"]["same_as"]]["inputs"] if "same_as" in case["inputs"] else case["inputs"]
    return tensor(inputs["embeddings"]), finest_last(inputs["labels"])


@replay("hap_metric", keep=lambda case: case["params"].get("relevance") in ("pop", "counts exclude the query"))
def test_hap_metric_of_a_whole_set(case):
    (embeddings, labels), outputs, params = whole_set(case), case["outputs"], case["params"]
    found = evaluate(
        embeddings,
        labels,
        metrics=("H-AP", "NDCG", "ASI", "mAP"),
        alpha=params["alpha"],
        normalize=False,
        per_query=True,
        extra_fine=int(params["relevance"] == "pop"),
        memory=100_000,
    )["per_query"]
    right = ~torch.tensor(outputs["rows_hit_by_double_count_bug"])
    close(torch.from_numpy(found["H-AP"])[right], tensor(outputs["per_query"]["hap"])[right], 1e-6, "H-AP")
    for ours, theirs, atol in (("NDCG", "ndcg", 1e-6), ("ASI", "asi", 1e-9), ("mAP", "ap_level0", 1e-9)):
        if theirs in outputs["per_query"]:
            close(torch.from_numpy(found[ours]), outputs["per_query"][theirs], atol, ours)


@replay("hap_metric", keep=lambda case: "ap_level0" in case["outputs"]["per_query"])
def test_hap_metric_levels_of_a_whole_set(case):
    "Each of their columns is a label of its own: the finest level of the labels up to it."
    (embeddings, labels), outputs, depth = whole_set(case), case["outputs"], case["params"]["L"]
    for column in range(depth):
        recorded = outputs["per_query"]
        cuts = sorted(
            int(name.split("_")[2])
            for name in recorded
            if name.startswith("r_at_") and name.endswith(f"_level{column}")
        )
        result = evaluate(
            embeddings,
            labels[:, : depth - column],
            metrics=("mAP", "mAP@R", "P@1", *(f"R@{k}" for k in cuts)),
            normalize=False,
            per_query=True,
        )
        found = {name: torch.from_numpy(value) for name, value in result["per_query"].items()}
        close(found["mAP"], recorded[f"ap_level{column}"], 1e-9, f"AP, column {column}")
        close(found["mAP@R"], recorded[f"map_at_R_level{column}"], 1e-9, f"mAP@R, column {column}")
        for k in cuts:  # a query without positives is a miss there, and left out here
            close(found[f"R@{k}"].nan_to_num(0), recorded[f"r_at_{k}_level{column}"], 1e-9, f"R@{k}, column {column}")
        for name, mean in outputs.get("batch_mean", {}).items():
            ours = name.removesuffix(f"_level{column}").replace("AP", "mAP").replace("mmAP", "mAP")
            if not name.endswith(f"_level{column}") or ours not in result:
                continue
            # the released mean is 0 as soon as one query has no positive
            if ours in ("mAP", "mAP@R") and result["queries_skipped"]:
                assert abs(mean - result[ours]) > 1e-3, name
            else:
                share = 1 - result["queries_skipped"] / len(labels) if ours[1] == "@" else 1
                close(torch.tensor(result[ours] * share, dtype=torch.float64), mean, 1e-6, name)


@replay("hap_metric", keep=lambda case: "sorted_level" in case["inputs"])
def test_hap_metric_of_a_given_ranking(case):
    "One query at 1 on a line, and a gallery further and further away."
    for row, levels in enumerate(case["inputs"]["sorted_level"]):
        depth, recorded = (
            case["params"]["L"],
            {name: values[row] for name, values in case["outputs"]["per_query"].items()},
        )
        gallery = torch.linspace(1, 0.1, len(levels), dtype=torch.float64)[:, None]
        labels = torch.tensor([[0] * level + [1] * (depth - level) for level in levels])
        arguments = (
            torch.ones(1, 1, dtype=torch.float64),
            torch.zeros(1, depth, dtype=torch.int64),
            gallery,
            labels,
            ("NDCG", "ASI"),
        )
        if not any(levels):
            with pytest.raises(ValueError, match="no query has a positive"):
                evaluate(*arguments, normalize=False)
            continue
        found = evaluate(*arguments, normalize=False)
        close(torch.tensor(found["NDCG"], dtype=torch.float64), recorded["ndcg"], 1e-6, "NDCG")
        close(torch.tensor(found["ASI"], dtype=torch.float64), recorded["asi"], 1e-9, "ASI")


# ---------------------------------------------------------------------------------------------------------------
# ap_metrics_pml

PML_NAMES = {
    "mean_average_precision": "mAP",
    "mean_average_precision_at_r": "mAP@R",
    "precision_at_1": "P@1",
    "r_precision": "R-precision",
}


@replay("ap_metrics_pml")
def test_ap_metrics_pml(case):
    embeddings, labels = tensor(case["inputs"]["embeddings"]), torch.tensor(case["inputs"]["labels"])
    outputs, kept = case["outputs"], ~torch.tensor(case["outputs"]["query_dropped"])
    names = {theirs: ours for theirs, ours in PML_NAMES.items() if theirs in outputs}
    bounds = [
        evaluate(embeddings, labels, metrics=tuple(names.values()), ties=ties, per_query=True, normalize=False)
        for ties in ("max", "min")
    ]
    assert bounds[0]["queries_skipped"] == int((~kept).sum())
    tied = len(embeddings.unique(dim=0)) < len(embeddings)  # inside a tie their order is arbitrary
    for theirs, ours in names.items():
        worst, best = (torch.from_numpy(found["per_query"][ours])[kept] for found in bounds)
        if not tied:
            close(worst, outputs[theirs]["per_query"], 1e-12, theirs)
            close(torch.tensor(bounds[0][ours], dtype=torch.float64), outputs[theirs]["mean"], 1e-12, theirs)
        elif ours != "mAP":  # AP of a tie is read after the whole group, not in an order of it
            recorded = tensor(outputs[theirs]["per_query"])
            assert (worst - 1e-12 <= recorded).all() and (recorded <= best + 1e-12).all(), theirs


# --------------------------------------------------------------------------------------------------------------------
# hap_loss

def hap_settings(params) -> dict:
    """Recorded settings under our names: their beta, gamma, leak are the paper's nu, mu, gamma and our slope,
    intercept, leak.
    """
    settings = {name: params[name] for name in ("tau", "delta", "offset", "start")}
    settings |= {"rho": None if params["rho"] < 0 else params["rho"], "smooth_hrank": params["with_hrank"]}
    return settings | {
        ours: params[theirs]
        for ours, theirs in (("slope", "beta"), ("intercept", "gamma"), ("leak", "leak"))
        if theirs in params
    }


def hap_labels(case, name="labels") -> torch.Tensor:
    labels = torch.tensor(case["inputs"][name])
    column = case["params"].get("hierarchy_level")
    return labels.flip(1) if column is None else labels[:, [column]]


@replay("hap_loss")
def test_hap_loss_on_scores(case):
    inputs, outputs = case["inputs"], case["outputs"]
    embeddings = leaf(inputs["embeddings"])
    references = leaf(inputs["ref_embeddings"]) if "ref_embeddings" in inputs else embeddings
    levels = levels_from_labels(hap_labels(case), hap_labels(case, "ref_labels") if "ref_labels" in inputs else None)
    values = smooth_h_ap(
        embeddings @ references.T, levels, tensor(inputs["relevance_matrix"]), **hap_settings(case["params"])
    )
    loss = 1 - values.mean()
    loss.backward()
    close(values, outputs["hap_per_query"], 1e-7, "surrogate H-AP")
    close(loss, outputs["loss"], 1e-7, "loss")
    close(embeddings.grad, outputs["grad_embeddings"], 1e-6, "gradient")
    if "grad_ref_embeddings" in outputs:
        close(references.grad, outputs["grad_ref_embeddings"], 1e-6, "gradient of the references")


@replay("hap_loss")
def test_hap_loss_on_embeddings(case):
    "The relevance is our own here, in float64; theirs was rounded to float32."
    inputs, outputs, grades = case["inputs"], case["outputs"], case["params"]["relevance"]
    loss_function = HAPLoss(
        alpha=grades.get("alpha", 1.0),
        weights=grades.get("weights"),
        **hap_settings(case["params"]),
        include_query=True,
        normalize=False,
    )
    embeddings, more = leaf(inputs["embeddings"]), ()
    if "ref_embeddings" in inputs:
        references = leaf(inputs["ref_embeddings"])
        more = (None, references, hap_labels(case, "ref_labels"))
    loss = loss_function(embeddings, hap_labels(case), *more)
    loss.backward()
    close(loss, outputs["loss"], 1e-6, "loss")
    close(embeddings.grad, outputs["grad_embeddings"], 1e-5, "gradient")
    if more:
        close(references.grad, outputs["grad_ref_embeddings"], 1e-5, "gradient of the references")


# -------------------------------------------------------------------------------------------------------------------
# revisitop

@replay("revisitop")
def test_revisitop(case):
    inputs, ks = case["inputs"], case["params"]["kappas"]
    ranks = torch.tensor(inputs["ranks"]).T  # the official layout is (database, queries)
    tables = [evaluate_revisited(ground_truth=inputs["gnd"], ranks=ranks, ks=ks, per_query=True)]
    whole = inputs["sim"] is not None and len(inputs["sim"]) == len(inputs["ranks"])
    if whole and all(len(set(column)) == len(column) for column in zip(*inputs["sim"])):  # no ties
        tables.append(evaluate_revisited(tensor(inputs["sim"]).T, inputs["gnd"], ks, per_query=True))
    for ours in tables:
        for letter, setup in (("E", "easy"), ("M", "medium"), ("H", "hard")):
            recorded = case["outputs"].get(letter)
            if recorded is None:
                continue
            if "error" in recorded:  # no positive in a shortened list: the official code stops, the query scores 0 here
                assert 0 <= ours[setup]["mAP"] <= 1 and (ours[setup]["AP"] == 0).any()
                continue
            close(ours[setup]["mAP"], recorded["map"], 1e-12, f"{setup} mAP")
            close(ours[setup]["AP"], recorded["aps"], 1e-12, f"{setup} AP")
            close([ours[setup][f"mP@{k}"] for k in ks], recorded["mean_precision_at_k"], 1e-12, f"{setup} mP@K")
            close(
                torch.stack([ours[setup][f"P@{k}"] for k in ks], 1), recorded["precision_at_k"], 1e-12, f"{setup} P@K"
            )


# ----------------------------------------------------------------------------------------------------------------
# rambo_ranker

def untied(scores) -> bool:
    "The released ranker breaks ties by the order of a sort, which nobody promises."
    return all(len(row.unique()) == len(row) for row in tensor(scores))


@replay("rambo_ranker")
def test_rambo_ranker(case):
    lam, inputs, outputs = case["params"]["lambda_val"], case["inputs"], case["outputs"]
    scores = leaf(inputs["sequence"])
    found = blackbox_ranks(scores, lam)
    if untied(inputs["sequence"]):
        close(found, outputs["rank_normalised"], 1e-6, "ranks / length")
    else:  # theirs lies between our two answers
        best, worst = (blackbox_ranks(scores.detach(), lam, ties=rule) for rule in ("min", "max"))
        theirs = tensor(outputs["rank_normalised"])
        assert ((best - 1e-6 <= theirs) & (theirs <= worst + 1e-6)).all()
    if "grad_output" in inputs:
        found.backward(tensor(inputs["grad_output"]))
        close(scores.grad, outputs["grad_sequence"], 1e-6, "gradient")


# -----------------------------------------------------------------------------------------------------------
# rambo_recall_loss

RECALL_WEIGHTS = {"log1p": "log", "log1p_log1p": "log_log", "identity": "identity"}


def recall_settings(params) -> dict:
    return {"lam": params["lambda_val"], "margin": params["margin"], "weight": RECALL_WEIGHTS[params["weight_fn"]]}


@replay("rambo_recall_loss")
def test_rambo_recall_loss(case):
    scores, relevance = leaf(case["inputs"]["scores"]), torch.tensor(case["inputs"]["relevance"]).bool()
    settings = recall_settings(case["params"])
    loss = recall_loss(scores, relevance, **settings, reduction="positives", scale="rows")
    loss.backward()
    close(loss, case["outputs"]["loss"], 1e-6, "loss")
    close(scores.grad, case["outputs"]["grad_scores"], 1e-6, "gradient")
    rows, columns = scores.shape
    in_true_scale = recall_loss(scores.detach(), relevance, **settings, reduction="positives")
    if rows == columns:
        close(in_true_scale, case["outputs"]["loss"], 1e-6, "square scores: rows and row length are one number")
    elif in_true_scale > 0:
        assert abs(in_true_scale.item() - case["outputs"]["loss"]) > 1e-3, (
            "multiplying by the number of rows changes the loss"
        )


@replay("rambo_recall_loss", keep=lambda case: "grad_embeddings" in case["outputs"])
def test_rambo_recall_loss_on_embeddings(case):
    embeddings, settings = leaf(case["inputs"]["embeddings"]), recall_settings(case["params"])
    relevance = torch.tensor(case["inputs"]["relevance"]).bool()
    scores = embeddings @ embeddings.T
    loss = recall_loss(scores, relevance, **settings, reduction="positives", scale="rows")
    loss.backward()
    close(embeddings.grad, case["outputs"]["grad_embeddings"], 1e-6, "gradient")
    labels = relevance.int().argmax(1)
    # each query is its own first positive: the module with include_query
    if torch.equal(labels[:, None] == labels, relevance):
        module = RecallLoss(**settings, reduction="positives", scale="rows", include_query=True, normalize=False)
        again = leaf(case["inputs"]["embeddings"])
        module(again, labels).backward()
        close(again.grad, case["outputs"]["grad_embeddings"], 1e-6, "gradient through the module")


# --------------------------------------------------------------------------------------------------------------
# rambo_map_loss

@replay("rambo_map_loss")
def test_rambo_map_loss(case):
    params = case["params"]
    module = MapLoss(
        params["lambda_val"], params["margin"], params["interclass_coef"], memory=params["batch_memory"], eps=1e-5
    )
    for number, step in enumerate(case["steps"]):
        scores, targets = leaf(step["scores"]), torch.tensor(step["targets"]).bool()
        noise = tensor(step["randn_cross_batch"]).T  # recorded as classes x samples, and in one row
        loss = module(scores, targets, noise, tensor(step["randn_interclass"]).view(scores.shape))
        loss.backward()
        close(loss, step["loss"], 1e-6, f"loss of step {number}")
        close(scores.grad, step["grad_scores"], 1e-6, f"gradient of step {number}")


# ------------------------------------------------------------------------------------------------------------
# rambo_ap_roadmap

def roadmap_settings(case) -> dict:
    return {
        "lam": case["params"]["lambda_val"],
        "margin": case["params"]["margin"],
        "noise": tensor(case["inputs"]["randn"]),
    }


@replay("rambo_ap_roadmap")
def test_rambo_ap_roadmap(case):
    scores, relevance = leaf(case["inputs"]["scores"]), torch.tensor(case["inputs"]["target"]).bool()
    loss = 1 - blackbox_ap(scores, relevance, **roadmap_settings(case), eps=1e-5).mean()
    loss.backward()
    close(loss, case["outputs"]["loss"], 1e-6, "loss")
    close(scores.grad, case["outputs"]["grad_scores"], 1e-6, "gradient")
    ours = blackbox_ap(scores.detach(), relevance, **roadmap_settings(case))
    assert torch.equal(ours.isnan(), ~relevance.any(1))  # there such a row counts as AP 0
    if not relevance.any(1).all():
        assert 1 - ours.nanmean().item() < case["outputs"]["loss"] - 1e-3


@replay("rambo_ap_roadmap", keep=lambda case: "grad_embeddings" in case["outputs"])
def test_rambo_ap_roadmap_on_embeddings(case):
    embeddings, relevance = leaf(case["inputs"]["embeddings"]), torch.tensor(case["inputs"]["target"]).bool()
    scores, theirs = embeddings @ embeddings.T, tensor(case["inputs"]["scores"])
    # each row lacks the query's own column; queries without a positive are left out
    if relevance.shape != scores.shape:
        others = ~torch.eye(len(embeddings), dtype=torch.bool)
        labels = torch.tensor(case["inputs"]["labels"])
        kept = ((labels[:, None] == labels) & others).any(1)
        scores = scores[others].view(len(embeddings), -1)[kept]
    close(scores, theirs, 1e-12, "scores")
    loss = 1 - blackbox_ap(scores, relevance, **roadmap_settings(case), eps=1e-5).mean()
    loss.backward()
    close(embeddings.grad, case["outputs"]["grad_embeddings"], 1e-6, "gradient")


@replay("rambo_ap_roadmap", keep=lambda case: "grad_embeddings" in case["outputs"] and case["params"]["margin"] == 0)
def test_rambo_ap_roadmap_through_the_module(case):
    "Without a margin there is no noise, and the module needs nothing but embeddings and labels."
    embeddings, query_in = (
        leaf(case["inputs"]["embeddings"]),
        len(case["inputs"]["scores"][0]) == len(case["inputs"]["embeddings"]),
    )
    module = BlackboxAPLoss(case["params"]["lambda_val"], margin=0.0, include_query=query_in, normalize=False)
    loss = module(embeddings, torch.tensor(case["inputs"]["labels"]))
    loss.backward()
    close(loss, case["outputs"]["loss"], 2e-5, "loss, up to their 1e-5 in the denominator")
    close(embeddings.grad, case["outputs"]["grad_embeddings"], 1e-6, "gradient")


# ----------------------------------------------------------------------------------------------------------------------
# fastap

def queries_with_positives(labels: torch.Tensor) -> int:
    return int(((labels[:, None] == labels).sum(1) > 1).sum())


def at_a_kink(embeddings: torch.Tensor, bins: int) -> torch.Tensor:
    "Rows that take part in a distance on a node, where the slope jumps and each code takes one side."
    place = (1 - embeddings @ embeddings.T) * bins / 2
    near = ((place - place.round()).abs() < 1e-9) & ~torch.eye(len(embeddings), dtype=torch.bool)
    return near.any(1) | near.any(0)


@replay("fastap")
def test_fastap(case):
    bins, outputs = case["params"]["num_bins"], case["outputs"]
    embeddings, labels = leaf(case["inputs"]["embeddings"]), torch.tensor(case["inputs"]["labels"])
    loss = FastAPLoss(bins, normalize=False)(embeddings, labels)
    loss.backward()
    close(loss, outputs["official_loss"], 1e-12, "loss")
    smooth, released = ~at_a_kink(embeddings.detach(), bins), tensor(outputs["official_grad_embeddings"])
    # the released backward drops the mean over V queries and the 2 of d = 2 - 2 s
    factor = queries_with_positives(labels) / 2
    close(embeddings.grad[smooth] * factor, released[smooth], 1e-9, "released gradient")
    if factor != 1 and embeddings.grad.abs().max() > 1e-6:
        assert (embeddings.grad - released).abs().max() > 1e-9, "it is not the gradient of the loss"


@replay("fastap")
def test_fastap_on_scores(case):
    "The pure function, with each query's own column cut out."
    embeddings, labels = tensor(case["inputs"]["embeddings"]), torch.tensor(case["inputs"]["labels"])
    others = ~torch.eye(len(labels), dtype=torch.bool)
    cut = lambda matrix: matrix[others].view(len(labels), -1)
    values = fast_ap(cut(embeddings @ embeddings.T), cut(labels[:, None] == labels), case["params"]["num_bins"])
    close(1 - values.nanmean(), case["outputs"]["official_loss"], 1e-12, "loss")


@replay("fastap")
def test_fastap_of_pytorch_metric_learning(case):
    bins, outputs = case["params"]["num_bins"], case["outputs"]
    embeddings = leaf(case["inputs"]["embeddings"])
    loss = FastAPLoss(bins)(embeddings, torch.tensor(case["inputs"]["labels"]))
    loss.backward()
    close(loss, outputs["pml_loss"], 1e-12, "loss")
    smooth = ~at_a_kink(torch.nn.functional.normalize(embeddings.detach(), dim=1), bins)
    close(embeddings.grad[smooth], tensor(outputs["pml_grad_embeddings"])[smooth], 1e-9, "gradient")


# ------------------------------------------------------------------------------------------------- recall at k,
# SupRank's recall and NDCG

@replay("rs_at_k")
def test_recall_at_k_of_its_authors(case):
    "The released code keeps the query among the competitors and leaves it out of the positives: include_query=True."
    params, outputs = case["params"], case["outputs"]
    embeddings, labels = leaf(case["inputs"]["embeddings"]), torch.tensor(case["inputs"]["labels"])
    same = (labels[:, None] == labels).fill_diagonal_(False)
    recall = recall_at_k_surrogate(
        embeddings @ embeddings.T, same, params["k"], params["tau"], params["k_temperatures"]
    )
    close(recall, outputs["per_query_recall"], 1e-12, "recall of each query")
    module = RecallAtKLoss(params["k"], params["tau"], params["k_temperatures"], include_query=True, normalize=False)
    loss = module(embeddings, labels)
    loss.backward()
    close(loss, outputs["loss"], 1e-12, "loss")
    close(embeddings.grad, outputs["grad_embeddings"], 1e-10, "gradient")


def suprank_loss(params):
    "Our module for a case; SmoothRecallLoss has no module of its own."
    steps = {name: params[name] for name in ("tau", "rho", "delta", "offset", "start") if name in params}
    shared = {"include_query": True, "normalize": False}
    return {
        "SupRecallLoss": lambda: SupRecallLoss(params["at_k"], temperature=params["temp"], **steps, **shared),
        "SmoothNDCGLoss": lambda: SmoothNDCGLoss(params["tau"], **shared),
        "SupNDCGLoss": lambda: SupNDCGLoss(**steps, **shared),
    }[params["loss"]]()


@replay("suprank_recall_ndcg")
def test_recall_and_ndcg_of_suprank(case):
    params, outputs = case["params"], case["outputs"]
    embeddings, labels = leaf(case["inputs"]["embeddings"]), torch.tensor(case["inputs"]["labels"])
    if params["loss"] == "SmoothRecallLoss":
        fine = labels[:, 0]
        positives = find_positives(fine[:, None] == fine)
        losses = 1 - recall_of_ranks(
            smooth_ranks(embeddings @ embeddings.T, positives, params["tau"]), positives, params["at_k"], params["temp"]
        )
        close(losses, outputs["per_query_loss"], 1e-12, "loss of each query")
        loss = losses.mean()
    else:
        module = suprank_loss(params)
        loss = module(embeddings, labels.flip(1) if module.hierarchical else labels[:, 0])
    loss.backward()
    ndcg_like = "NDCG" in params["loss"]
    close(loss, outputs["loss"], 1e-7 if ndcg_like else 1e-12, "loss")
    close(embeddings.grad, outputs["grad_embeddings"], 1e-7 if ndcg_like else 1e-10, "gradient")
