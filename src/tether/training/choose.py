"""Which groups of an iteration train: the rule, and the controls of an honest experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tether.objectives import loss_scale
from tether.records import Episode, check_groups_share_prompts
from tether.selection import Selection, random_selection, select_groups
from tether.training.config import SelectConfig


@dataclass(frozen=True, slots=True)
class Choice:
    """What trains: rows, the share that the rule keeps, and the factors on loss and regularisers."""

    keep: np.ndarray
    rule: Selection
    kept_share: float
    loss_scale: float
    regulariser_weight: float

    @property
    def num_kept_groups(self) -> int:
        """Groups that train (the controls may train others than the rule would)."""
        return self.rule.num_groups if self.keep.all() else len(self.rule.groups)


def outcome_rewards(episodes: Sequence[Episode]) -> np.ndarray:
    """Return (rows,) outcome rewards: what the environment paid, before format penalties."""
    return np.array([episode.components["outcome"][0] for episode in episodes], dtype=np.float64)


def choose_groups(episodes: Sequence[Episode], config: SelectConfig, rng: np.random.Generator) -> Choice:
    """Apply the configured rule to the outcome rewards of one iteration (RAGEN-2, section 3.3).

    Raises:
        GroupError: if a group mixes prompts or has one member.
        NonFiniteError: if a reward is NaN or infinite; the message names the group.
    """
    check_groups_share_prompts(episodes)
    rule = select_groups(
        outcome_rewards(episodes),
        [episode.group_id for episode in episodes],
        statistic=config.statistic,
        **_strategy(config),
    )
    kept_share = rule.kept_share
    everything = np.ones(len(episodes), dtype=bool)
    if config.strategy == "none":
        return Choice(everything, rule, 1.0, 1.0, 1.0)
    if config.control == "dose":
        return Choice(everything, rule, kept_share, 1.0, kept_share)
    chosen = random_selection(rule, rng) if config.control == "random_drop" else rule
    num_kept = int(np.count_nonzero(chosen.keep))
    rho = _rate(config) if config.loss_scale == "rho_scaled" else None
    scale = loss_scale(config.loss_scale, num_kept=num_kept, num_total=len(episodes), rho=rho) if num_kept else 1.0
    return Choice(chosen.keep, chosen, kept_share, scale, 1.0)


def _strategy(config: SelectConfig) -> dict[str, Any]:
    match config.strategy:
        case "none":
            return {"top_p": 1.0, "include_zero": True}
        case "top_p":
            rate: dict[str, Any] = {"top_p": config.top_p}
        case "top_k":
            rate = {"fraction": config.fraction}
        case "top_k_abs":
            rate = {"count": config.count}
        case "min_p":
            rate = {"min_p": config.min_p}
    return {**rate, "include_zero": config.include_zero, "keep": config.keep}


def _rate(config: SelectConfig) -> float:
    """The configured keeping rate, for ``loss_scale=rho_scaled``."""
    return {"top_p": config.top_p, "top_k": config.fraction, "min_p": config.min_p}.get(config.strategy, 1.0)
