"""Play episodes: one batched generation a turn over all live episodes, and records made where sampling happens.

The masks of training and the spans of scoring follow from these records, so nothing downstream has to find out again
which tokens were sampled. All episodes of a call advance turn by turn; finished ones leave the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tether.chat import (
    ChatTemplate,
    ParsedReply,
    PastTurn,
    PromptBuilder,
    ReasoningStyle,
    TurnStyle,
    parse_reply,
    render_system,
    render_turn,
)
from tether.envs import Environment
from tether.policies import CausalPolicy, GenerationSession, Reply
from tether.randomness import keyed_rng, keyed_seed
from tether.records import Episode, Turn


@dataclass(frozen=True, slots=True)
class Agent:
    """How a policy is made to act: chat template, reasoning style, wording of a turn, reply budget, penalty.

    ``format_penalty`` is taken off the reward of every turn without a valid answer; the outcome reward is kept apart.
    """

    template: ChatTemplate
    style: ReasoningStyle
    turn_style: TurnStyle
    max_reply_tokens: int
    temperature: float = 1.0
    format_penalty: float = 0.0


@dataclass(frozen=True, slots=True)
class Task:
    """One episode to play.

    ``state_seed`` names the initial state, shared by the group; ``key`` names this episode's own randomness (dynamics
    and sampling), for example ("train", step, group, member).
    """

    group_id: str
    state_seed: int
    key: tuple[int | str, ...]


@dataclass(slots=True)
class _Live:
    """An episode while it is played."""

    task: Task
    env: Environment
    builder: PromptBuilder
    observation: str
    info: dict[str, Any]
    turns: list[Turn] = field(default_factory=list)
    past: list[PastTurn] = field(default_factory=list)
    outcome: float = 0.0
    penalty: float = 0.0
    last_reward: float | None = None
    terminated: bool = False
    truncated: bool = False

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated

    def render(self, agent: Agent) -> str:
        return render_state(
            agent, self.env, self.observation, turns_played=len(self.turns), last_reward=self.last_reward
        )


def make_builder(policy: CausalPolicy, agent: Agent, env: Environment) -> PromptBuilder:
    """Return the builder of contexts for environments with these instructions and this policy's window."""
    budget = env.max_turns * env.actions_per_turn
    return PromptBuilder(
        policy.tokenizer,
        template=agent.template,
        style=agent.style,
        system=render_system(agent.turn_style, env.instructions, action_budget=budget),
        max_context=policy.max_context,
        reply_budget=agent.max_reply_tokens,
    )


def render_state(
    agent: Agent, env: Environment, observation: str, *, turns_played: int = 0, last_reward: float | None = None
) -> str:
    """Word the state of a turn for the model."""
    return render_turn(
        agent.turn_style,
        turn=turns_played + 1,
        observation=observation,
        last_reward=last_reward,
        actions_left=(env.max_turns - turns_played) * env.actions_per_turn,
        actions_per_turn=env.actions_per_turn,
        max_reply_tokens=agent.max_reply_tokens,
    )


def play(
    policy: CausalPolicy,
    make_env: Callable[[], Environment],
    tasks: Sequence[Task],
    agent: Agent,
    *,
    seed: int,
    step: int | None = None,
    version: int | None = None,
) -> list[Episode]:
    """Play every task to its end and return one episode a task, in order.

    Args:
        policy: Samples the replies.
        make_env: Makes one environment an episode.
        tasks: What to play; members of a group share ``group_id`` and ``state_seed``.
        agent: Template, style, budgets.
        seed: Root of the keyed randomness.
        step: Training step recorded with the episodes.
        version: Version of the weights recorded with the turns.

    Raises:
        ContextLengthError: if a state and a reply do not fit the model's window.
    """
    if not tasks:  # a process that has no group of its own
        return []
    session = GenerationSession(policy, len(tasks))
    builders: dict[str, PromptBuilder] = {}
    episodes = [_start(policy, make_env(), task, agent, builders, seed) for task in tasks]
    while rows := [row for row, episode in enumerate(episodes) if not episode.done]:
        live = [episodes[row] for row in rows]
        states = [episode.render(agent) for episode in live]
        prompts = [episode.builder.build(episode.past, state) for episode, state in zip(live, states, strict=True)]
        replies = session.generate(
            rows,
            [prompt.ids for prompt in prompts],
            max_new_tokens=agent.max_reply_tokens,
            stop_ids=live[0].builder.stop_ids,
            rngs=[keyed_rng(seed, *episode.task.key, "reply", len(episode.turns)) for episode in live],
            temperature=agent.temperature,
        )
        for episode, state, prompt, reply in zip(live, states, prompts, replies, strict=True):
            _advance(episode, state, prompt.ids, reply, policy, agent, version)
    return [_finish(episode, seed, step) for episode in episodes]


def _start(
    policy: CausalPolicy,
    env: Environment,
    task: Task,
    agent: Agent,
    builders: dict[str, PromptBuilder],
    seed: int,
) -> _Live:
    observation, info = env.reset(task.state_seed, noise_seed=keyed_seed(seed, *task.key, "noise"))
    if env.instructions not in builders:
        builders[env.instructions] = make_builder(policy, agent, env)
    return _Live(task, env, builders[env.instructions], observation, dict(info))


def _advance(
    episode: _Live,
    state: str,
    prompt_ids: tuple[int, ...],
    reply: Reply,
    policy: CausalPolicy,
    agent: Agent,
    version: int | None,
) -> None:
    """Let the environment answer the reply, and record the turn."""
    parsed = parse_reply(reply.token_ids, policy.tokenizer, agent.style, stop_ids=episode.builder.stop_ids)
    answer = parsed.answer if parsed.valid and parsed.answer is not None else ""
    observation, reward, episode.terminated, episode.truncated, info = episode.env.step(answer)
    penalty = 0.0 if parsed.valid else agent.format_penalty
    episode.outcome += reward
    episode.penalty += penalty
    episode.info.update(info)
    turn = _record(prompt_ids, reply, parsed, agent, version)
    episode.turns.append(replace(turn, prompt=state, observation=observation, reward=reward - penalty))
    episode.past.append(PastTurn(state, reply.token_ids, parsed.reasoning))
    episode.observation, episode.last_reward = observation, reward


def _record(prompt_ids: tuple[int, ...], reply: Reply, parsed: ParsedReply, agent: Agent, version: int | None) -> Turn:
    """The record of what was sampled, made where it was sampled."""
    return Turn(
        prompt_ids=prompt_ids,
        sampled_ids=reply.token_ids,
        logprobs=reply.logprobs,
        # At temperature 0 (greedy) the session gives the log-probabilities of temperature 1.
        logprob_mode="raw" if agent.temperature in (0.0, 1.0) else "scaled",
        temperature=agent.temperature,
        policy_version=None if version is None else (version, version),
        finish=reply.finish,
        reasoning=parsed.reasoning,
        action=parsed.answer if parsed.valid else None,
        reasoning_text=parsed.reasoning_text,
    )


def _finish(episode: _Live, seed: int, step: int | None) -> Episode:
    member = "-".join(str(part) for part in episode.task.key)
    return Episode(
        episode_id=member,
        group_id=episode.task.group_id,
        env=episode.env.name,
        seed=episode.task.state_seed,
        step=step,
        turns=tuple(episode.turns),
        reward=episode.outcome - episode.penalty,
        components={"outcome": (episode.outcome, 1.0), "format": (-episode.penalty, 1.0)},
        success=episode.info.get("success"),
        terminated=episode.terminated,
        truncated=episode.truncated,
        info=episode.info,
        filter_state="pre",
    )
