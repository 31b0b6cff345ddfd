"""From a configuration to the parts of a run, checked before anything runs."""

import pytest
import torch

from tether.chat import COMPACT, FULL, PLAIN
from tether.envs import FrozenLake
from tether.errors import ConfigError, ModelError
from tether.policies import load_policy
from tether.training import parse_config
from tether.training.config import EvalConfig
from tether.training.evaluate import evaluate, evaluation_tasks
from tether.training.setup import environment_makers, make_agent, prepare
from tether.training.summary import evaluation_metrics

CPU = torch.device("cpu")


def setup(**tree):
    return prepare(parse_config({"env": "identity", "generate": {"max_reply_tokens": 10}, **tree}), device=CPU)


def test_training_and_validation_states_come_from_their_own_split():
    train, validation = environment_makers(parse_config({"env": {"name": "frozen_lake", "size": 5}}))
    assert (train().split, validation().split, train().size, validation().size) == ("train", "validation", 5, 5)
    assert train() is not train()


def test_validation_has_no_dead_states():
    train, validation = environment_makers(parse_config({"env": {"dead_share": 0.9}}))
    assert (train().dead_share, validation().dead_share) == (0.9, 0.0)


SPLITLESS = """
class Fixed:
    name, instructions, max_turns, actions_per_turn, example_action = "fixed", "", 1, 1, "a"
"""


def test_an_environment_without_a_split_is_refused(tmp_path, monkeypatch):
    (tmp_path / "splitless.py").write_text(SPLITLESS)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="'splitless:Fixed' has no option 'split'; expected split='train'"):
        environment_makers(parse_config({"env": "splitless:Fixed"}))


def test_the_split_is_not_an_option_of_the_user():
    with pytest.raises(ConfigError, match="env.split: .*; remove the option"):
        environment_makers(parse_config({"env": {"name": "identity", "split": "validation"}}))


def test_bad_options_of_the_environment_are_found_before_the_model_is_loaded():
    with pytest.raises(ConfigError, match="holes is 99"):
        prepare(parse_config({"env": {"holes": 99}, "model": "nowhere"}), device=CPU)


def test_the_reference_is_the_start_and_only_there_with_a_kl_term(identity_model):
    assert setup().reference is None
    parts = setup(loss={"kl_coef": 0.1})
    assert parts.reference.causal_lm is not parts.policy.causal_lm
    start = load_policy(identity_model).model.state_dict()
    for policy in (parts.policy, parts.reference):
        assert all(torch.equal(value, start[name]) for name, value in policy.model.state_dict().items())
    with pytest.raises(ModelError, match="'nowhere' does not exist"):
        setup(loss={"kl_coef": 0.1}, reference="nowhere")


@pytest.mark.parametrize(("style", "expected"), [("auto", COMPACT), ("compact", COMPACT), ("full", FULL)])
def test_the_wording_follows_the_model_unless_it_is_given(identity_model, style, expected):
    config = parse_config({"env": {"name": "identity", "prompt_style": style, "format_penalty": 0.3}})
    agent = make_agent(config, load_policy(identity_model))
    assert (agent.template, agent.turn_style, agent.format_penalty) == (PLAIN, expected, 0.3)


def test_a_model_with_a_chat_template_is_spoken_to_in_it(identity_model):
    policy = load_policy(identity_model)
    policy.tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    policy.tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    agent = make_agent(parse_config({"env": "identity"}), policy)
    assert agent.turn_style == FULL
    assert agent.template.end_of_turn == "<|im_end|>"


def test_evaluation_plays_the_same_unseen_states_with_its_own_temperature(lake_model):
    config = EvalConfig(prompts=6, samples=3, temperature=0.0)
    assert len(evaluation_tasks(config)) == 18
    assert [task.group_id for task in evaluation_tasks(config, lambda prompt: prompt == 2)] == ["eval-0002"] * 3
    policy = load_policy(lake_model)
    parts = parse_config({"generate": {"max_reply_tokens": 16}, "model": str(lake_model)})
    agent, make_env = make_agent(parts, policy), environment_makers(parts)[1]
    first, second = (evaluate(policy, make_env, agent, config, seed=0, step=step) for step in (3, 8))
    assert [episode.turns for episode in first] == [episode.turns for episode in second]
    assert {episode.step for episode in second} == {8}
    assert {turn.temperature for episode in first for turn in episode.turns} == {0.0}
    for episode in first:
        env = FrozenLake(split="validation")
        shown, _ = env.reset(episode.seed)
        assert policy.tokenizer.decode(episode.turns[0].prompt_ids[1:-1]) == shown
    greedy = {}  # greedy replies to one state are equal
    for episode in first:
        assert greedy.setdefault(episode.group_id, episode.turns) == episode.turns


def test_success_on_unseen_states_has_an_interval_over_states(lake_model):
    config = EvalConfig(prompts=6, samples=3)
    policy = load_policy(lake_model)
    parts = parse_config({"generate": {"max_reply_tokens": 16}, "model": str(lake_model)})
    agent, make_env = make_agent(parts, policy), environment_makers(parts)[1]
    episodes = evaluate(policy, make_env, agent, config, seed=0, step=3)
    assert len({episode.episode_id for episode in episodes}) == 18
    assert len({episode.turns[0].sampled_ids for episode in episodes if episode.group_id == "eval-0000"}) > 1
    line = evaluation_metrics(episodes, 3, 0.95)
    assert line["eval/success"] == pytest.approx(sum(bool(e.success) for e in episodes) / 18)
    assert line["eval/success/low"] <= line["eval/success"] <= line["eval/success/high"]
    assert line["eval/turns_mean"] == sum(len(e.turns) for e in episodes) / 18
