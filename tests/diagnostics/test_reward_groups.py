"""Reward groups: what varies, what is solved, what failed, and when nothing can be said."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.diagnostics import reward_groups
from tether.errors import GroupError, InputError, NonFiniteError

NAN = math.nan


def test_batch_and_group_spread_are_different_numbers():
    found = reward_groups([0.0, 1.0, 10.0, 11.0], [*"aabb"])
    assert found.batch_std == pytest.approx(np.std([0, 1, 10, 11], ddof=1))
    assert found.mean_group_variance == pytest.approx(0.5)
    assert found.variance_P.tolist() == pytest.approx([0.5, 0.5])
    assert found.mean_reward == 5.5
    assert found.variance_dispersion == 0.0


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("reward", [0.1, 0.2, 0.7, 0.95])
def test_equal_rewards_are_constant_whatever_their_floats(reward, size):
    found = reward_groups([reward] * size, ["a"] * size)
    assert found.zero_variance_share == 1.0
    assert found.variance_P.tolist() == [0.0]


@pytest.mark.parametrize(
    ("rewards", "solved", "failed"),
    [
        ([1, 1, 1, 1], 1.0, 0.0),
        ([0, 0, 0, 0], 0.0, 1.0),
        ([1, 1, 0, 0], 0.5, 0.5),
        ([-0.5, -0.5, -0.1, -0.1], 0.0, 1.0),
        ([0.1, 0.1, 1.0, 0.0], 0.0, 0.5),  # a consolation below the best reward of the batch is no success
        ([1, 0, 0, 1], 0.0, 0.0),
    ],
)
def test_constant_groups_are_solved_or_failed(rewards, solved, failed):
    found = reward_groups(rewards, [*"aabb"])
    assert (found.solved_share, found.failed_share) == (solved, failed)


def test_known_success_decides_over_the_reward():
    found = reward_groups(
        [-0.2, -0.2, 0.1, 0.1, 0.0, 0.0], [*"aabbcc"], success=[True, True, False, False, True, False]
    )
    assert found.zero_variance_share == 1.0
    assert found.solved_P.tolist() == [True, False, False]
    assert found.failed_P.tolist() == [False, True, False]


def test_a_varying_group_is_neither_although_all_succeed():
    found = reward_groups([1.0, 0.5], ["a", "a"], success=[True, True])
    assert (found.solved_share, found.failed_share) == (0.0, 0.0)


def test_groups_of_one_are_counted_and_not_judged():
    found = reward_groups([1.0, 0.0, 0.0], ["a", "b", "b"])
    assert (found.num_groups, found.num_undecidable) == (2, 1)
    assert found.zero_variance_share == 1.0
    assert found.ids_P == ("b",)


def test_nothing_but_groups_of_one_says_so():
    found = reward_groups([1.0, 0.0], ["a", "b"])
    assert (
        found.zero_variance_share
        is found.mean_group_variance
        is found.solved_share
        is found.variance_dispersion
        is None
    )
    estimates = found.estimates()
    assert estimates["zero_variance_share"].status == "skipped"
    assert "the id looks per-rollout" in estimates["zero_variance_share"].reason
    assert estimates["reward_mean"].value == 0.5


def test_a_single_row_has_no_spread():
    assert reward_groups([1.0], ["a"]).batch_std is None


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 4)), min_size=1, max_size=30), st.randoms())
def test_rows_may_come_in_any_order(rows, random):
    moved = rows[:]
    random.shuffle(moved)
    first, second = (reward_groups([r for r, _ in each], [g for _, g in each]) for each in (rows, moved))
    assert first.zero_variance_share == second.zero_variance_share
    assert first.num_undecidable == second.num_undecidable
    assert dict(zip(first.ids_P, first.variance_P, strict=True)) == pytest.approx(
        dict(zip(second.ids_P, second.variance_P, strict=True))
    )


def test_shares_and_means_come_with_intervals_over_groups():
    rewards = np.array([[1, 1], [0, 0], [1, 0], [0, 1], [0, 0]], dtype=float)
    estimates = reward_groups(rewards.ravel(), np.repeat(np.arange(5), 2)).estimates()
    share, mean = estimates["zero_variance_share"], estimates["reward_mean"]
    assert share.value == 0.6
    assert 0 < share.low < 0.6 < share.high < 1
    assert (share.num_prompts, mean.num_prompts, mean.num_samples) == (5, 5, 10)
    group_means = rewards.mean(axis=1)
    half = 2.776445 * group_means.std(ddof=1) / math.sqrt(5)
    assert (mean.low, mean.high) == pytest.approx((0.4 - half, 0.4 + half), rel=1e-6)


def test_all_solved_does_not_claim_certainty():
    share = reward_groups(np.ones(40), np.repeat(np.arange(20), 2)).estimates()["solved_share"]
    assert share.value == 1.0
    assert 0.7 < share.low < 0.95


def test_broken_input_is_refused():
    with pytest.raises(NonFiniteError, match="group 'b'"):
        reward_groups([1.0, NAN], ["a", "b"])
    with pytest.raises(InputError, match="no rewards"):
        reward_groups([], [])
    with pytest.raises(InputError, match="one id a reward"):
        reward_groups([1.0], ["a", "b"])
    with pytest.raises(InputError, match="expected one a rollout"):
        reward_groups([1.0, 1.0], ["a", "a"], success=[True])
    with pytest.raises(GroupError, match="no id"):
        reward_groups([1.0, 1.0], ["a", None])


def test_dispersion_says_whether_a_filter_can_choose():
    alike = reward_groups([0, 1, 0, 1, 0, 1], [*"aabbcc"])
    apart = reward_groups([0, 10, 0, 0.1, 0, 0.1], [*"aabbcc"])
    assert alike.variance_dispersion == 0.0
    assert apart.variance_dispersion > 1.2
    assert reward_groups([1, 1, 0, 0], [*"aabb"]).variance_dispersion is None
