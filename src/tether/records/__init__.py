"""What happened, in tokens: turns, episodes, and bodies of them that are read lazily; Parquet in and out."""

from tether.records.model import EPISODE_FIELDS, TURN_FIELDS, Episode, FilterState, Finish, LogprobMode, Source, Turn
from tether.records.rollouts import EpisodeSource, Rollouts, iter_episodes

__all__ = [
    "EPISODE_FIELDS",
    "TURN_FIELDS",
    "Episode",
    "EpisodeSource",
    "FilterState",
    "Finish",
    "LogprobMode",
    "Rollouts",
    "Source",
    "Turn",
    "iter_episodes",
]
