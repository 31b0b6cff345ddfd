"""From a configuration to the parts of a run (policy, reference, agent, environments), checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from tether.agents import Agent, make_builder, render_state
from tether.chat import COMPACT, FULL, PLAIN, THINK_FORCED, template_from_tokenizer
from tether.envs import Environment, accepts, make
from tether.errors import ConfigError, ContextLengthError, ModelError, did_you_mean
from tether.policies import CausalPolicy, load_policy
from tether.training.config import EnvConfig, RunConfig
from tether.training.tiny.warm_start import prepare as prepare_tiny
from tether.training.tiny.warm_start import recipe_for


@dataclass(frozen=True, slots=True)
class Setup:
    """The parts of a run. ``make_env`` makes training states, ``make_eval_env`` unseen ones."""

    policy: CausalPolicy
    reference: CausalPolicy | None
    agent: Agent
    make_env: Callable[[], Environment]
    make_eval_env: Callable[[], Environment]


def prepare(config: RunConfig, *, device: torch.device, weights: Path | None = None) -> Setup:
    """Load and check everything that a run needs; ``weights`` replaces the starting weights (resume).

    Raises:
        ConfigError: if the environment or an option of it is unknown.
        ModelError: if a model folder cannot be used.
        ContextLengthError: if the first state and a reply do not fit the model's window.
    """
    make_env, make_eval_env = environment_makers(config)
    start = resolve_model(config, config.model)
    policy = load_policy(weights or start, device=device)
    reference = None
    if config.loss.kl_coef > 0:
        reference = load_policy(
            start if config.reference == "start" else resolve_model(config, config.reference), device=device
        )
        _check_same_tokens(policy, reference)
    agent = make_agent(config, policy)
    _check_first_prompt(policy, agent, make_env())
    return Setup(policy, reference, agent, make_env, make_eval_env)


def environment_makers(config: RunConfig) -> tuple[Callable[[], Environment], Callable[[], Environment]]:
    """Return the factories of training and of validation states.

    Raises:
        ConfigError: for an unknown name or option, or one that a run decides itself.
    """
    name, options = config.env.name, config.env.options
    if "split" in options:
        raise ConfigError("env.split: training and validation states are chosen by the run itself; remove the option")
    for option in options:
        if not accepts(name, option) and (hint := did_you_mean(option, EnvConfig.model_fields)):
            raise ConfigError(f"unknown key 'env.{option}'{hint}; keys of env: {', '.join(EnvConfig.model_fields)}")
    if not accepts(name, "split"):
        raise ConfigError(
            f"environment {name!r} has no option 'split'; expected split='train' or 'validation', with states that the "
            "two do not share: without it, success on unseen states means nothing. Add the option (see draw_in_split)"
        )
    # Dead states carry no reward to be judged by: success is measured on states that can be solved.
    unseen = {key: value for key, value in options.items() if key != "dead_share"}
    make(name, **options, split="train")
    return partial(make, name, **options, split="train"), partial(make, name, **unseen, split="validation")


def resolve_model(config: RunConfig, name: str) -> Path:
    """Return the folder of a model name; ``tiny`` is trained on the spot (once: it is cached by content)."""
    return prepare_tiny(recipe_for(config.env.name)) if name == "tiny" else Path(name)


def make_agent(config: RunConfig, policy: CausalPolicy) -> Agent:
    """Choose template and wording: the bare state for a model without a chat template, full sentences otherwise."""
    plain = not getattr(policy.tokenizer, "chat_template", None)
    compact = plain if config.env.prompt_style == "auto" else config.env.prompt_style == "compact"
    return Agent(
        template=PLAIN if plain else template_from_tokenizer(policy.tokenizer),
        style=THINK_FORCED,
        turn_style=COMPACT if compact else FULL,
        max_reply_tokens=config.generate.max_reply_tokens,
        temperature=config.generate.temperature,
        format_penalty=config.env.format_penalty,
    )


def _check_same_tokens(policy: CausalPolicy, reference: CausalPolicy) -> None:
    """Refuse a reference whose ids mean other tokens: its log-probabilities would be those of another text."""
    if policy.tokenizer.get_vocab() != reference.tokenizer.get_vocab():
        raise ModelError(
            f"reference {reference.name!r} has another vocabulary than model {policy.name!r}; the same tokens under "
            "the same ids are expected; give the model's own start (reference=start), or a model trained from it"
        )


def _check_first_prompt(policy: CausalPolicy, agent: Agent, env: Environment) -> None:
    """Build the first context of an episode, so that one that cannot work is found before anything is written."""
    observation, _ = env.reset(0)
    given = f"generate.max_reply_tokens={agent.max_reply_tokens} with model {policy.name!r}"
    if agent.max_reply_tokens >= policy.max_context:
        raise ContextLengthError(
            f"{given}, whose window is {policy.max_context} tokens: a reply that leaves room for a prompt is expected; "
            "lower generate.max_reply_tokens, or give a model with a longer window"
        )
    try:
        ids = make_builder(policy, agent, env).build([], render_state(agent, env, observation)).ids
    except ContextLengthError as error:
        raise ContextLengthError(f"{given}: {error}") from None
    unknown = policy.tokenizer.unk_token_id
    if unknown is not None and unknown in ids:
        raise ConfigError(
            f"model {policy.name!r} does not know all words of {env.name!r} ({observation!r} has unknown tokens); a "
            "model that was trained on this view is expected; change env options or give another model"
        )
