"""May a number be read as a property of the policy? Only when the scorer is shown to be the sampler."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tether.diagnostics.self_check import SelfCheck, sampler_mismatch
from tether.results import Estimate, Status, skipped
from tether.scoring.cross_scores import CrossScores

_OTHER_MODEL = {
    "fixed": "scored by a fixed model, not by the sampler",
    "critic": "scored by a critic, not by the sampler",
}


@dataclass(frozen=True, slots=True)
class Grade:
    """Status and reason of every estimate of one matrix, with the checks that they rest on.

    ``status`` is "ok" when the policy scored, its own scores equal the stored log-probabilities (``mismatch`` within
    ``mismatch_limit``, nats/token) and the self-check passed; else "critic_bound".
    """

    status: Status
    reason: str
    kind: str
    check: SelfCheck
    alpha: float
    mismatch: float | None
    mismatch_limit: float

    def tail_check(self, **counts: Any) -> Estimate:
        """Smallest log-ratio; ``bound`` is the value at which the check fails, ``p_value`` the union bound."""
        if self.kind != "policy":
            return skipped("tail_check", "nats", f"withheld: {self.reason}", **counts)
        lowest, threshold = self.check.min_log_ratio, self.check.tail_threshold
        return Estimate(
            "tail_check",
            lowest,
            "nats",
            bound=threshold,
            p_value=math.exp(min(0.0, math.log(self.alpha) + lowest - threshold)),
            status=self.status,
            reason=self.reason,
            **counts,
        )

    def e_value(self, **counts: Any) -> Estimate:
        """Mean of exp(-log-ratio); ``bound`` is the value at which the check fails. Needs scored closing tokens."""
        if self.kind != "policy" or self.check.e_threshold is None:
            reason = "closing tokens were not scored" if self.kind == "policy" else f"withheld: {self.reason}"
            return skipped("e_value", "ratio", reason, **counts)
        return Estimate(
            "e_value",
            self.check.e_value,
            "ratio",
            bound=self.check.e_threshold,
            status=self.status,
            reason=self.reason,
            **counts,
        )

    def sampler_mismatch(self, **counts: Any) -> Estimate:
        """Difference of own and stored scores; ``bound`` is the limit at which they stop to count as equal."""
        if self.mismatch is None:
            reason = "stored log-probabilities are missing" if self.kind == "policy" else f"withheld: {self.reason}"
            return skipped("sampler_mismatch", "nats/token", reason, **counts)
        agree = self.mismatch <= self.mismatch_limit
        return Estimate(
            "sampler_mismatch",
            self.mismatch,
            "nats/token",
            bound=self.mismatch_limit,
            status="ok" if agree else "critic_bound",
            reason="" if agree else self.reason,
            **counts,
        )


def grade_scorer(scores: CrossScores, check: SelfCheck, *, alpha: float, mismatch_limit: float) -> Grade:
    """Decide whether the scorer counts as the sampler, and collect every reason why not."""
    mismatch = sampler_mismatch(scores) if scores.kind == "policy" else None
    reasons = [_OTHER_MODEL[scores.kind]] if scores.kind != "policy" else []
    if scores.kind == "policy":
        if mismatch is None:
            reasons.append("stored log-probabilities are missing, so it is not shown that the scorer is the sampler")
        elif mismatch > mismatch_limit:
            reasons.append(
                f"own scores differ from the stored log-probabilities by {mismatch:.3g} nats per token on average "
                f"(limit {mismatch_limit:g})"
            )
        if check.tail_failed:
            reasons.append(
                f"self-check failed: a log-ratio of {check.min_log_ratio:.3g} is not above {check.tail_threshold:.3g}"
            )
        if check.e_failed:
            reasons.append(f"self-check failed: e-value {check.e_value:.3g}, limit {check.e_threshold:.3g}")
    status: Status = "critic_bound" if reasons else "ok"
    return Grade(status, "; ".join(reasons), scores.kind, check, alpha, mismatch, mismatch_limit)
