"""The report of a diagnosis: verdict, findings, every estimate, everything that is missing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from tether.diagnostics.findings import worst_first
from tether.reports import charts
from tether.reports.charts import Curve, Level, Place, Point
from tether.reports.compare import reads_as
from tether.reports.drawing import picture
from tether.reports.gaps import estimate_gaps
from tether.reports.page import write_page
from tether.reports.palette import series
from tether.reports.run_figures import Figure, curve_figures
from tether.reports.words import counted, interval_of, label, listed, number, value_of
from tether.results import SEVERITIES, Diagnosis, Estimate, Severity, Status

GRADES: dict[Status, str] = {"ok": "", "critic_bound": ", lower bound"}
"""Grades that are drawn, each as a curve of its own."""
DRAWN = {
    "mi_sequence": "I(X;Z), nats",
    "retrieval_accuracy": "own context ranked first",
    "conditional_entropy": "H(Z|X), nats per token",
}


def write_report(diagnosis: Diagnosis, path: str | Path) -> None:
    """Write a diagnosis as one HTML file that works offline and runs no script.

    It has the verdict, every finding with evidence and advice, every estimate with interval, bound, chance, p-value and
    status, and everything that was skipped, with the reason. What is void or skipped is never drawn.
    """
    gaps = [gap for scope, named in diagnosis.estimates.items() for gap in estimate_gaps(label(scope), named.values())]
    write_page(
        path,
        "diagnosis.html",
        diagnosis=diagnosis,
        headline=_headline(diagnosis),
        sentences=[*_finding_sentences(diagnosis), *_estimate_sentences(diagnosis), *_gap_sentence(diagnosis)],
        findings=worst_first(diagnosis.findings),
        plane=_plane(diagnosis),
        curves=list(_curves(diagnosis)),
        gaps=gaps,
    )


def _headline(diagnosis: Diagnosis) -> str:
    if diagnosis.severity is not None:
        return _named(diagnosis, diagnosis.severity)
    measured = any(estimate.usable for named in diagnosis.estimates.values() for estimate in named.values())
    return "No problem found in what could be measured." if measured else "Nothing could be measured."


def _finding_sentences(diagnosis: Diagnosis) -> Iterator[str]:
    """Name the findings that are milder than the worst."""
    for severity in reversed(SEVERITIES):
        if severity != diagnosis.severity and any(finding.severity == severity for finding in diagnosis.findings):
            yield _named(diagnosis, severity)


def _named(diagnosis: Diagnosis, severity: Severity) -> str:
    ids = dict.fromkeys(finding.id for finding in diagnosis.findings if finding.severity == severity)
    return f"{severity.capitalize()}: {listed([name.replace('_', ' ') for name in ids])}."


def _estimate_sentences(diagnosis: Diagnosis) -> Iterator[str]:
    for scope, named in diagnosis.estimates.items():
        mi = named.get("mi_sequence")
        if mi is None or not mi.usable:
            continue
        bound = "" if mi.bound is None else f" of at most {number(mi.bound)}"
        judged = f": {reads_as(mi)}" if reads_as(mi) else ""
        grade = ", as a lower bound" if mi.status == "critic_bound" else ""
        yield f"I(X;Z) of {label(scope)} is {value_of(mi)} {interval_of(mi)}{bound} nats{grade}{judged}."


def _gap_sentence(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.skipped:
        missing = counted(len(diagnosis.skipped), "estimate")
        yield f"{missing} could not be computed or may not be shown; the reasons stand below."


def _curves(diagnosis: Diagnosis) -> Iterator[Figure]:
    """Curves of the headline estimates, one picture a measure; nothing for a single step."""
    if len(diagnosis.history) < 2:
        return
    scopes = list(dict.fromkeys(scope for scopes in diagnosis.history.values() for scope in scopes))
    for name, title in DRAWN.items():
        lines = [
            Curve(
                f"{label(scope)}{suffix}",
                series(1 + index),
                list(_points(diagnosis, scope, name, status)),
                interrupted=status != "ok",
            )
            for index, scope in enumerate(scopes)
            for status, suffix in GRADES.items()
        ]
        yield from curve_figures(title, lines, levels=_levels(diagnosis, name))


def _points(diagnosis: Diagnosis, scope: str, name: str, status: Status) -> Iterator[Point]:
    for step in sorted(diagnosis.history):
        estimate = diagnosis.history[step].get(scope, {}).get(name)
        if estimate and estimate.status == status and math.isfinite(estimate.value):
            yield Point(step, estimate.value, *_ends(estimate))


def _ends(estimate: Estimate) -> tuple[float | None, float | None]:
    known = math.isfinite(estimate.low) and math.isfinite(estimate.high)
    return (estimate.low, estimate.high) if known else (None, None)


def _levels(diagnosis: Diagnosis, name: str) -> list[Level]:
    """Chance and bound, where all scopes agree on them."""
    found = []
    for level in ("chance", "bound"):
        values = {getattr(named[name], level) for named in diagnosis.estimates.values() if name in named}
        if len(values) == 1 and (value := values.pop()) is not None:
            found.append(Level(level, value))
    return found


def _plane(diagnosis: Diagnosis) -> Figure | None:
    """The way through the regime plane; only estimates that are ok have a regime."""
    scopes = list(dict.fromkeys(scope for scopes in diagnosis.history.values() for scope in scopes))
    ways = [
        charts.Path(label(scope), series(1 + index), places)
        for index, scope in enumerate(scopes)
        if (places := _places(diagnosis, scope))
    ]
    if not ways:
        return None
    bounds = [named["mi_sequence"].bound for named in diagnosis.estimates.values() if "mi_sequence" in named]
    bound = max((bound for bound in bounds if bound is not None), default=None)
    return Figure(
        picture(charts.regime_plane(ways, bound=bound), "The regime plane, H(Z|X) to the right and I(X;Z) upwards."),
        "From the first step (diamond) to the last. No line parts the regimes: no threshold holds for every model.",
    )


def _places(diagnosis: Diagnosis, scope: str) -> list[Place]:
    entropy, information = (
        list(_points(diagnosis, scope, name, "ok")) for name in ("conditional_entropy", "mi_sequence")
    )
    return charts.places_of(entropy, information)
