"""The charts: what is drawn, from plain numbers. Points that may not be plotted never reach this file."""

# _M reasonings | _N distinct contexts

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import numpy as np
from numpy.typing import NDArray

from tether.reports.drawing import Chart
from tether.reports.palette import var

SHAPES = ("circle", "square", "triangle-up", "triangle-down")
QUADRANTS: dict[str, tuple[Literal["left", "right"], Literal["top", "bottom"]]] = {
    "template collapse": ("right", "bottom"),
    "diverse": ("right", "top"),
    "compressed": ("left", "top"),
    "low-entropy collapse": ("left", "bottom"),
}
MAX_MATRIX_ROWS = 64
MAX_DOTS = 12
"""Points up to which each is drawn as a dot on its curve."""
INVISIBLE = 0.004  # posterior below which a cell is not drawn


@dataclass(frozen=True, slots=True)
class Point:
    """One measured value of a curve, with its interval where it has one."""

    step: int
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """Points over steps. ``interrupted`` curves are dashed: lower bounds, which are never joined to other values."""

    label: str
    colour: str
    points: Sequence[Point]
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """A horizontal line that a value is read against: chance, a bound, the solver's success."""

    label: str
    value: float


@dataclass(frozen=True, slots=True)
class Place:
    """Where a policy stands in the regime plane: entropy and information, each with its interval."""

    entropy: Point
    information: Point


@dataclass(frozen=True, slots=True)
class Path:
    """The way of one run through the regime plane, from its start to its end; controls are dashed."""

    label: str
    colour: str
    places: Sequence[Place]
    dashed: bool = False


def places_of(entropy: Sequence[Point], information: Sequence[Point]) -> list[Place]:
    """Pair two curves where both have a point."""
    entropy_at = {point.step: point for point in entropy}
    return [Place(entropy_at[point.step], point) for point in information if point.step in entropy_at]


def curves(
    lines: Sequence[Curve],
    *,
    title: str,
    levels: Sequence[Level] = (),
    domain: tuple[float, float] | None = None,
    width: int = 245,
    height: int = 140,
    step_title: str | None = "iteration",
) -> Chart:
    """Draw curves with their intervals over steps; a legend when they have different labels."""
    rows = [_curve_row(index, line, point) for index, line in enumerate(lines) for point in line.points]
    y_scale = alt.Scale(domain=domain or _domain(rows, levels), nice=False)
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("step:Q", title=step_title, axis=alt.Axis(format="d", tickMinStep=1, tickCount=5)),
        color=_colours({line.label: line.colour for line in lines}, symbol="stroke"),
        detail="curve:N",
    )
    y = alt.Y("value:Q", title=None, scale=y_scale, axis=alt.Axis(tickCount=4))
    dash = alt.StrokeDash("dashed:N", legend=None, scale=alt.Scale(domain=[False, True], range=[[1, 0], [4, 3]]))
    layers = _level_layers(levels, y_scale, width)
    if any(row["low"] is not None for row in rows):
        banded = base.transform_filter("datum.low != null")
        low = alt.Y("low:Q", title=None, scale=y_scale)
        layers.append(banded.mark_area(opacity=0.16, aria=False).encode(y=low, y2="high:Q"))
    layers.append(base.mark_line(strokeWidth=1.8, strokeJoin="round", aria=False).encode(y=y, strokeDash=dash))
    if len(rows) <= MAX_DOTS * len(lines):
        layers.append(base.mark_circle(size=22, opacity=1, aria=False).encode(y=y))
    return alt.layer(*layers).properties(width=width, height=height, title=title)


def stacked(panels: Sequence[Chart], *, spacing: int = 14) -> Chart:
    """Put panels below each other."""
    return alt.vconcat(*panels, spacing=spacing)


