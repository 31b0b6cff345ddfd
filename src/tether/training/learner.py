"""One iteration's updates: log-probabilities in, gradients out.

The loss of a minibatch is divided by the minibatch's own totals, so neither the micro-batch size nor the number of
processes changes it. Every process holds all samples of the iteration and takes every world-size-th row of a minibatch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from tether.errors import NonFiniteError
from tether.objectives import aggregate_loss, clipped_surrogate, clipped_tokens, kl_estimate, kl_loss
from tether.policies import CausalPolicy
from tether.training.batch import Batch, Sample, collate, split_minibatches
from tether.training.config import LossConfig, OptimConfig


class LogprobModule(nn.Module):
    """The policy as a module whose forward pass is what the loss needs, so that wrappers (DDP) see every gradient."""

    def __init__(self, policy: CausalPolicy, temperature: float) -> None:
        super().__init__()
        self.model = policy.model
        self._policy = policy
        self._temperature = temperature

    def forward(self, ids_BT: torch.Tensor, mask_BT: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (log-probabilities, entropies), both (B, T) and zero outside the mask."""
        logprobs_BT, entropy_BT = self._policy.token_logprobs(
            ids_BT, mask_BT, temperature=self._temperature, with_entropy=True
        )
        assert entropy_BT is not None
        return logprobs_BT, entropy_BT


