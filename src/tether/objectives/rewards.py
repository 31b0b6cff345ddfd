"""How much the rewards of a group differ.

One rule decides everywhere whether a group is constant: the whole group is compared, ``max - min <= atol + rtol *
max|R|``. The standard deviation cannot decide it: three rewards of 0.1 have a float deviation of 1.4e-17, and one-pass
variances in single precision leave residues of a few 1e-4.
"""

# _B rows (rollouts) | _P groups

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tether.errors import InputError, NonFiniteError
from tether.objectives._arrays import Array, Booleans, Floats, Integers, of_kind, vector
from tether.objectives.groups import GroupIndex, index_groups, require_members


def is_constant(rewards: Array, rtol: float = 1e-9, atol: float = 0.0) -> bool:
    """Whether the rewards of one group are equal up to rounding: ``max - min <= atol + rtol * max|R|``.

    >>> is_constant([0.1, 0.1, 0.1]), is_constant([1e-6, 2e-6]), is_constant([0.6667, 0.66670001], atol=1e-6)
    (True, False, True)

    Raises:
        InputError: If there is no reward.
        NonFiniteError: If a reward is NaN or infinite.
    """
    rewards_B = vector(rewards, "rewards")
    if not rewards_B.size:
        raise InputError("is_constant got no rewards; expected the rewards of one group: leave empty groups out.")
    if not np.isfinite(rewards_B).all():
        raise NonFiniteError(f"rewards hold NaN or infinity: {rewards_B.tolist()}; expected finite numbers.")
    return bool(_is_flat(rewards_B.min(), rewards_B.max(), rtol, atol))


def _is_flat(low: Floats, high: Floats, rtol: float, atol: float) -> Booleans:
    with np.errstate(over="ignore"):
        spread = high - low
    flat: Booleans = spread <= atol + rtol * np.maximum(np.abs(low), np.abs(high))
    return flat


@dataclass(frozen=True, slots=True, eq=False)
class GroupRewards:
    """The rewards of each group, described. All fields are host arrays over groups, in the order of ``groups.ids``.

    Attributes:
        groups: Which rows form which group.
        mean_P: Mean reward.
        constant_P: Whether the group is constant (:func:`is_constant`); its variance is then exactly 0.
        exponent_P: Power of two near the largest reward; ``unit_variance_P`` is in units of its square, so that tiny
            and huge rewards neither underflow nor overflow.
        unit_variance_P: Variance of ``R / 2**exponent``.
    """

    groups: GroupIndex
    mean_P: Floats
    constant_P: Booleans
    exponent_P: Integers
    unit_variance_P: Floats

    @property
    def std_P(self) -> Floats:
        """Standard deviation within each group, exactly 0 for a constant one."""
        std: Floats = np.ldexp(np.sqrt(self.unit_variance_P), self.exponent_P)
        return std

    @property
    def variance_P(self) -> Floats:
        """Variance within each group, exactly 0 for a constant one.

        Raises:
            NonFiniteError: If a variance leaves the range of float64.
        """
        with np.errstate(over="ignore", under="ignore"):
            variance: Floats = np.ldexp(self.unit_variance_P, 2 * self.exponent_P)
        lost = np.flatnonzero(~np.isfinite(variance) | ((variance == 0) & ~self.constant_P))
        if lost.size:
            raise NonFiniteError(
                f"the reward variance of group {self.groups.names(lost)} leaves the range of float64; "
                "expected rewards whose squares are representable: rescale the rewards, or use the standard deviation."
            )
        return variance


