"""The loop: runs go on where they stopped, evaluation changes nothing, and policies learn."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from tether.errors import NonFiniteError, RunFolderError
from tether.policies import load_policy
from tether.records import Rollouts
from tether.runs import RunFolder
from tether.training import dump_config, parse_config, train
from tether.training.choose import choose_groups
from tether.training.loop import Trainer
from tether.training.setup import prepare

WORDS = ["apple", "bread", "cloud", "dance"]
SHORT = {
    "env": {"name": "identity", "words": WORDS},
    "steps": 5,
    "prompts": 8,
    "group_size": 8,
    "loss": {"kl_coef": 0.01},
    "optim": {"lr": 1e-3, "minibatches": 2, "min_minibatch": 2},
    "generate": {"max_reply_tokens": 10},
    "eval": {"every": 3, "prompts": 4, "samples": 2},
    "monitor": {"every": 2, "max_reasonings": 16},
    "checkpoint": {"every": 2, "rollouts_every": 2},
}


def make_config(folder, name, **changes):
    return parse_config({**SHORT, "runs_dir": str(folder), "name": name, **changes})


def logs(run):
    return {path.name: path.read_bytes() for path in (run.metrics_path, run.findings_path) if path.exists()}


def weights(run):
    return load_policy(run.checkpoints()[-1] / "model").model.state_dict()


def assert_same_run(run, other):
    assert logs(run) == logs(other)
    assert all(torch.equal(value, weights(other)[name]) for name, value in weights(run).items())
    for part in (None, "eval"):
        assert run.rollout_steps(part) == other.rollout_steps(part)
        for step in run.rollout_steps(part):
            first, second = (Rollouts.from_parquet(each.rollouts_path(step, part)) for each in (run, other))
            assert list(first.episodes) == list(second.episodes)


class StoppedError(Exception):
    """What a test raises to stop a run from the outside."""


def stop_when(reached):
    def on_step(line):
        if reached(line):
            raise StoppedError

    return on_step


@pytest.fixture(scope="module")
def whole(identity_model, tmp_path_factory):
    """A run that nothing interrupted."""
    return train(make_config(tmp_path_factory.mktemp("runs"), "whole"))


def test_a_run_writes_what_it_promises(whole):
    lines = whole.read_metrics().rows
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4, 5]
    assert [line["step"] for line in whole.read_timings().rows] == [0, 1, 2, 3, 4, 5]
    assert [line["step"] for line in lines if "eval/success" in line] == [0, 3, 5]
    assert [line["step"] for line in lines if "train/token_forwards" in line] == [1, 2, 4]
    assert all("eval/first_turn/mi_sequence" in line for line in lines if "eval/success" in line)
    assert not any("second" in key for line in lines for key in line)
    assert (whole.rollout_steps(), whole.rollout_steps("eval")) == ([1, 2, 4], [0, 3, 5])
    assert whole.score_steps("train.first_turn") == [1, 2, 4]
    played = list(Rollouts.from_parquet(whole.rollouts_path(4)).episodes)
    assert (len(played), {episode.step for episode in played}) == (64, {4})
    assert {turn.policy_version for episode in played for turn in episode.turns} == {(3, 3)}
    assert [path.name for path in whole.checkpoints()] == ["step=000004", "step=000005"]
    assert parse_config(whole.read_config()).name == "whole"
    assert set(whole.read_versions()) >= {"tether", "torch", "transformers", "python"}
    assert {line["eval/later_turns/mi_sequence/status"] for line in lines if "eval/success" in line} == {"skipped"}


def test_a_run_repeats_to_the_byte(whole, tmp_path):
    assert_same_run(train(make_config(tmp_path, "again")), whole)


def test_another_seed_is_another_run(whole, tmp_path):
    other = train(make_config(tmp_path, "other", seed=1, steps=1))
    assert other.read_metrics().rows[1]["entropy"] != whole.read_metrics().rows[1]["entropy"]


@pytest.mark.parametrize("step", [0, 1, 3, 4])
def test_a_stopped_run_resumes_to_the_lines_of_one_that_was_not(whole, tmp_path, step):
    """Before the first checkpoint, between two, and right behind one that was not written any more."""
    with pytest.raises(StoppedError):
        train(make_config(tmp_path, "stopped"), stop_when(lambda line: line["step"] == step))
    stopped = RunFolder.open(tmp_path / "stopped")
    assert stopped.read_metrics().rows[-1]["step"] == step
    with stopped.metrics_path.open("a") as file:
        file.write('{"step": 9, "suc')  # the torn line of a kill
    assert_same_run(train(make_config(tmp_path, "stopped", resume=True)), whole)


def test_a_killed_process_resumes_to_the_same_lines(whole, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(dump_config(make_config(tmp_path, "killed")))
    script = f"""
        import os, signal
        from pathlib import Path
        from tether.training import load_config, train

        def on_step(line):
            if line["step"] == 3:
                os.kill(os.getpid(), signal.SIGKILL)

        train(load_config(Path({str(config)!r})), on_step)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, check=False, env=os.environ)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert_same_run(train(make_config(tmp_path, "killed", resume=True)), whole)


