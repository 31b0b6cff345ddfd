"""Parquet in and out: lossless, prefixes once, lazy, whole or absent, and clear about files it cannot read."""

import math
import subprocess
import sys
import tracemalloc
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.errors import RecordError
from tether.records import EPISODE_FIELDS, TURN_FIELDS, Episode, Rollouts, Source, Turn, iter_episodes
from tether.records.columns import SCHEMA, decode_episodes, encode_episodes
from tether.records.parquet import ROWS_PER_GROUP, ParquetSource, write_parquet

FLOATS = st.floats()
TEXT = st.text('aé"\\\n\0中😀', max_size=4)
IDS = st.integers(0, 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
ATOMS = st.none() | st.booleans() | st.integers() | FLOATS | TEXT
JSON = ATOMS | st.lists(ATOMS, max_size=3) | st.dictionaries(TEXT, ATOMS, max_size=3)


def maybe(strategy):
    return st.none() | strategy


def tuples(strategy, **size):
    return st.lists(strategy, **size).map(tuple)


@st.composite
def turns(draw, context=None):
    sampled = draw(maybe(tuples(IDS, max_size=6)))
    size = 0 if sampled is None else len(sampled)
    aligned = st.none() if sampled is None else maybe(tuples(FLOATS, min_size=size, max_size=size))
    span = None
    if size and draw(st.booleans()):
        start = draw(st.integers(0, size - 1))
        span = slice(start, draw(st.integers(start + 1, size)))
    messages = tuples(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2)
    return Turn(
        prompt_ids=draw(maybe(tuples(IDS, max_size=6))) if context is None else context,
        sampled_ids=sampled,
        logprobs=draw(aligned),
        logprob_mode=draw(maybe(st.sampled_from(["raw", "scaled", "truncated"]))),
        temperature=draw(maybe(FLOATS)),
        policy_version=draw(maybe(st.tuples(INT64, INT64))),
        other_logprobs=draw(aligned),
        finish=draw(maybe(st.sampled_from(["stop", "length", "error"]))),
        reasoning=span,
        action=draw(maybe(TEXT)),
        observation=draw(maybe(TEXT)),
        reward=draw(maybe(FLOATS)),
        images=draw(maybe(tuples(st.binary(max_size=4), max_size=2))),
        prompt=draw(maybe(TEXT | messages)),
        reasoning_text=draw(maybe(TEXT)),
        action_text=draw(maybe(TEXT)),
    )


@st.composite
def dialogues(draw):
    """Turns whose contexts grow, are cut, or are rewritten, as windows and templates do."""
    made = []
    for _ in range(draw(st.integers(0, 3))):
        before = made[-1].prompt_ids + (made[-1].sampled_ids or ()) if made else (1, 2, 3)
        kept = before[: draw(st.integers(0, len(before)))]
        made.append(draw(turns(kept + draw(tuples(IDS, max_size=3)))))
    return tuple(made)


@st.composite
def episodes(draw):
    played = draw(maybe(dialogues() | tuples(turns(), max_size=3)))
    known = played is not None and all(turn.sampled_ids is not None for turn in played)
    size = sum(len(turn.sampled_ids) for turn in played) if known else 0
    per_token = tuples(FLOATS, min_size=size, max_size=size) if known else st.none()
    return Episode(
        episode_id=draw(TEXT),
        group_id=draw(maybe(TEXT)),
        env=draw(maybe(TEXT)),
        seed=draw(maybe(INT64)),
        step=draw(maybe(INT64)),
        turns=played,
        reward=draw(maybe(FLOATS)),
        components=draw(st.dictionaries(TEXT, st.tuples(FLOATS, FLOATS), max_size=2)),
        advantage=draw(maybe(FLOATS) | per_token),
        success=draw(maybe(st.booleans())),
        terminated=draw(maybe(st.booleans())),
        truncated=draw(maybe(st.booleans())),
        finish=draw(maybe(TEXT)),
        info=draw(st.dictionaries(TEXT, JSON, max_size=2)),
        source=draw(maybe(st.builds(Source, file=TEXT, line=maybe(INT64)))),
        filter_state=draw(maybe(st.sampled_from(["pre", "post"]))),
        text=draw(maybe(TEXT)),
    )


def dialogue(member, *, prompt, num_turns=3, reply_size=10, **about):
    """An episode whose every context is the whole history before it."""
    made, context = [], tuple(prompt)
    for turn in range(num_turns):
        sampled = tuple(100 + 7 * member + turn + i for i in range(reply_size))
        made.append(Turn(context, sampled, tuple(-0.5 - i for i in range(reply_size)), "raw", reasoning=slice(1, 4)))
        context = context + sampled + (5, 6)
    about = {"group_id": "g", "reward": float(member % 2), "step": 3} | about
    return Episode(f"e{member}", turns=tuple(made), **about)


def stored_ids(path):
    """How many context ids the file holds."""
    rows = pq.read_table(path).column("turns").to_pylist()
    return sum(len(turn["rest"]) for turns_of_row in rows for turn in turns_of_row)


@given(st.lists(episodes(), max_size=4))
def test_any_episodes_round_trip_through_a_file(tmp_path_factory, written):
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    Rollouts.from_episodes(written).to_parquet(path)
    # The text of a value also tells 0.0 from -0.0, NaN from None and 1 from 1.0, which equality does not.
    assert repr(list(Rollouts.from_parquet(path).episodes)) == repr(written)


def test_every_field_has_its_column():
    assert set(EPISODE_FIELDS) == set(SCHEMA.names) - {"token_advantages"}
    columns = {column.name for column in SCHEMA.field("turns").type.value_type}
    assert set(TURN_FIELDS) == columns - {"shared", "rest"} | {"prompt_ids"}


def test_an_unscored_episode_is_none_not_zero_and_not_nan(tmp_path):
    write_parquet([Episode("a"), Episode("b", reward=0.0), Episode("c", reward=math.nan)], tmp_path / "r.parquet")
    rollouts = Rollouts.from_parquet(tmp_path / "r.parquet")
    assert str([episode.reward for episode in rollouts.episodes]) == "[None, 0.0, nan]"
    assert str(rollouts.rewards) == "[nan  0. nan]"


def test_a_mapping_of_any_kind_comes_back_as_a_plain_one(tmp_path):
    message, info = MappingProxyType({"role": "user"}), MappingProxyType({"dead": True})
    write_parquet([Episode("a", turns=(Turn(prompt=(message,)),), info=info)], tmp_path / "r.parquet")
    (episode,) = iter_episodes(tmp_path / "r.parquet")
    assert (episode.turns[0].prompt, episode.info) == (({"role": "user"},), {"dead": True})


def test_a_growing_dialogue_stores_each_id_of_its_history_once(tmp_path):
    episode = dialogue(0, prompt=range(1000, 1050), num_turns=4)
    write_parquet([episode], tmp_path / "r.parquet")
    assert stored_ids(tmp_path / "r.parquet") == 50 + 3 * 2  # the prompt, and two ids between turns


def test_a_group_stores_its_prompt_once_a_row_group(tmp_path):
    members = [dialogue(member, prompt=range(1000, 1050), num_turns=1) for member in range(ROWS_PER_GROUP + 1)]
    write_parquet(members, tmp_path / "r.parquet")
    assert stored_ids(tmp_path / "r.parquet") == 2 * 50
    assert list(iter_episodes(tmp_path / "r.parquet")) == members


def test_an_episode_without_ids_between_two_members_does_not_break_the_sharing(tmp_path):
    members = [dialogue(0, prompt=range(50)), Episode("text only", text="..."), dialogue(1, prompt=range(50))]
    write_parquet(members, tmp_path / "r.parquet")
    assert list(iter_episodes(tmp_path / "r.parquet")) == members
    table = pq.read_table(tmp_path / "r.parquet")
    assert table.column("turns").to_pylist()[2][0]["shared"] == 50


@pytest.mark.parametrize("size", [0, 1, ROWS_PER_GROUP, 2 * ROWS_PER_GROUP + 1])
def test_every_row_is_found_from_both_ends_in_any_order(tmp_path, size):
    written = [Episode(f"e{row}", reward=float(row)) for row in range(size)]
    write_parquet(iter(written), tmp_path / "r.parquet")
    rollouts = Rollouts.from_parquet(tmp_path / "r.parquet")
    assert len(rollouts) == size
    assert [rollouts.episodes[row] for row in reversed(range(size))] == written[::-1]
    assert rollouts.episodes[-3:] == written[-3:]
    with pytest.raises(IndexError):
        rollouts.episodes[size]


def test_several_files_are_one_body_of_episodes_in_their_order(tmp_path):
    paths = [tmp_path / f"step={step}.parquet" for step in range(3)]
    for step, path in enumerate(paths):
        write_parquet([dialogue(m, prompt=(step,), step=step, group_id=f"g{step}") for m in range(step)], path)
    rollouts = Rollouts.from_parquet(*paths)
    assert rollouts.steps == [1, 2, 2]
    assert rollouts.groups() == {"g1": [0], "g2": [1, 2]}
    assert [episode.step for episode in rollouts.episodes] == [1, 2, 2]
    assert rollouts.episodes[2] == dialogue(1, prompt=(2,), step=2, group_id="g2")


def test_one_row_group_is_decoded_for_its_neighbours(tmp_path):
    write_parquet([Episode(f"e{row}") for row in range(ROWS_PER_GROUP + 1)], tmp_path / "r.parquet")
    source = ParquetSource([tmp_path / "r.parquet"])
    assert source.read(0) is source.read(0)
    assert source.read(ROWS_PER_GROUP).episode_id == f"e{ROWS_PER_GROUP}"


def test_the_index_takes_at_most_200_bytes_an_episode(tmp_path):
    size = 20_000
    rows = range(size)
    stream = (Episode(f"episode-{row}", group_id=f"group-{row // 2}", reward=0.5 * row, step=row) for row in rows)
    write_parquet(stream, tmp_path / "r.parquet")
    tracemalloc.start()
    rollouts = Rollouts.from_parquet(tmp_path / "r.parquet")
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rollouts) == size
    assert held < peak < 200 * size
    assert rollouts.group_ids[0] is rollouts.group_ids[1]


