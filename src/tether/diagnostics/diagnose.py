"""One verdict from whatever there is: rollouts, cross scores, metric curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tether.diagnostics.curves import Line
from tether.diagnostics.episodes import (
    EpisodeFacts,
    coverage,
    facts_by_step,
    metric_line,
    mixed_groups,
    reward_estimates,
)
from tether.diagnostics.findings import find_in_run, worst_first
from tether.diagnostics.input_dependence import input_dependence
from tether.diagnostics.thresholds import Thresholds
from tether.errors import InputError
from tether.records import Episode, Rollouts
from tether.results import Diagnosis, Estimate, Finding
from tether.scoring.cross_scores import CrossScores

Steps = Mapping[int, CrossScores]
DEFAULT_SCOPE = "first_turn"


def diagnose(
    rollouts: Rollouts | Iterable[Episode] | None = None,
    *,
    scores: CrossScores | Steps | Mapping[str, CrossScores | Steps] | None = None,
    metrics: Sequence[Line] | None = None,
    thresholds: Thresholds | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Diagnosis:
    """Estimate and judge what is given; what is missing becomes a skipped estimate or is not judged.

    Args:
        rollouts: Episodes of one or several steps, read once.
        scores: One matrix, ``{step: matrix}``, or either under the name of a scope ("first_turn", "later_turns" ...).
            A matrix without a scope is taken as "first_turn", without a step as the last step.
        metrics: One mapping a step with "step"; columns of the same step from the rollouts fill what it lacks.
        thresholds: Limits of the rules.
        confidence: Of all intervals.
        seed: Of the relabelings.

    Raises:
        InputError: Nothing to diagnose.

    >>> blind = CrossScores([[-5.0] * 4] * 4, own_M=range(4), num_tokens_M=[5] * 4, behaviour_logprob_M=[-5.0] * 4)
    >>> [finding.id for finding in diagnose(scores=blind).findings]
    ['template_collapse']
    """
    if rollouts is None and not scores and not metrics:
        raise InputError("diagnose() got nothing: expected rollouts, scores or metrics. Give at least one of them.")
    facts = facts_by_step(rollouts.episodes if isinstance(rollouts, Rollouts) else rollouts or ())
    lines = _lines(facts, metrics or ())
    last_step = max((line["step"] for line in lines), default=0)
    history: dict[int, dict[str, dict[str, Estimate]]] = {}
    for step, step_facts in facts.items():
        history.setdefault(step, {})["rewards"] = reward_estimates(step_facts, confidence=confidence)
    for scope, steps in _by_scope(scores, last_step).items():
        for step, found in _dependence(steps, confidence, seed).items():
            history.setdefault(step, {})[scope] = found
    thresholds = thresholds or Thresholds()
    findings = [*find_in_run(lines, history, thresholds=thresholds), *_source_findings(facts)]
    return Diagnosis(
        findings=tuple(worst_first(findings)),
        estimates={scope: found for step in sorted(history) for scope, found in history[step].items()},
        history=dict(sorted(history.items())),
        coverage=coverage(facts[max(facts)]) if facts else {},
        thresholds=asdict(thresholds),
        notes=rollouts.notes if isinstance(rollouts, Rollouts) else (),
    )


def _lines(facts: Mapping[int, Sequence[EpisodeFacts]], metrics: Sequence[Line]) -> list[dict[str, Any]]:
    lines = {step: metric_line(step, step_facts) for step, step_facts in facts.items()}
    for line in metrics:
        if "step" not in line:
            raise InputError(
                f"a metric line without 'step' ({', '.join(line)}): expected one line a step. Add its step."
            )
        known = {name: value for name, value in line.items() if value is not None}
        lines[line["step"]] = lines.get(line["step"], {}) | known
    return [lines[step] for step in sorted(lines)]


def _by_scope(
    scores: CrossScores | Steps | Mapping[str, CrossScores | Steps] | None, last_step: int
) -> dict[str, dict[int, CrossScores]]:
    if scores is None:
        return {}
    if isinstance(scores, CrossScores):
        return {DEFAULT_SCOPE: {last_step: scores}}
    scopes: dict[str, dict[int, CrossScores]] = {}
    for key, value in scores.items():
        if isinstance(key, str):
            scopes[key] = _by_scope(value, last_step)[DEFAULT_SCOPE]
        elif isinstance(value, CrossScores):
            scopes.setdefault(DEFAULT_SCOPE, {})[key] = value
        else:
            raise InputError(f"scores at step {key!r}: got a {type(value).__name__}, expected CrossScores.")
    return scopes


def _dependence(steps: Steps, confidence: float, seed: int) -> dict[int, dict[str, Estimate]]:
    """Estimates of every step; the spread is smoothed over steps of one grade only."""
    found: dict[int, dict[str, Estimate]] = {}
    smoothed: dict[str, float] = {}
    for step in sorted(steps):
        found[step] = input_dependence(steps[step], confidence=confidence, seed=seed, ema_sigma=smoothed)
        spread = found[step]["marginal_spread_ema"]
        if spread.usable:
            smoothed[spread.status] = spread.value
    return found


def _source_findings(facts: Mapping[int, Sequence[EpisodeFacts]]) -> list[Finding]:
    """What the rollouts themselves say against conclusions from them."""
    found = []
    mixed = {step: groups for step, step_facts in facts.items() if (groups := mixed_groups(step_facts))}
    if mixed:
        step, groups = next(iter(mixed.items()))
        evidence = f"{len(groups)} groups mix prompts at step {step}, the first is {groups[0]!r}"
        advice = "Give every initial state its own group id; group statistics are void until then."
        found.append(Finding("mixed_groups", "critical", evidence, since=step, advice=advice))
    selected = [step for step, step_facts in facts.items() if any(fact.selected for fact in step_facts)]
    if selected:
        evidence = f"{len(selected)} of {len(facts)} steps were written after groups were dropped"
        advice = "Save all rollouts: shares over groups are refused, and dependence is that of the kept groups."
        found.append(Finding("selection_bias", "warning", evidence, since=selected[0], advice=advice))
    return found
