"""The vocabulary of the synthetic traces: filler words in nine groups, grounding words, and the lake's own words.

A trace that ignores its input is made of filler; a grounded trace names what the state says. Fillers keep the entropy
of both kinds about equal, so that entropy cannot tell them apart.
"""

from __future__ import annotations

FILLERS: dict[str, tuple[str, ...]] = {
    "opener": ("well", "okay", "hmm", "alright", "first", "now"),
    "subject": ("let", "we", "i", "agent", "one", "you"),
    "verb": ("think", "consider", "ponder", "reason", "plan", "reflect"),
    "manner": ("carefully", "slowly", "deeply", "quickly", "calmly", "again"),
    "preposition": ("about", "regarding", "on", "over", "concerning", "toward"),
    "noun": ("path", "route", "way", "move", "step", "course"),
    "connective": ("and", "then", "so", "thus", "while", "since"),
    "evasion": ("avoid", "dodge", "skip", "escape", "evade", "beware"),
    "hazard": ("danger", "traps", "pits", "risk", "ice", "cracks"),
}
LOOK = ("look", "see", "note", "ok")
HERE = (("player", "at"), ("me", "at"), ("start", "at"), ("player", "is"))
THERE = (("goal", "at"), ("target", "at"), ("exit", "at"), ("goal", "is"))
NEED = ("need", "go", "take", "require")
AT = ("at", "from", "here", "player")
STATUS = ("wall", "hole", "ice", "goal")
MOVES = ("up", "down", "left", "right")
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
STATE = ("P", "G", "H", *(f"{row},{column}" for row in range(4) for column in range(4)))
NUMBERS = ("1", "2", "3")


def vocabulary(*groups: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of all traces, tags and states, without repeats, then those of ``groups``."""
    phrases = [word for phrase in (*HERE, *THERE) for word in phrase]
    fillers = [word for words in FILLERS.values() for word in words]
    extra = [word for group in groups for word in group]
    return tuple(
        dict.fromkeys(
            (*TAGS, *STATE, *NUMBERS, *MOVES, "stay", *fillers, *LOOK, *phrases, *NEED, *AT, *STATUS, "then", *extra)
        )
    )
