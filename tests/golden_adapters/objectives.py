"""Objectives: advantages, clipped surrogate, divergence, aggregation."""

import numpy as np
import torch

from golden_adapters.registry import Case, Result, topic
from golden_adapters.selection import as_rows
from tether.objectives import (
    aggregate_loss,
    clipped_surrogate,
    clipped_tokens,
    count_trained,
    group_relative_advantages,
    kl_estimate,
    kl_loss,
    loss_scale,
)


@topic("grpo")
def grpo(case: Case) -> Result:
    options = dict(case["options"])
    rewards, group_ids = as_rows(case["inputs"]["rewards"])
    advantages = group_relative_advantages(rewards, group_ids, std_norm=options.pop("divide_by_std"), **options)
    groups = [advantages[group_ids == number].tolist() for number in range(len(case["inputs"]["rewards"]))]
    return {"advantages": groups}


@topic("rl.group_advantage")
def group_advantage(case: Case) -> Result:
    options = dict(case["options"])
    options["zero_rtol"] = options.pop("zero_tol", 1e-9)
    raw = {**options, "eps": 0.0}  # a group of one keeps its reward as it is
    return {
        "advantages": [
            group_relative_advantages(
                np.array(rewards), [0] * len(rewards), singleton="raw", **(options if len(rewards) > 1 else raw)
            ).tolist()
            for rewards in case["inputs"]["rewards"]
        ]
    }


def surrogate(case: Case) -> Result:
    options = case["options"]
    limits = {"clip_low": options["eps_low"], "clip_high": options["eps_high"], "dual_clip": options["dual_clip"]}
    objective, active = limited(case["inputs"], limits)
    return {"objective": objective, "grad_active": active}


def limited(inputs, limits):
    """Return objective and whether a gradient flows, for each ratio and advantage."""
    logprobs = torch.tensor(inputs["ratio"], dtype=torch.float64).log().requires_grad_()
    advantages = torch.tensor(inputs["advantage"], dtype=torch.float64)
    loss = clipped_surrogate(logprobs, torch.zeros_like(logprobs), advantages, **limits)
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    return (-loss).tolist(), (gradient != 0).tolist()


@topic("ppo.clip")
def ppo_clip(case: Case) -> Result:
    objective, active = limited(case["inputs"], case["options"])
    return {"objective": objective, "gradient_active": active}


topic("ppo_clip")(surrogate)


@topic("clip_higher")
def clip_higher(case: Case) -> Result:
    if case["options"].get("kind") != "ceiling":
        return surrogate(case)

    def ceiling(clip_high: float) -> float:
        """Largest ratio whose token still has a gradient, by bisection."""
        low, high = 0.0, 1e3
        for _ in range(200):
            ratio = np.array([(low + high) / 2])
            clipped = clipped_tokens(np.log(ratio), np.zeros(1), np.ones(1), clip_low=0.2, clip_high=clip_high)
            low, high = (low, ratio.item()) if clipped.item() else (ratio.item(), high)
        return low

    ratios = [ceiling(clip_high) for clip_high in case["options"]["eps_high"]]
    return {"max_p": [[p * ratio for ratio in ratios] for p in case["inputs"]["p_old"]]}


@topic("kl_estimators")
def kl_estimators(case: Case) -> Result:
    theta = torch.tensor(case["inputs"]["theta"], dtype=torch.float64, requires_grad=True)
    logp, logq = theta.log_softmax(0), torch.tensor(case["inputs"]["ref"], dtype=torch.float64).log_softmax(0)
    sampled, reference = logp.exp().detach(), logq.exp()  # enumerating every token stands for sampling it
    means = {kind: (sampled * kl_estimate(logp, logq, kind=kind)).sum() for kind in ("k1", "k2", "k3")}
    losses = {kind: (sampled * kl_loss(logp, logq, kind=kind)).sum() for kind in ("k2", "k3")}
    exact = (logp.exp() * kl_estimate(logp, logq, kind="k1")).sum()  # the distribution moves along

    def gradient(value: torch.Tensor) -> list[float]:
        return torch.autograd.grad(value, theta, retain_graph=True)[0].tolist()

    return {
        "kl": exact.item(),
        "reverse_kl": (reference * kl_estimate(logq, logp, kind="k1")).sum().item(),
        "mean_k1": means["k1"].item(),
        "mean_k2": means["k2"].item(),
        "mean_k3": means["k3"].item(),
        "grad_kl": gradient(exact),
        "grad_k1_loss": gradient(means["k1"]),
        "grad_k2_loss": gradient(losses["k2"]),
        "grad_k3_loss": gradient(losses["k3"]),
    }


