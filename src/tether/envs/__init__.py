"""Text environments: one protocol, the built-in environments, and a checker for anybody's own."""

from tether.envs.bandit import Bandit, BanditState
from tether.envs.checker import check_environment, require_environment
from tether.envs.frozen_lake import FrozenLake
from tether.envs.identity import Identity
from tether.envs.lake import LakeState, distances_to_goal, shortest_moves, transitions
from tether.envs.protocol import Environment, HasNeighbours
from tether.envs.registry import accepts, make, names
from tether.envs.splits import SPLITS, Split, draw_in_split, split_of
from tether.envs.turn_based import TurnBasedEnvironment, parse_actions

__all__ = [
    "SPLITS",
    "Bandit",
    "BanditState",
    "Environment",
    "FrozenLake",
    "HasNeighbours",
    "Identity",
    "LakeState",
    "Split",
    "TurnBasedEnvironment",
    "accepts",
    "check_environment",
    "distances_to_goal",
    "draw_in_split",
    "make",
    "names",
    "parse_actions",
    "require_environment",
    "shortest_moves",
    "split_of",
    "transitions",
]
