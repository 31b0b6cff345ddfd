"""Episodes as columns: the Parquet schema, and the way from episodes to it and back.

Prefixes are stored once. A context becomes ``shared``, the number of ids at its start that equal the *stream before*
it, and ``rest``, the other ids. The stream before a later turn is the turn before it (context and reply); the stream
before a first turn is the last first context among the earlier episodes of the same table. A growing dialogue therefore
costs its length and not its square, the members of a group share one copy of their prompt, and every table decodes
alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tether.errors import RecordError
from tether.records.model import EPISODE_FIELDS, TURN_FIELDS, Episode, Source, Turn

# A change of SCHEMA or of what a column means is a new version.
SCHEMA_VERSION = 1

_IDS = pa.list_(pa.int32())
_FLOATS = pa.list_(pa.float64())
_TURN = pa.struct(
    {
        "shared": pa.int32(),
        "rest": _IDS,
        "sampled_ids": _IDS,
        "logprobs": _FLOATS,
        "other_logprobs": _FLOATS,
        "logprob_mode": pa.string(),
        "temperature": pa.float64(),
        "policy_version": pa.struct({"low": pa.int64(), "high": pa.int64()}),
        "finish": pa.string(),
        "reasoning": pa.struct({"start": pa.int32(), "stop": pa.int32()}),
        "action": pa.string(),
        "observation": pa.string(),
        "reward": pa.float64(),
        "images": pa.list_(pa.binary()),
        "prompt": pa.string(),  # JSON: a text, or a list of messages
        "reasoning_text": pa.string(),
        "action_text": pa.string(),
    }
)
SCHEMA = pa.schema(
    {
        "episode_id": pa.string(),
        "group_id": pa.string(),
        "env": pa.string(),
        "seed": pa.int64(),
        "step": pa.int64(),
        "turns": pa.list_(_TURN),
        "reward": pa.float64(),
        "components": pa.list_(pa.struct({"name": pa.string(), "value": pa.float64(), "weight": pa.float64()})),
        "advantage": pa.float64(),
        "token_advantages": _FLOATS,
        "success": pa.bool_(),
        "terminated": pa.bool_(),
        "truncated": pa.bool_(),
        "finish": pa.string(),
        "info": pa.string(),  # JSON
        "source": pa.struct({"file": pa.string(), "line": pa.int64()}),
        "filter_state": pa.string(),
        "text": pa.string(),
    }
)
# Fields that are lists, and fields whose columns have a form of their own; all others are stored as they are.
_TURN_LISTS = ("sampled_ids", "logprobs", "other_logprobs", "images")
_TURN_SPECIAL = ("prompt_ids", "policy_version", "reasoning", "prompt")
_EPISODE_SPECIAL = ("turns", "components", "advantage", "info", "source")
_TURN_SCALARS = tuple(name for name in TURN_FIELDS if name not in _TURN_LISTS + _TURN_SPECIAL)
_EPISODE_SCALARS = tuple(name for name in EPISODE_FIELDS if name not in _EPISODE_SPECIAL)

_Ids = tuple[int, ...]
_Row = dict[str, Any]


def encode_episodes(episodes: Iterable[Episode]) -> pa.Table:
    """Return the episodes as one table of :data:`SCHEMA`.

    Raises:
        RecordError: naming the episode that has a value which its column cannot hold.
    """
    rows: list[_Row] = []
    first: _Ids = ()
    for episode in episodes:
        rows.append(_episode_row(episode, first))
        first = episode.initial_prompt_ids or first
    try:
        return pa.Table.from_pylist(rows, schema=SCHEMA)
    except _UNFIT:
        for row in rows:
            _check_fits(row)
        raise


# What pyarrow raises for a value that is no member of its column.
_UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)


def _check_fits(row: _Row) -> None:
    for name, value in row.items():
        try:
            pa.array([value], SCHEMA.field(name).type)
        except _UNFIT as error:
            raise RecordError(
                f"episode {row['episode_id']!r}: {name} does not fit its column ({error}); plain numbers and valid "
                "text are expected, token ids below 2**31; convert the value"
            ) from error


def decode_episodes(table: pa.Table) -> list[Episode]:
    """Return the episodes of a whole table written by :func:`encode_episodes`.

    Raises:
        RecordError: if the columns contradict each other.
    """
    episodes: list[Episode] = []
    first: _Ids = ()
    for row in table.to_pylist():
        episode = _episode(row, first)
        first = episode.initial_prompt_ids or first
        episodes.append(episode)
    return episodes


def _episode_row(episode: Episode, first: _Ids) -> _Row:
    per_token = isinstance(episode.advantage, tuple)
    return {
        **{name: getattr(episode, name) for name in _EPISODE_SCALARS},
        "turns": None if episode.turns is None else _turn_rows(episode.turns, first, episode.episode_id),
        "components": [{"name": n, "value": v, "weight": w} for n, (v, w) in episode.components.items()],
        "advantage": None if per_token else episode.advantage,
        "token_advantages": episode.advantage if per_token else None,
        "info": _to_json(episode.info, episode.episode_id, "info"),
        "source": episode.source and {"file": episode.source.file, "line": episode.source.line},
    }


def _episode(row: _Row, first: _Ids) -> Episode:
    token_advantages = row["token_advantages"]
    return Episode(
        **{name: row[name] for name in _EPISODE_SCALARS},
        turns=None if row["turns"] is None else _turns(row["turns"], first, row["episode_id"]),
        components={part["name"]: (part["value"], part["weight"]) for part in row["components"]},
        advantage=row["advantage"] if token_advantages is None else tuple(token_advantages),
        info=json.loads(row["info"]),
        source=row["source"] and Source(**row["source"]),
    )


def _turn_rows(turns: Sequence[Turn], stream: _Ids, episode_id: str) -> list[_Row]:
    rows: list[_Row] = []
    for turn in turns:
        rows.append(_turn_row(turn, stream, episode_id))
        stream = _stream_after(turn)
    return rows


def _turns(rows: Sequence[_Row], stream: _Ids, episode_id: str) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    for row in rows:
        if row["shared"] is not None and not 0 <= row["shared"] <= len(stream):
            raise RecordError(
                f"episode {episode_id!r}: a context shares {row['shared']} ids with a stream of {len(stream)}; the "
                "columns contradict each other; read the file from its source again"
            )
        turns.append(_turn(row, stream))
        stream = _stream_after(turns[-1])
    return tuple(turns)


def _turn_row(turn: Turn, stream: _Ids, episode_id: str) -> _Row:
    shared = None if turn.prompt_ids is None else _num_shared(turn.prompt_ids, stream)
    return {
        **{name: getattr(turn, name) for name in (*_TURN_SCALARS, *_TURN_LISTS)},
        "shared": shared,
        "rest": None if turn.prompt_ids is None else turn.prompt_ids[shared:],
        "policy_version": turn.policy_version and dict(zip(("low", "high"), turn.policy_version, strict=True)),
        "reasoning": turn.reasoning and {"start": turn.reasoning.start, "stop": turn.reasoning.stop},
        "prompt": None if turn.prompt is None else _to_json(turn.prompt, episode_id, "prompt"),
    }


def _turn(row: _Row, stream: _Ids) -> Turn:
    version, span, prompt = row["policy_version"], row["reasoning"], row["prompt"]
    messages = prompt and json.loads(prompt)
    plain: _Row = {name: row[name] for name in _TURN_SCALARS}
    plain |= {name: None if row[name] is None else tuple(row[name]) for name in _TURN_LISTS}
    return Turn(
        **plain,
        prompt_ids=None if row["shared"] is None else (*stream[: row["shared"]], *row["rest"]),
        policy_version=version and (version["low"], version["high"]),
        reasoning=span and slice(span["start"], span["stop"]),
        prompt=tuple(messages) if isinstance(messages, list) else messages,
    )


def _stream_after(turn: Turn) -> _Ids:
    return (turn.prompt_ids or ()) + (turn.sampled_ids or ())


def _num_shared(ids: _Ids, stream: _Ids) -> int:
    if ids[: len(stream)] == stream:
        return len(stream)
    return next((i for i, (a, b) in enumerate(zip(ids, stream, strict=False)) if a != b), len(ids))


def _to_json(value: Any, episode_id: str, name: str) -> str:
    try:
        return json.dumps(value, default=_as_dict)
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"episode {episode_id!r}: {name} is not JSON data ({error}); text, numbers, booleans, lists and mappings "
            "with text keys are expected; convert or drop the rest"
        ) from error


def _as_dict(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON type")
