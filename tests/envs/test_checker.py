"""The checker: each broken environment gets the message of its fault and no other."""

import math
import random
import re

import numpy as np
import pytest

from tether.envs import Bandit, FrozenLake, Identity, check_environment, make, names, require_environment
from tether.errors import EnvironmentCheckError


class Sound:
    """Guess the parity of a number; three turns, up to two guesses each; the first right guess ends it."""

    name = "parity"
    max_turns = 3
    actions_per_turn = 2
    instructions = "Say odd or even."
    example_action = "odd"

    def reset(self, seed, *, noise_seed=None):
        self.number, self.turn, self.done = seed * 7 + 1, 0, False
        return f"number {self.number}", {}

    def step(self, text):
        if self.done:
            raise RuntimeError("the episode is over")
        self.turn += 1
        words = [word for word in text.split() if word != "||"]
        actions = [word for word in words if word in ("odd", "even")][: self.actions_per_turn]
        right = ("even", "odd")[self.number % 2] in actions
        truncated = not right and self.turn == self.max_turns
        info = {"actions": actions, "invalid_actions": sum(word not in ("odd", "even") for word in words)}
        if right or truncated:
            self.done, info["success"] = True, right
        return f"number {self.number}", float(right), right, truncated, info

    def neighbours(self, seed):
        return [f"number {seed * 7 + 2}"]


class NoStep(Sound):
    step = None


class NoInstructions(Sound):
    instructions = ""


class NoTurns(Sound):
    max_turns = 0


class ResetRaises(Sound):
    def reset(self, seed, *, noise_seed=None):
        raise KeyError("board")


class ResetTakesNoNoiseSeed(Sound):
    def reset(self, seed):
        return super().reset(seed)


class ResetReturnsTextOnly(Sound):
    def reset(self, seed, *, noise_seed=None):
        return super().reset(seed)[0]


class ObservationIsNumber(Sound):
    def reset(self, seed, *, noise_seed=None):
        super().reset(seed)
        return self.number, {}


class ResetForgetsSeed(Sound):
    def reset(self, seed, *, noise_seed=None):
        return super().reset(random.randrange(10**9))


class ResetIgnoresSeed(Sound):
    def reset(self, seed, *, noise_seed=None):
        return super().reset(5)


class NoiseSeedChangesState(Sound):
    def reset(self, seed, *, noise_seed=None):
        return super().reset(seed + (noise_seed or 0))


class StateSurvivesReset(Sound):
    """The number drifts when somebody has played."""

    games = 0

    def reset(self, seed, *, noise_seed=None):
        return super().reset(seed + self.games)

    def step(self, text):
        result = super().step(text)
        self.games += result[2]
        return result


class StepRaisesOnEmpty(Sound):
    def step(self, text):
        return super().step(text.split()[0] if not self.done else text)


class StepChanged(Sound):
    """Let a subclass change the tuple that a step returns."""

    def step(self, text):
        return self.change(*super().step(text))


