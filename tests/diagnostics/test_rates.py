"""A share over prompts: its interval stays inside [0, 1], is never empty, and follows the prompts, not the rows."""

import math

import numpy as np
import pytest
from scipy import stats

from tether.diagnostics import share_over_prompts
from tether.errors import InputError


def score_equation(share, end, trials, num_prompts):
    """Wilson's ends solve |share - end| = t sqrt(end (1 - end) / trials); returns the difference of both sides."""
    t = stats.t.ppf(0.975, num_prompts - 1)
    return abs(share - end) - t * math.sqrt(end * (1 - end) / trials)


def test_the_ends_solve_the_score_equation_for_the_trials_that_the_error_implies():
    hits = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1], [1, 0, 1], [0, 0, 0]])
    found = share_over_prompts("success", hits.ravel().tolist(), np.repeat(np.arange(5), 3).tolist())
    variance = hits.mean(axis=1).var(ddof=1) / 5
    trials = found.value * (1 - found.value) / variance
    for end in (found.low, found.high):
        assert score_equation(found.value, end, trials, 5) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("hit", [False, True])
def test_unanimous_prompts_leave_room_for_doubt(hit):
    found = share_over_prompts("success", [hit] * 40, [str(i // 2) for i in range(40)])
    assert found.value == float(hit)
    assert found.high - found.low > 0.1
    assert score_equation(found.value, found.low if hit else found.high, 20, 20) == pytest.approx(0, abs=1e-9)


def test_repeating_every_row_does_not_narrow_the_interval():
    hits, prompts = [True, False, True, True], [*"abcd"]
    once, often = share_over_prompts("x", hits, prompts), share_over_prompts("x", hits * 9, prompts * 9)
    assert (often.low, often.high) == pytest.approx((once.low, once.high))


def test_one_prompt_has_no_interval_and_no_rows_are_refused():
    found = share_over_prompts("x", [True, False], ["a", "a"])
    assert math.isnan(found.low)
    assert found.reason == "one prompt: no interval"
    with pytest.raises(InputError, match="0 outcomes for 0 prompts"):
        share_over_prompts("x", [], [])
