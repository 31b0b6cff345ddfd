"""Does the reward leave anything to learn from? Statistics of reward groups."""

# _B rows (rollouts) | _P prompts (groups)

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tether.diagnostics.rates import share_over_prompts
from tether.diagnostics.uncertainty import jackknife_interval
from tether.errors import InputError
from tether.objectives import GroupRewards, group_reward_statistics
from tether.results import Estimate, skipped

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

EQUAL_RTOL = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class RewardGroups:
    """The reward groups of one batch. Shares and variances are over groups of at least two; None without any.

    Attributes:
        num_groups: Groups in the batch, those of one member included.
        num_rollouts: Rows.
        mean_reward: Mean over rows.
        batch_std: Sample deviation over *all* rows, differences between prompts included; None for a single row.
        mean_P: Mean reward of each group, those of one member included.
        ids_P: Ids of the groups of at least two.
        variance_P: Sample variance *within* each of them, in squared reward units.
        constant_P: Whether all members have the same reward: no group-relative advantage, nothing to learn.
        solved_P: Constant because all members succeeded.
        failed_P: Constant because all members failed.
    """

    num_groups: int
    num_rollouts: int
    mean_reward: float
    batch_std: float | None
    mean_P: Floats
    ids_P: tuple[Hashable, ...]
    variance_P: Floats
    constant_P: Booleans
    solved_P: Booleans
    failed_P: Booleans

    @property
    def num_undecidable(self) -> int:
        """Groups of one, which can neither vary nor be constant."""
        return self.num_groups - len(self.ids_P)

    @property
    def mean_group_variance(self) -> float | None:
        """Mean over groups of the variance within a group; not the variance of the batch."""
        return _mean(self.variance_P)

    @property
    def zero_variance_share(self) -> float | None:
        """Share of groups that are constant."""
        return _mean(self.constant_P)

    @property
    def solved_share(self) -> float | None:
        """Share of groups that are constant because all members succeeded."""
        return _mean(self.solved_P)

    @property
    def failed_share(self) -> float | None:
        """Share of groups that are constant because all members failed."""
        return _mean(self.failed_P)

    @property
    def variance_dispersion(self) -> float | None:
        """Deviation over mean of the groups' variances; None below two groups or when all are 0.

        A filter by variance can only choose when they differ. In arXiv 2604.06268 (Table 8, three settings) 1.29 and
        1.16 went with gains, 0.33 with a loss.
        """
        if len(self.variance_P) < 2 or not self.variance_P.any():
            return None
        return float(self.variance_P.std(ddof=1) / self.variance_P.mean())

    def estimates(self, *, confidence: float = 0.95) -> dict[str, Estimate]:
        """Return the means over groups with their intervals."""
        found = {"reward_mean": _group_mean("reward_mean", "reward", self.mean_P, self.num_rollouts, confidence)}
        shares = {
            "zero_variance_share": self.constant_P,
            "solved_share": self.solved_P,
            "failed_share": self.failed_P,
        }
        if not self.ids_P:
            reason = (
                f"all {self.num_groups} groups have one member: the id looks per-rollout; "
                "name the column that identifies the prompt"
            )
            units = {"group_reward_variance": "reward^2", **dict.fromkeys(shares, "fraction")}
            counts = {"num_prompts": self.num_groups, "num_samples": self.num_rollouts}
            return found | {name: skipped(name, unit, reason, **counts) for name, unit in units.items()}
        found["group_reward_variance"] = _group_mean(
            "group_reward_variance", "reward^2", self.variance_P, self.num_rollouts, confidence
        )
        for name, hits_P in shares.items():
            found[name] = share_over_prompts(name, hits_P.tolist(), self.ids_P, confidence=confidence)
        return found


def reward_groups(
    rewards: Sequence[float] | Floats, group_ids: Sequence[Hashable], *, success: Sequence[bool] | None = None
) -> RewardGroups:
    """Describe the reward groups of one batch.

    A constant group is *solved* when all its members succeeded and *failed* when none did. Without ``success`` it is
    solved when its reward is positive and the largest of the batch, else failed.

    >>> found = reward_groups([1, 1, 0, 0, 0, 1], ["a", "a", "b", "b", "c", "c"])
    >>> [round(share, 3) for share in (found.zero_variance_share, found.solved_share, found.failed_share)]
    [0.667, 0.333, 0.333]

    Raises:
        InputError: No rewards, or rewards, ids and success differ in number.
        NonFiniteError: A reward is NaN or infinite; the message names the group.
    """
    reward_B = np.asarray(rewards, dtype=np.float64)
    if not reward_B.size:
        raise InputError("no rewards: expected one number a rollout. Leave empty batches out.")
    found = group_reward_statistics(reward_B, group_ids, ddof=0)
    several_P = found.groups.size_P >= 2
    size_P = found.groups.size_P[several_P]
    succeeded_P, failed_P = _outcomes(found, reward_B, success)
    return RewardGroups(
        num_groups=len(found.groups.ids),
        num_rollouts=len(reward_B),
        mean_reward=float(reward_B.mean()),
        batch_std=float(reward_B.std(ddof=1)) if len(reward_B) > 1 else None,
        mean_P=found.mean_P,
        ids_P=tuple(found.groups.ids[index] for index in np.flatnonzero(several_P)),
        variance_P=found.variance_P[several_P] * size_P / (size_P - 1),
        constant_P=found.constant_P[several_P],
        solved_P=(found.constant_P & succeeded_P)[several_P],
        failed_P=(found.constant_P & failed_P)[several_P],
    )


def _outcomes(found: GroupRewards, reward_B: Floats, success: Sequence[bool] | None) -> tuple[Booleans, Booleans]:
    """Whether all members of each group succeeded, and whether all failed; for constant groups only."""
    if success is None:
        best = float(reward_B.max())
        succeeded_P = (found.mean_P > 0) & np.isclose(found.mean_P, best, rtol=EQUAL_RTOL, atol=0.0)
        return succeeded_P, ~succeeded_P
    success_B = np.asarray(success, dtype=np.float64)
    if success_B.shape != reward_B.shape:
        raise InputError(f"{len(reward_B)} rewards, {success_B.shape} success values; expected one a rollout.")
    num_P = np.bincount(found.groups.number_B, weights=success_B, minlength=len(found.groups.ids))
    return num_P == found.groups.size_P, num_P == 0


def _mean(value_P: Floats | Booleans) -> float | None:
    return float(value_P.mean()) if len(value_P) else None


def _group_mean(name: str, unit: str, value_P: Floats, num_rollouts: int, confidence: float) -> Estimate:
    value, num_groups = float(value_P.mean()), len(value_P)
    rest_P = (value_P.sum() - value_P) / (num_groups - 1) if num_groups > 1 else np.array([np.nan])
    low, high = jackknife_interval(value, rest_P, confidence=confidence)
    reason = "no interval: fewer than 3 groups" if np.isnan(low) else ""
    return Estimate(
        name,
        value,
        unit,
        low=low,
        high=high,
        confidence=confidence,
        num_prompts=num_groups,
        num_samples=num_rollouts,
        reason=reason,
    )
