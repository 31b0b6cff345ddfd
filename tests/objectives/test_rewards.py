"""Statistics of the rewards inside groups, and the one rule for "constant"."""

import statistics
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.errors import GroupError, InputError, NonFiniteError
from tether.objectives import group_reward_statistics, group_reward_variance, is_constant

KINDS = [
    pytest.param(list, id="list"),
    pytest.param(lambda x: np.array(x, dtype=np.float64), id="float64"),
    pytest.param(lambda x: np.array(x, dtype=np.float32), id="float32"),
    pytest.param(torch.tensor, id="torch"),
]
rewards = st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 3))
groups_of_rewards = st.lists(st.lists(rewards, min_size=2, max_size=6), min_size=1, max_size=6)


def as_rows(groups):
    return [reward for group in groups for reward in group], [n for n, group in enumerate(groups) for _ in group]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [0.1, 0.2, 0.7, 0.95])
def test_constant_group_of_three_is_constant(kind, value):
    """F20, F21: the standard deviation of [0.1] * 3 is 1.4e-17, and one-pass variances can come out negative."""
    found = group_reward_statistics(kind([value] * 3), [0] * 3)
    assert is_constant(kind([value] * 3))
    assert found.constant_P.tolist() == [True]
    assert found.variance_P.tolist() == [0.0]
    assert found.std_P.tolist() == [0.0]
    assert found.mean_P[0] == float(kind([value])[0])


@pytest.mark.parametrize(
    ("values", "options", "constant"),
    [
        ([0.37] * 8, {}, True),
        ([0.0, 0.0], {}, True),
        ([5.0], {}, True),
        ([0.0, 1e-300], {}, False),
        ([1e-6, 2e-6], {}, False),
        ([1.0, 1.0 + 1e-10], {}, True),
        ([1.0, 1.0 + 1e-8], {}, False),
        ([-1.0, 1.0], {"rtol": 1.0}, False),
        ([-1.0, 1.0], {"rtol": 2.0}, True),
        ([0.0, 0.5], {"atol": 0.5}, True),
        ([1e308, -1e308], {}, False),
    ],
)
def test_constant_compares_the_whole_group_relative_to_its_largest_reward(values, options, constant):
    assert is_constant(values, **options) is constant


def test_judge_noise_and_failed_members_do_not_make_a_group_mixed():
    """F11: with the failed third member left out, the live spread of 1e-8 is within the tolerance."""
    group = np.array([0.6667, 0.66670001, 0.0])
    assert is_constant(group[:2], rtol=1e-6)
    assert not is_constant(group, rtol=1e-6)


@pytest.mark.parametrize("values", [[float("nan"), 1.0], [float("inf"), float("inf")], [None, 1.0]])
def test_a_reward_that_is_not_finite_is_neither_constant_nor_mixed(values):
    with pytest.raises(NonFiniteError):
        is_constant(values)


def test_no_rewards_are_not_a_constant_group():
    with pytest.raises(InputError, match="leave empty groups out"):
        is_constant([])


def test_batch_spread_is_not_group_spread():
    """F01: a batch standard deviation of 0.5164 beside a zero-variance share of 1."""
    values = [0] * 4 + [1] * 4 + [0] * 4 + [1] * 4
    by_group = group_reward_statistics(values, np.repeat(np.arange(4), 4))
    by_batch = group_reward_statistics(values, [0] * 16)
    assert by_group.constant_P.mean() == 1.0
    assert by_batch.std_P[0] == pytest.approx(0.5164, abs=5e-5)
    assert not by_batch.constant_P[0]


def test_groups_are_not_rows_in_a_rectangle():
    """F15: unequal sizes, interleaved rows; sizes 3 and 5, variances 1/3 and 0, in every order of the rows."""
    values, ids = np.array([1, 0, 1, 0, 0, 0, 0, 0.0]), np.array(list("aaabbbbb"))
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(8)
        found = group_reward_statistics(values[order], ids[order])
        described = dict(zip(found.groups.ids, zip(found.groups.size_P, found.variance_P, strict=True), strict=True))
        assert described == {"a": (3, pytest.approx(1 / 3, rel=1e-15)), "b": (5, 0.0)}


