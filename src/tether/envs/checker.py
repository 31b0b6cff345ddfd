"""A checker for environments: whatever breaks the protocol, said as expected and found."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, cast

from tether.envs.protocol import Environment, HasNeighbours
from tether.errors import EnvironmentCheckError

_NUM_OTHER_SEEDS = 8
_UNKNOWN_ACTION = "no-such-action"


def check_environment(env: Environment | Callable[[], Environment], *, seed: int = 0) -> list[str]:
    """Return everything about an environment that breaks the protocol; an empty list is a pass.

    Resets it with one seed twice and with others, plays it with valid (``example_action``, where it has one), unknown
    and empty answers to the end and one step beyond, and looks at types, repeatability, rewards, ends and infos. What
    the environment raises on the way is part of the report. Each fault is reported once, where it first showed.

    Args:
        env: An environment, or a class or factory that makes one without arguments.
        seed: The seed to reset with.

    >>> from tether.envs import FrozenLake
    >>> check_environment(FrozenLake)
    []
    """
    probe = _Probe(seed)
    with suppress(_StoppedError):
        probe.env = _made(probe, env)
        _check_attributes(probe)
        for check in (_check_resets, _check_valid, _check_unknown, _check_empty, _check_neighbours):
            with suppress(_StoppedError):
                check(probe)
    return list(probe.problems.values())


def require_environment(env: Environment | Callable[[], Environment], *, seed: int = 0) -> None:
    """Raise one error with everything that :func:`check_environment` finds.

    Raises:
        EnvironmentCheckError: The environment breaks the protocol.
    """
    if problems := check_environment(env, seed=seed):
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise EnvironmentCheckError(f"the environment breaks the protocol; fix each of these:\n{listed}")


class _StoppedError(Exception):
    """The current check cannot go on; the reason is among the problems."""


class _Step(NamedTuple):
    text: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


class _Probe:
    """Calls the environment and notes what is wrong with each of its answers."""

    env: Environment

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.problems: dict[tuple[str, str], str] = {}

    def expect(self, condition: bool, where: str, expected: str, found: object) -> None:
        """Note a problem unless the condition holds; only the first of a method and an expectation."""
        if not condition:
            self.problems.setdefault(
                (where.partition("(")[0], expected), f"{where}: expected {expected}, found {found}"
            )

    def require(self, condition: bool, where: str, expected: str, found: object) -> None:
        """Like :meth:`expect`, where the check cannot go on without the condition."""
        self.expect(condition, where, expected, found)
        if not condition:
            raise _StoppedError

    def call(self, where: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        result, error = _attempt(function, *args, **options)
        self.require(error is None, where, "a result", f"that it raises {error!r}")
        return result

    def reset(self, seed: int | None = None, **options: int) -> str:
        """Reset, check what comes back and return the observation."""
        seed = self.seed if seed is None else seed
        shown = ", ".join([str(seed), *(f"{name}={value}" for name, value in options.items())])
        where = f"reset({shown})"
        result = self.call(where, self.env.reset, seed, **options)
        self.require(_is_tuple(result, 2), where, "a tuple (text, info)", repr(result))
        text, info = result
        self.require(isinstance(text, str) and text != "", where, "a text as observation", repr(text))
        self._check_info(where, info)
        return str(text)

    def step(self, answer: str) -> _Step:
        """Step, check what comes back and return it."""
        where = f"step({answer!r})"
        result = self.call(where, self.env.step, answer)
        expected = "a tuple (text, reward, terminated, truncated, info)"
        self.require(_is_tuple(result, 5), where, expected, repr(result))
        step = _Step(*result)
        self.expect(isinstance(step.text, str), where, "a text as observation", repr(step.text))
        self.require(_is_finite(step.reward), where, "a finite float as reward", repr(step.reward))
        for name, flag in (("terminated", step.terminated), ("truncated", step.truncated)):
            self.require(type(flag) is bool, where, f"{name} to be True or False", repr(flag))
        both = step.terminated and step.truncated
        self.expect(not both, where, "terminated or truncated, whichever ended the episode", "both")
        self._check_info(where, step.info)
        self._check_account(where, step)
        return step

    def play(self, answer: str) -> list[_Step]:
        """Give one answer until the episode ends; note when it does not."""
        steps: list[_Step] = []
        limit = self.env.max_turns
        while not (steps and steps[-1].ended):
            expected = f"the episode to end within max_turns={limit}"
            self.require(len(steps) < limit, f"step({answer!r})", expected, "neither terminated nor truncated")
            steps.append(self.step(answer))
        return steps

    def _check_info(self, where: str, info: object) -> None:
        self.require(isinstance(info, dict), where, "a dict as info", repr(info))
        try:
            json.dumps(info, allow_nan=False)
        except (TypeError, ValueError) as error:
            self.require(False, where, "an info that JSON can hold", f"{info!r} ({error})")

    def _check_account(self, where: str, step: _Step) -> None:
        """The info says what was executed, what was not understood and how it ended."""
        actions, num_invalid = step.info.get("actions"), step.info.get("invalid_actions")
        listed = isinstance(actions, list) and all(isinstance(action, str) for action in actions)
        self.require(listed, where, "info['actions'] to list the executed actions as texts", repr(actions))
        limit = self.env.actions_per_turn
        few = len(cast(list[str], actions)) <= limit
        self.expect(few, where, f"at most actions_per_turn={limit} executed actions", repr(actions))
        counted = type(num_invalid) is int and num_invalid >= 0
        self.require(counted, where, "info['invalid_actions'] to count the unknown actions", repr(num_invalid))
        success = step.info.get("success")
        told = not step.ended or isinstance(success, bool)
        self.expect(told, where, "info['success'] to be True or False at the end", repr(success))


def _attempt(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, Exception | None]:
    try:
        return function(*args, **options), None
    except Exception as error:  # noqa: BLE001 - the code under test is the user's; whatever it raises is the finding
        return None, error


def _is_tuple(value: object, length: int) -> bool:
    return isinstance(value, tuple) and len(value) == length


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _made(probe: _Probe, env: Any) -> Environment:
    is_factory = isinstance(env, type) or (callable(env) and not hasattr(env, "reset"))
    return cast(Environment, probe.call("the factory", env) if is_factory else env)


def _check_attributes(probe: _Probe) -> None:
    for name in ("reset", "step"):
        method = getattr(probe.env, name, None)
        probe.expect(callable(method), name, "a method", repr(method))
    for name in ("name", "instructions"):
        text = getattr(probe.env, name, None)
        probe.expect(isinstance(text, str) and text != "", name, "a text", repr(text))
    for name in ("max_turns", "actions_per_turn"):
        count = getattr(probe.env, name, None)
        probe.expect(type(count) is int and count > 0, name, "an integer of at least 1", repr(count))
    if probe.problems:
        raise _StoppedError


def _check_resets(probe: _Probe) -> None:
    """One seed gives one state, whatever the luck; other seeds give other states."""
    first, again = probe.reset(), probe.reset()
    probe.require(first == again, "reset", "one observation for one seed", f"{first!r}, then {again!r}")
    others = [probe.reset(probe.seed + offset) for offset in range(1, _NUM_OTHER_SEEDS + 1)]
    differ = any(other != first for other in others)
    probe.expect(differ, "reset", "different observations for different seeds", f"only {first!r} in {len(others) + 1}")
    lucky = probe.reset(noise_seed=probe.seed + 1)
    probe.expect(lucky == first, "reset", "noise_seed to leave the state alone", f"{first!r}, then {lucky!r}")


def _check_valid(probe: _Probe) -> None:
    """A valid answer executes, and equal seeds give equal episodes."""
    first = probe.reset()
    example = getattr(probe.env, "example_action", None)
    if example is None:
        return
    answer = " || ".join([example] * (probe.env.actions_per_turn + 1))
    where = f"step({answer!r})"
    played = probe.play(answer)
    probe.expect(played[0].info["actions"] != [], where, "the example_action to be executed", "actions=[]")
    again = probe.reset()
    found = f"{first!r}, then {again!r} after an episode"
    probe.require(first == again, "reset", "one observation for one seed", found)
    replayed = probe.play(answer)
    found = f"{played[-1]!r}, then {replayed[-1]!r}"
    probe.expect(played == replayed, where, "equal episodes for equal seeds", found)


def _check_unknown(probe: _Probe) -> None:
    """An unknown action is an answer like any other to a free-text environment, and dropped by the rest."""
    probe.reset()
    probe.play(_UNKNOWN_ACTION)


def _check_empty(probe: _Probe) -> None:
    """Empty replies use up turns and do nothing else; the last is the end, and a step after it an error."""
    probe.reset()
    max_turns = probe.env.max_turns
    expected_end = f"empty replies to be truncated at turn {max_turns} (max_turns) and not before"
    for turn in range(1, max_turns + 1):
        step = probe.step("")
        probe.expect(step.reward == 0, "step('')", "reward 0 for an empty reply", repr(step.reward))
        account = {name: step.info[name] for name in ("actions", "invalid_actions")}
        idle = account == {"actions": [], "invalid_actions": 0}
        probe.expect(idle, "step('')", "no actions in an empty reply", account)
        ends = (step.terminated, step.truncated)
        found = f"terminated={step.terminated}, truncated={step.truncated} at turn {turn}"
        probe.require(ends == (False, turn == max_turns), "step('')", expected_end, found)
    result, error = _attempt(probe.env.step, "")
    probe.expect(error is not None, "step('')", "an error after the end of the episode", repr(result))


def _check_neighbours(probe: _Probe) -> None:
    """Neighbours are other observations, and asking for them leaves the running episode alone."""
    if not isinstance(probe.env, HasNeighbours):
        return
    first = probe.reset()
    neighbours = probe.call("neighbours", probe.env.neighbours, probe.seed)
    listed = isinstance(neighbours, list) and all(isinstance(text, str) for text in neighbours)
    probe.require(listed, "neighbours", "a list of texts", repr(neighbours))
    probe.expect(first not in neighbours, "neighbours", "states other than the own", f"{first!r} among them")
    if probe.problems:
        return  # only an environment that repeats itself can show what was disturbed
    probe.reset()
    answer = getattr(probe.env, "example_action", None) or ""
    undisturbed = probe.step(answer)
    probe.reset()
    probe.call("neighbours", probe.env.neighbours, probe.seed + 1)
    disturbed = probe.step(answer)
    found = f"{disturbed!r} after the call, {undisturbed!r} without it"
    probe.expect(disturbed == undisturbed, "neighbours", "the running episode to be left alone", found)
