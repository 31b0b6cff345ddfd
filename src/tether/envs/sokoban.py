"""Sokoban: push every box onto a target, in rooms made by playing backwards, told as text."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tether.envs.options import check_choice, check_integer
from tether.envs.sokoban_room import (
    ACTIONS,
    Position,
    SokobanState,
    coordinates,
    distances_to_solved,
    floor_of,
    grid,
    moved,
    moved_variants,
    shortest_moves,
    sokoban_reward,
    target_variants,
)
from tether.envs.splits import SPLITS, Split, draw_in_split
from tether.envs.turn_based import TurnBasedEnvironment
from tether.errors import InputError
from tether.randomness import keyed_rng

View = Literal["coordinates", "grid"]

VIEWS: tuple[View, ...] = ("coordinates", "grid")
_MAX_TRIES = 1_000  # 1 of 8 candidates is a validation state: more would only delay the error
_MAX_RETARGETED = 16


class Sokoban(TurnBasedEnvironment):
    """Push every box onto a target; every action costs 0.1, a box onto a target pays 1 and off it -1, all of them 10.

    The rewards and the default budget are those of RAGEN (arXiv 2604.06268, appendix B.1). Every state can be solved
    within the budget: it is drawn from those that lie at most ``max_turns * actions_per_turn`` moves before the solved
    room, the number of moves first, so that easy and hard states are equally common. No state begins with a box on a
    target: a solution of m actions returns ``boxes + 10 - m / 10``.

    Args:
        size: Rows and columns of the room, outer walls included.
        boxes: Number of boxes, and of targets.
        inner_walls: Number of wall cells inside the room.
        view: ``"coordinates"`` or ``"grid"``.
        max_turns: Turns of an episode.
        actions_per_turn: Actions of one answer that are executed at most.
        min_distance: Moves of the shortest solution at least.
        split: ``"train"`` or ``"validation"``; the two share no state, whatever the other options.

    Raises:
        ConfigError: An option is out of range, or no room can satisfy them together.

    >>> Sokoban().reset(seed=0)[0]
    'P 1,1 X 1,2 O 1,4 # 2,2 # 2,4 # 3,4'
    """

    name = "sokoban"
    example_action = "Up"

    def __init__(
        self,
        *,
        size: int = 6,
        boxes: int = 1,
        inner_walls: int = 3,
        view: View = "coordinates",
        max_turns: int = 5,
        actions_per_turn: int = 2,
        min_distance: int = 2,
        split: Split = "train",
    ) -> None:
        check_integer("size", size, low=5, high=20)
        num_inside = (size - 2) ** 2
        check_integer("boxes", boxes, low=1, high=(num_inside - 1) // 2, why="boxes, as many targets, and the player")
        room_left = num_inside - 2 * boxes - 1
        check_integer("inner_walls", inner_walls, low=0, high=room_left, why="what boxes, targets and player leave")
        check_choice("view", view, VIEWS)
        check_integer("max_turns", max_turns, low=1)
        check_integer("actions_per_turn", actions_per_turn, low=1)
        self._budget = max_turns * actions_per_turn
        check_integer("min_distance", min_distance, low=1, high=self._budget, why="max_turns * actions_per_turn")
        check_choice("split", split, SPLITS)
        self.size, self.boxes, self.inner_walls, self.view, self.split = size, boxes, inner_walls, view, split
        self.max_turns, self.actions_per_turn, self.min_distance = max_turns, actions_per_turn, min_distance
        self._state: SokobanState | None = None
        self.instructions = self._instructions()

    @property
    def state(self) -> SokobanState:
        """The state of the running episode."""
        if self._state is None:
            raise InputError("the room has no state yet; expected reset(seed) before it is read.")
        return self._state

    def neighbours(self, seed: int) -> list[str]:
        """Return the solvable states that differ in the cell of the player, a box or a target, and in what to do.

        What to do is the set of first moves of shortest solutions. Of the states with another target, each a room of
        its own to be solved, at most 16 are looked at: all of them in the default room.
        """
        state = self._draw(seed)
        retargeted = target_variants(state)
        looked_at = keyed_rng(seed, "neighbours").permutation(len(retargeted))[:_MAX_RETARGETED].tolist()
        advice = shortest_moves(state, limit=self._budget)
        return [
            self._show(other)
            for other in [*moved_variants(state), *(retargeted[i] for i in sorted(looked_at))]
            if other.position in self._starts(other) and shortest_moves(other, limit=self._budget) != advice
        ]

    def _instructions(self) -> str:
        last = self.size - 1
        if self.view == "coordinates":
            legend = (
                "P row,column is where you are, every X row,column a box, every O a target, every # a wall; all other "
                f"cells are free. Row 0 is the top, column 0 the left; rows and columns 0 and {last} are walls. A box "
                "with the cell of an O is on that target."
            )
        else:
            legend = "# wall, _ free, O target, X box, √ box on a target, P you, S you on a target."
        every = "the box onto the target" if self.boxes == 1 else f"each of the {self.boxes} boxes onto a target"
        return (
            f"You are in a warehouse of {self.size} x {self.size} cells. Push {every}. You push a box by walking into "
            "it; you cannot pull, and a box does not move into a wall or another box. Every action costs 0.1, a box "
            "onto a target pays 1, a box off a target costs 1, the last box onto a target pays 10 more and is the "
            f"end.\nState: {legend}\n{self._answer_rule(', '.join(ACTIONS))}"
        )

    def _draw(self, seed: int) -> SokobanState:
        return draw_in_split(
            seed,
            self.split,
            self._candidate,
            lambda state: f"sokoban {state.size} {coordinates(state)}",
            accept=lambda state: not state.solved,
            max_tries=_MAX_TRIES,
        )

    def _candidate(self, rng: np.random.Generator) -> SokobanState:
        """Draw a room, a number of moves and a position so far from the solution; the solved room if there is none."""
        cells = list(floor_of(self.size, ()))
        first, *rest = [cells[i] for i in rng.permutation(len(cells)).tolist()]
        targets = tuple(sorted(rest[: self.boxes]))
        walls = tuple(sorted(rest[self.boxes : self.boxes + self.inner_walls]))
        room = SokobanState(self.size, walls, targets, first, targets)
        by_distance: dict[int, list[Position]] = {}
        for position, distance in self._starts(room).items():
            by_distance.setdefault(distance, []).append(position)
        if not by_distance:
            return room
        positions = by_distance[sorted(by_distance)[int(rng.integers(len(by_distance)))]]
        return room.at(positions[int(rng.integers(len(positions)))])

    def _starts(self, room: SokobanState) -> dict[Position, int]:
        """Return the positions with which an episode in this room may begin, and their distances."""
        targets = set(room.targets)
        return {
            (player, boxes): distance
            for (player, boxes), distance in distances_to_solved(room, limit=self._budget).items()
            if distance >= self.min_distance and targets.isdisjoint(boxes)
        }

    def _show(self, state: SokobanState) -> str:
        return coordinates(state) if self.view == "coordinates" else grid(state)

    def _begin(self, seed: int) -> dict[str, Any]:
        self._state = self._draw(seed)
        return {}

    def _observe(self) -> str:
        return self._show(self.state)

    def _legal_actions(self) -> tuple[str, ...]:
        return ACTIONS

    def _execute(self, action: str) -> tuple[float, bool]:
        before = self.state
        self._state = after = moved(before, action)
        return sokoban_reward(after.num_on_target - before.num_on_target, solved=after.solved), after.solved

    def _succeeded(self) -> bool:
        return self.state.solved
