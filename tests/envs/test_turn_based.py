"""The rules of a turn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.envs import TurnBasedEnvironment, parse_actions
from tether.errors import InputError

LEGAL = ("Left", "Right", "Stop")


class Line(TurnBasedEnvironment):
    """Walk along a line; Stop terminates, and succeeds at a position above 0."""

    name = "line"
    max_turns = 3
    actions_per_turn = 2
    instructions = "Walk."

    def _begin(self, seed):
        self.place = 0
        return {"begun": seed}

    def _observe(self):
        return str(self.place)

    def _legal_actions(self):
        return LEGAL

    def _execute(self, action):
        self.place += {"Left": -1, "Right": 1, "Stop": 0}[action]
        return 0.5, action == "Stop"

    def _succeeded(self):
        return self.place > 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Left || Right", (["Left", "Right"], 0)),
        ("left||RIGHT", (["Left", "Right"], 0)),
        ("Left, Right Stop\nLeft", (["Left", "Right", "Stop", "Left"], 0)),
        ("Left || jump || Right", (["Left", "Right"], 1)),
        ("jump", ([], 1)),
        ("", ([], 0)),
        (" || , \n", ([], 0)),
        ("LeftRight", ([], 1)),
    ],
)
def test_actions_are_read_whatever_the_separator_and_case(text, expected):
    assert parse_actions(text, LEGAL) == expected


@given(st.text())
def test_any_text_gives_legal_actions_and_a_count(text):
    actions, num_invalid = parse_actions(text, LEGAL)
    assert set(actions) <= set(LEGAL)
    assert num_invalid >= 0


@given(st.lists(st.sampled_from([*LEGAL, "jump", "42"])), st.sampled_from([" || ", "||", ", ", " ", "\n"]))
def test_every_word_is_either_an_action_or_invalid(words, separator):
    actions, num_invalid = parse_actions(separator.join(words), LEGAL)
    assert actions == [word for word in words if word in LEGAL]
    assert num_invalid == len(words) - len(actions)


def test_reset_passes_the_info_on():
    assert Line().reset(7) == ("0", {"begun": 7})


def test_unknown_actions_are_dropped_and_the_rest_executes_within_the_limit():
    env = Line()
    env.reset(0)
    observation, reward, terminated, truncated, info = env.step("jump || Right || fly || Right || Right")
    assert (observation, reward, terminated, truncated) == ("2", 1.0, False, False)
    assert info == {"actions": ["Right", "Right"], "invalid_actions": 2}


def test_a_turn_without_an_answer_is_used_up_and_changes_nothing():
    env = Line()
    env.reset(0)
    assert env.step("") == ("0", 0.0, False, False, {"actions": [], "invalid_actions": 0})
    assert env.step("jump") == ("0", 0.0, False, False, {"actions": [], "invalid_actions": 1})
    assert env.step("") == ("0", 0.0, False, True, {"actions": [], "invalid_actions": 0, "success": False})


def test_execution_stops_at_termination_and_termination_wins_in_the_last_turn():
    env = Line()
    env.reset(0)
    env.step("Right")
    env.step("")
    assert env.step("Stop || Right") == (
        "1",
        0.5,
        True,
        False,
        {"actions": ["Stop"], "invalid_actions": 0, "success": True},
    )


@pytest.mark.parametrize("last", ["Stop", ""])
def test_no_step_before_the_reset_or_after_the_end(last):
    env = Line()
    with pytest.raises(InputError, match="reset"):
        env.step("Left")
    for _ in range(2):
        env.reset(0)
        for answer in ("", "", last):
            env.step(answer)
        with pytest.raises(InputError, match="reset"):
            env.step("Left")


def test_chances_follow_the_noise_seed_and_start_over_with_each_reset():
    env = Line()

    def chances(seed, **options):
        env.reset(seed, **options)
        return [env._chance() for _ in range(5)]

    assert chances(0) == chances(0)
    assert chances(0, noise_seed=5) == chances(1, noise_seed=5)
    assert len({tuple(chances(0)), tuple(chances(1)), tuple(chances(0, noise_seed=5))}) == 3
