"""The selection rule alone: from one score a group to the groups that are kept."""

# _P groups

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from tether.errors import InputError, NonFiniteError, did_you_mean

Floats = npt.NDArray[np.float64]
Strategy = Literal["top_p", "top_k", "top_k_abs", "min_p"]
Mass = Literal["linear", "softmax"]
Keep = Literal["largest", "smallest"]
Profile = Literal["tether", "compat"]

AMOUNT_OF = {"top_p": "top_p", "top_k": "fraction", "top_k_abs": "count", "min_p": "min_p"}
DEFAULT_TOP_P = 0.9
COMPAT_ZERO = 1e-10  # the released code takes scores up to this for zero


def select_by_score(
    scores: npt.ArrayLike,
    *,
    strategy: Strategy = "top_p",
    top_p: float | None = None,
    fraction: float | None = None,
    count: int | None = None,
    min_p: float | None = None,
    min_keep: int = 0,
    mass: Mass = "linear",
    include_zero: bool = False,
    selection_eps: float = 0.0,
    relative_eps: float = 1e-9,
    keep: Keep = "largest",
    profile: Profile = "tether",
) -> npt.NDArray[np.int64]:
    """Return the positions of the kept scores, best first (RAGEN-2, section 3.3 and appendix G.1).

    One of four strategies, named by the amount that is given (``top_p=0.9`` when none is):

    ============ ======================================================================================
    ``top_p``    the shortest prefix of the ranking whose sum reaches ``top_p`` of the total
    ``fraction`` ``floor(fraction * P)`` scores, P counting all of them (strategy ``"top_k"``)
    ``count``    that many scores, at least one (strategy ``"top_k_abs"``)
    ``min_p``    as many scores as reach ``min_p`` of the largest, bound included
    ============ ======================================================================================

    Ties go to the lower position. 1 keeps every candidate. Multiplying all scores by a constant changes nothing, except
    under ``selection_eps`` (an absolute amount) and ``mass="softmax"`` (which depends on the unit of the scores).

    >>> select_by_score([0.0, 4.0, 1.0, 5.0]).tolist()
    [3, 1]
    >>> select_by_score([0.0, 4.0, 1.0, 5.0], fraction=0.25).tolist()
    [3]

    Args:
        scores: One finite number a group, (P,).
        strategy: May be left to the amount that is given; must agree with it.
        top_p: Share of the total score.
        fraction: Share of the number of scores.
        count: Number of scores.
        min_p: Share of the largest score.
        min_keep: Keep at least this many, as far as there are candidates.
        mass: What ``top_p`` sums: the scores, or ``exp(score)`` (as in the released main-table scripts).
        include_zero: Whether scores of 0 are candidates. The linear ``top_p`` rule below 1 never needs one.
        selection_eps: Absolute amount by which the target of ``top_p`` is lowered (released default 0.01).
        relative_eps: The same, as a share of the total (``top_p``) or of the largest score (``min_p``): a guard against
            rounding.
        keep: ``"smallest"`` ranks ascending, for diagnostic control arms.
        profile: ``"compat"`` does what the released code does: scores up to 1e-10 are zero, and negative scores, or a
            zero inside an ascending prefix, select nothing.

    Raises:
        InputError: If an option is unknown, out of range or contradicts another, or a score is negative where scores
            are summed.
        NonFiniteError: If a score is NaN or infinite.
    """
    chosen, amount = _strategy_and_amount(strategy, top_p=top_p, fraction=fraction, count=count, min_p=min_p)
    _require_known(mass=(mass, ("linear", "softmax")), keep=(keep, ("largest", "smallest")))
    _require_known(profile=(profile, ("tether", "compat")))
    if min_keep < 0:
        raise InputError(f"min_keep={min_keep}; expected 0 or more groups.")
    scores_P = _finite(scores)

    zero = COMPAT_ZERO if profile == "compat" else 0.0
    candidates = np.arange(len(scores_P)) if include_zero else np.flatnonzero(np.abs(scores_P) > zero)
    descending = -1.0 if keep == "largest" else 1.0
    order = candidates[np.argsort(descending * scores_P[candidates], kind="stable")]
    if not order.size:
        return order
    ranked = scores_P[order]
    if chosen == "top_k":
        # fraction * P may fall just below the integer that it stands for: 0.58 * 50.
        num_kept = math.floor(amount * len(scores_P) * (1 + 1e-12))
    elif chosen == "top_k_abs":
        num_kept = max(int(amount), 1)
    elif chosen == "min_p":
        num_kept = int(np.count_nonzero(ranked >= (amount - relative_eps) * ranked.max()))
    elif amount == 1:
        num_kept = len(order)
    elif mass == "softmax":
        num_kept = _softmax_prefix(ranked * -descending, amount - relative_eps)
    else:
        num_kept = _linear_prefix(ranked, amount - relative_eps, selection_eps, compat=profile == "compat")
    return order[: max(num_kept, min_keep)]