class OldGymTuple(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text, reward, terminated or truncated, info


class NumpyFlag(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text, reward, np.bool_(terminated), truncated, info


class NumberFlag(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text, reward, terminated, int(truncated), info


class BothFlags(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text, reward, terminated, truncated or terminated, info


class NanReward(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text, math.nan, terminated, truncated, info


class Float32Reward(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text, np.float32(reward), terminated, truncated, info


class ByteText(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text.encode(), reward, terminated, truncated, info


class InfoNotJson(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text, reward, terminated, truncated, {**info, "board": np.zeros(2)}


class InfoNan(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text, reward, terminated, truncated, {**info, "score": math.nan}


class NoActionList(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text, reward, terminated, truncated, {k: v for k, v in info.items() if k != "actions"}


class NoInvalidCount(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text, reward, terminated, truncated, {**info, "invalid_actions": None}


class NoSuccess(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text, reward, terminated, truncated, {k: v for k, v in info.items() if k != "success"}


class TooManyActions(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text, reward, terminated, truncated, {**info, "actions": info["actions"] * 2}


class RandomReward(StepChanged):
    def change(self, text, reward, terminated, truncated, info):
        return text, random.random() if reward else 0.0, terminated, truncated, info


class PaysForEmpty(Sound):
    def step(self, text):
        observation, reward, *rest = super().step(text)
        return observation, reward if text else -0.1, *rest


class ActsOnEmpty(Sound):
    def step(self, text):
        *rest, info = super().step(text)
        return *rest, info if text else {**info, "actions": ["noop"]}


class EmptyEndsIt(Sound):
    def step(self, text):
        observation, reward, terminated, truncated, info = super().step(text)
        if not text:
            self.done, terminated, truncated, info["success"] = True, True, False, False
        return observation, reward, terminated, truncated, info


class NeverTruncates(Sound):
    def step(self, text):
        self.turn = -1
        return super().step(text)


class StepsAfterTheEnd(Sound):
    def step(self, text):
        self.done = False
        return super().step(text)


class ExampleIsUnknown(Sound):
    example_action = "perhaps"


class NeighboursAreNumbers(Sound):
    def neighbours(self, seed):
        return [1, 2]


class OwnNeighbour(Sound):
    def neighbours(self, seed):
        return [f"number {seed * 7 + 1}"]


class NeighboursDisturb(Sound):
    def neighbours(self, seed):
        self.reset(seed)
        return [f"number {seed * 7 + 2}"]


class NeighboursRaise(Sound):
    def neighbours(self, seed):
        raise NotImplementedError


EXAMPLE = "step('odd || odd || odd')"
FAULTS = {
    NoStep: "step: expected a method, found None",
    NoInstructions: "instructions: expected a text, found ''",
    NoTurns: "max_turns: expected an integer of at least 1, found 0",
    ResetRaises: "reset(0): expected a result, found that it raises KeyError('board')",
    ResetTakesNoNoiseSeed: "reset(0, noise_seed=1): expected a result, found that it raises TypeError(*noise_seed*",
    ResetReturnsTextOnly: "reset(0): expected a tuple (text, info), found 'number 1'",
    ObservationIsNumber: "reset(0): expected a text as observation, found 1",
    ResetForgetsSeed: "reset: expected one observation for one seed, found 'number *', then 'number *'",
    ResetIgnoresSeed: "reset: expected different observations for different seeds, found only 'number 36' in 9",
    NoiseSeedChangesState: "reset: expected noise_seed to leave the state alone, found 'number 1', then 'number 8'",
    StateSurvivesReset: (
        "reset: expected one observation for one seed, found 'number 1', then 'number 8' after an episode"
    ),
    StepRaisesOnEmpty: "step(''): expected a result, found that it raises IndexError('list index out of range')",
    OldGymTuple: f"{EXAMPLE}: expected a tuple (text, reward, terminated, truncated, info), found ('number 1', *",
    NumpyFlag: f"{EXAMPLE}: expected terminated to be True or False, found np.True_",
    NumberFlag: f"{EXAMPLE}: expected truncated to be True or False, found 0",
    BothFlags: f"{EXAMPLE}: expected terminated or truncated, whichever ended the episode, found both",
    NanReward: f"{EXAMPLE}: expected a finite float as reward, found nan",
    Float32Reward: f"{EXAMPLE}: expected a finite float as reward, found np.float32(1.0)",
    ByteText: f"{EXAMPLE}: expected a text as observation, found b'number 1'",
    InfoNotJson: f"{EXAMPLE}: expected an info that JSON can hold, found {{*'board': array(*not JSON serializable)",
    InfoNan: f"{EXAMPLE}: expected an info that JSON can hold, found {{*'score': nan}} (Out of range float *",
    NoActionList: f"{EXAMPLE}: expected info['actions'] to list the executed actions as texts, found None",
    NoInvalidCount: f"{EXAMPLE}: expected info['invalid_actions'] to count the unknown actions, found None",
    NoSuccess: f"{EXAMPLE}: expected info['success'] to be True or False at the end, found None",
    TooManyActions: (
        f"{EXAMPLE}: expected at most actions_per_turn=2 executed actions, found ['odd', 'odd', 'odd', 'odd']"
    ),
    RandomReward: f"{EXAMPLE}: expected equal episodes for equal seeds, found _Step(*), then _Step(*)",
    ExampleIsUnknown: (
        "step('perhaps || perhaps || perhaps'): expected the example_action to be executed, found actions=[]"
    ),
    PaysForEmpty: "step(''): expected reward 0 for an empty reply, found -0.1",
    ActsOnEmpty: ("step(''): expected no actions in an empty reply, found {'actions': ['noop'], 'invalid_actions': 0}"),
    EmptyEndsIt: (
        "step(''): expected empty replies to be truncated at turn 3 (max_turns) and not before, found "
        "terminated=True, truncated=False at turn 1"
    ),
    StepsAfterTheEnd: "step(''): expected an error after the end of the episode, found ('number 1', *",
    NeighboursAreNumbers: "neighbours: expected a list of texts, found [1, 2]",
    OwnNeighbour: "neighbours: expected states other than the own, found 'number 1' among them",
    NeighboursDisturb: "neighbours: expected the running episode to be left alone, found *",
    NeighboursRaise: "neighbours: expected a result, found that it raises NotImplementedError()",
}


def matches(problem, pattern):
    """Compare, with ``*`` in the pattern for any text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), problem, re.DOTALL)


@pytest.mark.parametrize("broken", FAULTS, ids=lambda broken: broken.__name__)
def test_broken_environment_gets_the_message_of_its_fault_and_no_other(broken):
    problems = check_environment(broken)
    assert len(problems) == 1, problems
    assert matches(problems[0], FAULTS[broken]), problems


def test_episode_without_end_is_reported_for_unknown_and_empty_answers():
    assert check_environment(NeverTruncates) == [
        "step('no-such-action'): expected the episode to end within max_turns=3, found "
        "neither terminated nor truncated",
        "step(''): expected empty replies to be truncated at turn 3 (max_turns) and not before, found "
        "terminated=False, truncated=False at turn 3",
    ]


def test_factory_that_raises_is_reported():
    def factory():
        raise OSError("no server")

    assert check_environment(factory) == ["the factory: expected a result, found that it raises OSError('no server')"]


def test_anything_else_is_no_environment():
    problems = check_environment(3)
    assert problems[0] == "reset: expected a method, found None"
    assert len(problems) == 6


@pytest.mark.parametrize("env", [Sound, Sound(), lambda: Sound()], ids=["class", "instance", "factory"])
def test_sound_environment_passes(env):
    assert check_environment(env) == []
    assert check_environment(env, seed=11) == []
    require_environment(env)


def test_environment_without_the_optional_parts_passes():
    class Plain(Sound):
        example_action = None
        neighbours = None

    assert check_environment(Plain) == []


@pytest.mark.parametrize("name", names())
def test_built_in_environments_pass(name):
    for seed in (0, 7):
        assert check_environment(make(name), seed=seed) == []


@pytest.mark.parametrize(
    "env",
    [
        FrozenLake(view="grid", success_rate=0.5, split="validation"),
        FrozenLake(dead_share=1.0, holes=2, max_turns=1, actions_per_turn=6),
        FrozenLake(size=8, frozen_probability=0.8, max_turns=12),
        Bandit(arms=5, max_turns=4, split="validation"),
        Bandit(safe_reward=0.25),
        Identity(words=("yes", "no")),
    ],
    ids=["slippery grid", "dead lakes", "large lake", "many arms", "equal arms", "two words"],
)
def test_configured_environments_pass(env):
    assert check_environment(env) == []


def test_require_environment_raises_with_every_problem():
    class TwoFaults(PaysForEmpty):
        def neighbours(self, seed):
            return [1]

    with pytest.raises(EnvironmentCheckError) as caught:
        require_environment(TwoFaults)
    assert str(caught.value).splitlines()[1:] == [f"- {problem}" for problem in check_environment(TwoFaults)]
    assert len(check_environment(TwoFaults)) == 2
