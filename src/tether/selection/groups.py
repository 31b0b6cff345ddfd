"""Which groups of rollouts train: those whose members' rewards differ most.

Prompts whose rollouts all get nearly the same reward have a weak task gradient, while KL and entropy terms, which do
not look at the reward, act on them in full. The filter updates only on the groups that carry most of the within-group
reward variance. It does not know *why* rewards differ: it selects noise as gladly as signal.
"""

# _B rows (rollouts) | _P groups

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tether.errors import GroupError, InputError, did_you_mean
from tether.objectives import GroupIndex, GroupRewards, group_reward_statistics, index_groups
from tether.objectives.groups import require_members
from tether.objectives.rewards import require_finite, rows_of_groups
from tether.selection.rule import Floats, Keep, Mass, Profile, Strategy, select_by_score

Statistic = Literal["variance", "std", "reward_sum"]
STATISTICS = ("variance", "std", "reward_sum")
TIE_RTOL = 1e-12  # rounding of a variance; equal variances of different rewards may differ by this much

Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Which groups train, and why.

    Attributes:
        keep: Whether each row trains, (B,): its group is kept and the row itself is valid.
        groups: The ids of the kept groups, best first.
        scores: What the groups were ranked by, (P,), in the order of ``index.ids``; NaN for an undecidable group.
        reason: ``"kept 3 of 8"``, or why nothing was kept.
        index: The groups of the batch, in order of first appearance.
        valid: Which rows took part, (B,).
        num_constant: Groups whose valid members all got the same reward.
        num_undecidable: Groups with fewer than two valid members; they are never kept.
    """

    keep: Booleans
    groups: list[Hashable]
    scores: Floats
    reason: str
    index: GroupIndex
    valid: Booleans
    num_constant: int
    num_undecidable: int

    @property
    def num_groups(self) -> int:
        """How many groups the batch has."""
        return len(self.index.ids)

    @property
    def kept_share(self) -> float:
        """Kept groups divided by all groups; NaN for an empty batch."""
        return len(self.groups) / self.num_groups if self.num_groups else float("nan")


def select_groups(
    rewards: Any,
    group_ids: Any,
    *,
    prompts: Sequence[Any] | None = None,
    env_ids: Any = None,
    valid: Any = None,
    strategy: Strategy = "top_p",
    top_p: float | None = None,
    fraction: float | None = None,
    count: int | None = None,
    min_p: float | None = None,
    min_keep: int = 0,
    mass: Mass = "linear",
    include_zero: bool = False,
    statistic: Statistic = "variance",
    variance_ddof: int = 1,
    zero_rtol: float = 1e-9,
    selection_eps: float = 0.0,
    relative_eps: float = 1e-9,
    keep: Keep = "largest",
    profile: Profile = "tether",
) -> Selection:
    """Choose the groups that train by the variance of their rewards (SNR-aware filtering, RAGEN-2, section 3.3).

    Rank by variance, keep the shortest prefix that holds ``top_p`` of the total; constant groups (variance exactly 0)
    are left out. An empty selection is a result with a reason, not an error: skip the update, or resample. Rewards are
    never changed. Give the *outcome* reward: a format penalty or a normalisation inside groups changes what varies
    (after a z-score inside groups every variance is 1).

    >>> chosen = select_groups([1, 0, 0, 1, 0, 0, 0, 0, 0.1, 0, 0, 0], [*"aaaabbbbcccc"])
    >>> chosen.groups, chosen.reason, chosen.num_constant
    (['a'], 'kept 1 of 3', 1)

    Args:
        rewards: One finite number a rollout, (B,); any sequence, NumPy or Torch.
        group_ids: The initial state of each rollout, (B,), as any hashable.
        prompts: What each rollout was given; members of one group must agree.
        env_ids: The environment of each rollout, (B,). Scores are then divided by their mean over the groups of the
            same environment, so that environments with large reward units do not crowd out the others.
        valid: Rows that count, (B,). Excluded rows (failed rollouts) never train and may hold any reward; a group with
            fewer than two valid rows is undecidable, which is not the same as constant.
        strategy: As ``top_p``, ``fraction``, ``count``, ``min_p``, ``min_keep``, ``mass``, ``include_zero``,
            ``selection_eps``, ``relative_eps``, ``keep`` and ``profile``: see
            :func:`tether.selection.select_by_score`. Ties go to the group that appears first.
        top_p: Share of the total score; 0.9 when no amount is given.
        fraction: Share of the number of decidable groups.
        count: Number of groups.
        min_p: Share of the largest score.
        min_keep: Keep at least this many, as far as there are candidates.
        mass: What ``top_p`` sums.
        include_zero: Whether groups with score 0 are candidates.
        statistic: The score of a group: ``"variance"`` of its rewards, their ``"std"``, or their ``"reward_sum"``.
        variance_ddof: Divisor of variance and std is size - ``variance_ddof``.
        zero_rtol: A group is constant if ``max - min <= zero_rtol * max|R|``.
        selection_eps: Absolute amount by which the target of ``top_p`` is lowered.
        relative_eps: The same, as a share.
        keep: Which end of the ranking.
        profile: ``"compat"`` for the behaviour of the released code.

    Raises:
        GroupError: If a group has one member, or its members have different prompts or environments.
        NonFiniteError: If a valid reward is NaN or infinite; the message names the group.
        InputError: If lengths differ, an option is unknown, out of range or contradicts another, or a score is negative
            under the linear rule.
    """
    if statistic not in STATISTICS:
        known = ", ".join(STATISTICS)
        raise InputError(f"statistic={statistic!r}; expected one of {known}{did_you_mean(statistic, STATISTICS)}")
    rewards_B, index = rows_of_groups(rewards, group_ids)
    require_members(index)
    valid_B = _valid_rows(valid, index)
    require_finite(np.where(valid_B, rewards_B, 0.0), index)
    if prompts is not None:
        _require_one_prompt(prompts, index)

    live_P = np.bincount(index.number_B[valid_B], minlength=len(index.ids)) >= 2
    rows_B = valid_B & live_P[index.number_B]
    found = group_reward_statistics(rewards_B[rows_B], index.take(rows_B), ddof=variance_ddof, zero_rtol=zero_rtol)
    scores = _statistic(found, statistic)
    if env_ids is not None:
        scores = _per_environment(scores, _environments(env_ids, index)[live_P], statistic)
    scores = _merge_ties(scores)

    ranked = np.flatnonzero(live_P)[
        select_by_score(
            scores,
            strategy=strategy,
            top_p=top_p,
            fraction=fraction,
            count=count,
            min_p=min_p,
            min_keep=min_keep,
            mass=mass,
            include_zero=include_zero,
            selection_eps=selection_eps,
            relative_eps=relative_eps,
            keep=keep,
            profile=profile,
        )
    ]
    scores_P = np.full(len(index.ids), np.nan)
    scores_P[live_P] = scores
    num_constant, num_undecidable = int(found.constant_P.sum()), int(np.count_nonzero(~live_P))
    return Selection(
        keep=rows_of(index, ranked) & valid_B,
        groups=[index.ids[position] for position in ranked],
        scores=scores_P,
        reason=_reason(len(ranked), len(index.ids), num_constant, num_undecidable),
        index=index,
        valid=valid_B,
        num_constant=num_constant,
        num_undecidable=num_undecidable,
    )


def rows_of(index: GroupIndex, positions: npt.NDArray[np.int64]) -> Booleans:
    """Return which rows belong to the groups at ``positions``."""
    kept_P = np.zeros(len(index.ids), dtype=np.bool_)
    kept_P[positions] = True
    rows: Booleans = kept_P[index.number_B]
    return rows


def _valid_rows(valid: Any, index: GroupIndex) -> Booleans:
    num_rows = len(index.number_B)
    if valid is None:
        return np.ones(num_rows, dtype=np.bool_)
    valid_B = np.asarray(valid, dtype=np.bool_)
    if valid_B.shape != (num_rows,):
        raise InputError(f"valid has shape {valid_B.shape}; expected one entry for each of the {num_rows} rewards.")
    return valid_B


def _require_one_prompt(prompts: Sequence[Any], index: GroupIndex) -> None:
    """Refuse groups whose members saw different prompts: their rewards do not compare."""
    if len(prompts) != len(index.number_B):
        raise InputError(f"{len(prompts)} prompts for {len(index.number_B)} rewards; expected one prompt a reward.")
    first: dict[int, Any] = {}
    for row, number in enumerate(index.number_B.tolist()):
        prompt = prompts[row].tolist() if hasattr(prompts[row], "tolist") else prompts[row]
        if first.setdefault(number, prompt) != prompt:
            raise GroupError(
                f"group {index.ids[number]!r} mixes prompts: row {row} has {_shorten(prompt)}, an earlier member has "
                f"{_shorten(first[number])}; expected one initial state a group.\n"
                "Group by prompt, or give each prompt its own id."
            )


def _shorten(prompt: Any) -> str:
    shown = repr(prompt)
    return shown if len(shown) <= 80 else f"{shown[:40]} … {shown[-40:]}"


def _environments(env_ids: Any, index: GroupIndex) -> npt.NDArray[np.int64]:
    """Return the number of each group's environment."""
    envs = index_groups(env_ids)
    if len(envs.number_B) != len(index.number_B):
        raise InputError(f"{len(envs.number_B)} env_ids for {len(index.number_B)} rewards; expected one id a reward.")
    env_P = np.zeros(len(index.ids), dtype=np.int64)
    env_P[index.number_B] = envs.number_B
    mixed = index.number_B[env_P[index.number_B] != envs.number_B]
    if mixed.size:
        raise GroupError(
            f"group {index.ids[mixed[0]]!r} mixes environments; expected one initial state a group. "
            "Give the same state in each environment its own id."
        )
    return env_P


