"""From the section of a configuration to what the rule is asked for."""

import pytest

from tether.errors import InputError
from tether.selection import select_groups, select_options

SECTION = {
    "top_p": 0.5,
    "fraction": 0.25,
    "count": 2,
    "min_p": 0.8,
    "keep": "largest",
    "min_keep": 0,
    "control": "dose",
}
REWARDS, GROUPS = [1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], [*"aaaabbbbcccc"]


@pytest.mark.parametrize(
    ("strategy", "amount", "kept"),
    [("top_p", "top_p", "a"), ("top_k", "fraction", ""), ("top_k_abs", "count", "ab"), ("min_p", "min_p", "a")],
)
def test_the_amount_of_the_strategy_counts_and_the_others_are_left_alone(strategy, amount, kept):
    options = select_options({**SECTION, "strategy": strategy})
    assert options == {"strategy": strategy, amount: SECTION[amount], "keep": "largest", "min_keep": 0}
    assert "".join(select_groups(REWARDS, GROUPS, **options).groups) == kept


def test_no_strategy_keeps_every_group():
    assert sorted(select_groups(REWARDS, GROUPS, **select_options({**SECTION, "strategy": "none"})).groups) == [*"abc"]


def test_an_empty_section_is_the_default_rule():
    assert select_groups(REWARDS, GROUPS, **select_options({})).groups == select_groups(REWARDS, GROUPS).groups


def test_an_unknown_strategy_is_left_to_the_rule_to_refuse():
    with pytest.raises(InputError, match="did you mean 'top_p'"):
        select_groups(REWARDS, GROUPS, **select_options({**SECTION, "strategy": "top_q"}))
