"""Synthetic traces: what a demonstration says for a state.

A *grounded* trace names the player, the goal and the displacement between them; a *generic* one is filler that ignores
the state. The balanced grammar gives both kinds the same length and nearly the same entropy (10.92 and 10.75 nats):
4**4 paraphrases and three fillers against six fillers. The stepwise grammar of the default run also names what lies
around the player.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from tether.envs.lake import ACTIONS, Cell, LakeState, moves_from, shortest_moves
from tether.training.tiny.words import AT, FILLERS, HERE, LOOK, MOVES, NEED, THERE

Item = TypeVar("Item")


def pick(rng: np.random.Generator, items: Sequence[Item]) -> Item:
    """Return one item, uniformly."""
    return items[int(rng.integers(len(items)))]


def fill(rng: np.random.Generator, *groups: str) -> list[str]:
    """Return one filler word of each named group."""
    return [pick(rng, FILLERS[group]) for group in groups]


def displacement(here: Cell, there: Cell) -> list[str]:
    """Say how far the goal is: vertical part first, each only if it is not zero.

    >>> displacement((0, 3), (2, 2))
    ['down', '2', 'left', '1']
    """
    down, right = there[0] - here[0], there[1] - here[1]
    words: list[str] = []
    if down:
        words += ["down" if down > 0 else "up", str(abs(down))]
    if right:
        words += ["right" if right > 0 else "left", str(abs(right))]
    return words


def cell_word(cell: Cell) -> str:
    """Say a cell as the state does.

    >>> cell_word((0, 3))
    '0,3'
    """
    return f"{cell[0]},{cell[1]}"


def grounded(state: LakeState, rng: np.random.Generator) -> list[str]:
    """Name player, goal and displacement in one of 4**4 paraphrases; holes are never named."""
    return [
        pick(rng, LOOK),
        *pick(rng, HERE),
        cell_word(state.player),
        *pick(rng, THERE),
        cell_word(state.goal),
        pick(rng, NEED),
        *displacement(state.player, state.goal),
    ]


def balanced_grounded(state: LakeState, rng: np.random.Generator) -> list[str]:
    """A grounded trace behind three fillers: 10.92 nats."""
    return [*fill(rng, "opener", "verb", "manner"), *grounded(state, rng)]


def balanced_generic(rng: np.random.Generator) -> list[str]:
    """An input-blind sentence of the same shape for every state: 10.75 nats."""
    opener, verb, manner = fill(rng, "opener", "verb", "manner")
    noun, evasion, hazard = fill(rng, "noun", "evasion", "hazard")
    about = (opener, "we", verb, manner, "about", "route", "and", noun)
    return [*about, "is", "ok", "so", "need", "go", evasion, hazard]


def stepwise(state: LakeState, plan: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Name the player, the displacement, and what lies in each direction; then look one step ahead along the plan.

    Everything that decides the next two moves is said, holes included, so a policy that reads its own thought can act
    on it. A cell is one token here: to call it a hole is to find the same token behind an ``H`` of the state.
    """
    thought = [*fill(rng, "opener", "verb"), pick(rng, AT), cell_word(state.player)]
    thought += [pick(rng, NEED), *displacement(state.player, state.goal)]
    for move in MOVES:
        thought += [move, *look(state, move)]
    if not plan:
        return thought
    thought += ["then", plan[0]]
    if len(plan) > 1:
        thought += _second_step(step(state, plan[0]), plan[1], rng)
    return thought


def _second_step(state: LakeState, move: str, rng: np.random.Generator) -> list[str]:
    """Try the moves that lead towards the goal, in random order, until the planned one; name the holes on the way."""
    goalward = [word for word in displacement(state.player, state.goal) if word in MOVES]
    words: list[str] = []
    for candidate in [*rng.permutation(goalward).tolist(), move]:
        seen = look(state, candidate)
        if candidate == move or seen[-1] == "hole":
            words += [candidate, *seen]
        if candidate == move:
            break
    return words


def look(state: LakeState, move: str) -> list[str]:
    """Say which cell a move leads to and what it is; a wall has no cell.

    >>> lake = LakeState(4, (0, 1), (0, 2), ((1, 1),))
    >>> [look(lake, move) for move in ("up", "down", "right")]
    [['wall'], ['1,1', 'hole'], ['0,2', 'goal']]
    """
    cell = step(state, move).player
    if cell == state.player:
        return ["wall"]
    return [cell_word(cell), "hole" if cell in state.holes else "goal" if cell == state.goal else "ice"]


def step(state: LakeState, move: str) -> LakeState:
    """Return the lake after one move that does not slip."""
    return state.with_player(moves_from(state.size)[state.player][ACTIONS.index(move.capitalize())])


def shortest_plan(state: LakeState, rng: np.random.Generator, limit: int) -> list[str]:
    """Walk a shortest path, ties at random, for at most ``limit`` moves; in a dead state as if it had no holes."""
    if not shortest_moves(state):
        state = LakeState(state.size, state.player, state.goal, ())
    plan: list[str] = []
    while len(plan) < limit and (moves := shortest_moves(state)):
        move = pick(rng, moves)
        plan.append(move.lower())
        state = step(state, plan[-1])
    return plan


def generic(rng: np.random.Generator) -> list[str]:
    """One word of every filler group: input-blind, 9 ln 6 = 16.13 nats."""
    return fill(rng, *FILLERS)


def random_plan(rng: np.random.Generator, limit: int) -> list[str]:
    """Return 1 to ``limit`` uniform moves."""
    return [pick(rng, MOVES) for _ in range(int(rng.integers(1, limit + 1)))]


def reply(thought: Sequence[str], plan: Sequence[str]) -> str:
    """Put thought and plan into the reply format; the opening tag belongs to the prompt.

    >>> reply(["need", "down", "1"], ["down"])
    'need down 1 </think> <answer> down </answer>'
    """
    return " ".join([*thought, "</think>", "<answer>", *plan, "</answer>"])
