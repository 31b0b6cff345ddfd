"""Charts become pictures that are well-formed, carry both sets of colours, and draw what they were given."""

import base64
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from tether.reports import charts
from tether.reports.charts import Curve, Level, Path, Place, Point
from tether.reports.drawing import picture, png, svg
from tether.reports.palette import DARK, LIGHT

HOSTILE = '<script>alert(1)</script> & "quotes" </svg>'


def rows(chart: Any) -> list[dict[str, Any]]:
    """All inline data of a chart."""
    return [row for data in chart.to_dict(validate=False)["datasets"].values() for row in data]


@pytest.fixture
def curve_chart() -> Any:
    points = [Point(0, 1.0, 0.5, 1.5), Point(10, 2.0, 1.8, 2.2)]
    lines = [
        Curve(HOSTILE, "var(--series1)", points),
        Curve("bare", "var(--series2)", [Point(0, 1.0), Point(10, -1.0)]),
    ]
    return charts.curves(lines, title="I(X;Z)", levels=[Level("bound", 3.0)])


def test_svg_is_well_formed_and_holds_no_code(curve_chart: Any) -> None:
    root = ET.fromstring(svg(curve_chart))
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names <= {"svg", "style", "g", "path", "line", "text", "rect", "defs", "clipPath", "title"}
    assert not any(name.lower().startswith("on") or name.endswith("href") for e in root.iter() for name in e.attrib)
    assert HOSTILE in [element.text for element in root.iter()]


def test_svg_follows_light_and_dark(curve_chart: Any) -> None:
    drawn = svg(curve_chart)
    assert "prefers-color-scheme:dark" in drawn
    assert LIGHT["series1"] in drawn
    assert DARK["series1"] in drawn
    assert 'stroke="var(--series1)"' in drawn


def test_a_picture_has_its_size_and_its_words(curve_chart: Any) -> None:
    drawn = picture(curve_chart, "two curves")
    kind, _, data = drawn.source.partition(",")
    root = ET.fromstring(base64.b64decode(data))
    assert kind == "data:image/svg+xml;base64"
    assert (str(drawn.width), str(drawn.height)) == (root.get("width"), root.get("height"))
    assert drawn.alt == "two curves"


def test_png_is_drawn_in_light_colours(curve_chart: Any) -> None:
    assert png(curve_chart, scale=1).startswith(b"\x89PNG\r\n")


def test_curves_show_all_that_is_drawn(curve_chart: Any) -> None:
    spec = curve_chart.to_dict(validate=False)
    domains = [layer["encoding"]["y"]["scale"]["domain"] for layer in spec["layer"]]
    assert all(domain == pytest.approx([-1.0, 1.06 * 3.0]) for domain in domains)


def test_lower_bounds_are_curves_of_their_own() -> None:
    lines = [
        Curve("first turns", "var(--series2)", [Point(0, 1.0)]),
        Curve("first turns, lower bound", "var(--series2)", [Point(10, 1.0)], interrupted=True),
    ]
    drawn = [row for row in rows(charts.curves(lines, title="x")) if "step" in row]
    assert {(row["curve"], row["step"], row["dashed"]) for row in drawn} == {(0, 0, False), (1, 10, True)}


def test_places_pair_the_steps_that_both_curves_have() -> None:
    entropy, information = [Point(0, 1.0), Point(10, 1.1)], [Point(10, 2.0), Point(20, 3.0)]
    assert charts.places_of(entropy, information) == [Place(Point(10, 1.1), Point(10, 2.0))]


def test_the_plane_marks_start_end_bound_and_regimes() -> None:
    places = [Place(Point(s, 1.0, 0.9, 1.1), Point(s, 2.0 - s / 20, 1.5, 2.5)) for s in (0, 10, 20)]
    chart = charts.regime_plane([Path("arm", "var(--series1)", places)], bound=4.0)
    found = rows(chart)
    assert [row["part"] for row in found if "part" in row][:3] == ["start", "way", "end"]
    assert {row["name"] for row in found if "name" in row} == {*charts.QUADRANTS, "chance 0", "bound log N = 4.00"}
    ET.fromstring(svg(chart))


def test_a_path_of_one_place_is_an_end() -> None:
    chart = charts.regime_plane([Path("arm", "var(--series1)", [Place(Point(0, 1.0), Point(0, 1.0))])], bound=None)
    assert [row["part"] for row in rows(chart) if "part" in row][:1] == ["end"]
    ET.fromstring(svg(chart))


def test_matrix_rows_are_ordered_by_their_own_context() -> None:
    posterior_MN = np.array([[0.1, 0.9], [1.0, 0.0]])
    found = rows(charts.retrieval_matrix(posterior_MN, np.array([1, 0])))
    assert {(row["row"], row["column"]): row["posterior"] for row in found} == {(0, 0): 1.0, (1, 0): 0.1, (1, 1): 0.9}


def test_a_large_matrix_is_thinned_evenly() -> None:
    posterior_MN = np.eye(200)
    found = rows(charts.retrieval_matrix(posterior_MN, np.arange(200)))
    assert len(found) == charts.MAX_MATRIX_ROWS
    assert found[0]["column"] == 0
    assert found[-1]["column"] == 199


def test_groups_are_ranked_by_variance_with_the_kept_ones_first_among_equals() -> None:
    chart = charts.group_variance([0.0, 0.2, 0.1, 0.2], [False, False, False, True])
    assert [(row["variance"], row["label"]) for row in rows(chart)][:4] == [
        (0.2, "trained"),
        (0.2, "left out"),
        (0.1, "left out"),
        (0.0, "left out"),
    ]
    ET.fromstring(svg(chart))
