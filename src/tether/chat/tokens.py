"""What the chat room asks of a tokenizer, and where a tag stands in a sequence of token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class TextTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used here."""

    @property
    def special_tokens_map(self) -> Mapping[str, Any]:
        """Named special tokens: ``{"bos_token": "<s>", ...}``."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text."""
        ...

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> Any:
        """Return the text of one list of ids."""
        ...

    def convert_tokens_to_ids(self, tokens: str) -> Any:
        """Return the id of a vocabulary entry; the id of the unknown token, or None, when there is no such entry."""
        ...


def encode(tokenizer: TextTokenizer, text: str) -> tuple[int, ...]:
    """Return the ids of a text, and nothing that the text does not say."""
    return tuple(tokenizer.encode(text, add_special_tokens=False)) if text else ()


def decode(tokenizer: TextTokenizer, ids: Sequence[int]) -> str:
    """Return the text of the ids, special tokens included, nothing tidied."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def special_token(tokenizer: TextTokenizer, name: str) -> str | None:
    """Return a named special token such as ``"eos_token"``, None when the tokenizer has none."""
    token = tokenizer.special_tokens_map.get(name)
    return None if token is None else str(token)


def vocabulary_id(tokenizer: TextTokenizer, token: str) -> int | None:
    """Return the id of a token that is one entry of the vocabulary, None otherwise."""
    found = tokenizer.convert_tokens_to_ids(token)
    if found is None:
        return None
    unknown = special_token(tokenizer, "unk_token")
    if unknown is not None and token != unknown and found == tokenizer.convert_tokens_to_ids(unknown):
        return None
    return int(found)


def find_tag(tokenizer: TextTokenizer, ids: Sequence[int], tag: str, start: int = 0) -> range | None:
    """Return the positions of the tokens that overlap the first occurrence of a tag at or after token ``start``.

    A tag is text: it counts whether it is one id or is spelled by several. Where it is one id, a look-up suffices;
    else its last token is found by bisection over decoded text, and its first one by going back. Both agree.
    """
    tag_id = vocabulary_id(tokenizer, tag)
    if tag_id is not None and tag_id in ids[start:]:
        at = ids.index(tag_id, start)
        if tag not in decode(tokenizer, ids[start:at]):
            return range(at, at + 1)
    if tag not in decode(tokenizer, ids[start:]):
        return None
    without, stop = start, len(ids)  # the text up to `without` lacks the tag, the text up to `stop` has it
    while stop - without > 1:
        middle = (without + stop) // 2
        if tag in decode(tokenizer, ids[max(start, without - _most_tokens(tag)) : middle]):
            stop = middle
        else:
            without = middle
    return range(_first_token(tokenizer, ids, tag, stop), stop)


def tag_after(tokenizer: TextTokenizer, ids: Sequence[int], start: int, tag: str) -> int:
    """Return where a tag that begins in token ``start`` ends; ``start`` itself when no tag begins there."""
    found = find_tag(tokenizer, ids[: start + _most_tokens(tag)], tag, start)
    return found.stop if found is not None and found.start == start else start


def tag_before(tokenizer: TextTokenizer, ids: Sequence[int], stop: int, tag: str) -> int:
    """Return where a tag whose last token is ``stop - 1`` begins; ``stop`` itself when no tag ends there."""
    for first in range(stop - 1, max(0, stop - _most_tokens(tag)) - 1, -1):
        if tag in decode(tokenizer, ids[first:stop]):
            return stop if tag in decode(tokenizer, ids[first : stop - 1]) else first
    return stop


def _first_token(tokenizer: TextTokenizer, ids: Sequence[int], tag: str, stop: int) -> int:
    """Return the first token of the tag that is complete with token ``stop - 1``."""
    first = stop - 1
    while tag not in decode(tokenizer, ids[first:stop]):
        first -= 1
    return first


def _most_tokens(tag: str) -> int:
    """Return how many tokens a tag can be spread over: a token is a byte at least."""
    return len(tag.encode())
