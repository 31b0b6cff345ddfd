"""A frozen lake as plain data: its dynamics, its distances, and the two views of it.

The dynamics are those of ``gymnasium.envs.toy_text.FrozenLakeEnv`` (1.4), slip probabilities and their order included;
the tests compare every transition. They are written out because building that environment takes longer than playing
an episode. Cells are (row, column) from the top left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tether.errors import InputError, did_you_mean

Cell = tuple[int, int]

ACTIONS = ("Left", "Down", "Right", "Up")  # in Gymnasium's order: the neighbours of an action are its slips


@dataclass(frozen=True, slots=True)
class LakeState:
    """A lake and the player on it; ``holes`` are in row-major order."""

    size: int
    player: Cell
    goal: Cell
    holes: tuple[Cell, ...]

    @property
    def at_goal(self) -> bool:
        """Whether the player has arrived."""
        return self.player == self.goal

    @property
    def finished(self) -> bool:
        """Whether the player is at the goal or in a hole, where every move ends."""
        return self.at_goal or self.player in self.holes

    def with_player(self, player: Cell) -> LakeState:
        """Return the same lake with the player elsewhere."""
        return LakeState(self.size, player, self.goal, self.holes)


@lru_cache(maxsize=64)
def moves_from(size: int) -> dict[Cell, tuple[Cell, ...]]:
    """Return for each cell where the four actions lead; the edge stops a move."""
    last = size - 1
    return {
        (row, col): (
            (row, max(col - 1, 0)),
            (min(row + 1, last), col),
            (row, min(col + 1, last)),
            (max(row - 1, 0), col),
        )
        for row in range(size)
        for col in range(size)
    }


def transitions(state: LakeState, action: str, *, success_rate: float = 1.0) -> tuple[tuple[float, Cell], ...]:
    """Return (probability, next cell) of one action, as in the table ``P`` of Gymnasium's environment.

    The player goes as intended with probability ``success_rate``, else to either side with equal probability.

    >>> transitions(LakeState(2, (0, 0), (1, 1), ()), "Right", success_rate=0.8)
    ((0.09999999999999998, (1, 0)), (0.8, (0, 1)), (0.09999999999999998, (0, 0)))
    """
    if action not in ACTIONS:
        raise InputError(f"action is {action!r}; expected one of {', '.join(ACTIONS)}{did_you_mean(action, ACTIONS)}")
    if state.finished:
        return ((1.0, state.player),)
    targets = moves_from(state.size)[state.player]
    intended = ACTIONS.index(action)
    if success_rate == 1.0:
        return ((1.0, targets[intended]),)
    slip = (1.0 - success_rate) / 2.0
    return (slip, targets[intended - 1]), (success_rate, targets[intended]), (slip, targets[(intended + 1) % 4])


def distances_to_goal(state: LakeState) -> dict[Cell, int]:
    """Return the number of moves to the goal, without slips, of every cell from which it can be reached.

    >>> distances_to_goal(LakeState(2, (0, 0), (1, 1), ((0, 1),)))
    {(1, 1): 0, (1, 0): 1, (0, 0): 2}
    """
    moves = moves_from(state.size)
    distances = {state.goal: 0}
    frontier = [state.goal]
    for cell in frontier:
        farther = distances[cell] + 1
        for reached in moves[cell]:
            if reached not in distances and reached not in state.holes:
                distances[reached] = farther
                frontier.append(reached)
    return distances


def shortest_moves(state: LakeState) -> tuple[str, ...]:
    """Return every action that begins a shortest path, without slips; none at the goal, in a hole, or without a path.

    >>> shortest_moves(LakeState(3, (0, 0), (2, 2), ((1, 1),)))
    ('Down', 'Right')
    """
    distances = distances_to_goal(state)
    here = distances.get(state.player, 0)
    targets = moves_from(state.size)[state.player]
    return tuple(action for action, target in zip(ACTIONS, targets, strict=True) if distances.get(target, here) < here)


def coordinates(state: LakeState) -> str:
    """Return the coordinates view; it also serves as the canonical content of a state.

    >>> coordinates(LakeState(4, (0, 1), (3, 3), ((1, 1), (2, 0))))
    'P 0,1 G 3,3 H 1,1 H 2,0'
    """
    named = [("P", state.player), ("G", state.goal), *(("H", hole) for hole in state.holes)]
    return " ".join(f"{symbol} {row},{col}" for symbol, (row, col) in named)


def grid(state: LakeState) -> str:
    """Return the grid view: one line a row, symbols separated by blanks.

    >>> print(grid(LakeState(2, (0, 1), (1, 1), ((0, 1),))))
    _ X
    _ G
    """
    symbols = [["_"] * state.size for _ in range(state.size)]
    for row, col in state.holes:
        symbols[row][col] = "O"
    symbols[state.goal[0]][state.goal[1]] = "G"
    player = "√" if state.at_goal else "X" if state.finished else "P"
    symbols[state.player[0]][state.player[1]] = player
    return "\n".join(" ".join(row) for row in symbols)


def variants(state: LakeState) -> Iterator[LakeState]:
    """Yield every state in which the player, the goal or one hole is on another, free cell."""
    free = [c for c in moves_from(state.size) if c not in state.holes and c not in (state.player, state.goal)]
    for cell in free:
        yield state.with_player(cell)
        yield LakeState(state.size, state.player, cell, state.holes)
        for hole in state.holes:
            yield LakeState(state.size, state.player, state.goal, tuple(sorted({*state.holes, cell} - {hole})))