def test_writing_and_streaming_do_not_grow_with_the_number_of_episodes(tmp_path):
    def peak(num_groups):
        stream = (dialogue(row, prompt=range(200)) for row in range(num_groups * ROWS_PER_GROUP))
        tracemalloc.start()
        write_parquet(stream, tmp_path / "r.parquet")
        for _ in iter_episodes(tmp_path / "r.parquet"):
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(1)  # what is loaded once is loaded here
    assert peak(5) < 1.5 * peak(2)


def test_a_file_can_be_rewritten_from_itself(tmp_path):
    path = tmp_path / "r.parquet"
    written = [dialogue(member, prompt=range(9)) for member in range(3)]
    write_parquet(written, path)
    Rollouts.from_parquet(path).to_parquet(path)
    assert list(iter_episodes(path)) == written


def test_a_failing_stream_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "r.parquet"
    write_parquet([Episode("old")], path)

    def broken():
        yield Episode("new")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_parquet(broken(), path)
    assert [episode.episode_id for episode in iter_episodes(path)] == ["old"]
    assert list(tmp_path.iterdir()) == [path]


def test_equal_episodes_give_equal_bytes(tmp_path):
    for name in ("a", "b"):
        write_parquet([dialogue(member, prompt=range(9)) for member in range(3)], tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("episode", "words"),
    [
        (Episode("e7", turns=(Turn((2**31,), (1,)),)), r"'e7'.*turns.*2\*\*31"),
        (Episode("e7", seed=2**63), r"'e7'.*seed"),
        (Episode("e7", env="\ud800"), r"'e7'.*env"),
        (Episode("e7", reward="high"), r"'e7'.*reward"),
        (Episode("e7", info={"state": object()}), r"'e7'.*info.*JSON"),
        (Episode("e7", turns=(Turn(prompt=({"role": object()},)),)), r"'e7'.*prompt.*JSON"),
    ],
)
def test_a_value_that_does_not_fit_names_the_episode_and_the_field(tmp_path, episode, words):
    with pytest.raises(RecordError, match=words):
        write_parquet([Episode("e6"), episode], tmp_path / "r.parquet")
    assert list(tmp_path.iterdir()) == []


