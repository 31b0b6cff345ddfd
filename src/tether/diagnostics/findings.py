"""Named problems of a run, from its metric lines and its estimates. Rules with stated thresholds, nothing learned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tether.diagnostics.curve_findings import curve_findings, solved, unreadable_since
from tether.diagnostics.curves import Line
from tether.diagnostics.dependence_findings import Estimates, dependence_findings
from tether.diagnostics.thresholds import Thresholds
from tether.results import SEVERITIES, Finding


def find_in_run(
    metrics: Sequence[Line] = (),
    history: Mapping[int, Mapping[str, Estimates]] | None = None,
    *,
    thresholds: Thresholds | None = None,
) -> list[Finding]:
    """Return what a run shows up to its last step, worst first.

    Args:
        metrics: One mapping a step with "step" and any of :data:`tether.diagnostics.curve_findings.READS`.
        history: ``{step: {scope: {name: Estimate}}}``, from ``input_dependence``; scopes are free words.
        thresholds: Limits of the rules.

    >>> [f.id for f in find_in_run([{"step": 1, "solved_share": 0.0, "failed_share": 1.0, "zero_variance_share": 1.0}])]
    ['dead_signal']
    """
    thresholds = thresholds or Thresholds()
    lines = sorted(metrics, key=lambda line: line["step"])
    found = [
        *curve_findings(lines, thresholds),
        *dependence_findings(
            history or {},
            thresholds,
            unreadable_since=unreadable_since(lines, thresholds),
            solved=solved(lines, thresholds),
        ),
    ]
    return worst_first(found)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort by severity; equally severe ones keep their order."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity), reverse=True)
