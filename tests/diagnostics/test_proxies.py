"""Proxies and row-level terms against plain loops, closed forms and the properties of the definitions."""

import math
from dataclasses import replace

import numpy as np
import pytest
from brute_force import levels_by_loops, matrices, proxies_by_loops, row_terms
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tether.diagnostics import left_out_log_ratios, levels, log_ratios, proxies, retrieval_credits, smoothed_spread
from tether.diagnostics.mixtures import measure_rows
from tether.diagnostics.proxies import replicates
from tether.errors import InputError, NonFiniteError
from tether.scoring import CrossScores

INF, NAN = math.inf, math.nan


def scores_of(logprob_MN, own_M=None, tokens=None, **more):
    own_M = np.arange(len(logprob_MN)) if own_M is None else own_M
    return CrossScores(logprob_MN, own_M, [5] * len(logprob_MN) if tokens is None else tokens, **more)


def assert_equal_values(got, want):
    assert got.keys() == want.keys()
    for name in want:
        assert_allclose(got[name], want[name], rtol=1e-9, atol=1e-12, err_msg=name)


@given(matrices())
def test_every_proxy_equals_the_loops(scores):
    assert_equal_values(proxies(scores), proxies_by_loops(scores))


@given(matrices())
def test_leaving_a_prompt_out_equals_the_loops_without_it(scores):
    found = replicates(measure_rows(scores))
    for prompt in range(max(scores.prompt_index) + 1):
        want = proxies_by_loops(scores, without_prompt=prompt)
        got = {name: value_L[prompt] for name, value_L in found.items()}
        if want is None:
            assert np.isnan(list(got.values())).all()
        else:
            assert_equal_values(got, want)


@given(matrices())
def test_row_terms_equal_the_loops(scores):
    rows = [row_terms(scores, m) for m in range(scores.num_rows)]
    assert_allclose(log_ratios(scores), [row["ratio"] for row in rows], atol=1e-12)
    assert_allclose(left_out_log_ratios(scores), [row["left_out"] for row in rows], atol=1e-12)
    for k in (1, 2):
        assert_allclose(retrieval_credits(scores, k=k), [row["credit"][k] for row in rows])


@given(matrices())
def test_chance_and_bounds_are_row_means_over_the_contexts_that_take_part(scores):
    found, want = levels(scores), levels_by_loops(scores)
    assert_allclose(found["mi_sequence"].bound, want["mi_sequence"], atol=1e-12)
    assert_allclose(found["mi_per_token"].bound, want["mi_per_token"], atol=1e-12)
    assert_allclose(found["retrieval_accuracy"].chance, want[1])
    for k in (2, 4, 8):
        assert_allclose(found[f"retrieval_accuracy@{k}"].chance, want[k])


@given(matrices())
def test_marginal_minus_conditional_entropy_is_the_mi_per_token(scores):
    found = proxies(scores)
    difference = found["marginal_entropy"] - found["conditional_entropy"]
    assert_allclose(difference, found["mi_per_token"], rtol=1e-9, atol=1e-9)


@given(matrices())
def test_bounds_hold_trace_by_trace(scores):
    rows = measure_rows(scores)
    ratio_M, bound_M = rows.ratio_ML[:, -1], rows.bound_ML[:, -1]
    assert (ratio_M <= bound_M + 1e-9).all()
    assert (rows.code_ratio_ML[:, -1] <= bound_M + 1e-9).all()


@given(matrices(masks=False))
def test_left_out_and_included_mixture_say_the_same_in_other_words(scores):
    """exp(-ratio) = (1 + (N - 1) exp(-left out)) / N, so both sides have one sign."""
    lower_M, upper_M, N = log_ratios(scores), left_out_log_ratios(scores), scores.num_contexts
    with np.errstate(over="ignore"):
        assert_allclose(np.exp(-lower_M), (1 + (N - 1) * np.exp(-upper_M)) / N, rtol=1e-9)
    assert (upper_M >= lower_M - 1e-9)[lower_M > 0].all()


@given(matrices(masks=False))
def test_the_code_variant_is_never_below_the_definition(scores):
    found = proxies(scores)
    assert found["mi_per_token_code"] >= found["mi_per_token"] - 1e-9


@given(matrices(), st.integers(0, 2**32 - 1))
def test_relabeling_contexts_changes_nothing(scores, seed):
    order = np.random.default_rng(seed).permutation(scores.num_contexts)

    def shuffled(value_MN):
        return None if value_MN is None else value_MN[:, order]

    moved = replace(
        scores,
        logprob_MN=scores.logprob_MN[:, order],
        own_M=np.argsort(order)[scores.own_M],
        excluded_MN=shuffled(scores.excluded_MN),
        weight_MN=shuffled(scores.weight_MN),
        prompt_N=None if scores.prompt_N is None else [scores.prompt_N[n] for n in order],
    )
    assert_equal_values(proxies(moved), proxies(scores))


@given(matrices(), st.lists(st.sampled_from([-64.0, 0.0, 0.5, 128.0]), min_size=8, max_size=8))
def test_a_constant_added_to_a_row_leaves_dependence_as_it_is(scores, shifts):
    shift_M = np.array(shifts[: scores.num_rows])
    moved, found = proxies(replace(scores, logprob_MN=scores.logprob_MN + shift_M[:, None])), proxies(scores)
    for name in ("mi_sequence", "mi_per_token", "mi_per_token_code", "mi_upper", "retrieval_accuracy"):
        assert moved[name] == found[name], name