def test_a_run_over_several_turns_resumes_to_the_same_lines(tmp_path, lake_model):
    changes = {
        "env": {"name": "frozen_lake", "success_rate": 0.8},
        "model": str(lake_model),
        "steps": 3,
        "prompts": 4,
        "group_size": 4,
        "generate": {"max_reply_tokens": 16},
        "monitor": {"every": 1, "max_reasonings": 16},
        "checkpoint": {"every": 1, "rollouts_every": 1},
        "select": {"strategy": "none"},
    }
    straight = train(make_config(tmp_path, "straight", **changes))
    assert straight.read_metrics().rows[-1]["train/later_turns/mi_sequence/status"] == "ok"
    with pytest.raises(StoppedError):
        train(make_config(tmp_path, "stopped", **changes), stop_when(lambda line: line["step"] == 2))
    assert_same_run(train(make_config(tmp_path, "stopped", resume=True, **changes)), straight)


def test_more_steps_continue_a_finished_run(whole, tmp_path):
    first = train(make_config(tmp_path, "longer", steps=3, eval={**SHORT["eval"], "every": 1}))
    before = first.read_metrics().rows
    longer = train(make_config(tmp_path, "longer", resume=True, eval={**SHORT["eval"], "every": 1}))
    lines = longer.read_metrics().rows
    assert lines[:4] == before
    assert [line["success"] for line in lines[1:]] == [line["success"] for line in whole.read_metrics().rows[1:]]
    assert train(make_config(tmp_path, "longer", resume=True, eval={**SHORT["eval"], "every": 1})).path == first.path
    assert longer.read_metrics().rows == lines


def test_a_run_is_not_resumed_with_other_settings(tmp_path, whole):
    changes = {"resume": True, "runs_dir": str(whole.path.parent), "optim": {**SHORT["optim"], "lr": 1e-4}}
    with pytest.raises(RunFolderError, match="was started with other settings for optim .*; the same settings"):
        train(make_config(tmp_path, "whole", **changes))


def test_only_a_started_run_is_resumed(tmp_path):
    with pytest.raises(RunFolderError, match="no such run folder"):
        train(make_config(tmp_path, "absent", resume=True))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_name_offers_to_resume_and_changes_nothing(whole):
    before = {path: path.stat().st_mtime_ns for path in whole.path.rglob("*")}
    with pytest.raises(RunFolderError, match=r"whole exists; .*resume=true"):
        train(make_config(whole.path.parent, "whole"))
    assert {path: path.stat().st_mtime_ns for path in whole.path.rglob("*")} == before


def test_two_runs_do_not_write_to_one_folder(tmp_path, identity_model):
    def second(line):
        train(make_config(tmp_path, "one", resume=True))

    with pytest.raises(RunFolderError, match="is being written by process"):
        train(make_config(tmp_path, "one"), second)


def test_runs_without_a_name_are_numbered(tmp_path, identity_model):
    names = [train(make_config(tmp_path, None, steps=0)).name for _ in range(2)]
    assert names == ["run-0001", "run-0002"]


def training_columns(run):
    return [
        {key: value for key, value in line.items() if not key.startswith(("eval/", "train/"))}
        for line in run.read_metrics().rows[1:]
    ]


def test_evaluation_and_monitor_do_not_change_training(whole, tmp_path):
    often = train(make_config(tmp_path, "often", eval={"every": 1, "prompts": 3, "samples": 1}, monitor={"every": 1}))
    never = train(make_config(tmp_path, "never", eval={**SHORT["eval"], "every": 0}, monitor={"every": 0}))
    assert training_columns(often) == training_columns(never) == training_columns(whole)
    assert [line["step"] for line in never.read_metrics().rows if "eval/success" in line] == [0, 5]
    assert never.score_steps("train.first_turn") == never.score_steps("eval.first_turn") == []


def test_an_iteration_that_keeps_nothing_is_valid_and_leaves_the_weights_alone(tmp_path, identity_model):
    """Replies of two tokens are never well-formed: every group fails, and no rule keeps a group."""
    changes = {"generate": {"max_reply_tokens": 2}, "steps": 2, "optim": {**SHORT["optim"], "weight_decay": 0.1}}
    run = train(make_config(tmp_path, "empty", **changes))
    for line in run.read_metrics().rows[1:]:
        assert (line["kept_groups"], line["rule_kept_share"]) == (0, 0.0)
        assert (line["num_updates"], line["trained_tokens"]) == (0, 0)
        assert (line["success"], line["failed_share"], line["valid_format_share"]) == (0.0, 1.0, 0.0)
        assert "grad_norm" not in line
    start = load_policy(identity_model).model.state_dict()
    assert all(torch.equal(value, start[name]) for name, value in weights(run).items())


