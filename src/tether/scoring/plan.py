"""What a scoring will compute: its contexts and reasonings, what they leave out, and what they cost.

Shapes: ``_M`` reasonings (rows), ``_N`` distinct contexts (columns).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ScoringRow:
    """One reasoning to score: where it stands in the records, the column of its own context, and its ids.

    ``behaviour_logprob`` is the sum that sampling stored for the reasoning at temperature 1, NaN where it is unknown.
    """

    episode_id: str
    turn: int
    own: int
    reasoning_ids: tuple[int, ...]
    closing_id: int | None
    behaviour_logprob: float

    @property
    def scored_ids(self) -> tuple[int, ...]:
        """The reasoning and, where it was sampled, the closing token."""
        return self.reasoning_ids if self.closing_id is None else (*self.reasoning_ids, self.closing_id)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a choice of rows leaves out, in counts of turns of the kind that was asked for.

    ``num_valid`` turns have ids and a closed, non-empty reasoning (``num_tokens`` reasoning tokens together); where
    they are few, they are a selected sample. ``num_ended`` turns say how they ended, ``num_truncated`` of them at the
    length limit. ``num_rows`` valid turns were chosen.
    """

    num_episodes: int = 0
    num_turns: int = 0
    num_with_ids: int = 0
    num_valid: int = 0
    num_tokens: int = 0
    num_ended: int = 0
    num_truncated: int = 0
    num_rows: int = 0

    @property
    def valid_share(self) -> float:
        """Share of the turns that can be scored; NaN without turns."""
        return _share(self.num_valid, self.num_turns)

    @property
    def scored_share(self) -> float:
        """Share of the turns that were chosen; NaN without turns."""
        return _share(self.num_rows, self.num_turns)

    @property
    def truncated_share(self) -> float:
        """Share of the turns with a known end that ended at the length limit; NaN when no end is known."""
        return _share(self.num_truncated, self.num_ended)

    @property
    def mean_tokens(self) -> float:
        """Mean length of a valid reasoning in tokens; NaN without one."""
        return _share(self.num_tokens, self.num_valid)

    def to_dict(self) -> dict[str, float]:
        """Return the figures that stand beside every estimate."""
        names = ("num_turns", "num_rows", "valid_share", "scored_share", "truncated_share", "mean_tokens")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, eq=False)
class ScoringPlan:
    """The contexts and rows of a matrix that is not scored yet.

    Attributes:
        contexts_N: Token ids of the distinct contexts, in order of first appearance.
        prompt_N: The initial state of each context's episode, as a digest of its first prompt.
        rows_M: The reasonings, in the order of the records.
        excluded_MN: True where a context holds the reasoning: a later turn of the same episode that still shows it.
        coverage: What the choice leaves out.
    """

    contexts_N: tuple[tuple[int, ...], ...]
    prompt_N: tuple[str, ...]
    rows_M: tuple[ScoringRow, ...]
    excluded_MN: NDArray[np.bool_] = field(repr=False)
    coverage: Coverage

    @property
    def token_forwards(self) -> int:
        """Token positions that exact scoring needs: each context once, each pair its reasoning and closing token."""
        pairs = sum(len(row.scored_ids) for row in self.rows_M) * len(self.contexts_N)
        return sum(len(ids) for ids in self.contexts_N) + pairs


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