def regime_plane(paths: Sequence[Path], *, bound: float | None, width: int = 470, height: int = 350) -> Chart:
    """Draw how far the reasoning varies (right) against how much it depends on its input (up).

    The regimes are named in the corners and no line parts them: no threshold holds for every model and tokenizer.
    """
    rows = [_place_row(index, path, place) for index, path in enumerate(paths) for place in path.places]
    right = 1.3 * max((row["entropy_high"] for row in rows), default=1.0)
    top = 1.05 * max([bound or 0.0, *(row["information_high"] for row in rows)])
    bottom = min([-0.06 * top, *(row["information_low"] for row in rows)])
    x_title, y_title = "H(Z|X), nats per token", "I(X;Z), nats per reasoning"
    x_scale = alt.Scale(domain=[0, right], nice=False)
    y_scale = alt.Scale(domain=[bottom, top], nice=False)
    x = alt.X("entropy:Q", title=x_title, scale=x_scale, axis=alt.Axis(tickCount=6))
    y = alt.Y("information:Q", title=None, scale=y_scale, axis=alt.Axis(tickCount=6))
    labels = {path.label: path.colour for path in paths}
    shapes = [SHAPES[n % len(SHAPES)] for n in range(len(labels))]
    shape = alt.Shape("label:N", scale=alt.Scale(domain=list(labels), range=shapes))
    dash = alt.StrokeDash("dashed:N", legend=None, scale=alt.Scale(domain=[False, True], range=[[1, 0], [5, 3]]))
    ways = alt.Chart(alt.InlineData(values=rows)).encode(
        x=x, y=y, color=_colours(labels, columns=2, always=True), detail="path:N"
    )
    starts, ends = ways.transform_filter("datum.part == 'start'"), ways.transform_filter("datum.part == 'end'")
    levels = [Level("chance 0", 0.0), *([] if bound is None else [Level(f"bound log N = {bound:.2f}", bound)])]
    interval: dict[str, Any] = {"strokeWidth": 1.2, "opacity": 0.5, "aria": False}
    across = alt.X("entropy_low:Q", title=x_title, scale=x_scale)
    upwards = alt.Y("information_low:Q", title=None, scale=y_scale)
    return alt.layer(
        *_quadrant_layers(width, height),
        *_level_layers(levels, y_scale, width, inside=True),
        ways.mark_line(strokeWidth=1.7, strokeJoin="round", opacity=0.85, aria=False).encode(
            order="step:Q", strokeDash=dash
        ),
        ways.mark_circle(size=14, opacity=0.85, aria=False),
        ends.mark_rule(**interval).encode(x=across, x2="entropy_high:Q"),
        ends.mark_rule(**interval).encode(y=upwards, y2="information_high:Q"),
        ends.mark_point(filled=True, size=100, opacity=1, aria=False).encode(shape=shape),
        starts.mark_point(
            shape="diamond",
            size=110,
            filled=True,
            fill=var("card"),
            stroke=var("ink"),
            strokeWidth=1.4,
            opacity=1,
            aria=False,
        ),
    ).properties(width=width, height=height, title=y_title)


def retrieval_matrix(posterior_MN: NDArray[np.float64], own_M: NDArray[np.int64], *, size: int = 350) -> Chart:
    """Draw how likely each context is, given each reasoning: dark on the diagonal where a reasoning names its own.

    Rows are ordered by their own context; at most 64 of them are drawn, evenly chosen.
    """
    order_M = np.argsort(own_M, kind="stable")
    if len(order_M) > MAX_MATRIX_ROWS:
        order_M = order_M[np.linspace(0, len(order_M) - 1, MAX_MATRIX_ROWS).round().astype(int)]
    shown_MN = posterior_MN[order_M]
    cells = [
        {"row": int(m), "column": int(n), "posterior": round(float(shown_MN[m, n]), 2)}
        for m, n in np.argwhere(shown_MN >= INVISIBLE)
    ]
    num_rows, num_columns = shown_MN.shape
    bare = alt.Axis(labels=False, grid=False)
    across = alt.Scale(domain=[0, num_columns], nice=False)
    downwards = alt.Scale(domain=[num_rows, 0], nice=False)
    tint = alt.Scale(domain=[0, 1], range=[0.06, 1])
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=cells))
        .transform_calculate(row_end="datum.row + 1", column_end="datum.column + 1")
        .mark_rect(color=var("series2"), aria=False)
        .encode(
            x=alt.X("column:Q", title=f"{num_columns} contexts", scale=across, axis=bare),
            x2="column_end:Q",
            y=alt.Y("row:Q", title=None, scale=downwards, axis=bare),
            y2="row_end:Q",
            opacity=alt.Opacity("posterior:Q", scale=tint, legend=None),
        )
    )
    title = f"{num_rows} reasonings, ordered by the context they came from"
    view = alt.ViewConfig(stroke=var("rule"))
    return chart.properties(width=size, height=size, view=view, title=title)


