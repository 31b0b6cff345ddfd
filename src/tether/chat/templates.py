"""A chat template as the strings around each message, so that a prompt can grow token by token."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tether.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """The pieces of a chat template.

    A conversation is ``bos``, the system message, then for each turn the user message, the assistant's prefix, the
    reply and the assistant's suffix.

    Attributes:
        name: Shown in messages.
        user: Text before and after a user message.
        assistant: Text before and after a reply.
        system: Text before and after the system message; None when the template has no such role: instructions then
            stand at the head of the first user message.
        bos: Text that begins everything; None stands for the tokenizer's own, or nothing when it has none.
        default_system: Text in the place of a missing system message.
        end_of_turn: The token inside the assistant's suffix that a policy samples itself to end its reply.
        generation_opening: What the template itself puts between the assistant's prefix and a reply that it asks for
            (an opening reasoning tag, in some), but not into the replies of earlier turns.
        drops_earlier_reasoning: The thoughts of earlier turns are not shown again.
        strips_blanks_after_reasoning: When a thought is dropped, the blank space behind it goes too.

    Raises:
        ConfigError: if the end-of-turn token is no part of the assistant's suffix.
    """

    name: str
    user: tuple[str, str] = ("", "")
    assistant: tuple[str, str] = ("", "")
    system: tuple[str, str] | None = None
    bos: str | None = ""
    default_system: str = ""
    end_of_turn: str = ""
    generation_opening: str = ""
    drops_earlier_reasoning: bool = False
    strips_blanks_after_reasoning: bool = False

    def __post_init__(self) -> None:
        """Hold the place of the end-of-turn token."""
        if self.end_of_turn not in self.assistant[1]:
            raise ConfigError(
                f"chat template {self.name!r}: end_of_turn {self.end_of_turn!r} is not in the assistant's suffix "
                f"{self.assistant[1]!r}; it is the part of the suffix that the policy samples; correct one of them"
            )

    def head(self, system: str | None) -> str:
        """Return what stands between ``bos`` and the first user message."""
        if system is None or self.system is None:
            return self.default_system
        return self.system[0] + system + self.system[1]

    def user_turn(self, text: str) -> str:
        """Return a user message with everything around it, up to where a reply begins."""
        return self.user[0] + text + self.user[1] + self.assistant[0]

    def first_user_text(self, system: str | None, text: str) -> str:
        """Return the first user message, which carries the instructions where the template has no system role."""
        return text if system is None or self.system is not None else f"{system}\n\n{text}"


PLAIN = ChatTemplate("plain", bos=None)
CHATML = ChatTemplate(
    "chatml",
    user=("<|im_start|>user\n", "<|im_end|>\n"),
    assistant=("<|im_start|>assistant\n", "<|im_end|>\n"),
    system=("<|im_start|>system\n", "<|im_end|>\n"),
    end_of_turn="<|im_end|>",
)
CHATML_DROPS_THOUGHTS = replace(CHATML, name="chatml_drops_thoughts", drops_earlier_reasoning=True)
