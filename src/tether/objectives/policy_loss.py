"""The clipped policy-gradient loss of one token."""

# _B rows | _T tokens

from __future__ import annotations

import math

from array_api_compat import array_namespace

from tether.errors import InputError
from tether.objectives._arrays import Array
from tether.objectives.logratio import known_log_ratio, unknown_as_nan

MAX_LOG_RATIO = 20.0  # a ratio of 4.9e8: no policy update is meant to go there, and exp stays finite in every dtype


def clipped_surrogate(
    logprobs: Array,
    old_logprobs: Array,
    advantages: Array,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> Array:
    """Per-token loss ``-min(w A, clip(w, 1 - clip_low, 1 + clip_high) A)`` with ``w = exp(logprobs - old_logprobs)``.

    The objective of PPO (arXiv 1707.06347, equation 7); ``clip_high`` above ``clip_low`` is the clip-higher of DAPO
    (arXiv 2503.14476, section 3.1). ``dual_clip = c`` also stops tokens with A < 0 and w > c (arXiv 1912.09729). A
    clipped token has a gradient of exactly 0. At w = 1 the loss is ``-A``: it averages to about 0 over a group while
    its gradient does not, so a loss of 0 says nothing about whether a run learns.

    A NaN filler (a position without a sampled token) stays NaN in the value and passes no gradient;
    :func:`tether.objectives.aggregate_loss` leaves it out through its mask.

    Args:
        logprobs: Log-probabilities of the sampled tokens under the policy that is trained, (B, T), with gradient.
        old_logprobs: The same under the policy that sampled them, in nats, same shape.
        advantages: One a token, (B, T), or one a row, (B,).
        clip_low: How far the ratio may fall below 1 for A < 0; 1 turns the lower clip off.
        clip_high: How far the ratio may rise above 1 for A > 0.
        dual_clip: Largest ratio with a gradient for A < 0; None for no limit.

    Raises:
        InputError: If shapes do not fit or a limit is impossible.
    """
    log_ratio, advantages, known = _aligned(logprobs, old_logprobs, advantages)
    low, high, dual = _log_limits(clip_low, clip_high, dual_clip)
    xp = array_namespace(log_ratio)
    # Limits act on the log-ratio, so exp never sees a value that overflows.
    rising = xp.clip(log_ratio, max=high)
    falling = xp.clip(log_ratio, min=low, max=dual)
    bounded = xp.where(advantages < 0, falling, rising)
    return unknown_as_nan(-advantages * xp.exp(bounded), known)


def clipped_tokens(
    logprobs: Array,
    old_logprobs: Array,
    advantages: Array,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> Array:
    """Where :func:`clipped_surrogate` stops the gradient; its mean over the trained tokens is the clip fraction.

    Raises:
        InputError: If shapes do not fit or a limit is impossible.
    """
    log_ratio, advantages, known = _aligned(logprobs, old_logprobs, advantages)
    low, high, dual = _log_limits(clip_low, clip_high, dual_clip)
    too_high = (advantages > 0) & (log_ratio > high)
    too_low = (advantages < 0) & ((log_ratio < low) | (log_ratio > dual))
    return known & (too_high | too_low)


def _aligned(logprobs: Array, old_logprobs: Array, advantages: Array) -> tuple[Array, Array, Array]:
    """Return log-ratio and advantages of one shape without NaN, and where neither was NaN."""
    log_ratio, known = known_log_ratio(logprobs, old_logprobs)
    if advantages.ndim == logprobs.ndim - 1 and advantages.shape == logprobs.shape[:-1]:
        advantages = advantages[..., None]
    elif advantages.shape != logprobs.shape:
        raise InputError(
            f"advantages of shape {tuple(advantages.shape)} for log-probabilities of shape {tuple(logprobs.shape)}; "
            "expected one a token, or one a row."
        )
    xp = array_namespace(log_ratio, advantages)
    known = known & ~xp.isnan(advantages)
    advantages = xp.where(known, advantages, xp.zeros_like(advantages))
    return xp.where(known, log_ratio, xp.zeros_like(log_ratio)), advantages, known


def _log_limits(clip_low: float, clip_high: float, dual_clip: float | None) -> tuple[float, float, float]:
    """Return the lower and upper limit of the log-ratio, and the upper one for negative advantages."""
    if not 0 <= clip_low <= 1:
        raise InputError(
            f"clip_low={clip_low}; expected 0 to 1: it is how far the ratio may fall below 1 (usual: 0.2)."
        )
    if not clip_high >= 0:
        raise InputError(f"clip_high={clip_high}; expected 0 or more: how far the ratio may rise above 1 (usual: 0.2).")
    if dual_clip is not None and not dual_clip > 1:
        raise InputError(f"dual_clip={dual_clip}; expected a ratio above 1 (usual: 3), or None for no limit.")
    low = math.log1p(-clip_low) if clip_low < 1 else -math.inf
    dual = MAX_LOG_RATIO if dual_clip is None else min(math.log(dual_clip), MAX_LOG_RATIO)
    return low, min(math.log1p(clip_high), MAX_LOG_RATIO), dual
