"""Everything that a report does not show, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tether.reports.readings import SCOPES, RunReading
from tether.reports.words import label
from tether.results import Estimate, Status


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that was not computed or may not be shown."""

    what: str
    reason: str
    status: Status = "skipped"


def estimate_gaps(where: str, estimates: Iterable[Estimate]) -> list[Gap]:
    """Return what is skipped or void among estimates, those of one reason together."""
    names: dict[tuple[str, Status], list[str]] = {}
    for estimate in estimates:
        if not estimate.usable:
            names.setdefault((estimate.reason, estimate.status), []).append(label(estimate.name))
    return [Gap(f"{where}: {', '.join(named)}", reason, status) for (reason, status), named in names.items()]


def run_gaps(run: RunReading) -> list[Gap]:
    """Return what a run folder does not hold, or holds and may not be used."""
    gaps = []
    if not run.lines:
        gaps.append(Gap("metrics", "the run has no metric line yet"))
    if run.run.read_metrics().torn is not None:
        gaps.append(Gap("the last metric line", "it was cut off when the run was stopped, and is left out"))
    if run.lines and not run.evaluated_steps:
        gaps.append(Gap("success on unseen states", "the run has no evaluation"))
    for scope in SCOPES:
        steps = run.scored_steps(scope)
        if not steps:
            gaps.append(Gap(label(scope), _no_scores(run, scope)))
        for step in sorted({steps[0], steps[-1]}) if steps else ():
            gaps += estimate_gaps(f"{label(scope)}, iteration {step}", run.estimates(scope, step).values())
    if not run.run.rollout_steps():
        gaps.append(Gap("reward variance by group", "no training rollouts were written (checkpoint.rollouts_every)"))
    if not run.run.rollout_steps("eval"):
        gaps.append(Gap("traces", "no evaluation rollouts were written"))
    if run.monitor_share is None:
        gaps.append(Gap("cost of the monitor", "the run has no timings"))
    return gaps


def united(gaps_of: dict[str, list[Gap]]) -> list[Gap]:
    """Join the gaps of several runs: what is missing in all of them for one reason is said once."""
    runs_of: dict[Gap, list[str]] = {}
    for name, gaps in gaps_of.items():
        for gap in gaps:
            runs_of.setdefault(gap, []).append(name)
    return [
        Gap(f"{'every run' if len(runs) == len(gaps_of) else ', '.join(runs)}: {gap.what}", gap.reason, gap.status)
        for gap, runs in runs_of.items()
    ]


def _no_scores(run: RunReading, scope: str) -> str:
    if run.setting("monitor", "every") == 0:
        return "the monitor was off (monitor.every=0)"
    if scope == "later_turns" and run.setting("env", "options", "max_turns") == 1:
        return "episodes have one turn"
    reason = next(
        (line[key] for line in run.lines for key in line if f"/{scope}/" in key and key.endswith("/reason")), None
    )
    return reason or "no turn of this kind with a closed reasoning was measured"
