"""Which reasonings are scored under which contexts: chosen from the records alone, before anything is computed.

Shapes: ``_M`` reasonings (rows), ``_N`` distinct contexts (columns).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from tether.errors import InputError, did_you_mean
from tether.randomness import keyed_seed
from tether.records import Episode, Rollouts, Turn
from tether.scoring.plan import Coverage, ScoringPlan, ScoringRow

TurnChoice = Literal["first", "later", "all"] | int

_KINDS: dict[str, Callable[[int], bool]] = {
    "first": lambda turn: turn == 0,
    "later": lambda turn: turn > 0,
    "all": lambda turn: True,
}
_Ids = tuple[int, ...]
_Item = TypeVar("_Item")


def choose_rows(
    rollouts: Rollouts,
    *,
    turns: TurnChoice = "first",
    max_contexts: int = 64,
    max_reasonings: int = 64,
    seed: int = 0,
) -> ScoringPlan:
    """Choose distinct contexts, then reasonings that they own, both balanced over prompts and without replacement.

    Balanced: every prompt gives one before any gives a second, and the rows of a prompt spread over its contexts alike.
    Who comes first is a draw keyed by (seed, context) and (seed, episode, turn), so it does not depend on the order of
    the records. Episodes are streamed; only digests are held of those that are not chosen.

    Args:
        rollouts: Records with token ids.
        turns: Which turns give contexts and rows: "first", "later" (all but the first), "all", or one turn, counted
            from 0.
        max_contexts: Distinct contexts at most.
        max_reasonings: Reasonings at most.
        seed: Names the draw.

    Raises:
        InputError: if an option cannot be used, or no turn of the asked kind has ids and a closed reasoning.
    """
    is_wanted = _turn_filter(turns)
    for name, value in (("max_contexts", max_contexts), ("max_reasonings", max_reasonings)):
        if value < 1:
            raise InputError(f"{name}={value}: at least 1 is expected; leave it out for the default")
    candidates, coverage = _survey(rollouts, is_wanted)
    if not candidates:
        raise InputError(
            f"no reasoning to score: {coverage.num_episodes} episodes with {coverage.num_turns} turns for "
            f"turns={turns!r}, {coverage.num_with_ids} of them with token ids, 0 with a closed, non-empty reasoning "
            "after a context; at least one is expected; check that ids were recorded and that the reasoning tags are "
            "those of the model"
        )
    owners = _choose_contexts(candidates, max_contexts, seed)
    columns = {owner.context for owner in owners}
    sharing = [candidate for candidate in candidates if candidate.context in columns]
    chosen = _choose_reasonings(sharing, max_reasonings, seed)
    return _read_plan(rollouts, owners, chosen, sharing, replace(coverage, num_rows=len(chosen)))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A turn that can be scored; its context and its episode's initial state as digests."""

    row: int
    episode_id: str
    turn: int
    context: str
    prompt: str


def _turn_filter(turns: TurnChoice) -> Callable[[int], bool]:
    if isinstance(turns, str) and turns in _KINDS:
        return _KINDS[turns]
    if isinstance(turns, int) and not isinstance(turns, bool) and turns >= 0:
        return lambda turn: turn == turns
    raise InputError(
        f"turns={turns!r}: 'first', 'later', 'all' or the number of a turn from 0 is expected"
        f"{did_you_mean(str(turns), _KINDS)}"
    )


def _survey(rollouts: Rollouts, is_wanted: Callable[[int], bool]) -> tuple[list[_Candidate], Coverage]:
    """Stream the records once: the turns that can be scored, and the counts of all that were asked for."""
    candidates: list[_Candidate] = []
    counts: Counter[str] = Counter(num_episodes=len(rollouts))
    for row, episode in enumerate(rollouts.episodes):
        for index, turn in enumerate(episode.turns or ()):
            if not is_wanted(index):
                continue
            context, reasoning = turn.context_ids, turn.reasoning_ids
            counts["num_turns"] += 1
            counts["num_with_ids"] += turn.prompt_ids is not None and turn.sampled_ids is not None
            counts["num_ended"] += turn.finish is not None
            counts["num_truncated"] += turn.finish == "length"
            if context and reasoning:
                counts["num_valid"] += 1
                counts["num_tokens"] += len(reasoning)
                prompt = _prompt_of(episode)
                candidates.append(_Candidate(row, episode.episode_id, index, _digest(context), prompt))
    return candidates, Coverage(**counts)


