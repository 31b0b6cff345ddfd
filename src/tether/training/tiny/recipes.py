"""What each tiny model is shown before reinforcement learning: environment, mixture of traces, size, schedule.

The mixture is planted on purpose. ``balanced`` and ``template`` are the two ends of the demo's arms (a start that mixes
grounded and generic traces, and a reference that is almost only generic); ``lake`` is the start of the default run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tether.envs import Environment, FrozenLake, Identity, distances_to_goal
from tether.envs.lake import LakeState, coordinates
from tether.randomness import keyed_seed
from tether.training.supervised import FitConfig
from tether.training.tiny import traces
from tether.training.tiny.words import MOVES, vocabulary

Exchange = tuple[str, str]
"""(state text, reply text) of one turn."""
Teacher = Callable[["Recipe", Environment, int, int, np.random.Generator], list[Exchange]]
"""Called with recipe, environment, state seed, number of turns, generator."""


@dataclass(frozen=True, slots=True)
class Size:
    """Shape of the decoder and how it starts; see :func:`tether.policies.build_tiny`."""

    width: int = 64
    layers: int = 2
    heads: int = 4
    max_positions: int = 64
    tied: bool = False
    sinusoids: bool = False


@dataclass(frozen=True)
class Recipe:
    """How one tiny model is made; all that changes its weights is a field, because the cache key is made of them.

    Attributes:
        name: Recipe name.
        teacher: Draws one conversation as (state, reply) texts.
        env_name: Environment that the states come from.
        env: Its options.
        fit: Optimiser schedule.
        batch: Turns a step, over all its conversations.
        seed: Of initialisation and data.
        parent: Recipe whose weights are trained on, None for a fresh model.
        grounded: Share of traces that read the state.
        plan_error: Probability that a grounded trace is followed by a wrong plan.
        turn_weights: How often conversations have 1, 2, ... turns.
        lesson_share: Share of the steps, at the beginning, in which all traces are grounded, all plans right, and
            conversations have one turn: what a thought says is learned before the mixture is.
        crowded_share: Share of lakes that are drawn until a hole lies beside the player.
        size: Shape of the decoder.
        words: The tokenizer's words.
    """

    name: str
    teacher: Teacher
    env_name: str
    env: Mapping[str, Any]
    fit: FitConfig
    batch: int
    seed: int
    parent: str | None = None
    grounded: float = 0.0
    plan_error: float = 0.0
    turn_weights: tuple[float, ...] = (1.0,)
    lesson_share: float = 0.0
    crowded_share: float = 0.0
    size: Size = field(default_factory=Size)
    words: tuple[str, ...] = field(default_factory=vocabulary)

    def content(self) -> dict[str, Any]:
        """Return what the weights depend on, as plain data (a parent's content inside)."""
        plain = {key: value for key, value in asdict(self).items() if key not in ("teacher", "parent")}
        return {
            **plain,
            "teacher": self.teacher.__name__,
            "parent": RECIPES[self.parent].content() if self.parent else None,
        }


def teach_balanced_lake(
    recipe: Recipe, env: Environment, seed: int, turns: int, rng: np.random.Generator
) -> list[Exchange]:
    """One turn: a grounded or a generic trace of equal length, then a plan for the whole way."""
    assert isinstance(env, FrozenLake), "the recipe names this environment"
    observation, _ = env.reset(seed)
    if rng.random() < recipe.grounded:
        thought, wrong = traces.balanced_grounded(env.state, rng), rng.random() < recipe.plan_error
    else:
        thought, wrong = traces.balanced_generic(rng), rng.random() > 0.1
    right = traces.shortest_plan(env.state, rng, env.actions_per_turn)
    plan = traces.random_plan(rng, 5) if wrong else right
    return [(observation, traces.reply(thought, plan))]


def teach_lake(recipe: Recipe, env: Environment, seed: int, turns: int, rng: np.random.Generator) -> list[Exchange]:
    """Turns on one lake, the player somewhere else in each: a stepwise or a generic thought, then the next moves.

    A wrong plan follows a true thought, so that what reinforcement learning has to find is to act on the thought.
    """
    assert isinstance(env, FrozenLake), "the recipe names this environment"
    state = _lake(recipe, env, seed, rng)
    exchanges = []
    for _ in range(turns):
        right = traces.shortest_plan(state, rng, env.actions_per_turn)
        if rng.random() < recipe.grounded:
            thought, wrong = traces.stepwise(state, right, rng), rng.random() < recipe.plan_error
        else:
            thought, wrong = traces.generic(rng), rng.random() > 0.1
        plan = traces.random_plan(rng, env.actions_per_turn) if wrong else right
        exchanges.append((coordinates(state), traces.reply(thought, plan)))
        start = traces.pick(rng, [cell for cell, moves in distances_to_goal(state).items() if moves])
        state = state.with_player(start)
    return exchanges


def _lake(recipe: Recipe, env: FrozenLake, seed: int, rng: np.random.Generator) -> LakeState:
    """Draw a lake; a crowded one has a hole beside the player, which makes "hole" as frequent a word as "ice"."""
    crowded = rng.random() < recipe.crowded_share
    attempt = 0
    while True:
        env.reset(keyed_seed(seed, attempt))
        if not crowded or any(traces.look(env.state, move)[-1] == "hole" for move in MOVES):
            return env.state
        attempt += 1


def teach_identity(recipe: Recipe, env: Environment, seed: int, turns: int, rng: np.random.Generator) -> list[Exchange]:
    """The format alone: filler, then any of the words."""
    assert isinstance(env, Identity), "the recipe names this environment"
    observation, _ = env.reset(seed)
    thought = traces.fill(rng, "opener", "verb", "manner")
    return [(observation, traces.reply(thought, [traces.pick(rng, env.words)]))]


def _long(steps: int, warmup: int) -> FitConfig:
    return FitConfig(steps, 3e-3, warmup, final_share=0.05, betas=(0.9, 0.98), max_grad_norm=1.0)


BALANCED = {"holes": 2, "min_distance": 1, "max_turns": 1, "actions_per_turn": 8, "dead_share": 0.5}
_BALANCED_LAKE: dict[str, Any] = {
    "teacher": teach_balanced_lake,
    "env_name": "frozen_lake",
    "env": BALANCED,
    "batch": 128,
    "plan_error": 0.15,
}
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("balanced_base", fit=_long(450, 50), seed=11, grounded=0.3, **_BALANCED_LAKE),
        Recipe("balanced", fit=FitConfig(60, 3e-4), seed=12, grounded=0.6, parent="balanced_base", **_BALANCED_LAKE),
        Recipe("template", fit=FitConfig(80, 5e-4), seed=13, grounded=0.05, parent="balanced_base", **_BALANCED_LAKE),
        Recipe(
            "lake",
            teach_lake,
            "frozen_lake",
            {"min_distance": 1},
            _long(2300, 50),
            batch=32,
            seed=1,
            grounded=0.75,
            plan_error=0.6,
            turn_weights=(1, 1, 1, 1, 1),
            lesson_share=0.35,
            crowded_share=0.7,
            size=Size(max_positions=256, tied=True, sinusoids=True),
        ),
        Recipe(
            "identity",
            teach_identity,
            "identity",
            {},
            _long(150, 20),
            batch=64,
            seed=21,
            words=vocabulary(Identity().words),
        ),
    )
}
