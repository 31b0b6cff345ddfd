"""Golden adapters for how much reasoning depends on its input: matrices, channels, self-checks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from golden_adapters.registry import Case, Result, topic
from tether.diagnostics import (
    bootstrap_error,
    left_out_log_ratios,
    levels,
    log_ratios,
    prompt_means,
    proxies,
    relabeling_null,
    retrieval_credits,
    self_check,
    smoothed_spread,
    tail_rates,
    z_score,
)
from tether.scoring import CrossScores

Floats = NDArray[np.float64]


def matrix(case: Case) -> CrossScores:
    """The scores of a case: null is an excluded pair, strings are infinities, merging is a matter of labels."""
    inputs, options = case["inputs"], case["options"]
    logprob_MN = np.array([[np.nan if x is None else float(x) for x in row] for row in inputs["logprob_MN"]])
    return CrossScores(
        logprob_MN,
        inputs["own_M"],
        inputs.get("num_tokens_M", np.ones(len(logprob_MN))),
        contexts_N=inputs.get("contexts_N") if options.get("merge_duplicate_contexts", True) else None,
        excluded_MN=[[x is None for x in row] for row in inputs["logprob_MN"]],
    )


@topic("mi_proxies")
@topic("excluded_pairs")
def mi_proxies(case: Case) -> Result:
    scores, options = matrix(case), case["options"]
    recall_k = options.get("recall_k", ())
    found: Result = dict(proxies(scores, recall_k=recall_k, z_eps=options.get("z_eps", 1e-3)))
    level = levels(scores, recall_k=recall_k)
    for name in ("retrieval_accuracy", *(f"retrieval_accuracy@{k}" for k in recall_k)):
        found[name.replace("accuracy", "chance")] = level[name].chance
    for name in ("mi_sequence", "mi_per_token"):
        found[f"{name}_bound"] = level[name].bound
    return found | {"num_contexts": scores.merged().num_contexts}


@topic("mi_ema")
def mi_ema(case: Case) -> Result:
    inputs, spread, smoothed = case["inputs"], None, []
    for sigma in inputs["sigma"]:
        spread = smoothed_spread(spread, sigma, decay=case["options"]["alpha"])
        smoothed.append(spread)
    found: Result = {"sigma_ema": smoothed}
    if "mi_per_token" in inputs:
        pairs = zip(inputs["mi_per_token"], smoothed, strict=True)
        found["mi_zscore_ema"] = [z_score(mi, spread, z_eps=inputs["z_eps"]) for mi, spread in pairs]
    return found


@topic("mi_uncertainty")
def mi_uncertainty(case: Case) -> Result:
    scores = matrix(case).merged()
    null = relabeling_null(scores, case["options"]["statistic"])
    mean_P = prompt_means(log_ratios(scores), scores.prompt_index[scores.own_M])
    return {
        "observed": null.observed,
        "null_mean": null.value_R.mean(),
        "null_max": null.value_R.max(),
        "p_value": null.p_value,
        "prompt_means": mean_P.tolist(),
        "boot_mean": mean_P.mean(),
        "boot_se": bootstrap_error(mean_P),
    }


@topic("self_check")
def check(case: Case) -> Result:
    return _checked_ratios(case) if case["options"]["kind"] == "ratios" else _stopping_times(case)


def _checked_ratios(case: Case) -> Result:
    ratios, options = case["inputs"]["log_ratios"], case["options"]
    found = self_check(ratios, closing_scored=options["closing_token_scored"], alpha=options["alpha"])
    rates, bounds = tail_rates(ratios, options["c"])
    return {
        "tail_rate": rates.tolist(),
        "tail_bound": bounds.tolist(),
        "min_log_ratio": found.min_log_ratio,
        "union_threshold": found.tail_threshold,
        "e_value": found.e_value,
        "mean_log_ratio": found.mean_log_ratio,
        "tail_flag": found.tail_failed,
        "e_flag": found.e_failed,
        "valid": found.passed,
    }


def _stopping_times(case: Case) -> Result:
    """Every context emits one symbol again and again and stops with its own hazard: all lengths that matter."""
    hazard_N = np.array(case["inputs"]["hazards"], dtype=float)
    cut = case["options"]["c"]
    length_S, num_contexts = np.arange(8000), len(hazard_N)
    logprob_SN = length_S[:, None] * np.log1p(-hazard_N)
    scores = CrossScores(
        np.tile(logprob_SN, (num_contexts, 1)),
        own_M=np.repeat(np.arange(num_contexts), len(length_S)),
        num_tokens_M=np.tile(length_S + 1, num_contexts),
        closing_MN=np.tile(np.log(hazard_N), (num_contexts * len(length_S), 1)),
    )
    log_mass_NS = (logprob_SN + np.log(hazard_N)).T
    mass_NS = np.exp(log_mass_NS)
    found: Result = {"tail_bound": np.exp(-cut)}
    for closing, tag in ((False, "without_closing"), (True, "with_closing")):
        ratio_NS = log_ratios(scores, closing=closing).reshape(mass_NS.shape)
        found[f"mean_{tag}"] = (mass_NS * ratio_NS).sum(axis=1).tolist()
        found[f"tail_{tag}"] = (mass_NS * (ratio_NS <= -cut)).sum(axis=1).tolist()
        found[f"e_value_{tag}"] = np.exp(log_mass_NS - ratio_NS).sum(axis=1).mean()
    return found


@topic("discrete_channel")
def discrete_channel(case: Case) -> Result:
    inputs, kind = case["inputs"], case["options"]["kind"]
    channel_XZ = np.array(inputs["W"], dtype=float) if kind == "matrix" else symmetric(inputs["K"], inputs["eps"])
    if kind != "symmetric_subset":
        return _whole_channel(channel_XZ)
    drawn_XZ = channel_XZ[: inputs["P"]]  # by symmetry every draw of distinct contexts has this expectation
    mass, scores = first_context_traces([drawn_XZ])
    return {
        "expected_mi_sequence": mass @ log_ratios(scores),
        "cap": levels(scores)["mi_sequence"].bound,
        "true_mi": _whole_channel(channel_XZ)["mi"],
    }


def _whole_channel(channel_XZ: Floats) -> Result:
    """Every trace under every context, weighted by how often it occurs: row means become exact expectations."""
    context, symbol = np.nonzero(channel_XZ)
    mass = channel_XZ[context, symbol] / len(channel_XZ)
    scores = CrossScores(_log(channel_XZ[:, symbol].T), context, np.ones(len(context)))
    ratio, matched = log_ratios(scores), np.log(channel_XZ[context, symbol])
    level = levels(scores)
    return {
        "mi": mass @ ratio,
        "h_z": -mass @ (matched - ratio),
        "h_z_given_x": -mass @ matched,
        "bayes_retrieval": mass @ retrieval_credits(scores),
        "chance": level["retrieval_accuracy"].chance,
        "cap": level["mi_sequence"].bound,
    }


@topic("sandwich")
def sandwich(case: Case) -> Result:
    inputs, kind = case["inputs"], case["options"]["kind"]
    if kind == "matrix":
        scores = matrix(case)
        value = proxies(scores)
        return {
            "lower": value["mi_sequence"],
            "upper": value["mi_upper"],
            "per_trace_lower": log_ratios(scores).tolist(),
            "per_trace_upper": left_out_log_ratios(scores).tolist(),
        }
    if kind == "channel_iid_enumeration":
        channel_XZ = np.array(inputs["W"], dtype=float)
        draws = [channel_XZ[list(draw)] for draw in itertools.product(range(len(channel_XZ)), repeat=inputs["P"])]
        mass, scores = first_context_traces(draws)
        mass = mass / len(draws)
        cut = 1.0
    else:
        channel_XZ, cut = symmetric(inputs["K"], inputs["eps"]), inputs["c"]
        mass, scores = _symmetric_draws(inputs["K"], inputs["eps"], inputs["P"])
    ratio = log_ratios(scores)
    return {
        "lower": mass @ ratio,
        "upper": mass @ left_out_log_ratios(scores),
        "true_mi": _whole_channel(channel_XZ)["mi"],
        "cap": levels(scores)["mi_sequence"].bound,
        "tail_rate": mass @ (ratio <= -cut),
        "tail_bound": np.exp(-cut),
    }


def first_context_traces(draws: Sequence[Floats]) -> tuple[Floats, CrossScores]:
    """Every symbol that the first context of each draw can emit, with its probability, scored under that draw."""
    pairs = [(draw_XZ[0, z], draw_XZ[:, z]) for draw_XZ in draws for z in np.flatnonzero(draw_XZ[0])]
    scores_MN = _log(np.array([column for _, column in pairs]))
    return np.array([mass for mass, _ in pairs]), CrossScores(scores_MN, [0] * len(pairs), [1] * len(pairs))


def _symmetric_draws(num_symbols: int, eps: float, num_contexts: int) -> tuple[Floats, CrossScores]:
    """All i.i.d. draws of contexts up to symmetry: how many of the others name the symbol that was emitted."""
    hit, miss = eps / num_symbols + 1 - eps, eps / num_symbols
    masses, rows = [], []
    for named in range(num_contexts):
        chance = binom.pmf(named, num_contexts - 1, 1 / num_symbols)
        others = [hit] * named + [miss] * (num_contexts - 1 - named)
        for own, mass in ((hit, hit), (miss, (num_symbols - 1) * miss)):
            if chance * mass > 0:
                masses.append(chance * mass)
                rows.append([own, *others])
    return np.array(masses), CrossScores(_log(np.array(rows)), [0] * len(rows), [1] * len(rows))


def symmetric(num_symbols: int, eps: float) -> Floats:
    """eps / K everywhere plus 1 - eps on the diagonal."""
    return np.full((num_symbols, num_symbols), eps / num_symbols) + (1 - eps) * np.eye(num_symbols)


def _log(probability: Any) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(probability)
