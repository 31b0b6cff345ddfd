"""How instructions and states are put into words."""

from __future__ import annotations

from dataclasses import dataclass

from tether.chat.styles import THINK_FORCED, ReasoningStyle


@dataclass(frozen=True, slots=True)
class TurnStyle:
    """The wording of a turn: full sentences that demand the tags of ``reasoning``, or the ``bare`` observation."""

    name: str
    bare: bool = False
    reasoning: ReasoningStyle = THINK_FORCED


FULL = TurnStyle("full")
COMPACT = TurnStyle("compact", bare=True)


def render_system(style: TurnStyle, instructions: str, *, action_budget: int | None = None) -> str | None:
    """Return the system message: the role and the environment's own instructions; None in a bare style.

    Args:
        style: The wording.
        instructions: What the environment says about its task, symbols, actions and their separator.
        action_budget: Actions of a whole episode; None leaves them unsaid.
    """
    if style.bare:
        return None
    budget = "" if action_budget is None else f"\n\nYou have at most {_count(action_budget, 'action')} in total."
    return f"You are an agent that solves a task turn by turn.\n\n{instructions}{budget}"


def render_turn(
    style: TurnStyle,
    *,
    turn: int,
    observation: str,
    last_reward: float | None,
    actions_left: int | None,
    actions_per_turn: int,
    max_reply_tokens: int,
) -> str:
    r"""Return the user message of a turn, counted from 1 (RAGEN-2, prompt format).

    Args:
        style: The wording.
        turn: Number of the turn.
        observation: What the environment shows.
        last_reward: Reward of the turn before, shown rounded from turn 2 on; None when there was none.
        actions_left: Actions left in the episode; None leaves them unsaid.
        actions_per_turn: Actions of one answer that are executed at most.
        max_reply_tokens: The limit that generation really has.

    >>> print(render_turn(FULL, turn=2, observation="P__G", last_reward=-0.1, actions_left=8, actions_per_turn=2,
    ...                   max_reply_tokens=400))
    Reward:
    -0.1
    <BLANKLINE>
    Turn 2:
    State:
    P__G
    <BLANKLINE>
    You have 8 actions left, of which this turn takes at most 2.
    Reply with <think> your reasoning </think> <answer> your answer </answer> and nothing else, in at most 400 tokens.
    """
    if style.bare:
        return observation
    reward = "" if turn == 1 or last_reward is None else f"Reward:\n{_rounded(last_reward)}\n\n"
    budget = ""
    if actions_left is not None:
        most = min(actions_per_turn, actions_left)
        budget = f"You have {_count(actions_left, 'action')} left, of which this turn takes at most {most}.\n"
    return (
        f"{reward}Turn {turn}:\nState:\n{observation}\n\n{budget}"
        f"Reply with {_reply_format(style.reasoning)} and nothing else, in at most {_count(max_reply_tokens, 'token')}."
    )


def _reply_format(style: ReasoningStyle) -> str:
    thought = (style.opening, "your reasoning", style.closing) if style.has_reasoning else ()
    return " ".join(part for part in (*thought, style.answer_opening, "your answer", style.answer_closing) if part)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _rounded(reward: float) -> str:
    """Three decimals at most: a prompt shows no more digits than the task has.

    >>> [_rounded(x) for x in (1.0, 0.30000000000000004, -0.1, -0.0001, 10)]
    ['1', '0.3', '-0.1', '0', '10']
    """
    return f"{round(reward, 3) + 0.0:.3f}".rstrip("0").rstrip(".")
