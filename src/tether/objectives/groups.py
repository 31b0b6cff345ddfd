"""Which rows belong together: a group is the rollouts of one initial state.

Rows need not be sorted, nor groups equally large. Groups are numbered by first appearance, which is their *position*
wherever ties are resolved by position.
"""

# _B rows (rollouts) | _P groups

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from array_api_compat import is_numpy_array, is_torch_array

from tether.errors import GroupError
from tether.objectives._arrays import Array, Booleans, Integers


@dataclass(frozen=True, slots=True, eq=False)
class GroupIndex:
    """The groups of a batch.

    Attributes:
        ids: The id of each group, in order of first appearance.
        number_B: The position in ``ids`` of each row's group.
        size_P: How many rows each group has.
    """

    ids: list[Hashable]
    number_B: Integers
    size_P: Integers

    def take(self, rows_B: Booleans) -> GroupIndex:
        """Return the index of the chosen rows; groups without any of them are left out."""
        number_B = self.number_B[rows_B]
        size_P = np.bincount(number_B, minlength=len(self.ids))
        present_P = size_P > 0
        renumber_P = np.cumsum(present_P) - 1
        ids = [self.ids[position] for position in np.flatnonzero(present_P)]
        return GroupIndex(ids, renumber_P[number_B], size_P[present_P])

    def names(self, positions: Sequence[int] | Integers, limit: int = 3) -> str:
        """Return the ids at ``positions`` for a message, at most ``limit`` of them."""
        shown = ", ".join(repr(self.ids[position]) for position in positions[:limit])
        return shown + (", …" if len(positions) > limit else "")


def index_groups(group_ids: Array | Sequence[Hashable] | GroupIndex) -> GroupIndex:
    """Return the groups that the rows' ids name.

    >>> index = index_groups(["b", "a", "b"])
    >>> index.ids, index.number_B.tolist(), index.size_P.tolist()
    (['b', 'a'], [0, 1, 0], [2, 1])

    Raises:
        GroupError: If there is not one id a row, or an id is missing.
    """
    if isinstance(group_ids, GroupIndex):
        return group_ids
    if is_torch_array(group_ids):
        group_ids = group_ids.detach().cpu().numpy()
    if is_numpy_array(group_ids) and group_ids.ndim == 1 and group_ids.dtype.kind in "iu":
        return _index_integers(group_ids)
    ids_B = list(group_ids.tolist() if is_numpy_array(group_ids) else group_ids)
    position: defaultdict[Hashable, int] = defaultdict(count().__next__)  # a new id gets the next number
    try:
        number_B = np.fromiter(map(position.__getitem__, ids_B), dtype=np.int64, count=len(ids_B))
    except TypeError as error:
        raise GroupError(
            f"group ids: {error}; expected one hashable id a row, such as a string or an integer."
        ) from error
    if None in position:
        raise GroupError(
            f"group ids: {ids_B.count(None)} of {len(ids_B)} rows have no id (None); expected one id a row. "
            "Name the column that identifies the prompt, or group by prompt text."
        )
    return GroupIndex(list(position), number_B, np.bincount(number_B, minlength=len(position)))


def _index_integers(ids_B: Integers) -> GroupIndex:
    unique, inverse_B = np.unique(ids_B, return_inverse=True)
    first = np.empty(len(unique), dtype=np.int64)
    first[inverse_B[::-1]] = np.arange(len(ids_B))[::-1]  # of several writes the last stays: the first appearance
    by_appearance = np.argsort(first)
    number_P = np.empty_like(by_appearance)
    number_P[by_appearance] = np.arange(len(unique))
    number_B = number_P[inverse_B]
    return GroupIndex(unique[by_appearance].tolist(), number_B, np.bincount(number_B, minlength=len(unique)))


def require_members(groups: GroupIndex, minimum: int = 2) -> None:
    """Refuse groups that are too small to compare their members.

    Raises:
        GroupError: If a group has fewer than ``minimum`` rows.
    """
    small = np.flatnonzero(groups.size_P < minimum)
    if not small.size:
        return
    num_groups, num_rows = len(groups.ids), len(groups.number_B)
    if minimum == 2 and small.size == num_groups:
        raise GroupError(
            f"groups of one: every group has one member, {num_rows} rows have {num_groups} different group ids "
            f"({groups.names(small)}); a group needs at least 2 rollouts.\n"
            "The id looks per-rollout. Name the column that identifies the prompt, or group by prompt text."
        )
    kind = "groups of one" if minimum == 2 else "groups too small"
    raise GroupError(
        f"{kind}: {small.size} of {num_groups} groups have fewer than {minimum} rollouts ({groups.names(small)}); "
        f"a group needs at least {minimum} rollouts.\n"
        "Sample more rollouts for these prompts, or leave their rows out."
    )
