"""The colours of a report, once for the page and once for its pictures: quiet, legible, the same idea by day and night.

A colour is named, never written: pages and pictures use ``var(--ink)``, and the browser picks the value. Text colours
have a contrast of at least 4.5 on ``paper`` and ``card``, series colours of at least 3 (WCAG 2, AA).
"""

from __future__ import annotations

LIGHT = {
    "paper": "#faf9f6",
    "card": "#ffffff",
    "wash": "#f1efe9",
    "rule": "#dfdcd3",
    "faint": "#a5a299",
    "muted": "#5c646b",
    "ink": "#1c2226",
    "series1": "#b4513f",
    "series2": "#14746f",
    "series3": "#96701c",
    "series4": "#53609f",
    "critical": "#a3302b",
    "warning": "#855700",
    "info": "#3f5f80",
    "good": "#14746f",
}
DARK = {
    "paper": "#15191c",
    "card": "#1b2024",
    "wash": "#22282d",
    "rule": "#343b41",
    "faint": "#6d757b",
    "muted": "#a3abb1",
    "ink": "#e7e4dd",
    "series1": "#e68d79",
    "series2": "#63c3b6",
    "series3": "#d8b260",
    "series4": "#a0ade8",
    "critical": "#f08d84",
    "warning": "#e0b45e",
    "info": "#93b7db",
    "good": "#63c3b6",
}
NUM_SERIES = 4


def var(name: str) -> str:
    """Return the reference to a colour.

    >>> var("ink")
    'var(--ink)'
    """
    assert name in LIGHT, f"no colour {name!r}"
    return f"var(--{name})"


def series(index: int) -> str:
    """Return the colour of the n-th series, from 0; there are four, then they repeat."""
    return var(series_name(index))


def series_name(index: int) -> str:
    """Return the name of that colour.

    >>> series_name(0), series_name(4)
    ('series1', 'series1')
    """
    return f"series{index % NUM_SERIES + 1}"


def style_rules() -> str:
    """Return the CSS that gives every name its value, for light and for dark."""
    return f":root{{{_rules(LIGHT)}}}@media (prefers-color-scheme:dark){{:root{{{_rules(DARK)}}}}}"


def resolve(text: str) -> str:
    """Replace every reference by its light value, for pictures that no browser draws."""
    for name, value in LIGHT.items():
        text = text.replace(var(name), value)
    return text


def _rules(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())
