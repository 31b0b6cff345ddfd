"""The difference of two log-probabilities, with fillers kept apart."""

# _B rows | _T tokens

from __future__ import annotations

from array_api_compat import array_namespace

from tether.errors import InputError
from tether.objectives._arrays import Array


def known_log_ratio(logprobs: Array, other: Array) -> tuple[Array, Array]:
    """Return ``logprobs - other`` with 0 where it is NaN, and where it is not NaN.

    Positions without a sampled token hold NaN. Replacing them *before* any further arithmetic keeps their gradient at
    exactly 0; a formula puts NaN back into its value (:func:`unknown_as_nan`), so that an unmasked filler is seen.

    Raises:
        InputError: If the shapes differ.
    """
    if logprobs.shape != other.shape:
        raise InputError(
            f"log-probabilities of shapes {tuple(logprobs.shape)} and {tuple(other.shape)}; expected one pair a token: "
            "align both with the sampled ids."
        )
    xp = array_namespace(logprobs, other)
    difference = logprobs - other
    known = ~xp.isnan(difference)
    zero = xp.zeros_like(difference)
    # Both operands are replaced, not their difference: the gradient of NaN - x at a filler would still be multiplied.
    return xp.where(known, logprobs, zero) - xp.where(known, other, zero), known


def unknown_as_nan(values: Array, known: Array) -> Array:
    """Return ``values`` with NaN where ``known`` is false; no gradient passes there."""
    xp = array_namespace(values)
    return xp.where(known, values, xp.full_like(values, float("nan")))
