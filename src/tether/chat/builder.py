"""The one place where contexts are made: template pieces, states, and replies exactly as they were sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from tether.chat.styles import ReasoningStyle
from tether.chat.templates import ChatTemplate
from tether.chat.tokens import TextTokenizer, decode, encode, special_token, tag_after, tag_before, vocabulary_id
from tether.errors import ConfigError, ContextLengthError

CACHED_STATES = 65_536


@dataclass(frozen=True, slots=True)
class PastTurn:
    """An earlier turn: the state that was shown, the ids that were sampled, and which of them are the reasoning."""

    state: str
    sampled_ids: tuple[int, ...]
    reasoning: slice | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """A context, and how many of the oldest turns it does not show (outside the window, or too long)."""

    ids: tuple[int, ...]
    dropped_turns: int


class PromptBuilder:
    """Builds contexts as token deltas.

    Texts are encoded once and joined with the sampled ids on ids; what was sampled is never decoded and encoded again.
    Pieces that close a reply are context, not part of it: a reply that was cut off keeps its own ids, and the
    end-of-turn token is not repeated where the policy sampled it. Where the template drops earlier thoughts, exactly
    the reasoning ids and the tokens of their tags are left out (and the blanks behind, where the template strips them).
    A history that is too long loses whole turns, the oldest first; the system message and the current state stay.

    Attributes:
        stop_ids: Tokens that end a reply: the template's end-of-turn token and the tokenizer's end-of-text token; for
            templates without the former, the closing tag of the answer where it is one token.

    Args:
        tokenizer: Any Hugging Face tokenizer.
        template: The strings around the messages.
        style: The tags of a reply; a forced opening ends the prompt.
        system: The system message, None for none.
        max_context: Tokens of the model's window, prompt and reply together.
        reply_budget: Tokens kept free for the reply.
        window: Show only this many of the last past turns; None shows all.

    Raises:
        ConfigError: if the parts do not fit together.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        *,
        template: ChatTemplate,
        style: ReasoningStyle,
        system: str | None,
        max_context: int,
        reply_budget: int,
        window: int | None = None,
    ) -> None:
        if not 0 < reply_budget < max_context:
            raise ConfigError(
                f"reply_budget {reply_budget}, max_context {max_context}: a reply of at least one token and room for a "
                "prompt are expected; lower the reply budget or use a model with a longer window"
            )
        if window is not None and window < 0:
            raise ConfigError(f"window {window}: a number of turns, 0 or more, is expected; None shows all turns")
        self.tokenizer, self.template, self.style, self.system = tokenizer, template, style, system
        self.max_context, self.reply_budget, self.window = max_context, reply_budget, window
        bos = (special_token(tokenizer, "bos_token") or "") if template.bos is None else template.bos
        opening = _opening(template, style)
        _check_known(tokenizer, template, bos, template.head(system and ""), template.user_turn(""), opening)
        self._turn = lru_cache(CACHED_STATES)(lambda text: encode(tokenizer, template.user_turn(text)))
        self._head = encode(tokenizer, bos + template.head(system))
        self._opening = encode(tokenizer, opening)
        self._closing = encode(tokenizer, template.assistant[1])
        self._end_id = self._end_of_turn_id()
        self._closing_after_end = () if self._end_id is None else self._closing[self._closing.index(self._end_id) + 1 :]
        self.stop_ids = self._find_stop_ids()

    def build(self, past: Sequence[PastTurn], state: str) -> Prompt:
        """Return the context in which the policy answers ``state``.

        Raises:
            ContextLengthError: if the state alone leaves no room for the reply.
        """
        shown = past if self.window is None else past[max(0, len(past) - self.window) :]
        states = [turn.state for turn in shown] + [state]
        replies = [self._reply(turn) for turn in shown] + [self._opening]
        turns = [self._turn(text) for text in states]
        limit = self.max_context - self.reply_budget
        size, behind = 0, sum(map(len, chain(turns, replies)))
        for first, text in enumerate(states):
            beginning = self._head + self._turn(self.template.first_user_text(self.system, text))
            behind -= len(turns[first])
            size = len(beginning) + behind
            if size <= limit:
                pairs = zip([beginning, *turns[first + 1 :]], replies[first:], strict=True)
                ids = tuple(chain.from_iterable(chain.from_iterable(pairs)))
                return Prompt(ids, len(past) - len(shown) + first)
            behind -= len(replies[first])
        raise ContextLengthError(
            f"the state alone is a prompt of {size} tokens (of which {len(self._head)} come before it); with "
            f"{self.reply_budget} tokens kept for the reply, at most {limit} of {self.max_context} are free; shorten "
            "the state or the instructions, lower the reply budget, or use a model with a longer window"
        )

    def _reply(self, turn: PastTurn) -> tuple[int, ...]:
        """Return what follows an earlier state: the reply as sampled, and what closes it."""
        sampled, opening = turn.sampled_ids, self._opening
        closing = self._closing_after_end if sampled and sampled[-1] == self._end_id else self._closing
        if self.template.drops_earlier_reasoning and turn.reasoning is not None:
            sampled, opening = self._without_reasoning(sampled, turn.reasoning), ()
        return opening + sampled + closing

    def _without_reasoning(self, sampled: tuple[int, ...], reasoning: slice) -> tuple[int, ...]:
        start, stop = reasoning.start, reasoning.stop
        if self.style.closing:
            start = tag_before(self.tokenizer, sampled, start, self.style.opening)
            stop = tag_after(self.tokenizer, sampled, stop, self.style.closing)
        if self.template.strips_blanks_after_reasoning:
            while stop < len(sampled) and decode(self.tokenizer, sampled[stop : stop + 1]).isspace():
                stop += 1
        return sampled[:start] + sampled[stop:]

    def _end_of_turn_id(self) -> int | None:
        token = self.template.end_of_turn
        if not token:
            return None
        end_id = vocabulary_id(self.tokenizer, token)
        if end_id is None or end_id not in self._closing:
            raise ConfigError(
                f"end_of_turn {token!r} of chat template {self.template.name!r} is not one token of this tokenizer; "
                "the policy ends its reply with one token; choose the template that the model was trained with"
            )
        return end_id

    def _find_stop_ids(self) -> frozenset[int]:
        end_of_text = special_token(self.tokenizer, "eos_token")
        candidates = [self._end_id, None if end_of_text is None else vocabulary_id(self.tokenizer, end_of_text)]
        if self._end_id is None and self.style.answer_closing:
            candidates.append(vocabulary_id(self.tokenizer, self.style.answer_closing))
        found = frozenset(token for token in candidates if token is not None)
        if not found:
            raise ConfigError(
                f"nothing ends a reply: chat template {self.template.name!r} has no end-of-turn token, the tokenizer "
                f"has no eos_token, and the closing answer tag {self.style.answer_closing!r} is not one token; one of "
                "the three is expected; set the tokenizer's eos_token, or add the tag to its vocabulary"
            )
        return found


def _opening(template: ChatTemplate, style: ReasoningStyle) -> str:
    """Return the text between the assistant's prefix and the reply."""
    given = template.generation_opening
    if style.opening and given.rstrip().endswith(style.opening):
        if not style.forced_opening:
            raise ConfigError(
                f"chat template {template.name!r} opens the thought itself ({given!r}), but reasoning style "
                f"{style.name!r} expects the policy to; use a style with forced_opening=True"
            )
        return given
    return given + (style.opening if style.forced_opening else "")


def _check_known(tokenizer: TextTokenizer, template: ChatTemplate, *pieces: str) -> None:
    """Refuse a template whose pieces the tokenizer can only write with its unknown token."""
    unknown = special_token(tokenizer, "unk_token")
    if unknown is None:
        return
    unknown_id = tokenizer.convert_tokens_to_ids(unknown)
    for piece in (*pieces, template.assistant[1]):
        if unknown not in piece and unknown_id in encode(tokenizer, piece):
            raise ConfigError(
                f"chat template {template.name!r}: the tokenizer cannot write its piece {piece!r}; the template that "
                "the model was trained with is expected; choose another one, or add the tokens to the tokenizer"
            )