def group_variance(variance: Sequence[float], kept: Sequence[bool], *, width: int = 350, height: int = 150) -> Chart:
    """Draw the reward variance of every group, largest first, and which of them trained."""
    order = sorted(range(len(variance)), key=lambda group: (-variance[group], not kept[group], group))
    groups = [
        {"rank": rank, "variance": variance[group], "label": "trained" if kept[group] else "left out"}
        for rank, group in enumerate(order, start=1)
    ]
    base = alt.Chart(alt.InlineData(values=groups)).encode(
        x=alt.X("rank:O", title=f"{len(groups)} groups, by variance", axis=alt.Axis(labels=False)),
        y=alt.Y("variance:Q", title=None, axis=alt.Axis(tickCount=4)),
        color=_colours({"trained": var("series2"), "left out": var("faint")}, symbol="square"),
    )
    constant = base.transform_filter("datum.variance == 0").mark_tick(thickness=3, bandSize=8, aria=False)
    return alt.layer(base.mark_bar(aria=False), constant).properties(
        width=width, height=height, title="variance of the outcome reward within a group"
    )


def _curve_row(index: int, line: Curve, point: Point) -> dict[str, Any]:
    return {
        "curve": index,
        "label": line.label,
        "dashed": line.interrupted,
        "step": point.step,
        "value": point.value,
        "low": point.low,
        "high": point.high,
    }


def _domain(rows: Sequence[dict[str, Any]], levels: Sequence[Level]) -> tuple[float, float]:
    """Everything that is drawn, with 0 and a little room above."""
    drawn = [row[end] for row in rows for end in ("value", "low", "high") if row[end] is not None]
    drawn += [level.value for level in levels]
    return min([0.0, *drawn]), 1.06 * max([0.0, *drawn]) or 1.0


def _colours(
    colour_of: dict[str, str], *, symbol: str | None = None, columns: int = 3, always: bool = False
) -> alt.Color:
    """Colours by label; a legend when there is more than one."""
    scale = alt.Scale(domain=list(colour_of), range=list(colour_of.values()))
    if len(colour_of) < 2 and not always:
        return alt.Color("label:N", scale=scale, legend=None)
    shape: dict[str, Any] = (
        {} if symbol is None else {"symbolType": symbol, "symbolStrokeWidth": 2.5, "symbolSize": 160}
    )
    return alt.Color("label:N", scale=scale, legend=alt.Legend(columns=columns, **shape))


def _level_layers(levels: Sequence[Level], y_scale: alt.Scale, width: int, *, inside: bool = False) -> list[Any]:
    """Dashed lines with their names: in the margin on the right, or above the line on the left."""
    layers: list[Any] = []
    text: dict[str, Any] = {"fontSize": 10.5, "color": var("muted"), "align": "left", "aria": False}
    place: dict[str, Any] = {"baseline": "bottom", "dy": -3} if inside else {"baseline": "middle"}
    for level in levels:
        line = alt.Chart(alt.InlineData(values=[{"level": level.value, "name": level.label}])).encode(
            y=alt.Y("level:Q", scale=y_scale)
        )
        layers += [
            line.mark_rule(strokeDash=[3, 3], color=var("faint"), aria=False),
            line.mark_text(**text, **place).encode(x=alt.value(4 if inside else width + 5), text="name:N"),
        ]
    return layers


def _quadrant_layers(width: int, height: int) -> list[Any]:
    layers = []
    for name, (side, end) in QUADRANTS.items():
        corner = alt.Chart(alt.InlineData(values=[{"name": name}])).mark_text(
            align=side, baseline="middle", fontSize=13, fontStyle="italic", color=var("muted"), opacity=0.8, aria=False
        )
        x = width - 8 if side == "right" else 8
        y = 0.13 * height if end == "top" else 0.84 * height
        layers.append(corner.encode(text="name:N", x=alt.value(x), y=alt.value(y)))
    return layers


def _place_row(index: int, path: Path, place: Place) -> dict[str, Any]:
    first, last = path.places[0], path.places[-1]
    part = "end" if place is last else "start" if place is first else "way"
    row: dict[str, Any] = {
        "path": index,
        "label": path.label,
        "part": part,
        "dashed": path.dashed,
        "step": place.information.step,
    }
    for name, point in (("entropy", place.entropy), ("information", place.information)):
        row |= {
            name: point.value,
            f"{name}_low": point.value if point.low is None else point.low,
            f"{name}_high": point.value if point.high is None else point.high,
        }
    return row
