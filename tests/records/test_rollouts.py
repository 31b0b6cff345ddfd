"""Bodies of episodes: the index and the groups."""

import numpy as np
import pytest

from tether.records import Episode, Rollouts, Turn


def member(name, group, prompt=None, **about):
    turns = None if prompt is None else (Turn(prompt_ids=prompt, sampled_ids=(7,)),)
    return Episode(name, group_id=group, turns=turns, **about)


def test_the_index_follows_the_rows():
    rollouts = Rollouts.from_episodes(
        [member("a", "x", reward=1.0, step=4), member("b", None, reward=0.0), member("c", "x", step=5)]
    )
    assert rollouts.group_ids == ["x", None, "x"]
    assert rollouts.steps == [4, None, 5]
    np.testing.assert_array_equal(rollouts.rewards, [1.0, 0.0, np.nan])
    assert rollouts.rewards.dtype == np.float64


def test_groups_keep_the_order_of_first_appearance_and_leave_rows_without_an_id_out():
    rollouts = Rollouts.from_episodes([member(f"e{i}", group) for i, group in enumerate(["y", "x", None, "y"])])
    assert rollouts.groups() == {"y": [0, 3], "x": [1]}


def test_episodes_are_a_sequence():
    held = [member(f"e{i}", "x") for i in range(5)]
    rollouts = Rollouts.from_episodes(iter(held))
    assert (len(rollouts), len(rollouts.episodes)) == (5, 5)
    assert rollouts.episodes[-1] is rollouts.episodes[4] is held[4]
    assert rollouts.episodes[1::2] == held[1::2]
    assert list(rollouts.episodes) == held
    for row in (5, -6):
        with pytest.raises(IndexError, match="of 5 episodes"):
            rollouts.episodes[row]


def test_no_episodes_are_an_empty_body():
    rollouts = Rollouts.from_episodes([])
    assert (len(rollouts), rollouts.groups(), rollouts.rewards.shape) == (0, {}, (0,))


def test_what_limits_conclusions_travels_along():
    rollouts = Rollouts.from_episodes([], format="trl", capabilities={"length": "no ids"}, notes=["2 broken lines"])
    assert rollouts.format == "trl"
    assert rollouts.capabilities == {"length": "no ids"}
    assert rollouts.notes == ("2 broken lines",)
