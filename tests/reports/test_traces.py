"""A few episodes to read are chosen by rule and shown as they were recorded."""

from pathlib import Path
from typing import Any

import pytest

from tether.records import Episode, Rollouts, Turn
from tether.reports.traces import Trace, choose_traces, read_board


def episode(name: str, success: bool | None, *turns: Turn) -> Episode:
    return Episode(name, group_id="g", turns=turns or None, reward=None, success=success)


def traces_of(path: Path, *episodes: Episode) -> list[Trace]:
    Rollouts.from_episodes(episodes).to_parquet(path / "x.parquet")
    return choose_traces(path / "x.parquet")


def test_the_first_success_comes_before_the_first_failure(tmp_path: Path) -> None:
    found = traces_of(tmp_path, episode("a", False), episode("b", False), episode("c", True), episode("d", True))
    assert [(trace.episode_id, trace.success) for trace in found] == [("c", True), ("a", False)]


def test_without_a_success_there_is_a_failure_only(tmp_path: Path) -> None:
    assert [trace.episode_id for trace in traces_of(tmp_path, episode("a", None), episode("b", False))] == ["a"]
    assert traces_of(tmp_path) == []


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"prompt": "P 0,0 G 1,1"}, "P 0,0 G 1,1"),
        ({"prompt": ({"role": "system", "content": "rules"}, {"role": "user", "content": "the state"})}, "the state"),
        ({"prompt_ids": (1, 2, 3)}, "not recorded as text (3 tokens)"),
        ({}, "not recorded as text (0 tokens)"),
    ],
)
def test_the_state_is_the_prompt_where_it_is_text(tmp_path: Path, fields: dict[str, Any], state: str) -> None:
    (trace,) = traces_of(tmp_path, episode("a", True, Turn(**fields)))
    assert trace.turns[0].state == state


def test_a_later_state_is_what_the_turn_before_was_answered_with(tmp_path: Path) -> None:
    (trace,) = traces_of(tmp_path, episode("a", True, Turn(prompt="first", observation="second"), Turn()))
    assert [turn.state for turn in trace.turns] == ["first", "second"]


def test_what_a_reply_lacks_is_remarked(tmp_path: Path) -> None:
    cut = Turn(prompt_ids=(1,), sampled_ids=(2, 3), finish="length")
    (trace,) = traces_of(tmp_path, episode("a", False, cut))
    assert trace.turns[0].remark == "no closed reasoning, no valid answer, cut off after 2 tokens"
    assert (trace.turns[0].reasoning, trace.turns[0].answer, trace.turns[0].reward) == (None, None, None)


@pytest.mark.parametrize("text", ["", "P 0,1", "P 0,1 G 1,1 H 0", "see P 0,1 G 1,1", "P 0,1 G 99,1", "P -1,0 G 1,1"])
def test_other_texts_are_no_lakes(text: str) -> None:
    assert read_board(text) is None


def test_a_lake_has_its_cells() -> None:
    board = read_board("P 0,3 G 2,2 H 1,0 H 4,4")
    assert board is not None
    assert board.size == 5
    assert [(cell.kind, cell.row, cell.column) for cell in board.cells] == [
        ("hole", 1, 0),
        ("hole", 4, 4),
        ("goal", 2, 2),
        ("player", 0, 3),
    ]
