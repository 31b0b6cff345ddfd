"""Which tokens train: exactly the sampled ones, each once, in the context in which it was sampled."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tether.agents import Agent, Task, play
from tether.chat import COMPACT, PLAIN, THINK_FORCED, ChatTemplate
from tether.envs import FrozenLake
from tether.errors import RecordError
from tether.policies import build_tiny, load_policy
from tether.records import Episode, Turn
from tether.training.batch import Sample, collate, samples_of, split_minibatches
from tether.training.tiny.words import vocabulary

IDS = st.integers(0, 5)  # few, so that a rewritten history often begins like the old one


@st.composite
def episodes(draw):
    """Turns whose contexts go on from the turn before, or are rewritten: a window, dropped thoughts, a summary."""
    turns: list[Turn] = []
    for _ in range(draw(st.integers(0, 5))):
        held = (*turns[-1].prompt_ids, *turns[-1].sampled_ids) if turns else ()
        new = tuple(draw(st.lists(IDS, min_size=0 if held else 1, max_size=3)))
        rewritten = tuple(draw(st.lists(IDS, min_size=1, max_size=6)))
        prompt = draw(st.sampled_from([(*held, *new), (*held, *new), rewritten, (held[:1] or (0,)) + new]))
        sampled = tuple(draw(st.lists(IDS, min_size=1, max_size=4)))
        logprobs = tuple(-float(draw(st.integers(0, 50))) / 10 for _ in sampled)
        turns.append(Turn(prompt_ids=prompt, sampled_ids=sampled, logprobs=logprobs))
    return Episode("e", turns=tuple(turns))


def sampled_tokens(episode):
    """(context, token, behaviour log-probability) of every sampled token, from the records."""
    return [
        ((*turn.prompt_ids, *turn.sampled_ids[:i]), turn.sampled_ids[i], turn.logprobs[i])
        for turn in episode.turns
        for i in range(len(turn.sampled_ids))
    ]


def trained_tokens(samples):
    """The same of every token that carries a loss, from the samples."""
    return [
        (sample.ids[:t], sample.ids[t], sample.old_logprobs[t])
        for sample in samples
        for t, is_target in enumerate(sample.sampled)
        if is_target
    ]


@given(episodes())
def test_every_sampled_token_trains_once_in_its_own_context_and_nothing_else_trains(episode):
    samples = samples_of(episode, row=7)
    assert trained_tokens(samples) == sampled_tokens(episode)
    assert sum(sample.num_targets for sample in samples) == episode.num_sampled_tokens
    for sample in samples:
        assert sample.episode == 7
        assert len(sample.ids) == len(sample.sampled) == len(sample.old_logprobs)
        assert not sample.sampled[0]
        assert [math.isnan(x) for x in sample.old_logprobs] == [not is_target for is_target in sample.sampled]


@given(episodes())
def test_an_episode_is_as_few_samples_as_its_history_was_rewritten(episode):
    pairs = pairwise(episode.turns)
    rewrites = sum(b.prompt_ids[: len(held := a.prompt_ids + a.sampled_ids)] != held for a, b in pairs)
    assert len(samples_of(episode, 0)) == (1 + rewrites if episode.turns else 0)


CHAT = ChatTemplate(
    "chat",
    user=("user ", " "),
    assistant=("assistant ", " </answer> "),
    end_of_turn="</answer>",
    drops_earlier_reasoning=True,
)
AGENT = Agent(PLAIN, THINK_FORCED, COMPACT, max_reply_tokens=12)


@pytest.mark.parametrize(
    ("agent", "max_positions", "num_samples"),
    [(AGENT, 192, "one"), (replace(AGENT, template=CHAT), 192, "several"), (AGENT, 64, "several")],
    ids=["plain", "dropped thoughts", "dropped turns"],
)
def test_the_rule_holds_for_episodes_that_were_played(lake_model, agent, max_positions, num_samples):
    short = build_tiny(vocabulary(), width=16, heads=2, max_positions=max_positions, seed=0)
    policy = load_policy(lake_model) if max_positions == 192 else short
    tasks = [Task(f"{group}", group, (group, member)) for group in range(4) for member in range(2)]
    counts = []
    for row, episode in enumerate(play(policy, FrozenLake, tasks, agent, seed=0)):
        samples = samples_of(episode, row)
        assert trained_tokens(samples) == sampled_tokens(episode)
        counts.append(len(samples))
    assert max(counts) == 1 if num_samples == "one" else max(counts) > 1


@pytest.mark.parametrize("missing", ["prompt_ids", "logprobs"])
def test_a_turn_without_what_training_needs_names_its_episode(missing):
    turn = replace(Turn(prompt_ids=(1,), sampled_ids=(2,), logprobs=(-1.0,)), **{missing: None})
    with pytest.raises(RecordError, match="episode lost: a turn without token ids or behaviour log-probabilities"):
        samples_of(Episode("lost", turns=(turn,)), 0)


def test_an_episode_without_turns_has_no_samples():
    assert samples_of(Episode("e", turns=None), 0) == []


def test_collate_pads_on_the_right_and_marks_what_is_unknown_as_nan():
    short = Sample((5, 6), (False, True), (math.nan, -1.0), 0)
    long = Sample((5, 7, 8, 9), (False, True, False, True), (math.nan, -2.0, math.nan, -3.0), 1)
    batch = collate([short, long], [0.5, -0.5], pad_id=1)
    assert batch.ids_BT.tolist() == [[5, 6, 1, 1], [5, 7, 8, 9]]
    assert batch.mask_BT.tolist() == [[False, True, False, False], [False, True, False, True]]
    assert torch.equal(batch.old_logprobs_BT.isnan(), ~batch.mask_BT)
    assert batch.old_logprobs_BT[batch.mask_BT].tolist() == [-1.0, -2.0, -3.0]
    assert batch.advantages_B.tolist() == [0.5, -0.5]
    dtypes = [getattr(batch, name).dtype for name in ("ids_BT", "mask_BT", "old_logprobs_BT", "advantages_B")]
    assert dtypes == [torch.int64, torch.bool, torch.float32, torch.float32]


@given(st.permutations(range(9)).map(list), st.integers(0, 9), st.integers(1, 12), st.integers(1, 12))
def test_minibatches_deal_every_row_once_and_evenly(order, size, at_most, at_least_rows):
    rows = order[:size]
    dealt = split_minibatches(rows, at_most=at_most, at_least_rows=at_least_rows)
    assert sorted(row for minibatch in dealt for row in minibatch) == sorted(rows)
    sizes = [len(minibatch) for minibatch in dealt]
    assert len(sizes) <= at_most
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert len(sizes) <= 1 or min(sizes) >= at_least_rows
    assert bool(sizes) == bool(rows)
