"""What a body of episodes looks like, step by step: rewards, format, lengths, groups. Reads each episode once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tether.diagnostics.rates import share_over_prompts
from tether.diagnostics.reward_groups import RewardGroups, reward_groups
from tether.errors import NonFiniteError
from tether.records import Episode
from tether.results import Estimate, skipped, void

REWARD_ESTIMATES = {
    "reward_mean": "reward",
    "group_reward_variance": "reward^2",
    "zero_variance_share": "fraction",
    "solved_share": "fraction",
    "failed_share": "fraction",
}


@dataclass(frozen=True, slots=True)
class EpisodeFacts:
    """The numbers of one episode that its step is described by; the episode itself need not be kept.

    ``reward`` is the outcome reward where the record has it apart (format penalties are left out), None when the
    episode was not scored. ``prompt`` identifies the first context. Turns are counted: all, with a valid action, with a
    finish reason, cut off; ``reply_tokens`` and ``reasoning_tokens`` are the lengths that are known.
    """

    step: int
    group: str | None
    prompt: int | None
    reward: float | None
    success: bool | None
    selected: bool
    num_turns: int
    num_valid: int
    num_finished: int
    num_cut: int
    reply_tokens: tuple[int, ...]
    reasoning_tokens: tuple[int, ...]

    @classmethod
    def of(cls, episode: Episode) -> EpisodeFacts:
        """Read an episode; an unknown step counts as step 0."""
        turns = episode.turns or ()
        prompt = episode.initial_prompt_ids
        outcome = episode.outcome_reward
        return cls(
            step=episode.step or 0,
            group=episode.group_id,
            prompt=None if prompt is None else hash(prompt),
            reward=None if outcome is None else float(outcome),
            success=episode.success,
            selected=episode.filter_state == "post",
            num_turns=len(turns),
            num_valid=sum(turn.action is not None for turn in turns),
            num_finished=sum(turn.finish is not None for turn in turns),
            num_cut=sum(turn.finish == "length" for turn in turns),
            reply_tokens=tuple(len(turn.sampled_ids) for turn in turns if turn.sampled_ids is not None),
            reasoning_tokens=tuple(t.reasoning.stop - t.reasoning.start for t in turns if t.reasoning is not None),
        )


def facts_by_step(episodes: Iterable[Episode]) -> dict[int, list[EpisodeFacts]]:
    """Read episodes in any order and sort what they show by step."""
    by_step: dict[int, list[EpisodeFacts]] = {}
    for episode in episodes:
        facts = EpisodeFacts.of(episode)
        by_step.setdefault(facts.step, []).append(facts)
    return dict(sorted(by_step.items()))


def metric_line(step: int, facts: Sequence[EpisodeFacts]) -> dict[str, Any]:
    """Describe one step with the columns of a training run's metric line; None is "the source does not say"."""
    rewards = [fact.reward for fact in facts if fact.reward is not None]
    outcomes = [fact.success for fact in facts if fact.success is not None]
    replies = [count for fact in facts for count in fact.reply_tokens]
    thoughts = [count for fact in facts for count in fact.reasoning_tokens]
    num_turns, num_finished = (sum(getattr(fact, name) for fact in facts) for name in ("num_turns", "num_finished"))
    groups = groups_of(facts) if all(map(math.isfinite, rewards)) else None
    return {
        "step": step,
        "reward_mean": _mean(rewards),
        "success": _mean(outcomes),
        "batch_reward_std": groups.batch_std if groups else None,
        "group_reward_variance": groups.mean_group_variance if groups else None,
        "zero_variance_share": groups.zero_variance_share if groups else None,
        "solved_share": groups.solved_share if groups else None,
        "failed_share": groups.failed_share if groups else None,
        "turns_mean": num_turns / len(facts) if num_turns else None,
        "reply_tokens_mean": _mean(replies),
        "reasoning_tokens_mean": _mean(thoughts),
        "valid_format_share": sum(fact.num_valid for fact in facts) / num_turns if num_turns else None,
        "truncated_reply_share": sum(fact.num_cut for fact in facts) / num_finished if num_finished else None,
        "episodes": len(facts),
        "sampled_tokens": sum(replies) if replies else None,
    }


