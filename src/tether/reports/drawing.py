"""Charts become pictures: Altair draws, Vega renders to SVG when the report is built, no script runs in the page.

A picture is an image of its own (``data:`` URI), so that no text in it can reach the page. Its colours follow the
reader's light or dark setting.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

from tether.reports.palette import resolve, style_rules, var

Chart = alt.Chart | alt.LayerChart | alt.FacetChart | alt.VConcatChart

FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"
THEME: dict[str, Any] = {
    "font": FONT,
    "background": None,
    "padding": 3,
    "view": {"stroke": None},
    "axis": {
        "labelColor": var("muted"),
        "titleColor": var("muted"),
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "gridColor": var("rule"),
        "gridOpacity": 0.6,
        "domain": False,
        "ticks": False,
        "labelPadding": 5,
    },
    "axisX": {"grid": False, "domain": True, "domainColor": var("rule")},
    "title": {
        "color": var("ink"),
        "fontSize": 12,
        "fontWeight": "normal",
        "anchor": "start",
        "frame": "bounds",
        "offset": 10,
    },
    "legend": {
        "labelColor": var("ink"),
        "labelFontSize": 12,
        "labelLimit": 320,
        "title": None,
        "orient": "bottom",
        "columnPadding": 18,
        "rowPadding": 5,
        "symbolOpacity": 1,
    },
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn chart: where an ``img`` element finds it, its size in pixels, and what it says in words."""

    source: str
    width: int
    height: int
    alt: str


def picture(chart: Chart, alt_text: str) -> Picture:
    """Draw a chart as an SVG image."""
    drawn = svg(chart)
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)
    assert size is not None, "Vega writes the size of every picture"
    source = "data:image/svg+xml;base64," + base64.b64encode(drawn.encode()).decode()
    return Picture(source, round(float(size[1])), round(float(size[2])), alt_text)


def svg(chart: Chart) -> str:
    """Return a chart as SVG text that carries both sets of colours."""
    drawn = str(vl_convert.vegalite_to_svg(_spec(chart)))
    end_of_tag = drawn.index(">") + 1
    return f"{drawn[:end_of_tag]}<style>{style_rules()}</style>{drawn[end_of_tag:]}"


def png(chart: Chart, *, scale: float = 2.0) -> bytes:
    """Return a chart as PNG in light colours, for places that are no report."""
    spec = resolve(json.dumps({**_spec(chart), "background": var("paper"), "padding": 16}))
    return bytes(vl_convert.vegalite_to_png(spec, scale=scale))


def _spec(chart: Chart) -> dict[str, Any]:
    return {**chart.to_dict(validate=False), "config": THEME}