def group_reward_statistics(
    rewards: Array, group_ids: Array | GroupIndex, *, ddof: int = 1, zero_rtol: float = 1e-9, zero_atol: float = 0.0
) -> GroupRewards:
    """Describe the rewards of each group: size, mean, variance, constant or not.

    Groups may differ in size and rows may come in any order.

    Args:
        rewards: One finite number a rollout, (B,).
        group_ids: One hashable a rollout, or a ready index.
        ddof: Divisor of the variance is size - ``ddof``; a group needs more than ``ddof`` members.
        zero_rtol: Relative tolerance of :func:`is_constant`.
        zero_atol: Absolute tolerance of :func:`is_constant`, in reward units.

    Raises:
        InputError: If rewards and ids differ in number.
        GroupError: If a group has at most ``ddof`` members.
        NonFiniteError: If a reward is NaN or infinite; the message names the group.
    """
    rewards_B, groups = rows_of_groups(rewards, group_ids)
    require_finite(rewards_B, groups)
    require_members(groups, ddof + 1)
    number_B, size_P = groups.number_B, groups.size_P

    def total(values_B: Floats) -> Floats:
        return np.bincount(number_B, weights=values_B, minlength=len(size_P)).astype(np.float64)

    low_P, high_P = np.full(len(size_P), np.inf), np.full(len(size_P), -np.inf)
    np.minimum.at(low_P, number_B, rewards_B)
    np.maximum.at(high_P, number_B, rewards_B)
    exponent_P = np.frexp(np.maximum(np.abs(low_P), np.abs(high_P)))[1].astype(np.int64)
    unit_B = np.ldexp(rewards_B, -exponent_P[number_B])
    unit_mean_P = total(unit_B) / size_P
    unit_variance_P = total((unit_B - unit_mean_P[number_B]) ** 2) / (size_P - ddof)

    constant_P = _is_flat(low_P, high_P, zero_rtol, zero_atol)
    mean_P = np.clip(np.ldexp(unit_mean_P, exponent_P), low_P, high_P)
    return GroupRewards(groups, mean_P, constant_P, exponent_P, np.where(constant_P, 0.0, unit_variance_P))


def group_reward_variance(
    rewards: Array, group_ids: Array | GroupIndex, *, ddof: int, zero_rtol: float = 1e-9, zero_atol: float = 0.0
) -> Array:
    """Variance of the rewards within each group, in order of first appearance (RAGEN-2, section 3.3: ``ddof=1``).

    In squared reward units; exactly 0 for a constant group (:func:`is_constant`). A high value says that the members
    differ, not that they differ for a reason: rewards drawn at random have a large variance and no signal.

    >>> group_reward_variance([1, 0, 0, 1, 0.1, 0.1, 0.1], [*"aaaabbb"], ddof=1).tolist()
    [0.3333333333333333, 0.0]

    Raises:
        InputError: If rewards and ids differ in number.
        GroupError: If a group has at most ``ddof`` members.
        NonFiniteError: If a reward is NaN or infinite, or a variance leaves the range of float64.
    """
    found = group_reward_statistics(rewards, group_ids, ddof=ddof, zero_rtol=zero_rtol, zero_atol=zero_atol)
    return of_kind(found.variance_P, rewards)


def rows_of_groups(rewards: Array, group_ids: Array | GroupIndex) -> tuple[Floats, GroupIndex]:
    """Return the rewards on the host with the index of their groups.

    Raises:
        InputError: If rewards and ids differ in number.
    """
    rewards_B, groups = vector(rewards, "rewards"), index_groups(group_ids)
    if len(rewards_B) != len(groups.number_B):
        raise InputError(
            f"{len(rewards_B)} rewards, {len(groups.number_B)} group ids; expected one id a reward: "
            "give the id of the prompt once for each of its rollouts."
        )
    return rewards_B, groups


def require_finite(rewards_B: Floats, groups: GroupIndex) -> None:
    """Refuse rewards that are NaN or infinite.

    Raises:
        NonFiniteError: With the first group concerned, its row and the value.
    """
    wrong = np.flatnonzero(~np.isfinite(rewards_B))
    if wrong.size:
        row = int(wrong[0])
        raise NonFiniteError(
            f"{wrong.size} of {len(rewards_B)} rewards are not finite: row {row} of group "
            f"{groups.names([groups.number_B[row]])} is {rewards_B[row]}; expected finite rewards. "
            "Repair the reward function, or exclude failed rollouts."
        )