def _choose_contexts(candidates: Iterable[_Candidate], limit: int, seed: int) -> list[_Candidate]:
    """Return the first owner of each chosen context, in the order of the records."""
    owners: dict[str, _Candidate] = {}
    for candidate in candidates:
        owners.setdefault(candidate.context, candidate)
    drawn = sorted(owners.values(), key=lambda owner: keyed_seed(seed, "context", owner.context))
    return sorted(_interleave(drawn, lambda owner: owner.prompt)[:limit], key=_place)


def _choose_reasonings(candidates: Iterable[_Candidate], limit: int, seed: int) -> list[_Candidate]:
    """Return the turns that become rows, in the order of the records."""
    drawn = sorted(candidates, key=lambda c: keyed_seed(seed, "reasoning", c.episode_id, c.turn))
    spread = _interleave(_interleave(drawn, lambda c: c.context), lambda c: c.prompt)
    return sorted(spread[:limit], key=_place)


def _interleave(items: Iterable[_Item], key: Callable[[_Item], Hashable]) -> list[_Item]:
    """Return the first item of every key, then the second of every key, and so on; ties keep their order."""
    seen: Counter[Hashable] = Counter()
    ranked = []
    for item in items:
        ranked.append((seen[key(item)], item))
        seen[key(item)] += 1
    return [item for _, item in sorted(ranked, key=lambda pair: pair[0])]


def _place(candidate: _Candidate) -> tuple[int, int]:
    return candidate.row, candidate.turn


def _read_plan(
    rollouts: Rollouts,
    owners: Sequence[_Candidate],
    chosen: Sequence[_Candidate],
    sharing: Iterable[_Candidate],
    coverage: Coverage,
) -> ScoringPlan:
    """Read the ids of what was chosen. ``sharing`` are all turns whose context was chosen."""
    turns = {_place(c): _turn(rollouts, c) for c in sorted({*owners, *chosen}, key=_place)}
    contexts_N = tuple(turns[_place(owner)].context_ids or () for owner in owners)
    column = {owner.context: n for n, owner in enumerate(owners)}
    rows_M = tuple(_row(c, turns[_place(c)], column[c.context]) for c in chosen)
    turns_of: dict[int, list[_Candidate]] = {}
    for candidate in sharing:
        turns_of.setdefault(candidate.row, []).append(candidate)
    excluded_MN = np.zeros((len(rows_M), len(contexts_N)), dtype=np.bool_)
    for m, (candidate, row) in enumerate(zip(chosen, rows_M, strict=True)):
        later = {column[other.context] for other in turns_of[candidate.row] if other.turn > candidate.turn}
        for n in later - {row.own}:
            excluded_MN[m, n] = _contains(contexts_N[n], row.reasoning_ids)
    return ScoringPlan(contexts_N, tuple(owner.prompt for owner in owners), rows_M, excluded_MN, coverage)


def _turn(rollouts: Rollouts, candidate: _Candidate) -> Turn:
    turns = rollouts.episodes[candidate.row].turns
    assert turns is not None, "a candidate is a turn that the survey has seen"
    return turns[candidate.turn]


def _row(candidate: _Candidate, turn: Turn, own: int) -> ScoringRow:
    # Only what was sampled from the full softmax at temperature 1 was sampled from what is scored: a greedy reply may
    # have the same log-probabilities and still be no sample. "scaled" at temperature 1 is the full softmax too.
    sampled_as_scored = turn.temperature == 1.0 or (turn.temperature is None and turn.logprob_mode == "raw")
    comparable = sampled_as_scored and turn.logprob_mode in ("raw", "scaled")
    behaviour = turn.reasoning_logprob if comparable else None
    return ScoringRow(
        episode_id=candidate.episode_id,
        turn=candidate.turn,
        own=own,
        reasoning_ids=turn.reasoning_ids or (),
        closing_id=turn.closing_id,
        behaviour_logprob=math.nan if behaviour is None else behaviour,
    )


def _contains(ids: _Ids, part: _Ids) -> bool:
    """Whether ``part`` occurs in ``ids`` without a gap."""
    return any(ids[i : i + len(part)] == part for i, first in enumerate(ids) if first == part[0])


def _prompt_of(episode: Episode) -> str:
    """Name the initial state by its content: two groups with one prompt are one prompt."""
    ids = episode.initial_prompt_ids
    return _digest(ids) if ids else (episode.group_id or episode.episode_id)


def _digest(ids: _Ids) -> str:
    return hashlib.blake2b(np.array(ids, dtype=np.int64).tobytes(), digest_size=16).hexdigest()
