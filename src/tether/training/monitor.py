"""The monitor: cross-scores rollouts while they are fresh, and says what it sees and what that cost.

It measures before the update, because only then are the scoring weights the sampling weights. Its budget is the number
of contexts and reasonings (token forwards), never seconds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tether.diagnostics import ESTIMATES, find_in_run, input_dependence
from tether.errors import InputError
from tether.policies import CausalPolicy
from tether.records import Episode, Rollouts
from tether.results import Estimate, Finding, skipped
from tether.runs import RunFolder
from tether.scoring import PrefixSharedScorer, choose_rows, score_rows
from tether.scoring.choose import TurnChoice
from tether.training.config import MonitorConfig

Scopes = dict[str, dict[str, Estimate]]
HEADLINE = (
    "mi_sequence",
    "mi_per_token",
    "mi_zscore_ema",
    "retrieval_accuracy",
    "conditional_entropy",
    "marginal_entropy",
)
"""Estimates that get a column in the metric lines; the score files hold everything else."""
SCOPES: dict[str, TurnChoice] = {"first_turn": "first", "later_turns": "later"}


@dataclass(slots=True)
class Measurement:
    """What one call found, and its cost in token forwards and seconds."""

    scopes: Scopes = field(default_factory=dict)
    coverage: dict[str, dict[str, float]] = field(default_factory=dict)
    token_forwards: int = 0
    seconds: float = 0.0

    def metrics(self, prefix: str) -> dict[str, float | str | None]:
        """Return flat columns: value, interval, bound and chance of the headline estimates, and the coverage."""
        line: dict[str, float | str | None] = {}
        for scope, estimates in self.scopes.items():
            for name in HEADLINE:
                estimate = estimates[name]
                column = f"{prefix}/{scope}/{name}"
                line[column] = estimate.value if estimate.usable else None
                if estimate.usable:
                    line |= {f"{column}/low": estimate.low, f"{column}/high": estimate.high}
                line[f"{column}/status"] = estimate.status
                if estimate.status != "ok":
                    line[f"{column}/reason"] = estimate.reason
            line |= {f"{prefix}/{scope}/{key}": value for key, value in self.coverage.get(scope, {}).items()}
        line[f"{prefix}/token_forwards"] = self.token_forwards
        return line


class Monitor:
    """Measures rollouts of a run and keeps what it needs to judge a later step: history and smoothed spreads."""

    def __init__(self, run: RunFolder, config: MonitorConfig, seed: int) -> None:
        self.run, self.config, self.seed = run, config, seed
        self.history: dict[int, Scopes] = {}
        self.lines: list[dict[str, Any]] = []
        self.spread_ema: dict[str, dict[str, float]] = {}  # by part, then by grade
        self.shown: set[str] = set()

    def due(self, step: int) -> bool:
        """Whether the training rollouts of this step are measured: the first, and every ``every``-th."""
        return self.config.every > 0 and (step == 1 or step % self.config.every == 0)

    def measure(self, policy: CausalPolicy, episodes: Sequence[Episode], step: int, prefix: str) -> Measurement:
        """Cross-score first and later turns of these episodes and estimate how much depends on the input."""
        started = time.perf_counter()
        rollouts = Rollouts.from_episodes(episodes)
        scorer = PrefixSharedScorer(policy)
        found = Measurement()
        for scope, turns in SCOPES.items():
            self._measure_turns(scorer, rollouts, step, f"{prefix}.{scope}", scope, turns, found)
        found.seconds = time.perf_counter() - started
        self.history.setdefault(step, {}).update({f"{prefix}/{s}": e for s, e in found.scopes.items()})
        return found

    def _measure_turns(
        self,
        scorer: PrefixSharedScorer,
        rollouts: Rollouts,
        step: int,
        part: str,
        scope: str,
        turns: TurnChoice,
        found: Measurement,
    ) -> None:
        config, on_eval = self.config, part.startswith("eval.")
        contexts, reasonings = (
            (config.eval_contexts, config.eval_reasonings) if on_eval else (config.max_contexts, config.max_reasonings)
        )
        try:
            plan = choose_rows(rollouts, turns=turns, max_contexts=contexts, max_reasonings=reasonings, seed=self.seed)
        except InputError as error:  # no turn of this kind has a closed thought: a result, with its reason
            found.scopes[scope] = {name: skipped(name, kind.unit, str(error)) for name, kind in ESTIMATES.items()}
            return
        scores = score_rows(plan, scorer)
        scores.save(self.run.scores_path(step, part))
        estimates = input_dependence(
            scores,
            confidence=self.config.confidence,
            seed=self.seed,
            ema_sigma=self.spread_ema.setdefault(part, {}),
            valid_rate=plan.coverage.valid_share,
        )
        spread = estimates["marginal_spread_ema"]
        if spread.usable:
            self.spread_ema[part][spread.status] = spread.value
        found.scopes[scope] = estimates
        found.coverage[scope] = plan.coverage.to_dict()
        found.token_forwards += plan.token_forwards

    def judge(self, line: dict[str, Any]) -> list[Finding]:
        """Return what the run so far shows at this line that it did not show at the line before."""
        self.lines.append(line)
        findings = find_in_run(self.lines, self.history)
        new = [finding for finding in findings if finding.id not in self.shown]
        self.shown = {finding.id for finding in findings}
        return new

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint has to keep, as JSON data."""
        history = {
            step: {scope: {name: e.to_dict() for name, e in named.items()} for scope, named in scopes.items()}
            for step, scopes in self.history.items()
        }
        return {
            "spread_ema": self.spread_ema,
            "shown": sorted(self.shown),
            "lines": self.lines,
            "history": history,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` saved."""
        self.spread_ema = {part: dict(spreads) for part, spreads in state["spread_ema"].items()}
        self.lines = list(state["lines"])
        self.shown = set(state["shown"])
        self.history = {
            int(step): {
                scope: {name: Estimate.from_dict(e) for name, e in named.items()} for scope, named in scopes.items()
            }
            for step, scopes in state["history"].items()
        }
