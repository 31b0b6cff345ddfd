"""Grades, reasons and ugly input: what may be said of which matrix."""

import math
from dataclasses import replace

import numpy as np
import pytest
from brute_force import channel, matrices, sample_channel
from hypothesis import given
from numpy.testing import assert_allclose

from tether.diagnostics import ESTIMATES, input_dependence, proxies
from tether.scoring import CrossScores

INF, NAN = math.inf, math.nan
ANY_SCORER = (
    "mi_sequence",
    "mi_per_token",
    "mi_per_token_code",
    "mi_zscore",
    "mi_zscore_ema",
    "retrieval_accuracy",
    "retrieval_accuracy@2",
    "retrieval_accuracy@4",
    "retrieval_accuracy@8",
)
SAMPLER_ONLY = ("mi_upper", "conditional_entropy", "marginal_entropy")


def sampled(eps=0.3, num_contexts=16, per_context=2, seed=0, **more):
    return sample_channel(channel(32, eps), num_contexts, per_context, np.random.default_rng(seed), **more)


def test_everything_is_ok_when_the_scorer_is_the_sampler():
    found = input_dependence(sampled())
    assert list(found) == list(ESTIMATES)
    assert {name: found[name].status for name in found if name != "e_value"} == dict.fromkeys(
        set(ESTIMATES) - {"e_value"}, "ok"
    )
    mi = found["mi_sequence"]
    assert (mi.num_prompts, mi.num_samples, mi.num_contexts, mi.confidence) == (16, 32, 16, 0.95)
    assert mi.low < mi.value < mi.high
    assert (mi.chance, mi.bound, mi.reason) == (0.0, pytest.approx(math.log(16)), "")
    assert mi.p_value == 1 / 1000
    assert mi.boot_se > 0


@given(matrices())
def test_values_are_those_of_the_proxies_and_entropies_have_no_chance(scores):
    own = (np.arange(scores.num_rows), scores.own_M)
    found = input_dependence(replace(scores, behaviour_logprob_M=scores.logprob_MN[own]))
    value = proxies(scores)
    for name in value.keys() & found.keys():
        if found[name].status in ("ok", "critic_bound"):
            assert found[name].value == value[name]
    for name in ("conditional_entropy", "marginal_entropy"):
        assert found[name].chance is None
        assert found[name].p_value is None


@pytest.mark.parametrize(("kind", "words"), [("fixed", "a fixed model"), ("critic", "a critic")])
def test_another_scorer_leaves_what_holds_for_any(kind, words):
    scores = sampled()
    found, ok = input_dependence(replace(scores, kind=kind)), input_dependence(scores)
    for name in ANY_SCORER:
        assert found[name].status == "critic_bound", name
        assert words in found[name].reason
        assert (found[name].value, found[name].low, found[name].p_value) == (
            ok[name].value,
            ok[name].low,
            ok[name].p_value,
        )
    for name in (*SAMPLER_ONLY, "tail_check", "e_value", "sampler_mismatch"):
        assert found[name].status == "skipped", name
        assert math.isnan(found[name].value)
        assert words in found[name].reason


@pytest.mark.parametrize("stored", [None, "one is missing"])
def test_missing_log_probabilities_lower_the_grade_and_leave_the_tail_check(stored):
    scores = sampled()
    behaviour_M = None
    if stored:
        behaviour_M = scores.behaviour_logprob_M.copy()
        behaviour_M[3] = NAN
    found = input_dependence(replace(scores, behaviour_logprob_M=behaviour_M))
    assert found["mi_sequence"].status == "critic_bound"
    assert "stored log-probabilities are missing" in found["mi_sequence"].reason
    assert found["conditional_entropy"].status == found["sampler_mismatch"].status == "skipped"
    assert found["tail_check"].value == input_dependence(scores)["tail_check"].value


def test_log_probabilities_that_disagree_lower_the_grade():
    scores = sampled()
    within = input_dependence(replace(scores, behaviour_logprob_M=scores.behaviour_logprob_M + 9e-5))
    beyond = input_dependence(replace(scores, behaviour_logprob_M=scores.behaviour_logprob_M + 2e-4))
    assert within["mi_sequence"].status == "ok"
    assert within["sampler_mismatch"].value == pytest.approx(9e-5)
    assert beyond["mi_sequence"].status == beyond["sampler_mismatch"].status == "critic_bound"
    assert "by 0.0002 nats per token on average (limit 0.0001)" in beyond["mi_sequence"].reason
    looser = input_dependence(
        replace(scores, behaviour_logprob_M=scores.behaviour_logprob_M + 2e-4), mismatch_limit=1e-3
    )
    assert looser["mi_sequence"].status == "ok"