@dataclass(slots=True)
class UpdateStats:
    """Sums over the tokens of one iteration's updates; means are taken when they are logged."""

    num_updates: int = 0
    num_tokens: int = 0
    grad_norms: list[float] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    sampler_mismatch_max: float = 0.0

    def add(self, values: dict[str, torch.Tensor]) -> None:
        """Add token sums."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)

    def metrics(self) -> dict[str, float | int]:
        """Return token means and counts; an iteration without an update has counts only."""
        line: dict[str, float | int] = {"num_updates": self.num_updates, "trained_tokens": self.num_tokens}
        if self.num_tokens:
            line |= {name: total / self.num_tokens for name, total in self.sums.items()}
            line["grad_norm"] = float(np.mean(self.grad_norms))
            line["sampler_mismatch_max"] = self.sampler_mismatch_max
        return line


class Learner:
    """Optimiser and loss around a policy; one :meth:`update` an iteration."""

    def __init__(
        self,
        policy: CausalPolicy,
        reference: CausalPolicy | None,
        accelerator: Accelerator,
        *,
        loss: LossConfig,
        optim: OptimConfig,
        temperature: float,
    ) -> None:
        self.policy, self.loss, self.optim = policy, loss, optim
        self.accelerator = accelerator
        self.reference = None if reference is None else LogprobModule(reference, temperature).requires_grad_(False)
        # Evaluation mode for good: dropout would make the ratio to the sampling policy noisy.
        module = LogprobModule(policy, temperature).eval()
        optimizer = torch.optim.AdamW(
            module.parameters(), lr=optim.lr, betas=optim.betas, weight_decay=optim.weight_decay, fused=True
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda update: min(1.0, (update + 1) / max(1, optim.warmup_steps))
        )
        # The schedule counts our updates, whatever the number of processes.
        self.module, self.optimizer = accelerator.prepare(module, optimizer)
        self.schedule = schedule

    def update(
        self,
        samples: Sequence[Sample],
        advantages: Sequence[float],
        *,
        loss_scale: float,
        regulariser_weight: float,
        rng: np.random.Generator,
    ) -> UpdateStats:
        """Take this iteration's optimiser steps.

        Args:
            samples: The kept samples.
            advantages: One advantage a sample.
            loss_scale: Factor on the whole loss (normalisation after filtering).
            regulariser_weight: Factor on the KL and entropy terms only (the dose control).
            rng: Deals samples into minibatches.

        Raises:
            NonFiniteError: if a loss or gradient is NaN or infinite; the weights are as before that update.
        """
        stats = UpdateStats()
        order = [int(row) for row in rng.permutation(len(samples))]
        minibatches = split_minibatches(order, at_most=self.optim.minibatches, at_least_rows=self.optim.min_minibatch)
        for rows in minibatches:
            chosen = [samples[row] for row in rows]
            self._step(chosen, [advantages[row] for row in rows], loss_scale, regulariser_weight, stats)
        self._sum_over_processes(stats)
        return stats

    def _step(
        self,
        samples: Sequence[Sample],
        advantages: Sequence[float],
        loss_scale: float,
        regulariser_weight: float,
        stats: UpdateStats,
    ) -> None:
        total_tokens = sum(sample.num_targets for sample in samples)
        by_token = self.loss.aggregation == "token_mean"
        counts = {"num_tokens": total_tokens} if by_token else {"num_sequences": len(samples)}
        total_loss = torch.zeros((), device=self.accelerator.device)
        for micro, weight, last in self._micro_batches(samples, advantages):
            with self.accelerator.no_sync(self.module) if not last else nullcontext():
                token_loss_BT, values = self._token_loss(micro, regulariser_weight, stats)
                loss = aggregate_loss(token_loss_BT, micro.mask_BT, mode=self.loss.aggregation, **counts)
                # Wrappers average gradients over processes; the factor makes it the sum that a single process has.
                self.accelerator.backward(loss * (weight * loss_scale * self.accelerator.num_processes))
            total_loss += weight * loss.detach()
            stats.add({name: weight * value for name, value in values.items()})
        self._apply(float(self.accelerator.reduce(total_loss, reduction="sum")), stats)
        stats.num_updates += 1
        stats.num_tokens += total_tokens

    def _micro_batches(self, samples: Sequence[Sample], advantages: Sequence[float]) -> list[tuple[Batch, float, bool]]:
        """This process's share of a minibatch, in equally many pieces on every process.

        A process without samples of its own repeats the first one at weight 0, because every process has to take part
        in the exchange of gradients.
        """
        rank, world, size = self.accelerator.process_index, self.accelerator.num_processes, self.optim.micro_batch
        own = list(range(rank, len(samples), world))
        largest_share = math.ceil(len(samples) / world)
        pieces = math.ceil(largest_share / size)
        batches = []
        for piece in range(pieces):
            rows = own[piece * size : (piece + 1) * size]
            weight = 1.0 if rows else 0.0
            batch = collate(
                [samples[row] for row in rows or [0]], [advantages[row] for row in rows or [0]], self.policy.pad_id
            )
            batches.append((batch.to(self.accelerator.device), weight, piece == pieces - 1))
        return batches

    def _token_loss(
        self, batch: Batch, regulariser_weight: float, stats: UpdateStats
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss of every token, and the token sums that are logged."""
        mask_BT = batch.mask_BT
        logprobs_BT, entropy_BT = self.module(batch.ids_BT, mask_BT)
        limits = self.loss.clip_low, self.loss.clip_high, self.loss.dual_clip
        clip: dict[str, Any] = dict(zip(("clip_low", "clip_high", "dual_clip"), limits, strict=True))
        surrogate = (logprobs_BT, batch.old_logprobs_BT, batch.advantages_B)
        policy_loss_BT = clipped_surrogate(*surrogate, **clip)
        token_loss_BT = policy_loss_BT - regulariser_weight * self.loss.entropy_coef * entropy_BT
        logged_BT = {
            "policy_loss": policy_loss_BT,
            "entropy": entropy_BT,
            "clip_share": clipped_tokens(*surrogate, **clip).float(),
        }
        if stats.num_updates == 0:  # before the first update the trainer's weights are the sampler's
            gap_BT = (logprobs_BT.detach() - batch.old_logprobs_BT).abs()
            stats.sampler_mismatch_max = max(stats.sampler_mismatch_max, float(gap_BT[mask_BT].max()))
        if self.reference is not None:
            with torch.no_grad():
                reference_BT, _ = self.reference(batch.ids_BT, mask_BT)
            penalty_BT = kl_loss(logprobs_BT, reference_BT, kind=self.loss.kl_kind)
            token_loss_BT = token_loss_BT + regulariser_weight * self.loss.kl_coef * penalty_BT
            logged_BT["kl"] = kl_estimate(logprobs_BT, reference_BT, kind="k3")
        return token_loss_BT, {name: value_BT.detach()[mask_BT].sum() for name, value_BT in logged_BT.items()}

    def _apply(self, loss: float, stats: UpdateStats) -> None:
        norm = float(self.accelerator.clip_grad_norm_(self.module.parameters(), self.optim.max_grad_norm))
        # A token whose log-probability or advantage is NaN passes no gradient: only the loss shows it.
        if not (math.isfinite(norm) and math.isfinite(loss)):
            self.optimizer.zero_grad()
            raise NonFiniteError(
                f"loss {loss}, gradient norm {norm} in update {stats.num_updates + 1} of this iteration; finite "
                "numbers are expected; look at rewards and log-probabilities of the last rollouts, or lower optim.lr"
            )
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        stats.grad_norms.append(norm)

    def _sum_over_processes(self, stats: UpdateStats) -> None:
        """Make this process's sums those of all processes; every process has taken part in every update."""
        if self.accelerator.num_processes == 1 or not stats.num_updates:
            return
        own = torch.tensor([*stats.sums.values(), stats.sampler_mismatch_max], device=self.accelerator.device)
        shares = self.accelerator.gather(own[None])
        stats.sums = dict(zip(stats.sums, shares[:, :-1].sum(0).tolist(), strict=True))
        stats.sampler_mismatch_max = float(shares[:, -1].max())

    def state_dict(self) -> dict[str, Any]:
        """Optimiser and schedule, for a checkpoint."""
        return {"optimizer": self.optimizer.state_dict(), "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` saved."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
