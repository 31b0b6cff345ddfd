"""The rules of a turn, once for all environments whose answers are lists of one-word actions."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from tether.errors import InputError
from tether.randomness import keyed_rng

_SEPARATORS = re.compile(r"[|,\s]+")


def parse_actions(text: str, legal: Iterable[str]) -> tuple[list[str], int]:
    """Read one-word actions separated by ``||``, commas or white space; case does not matter.

    Returns:
        The legal actions in order, in the spelling of ``legal``, and how many other words there were.

    >>> parse_actions("left || jump, UP", ["Left", "Up"])
    (['Left', 'Up'], 1)
    """
    spelling = {action.casefold(): action for action in legal}
    words = [word for word in _SEPARATORS.split(text.casefold()) if word]
    actions = [spelling[word] for word in words if word in spelling]
    return actions, len(words) - len(actions)


class TurnBasedEnvironment(ABC):
    """Base of environments that follow :class:`tether.envs.Environment`: subclasses say what one action does.

    Actions execute in order, at most ``actions_per_turn`` of them, and stop when the episode terminates. A turn
    without a legal action is used up and leaves the state as it was. When the last turn is used up without termination,
    the episode is truncated.
    """

    name: str
    max_turns: int
    actions_per_turn: int
    instructions: str

    _turns_left = 0
    _noise_seed = 0
    _noise: np.random.Generator | None = None

    def reset(self, seed: int, *, noise_seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode; see :meth:`tether.envs.Environment.reset`."""
        info = self._begin(seed)
        self._noise_seed, self._noise = (seed if noise_seed is None else noise_seed), None
        self._turns_left = self.max_turns
        return self._observe(), info

    def step(self, text: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one turn; see :meth:`tether.envs.Environment.step`."""
        if self._turns_left == 0:
            raise InputError(f"step() of {self.name} without a running episode; expected reset(seed) before it.")
        actions, num_invalid = self._read(text)
        executed: list[str] = []
        reward, terminated = 0.0, False
        for action in actions[: self.actions_per_turn]:
            gained, terminated = self._execute(action)
            reward += gained
            executed.append(action)
            if terminated:
                break
        self._turns_left = 0 if terminated else self._turns_left - 1
        truncated = self._turns_left == 0 and not terminated
        info: dict[str, Any] = {"actions": executed, "invalid_actions": num_invalid}
        if terminated or truncated:
            info["success"] = self._succeeded()
        return self._observe(), reward, terminated, truncated, info

    def _read(self, text: str) -> tuple[list[str], int]:
        """Return the legal actions of an answer, in order, and how many others it holds; here every word is one."""
        return parse_actions(text, self._legal_actions())

    def _chance(self) -> float:
        """Return the next uniform number of the dynamics; the generator is made when it is first needed."""
        if self._noise is None:
            self._noise = keyed_rng(self._noise_seed, "noise")
        return float(self._noise.random())

    def _answer_rule(self, choices: str) -> str:
        """Say how to answer and what the budget is."""
        turns = "1 turn" if self.max_turns == 1 else f"{self.max_turns} turns"
        if self.actions_per_turn == 1:
            return f"Answer with one of {choices}. You have {turns}."
        return (
            f"Answer with at most {self.actions_per_turn} actions a turn, separated by ||, out of {choices}. "
            f"You have {turns}."
        )

    @abstractmethod
    def _begin(self, seed: int) -> dict[str, Any]:
        """Set the initial state of the seed and return the info of the reset."""

    @abstractmethod
    def _observe(self) -> str:
        """Return the text of the current state."""

    def _legal_actions(self) -> Iterable[str]:
        """Return the actions of the current state, one word each; not asked if :meth:`_read` is overridden."""
        raise NotImplementedError(f"{type(self).__name__} has neither _legal_actions nor _read; define one of them.")

    @abstractmethod
    def _execute(self, action: str) -> tuple[float, bool]:
        """Change the state by one legal action; return its reward and whether the episode terminates."""

    @abstractmethod
    def _succeeded(self) -> bool:
        """Return whether the episode that has just ended reached its aim."""
