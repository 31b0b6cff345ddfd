"""The Sokoban room: every kind of move, rewards in closed form, distances against a search forwards, the views."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.envs.sokoban_room import (
    ACTIONS,
    SokobanState,
    coordinates,
    distances_to_solved,
    grid,
    moved,
    moved_variants,
    shortest_moves,
    sokoban_reward,
    target_variants,
)
from tether.errors import InputError


def read(text: str) -> SokobanState:
    """Read the grid view; the outermost cells are walls."""
    rows = [line.split() for line in text.strip().splitlines()]
    cells = {(r, c): symbol for r, row in enumerate(rows) for c, symbol in enumerate(row)}
    last = len(rows) - 1

    def where(symbols):
        return tuple(sorted(cell for cell, symbol in cells.items() if symbol in symbols))

    walls = tuple(cell for cell in where("#") if not {0, last} & set(cell))
    (player,) = where("PS")
    return SokobanState(len(rows), walls, where("O√S"), player, where("X√"))


def corridor(cells: str) -> SokobanState:
    """A room with one row of floor, the second; the rest is filled with walls."""
    size = len(cells) + 2
    line = " ".join(["#", *cells, "#"])
    return read("\n".join([" ".join("#" * size), line, *[" ".join("#" * size)] * (size - 2)]))


def row_of(state: SokobanState) -> str:
    return grid(state).splitlines()[1].replace(" ", "")[1:-1]


@pytest.mark.parametrize(
    ("before", "action", "after"),
    [
        ("P____", "Right", "_P___"),  # a step
        ("P____", "Left", "P____"),  # a wall
        ("P____", "Up", "P____"),
        ("P____", "Down", "P____"),
        ("PX_O_", "Right", "_PXO_"),  # a push
        ("PXO__", "Right", "_P√__"),  # onto a target
        ("P√__O", "Right", "_SX_O"),  # off a target
        ("P√O__", "Right", "_S√__"),  # from target to target
        ("_OX_P", "Left", "_OXP_"),
        ("O__XP", "Left", "O_XP_"),
        ("O_PX_", "Left", "OP_X_"),  # away from a box: nothing is pulled
        ("O__PX", "Right", "O__PX"),  # a box against the wall
        ("PXXOO", "Right", "PXXOO"),  # two boxes at once
        ("PX√O_", "Right", "PX√O_"),
        ("PO_X_", "Right", "_S_X_"),  # onto a target
        ("_SX__", "Left", "POX__"),
    ],
)
def test_moves(before, action, after):
    assert row_of(moved(corridor(before), action)) == after


def test_a_push_goes_in_all_four_directions():
    for direction, (row, col) in zip(ACTIONS, [(-1, 0), (1, 0), (0, -1), (0, 1)], strict=True):
        state = SokobanState(7, (), ((1, 1),), (3 - row, 3 - col), ((3, 3),))
        after = moved(state, direction)
        assert (after.player, after.boxes) == ((3, 3), ((3 + row, 3 + col),))


def test_unknown_actions_are_refused():
    with pytest.raises(InputError, match="did you mean 'Left'"):
        moved(corridor("PX_O_"), "Leftt")


@pytest.mark.parametrize(
    ("gained", "solved", "reward"),
    [(0, False, -0.1), (1, False, 0.9), (-1, False, -1.1), (1, True, 10.9)],
)
def test_rewards(gained, solved, reward):
    assert sokoban_reward(gained, solved=solved) == pytest.approx(reward, abs=1e-12)


def test_views():
    text = "# # # # # #\n# P _ O # #\n# X √ _ _ #\n# _ _ _ _ #\n# _ _ # _ #\n# # # # # #"
    state = read(text)
    assert grid(state) == text
    assert coordinates(state) == "P 1,1 X 2,1 X 2,2 O 1,3 O 2,2 # 1,4 # 4,3"
    assert (state.num_on_target, state.solved) == (1, False)


def solve(state: SokobanState, limit: int) -> int | None:
    """Return the number of moves of the shortest solution, by a search forwards through the dynamics."""
    queue, seen = deque([(state, 0)]), {state}
    while queue:
        here, num_moves = queue.popleft()
        if here.solved:
            return num_moves
        if num_moves < limit:
            for action in ACTIONS:
                there = moved(here, action)
                if there not in seen:
                    seen.add(there)
                    queue.append((there, num_moves + 1))
    return None


@st.composite
def rooms(draw):
    size = draw(st.integers(5, 6))
    cells = [(row, col) for row in range(1, size - 1) for col in range(1, size - 1)]
    num_boxes, num_walls = draw(st.integers(1, 2)), draw(st.integers(0, 4))
    mixed = draw(st.permutations(cells))
    walls, rest = sorted(mixed[:num_walls]), mixed[num_walls:]
    boxes, player = sorted(rest[:num_boxes]), rest[num_boxes]
    targets = sorted(draw(st.permutations(rest))[:num_boxes])
    return SokobanState(size, tuple(walls), tuple(targets), player, tuple(boxes))


@settings(max_examples=60, deadline=None)
@given(rooms(), st.integers(0, 14))
def test_distances_are_those_of_a_search_forwards(state, limit):
    distances = distances_to_solved(state, limit=limit)
    assert distances.get(state.position) == solve(state, limit)
    assert max(distances.values(), default=0) <= limit


@settings(max_examples=60, deadline=None)
@given(rooms())
def test_shortest_moves_are_those_that_come_one_nearer(state):
    here = solve(state, 12)
    nearer = [action for action in ACTIONS if here and solve(moved(state, action), 12) == here - 1]
    assert list(shortest_moves(state, limit=12)) == nearer


@settings(max_examples=60, deadline=None)
@given(rooms(), st.lists(st.sampled_from(ACTIONS), max_size=20))
def test_boxes_stay_apart_and_on_the_floor(state, actions):
    for action in actions:
        before, state = state, moved(state, action)
        occupied = [state.player, *state.boxes]
        assert len(set(occupied)) == len(occupied) == len(before.boxes) + 1
        assert not set(occupied) & set(state.walls)
        assert all(0 < row < state.size - 1 and 0 < col < state.size - 1 for row, col in occupied)
        assert list(state.boxes) == sorted(state.boxes)
        assert (state.walls, state.targets) == (before.walls, before.targets)
        assert len(set(before.boxes) - set(state.boxes)) <= 1


def test_a_large_room_is_searched_less_far_and_still_exactly():
    state = SokobanState(10, (), ((2, 2), (2, 5), (5, 2), (5, 5)), (1, 1), ((3, 3), (3, 5), (6, 6), (7, 2)))
    distances = distances_to_solved(state, limit=1000)
    assert 20_000 < len(distances) < 200_000
    farthest = max(distances.values())
    assert farthest < 1000
    for position in list(distances)[:: len(distances) // 40]:
        if distances[position] <= 5:
            assert solve(state.at(position), 5) == distances[position]


def test_variants_differ_in_one_thing():
    state = read("# # # # #\n# P X _ #\n# _ # _ #\n# O _ _ #\n# # # # #")
    others = moved_variants(state)
    assert len(others) == len(set(others)) == 2 * 5
    assert all((other.player != state.player) + (other.boxes != state.boxes) == 1 for other in others)
    assert {(other.walls, other.targets) for other in others} == {(state.walls, state.targets)}
    others = target_variants(state)
    assert len(others) == len({other.targets for other in others}) == 5
    assert {other.position for other in others} == {state.position}
