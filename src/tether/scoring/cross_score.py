"""From rollouts and a scorer to the cross log-probability matrix.

Shapes: ``_M`` reasonings (rows), ``_N`` distinct contexts (columns), ``_T`` tokens of one reasoning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tether.errors import InputError
from tether.records import Rollouts
from tether.scoring.choose import TurnChoice, choose_rows
from tether.scoring.cross_scores import CrossScores
from tether.scoring.plan import ScoringPlan


class TokenScorer(Protocol):
    """A model that gives log-probabilities of token ids."""

    def token_logprobs(
        self, contexts: Sequence[Sequence[int]], reasonings: Sequence[Sequence[int]]
    ) -> Sequence[NDArray[np.float64]]:
        """Return one (N, T_m) array a reasoning: the log-probabilities of its tokens under every context, in nats."""
        ...


def cross_score(
    rollouts: Rollouts,
    scorer: TokenScorer,
    *,
    turns: TurnChoice = "first",
    conditioning: str = "full",
    max_contexts: int = 64,
    max_reasonings: int = 64,
    seed: int = 0,
) -> CrossScores:
    """Score reasonings of these rollouts under contexts of these rollouts, their own among them.

    At most ``max_contexts`` distinct contexts are chosen, then at most ``max_reasonings`` reasonings that they own;
    :func:`choose_rows` says how, and what the choice leaves out. The token that closes a reasoning is scored along,
    apart from it.

    Args:
        rollouts: Records with token ids.
        scorer: For example ``PrefixSharedScorer``.
        turns: Which turns give contexts and rows: "first", "later" (all but the first), "all", or one turn, counted
            from 0.
        conditioning: What a reasoning is conditioned on; "full" is every id before it.
        max_contexts: Distinct contexts at most.
        max_reasonings: Reasonings at most.
        seed: Names the draw.

    Raises:
        InputError: if an option cannot be used, or no turn of the asked kind has ids and a closed reasoning.
    """
    if conditioning != "full":
        raise InputError(
            f"conditioning={conditioning!r}: 'full' is expected, the only one there is (every id before the "
            "reasoning); leave it out"
        )
    plan = choose_rows(rollouts, turns=turns, max_contexts=max_contexts, max_reasonings=max_reasonings, seed=seed)
    return score_rows(plan, scorer)


def score_rows(plan: ScoringPlan, scorer: TokenScorer) -> CrossScores:
    """Fill the matrix of a plan. Rows are named ``episode_id/turn``.

    Raises:
        InputError: if the scorer returns arrays of other shapes than (contexts, tokens).
    """
    reasonings = [row.scored_ids for row in plan.rows_M]
    scored = [np.asarray(token_NT, np.float64) for token_NT in scorer.token_logprobs(plan.contexts_N, reasonings)]
    wanted = [(len(plan.contexts_N), len(ids)) for ids in reasonings]
    if [token_NT.shape for token_NT in scored] != wanted:
        raise InputError(
            f"the scorer returned shapes {[token_NT.shape for token_NT in scored][:3]} ..., expected {wanted[:3]} ...: "
            "one array a reasoning, a row for each context, a column for each token; correct its token_logprobs"
        )
    closing_MN = np.full((len(plan.rows_M), len(plan.contexts_N)), np.nan)
    logprob_MN = np.empty_like(closing_MN)
    for m, (row, token_NT) in enumerate(zip(plan.rows_M, scored, strict=True)):
        logprob_MN[m] = token_NT[:, : len(row.reasoning_ids)].sum(axis=1)
        if row.closing_id is not None:
            closing_MN[m] = token_NT[:, -1]
    behaviour_M = np.array([row.behaviour_logprob for row in plan.rows_M])
    return CrossScores(
        logprob_MN=logprob_MN,
        own_M=np.array([row.own for row in plan.rows_M]),
        num_tokens_M=np.array([len(row.reasoning_ids) for row in plan.rows_M]),
        contexts_N=plan.contexts_N,
        prompt_N=plan.prompt_N,
        excluded_MN=plan.excluded_MN,
        closing_MN=closing_MN if any(row.closing_id is not None for row in plan.rows_M) else None,
        behaviour_logprob_M=None if np.isnan(behaviour_M).all() else behaviour_M,
        row_ids=tuple(f"{row.episode_id}/{row.turn}" for row in plan.rows_M),
    )
