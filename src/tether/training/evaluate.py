"""Validation on fixed unseen states.

The states and the random numbers of an evaluation do not depend on the step, so two evaluations differ by the policy
alone, and training's random numbers are never touched (all draws are keyed).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tether.agents import Agent, Task, play
from tether.envs import Environment
from tether.policies import CausalPolicy
from tether.records import Episode
from tether.training.config import EvalConfig


def evaluation_tasks(config: EvalConfig, share: Callable[[int], bool] = lambda prompt: True) -> list[Task]:
    """Return the fixed tasks; ``share`` picks the prompts that this process plays."""
    return [
        Task(group_id=f"eval-{prompt:04d}", state_seed=prompt, key=("eval", prompt, member))
        for prompt in range(config.prompts)
        if share(prompt)
        for member in range(config.samples)
    ]


def evaluate(
    policy: CausalPolicy,
    make_env: Callable[[], Environment],
    agent: Agent,
    config: EvalConfig,
    *,
    seed: int,
    step: int,
    share: Callable[[int], bool] = lambda prompt: True,
) -> list[Episode]:
    """Play the validation states with the evaluation's own temperature."""
    quiet = replace(agent, temperature=config.temperature)
    return play(policy, make_env, evaluation_tasks(config, share), quiet, seed=seed, step=step)
