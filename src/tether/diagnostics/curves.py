"""A number over the steps of a run, and whether it has left its own start."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

Line = Mapping[str, Any]
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Curve:
    """Finite values of one metric, in the order of the steps."""

    name: str
    steps: tuple[int, ...]
    values: tuple[float, ...]

    @classmethod
    def of(cls, name: str, lines: Sequence[Line]) -> Curve:
        """Collect the lines that have the metric as a finite number; a missing one is left out, never 0."""
        points = [(line["step"], line.get(name)) for line in lines]
        kept = [(step, float(x)) for step, x in points if isinstance(x, int | float) and math.isfinite(x)]
        return cls(name, tuple(step for step, _ in kept), tuple(value for _, value in kept))

    def recent(self, window: int) -> float:
        """Mean of the last ``window`` values; NaN for an empty curve."""
        return float(np.mean(self.values[-window:])) if self.values else math.nan

    def onset(self, holds: Callable[[float], bool]) -> int | None:
        """First step of the last unbroken stretch in which the values satisfy ``holds``; None if the last does not."""
        start = None
        for step, value in zip(reversed(self.steps), reversed(self.values), strict=True):
            if not holds(value):
                break
            start = step
        return start

    def change(self, window: int) -> Change | None:
        """Compare the last values with the first; None when there are not two of each."""
        size = min(window, len(self.values) // 2)
        if size < 2:
            return None
        start, end = _interval(self.values[:size]), _interval(self.values[-size:])
        return Change(float(np.mean(self.values[:size])), start, float(np.mean(self.values[-size:])), end)


@dataclass(frozen=True, slots=True)
class Change:
    """Mean and interval over the first steps, and over the last ones."""

    start: float
    start_interval: tuple[float, float]
    end: float
    end_interval: tuple[float, float]

    @property
    def fallen(self) -> bool:
        """Whether the end lies below the start with disjoint intervals."""
        return self.end_interval[1] < self.start_interval[0]

    @property
    def risen(self) -> bool:
        """Whether the end lies above the start with disjoint intervals."""
        return self.end_interval[0] > self.start_interval[1]

    def __str__(self) -> str:
        (low, high), (end_low, end_high) = self.start_interval, self.end_interval
        return f"{self.start:.3g} [{low:.3g}, {high:.3g}] to {self.end:.3g} [{end_low:.3g}, {end_high:.3g}]"


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the t interval of the mean, steps taken as independent."""
    half = float(stdtrit(len(values) - 1, 0.5 + CONFIDENCE / 2) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return float(np.mean(values)) - half, float(np.mean(values)) + half
