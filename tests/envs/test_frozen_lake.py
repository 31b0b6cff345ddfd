"""FrozenLake: states that can be solved, dead states that cannot, the luck, the neighbours, the options."""

import math
import os
import subprocess
import sys
from collections import deque

import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.envs import FrozenLake, LakeState, shortest_moves
from tether.errors import ConfigError, InputError
from tether.randomness import keyed_rng

ACTIONS = ("Left", "Down", "Right", "Up")

CONFIGURATIONS = {
    "default": {},
    "validation": {"split": "validation"},
    "single turn": {"max_turns": 1, "actions_per_turn": 4, "holes": 2, "min_distance": 1},
    "far": {"min_distance": 5, "holes": 4},
    "frozen probability": {"frozen_probability": 0.7},
    "large": {"size": 7, "holes": 12, "max_turns": 6},
    "small": {"size": 2, "holes": 0, "min_distance": 1},
    "slippery": {"success_rate": 0.8},
    "Gymnasium's default slip": {"success_rate": 1 / 3, "split": "validation"},
    "never as intended": {"success_rate": 0.0},
}


def parse(text: str, size: int) -> LakeState:
    """Read the coordinates view back."""
    tokens = text.split()
    points = {"P": [], "G": [], "H": []}
    for symbol, cell in zip(tokens[::2], tokens[1::2], strict=True):
        row, col = map(int, cell.split(","))
        points[symbol].append((row, col))
    (player,), (goal,) = points["P"], points["G"]
    return LakeState(size, player, goal, tuple(points["H"]))


def gymnasium_env(state: LakeState, success_rate: float = 1.0) -> FrozenLakeEnv:
    rows = [["F"] * state.size for _ in range(state.size)]
    for (row, col), tile in [(state.goal, "G"), (state.player, "S"), *((hole, "H") for hole in state.holes)]:
        rows[row][col] = tile
    return FrozenLakeEnv(desc=["".join(row) for row in rows], is_slippery=success_rate < 1, success_rate=success_rate)


def solve(state: LakeState) -> list[str] | None:
    """Return the shortest plan, by breadth-first search on Gymnasium's deterministic table."""
    table = gymnasium_env(state).P
    start = state.player[0] * state.size + state.player[1]
    goal = state.goal[0] * state.size + state.goal[1]
    queue, seen = deque([(start, [])]), {start}
    while queue:
        cell, plan = queue.popleft()
        if cell == goal:
            return plan
        for action, outcomes in table[cell].items():
            target = outcomes[0][1]
            if target not in seen:
                seen.add(target)
                queue.append((target, [*plan, ACTIONS[action]]))
    return None


def success_probability(state: LakeState, success_rate: float, budget: int) -> float:
    """Return the largest chance to reach the goal within the budget, by value iteration on Gymnasium's table."""
    table = gymnasium_env(state, success_rate).P
    values = dict.fromkeys(table, 0.0)
    for _ in range(budget):
        values = {
            cell: max(sum(p * (r + values[to] * (not end)) for p, to, r, end in outcomes) for outcomes in acts.values())
            for cell, acts in table.items()
        }
    return values[state.player[0] * state.size + state.player[1]]


def play(env: FrozenLake, plan: list[str]) -> tuple[float, dict]:
    """Give the plan turn by turn; return the summed reward and the last info."""
    total, width = 0.0, env.actions_per_turn
    for begin in range(0, len(plan), width):
        _, reward, terminated, truncated, info = env.step(" || ".join(plan[begin : begin + width]))
        total += reward
        if terminated or truncated:
            break
    return total, info


@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_every_state_can_be_solved_within_its_budget(options):
    env = FrozenLake(**options)
    budget = env.max_turns * env.actions_per_turn
    for seed in range(150):
        env.reset(seed)
        plan = solve(env.state)
        assert plan is not None
        assert env.min_distance <= len(plan) <= budget
        if env.success_rate == 1:
            total, info = play(env, plan)
            assert (total, info["success"]) == (1.0, True)
        else:
            assert success_probability(env.state, env.success_rate, budget) > 0


@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_states_are_as_configured(options):
    env = FrozenLake(**options)
    for seed in range(100):
        text, info = env.reset(seed)
        state = env.state
        assert parse(text, env.size) == state
        assert info == {"dead": False}
        assert env.holes is None or len(state.holes) == env.holes
        assert list(state.holes) == sorted(set(state.holes))
        assert not state.finished
        assert state.goal not in state.holes


@pytest.mark.parametrize("options", [{}, {"holes": 2}, {"size": 6, "frozen_probability": 0.8}, {"success_rate": 0.5}])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_dead_states_never_pay(options, split):
    env = FrozenLake(dead_share=1, split=split, **options)
    for seed in range(100):
        _, info = env.reset(seed)
        assert info == {"dead": True}
        state = env.state
        assert state.goal in {(r, c) for r in (0, env.size - 1) for c in (0, env.size - 1)}
        assert not state.finished
        assert env.holes is None or len(state.holes) == env.holes
        table = gymnasium_env(state, 0.5).P  # slips reach every cell that any success rate reaches
        start = state.player[0] * state.size + state.player[1]
        queue, seen = [start], {start}
        for cell in queue:
            for outcomes in table[cell].values():
                for _, target, reward, _ in outcomes:
                    assert reward == 0
                    if target not in seen:
                        seen.add(target)
                        queue.append(target)