def with_metadata(path, version):
    write_parquet([Episode("a")], path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"tether.schema_version": version}), path)


def test_an_unknown_schema_version_names_the_read_and_the_known_one(tmp_path):
    with_metadata(tmp_path / "r.parquet", "7")
    with pytest.raises(RecordError, match=r"schema version 7; this installation knows version 1; read the file with"):
        Rollouts.from_parquet(tmp_path / "r.parquet")


def test_parquet_of_another_producer_is_sent_to_the_readers(tmp_path):
    pq.write_table(pa.table({"prompt": ["a"], "completion": ["b"]}), tmp_path / "completions.parquet")
    with pytest.raises(RecordError, match=r"completions\.parquet: Parquet of another producer.*tether\.read_rollouts"):
        Rollouts.from_parquet(tmp_path / "completions.parquet")


def test_our_version_on_foreign_columns_is_refused(tmp_path):
    table = pa.table({"group_id": ["a"], "reward": [1.0], "step": [0]})
    pq.write_table(table.replace_schema_metadata({"tether.schema_version": "1"}), tmp_path / "r.parquet")
    with pytest.raises(RecordError, match=r"columns are not those of schema version 1"):
        Rollouts.from_parquet(tmp_path / "r.parquet")


def test_a_prefix_longer_than_the_stream_before_it_is_refused():
    table = encode_episodes([dialogue(0, prompt=range(9))])
    rows = table.to_pylist()
    rows[0]["turns"][1]["shared"] = 99
    with pytest.raises(RecordError, match=r"'e0'.*shares 99 ids with a stream of 19"):
        decode_episodes(pa.Table.from_pylist(rows, schema=SCHEMA))


