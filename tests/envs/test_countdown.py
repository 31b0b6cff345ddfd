"""Countdown: states that can be solved, rewards in closed form, retries that cannot be farmed, the options."""

import itertools
import os
import subprocess
import sys
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.envs import Countdown, CountdownState, check_environment, countdown_reward
from tether.errors import ConfigError, InputError

CONFIGURATIONS = {
    "default": {},
    "validation": {"split": "validation"},
    "three numbers": {"numbers": 3},
    "two numbers": {"numbers": 2},
    "five small numbers": {"numbers": 5, "max_number": 9},
    "at most once": {"use": "at_most_once"},
    "far targets": {"min_target": 100, "max_target": 999},
    "several turns": {"max_turns": 3},
}


@cache
def expressions(nums: tuple[int, ...]) -> dict[Fraction, str]:
    """Return an expression for every value that all of the numbers make, by trying every split in two."""
    if len(nums) == 1:
        return {Fraction(nums[0]): str(nums[0])}
    found = {}
    for size in range(1, len(nums)):
        for chosen in itertools.combinations(range(len(nums)), size):
            left = expressions(tuple(sorted(nums[i] for i in chosen)))
            right = expressions(tuple(sorted(nums[i] for i in range(len(nums)) if i not in chosen)))
            for (a, first), (b, second) in itertools.product(left.items(), right.items()):
                for sign, value in (("+", a + b), ("-", a - b), ("*", a * b), ("/", a / b if b else None)):
                    if value is not None:
                        found.setdefault(value, f"({first}{sign}{second})")
    return found


def solution(state: CountdownState) -> str | None:
    return expressions(tuple(sorted(state.nums))).get(Fraction(state.target))


def parse(text: str) -> CountdownState:
    target, _, nums = text.removeprefix("Target: ").partition(", nums: ")
    return CountdownState(int(target), tuple(int(number) for number in nums.strip("[]").split(", ")))


@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_the_checker_finds_nothing(options):
    assert check_environment(lambda: Countdown(**options)) == []


@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_every_state_is_as_configured_and_can_be_solved_with_all_of_its_numbers(options):
    env = Countdown(**options)
    for seed in range(12):
        text, info = env.reset(seed)
        state = env.state
        assert (parse(text), info) == (state, {})
        assert len(state.nums) == env.numbers
        assert all(1 <= number <= env.max_number for number in state.nums)
        assert env.min_target <= state.target <= env.max_target
        assert state.target not in state.nums
        observation, reward, terminated, truncated, info = env.step(solution(state))
        assert (observation, reward, terminated, truncated, info["success"]) == (text, 1.0, True, False, True)


@pytest.mark.parametrize("options", [{}, {"numbers": 3, "max_number": 12}, {"numbers": 2}])
def test_train_and_validation_share_no_numbers_and_target_in_any_order(options):
    sides = []
    for split in ("train", "validation"):
        env = Countdown(split=split, **options)
        states = [env.reset(seed) and env.state for seed in range(2500)]
        sides.append({(state.target, tuple(sorted(state.nums))) for state in states})
    assert not sides[0] & sides[1]
    assert min(map(len, sides)) > 100


def test_states_hardly_repeat():
    env = Countdown()
    assert len({env.reset(seed)[0] for seed in range(2000)}) > 1990


def test_same_seed_same_state_in_another_process():
    code = "from tether.envs import Countdown\nfor seed in range(20): print(Countdown().reset(seed)[0])\n"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": salt},
        ).stdout
        for salt in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert runs[0].splitlines() == [Countdown().reset(seed)[0] for seed in range(20)]


def test_seeds_keep_their_states():
    """Stored episodes name their state by its seed, so a change of the draws would break them in silence."""
    assert [Countdown().reset(seed)[0] for seed in (0, 1, 2**62)] == [
        "Target: 10, nums: [51, 1, 47, 6]",
        "Target: 59, nums: [7, 41, 31, 6]",
        "Target: 10, nums: [81, 71, 99, 79]",
    ]


@pytest.mark.parametrize(
    ("text", "exactly", "at_most"),
    [
        ("1+2+3+4", 1.0, 1.0),
        ("4*3-2*1", 1.0, 1.0),
        ("1+2+3*4", 0.1, 0.1),
        ("(1+2+3+4)/1", 0.0, 0.0),  # 1 twice
        ("4+3+3", 0.0, 0.0),
        ("4*3-2", 0.0, 1.0),  # a subset
        ("4+3", 0.0, 0.1),
        ("5+5", 0.0, 0.0),
        ("10", 0.0, 0.0),
        ("12-3+4/4", 0.0, 0.0),  # 12 is not a 1 and a 2
        ("1+2+3+4+", 0.0, 0.0),
        ("1+2+3+4=10", 0.0, 0.0),
        ("4/(3-2-1)", 0.0, 0.0),
        ("", 0.0, 0.0),
        ("ten", 0.0, 0.0),
    ],
)
def test_rewards(text, exactly, at_most):
    rule = {"target": 10, "nums": [1, 2, 3, 4]}
    assert countdown_reward(text, **rule) == exactly
    assert countdown_reward(text, use="at_most_once", **rule) == at_most


@pytest.mark.parametrize(
    ("text", "reward"),
    [("1+2+", 0.1), ("1/(2-2)", 0.0), ("2/(1-1)", 0.0), ("1**2", 0.1), ("1+3+", 0.0), ("", 0.0), ("9" * 9999, 0.0)],
)
def test_a_malformed_text_can_be_paid_as_in_the_released_code_if_its_numbers_are_right(text, reward):
    assert countdown_reward(text, target=3, nums=[1, 2], malformed_reward=0.1) == reward


