"""What the estimates of a run show: has reasoning lost its input, and may that be said at all?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from tether.diagnostics.thresholds import Thresholds
from tether.results import Estimate, Finding

Estimates = Mapping[str, Estimate]
History = Mapping[int, Mapping[str, Estimates]]
Series = Sequence[tuple[int, Estimates]]

ROUNDING = 1e-9


def dependence_findings(
    history: History, thresholds: Thresholds, *, unreadable_since: int | None = None, solved: bool = False
) -> Iterator[Finding]:
    """Judge every scope of ``{step: {scope: {name: Estimate}}}``; scopes without ``mi_sequence`` are left alone.

    Args:
        history: What ``input_dependence`` returned.
        thresholds: Limits of the rules.
        unreadable_since: Step from which on the output is unreadable: no dependence is then no template.
        solved: Whether the reward calls every group solved.
    """
    for scope in dict.fromkeys(scope for scopes in history.values() for scope in scopes):
        series = [(step, history[step][scope]) for step in sorted(history) if scope in history[step]]
        series = [(step, estimates) for step, estimates in series if "mi_sequence" in estimates]
        if series:
            yield from _scope_findings(scope, series, thresholds, unreadable_since, solved)


def _scope_findings(
    scope: str, series: Series, thresholds: Thresholds, unreadable_since: int | None, solved: bool
) -> Iterator[Finding]:
    step, last = series[-1]
    mi, place = last["mi_sequence"], f"{scope}, step {step}"
    if mi.status == "void":
        since = _since(series, lambda estimates: estimates["mi_sequence"].status == "void")
        advice = "The scores are not numbers: look at the model's logits, then score again."
        yield Finding("non_finite", "critical", f"{place}: {mi.reason}", since=since, advice=advice)
    if not mi.usable:
        return
    if contradicted(last):
        yield Finding(
            "scorer_mismatch",
            "warning",
            f"{place}: {mi.reason}",
            since=_since(series, contradicted),
            advice="Score the sampled ids, not text, with the weights and temperature that sampled them.",
        )
    if lost(mi, thresholds):
        if unreadable_since is None or step < unreadable_since:
            yield from _lost(place, series, thresholds, solved)
    elif not above_chance(mi):
        yield _undetermined(place, mi, thresholds)
    elif low_entropy(series, thresholds):
        yield Finding(
            "compressed_reasoning",
            "warning",
            f"{place}: {say(mi)}; {_fall(series, 'conditional_entropy')}",
            since=_since(series, lambda now: low_entropy([series[0], (step, now)], thresholds)),
            advice="Faithful, but little variation is left to learn from: raise clip_high or the entropy coefficient.",
        )


def above_chance(mi: Estimate) -> bool:
    """Whether the whole interval lies above chance."""
    return mi.low > (mi.chance or 0.0) + ROUNDING


def lost(mi: Estimate, thresholds: Thresholds) -> bool:
    """Whether the interval reaches down to chance and its upper end is under the share of the bound."""
    if not mi.usable or mi.bound is None or math.isnan(mi.low):
        return False
    return not above_chance(mi) and mi.high < thresholds.collapse_share * mi.bound


def contradicted(estimates: Estimates) -> bool:
    """Whether a check says that the scorer, given as the policy, is not the sampler."""
    mismatch, tail, e_value = (estimates.get(name) for name in ("sampler_mismatch", "tail_check", "e_value"))
    return (
        (mismatch is not None and mismatch.status == "critic_bound")
        or (tail is not None and tail.usable and tail.bound is not None and tail.value <= tail.bound)
        or (e_value is not None and e_value.usable and e_value.bound is not None and e_value.value >= e_value.bound)
    )


def low_entropy(series: Series, thresholds: Thresholds) -> bool:
    """Whether the conditional entropy is disjoint from the run's own start and under the share of it."""
    start, now = (estimates.get("conditional_entropy") for _, estimates in (series[0], series[-1]))
    if not (start and now and start.status == now.status == "ok"):
        return False
    return now.high < start.low and now.value < thresholds.low_entropy_share * start.value


