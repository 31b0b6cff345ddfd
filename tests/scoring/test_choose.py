"""The choice of contexts and reasonings: distinct, capped, balanced, drawn by key, with what it leaves out counted."""

import math
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.errors import InputError
from tether.records import Episode, Rollouts, Turn
from tether.scoring.choose import choose_rows

OPEN, CLOSE = 8, 9
MARK = 7  # between turns


def reply(prompt, thought, **about):
    return Turn(tuple(prompt), (OPEN, *thought, CLOSE), reasoning=slice(1, 1 + len(thought)), **about)


def episode(name, prompt, *thoughts, history="kept", group=None):
    """An episode whose later contexts keep the history, drop the thoughts of earlier turns, or drop it all."""
    turns, context = [], tuple(prompt)
    for number, thought in enumerate(thoughts):
        turns.append(reply(context, thought))
        sampled = turns[-1].sampled_ids
        shown = {"kept": sampled, "thoughts dropped": (OPEN, CLOSE), "dropped": ()}[history]
        context = context + shown + (MARK, 50 + number)
    return Episode(name, group_id=group or f"g{prompt}", turns=tuple(turns))


def body(*episodes):
    return Rollouts.from_episodes(episodes)


def places(plan):
    return [(row.episode_id, row.turn) for row in plan.rows_M]


@pytest.fixture(scope="module")
def many():
    """12 prompts, 1 to 12 episodes each, 3 turns an episode, every thought different."""
    return body(
        *(
            episode(f"{p}-{member}", (100 + p,), *((1000 * p + 10 * member + t,) for t in range(3)))
            for p in range(12)
            for member in range(p + 1)
        )
    )


@pytest.mark.parametrize(
    ("turns", "wanted"), [("first", {0}), ("later", {1, 2}), ("all", {0, 1, 2}), (0, {0}), (2, {2}), (1, {1})]
)
def test_the_choice_of_turns_names_which_turns_give_contexts_and_rows(many, turns, wanted):
    plan = choose_rows(many, turns=turns, max_contexts=1000, max_reasonings=1000)
    assert {row.turn for row in plan.rows_M} == wanted
    assert len(plan.rows_M) == plan.coverage.num_turns == plan.coverage.num_rows == 78 * len(wanted)
    assert len(set(plan.contexts_N)) == len(plan.contexts_N)
    contexts = {0: 12, 1: 78, 2: 78}
    assert len(plan.contexts_N) == sum(contexts[turn] for turn in wanted)


def test_every_row_owns_the_context_before_it(many):
    plan = choose_rows(many, turns="all", max_contexts=30, max_reasonings=50)
    turn_at = {(e.episode_id, t): turn for e in many.episodes for t, turn in enumerate(e.turns)}
    for row in plan.rows_M:
        turn = turn_at[row.episode_id, row.turn]
        assert plan.contexts_N[row.own] == turn.context_ids
        assert row.scored_ids == (*turn.reasoning_ids, CLOSE)


def test_contexts_and_rows_stand_in_the_order_of_the_records(many):
    plan = choose_rows(many, turns="all", max_contexts=40, max_reasonings=40)
    order = [(e.episode_id, t) for e in many.episodes for t in range(3)]
    assert places(plan) == sorted(places(plan), key=order.index)
    contexts = [turn.context_ids for e in many.episodes for turn in e.turns]
    assert list(plan.contexts_N) == sorted(plan.contexts_N, key=contexts.index)