def _per_environment(scores: Floats, env_P: npt.NDArray[np.int64], statistic: Statistic) -> Floats:
    if statistic == "reward_sum":
        raise InputError(
            "env_ids with statistic='reward_sum'; expected 'variance' or 'std': a sum of rewards may be negative, and "
            "dividing by its mean would turn the ranking around. Select each environment by itself."
        )
    mean = np.bincount(env_P, weights=scores) / np.maximum(np.bincount(env_P), 1)
    scale = np.where(mean > 0, mean, 1.0)[env_P]
    return scores / scale


def _statistic(found: GroupRewards, statistic: Statistic) -> Floats:
    if statistic == "variance":
        return found.variance_P
    return found.std_P if statistic == "std" else found.mean_P * found.groups.size_P


def _merge_ties(scores: Floats) -> Floats:
    """Give neighbours in the ranking that differ by rounding only the same score, so that position decides.

    ``[1, 0, 0, 0]`` and ``[0.7, 0.7, 0.7, -0.3]`` have the same variance, but not in floats.
    """
    order = np.argsort(scores)
    ascending = scores[order]
    gap = np.diff(ascending) > TIE_RTOL * np.abs(ascending[1:])
    start = np.concatenate([[True], gap])[: len(scores)]
    merged = np.empty_like(scores)
    merged[order] = ascending[start][np.cumsum(start) - 1]
    return merged


def _reason(num_kept: int, num_groups: int, num_constant: int, num_undecidable: int) -> str:
    if num_kept:
        return f"kept {num_kept} of {num_groups}"
    if not num_groups:
        return "there are no groups"
    if num_undecidable == num_groups:
        return "every group is undecidable: fewer than 2 valid members"
    if num_constant == num_groups:
        return "every group is constant"
    if num_constant + num_undecidable == num_groups:
        return f"every group is constant ({num_constant}) or undecidable ({num_undecidable})"
    return f"kept 0 of {num_groups}: the rule asks for no group"
