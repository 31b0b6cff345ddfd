"""Which rows form a group."""

import numpy as np
import pytest
import torch

from tether.errors import GroupError
from tether.objectives import index_groups
from tether.objectives.groups import require_members


@pytest.mark.parametrize(
    "ids",
    [
        [7, 3, 7, 9, 3],
        np.array([7, 3, 7, 9, 3]),
        np.array([7, 3, 7, 9, 3], dtype=np.uint8),
        torch.tensor([7, 3, 7, 9, 3]),
    ],
)
def test_groups_are_numbered_by_first_appearance(ids):
    index = index_groups(ids)
    assert index.ids == [7, 3, 9]
    assert index.number_B.tolist() == [0, 1, 0, 2, 1]
    assert index.size_P.tolist() == [2, 2, 1]


@pytest.mark.parametrize("ids", [["b", "a", "b"], np.array(["b", "a", "b"]), [("env", 1), ("env", 0), ("env", 1)]])
def test_an_id_may_be_any_hashable(ids):
    index = index_groups(ids)
    assert index.ids == [ids[0], ids[1]]
    assert index.number_B.tolist() == [0, 1, 0]


def test_no_rows_are_no_groups():
    for nothing in ([], np.array([], dtype=int)):
        assert index_groups(nothing).ids == []
        assert index_groups(nothing).size_P.tolist() == []


def test_a_missing_id_is_not_a_group():
    with pytest.raises(GroupError, match=r"2 of 3 rows have no id"):
        index_groups(["a", None, None])


def test_an_unhashable_id_is_refused():
    with pytest.raises(GroupError, match="hashable"):
        index_groups([[1], [1]])


def test_chosen_rows_keep_their_groups_names():
    index = index_groups(["a", "b", "b", "c", "a"]).take(np.array([False, True, True, False, True]))
    assert index.ids == ["a", "b"]
    assert index.number_B.tolist() == [1, 1, 0]
    assert index.size_P.tolist() == [1, 2]


def test_an_id_per_rollout_is_named_as_the_cause():
    with pytest.raises(GroupError) as refusal:
        require_members(index_groups([f"7f3a-{row}" for row in range(128)]))
    message = str(refusal.value)
    assert message.startswith("groups of one: every group has one member, 128 rows have 128 different group ids")
    assert "'7f3a-0', '7f3a-1'" in message
    assert "The id looks per-rollout. Name the column that identifies the prompt" in message


def test_a_lone_group_of_one_is_named():
    with pytest.raises(GroupError, match=r"groups of one: 1 of 2 groups have fewer than 2 rollouts \('b'\)"):
        require_members(index_groups(["a", "a", "b"]))
