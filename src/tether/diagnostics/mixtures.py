"""Row-level quantities of a cross log-probability matrix: how much better its own context explains each reasoning.

Every row is compared with a mixture over contexts. All mixtures are taken relative to the row's own score, so that a
constant added to a row changes nothing, and are needed twice: over all contexts, and without those of one prompt
(for the jackknife). Both come from one pass: axis ``_L`` has one entry a prompt left out, and a last one with none left
out.
"""

# _M reasonings | _N distinct contexts | _P prompts | _L prompt left out: P of them, then "none"
# relative_MN   log p(z | x_n) - log p(z | own context), -inf where the pair takes no part, nats
# ratio         log-ratio of the own context's likelihood to the mixture, nats

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tether.errors import NonFiniteError
from tether.scoring.cross_scores import CrossScores

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What every statistic of :mod:`tether.diagnostics` is a mean of.

    Attributes:
        matched_M: Log-probability of the reasoning per token under its own context, nats/token.
        num_tokens_M: Tokens of the reasoning.
        prompt_M: Number of the prompt that owns the row, 0 to P - 1.
        num_prompts: P.
        keep_ML: Whether the row stays when the prompt is left out.
        ratio_ML: Log-ratio with the own context inside the mixture (Eq. 1 times the number of tokens), nats.
        code_ratio_ML: The same with per-token scores in the mixture (the released code's variant), nats/token.
        left_out_ML: Log-ratio against the mixture of the *other* contexts, nats; inf when no other context can
            produce the reasoning, or none is left.
        above_ML: How many contexts score strictly higher than the own one.
        tied_ML: How many score exactly the same, the own one included.
        candidates_ML: How many contexts take part.
        bound_ML: Largest log-ratio possible: log of the number of contexts (of the weights' sum over the own weight).
    """

    matched_M: Floats
    num_tokens_M: NDArray[np.int64]
    prompt_M: NDArray[np.int64]
    num_prompts: int
    keep_ML: NDArray[np.bool_]
    ratio_ML: Floats
    code_ratio_ML: Floats
    left_out_ML: Floats
    above_ML: Floats
    tied_ML: Floats
    candidates_ML: Floats
    bound_ML: Floats

    def mean(self, value_ML: Floats) -> Floats:
        """Mean over the rows that stay, one number a prompt left out and the last over all rows; NaN without rows."""
        num_L = self.keep_ML.sum(axis=0)
        total_L = value_ML.sum(axis=0, where=self.keep_ML)
        mean_L = np.full(len(num_L), np.nan)
        np.divide(total_L, num_L, out=mean_L, where=num_L > 0)
        return mean_L


def measure_rows(scores: CrossScores) -> Rows:
    """Compare every row with its mixtures; duplicate contexts are merged first.

    Raises:
        NonFiniteError: A score that takes part is NaN or +inf, or an own score is -inf.
    """
    scores = scores.merged()
    require_finite(scores)
    own = (np.arange(scores.num_rows), scores.own_M)
    relative_MN, log_weight_MN = relative_scores(scores)
    num_tokens_M1 = scores.num_tokens_M[:, None]
    own_column_MN = np.zeros(relative_MN.shape, dtype=np.bool_)
    own_column_MN[own] = True
    weighted_MN = relative_MN + log_weight_MN
    others_MN = np.where(own_column_MN, -np.inf, weighted_MN)
    prompt_N = scores.prompt_index
    num_prompts = int(prompt_N.max(initial=-1)) + 1
    prompt_M = prompt_N[scores.own_M]
    log_weight_ML = _log_sums(log_weight_MN, prompt_N, num_prompts)
    log_others_ML = _log_sums(np.where(own_column_MN, -np.inf, log_weight_MN), prompt_N, num_prompts)
    mixture_others_ML = _log_sums(others_MN, prompt_N, num_prompts)
    with np.errstate(invalid="ignore"):  # -inf - -inf: no other context, set below; or the own one, never kept
        left_out_ML = log_others_ML - mixture_others_ML
        ratio_ML = log_weight_ML - _log_sums(weighted_MN, prompt_N, num_prompts)
        code_ratio_ML = log_weight_ML - _log_sums(relative_MN / num_tokens_M1 + log_weight_MN, prompt_N, num_prompts)
    left_out_ML[np.isneginf(mixture_others_ML)] = np.inf
    return Rows(
        matched_M=scores.logprob_MN[own] / scores.num_tokens_M,
        num_tokens_M=scores.num_tokens_M,
        prompt_M=prompt_M,
        num_prompts=num_prompts,
        keep_ML=prompt_M[:, None] != np.arange(num_prompts + 1),
        ratio_ML=ratio_ML,
        code_ratio_ML=code_ratio_ML,
        left_out_ML=left_out_ML,
        above_ML=_counts(relative_MN > 0, prompt_N, num_prompts),
        tied_ML=_counts(relative_MN == 0, prompt_N, num_prompts),
        candidates_ML=_counts(scores.available, prompt_N, num_prompts),
        bound_ML=log_weight_ML,
    )


def log_ratios(scores: CrossScores, *, closing: bool = False) -> Floats:
    """Log-ratio of every row, own context inside the mixture, in nats: log p(z | own) - log mean_n p(z | x_n).

    At most log N. ``closing`` takes the closing token along where it was sampled, as the self-check wants it.

    >>> log_ratios(CrossScores([[0.0, -np.inf]], own_M=[0], num_tokens_M=[1])).round(4)
    array([0.6931])
    """
    if closing and scores.closing_MN is not None:
        sampled_M = ~np.isnan(scores.closing_MN[np.arange(scores.num_rows), scores.own_M])
        closing_MN = np.where(sampled_M[:, None], scores.closing_MN, 0.0)
        scores = replace(scores, logprob_MN=scores.logprob_MN + closing_MN)
    return measure_rows(scores).ratio_ML[:, -1]


def left_out_log_ratios(scores: CrossScores) -> Floats:
    """Log-ratio of every row against the mixture of the other contexts, in nats; inf when they rule the row out."""
    return measure_rows(scores).left_out_ML[:, -1]


def retrieval_credits(scores: CrossScores, *, k: int = 1) -> Floats:
    """Probability of every row that its own context is among the k best, ties broken at random."""
    rows = measure_rows(scores)
    return top_k_credit(rows.above_ML[:, -1], rows.tied_ML[:, -1], k)


def top_k_credit(above: Floats, tied: Floats, k: int) -> Floats:
    """Probability that the own context is among the k best when ties are broken at random.

    >>> top_k_credit(np.array([0.0, 1.0, 0.0]), np.array([1.0, 1.0, 4.0]), k=1)
    array([1.  , 0.  , 0.25])
    """
    return np.clip((k - above) / np.maximum(tied, 1), 0.0, 1.0)


def ranks(value_MN: Floats, available_MN: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """For every pair, how many available contexts of its row score strictly higher, and how many the same."""
    above_MN, tied_MN = np.zeros(value_MN.shape), np.zeros(value_MN.shape)
    for row, (value_N, available_N) in enumerate(zip(value_MN, available_MN, strict=True)):
        sorted_N = np.sort(value_N[available_N])
        at_most_N = np.searchsorted(sorted_N, value_N, side="right")
        above_MN[row] = len(sorted_N) - at_most_N
        tied_MN[row] = at_most_N - np.searchsorted(sorted_N, value_N, side="left")
    return above_MN, tied_MN


def relative_scores(scores: CrossScores) -> tuple[Floats, Floats]:
    """Return scores relative to the row's own one, and log-weights relative to the own weight; -inf takes no part."""
    own = (np.arange(scores.num_rows), scores.own_M)
    available_MN = scores.available
    logprob_MN = np.where(available_MN, scores.logprob_MN, -np.inf)
    weight_MN = available_MN.astype(np.float64) if scores.weight_MN is None else available_MN * scores.weight_MN
    with np.errstate(divide="ignore"):
        log_weight_MN = np.log(weight_MN / weight_MN[own][:, None])
    return logprob_MN - scores.logprob_MN[own][:, None], log_weight_MN


def require_finite(scores: CrossScores) -> None:
    """Refuse scores that no statistic can be computed from, naming the first one."""
    own_MN = np.zeros(scores.logprob_MN.shape, dtype=np.bool_)
    own_MN[np.arange(scores.num_rows), scores.own_M] = True
    logprob_MN = scores.logprob_MN
    broken_MN = scores.available & (np.isnan(logprob_MN) | np.isposinf(logprob_MN) | (own_MN & np.isneginf(logprob_MN)))
    if broken_MN.any():
        row, column = np.argwhere(broken_MN)[0]
        name = f" ({scores.row_ids[row]})" if scores.row_ids is not None else ""
        raise NonFiniteError(
            f"{broken_MN.sum()} non-finite scores, the first in row {row}{name}, context {column}: "
            f"{logprob_MN[row, column]}; expected finite numbers (-inf only for another context). "
            "Look for NaN in the model's logits and for ids outside its vocabulary."
        )


def _log_sums(log_MN: Floats, prompt_N: NDArray[np.int64], num_prompts: int) -> Floats:
    """Log-sum-exp of each row without the columns of one prompt, and of the whole row (last).

    Sums from the left and from the right are joined; subtracting a part from the whole would cancel.
    """
    block_MP = _by_prompt(np.logaddexp, log_MN, prompt_N, num_prompts)
    edge_M1 = np.full((len(log_MN), 1), -np.inf)
    before = np.logaddexp.accumulate(np.concatenate([edge_M1, block_MP], axis=1), axis=1)
    after = np.logaddexp.accumulate(np.concatenate([edge_M1, block_MP[:, ::-1]], axis=1), axis=1)[:, ::-1]
    without_MP = np.logaddexp(before[:, :-1], after[:, 1:])
    return np.concatenate([without_MP, before[:, -1:]], axis=1)


def _counts(flag_MN: NDArray[np.bool_], prompt_N: NDArray[np.int64], num_prompts: int) -> Floats:
    """Count the columns of each row that are not one prompt's, and all of them (last)."""
    count_MP = _by_prompt(np.add, flag_MN.astype(np.float64), prompt_N, num_prompts)
    total_M1 = count_MP.sum(axis=1, keepdims=True)
    return np.concatenate([total_M1 - count_MP, total_M1], axis=1)


def _by_prompt(ufunc: np.ufunc, value_MN: Floats, prompt_N: NDArray[np.int64], num_prompts: int) -> Floats:
    """Reduce the columns of each prompt to one."""
    order = np.argsort(prompt_N, kind="stable")
    starts = np.searchsorted(prompt_N[order], np.arange(num_prompts))
    return np.asarray(ufunc.reduceat(value_MN[:, order], starts, axis=1))
