"""Jackknife, bootstrap and null against plain loops and enumeration, and what the interval covers."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from brute_force import channel, matrices, proxies_by_loops, row_terms, sample_channel
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from tether.diagnostics import (
    bootstrap_error,
    input_dependence,
    jackknife_interval,
    log_ratios,
    prompt_means,
    relabeling_null,
)
from tether.diagnostics.mixtures import measure_rows
from tether.diagnostics.proxies import replicates
from tether.diagnostics.uncertainty import Null, relabelings
from tether.errors import InputError
from tether.scoring import CrossScores

NAN, INF = math.nan, math.inf


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=20))
def test_for_a_plain_mean_the_jackknife_is_the_t_interval(values):
    values = np.array(values)
    rest = (values.sum() - values) / (len(values) - 1)
    low, high = jackknife_interval(values.mean(), rest, confidence=0.9)
    want = values.mean() + np.array([-1, 1]) * stats.t.ppf(0.95, len(values) - 1) * stats.sem(values)
    assert_allclose([low, high], want, atol=1e-6)


@given(matrices(masks=False))
def test_the_interval_removes_rows_and_contexts_of_a_prompt_together(scores):
    num_prompts = max(scores.prompt_index) + 1
    value = proxies_by_loops(scores)["mi_sequence"]
    without = [proxies_by_loops(scores, without_prompt=p) for p in range(num_prompts)]
    found = input_dependence(scores)["mi_sequence"]
    if num_prompts < 3 or None in without:
        assert math.isnan(found.low)
        assert math.isnan(found.high)
        return
    rest = np.array([each["mi_sequence"] for each in without])
    error = math.sqrt((num_prompts - 1) / num_prompts * ((rest - rest.mean()) ** 2).sum())
    half = stats.t.ppf(0.975, num_prompts - 1) * error
    assert_allclose([found.low, found.high], [value - half, value + half], rtol=1e-6, atol=1e-9)


def test_no_interval_from_two_prompts():
    assert np.isnan(jackknife_interval(1.0, np.array([0.0, 0.0]))).all()


def test_an_infinite_value_has_the_interval_that_says_nothing():
    assert jackknife_interval(INF, np.array([INF, 1.0, 2.0])) == (-INF, INF)
    assert jackknife_interval(1.0, np.array([INF, 1.0, 2.0])) == (-INF, INF)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 95.0, NAN])
def test_a_confidence_outside_0_and_1_is_refused(confidence):
    with pytest.raises(InputError, match="expected a number between 0 and 1"):
        jackknife_interval(0.0, np.zeros(3), confidence=confidence)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=5))
def test_the_bootstrap_error_is_that_of_all_resamples(means):
    every = [np.mean(draw) for draw in itertools.product(means, repeat=len(means))]
    assert_allclose(bootstrap_error(np.array(means)), np.std(every), atol=1e-9)


def test_prompt_means_skip_prompts_without_rows():
    assert prompt_means(np.array([1.0, 5.0, 3.0]), np.array([2, 0, 2])).tolist() == [5.0, 2.0]


def null_by_loops(scores):
    """Mean over rows of the log-ratio to another prompt's context, for every permutation of the prompts."""
    prompt_N = scores.prompt_index
    contexts = {p: [n for n in range(scores.num_contexts) if prompt_N[n] == p] for p in set(prompt_N.tolist())}
    ratios = [row_terms(scores, m)["ratio"] for m in range(scores.num_rows)]
    values = []
    for permutation in itertools.permutations(range(len(contexts))):
        terms = []
        for m, own in enumerate(scores.own_M):
            home, target = contexts[prompt_N[own]], contexts[permutation[prompt_N[own]]]
            n = target[home.index(own) % len(target)]
            if scores.available[m, n]:
                terms.append(scores.logprob_MN[m, n] - scores.logprob_MN[m, own] + ratios[m])
        if terms:
            values.append(-INF if -INF in terms else np.mean(terms))
    return values


@given(matrices(max_contexts=5))
@settings(max_examples=50)
def test_the_null_relabels_all_traces_of_a_prompt_together(scores):
    null, want = relabeling_null(scores), null_by_loops(scores)
    assert null.exact
    assert_allclose(sorted(null.value_R), sorted(want), rtol=1e-9, atol=1e-9)
    assert_allclose(null.observed, np.mean(log_ratios(scores)), atol=1e-9)
    assert null.p_value >= 1 / len(want)


