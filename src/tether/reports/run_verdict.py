"""The sentences of a run's report: each follows from the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tether.reports.compare import reads_as, relation
from tether.reports.readings import SCOPES, RunReading
from tether.reports.words import counted, interval_of, label, listed, number, share, value_of
from tether.results import Estimate


@dataclass(frozen=True, slots=True)
class GapClosed:
    """Share of the way from the start to the solver's success, and its range over both intervals."""

    share: float
    low: float
    high: float


def is_solvable(run: RunReading) -> bool:
    """Whether every unseen state can be solved within its budget: lakes are drawn so, when they are not slippery."""
    slip = run.setting("env", "options", "success_rate")
    return run.setting("env", "name") == "frozen_lake" and slip in (None, 1)


def success_ends(run: RunReading) -> tuple[Estimate, Estimate] | None:
    """Return success at the first and at the last evaluation; None without an evaluation."""
    steps = run.evaluated_steps
    return (run.success(steps[0]), run.success(steps[-1])) if steps else None


def gap_closed(before: Estimate, after: Estimate) -> GapClosed | None:
    """Return (after - before) / (1 - before); None when there was hardly a gap.

    The range takes both intervals at their worst and at their best ends: it is wider than an interval of the ratio.

    >>> found = gap_closed(Estimate("s", 0.5, "", 0.4, 0.6), Estimate("s", 0.75, "", 0.7, 0.8))
    >>> found.share, round(found.low, 2), round(found.high, 2)
    (0.5, 0.25, 0.67)
    """
    if before.value >= 1 or before.high >= 1:
        return None
    return GapClosed(
        share=(after.value - before.value) / (1 - before.value),
        low=(after.low - before.high) / (1 - before.high),
        high=(after.high - before.low) / (1 - before.low),
    )


def run_sentences(run: RunReading) -> list[str]:
    """Return the verdict: success, dependence on the input, findings."""
    return [_success_sentence(run), *_dependence_sentences(run), _finding_sentence(run)]


def _success_sentence(run: RunReading) -> str:
    ends = success_ends(run)
    if ends is None:
        return "The run was not evaluated on unseen states."
    before, after = ends
    first, last = run.evaluated_steps[0], run.evaluated_steps[-1]
    if first == last:
        return f"Success on unseen states is {_said(after)} at iteration {last}, the only evaluation."
    moved = relation(after, before)
    verb = {"above": "rose", "below": "fell"}.get(moved, "went")
    tail = "; the intervals overlap" if moved == "overlap" else ""
    text = f"Success on unseen states {verb} from {_said(before)} to {_said(after)} by iteration {last}{tail}."
    closed = gap_closed(before, after) if is_solvable(run) else None
    if closed is None:
        return text
    spread = f"range {share(closed.low)} to {share(closed.high)}"
    return f"{text} That is {share(closed.share)} of the gap to a solver, which reaches 1 ({spread})."


def _dependence_sentences(run: RunReading) -> Iterator[str]:
    for scope in SCOPES:
        steps = run.scored_steps(scope)
        if not steps:
            continue
        start, end = (run.estimates(scope, step)["mi_sequence"] for step in (steps[0], steps[-1]))
        if not end.usable:
            yield f"I(X;Z) of {label(scope)} could not be estimated: {end.reason}."
            continue
        bound = "" if end.bound is None else f" of at most {number(end.bound)}"
        judged = f" ({reads_as(end)})" if reads_as(end) else ""
        moved = {"above": "risen", "below": "fallen", "overlap": "not clearly moved"}.get(relation(end, start))
        since = f", {moved} from {_said(start)} at iteration {steps[0]}" if moved and len(steps) > 1 else ""
        yield f"I(X;Z) of {label(scope)} ends at {_said(end)}{bound} nats{judged}{since}."


def _finding_sentence(run: RunReading) -> str:
    if not run.findings:
        return "The monitor had no finding."
    names = listed([finding.id.replace("_", " ") for finding in run.findings])
    worst = f"{'the worst ' if len(run.findings) > 1 else ''}{run.findings[0].severity}"
    return f"The monitor had {counted(len(run.findings), 'finding')}, {worst}: {names}."


def _said(estimate: Estimate) -> str:
    return f"{value_of(estimate)} {interval_of(estimate)}"
