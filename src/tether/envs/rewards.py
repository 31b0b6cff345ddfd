"""Reward rules that more than one environment can use."""

from __future__ import annotations

from tether.envs.options import check_integer


def retry_reward(attempt: int, *, correct: bool) -> float:
    """Return the reward of an answer when retries are allowed: 1 for a correct first one, halved with each retry.

    Args:
        attempt: Which attempt this is, from 1.
        correct: Whether it is correct; a wrong answer pays 0.

    Source: arXiv 2604.06268, appendix B.1 (MetaMathQA).

    >>> [retry_reward(attempt, correct=True) for attempt in (1, 2, 3)]
    [1.0, 0.5, 0.25]
    """
    check_integer("attempt", attempt, low=1)
    return 0.5 ** (attempt - 1) if correct else 0.0
