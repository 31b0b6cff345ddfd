"""The dynamics, distances and views of a lake, against Gymnasium."""

from collections import deque

import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.envs.lake import ACTIONS, LakeState, coordinates, distances_to_goal, grid, shortest_moves, transitions


@st.composite
def lakes(draw):
    """Any lake: the player may stand anywhere, the goal is not a hole."""
    size = draw(st.integers(2, 5))
    cells = [(row, col) for row in range(size) for col in range(size)]
    goal = draw(st.sampled_from(cells))
    holes = draw(st.sets(st.sampled_from([cell for cell in cells if cell != goal])))
    return LakeState(size, draw(st.sampled_from(cells)), goal, tuple(sorted(holes)))


def gymnasium_table(state, **options):
    """Return Gymnasium's P for this lake, with cells as (row, column)."""
    rows = [["F"] * state.size for _ in range(state.size)]
    rows[state.goal[0]][state.goal[1]] = "G"
    for row, col in state.holes:
        rows[row][col] = "H"
    # Gymnasium wants a start tile, which is frozen; any frozen cell serves, as P does not depend on it.
    frozen = [(r, c) for r in range(state.size) for c in range(state.size) if rows[r][c] == "F"]
    if frozen:
        rows[frozen[0][0]][frozen[0][1]] = "S"
    table = FrozenLakeEnv(desc=["".join(row) for row in rows], **options).P
    return {
        divmod(cell, state.size): {
            ACTIONS[action]: [(p, divmod(int(to), state.size), reward, bool(end)) for p, to, reward, end in outcomes]
            for action, outcomes in actions.items()
        }
        for cell, actions in table.items()
    }


def steps_to_goal(state):
    """Breadth-first search forward on Gymnasium's deterministic table, from every cell on its own."""
    table = gymnasium_table(state, is_slippery=False)
    steps = {}
    for start in table:
        queue, seen = deque([(start, 0)]), {start}
        while queue:
            cell, distance = queue.popleft()
            if cell == state.goal:
                steps[start] = distance
                break
            for outcomes in table[cell].values():
                target = outcomes[0][1]
                if target not in seen:
                    seen.add(target)
                    queue.append((target, distance + 1))
    return steps


@settings(max_examples=60, deadline=None)
@given(lakes().filter(lambda lake: len(lake.holes) < lake.size**2 - 1), st.sampled_from([0.0, 1 / 3, 0.8, 0.98]))
def test_slippery_transitions_are_gymnasiums_in_every_cell(lake, success_rate):
    for cell, actions in gymnasium_table(lake, is_slippery=True, success_rate=success_rate).items():
        here = lake.with_player(cell)
        for action, expected in actions.items():
            ours = transitions(here, action, success_rate=success_rate)
            assert [(p, target) for p, target, _, _ in expected] == list(ours)
            for _, target, reward, ended in expected:
                there = here.with_player(target)
                assert ended == there.finished
                assert reward == float(there.at_goal and not here.finished)


@settings(max_examples=60, deadline=None)
@given(lakes().filter(lambda lake: len(lake.holes) < lake.size**2 - 1))
def test_deterministic_transitions_are_gymnasiums_in_every_cell(lake):
    for cell, actions in gymnasium_table(lake, is_slippery=False).items():
        for action, expected in actions.items():
            assert transitions(lake.with_player(cell), action) == tuple((p, target) for p, target, _, _ in expected)


@settings(max_examples=40, deadline=None)
@given(lakes().filter(lambda lake: len(lake.holes) < lake.size**2 - 1))
def test_distances_and_first_moves_are_those_of_a_search_on_gymnasiums_table(lake):
    steps = steps_to_goal(lake)
    assert distances_to_goal(lake) == steps
    table = gymnasium_table(lake, is_slippery=False)
    for cell in table:
        best = [
            action for action, outcomes in table[cell].items() if steps.get(outcomes[0][1], 99) < steps.get(cell, 0)
        ]
        assert list(shortest_moves(lake.with_player(cell))) == best


def test_no_first_move_at_the_goal_in_a_hole_and_without_a_path():
    lake = LakeState(3, (0, 0), (2, 2), ((1, 2), (2, 1)))
    assert shortest_moves(lake) == ()
    assert shortest_moves(lake.with_player((2, 2))) == ()
    assert shortest_moves(lake.with_player((1, 2))) == ()
    assert distances_to_goal(lake) == {(2, 2): 0}


def test_unknown_action_is_refused():
    with pytest.raises(ValueError, match="Jump"):
        transitions(LakeState(2, (0, 0), (1, 1), ()), "Jump")


def test_views_of_a_player_on_ice_in_a_hole_and_at_the_goal():
    lake = LakeState(3, (0, 1), (2, 0), ((1, 1), (2, 2)))
    assert coordinates(lake) == "P 0,1 G 2,0 H 1,1 H 2,2"
    assert grid(lake) == "_ P _\n_ O _\nG _ O"
    assert coordinates(lake.with_player((1, 1))) == "P 1,1 G 2,0 H 1,1 H 2,2"
    assert grid(lake.with_player((1, 1))) == "_ _ _\n_ X _\nG _ O"
    assert grid(lake.with_player((2, 0))) == "_ _ _\n_ O _\n√ _ O"


@given(lakes(), lakes())
def test_different_lakes_of_one_size_look_different_in_coordinates(one, other):
    assert (coordinates(one) == coordinates(other)) == (one == other) or one.size != other.size