def test_dead_states_come_with_their_share_and_leave_the_live_ones_as_they_are():
    live, mixed = FrozenLake(), FrozenLake(dead_share=0.3)
    num_dead = 0
    for seed in range(3000):
        text, info = mixed.reset(seed)
        num_dead += info["dead"]
        assert info["dead"] or text == live.reset(seed)[0]
    assert abs(num_dead / 3000 - 0.3) < 5 * math.sqrt(0.3 * 0.7 / 3000)


def test_the_split_does_not_change_the_share_of_dead_states():
    """With two holes there are 52 dead lakes; how many of them are validation states must not matter."""
    env = FrozenLake(holes=2, dead_share=0.5, split="validation")
    share = sum(env.reset(seed)[1]["dead"] for seed in range(2000)) / 2000
    assert abs(share - 0.5) < 5 * math.sqrt(0.25 / 2000)


def test_starts_and_goals_cover_the_lake():
    env = FrozenLake()
    states = [env.reset(seed) and env.state for seed in range(1000)]
    for cells in ([s.player for s in states], [s.goal for s in states], [hole for s in states for hole in s.holes]):
        assert len(set(cells)) == 16


def test_same_seed_same_state_in_another_process():
    code = (
        "from tether.envs import FrozenLake, Bandit\n"
        "for env in (FrozenLake(dead_share=0.5), FrozenLake(split='validation', view='grid'), Bandit()):\n"
        "    for seed in range(20): print(env.reset(seed))\n"
    )
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
    here = FrozenLake(dead_share=0.5)
    assert runs[0] == runs[1]
    assert runs[0].splitlines()[:20] == [str(here.reset(seed)) for seed in range(20)]


def test_seeds_keep_their_states():
    """Stored episodes name their state by its seed, so a change of the draws would break them in silence."""
    env = FrozenLake()
    assert [env.reset(seed)[0] for seed in (0, 1, 2**62)] == [
        "P 1,2 G 3,1 H 1,1 H 2,2 H 3,2",
        "P 3,1 G 1,1 H 0,1 H 3,0 H 3,2",
        "P 0,0 G 1,1 H 0,2 H 1,2 H 3,1",
    ]


def test_the_luck_follows_the_noise_seed_and_not_the_state():
    env = FrozenLake(success_rate=0.5)

    def episode(noise_seed):
        first, _ = env.reset(4, noise_seed=noise_seed)
        steps = [first]
        for _ in range(env.max_turns):
            text, _, terminated, truncated, _ = env.step("Left || Right")
            steps.append(text)
            if terminated or truncated:
                break
        return steps

    episodes = [episode(noise_seed) for noise_seed in range(30)]
    assert len({steps[0] for steps in episodes}) == 1
    assert len({tuple(steps) for steps in episodes}) > 5
    assert episode(3) == episode(3)
    assert episode(None) == episode(None)


@pytest.mark.parametrize("success_rate", [1 / 3, 0.8, 0.98, 0.0])
def test_episodes_are_gymnasiums_draw_by_draw(success_rate):
    env = FrozenLake(success_rate=success_rate, actions_per_turn=1, max_turns=40)
    for seed in range(20):
        env.reset(seed, noise_seed=seed + 100)
        other = gymnasium_env(env.state, success_rate)
        other.reset(seed=0)
        other.np_random = keyed_rng(seed + 100, "noise")
        choose = keyed_rng(seed, "actions")
        done = False
        while not done:
            action = int(choose.integers(4))
            _, reward, terminated, truncated, _ = env.step(ACTIONS[action])
            cell, expected_reward, expected_end, _, _ = other.step(action)
            assert env.state.player == divmod(cell, env.size)
            assert (reward, terminated) == (expected_reward, expected_end)
            done = terminated or truncated


@pytest.mark.parametrize(
    "options", [{}, {"holes": 1, "min_distance": 1}, {"frozen_probability": 0.8}, {"dead_share": 0.5}, {"size": 6}]
)
def test_neighbours_differ_in_one_detail_that_changes_what_to_do(options):
    env = FrozenLake(**options)
    for seed in range(12):
        env.reset(seed)
        state, neighbours = env.state, [parse(text, env.size) for text in env.neighbours(seed)]
        assert neighbours
        assert len(set(neighbours)) == len(neighbours)
        for other in neighbours:
            changes = (state.player != other.player) + (state.goal != other.goal)
            swapped = set(state.holes) ^ set(other.holes)
            assert changes + len(swapped) // 2 == 1
            assert len(swapped) in (0, 2)
            assert shortest_moves(other) != shortest_moves(state)
            assert env.min_distance <= len(solve(other)) <= env.max_turns * env.actions_per_turn


