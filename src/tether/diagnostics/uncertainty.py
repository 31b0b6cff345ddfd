"""Uncertainty over prompts: jackknife interval, bootstrap error, permutation null.

The prompt is the unit, because reasonings of one prompt are alike: intervals over rows are too narrow by up to the
square root of the reasonings a prompt has.
"""

# _M reasonings | _N distinct contexts | _P prompts | _R relabelings

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from tether.errors import InputError
from tether.randomness import keyed_rng

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_EXACT_PROMPTS = 7  # 7! = 5,040 relabelings
NUM_SAMPLED_RELABELINGS = 999
MIN_PROMPTS = 3
REACH_TOLERANCE = 1e-9


def jackknife_interval(value: float, replicate_P: Floats, *, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of ``value`` from its values with one prompt left out, by a t quantile with P - 1 degrees of freedom.

    NaN for fewer than 3 prompts (leaving one of two out leaves nothing to compare) or when a prompt owns all rows;
    (-inf, inf) when the value or a replicate is infinite.

    Efron and Stein, "The jackknife estimate of variance", 1981.

    >>> low, high = jackknife_interval(2.0, np.array([1.5, 2.0, 2.5]))
    >>> round(low, 2), round(high, 2)
    (-0.48, 4.48)
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence={confidence}: expected a number between 0 and 1, for example 0.95.")
    num_prompts = len(replicate_P)
    if num_prompts < MIN_PROMPTS or math.isnan(value) or np.isnan(replicate_P).any():
        return math.nan, math.nan
    if math.isinf(value) or np.isinf(replicate_P).any():
        return -math.inf, math.inf
    deviation_P = replicate_P - replicate_P.mean()
    standard_error = math.sqrt((num_prompts - 1) / num_prompts * float(deviation_P @ deviation_P))
    half_width = float(stdtrit(num_prompts - 1, 0.5 + confidence / 2)) * standard_error
    return value - half_width, value + half_width


def prompt_means(value_M: Floats, prompt_M: Integers) -> Floats:
    """Mean of the rows of each prompt that owns any, in order of the prompts' numbers."""
    _, index_M, count_P = np.unique(prompt_M, return_inverse=True, return_counts=True)
    return np.bincount(index_M, weights=value_M) / count_P


def bootstrap_error(mean_P: Floats) -> float:
    """Standard error of the mean of prompt means over all resamples of the prompts, mixture held fixed (closed form).

    The standard deviation over all P^P equally likely resamples is the population deviation over sqrt(P). It covers too
    little at small P, because the mixture changes with the prompts; the jackknife interval is the one to read.
    """
    return float(np.std(mean_P) / math.sqrt(len(mean_P)))


@dataclass(frozen=True, slots=True, eq=False)
class Null:
    """A statistic under relabelings of the prompts, all reasonings of a prompt together, against the same mixture.

    ``value_R`` holds all relabelings, the identity among them, when ``exact``, else a sample. A relabeling that meets
    only excluded pairs has no value and is left out.
    """

    observed: float
    value_R: Floats
    exact: bool

    @property
    def p_value(self) -> float:
        """Share of relabelings, identity included, that reach the observed value."""
        reached = int((self.value_R >= self.observed - REACH_TOLERANCE * max(1.0, abs(self.observed))).sum())
        return reached / len(self.value_R) if self.exact else (1 + reached) / (1 + len(self.value_R))


def relabelings(num_prompts: int, seed: int) -> Integers:
    """Permutations of the prompts, one a row: all up to 7 prompts (5,040), else 999 drawn with this seed."""
    if num_prompts <= MAX_EXACT_PROMPTS:
        return np.array(list(permutations(range(num_prompts))), dtype=np.int64)
    rng = keyed_rng(seed, "relabelings", num_prompts)
    return rng.permuted(np.tile(np.arange(num_prompts), (NUM_SAMPLED_RELABELINGS, 1)), axis=1)


def permutation_null(
    label_MN: Floats, available_MN: NDArray[np.bool_], own_M: Integers, prompt_N: Integers, relabeling_RP: Integers
) -> Null:
    """Distribution of a row mean when every prompt's reasonings are given to another prompt.

    Args:
        label_MN: The row's value if context n had produced it; the own column holds the observed value.
        available_MN: Pairs that take part; a row whose new context is excluded is left out of that relabeling.
        own_M: Column of each row's own context.
        prompt_N: Number of each context's prompt.
        relabeling_RP: From :func:`relabelings`. The k-th context of a prompt becomes the k-th of the new one (counted
            round when that one has fewer), so that first turns meet first turns.
    """
    num_prompts = relabeling_RP.shape[1]
    context_MP = _counterparts(prompt_N, num_prompts)[own_M]
    row_M1 = np.arange(len(own_M))[:, None]
    valid_MP = available_MN[row_M1, context_MP]
    sum_PP, count_PP = np.zeros((num_prompts, num_prompts)), np.zeros((num_prompts, num_prompts))
    np.add.at(sum_PP, prompt_N[own_M], np.where(valid_MP, label_MN[row_M1, context_MP], 0.0))
    np.add.at(count_PP, prompt_N[own_M], valid_MP)
    prompt_P = np.arange(num_prompts)
    total_R, count_R = (table[prompt_P, relabeling_RP].sum(axis=1) for table in (sum_PP, count_PP))
    observed = float(sum_PP.trace() / count_PP.trace())
    return Null(observed, total_R[count_R > 0] / count_R[count_R > 0], exact=num_prompts <= MAX_EXACT_PROMPTS)


def _counterparts(prompt_N: Integers, num_prompts: int) -> Integers:
    """Context of prompt q at the place that context n has in its own prompt, as an (N, P) table."""
    order = np.argsort(prompt_N, kind="stable")
    size_P = np.bincount(prompt_N, minlength=num_prompts)
    start_P = np.cumsum(size_P) - size_P
    place_N = np.empty_like(prompt_N)
    place_N[order] = np.arange(len(prompt_N)) - start_P[prompt_N[order]]
    return order[start_P + place_N[:, None] % size_P]
