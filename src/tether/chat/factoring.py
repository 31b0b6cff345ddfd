"""Take a tokenizer's own chat template apart by rendering marked messages, and check that the pieces fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Protocol

from jinja2 import TemplateError

from tether.chat.styles import THINK, ReasoningStyle
from tether.chat.templates import ChatTemplate
from tether.chat.tokens import TextTokenizer, special_token
from tether.errors import ConfigError

# Words that no template contains and that nothing trims.
SYSTEM = "xxSYSTEMxx"
USERS = ("xxUSERaxx", "xxUSERbxx", "xxUSERcxx")
REPLIES = ("xxREPLYaxx", "xxREPLYbxx")
THOUGHTS = ("xxTHOUGHTaxx", "xxTHOUGHTbxx")


class ChatTokenizer(TextTokenizer, Protocol):
    """A Hugging Face tokenizer with a chat template."""

    @property
    def chat_template(self) -> Any:
        """The Jinja source, or several of them by name."""
        ...

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Added tokens by id; each says whether it is special."""
        ...

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool, **options: Any
    ) -> Any:
        """Render a conversation."""
        ...


def template_from_tokenizer(
    tokenizer: ChatTokenizer, *, thoughts: ReasoningStyle = THINK, **options: Any
) -> ChatTemplate:
    """Return the pieces of a tokenizer's chat template.

    The pieces re-assemble to exactly what the template renders for conversations of three and five messages that end
    with a user, with and without a system message. A template without a system role puts instructions at the head of
    the first user message.

    Args:
        tokenizer: Carries the template.
        thoughts: The tags by which the template recognises a thought, to see whether it drops earlier ones.
        **options: What the template itself takes, such as ``enable_thinking=False``.

    Raises:
        ConfigError: if there is no template, or naming what cannot be told apart.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            "the tokenizer has no chat template; one is expected here; use tether.chat.PLAIN for a model without "
            "roles, or build a ChatTemplate by hand"
        )
    try:
        return _Factoring(tokenizer, thoughts, options).template()
    except TemplateError as error:
        raise _cannot("a plain conversation", f"the template refuses it: {error}") from error


class _Factoring:
    """The renderings of one template."""

    def __init__(self, tokenizer: ChatTokenizer, thoughts: ReasoningStyle, options: dict[str, Any]) -> None:
        self.tokenizer, self.options = tokenizer, options
        pairs = zip(THOUGHTS, REPLIES, strict=True)
        self.thoughtful = [f"{thoughts.opening}\n{thought}\n{thoughts.closing}\n\n{reply}" for thought, reply in pairs]
        rendered = self._render(_messages(USERS, self.thoughtful))
        # Some templates put an empty thought into a reply without one; where thoughts are kept, show replies with one.
        self.replies = self.thoughtful if all(reply in rendered for reply in self.thoughtful) else list(REPLIES)

    def template(self) -> ChatTemplate:
        head, to_reply, to_user, generation = self._five_pieces()
        end_of_turn = self._end_of_turn(to_user)
        behind_end = to_user.index(end_of_turn) + len(end_of_turn)
        # What later and first user messages have in common belongs to the message; blanks belong to what is before it.
        num_common = _num_common(to_user[behind_end:][::-1], head[::-1])
        user_prefix = head[len(head) - num_common :].lstrip()
        reply_suffix = to_user.removesuffix(user_prefix)
        cut = to_reply.index(end_of_turn) + len(end_of_turn) if end_of_turn in to_reply else 0
        cut = len(to_reply) - len(to_reply[cut:].lstrip())
        default_system = head.removesuffix(user_prefix)
        system = self._system(head, user_prefix)
        bos = special_token(self.tokenizer, "bos_token") or ""
        if not all(text.startswith(bos) for text in (default_system, *((system[0],) if system else ()))):
            bos = ""
        drops, strips = self._fate_of_thoughts(to_reply, reply_suffix)
        template = ChatTemplate(
            name="the tokenizer's own",
            user=(user_prefix, to_reply[:cut]),
            assistant=(to_reply[cut:], reply_suffix),
            system=None if system is None else (system[0].removeprefix(bos), system[1]),
            bos=bos,
            default_system=default_system.removeprefix(bos),
            end_of_turn=end_of_turn,
            generation_opening=generation.removeprefix(to_reply),
            drops_earlier_reasoning=drops,
            strips_blanks_after_reasoning=strips,
        )
        self._check(template)
        return template

    def _five_pieces(self) -> tuple[str, str, str, str]:
        """Return what stands before the first user message, between the messages, and after the last one."""
        head, *between, generation = self._split()
        to_reply, to_user, to_later_reply, to_later_user = between
        if to_reply != to_later_reply or to_user != to_later_user:
            raise _cannot(
                "later turns", f"the first is {to_reply!r} {to_user!r}, the next {to_later_reply!r} {to_later_user!r}"
            )
        if not generation.startswith(to_reply):
            raise _cannot("the start of a reply", f"earlier replies begin {to_reply!r}, a new one {generation!r}")
        return head, to_reply, to_user, generation

    def _end_of_turn(self, to_user: str) -> str:
        """Return the special token that comes first after a reply."""
        special = [str(token.content) for token in self.tokenizer.added_tokens_decoder.values() if token.special]
        present = [token for token in special if token in to_user]
        if not present:
            raise _cannot("the end of a reply", f"no special token stands between a reply and a user: {to_user!r}")
        return min(present, key=lambda token: (to_user.index(token), -len(token)))

    def _system(self, head: str, user_prefix: str) -> tuple[str, str] | None:
        """Return the text around a system message; None when the template has no such role.

        A template that puts it at the head of the first user message, a blank line between, has none either: that is
        where instructions go then.
        """
        try:
            rendered = self._render(_messages(USERS[:2], self.replies[:1], SYSTEM))
        except TemplateError:
            return None
        if SYSTEM not in rendered or rendered.startswith(f"{head}{SYSTEM}\n\n{USERS[0]}"):
            return None
        before, _, behind = rendered.partition(SYSTEM)
        behind, user, _ = behind.partition(USERS[0])
        if not user or not behind.endswith(user_prefix):
            raise _cannot("the system message", f"it stands inside a user message: {rendered!r}")
        return before, behind.removesuffix(user_prefix)

    def _fate_of_thoughts(self, to_reply: str, reply_suffix: str) -> tuple[bool, bool]:
        """Return whether earlier thoughts are dropped, and whether the blanks behind them go too."""
        rendered = self._render(_messages(USERS, self.thoughtful))
        shown = [thought in rendered for thought in THOUGHTS]
        if all(shown):
            return False, False
        for strips, blanks in ((True, ""), (False, "\n\n")):
            if not any(shown) and all(to_reply + blanks + reply + reply_suffix in rendered for reply in REPLIES):
                return True, strips
        raise _cannot("earlier thoughts", f"they are neither kept nor dropped as a whole: {rendered!r}")

    def _split(self) -> list[str]:
        """Render three user messages with two replies, and cut the text at the messages."""
        messages = _messages(USERS, self.replies)
        rest = self._render(messages)
        pieces = []
        for message in messages:
            if rest.count(message["content"]) != 1:
                raise _cannot(f"a message of the {message['role']}", f"it is not shown once, in its turn: {rest!r}")
            piece, _, rest = rest.partition(message["content"])
            pieces.append(piece)
        return [*pieces, rest]

    def _check(self, template: ChatTemplate) -> None:
        for num_replies in (1, 2):
            for system in (None, SYSTEM) if template.system else (None,):
                users, replies = USERS[: num_replies + 1], self.replies[:num_replies]
                expected = self._render(_messages(users, replies, system))
                found = _assemble(template, users, replies, system)
                if found != expected:
                    at = _num_common(found, expected)
                    role = "with a system message" if system else "without a system message"
                    raise _cannot(
                        f"a conversation of {2 * num_replies + 1} messages {role}",
                        f"behind {expected[:at][-40:]!r} the template has {expected[at:][:40]!r}, the pieces have "
                        f"{found[at:][:40]!r}",
                    )

    def _render(self, messages: list[dict[str, str]]) -> str:
        return str(
            self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **self.options)
        )


def _messages(users: Sequence[str], replies: Sequence[str], system: str | None = None) -> list[dict[str, str]]:
    messages = [] if system is None else [{"role": "system", "content": system}]
    for turn, user in enumerate(users):
        messages.append({"role": "user", "content": user})
        messages += [{"role": "assistant", "content": reply} for reply in replies[turn : turn + 1]]
    return messages


def _assemble(template: ChatTemplate, users: Sequence[str], replies: Sequence[str], system: str | None) -> str:
    parts = [template.bos or "", template.head(system)]
    for turn, user in enumerate(users):
        parts.append(template.user_turn(user))
        parts += [reply + template.assistant[1] for reply in replies[turn : turn + 1]]
    return "".join([*parts, template.generation_opening])


def _num_common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their starts."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _cannot(what: str, why: str) -> ConfigError:
    return ConfigError(
        f"chat template: {what} cannot be told apart: {why}; the same pieces around every message are expected; build "
        "a ChatTemplate by hand (system=None puts instructions at the head of the first user message)"
    )
