"""One run as a report shows it: words, numbers and pictures, read from its folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tether.diagnostics import Thresholds
from tether.errors import TetherError
from tether.reports.gaps import Gap, run_gaps
from tether.reports.readings import SCOPES, Coverage, RunReading
from tether.reports.run_figures import (
    Figure,
    dependence_figures,
    group_figure,
    health_figures,
    matrix_figure,
    success_figures,
)
from tether.reports.run_verdict import GapClosed, gap_closed, is_solvable, run_sentences, success_ends
from tether.reports.traces import Trace, choose_traces
from tether.results import Estimate

HEADLINE = ("mi_sequence", "retrieval_accuracy", "mi_per_token", "conditional_entropy", "marginal_entropy")


@dataclass(frozen=True, slots=True)
class ScopeView:
    """First or later turns: estimates at the first and the last measured step, each with its coverage."""

    scope: str
    start_step: int
    end_step: int
    start: dict[str, Estimate]
    end: dict[str, Estimate]
    start_coverage: Coverage
    end_coverage: Coverage
    matrices: list[Figure]

    @property
    def headline(self) -> list[tuple[str, Estimate, Estimate]]:
        """The main estimates, before and after."""
        return [(name, self.start[name], self.end[name]) for name in HEADLINE]


@dataclass(frozen=True, slots=True)
class RunView:
    """Everything that the template of a run prints."""

    reading: RunReading
    verdict: list[str]
    success: tuple[Estimate, Estimate] | None
    closed: GapClosed | None
    success_figures: list[Figure]
    scopes: list[ScopeView]
    dependence_figures: list[Figure]
    groups: list[Figure]
    traces: list[tuple[str, Trace]]
    health_figures: list[Figure]
    gaps: list[Gap]
    thresholds: dict[str, float]


def view_run(run: RunReading) -> RunView:
    """Read a run and draw its pictures."""
    groups, group_gaps = _groups(run)
    success, solvable = success_ends(run), is_solvable(run)
    return RunView(
        reading=run,
        verdict=run_sentences(run),
        success=success,
        closed=gap_closed(*success) if success and solvable else None,
        success_figures=success_figures(run, solvable=solvable),
        scopes=[_scope(run, scope) for scope in SCOPES if run.scored_steps(scope)],
        dependence_figures=dependence_figures(run),
        groups=groups,
        traces=_traces(run),
        health_figures=health_figures(run),
        gaps=[*run_gaps(run), *group_gaps],
        thresholds=asdict(Thresholds()),
    )


def _scope(run: RunReading, scope: str) -> ScopeView:
    start, end = _ends(run.scored_steps(scope))
    return ScopeView(
        scope=scope,
        start_step=start,
        end_step=end,
        start=run.estimates(scope, start),
        end=run.estimates(scope, end),
        start_coverage=run.coverage(scope, start),
        end_coverage=run.coverage(scope, end),
        matrices=[matrix_figure(run, scope, step) for step in sorted({start, end})],
    )


def _groups(run: RunReading) -> tuple[list[Figure], list[Gap]]:
    """The first and the last recorded batch; records that form no groups become a gap."""
    found, gaps = [], []
    for step in sorted({*_ends(run.run.rollout_steps())}):
        try:
            found.append(group_figure(run.group_choice(step)))
        except TetherError as error:
            gaps.append(Gap(f"reward variance by group, iteration {step}", str(error)))
    return found, gaps


def _traces(run: RunReading) -> list[tuple[str, Trace]]:
    found = []
    for step in sorted({*_ends(run.run.rollout_steps("eval"))}):
        when = "before training" if step == 0 else f"after iteration {step}"
        found += [(when, trace) for trace in choose_traces(run.run.rollouts_path(step, "eval"))]
    return found


def _ends(steps: list[int]) -> list[int]:
    """First and last, nothing of nothing."""
    return [steps[0], steps[-1]] if steps else []
