"""How much does the reasoning depend on its input? Every proxy with interval, bound, chance, null, grade and reason."""

# _M reasonings | _N distinct contexts | _P prompts | _R relabelings | _L prompt left out: P of them, then "none"

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.diagnostics.grading import Grade, grade_scorer
from tether.diagnostics.mixtures import Rows, log_ratios, measure_rows, require_finite
from tether.diagnostics.proxies import (
    RECALL_K,
    Level,
    label_values,
    levels_of,
    replicates,
    retrieval_name,
    row_values,
    smoothed_spread,
    z_score,
)
from tether.diagnostics.self_check import ALPHA, MISMATCH_LIMIT, self_check
from tether.diagnostics.uncertainty import (
    MIN_PROMPTS,
    Null,
    bootstrap_error,
    jackknife_interval,
    permutation_null,
    prompt_means,
    relabelings,
)
from tether.errors import InputError, NonFiniteError, did_you_mean
from tether.results import Estimate, skipped, void
from tether.scoring.cross_scores import CrossScores

Floats = NDArray[np.float64]

SATURATED_SHARE = 0.95
"""From this share of its bound on, a value is called saturated: more contexts would show more."""


class _Kind(NamedTuple):
    """Unit of an estimate, and whether it says anything when the scorer is not the sampler."""

    unit: str
    any_scorer: bool


ESTIMATES: Mapping[str, _Kind] = {
    "mi_sequence": _Kind("nats", True),
    "mi_per_token": _Kind("nats/token", True),
    "mi_per_token_code": _Kind("nats/token", True),
    "mi_upper": _Kind("nats", False),
    "mi_zscore": _Kind("ratio", True),
    "mi_zscore_code": _Kind("ratio", True),
    "mi_zscore_ema": _Kind("ratio", True),
    **{retrieval_name(k): _Kind("fraction", True) for k in (1, *RECALL_K)},
    "conditional_entropy": _Kind("nats/token", False),
    "marginal_entropy": _Kind("nats/token", False),
    "marginal_spread": _Kind("nats/token", True),
    "marginal_spread_ema": _Kind("nats/token", True),
    "tail_check": _Kind("nats", True),
    "e_value": _Kind("ratio", True),
    "sampler_mismatch": _Kind("nats/token", True),
}
"""Everything that :func:`input_dependence` returns, in order."""


