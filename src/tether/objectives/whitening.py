"""Advantages of a batch brought to mean 0 and variance 1."""

# _B rows | _T tokens

from __future__ import annotations

from array_api_compat import array_namespace

from tether.errors import InputError, NonFiniteError
from tether.objectives._arrays import Array, constant, working_dtype


def whiten(
    advantages: Array,
    mask: Array,
    *,
    keep: Array | None = None,
    ddof: int = 1,
    eps: float = 1e-8,
    zero_rtol: float = 1e-9,
) -> Array:
    """``(A - mean) / sqrt(variance + eps)`` over the trained tokens; all others are 0 and enter neither moment.

    Rows that a filter dropped are not trained: with ``keep`` the moments are those of the kept rows. Whitening first
    and filtering afterwards gives the survivors different advantages (a dropped group with a large mean shifts them
    all), so a filtered batch is whitened with ``keep``.

    The size of the advantages is lost: a batch without reward spread, whose advantages are errors of the critic, comes
    out as large as any other. Only advantages that are all equal give zeros.

    >>> import numpy as np
    >>> whiten(np.array([[1.0, 3.0], [400.0, 2.0]]), np.array([[1, 1], [0, 1]]), eps=0.0).tolist()
    [[-1.0, 1.0], [0.0, 0.0]]

    Args:
        advantages: One a token, (B, T), or one a row, (B,); anything where not trained, NaN included.
        mask: Which of them are trained, same shape, bool or 0 and 1.
        keep: Which rows the filter kept, (B,); None keeps all.
        ddof: The variance divides by trained tokens - ``ddof``.
        eps: Added to the variance.
        zero_rtol: Advantages are all equal if ``max - min <= zero_rtol * max|A|``.

    Raises:
        InputError: If shapes differ, or there are at most ``ddof`` trained tokens.
        NonFiniteError: If a trained advantage is NaN or infinite, or their variance overflows.
    """
    xp = array_namespace(advantages, mask)
    trained = _trained(advantages, mask, keep)
    advantages = xp.astype(constant(advantages), working_dtype(advantages))
    nothing = xp.zeros_like(advantages)
    advantages = xp.where(trained, advantages, nothing)
    count = int(xp.count_nonzero(trained))
    if count <= ddof:
        raise InputError(
            f"{count} trained tokens to whiten with ddof={ddof}; expected more than {ddof}. Skip the update, or "
            "resample."
        )
    if not bool(xp.all(xp.isfinite(advantages))):
        raise NonFiniteError(
            "a trained advantage is NaN or infinite; expected finite numbers: check rewards and values."
        )
    chosen = advantages[trained]
    low, high = xp.min(chosen), xp.max(chosen)
    if bool(high - low <= zero_rtol * xp.max(xp.abs(chosen))):
        return nothing
    centred = advantages - xp.mean(chosen)
    variance = xp.sum(xp.where(trained, centred * centred, nothing)) / (count - ddof)
    if not bool(xp.isfinite(variance)):
        raise NonFiniteError("the variance of the advantages overflows; expected squares that are representable.")
    return xp.where(trained, centred / xp.sqrt(variance + eps), nothing)


def _trained(advantages: Array, mask: Array, keep: Array | None) -> Array:
    """Return the mask as bool, false in rows that were not kept."""
    if advantages.shape != mask.shape:
        raise InputError(
            f"advantages of shape {tuple(advantages.shape)}, mask {tuple(mask.shape)}; expected one mask entry each."
        )
    xp = array_namespace(mask)
    trained = xp.astype(mask, xp.bool)
    if keep is None:
        return trained
    if keep.shape != mask.shape[:1]:
        raise InputError(
            f"keep of shape {tuple(keep.shape)} for {tuple(mask.shape)[:1]} rows; expected one entry a row: what the "
            "filter returned for the same batch."
        )
    return trained & xp.reshape(xp.astype(keep, xp.bool), keep.shape + (1,) * (mask.ndim - 1))
