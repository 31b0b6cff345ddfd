"""Reward rules that environments share."""

import pytest

from tether.envs import retry_reward
from tether.errors import ConfigError


def test_the_reward_halves_with_every_retry():
    assert [retry_reward(attempt, correct=True) for attempt in range(1, 6)] == [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16]
    assert {retry_reward(attempt, correct=False) for attempt in range(1, 6)} == {0.0}


@pytest.mark.parametrize("attempt", [0, -1, 1.0, True])
def test_attempts_count_from_one(attempt):
    with pytest.raises(ConfigError, match="attempt is"):
        retry_reward(attempt, correct=True)
