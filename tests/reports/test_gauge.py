"""The small picture beside a number is on the scale of chance and bound."""

import math

import pytest

from tether.reports.gauge import Gauge, gauge
from tether.results import Estimate, skipped, void


def test_an_entropy_ends_with_room_or_at_the_top_given() -> None:
    entropy = Estimate("conditional_entropy", 1.0, "nats/token", 0.8, 2.0)
    assert gauge(entropy) == Gauge(value=43.5, low=34.8, high=87.0, chance=None, bound=None)
    assert gauge(entropy, top=4.0) == Gauge(value=25.0, low=20.0, high=50.0, chance=None, bound=None)


def test_values_below_chance_stay_on_the_line() -> None:
    found = gauge(Estimate("mi_sequence", -0.5, "nats", -1.0, 0.2, bound=4.0, chance=0.0))
    assert found == Gauge(value=10.0, low=0.0, high=24.0, chance=20.0, bound=100.0)


def test_infinite_ends_are_left_out() -> None:
    found = gauge(Estimate("mi_sequence", 1.0, "nats", -math.inf, math.inf, bound=2.0, chance=0.0))
    assert found == Gauge(value=50.0, low=None, high=None, chance=0.0, bound=100.0)


def test_zero_has_a_place() -> None:
    assert gauge(Estimate("sampler_mismatch", 0.0, "nats/token")) == Gauge(0.0, None, None, None, None)


@pytest.mark.parametrize(
    "estimate",
    [
        skipped("x", "nats", "no"),
        void("x", "nats", "no"),
        Estimate("mi_upper", math.inf, "nats"),
        Estimate("mi_sequence", 0.0, "nats", 0.0, 0.0, bound=0.0, status="skipped", reason="one context"),
    ],
)
def test_what_may_not_be_drawn_has_no_gauge(estimate: Estimate) -> None:
    assert gauge(estimate) is None