@given(matrices(masks=False, prompts=False), st.integers(0, 5))
def test_a_duplicated_prompt_changes_nothing_after_merging(scores, which):
    copied = which % scores.num_contexts
    labels = list(range(scores.num_contexts))
    twice = replace(
        scores,
        logprob_MN=np.column_stack([scores.logprob_MN, scores.logprob_MN[:, copied]]),
        contexts_N=[*labels, copied],
        own_M=np.where((scores.own_M == copied) & (np.arange(scores.num_rows) % 2), len(labels), scores.own_M),
    )
    assert_equal_values(proxies(twice), proxies(scores))
    assert levels(twice) == levels(scores)


@given(matrices(masks=False))
def test_an_excluded_pair_equals_a_matrix_without_it(scores):
    wider = replace(
        scores,
        logprob_MN=np.column_stack([scores.logprob_MN, np.full(scores.num_rows, NAN)]),
        excluded_MN=np.arange(scores.num_contexts + 1) == np.full((scores.num_rows, 1), scores.num_contexts),
        prompt_N=None,
    )
    assert_equal_values(proxies(wider), proxies(replace(scores, prompt_N=None)))


@given(matrices(), st.sampled_from([0.25, 3.0]))
def test_only_the_ratios_of_weights_matter(scores, factor):
    ones_MN = np.ones(scores.logprob_MN.shape) if scores.weight_MN is None else scores.weight_MN
    assert_equal_values(proxies(replace(scores, weight_MN=factor * ones_MN)), proxies(scores))


def test_a_scored_context_may_stand_for_several():
    """Three equal contexts, two of them not scored: the weight restores mixture and bound of the whole."""
    whole = scores_of([[-2.0, -4.0, -4.0, -4.0]], own_M=[0])
    budgeted = scores_of([[-2.0, -4.0, NAN, NAN]], own_M=[0], weight_MN=[[1, 3, 0, 0]])
    for name in ("mi_sequence", "mi_per_token", "mi_per_token_code", "mi_upper"):
        assert_allclose(proxies(budgeted)[name], proxies(whole)[name])
    assert_allclose(levels(budgeted)["mi_sequence"].bound, math.log(4))
    assert levels(budgeted)["retrieval_accuracy"].chance == 0.5  # two contexts are ranked


def test_an_input_blind_scorer_has_exactly_no_dependence():
    found = proxies(scores_of(np.repeat([[-7.0], [-9.5], [-1234.5]], 3, axis=1), tokens=[3, 7, 400]))
    for name in ("mi_sequence", "mi_per_token", "mi_per_token_code", "mi_upper", "mi_zscore", "mi_zscore_code"):
        assert found[name] == 0.0, name
    assert_allclose(found["retrieval_accuracy"], 1 / 3)


def test_a_separated_matrix_reaches_its_bound():
    scores = scores_of(np.full((8, 8), -1000.0) + 995.0 * np.eye(8))
    assert_allclose(proxies(scores)["mi_sequence"], math.log(8), rtol=1e-15)
    assert_allclose(proxies(scores)["mi_upper"], 995.0)
    assert proxies(scores)["retrieval_accuracy"] == 1.0


def test_a_trace_that_is_impossible_elsewhere_makes_the_upper_side_infinite():
    found = proxies(scores_of([[-1.0, -INF], [-2.0, -3.0]]))
    assert found["mi_upper"] == INF
    assert_allclose(found["mi_sequence"], (math.log(2) + (-3 - math.log((math.exp(-2) + math.exp(-3)) / 2))) / 2)


def test_huge_scores_keep_small_differences():
    tiny, huge = scores_of([[0.0, -0.5], [-0.25, 0.0]]), scores_of([[-1e6, -1e6 - 0.5], [-1e6 - 0.25, -1e6]])
    assert proxies(huge)["mi_sequence"] == proxies(tiny)["mi_sequence"]


def test_one_context_says_nothing():
    found = proxies(scores_of([[-5.0], [-6.0]], own_M=[0, 0]))
    assert (found["mi_sequence"], found["retrieval_accuracy"]) == (0.0, 1.0)
    assert found["conditional_entropy"] == found["marginal_entropy"] == pytest.approx(1.1)


def test_no_rows_are_refused():
    with pytest.raises(InputError, match="without rows"):
        proxies(CrossScores(np.empty((0, 2)), [], []))


@pytest.mark.parametrize("broken", [[[NAN, -1.0]], [[-INF, -1.0]], [[-1.0, INF]], [[-1.0, NAN]]])
def test_a_score_that_is_not_a_number_is_refused_with_its_place(broken):
    with pytest.raises(NonFiniteError, match=r"in row 1 \(r1\), context [01]"):
        proxies(scores_of([[-1.0, -2.0], *broken], own_M=[0, 0], row_ids=["r0", "r1"]))


def test_closing_tokens_count_where_they_were_sampled_only():
    scores = scores_of([[-1.0, -2.0], [-3.0, -1.5]], closing_MN=[[math.log(0.5), math.log(0.25)], [NAN, NAN]])
    with_closing = log_ratios(scores, closing=True)
    assert_allclose(with_closing[0], log_ratios(scores_of([[-1.0, -2.0 - math.log(2)]], own_M=[0]))[0])
    assert with_closing[1] == log_ratios(scores)[1]
    assert proxies(scores) == proxies(replace(scores, closing_MN=None))


def test_recall_may_be_asked_at_any_rank():
    scores = scores_of([[-3.0, -2.0, -1.0]], own_M=[0])
    found = proxies(scores, recall_k=(3,))
    assert found["retrieval_accuracy@3"] == 1.0
    assert "retrieval_accuracy@2" not in found


def test_the_smoothed_spread_starts_at_the_first_value():
    value = None
    for spread in (0.1, 0.5, 0.5):
        value = smoothed_spread(value, spread)
    assert value == pytest.approx(0.176)
