"""Group-relative and leave-one-out advantages."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.errors import GroupError, InputError, NonFiniteError
from tether.objectives import group_relative_advantages, leave_one_out_advantages


def library(dtype):
    name, _, precision = dtype.partition(".")
    return lambda x: (
        np.array(x, dtype=precision) if name == "numpy" else torch.tensor(x, dtype=getattr(torch, precision))
    )


BOTH = [group_relative_advantages, leave_one_out_advantages]
KINDS = [
    pytest.param(library(dtype), id=dtype)
    for dtype in ("numpy.float64", "numpy.float32", "torch.float64", "torch.float32")
]
rewards = st.floats(-100, 100).map(lambda x: round(x, 3))
groups_of_rewards = st.lists(st.lists(rewards, min_size=2, max_size=6), min_size=1, max_size=5)


def as_rows(groups):
    return [reward for group in groups for reward in group], [n for n, group in enumerate(groups) for _ in group]


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("std_norm", [True, False])
def test_unequal_groups_equal_a_loop_over_groups(std_norm, ddof):
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 7, size=60)
    values = rng.normal(size=60)
    wanted = np.empty(60)
    for group in np.unique(ids):
        members = values[ids == group]
        scale = members.std(ddof=ddof) + 1e-6 if std_norm else 1.0
        wanted[ids == group] = (members - members.mean()) / scale
    found = group_relative_advantages(values, ids, std_norm=std_norm, ddof=ddof)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


def test_leave_one_out_equals_its_definition():
    rng = np.random.default_rng(1)
    ids, values = rng.integers(0, 5, size=40), rng.normal(size=40)
    others = [np.mean([values[j] for j in range(40) if ids[j] == ids[i] and j != i]) for i in range(40)]
    np.testing.assert_allclose(leave_one_out_advantages(values, ids), values - others, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("function", BOTH)
@settings(deadline=None)
@given(groups=groups_of_rewards, random=st.randoms(use_true_random=False))
def test_advantages_follow_their_rows_and_centre_every_group(function, groups, random):
    values, ids = (np.array(rows) for rows in as_rows(groups))
    order = np.array(random.sample(range(len(values)), len(values)))
    found = function(values, ids, std_norm=True)
    np.testing.assert_allclose(function(values[order], ids[order], std_norm=True), found[order], rtol=1e-9, atol=1e-9)
    for group in range(len(groups)):
        assert found[ids == group].sum() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("function", BOTH)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "group", [[0.1] * 3, [0.2] * 3, [0.7] * 3, [0.35] * 8, [1e8 + 0.1] * 3, [0.3, 0.3000000001, 0.3]]
)
def test_a_constant_group_gets_exact_zeros(function, kind, group):
    """F19, F21: fractional rewards leave a residue in the variance that a ``> 0`` guard lets through."""
    found = function(kind(group), ["a"] * len(group), std_norm=True, eps=0.0, zero_rtol=1e-8)
    assert found.tolist() == [0.0] * len(group)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [0.95, 0.35])
def test_a_lone_member_is_not_blown_up_by_rounding(kind, value):
    """F19: divided by the deviation of the whole group, never by that of the seven equal others."""
    group, ids = kind([0.0] + [value] * 7), [0] * 8
    plain = leave_one_out_advantages(group, ids)
    divided = leave_one_out_advantages(group, ids, std_norm=True)
    assert float(plain[0]) == pytest.approx(-value, rel=1e-6)
    assert float(divided[0]) == pytest.approx(-2.83, abs=0.005)
    assert float(abs(divided).max()) < 10


def test_a_penalty_that_all_members_pay_cancels():
    """F16."""
    group = np.array([1.0, 0, 0, 1])
    for function in BOTH:
        np.testing.assert_allclose(function(group - 0.3, [0] * 4), function(group, [0] * 4), rtol=1e-14)


@pytest.mark.parametrize("function", BOTH)
@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_of_the_kind_of_the_rewards(function, kind):
    values = kind([1.0, 0.0, 2.0, 5.0])
    found = function(values, [0, 0, 1, 1])
    assert type(found) is type(values)
    assert found.dtype == values.dtype


def test_low_precision_and_integer_tensors_are_taken():
    half = torch.tensor([1.0, 0.0], dtype=torch.bfloat16)
    assert group_relative_advantages(half, [0, 0], std_norm=False).dtype == torch.bfloat16
    whole = group_relative_advantages(torch.tensor([1, 0]), torch.tensor([5, 5]), std_norm=False)
    assert whole.dtype == torch.float32
    assert whole.tolist() == [0.5, -0.5]


def test_advantages_carry_no_gradient_to_the_rewards():
    values = torch.tensor([1.0, 0.0], requires_grad=True)
    assert not group_relative_advantages(values, [0, 0]).requires_grad


def test_rewards_are_not_changed():
    values = np.array([1.0, 0.0, 3.0])
    group_relative_advantages(values, ["a", "a", "b"], singleton="raw")
    assert values.tolist() == [1.0, 0.0, 3.0]


@pytest.mark.parametrize("function", BOTH)
def test_a_group_of_one_is_refused(function):
    with pytest.raises(GroupError, match="groups of one"):
        function([3.0, 1.0, 0.0], ["a", "b", "b"])


def test_a_group_of_one_may_keep_its_reward():
    found = group_relative_advantages([3.0, 1.0, 0.0], ["a", "b", "b"], singleton="raw", eps=0.0)
    np.testing.assert_allclose(found, [3.0, 0.5**0.5, -(0.5**0.5)])
    plain = group_relative_advantages([3.0, 1.0, 0.0], ["a", "b", "b"], singleton="raw", std_norm=False)
    assert plain.tolist() == [3.0, 0.5, -0.5]


def test_an_unknown_treatment_of_groups_of_one_is_refused():
    with pytest.raises(InputError, match="did you mean 'raw'"):
        group_relative_advantages([1.0, 0.0], [0, 0], singleton="rawr")


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e200])
def test_huge_and_tiny_rewards_are_normalised_like_others(scale):
    found = group_relative_advantages(np.array([1.0, 0.0, 0.0, 0.0]) * scale, [0] * 4, eps=0.0)
    np.testing.assert_allclose(found, [1.5, -0.5, -0.5, -0.5])


@pytest.mark.parametrize("function", BOTH)
def test_a_nan_reward_names_its_group(function):
    with pytest.raises(NonFiniteError, match="group 'b'"):
        function([1.0, 0.0, float("nan"), 1.0], ["a", "a", "b", "b"])


@pytest.mark.parametrize("function", BOTH)
def test_no_rows_have_no_advantages(function):
    assert function(np.zeros(0), []).shape == (0,)
