"The rule for verdicts keeps what it promises: simulated ties, true effects, and eight equal rivals."

import math

import numpy as np
import pytest

from smoothap_nb.reproduction.referee import networks_needed, power
from smoothap_nb.reproduction.statistics import character_error, t_quantile, t_tail
from smoothap_nb.reproduction.verdicts import SMALLEST, Paired, decide_claims, holm, paired_difference

NETWORKS, RUNS, CHARACTERS = 6, 2, 0.0018
BETWEEN, WITHIN = 0.002, 0.004  # spreads of a method's metric from network to network and from run to run


def test_students_distribution_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    for t, df in ((2.1, 9), (12.7, 1), (0.3, 3), (6, 300), (-1, 5), (4.3, 2.5), (0, 7)):
        assert t_tail(t, df) == pytest.approx(stats.t.sf(t, df), rel=1e-9)
    assert t_quantile(0.975, 4.7) == pytest.approx(stats.t.ppf(0.975, 4.7), rel=1e-9)


def test_an_interval_is_the_textbooks():
    pair = paired_difference([0.01, 0.02, 0.03])
    half = 4.302652729911275 * 0.01 / math.sqrt(3)
    assert pair.interval() == pytest.approx((0.02 - half, 0.02 + half)) and pair.df == 2
    assert pair.p_above() == pytest.approx(0.03709, abs=1e-5) and pair.p_below(0.02) == pytest.approx(0.5)


def test_runs_on_one_network_are_one_sample_of_networks():
    once = paired_difference([0.01, 0.03, 0.02])
    often = paired_difference([0.01] * 9 + [0.03] * 9 + [0.02] * 9, np.repeat([0, 1, 2], 9))
    assert often.interval() == pytest.approx(once.interval()) and often.runs == 27


def test_characters_widen_the_interval():
    gaps = [0.01, 0.012, 0.008, 0.011, 0.009]
    narrow, wide = paired_difference(gaps), paired_difference(gaps, characters=0.003)
    assert wide.error == pytest.approx(math.hypot(narrow.error, 0.003)) and wide.df > narrow.df


def test_the_bootstrap_is_the_formula_where_there_is_one():
    gaps = np.random.default_rng(0).normal(0, 0.1, 800)
    assert character_error(gaps, np.ones(800), 2000) == pytest.approx(gaps.std() / math.sqrt(800), rel=0.06)


def test_holm_is_the_textbooks():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@pytest.mark.parametrize(
    "mean, verdict", [(0.02, "holds"), (-0.02, "contradicted"), (0.001, "equivalent"), (0.0045, "undecided")]
)
def test_each_verdict_can_be_reached(mean, verdict):
    error = 0.0012 if verdict != "undecided" else 0.003
    assert decide_claims([{"pairs": [Paired(mean, error, 8.0, 10, error, 0.0)]}])[0].verdict == verdict


def test_a_claim_over_many_rivals_needs_all_of_them_and_falls_with_one():
    clear, tie, worse = (Paired(m, 0.001, 8.0, 10, 0.001, 0.0) for m in (0.02, 0.004, -0.02))
    assert decide_claims([{"pairs": [clear, clear]}])[0].verdict == "holds"
    assert decide_claims([{"pairs": [clear, Paired(0.0, 0.004, 8.0, 10, 0.004, 0.0)]}])[0].verdict == "undecided"
    assert decide_claims([{"pairs": [clear, tie, worse]}])[0].verdict == "contradicted"


def test_a_cost_is_judged_at_its_own_line():
    pair = Paired(-0.015, 0.001, 8.0, 10, 0.001, 0.0)
    assert decide_claims([{"pairs": [pair], "cost": 0.02}])[0].verdict == "holds"
    assert decide_claims([{"pairs": [pair], "cost": 0.01}])[0].verdict == "contradicted"


def test_input_that_cannot_be_judged_is_refused():
    for wrong in ([0.1], [0.1, float("nan")]):
        with pytest.raises(ValueError, match="two networks or more"):
            paired_difference(wrong)
    with pytest.raises(ValueError, match="two networks or more"):
        paired_difference([0.1, 0.2], [0, 0])


def study(rng, claims: list[list[float]], between: float = BETWEEN) -> list[str]:
    "Verdicts of one simulated study; a claim is a list of true differences to rivals, its own method shared by them."
    out = []
    for rivals in claims:
        own = rng.normal(0, between, NETWORKS) + rng.normal(0, WITHIN / math.sqrt(RUNS), NETWORKS)
        pairs = []
        for true in rivals:
            other = rng.normal(0, between, NETWORKS) + rng.normal(0, WITHIN / math.sqrt(RUNS), NETWORKS)
            pairs.append(paired_difference(true + rng.normal(0, CHARACTERS) + own - other, characters=CHARACTERS))
        out.append({"pairs": pairs})
    return [decision.verdict for decision in decide_claims(out)]


def rates(claims, studies: int, wrong: set[str], places=None, **more) -> float:
    "Share of studies with a wrong verdict on any of the claims at `places`."
    rng = np.random.default_rng(17)
    hits = 0
    for _ in range(studies):
        said = study(rng, claims, **more)
        hits += any(said[i] in wrong for i in (range(len(claims)) if places is None else places))
    return hits / studies


# (claims, verdicts that are wrong, at which claims): every rate is at most 0.05, but for the chance of so many studies
NULLS = {
    "one tie": ([[0.0]], {"holds", "contradicted"}, None),
    "six ties": ([[0.0]] * 6, {"holds", "contradicted"}, None),
    "eight equal rivals": ([[0.0] * 8], {"holds", "contradicted"}, None),
    "three ties beside true effects": ([[0.02]] * 3 + [[0.0]] * 3, {"holds", "contradicted"}, (3, 4, 5)),
    "the smallest difference that counts": ([[SMALLEST]] * 4, {"equivalent", "contradicted"}, None),
    "better than seven of eight rivals": ([[0.02] * 7 + [0.0]], {"holds", "contradicted"}, None),
}


def limit(studies: int) -> float:
    "0.05, and three standard errors of the simulation."
    return 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)


@pytest.mark.parametrize("name", NULLS)
def test_no_null_is_broken_more_often_than_promised(name):
    claims, wrong, places = NULLS[name]
    assert rates(claims, 300, wrong, places) <= limit(300)


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.0, 0.002, 0.006])
@pytest.mark.parametrize("name", NULLS)
def test_no_null_is_broken_in_four_thousand_studies(name, between):
    claims, wrong, places = NULLS[name]
    assert rates(claims, 4000, wrong, places, between=between) <= limit(4000)


def test_twice_the_smallest_difference_is_found():
    spreads = (0.0015, 0.0025, 0.0015)
    assert power(2 * SMALLEST, NETWORKS, RUNS, spreads, claims=1, studies=400) >= 0.9
    assert power(2 * SMALLEST, NETWORKS, RUNS, spreads, claims=6, studies=400) >= 0.8
    assert power(0.0, NETWORKS, RUNS, spreads, studies=400) <= limit(400)
    assert networks_needed(2 * SMALLEST, RUNS, spreads, claims=6) in (4, 5, 6)
    assert networks_needed(0.0005, RUNS, spreads, most=6) is None
