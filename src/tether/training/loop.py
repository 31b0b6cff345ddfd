"""The training loop, in the order in which things happen.

An iteration: play the groups, choose which of them train, measure, turn rewards into advantages, update, write down.
Every process holds all episodes of an iteration, so that everything after playing is the same on all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from tether.agents import Task, play
from tether.diagnostics import episode_metrics
from tether.objectives import group_relative_advantages
from tether.randomness import keyed_rng, keyed_seed
from tether.records import Episode, Rollouts
from tether.runs import RunFolder
from tether.training.batch import samples_of
from tether.training.checkpoint import prune_checkpoints, save_checkpoint
from tether.training.choose import Choice, choose_groups
from tether.training.config import RunConfig
from tether.training.evaluate import evaluate
from tether.training.learner import Learner, UpdateStats
from tether.training.monitor import Measurement, Monitor
from tether.training.run_state import ResumePoint, open_run, refuse_existing, resume_point, versions
from tether.training.setup import Setup, prepare
from tether.training.summary import evaluation_metrics, selection_metrics

OnStep = Callable[[dict[str, Any]], None]


class Trainer:
    """One run: a policy, its environment, and a folder."""

    def __init__(self, config: RunConfig, run: RunFolder, setup: Setup, accelerator: Accelerator) -> None:
        self.config, self.run, self.accelerator = config, run, accelerator
        self.policy, self.agent = setup.policy, setup.agent
        self.make_env, self.make_eval_env = setup.make_env, setup.make_eval_env
        self.learner = Learner(
            setup.policy,
            setup.reference,
            accelerator,
            loss=config.loss,
            optim=config.optim,
            temperature=config.generate.temperature,
        )
        self.monitor = Monitor(run, config.monitor, config.seed)
        self.step = 0
        self._seconds: dict[str, float] = {}

    def train(self, on_step: OnStep = lambda line: None) -> None:
        """Run all iterations that are left, with validation before, between and after."""
        if self.step == 0:
            on_step(self._write({"step": 0, **self.validate(0)}))
        while self.step < self.config.steps:
            self.step += 1
            on_step(self._write(self.iterate(self.step)))
            if self._is_due(self.config.checkpoint.every) or self.step == self.config.steps:
                self.save()

    def iterate(self, step: int) -> dict[str, Any]:
        """One iteration; returns its metric line."""
        with self._timed("play"):
            episodes = self.play_groups(step)
        choice = choose_groups(episodes, self.config.select, keyed_rng(self.config.seed, "drop", step))
        measured = self._measure_if_due(episodes, step)
        with self._timed("update"):
            stats = self.update(episodes, choice, step)
        self._write_rollouts(episodes, step)
        line = {**episode_metrics(step, episodes), **selection_metrics(choice), **stats.metrics()}
        line |= measured.metrics("train") if measured else {}
        if self._is_due(self.config.eval.every) or step == self.config.steps:
            line |= self.validate(step)
        return line

    def play_groups(self, step: int) -> list[Episode]:
        """Play ``prompts`` fresh initial states, ``group_size`` episodes each; processes share the groups."""
        tasks = [
            Task(
                group_id=f"{step:06d}-{group:04d}",
                state_seed=keyed_seed(self.config.seed, "state", step, group),
                key=("train", step, group, member),
            )
            for group in range(self.config.prompts)
            if self._is_mine(group)
            for member in range(self.config.group_size)
        ]
        mine = play(self.policy, self.make_env, tasks, self.agent, seed=self.config.seed, step=step, version=step - 1)
        return self._gather(mine)

    def update(self, episodes: Sequence[Episode], choice: Choice, step: int) -> UpdateStats:
        """Turn rewards into advantages within each group, and take this iteration's optimiser steps.

        Raises:
            NonFiniteError: naming the group whose reward is not a number.
        """
        rows = np.flatnonzero(choice.keep).tolist()
        if not rows:
            return UpdateStats()
        kept = [episodes[row] for row in rows]
        rewards = np.array([episode.reward for episode in kept], dtype=np.float64)
        advantages = group_relative_advantages(
            rewards, [episode.group_id for episode in kept], std_norm=self.config.loss.std_norm
        )
        samples = [sample for row, episode in enumerate(kept) for sample in samples_of(episode, row)]
        return self.learner.update(
            samples,
            [float(advantages[sample.episode]) for sample in samples],
            loss_scale=choice.loss_scale,
            regulariser_weight=choice.regulariser_weight,
            rng=keyed_rng(self.config.seed, "minibatches", step),
        )

    def validate(self, step: int) -> dict[str, Any]:
        """Play the fixed unseen states, and measure them."""
        with self._timed("eval"):
            episodes = self._gather(
                evaluate(
                    self.policy,
                    self.make_eval_env,
                    self.agent,
                    self.config.eval,
                    seed=self.config.seed,
                    step=step,
                    share=self._is_mine,
                )
            )
        line = evaluation_metrics(episodes, step, self.config.monitor.confidence)
        if self.config.monitor.every and self.config.monitor.on_eval and self.accelerator.is_main_process:
            measured = self.monitor.measure(self.policy, episodes, step, "eval")
            self._seconds["monitor"] = self._seconds.get("monitor", 0.0) + measured.seconds
            line |= measured.metrics("eval")
        if self.accelerator.is_main_process:
            Rollouts.from_episodes(episodes).to_parquet(self.run.rollouts_path(step, "eval"))
        return line

    def save(self) -> None:
        """Write a checkpoint of everything that the next iteration needs, and drop the oldest ones."""
        self.accelerator.wait_for_everyone()
        if not self.accelerator.is_main_process:
            return
        state = {"step": self.step, "monitor": self.monitor.state_dict(), "config": self.config.model_dump(mode="json")}
        save_checkpoint(self.run.checkpoint_path(self.step), self.policy, self.learner.state_dict(), state)
        prune_checkpoints(self.run.checkpoints(), self.config.checkpoint.keep)

    def load(self, resumed: ResumePoint | None) -> None:
        """Continue behind a checkpoint (None: from the start); later metric lines are cut off."""
        if resumed is not None:
            self.learner.load_state_dict(resumed.learner)
            self.monitor.load_state_dict(resumed.state["monitor"])
            self.step = int(resumed.state["step"])
        if self.accelerator.is_main_process:
            self.run.truncate_metrics(self.step if resumed else -1)

    def _measure_if_due(self, episodes: Sequence[Episode], step: int) -> Measurement | None:
        if not (self.accelerator.is_main_process and self.monitor.due(step)):
            return None
        measured = self.monitor.measure(self.policy, episodes, step, "train")
        self._seconds["monitor"] = self._seconds.get("monitor", 0.0) + measured.seconds
        return measured

    def _write(self, line: dict[str, Any]) -> dict[str, Any]:
        """Append the metric line, its timings, and what the monitor makes of the run so far."""
        seconds, self._seconds = self._seconds, {}
        if self.accelerator.is_main_process:
            self.run.append_metrics(line)
            self.run.append_timings({"step": line["step"], **seconds})
            for finding in self.monitor.judge(line):
                self.run.append_finding(line["step"], finding)
        return {**line, "seconds": seconds}

    def _write_rollouts(self, episodes: Sequence[Episode], step: int) -> None:
        every = self.config.checkpoint.rollouts_every
        if every and (step == 1 or step % every == 0) and self.accelerator.is_main_process:
            Rollouts.from_episodes(episodes).to_parquet(self.run.rollouts_path(step))

    def _is_due(self, every: int) -> bool:
        return every > 0 and self.step % every == 0

    def _is_mine(self, group: int) -> bool:
        rank, world = int(self.accelerator.process_index), int(self.accelerator.num_processes)
        return group % world == rank

    def _gather(self, mine: list[Episode]) -> list[Episode]:
        """Return the episodes of all processes in the order that one process would have made."""
        everyone = gather_object(mine) if self.accelerator.num_processes > 1 else mine
        return sorted(everyone, key=lambda episode: str(episode.group_id)) if everyone is not mine else mine

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._seconds[part] = self._seconds.get(part, 0.0) + time.perf_counter() - started


def train(config: RunConfig, on_step: OnStep = lambda line: None) -> RunFolder:
    """Train as configured and return the run folder.

    Everything is checked before the folder is made. ``resume=true`` continues behind the newest checkpoint, or from the
    start when the run was stopped before its first one.

    Raises:
        TetherError: for input that cannot be used.
    """
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    resumed = resume_point(config) if config.resume else None
    if not config.resume:
        refuse_existing(config)
    setup = prepare(config, device=accelerator.device, weights=resumed.weights if resumed else None)
    run = open_run(config, accelerator)
    with run.lock() if accelerator.is_main_process else nullcontext():
        if accelerator.is_main_process and not config.resume:
            run.save_config(config.model_dump(mode="json"), versions())
        trainer = Trainer(config, run, setup, accelerator)
        if config.resume:
            trainer.load(resumed)
        trainer.train(on_step)
    return run
