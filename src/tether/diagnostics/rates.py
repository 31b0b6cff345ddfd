"""A mean over episodes whose unit of sampling is the prompt: success rates and other shares, with their interval."""

# _B episodes | _P prompts

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
from scipy.special import stdtrit

from tether.errors import InputError
from tether.objectives import index_groups
from tether.results import Estimate


def share_over_prompts(
    name: str, hits: Sequence[bool], prompts: Sequence[Hashable], *, confidence: float = 0.95
) -> Estimate:
    """Return the share of hits, averaged over prompts, with an interval that respects that episodes share prompts.

    Episodes of one prompt are not independent, so the standard error is that of the prompt means; the interval is
    Wilson's with the number of independent trials that has this error (t quantile, one degree less than prompts). It
    stays inside [0, 1] and is not empty at 0 and 1, where the effective number of trials is the number of prompts.

    >>> found = share_over_prompts("success", [True, True, False, True], ["a", "a", "b", "b"])
    >>> found.value, found.num_prompts
    (0.75, 2)

    Args:
        name: Name of the estimate.
        hits: One outcome an episode.
        prompts: The prompt (initial state) of each episode.
        confidence: Of the interval.

    Raises:
        InputError: if there are no episodes, or not one prompt an episode.
    """
    if not hits or len(hits) != len(prompts):
        raise InputError(
            f"{len(hits)} outcomes for {len(prompts)} prompts; at least one, and one prompt each, expected"
        )
    groups = index_groups(list(prompts))
    mean_P = np.bincount(groups.number_B, weights=np.asarray(hits, float)) / groups.size_P
    num_prompts = mean_P.size
    value = float(mean_P.mean())
    low, high = wilson_interval(mean_P, confidence)
    return Estimate(
        name,
        value,
        "fraction",
        low=low,
        high=high,
        confidence=confidence,
        num_prompts=num_prompts,
        num_samples=len(hits),
        reason="one prompt: no interval" if num_prompts < 2 else "",
    )


def wilson_interval(mean_P: np.ndarray, confidence: float) -> tuple[float, float]:
    """Interval of the mean of one share a prompt (:func:`share_over_prompts`); NaN for a single prompt."""
    num_prompts = mean_P.size
    if num_prompts < 2:
        return math.nan, math.nan
    value = float(mean_P.mean())
    error = float(mean_P.std(ddof=1)) / math.sqrt(num_prompts)
    trials = value * (1 - value) / error**2 if error > 0 and 0 < value < 1 else float(num_prompts)
    quantile = float(stdtrit(num_prompts - 1, 0.5 + confidence / 2))
    centre = (value + quantile**2 / (2 * trials)) / (1 + quantile**2 / trials)
    half = (
        quantile / (1 + quantile**2 / trials) * math.sqrt(value * (1 - value) / trials + (quantile / (2 * trials)) ** 2)
    )
    return centre - half, centre + half


def binomial_standard_error(rate: float, num_samples: int) -> float:
    """Standard error of a success rate over independent episodes: ``sqrt(p (1 - p) / n)``.

    Episodes that share a prompt are not independent, and at 0 and 1 it is 0 however few there are: then
    :func:`share_over_prompts` is right and this is not.

    >>> round(binomial_standard_error(0.5, 100), 3)
    0.05

    Raises:
        InputError: if the rate is not one, or there are no samples.
    """
    if not 0 <= rate <= 1 or num_samples < 1:
        raise InputError(
            f"rate={rate} of num_samples={num_samples}; expected a share between 0 and 1 of at least one episode"
        )
    return math.sqrt(rate * (1 - rate) / num_samples)