def coefficient(logprobs, ref_logprobs, options):
    """Return what multiplies the gradient of each log-probability when the divergence is a loss or in the reward."""
    logprobs = logprobs.detach().requires_grad_()
    estimate = kl_estimate(logprobs, ref_logprobs, kind=options["kind"])
    return estimate if options["placement"] == "reward" else torch.autograd.grad(estimate.sum(), logprobs)[0]


@topic("kl.coefficient")
def kl_coefficient(case: Case) -> Result:
    logprobs, reference = (torch.tensor(case["inputs"][name], dtype=torch.float64) for name in ("logp", "logp_ref"))
    return {"coefficient": coefficient(logprobs, reference, case["options"]).tolist()}


@topic("kl.expected_gradient")
def kl_expected_gradient(case: Case) -> Result:
    theta = torch.tensor(case["inputs"]["theta"], dtype=torch.float64, requires_grad=True)
    logprobs, reference = theta.log_softmax(0), torch.tensor(case["inputs"]["ref"], dtype=torch.float64).log()
    weight = logprobs.exp() * coefficient(logprobs, reference, case["options"])
    return {"gradient": torch.autograd.grad((weight.detach() * logprobs).sum(), theta)[0].tolist()}


@topic("kl.moments")
def kl_moments(case: Case) -> Result:
    policy, reference = np.array(case["inputs"]["pi"]), np.array(case["inputs"]["ref"])
    found: Result = {"forward_kl": float(reference @ kl_estimate(np.log(reference), np.log(policy), kind="k1"))}
    for kind in ("k1", "k2", "k3"):
        estimate = kl_estimate(np.log(policy), np.log(reference), kind=kind)
        mean = policy @ estimate
        found[kind] = [float(mean), float(np.sqrt(policy @ (estimate - mean) ** 2))]
    return found | {"reverse_kl": found["k1"][0]}


def padded(rows):
    """Return ragged rows as an array with NaN beyond their ends, and its mask."""
    mask = np.arange(max(map(len, rows))) < np.array([[len(row)] for row in rows])
    values = np.full(mask.shape, np.nan)
    values[mask] = sum(rows, [])
    return values, mask


@topic("loss_agg")
def loss_agg(case: Case) -> Result:
    loss, mask = padded(case["inputs"]["token_losses"])
    size = case["options"]["micro_batch"]
    pieces = [slice(start, start + size) for start in range(0, len(loss), size)]
    tokens, sequences = count_trained(mask)
    counts = {
        "token-mean": {"num_tokens": tokens},
        "seq-mean-token-mean": {"num_sequences": sequences},
        "seq-mean-token-sum": {"num_sequences": sequences},
    }
    whole, naive = {}, {}
    for name, count in counts.items():
        mode = name.replace("-", "_")
        naive[name] = float(np.mean([aggregate_loss(loss[piece], mask[piece], mode=mode) for piece in pieces]))
        whole[name] = float(sum(aggregate_loss(loss[piece], mask[piece], mode=mode, **count) for piece in pieces))
    return {**whole, "naive_microbatch": naive}


@topic("loss_norm")
def loss_norm(case: Case) -> Result:
    loss, group_ids = as_rows(case["inputs"]["group_losses"])
    kept = np.isin(group_ids, case["inputs"]["kept"])
    sample_loss, mask = loss[:, None], kept[:, None]
    mean = float(aggregate_loss(sample_loss, mask, mode="seq_mean_token_mean"))
    counts = {"num_kept": int(kept.sum()), "num_total": len(kept)}
    scaled = {
        mode: mean * loss_scale(mode, **counts)
        for mode in ("kept_mean", "full_batch", "kept_ratio_scaled", "sqrt_ratio_scaled")
    }
    per_group = aggregate_loss(sample_loss, mask, mode="seq_mean_token_sum", num_sequences=len(case["inputs"]["kept"]))
    return {
        **scaled,
        "rho_scaled": mean * loss_scale("rho_scaled", rho=case["options"]["rho"], **counts),
        "kept_ratio": loss_scale("kept_ratio_scaled", **counts),
        "paper_literal": float(per_group),
    }


@topic("rl.aggregate_loss")
def one_loss(case: Case) -> Result:
    losses, present = padded(case["inputs"]["losses"])
    mask = present if "mask" not in case["inputs"] else np.nan_to_num(padded(case["inputs"]["mask"])[0]).astype(bool)
    mode = case["options"]["mode"].replace("-", "_")
    loss = aggregate_loss(losses, mask, mode=mode.removesuffix("_norm"))
    return {"loss": float(loss) / case["options"].get("horizon", 1)}