@given(matrices(max_contexts=5))
@settings(max_examples=50)
def test_the_identity_reproduces_the_observed_value_for_every_statistic(scores):
    found = input_dependence(scores)
    for name in ("mi_per_token", "mi_per_token_code", "retrieval_accuracy", "retrieval_accuracy@2"):
        null = relabeling_null(scores, name)
        assert_allclose(null.observed, found[name].value, atol=1e-9)
        if found[name].usable:
            assert null.p_value == found[name].p_value


def test_equal_values_reach_the_observed_one():
    assert relabeling_null(CrossScores(np.full((3, 3), -5.0), [0, 1, 2], [1, 1, 1])).p_value == 1.0


def test_seven_prompts_are_enumerated_and_eight_are_sampled():
    seven, eight = (CrossScores(np.eye(n), np.arange(n), np.ones(n)) for n in (7, 8))
    assert len(relabeling_null(seven).value_R) == 5040
    assert relabeling_null(seven).p_value == 1 / 5040
    null = relabeling_null(eight)
    assert (len(null.value_R), null.exact) == (999, False)
    assert null.p_value == 1 / 1000


def test_sampled_relabelings_depend_on_the_seed_alone():
    assert (relabelings(20, 1) == relabelings(20, 1)).all()
    assert (relabelings(20, 1) != relabelings(20, 2)).any()
    assert (np.sort(relabelings(20, 1), axis=1) == np.arange(20)).all()


def test_a_relabeling_without_any_pair_has_no_value():
    scores = CrossScores([[-1.0, NAN], [-2.0, -1.0]], [0, 1], [1, 1], excluded_MN=[[False, True], [False, False]])
    swapped = -2.0 + 1.0 + log_ratios(scores)[1]  # the first row has no score under the second prompt
    assert_allclose(sorted(relabeling_null(scores).value_R), sorted([log_ratios(scores).mean(), swapped]))
    lonely = replace(scores, own_M=[0, 0], logprob_MN=np.full((2, 2), -1.0), excluded_MN=[[False, True]] * 2)
    assert len(relabeling_null(lonely).value_R) == 1
    assert relabeling_null(lonely).p_value == 1.0


def test_a_null_of_a_statistic_that_has_none_names_the_nearest():
    with pytest.raises(InputError, match="no null for 'mi_sequnce'.*did you mean 'mi_sequence'"):
        relabeling_null(CrossScores([[0.0]], [0], [1]), "mi_sequnce")


def test_the_sampled_p_value_counts_the_observed_labeling_once():
    assert Null(1.0, np.array([0.0, 1.0, 2.0]), exact=False).p_value == 3 / 4
    assert Null(1.0, np.array([0.0, 1.0, 2.0]), exact=True).p_value == 2 / 3


@pytest.mark.parametrize(("num_contexts", "per_context"), [(8, 4), (16, 1)])
def test_the_interval_covers_what_the_estimator_expects(num_contexts, per_context):
    """400 samples of a 64-symbol channel: coverage of the estimator's own mean, within 3 binomial errors of 92-98 %."""
    rng = np.random.default_rng(5)
    values, intervals = [], []
    for _ in range(400):
        scores = sample_channel(channel(64, 0.3), num_contexts, per_context, rng)
        value_L = replicates(measure_rows(scores))["mi_sequence"]
        values.append(value_L[-1])
        intervals.append(jackknife_interval(float(value_L[-1]), value_L[:-1]))
    low, high = np.array(intervals).T
    covered = ((low <= np.mean(values)) & (np.mean(values) <= high)).mean()
    slack = 3 * math.sqrt(0.95 * 0.05 / 400)
    assert 0.92 - slack <= covered <= 0.98 + slack


def test_row_level_errors_would_be_too_small():
    """Equal traces inside each prompt: prompts, not rows, carry the information."""
    rng = np.random.default_rng(0)
    scores = sample_channel(channel(64, 0.3), 12, 1, rng)
    repeated = replace(
        scores,
        logprob_MN=np.repeat(scores.logprob_MN, 9, axis=0),
        own_M=np.repeat(scores.own_M, 9),
        num_tokens_M=np.repeat(scores.num_tokens_M, 9),
        behaviour_logprob_M=np.repeat(scores.behaviour_logprob_M, 9),
    )
    once, often = input_dependence(scores)["mi_sequence"], input_dependence(repeated)["mi_sequence"]
    assert_allclose([often.low, often.high, often.boot_se], [once.low, once.high, once.boot_se])


def test_the_null_is_uniform_under_no_dependence():
    """Traces of one distribution with random scores: p-values of 200 samples against the uniform law."""
    rng = np.random.default_rng(3)
    p_values = [
        relabeling_null(CrossScores(rng.normal(size=(12, 6)), np.repeat(np.arange(6), 2), np.ones(12))).p_value
        for _ in range(200)
    ]
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3
