"""The turn loop: its records are what was sampled, token by token, whatever the batch."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from tether.agents import Agent, Task, make_builder, play, render_state
from tether.chat import COMPACT, FULL, PLAIN, THINK_FORCED, ChatTemplate
from tether.envs import FrozenLake
from tether.errors import ConfigError, ContextLengthError
from tether.policies import build_tiny, load_policy
from tether.randomness import keyed_seed
from tether.training.tiny.words import vocabulary

AGENT = Agent(PLAIN, THINK_FORCED, COMPACT, max_reply_tokens=16, format_penalty=0.25)
CHAT = ChatTemplate("chat", user=("user ", " "), assistant=("assistant ", " </answer> "), end_of_turn="</answer>")
AGENTS = {
    "plain": AGENT,
    "cooler": replace(AGENT, temperature=0.7),
    "chat": replace(AGENT, template=CHAT),
    "chat_drops_thoughts": replace(AGENT, template=replace(CHAT, drops_earlier_reasoning=True)),
    "short_replies": replace(AGENT, max_reply_tokens=11),
}
SEED = 3


def make_tasks(groups=8, members=4):
    return [
        Task(f"group-{group}", keyed_seed(0, "state", group), ("train", 1, group, member))
        for group in range(groups)
        for member in range(members)
    ]


def turns_of(episodes):
    return [turn for episode in episodes for turn in episode.turns]


@pytest.fixture(scope="module")
def policy(lake_model):
    return load_policy(lake_model)


@pytest.fixture(scope="module")
def episodes(policy):
    return play(policy, FrozenLake, make_tasks(), AGENT, seed=SEED, step=7, version=6)


@torch.no_grad()
def teacher_forced(policy, turn):
    """The log-probabilities of a reply from one plain forward pass over one row: no cache, no padding, no masks."""
    ids = torch.tensor([[*turn.prompt_ids, *turn.sampled_ids]])
    logits_TV = policy.causal_lm(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0].double()
    logprobs_TV = (logits_TV / turn.temperature).log_softmax(-1)
    start = len(turn.prompt_ids) - 1
    return [logprobs_TV[start + i, token].item() for i, token in enumerate(turn.sampled_ids)]


def assert_sampler_equals_teacher(policy, episodes):
    later = [turn for episode in episodes for turn in episode.turns[1:]]
    assert later
    for turn in turns_of(episodes):
        np.testing.assert_allclose(turn.logprobs, teacher_forced(policy, turn), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", AGENTS)
def test_stored_logprobs_of_later_turns_equal_a_teacher_forced_pass(policy, name):
    episodes = play(policy, FrozenLake, make_tasks(), AGENTS[name], seed=SEED)
    # The batch is ragged and partly finished at every turn: only then do cache and mask errors show.
    assert len({len(episode.turns) for episode in episodes}) >= 3
    assert len({len(turn.sampled_ids) for turn in turns_of(episodes)}) >= 3
    assert_sampler_equals_teacher(policy, episodes)


def test_stored_logprobs_are_right_when_long_histories_lose_whole_turns():
    policy = build_tiny(vocabulary(), width=32, heads=2, max_positions=64, seed=2)
    episodes = play(policy, FrozenLake, make_tasks(4, 2), AGENT, seed=SEED)
    prompts = [[turn.prompt_ids for turn in episode.turns] for episode in episodes]
    assert any(later[: len(before)] != before for row in prompts for before, later in pairwise(row))
    assert all(len(turn.prompt_ids) + AGENT.max_reply_tokens <= 64 for turn in turns_of(episodes))
    assert_sampler_equals_teacher(policy, episodes)


def test_thoughts_that_the_template_drops_are_not_in_later_contexts(policy):
    episodes = play(policy, FrozenLake, make_tasks(), AGENTS["chat_drops_thoughts"], seed=SEED)
    encode = policy.tokenizer.encode
    pairs = [(a, b) for e in episodes for a, b in pairwise(e.turns) if a.reasoning is not None]
    assert pairs
    for before, after in pairs:
        answer = before.sampled_ids[before.reasoning.stop + 1 :]
        end = "" if before.finish == "stop" else "</answer>"
        rest = encode(f"{end} user {before.observation} assistant <think>", add_special_tokens=False)
        assert after.prompt_ids == (*before.prompt_ids[:-1], *answer, *rest)


@pytest.mark.parametrize("name", ["plain", "chat_drops_thoughts"])
def test_samples_depend_neither_on_batch_order_nor_on_the_other_episodes(policy, name):
    tasks = make_tasks()
    together = {e.episode_id: e for e in play(policy, FrozenLake, tasks, AGENTS[name], seed=SEED)}
    shuffled = [tasks[i] for i in np.random.default_rng(0).permutation(len(tasks))]
    batches = [shuffled, tasks[::5], *([task] for task in tasks[:3])]
    for batch in batches:
        for episode in play(policy, FrozenLake, batch, AGENTS[name], seed=SEED):
            expected = together[episode.episode_id]
            assert [t.sampled_ids for t in episode.turns] == [t.sampled_ids for t in expected.turns]
            assert episode.reward == expected.reward
            for turn, other in zip(episode.turns, expected.turns, strict=True):
                np.testing.assert_allclose(turn.logprobs, other.logprobs, rtol=0, atol=1e-5)


def test_every_turn_of_every_episode_has_random_numbers_of_its_own(lake_model):
    """With equal logits a reply is the random numbers themselves."""
    uniform = load_policy(lake_model)
    with torch.no_grad():
        uniform.causal_lm.get_output_embeddings().weight.zero_()
    turns = turns_of(play(uniform, FrozenLake, make_tasks(3, 3), AGENT, seed=SEED))
    assert len(turns) >= 9 * 2
    assert len({turn.sampled_ids[:4] for turn in turns}) == len(turns)


def test_playing_leaves_the_global_generators_alone(policy):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    play(policy, FrozenLake, make_tasks(2, 2), AGENT, seed=SEED)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)


def test_members_of_a_group_share_the_prompt_and_differ_in_their_replies(episodes):
    prompts = {episode.group_id: episode.initial_prompt_ids for episode in episodes}
    assert all(episode.initial_prompt_ids == prompts[episode.group_id] for episode in episodes)
    assert len(set(prompts.values())) == len(prompts) == 8
    for group in prompts:
        replies = [episode.turns[0].sampled_ids for episode in episodes if episode.group_id == group]
        assert len(set(replies)) > 1


def test_another_seed_gives_other_replies_to_the_same_states(policy, episodes):
    others = play(policy, FrozenLake, make_tasks(), AGENT, seed=SEED + 1)
    assert [e.initial_prompt_ids for e in others] == [e.initial_prompt_ids for e in episodes]
    assert [e.turns[0].sampled_ids for e in others] != [e.turns[0].sampled_ids for e in episodes]


def test_a_reply_that_is_cut_is_marked_and_gains_no_token(policy):
    agent = AGENTS["short_replies"]
    episodes = play(policy, FrozenLake, make_tasks(), agent, seed=SEED)
    stop_ids = make_builder(policy, agent, FrozenLake()).stop_ids
    opening = policy.tokenizer.convert_tokens_to_ids("<think>")
    cut = [turn for turn in turns_of(episodes) if turn.finish == "length"]
    assert 0 < len(cut) < len(turns_of(episodes))
    for turn in cut:
        assert len(turn.sampled_ids) == agent.max_reply_tokens
        assert not stop_ids & set(turn.sampled_ids)
        assert turn.action is None
    for episode in episodes:
        for before, after in pairwise(episode.turns):
            shown = policy.tokenizer.encode(before.observation, add_special_tokens=False)
            assert after.prompt_ids == (*before.prompt_ids, *before.sampled_ids, *shown, opening)


def test_a_whole_reply_ends_with_a_sampled_stop_token(policy, episodes):
    stop_ids = make_builder(policy, AGENT, FrozenLake()).stop_ids
    ended = [turn for turn in turns_of(episodes) if turn.finish == "stop"]
    assert ended
    assert all(turn.sampled_ids[-1] in stop_ids and not stop_ids & set(turn.sampled_ids[:-1]) for turn in ended)


def test_the_format_penalty_is_kept_apart_from_the_outcome(policy, episodes):
    broken = [sum(turn.action is None for turn in episode.turns) for episode in episodes]
    assert any(broken)
    for episode, count in zip(episodes, broken, strict=True):
        outcome = float(episode.success)
        assert episode.components == {"outcome": (outcome, 1.0), "format": (-0.25 * count, 1.0)}
        assert episode.reward == outcome - 0.25 * count
        assert sum(turn.reward for turn in episode.turns) == episode.reward
    free = play(policy, FrozenLake, make_tasks(), replace(AGENT, format_penalty=0.0), seed=SEED)
    assert [e.reward for e in free] == [e.components["outcome"][0] for e in episodes]


def test_a_reply_without_a_valid_answer_reaches_the_environment_as_no_action(episodes):
    """Even where an answer block can be read: an agent that skips its thought does not act."""
    for episode in episodes:
        state = FrozenLake()
        shown, _ = state.reset(episode.seed)
        for turn in episode.turns:
            if turn.action is None:
                assert turn.observation == shown
            shown = turn.observation


def test_records_say_what_happened(policy, episodes):
    for episode, task in zip(episodes, make_tasks(), strict=True):
        assert (episode.group_id, episode.seed, episode.step) == (task.group_id, task.state_seed, 7)
        assert (episode.env, episode.filter_state, episode.info["dead"]) == ("frozen_lake", "pre", False)
        assert episode.terminated != episode.truncated
        assert {turn.policy_version for turn in episode.turns} == {(6, 6)}
        assert {(turn.temperature, turn.logprob_mode) for turn in episode.turns} == {(1.0, "raw")}
    assert len({episode.episode_id for episode in episodes}) == len(episodes)
    for turn in turns_of(episodes):
        if turn.reasoning is not None:
            assert turn.reasoning_text == policy.tokenizer.decode(turn.reasoning_ids)


def test_replaying_the_recorded_actions_gives_the_recorded_episode(episodes):
    for episode in episodes:
        env = FrozenLake()
        env.reset(episode.seed)
        for turn in episode.turns:
            observation, reward, terminated, truncated, _ = env.step(turn.action or "")
            penalty = 0.25 if turn.action is None else 0.0
            assert (turn.observation, turn.reward) == (observation, reward - penalty)
        assert (episode.terminated, episode.truncated) == (terminated, truncated)


def test_dynamics_are_keyed_by_the_episode_and_not_by_the_state(policy):
    """On slippery ice equal replies to one state lead to different places, the same ones in every batch."""

    def make_env():
        return FrozenLake(success_rate=0.4)

    def outcomes(tasks):
        greedy = replace(AGENT, temperature=0.0)
        return {
            e.episode_id: [t.observation for t in e.turns] for e in play(policy, make_env, tasks, greedy, seed=SEED)
        }

    tasks = make_tasks(2, 8)
    together, alone = outcomes(tasks), outcomes(tasks[3:4])
    assert len({seen[0] for seen in list(together.values())[:8]}) > 1
    assert alone.items() <= together.items()


def test_nothing_to_play_is_no_episodes(policy):
    assert play(policy, FrozenLake, [], AGENT, seed=SEED) == []


def test_a_state_that_cannot_fit_is_refused(policy):
    with pytest.raises(ConfigError, match="reply budget"):
        play(policy, FrozenLake, make_tasks(1, 2), replace(AGENT, max_reply_tokens=192), seed=SEED)
    with pytest.raises(ContextLengthError, match=r"the state alone is a prompt of \d+ tokens"):
        play(policy, FrozenLake, make_tasks(1, 2), replace(AGENT, max_reply_tokens=190), seed=SEED)


def test_the_full_wording_counts_the_actions_that_are_left_and_shows_the_reward_of_the_environment():
    agent = replace(AGENT, turn_style=FULL)
    text = render_state(agent, FrozenLake(), "P 0 0", turns_played=2, last_reward=0.0)
    assert text.startswith("Reward:\n0\n\nTurn 3:\nState:\nP 0 0\n\nYou have 6 actions left, of which this turn takes")
    assert "at most 16 tokens" in text