def test_a_failed_tail_check_lowers_the_grade():
    scores = sampled(per_context=1)
    logprob_MN = scores.logprob_MN.copy()
    logprob_MN[0, scores.own_M[0]] -= 40.0
    behaviour_M = logprob_MN[np.arange(16), scores.own_M]
    found = input_dependence(replace(scores, logprob_MN=logprob_MN, behaviour_logprob_M=behaviour_M))
    tail = found["tail_check"]
    assert tail.value < tail.bound == pytest.approx(-math.log(16 / 0.01))
    assert tail.p_value < 0.01
    assert tail.status == found["mi_sequence"].status == "critic_bound"
    assert "self-check failed: a log-ratio of" in found["mi_sequence"].reason
    assert found["mi_upper"].status == "skipped"


def test_a_failed_e_value_lowers_the_grade_only_with_closing_tokens():
    """Half of the log-ratios are near -8: the mean of exp(-r) is in the thousands, no single one is too low."""
    logprob_MN = np.array([[-9.0, 0.0]] * 20 + [[0.0, -9.0]] * 20)
    own_M = [0] * 20 + [0] * 20
    scores = CrossScores(logprob_MN, own_M, np.ones(40), behaviour_logprob_M=logprob_MN[:, 0])
    assert input_dependence(scores, alpha=1e-3)["mi_sequence"].status == "ok"
    closed = input_dependence(replace(scores, closing_MN=np.zeros((40, 2))), alpha=1e-3)
    assert closed["e_value"].value > closed["e_value"].bound == pytest.approx(1000)
    assert closed["mi_sequence"].status == "critic_bound"
    assert "e-value" in closed["mi_sequence"].reason


def test_the_tail_check_takes_the_closing_token_along_and_the_values_do_not():
    scores = sampled()
    closing_MN = np.where(np.arange(16) == scores.own_M[:, None], -0.5, -0.1)
    plain, closed = input_dependence(scores), input_dependence(replace(scores, closing_MN=closing_MN))
    assert closed["tail_check"].value < plain["tail_check"].value
    assert closed["mi_sequence"] == plain["mi_sequence"]


def test_counting_only_well_formed_traces_widens_the_tail_bound():
    whole, part = input_dependence(sampled()), input_dependence(sampled(), valid_rate=0.5)
    assert part["tail_check"].bound == pytest.approx(whole["tail_check"].bound - math.log(2))


@pytest.mark.parametrize("value", [NAN, INF])
def test_scores_that_are_not_numbers_make_everything_void(value):
    scores = sampled()
    logprob_MN = scores.logprob_MN.copy()
    logprob_MN[3, 5] = value
    found = input_dependence(replace(scores, logprob_MN=logprob_MN))
    for estimate in found.values():
        assert estimate.status == "void"
        assert math.isnan(estimate.value)
        assert "non-finite scores, the first in row 3, context 5" in estimate.reason


def test_an_impossible_own_trace_is_void():
    assert input_dependence(CrossScores([[-INF, -1.0], [-1.0, -1.0]], [0, 1], [1, 1]))["mi_sequence"].status == "void"


def test_a_broken_closing_token_is_void_too():
    scores = sampled(num_contexts=4, per_context=1)
    closing_MN = np.zeros((4, 4))
    closing_MN[0, 2] = NAN
    assert input_dependence(replace(scores, closing_MN=closing_MN))["tail_check"].status == "void"


def test_an_excluded_score_may_be_anything():
    scores = sampled(num_contexts=4, per_context=1)
    logprob_MN, excluded_MN = scores.logprob_MN.copy(), np.zeros((4, 4), dtype=bool)
    logprob_MN[0, 2], excluded_MN[0, 2] = NAN, True
    found = input_dependence(replace(scores, logprob_MN=logprob_MN, excluded_MN=excluded_MN))
    assert found["mi_sequence"].status == "ok"
    assert found["retrieval_accuracy"].chance == pytest.approx((1 / 3 + 3 / 4) / 4)


def test_impossible_elsewhere_is_reported_and_not_clipped():
    logprob_MN = np.where(np.eye(4, dtype=bool), -1.0, -INF)
    found = input_dependence(CrossScores(logprob_MN, range(4), np.ones(4), behaviour_logprob_M=-np.ones(4)))
    upper = found["mi_upper"]
    assert (upper.value, upper.low, upper.high, upper.status) == (INF, -INF, INF, "ok")
    assert "impossible under every other context" in upper.reason
    mi = found["mi_sequence"]
    assert_allclose([mi.value, mi.low, mi.high], math.log(4), atol=1e-9)
    assert mi.p_value == 1 / 24


