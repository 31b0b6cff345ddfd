"""The proxies of mutual information between input and reasoning: point values, without judgement.

Definitions of arXiv 2604.06268 (Eq. 1, Table 1) on a cross log-probability matrix. ``input_dependence`` adds intervals,
null, grade and reason; use these functions where only the number is wanted.
"""

# _M reasonings | _N distinct contexts | _L prompt left out: P of them, then "none"

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tether.diagnostics.mixtures import Rows, measure_rows, ranks, relative_scores, top_k_credit
from tether.errors import InputError
from tether.scoring.cross_scores import CrossScores

Floats = NDArray[np.float64]
Number = TypeVar("Number", float, Floats)

RECALL_K = (2, 4, 8)
Z_EPS = 1e-3
EMA_DECAY = 0.9


class Level(NamedTuple):
    """How to read a value: what input-free reasoning shows, and the largest value possible (row means)."""

    chance: float | None
    bound: float | None


def proxies(scores: CrossScores, *, recall_k: Sequence[int] = RECALL_K, z_eps: float = Z_EPS) -> dict[str, float]:
    """Point values of every proxy; means run over rows.

    - ``mi_sequence`` (nats): mean log-ratio of the own context to the mixture of all contexts, InfoNCE.
    - ``mi_per_token`` (nats/token): the same divided by each row's tokens (Eq. 1).
    - ``mi_per_token_code`` (nats/token): mixture of per-token scores, the released code's variant; a separation
      measure that is at least ``mi_per_token`` and is not bounded by log N / tokens.
    - ``mi_upper`` (nats): own context left out of the mixture; inf when the others cannot produce a trace.
    - ``retrieval_accuracy``, ``retrieval_accuracy@k`` (fraction): own context is the best (among the k best); ties earn
      their expected share.
    - ``conditional_entropy``, ``marginal_entropy`` (nats/token): mean negative log-probability under the own context
      and under the mixture; their difference is ``mi_per_token``.
    - ``marginal_spread``, ``marginal_spread_code`` (nats/token): population standard deviation over rows of the
      marginal log-probability per token; ``mi_zscore`` and ``mi_zscore_code`` are the MI over (spread + ``z_eps``).

    Raises:
        InputError: No rows.
        NonFiniteError: A score that takes part is not a number.

    >>> values = proxies(CrossScores([[-1.0, -3.0], [-4.0, -2.0]], own_M=[0, 1], num_tokens_M=[1, 1]))
    >>> round(values["mi_sequence"], 4), values["retrieval_accuracy"]
    (0.5662, 1.0)
    """
    return {name: float(value_L[-1]) for name, value_L in replicates(measure_rows(scores), recall_k, z_eps).items()}


def row_values(rows: Rows, recall_k: Sequence[int] = RECALL_K) -> dict[str, Floats]:
    """Return the value that each reasoning adds to the proxies that are means over rows, by prompt left out."""
    tokens_M1, matched_ML = rows.num_tokens_M[:, None], np.broadcast_to(rows.matched_M[:, None], rows.ratio_ML.shape)
    found = {
        "mi_sequence": rows.ratio_ML,
        "mi_per_token": rows.ratio_ML / tokens_M1,
        "mi_per_token_code": rows.code_ratio_ML,
        "mi_upper": rows.left_out_ML,
        "conditional_entropy": -matched_ML,
        "marginal_entropy": rows.ratio_ML / tokens_M1 - matched_ML,
    }
    for k in (1, *recall_k):
        found[retrieval_name(k)] = top_k_credit(rows.above_ML, rows.tied_ML, k)
    return found


def replicates(rows: Rows, recall_k: Sequence[int] = RECALL_K, z_eps: float = Z_EPS) -> dict[str, Floats]:
    """Return each proxy without the rows and contexts of one prompt, for every prompt; the last entry leaves none out.

    Raises:
        InputError: No rows.
    """
    if not len(rows.matched_M):
        raise InputError("cross scores without rows: expected at least one scored reasoning. Score some first.")
    value_ML = row_values(rows, recall_k)
    found = {name: rows.mean(value) for name, value in value_ML.items()}
    found["marginal_spread"] = _spread(rows, value_ML["marginal_entropy"])
    found["marginal_spread_code"] = _spread(rows, rows.code_ratio_ML - rows.matched_M[:, None])
    found["mi_zscore"] = found["mi_per_token"] / (found["marginal_spread"] + z_eps)
    found["mi_zscore_code"] = found["mi_per_token_code"] / (found["marginal_spread_code"] + z_eps)
    return found


def label_values(scores: CrossScores, rows: Rows) -> dict[str, Floats]:
    """Return what each row would add to a proxy if context n had produced it, against the same mixture.

    The own column holds the observed value. ``scores`` are merged and ``rows`` measured from them.
    """
    relative_MN, _ = relative_scores(scores)
    sequence_MN = relative_MN + rows.ratio_ML[:, -1:]
    found = {
        "mi_sequence": sequence_MN,
        "mi_per_token": sequence_MN / scores.num_tokens_M[:, None],
        "mi_per_token_code": relative_MN / scores.num_tokens_M[:, None] + rows.code_ratio_ML[:, -1:],
    }
    above_MN, tied_MN = ranks(relative_MN, scores.available)
    for k in (1, *RECALL_K):
        found[retrieval_name(k)] = top_k_credit(above_MN, tied_MN, k)
    return found


def levels(scores: CrossScores, *, recall_k: Sequence[int] = RECALL_K) -> dict[str, Level]:
    """Chance and bound of every proxy on this very sample.

    >>> levels(CrossScores([[-1.0, -3.0]], own_M=[0], num_tokens_M=[2]))["retrieval_accuracy"]
    Level(chance=0.5, bound=1.0)
    """
    return levels_of(measure_rows(scores), recall_k)


def levels_of(rows: Rows, recall_k: Sequence[int] = RECALL_K) -> dict[str, Level]:
    """:func:`levels` for rows that are measured already."""
    candidates_M, bound_M = rows.candidates_ML[:, -1], rows.bound_ML[:, -1]
    sequence_bound = float(bound_M.mean())
    found = {
        "mi_sequence": Level(0.0, sequence_bound),
        "mi_per_token": Level(0.0, float((bound_M / rows.num_tokens_M).mean())),
        "mi_per_token_code": Level(0.0, sequence_bound),
        "mi_upper": Level(0.0, None),
        "mi_zscore": Level(0.0, None),
        "mi_zscore_code": Level(0.0, None),
    }
    for k in (1, *recall_k):
        found[retrieval_name(k)] = Level(float(np.minimum(1.0, k / candidates_M).mean()), 1.0)
    return found


def retrieval_name(k: int) -> str:
    """``retrieval_accuracy`` for k = 1, else ``retrieval_accuracy@k``."""
    return "retrieval_accuracy" if k == 1 else f"retrieval_accuracy@{k}"


def z_score(mi: Number, spread: float, *, z_eps: float = Z_EPS) -> Number:
    """MI over the spread of the marginal log-probabilities (Table 1); not a statistical z-score: no standard error."""
    return mi / (spread + z_eps)


def smoothed_spread(previous: float | None, spread: float, *, decay: float = EMA_DECAY) -> float:
    """One step of the exponential moving average of the spread; the first value starts it (Table 1).

    >>> smoothed_spread(None, 0.1), round(smoothed_spread(0.1, 0.5), 3)
    (0.1, 0.14)
    """
    return spread if previous is None else decay * previous + (1 - decay) * spread


def _spread(rows: Rows, value_ML: Floats) -> Floats:
    return np.sqrt(rows.mean((value_ML - rows.mean(value_ML)) ** 2))
