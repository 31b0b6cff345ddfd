"""Countdown: make a target out of given numbers with + - * / and parentheses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tether.envs.expressions import MAX_LENGTH, Expression, parse_expression
from tether.envs.options import check_choice, check_integer
from tether.envs.splits import SPLITS, Split, draw_in_split
from tether.envs.turn_based import TurnBasedEnvironment
from tether.errors import InputError
from tether.randomness import keyed_rng

Use = Literal["exactly_once", "at_most_once"]

USES: tuple[Use, ...] = ("exactly_once", "at_most_once")
_NUMBERS_REWARD = 0.1
_NUM_NEIGHBOUR_DRAWS = 64


@dataclass(frozen=True, slots=True)
class CountdownState:
    """The target and the numbers, in the order in which they are shown."""

    target: int
    nums: tuple[int, ...]

    def describe(self) -> str:
        """Return the one line that is shown.

        >>> CountdownState(10, (1, 2, 3, 4)).describe()
        'Target: 10, nums: [1, 2, 3, 4]'
        """
        return f"Target: {self.target}, nums: {list(self.nums)}"


def countdown_reward(
    text: str,
    *,
    target: int,
    nums: Sequence[int],
    use: Use = "exactly_once",
    malformed_reward: float = 0.0,
) -> float:
    """Return 1 for an expression with the right numbers and the target as value, 0.1 for another value, else 0.

    Args:
        text: The expression; see :func:`tether.envs.parse_expression` for what is malformed.
        target: The value to be made, exactly.
        nums: The numbers to use.
        use: Whether every number must be used exactly once, as RAGEN's code has it, or at most once, as the paper does.
        malformed_reward: What a malformed text pays if the numbers in it are right: 0, but 0.1 in RAGEN's code.

    Source: arXiv 2604.06268, appendix B.1.

    >>> [countdown_reward(text, target=10, nums=[1, 2, 3, 4]) for text in ("4*3 - 2*1", "1 + 2 + 3*4", "4 + 3 + 3")]
    [1.0, 0.1, 0.0]
    """
    check_choice("use", use, USES)
    expression = parse_expression(text)
    if expression is not None:
        return _reward(expression, CountdownState(target, tuple(nums)), use)
    if len(text) > MAX_LENGTH:
        return 0.0
    found = tuple(int(digits) for digits in re.findall(r"[0-9]+", text))
    return malformed_reward if _right_numbers(found, nums, use) else 0.0


class Countdown(TurnBasedEnvironment):
    """Make the target out of the numbers; one turn, one expression, the rewards of :func:`countdown_reward`.

    Every state can be solved with all of its numbers: its target is the value of a random expression over them. With
    more than one turn a wrong expression is answered with its value and can be replaced, and a turn pays by how much it
    is better than the best before it: repeating a wrong expression earns nothing.

    An expression ends the episode if it is right or if it comes on the last turn. A malformed one is dropped like any
    unknown action, so that alone it uses up the turn.

    Args:
        numbers: How many numbers a state has.
        max_number: Numbers are from 1 to this.
        min_target: Targets are at least this, and none of the numbers.
        max_target: Targets are at most this.
        use: ``"exactly_once"`` or ``"at_most_once"``: how often an expression must use each number.
        max_turns: Turns of an episode.
        split: ``"train"`` or ``"validation"``; the two share no target with the same numbers, in whatever order.

    Raises:
        ConfigError: An option is out of range, or no state can satisfy them together.

    >>> Countdown().reset(seed=0)[0]
    'Target: 10, nums: [51, 1, 47, 6]'
    """

    name = "countdown"
    actions_per_turn = 1

    def __init__(
        self,
        *,
        numbers: int = 4,
        max_number: int = 99,
        min_target: int = 10,
        max_target: int = 99,
        use: Use = "exactly_once",
        max_turns: int = 1,
        split: Split = "train",
    ) -> None:
        check_integer("numbers", numbers, low=2, high=10)
        check_integer("max_number", max_number, low=2, high=9_999)
        check_integer("min_target", min_target, low=0, high=999_999)
        check_integer("max_target", max_target, low=min_target, high=999_999, why="from min_target on")
        check_choice("use", use, USES)
        check_integer("max_turns", max_turns, low=1)
        check_choice("split", split, SPLITS)
        self.numbers, self.max_number, self.min_target, self.max_target = numbers, max_number, min_target, max_target
        self.use, self.max_turns, self.split = use, max_turns, split
        self._state: CountdownState | None = None
        self._last: Expression | None = None
        self._best = 0.0
        often = "exactly once" if use == "exactly_once" else "at most once"
        self.instructions = (
            f"The state is a target and {numbers} numbers. Answer with one arithmetic expression whose value is the "
            f"target. Use each number {often}, no other numbers, and only + - * / and parentheses, for example "
            f"(1 + 2) * 3. The right value pays 1, right numbers with another value {_NUMBERS_REWARD:g}. "
            f"You have {'1 turn' if max_turns == 1 else f'{max_turns} turns'}."
        )

    @property
    def state(self) -> CountdownState:
        """The target and the numbers of the running episode."""
        if self._state is None:
            raise InputError("countdown has no state yet; expected reset(seed) before it is read.")
        return self._state

    @property
    def example_action(self) -> str:
        """A valid answer in the current state."""
        return " + ".join(map(str, self.state.nums))

    def neighbours(self, seed: int) -> list[str]:
        """Return states with the same numbers and another target; no expression is right in two of them.

        The targets are the values of random expressions: a sample, since four numbers alone have some hundred.
        """
        state, rng = self._draw(seed), keyed_rng(seed, "neighbours")
        values = [_random_value(state.nums, rng) for _ in range(_NUM_NEIGHBOUR_DRAWS)]
        others = [CountdownState(value, state.nums) for value in dict.fromkeys(values) if value != state.target]
        return [other.describe() for other in others if self._usable(other)]

    def _draw(self, seed: int) -> CountdownState:
        return draw_in_split(
            seed,
            self.split,
            self._candidate,
            lambda state: f"countdown {state.target} {sorted(state.nums)}",
            accept=self._usable,
        )

    def _candidate(self, rng: np.random.Generator) -> CountdownState:
        nums = tuple(rng.integers(1, self.max_number + 1, size=self.numbers).tolist())
        return CountdownState(_random_value(nums, rng), nums)

    def _usable(self, state: CountdownState) -> bool:
        return self.min_target <= state.target <= self.max_target and state.target not in state.nums

    def _begin(self, seed: int) -> dict[str, Any]:
        self._state, self._last, self._best = self._draw(seed), None, 0.0
        return {}

    def _observe(self) -> str:
        text = self.state.describe()
        if self._last is None or self._best == 1:
            return text
        right = _right_numbers(self._last.numbers, self.state.nums, self.use)
        also = "" if right else f", with numbers not {self.use.replace('_', ' ')}"
        return f"{text}\nYour last expression has the value {self._last.value}{also}."

    def _read(self, text: str) -> tuple[list[str], int]:
        expressions = [part.strip() for part in text.split("||") if part.strip()]
        legal = [expression for expression in expressions if parse_expression(expression) is not None]
        return legal, len(expressions) - len(legal)

    def _execute(self, action: str) -> tuple[float, bool]:
        self._last = parse_expression(action)
        assert self._last is not None, "_read lets only expressions through"
        reward = _reward(self._last, self.state, self.use)
        gained = max(0.0, reward - self._best)
        self._best = max(reward, self._best)
        return gained, self._best == 1 or self._turns_left == 1

    def _succeeded(self) -> bool:
        return self._best == 1


def _reward(expression: Expression, state: CountdownState, use: Use) -> float:
    if not _right_numbers(expression.numbers, state.nums, use):
        return 0.0
    return 1.0 if expression.value == state.target else _NUMBERS_REWARD


def _right_numbers(used: Sequence[int], nums: Sequence[int], use: Use) -> bool:
    if use == "exactly_once":
        return Counter(used) == Counter(nums)
    return len(used) > 0 and Counter(used) <= Counter(nums)


def _random_value(nums: Sequence[int], rng: np.random.Generator) -> int:
    """Return the value of a random expression that uses every number once and meets whole numbers from 0 only."""
    values = list(nums)
    chances = iter(rng.random(3 * len(values)).tolist())
    while len(values) > 1:
        first, second = (values.pop(int(next(chances) * len(values))) for _ in range(2))
        large, small = max(first, second), min(first, second)
        results = [large + small, large - small, large * small]
        if small > 0 and large % small == 0:
            results.append(large // small)
        values.append(results[int(next(chances) * len(results))])
    return values[0]
