"""Bandit: a safe arm that always pays little against a risky arm that sometimes pays much, under ever new names."""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose
from typing import Any, Literal

import numpy as np

from tether.envs.options import check_choice, check_integer, check_number
from tether.envs.splits import SPLITS, Split, draw_in_split
from tether.envs.turn_based import TurnBasedEnvironment
from tether.errors import InputError

Role = Literal["safe", "risky"]
_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")
_LARGEST_PAY = 1e6


@dataclass(frozen=True, slots=True)
class BanditState:
    """The arms in the order in which they are shown; exactly one of them is risky."""

    names: tuple[str, ...]
    risky: int

    def role(self, arm: int) -> Role:
        """Return whether an arm is the risky one."""
        return "risky" if arm == self.risky else "safe"

    def describe(self) -> str:
        """Return one line an arm: its name and its role."""
        return "\n".join(f"{name} {self.role(arm)}" for arm, name in enumerate(self.names))


class Bandit(TurnBasedEnvironment):
    """Pull one arm a turn. The names and their order are new in every state, so the answer must be read off it.

    The two-armed bandit of RAGEN (arXiv 2504.20073, 2604.06268; safe 0.1, risky 1 with probability 0.25), except that
    the state names the roles: generated names mean nothing, and without the roles there would be nothing to read. An
    episode terminates when every turn has had its pull, and succeeds if the last pull went to an arm of the highest
    expected pay.

    Args:
        arms: Number of arms; one is risky, the others are safe.
        safe_reward: What a safe arm pays every time.
        risky_reward: What the risky arm pays when it pays.
        risky_probability: How often the risky arm pays.
        max_turns: Pulls of an episode.
        split: ``"train"`` or ``"validation"``; the two share no state.

    >>> env = Bandit()
    >>> print(env.reset(seed=0)[0])
    naba risky
    mobu safe
    """

    name = "bandit"
    actions_per_turn = 1

    def __init__(
        self,
        *,
        arms: int = 2,
        safe_reward: float = 0.1,
        risky_reward: float = 1.0,
        risky_probability: float = 0.25,
        max_turns: int = 1,
        split: Split = "train",
    ) -> None:
        check_integer("arms", arms, low=2, high=100)
        check_number("safe_reward", safe_reward, low=-_LARGEST_PAY, high=_LARGEST_PAY)
        check_number("risky_reward", risky_reward, low=-_LARGEST_PAY, high=_LARGEST_PAY)
        check_number("risky_probability", risky_probability, low=0, high=1)
        check_integer("max_turns", max_turns, low=1)
        check_choice("split", split, SPLITS)
        self.arms, self.max_turns, self.split = arms, max_turns, split
        self.safe_reward, self.risky_reward, self.risky_probability = safe_reward, risky_reward, risky_probability
        self._state: BanditState | None = None
        self._pulled: list[int] = []
        self._last_pay = 0.0
        self.instructions = (
            f"There are {arms} arms. The state names each arm and says whether it is safe or risky. A safe arm pays "
            f"{safe_reward:g} every time; the risky arm pays {risky_reward:g} with probability {risky_probability:g} "
            f"and otherwise 0. Earn as much as you can expect. {self._answer_rule('the names of the arms')}"
        )

    @property
    def state(self) -> BanditState:
        """The arms of the running episode."""
        if self._state is None:
            raise InputError("the bandit has no state yet; expected reset(seed) before it is read.")
        return self._state

    @property
    def example_action(self) -> str:
        """A valid answer in the current state."""
        return self.state.names[0]

    def best_arms(self, state: BanditState) -> tuple[str, ...]:
        """Return the names of the arms with the highest expected pay."""
        risky_mean = self.risky_reward * self.risky_probability
        means = [risky_mean if arm == state.risky else self.safe_reward for arm in range(self.arms)]
        return tuple(
            name for name, mean in zip(state.names, means, strict=True) if isclose(mean, max(means), abs_tol=1e-12)
        )

    def neighbours(self, seed: int) -> list[str]:
        """Return the states in which another of the same arms is the risky one, if that changes the best choice."""
        state = self._draw(seed)
        others = [BanditState(state.names, arm) for arm in range(self.arms) if arm != state.risky]
        return [other.describe() for other in others if self.best_arms(other) != self.best_arms(state)]

    def _draw(self, seed: int) -> BanditState:
        return draw_in_split(seed, self.split, self._candidate, lambda state: f"bandit {state.describe()}")

    def _candidate(self, rng: np.random.Generator) -> BanditState:
        names: dict[str, None] = {}
        while len(names) < self.arms:
            first, second = rng.integers(len(_SYLLABLES), size=2)
            names[_SYLLABLES[first] + _SYLLABLES[second]] = None
        return BanditState(tuple(names), int(rng.integers(self.arms)))

    def _begin(self, seed: int) -> dict[str, Any]:
        self._state, self._pulled = self._draw(seed), []
        return {}

    def _observe(self) -> str:
        text = self.state.describe()
        if self._pulled:
            text += f"\n{self.state.names[self._pulled[-1]]} paid {self._last_pay:g}"
        return text

    def _legal_actions(self) -> tuple[str, ...]:
        return self.state.names

    def _execute(self, action: str) -> tuple[float, bool]:
        arm = self.state.names.index(action)
        if arm == self.state.risky:
            self._last_pay = float(self.risky_reward) if self._chance() < self.risky_probability else 0.0
        else:
            self._last_pay = float(self.safe_reward)
        self._pulled.append(arm)
        return self._last_pay, len(self._pulled) == self.max_turns

    def _succeeded(self) -> bool:
        return bool(self._pulled) and self.state.names[self._pulled[-1]] in self.best_arms(self.state)
