"""How a reply marks its reasoning and its answer, as data."""

from __future__ import annotations

from dataclasses import dataclass

from tether.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ReasoningStyle:
    """The tags of a reply.

    ``closing`` empty: the reply marks no reasoning; with ``whole_reply`` all of it is reasoning, else none of it.
    ``forced_opening``: the prompt ends with the opening tag, so that a reply begins inside the thought.
    ``answer_opening`` empty: the answer is all that follows the reasoning. ``answer_closing`` empty: it ends with the
    reply.

    Raises:
        ConfigError: if the tags contradict each other.
    """

    name: str
    opening: str = ""
    closing: str = ""
    forced_opening: bool = False
    answer_opening: str = ""
    answer_closing: str = ""
    whole_reply: bool = False

    def __post_init__(self) -> None:
        """Refuse combinations that no reply can follow."""
        if bool(self.opening) != bool(self.closing):
            raise ConfigError(
                f"reasoning style {self.name!r}: opening {self.opening!r}, closing {self.closing!r}; both tags or "
                "neither are expected; name the missing one, or leave both empty for replies without marked reasoning"
            )
        if self.closing and self.whole_reply:
            raise ConfigError(
                f"reasoning style {self.name!r}: whole_reply together with the tags {self.opening!r} and "
                f"{self.closing!r}; whole_reply is for replies without tags; drop one of the two"
            )
        if self.forced_opening and not self.opening:
            raise ConfigError(
                f"reasoning style {self.name!r}: forced_opening without an opening tag; name the tag that the prompt "
                "ends with, or set forced_opening=False"
            )

    @property
    def has_reasoning(self) -> bool:
        """Whether a reply of this style can hold reasoning at all."""
        return bool(self.closing) or self.whole_reply


THINK = ReasoningStyle("think", "<think>", "</think>", answer_opening="<answer>", answer_closing="</answer>")
THINK_FORCED = ReasoningStyle(
    "think_forced", "<think>", "</think>", forced_opening=True, answer_opening="<answer>", answer_closing="</answer>"
)
REACT = ReasoningStyle("react", "Thought:", "Action:")
NONE = ReasoningStyle("none", answer_opening="<answer>", answer_closing="</answer>")
WHOLE_REPLY = ReasoningStyle("whole_reply", answer_opening="<answer>", answer_closing="</answer>", whole_reply=True)
