"""The loss of a critic, and how well it explains the returns."""

# _B rows | _T tokens

from __future__ import annotations

import math

from array_api_compat import array_namespace

from tether.errors import InputError
from tether.objectives._arrays import Array
from tether.objectives.logratio import unknown_as_nan


def value_loss(values: Array, old_values: Array, returns: Array, *, clip: float | None = None) -> Array:
    """Per-token loss ``max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2``, c being ``clip``.

    The clip of PPO's reference implementation: a value that has moved further than ``clip`` from the one that was used
    for the advantages gets no gradient for moving on towards its return (:func:`clipped_values`); one that moved away
    from its return is still pulled back. The width is in units of the return, so it must fit the scale of the rewards.
    Average with :func:`tether.objectives.aggregate_loss`. NaN fillers stay NaN and pass no gradient.

    Args:
        values: The critic's values, (B, T), with gradient.
        old_values: Its values when the advantages were computed, same shape.
        returns: What they should be, same shape.
        clip: Width of the clip; None for the plain ``(V - R)^2 / 2``.

    Raises:
        InputError: If shapes differ or the width is not positive.
    """
    values, old_values, returns, known = _aligned(values, old_values, returns)
    error = (values - returns) ** 2
    if clip is not None:
        xp = array_namespace(values)
        limited_error = (_limited(values, old_values, clip) - returns) ** 2
        error = xp.where(limited_error > error, limited_error, error)  # unlike a maximum, no shared gradient at ties
    return unknown_as_nan(error / 2, known)


def clipped_values(values: Array, old_values: Array, returns: Array, *, clip: float) -> Array:
    """Where :func:`value_loss` stops the gradient; its mean over the trained tokens is the value clip fraction.

    Raises:
        InputError: If shapes differ or the width is not positive.
    """
    values, old_values, returns, known = _aligned(values, old_values, returns)
    return known & ((_limited(values, old_values, clip) - returns) ** 2 > (values - returns) ** 2)


def explained_variance(values: Array, returns: Array, mask: Array) -> float:
    """``1 - Var(R - V) / Var(R)`` over the trained tokens: 1 for a perfect critic, 0 for a constant, below 0 for worse.

    NaN where the returns do not vary: there is nothing to explain.

    >>> import numpy as np
    >>> returns, mask = np.array([[0.0, 1.0, 5.0]]), np.array([[1, 1, 0]])
    >>> explained_variance(returns, returns, mask), explained_variance(0.5 * returns, returns, mask)
    (1.0, 0.75)

    Raises:
        InputError: If shapes differ, or no token is trained.
    """
    if not values.shape == returns.shape == mask.shape:
        raise InputError(
            f"values of shape {tuple(values.shape)}, returns {tuple(returns.shape)}, mask {tuple(mask.shape)}; "
            "expected one of each a token."
        )
    xp = array_namespace(values, returns, mask)
    trained = xp.astype(mask, xp.bool)
    chosen = returns[trained]
    if not chosen.shape[0]:
        raise InputError("no trained token to explain; expected at least one. Skip the update, or resample.")
    if bool(xp.max(chosen) == xp.min(chosen)):
        return math.nan
    return 1.0 - float(xp.var(chosen - values[trained]) / xp.var(chosen))


def _aligned(*arrays: Array) -> tuple[Array, ...]:
    """Return the arrays with 0 where any of them is NaN, and where none is."""
    shapes = [tuple(array.shape) for array in arrays]
    if len(set(shapes)) > 1:
        raise InputError(
            f"values, old values and returns of shapes {', '.join(map(str, shapes))}; expected one of each a token."
        )
    xp = array_namespace(*arrays)
    known = ~xp.isnan(sum(arrays))
    zero = xp.zeros_like(arrays[0])
    # Replaced before any arithmetic, so that the gradient at a filler is 0 and not 0 times NaN.
    return *(xp.where(known, array, zero) for array in arrays), known


def _limited(values: Array, old_values: Array, clip: float) -> Array:
    if not clip > 0:
        raise InputError(f"clip={clip}; expected a positive width in units of the return, or None for no clip.")
    return array_namespace(values).clip(values, min=old_values - clip, max=old_values + clip)
