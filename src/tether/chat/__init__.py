"""Chat templates as token deltas, the one prompt builder, reasoning spans and the answer parser.

Nothing here knows an environment or a model: strings and token ids in, token ids and slices out.
"""

from tether.chat.builder import PastTurn, Prompt, PromptBuilder
from tether.chat.factoring import template_from_tokenizer
from tether.chat.parsing import ParsedReply, parse_reply
from tether.chat.styles import NONE, REACT, THINK, THINK_FORCED, WHOLE_REPLY, ReasoningStyle
from tether.chat.templates import CHATML, CHATML_DROPS_THOUGHTS, PLAIN, ChatTemplate
from tether.chat.tokens import TextTokenizer
from tether.chat.wording import COMPACT, FULL, TurnStyle, render_system, render_turn

__all__ = [
    "CHATML",
    "CHATML_DROPS_THOUGHTS",
    "COMPACT",
    "FULL",
    "NONE",
    "PLAIN",
    "REACT",
    "THINK",
    "THINK_FORCED",
    "WHOLE_REPLY",
    "ChatTemplate",
    "ParsedReply",
    "PastTurn",
    "Prompt",
    "PromptBuilder",
    "ReasoningStyle",
    "TextTokenizer",
    "TurnStyle",
    "parse_reply",
    "render_system",
    "render_turn",
    "template_from_tokenizer",
]
