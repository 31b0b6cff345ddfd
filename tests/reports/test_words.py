"""Numbers and names are written in one way, and untrusted text cannot hide anything."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.reports.words import LONGEST_TEXT, counted, interval_of, label, listed, number, share, value_of, visible
from tether.results import Estimate


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (0.0, 2, "0.00"),
        (-0.0, 2, "0.00"),
        (-0.001, 2, "−0.001"),
        (1234567.0, 0, "1,234,567"),
        (math.nan, 2, "–"),
        (None, 2, "–"),
        (-math.inf, 2, "−∞"),
        (0.004, 2, "0.004"),
        (0.005, 2, "0.01"),
        (2, 0, "2"),
    ],
)
def test_number(value: float | None, decimals: int, text: str) -> None:
    assert number(value, decimals) == text


def test_a_nonzero_number_never_reads_as_zero() -> None:
    assert all(number(x, 2) != "0.00" for x in (1e-9, -1e-9, 0.0049, 4.9e-3))


def test_an_interval_end_may_read_as_zero_but_not_as_minus_zero() -> None:
    assert interval_of(Estimate("x", 0.1, "nats", -0.001, 0.204)) == "[0.00, 0.20]"


def test_no_interval_is_said_in_words() -> None:
    assert interval_of(Estimate("x", 0.1, "nats")) == "no interval"
    assert interval_of(Estimate("x", 0.1, "nats", -math.inf, math.inf)) == "[−∞, ∞]"


def test_decimals_follow_the_unit() -> None:
    assert value_of(Estimate("x", 0.12345, "nats/token")) == "0.123"
    assert value_of(Estimate("x", 0.12345, "reward^2")) == "0.12"


def test_share_of_nothing_is_nothing() -> None:
    assert [share(x) for x in (0.005, 1.0, -0.071, math.nan, math.inf)] == ["0 %", "100 %", "−7 %", "–", "–"]


def test_counts_and_lists() -> None:
    assert (counted(0, "seed"), counted(1200, "token")) == ("0 seeds", "1,200 tokens")
    assert listed(["a", "b"]) == "a and b"


def test_unknown_names_are_made_visible() -> None:
    assert label("mi_sequence") == "I(X;Z)"
    assert label("env_\u202ename") == "env ⟨U+202E⟩name"


def test_long_text_is_cut_and_says_so() -> None:
    assert visible("x" * (LONGEST_TEXT + 5)).endswith("x … (5 more characters)")
    assert visible("x" * (LONGEST_TEXT + 5), None) == "x" * (LONGEST_TEXT + 5)


@given(st.text(alphabet=st.characters(), max_size=50))
def test_visible_text_can_be_written_and_holds_no_control(text: str) -> None:
    shown = visible(text)
    shown.encode()
    assert not any(c in shown for c in "\x00\x08\x1b\u202a\u202e\u2066\u200b\ufeff")
    assert "".join(c for c in text if c.isalnum()) in "".join(c for c in shown if c.isalnum()) or "⟨" in shown
