"""What a run folder says: curves from its metric lines, estimates from its score files, groups from its records."""

# _M reasonings | _N distinct contexts

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.diagnostics import input_dependence
from tether.records import Rollouts
from tether.reports.charts import Point
from tether.results import SEVERITIES, Estimate, Severity, Status, skipped
from tether.runs import RunFolder
from tether.scoring import CrossScores
from tether.selection import select_groups, select_options

SCOPES = ("first_turn", "later_turns")
PARTS = ("eval", "train")
"""Which rollouts are measured: unseen states, else those of training."""


@dataclass(frozen=True, slots=True)
class SeenFinding:
    """A finding with every time that the monitor said it; severity, onset and advice are those of the last time."""

    id: str
    severity: Severity
    advice: str
    since: int | None
    said: tuple[tuple[int, str], ...]

    @property
    def evidence(self) -> str:
        """Evidence of the last time."""
        return self.said[-1][1]

    @property
    def first_step(self) -> int:
        """Step of the first time."""
        return self.said[0][0]


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """Reward variance of the groups of one training step, and which of them trained."""

    step: int
    variance: list[float]
    kept: list[bool]
    is_control: bool

    @property
    def num_kept(self) -> int:
        """Groups that trained."""
        return sum(self.kept)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What stands beside every value of I(X;Z): share in valid format, length of a reasoning, turns scored and cut."""

    valid_format: float | None
    truncated_share: float | None
    mean_tokens: float | None
    num_rows: int | None
    num_turns: int | None


class RunReading:
    """One run, read from its folder."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.name = run.name
        self._estimates: dict[tuple[str, int], dict[str, Estimate]] = {}

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return self.run.read_config()

    @cached_property
    def versions(self) -> dict[str, str]:
        """The versions of what ran."""
        return self.run.read_versions()

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The metric lines, in order."""
        return self.run.read_metrics().rows

    @cached_property
    def part(self) -> str:
        """Which rollouts the scores are of: "eval" where there are any, else "train"."""
        return next((part for part in PARTS for scope in SCOPES if self.run.score_steps(f"{part}.{scope}")), "eval")

    def setting(self, *path: str) -> Any:
        """Return a value of the configuration, None where it has none."""
        value: Any = self.config
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    @property
    def confidence(self) -> float:
        """Confidence of the intervals in the metric lines."""
        return float(self.setting("monitor", "confidence") or 0.95)

    @property
    def evaluated_steps(self) -> list[int]:
        """Steps with a success on unseen states."""
        return [point.step for point in self.points("eval/success")]

    def points(self, key: str, status: Status = "ok") -> list[Point]:
        """Return the plottable values of a column, those of one status only: the two kinds never share a curve."""
        return [
            Point(line["step"], line[key], _finite(line.get(f"{key}/low")), _finite(line.get(f"{key}/high")))
            for line in self.lines
            if _finite(line.get(key)) is not None and line.get(f"{key}/status", "ok") == status
        ]

    def total(self, key: str) -> float | None:
        """Return the sum of a column, None where no line has it."""
        return math.fsum(point.value for point in self.points(key)) if self.points(key) else None

    def mean(self, key: str) -> float | None:
        """Return the mean of a column, None where no line has it."""
        total = self.total(key)
        return None if total is None else total / len(self.points(key))

    def line_at(self, step: int) -> dict[str, Any]:
        """Return the metric line of a step, empty where there is none."""
        return next((line for line in self.lines if line["step"] == step), {})

    def success(self, step: int) -> Estimate:
        """Return the success on unseen states at a step."""
        line = self.line_at(step)
        if _finite(line.get("eval/success")) is None:
            return skipped("success", "fraction", f"no evaluation at step {step}")
        prompts, samples = int(self.setting("eval", "prompts") or 0), int(self.setting("eval", "samples") or 0)
        return Estimate(
            "success",
            line["eval/success"],
            "fraction",
            low=_or_nan(line.get("eval/success/low")),
            high=_or_nan(line.get("eval/success/high")),
            confidence=self.confidence,
            num_prompts=prompts,
            num_samples=prompts * samples,
            bound=1.0,
        )

    def scored_steps(self, scope: str) -> list[int]:
        """Steps whose cross scores are on disk."""
        return self.run.score_steps(f"{self.part}.{scope}")

    def scores(self, scope: str, step: int) -> CrossScores:
        """Return the cross scores of a scope at a step."""
        return CrossScores.load(self.run.scores_path(step, f"{self.part}.{scope}"))

    def estimates(self, scope: str, step: int) -> dict[str, Estimate]:
        """Compute every estimate of a scope at a step anew from its scores."""
        if (scope, step) not in self._estimates:
            seed = int(self.setting("seed") or 0)
            valid_rate = _finite(self.line_at(step).get(f"{self.part}/{scope}/valid_share"))
            found = input_dependence(
                self.scores(scope, step), confidence=self.confidence, seed=seed, valid_rate=valid_rate or 1.0
            )
            self._estimates[scope, step] = self._as_logged(found, scope, step)
        return self._estimates[scope, step]

    def _as_logged(self, found: dict[str, Estimate], scope: str, step: int) -> dict[str, Estimate]:
        """Take what depends on earlier steps, the smoothed spread, from the metric line: one matrix cannot give it."""
        found = {name: estimate for name, estimate in found.items() if name != "marginal_spread_ema"}
        line, key = self.line_at(step), f"{self.part}/{scope}/mi_zscore_ema"
        smoothed = found["mi_zscore_ema"]
        if smoothed.usable and _finite(line.get(key)) is not None:
            low, high = (_or_nan(line.get(f"{key}/{end}")) for end in ("low", "high"))
            found["mi_zscore_ema"] = replace(smoothed, value=line[key], low=low, high=high)
        elif smoothed.usable:
            reason = "it needs the spread of earlier steps, and no metric line has it"
            found["mi_zscore_ema"] = skipped("mi_zscore_ema", smoothed.unit, reason)
        return found

    def coverage(self, scope: str, step: int) -> Coverage:
        """Return what stands beside the values of a scope at a step."""
        line = self.line_at(step)
        prefix = f"{self.part}/{scope}"
        counts = {name: _finite(line.get(f"{prefix}/{name}")) for name in ("num_rows", "num_turns")}
        valid_format = "eval/valid_format_share" if self.part == "eval" else "valid_format_share"
        return Coverage(
            valid_format=_finite(line.get(valid_format)),
            truncated_share=_finite(line.get(f"{prefix}/truncated_share")),
            mean_tokens=_finite(line.get(f"{prefix}/mean_tokens")),
            **{name: None if count is None else int(count) for name, count in counts.items()},
        )

    @cached_property
    def findings(self) -> list[SeenFinding]:
        """Every finding of the monitor once, worst first."""
        seen: dict[str, list[dict[str, Any]]] = {}
        for row in self.run.read_findings().rows:
            seen.setdefault(str(row.get("id")), []).append(row)
        merged = [_merge(rows) for rows in seen.values()]
        return sorted(merged, key=lambda found: (-SEVERITIES.index(found.severity), found.first_step))

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Seconds of each part of the steps, all steps together."""
        spent: dict[str, float] = {}
        for row in self.run.read_timings().rows:
            for part, seconds in row.items():
                if part != "step" and _finite(seconds) is not None:
                    spent[part] = spent.get(part, 0.0) + seconds
        return spent

    @property
    def total_seconds(self) -> float:
        """Seconds of all steps together."""
        return math.fsum(self.seconds.values())

    @property
    def monitor_share(self) -> float | None:
        """Share of the monitor in the seconds of the steps; None without timings."""
        return self.seconds.get("monitor", 0.0) / self.total_seconds if self.total_seconds > 0 else None

    def group_choice(self, step: int) -> GroupChoice:
        """Apply the run's own rule again to the recorded outcome rewards of a training step."""
        episodes = Rollouts.from_parquet(self.run.rollouts_path(step)).episodes
        rewards, groups = zip(*((episode.outcome_reward, episode.group_id) for episode in episodes), strict=True)
        chosen = select_groups(rewards, groups, **select_options(self.setting("select") or {}))
        kept = set(chosen.groups)
        trains_all = self.setting("select", "strategy") == "none"
        variance = select_groups(rewards, groups, top_p=1.0, include_zero=True).scores
        return GroupChoice(
            step,
            [float(value) for value in variance],
            [trains_all or group in kept for group in chosen.index.ids],
            is_control=self.setting("select", "control") not in (None, "none"),
        )


def posterior(scores: CrossScores) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return how likely each context is given each reasoning (all alike before), (M, N), and the own columns."""
    merged = scores.merged()
    logprob_MN = np.where(merged.available, merged.logprob_MN, -np.inf)
    share_MN = np.exp(logprob_MN - logprob_MN.max(axis=1, keepdims=True))
    return share_MN / share_MN.sum(axis=1, keepdims=True), merged.own_M


def mean_of(estimates: Iterable[Estimate]) -> float | None:
    """Return the mean value of the usable estimates; None when one of them is not usable."""
    values = [estimate.value if estimate.usable else math.nan for estimate in estimates]
    return _finite(math.fsum(values) / len(values)) if values else None


def _merge(rows: list[dict[str, Any]]) -> SeenFinding:
    last = rows[-1]
    severity = last.get("severity")
    return SeenFinding(
        id=str(last.get("id")),
        severity=severity if severity in SEVERITIES else "warning",
        advice=str(last.get("advice") or ""),
        since=last.get("since"),
        said=tuple((row["step"], str(row.get("evidence") or "")) for row in rows),
    )


def _finite(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if is_number else None


def _or_nan(value: Any) -> float:
    return math.nan if _finite(value) is None else float(value)