def prompts_needed(mi: Estimate, thresholds: Thresholds) -> int | None:
    """Prompts that would decide between "lost" and "above chance" at the present value and spread.

    The half-width shrinks with the square root of the prompts; the nearer of the two verdicts needs the larger gap.
    None without an interval, or when the value lies exactly between.
    """
    if math.isnan(mi.low) or math.isinf(mi.low) or mi.bound is None:
        return None
    gap = max(thresholds.collapse_share * mi.bound - mi.value, mi.value - (mi.chance or 0.0))
    return math.ceil(mi.num_prompts * ((mi.high - mi.value) / gap) ** 2) if gap > 0 else None


def say(estimate: Estimate) -> str:
    """One estimate as evidence: value, interval, bound and chance."""
    text = f"{estimate.name} {estimate.value:.3g} {estimate.unit} [{estimate.low:.3g}, {estimate.high:.3g}]"
    limits = {"bound": estimate.bound, "chance": estimate.chance}
    known = ", ".join(f"{name} {value:.3g}" for name, value in limits.items() if value is not None)
    return f"{text} ({known})" if known else text


def _lost(place: str, series: Series, thresholds: Thresholds, solved: bool) -> Iterator[Finding]:
    mi, last = series[-1][1]["mi_sequence"], series[-1][1]
    evidence = f"{place}: {_fall(series, 'mi_sequence')}"
    if "retrieval_accuracy" in last:
        evidence += f"; {say(last['retrieval_accuracy'])}"
    since = _since(series, lambda estimates: lost(estimates["mi_sequence"], thresholds))
    unverified = mi.status == "critic_bound" and "tail_check" in last and last["tail_check"].usable
    if mi.status != "ok" and (not unverified or contradicted(last)):
        yield Finding(
            "undetermined",
            "warning",
            f"{evidence}; {mi.reason}: a lower bound near chance does not show that nothing is there",
            since=since,
            advice="Score the sampled ids with the policy that sampled them.",
        )
        return
    if low_entropy(series, thresholds):
        kind, advice = (
            "low_entropy_collapse",
            "Go back to an earlier checkpoint; raise clip_high or the entropy term.",
        )
        evidence += f"; {_fall(series, 'conditional_entropy')}"
    else:
        kind = "template_collapse"
        advice = (
            "Train only on groups whose rewards vary (select.strategy=top_p), and lower KL and entropy coefficients: "
            "they do not look at the reward."
        )
    yield Finding(
        kind,
        "warning" if unverified else "critical",
        f"{evidence}; {mi.reason}" if unverified else evidence,
        since=since,
        advice=advice,
    )
    if solved:
        yield Finding(
            "reward_without_reading",
            "critical",
            f"{place}: every reward group is solved while {say(mi)}",
            since=since,
            advice="The reward accepts an answer that ignores the input: read solved replies, repair the reward.",
        )


def _undetermined(place: str, mi: Estimate, thresholds: Thresholds) -> Finding:
    needed = prompts_needed(mi, thresholds)
    return Finding(
        "undetermined",
        "info",
        f"{place}: {say(mi)}: the interval covers chance and is too wide to tell, from {mi.num_prompts} prompts",
        advice=f"Score about {needed} prompts." if needed else "Score more prompts.",
    )


def _since(series: Series, holds: Callable[[Estimates], bool]) -> int | None:
    """First step of the last unbroken stretch in which a rule holds."""
    start = None
    for step, estimates in reversed(series):
        if not holds(estimates):
            break
        start = step
    return start


def _fall(series: Series, name: str) -> str:
    """The estimate at the last step, and at the first where that is another one."""
    (first_step, first), (last_step, last) = series[0], series[-1]
    start = f"; at step {first_step} it was {say(first[name])}" if first_step != last_step and name in first else ""
    return say(last[name]) + start