def make_trainer(folder, **changes):
    config = make_config(folder, "direct", **changes)
    setup = prepare(config, device=torch.device("cpu"))
    return Trainer(config, RunFolder.create(folder, "direct"), setup, Accelerator())


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum"])
def test_a_dropped_group_has_no_gradient_whatever_its_tokens(tmp_path, identity_model, aggregation):
    """KL and entropy terms do not look at the reward: dropped rows must leave them too, and the denominators."""
    loss = {"kl_coef": 0.3, "entropy_coef": 0.1, "aggregation": aggregation}
    trainer = make_trainer(tmp_path, loss=loss, reference=str(identity_model), prompts=6, group_size=8)
    parameters = dict(trainer.policy.model.named_parameters())
    seen = []
    trainer.learner.optimizer.optimizer.register_step_pre_hook(
        lambda *_: seen.append({name: parameter.grad.clone() for name, parameter in parameters.items()})
    )
    trainer.learner.optim = trainer.config.optim.model_copy(update={"minibatches": 1})
    episodes = trainer.play_groups(1)
    choice = choose_groups(episodes, trainer.config.select, np.random.default_rng(0))
    assert 0 < choice.num_kept_groups < 6
    state = {name: value.clone() for name, value in trainer.policy.model.state_dict().items()}

    trainer.update(episodes, choice, step=1)
    trainer.policy.model.load_state_dict(state)
    kept = [episode for episode, keep in zip(episodes, choice.keep, strict=True) if keep]
    alone = choose_groups(kept, trainer.config.select.model_copy(update={"strategy": "none"}), np.random.default_rng(0))
    trainer.update(kept, alone, step=1)

    with_dropped, without = seen
    assert all(torch.equal(with_dropped[name], value) for name, value in without.items())
    assert any(value.any() for value in without.values())


@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_the_advantage_sees_the_format_penalty_and_the_filter_does_not(tmp_path, lake_model, penalty):
    """On dead states all outcomes are 0: where every group trains, the penalty alone can move the policy."""
    env = {"name": "frozen_lake", "dead_share": 1.0, "format_penalty": penalty}
    changes = {"model": str(lake_model), "loss": {"entropy_coef": 0.0}, "generate": {"max_reply_tokens": 16}}
    trainer = make_trainer(tmp_path, env=env, **changes)
    episodes = trainer.play_groups(1)
    assert not choose_groups(episodes, trainer.config.select, np.random.default_rng(0)).keep.any()
    everything = trainer.config.select.model_copy(update={"strategy": "none"})
    stats = trainer.update(episodes, choose_groups(episodes, everything, np.random.default_rng(0)), step=1)
    assert (stats.metrics()["grad_norm"] > 0) == (penalty > 0)


NAN_ENVIRONMENT = '''
from tether.envs import Identity

class Broken(Identity):
    """Pays NaN to one word."""

    name = "broken"

    def _execute(self, action):
        reward, done = super()._execute(action)
        return (float("nan") if action == self.words[0] else reward), done
'''


def test_a_reward_that_is_no_number_stops_the_run_and_names_the_group(tmp_path, identity_model, monkeypatch):
    (tmp_path / "broken_env.py").write_text(NAN_ENVIRONMENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = make_config(
        tmp_path / "runs",
        "broken",
        model=str(identity_model),
        env={"name": "broken_env:Broken"},
        prompts=16,
        eval={"every": 0, "prompts": 1, "samples": 1},
    )
    with pytest.raises(NonFiniteError, match=r"'000001-00\d\d'"):
        train(config)
    assert [line["step"] for line in RunFolder.open(tmp_path / "runs" / "broken").read_metrics().rows] == [0]


@pytest.mark.parametrize("strategy", ["none", "top_p"])
def test_a_policy_learns_the_identity_task_within_200_updates(tmp_path, identity_model, strategy):
    """From one of sixteen words at random to the one that it sees; the run stops as soon as it can."""
    config = parse_config(
        {
            "runs_dir": str(tmp_path),
            "name": "learns",
            "env": {"name": "identity", "words": WORDS[:2]},
            "steps": 100,
            "prompts": 16,
            "group_size": 8,
            "select": {"strategy": strategy},
            "loss": {"entropy_coef": 0.01},
            "optim": {"lr": 1e-3, "minibatches": 2},
            "generate": {"max_reply_tokens": 10},
            "eval": {"every": 20, "prompts": 64, "samples": 2},
            "monitor": {"every": 0},
            "checkpoint": {"every": 0, "rollouts_every": 0},
        }
    )
    with pytest.raises(StoppedError):
        train(config, stop_when(lambda line: line.get("eval/success", 0.0) > 0.9))
    lines = RunFolder.open(tmp_path / "learns").read_metrics().rows
    assert lines[0]["eval/success"] < 0.3
    assert sum(line["num_updates"] for line in lines[1:]) <= 200
