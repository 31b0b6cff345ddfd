"""The small picture beside a number: where value and interval lie between chance and bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tether.results import Estimate

ROOM = 1.15
"""Space to the right of a value that has no bound."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """Places on a line from 0 to 100; None where the estimate has no such number."""

    value: float
    low: float | None
    high: float | None
    chance: float | None
    bound: float | None


def gauge(estimate: Estimate, top: float | None = None) -> Gauge | None:
    """Place an estimate on its own scale, or on one that ends at ``top``; None when it may not be drawn.

    >>> gauge(Estimate("mi_sequence", 1.0, "nats", 0.5, 1.5, bound=4.0, chance=0.0))
    Gauge(value=25.0, low=12.5, high=37.5, chance=0.0, bound=100.0)
    """
    if not (estimate.usable and math.isfinite(estimate.value)):
        return None
    low, high, chance, bound = (_finite(x) for x in (estimate.low, estimate.high, estimate.chance, estimate.bound))
    known = [0.0, estimate.value, *(x for x in (low, high, chance, bound) if x is not None)]
    left, right = min(known), max(known)
    if top is not None:
        right = max(right, top)
    elif bound is None:
        right *= ROOM
    width = right - left or 1.0
    places = (None if x is None else round(100 * (x - left) / width, 1) for x in (low, high, chance, bound))
    return Gauge(round(100 * (estimate.value - left) / width, 1), *places)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
