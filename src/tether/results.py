"""What may be said about a run, and with which uncertainty.

An :class:`Estimate` is a number with its interval, bound and chance level; a :class:`Finding` is a named problem with
its evidence; a :class:`Diagnosis` holds both for one body of rollouts. Nothing here computes or draws: every surface
(terminal, JSON, HTML) prints from these objects, so none can drop a caveat.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1

Status = Literal["ok", "critic_bound", "skipped", "void"]
Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number and everything needed to read it.

    ``low`` and ``high`` bound a ``confidence`` interval (jackknife over prompts, t quantile). ``boot_se`` is a
    bootstrap over prompts with the mixture held fixed, for comparison only: it covers too little at small N. ``bound``
    is the largest value that this sample allows, ``chance`` what reasoning that ignores its input
    would show.

    ``status`` is *ok* (the scorer is the sampler, on its own ids), *critic_bound* (any other scorer: a lower bound),
    *skipped* (the source lacks what the estimate needs) or *void* (broken input). ``reason`` says why it is not *ok*.
    """

    name: str
    value: float
    unit: str
    low: float = math.nan
    high: float = math.nan
    confidence: float = 0.95
    boot_se: float | None = None
    num_prompts: int = 0
    num_samples: int = 0
    num_contexts: int = 0
    bound: float | None = None
    chance: float | None = None
    p_value: float | None = None
    status: Status = "ok"
    reason: str = ""

    @property
    def usable(self) -> bool:
        """Whether the value may be plotted or compared: neither skipped nor void."""
        return self.status in ("ok", "critic_bound")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: NaN becomes None, an infinity the string "inf" or "-inf"."""
        return {key: _json_number(value) for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Estimate:
        """Return the estimate that :meth:`to_dict` wrote."""
        always = {key: math.nan if data[key] is None else float(data[key]) for key in ("value", "low", "high")}
        maybe = ("boot_se", "bound", "chance", "p_value")
        return cls(**{**data, **always, **{key: None if data[key] is None else float(data[key]) for key in maybe}})


def skipped(name: str, unit: str, reason: str, **counts: Any) -> Estimate:
    """Return an estimate that was not computed, with the reason a user can act on."""
    return Estimate(name, math.nan, unit, status="skipped", reason=reason, **counts)


def void(name: str, unit: str, reason: str, **counts: Any) -> Estimate:
    """Return an estimate whose input is broken; it is never plotted."""
    return Estimate(name, math.nan, unit, status="void", reason=reason, **counts)


@dataclass(frozen=True, slots=True)
class Finding:
    """A named problem: how bad, since which step, on which evidence, and what to try."""

    id: str
    severity: Severity
    evidence: str
    since: int | None = None
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict on one body of rollouts.

    ``estimates`` maps a scope ("first_turn", "later_turns", "rewards" ...) to named estimates of the last step;
    ``history`` has the same shape by step; ``thresholds`` are the limits of the rules that made the findings;
    ``notes`` are facts about the source that limit what may be concluded.
    """

    findings: tuple[Finding, ...] = ()
    estimates: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    history: dict[int, dict[str, dict[str, Estimate]]] = field(default_factory=dict)
    coverage: dict[str, Any] = field(default_factory=dict)
    thresholds: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def severity(self) -> Severity | None:
        """The worst severity among the findings, None when there are none."""
        return max((f.severity for f in self.findings), key=SEVERITIES.index, default=None)

    @property
    def skipped(self) -> dict[str, str]:
        """Everything that was not computed, as ``"scope/name": reason``."""
        return {
            f"{scope}/{name}": estimate.reason
            for scope, named in self.estimates.items()
            for name, estimate in named.items()
            if not estimate.usable
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, with the schema version inside."""
        return {
            "schema_version": SCHEMA_VERSION,
            "severity": self.severity,
            "findings": [finding.to_dict() for finding in self.findings],
            "estimates": _estimates_to_dict(self.estimates),
            "history": {str(step): _estimates_to_dict(scopes) for step, scopes in self.history.items()},
            "coverage": {key: _json_number(value) for key, value in self.coverage.items()},
            "thresholds": self.thresholds,
            "notes": list(self.notes),
        }


def _estimates_to_dict(scopes: dict[str, dict[str, Estimate]]) -> dict[str, dict[str, Any]]:
    return {scope: {name: e.to_dict() for name, e in named.items()} for scope, named in scopes.items()}


def _json_number(value: Any) -> Any:
    """JSON has no NaN and no infinity: NaN becomes None, infinities become strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value
