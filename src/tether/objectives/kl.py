"""Estimates of the divergence from a reference policy, token by token.

With ``r = log p(token) - log q(token)`` and tokens sampled from p (J. Schulman, "Approximating KL divergence", 2020):

======  ==================  ==================  ======================================================
kind    value               mean over p         expected on-policy gradient, used as a loss
======  ==================  ==================  ======================================================
``k1``  ``r``               KL(p, q)            0: it regularises nothing
``k2``  ``r**2 / 2``        about KL(p, q)      that of KL(p, q)
``k3``  ``exp(-r) - 1 + r``  KL(p, q)           that of KL(q, p)
======  ==================  ==================  ======================================================

Subtracted from the reward instead (:func:`kl_in_reward`), ``k1`` has the gradient of KL(p, q) and the others do not.
"""

# _B rows | _T tokens

from __future__ import annotations

from typing import Literal

from array_api_compat import array_namespace

from tether.errors import InputError, NonFiniteError, did_you_mean
from tether.objectives._arrays import Array, constant, working_dtype
from tether.objectives.logratio import known_log_ratio, unknown_as_nan

KLKind = Literal["k1", "k2", "k3"]
KINDS = ("k1", "k2", "k3")


def kl_estimate(
    logprobs: Array, ref_logprobs: Array, *, kind: KLKind = "k3", max_log_ratio: float | None = None
) -> Array:
    """Per-token estimate of KL(policy, reference) in nats, for tokens sampled from the policy.

    ``k1`` and ``k3`` are unbiased, ``k2`` is biased and varies least near the reference; ``k3`` is never negative but
    explodes on a token that the reference likes much better (log-ratio -30: 1.07e13). Limit it with ``max_log_ratio``
    and count what was limited with :func:`limited_tokens`. NaN fillers stay NaN and pass no gradient.

    Args:
        logprobs: Log-probabilities of the sampled tokens under the policy, (B, T).
        ref_logprobs: The same under the reference, same shape.
        kind: ``"k1"``, ``"k2"`` or ``"k3"``; the head of this module compares them.
        max_log_ratio: Log-ratios are cut to at most this magnitude; None cuts nothing.

    Raises:
        InputError: If shapes differ or the kind is unknown.
    """
    if kind not in KINDS:
        raise InputError(f"kind={kind!r}; expected one of {', '.join(KINDS)}{did_you_mean(str(kind), KINDS)}")
    ratio, known = known_log_ratio(logprobs, ref_logprobs)
    xp = array_namespace(ratio)
    if max_log_ratio is not None:
        ratio = xp.clip(ratio, min=-max_log_ratio, max=max_log_ratio)
    if kind == "k1":
        return unknown_as_nan(ratio, known)
    if kind == "k2":
        return unknown_as_nan(ratio * ratio / 2, known)
    return unknown_as_nan(xp.expm1(-ratio) + ratio, known)


def limited_tokens(logprobs: Array, ref_logprobs: Array, *, max_log_ratio: float) -> Array:
    """Where :func:`kl_estimate` cuts the log-ratio: the tokens that a reported divergence does not show in full.

    Raises:
        InputError: If the shapes differ.
    """
    ratio, known = known_log_ratio(logprobs, ref_logprobs)
    xp = array_namespace(ratio)
    return known & (xp.abs(ratio) > max_log_ratio)


def kl_loss(logprobs: Array, ref_logprobs: Array, *, kind: KLKind = "k2", max_log_ratio: float | None = None) -> Array:
    """Per-token penalty on the distance to the reference, to be averaged over tokens that the policy sampled.

    ``k2`` (default) has the gradient of KL(policy, reference), ``k3`` that of KL(reference, policy). A token whose
    log-ratio is cut by ``max_log_ratio`` has no gradient: it is not pulled back.

    Raises:
        InputError: If ``kind="k1"``, whose expected gradient is 0, or for what :func:`kl_estimate` refuses.
    """
    if kind == "k1":
        raise InputError(
            "kind='k1' as a loss; expected 'k2' or 'k3': the expected on-policy gradient of the plain log-ratio is 0, "
            "so it would add noise and regularise nothing. Use kind='k2', or put it into the reward: kl_in_reward."
        )
    return kl_estimate(logprobs, ref_logprobs, kind=kind, max_log_ratio=max_log_ratio)


def kl_in_reward(
    rewards: Array,
    logprobs: Array,
    ref_logprobs: Array,
    mask: Array,
    *,
    coefficient: float,
    max_log_ratio: float | None = None,
) -> Array:
    """Rewards minus ``coefficient`` times the log-ratio (``k1``) of each token that the policy sampled.

    The penalty of RLHF (arXiv 2203.02155, equation 2), token by token. A later divergence then counts against an
    earlier token through its return; ``k1`` is the kind whose expected gradient is that of KL(policy, reference).
    Environment tokens pay nothing, whatever their log-probabilities are, and keep their reward.

    Args:
        rewards: Reward of each token, (B, T).
        logprobs: Log-probabilities under the policy that sampled, (B, T); no gradient flows through the result.
        ref_logprobs: The same under the reference, (B, T).
        mask: Which tokens the policy sampled, (B, T), bool or 0 and 1.
        coefficient: Reward units a nat, 0 or more.
        max_log_ratio: Log-ratios are cut to at most this magnitude; None cuts nothing.

    Raises:
        InputError: If shapes differ or the coefficient is negative.
        NonFiniteError: If the log-ratio of a sampled token is NaN or infinite.
    """
    if not rewards.shape == logprobs.shape == mask.shape:
        raise InputError(
            f"rewards of shape {tuple(rewards.shape)}, log-probabilities {tuple(logprobs.shape)}, mask "
            f"{tuple(mask.shape)}; expected one of each a token: write a reward of the episode on its last token."
        )
    if not coefficient >= 0:
        raise InputError(
            f"coefficient={coefficient}; expected 0 or more: a negative one pays for leaving the reference."
        )
    xp = array_namespace(rewards, logprobs, ref_logprobs, mask)
    divergence = kl_estimate(constant(logprobs), constant(ref_logprobs), kind="k1", max_log_ratio=max_log_ratio)
    divergence = xp.where(xp.astype(mask, xp.bool), divergence, xp.zeros_like(divergence))
    if not bool(xp.all(xp.isfinite(divergence))):
        raise NonFiniteError(
            "the log-ratio of a sampled token is NaN or infinite; expected log-probabilities of every sampled token "
            "under both policies."
        )
    return xp.astype(constant(rewards), working_dtype(rewards, divergence)) - coefficient * divergence