def input_dependence(
    scores: CrossScores,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    ema_sigma: float | Mapping[str, float] | None = None,
    valid_rate: float = 1.0,
    alpha: float = ALPHA,
    mismatch_limit: float = MISMATCH_LIMIT,
) -> dict[str, Estimate]:
    """Estimate how much the reasonings depend on their contexts.

    Read ``mi_sequence`` first: a lower bound on the mutual information in nats, between chance (0) and ``bound``
    (mean log of the number of contexts). Near its bound it is saturated, which ``reason`` says: more contexts would
    show more. ``retrieval_accuracy`` says it as a share of rows. :func:`proxies` has all definitions. Besides these:

    - ``mi_zscore_ema``: MI per token over the smoothed spread. ``marginal_spread_ema`` is that spread, to be passed as
      ``ema_sigma`` at the next step when its status is the same.
    - ``tail_check``: smallest log-ratio, closing tokens included; its ``bound`` is the value at which the check fails,
      -log(n / alpha), its ``p_value`` the union bound.
    - ``e_value``: mean of exp(-log-ratio), at most 1 / alpha when scorer and sampler agree; needs ``closing_MN``.
    - ``sampler_mismatch``: mean absolute difference per token of own and stored score; its ``bound`` is the limit.

    Grades: *ok* when the scorer is the policy, its own scores equal the stored log-probabilities and the self-check
    passes. Otherwise *critic_bound*: for any scorer the MI with the own context in the mixture is a lower bound, and
    retrieval and null stay valid (a z-score is that bound in units of the scorer's own spread); entropies and the
    upper side are skipped, and for another model than the policy the checks too. *void* when a score is not a number.
    *skipped* when there is nothing to compare: no rows, or one context (the values are then those of ignorance).

    Intervals are NaN, with the reason, for fewer than 3 prompts.

    Args:
        scores: The matrix; duplicate contexts are merged first.
        confidence: Of the intervals.
        seed: Of the relabelings, used above 7 prompts.
        ema_sigma: Smoothed spread of the previous step, or one by status, of which that of the present grade counts (an
            *ok* and a *critic_bound* spread are never averaged together); None, or no such status, starts the average.
        valid_rate: Share of sampled reasonings that were scored, when only well-formed ones were.
        alpha: Level of the self-check.
        mismatch_limit: Largest ``sampler_mismatch`` at which scorer and sampler count as one.

    >>> scores = CrossScores([[-1.0, -9.0], [-9.0, -1.0]], own_M=[0, 1], num_tokens_M=[4, 4])
    >>> found = input_dependence(scores)
    >>> found["mi_sequence"].status, round(found["mi_sequence"].value, 3), round(found["mi_sequence"].bound, 3)
    ('critic_bound', 0.693, 0.693)
    """
    merged = scores.merged()
    counts: dict[str, Any] = {
        "num_prompts": len(set(merged.prompt_index.tolist())),
        "num_samples": merged.num_rows,
        "num_contexts": merged.num_contexts,
    }
    if not merged.num_rows:
        return {name: skipped(name, kind.unit, "no reasoning was scored", **counts) for name, kind in ESTIMATES.items()}
    try:
        require_finite(merged)
        check = self_check(
            log_ratios(merged, closing=True),
            closing_scored=merged.closing_MN is not None,
            alpha=alpha,
            valid_rate=valid_rate,
        )
    except NonFiniteError as error:
        return {name: void(name, kind.unit, str(error), **counts) for name, kind in ESTIMATES.items()}
    grade = grade_scorer(merged, check, alpha=alpha, mismatch_limit=mismatch_limit)
    found = {
        "tail_check": grade.tail_check(**counts),
        "e_value": grade.e_value(**counts),
        "sampler_mismatch": grade.sampler_mismatch(**counts),
    }
    found |= _proxy_estimates(merged, grade, confidence, seed, ema_sigma, counts)
    if merged.num_contexts == 1:
        nothing: dict[str, Any] = {
            "status": "skipped",
            "reason": "one distinct context: nothing to compare with; score several",
        }
        found |= {name: replace(found[name], **nothing) for name in found if name != "sampler_mismatch"}
    return {name: found[name] for name in ESTIMATES}


def relabeling_null(scores: CrossScores, name: str = "mi_sequence", *, seed: int = 0) -> Null:
    """Distribution of one proxy when every prompt's reasonings are given to another prompt, same mixture.

    ``name`` is ``mi_sequence``, ``mi_per_token``, ``mi_per_token_code`` or a retrieval accuracy.

    >>> null = relabeling_null(CrossScores([[-1.0, -3.0], [-4.0, -2.0]], own_M=[0, 1], num_tokens_M=[1, 1]))
    >>> len(null.value_R), null.p_value
    (2, 0.5)
    """
    merged = scores.merged()
    rows = measure_rows(merged)
    label_MN = label_values(merged, rows)
    if name not in label_MN:
        raise InputError(f"no null for {name!r}, expected one of {', '.join(label_MN)}{did_you_mean(name, label_MN)}")
    return _null(merged, label_MN[name], relabelings(rows.num_prompts, seed))


def _null(scores: CrossScores, label_MN: Floats, relabeling_RP: NDArray[np.int64]) -> Null:
    return permutation_null(label_MN, scores.available, scores.own_M, scores.prompt_index, relabeling_RP)


