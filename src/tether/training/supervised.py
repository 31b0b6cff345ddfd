"""Likelihood training on sampled tokens: the warm start of the tiny model, and any cold start from records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from tether.objectives import aggregate_loss
from tether.policies import CausalPolicy
from tether.training.batch import Sample, collate


@dataclass(frozen=True, slots=True)
class FitConfig:
    """AdamW with linear warm-up and a cosine to ``final_share`` of the rate (1: a constant rate)."""

    steps: int
    lr: float
    warmup: int = 0
    final_share: float = 1.0
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01
    max_grad_norm: float | None = None

    def rate(self, step: int) -> float:
        """Learning rate of a step (from 0) as a share of ``lr``."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.final_share + (1 - self.final_share) * 0.5 * (1 + math.cos(math.pi * progress))


def fit(policy: CausalPolicy, batches: Iterator[Sequence[Sample]], config: FitConfig) -> Iterator[float]:
    """Minimise the mean negative log-likelihood of the sampled tokens; yields the loss of every step."""
    optimizer = torch.optim.AdamW(
        policy.model.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, fused=True
    )
    for step in range(config.steps):
        samples = next(batches)
        for group in optimizer.param_groups:
            group["lr"] = config.lr * config.rate(step)
        batch = collate(samples, [0.0] * len(samples), policy.pad_id).to(policy.device)
        logprobs_BT, _ = policy.token_logprobs(batch.ids_BT, batch.mask_BT)
        loss = aggregate_loss(-logprobs_BT, batch.mask_BT, mode="token_mean")
        loss.backward()
        if config.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(policy.model.parameters(), config.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        yield float(loss.detach())
