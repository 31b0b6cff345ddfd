"""Environments: env_reward."""

from itertools import count

from golden_adapters.registry import Case, Result, topic
from tether.envs import (
    FrozenLake,
    countdown_reward,
    retry_reward,
    shortest_moves,
    sokoban_reward,
    transitions,
)
from tether.envs.lake import ACTIONS


@topic("env_reward")
def env_reward(case: Case) -> Result:
    return ENVIRONMENTS[case["options"]["env"]](case["inputs"], case["options"])


def sokoban(inputs, options):
    """Sum the rewards of the single actions; the last one solves the room."""
    gains = [1] * inputs["boxes_on"] + [-1] * inputs["boxes_off"]
    gains = [0] * (inputs["actions"] - len(gains)) + gains[::-1]
    last = len(gains) - 1
    outcome = sum(sokoban_reward(gain, solved=inputs["solved"] and i == last) for i, gain in enumerate(gains))
    return {"env_return": outcome, "total": outcome + options["format_penalty"] * inputs["invalid_turns"]}


def metamathqa(inputs, options):
    return {"env_return": retry_reward(inputs["attempt"], correct=inputs["correct"])}


def frozenlake(inputs, options):
    """Play the real environment: the whole way to the goal, or idle turns and then a step into a hole."""
    steps = inputs["steps"]
    if inputs["reached_goal"] and not inputs["fell"]:
        env = FrozenLake(size=steps + 1, holes=0, max_turns=steps, actions_per_turn=1, min_distance=steps)
        env.reset(0)
        return {"env_return": sum(env.step(shortest_moves(env.state)[0])[1] for _ in range(steps))}
    env = FrozenLake(holes=6, min_distance=1, max_turns=max(steps, 1), actions_per_turn=1)
    answer = ""
    for seed in count():
        env.reset(seed)
        falls = [action for action in ACTIONS if transitions(env.state, action)[0][1] in env.state.holes]
        if falls:
            answer = falls[0] if inputs["fell"] else ""
            break
    return {"env_return": sum(env.step(text)[1] for text in [*[""] * (steps - 1), answer])}


def countdown(inputs, options):
    rule = {"use": options["numbers"], "malformed_reward": options["unparsable_reward"]}
    target, nums = inputs["target"], inputs["nums"]
    return {"rewards": [countdown_reward(text, target=target, nums=nums, **rule) for text in inputs["expressions"]]}


ENVIRONMENTS = {"sokoban": sokoban, "metamathqa": metamathqa, "frozenlake": frozenlake, "countdown": countdown}
