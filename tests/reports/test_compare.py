"""What a sentence may say about two estimates follows from their intervals."""

import math
from dataclasses import replace

import pytest

from tether.reports.compare import Tally, reads_as, relation
from tether.results import Estimate, Status, skipped

MIDDLE = Estimate("mi_sequence", 1.0, "nats", 0.8, 1.2, bound=4.0, chance=0.0)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1.3, 1.5, "above"), (0.1, 0.7, "below"), (1.2, 1.5, "overlap"), (0.7, 0.8, "overlap"), (0.0, 4.0, "overlap")],
)
def test_relation(low: float, high: float, expected: str) -> None:
    assert relation(Estimate("mi_sequence", (low + high) / 2, "nats", low, high), MIDDLE) == expected


@pytest.mark.parametrize("status", ["critic_bound", "skipped", "void"])
def test_other_grades_are_not_compared(status: Status) -> None:
    assert relation(replace(MIDDLE, value=3.0, low=2.9, high=3.1, status=status), MIDDLE) == "unknown"


def test_two_lower_bounds_are_compared() -> None:
    bound = replace(MIDDLE, status="critic_bound")
    assert relation(replace(bound, low=2.9, high=3.1), bound) == "above"


def test_without_an_interval_nothing_is_said() -> None:
    bare = Estimate("mi_sequence", 3.0, "nats")
    assert relation(bare, MIDDLE) == relation(MIDDLE, bare) == "unknown"
    assert reads_as(bare) == ""


def test_tally_counts_pairs() -> None:
    higher = replace(MIDDLE, low=2.0, high=3.0)
    tally = Tally.of([(higher, MIDDLE), (MIDDLE, MIDDLE), (skipped("mi_sequence", "nats", "no"), MIDDLE)])
    assert (tally.above, tally.below, tally.overlap, tally.unknown, tally.count) == (1, 0, 1, 1, 3)
    assert not tally.all("above", "overlap")
    assert tally.all("above", "overlap", "unknown")
    assert not Tally().all("above")


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (1.0, 0.5, 1.5, "above chance"),
        (0.1, -0.1, 0.3, "the interval covers chance"),
        (0.1, 0.0, 0.3, "the interval covers chance"),
        (-0.3, -0.5, -0.1, "below chance"),
        (3.8, 3.7, 3.9, "saturated: within 5% of its bound, so it says “at least this much”"),
    ],
)
def test_reads_as(value: float, low: float, high: float, expected: str) -> None:
    assert reads_as(replace(MIDDLE, value=value, low=low, high=high)) == expected


def test_an_entropy_has_neither_chance_nor_bound() -> None:
    assert reads_as(Estimate("conditional_entropy", 1.0, "nats/token", 0.9, 1.1)) == ""
    assert reads_as(skipped("mi_sequence", "nats", "no")) == ""
    assert math.isnan(skipped("mi_sequence", "nats", "no").value)
