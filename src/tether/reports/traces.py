"""A few episodes to read: the first success and the first failure of an evaluation, in the order of the records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tether.records import Episode, Rollouts, Turn
from tether.reports.words import counted

_LAKE = re.compile(r"P (\d+),(\d+) G (\d+),(\d+)((?: H \d+,\d+)*)")
_MAX_BOARD = 12
NO_TEXT = "not recorded as text"


@dataclass(frozen=True, slots=True)
class Cell:
    """One marked cell of a board: its place, its letter, and what it is (player, goal, hole)."""

    row: int
    column: int
    letter: str
    kind: str


@dataclass(frozen=True, slots=True)
class Board:
    """A lake as a picture: side length and the cells that are not plain ice."""

    size: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class TurnText:
    """What a reader sees of a turn; None is what the source does not say."""

    number: int
    state: str
    board: Board | None
    reasoning: str | None
    answer: str | None
    remark: str
    reward: float | None


@dataclass(frozen=True, slots=True)
class Trace:
    """One episode as text."""

    episode_id: str
    success: bool
    reward: float | None
    turns: tuple[TurnText, ...]


def choose_traces(path: Path) -> list[Trace]:
    """Return the first success and the first failure of a file of records, where there is one."""
    found: dict[bool, Trace] = {}
    for episode in Rollouts.from_parquet(path).episodes:
        success = bool(episode.success)
        if success not in found:
            found[success] = _trace(episode, success)
        if len(found) == 2:
            break
    return [found[success] for success in (True, False) if success in found]


def read_board(state: str) -> Board | None:
    """Read a lake from its coordinates, None for any other text.

    >>> read_board("P 0,1 G 1,1 H 0,0")
    Board(size=4, cells=(Cell(row=0, column=0, letter='', kind='hole'), Cell(row=1, column=1, letter='G', \
kind='goal'), Cell(row=0, column=1, letter='P', kind='player')))
    """
    match = _LAKE.fullmatch(state.strip())
    if match is None:
        return None
    player_row, player_column, goal_row, goal_column = map(int, match.groups()[:4])
    numbers = list(map(int, re.findall(r"\d+", match[5])))
    holes = [Cell(row, column, "", "hole") for row, column in zip(numbers[::2], numbers[1::2], strict=True)]
    goal, player = Cell(goal_row, goal_column, "G", "goal"), Cell(player_row, player_column, "P", "player")
    cells = (*holes, goal, player)
    size = 1 + max(max(cell.row, cell.column) for cell in cells)
    return Board(max(size, 4), cells) if size <= _MAX_BOARD else None


def _trace(episode: Episode, success: bool) -> Trace:
    turns = episode.turns or ()
    shown = tuple(_turn(number, turn, turns) for number, turn in enumerate(turns, start=1))
    return Trace(episode.episode_id, success, episode.reward, shown)


def _turn(number: int, turn: Turn, turns: Sequence[Turn]) -> TurnText:
    state = _state(number, turn, turns)
    return TurnText(
        number=number,
        state=state,
        board=read_board(state),
        reasoning=turn.reasoning_text,
        answer=turn.action if turn.action is not None else turn.action_text,
        remark=_remark(turn),
        reward=turn.reward,
    )


def _state(number: int, turn: Turn, turns: Sequence[Turn]) -> str:
    """What the policy was shown: the prompt as text, else what the turn before was answered with."""
    if isinstance(turn.prompt, str):
        return turn.prompt
    if turn.prompt:
        return _content(turn.prompt[-1])
    before = turns[number - 2].observation if number > 1 else None
    return before or f"{NO_TEXT} ({counted(len(turn.prompt_ids or ()), 'token')})"


def _content(message: Mapping[str, str]) -> str:
    return str(message.get("content", ""))


def _remark(turn: Turn) -> str:
    remarks = []
    if turn.reasoning is None and turn.reasoning_text is None:
        remarks.append("no closed reasoning")
    if turn.action is None and turn.action_text is None:
        remarks.append("no valid answer")
    if turn.finish == "length":
        remarks.append(f"cut off after {counted(len(turn.sampled_ids or ()), 'token')}")
    return ", ".join(remarks)
