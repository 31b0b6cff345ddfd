"""How much better a rollout did than the others of its group."""

# _B rows (rollouts) | _P groups

from __future__ import annotations

from typing import Literal

import numpy as np

from tether.errors import InputError, did_you_mean
from tether.objectives._arrays import Array, Floats, of_kind
from tether.objectives.groups import GroupIndex, require_members
from tether.objectives.rewards import GroupRewards, group_reward_statistics, rows_of_groups


def group_relative_advantages(
    rewards: Array,
    group_ids: Array | GroupIndex,
    *,
    std_norm: bool = True,
    ddof: int = 1,
    eps: float = 1e-6,
    zero_rtol: float = 1e-9,
    singleton: Literal["error", "raw"] = "error",
) -> Array:
    """Reward minus the group's mean, divided by the group's standard deviation.

    ``(R - mean) / (std + eps)`` (GRPO, arXiv 2402.03300, section 4.1.2); ``std_norm=False`` leaves the division out
    (Dr. GRPO, arXiv 2503.20783). A constant group (:func:`tether.objectives.is_constant`) gets exact zeros. With the
    division, groups with nearly equal rewards are amplified to the size of all others, noise included.

    >>> group_relative_advantages([1, 0, 0, 0], [*"aaaa"], eps=0.0).tolist()
    [1.5, -0.5, -0.5, -0.5]

    Args:
        rewards: One finite number a rollout, (B,); NumPy or Torch, result of the same kind.
        group_ids: One hashable a rollout; groups may differ in size, rows may come in any order.
        std_norm: Whether to divide by the standard deviation.
        ddof: The deviation divides by size - ``ddof``.
        eps: Added to the deviation, in reward units.
        zero_rtol: Relative tolerance of the constant test.
        singleton: What to do with a group of one: refuse it, or take mean 0 and deviation 1 (``"raw"``, what several
            trainers do), which makes the reward itself the advantage.

    Raises:
        GroupError: If a group has one member (unless ``singleton="raw"``).
        NonFiniteError: If a reward is NaN or infinite.
        InputError: If rewards and ids differ in number, or an option is unknown.
    """
    if singleton not in ("error", "raw"):
        hint = did_you_mean(singleton, ("error", "raw"))
        raise InputError(f"singleton={singleton!r}; expected 'error' or 'raw'{hint}")
    rewards_B, groups = rows_of_groups(rewards, group_ids)
    several_B = groups.size_P[groups.number_B] > 1
    if singleton == "error":
        require_members(groups)
    found = group_reward_statistics(rewards_B[several_B], groups.take(several_B), ddof=ddof, zero_rtol=zero_rtol)
    advantages_B = rewards_B / (1.0 + eps) if std_norm else rewards_B.copy()
    advantages_B[several_B] = _normalise(_centre(rewards_B[several_B], found), found, std_norm, eps)
    return of_kind(advantages_B, rewards)


def leave_one_out_advantages(
    rewards: Array,
    group_ids: Array | GroupIndex,
    *,
    std_norm: bool = False,
    ddof: int = 1,
    eps: float = 1e-6,
    zero_rtol: float = 1e-9,
) -> Array:
    """Reward minus the mean of the *other* members of the group (RLOO, arXiv 2402.14740, section 3.2).

    The baseline does not contain the rollout itself, so the gradient is unbiased: ``G / (G - 1)`` times the centred
    reward. With ``std_norm`` it is divided by the standard deviation of the whole group, never of the others alone,
    which is 0 whenever one member differs from equal ones. A constant group gets exact zeros.

    >>> leave_one_out_advantages([0.0, 1.0, 1.0], [7, 7, 7]).tolist()
    [-1.0, 0.5, 0.5]

    Raises:
        GroupError: If a group has one member.
        NonFiniteError: If a reward is NaN or infinite.
        InputError: If rewards and ids differ in number.
    """
    rewards_B, groups = rows_of_groups(rewards, group_ids)
    require_members(groups)
    found = group_reward_statistics(rewards_B, groups, ddof=ddof, zero_rtol=zero_rtol)
    size_B = groups.size_P[groups.number_B]
    centred_B = _centre(rewards_B, found) * size_B / (size_B - 1)
    return of_kind(_normalise(centred_B, found, std_norm, eps), rewards)


def _centre(rewards_B: Floats, found: GroupRewards) -> Floats:
    number_B = found.groups.number_B
    return np.where(found.constant_P[number_B], 0.0, rewards_B - found.mean_P[number_B])


def _normalise(centred_B: Floats, found: GroupRewards, std_norm: bool, eps: float) -> Floats:
    if not std_norm:
        return centred_B
    scale_P = np.where(found.constant_P, 1.0, found.std_P + eps)
    return centred_B / scale_P[found.groups.number_B]
