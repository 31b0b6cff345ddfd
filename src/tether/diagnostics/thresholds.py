"""Every number that turns measurements into findings, in one place."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tether.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits of the rules. They are judgements, not facts: the report shows those in force.

    Attributes:
        collapse_share: Reasoning has lost its input when the interval of ``mi_sequence`` reaches down to chance and its
            upper end is below this share of the bound.
        low_entropy_share: Entropy is low when it has fallen (interval disjoint from the run's own start) and is below
            this share of its start.
        readable_share: Output is unreadable when fewer replies than this share have a valid format.
        format_drop: Format decays when the valid share falls by at least this much (and disjointly).
        length_ratio: Reasoning grows when its tokens reach this multiple of the start (and disjointly).
        cap_share: Replies end at the cap when at least this share of them is cut off.
        constant_share: Reward groups are all solved, or all failed, from this share on.
        window: Steps averaged at the start and at the end of a curve; less when the curve is shorter than two windows.
    """

    collapse_share: float = 0.1
    low_entropy_share: float = 0.5
    readable_share: float = 0.5
    format_drop: float = 0.1
    length_ratio: float = 1.5
    cap_share: float = 0.5
    constant_share: float = 0.95
    window: int = 5

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name not in ("length_ratio", "window") and not 0 < getattr(self, field.name) <= 1:
                raise ConfigError(f"{field.name}={getattr(self, field.name)}: expected a share above 0 and at most 1.")
        if not self.length_ratio > 1:
            raise ConfigError(f"length_ratio={self.length_ratio}: expected more than 1, a multiple of the start.")
        if self.window < 2:
            raise ConfigError(f"window={self.window}: expected at least 2 steps, to see how much they vary.")
