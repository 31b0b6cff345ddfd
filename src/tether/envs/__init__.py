"""Text environments: one protocol, the built-in environments, and a checker for anybody's own."""

from tether.envs.bandit import Bandit, BanditState
from tether.envs.checker import check_environment, require_environment
from tether.envs.countdown import Countdown, CountdownState, countdown_reward
from tether.envs.expressions import Expression, parse_expression
from tether.envs.frozen_lake import FrozenLake
from tether.envs.identity import Identity
from tether.envs.lake import LakeState, distances_to_goal, shortest_moves, transitions
from tether.envs.protocol import Environment, HasNeighbours
from tether.envs.registry import accepts, make, names
from tether.envs.rewards import retry_reward
from tether.envs.sokoban import Sokoban
from tether.envs.sokoban_room import SokobanState, sokoban_reward
from tether.envs.splits import SPLITS, Split, draw_in_split, split_of
from tether.envs.turn_based import TurnBasedEnvironment, parse_actions

__all__ = [
    "SPLITS",
    "Bandit",
    "BanditState",
    "Countdown",
    "CountdownState",
    "Environment",
    "Expression",
    "FrozenLake",
    "HasNeighbours",
    "Identity",
    "LakeState",
    "Sokoban",
    "SokobanState",
    "Split",
    "TurnBasedEnvironment",
    "accepts",
    "check_environment",
    "countdown_reward",
    "distances_to_goal",
    "draw_in_split",
    "make",
    "names",
    "parse_actions",
    "parse_expression",
    "require_environment",
    "retry_reward",
    "shortest_moves",
    "sokoban_reward",
    "split_of",
    "transitions",
]
