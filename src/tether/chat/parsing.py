"""Read a sampled reply: where its reasoning is, and what it answers. Reading never rewrites what was sampled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tether.chat.styles import ReasoningStyle
from tether.chat.tokens import TextTokenizer, decode, find_tag


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """What a reply says.

    ``reasoning`` is the slice of the sampled ids between the reasoning tags; every token that overlaps a tag is
    outside. None when the thought is not closed or holds no token. ``answer`` is the stripped text of the answer
    block, which may be empty; None when the block is missing, unfinished, or not right behind the reasoning.
    ``valid`` means that the reply has all that its style asks for.
    """

    reasoning: slice | None
    reasoning_text: str | None
    answer: str | None
    valid: bool


def parse_reply(
    ids: Sequence[int], tokenizer: TextTokenizer, style: ReasoningStyle, *, stop_ids: Collection[int] | None = None
) -> ParsedReply:
    """Find the reasoning and the answer of a sampled reply.

    Args:
        ids: Sampled token ids.
        tokenizer: The tokenizer that they belong to.
        style: The tags to look for.
        stop_ids: Tokens that end a reply (:attr:`PromptBuilder.stop_ids`). A part without a closing tag of its own (the
            whole reply as reasoning, an answer that ends with the reply) is complete only if the last id is one of
            these; None takes every reply as complete.
    """
    sampled = tuple(ids)
    ended = bool(stop_ids) and bool(sampled) and sampled[-1] in (stop_ids or ())
    complete = stop_ids is None or ended
    body = sampled[:-1] if ended else sampled
    if style.closing:
        reasoning, rest = _marked_reasoning(sampled if style.answer_closing else body, tokenizer, style)
    else:
        reasoning = slice(0, len(body)) if style.whole_reply and body and complete else None
        rest = decode(tokenizer, sampled if style.answer_closing else body)
    answer = None if rest is None else _answer(rest, style, complete=complete)
    return ParsedReply(
        reasoning=reasoning,
        reasoning_text=None if reasoning is None else decode(tokenizer, sampled[reasoning]),
        answer=answer,
        valid=answer is not None and (reasoning is not None or not style.has_reasoning),
    )


def _marked_reasoning(
    ids: tuple[int, ...], tokenizer: TextTokenizer, style: ReasoningStyle
) -> tuple[slice | None, str | None]:
    """Return the reasoning span and the text behind its closing tag, None where there is no closed thought."""
    opened = range(0) if style.forced_opening else find_tag(tokenizer, ids, style.opening)
    # One token may overlap the opening tag's end and the closing tag's start: look from where the former begins.
    closed = None if opened is None else find_tag(tokenizer, ids, style.closing, opened.start)
    if opened is None or closed is None:
        return None, None
    rest = decode(tokenizer, ids[closed.start :]).partition(style.closing)[2]
    return (slice(opened.stop, closed.start) if opened.stop < closed.start else None), rest


def _answer(rest: str, style: ReasoningStyle, *, complete: bool) -> str | None:
    """Return the answer at the start of ``rest``; anywhere in it when all of the reply is reasoning."""
    before, opening, text = rest.partition(style.answer_opening) if style.answer_opening else ("", "", rest)
    if opening != style.answer_opening or (before.strip() and not style.whole_reply):
        return None
    if not style.answer_closing:
        return text.strip() if complete else None
    text, closing, _ = text.partition(style.answer_closing)
    return text.strip() if closing else None
