"""Make a tiny model by supervised training on synthetic traces, once: the result is cached by content."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from filelock import FileLock

from tether.chat import PLAIN, THINK_FORCED, PastTurn, PromptBuilder
from tether.envs import make
from tether.errors import ConfigError
from tether.policies import CausalPolicy, build_tiny, load_policy
from tether.randomness import keyed_rng, keyed_seed
from tether.training.batch import Sample
from tether.training.supervised import fit
from tether.training.tiny.recipes import RECIPES, Exchange, Recipe

CODE_VERSION = 2
"""Raised when the code that turns a recipe into weights changes its result; part of the cache key."""

OnFit = Callable[[str, int, int], None]
"""Called with (model, step, steps) while a model is trained."""


def cache_dir() -> Path:
    """Return where prepared models live: ``TETHER_CACHE``, or ``~/.cache/tether``."""
    return Path(os.environ.get("TETHER_CACHE", Path.home() / ".cache" / "tether")) / "models"


def prepare(name: str, on_fit: OnFit = lambda model, step, steps: None) -> Path:
    """Return the folder of a tiny model, training it first if the cache does not hold this very recipe."""
    recipe = RECIPES[name]
    folder = cache_dir() / f"tiny-{name}-{_digest(recipe)}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            _train(recipe, on_fit).save(folder)
    return folder


def _digest(recipe: Recipe) -> str:
    content = json.dumps({"code": CODE_VERSION, **recipe.content()}, sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _train(recipe: Recipe, on_fit: OnFit) -> CausalPolicy:
    if recipe.parent:
        policy = load_policy(prepare(recipe.parent, on_fit))
    else:
        policy = build_tiny(recipe.words, **asdict(recipe.size), seed=recipe.seed)
    for step, _ in enumerate(fit(policy, demonstrations(recipe, policy), recipe.fit), start=1):
        on_fit(recipe.name, step, recipe.fit.steps)
    return policy


def demonstrations(recipe: Recipe, policy: CausalPolicy) -> Iterator[list[Sample]]:
    """Yield batches of fresh demonstrations for ever; states come from the training split."""
    env = make(recipe.env_name, **recipe.env)
    weights = np.array(recipe.turn_weights) / sum(recipe.turn_weights)
    builder = PromptBuilder(
        policy.tokenizer,
        template=PLAIN,
        style=THINK_FORCED,
        system=None,
        max_context=policy.max_context,
        reply_budget=1,
    )
    batch = 0
    while True:
        rng = keyed_rng(recipe.seed, "demonstrations", batch)
        lesson = batch < recipe.lesson_share * recipe.fit.steps
        taught = replace(recipe, grounded=1.0, plan_error=0.0) if lesson else recipe
        turns = 1 if lesson else 1 + int(rng.choice(len(weights), p=weights))
        seeds = [keyed_seed(recipe.seed, "state", batch, row) for row in range(max(1, recipe.batch // turns))]
        yield [to_sample(policy, builder, recipe.teacher(taught, env, seed, turns, rng)) for seed in seeds]
        batch += 1


def to_sample(policy: CausalPolicy, builder: PromptBuilder, conversation: Sequence[Exchange]) -> Sample:
    """Lay out a conversation as the turn loop would record it; the replies are the targets."""
    ids: tuple[int, ...] = ()
    targets: tuple[bool, ...] = ()
    past: list[PastTurn] = []
    for state, reply in conversation:
        prompt = builder.build(past, state).ids
        sampled = tuple(policy.tokenizer.encode(reply, add_special_tokens=False))
        targets += (False,) * (len(prompt) - len(ids)) + (True,) * len(sampled)
        ids = prompt + sampled
        past.append(PastTurn(state, sampled, None))
    return Sample(ids, targets, (0.0,) * len(ids), 0)


def recipe_for(env_name: str) -> str:
    """Return the recipe that ``model=tiny`` means in an environment.

    Raises:
        ConfigError: if there are no synthetic traces for it.
    """
    known = {"frozen_lake": "lake", "identity": "identity"}
    if env_name not in known:
        raise ConfigError(
            f"model=tiny with env={env_name}: the tiny model is trained from synthetic traces, which exist for "
            f"{', '.join(known)}; give a model folder, model=PATH"
        )
    return known[env_name]
