"""The two checks that the scorer is the sampler: when they fire, and that they do not fire on a clean scorer."""

import math

import numpy as np
import pytest
from brute_force import channel, sample_channel
from hypothesis import given
from hypothesis import strategies as st

from tether.diagnostics import log_ratios, sampler_mismatch, self_check, tail_rates
from tether.errors import InputError, NonFiniteError
from tether.scoring import CrossScores

NAN = math.nan


def test_the_union_bound_is_met_exactly_at_its_threshold():
    threshold = -math.log(2 / 0.01)
    assert self_check([threshold, 1.0], closing_scored=False).tail_failed
    assert not self_check([threshold + 1e-9, 1.0], closing_scored=False).tail_failed


def test_the_e_value_counts_only_with_closing_tokens():
    ratios = [-4.0] * 3
    assert not self_check(ratios, closing_scored=False, alpha=0.05).e_failed
    assert self_check(ratios, closing_scored=True, alpha=0.05).e_failed
    assert not self_check(ratios, closing_scored=True, alpha=0.01).e_failed


def test_a_huge_violation_is_a_failed_check_and_no_overflow():
    found = self_check([-1e4], closing_scored=True)
    assert found.e_value == math.inf
    assert not found.passed


@given(st.floats(0.01, 1.0))
def test_a_valid_rate_widens_both_limits_by_its_inverse(valid_rate):
    whole = self_check([0.0, 1.0], closing_scored=True)
    part = self_check([0.0, 1.0], closing_scored=True, valid_rate=valid_rate)
    assert part.tail_threshold == pytest.approx(whole.tail_threshold + math.log(valid_rate))
    assert part.e_threshold == pytest.approx(whole.e_threshold / valid_rate)


@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"alpha": 1.5}, {"valid_rate": 0.0}, {"valid_rate": NAN}])
def test_levels_and_rates_are_shares(options):
    with pytest.raises(InputError, match="expected a share above 0 and at most 1"):
        self_check([0.0], closing_scored=True, **options)


def test_nothing_and_not_a_number_are_refused():
    with pytest.raises(InputError, match="no log-ratios"):
        self_check([], closing_scored=True)
    for broken in (NAN, math.inf, -math.inf):
        with pytest.raises(NonFiniteError):
            self_check([0.0, broken], closing_scored=True)


def test_tail_rates_count_ties_at_the_cut():
    rates, bounds = tail_rates([-1.0, 0.0, -2.0, 3.0], [1.0, 2.0])
    assert rates.tolist() == [0.5, 0.25]
    assert bounds.tolist() == [math.exp(-1), math.exp(-2)]


def test_a_clean_scorer_hardly_ever_fails():
    rng = np.random.default_rng(0)
    failed = 0
    for _ in range(300):
        scores = sample_channel(channel(8, 0.5), 8, 4, rng)
        failed += not self_check(log_ratios(scores), closing_scored=True, alpha=0.05).passed
    assert failed <= 15 + 12  # two tests of level 0.05 each are far below their level; 3 binomial errors above one


def test_traces_of_another_model_fail():
    """Every context names itself; the scorer is sure that each names its neighbour."""
    scorer_XZ = np.roll(channel(8, 1e-6), 1, axis=1)
    scores = CrossScores(np.log(scorer_XZ).T, np.arange(8), np.ones(8))
    assert not self_check(log_ratios(scores), closing_scored=True).passed


def test_mismatch_is_a_mean_absolute_difference_per_token():
    scores = CrossScores([[-4.0, 0.0], [-9.0, -6.0]], [0, 1], [4, 3], behaviour_logprob_M=[-4.4, -5.7])
    assert sampler_mismatch(scores) == pytest.approx((0.1 + 0.1) / 2)


@pytest.mark.parametrize("stored", [None, [-4.0, NAN]])
def test_missing_log_probabilities_are_not_agreement(stored):
    scores = CrossScores([[-4.0, 0.0], [-9.0, -6.0]], [0, 1], [4, 3], behaviour_logprob_M=stored)
    assert sampler_mismatch(scores) is None
