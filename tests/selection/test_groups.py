"""Selecting groups of rollouts by their rewards."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.errors import GroupError, InputError, NonFiniteError
from tether.objectives import aggregate_loss
from tether.selection import select_by_score, select_groups

rewards = st.integers(-3, 3).map(lambda x: x / 10)
groups_of_rewards = st.lists(st.lists(rewards, min_size=2, max_size=5), min_size=1, max_size=7)


def as_rows(groups):
    return (
        np.array([reward for group in groups for reward in group], dtype=float),
        np.array([number for number, group in enumerate(groups) for _ in group]),
    )


def select(groups, **options):
    return select_groups(*as_rows(groups), **options)


def test_a_selection_says_what_it_kept_and_why():
    chosen = select([[1, 0, 0, 1], [0, 0, 0, 0], [0.1, 0, 0, 0], [1, 1, 1, 0]])
    assert chosen.groups == [0, 3]
    assert chosen.keep.tolist() == [True] * 4 + [False] * 8 + [True] * 4
    np.testing.assert_allclose(chosen.scores, [1 / 3, 0, 0.0025, 0.25])
    assert chosen.reason == "kept 2 of 4"
    assert (chosen.num_groups, chosen.num_constant, chosen.num_undecidable) == (4, 1, 0)
    assert chosen.kept_share == 0.5


@settings(deadline=None)
@given(groups=groups_of_rewards, top_p=st.sampled_from([0.3, 0.5, 0.9, 1.0]), zeros=st.booleans())
def test_it_is_the_rule_on_the_statistic_of_each_group(groups, top_p, zeros):
    chosen = select(groups, top_p=top_p, include_zero=zeros)
    variances = [0.0 if max(group) == min(group) else float(np.var(group, ddof=1)) for group in groups]
    kept = select_by_score(np.round(variances, 12), top_p=top_p, include_zero=zeros).tolist()
    assert chosen.groups == kept
    assert chosen.keep.tolist() == [number in kept for number in as_rows(groups)[1]]


@settings(deadline=None)
@given(groups=groups_of_rewards, random=st.randoms(use_true_random=False))
def test_the_order_of_rows_decides_nothing_but_ties(groups, random):
    values, ids = as_rows(groups)
    order = np.array(random.sample(range(len(values)), len(values)))
    chosen, shuffled = select_groups(values, ids), select_groups(values[order], ids[order])

    def ranked(selection):
        score = dict(zip(selection.index.ids, selection.scores, strict=True))
        return [score[group] for group in selection.groups]

    np.testing.assert_allclose(ranked(shuffled), ranked(chosen), rtol=1e-12)
    assert chosen.num_constant == shuffled.num_constant


@settings(deadline=None)
@given(groups=groups_of_rewards)
def test_one_with_zeros_is_the_identity_and_rewards_stay_as_they_are(groups):
    values, ids = as_rows(groups)
    before = values.copy()
    values.flags.writeable = False
    chosen = select_groups(values, ids, top_p=1.0, include_zero=True)
    assert chosen.keep.all()
    assert sorted(chosen.groups) == list(range(len(groups)))
    assert values[chosen.keep].tobytes() == before.tobytes()


@pytest.mark.parametrize("kind", [list, np.asarray, torch.tensor])
def test_rewards_may_be_of_any_kind(kind):
    chosen = select_groups(kind([1.0, 0.0, 0.5, 0.5]), kind([5, 5, 6, 6]))
    assert chosen.groups == [5]
    assert chosen.keep.dtype == bool


def test_masked_loss_equals_the_loss_on_the_kept_rows():
    values, ids = as_rows([[1, 0], [1, 1], [0, 1]])
    loss = np.random.default_rng(0).normal(size=(6, 4))
    mask = np.random.default_rng(1).random((6, 4)) < 0.7
    keep = select_groups(values, ids).keep
    masked = aggregate_loss(loss, mask & keep[:, None])
    assert masked == pytest.approx(aggregate_loss(loss[keep], mask[keep]), rel=1e-15)


def test_constant_fractional_rewards_do_not_look_mixed():
    """F08: a mean strictly inside (0, 1) says nothing; [0.37] * 8 is constant, [0, 1] is not."""
    chosen = select([[0.37] * 8, [0.0, 1.0]])
    assert chosen.groups == [1]
    assert chosen.num_constant == 1


def test_a_group_gets_the_same_decision_alone_and_among_others():
    """F09: called for one group at a time the filter must not keep what it would drop from a batch."""
    constant, mixed = [0.5] * 4, [0, 1, 0, 1]
    alone = select([constant])
    assert alone.groups == []
    assert alone.reason == "every group is constant"
    assert not alone.keep.any()
    assert 0 not in select([constant, mixed, mixed, mixed, mixed]).groups


def test_failed_members_neither_train_nor_count():
    """F11: judge noise around two equal rewards and a failed third member are no signal."""
    values, ids = [0.6667, 0.66670001, 0.0, 1.0, 0.0, float("nan")], ["a"] * 3 + ["b"] * 3
    valid = [True, True, False, True, True, False]
    chosen = select_groups(values, ids, valid=valid, zero_rtol=1e-6)
    assert chosen.groups == ["b"]
    assert chosen.num_constant == 1
    assert chosen.keep.tolist() == [False] * 3 + [True, True, False]
    assert select_groups(values[:3], ids[:3], zero_rtol=1e-6).groups == ["a"]


def test_one_live_member_is_undecidable_and_not_constant():
    """F11."""
    chosen = select_groups([1, 0, 1, 0, 1, 1], [*"aabbcc"], valid=[1, 0, 1, 1, 1, 1], top_p=1.0, include_zero=True)
    assert chosen.groups == ["b", "c"]
    assert np.isnan(chosen.scores).tolist() == [True, False, False]
    assert (chosen.num_constant, chosen.num_undecidable) == (1, 1)


@pytest.mark.parametrize(
    ("groups", "options", "reason"),
    [
        ([], {}, "there are no groups"),
        ([[1, 1], [0, 0]], {}, "every group is constant"),
        ([[1, 0]], {"valid": [True, False]}, "every group is undecidable: fewer than 2 valid members"),
        (
            [[1, 0], [1, 1]],
            {"valid": [True, False, True, True]},
            "every group is constant (1) or undecidable (1)",
        ),
        ([[1, 0], [1, 1]], {"fraction": 0.1}, "kept 0 of 2: the rule asks for no group"),
        ([[1, 0], [1, 1]], {"selection_eps": 9.0}, "kept 0 of 2: the rule asks for no group"),
    ],
)
def test_an_empty_selection_is_a_result_with_a_reason(groups, options, reason):
    chosen = select(groups, **options)
    assert chosen.groups == []
    assert not chosen.keep.any()
    assert chosen.reason == reason


def test_groups_are_not_rows_in_a_rectangle():
    """F15: unequal interleaved groups are selected alike in any row order; an id per row is named as the cause."""
    values, ids = np.array([1, 0, 1, 0, 0, 0, 0, 0]), np.array(list("aaabbbbb"))
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(8)
        chosen = select_groups(values[order], ids[order])
        assert chosen.groups == ["a"]
        assert (chosen.keep == (ids[order] == "a")).all()
    with pytest.raises(GroupError, match=r"every group has one member.*\n?.*The id looks per-rollout"):
        select_groups(values, np.arange(8))


def test_a_penalty_that_all_members_pay_changes_no_decision():
    """F16: variances that differ by rounding only are ties, also between complementary groups."""
    groups = [[1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 1]]
    for penalty in (0.1, 0.3, 0.7, 1.1):
        for top_p in (0.2, 0.4, 0.6, 0.8):
            shifted = [[reward - penalty for reward in group] for group in groups]
            assert select(shifted, top_p=top_p).groups == select(groups, top_p=top_p).groups


@pytest.mark.parametrize("value", [0.1, 0.2, 0.7, 0.95])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_groups_of_three_never_train(value, dtype):
    """F19, F20, F21."""
    chosen = select_groups(np.array([value] * 3 + [0, 1, 1], dtype=dtype), [*"aaabbb"], include_zero=False)
    assert chosen.groups == ["b"]
    assert chosen.scores[0] == 0


def test_statistics_rank_differently():
    groups = [[11, 0, 0, 0], [5, 0, 0, 5], [1, 0, 1, 0], [1, 1, 1, 0]]
    assert select(groups).groups == [0, 1]
    assert select(groups, statistic="std").groups == [0, 1, 2]
    assert select(groups, statistic="reward_sum", count=2).groups == [0, 1]
    np.testing.assert_allclose(select(groups, statistic="reward_sum").scores, [11, 10, 2, 3])
    np.testing.assert_allclose(select(groups, variance_ddof=0).scores, [np.var(group) for group in groups])


def test_a_negative_sum_of_rewards_has_no_share():
    with pytest.raises(InputError, match="negative scores"):
        select([[-1, 0], [1, 0]], statistic="reward_sum")


def test_large_reward_units_of_one_environment_do_not_crowd_out_the_others():
    groups = [[0, 9.8], [0, 9.4], *[[0, 1]] * 4]
    env_ids = ["sokoban"] * 4 + ["lake"] * 8
    assert select(groups).groups == [0, 1]
    apart = select(groups, env_ids=env_ids)
    assert sorted(apart.groups) == list(range(6))
    units = np.repeat([100.0, 1.0], [4, 8])
    values, ids = as_rows(groups)
    assert select_groups(values * units, ids, env_ids=env_ids).groups == apart.groups


def test_an_environment_without_variance_stays_without_score():
    chosen = select([[1, 1], [0, 1]], env_ids=[0, 0, 1, 1])
    assert chosen.scores.tolist() == [0.0, 1.0]
    with pytest.raises(InputError, match="reward_sum"):
        select([[1, 1], [0, 1]], env_ids=[0, 0, 1, 1], statistic="reward_sum")


@pytest.mark.parametrize(
    "prompts",
    [
        ["go left", "go right", "stay", "stay"],
        [[1, 2], [1, 3], [4], [4]],
        np.array([[1, 2], [1, 3], [4, 4], [4, 4]]),
        torch.tensor([[1, 2], [1, 3], [4, 4], [4, 4]]),
        [[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}], None, None],
    ],
    ids=["text", "ids", "array", "tensor", "messages"],
)
def test_a_group_that_mixes_prompts_is_named(prompts):
    with pytest.raises(GroupError, match=r"group 'a' mixes prompts: row 1 has"):
        select_groups([1, 0, 1, 0], [*"aabb"], prompts=prompts)
    same = [prompts[0], prompts[0], prompts[2], prompts[3]]
    assert select_groups([1, 0, 1, 0], [*"aabb"], prompts=same).groups == ["a", "b"]


def test_a_group_that_mixes_environments_is_named():
    with pytest.raises(GroupError, match="group 'b' mixes environments"):
        select_groups([1, 0, 1, 0], [*"aabb"], env_ids=["x", "x", "x", "y"])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None])
def test_a_reward_that_is_not_finite_names_its_group_and_row(bad):
    valid = [False, True, True, True, True, True]
    with pytest.raises(NonFiniteError, match=r"row 5 of group 'b'"):
        select_groups([1, 0, 1, 1, 0, bad], [*"aaabbb"], valid=valid)


@pytest.mark.parametrize(
    "options", [{"valid": [True]}, {"prompts": ["x"]}, {"env_ids": ["x"]}, {"statistic": "varance"}, {"top_p": 2}]
)
def test_options_that_do_not_fit_are_refused(options):
    with pytest.raises(InputError):
        select([[1, 0], [1, 1]], **options)


def test_groups_of_one_are_refused_even_beside_others():
    with pytest.raises(GroupError, match=r"groups of one: 1 of 2 groups .*'b'"):
        select_groups([1, 0, 1], [*"aab"])


def test_a_divisor_needs_more_members_than_it_takes_away():
    with pytest.raises(GroupError, match="fewer than 3 rollouts"):
        select([[1, 0], [1, 0, 0]], variance_ddof=2)


def test_a_million_rollouts_equal_the_same_groups_one_by_one():
    rng = np.random.default_rng(0)
    values, ids = rng.normal(size=1_000_000), np.arange(1_000_000) % 100_000
    chosen = select_groups(values, ids)
    variances = values.reshape(10, 100_000).var(axis=0, ddof=1)
    np.testing.assert_allclose(chosen.scores, variances, rtol=1e-12)
    assert chosen.groups == select_by_score(variances).tolist()
