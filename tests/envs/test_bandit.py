"""Bandit: names and roles, pays, the best arm."""

import math

import pytest

from tether.envs import Bandit
from tether.errors import ConfigError, InputError


def test_state_names_each_arm_and_its_role_and_exactly_one_is_risky():
    env = Bandit(arms=4)
    for seed in range(200):
        text, info = env.reset(seed)
        names, roles = zip(*(line.split() for line in text.splitlines()), strict=True)
        assert len(set(names)) == 4
        assert sorted(roles) == ["risky", "safe", "safe", "safe"]
        assert roles[env.state.risky] == "risky"
        assert info == {}


def test_roles_do_not_follow_the_order_and_names_hardly_repeat():
    env = Bandit()
    states = [env.reset(seed) and env.state for seed in range(2000)]
    share = sum(state.risky for state in states) / len(states)
    assert abs(share - 0.5) < 5 * math.sqrt(0.25 / len(states))
    assert len({frozenset(state.names) for state in states}) > 1990


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_best_arm_can_be_chosen_in_every_state(split):
    env = Bandit(split=split)
    for seed in range(300):
        env.reset(seed)
        risky = env.state.names[env.state.risky]
        _, _, terminated, truncated, info = env.step(risky.upper())
        assert info == {"actions": [risky], "invalid_actions": 0, "success": True}
        assert (terminated, truncated) == (True, False)


def test_the_safe_arm_always_pays_and_is_no_success_when_it_pays_less():
    env = Bandit()
    for noise_seed in range(50):
        env.reset(0, noise_seed=noise_seed)
        safe = env.state.names[1 - env.state.risky]
        text, reward, _, _, info = env.step(safe)
        assert reward == 0.1
        assert not info["success"]
        assert text.endswith(f"\n{safe} paid 0.1")


def test_the_risky_arm_pays_with_its_probability_and_by_the_noise_seed():
    env, pays = Bandit(risky_reward=2), []
    for noise_seed in range(2000):
        first, _ = env.reset(0, noise_seed=noise_seed)
        pays.append(env.step(env.state.names[env.state.risky])[1])
        assert first == Bandit().reset(0)[0]
    assert set(pays) == {0.0, 2.0}
    assert abs(sum(pays) / 2 / 2000 - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 2000)


@pytest.mark.parametrize(
    ("options", "best_role"),
    [
        ({}, "risky"),
        ({"safe_reward": 0.5}, "safe"),
        ({"safe_reward": 0.25}, "both"),
        ({"risky_probability": 0}, "safe"),
    ],
)
def test_the_best_arm_has_the_highest_expected_pay(options, best_role):
    env = Bandit(**options)
    env.reset(0)
    risky, safe = env.state.names[env.state.risky], env.state.names[1 - env.state.risky]
    assert set(env.best_arms(env.state)) == {"risky": {risky}, "safe": {safe}, "both": {risky, safe}}[best_role]


def test_several_turns_terminate_when_every_turn_has_had_its_pull():
    env = Bandit(max_turns=3, risky_probability=1)
    env.reset(0)
    risky, safe = env.state.names[env.state.risky], env.state.names[1 - env.state.risky]
    assert env.step(safe)[1:4] == (0.1, False, False)
    assert env.step(f"{risky} || {safe}")[1:4] == (1.0, False, False)
    assert env.step(risky)[1:] == (1.0, True, False, {"actions": [risky], "invalid_actions": 0, "success": True})
    env.reset(0)
    for answer, truncated in ((risky, False), ("", False), (risky, True)):
        assert env.step(answer)[2:4] == (False, truncated)


def test_no_pull_is_no_success():
    env = Bandit()
    first, _ = env.reset(0)
    assert env.step("") == (first, 0.0, False, True, {"actions": [], "invalid_actions": 0, "success": False})


def test_neighbours_give_the_risk_to_another_of_the_same_arms():
    env = Bandit(arms=3)
    first, _ = env.reset(5)
    neighbours = env.neighbours(5)
    assert len(neighbours) == 2
    names = [line.split()[0] for line in first.splitlines()]
    for text in neighbours:
        assert text != first
        assert [line.split()[0] for line in text.splitlines()] == names
        assert text.count("risky") == 1
    assert Bandit(safe_reward=0.25).neighbours(5) == []


def test_instructions_name_the_pays_of_the_instance():
    text = Bandit(arms=3, safe_reward=0.2, risky_reward=5, risky_probability=0.5, max_turns=4).instructions
    for part in ("3 arms", "0.2 every time", "5 with probability 0.5", "4 turns"):
        assert part in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arms": 1}, "arms is 1"),
        ({"risky_probability": 1.1}, "risky_probability is 1.1"),
        ({"safe_reward": math.inf}, "safe_reward is inf"),
        ({"risky_reward": "1"}, "risky_reward is '1'"),
        ({"max_turns": 0}, "max_turns is 0"),
        ({"split": "valid"}, "did you mean 'validation'"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Bandit(**options)


def test_state_before_the_first_reset_is_refused():
    with pytest.raises(InputError, match="reset"):
        _ = Bandit().state
