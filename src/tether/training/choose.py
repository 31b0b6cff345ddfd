"""Which groups of an iteration train: the rule, and the controls of an honest experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tether.objectives import loss_scale
from tether.records import Episode
from tether.selection import random_selection, select_groups, select_options
from tether.training.config import SelectConfig


@dataclass(frozen=True, slots=True)
class Choice:
    """What trains (``keep``, one entry a row), the share of groups that the rule keeps, and the factors that follow.

    The controls may train other groups than the rule would. ``loss_scale`` multiplies the whole loss,
    ``regulariser_weight`` the KL and entropy terms alone.
    """

    keep: np.ndarray
    num_groups: int
    num_kept_groups: int
    kept_share: float
    loss_scale: float = 1.0
    regulariser_weight: float = 1.0


def choose_groups(episodes: Sequence[Episode], config: SelectConfig, rng: np.random.Generator) -> Choice:
    """Apply the configured rule to the outcome rewards of one iteration (RAGEN-2, section 3.3).

    Raises:
        GroupError: if a group mixes prompts or has one member.
        NonFiniteError: if a reward is NaN or infinite; the message names the group.
    """
    rule = select_groups(
        [episode.outcome_reward for episode in episodes],
        [episode.group_id for episode in episodes],
        prompts=[episode.initial_prompt_ids for episode in episodes],
        **select_options(config.model_dump()),
    )
    everything = np.ones(len(episodes), dtype=bool)
    if config.strategy == "none":
        return Choice(everything, rule.num_groups, rule.num_groups, 1.0)
    if config.control == "dose":
        share = rule.kept_share
        return Choice(everything, rule.num_groups, rule.num_groups, share, regulariser_weight=share)
    chosen = random_selection(rule, rng) if config.control == "random_drop" else rule
    return Choice(
        chosen.keep, rule.num_groups, len(chosen.groups), rule.kept_share, loss_scale=_scale(config, chosen.keep)
    )


def _scale(config: SelectConfig, keep: np.ndarray) -> float:
    """Return the factor on the mean loss of the kept rows; 1 where nothing trains."""
    if not keep.any():
        return 1.0
    rates = {"top_p": config.top_p, "top_k": config.fraction, "min_p": config.min_p}
    rho = rates.get(config.strategy, 1.0) if config.loss_scale == "rho_scaled" else None
    return loss_scale(config.loss_scale, num_kept=int(np.count_nonzero(keep)), num_total=len(keep), rho=rho)
