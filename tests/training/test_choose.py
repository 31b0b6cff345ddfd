"""Which groups train: by the outcome reward, and under the controls."""

import math

import numpy as np
import pytest

from tether.errors import GroupError, NonFiniteError
from tether.randomness import keyed_rng
from tether.records import Episode, Turn
from tether.training.choose import choose_groups
from tether.training.config import SelectConfig
from tether.training.summary import selection_metrics

# Sample variances: a 1/3, b 1/4, c 1/4, d and e 0. The rule top_p=0.9 keeps a, b, c.
OUTCOMES = {"a": [1, 1, 0, 0], "b": [1, 0, 0, 0], "c": [1, 1, 1, 0], "d": [0, 0, 0, 0], "e": [1, 1, 1, 1]}
RNG = keyed_rng(0, "drop")


def make_episode(group, member, outcome, penalty=0.0, prompt=None):
    turn = Turn(prompt_ids=(ord(group) if prompt is None else prompt,), sampled_ids=(1, 2), logprobs=(-1.0, -1.0))
    return Episode(
        f"{group}{member}",
        group_id=group,
        turns=(turn,),
        reward=outcome - penalty,
        components={"outcome": (outcome, 1.0), "format": (-penalty, 1.0)},
        success=outcome == 1,
    )


def make_batch(outcomes=OUTCOMES, penalties=None):
    return [
        make_episode(group, member, float(outcome), (penalties or {}).get(group, [0.0] * 4)[member])
        for group, members in outcomes.items()
        for member, outcome in enumerate(members)
    ]


def kept_groups(episodes, choice):
    return sorted({episode.group_id for episode, keep in zip(episodes, choice.keep, strict=True) if keep})


def test_the_rule_keeps_whole_groups_by_the_variance_of_their_outcome():
    episodes = make_batch()
    choice = choose_groups(episodes, SelectConfig(), RNG)
    assert kept_groups(episodes, choice) == ["a", "b", "c"]
    assert (choice.kept_share, choice.loss_scale, choice.regulariser_weight) == (0.6, 1.0, 1.0)
    assert selection_metrics(choice) == {
        "groups": 5,
        "kept_groups": 3,
        "rule_kept_share": 0.6,
        "loss_scale": 1.0,
        "regulariser_weight": 1.0,
    }


def test_a_format_penalty_is_not_what_the_rule_looks_at():
    """Members that differ in their format alone have equal outcomes: there is nothing to learn about the task."""
    penalties = {"d": [0.0, 0.5, 0.0, 0.5], "a": [0.0, 0.0, 1.0, 1.0]}
    plain, penalised = make_batch(), make_batch(penalties=penalties)
    assert choose_groups(penalised, SelectConfig(), RNG).keep.tolist() == (
        choose_groups(plain, SelectConfig(), RNG).keep.tolist()
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"strategy": "none"}, "abcde"),
        ({"strategy": "top_p", "top_p": 0.5}, "ab"),
        ({"strategy": "top_p", "top_p": 1.0}, "abc"),
        ({"strategy": "top_p", "top_p": 1.0, "include_zero": True}, "abcde"),
        ({"strategy": "top_k", "fraction": 0.4}, "ab"),
        ({"strategy": "top_k_abs", "count": 1}, "a"),
        ({"strategy": "top_k_abs", "count": 1, "keep": "smallest"}, "b"),
        ({"strategy": "top_k_abs", "count": 1, "keep": "smallest", "include_zero": True}, "d"),
        ({"strategy": "min_p", "min_p": 0.8}, "a"),
        ({"strategy": "min_p", "min_p": 0.8, "statistic": "std"}, "abc"),
        ({"strategy": "top_k_abs", "count": 1, "min_keep": 2}, "ab"),
        ({"strategy": "top_p", "mass": "softmax", "include_zero": True}, "abcde"),
        ({"strategy": "top_p", "selection_eps": 0.25}, "ab"),
        ({"strategy": "top_p", "keep": "smallest", "include_zero": True, "profile": "compat"}, ""),
    ],
)
def test_every_strategy_of_the_configuration_reaches_the_rule(options, expected):
    episodes = make_batch()
    assert "".join(kept_groups(episodes, choose_groups(episodes, SelectConfig(**options), RNG))) == expected


def test_random_drop_keeps_as_many_whole_groups_as_the_rule_would():
    episodes = make_batch()
    draws = []
    for step in range(40):
        choice = choose_groups(episodes, SelectConfig(control="random_drop"), keyed_rng(0, "drop", step))
        groups = kept_groups(episodes, choice)
        assert np.count_nonzero(choice.keep) == 4 * len(groups) == 4 * choice.num_kept_groups == 12
        assert (choice.kept_share, choice.regulariser_weight) == (0.6, 1.0)
        draws.append(groups)
    assert {group for groups in draws for group in groups} == set(OUTCOMES)
    again = choose_groups(episodes, SelectConfig(control="random_drop"), keyed_rng(0, "drop", 39))
    assert kept_groups(episodes, again) == draws[-1]


def test_dose_trains_every_group_and_weakens_the_regularisers_by_what_the_rule_keeps():
    episodes = make_batch()
    choice = choose_groups(episodes, SelectConfig(control="dose", loss_scale="full_batch"), RNG)
    assert choice.keep.all()
    assert (choice.num_kept_groups, choice.kept_share) == (5, 0.6)
    assert (choice.loss_scale, choice.regulariser_weight) == (1.0, 0.6)


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        ({"loss_scale": "kept_mean"}, 1.0),
        ({"loss_scale": "full_batch"}, 0.6),
        ({"loss_scale": "rho_scaled", "top_p": 0.9}, 0.9),
        ({"loss_scale": "rho_scaled", "strategy": "top_k", "fraction": 0.4}, 0.4),
        ({"loss_scale": "full_batch", "strategy": "none"}, 1.0),
        ({"loss_scale": "full_batch", "control": "random_drop"}, 0.6),
    ],
)
def test_the_loss_is_scaled_as_configured(options, scale):
    assert choose_groups(make_batch(), SelectConfig(**options), RNG).loss_scale == pytest.approx(scale)


@pytest.mark.parametrize("control", ["none", "random_drop"])
@pytest.mark.parametrize("loss_scale", ["kept_mean", "full_batch", "rho_scaled"])
def test_where_every_group_is_constant_nothing_trains(control, loss_scale):
    episodes = make_batch({"d": OUTCOMES["d"], "e": OUTCOMES["e"]})
    choice = choose_groups(episodes, SelectConfig(control=control, loss_scale=loss_scale), RNG)
    assert not choice.keep.any()
    assert (choice.num_kept_groups, choice.kept_share) == (0, 0.0)


@pytest.mark.parametrize("strategy", ["none", "top_p", "top_k"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_reward_that_is_no_number_names_its_group(strategy, value):
    episodes = make_batch({**OUTCOMES, "c": [1, 1, value, 0]})
    with pytest.raises(NonFiniteError, match="'c'"):
        choose_groups(episodes, SelectConfig(strategy=strategy), RNG)


def test_a_group_that_mixes_prompts_is_refused():
    episodes = [*make_batch(), make_episode("b", 4, 1.0, prompt=7)]
    with pytest.raises(GroupError, match="group 'b' mixes prompts"):
        choose_groups(episodes, SelectConfig(), RNG)


def test_a_group_of_one_is_refused():
    with pytest.raises(GroupError, match="at least 2"):
        choose_groups([*make_batch(), make_episode("z", 0, 1.0)], SelectConfig(), RNG)
