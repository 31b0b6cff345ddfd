"""The random-drop arm."""

from collections import Counter

import numpy as np

from tether.selection import random_selection, select_groups

REWARDS, IDS = [1, 0, 1, 1, 0, 1, 0, 0, 1, 0], [*"aabbccddee"]


def test_it_keeps_as_many_groups_whole():
    chosen = select_groups(REWARDS, IDS)
    drawn = random_selection(chosen, np.random.default_rng(0))
    assert len(drawn.groups) == len(set(drawn.groups)) == len(chosen.groups) == 3
    assert [group for group, kept in zip(IDS, drawn.keep, strict=True) if kept] == sorted(drawn.groups * 2)
    assert drawn.reason == "kept 3 of 5 at random"


def test_every_decidable_group_is_drawn_equally_often():
    valid = [True] * 9 + [False]  # group e cannot be decided
    chosen = select_groups(REWARDS, IDS, valid=valid, count=1)
    rng = np.random.default_rng(0)
    drawn = Counter(random_selection(chosen, rng).groups[0] for _ in range(2000))
    assert set(drawn) == {*"abcd"}
    assert all(abs(count - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5 for count in drawn.values())


def test_excluded_rows_never_train():
    valid = [True, True, False, True, True]
    chosen = select_groups([1, 0, 1, 1, 0], [*"aaabb"], valid=valid, top_p=1.0)
    assert random_selection(chosen, np.random.default_rng(0)).keep.tolist() == valid


def test_the_same_generator_state_draws_the_same_groups():
    chosen = select_groups(REWARDS, IDS, count=2)
    first, second = (random_selection(chosen, np.random.default_rng(7)) for _ in range(2))
    assert first.groups == second.groups


def test_nothing_kept_is_nothing_drawn():
    drawn = random_selection(select_groups([1, 1], ["a", "a"]), np.random.default_rng(0))
    assert drawn.groups == []
    assert not drawn.keep.any()
