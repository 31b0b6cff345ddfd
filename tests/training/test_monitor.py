"""The monitor: what it measures in a run, what that costs, and what it says of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from tether.agents import Agent, Task, play
from tether.chat import COMPACT, PLAIN, THINK_FORCED
from tether.envs import FrozenLake
from tether.policies import load_policy
from tether.results import Estimate
from tether.runs import RunFolder
from tether.scoring import CrossScores
from tether.training.config import MonitorConfig
from tether.training.monitor import HEADLINE, Monitor

AGENT = Agent(PLAIN, THINK_FORCED, COMPACT, max_reply_tokens=16)
CONFIG = MonitorConfig(max_contexts=12, max_reasonings=16, eval_contexts=10, eval_reasonings=14)
ROWS = {"first_turn": 16, "later_turns": 12}  # a later context belongs to one episode: as many rows as contexts
ROWS_ON_EVAL = {"first_turn": 14, "later_turns": 10}


@pytest.fixture(scope="module")
def policy(lake_model):
    return load_policy(lake_model)


@pytest.fixture(scope="module")
def episodes(policy):
    tasks = [Task(f"{group}", group, (group, member)) for group in range(12) for member in range(4)]
    return play(policy, FrozenLake, tasks, AGENT, seed=0)


@pytest.fixture
def monitor(tmp_path):
    return Monitor(RunFolder.create(tmp_path, "run"), CONFIG, seed=0)


def test_both_scopes_are_measured_within_the_budget(monitor, policy, episodes):
    found = monitor.measure(policy, episodes, 5, "train")
    assert list(found.scopes) == list(ROWS)
    num_tokens = 0
    for scope, num_rows in ROWS.items():
        scores = CrossScores.load(monitor.run.scores_path(5, f"train.{scope}"))
        assert scores.logprob_MN.shape == (num_rows, 12)
        assert found.scopes[scope]["mi_sequence"].status == "ok"
        closing = 0 if scores.closing_MN is None else len(scores.num_tokens_M)
        num_tokens += (int(scores.num_tokens_M.sum()) + closing) * 12
    # The rest of the cost is each context once.
    assert num_tokens < found.token_forwards < num_tokens + 2 * 12 * policy.max_context
    assert found.seconds > 0


def test_the_scorer_is_the_sampler(monitor, policy, episodes):
    """The matched score of a reasoning is the log-probability with which it was sampled, on later turns as well."""
    monitor.measure(policy, episodes, 1, "train")
    for scope in ROWS:
        scores = CrossScores.load(monitor.run.scores_path(1, f"train.{scope}"))
        matched_M = scores.logprob_MN[np.arange(len(scores.own_M)), scores.own_M]
        np.testing.assert_allclose(matched_M, scores.behaviour_logprob_M, rtol=0, atol=1e-4)


def test_a_uniform_policy_has_no_information_about_its_input(monitor, lake_model):
    """With every logit 0 the reasoning cannot depend on anything: 0 within the interval, and chance retrieval."""
    uniform = load_policy(lake_model)
    with torch.no_grad():
        uniform.causal_lm.get_output_embeddings().weight.zero_()
    tasks = [Task(f"{group}", group, (group, member)) for group in range(24) for member in range(8)]
    episodes = play(uniform, FrozenLake, tasks, AGENT, seed=0)
    found = monitor.measure(uniform, episodes, 1, "train").scopes["first_turn"]
    assert found["mi_sequence"].value == pytest.approx(0.0, abs=1e-4)
    assert found["mi_sequence"].low <= 1e-5
    assert found["mi_sequence"].high >= -1e-5
    assert found["retrieval_accuracy"].value == pytest.approx(found["retrieval_accuracy"].chance)
    assert found["conditional_entropy"].value == pytest.approx(np.log(len(uniform.tokenizer)), rel=1e-3)


def test_another_temperature_is_not_the_sampler(monitor, policy):
    tasks = [Task(f"{group}", group, (group, member)) for group in range(12) for member in range(4)]
    episodes = play(policy, FrozenLake, tasks, replace(AGENT, temperature=0.7), seed=0)
    found = monitor.measure(policy, episodes, 1, "train").scopes["first_turn"]
    assert found["mi_sequence"].status == "critic_bound"


def test_the_spread_is_smoothed_over_measurements_of_one_grade(monitor, policy, episodes):
    tasks = [Task(f"{group}", group, (group, member)) for group in range(12) for member in range(4)]
    colder = play(policy, FrozenLake, tasks, replace(AGENT, temperature=0.7), seed=0)
    found = [
        monitor.measure(policy, played, step, "train").scopes["first_turn"]
        for step, played in enumerate((episodes, colder, episodes[::2]))
    ]
    assert [estimates["marginal_spread"].status for estimates in found] == ["ok", "critic_bound", "ok"]
    first, lower_bound, last = (estimates["marginal_spread"].value for estimates in found)
    smoothed = [estimates["marginal_spread_ema"].value for estimates in found]
    assert smoothed == pytest.approx([first, lower_bound, 0.9 * first + 0.1 * last])


def test_a_scope_without_reasoning_is_skipped_with_its_reason(monitor, policy):
    tasks = [Task("0", 0, (member,)) for member in range(4)]
    episodes = play(policy, lambda: FrozenLake(max_turns=1, actions_per_turn=8), tasks, AGENT, seed=0)
    found = monitor.measure(policy, episodes, 3, "train")
    line = found.metrics("train")
    assert line["train/later_turns/mi_sequence"] is None
    assert line["train/later_turns/mi_sequence/status"] == "skipped"
    assert "no reasoning to score" in found.scopes["later_turns"]["mi_sequence"].reason
    assert not monitor.run.scores_path(3, "train.later_turns").exists()


@pytest.mark.parametrize(("prefix", "rows"), [("train", ROWS), ("eval", ROWS_ON_EVAL)])
def test_the_columns_carry_value_interval_status_and_coverage(monitor, policy, episodes, prefix, rows):
    found = monitor.measure(policy, episodes, 1, prefix)
    line = found.metrics(prefix)
    for scope, num_rows in rows.items():
        for name in HEADLINE:
            estimate = found.scopes[scope][name]
            column = f"{prefix}/{scope}/{name}"
            assert line[column] == estimate.value
            assert (line[f"{column}/low"], line[f"{column}/high"]) == (estimate.low, estimate.high)
            assert line[f"{column}/status"] == estimate.status
        assert 0 < line[f"{prefix}/{scope}/valid_share"] <= 1
        assert line[f"{prefix}/{scope}/num_rows"] == num_rows
    assert line[f"{prefix}/token_forwards"] == found.token_forwards
    assert not any("second" in column for column in line)


@pytest.mark.parametrize(("every", "due"), [(0, []), (1, [1, 2, 3, 4, 5, 6]), (2, [1, 2, 4, 6]), (5, [1, 5])])
def test_the_first_step_and_every_k_th_are_due(tmp_path, every, due):
    monitor = Monitor(RunFolder.create(tmp_path, "run"), MonitorConfig(every=every), seed=0)
    assert [step for step in range(1, 7) if monitor.due(step)] == due


def collapsed(value, bound=4.0):
    return Estimate(
        "mi_sequence", value, "nats", low=value - 0.05, high=value + 0.05, num_prompts=64, bound=bound, chance=0.0
    )


def test_a_finding_is_told_once_at_the_step_whose_measurement_shows_it(monitor):
    told = {}
    for step, value in enumerate([2.0, 1.9, 0.02, 0.01, 1.5, 0.02]):
        monitor.history[step] = {"eval/first_turn": {"mi_sequence": collapsed(value)}}
        told[step] = [finding.id for finding in monitor.judge({"step": step})]
    assert [step for step, ids in told.items() if "template_collapse" in ids] == [2, 5]


def test_a_restored_monitor_judges_as_the_one_that_was_saved(tmp_path, policy, episodes):
    """Through JSON, as in a checkpoint: history, smoothed spreads, and what was told already."""
    monitor = Monitor(RunFolder.create(tmp_path, "one"), CONFIG, seed=0)
    other = Monitor(RunFolder.create(tmp_path, "two"), CONFIG, seed=0)
    for step in (1, 2):
        monitor.measure(policy, episodes[:: 3 - step], step, "train")
        monitor.judge({"step": step, "failed_share": 1.0, "solved_share": 0.0, "zero_variance_share": 1.0})
    other.load_state_dict(json.loads(json.dumps(monitor.state_dict())))
    for each in (monitor, other):
        each.measure(policy, episodes[::2], 3, "train")
    line = {"step": 3, "failed_share": 1.0, "solved_share": 0.0, "zero_variance_share": 1.0}
    assert monitor.judge(dict(line)) == other.judge(dict(line))
    assert json.dumps(other.state_dict()) == json.dumps(monitor.state_dict())
    assert monitor.spread_ema
