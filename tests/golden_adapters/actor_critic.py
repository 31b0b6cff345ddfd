"""A critic and its advantages, whitening, reward normalisation: the topics of PPO and StarPO."""

import numpy as np

from golden_adapters.registry import Case, Result, topic
from tether.objectives import aggregate_loss, bi_level_gae, gae, normalise_rewards, value_loss, whiten


def floats(values):
    return np.array(values, dtype=float)


@topic("gae")
def token_gae(case: Case) -> Result:
    inputs, options = case["inputs"], case["options"]
    advantages, returns = gae(
        floats(inputs["rewards"]),
        floats(inputs["values"]),
        np.array(inputs["mask"]),
        gamma=options["gamma"],
        lam=options["lam"],
        bootstrap=options.get("bootstrap_value", 0.0),
    )
    return {"advantages": advantages.tolist(), "returns": returns.tolist()}


@topic("ppo.gae")
def ppo_gae(case: Case) -> Result:
    rewards, values = floats(case["inputs"]["rewards"]), floats(case["inputs"]["values"])
    advantages, returns = gae(
        rewards, values[:-1], np.ones_like(rewards, dtype=bool), bootstrap=values[-1], **case["options"]
    )
    return {"advantages": advantages.tolist(), "returns": returns.tolist()}


def two_levels(inputs, options, turn_end):
    """Return advantages and returns of one row."""
    return bi_level_gae(
        floats(inputs["rewards"]),
        floats(inputs["values"]),
        np.array(inputs.get("mask", np.ones_like(turn_end))),
        turn_end,
        **{name: options[name] for name in ("gamma", "lam", "gamma_high")},
    )


@topic("bilevel_gae")
def bilevel_gae(case: Case) -> Result:
    turn_end = np.isin(np.arange(len(case["inputs"]["rewards"])), case["inputs"]["turn_ends"])
    advantages, returns = two_levels(case["inputs"], case["options"], turn_end)
    return {"advantages": advantages.tolist(), "turn_returns": returns[turn_end].tolist()}


@topic("starpo.bilevel_gae")
def starpo_bilevel_gae(case: Case) -> Result:
    inputs, options = case["inputs"], case["options"]
    by_reward = options.get("ends") == "nonzero_reward"
    turn_end = floats(inputs["rewards"]) != 0 if by_reward else np.array(inputs["turn_end"], dtype=bool)
    return {"advantages": two_levels(inputs, options, turn_end)[0].tolist()}


@topic("whitening")
def whitening(case: Case) -> Result:
    inputs, options = case["inputs"], dict(case["options"])
    advantages = floats(inputs["advantages"])
    if options.pop("kind", None) == "order":
        return both_orders(advantages, np.isin(inputs["groups"], inputs["kept"]), options)
    return {"whitened": whiten(advantages, np.array(inputs["mask"]), **options).tolist()}


@topic("ppo.filter_order")
def filter_order(case: Case) -> Result:
    return both_orders(floats(case["inputs"]["advantages"]), np.array(case["inputs"]["keep"], bool), case["options"])


def both_orders(advantages, keep, options):
    """Return the survivors of a filter, whitened among themselves and whitened with all."""
    everything = np.ones_like(advantages, dtype=bool)
    return {
        "filter_then_whiten": whiten(advantages, everything, keep=keep, **options)[keep].tolist(),
        "whiten_then_filter": whiten(advantages, everything, **options)[keep].tolist(),
    }


@topic("ppo.value_clip")
def value_clip(case: Case) -> Result:
    values, old_values, returns = (floats(case["inputs"][name]) for name in ("values", "old_values", "returns"))
    token_loss = value_loss(values, old_values, returns, **case["options"])
    return {"loss": float(aggregate_loss(token_loss, np.ones_like(values, dtype=bool)))}


@topic("starpo.normalize")
def normalize(case: Case) -> Result:
    inputs, options = case["inputs"], dict(case["options"])
    rewards = floats(inputs["rewards"]) + floats(inputs.get("penalty", 0.0))
    method = {"identity": "none"}.get(options["method"], options["method"])
    clip = {"clip": tuple(options["clip"])} if "clip" in options else {}
    return {"rewards": normalise_rewards(rewards, inputs["keys"], method=method, singleton="zero", **clip).tolist()}
