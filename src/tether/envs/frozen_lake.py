"""FrozenLake: Gymnasium's lake with a random start, goal and holes in every state, told as text."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tether.envs.lake import (
    ACTIONS,
    Cell,
    LakeState,
    coordinates,
    distances_to_goal,
    grid,
    moves_from,
    shortest_moves,
    transitions,
    variants,
)
from tether.envs.options import check_choice, check_integer, check_number
from tether.envs.splits import SPLITS, Split, draw_in_split
from tether.envs.turn_based import TurnBasedEnvironment
from tether.errors import ConfigError, InputError
from tether.randomness import keyed_rng

View = Literal["coordinates", "grid"]

VIEWS: tuple[View, ...] = ("coordinates", "grid")
_DEFAULT_HOLES = 3


class FrozenLake(TurnBasedEnvironment):
    """Walk from a random start to a random goal; reward 1 at the goal, a hole ends the episode with 0.

    Every state can be solved within the budget: its shortest path has at most ``max_turns * actions_per_turn`` moves.
    The exception is asked for: a ``dead_share`` of the states are dead (the goal in a corner behind two holes), their
    reward is always 0, and ``info["dead"]`` of the reset says so.

    Args:
        size: Rows and columns of the lake.
        holes: Number of holes; 3 if neither this nor ``frozen_probability`` is given.
        frozen_probability: Instead of a number of holes, the probability with which each cell is frozen.
        success_rate: Probability that a move goes as intended; 1 is not slippery, 1/3 is Gymnasium's default.
        view: ``"coordinates"`` or ``"grid"``.
        max_turns: Turns of an episode.
        actions_per_turn: Actions of one answer that are executed at most.
        min_distance: Moves from start to goal at least, dead states aside.
        dead_share: Probability that a state is dead.
        split: ``"train"`` or ``"validation"``; the two share no state, whatever the other options.

    Raises:
        ConfigError: An option is out of range, or no lake can satisfy them together.
    """

    name = "frozen_lake"
    example_action = "Left"

    def __init__(
        self,
        *,
        size: int = 4,
        holes: int | None = None,
        frozen_probability: float | None = None,
        success_rate: float = 1.0,
        view: View = "coordinates",
        max_turns: int = 5,
        actions_per_turn: int = 2,
        min_distance: int = 2,
        dead_share: float = 0.0,
        split: Split = "train",
    ) -> None:
        if holes is None and frozen_probability is None:
            holes = _DEFAULT_HOLES
        check_integer("size", size, low=2, high=100)
        check_number("success_rate", success_rate, low=0, high=1)
        check_choice("view", view, VIEWS)
        check_integer("max_turns", max_turns, low=1)
        check_integer("actions_per_turn", actions_per_turn, low=1)
        budget = max_turns * actions_per_turn
        check_integer("min_distance", min_distance, low=1, high=budget, why="max_turns * actions_per_turn")
        check_number("dead_share", dead_share, low=0, high=1)
        check_choice("split", split, SPLITS)
        _check_holes(size, holes, frozen_probability, dead_share)
        self.size, self.holes, self.frozen_probability = size, holes, frozen_probability
        self.success_rate, self.view, self.split = success_rate, view, split
        self.max_turns, self.actions_per_turn = max_turns, actions_per_turn
        self.min_distance, self.dead_share = min_distance, dead_share
        self._state: LakeState | None = None
        self.instructions = self._instructions()

    @property
    def state(self) -> LakeState:
        """The state of the running episode."""
        if self._state is None:
            raise InputError("the lake has no state yet; expected reset(seed) before it is read.")
        return self._state

    def neighbours(self, seed: int) -> list[str]:
        """Return the solvable states that differ in the cell of the player, the goal or one hole, and in what to do.

        What to do is the set of first moves on shortest paths; a neighbour of a dead state is one that can be solved.
        """
        state, _ = self._draw(seed)
        advice = shortest_moves(state)
        return [
            self._show(other) for other in variants(state) if self._usable(other) and shortest_moves(other) != advice
        ]

    def _instructions(self) -> str:
        last = self.size - 1
        if self.view == "coordinates":
            legend = (
                "P row,column is where you are, G row,column the goal, every H row,column a hole; all other cells are "
                f"frozen and safe. Row 0 is the top, column 0 the left; the last of both is {last}. When P equals G "
                "you have arrived, when P equals an H you are in that hole."
            )
        else:
            legend = "P you, _ frozen and safe, O hole, G goal, X you in a hole, √ you at the goal."
        slips = ""
        if self.success_rate < 1:
            side = (1 - self.success_rate) / 2
            slips = (
                f" The ice is slippery: a move goes as intended with probability {self.success_rate:g} and to either "
                f"side of that with probability {side:g}."
            )
        return (
            f"You walk on a frozen lake of {self.size} x {self.size} cells. Reach the goal (reward 1) without falling "
            f"into a hole (the end, reward 0). A move over the edge leaves you where you are.{slips}\n"
            f"State: {legend}\n"
            f"{self._answer_rule(', '.join(ACTIONS))}"
        )

    def _draw(self, seed: int) -> tuple[LakeState, bool]:
        """Return the initial state of a seed and whether it is dead, which is decided before and apart from it."""
        dead = self.dead_share > 0 and bool(keyed_rng(seed, "dead").random() < self.dead_share)
        if dead:
            return draw_in_split(seed, self.split, self._dead_candidate, self.content), True
        return draw_in_split(seed, self.split, self._candidate, self.content, accept=self._usable), False

    @staticmethod
    def content(state: LakeState) -> str:
        """Return what decides the split of a state: goal and holes, whatever the options and the view.

        The player is left out: an episode walks over the lake, so a lake of the other split would be met on the way.
        """
        return f"frozen_lake {state.size} goal {state.goal} holes {state.holes}"

    def _candidate(self, rng: np.random.Generator) -> LakeState:
        player, goal, *rest = _shuffled(list(moves_from(self.size)), rng)
        return LakeState(self.size, player, goal, self._hole_cells((), rest, rng))

    def _dead_candidate(self, rng: np.random.Generator) -> LakeState:
        last = self.size - 1
        corners = ((0, 0), (0, last), (last, 0), (last, last))
        goal = corners[int(rng.integers(4))]
        moves = moves_from(self.size)
        walls = tuple({cell for cell in moves[goal] if cell != goal})
        player, *rest = _shuffled([cell for cell in moves if cell != goal and cell not in walls], rng)
        return LakeState(self.size, player, goal, self._hole_cells(walls, rest, rng))

    def _hole_cells(self, fixed: tuple[Cell, ...], rest: list[Cell], rng: np.random.Generator) -> tuple[Cell, ...]:
        """Return the fixed holes and random others out of the shuffled rest, in row-major order."""
        if self.holes is not None:
            return tuple(sorted((*fixed, *rest[: self.holes - len(fixed)])))
        chances = rng.random(len(rest)).tolist()
        drawn = (cell for cell, chance in zip(rest, chances, strict=True) if chance >= self.frozen_probability)
        return tuple(sorted((*fixed, *drawn)))

    def _usable(self, state: LakeState) -> bool:
        distance = distances_to_goal(state).get(state.player, 0)
        return self.min_distance <= distance <= self.max_turns * self.actions_per_turn

    def _show(self, state: LakeState) -> str:
        return coordinates(state) if self.view == "coordinates" else grid(state)

    def _begin(self, seed: int) -> dict[str, Any]:
        self._state, dead = self._draw(seed)
        return {"dead": dead}

    def _observe(self) -> str:
        return self._show(self.state)

    def _legal_actions(self) -> tuple[str, ...]:
        return ACTIONS

    def _execute(self, action: str) -> tuple[float, bool]:
        outcomes = transitions(self.state, action, success_rate=self.success_rate)
        cell = outcomes[0][1] if len(outcomes) == 1 else self._slip(*outcomes)
        self._state = state = self.state.with_player(cell)
        return float(state.at_goal), state.finished

    def _slip(self, one_side: tuple[float, Cell], ahead: tuple[float, Cell], other_side: tuple[float, Cell]) -> Cell:
        """Choose an outcome with one uniform number, as Gymnasium does: the first whose cumulated share exceeds it."""
        chance = self._chance()
        if chance < one_side[0]:
            return one_side[1]
        return ahead[1] if chance < one_side[0] + ahead[0] else other_side[1]

    def _succeeded(self) -> bool:
        return self.state.at_goal


def _check_holes(size: int, holes: int | None, frozen_probability: float | None, dead_share: float) -> None:
    if holes is not None and frozen_probability is not None:
        raise ConfigError(
            f"holes is {holes!r} and frozen_probability is {frozen_probability!r}; expected one of the two. Drop one."
        )
    if frozen_probability is not None:
        check_number("frozen_probability", frozen_probability, low=0, high=1)
    elif dead_share > 0:
        check_integer("holes", holes, low=2, high=size * size - 2, why="a dead state has two holes beside the goal")
    else:
        check_integer("holes", holes, low=0, high=size * size - 2, why="start and goal are no holes")


def _shuffled(cells: list[Cell], rng: np.random.Generator) -> list[Cell]:
    return [cells[i] for i in rng.permutation(len(cells)).tolist()]
