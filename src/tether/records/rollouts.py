"""Bodies of episodes: a small index in memory, the episodes themselves read when they are asked for.

The Parquet library is imported when a file is opened, so that the records themselves load at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np

from tether.records.model import Episode


class EpisodeSource(Protocol):
    """Anything that can produce the episode of a row, on demand."""

    def read(self, row: int) -> Episode:
        """Return the episode of this row."""
        ...

    def __iter__(self) -> Iterator[Episode]:
        """Stream all episodes in row order."""
        ...


class _EpisodeView(Sequence[Episode]):
    """The lazy sequence behind :attr:`Rollouts.episodes`."""

    def __init__(self, source: EpisodeSource, size: int) -> None:
        self._source, self._size = source, size

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, row: int) -> Episode: ...
    @overload
    def __getitem__(self, row: slice) -> list[Episode]: ...
    def __getitem__(self, row: int | slice) -> Episode | list[Episode]:
        if isinstance(row, slice):
            return [self._source.read(i) for i in range(*row.indices(self._size))]
        if not -self._size <= row < self._size:
            raise IndexError(f"row {row} of {self._size} episodes")
        return self._source.read(row % self._size)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self._source)


class _InMemory:
    def __init__(self, episodes: Sequence[Episode]) -> None:
        self._episodes = episodes

    def read(self, row: int) -> Episode:
        return self._episodes[row]

    def __iter__(self) -> Iterator[Episode]:
        return iter(self._episodes)


class Rollouts:
    """A body of episodes: a small index in memory, the episodes themselves read when asked for.

    Attributes:
        episodes: Lazy sequence of :class:`Episode`.
        rewards: (rows,) float64; NaN where the episode was not scored.
        group_ids: One group id a row, None where the source has none.
        steps: One training step a row, None where unknown.
        format: Which producer wrote the source ("tether" for our own files).
        capabilities: Diagnostic name to None (supported) or to the reason why the source cannot support it.
        notes: Facts that limit conclusions: selection bias, broken lines.
    """

    def __init__(
        self,
        source: EpisodeSource,
        index: Iterable[tuple[str | None, float | None, int | None]],
        *,
        format: str = "tether",
        capabilities: Mapping[str, str | None] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.group_ids: list[str | None] = []
        self.steps: list[int | None] = []
        rewards = array("d")
        interned: dict[str | None, str | None] = {}
        for group, reward, step in index:
            self.group_ids.append(interned.setdefault(group, group))
            self.steps.append(step)
            rewards.append(np.nan if reward is None else reward)
        self.rewards = np.array(rewards, dtype=np.float64)
        self.episodes: Sequence[Episode] = _EpisodeView(source, len(rewards))
        self.format = format
        self.capabilities = dict(capabilities or {})
        self.notes = tuple(notes)

    @classmethod
    def from_episodes(cls, episodes: Iterable[Episode], **about: Any) -> Rollouts:
        """Wrap episodes that are in memory already."""
        held = list(episodes)
        return cls(_InMemory(held), ((e.group_id, e.reward, e.step) for e in held), **about)

    @classmethod
    def from_parquet(cls, path: str | Path, *more: str | Path) -> Rollouts:
        """Open Tether's own Parquet files; episodes are decoded when they are asked for.

        Raises:
            RecordError: if a file is not one of ours or has an unknown schema version.
        """
        from tether.records.parquet import ParquetSource

        source = ParquetSource([Path(path), *(Path(p) for p in more)])
        return cls(source, source.index())

    def to_parquet(self, path: str | Path) -> None:
        """Write all episodes to one file, beside its place and renamed when complete."""
        from tether.records.parquet import write_parquet

        write_parquet(self.episodes, Path(path))

    def __len__(self) -> int:
        """Return the number of episodes."""
        return len(self.episodes)

    def groups(self) -> dict[str, list[int]]:
        """Return the rows of every group, in order of first appearance; rows without a group id are left out."""
        rows_of: dict[str, list[int]] = {}
        for row, group in enumerate(self.group_ids):
            if group is not None:
                rows_of.setdefault(group, []).append(row)
        return rows_of


def iter_episodes(path: str | Path) -> Iterator[Episode]:
    """Stream the episodes of one Parquet file in constant memory."""
    from tether.records.parquet import ParquetSource

    return iter(ParquetSource([Path(path)]))
