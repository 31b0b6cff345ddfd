"""Pure formulas of reinforcement learning on NumPy arrays and Torch tensors; results are of the input's kind."""

from tether.objectives.advantages import group_relative_advantages, leave_one_out_advantages
from tether.objectives.aggregate import aggregate_loss, count_trained, loss_scale
from tether.objectives.entropy import token_entropy
from tether.objectives.gae import bi_level_gae, discounted_returns, gae, turn_level_gae
from tether.objectives.groups import GroupIndex, index_groups
from tether.objectives.kl import kl_estimate, kl_in_reward, kl_loss, limited_tokens
from tether.objectives.normalisation import normalise_rewards
from tether.objectives.policy_loss import clipped_surrogate, clipped_tokens
from tether.objectives.rewards import GroupRewards, group_reward_statistics, group_reward_variance, is_constant
from tether.objectives.value_loss import clipped_values, explained_variance, value_loss
from tether.objectives.whitening import whiten

__all__ = [
    "GroupIndex",
    "GroupRewards",
    "aggregate_loss",
    "bi_level_gae",
    "clipped_surrogate",
    "clipped_tokens",
    "clipped_values",
    "count_trained",
    "discounted_returns",
    "explained_variance",
    "gae",
    "group_relative_advantages",
    "group_reward_statistics",
    "group_reward_variance",
    "index_groups",
    "is_constant",
    "kl_estimate",
    "kl_in_reward",
    "kl_loss",
    "leave_one_out_advantages",
    "limited_tokens",
    "loss_scale",
    "normalise_rewards",
    "token_entropy",
    "turn_level_gae",
    "value_loss",
    "whiten",
]
