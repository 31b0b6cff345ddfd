"""The estimators written again as plain loops over rows and contexts, and random matrices to compare on."""

import math

import numpy as np
from hypothesis import strategies as st

from tether.scoring import CrossScores


def log_mean(terms):
    """Log of the weighted mean of exp(x), for (x, weight) pairs; None for no pair."""
    terms = [(x, w) for x, w in terms if w > 0]
    if not terms:
        return None
    top = max(x for x, _ in terms)
    if top == -math.inf:
        return -math.inf
    return top + math.log(math.fsum(w * math.exp(x - top) for x, w in terms) / math.fsum(w for _, w in terms))


def row_terms(scores, row, without=()):
    """Everything that one row adds, with the contexts ``without`` left out."""
    own, tokens = int(scores.own_M[row]), int(scores.num_tokens_M[row])
    weight_N = np.ones(scores.num_contexts) if scores.weight_MN is None else scores.weight_MN[row]
    pairs = {
        n: (float(scores.logprob_MN[row, n]), float(weight_N[n]))
        for n in range(scores.num_contexts)
        if scores.available[row, n] and n not in without
    }
    matched = pairs[own][0]
    others = log_mean([pair for n, pair in pairs.items() if n != own])
    above = sum(x > matched for x, _ in pairs.values())
    tied = sum(x == matched for x, _ in pairs.values())
    return {
        "ratio": matched - log_mean(pairs.values()),
        "code_ratio": matched / tokens - log_mean([(x / tokens, w) for x, w in pairs.values()]),
        "left_out": math.inf if others in (None, -math.inf) else matched - others,
        "matched": matched / tokens,
        "tokens": tokens,
        "candidates": len(pairs),
        "bound": math.log(math.fsum(w for _, w in pairs.values()) / pairs[own][1]),
        "credit": {k: sum(above + place < k for place in range(tied)) / tied for k in (1, 2, 4, 8)},
    }


def proxies_by_loops(scores, without_prompt=None, z_eps=1e-3):
    """Every proxy, optionally without the rows and contexts of one prompt; None without rows."""
    prompt_N = scores.prompt_index
    without = {n for n in range(scores.num_contexts) if prompt_N[n] == without_prompt}
    kept = [m for m in range(scores.num_rows) if prompt_N[scores.own_M[m]] != without_prompt]
    if not kept:
        return None
    rows = [row_terms(scores, m, without) for m in kept]

    def mean(values):
        values = list(values)
        return math.inf if math.inf in values else math.fsum(values) / len(values)

    def spread(values):
        return math.sqrt(mean((x - mean(values)) ** 2 for x in values))

    marginal = [r["matched"] - r["ratio"] / r["tokens"] for r in rows]
    marginal_code = [r["matched"] - r["code_ratio"] for r in rows]
    found = {
        "mi_sequence": mean(r["ratio"] for r in rows),
        "mi_per_token": mean(r["ratio"] / r["tokens"] for r in rows),
        "mi_per_token_code": mean(r["code_ratio"] for r in rows),
        "mi_upper": mean(r["left_out"] for r in rows),
        "conditional_entropy": -mean(r["matched"] for r in rows),
        "marginal_entropy": -mean(marginal),
        "marginal_spread": spread(marginal),
        "marginal_spread_code": spread(marginal_code),
        "retrieval_accuracy": mean(r["credit"][1] for r in rows),
        **{f"retrieval_accuracy@{k}": mean(r["credit"][k] for r in rows) for k in (2, 4, 8)},
    }
    found["mi_zscore"] = found["mi_per_token"] / (found["marginal_spread"] + z_eps)
    found["mi_zscore_code"] = found["mi_per_token_code"] / (found["marginal_spread_code"] + z_eps)
    return found


def levels_by_loops(scores):
    """Chance of retrieval and bounds, as row means."""
    rows = [row_terms(scores, m) for m in range(scores.num_rows)]
    return {
        "mi_sequence": np.mean([r["bound"] for r in rows]),
        "mi_per_token": np.mean([r["bound"] / r["tokens"] for r in rows]),
        **{k: np.mean([min(1, k / r["candidates"]) for r in rows]) for k in (1, 2, 4, 8)},
    }


@st.composite
def matrices(draw, *, max_contexts=6, impossible=True, masks=True, prompts=True):
    """Small matrices with ties, impossible contexts, excluded and unscored pairs, and several contexts a prompt."""
    M, N = draw(st.integers(1, 8)), draw(st.integers(1, max_contexts))
    own_M = np.array(draw(st.lists(st.integers(0, N - 1), min_size=M, max_size=M)))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    logprob_MN = rng.choice([-40.0, -12.5, -12.0, -3.0, -2.75, -700.0], size=(M, N))
    own = (np.arange(M), own_M)
    if impossible:
        logprob_MN = np.where(rng.random((M, N)) < draw(st.sampled_from([0.0, 0.3])), -np.inf, logprob_MN)
        logprob_MN[own] = rng.choice([-12.0, -3.0, -900.0], size=M)
    excluded_MN = weight_MN = None
    if masks and draw(st.booleans()):
        excluded_MN = rng.random((M, N)) < 0.3
        excluded_MN[own] = False
        logprob_MN = np.where(excluded_MN, np.nan, logprob_MN)
    if masks and draw(st.booleans()):
        weight_MN = rng.choice([0.0, 1.0, 2.5], size=(M, N))
        weight_MN[own] = rng.choice([1.0, 2.0], size=M)
    prompt_N = rng.integers(0, max(1, N - 1), size=N).tolist() if prompts and draw(st.booleans()) else None
    return CrossScores(
        logprob_MN,
        own_M,
        rng.integers(1, 30, size=M),
        excluded_MN=excluded_MN,
        weight_MN=weight_MN,
        prompt_N=prompt_N,
    )


def channel(num_symbols, eps):
    """Symmetric channel: eps / K everywhere plus 1 - eps on the diagonal."""
    return np.full((num_symbols, num_symbols), eps / num_symbols) + (1 - eps) * np.eye(num_symbols)


def sample_channel(channel_XZ, num_contexts, per_context, rng, **more):
    """Traces of distinct contexts of a channel, scored by the channel itself with its stored log-probabilities."""
    contexts = rng.choice(len(channel_XZ), num_contexts, replace=False)
    symbols = np.concatenate([rng.choice(channel_XZ.shape[1], per_context, p=channel_XZ[x]) for x in contexts])
    own_M = np.repeat(np.arange(num_contexts), per_context)
    with np.errstate(divide="ignore"):
        logprob_MN = np.log(channel_XZ[contexts][:, symbols].T)
    behaviour_M = logprob_MN[np.arange(len(own_M)), own_M]
    return CrossScores(logprob_MN, own_M, np.ones(len(own_M)), behaviour_logprob_M=behaviour_M, **more)