def _linear_prefix(ranked: Floats, share: float, selection_eps: float, *, compat: bool) -> int:
    """Length of the shortest prefix that sums to ``share * total - selection_eps``; 0 if that is not positive."""
    if (ranked < 0).any():
        if compat:
            return 0
        raise InputError(
            f"negative scores (smallest {ranked.min()}) under the linear top_p rule; expected scores of at least 0, "
            "because a share of a total that cancels means nothing. Use fraction=, count= or min_p=."
        )
    exponent = int(np.frexp(ranked.max())[1])  # a power of two: sums neither overflow nor round differently
    cumulative = np.cumsum(np.ldexp(ranked, -exponent))
    target = share * cumulative[-1] - math.ldexp(selection_eps, -exponent)
    if target <= 0:
        return 0
    length = int(np.searchsorted(cumulative, target)) + 1
    if compat and (ranked[:length] <= 0).any():
        return 0
    return length


def _softmax_prefix(logits: Floats, share: float) -> int:
    """Length of the shortest prefix of descending logits whose softmax probability reaches ``share``."""
    cumulative = np.cumsum(np.exp(logits - logits[0]))
    return min(int(np.searchsorted(cumulative, share * cumulative[-1])) + 1, len(logits))


def _strategy_and_amount(strategy: str, **amounts: float | None) -> tuple[str, float]:
    """Return the strategy that the options name, and its amount."""
    _require_known(strategy=(strategy, tuple(AMOUNT_OF)))
    given = {name: value for name, value in amounts.items() if value is not None}
    if len(given) > 1:
        shown = ", ".join(f"{name}={value}" for name, value in given.items())
        raise InputError(f"{shown}; expected one of top_p, fraction, count, min_p: give only the one that you want.")
    if not given:
        if strategy != "top_p":
            amount = AMOUNT_OF[strategy]
            raise InputError(f"strategy={strategy!r} without an amount; expected {amount}: give {amount}=...")
        return strategy, DEFAULT_TOP_P
    ((name, value),) = given.items()
    implied = next(key for key, amount in AMOUNT_OF.items() if amount == name)
    if strategy not in ("top_p", implied):
        raise InputError(
            f"strategy={strategy!r} with {name}={value}; expected {AMOUNT_OF[strategy]} with this strategy: "
            f"give {AMOUNT_OF[strategy]}, or strategy={implied!r}."
        )
    if name == "count":
        if value < 0 or value != int(value):
            raise InputError(f"count={value}; expected a whole number of groups, 0 or more.")
    elif not 0 <= value <= 1:
        raise InputError(f"{name}={value}; expected a share between 0 and 1, where 1 keeps all: is it a percentage?")
    return implied, value


def _require_known(**options: tuple[str, tuple[str, ...]]) -> None:
    for option, (value, known) in options.items():
        if value not in known:
            raise InputError(f"{option}={value!r}; expected one of {', '.join(known)}{did_you_mean(str(value), known)}")


def _finite(scores: npt.ArrayLike) -> Floats:
    scores_P = np.asarray(scores, dtype=np.float64)
    if scores_P.ndim != 1:
        raise InputError(f"scores have shape {scores_P.shape}; expected one number a group.")
    wrong = np.flatnonzero(~np.isfinite(scores_P))
    if wrong.size:
        raise NonFiniteError(
            f"{wrong.size} of {len(scores_P)} scores are not finite (position {wrong[0]}: {scores_P[wrong[0]]}); "
            "expected finite scores. Leave out the groups that cannot be scored."
        )
    return scores_P
