"""What the metric lines of a run show by themselves: rewards without signal, formats, lengths, broken numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tether.diagnostics.curves import Curve, Line
from tether.diagnostics.thresholds import Thresholds
from tether.results import Finding

READS = (
    "step",
    "valid_format_share",
    "reasoning_tokens_mean",
    "truncated_reply_share",
    "zero_variance_share",
    "solved_share",
    "failed_share",
)
"""Metrics that the rules read; shares are fractions of replies or of reward groups. Absent ones are not judged."""


def curve_findings(lines: Sequence[Line], thresholds: Thresholds) -> Iterator[Finding]:
    """Judge the lines (one a step, in order, see :data:`READS`)."""
    yield from _non_finite(lines)
    yield from _reward_signal(lines, thresholds)
    yield from _format(lines, thresholds)
    yield from _length(lines, thresholds)


def unreadable_since(lines: Sequence[Line], thresholds: Thresholds) -> int | None:
    """First step from which on too few replies have a valid format; None when they have, or it is not known."""
    return Curve.of("valid_format_share", lines).onset(lambda share: share < thresholds.readable_share)


def solved(lines: Sequence[Line], thresholds: Thresholds) -> bool:
    """Whether (nearly) every reward group is constant because all its members succeed."""
    return Curve.of("solved_share", lines).recent(thresholds.window) >= thresholds.constant_share


def _non_finite(lines: Sequence[Line]) -> Iterator[Finding]:
    """Interval ends are left out: they are NaN where there is no interval."""
    for line in lines:
        broken = {
            name: value
            for name, value in line.items()
            if isinstance(value, float) and not math.isfinite(value) and not name.endswith(("/low", "/high"))
        }
        if broken:
            yield Finding(
                "non_finite",
                "critical",
                f"{', '.join(f'{name} is {value}' for name, value in broken.items())} at step {line['step']}",
                since=line["step"],
                advice="Go back to the last checkpoint before it; look at the reward, then at the learning rate.",
            )
            return


def _reward_signal(lines: Sequence[Line], thresholds: Thresholds) -> Iterator[Finding]:
    limit, window = thresholds.constant_share, thresholds.window
    constant, won, lost = (Curve.of(name, lines) for name in ("zero_variance_share", "solved_share", "failed_share"))
    shares = (
        f"over the last {min(window, len(constant.values))} steps {constant.recent(window):.0%} of the groups "
        f"were constant ({won.recent(window):.0%} solved, {lost.recent(window):.0%} failed)"
    )
    if won.recent(window) >= limit:
        yield Finding(
            "saturated",
            "info",
            f"every group is solved; {shares}",
            since=won.onset(lambda share: share >= limit),
            advice="Mastered, or too easy: move to harder prompts. What still trains is the regularisers.",
        )
    elif lost.recent(window) >= limit:
        yield Finding(
            "dead_signal",
            "critical",
            f"every group fails; {shares}",
            since=lost.onset(lambda share: share >= limit),
            advice="Too hard or a broken reward: score a known right answer, then start from easier prompts.",
        )
    elif constant.recent(window) >= limit:
        yield Finding(
            "dead_signal",
            "warning",
            f"no group varies: some are solved, the others fail; {shares}",
            since=constant.onset(lambda share: share >= limit),
            advice="Sample prompts of middle difficulty, or more members a group.",
        )


def _format(lines: Sequence[Line], thresholds: Thresholds) -> Iterator[Finding]:
    valid = Curve.of("valid_format_share", lines)
    since = unreadable_since(lines, thresholds)
    if since is not None:
        yield Finding(
            "unreadable_output",
            "critical",
            f"{valid.values[-1]:.0%} of the replies at step {valid.steps[-1]} have a valid format "
            f"(limit {thresholds.readable_share:.0%})",
            since=since,
            advice="Read some replies. Lower the entropy coefficient or raise the KL; check template and reply budget.",
        )
    change = valid.change(thresholds.window)
    if change and change.fallen and change.start - change.end >= thresholds.format_drop:
        yield Finding(
            "format_decay",
            "warning",
            f"valid_format_share went from {change}",
            since=valid.onset(lambda share: share < change.start_interval[0]),
            advice="Often the first sign of trouble. Penalise invalid replies, and look for truncation.",
        )


def _length(lines: Sequence[Line], thresholds: Thresholds) -> Iterator[Finding]:
    cut = Curve.of("truncated_reply_share", lines)
    since = cut.onset(lambda share: share >= thresholds.cap_share)
    if since is not None:
        yield Finding(
            "ends_at_cap",
            "critical" if cut.values[-1] >= 1 else "warning",
            f"{cut.values[-1]:.0%} of the replies at step {cut.steps[-1]} are cut off at the cap",
            since=since,
            advice="Raise the reply budget or penalise length; train no end token that was not sampled.",
        )
    tokens = Curve.of("reasoning_tokens_mean", lines)
    change = tokens.change(thresholds.window)
    if change and change.risen and change.end >= thresholds.length_ratio * change.start:
        yield Finding(
            "length_growth",
            "warning",
            f"reasoning_tokens_mean went from {change}",
            since=tokens.onset(lambda count: count > change.start_interval[1]),
            advice="Unclosed thoughts grow before a failure: look at truncation and at how the loss weighs length.",
        )
