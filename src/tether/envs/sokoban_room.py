"""A Sokoban room as plain data: its dynamics, its rewards, its distances, and the two views of it.

The dynamics and rewards are those of gym-sokoban, which RAGEN uses. Cells are (row, column) from the top left; the
outermost rows and columns are walls, the walls inside are listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tether.errors import InputError, did_you_mean

Cell = tuple[int, int]
Position = tuple[Cell, tuple[Cell, ...]]  # the player, and the boxes in row-major order
Floor = dict[Cell, tuple[Cell | None, ...]]

ACTIONS = ("Up", "Down", "Left", "Right")  # action i and action i ^ 1 are opposite
_STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))

_ACTION_REWARD = -0.1
_BOX_REWARD = 1.0
_SOLVED_REWARD = 10.0
_MAX_POSITIONS = 20_000


@dataclass(frozen=True, slots=True)
class SokobanState:
    """A room and what is in it; ``walls`` inside, ``targets`` and ``boxes`` are in row-major order."""

    size: int
    walls: tuple[Cell, ...]
    targets: tuple[Cell, ...]
    player: Cell
    boxes: tuple[Cell, ...]

    @property
    def position(self) -> Position:
        """What moves: the player and the boxes."""
        return self.player, self.boxes

    @property
    def num_on_target(self) -> int:
        """How many boxes are on a target."""
        return sum(box in self.targets for box in self.boxes)

    @property
    def solved(self) -> bool:
        """Whether every box is on a target."""
        return self.boxes == self.targets

    def at(self, position: Position) -> SokobanState:
        """Return the same room with the player and the boxes elsewhere."""
        return SokobanState(self.size, self.walls, self.targets, *position)


@lru_cache(maxsize=64)
def floor_of(size: int, walls: tuple[Cell, ...]) -> Floor:
    """Return for each cell of the floor where the four actions lead; None is a wall."""
    inner = range(1, size - 1)
    cells = {(row, col) for row in inner for col in inner if (row, col) not in walls}
    return {
        (row, col): tuple((row + d, col + e) if (row + d, col + e) in cells else None for d, e in _STEPS)
        for row, col in sorted(cells)
    }


def moved(state: SokobanState, action: str) -> SokobanState:
    """Return the state after one action: a step, a push, or the same state where a wall or a second box is in the way.

    >>> moved(SokobanState(5, (), ((1, 3),), (1, 1), ((1, 2),)), "Right").solved
    True
    """
    if action not in ACTIONS:
        raise InputError(f"action is {action!r}; expected one of {', '.join(ACTIONS)}{did_you_mean(action, ACTIONS)}")
    direction, floor = ACTIONS.index(action), floor_of(state.size, state.walls)
    ahead = floor[state.player][direction]
    if ahead is None:
        return state
    if ahead not in state.boxes:
        return replace(state, player=ahead)
    beyond = floor[ahead][direction]
    if beyond is None or beyond in state.boxes:
        return state
    return state.at((ahead, _with_one_moved(state.boxes, ahead, beyond)))


def sokoban_reward(num_gained: int, *, solved: bool) -> float:
    """Return the reward of one action: -0.1, +1 for a box onto a target, -1 for a box off it, +10 if all are on one.

    Args:
        num_gained: Boxes on targets after the action, less those before it.
        solved: Whether the action solved the room.

    >>> sokoban_reward(1, solved=True)
    10.9
    """
    return _ACTION_REWARD + _BOX_REWARD * num_gained + _SOLVED_REWARD * solved


def distances_to_solved(state: SokobanState, *, limit: int) -> dict[Position, int]:
    """Return the number of moves to the solved room of every position from which it takes at most ``limit``.

    Plays backwards from the solved room, breadth first, so the numbers are exact; the room and its targets matter, not
    where the state has its player and boxes. In a large room it goes back fewer moves, once it has 20,000 positions.

    >>> distances_to_solved(SokobanState(5, (), ((1, 3),), (1, 1), ((1, 2),)), limit=3)[(1, 1), ((1, 2),)]
    1
    """
    return _distances(state.size, state.walls, state.targets, limit)


@lru_cache(maxsize=8)
def _distances(size: int, walls: tuple[Cell, ...], targets: tuple[Cell, ...], limit: int) -> dict[Position, int]:
    floor = floor_of(size, walls)
    layer: list[Position] = [(player, targets) for player in floor if player not in targets]
    distances = dict.fromkeys(layer, 0)
    for num_moves in range(1, limit + 1):
        if not layer or len(distances) > _MAX_POSITIONS:
            break
        earlier = dict.fromkeys(before for after in layer for before in _predecessors(floor, *after))
        layer = [position for position in earlier if position not in distances]
        distances.update(dict.fromkeys(layer, num_moves))
    return distances


def _predecessors(floor: Floor, player: Cell, boxes: tuple[Cell, ...]) -> Iterator[Position]:
    """Yield every position from which one step or push leads here."""
    for direction in range(len(ACTIONS)):
        origin = floor[player][direction ^ 1]
        if origin is None or origin in boxes:
            continue
        yield origin, boxes
        pushed = floor[player][direction]
        if pushed in boxes:
            yield origin, _with_one_moved(boxes, pushed, player)


def _with_one_moved(cells: tuple[Cell, ...], source: Cell, destination: Cell) -> tuple[Cell, ...]:
    return tuple(sorted(destination if cell == source else cell for cell in cells))


def shortest_moves(state: SokobanState, *, limit: int) -> tuple[str, ...]:
    """Return every action that begins a shortest solution; none if it is solved or takes more than ``limit`` moves.

    >>> shortest_moves(SokobanState(5, (), ((1, 3),), (2, 1), ((1, 2),)), limit=4)
    ('Up',)
    """
    distances = distances_to_solved(state, limit=limit)
    here = distances.get(state.position, 0)
    return tuple(action for action in ACTIONS if distances.get(moved(state, action).position, here) < here)


def coordinates(state: SokobanState) -> str:
    """Return the coordinates view; with the size it is the canonical content of a state.

    >>> coordinates(SokobanState(5, ((3, 1),), ((1, 3),), (2, 1), ((1, 2),)))
    'P 2,1 X 1,2 O 1,3 # 3,1'
    """
    listed = (("P", (state.player,)), ("X", state.boxes), ("O", state.targets), ("#", state.walls))
    return " ".join(f"{symbol} {row},{col}" for symbol, cells in listed for row, col in cells)


def grid(state: SokobanState) -> str:
    """Return the grid view: one line a row, symbols separated by blanks.

    >>> print(grid(SokobanState(5, ((3, 1),), ((1, 3),), (2, 1), ((1, 2),))))
    # # # # #
    # _ X O #
    # P _ _ #
    # # _ _ #
    # # # # #
    """
    symbols = [["#"] * state.size for _ in range(state.size)]
    for row, col in floor_of(state.size, state.walls):
        symbols[row][col] = "_"
    for row, col in state.targets:
        symbols[row][col] = "O"
    for row, col in state.boxes:
        symbols[row][col] = "√" if (row, col) in state.targets else "X"
    symbols[state.player[0]][state.player[1]] = "S" if state.player in state.targets else "P"
    return "\n".join(" ".join(row) for row in symbols)


def moved_variants(state: SokobanState) -> list[SokobanState]:
    """Return every state of the same room in which the player or one box is on another, free cell."""
    free = _free_cells(state)
    players = [replace(state, player=cell) for cell in free]
    return players + [replace(state, boxes=_with_one_moved(state.boxes, b, cell)) for cell in free for b in state.boxes]


def target_variants(state: SokobanState) -> list[SokobanState]:
    """Return every state in which one target is on another, free cell."""
    return [
        replace(state, targets=_with_one_moved(state.targets, target, cell))
        for cell in _free_cells(state)
        for target in state.targets
    ]


def _free_cells(state: SokobanState) -> list[Cell]:
    taken = {state.player, *state.boxes, *state.targets}
    return [cell for cell in floor_of(state.size, state.walls) if cell not in taken]