def _proxy_estimates(
    scores: CrossScores,
    grade: Grade,
    confidence: float,
    seed: int,
    ema_sigma: float | Mapping[str, float] | None,
    counts: dict[str, Any],
) -> dict[str, Estimate]:
    rows = measure_rows(scores)
    value_L = replicates(rows)
    spread = float(value_L["marginal_spread"][-1])
    previous = ema_sigma.get(grade.status) if isinstance(ema_sigma, Mapping) else ema_sigma
    smoothed = smoothed_spread(previous, spread)
    value_L["mi_zscore_ema"] = z_score(value_L["mi_per_token"], smoothed)
    level, boot_se, p_value = levels_of(rows), _bootstrap_errors(rows), _p_values(scores, rows, seed)
    for scaled, plain, divisor in (
        ("mi_zscore", "mi_per_token", spread),
        ("mi_zscore_code", "mi_per_token_code", float(value_L["marginal_spread_code"][-1])),
        ("mi_zscore_ema", "mi_per_token", smoothed),
    ):  # neither relabeling nor the bootstrap changes the mixture, so the spread stays
        level[scaled], p_value[scaled] = Level(0.0, None), p_value[plain]
        boot_se[scaled] = z_score(boot_se[plain], divisor)
    found = {}
    for name in value_L.keys() & ESTIMATES.keys():
        low, high = jackknife_interval(float(value_L[name][-1]), value_L[name][:-1], confidence=confidence)
        plain_estimate = Estimate(
            name,
            float(value_L[name][-1]),
            ESTIMATES[name].unit,
            low=low,
            high=high,
            confidence=confidence,
            boot_se=boot_se.get(name),
            chance=level[name].chance if name in level else None,
            bound=level[name].bound if name in level else None,
            p_value=p_value.get(name),
            **counts,
        )
        found[name] = _graded(plain_estimate, grade)
    found["marginal_spread_ema"] = replace(
        found["marginal_spread"], name="marginal_spread_ema", value=smoothed, low=math.nan, high=math.nan
    )
    return found


def _graded(estimate: Estimate, grade: Grade) -> Estimate:
    """Give the estimate its status and reason, and withhold it where the scorer had to be the sampler."""
    name, unit = estimate.name, estimate.unit
    if grade.status != "ok" and not ESTIMATES[name].any_scorer:
        counts = {key: getattr(estimate, key) for key in ("num_prompts", "num_samples", "num_contexts")}
        return skipped(name, unit, f"withheld: {grade.reason}", **counts)
    remarks = [grade.reason] if grade.reason else []
    if estimate.num_contexts == 1 and math.isinf(estimate.value):
        estimate = replace(estimate, value=math.nan)
    if math.isinf(estimate.value):
        remarks.append("infinite: a reasoning is impossible under every other context")
    if name.startswith("mi_") and estimate.bound and estimate.value >= SATURATED_SHARE * estimate.bound:
        remarks.append(f"saturated: {estimate.num_contexts} contexts cannot show much more than this")
    if math.isnan(estimate.low):
        few = estimate.num_prompts < MIN_PROMPTS
        remarks.append(f"no interval: {f'fewer than {MIN_PROMPTS} prompts' if few else 'one prompt owns every row'}")
    if unit == "fraction":
        estimate = replace(estimate, low=max(estimate.low, 0.0), high=min(estimate.high, 1.0))
    return replace(estimate, status=grade.status, reason="; ".join(remarks))


def _bootstrap_errors(rows: Rows) -> dict[str, float]:
    mean_P = {name: prompt_means(value[:, -1], rows.prompt_M) for name, value in row_values(rows).items()}
    return {name: bootstrap_error(mean) for name, mean in mean_P.items() if np.isfinite(mean).all()}


def _p_values(scores: CrossScores, rows: Rows, seed: int) -> dict[str, float]:
    relabeling_RP = relabelings(rows.num_prompts, seed)
    return {name: _null(scores, label, relabeling_RP).p_value for name, label in label_values(scores, rows).items()}
