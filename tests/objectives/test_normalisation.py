"""Reward normalisation by group, environment or batch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.errors import GroupError, InputError, NonFiniteError
from tether.objectives import normalise_rewards

REWARDS = np.array([10.9, -0.1, -1.2, 0.4, 5.0, 5.0])
KEYS = [*"aaaabb"]


def test_each_method_is_a_loop_over_keys():
    rng = np.random.default_rng(0)
    keys, rewards = rng.integers(0, 4, size=40), rng.exponential(size=40) ** 3
    mean, std = np.empty((2, 40))
    for key in range(4):
        members = rewards[keys == key]
        mean[keys == key], std[keys == key] = members.mean(), members.std(ddof=1)
    score = (rewards - mean) / (std + 1e-6)
    assert score.max() > 2
    wanted = {"none": rewards, "mean": rewards - mean, "mean_std": score, "asym_clip": score.clip(-0.5, 2.0)}
    for method, expected in wanted.items():
        found = normalise_rewards(rewards, keys, method=method, clip=(-0.5, 2.0))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_the_usual_clip_lets_successes_stand_out_and_failures_not():
    rewards = np.array([100.0] + [0.0] * 30)
    assert normalise_rewards(rewards, method="asym_clip").max() == 3
    assert normalise_rewards(-rewards, method="asym_clip").min() == -1


def test_no_keys_is_one_key_for_the_batch():
    for method in ("mean", "mean_std", "asym_clip"):
        whole = normalise_rewards(REWARDS, method=method)
        assert whole.tolist() == normalise_rewards(REWARDS, ["x"] * 6, method=method).tolist()
        assert whole[4] != 0


@pytest.mark.parametrize("method", ["mean", "mean_std", "asym_clip"])
@pytest.mark.parametrize("value", [0.1, 1e12, 1e-300])
def test_equal_rewards_give_exact_zeros(method, value):
    assert normalise_rewards([value] * 3, [*"aaa"], method=method).tolist() == [0, 0, 0]


@settings(deadline=None)
@given(
    rewards=st.lists(st.floats(-100, 100), min_size=4, max_size=4),
    order=st.permutations(range(4)),
    method=st.sampled_from(["none", "mean", "mean_std", "asym_clip"]),
)
def test_rewards_follow_their_rows(rewards, order, method):
    rewards, keys, order = np.array(rewards), np.array([0, 0, 1, 1]), np.array(order)
    found = normalise_rewards(rewards, keys, method=method)
    np.testing.assert_allclose(normalise_rewards(rewards[order], keys[order], method=method), found[order], atol=1e-9)


def test_a_reward_alone_is_refused_or_discarded():
    rewards, keys = [1.0, 0.0, 9.0], [*"aab"]
    with pytest.raises(GroupError, match="'b'"):
        normalise_rewards(rewards, keys, method="mean")
    assert normalise_rewards(rewards, keys, method="mean", singleton="zero").tolist() == [0.5, -0.5, 0]
    assert normalise_rewards(rewards, keys, method="none").tolist() == rewards


def test_torch_gives_torch_of_its_dtype():
    found = normalise_rewards(torch.tensor([1.0, 3.0]), torch.tensor([0, 0]), method="mean")
    assert found.dtype == torch.float32
    assert found.tolist() == [-1, 1]


def test_no_rewards_give_none():
    for method in ("none", "mean", "asym_clip"):
        assert normalise_rewards(np.zeros(0), method=method).shape == (0,)


@pytest.mark.parametrize("method", ["none", "mean"])
def test_rewards_that_are_not_finite_are_refused(method):
    with pytest.raises(NonFiniteError, match="row 1"):
        normalise_rewards([1.0, float("nan")], method=method)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"method": "mean-std"}, "mean_std"),
        ({"method": "mean", "singleton": "raw"}, "singleton"),
        ({"method": "asym_clip", "clip": (3, -1)}, "clip"),
        ({"method": "mean", "keys": ["a"]}, "6 rewards, 1 group ids"),
    ],
)
def test_unknown_options_are_refused(options, complaint):
    with pytest.raises(InputError, match=complaint):
        normalise_rewards(REWARDS, **options)
