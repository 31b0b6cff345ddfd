"""Filling the matrix: every pair is the scorer's own number, and every row is found again in the records."""

import math

import numpy as np
import pytest

from tether.errors import InputError
from tether.records import Episode, Rollouts, Turn
from tether.scoring.choose import choose_rows
from tether.scoring.cross_score import cross_score, score_rows

VOCABULARY = 10
OPEN, CLOSE = 8, 9


class Urn:
    """Laplace's rule of succession: a token is as likely as it was frequent in everything before it.

    p(token | history) = (count of the token in the history + 1) / (length of the history + vocabulary).
    """

    def token_logprobs(self, contexts, reasonings):
        return [np.array([self.of(context, ids) for context in contexts]) for ids in reasonings]

    def of(self, context, ids):
        history, logprobs = list(context), []
        for token in ids:
            logprobs.append(math.log((history.count(token) + 1) / (len(history) + VOCABULARY)))
            history.append(token)
        return logprobs


def turn(prompt, thought, *, answer=(0,), mode="raw", **about):
    """A reply ``<think> thought </think> answer`` with the log-probabilities that the urn samples it with."""
    sampled = (OPEN, *thought, CLOSE, *answer)
    logprobs = tuple(Urn().of(prompt, sampled))
    span = slice(1, 1 + len(thought)) if thought else None
    return Turn(tuple(prompt), sampled, logprobs, mode, reasoning=span, **about)


def rollouts(*prompts_and_thoughts):
    return Rollouts.from_episodes(
        Episode(f"e{i}", group_id=f"g{prompt}", turns=(turn(prompt, thought),))
        for i, (prompt, thought) in enumerate(prompts_and_thoughts)
    )


def test_every_pair_is_the_sum_over_the_reasoning_and_nothing_else():
    scores = cross_score(rollouts(((1, 1), (1,)), ((2, 2), (2, 1))), Urn())
    # Histories are (1, 1, OPEN) and (2, 2, OPEN): 3 tokens of a vocabulary of 10.
    seen, unseen = math.log(3 / 13), math.log(1 / 13)
    np.testing.assert_allclose(
        scores.logprob_MN, [[seen, unseen], [unseen + math.log(3 / 14), seen + math.log(1 / 14)]], rtol=1e-15
    )
    assert scores.own_M.tolist() == [0, 1]
    assert scores.num_tokens_M.tolist() == [1, 2]
    assert scores.contexts_N == ((1, 1, OPEN), (2, 2, OPEN))
    assert scores.row_ids == ("e0/0", "e1/0")
    assert scores.kind == "policy"
    assert not scores.excluded_MN.any()


def test_the_closing_token_is_scored_after_the_reasoning_and_apart_from_it():
    scores = cross_score(rollouts(((1, 1), (1,)), ((2, 2), (9, 9))), Urn())
    np.testing.assert_allclose(scores.closing_MN, [[math.log(1 / 14)] * 2, [math.log(3 / 15)] * 2], rtol=1e-15)


def test_the_matched_score_is_the_stored_log_probability_when_the_scorer_is_the_sampler():
    scores = cross_score(rollouts(((1, 1), (1,)), ((2, 2), (2, 1)), ((3,), (3, 3, 3))), Urn())
    matched_M = scores.logprob_MN[np.arange(3), scores.own_M]
    np.testing.assert_allclose(matched_M, scores.behaviour_logprob_M, rtol=1e-12)


def test_a_reasoning_that_ends_the_reply_has_no_closing_score():
    open_ended = Turn((2,), (OPEN, 3), reasoning=slice(1, 2))
    episodes = [Episode("a", turns=(turn((1,), (1,)),)), Episode("b", turns=(open_ended,))]
    scores = cross_score(Rollouts.from_episodes(episodes), Urn())
    assert np.isnan(scores.closing_MN).tolist() == [[False, False], [True, True]]
    assert scores.num_tokens_M.tolist() == [1, 1]
    alone = cross_score(Rollouts.from_episodes(episodes[1:]), Urn())
    assert alone.closing_MN is None


@pytest.mark.parametrize(
    ("mode", "temperature", "comparable"),
    [
        ("raw", 1.0, True),
        ("raw", 0.7, False),  # the same numbers, but not a sample of what is scored
        ("raw", 0.0, False),
        ("raw", None, True),
        ("scaled", 1.0, True),
        ("scaled", 0.7, False),
        ("scaled", None, False),
        ("truncated", 1.0, False),
        (None, 1.0, False),
    ],
)
def test_only_log_probabilities_at_temperature_one_are_compared(mode, temperature, comparable):
    episodes = [Episode("a", turns=(turn((1,), (1,), mode=mode, temperature=temperature),))]
    plan = choose_rows(Rollouts.from_episodes(episodes))
    assert (score_rows(plan, Urn()).behaviour_logprob_M is not None) == comparable


def test_a_row_without_stored_log_probabilities_is_nan_beside_rows_that_have_them():
    bare = Turn((2,), (OPEN, 3, CLOSE), reasoning=slice(1, 2))
    mixed = Rollouts.from_episodes([Episode("a", turns=(turn((1,), (1,)),)), Episode("b", turns=(bare,))])
    assert np.isnan(cross_score(mixed, Urn()).behaviour_logprob_M).tolist() == [False, True]


def test_scores_from_a_file_equal_scores_from_memory(tmp_path):
    held = rollouts(((1, 1), (1,)), ((2, 2), (2, 1)), ((1, 1), (3,)))
    held.to_parquet(tmp_path / "r.parquet")
    cross_score(held, Urn()).save(tmp_path / "memory.npz")
    cross_score(Rollouts.from_parquet(tmp_path / "r.parquet"), Urn()).save(tmp_path / "file.npz")
    assert (tmp_path / "file.npz").read_bytes() == (tmp_path / "memory.npz").read_bytes()


def test_an_impossible_token_keeps_its_minus_infinity():
    class Certain:
        def token_logprobs(self, contexts, reasonings):
            return [np.log([[float(token in context) for token in ids] for context in contexts]) for ids in reasonings]

    with np.errstate(divide="ignore"):
        scores = cross_score(rollouts(((1,), (1,)), ((2,), (2,))), Certain())
    assert scores.logprob_MN.tolist() == [[0.0, -math.inf], [-math.inf, 0.0]]


@pytest.mark.parametrize("conditioning", ["no_prompt", "last_state", None])
def test_an_unknown_conditioning_says_which_exist(conditioning):
    with pytest.raises(InputError, match="'full' is expected"):
        cross_score(rollouts(((1,), (1,))), Urn(), conditioning=conditioning)


def test_a_scorer_that_answers_in_another_shape_is_named():
    class Transposed(Urn):
        def token_logprobs(self, contexts, reasonings):
            return [token_NT.T for token_NT in super().token_logprobs(contexts, reasonings)]

    class Summed(Urn):
        def token_logprobs(self, contexts, reasonings):
            return [token_NT.sum(axis=1) for token_NT in super().token_logprobs(contexts, reasonings)]

    for scorer in (Transposed(), Summed()):
        with pytest.raises(InputError, match=r"returned shapes .* expected \[\(2, 4\)"):
            cross_score(rollouts(((1,), (1, 2, 3)), ((2,), (1,))), scorer)