@given(
    st.integers(1, 40),
    st.integers(1, 90),
    st.integers(0, 5),
    st.sampled_from(["first", "later", "all"]),
)
def test_the_caps_hold_and_prompts_are_balanced_without_replacement(many, max_contexts, max_reasonings, seed, turns):
    plan = choose_rows(many, turns=turns, max_contexts=max_contexts, max_reasonings=max_reasonings, seed=seed)
    assert len(plan.contexts_N) <= max_contexts
    assert len(plan.rows_M) <= max_reasonings
    assert len(set(places(plan))) == len(plan.rows_M)
    rows = Counter(plan.prompt_N[row.own] for row in plan.rows_M)
    everything = choose_rows(many, turns=turns, max_contexts=1000, max_reasonings=1000)
    owned = [everything.prompt_N[row.own] for row in everything.rows_M]
    contexts = [everything.contexts_N[row.own] for row in everything.rows_M]
    available = Counter(p for p, context in zip(owned, contexts, strict=True) if context in plan.contexts_N)
    # A prompt has fewer rows than another only when it has no more to give or is the last of a round.
    most = max(rows.values())
    assert all(rows[prompt] >= min(most - 1, available[prompt]) for prompt in available)
    columns = Counter(plan.prompt_N)
    distinct = Counter(everything.prompt_N)
    assert all(columns[p] >= min(max(columns.values()) - 1, distinct[p]) for p in distinct)


def test_rows_of_a_prompt_spread_over_its_contexts():
    # One prompt, 4 contexts of a later turn; the first is shared by 5 episodes.
    shared = [Episode(f"s{i}", turns=(reply((1,), (2,)), reply((1, 2), (30 + i,)))) for i in range(5)]
    own = [Episode(f"o{i}", turns=(reply((1,), (2,)), reply((1, 3, i), (40,)))) for i in range(3)]
    plan = choose_rows(body(*shared, *own), turns="later", max_reasonings=4)
    assert {row.own for row in plan.rows_M} == {0, 1, 2, 3}


def test_the_draw_does_not_depend_on_the_order_of_the_records(many):
    forward = choose_rows(many, turns="all", max_contexts=20, max_reasonings=30)
    backward = choose_rows(body(*reversed(many.episodes)), turns="all", max_contexts=20, max_reasonings=30)
    assert set(places(forward)) == set(places(backward))
    assert set(forward.contexts_N) == set(backward.contexts_N)


def test_another_seed_draws_others(many):
    draws = [choose_rows(many, max_contexts=6, max_reasonings=6, seed=seed) for seed in range(4)]
    assert len({plan.contexts_N for plan in draws}) > 1
    assert len({tuple(places(plan)) for plan in draws}) > 1
    again = choose_rows(many, max_contexts=6, max_reasonings=6, seed=0)
    assert (again.contexts_N, places(again)) == (draws[0].contexts_N, places(draws[0]))


def test_two_groups_with_one_prompt_are_one_context_and_one_prompt():
    plan = choose_rows(body(episode("a", (1,), (2,), group="x"), episode("b", (1,), (3,), group="y")))
    assert len(plan.contexts_N) == len(plan.prompt_N) == 1
    assert places(plan) == [("a", 0), ("b", 0)]


def test_contexts_of_one_initial_state_share_their_prompt_whatever_their_groups_are_called():
    one = (episode("a", (1,), (2,), (3,), group="x"), episode("b", (1,), (4,), (3,), group="y"))
    other = episode("c", (5,), (6,), (7,), group="y")
    plan = choose_rows(body(*one, other), turns="later")
    a1, b1, c1 = plan.prompt_N
    assert a1 == b1 != c1
    plan = choose_rows(body(*one, other), turns="all")
    assert plan.prompt_N == (a1, a1, b1, c1, c1)


def test_a_later_context_that_still_shows_the_thought_is_excluded_from_its_row():
    plan = choose_rows(body(episode("a", (1,), (2, 3), (4, 5), (6,)), episode("b", (10,), (2, 3), (4, 5))), turns="all")
    assert places(plan) == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    a0, a1, a2, b0, b1 = range(5)
    assert [(m, n) for m in range(5) for n in range(5) if plan.excluded_MN[m, n]] == [
        (a0, a1),
        (a0, a2),
        (a1, a2),
        (b0, b1),
    ]


def test_an_earlier_context_that_happens_to_hold_the_thought_is_not_excluded():
    assert not choose_rows(body(episode("a", (1, 5), (2,), (5,))), turns="all").excluded_MN[1].any()


@pytest.mark.parametrize("history", ["thoughts dropped", "dropped"])
def test_a_later_context_without_the_thought_is_not_excluded(history):
    plan = choose_rows(body(episode("a", (1,), (2, 3), (4, 5), (6,), history=history)), turns="all")
    assert not plan.excluded_MN.any()


