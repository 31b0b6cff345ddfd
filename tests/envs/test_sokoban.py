"""Sokoban: states that can be solved, rewards in closed form, the splits, the neighbours, the options."""

import os
import subprocess
import sys
from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.envs import Sokoban, SokobanState, check_environment
from tether.envs.sokoban_room import ACTIONS, distances_to_solved, moved, shortest_moves
from tether.errors import ConfigError, InputError

CONFIGURATIONS = {
    "default": {},
    "validation": {"split": "validation"},
    "grid": {"view": "grid", "split": "validation"},
    "open": {"inner_walls": 0},
    "narrow": {"inner_walls": 7, "min_distance": 1},
    "far": {"min_distance": 8},
    "two boxes": {"boxes": 2},
    "two boxes in a larger room": {"boxes": 2, "size": 7, "inner_walls": 5},
    "single turn": {"max_turns": 1, "actions_per_turn": 4, "min_distance": 1},
    "small": {"size": 5, "inner_walls": 0},
}


def parse(text: str, size: int) -> SokobanState:
    """Read the coordinates view back."""
    tokens = text.split()
    points = {"P": [], "X": [], "O": [], "#": []}
    for symbol, cell in zip(tokens[::2], tokens[1::2], strict=True):
        row, col = map(int, cell.split(","))
        points[symbol].append((row, col))
    (player,) = points["P"]
    return SokobanState(size, tuple(points["#"]), tuple(points["O"]), player, tuple(points["X"]))


def play(env: Sokoban, seed: int, plan: list[str]) -> tuple[float, bool, dict]:
    """Give the plan turn by turn; return the summed reward, whether the episode terminated, and the last info."""
    env.reset(seed)
    total, terminated, info = 0.0, False, {}
    for begin in range(0, len(plan), env.actions_per_turn):
        _, reward, terminated, truncated, info = env.step(" || ".join(plan[begin : begin + env.actions_per_turn]))
        total += reward
        assert not truncated or begin + env.actions_per_turn >= len(plan)
    return total, terminated, info


def search(env: Sokoban, seed: int) -> list[str]:
    """Return a shortest plan, breadth first, seeing nothing but the texts that the real environment gives."""
    first, _ = env.reset(seed)
    queue, seen = deque([[]]), {first}
    while queue:
        plan = queue.popleft()
        for action in ACTIONS:
            env.reset(seed)
            for earlier in plan:
                env.step(earlier)
            text, _, terminated, truncated, _ = env.step(action)
            if terminated:
                return [*plan, action]
            if text not in seen and not truncated:
                seen.add(text)
                queue.append([*plan, action])
    raise AssertionError(f"seed {seed} cannot be solved")


@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_the_checker_finds_nothing(options):
    assert check_environment(lambda: Sokoban(**options)) == []


@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_every_state_can_be_solved_within_its_budget_through_the_real_environment(options):
    env = Sokoban(**options)
    budget = env.max_turns * env.actions_per_turn
    # the same budget, one action a turn: the search steps as finely as it likes
    fine = Sokoban(**{**options, "max_turns": budget, "actions_per_turn": 1})
    for seed in range(6):
        plan = search(fine, seed)
        assert fine.reset(seed) == env.reset(seed)
        assert env.min_distance <= len(plan) <= budget
        total, terminated, info = play(env, seed, plan)
        assert (terminated, info["success"]) == (True, True)
        assert total == pytest.approx(env.boxes + 10 - 0.1 * len(plan), abs=1e-9)


@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_states_are_as_configured(options):
    env = Sokoban(**options)
    for seed in range(60):
        text, info = env.reset(seed)
        state = env.state
        assert info == {}
        assert env.view == "grid" or parse(text, env.size) == state
        assert (len(state.boxes), len(state.targets), len(state.walls)) == (env.boxes, env.boxes, env.inner_walls)
        assert not set(state.boxes) & set(state.targets)
        assert not {state.player, *state.boxes, *state.targets} & set(state.walls)
        assert state.player not in state.boxes


@pytest.mark.parametrize("options", [{}, {"boxes": 2}, {"size": 5, "inner_walls": 1}])
def test_train_and_validation_share_no_state(options):
    sides = []
    for split in ("train", "validation"):
        env = Sokoban(split=split, **options)
        sides.append({env.reset(seed) and env.state for seed in range(1500)})
    assert not sides[0] & sides[1]
    assert min(map(len, sides)) > 50


def test_the_view_changes_the_text_and_not_the_state():
    shown, drawn = Sokoban(), Sokoban(view="grid")
    for seed in range(20):
        texts = shown.reset(seed)[0], drawn.reset(seed)[0]
        assert texts[0] != texts[1]
        assert shown.state == drawn.state


def test_easy_and_hard_states_are_equally_common():
    env = Sokoban(inner_walls=0)
    lengths = Counter()
    for seed in range(900):
        env.reset(seed)
        lengths[distances_to_solved(env.state, limit=10)[env.state.position]] += 1
    assert sorted(lengths) == list(range(2, 11))
    assert all(55 < lengths[moves] < 160 for moves in range(2, 9))  # 100 each, a little more than that for the near


def test_same_seed_same_state_in_another_process():
    code = "from tether.envs import Sokoban\nfor seed in range(20): print(Sokoban(boxes=2).reset(seed)[0])\n"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": salt},
        ).stdout
        for salt in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert runs[0].splitlines() == [Sokoban(boxes=2).reset(seed)[0] for seed in range(20)]


