"""Rewards made comparable within groups, environments or a batch, before advantages are computed."""

# _B rows (rollouts) | _P groups

from __future__ import annotations

from typing import Literal

import numpy as np

from tether.errors import InputError, did_you_mean
from tether.objectives._arrays import Array, Floats, of_kind
from tether.objectives.advantages import group_relative_advantages
from tether.objectives.groups import GroupIndex
from tether.objectives.rewards import require_finite, rows_of_groups

NormalisationMethod = Literal["none", "mean", "mean_std", "asym_clip"]
METHODS = ("none", "mean", "mean_std", "asym_clip")


def normalise_rewards(
    rewards: Array,
    keys: Array | GroupIndex | None = None,
    *,
    method: NormalisationMethod,
    clip: tuple[float, float] = (-1.0, 3.0),
    ddof: int = 1,
    eps: float = 1e-6,
    zero_rtol: float = 1e-9,
    singleton: Literal["error", "zero"] = "error",
) -> Array:
    """Normalise the rewards that share a key (RAGEN, arXiv 2504.20073): group ids, environment names, or a whole batch.

    =============  =====================================================
    ``none``       the reward
    ``mean``       minus the mean of its key
    ``mean_std``   and divided by (standard deviation + ``eps``)
    ``asym_clip``  and then clipped to ``clip``: successes are rare and may stand out, failures may not
    =============  =====================================================

    Equal rewards give exact zeros. A format penalty is added *before* and creates variance in a flat group; whatever
    selects groups by reward variance must therefore see the outcome reward and not the result of this.

    >>> normalise_rewards([10.0, 0.0, 5.0, 5.0], ["lake", "lake", "bandit", "bandit"], method="mean").tolist()
    [5.0, -5.0, 0.0, 0.0]

    Args:
        rewards: One finite number a rollout, (B,); NumPy or Torch, result of the same kind.
        keys: One hashable a rollout; None normalises the batch as a whole.
        method: What is done.
        clip: Lowest and highest result; for ``asym_clip`` only.
        ddof: The standard deviation divides by size - ``ddof``.
        eps: Added to the standard deviation, in reward units.
        zero_rtol: Relative tolerance of :func:`tether.objectives.is_constant`.
        singleton: What to do with a reward that is alone under its key: refuse it, or return 0, which discards it.

    Raises:
        GroupError: If a key has one reward (unless ``singleton="zero"`` or ``method="none"``).
        NonFiniteError: If a reward is NaN or infinite.
        InputError: If rewards and keys differ in number, or an option is unknown.
    """
    for name, given, known in (("method", method, METHODS), ("singleton", singleton, ("error", "zero"))):
        if given not in known:
            raise InputError(f"{name}={given!r}; expected one of {', '.join(known)}{did_you_mean(str(given), known)}")
    if not clip[0] < clip[1]:
        raise InputError(f"clip={clip}; expected the lower limit before the higher one (usual: (-1, 3)).")
    rewards_B, groups = rows_of_groups(rewards, np.zeros(len(rewards), dtype=np.int64) if keys is None else keys)
    require_finite(rewards_B, groups)
    if method == "none":
        return of_kind(rewards_B, rewards)
    several_B = np.ones_like(rewards_B, dtype=bool) if singleton == "error" else groups.size_P[groups.number_B] > 1
    result_B: Floats = np.zeros_like(rewards_B)
    result_B[several_B] = group_relative_advantages(
        rewards_B[several_B],
        groups.take(several_B),
        std_norm=method != "mean",
        ddof=ddof,
        eps=eps,
        zero_rtol=zero_rtol,
    )
    if method == "asym_clip":
        result_B = np.clip(result_B, *clip)
    return of_kind(result_B, rewards)