def test_one_context_is_skipped_with_the_value_of_ignorance():
    scores = CrossScores([[-5.0, -5.0]] * 3, [0, 1, 0], [5] * 3, contexts_N="aa", behaviour_logprob_M=[-5.0] * 3)
    found = input_dependence(scores)
    for name, estimate in found.items():
        if name != "sampler_mismatch":
            assert estimate.status == "skipped", name
    assert (found["mi_sequence"].value, found["mi_sequence"].bound) == (0.0, 0.0)
    assert (found["retrieval_accuracy"].value, found["retrieval_accuracy"].chance) == (1.0, 1.0)
    assert "one distinct context" in found["mi_sequence"].reason
    assert math.isnan(found["mi_upper"].value)


def test_no_rows_are_skipped():
    found = input_dependence(CrossScores(np.empty((0, 3)), [], []))
    assert {estimate.status for estimate in found.values()} == {"skipped"}
    assert found["mi_sequence"].reason == "no reasoning was scored"


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        (CrossScores(np.eye(2), [0, 1], [1, 1]), "no interval: fewer than 3 prompts"),
        (CrossScores(np.eye(3), [0, 0, 0], [1, 1, 1]), "no interval: one prompt owns every row"),
        (CrossScores(np.eye(3), [0, 1, 2], [1, 1, 1], prompt_N="aaa"), "no interval: fewer than 3 prompts"),
    ],
)
def test_no_interval_has_its_reason(scores, reason):
    mi = input_dependence(scores)["mi_sequence"]
    assert math.isnan(mi.low)
    assert math.isnan(mi.high)
    assert reason in mi.reason
    assert mi.usable


def test_duplicates_lower_bound_and_chance():
    scores = CrossScores([[-1.0, -3.0, -3.0], [-4.0, -2.0, -2.0]], [0, 2], [1, 1], contexts_N="abb")
    found = input_dependence(scores)
    assert found["mi_sequence"].num_contexts == 2
    assert found["mi_sequence"].bound == pytest.approx(math.log(2))
    assert found["retrieval_accuracy"].chance == 0.5


def test_the_spread_is_smoothed_for_the_next_step():
    fresh = input_dependence(sampled())
    again = input_dependence(sampled(), ema_sigma=1.0)
    spread = fresh["marginal_spread"].value
    assert fresh["marginal_spread_ema"].value == spread
    assert again["marginal_spread_ema"].value == pytest.approx(0.9 + 0.1 * spread)
    assert again["mi_zscore_ema"].value == pytest.approx(
        again["mi_per_token"].value / (again["marginal_spread_ema"].value + 1e-3)
    )
    assert fresh["mi_zscore_ema"].value == fresh["mi_zscore"].value
    assert again["mi_zscore_ema"].p_value == fresh["mi_per_token"].p_value
    by_grade = input_dependence(sampled(), ema_sigma={fresh["mi_zscore"].status: 1.0, "another": 5.0})
    assert by_grade["marginal_spread_ema"] == again["marginal_spread_ema"]
    assert input_dependence(sampled(), ema_sigma={"another": 5.0}) == fresh


def test_a_uniform_policy_has_no_dependence_within_its_interval():
    rng = np.random.default_rng(0)
    lengths = np.repeat(rng.integers(5, 30, size=12), 4)
    logprob_MN = np.repeat(-lengths[:, None] * math.log(50), 12, axis=1)
    scores = CrossScores(logprob_MN, np.repeat(np.arange(12), 4), lengths, behaviour_logprob_M=logprob_MN[:, 0])
    mi, retrieval = (input_dependence(scores)[name] for name in ("mi_sequence", "retrieval_accuracy"))
    assert mi.low <= 0 <= mi.high
    assert retrieval.low <= 1 / 12 + 1e-9
    assert retrieval.high >= 1 / 12 - 1e-9
    assert mi.p_value == 1.0


def test_saturation_is_named():
    found = input_dependence(sampled(eps=1e-6, per_context=1))
    assert "saturated" in found["mi_sequence"].reason
    assert found["mi_sequence"].status == "ok"
    assert "saturated" not in input_dependence(sampled(eps=0.5))["mi_sequence"].reason


def test_the_sandwich_holds_on_average():
    """Symmetric channel with known information, contexts drawn from its own pool."""
    true_mi = math.log(32) - (-0.709375 * math.log(0.709375) - 31 * 0.009375 * math.log(0.009375))
    found = [input_dependence(sampled(seed=seed)) for seed in range(40)]
    lower, upper = (np.mean([each[name].value for each in found]) for name in ("mi_sequence", "mi_upper"))
    assert lower < true_mi < upper


def test_two_calls_give_the_same_answer():
    assert input_dependence(sampled()) == input_dependence(sampled())
