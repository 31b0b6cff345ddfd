"""The report of the demo: arms from one warm start, then a default run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tether.errors import InputError
from tether.files import atomic_file
from tether.reports import charts
from tether.reports.charts import Curve, Level, Place
from tether.reports.demo_verdict import ArmReading, dose_control, headline, random_control, sentences
from tether.reports.drawing import Chart, Picture, picture, png
from tether.reports.gaps import run_gaps, united
from tether.reports.page import write_page
from tether.reports.readings import RunReading
from tether.reports.run import config_text
from tether.reports.run_view import view_run
from tether.reports.words import label, number, visible
from tether.runs import RunFolder

MEASURES = {"success": "success", "conditional_entropy": "H(Z|X), nats/token", "mi_sequence": "I(X;Z), nats"}
CONTROLS = ("random", "dose")
COLUMNS = {
    "success": "eval/success",
    "conditional_entropy": "eval/first_turn/conditional_entropy",
    "mi_sequence": "eval/first_turn/mi_sequence",
}


@dataclass(frozen=True)
class DemoArm:
    """One arm of the demo: what it is called, and its runs, one a seed, in the order of seeds that all arms share."""

    key: str
    label: str
    runs: tuple[RunFolder, ...]


@dataclass(frozen=True, slots=True)
class Spent:
    """What the runs of an arm used, all seeds together."""

    arm: ArmReading
    rollouts: float | None
    trained_tokens: float | None
    updates: float | None
    kept_share: float | None
    regulariser_weight: float | None


def write_demo_report(arms: Sequence[DemoArm], default: RunFolder, path: str | Path) -> None:
    """Write the report that compares the arms and shows the default run; one HTML file that works offline.

    Arms with the keys ``none``, ``filter``, ``random`` and ``dose`` are compared in words; every sentence follows from
    the numbers, also when an arm did not behave as expected.

    Raises:
        RunFolderError: if the configuration or a log of a run is broken.
        RecordError: if a file of records or scores is.
    """
    read = _read(arms)
    by_key = {arm.key: arm for arm in read}
    run = view_run(RunReading(default))
    runs = {run.name: run for arm in read for run in arm.runs}
    write_page(
        path,
        "demo.html",
        arms=read,
        headline=headline(by_key),
        sentences=sentences(by_key),
        controls=[text for text in (dose_control(by_key), random_control(by_key)) if text],
        num_seeds=max((len(arm.runs) for arm in read), default=0),
        measures=MEASURES,
        tops={name: _top(read, name) for name in MEASURES},
        bounds=sorted(set(_bounds(read))),
        plane=_plane_picture(read),
        panels=[_panels(arm, read) for arm in read],
        spent=[_spent(arm) for arm in read],
        arm_findings={name: run.findings for name, run in runs.items() if run.findings},
        arm_gaps=united({name: run_gaps(run) for name, run in runs.items()}),
        run=run,
        differences=list(_differences(read)),
        seeds=sorted({str(seed) for run in runs.values() if (seed := run.setting("seed")) is not None}),
        default_seed=run.reading.setting("seed"),
        arm_config=config_text(read[0].runs[0]) if read and read[0].runs else "",
        config=config_text(run.reading),
    )


def write_demo_picture(arms: Sequence[DemoArm], path: str | Path) -> None:
    """Write the regime plane of the arms as PNG.

    Raises:
        InputError: if no arm has an estimate to draw.
    """
    chart = _plane(_read(arms))
    if chart is None:
        raise InputError(
            f"{len(arms)} arms without I(X;Z) and H(Z|X); at least one evaluation is expected; run the demo first"
        )
    with atomic_file(path) as file:
        file.write(png(chart))


def _read(arms: Sequence[DemoArm]) -> list[ArmReading]:
    return [
        ArmReading(arm.key, visible(arm.label), index, tuple(map(RunReading, arm.runs)))
        for index, arm in enumerate(arms)
    ]


def _plane(arms: Sequence[ArmReading]) -> Chart | None:
    paths = [
        charts.Path(arm.label, arm.colour, places, dashed=arm.key in CONTROLS)
        for arm in arms
        for run in arm.runs
        if (places := _places(run))
    ]
    return charts.regime_plane(paths, bound=_bound(arms)) if paths else None


def _plane_picture(arms: Sequence[ArmReading]) -> Picture | None:
    ways = "; ".join(f"{arm.label}: {_ways(arm)}" for arm in arms)
    said = f"The regime plane, H(Z|X) to the right and I(X;Z) upwards, means over seeds. {ways}."
    chart = _plane(arms)
    return None if chart is None else picture(chart, said)


def _ways(arm: ArmReading) -> str:
    names = {"conditional_entropy": "H", "mi_sequence": "I"}
    return ", ".join(
        f"{short} {number(arm.mean_start(name))} to {number(arm.mean_end(name))}" for name, short in names.items()
    )


def _places(run: RunReading) -> list[Place]:
    """Where a run stood at each evaluation; only estimates that are ok have a regime."""
    return charts.places_of(run.points(COLUMNS["conditional_entropy"]), run.points(COLUMNS["mi_sequence"]))


def _panels(arm: ArmReading, arms: Sequence[ArmReading]) -> Picture:
    """Draw the three measures of one arm over the iterations, on the axes that all arms share."""
    bound = _bound(arms)
    levels = {
        "mi_sequence": [Level("chance", 0.0), *([] if bound is None else [Level("bound", bound)])],
        "success": [Level("solver", 1.0)],
    }
    drawn = [
        charts.curves(
            [Curve(arm.label, arm.colour, run.points(COLUMNS[name])) for run in arm.runs],
            title=title,
            levels=levels.get(name, ()),
            domain=(min(0.0, _bottom(arms, name)), 1.06 * _top(arms, name)),
            width=190,
            height=96,
            step_title="iteration" if name == "mi_sequence" else None,
        )
        for name, title in MEASURES.items()
    ]
    said = "; ".join(
        f"{label(name)} from {number(arm.mean_start(name))} to {number(arm.mean_end(name))}" for name in MEASURES
    )
    return picture(
        charts.stacked(drawn), f"{arm.label}, over the iterations, one line a seed: {said} (means over seeds)."
    )


def _top(arms: Sequence[ArmReading], name: str) -> float:
    """Upper end of the axis of a measure: its bound, else the largest value or interval end."""
    if name == "success":
        return 1.0
    points = [point for arm in arms for run in arm.runs for point in run.points(COLUMNS[name])]
    ends = [max(point.value, point.high or point.value) for point in points]
    return max([*ends, _bound(arms) or 0.0] if name == "mi_sequence" else ends, default=1.0)


def _bottom(arms: Sequence[ArmReading], name: str) -> float:
    points = [point for arm in arms for run in arm.runs for point in run.points(COLUMNS[name])]
    return min((point.value if point.low is None else point.low for point in points), default=0.0)


def _bound(arms: Sequence[ArmReading]) -> float | None:
    return max(_bounds(arms), default=None)


def _bounds(arms: Sequence[ArmReading]) -> list[float]:
    """Bounds of I(X;Z) at the last evaluation; they differ where contexts were lost to invalid replies."""
    return [ends.end.bound for arm in arms for ends in arm.ends("mi_sequence") if ends.end.bound is not None]


def _spent(arm: ArmReading) -> Spent:
    def total(key: str) -> float | None:
        totals = [run.total(key) for run in arm.runs]
        return None if None in totals else sum(value for value in totals if value is not None)

    def mean(key: str) -> float | None:
        means = [value for run in arm.runs if (value := run.mean(key)) is not None]
        return sum(means) / len(means) if means else None

    groups, kept = total("groups"), total("kept_groups")
    return Spent(
        arm,
        rollouts=total("episodes"),
        trained_tokens=total("trained_tokens"),
        updates=total("num_updates"),
        kept_share=kept / groups if groups and kept is not None else None,
        regulariser_weight=mean("regulariser_weight"),
    )


def _differences(arms: Sequence[ArmReading]) -> Iterator[tuple[str, list[Any]]]:
    """Settings in which the first runs of the arms differ, names aside."""
    flat = [dict(_flat(arm.runs[0].config)) for arm in arms if arm.runs]
    for key in dict.fromkeys(key for settings in flat for key in settings):
        values = [settings.get(key) for settings in flat]
        if key not in ("name", "resume") and any(value != values[0] for value in values):
            yield key, values


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
