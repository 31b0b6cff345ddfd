"""Pure judgement: arrays and records in, estimates and findings out. Nothing here prints or calls a model."""

from tether.diagnostics.diagnose import diagnose
from tether.diagnostics.episodes import episode_metrics
from tether.diagnostics.findings import find_in_run
from tether.diagnostics.input_dependence import ESTIMATES, input_dependence, relabeling_null
from tether.diagnostics.mixtures import left_out_log_ratios, log_ratios, retrieval_credits
from tether.diagnostics.pass_at_k import pass_at_k, pass_at_k_over_prompts
from tether.diagnostics.proxies import levels, proxies, smoothed_spread, z_score
from tether.diagnostics.rates import binomial_standard_error, share_over_prompts
from tether.diagnostics.reward_groups import RewardGroups, reward_groups
from tether.diagnostics.self_check import SelfCheck, sampler_mismatch, self_check, tail_rates
from tether.diagnostics.thresholds import Thresholds
from tether.diagnostics.uncertainty import Null, bootstrap_error, jackknife_interval, prompt_means

__all__ = [
    "ESTIMATES",
    "Null",
    "RewardGroups",
    "SelfCheck",
    "Thresholds",
    "binomial_standard_error",
    "bootstrap_error",
    "diagnose",
    "episode_metrics",
    "find_in_run",
    "input_dependence",
    "jackknife_interval",
    "left_out_log_ratios",
    "levels",
    "log_ratios",
    "pass_at_k",
    "pass_at_k_over_prompts",
    "prompt_means",
    "proxies",
    "relabeling_null",
    "retrieval_credits",
    "reward_groups",
    "sampler_mismatch",
    "self_check",
    "share_over_prompts",
    "smoothed_spread",
    "tail_rates",
    "z_score",
]
