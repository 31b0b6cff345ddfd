"""What happened, in tokens: turns and episodes.

Text is a view; the token ids are the record. What the policy sampled is stored as ids together with the
log-probabilities it was sampled with, and is never decoded, edited and tokenized again. What a source does not say is
``None``, never 0 and never an invented value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from tether.errors import RecordError

LogprobMode = Literal["raw", "scaled", "truncated"]
Finish = Literal["stop", "length", "error"]
FilterState = Literal["pre", "post"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call: its full context, what was sampled, and what the environment answered.

    ``prompt_ids`` is everything before the first sampled token. ``logprobs`` has one entry a sampled token, in nats,
    in the stated ``logprob_mode``: "raw" (full softmax at temperature 1), "scaled" (at the sampling temperature),
    "truncated" (renormalised over the survivors of top-p or top-k). ``reasoning`` is the slice of ``sampled_ids``
    between the reasoning tags, tags excluded; None when there is no closed reasoning span. ``prompt`` may be
    only what this turn showed, where the ids hold the whole context. ``policy_version`` is the
    (lowest, highest) version of the weights that sampled the reply. The text fields are the views of a source without
    ids, or conveniences for readers without a tokenizer.

    Raises:
        RecordError: if aligned fields differ in length or the reasoning span leaves the reply.
    """

    prompt_ids: tuple[int, ...] | None = None
    sampled_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    logprob_mode: LogprobMode | None = None
    temperature: float | None = None
    policy_version: tuple[int, int] | None = None
    other_logprobs: tuple[float, ...] | None = None
    finish: Finish | None = None
    reasoning: slice | None = None
    action: str | None = None
    observation: str | None = None
    reward: float | None = None
    images: tuple[bytes, ...] | None = None
    prompt: str | tuple[Mapping[str, str], ...] | None = None
    reasoning_text: str | None = None
    action_text: str | None = None

    def __post_init__(self) -> None:
        """Hold the alignment of ids, log-probabilities and spans."""
        for name in ("logprobs", "other_logprobs"):
            values = getattr(self, name)
            if values is not None and (self.sampled_ids is None or len(values) != len(self.sampled_ids)):
                raise RecordError(
                    f"{len(self.sampled_ids or ())} token ids, {len(values)} {name}: one log-probability per sampled "
                    "token is expected; drop the log-probabilities or pass the ids that they belong to"
                )
        if self.reasoning is not None:
            self._check_span(self.reasoning)

    def _check_span(self, span: slice) -> None:
        size = len(self.sampled_ids or ())
        if span.step is not None or span.start is None or span.stop is None:
            raise RecordError(f"reasoning span {span}: a slice with start and stop and without a step is expected")
        if not 0 <= span.start < span.stop <= size:
            raise RecordError(
                f"reasoning span {span.start}:{span.stop} of a reply of {size} tokens: a non-empty span inside the "
                "reply is expected; an empty or unclosed thought is recorded as None"
            )

    @property
    def reasoning_ids(self) -> tuple[int, ...] | None:
        """Z: the ids of the reasoning span, tags excluded."""
        return None if self.reasoning is None or self.sampled_ids is None else self.sampled_ids[self.reasoning]

    @property
    def context_ids(self) -> tuple[int, ...] | None:
        """X: every id before the reasoning."""
        if self.reasoning is None or self.sampled_ids is None or self.prompt_ids is None:
            return None
        return self.prompt_ids + self.sampled_ids[: self.reasoning.start]

    @property
    def closing_id(self) -> int | None:
        """The sampled token right after Z (the closing tag), None when nothing was sampled after it."""
        if self.reasoning is None or self.sampled_ids is None:
            return None
        stop: int = self.reasoning.stop
        return self.sampled_ids[stop] if stop < len(self.sampled_ids) else None

    @property
    def reasoning_logprob(self) -> float | None:
        """Summed behaviour log-probability of Z, in nats; None without stored log-probabilities."""
        if self.reasoning is None or self.logprobs is None:
            return None
        return float(np.sum(self.logprobs[self.reasoning], dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Source:
    """Where an episode was read: the file, and the line or row in it (from 1)."""

    file: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Episode:
    """One rollout of one task.

    Episodes that share a ``group_id`` started from one initial state. ``turns`` is None when the source lost their
    boundaries; ``text`` then holds what it has. ``reward`` None means "not scored", which is not 0. ``components`` maps
    a reward part to (value, weight). ``advantage`` is one number, or one per sampled token. ``finish`` is the
    producer's own word; ``filter_state`` says whether the file was written before ("pre") or after ("post") groups
    were dropped.
    """

    episode_id: str
    group_id: str | None = None
    env: str | None = None
    seed: int | None = None
    step: int | None = None
    turns: tuple[Turn, ...] | None = None
    reward: float | None = None
    components: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    advantage: float | tuple[float, ...] | None = None
    success: bool | None = None
    terminated: bool | None = None
    truncated: bool | None = None
    finish: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    source: Source | None = None
    filter_state: FilterState | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        """Hold the alignment of per-token advantages with the sampled tokens."""
        if isinstance(self.advantage, tuple):
            size = self.num_sampled_tokens
            if size is None or len(self.advantage) != size:
                raise RecordError(
                    f"episode {self.episode_id}: {len(self.advantage)} advantages for {size} sampled tokens; one "
                    "number per episode or per sampled token is expected; pass one of these, or None"
                )

    @property
    def num_sampled_tokens(self) -> int | None:
        """Tokens that the policy sampled over all turns; None when the source lacks ids."""
        if self.turns is None or any(turn.sampled_ids is None for turn in self.turns):
            return None
        return sum(len(turn.sampled_ids or ()) for turn in self.turns)

    @property
    def outcome_reward(self) -> float | None:
        """What the environment paid, where the record has it apart from format penalties; else the reward."""
        return self.components["outcome"][0] if "outcome" in self.components else self.reward

    @property
    def initial_prompt_ids(self) -> tuple[int, ...] | None:
        """The context of the first turn, which all members of a group share."""
        return self.turns[0].prompt_ids if self.turns else None


TURN_FIELDS = tuple(f.name for f in fields(Turn))
EPISODE_FIELDS = tuple(f.name for f in fields(Episode))