def test_a_penalty_that_all_members_pay_cancels():
    """F16: the variance of a group minus 0.3 each is the variance of the group."""
    group = np.array([1.0, 0, 0, 1])
    found = group_reward_variance(np.concatenate([group, group - 0.3]), np.repeat([0, 1], 4), ddof=1)
    np.testing.assert_allclose(found, [1 / 3, 1 / 3], rtol=1e-15)


@settings(deadline=None)
@given(groups=groups_of_rewards, ddof=st.integers(0, 1), random=st.randoms(use_true_random=False))
def test_statistics_equal_exact_arithmetic_in_any_row_order(groups, ddof, random):
    rows = list(zip(*as_rows(groups), strict=True))
    random.shuffle(rows)
    values, ids = zip(*rows, strict=True)
    found = group_reward_statistics(values, ids, ddof=ddof)
    exact_variance = statistics.variance if ddof else statistics.pvariance
    for position, number in enumerate(found.groups.ids):
        exact = [Fraction(reward) for reward in groups[number]]
        scale = max(map(abs, exact))
        assert found.mean_P[position] == pytest.approx(float(statistics.mean(exact)), abs=float(scale) * 1e-14)
        assert found.variance_P[position] == pytest.approx(
            float(exact_variance(exact)), rel=1e-9, abs=float(scale) ** 2 * 1e-14
        )
        assert found.constant_P[position] == (max(exact) - min(exact) <= scale / 10**9)


@pytest.mark.parametrize("scale", [2.0**-500, 2.0**-30, 2.0**500])
def test_scaling_by_a_power_of_two_changes_no_bit(scale):
    values, ids = np.array([0.1, 0.7, 0.3, 0.2]), [0, 0, 1, 1]
    plain, scaled = group_reward_statistics(values, ids), group_reward_statistics(values * scale, ids)
    assert (scaled.std_P == plain.std_P * scale).all()
    assert (scaled.mean_P == plain.mean_P * scale).all()


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_a_variance_outside_float64_is_refused_and_not_zero_or_infinite(scale):
    found = group_reward_statistics([0.0, scale], ["a", "a"])
    assert found.std_P[0] == pytest.approx(scale * 0.5**0.5)
    with pytest.raises(NonFiniteError, match=r"group 'a' leaves the range of float64"):
        _ = found.variance_P


@pytest.mark.parametrize("kind", KINDS[1:])
def test_variance_is_of_the_kind_of_the_rewards(kind):
    values = kind([1.0, 0.0, 3.0, 3.0])
    found = group_reward_variance(values, [0, 0, 1, 1], ddof=1)
    assert type(found) is type(values)
    assert found.dtype == values.dtype
    assert found.tolist() == [0.5, 0.0]


def test_no_rows_have_no_statistics():
    assert group_reward_variance(np.zeros(0), [], ddof=1).shape == (0,)


@pytest.mark.parametrize(("sizes", "ddof"), [([1, 1], 1), ([2, 1], 1), ([2, 2], 2)])
def test_groups_with_too_few_members_for_the_divisor_are_refused(sizes, ddof):
    ids = np.repeat(np.arange(len(sizes)), sizes)
    with pytest.raises(GroupError):
        group_reward_variance(np.arange(len(ids), dtype=float), ids, ddof=ddof)


def test_a_group_of_one_has_population_variance_zero():
    assert group_reward_variance([3.0], ["a"], ddof=0).tolist() == [0.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None])
def test_a_reward_that_is_not_finite_names_its_group_and_row(bad):
    with pytest.raises(NonFiniteError, match=r"1 of 4 rewards are not finite: row 3 of group 'b'"):
        group_reward_statistics([1.0, 2.0, 3.0, bad], ["a", "a", "b", "b"])


def test_rewards_and_ids_must_be_as_many():
    with pytest.raises(InputError, match="3 rewards, 2 group ids"):
        group_reward_statistics([1.0, 2.0, 3.0], ["a", "a"])


@pytest.mark.parametrize("shape", [(2, 2), ()])
def test_rewards_must_be_one_a_row(shape):
    with pytest.raises(InputError, match="one number a row"):
        group_reward_statistics(np.zeros(shape), ["a", "a"])


def test_words_are_no_rewards():
    with pytest.raises(InputError, match="one real number a row"):
        group_reward_statistics(["good", "bad"], ["a", "a"])