def test_values_are_exact():
    assert countdown_reward("1/3*3", target=1, nums=[1, 3, 3]) == 1.0
    assert countdown_reward("8/(3-8/3)", target=24, nums=[8, 3, 8, 3]) == 1.0
    assert countdown_reward("1000000*1000000+1", target=10**12, nums=[10**6, 10**6, 1]) == 0.1


def test_repeated_numbers_can_be_used_as_often_as_they_are_given():
    assert countdown_reward("5+5", target=10, nums=[5, 5]) == 1.0
    assert countdown_reward("5+5", target=10, nums=[5]) == 0.0
    assert countdown_reward("5+5", target=10, nums=[5, 5, 5]) == 0.0
    assert countdown_reward("5+5", target=10, nums=[5, 5, 5], use="at_most_once") == 1.0


def wrong(env: Countdown) -> str:
    """An expression with the right numbers and another value."""
    values = expressions(tuple(sorted(env.state.nums)))
    return next(text for value, text in values.items() if value != env.state.target)


def test_a_single_turn_ends_with_its_expression():
    env = Countdown()
    env.reset(3)
    answer = wrong(env)
    text, reward, terminated, truncated, info = env.step(answer)
    assert (reward, terminated, truncated) == (0.1, True, False)
    assert info == {"actions": [answer], "invalid_actions": 0, "success": False}
    assert text.startswith(env.state.describe() + "\nYour last expression has the value ")
    with pytest.raises(InputError, match="without a running episode"):
        env.step(answer)


def test_a_malformed_answer_is_dropped_and_uses_up_the_turn():
    env = Countdown(max_turns=2)
    first, _ = env.reset(3)
    assert env.step("2 ** 3") == (first, 0.0, False, False, {"actions": [], "invalid_actions": 1})
    answer = f"nonsense || {solution(env.state)} || 1 + 1"
    _, reward, terminated, _, info = env.step(answer)
    assert (reward, terminated) == (1.0, True)
    assert info == {"actions": [solution(env.state)], "invalid_actions": 1, "success": True}


@pytest.mark.parametrize("answers", list(itertools.product("wsn", repeat=3)), ids="".join)
def test_the_return_of_several_turns_is_the_best_reward(answers):
    """w a wrong value, s a solution, n foreign numbers: 0.1 is paid once, and 1 in all."""
    env = Countdown(max_turns=3)
    env.reset(5)
    texts = {"w": wrong(env), "s": solution(env.state), "n": "1000 + 1000"}
    rewards = {"w": 0.1, "s": 1.0, "n": 0.0}
    total, played = 0.0, []
    for answer in answers:
        _, reward, terminated, truncated, info = env.step(texts[answer])
        total += reward
        played.append(answer)
        if terminated or truncated:
            break
    assert total == pytest.approx(max(rewards[answer] for answer in played))
    assert len(played) == (answers.index("s") + 1 if "s" in answers else 3)
    assert info["success"] == ("s" in played)
    assert (terminated, truncated) == (True, False)


def test_a_wrong_expression_is_answered_with_its_value():
    env = Countdown(max_turns=3)
    first, _ = env.reset(5)
    assert env.step("7/2")[0] == f"{first}\nYour last expression has the value 7/2, with numbers not exactly once."
    assert env.step("x")[0] == f"{first}\nYour last expression has the value 7/2, with numbers not exactly once."
    assert env.reset(5)[0] == first


@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_neighbours_ask_the_same_numbers_for_another_target_that_they_make(options):
    env = Countdown(**options)
    for seed in range(4):
        env.reset(seed)
        others = [parse(text) for text in env.neighbours(seed)]
        assert len(set(others)) == len(others)
        for other in others:
            assert other.nums == env.state.nums
            assert other.target != env.state.target
            assert env.min_target <= other.target <= env.max_target
            assert solution(other) is not None


def test_most_states_have_neighbours():
    env = Countdown()
    assert sum(bool(env.neighbours(seed)) for seed in range(100)) > 80


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**63 - 1), st.lists(st.text(max_size=40), min_size=1, max_size=3))
def test_any_answer_is_taken_and_returns_stay_from_0_to_1(seed, answers):
    env = Countdown(max_turns=len(answers))
    env.reset(seed)
    total = 0.0
    for answer in answers:
        _, reward, terminated, truncated, _ = env.step(answer)
        total += reward
        if terminated or truncated:
            break
    assert 0 <= total <= 1
    assert terminated or truncated


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"numbers": 1}, "numbers is 1; expected an integer from 2 to 10"),
        ({"numbers": 2.0}, "numbers is 2.0"),
        ({"max_number": 1}, "max_number is 1"),
        ({"min_target": -1}, "min_target is -1"),
        ({"min_target": 50, "max_target": 49}, "max_target is 49; expected an integer from 50"),
        ({"use": "at_most"}, "use is 'at_most'; expected one of exactly_once, at_most_once"),
        ({"max_turns": 0}, "max_turns is 0"),
        ({"split": "test"}, "split is 'test'"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Countdown(**options)


def test_options_that_no_state_satisfies_are_refused():
    env = Countdown(numbers=2, max_number=2, min_target=5, max_target=9)
    with pytest.raises(ConfigError, match="no train state found"):
        env.reset(0)
    with pytest.raises(InputError, match="no state yet"):
        _ = env.state
    with pytest.raises(ConfigError, match="use is"):
        countdown_reward("1", target=1, nums=[1], use="twice")
