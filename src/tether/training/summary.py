"""The columns of a metric line that the loop adds: what was kept, and how unseen states went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tether.diagnostics import episode_metrics, share_over_prompts
from tether.records import Episode
from tether.training.choose import Choice

OF_EVALUATION = (
    "turns_mean",
    "reply_tokens_mean",
    "reasoning_tokens_mean",
    "valid_format_share",
    "truncated_reply_share",
)


def selection_metrics(choice: Choice) -> dict[str, Any]:
    """What the rule kept, and the factors that follow from it."""
    return {
        "groups": choice.num_groups,
        "kept_groups": choice.num_kept_groups,
        "rule_kept_share": choice.kept_share,
        "loss_scale": choice.loss_scale,
        "regulariser_weight": choice.regulariser_weight,
    }


def evaluation_metrics(episodes: Sequence[Episode], step: int, confidence: float) -> dict[str, Any]:
    """Success on unseen states with its interval over prompts, and the format columns of the evaluation."""
    groups = [str(episode.group_id) for episode in episodes]
    success = share_over_prompts("success", [bool(e.success) for e in episodes], groups, confidence=confidence)
    columns = episode_metrics(step, episodes)
    return {
        "eval/success": success.value,
        "eval/success/low": success.low,
        "eval/success/high": success.high,
        **{f"eval/{name}": columns[name] for name in OF_EVALUATION},
    }
