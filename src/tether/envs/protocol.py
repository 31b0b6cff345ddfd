"""What the turn loop asks of an environment: Gymnasium's conventions, with text for observations and actions."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Environment(Protocol):
    """One text environment; an instance plays one episode at a time and is cheap to make.

    Attributes:
        name: Short identifier, stored with every record.
        max_turns: Turns of an episode; when they are used up without termination the episode is truncated.
        actions_per_turn: Actions of one answer that are executed at most.
        instructions: What the system message says: the task, the legend of this very instance's observations, the
            actions and their separator ``||``.

    An environment may also have ``neighbours`` (see :class:`HasNeighbours`) and ``example_action``, a valid answer
    that :func:`tether.envs.check_environment` can step with.
    """

    name: str
    max_turns: int
    actions_per_turn: int
    instructions: str

    def reset(self, seed: int, *, noise_seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode and return the first observation and its info.

        Args:
            seed: Determines the initial state, together with the configuration and the split and nothing else; the
                same in every process.
            noise_seed: Determines the chances of the dynamics (slips, pays), so that the members of a group share
                the state and not the luck. None derives it from ``seed``.
        """
        ...

    def step(self, text: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one turn with the content of an answer block, such as ``"Left || Up"``.

        Unknown actions are dropped and the rest is executed. An empty text stands for a reply without a valid answer:
        the turn is used up, the state and the reward stay as they were. A step after the end is an error.

        Returns:
            Observation, reward of this turn, terminated, truncated, and an info that JSON can hold: ``actions`` (those
            executed), ``invalid_actions`` (how many were dropped as unknown) and, at the end, ``success``.
        """
        ...


@runtime_checkable
class HasNeighbours(Protocol):
    """An environment that knows which of its states differ in one decision-relevant detail."""

    def neighbours(self, seed: int) -> list[str]:
        """Return first observations that differ from that of ``reset(seed)`` in one decision-relevant detail.

        The running episode is left alone. A neighbour of a training state may lie in the validation split: use
        neighbours as contexts to score under, not as states to train on.
        """
        ...
