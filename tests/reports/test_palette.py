"""Colours are legible by day and night (WCAG 2 contrast)."""

import pytest

from tether.reports.palette import DARK, LIGHT, resolve, series_name, style_rules, var

TEXT = ("ink", "muted", "critical", "warning", "info", "good")


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["paper", "card", "wash"])
def test_contrast(colours: dict[str, str], ground: str) -> None:
    assert {
        name: contrast(colours[name], colours[ground])
        for name in TEXT
        if contrast(colours[name], colours[ground]) < 4.5
    } == {}
    assert all(contrast(colours[series_name(n)], colours[ground]) >= 3 for n in range(4))


def test_both_sets_name_the_same_colours() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert all(style_rules().count(f"--{name}:") == 2 for name in LIGHT)


def test_resolving_leaves_no_reference() -> None:
    assert resolve(f"fill {var('ink')}, {var('series4')}") == f"fill {LIGHT['ink']}, {LIGHT['series4']}"
