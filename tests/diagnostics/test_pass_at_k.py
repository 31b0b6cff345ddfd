"""pass@k: every choice of k tries, and its mean over prompts with an interval."""

import itertools
import math

import pytest

from tether.diagnostics import binomial_standard_error, pass_at_k, pass_at_k_over_prompts, share_over_prompts
from tether.errors import InputError


@pytest.mark.parametrize("n", range(1, 8))
def test_it_is_the_share_of_all_choices_that_hold_a_success(n):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        choices = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-15)


def test_it_is_unbiased_for_the_probability_that_one_of_k_tries_succeeds():
    n, k, p = 9, 4, 0.15
    mean = math.fsum(math.comb(n, c) * p**c * (1 - p) ** (n - c) * pass_at_k(n, c, k) for c in range(n + 1))
    assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


def test_thousands_of_tries_lose_no_digits():
    assert pass_at_k(100_000, 1, 50_000) == 0.5
    assert pass_at_k(10_000, 5_000, 5_001) == 1
    assert pass_at_k(10_000, 1, 1) == 1e-4


@pytest.mark.parametrize("counts", [(4, 1, 5), (4, 1, 0), (4, 5, 1), (4, -1, 1), (0, 0, 1)])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(InputError):
        pass_at_k(*counts)


HITS = [True, False, False, False, True, True, False, True, False, False, False, False]
PROMPTS = [*"aaaabbbbcccc"]


def test_one_try_is_the_success_rate_with_its_interval():
    one, share = pass_at_k_over_prompts(HITS, PROMPTS, k=1), share_over_prompts("success", HITS, PROMPTS)
    assert (one.value, one.low, one.high) == pytest.approx((share.value, share.low, share.high))
    assert (one.name, one.num_prompts, one.num_samples) == ("pass@1", 3, 12)


def test_all_tries_is_the_share_of_prompts_that_were_ever_solved():
    every = pass_at_k_over_prompts(HITS, PROMPTS, k=4)
    assert every.value == pytest.approx(2 / 3)
    assert 0 <= every.low < 2 / 3 < every.high <= 1


def test_prompts_may_differ_in_tries_and_come_in_any_order():
    found = pass_at_k_over_prompts([True, False, False, True, False], ["b", "a", "b", "a", "a"], k=2)
    assert found.value == pytest.approx((pass_at_k(2, 1, 2) + pass_at_k(3, 1, 2)) / 2)


def test_one_prompt_has_no_interval_and_says_so():
    found = pass_at_k_over_prompts([True, False], ["a", "a"], k=2)
    assert found.value == 1
    assert math.isnan(found.low)
    assert "one prompt" in found.reason


@pytest.mark.parametrize(
    ("hits", "prompts", "k", "complaint"),
    [([], [], 1, "at least one"), ([True], [*"ab"], 1, "one prompt each"), ([True] * 3, [*"aab"], 2, "'b'")],
)
def test_too_few_episodes_are_refused(hits, prompts, k, complaint):
    with pytest.raises(InputError, match=complaint):
        pass_at_k_over_prompts(hits, prompts, k=k)


def test_the_standard_error_is_the_spread_of_the_rate_over_all_outcomes():
    n, p = 12, 0.3
    law = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    spread = math.sqrt(math.fsum(w * (c / n - p) ** 2 for c, w in enumerate(law)))
    assert binomial_standard_error(p, n) == pytest.approx(spread)
    assert binomial_standard_error(0, 5) == binomial_standard_error(1, 5) == 0


@pytest.mark.parametrize(("rate", "n"), [(1.1, 5), (-0.1, 5), (float("nan"), 5), (0.5, 0)])
def test_an_impossible_rate_is_refused(rate, n):
    with pytest.raises(InputError, match="num_samples"):
        binomial_standard_error(rate, n)
