"""How likely is every reasoning under every context: the cross log-probability matrix and what fills it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.scoring.choose import choose_rows
from tether.scoring.cross_score import TokenScorer, cross_score, score_rows
from tether.scoring.cross_scores import CrossScores
from tether.scoring.plan import Coverage, ScoringPlan

if TYPE_CHECKING:
    from tether.scoring.prefix_shared import PrefixSharedScorer

__all__ = [
    "Coverage",
    "CrossScores",
    "PrefixSharedScorer",
    "ScoringPlan",
    "TokenScorer",
    "choose_rows",
    "cross_score",
    "score_rows",
]


def __getattr__(name: str) -> Any:
    """Import the scorer that needs torch when it is used."""
    if name == "PrefixSharedScorer":
        from tether.scoring.prefix_shared import PrefixSharedScorer

        return PrefixSharedScorer
    raise AttributeError(f"module 'tether.scoring' has no attribute {name!r}")