def test_every_kind_of_detail_is_among_the_neighbours():
    env = FrozenLake()
    env.reset(0)
    others = [parse(text, 4) for text in env.neighbours(0)]
    assert any(other.player != env.state.player for other in others)
    assert any(other.goal != env.state.goal for other in others)
    assert any(
        other.holes != env.state.holes for seed in range(20) for other in [parse(t, 4) for t in env.neighbours(seed)]
    )


def test_neighbours_leave_the_running_episode_alone():
    env = FrozenLake()
    env.reset(1)
    before = env.state
    env.neighbours(2)
    assert env.state == before


def test_a_hole_ends_the_episode_and_the_text_says_where():
    env = FrozenLake(holes=8, min_distance=1)
    for seed in range(50):
        env.reset(seed)
        falls = [a for a in ACTIONS if (c := _target(env.state, a)) in env.state.holes and c != env.state.player]
        if falls:
            break
    hole = _target(env.state, falls[0])
    text, reward, terminated, truncated, info = env.step(falls[0])
    assert text.startswith(f"P {hole[0]},{hole[1]} ")
    assert f"H {hole[0]},{hole[1]}" in text
    assert (reward, terminated, truncated, info["success"]) == (0.0, True, False, False)


def _target(state, action):
    row, col = state.player
    d_row, d_col = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}[action]
    return (min(max(row + d_row, 0), state.size - 1), min(max(col + d_col, 0), state.size - 1))


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**63 - 1), st.sampled_from(["train", "validation"]), st.lists(st.sampled_from(ACTIONS), max_size=10)
)
def test_both_views_tell_the_same_story(seed, split, plan):
    worded, drawn = FrozenLake(split=split), FrozenLake(split=split, view="grid")
    shown = [(worded.reset(seed)[0], drawn.reset(seed)[0])]
    for action in plan:
        one, other = worded.step(action), drawn.step(action)
        assert one[1:] == other[1:]
        shown.append((one[0], other[0]))
        if one[2] or one[3]:
            break
    for words, picture in shown:
        state = parse(words, 4)
        symbols = {(r, c): s for r, line in enumerate(picture.splitlines()) for c, s in enumerate(line.split())}
        assert symbols[state.player] == ("X" if state.player in state.holes else "√" if state.at_goal else "P")
        assert all(symbols[hole] == "O" for hole in state.holes if hole != state.player)
        assert symbols[state.goal] == "G" or state.at_goal
        assert sum(symbol == "_" for symbol in symbols.values()) == 16 - len({state.player, state.goal, *state.holes})


def test_instructions_are_those_of_the_instance():
    words = FrozenLake(size=5, success_rate=0.8, max_turns=3).instructions
    for part in (
        "5 x 5",
        "P row,column",
        "G row,column",
        "H row,column",
        "is 4.",
        "0.8",
        "0.1",
        "||",
        "2 actions",
        "3 turns",
    ):
        assert part in words
    assert "√" not in words
    picture = FrozenLake(view="grid", max_turns=1, actions_per_turn=1, min_distance=1).instructions
    for symbol in "P_OGX√":
        assert symbol in picture
    assert "slippery" not in picture
    assert "||" not in picture
    assert "1 turn." in picture
    for action in ACTIONS:
        assert action in words
        assert action in picture


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 1}, "size is 1; expected an integer from 2 to 100"),
        ({"size": True}, "size is True"),
        ({"holes": 15}, "holes is 15; expected an integer from 0 to 14"),
        ({"holes": 1, "dead_share": 0.1}, r"holes is 1; expected an integer from 2 to 14 \(a dead state"),
        ({"holes": 2, "frozen_probability": 0.5}, "expected one of the two"),
        ({"frozen_probability": 1.5}, "frozen_probability is 1.5; expected a number from 0 to 1"),
        ({"success_rate": math.nan}, "success_rate is nan"),
        ({"success_rate": "0.8"}, "success_rate is '0.8'"),
        ({"dead_share": -0.1}, "dead_share is -0.1"),
        ({"min_distance": 11}, r"min_distance is 11; expected an integer from 1 to 10 \(max_turns \* actions_per_turn"),
        ({"min_distance": 0}, "min_distance is 0"),
        ({"max_turns": 0}, "max_turns is 0"),
        ({"actions_per_turn": 0}, "actions_per_turn is 0"),
        ({"view": "gird"}, "view is 'gird'; expected one of coordinates, grid; did you mean 'grid'?"),
        ({"split": "test"}, "split is 'test'; expected one of train, validation"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        FrozenLake(**options)


def test_options_that_no_lake_satisfies_are_refused_at_reset():
    with pytest.raises(ConfigError, match="no train state found"):
        FrozenLake(holes=14, min_distance=2).reset(0)


def test_state_before_the_first_reset_is_refused():
    with pytest.raises(InputError, match="reset"):
        _ = FrozenLake().state
