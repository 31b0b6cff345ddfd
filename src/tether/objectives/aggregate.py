"""From one loss a token to one loss a batch.

The mean is a sum divided by a count. Both count and sum run over *trained* tokens only (sampled by the policy, in a
row that was kept), and the count may be given, so that a batch can be processed in pieces of any size: with the counts
of the full batch, the pieces' losses add up to the loss of the full batch.
"""

# _B rows | _T tokens

from __future__ import annotations

import math
from typing import Literal

from array_api_compat import array_namespace

from tether.errors import InputError, did_you_mean
from tether.objectives._arrays import Array

AggregateMode = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum"]
MODES = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum")
ScaleMode = Literal["kept_mean", "rho_scaled", "full_batch", "kept_ratio_scaled", "sqrt_ratio_scaled"]
SCALES = ("kept_mean", "rho_scaled", "full_batch", "kept_ratio_scaled", "sqrt_ratio_scaled")


def aggregate_loss(
    token_loss: Array,
    mask: Array,
    *,
    mode: AggregateMode = "token_mean",
    num_tokens: float | None = None,
    num_sequences: float | None = None,
) -> Array:
    """Average a per-token loss over the trained tokens; masked positions may hold anything, NaN included.

    ``token_mean`` gives every token the same weight (DAPO, arXiv 2503.14476, equation 8), ``seq_mean_token_mean``
    every sequence (GRPO, arXiv 2402.03300, equation 3), ``seq_mean_token_sum`` weighs a sequence by its length
    (Dr. GRPO, arXiv 2503.20783, up to its constant). Sequences without a trained token are not counted.

    To process a batch in pieces, take the counts of the *full* batch (:func:`count_trained`) and add the results:

    >>> import numpy as np
    >>> loss, mask = np.array([[1.0, 1.0, 1.0], [3.0, 9.0, 9.0]]), np.array([[1, 1, 1], [1, 0, 0]])
    >>> float(aggregate_loss(loss, mask))
    1.5
    >>> num_tokens, num_sequences = count_trained(mask)
    >>> [float(aggregate_loss(loss[[row]], mask[[row]], num_tokens=num_tokens)) for row in range(2)]
    [0.75, 0.75]

    Args:
        token_loss: Loss of each token, (B, T).
        mask: Which tokens are trained, (B, T), bool or 0 and 1.
        mode: What the mean runs over.
        num_tokens: Trained tokens of the full batch (``token_mean``); None counts those of ``mask``.
        num_sequences: Sequences of the full batch (``seq_mean_*``); None counts those with a trained token.

    Raises:
        InputError: If the shapes differ, the mode is unknown, a count does not belong to the mode, or there is nothing
            to average over.
    """
    if mode not in MODES:
        raise InputError(f"mode={mode!r}; expected one of {', '.join(MODES)}{did_you_mean(str(mode), MODES)}")
    if token_loss.shape != mask.shape:
        raise InputError(
            f"token losses of shape {tuple(token_loss.shape)}, mask of shape {tuple(mask.shape)}; expected one mask "
            "entry a token."
        )
    by_token = mode == "token_mean"
    count, foreign = (num_tokens, num_sequences) if by_token else (num_sequences, num_tokens)
    if foreign is not None:
        wanted, given = ("num_tokens", "num_sequences") if by_token else ("num_sequences", "num_tokens")
        raise InputError(f"{given}={foreign} with mode={mode!r}; this mode divides by {wanted}: give that instead.")

    xp = array_namespace(token_loss, mask)
    trained = xp.astype(mask, xp.bool)
    loss = xp.where(trained, token_loss, xp.zeros_like(token_loss))
    if mode == "seq_mean_token_mean":
        length = xp.sum(xp.astype(trained, loss.dtype), axis=-1, keepdims=True)
        loss = loss / xp.clip(length, min=1)
    if count is None:
        count = count_trained(mask)[0 if by_token else 1]
    if not count > 0:
        raise InputError(
            f"nothing to average: {count} trained {'tokens' if by_token else 'sequences'}; expected at least one. "
            "Skip the update, or resample."
        )
    return xp.sum(loss) / count


def count_trained(mask: Array) -> tuple[int, int]:
    """Return how many tokens are trained, and how many sequences hold one: the denominators of a full batch."""
    xp = array_namespace(mask)
    trained = xp.astype(mask, xp.bool)
    return int(xp.count_nonzero(trained)), int(xp.count_nonzero(xp.any(trained, axis=-1)))


def loss_scale(mode: ScaleMode, *, num_kept: int, num_total: int, rho: float | None = None) -> float:
    """Factor on the mean loss of the kept samples, after a filter kept some of a batch.

    RAGEN-2 describes the loss of a filtered batch in three ways (mean over what is kept, times the configured rate,
    sum over what is kept divided by the whole batch) and its released code offers two more; none changes the direction
    of the gradient, all change its size against a fixed learning rate and gradient clip.

    ================================== ==========================
    ``kept_mean``                      1
    ``rho_scaled``                     ``rho``
    ``full_batch, kept_ratio_scaled``  ``num_kept / num_total``
    ``sqrt_ratio_scaled``              its square root
    ================================== ==========================

    Args:
        mode: The rule.
        num_kept: Samples that the filter kept.
        num_total: Samples of the whole batch.
        rho: The configured rate; only for ``rho_scaled``.

    Raises:
        InputError: If the mode is unknown, the counts are impossible, or ``rho`` is missing or not wanted.
    """
    if mode not in SCALES:
        raise InputError(f"mode={mode!r}; expected one of {', '.join(SCALES)}{did_you_mean(str(mode), SCALES)}")
    if not 0 < num_kept <= num_total:
        raise InputError(
            f"num_kept={num_kept} of num_total={num_total}; expected 1 to all samples: skip empty updates."
        )
    if (mode == "rho_scaled") != (rho is not None):
        raise InputError(f"mode={mode!r} with rho={rho}; expected rho with mode='rho_scaled' and with no other mode.")
    if rho is not None:
        return rho
    if mode == "kept_mean":
        return 1.0
    ratio = num_kept / num_total
    return math.sqrt(ratio) if mode == "sqrt_ratio_scaled" else ratio
