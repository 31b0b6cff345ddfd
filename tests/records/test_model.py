"""Turns and episodes: fields that belong together agree, and spans mean what they say."""

import math

import pytest

from tether.errors import RecordError
from tether.records import Episode, Turn


def reply(**about):
    """``<think> 11 12 </think> 20`` after the prompt ``1 2 3``, with 9 and 10 as the tags."""
    return Turn(**{"prompt_ids": (1, 2, 3), "sampled_ids": (9, 11, 12, 10, 20), "reasoning": slice(1, 3)} | about)


def test_the_reasoning_leaves_its_tags_out_and_the_context_is_every_id_before_it():
    turn = reply()
    assert turn.reasoning_ids == (11, 12)
    assert turn.context_ids == (1, 2, 3, 9)
    assert turn.closing_id == 10


def test_a_forced_opening_tag_is_part_of_the_prompt_and_not_of_the_reply():
    turn = reply(prompt_ids=(1, 2, 3, 9), sampled_ids=(11, 12, 10, 20), reasoning=slice(0, 2))
    assert turn.context_ids == (1, 2, 3, 9)
    assert turn.reasoning_ids == (11, 12)


def test_nothing_was_sampled_after_a_reasoning_that_ends_the_reply():
    assert reply(reasoning=slice(1, 5)).closing_id is None


def test_without_a_reasoning_span_there_is_no_view_of_it():
    turn = reply(reasoning=None)
    assert (turn.reasoning_ids, turn.context_ids, turn.closing_id, turn.reasoning_logprob) == (None,) * 4


def test_a_reasoning_without_its_prompt_has_no_context():
    assert reply(prompt_ids=None).context_ids is None


def test_the_reasoning_log_probability_sums_the_span_only():
    assert reply(logprobs=(-8.0, -0.5, -0.25, -4.0, -2.0)).reasoning_logprob == -0.75
    assert math.isnan(reply(logprobs=(-8.0, math.nan, -0.25, -4.0, -2.0)).reasoning_logprob)
    assert reply().reasoning_logprob is None


@pytest.mark.parametrize("name", ["logprobs", "other_logprobs"])
@pytest.mark.parametrize("size", [0, 4, 6])
def test_log_probabilities_that_do_not_match_the_ids_are_refused_with_both_lengths(name, size):
    with pytest.raises(RecordError, match=rf"5 token ids, {size} {name}"):
        reply(**{name: (-1.0,) * size})


def test_log_probabilities_without_ids_are_refused():
    with pytest.raises(RecordError, match="0 token ids, 1 logprobs"):
        Turn(logprobs=(-1.0,))


@pytest.mark.parametrize("span", [slice(2, 2), slice(3, 2), slice(-1, 2), slice(0, 6), slice(5, 6)])
def test_a_span_that_is_empty_or_leaves_the_reply_is_refused(span):
    with pytest.raises(RecordError, match="of a reply of 5 tokens"):
        reply(reasoning=span)


@pytest.mark.parametrize("span", [slice(None, 2), slice(1, None), slice(1, 3, 1), slice(0, 4, 2)])
def test_a_span_is_a_plain_start_and_stop(span):
    with pytest.raises(RecordError, match="start and stop and without a step"):
        reply(reasoning=span)


def test_a_span_without_ids_is_refused():
    with pytest.raises(RecordError, match="of a reply of 0 tokens"):
        Turn(reasoning=slice(0, 1), reasoning_text="left then right")


def test_sampled_tokens_are_counted_over_all_turns_or_not_at_all():
    assert Episode("a", turns=(reply(), reply())).num_sampled_tokens == 10
    assert Episode("a", turns=()).num_sampled_tokens == 0
    assert Episode("a", turns=(reply(), Turn(action="Up"))).num_sampled_tokens is None
    assert Episode("a", text="lost").num_sampled_tokens is None


def test_advantages_are_one_number_or_one_per_sampled_token():
    assert Episode("a", turns=(reply(),), advantage=0.5).advantage == 0.5
    assert Episode("a", turns=(reply(),), advantage=(0.5,) * 5).advantage == (0.5,) * 5
    with pytest.raises(RecordError, match="4 advantages for 5 sampled tokens"):
        Episode("a", turns=(reply(),), advantage=(0.5,) * 4)
    with pytest.raises(RecordError, match="1 advantages for None sampled tokens"):
        Episode("a", advantage=(0.5,))


def test_the_outcome_is_the_reward_before_penalties_where_it_is_kept_apart():
    parts = {"outcome": (1.0, 1.0), "format": (-0.2, 1.0)}
    assert Episode("a", reward=0.8, components=parts).outcome_reward == 1.0
    assert Episode("a", reward=0.8).outcome_reward == 0.8
    assert Episode("a").outcome_reward is None