def test_ids_of_the_thought_with_others_between_them_are_not_the_thought():
    turns = (reply((1,), (2, 3)), reply((1, 2, 99, 3, 2), (5,)))
    assert not choose_rows(body(Episode("a", turns=turns)), turns="all").excluded_MN.any()
    turns = (reply((1,), (2, 3)), reply((1, 2, 2, 3), (5,)))
    assert choose_rows(body(Episode("a", turns=turns)), turns="all").excluded_MN.tolist() == [[0, 1], [0, 0]]


def test_an_own_context_that_happens_to_hold_the_thought_is_never_excluded():
    # The window shows both turns the same state, and the one-token thought is a word of it.
    turns = (reply((1, 2), (2,)), reply((1, 2), (2,)))
    plan = choose_rows(body(Episode("a", turns=turns), episode("b", (5,), (6,))), turns="all")
    assert [row.own for row in plan.rows_M] == [0, 0, 1]
    assert not plan.excluded_MN.any()


def test_the_coverage_counts_what_cannot_be_scored():
    turns = (
        reply((1,), (2, 3, 4), finish="stop"),
        Turn((1, 5), (OPEN, 6), finish="length"),  # never closed
        Turn(reasoning_text="no ids", action="Up", finish="error"),
        Turn((), (2, 3), reasoning=slice(0, 1)),  # no context
        reply((1, 6), (2,)),
    )
    plan = choose_rows(body(Episode("a", turns=turns), Episode("b", text="boundaries lost")), turns="all")
    coverage = plan.coverage
    assert (coverage.num_episodes, coverage.num_turns, coverage.num_with_ids, coverage.num_valid) == (2, 5, 4, 2)
    assert (coverage.num_ended, coverage.num_truncated, coverage.num_tokens) == (3, 1, 4)
    assert coverage.to_dict() == {
        "num_turns": 5,
        "num_rows": 2,
        "valid_share": 0.4,
        "scored_share": 0.4,
        "truncated_share": 1 / 3,
        "mean_tokens": 2.0,
    }


def test_an_end_that_nobody_recorded_is_unknown_and_not_zero():
    assert math.isnan(choose_rows(body(episode("a", (1,), (2,)))).coverage.truncated_share)


def test_the_cost_counts_each_context_once_and_each_pair_its_tokens():
    plan = choose_rows(body(episode("a", (1, 2), (3,)), episode("b", (4,), (5, 6))))
    assert plan.token_forwards == (3 + 2) + 2 * (2 + 3)


@pytest.mark.parametrize("turns", ["frist", "", None, -1, True, 1.0])
def test_an_unknown_choice_of_turns_is_refused(turns):
    with pytest.raises(InputError, match=r"turns=.*'first', 'later', 'all'"):
        choose_rows(body(episode("a", (1,), (2,))), turns=turns)


def test_a_misspelt_choice_of_turns_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'first'"):
        choose_rows(body(episode("a", (1,), (2,))), turns="frist")


@pytest.mark.parametrize("name", ["max_contexts", "max_reasonings"])
@pytest.mark.parametrize("value", [0, -3])
def test_a_cap_below_one_is_refused(name, value):
    with pytest.raises(InputError, match=rf"{name}={value}"):
        choose_rows(body(episode("a", (1,), (2,))), **{name: value})


@pytest.mark.parametrize(
    ("episodes", "turns", "counts"),
    [
        ([], "first", "0 episodes with 0 turns for turns='first', 0 of them with token ids"),
        ([Episode("a", text="lost")], "all", "1 episodes with 0 turns"),
        ([Episode("a", turns=(Turn(action="Up"),))], "first", "1 turns for turns='first', 0 of them with token ids"),
        ([Episode("a", turns=(Turn((1,), (2,)),))], 0, "1 turns for turns=0, 1 of them with token ids"),
        ([episode("a", (1,), (2,))], "later", "1 episodes with 0 turns for turns='later'"),
    ],
)
def test_records_without_a_scorable_turn_say_why(episodes, turns, counts):
    with pytest.raises(InputError, match=re.escape(counts)):
        choose_rows(body(*episodes), turns=turns)
