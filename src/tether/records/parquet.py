"""Rollouts in Parquet files: written as a stream, read one row group at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tether.errors import RecordError
from tether.files import atomic_file
from tether.records.columns import SCHEMA, SCHEMA_VERSION, decode_episodes, encode_episodes
from tether.records.model import Episode

# Large enough for a group of any usual size and for compression, small enough to decode for one episode.
ROWS_PER_GROUP = 256
_VERSION_KEY = b"tether.schema_version"
# Log-probabilities are float32 in float64: split into byte planes, the empty planes cost nothing and the file halves.
_ENCODING = {
    "use_byte_stream_split": [f"turns.list.element.{name}.list.element" for name in ("logprobs", "other_logprobs")],
    "use_dictionary": [f"turns.list.element.{name}.list.element" for name in ("rest", "sampled_ids")],
    "compression": "zstd",
    "write_page_checksum": True,
}
_UNREADABLE = (pa.ArrowException, OSError)


def write_parquet(episodes: Iterable[Episode], path: str | Path) -> None:
    """Write the episodes to one file; it appears at ``path`` when it is complete.

    At most :data:`ROWS_PER_GROUP` episodes are held at a time.

    Raises:
        RecordError: naming the episode that has a value which its column cannot hold.
    """
    stream = iter(episodes)
    schema = SCHEMA.with_metadata({_VERSION_KEY: str(SCHEMA_VERSION)})
    with atomic_file(path) as file, pq.ParquetWriter(file, schema, **_ENCODING) as writer:
        while batch := list(islice(stream, ROWS_PER_GROUP)):
            writer.write_table(encode_episodes(batch), row_group_size=ROWS_PER_GROUP)


class ParquetSource:
    """The episodes of one or several of Tether's own Parquet files, in order.

    Only the places of the row groups are held; a row group is decoded when one of its episodes is asked for, and the
    latest few stay decoded.

    Raises:
        RecordError: if a file is missing, truncated, of another producer, or of an unknown schema version.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._open = lru_cache(maxsize=8)(_open)
        self._decoded = lru_cache(maxsize=4)(self._decode)
        self._places: list[tuple[Path, int]] = []
        self._starts = [0]
        for path in paths:
            metadata = self._open(path).metadata
            for group in range(metadata.num_row_groups):
                self._places.append((path, group))
                self._starts.append(self._starts[-1] + metadata.row_group(group).num_rows)

    def index(self) -> Iterator[tuple[str | None, float | None, int | None]]:
        """Stream (group_id, reward, step) of every row; no other column is read."""
        names = ["group_id", "reward", "step"]
        for place in range(len(self._places)):
            table = self._read(place, names)
            yield from zip(*(table.column(name).to_pylist() for name in names), strict=True)

    def read(self, row: int) -> Episode:
        """Return the episode of this row."""
        place = bisect_right(self._starts, row) - 1
        return self._decoded(place)[row - self._starts[place]]

    def __iter__(self) -> Iterator[Episode]:
        """Stream all episodes in row order, one row group in memory."""
        for place in range(len(self._places)):
            yield from self._decode(place)

    def _decode(self, place: int) -> list[Episode]:
        return decode_episodes(self._read(place))

    def _read(self, place: int, columns: list[str] | None = None) -> pa.Table:
        path, group = self._places[place]
        try:
            return self._open(path).read_row_group(group, columns=columns)
        except _UNREADABLE as error:
            raise RecordError(
                f"{path}: row group {group} cannot be read ({error}); a whole file is expected; copy or write it again"
            ) from error


def _open(path: Path) -> pq.ParquetFile:
    if not path.is_file():
        raise RecordError(f"{path}: no such file; a Parquet file written by Tether is expected; check the path")
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except _UNREADABLE as error:
        raise RecordError(
            f"{path}: not a Parquet file, or a truncated one ({error}); a whole Parquet file written by Tether is "
            "expected; copy it again, or read other formats with tether.read_rollouts"
        ) from error
    version = (file.metadata.metadata or {}).get(_VERSION_KEY)
    if version is None:
        raise RecordError(
            f"{path}: Parquet of another producer, without Tether's schema version; a file written by Tether is "
            "expected; read it with tether.read_rollouts"
        )
    if version != str(SCHEMA_VERSION).encode():
        raise RecordError(
            f"{path}: rollouts of schema version {version.decode(errors='replace')}; this installation knows version "
            f"{SCHEMA_VERSION}; read the file with the version of Tether that wrote it"
        )
    if not file.schema_arrow.equals(SCHEMA):
        raise RecordError(
            f"{path}: the columns are not those of schema version {SCHEMA_VERSION}; a file written by Tether is "
            "expected; write it again with Rollouts.to_parquet"
        )
    return file