@pytest.mark.parametrize("content", [b"", b"{}", b"PAR1" + bytes(100) + b"PAR1"])
def test_a_file_that_is_not_parquet_is_named(tmp_path, content):
    (tmp_path / "r.parquet").write_bytes(content)
    with pytest.raises(RecordError, match=r"r\.parquet: not a Parquet file, or a truncated one"):
        Rollouts.from_parquet(tmp_path / "r.parquet")


def test_a_truncated_file_is_named(tmp_path):
    path = tmp_path / "r.parquet"
    write_parquet([dialogue(member, prompt=range(50)) for member in range(20)], path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RecordError, match=r"r\.parquet: not a Parquet file, or a truncated one"):
        Rollouts.from_parquet(path)


def test_any_changed_byte_of_the_log_probabilities_is_noticed(tmp_path):
    path = tmp_path / "r.parquet"
    write_parquet([dialogue(member, prompt=range(50)) for member in range(20)], path)
    whole = path.read_bytes()
    group = pq.read_metadata(path).row_group(0)
    (column,) = (c for c in map(group.column, range(group.num_columns)) if ".logprobs." in c.path_in_schema)
    end = column.data_page_offset + column.total_compressed_size
    for place in range(end - 40, end):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(RecordError, match=r"r\.parquet: row group 0 cannot be read"):
            list(Rollouts.from_parquet(path).episodes)


@pytest.mark.parametrize("name", ["missing.parquet", "."])
def test_a_path_without_a_file_is_named(tmp_path, name):
    with pytest.raises(RecordError, match="no such file"):
        Rollouts.from_parquet(tmp_path / name)


def test_importing_the_records_loads_no_parquet_library():
    code = "import sys, tether.records; print('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
