"""Two estimates, compared by their intervals: what a sentence may say about them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tether.diagnostics.input_dependence import SATURATED_SHARE
from tether.results import Estimate

Relation = Literal["above", "below", "overlap", "unknown"]


def relation(estimate: Estimate, other: Estimate) -> Relation:
    """Say where ``estimate`` lies: intervals that do not meet are above or below, others overlap.

    ``unknown`` when one of them may not be compared, has no interval, or is of another grade.

    >>> relation(Estimate("a", 1.0, "nats", 0.9, 1.1), Estimate("b", 2.0, "nats", 1.5, 2.5))
    'below'
    """
    if not (estimate.usable and other.usable) or estimate.status != other.status:
        return "unknown"
    if any(math.isnan(end) for end in (estimate.low, estimate.high, other.low, other.high)):
        return "unknown"
    if estimate.low > other.high:
        return "above"
    return "below" if estimate.high < other.low else "overlap"


@dataclass(frozen=True, slots=True)
class Tally:
    """How often each relation occurs over pairs of estimates (seeds)."""

    above: int = 0
    below: int = 0
    overlap: int = 0
    unknown: int = 0

    @classmethod
    def of(cls, pairs: Iterable[tuple[Estimate, Estimate]]) -> Tally:
        """Compare each first estimate with its second."""
        found = [relation(*pair) for pair in pairs]
        return cls(**{name: found.count(name) for name in ("above", "below", "overlap", "unknown")})

    @property
    def count(self) -> int:
        """Number of pairs."""
        return self.above + self.below + self.overlap + self.unknown

    def all(self, *relations: Relation) -> bool:
        """Whether every pair has one of these relations, and there is a pair."""
        return self.count > 0 and sum(getattr(self, name) for name in relations) == self.count


def reads_as(estimate: Estimate) -> str:
    """Say how a value stands to its chance and its bound; empty when nothing can be said.

    >>> reads_as(Estimate("mi_sequence", 2.0, "nats", 1.8, 2.2, bound=4.16, chance=0.0))
    'above chance'
    """
    if not estimate.usable or math.isnan(estimate.low):
        return ""
    if estimate.chance is not None and estimate.low <= estimate.chance:
        return "below chance" if estimate.high < estimate.chance else "the interval covers chance"
    if estimate.bound and estimate.value >= SATURATED_SHARE * estimate.bound:
        return f"saturated: within {1 - SATURATED_SHARE:.0%} of its bound, so it says “at least this much”"
    return "" if estimate.chance is None else "above chance"