def episode_metrics(step: int, episodes: Iterable[Episode]) -> dict[str, Any]:
    """Describe the episodes of one step; see :func:`metric_line`."""
    return metric_line(step, [EpisodeFacts.of(episode) for episode in episodes])


def groups_of(facts: Sequence[EpisodeFacts]) -> RewardGroups | None:
    """Reward groups of one step; None when no row has group and reward, groups mix prompts, or were selected before."""
    rows = _grouped(facts)
    if not rows or mixed_groups(facts) or any(fact.selected for fact in facts):
        return None
    success = [fact.success for fact in rows]
    known = [value for value in success if value is not None]
    return reward_groups(
        [fact.reward for fact in rows if fact.reward is not None],
        [fact.group for fact in rows],
        success=known if len(known) == len(rows) else None,
    )


def mixed_groups(facts: Sequence[EpisodeFacts]) -> list[str]:
    """Ids of the groups whose members start from different prompts."""
    prompts: dict[str, set[int]] = {}
    for fact in facts:
        if fact.group is not None and fact.prompt is not None:
            prompts.setdefault(fact.group, set()).add(fact.prompt)
    return [group for group, seen in prompts.items() if len(seen) > 1]


def reward_estimates(facts: Sequence[EpisodeFacts], *, confidence: float) -> dict[str, Estimate]:
    """Reward statistics of one step with intervals over groups, or the reason why there are none."""
    found = {}
    outcomes = [(fact.success, fact.group) for fact in facts if fact.success is not None and fact.group is not None]
    if outcomes:
        hits, prompts = zip(*outcomes, strict=True)
        found["success"] = share_over_prompts("success", hits, prompts, confidence=confidence)
    if mixed := mixed_groups(facts):
        reason = f"{len(mixed)} groups mix prompts, the first is {mixed[0]!r}"
        return found | {name: void(name, unit, reason) for name, unit in REWARD_ESTIMATES.items()}
    if any(fact.selected for fact in facts):
        reason = "the file was written after groups were dropped: shares over all groups cannot be known"
        return found | {name: skipped(name, unit, reason) for name, unit in REWARD_ESTIMATES.items()}
    try:
        groups = groups_of(facts)
    except NonFiniteError as error:
        return found | {name: void(name, unit, str(error)) for name, unit in REWARD_ESTIMATES.items()}
    if groups is None:
        reason = "no episode has a group id and a reward"
        return found | {name: skipped(name, unit, reason) for name, unit in REWARD_ESTIMATES.items()}
    return found | groups.estimates(confidence=confidence)


def coverage(facts: Sequence[EpisodeFacts]) -> dict[str, Any]:
    """What the numbers of one step rest on: counts, valid share, lengths with quantiles, truncation."""
    line = metric_line(facts[0].step, facts)
    thoughts = [count for fact in facts for count in fact.reasoning_tokens]
    quantiles = np.quantile(thoughts, (0.05, 0.5, 0.95)).tolist() if thoughts else (None, None, None)
    return {
        "step": facts[0].step,
        "episodes": len(facts),
        "groups": len({fact.group for fact in facts if fact.group is not None}),
        "episodes_without_reward": sum(fact.reward is None for fact in facts),
        "turns": sum(fact.num_turns for fact in facts),
        "turns_with_reasoning": len(thoughts),
        "valid_format_share": line["valid_format_share"],
        "truncated_reply_share": line["truncated_reply_share"],
        "reasoning_tokens_mean": line["reasoning_tokens_mean"],
        **dict(zip(("reasoning_tokens_p05", "reasoning_tokens_p50", "reasoning_tokens_p95"), quantiles, strict=True)),
    }


def _grouped(facts: Sequence[EpisodeFacts]) -> list[EpisodeFacts]:
    return [fact for fact in facts if fact.group is not None and fact.reward is not None]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
