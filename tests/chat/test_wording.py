import pytest

from tether.chat import COMPACT, FULL, NONE, REACT, TurnStyle, render_system, render_turn

FACTS = {"observation": "P _ G", "actions_left": 10, "actions_per_turn": 2, "max_reply_tokens": 26}


def test_the_first_turn_shows_no_reward():
    text = render_turn(FULL, turn=1, last_reward=None, **FACTS)
    assert text.startswith("Turn 1:\nState:\nP _ G\n")
    assert "Reward" not in text


def test_the_length_hint_and_the_actions_are_those_in_force():
    text = render_turn(FULL, turn=1, last_reward=None, **FACTS)
    assert "in at most 26 tokens." in text
    assert "10 actions left, of which this turn takes at most 2." in text
    last = render_turn(FULL, turn=5, last_reward=0.0, **FACTS | {"actions_left": 1})
    assert "1 action left, of which this turn takes at most 1." in last
    assert "left" not in render_turn(FULL, turn=1, last_reward=None, **FACTS | {"actions_left": None})


@pytest.mark.parametrize(("reward", "shown"), [(-0.30000000000000004, "-0.3"), (-0.0, "0"), (1.0, "1"), (10.9, "10.9")])
def test_later_turns_show_the_reward_rounded(reward, shown):
    assert render_turn(FULL, turn=2, last_reward=reward, **FACTS).startswith(f"Reward:\n{shown}\n\nTurn 2:\n")


@pytest.mark.parametrize(
    ("reasoning", "demand"),
    [
        (FULL.reasoning, "<think> your reasoning </think> <answer> your answer </answer> and"),
        (NONE, "with <answer> your answer </answer> and"),
        (REACT, "Thought: your reasoning Action: your answer and"),
    ],
)
def test_the_demand_names_the_tags_of_the_style(reasoning, demand):
    assert demand in render_turn(TurnStyle("mine", reasoning=reasoning), turn=1, last_reward=None, **FACTS)


def test_compact_is_the_bare_observation():
    assert render_turn(COMPACT, turn=3, last_reward=1.0, **FACTS) == "P _ G"
    assert render_system(COMPACT, "Walk to G.") is None


def test_the_system_message_holds_the_environments_own_instructions():
    assert "Walk to G." in render_system(FULL, "Walk to G.")
    assert render_system(FULL, "Walk.", action_budget=10).endswith("You have at most 10 actions in total.")
