"""Is the scorer the sampler? Two checks: a tail bound on the log-ratios, and the stored log-probabilities."""

# _M reasonings | _C cut-offs

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tether.errors import InputError, NonFiniteError
from tether.scoring.cross_scores import CrossScores

Floats = NDArray[np.float64]

ALPHA = 0.01
MISMATCH_LIMIT = 1e-4


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """Result of :func:`self_check`; log-ratios in nats.

    ``tail_threshold`` is -log(n / (alpha v)): one log-ratio at or below it fails the check. ``e_value`` is the mean of
    exp(-log-ratio), judged against ``e_threshold`` (1 / (alpha v)), which is None when closing tokens were not scored.
    """

    num_traces: int
    min_log_ratio: float
    mean_log_ratio: float
    tail_threshold: float
    e_value: float
    e_threshold: float | None

    @property
    def tail_failed(self) -> bool:
        """Whether a log-ratio is too low for reasonings sampled from the scored distribution."""
        return self.min_log_ratio <= self.tail_threshold

    @property
    def e_failed(self) -> bool:
        """Whether the e-value is too large; never without scored closing tokens."""
        return self.e_threshold is not None and self.e_value >= self.e_threshold

    @property
    def passed(self) -> bool:
        """Whether neither check failed."""
        return not (self.tail_failed or self.e_failed)


def self_check(
    log_ratios: Sequence[float] | Floats, *, closing_scored: bool, alpha: float = ALPHA, valid_rate: float = 1.0
) -> SelfCheck:
    """Test at level ``alpha`` that the reasonings were sampled from the scored distribution.

    If they were, and no context contains its reasoning, P(log-ratio <= -c) <= e^-c for every c, for prefixes
    (truncated reasonings) too: the mixture over the own likelihood is a non-negative martingale that starts at 1.

    - Union bound, valid under any dependence: one of n log-ratios at or below -log(n / alpha) fails.
    - e-value: a mean of exp(-log-ratio) of at least 1 / alpha fails, only if the closing token was scored where it was
      sampled. Without it the mean may exceed 1 for a perfectly correct scorer.

    Args:
        log_ratios: One a reasoning, own context in the mixture, from :func:`log_ratios` with ``closing=True``.
        closing_scored: Whether closing tokens are in them.
        alpha: Level of each test.
        valid_rate: Share of sampled reasonings that are in ``log_ratios`` when only well-formed ones were scored. This
            conditions on validity, so the bounds become e^-c / valid_rate.

    Raises:
        InputError: No log-ratio, or a level or rate outside (0, 1].
        NonFiniteError: A log-ratio is NaN or infinite.

    >>> self_check([1.2, 0.8, -0.4], closing_scored=True).passed
    True
    >>> self_check([1.2, -9.5, 1.9], closing_scored=False).tail_failed
    True
    """
    ratio_M = np.asarray(log_ratios, dtype=np.float64)
    if not ratio_M.size:
        raise InputError("no log-ratios: expected one a scored reasoning. Score some first.")
    if not np.isfinite(ratio_M).all():
        raise NonFiniteError("log-ratios: expected finite numbers; look at the scores that they come from.")
    for name, share in (("alpha", alpha), ("valid_rate", valid_rate)):
        if not 0 < share <= 1:
            raise InputError(f"{name}={share}: expected a share above 0 and at most 1.")
    with np.errstate(over="ignore"):  # an infinite e-value is a failed check, not an error
        e_value = float(np.exp(-ratio_M).mean())
    return SelfCheck(
        num_traces=ratio_M.size,
        min_log_ratio=float(ratio_M.min()),
        mean_log_ratio=float(ratio_M.mean()),
        tail_threshold=math.log(alpha * valid_rate) - math.log(ratio_M.size),
        e_value=e_value,
        e_threshold=1 / (alpha * valid_rate) if closing_scored else None,
    )


def tail_rates(log_ratios: Sequence[float] | Floats, cut_C: Sequence[float] | Floats) -> tuple[Floats, Floats]:
    """Share of log-ratios at or below -c for each cut-off c, and its bound e^-c, to be drawn together.

    >>> tail_rates([0.5, -1.5], [1.0])[0]
    array([0.5])
    """
    ratio_M, cut_C = np.asarray(log_ratios, dtype=np.float64), np.asarray(cut_C, dtype=np.float64)
    return (ratio_M[:, None] <= -cut_C).mean(axis=0), np.exp(-cut_C)


def sampler_mismatch(scores: CrossScores) -> float | None:
    """Mean absolute difference per token of the own score and the stored behaviour log-probability, nats/token.

    0 up to rounding when the scorer is the sampler on its own ids. None when any row lacks a stored log-probability.
    """
    if scores.behaviour_logprob_M is None or np.isnan(scores.behaviour_logprob_M).any():
        return None
    own_M = scores.logprob_MN[np.arange(scores.num_rows), scores.own_M]
    return float((np.abs(own_M - scores.behaviour_logprob_M) / scores.num_tokens_M).mean())
