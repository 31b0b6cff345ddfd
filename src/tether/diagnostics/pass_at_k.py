"""How often at least one of k tries succeeds."""

# _B episodes | _P prompts

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from tether.diagnostics.rates import wilson_interval
from tether.errors import InputError
from tether.objectives import index_groups
from tether.results import Estimate


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Unbiased probability that one of ``k`` tries succeeds, from more tries: ``1 - C(n - c, k) / C(n, k)``.

    The share of all choices of ``k`` of the ``n`` tries that hold a success (arXiv 2107.03374, section 2.1).
    ``1 - (1 - c / n)^k`` would be biased downwards, and "any of the n succeeded" is k = n.

    >>> pass_at_k(4, 1, 2), pass_at_k(16, 3, 1)
    (0.5, 0.1875)

    Raises:
        InputError: If more than all tries are correct, or k is not between 1 and ``num_samples``: no unbiased estimate
            exists.
    """
    if not 0 <= num_correct <= num_samples:
        raise InputError(f"num_correct={num_correct} of num_samples={num_samples}; expected 0 to all of them")
    if not 1 <= k <= num_samples:
        raise InputError(
            f"k={k} with num_samples={num_samples}; expected 1 to num_samples: fewer tries than k have no unbiased "
            "estimate, sample more."
        )
    # A quotient of two integers is rounded once, however large they are.
    ways = math.comb(num_samples, k)
    return (ways - math.comb(num_samples - num_correct, k)) / ways


def pass_at_k_over_prompts(
    hits: Sequence[bool], prompts: Sequence[Hashable], *, k: int, confidence: float = 0.95
) -> Estimate:
    """Return pass@k averaged over prompts, with the interval of :func:`tether.diagnostics.share_over_prompts`.

    For k = 1 it is the success rate; what larger k add is what sampling, not capability, is missing.

    >>> found = pass_at_k_over_prompts([True, False, True, True], ["a", "a", "b", "b"], k=2)
    >>> found.name, found.value
    ('pass@2', 1.0)

    Args:
        hits: One outcome an episode.
        prompts: The prompt (initial state) of each episode; every one with at least ``k`` episodes.
        k: Number of tries.
        confidence: Of the interval.

    Raises:
        InputError: If there are no episodes, not one prompt an episode, or a prompt has fewer than ``k``.
    """
    if not len(hits) or len(hits) != len(prompts):
        raise InputError(
            f"{len(hits)} outcomes for {len(prompts)} prompts; at least one, and one prompt each, expected"
        )
    groups = index_groups(list(prompts))
    correct_P = np.bincount(groups.number_B, weights=np.asarray(hits, bool)).astype(int)
    few = np.flatnonzero(groups.size_P < k)
    if few.size:
        raise InputError(
            f"k={k}, but {few.size} of {len(groups.ids)} prompts have fewer episodes ({groups.names(few)}); expected "
            "at least k episodes a prompt: sample more, or lower k."
        )
    value_P = np.array([pass_at_k(int(n), int(c), k) for n, c in zip(groups.size_P, correct_P, strict=True)])
    low, high = wilson_interval(value_P, confidence)
    return Estimate(
        f"pass@{k}",
        float(value_P.mean()),
        "fraction",
        low=low,
        high=high,
        confidence=confidence,
        num_prompts=value_P.size,
        num_samples=len(hits),
        reason="one prompt: no interval" if value_P.size < 2 else "",
    )
