"""Tether: is the agent's reasoning still about the problem in front of it?

The public names are resolved when they are first used, so that ``import tether`` stays light and imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Turn": "tether.records",
    "Episode": "tether.records",
    "Rollouts": "tether.records",
    "iter_episodes": "tether.records",
    "Estimate": "tether.results",
    "Finding": "tether.results",
    "Diagnosis": "tether.results",
    "CrossScores": "tether.scoring",
    "PrefixSharedScorer": "tether.scoring",
    "cross_score": "tether.scoring",
    "input_dependence": "tether.diagnostics",
    "diagnose": "tether.diagnostics",
    "select_groups": "tether.selection",
    "write_report": "tether.reports",
}
_ROOMS = (
    "agents",
    "diagnostics",
    "envs",
    "errors",
    "objectives",
    "policies",
    "reports",
    "scoring",
    "selection",
    "training",
)

__all__ = [
    "CrossScores",
    "Diagnosis",
    "Episode",
    "Estimate",
    "Finding",
    "PrefixSharedScorer",
    "Rollouts",
    "Turn",
    "__version__",
    "cross_score",
    "diagnose",
    "input_dependence",
    "iter_episodes",
    "select_groups",
    "write_report",
]

if TYPE_CHECKING:
    from tether.diagnostics import diagnose, input_dependence
    from tether.records import Episode, Rollouts, Turn, iter_episodes
    from tether.reports import write_report
    from tether.results import Diagnosis, Estimate, Finding
    from tether.scoring import CrossScores, PrefixSharedScorer, cross_score
    from tether.selection import select_groups


def __getattr__(name: str) -> Any:
    """Import a public name, or a room, at its first use."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _ROOMS:
        return import_module(f"tether.{name}")
    raise AttributeError(f"module 'tether' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_ROOMS})
