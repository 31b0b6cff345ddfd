"""How numbers and names are written, in one spelling for every table and sentence of a report."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

from tether.results import Estimate

LABELS = {
    "success": "success on unseen states",
    "mi_sequence": "I(X;Z)",
    "mi_per_token": "I(X;Z) per token",
    "mi_per_token_code": "separation per token (released code)",
    "mi_upper": "I(X;Z), upper side",
    "mi_zscore": "I(X;Z) over spread",
    "mi_zscore_code": "I(X;Z) over spread (released code)",
    "mi_zscore_ema": "I(X;Z) over smoothed spread",
    "retrieval_accuracy": "own context ranked first",
    "retrieval_accuracy@2": "own context among the first 2",
    "retrieval_accuracy@4": "own context among the first 4",
    "retrieval_accuracy@8": "own context among the first 8",
    "conditional_entropy": "H(Z|X)",
    "marginal_entropy": "H(Z)",
    "marginal_spread": "spread of H(Z) over reasonings",
    "marginal_spread_ema": "the same, smoothed",
    "tail_check": "self-check: smallest log-ratio",
    "e_value": "self-check: e-value",
    "sampler_mismatch": "difference of scorer and sampler",
    "first_turn": "first turns",
    "later_turns": "later turns",
    "rewards": "rewards",
}
STATUS_WORDS = {"ok": "ok", "critic_bound": "lower bound only", "skipped": "skipped", "void": "void"}
DECIMALS = {"nats": 2, "nats/token": 3, "fraction": 2, "ratio": 2}
MINUS = "−"
NOTHING = "–"
LONGEST_TEXT = 1200


def label(name: str) -> str:
    """Return the words for a name of ours, or the name itself, made visible."""
    return LABELS.get(name) or visible(name.replace("_", " "))


def number(value: float | None, decimals: int = 2) -> str:
    """Write a number with a fixed number of decimals, more when it would read as zero.

    >>> number(-0.104), number(0.0004), number(None), number(float("inf"))
    ('−0.10', '0.0004', '–', '∞')
    """
    if value is None or math.isnan(value):
        return NOTHING
    if value != 0 and abs(value) < 0.5 * 10**-decimals:
        return f"{value:.1g}".replace("-", MINUS)
    return _plain(value, decimals)


def share(value: float | None) -> str:
    """Write a share as a percentage.

    >>> share(0.934), share(-0.061), share(None)
    ('93 %', '−6 %', '–')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{round(100 * value) + 0:d} %".replace("-", MINUS)


def value_of(estimate: Estimate) -> str:
    """Write the value alone, with the decimals of its unit."""
    return number(estimate.value, decimals_of(estimate))


def interval_of(estimate: Estimate) -> str:
    """Write the interval.

    >>> interval_of(Estimate("mi_sequence", 0.3, "nats", 0.21, 0.47))
    '[0.21, 0.47]'
    """
    if math.isnan(estimate.low) or math.isnan(estimate.high):
        return "no interval"
    low, high = (_plain(end, decimals_of(estimate)) for end in (estimate.low, estimate.high))
    return f"[{low}, {high}]"


def decimals_of(estimate: Estimate) -> int:
    """Return how many decimals the unit of an estimate is written with."""
    return DECIMALS.get(estimate.unit, 2)


def listed(items: Sequence[str]) -> str:
    """Join words as a sentence does.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *head, last = items
    return f"{', '.join(head)} and {last}" if head else last


def counted(count: int, noun: str) -> str:
    """Write a count with its noun.

    >>> counted(1, "seed"), counted(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def visible(text: object, limit: int | None = LONGEST_TEXT) -> str:
    r"""Return untrusted text with control and direction-changing characters written out, cut when it is very long.

    >>> visible("left\x00 \u202eright")
    'left⟨U+0000⟩ ⟨U+202E⟩right'
    """
    whole = str(text)
    shown = "".join(c if _is_harmless(c) else f"⟨U+{ord(c):04X}⟩" for c in whole[:limit])
    rest = 0 if limit is None else len(whole) - limit
    return f"{shown} … ({counted(rest, 'more character')})" if rest > 0 else shown


def _plain(value: float, decimals: int) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", MINUS)


def _is_harmless(character: str) -> bool:
    return character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs")