def test_seeds_keep_their_states():
    """Stored episodes name their state by its seed, so a change of the draws would break them in silence."""
    assert [Sokoban().reset(seed)[0] for seed in (0, 1, 2**62)] == [
        "P 1,1 X 1,2 O 1,4 # 2,2 # 2,4 # 3,4",
        "P 3,2 X 2,3 O 2,2 # 1,2 # 4,1 # 4,3",
        "P 2,4 X 3,3 O 2,3 # 1,1 # 2,2 # 3,1",
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**63 - 1),
    st.sampled_from([{}, {"boxes": 2}, {"boxes": 3, "size": 7}]),
    st.lists(st.lists(st.sampled_from(ACTIONS), max_size=3), min_size=30, max_size=30),
)
def test_the_return_counts_actions_boxes_and_the_end(seed, options, answers):
    env = Sokoban(max_turns=30, min_distance=1, **options)
    env.reset(seed)
    state, num_actions, total = env.state, 0, 0.0
    for answer in answers:
        for action in answer[:2]:
            num_actions += not state.solved
            state = state if state.solved else moved(state, action)
        _, reward, terminated, truncated, info = env.step(" || ".join(answer))
        total += reward
        assert env.state == state
        if terminated or truncated:
            break
    assert terminated == info["success"] == state.solved
    # boxes put on and taken off again cancel, so what remains is how many are on a target now
    assert total == pytest.approx(-0.1 * num_actions + state.num_on_target + 10 * state.solved, abs=1e-9)


def test_bumping_into_a_wall_costs_like_any_action():
    env = Sokoban(actions_per_turn=4)
    env.reset(0)
    state = env.state
    bump = next(action for action in ACTIONS if moved(state, action) == state)
    text, reward, _, _, info = env.step(" || ".join([bump] * 3))
    assert (env.state, info["actions"]) == (state, [bump] * 3)
    assert reward == pytest.approx(-0.3)
    assert parse(text, 6) == state


def test_nothing_happens_after_the_last_box():
    env = Sokoban(actions_per_turn=10)
    env.reset(0)
    plan = []
    state = env.state
    while not state.solved:
        plan.append(shortest_moves(state, limit=50)[0])
        state = moved(state, plan[-1])
    _, reward, terminated, _, info = env.step(" || ".join([*plan, "Up"][:10]))
    assert (terminated, info["actions"]) == (True, plan)
    assert reward == pytest.approx(11 - 0.1 * len(plan))
    with pytest.raises(InputError, match="without a running episode"):
        env.step("Up")


@pytest.mark.parametrize("options", [{}, {"boxes": 2}, {"split": "validation", "inner_walls": 0}])
def test_neighbours_differ_in_one_detail_that_changes_what_to_do(options):
    env = Sokoban(**options)
    kinds = set()
    for seed in range(12):
        env.reset(seed)
        state, neighbours = env.state, [parse(text, env.size) for text in env.neighbours(seed)]
        assert len(set(neighbours)) == len(neighbours)
        for other in neighbours:
            details = [
                ("player", int(other.player != state.player)),
                ("box", len(set(other.boxes) - set(state.boxes))),
                ("target", len(set(other.targets) - set(state.targets))),
            ]
            assert sum(number for _, number in details) == 1
            kinds.update(name for name, number in details if number)
            assert other.walls == state.walls
            assert shortest_moves(other, limit=10) not in ((), shortest_moves(state, limit=10))
            assert env.min_distance <= distances_to_solved(other, limit=10)[other.position] <= 10
    assert kinds == {"player", "box", "target"}


def test_neighbours_leave_the_running_episode_alone():
    env = Sokoban()
    env.reset(1)
    before = env.state
    env.neighbours(2)
    assert env.state == before


def test_the_instructions_tell_the_room_at_hand():
    text = Sokoban(size=7, boxes=2, view="grid", max_turns=8, actions_per_turn=3).instructions
    for part in ("7 x 7 cells", "each of the 2 boxes", "√ box on a target", "at most 3 actions a turn", "8 turns"):
        assert part in text
    assert "columns 0 and 5 are walls" in Sokoban().instructions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 4}, "size is 4; expected an integer from 5 to 20"),
        ({"boxes": 0}, "boxes is 0"),
        ({"boxes": 8}, "boxes is 8; expected an integer from 1 to 7"),
        ({"inner_walls": 14}, "inner_walls is 14; expected an integer from 0 to 13"),
        ({"boxes": 2, "inner_walls": 12}, "from 0 to 11"),
        ({"view": "text"}, "view is 'text'"),
        ({"max_turns": 0}, "max_turns is 0"),
        ({"actions_per_turn": True}, "actions_per_turn is True"),
        ({"min_distance": 11}, "min_distance is 11; expected an integer from 1 to 10"),
        ({"split": "test"}, "split is 'test'"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Sokoban(**options)


def test_options_that_no_room_satisfies_are_refused():
    env = Sokoban(size=5, inner_walls=6, min_distance=10)
    with pytest.raises(ConfigError, match="no train state found in 1000 draws"):
        env.reset(0)
    with pytest.raises(InputError, match="no state yet"):
        _ = env.state
