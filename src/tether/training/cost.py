"""What a run would cost before it starts: tokens, memory, seconds, and the monitor's share.

Tokens are upper bounds from the budgets of the configuration. Seconds come from a short measurement of this model on
this machine (one generation and one update of a small batch), so they are an order of magnitude and not a promise.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from tether.agents import Task, play
from tether.randomness import keyed_seed
from tether.training.batch import collate, samples_of
from tether.training.config import RunConfig
from tether.training.learner import LogprobModule
from tether.training.run_state import refuse_existing, resume_point
from tether.training.setup import prepare

PROBE_EPISODES = 8
BYTES_TRAINED = 16  # float32: weights, gradients, and two Adam moments
BYTES_FROZEN = 4


def estimate_cost(config: RunConfig) -> dict[str, str]:
    """Check the configuration by setting everything up, play and score a small batch, and scale it.

    Raises:
        TetherError: whatever a real run would raise before its first iteration.
    """
    if config.resume:
        resume_point(config)
    else:
        refuse_existing(config)
    device = torch.device("cpu") if not torch.cuda.is_available() else torch.device("cuda")
    setup = prepare(config, device=device)
    tasks = [
        Task("probe", keyed_seed(config.seed, "state", 1, 0), ("probe", member)) for member in range(PROBE_EPISODES)
    ]
    started = time.perf_counter()
    episodes = play(setup.policy, setup.make_env, tasks, setup.agent, seed=config.seed)
    play_seconds = (time.perf_counter() - started) / PROBE_EPISODES
    samples = [sample for row, episode in enumerate(episodes) for sample in samples_of(episode, row)]
    module = LogprobModule(setup.policy, config.generate.temperature)
    batch = collate(samples, [0.0] * len(samples), setup.policy.pad_id).to(device)
    started = time.perf_counter()
    module(batch.ids_BT, batch.mask_BT)[0].sum().backward()
    update_seconds = (time.perf_counter() - started) / PROBE_EPISODES
    parameters = sum(parameter.numel() for parameter in setup.policy.model.parameters())
    return _table(
        config,
        tokens=sum(len(sample.ids) for sample in samples) / PROBE_EPISODES,
        sampled=sum(sample.num_targets for sample in samples) / PROBE_EPISODES,
        seconds=(play_seconds, update_seconds),
        parameters=parameters,
        frozen=0 if setup.reference is None else parameters,
    )


def _table(
    config: RunConfig, *, tokens: float, sampled: float, seconds: tuple[float, float], parameters: int, frozen: int
) -> dict[str, str]:
    episodes = config.prompts * config.group_size
    steps = range(1, config.steps + 1)
    evaluations = 1 + sum(_is_due(step, config.eval.every) or step == config.steps for step in steps)
    eval_episodes = config.eval.prompts * config.eval.samples * evaluations
    step_seconds = episodes * sum(seconds)
    monitor_tokens = sampled * _monitor_pairs(config, evaluations)
    forward_seconds = seconds[1] / 3 / max(tokens, 1.0)  # a backward pass costs about two forward passes
    monitor_seconds = monitor_tokens * forward_seconds
    total = config.steps * step_seconds + eval_episodes * seconds[0] + monitor_seconds
    figures: dict[str, Any] = {
        "configuration": "valid",
        "parameters": f"{parameters:,}",
        "episodes": f"{episodes} an iteration, {config.steps * episodes:,} in all, {eval_episodes:,} for validation",
        "sampled tokens": f"about {sampled * episodes:,.0f} an iteration, "
        f"{sampled * episodes * config.steps:,.0f} in all",
        "memory (weights, optimiser)": f"{(parameters * BYTES_TRAINED + frozen * BYTES_FROZEN) / 2**20:,.1f} MiB",
        "seconds an iteration": f"about {step_seconds:.1f}",
        "seconds in all": f"about {total:.0f}",
        "monitor": f"about {monitor_tokens:,.0f} token forwards, "
        f"{100 * monitor_seconds / max(total, 1e-9):.0f} % of the time",
    }
    return figures


def _monitor_pairs(config: RunConfig, evaluations: int) -> int:
    """(context, reasoning) pairs that all measurements of a run score, at most."""
    monitor = config.monitor
    if not monitor.every:
        return 0
    measured = sum(_is_due(step, monitor.every) or step == 1 for step in range(1, config.steps + 1))
    on_eval = evaluations * monitor.on_eval
    pairs = measured * monitor.max_contexts * monitor.max_reasonings
    return pairs + on_eval * monitor.eval_contexts * monitor.eval_reasonings


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
