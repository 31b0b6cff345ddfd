"""Checkpoints: what is saved comes back exactly, and only whole ones count."""

import json

import pytest
import torch
from accelerate import Accelerator

from tether.errors import RunFolderError
from tether.policies import build_tiny, load_policy
from tether.randomness import keyed_rng
from tether.training.batch import Sample
from tether.training.checkpoint import load_checkpoint, prune_checkpoints, save_checkpoint
from tether.training.config import LossConfig, OptimConfig
from tether.training.learner import Learner

NAN = float("nan")
SAMPLES = [
    Sample((3, 4, 5, 6), (False, True, True, False), (NAN, -1.0, -2.0, NAN), 0),
    Sample((4, 3, 3), (False, False, True), (NAN, NAN, -0.5), 1),
]


def make_learner(policy):
    settings = OptimConfig(lr=0.01, warmup_steps=3, min_minibatch=1)
    return Learner(policy, None, Accelerator(), loss=LossConfig(), optim=settings, temperature=1.0)


def update(learner, step):
    learner.update(SAMPLES, [1.0, -1.0], loss_scale=1.0, regulariser_weight=1.0, rng=keyed_rng(0, "minibatches", step))


def same(first, second):
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(value, second[key]) for key, value in first.items())
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


@pytest.fixture
def learner():
    return make_learner(build_tiny(["a", "b", "c", "d"], width=8, heads=2, max_positions=8, seed=0))


@pytest.mark.parametrize("num_updates", [0, 2])
def test_weights_optimiser_and_state_come_back_exactly(tmp_path, learner, num_updates):
    for step in range(num_updates):
        update(learner, step)
    path = tmp_path / "step=000002"
    state = {"step": 2, "monitor": {"lines": [{"x": 1.5, "y": None, "z": NAN}]}, "config": {"name": "é"}}
    save_checkpoint(path, learner.policy, learner.state_dict(), state)
    restored, read = load_checkpoint(path)
    assert same(restored, learner.state_dict())
    assert (read["step"], read["config"]) == (2, state["config"])
    assert read["monitor"]["lines"][0].items() >= {"x": 1.5, "y": None}.items()
    loaded = load_policy(path / "model")
    assert same(dict(loaded.model.state_dict()), dict(learner.policy.model.state_dict()))

    other = make_learner(loaded)
    other.load_state_dict(restored)
    update(learner, 7)
    update(other, 7)
    assert same(dict(loaded.model.state_dict()), dict(learner.policy.model.state_dict()))


def test_nothing_in_a_checkpoint_is_pickled(tmp_path, learner):
    update(learner, 0)
    save_checkpoint(tmp_path / "step=000001", learner.policy, learner.state_dict(), {"step": 1})
    files = [path for path in (tmp_path / "step=000001").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".safetensors"}


def test_saving_again_replaces_the_checkpoint_and_leaves_nothing_beside_it(tmp_path, learner):
    path = tmp_path / "step=000001"
    for mark in (1, 2):
        save_checkpoint(path, learner.policy, learner.state_dict(), {"step": mark})
    assert load_checkpoint(path)[1]["step"] == 2
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_what_a_killed_writer_left_behind_is_no_checkpoint_and_does_not_disturb(tmp_path, learner):
    left = tmp_path / ".step=000001.writing"
    (left / "model").mkdir(parents=True)
    save_checkpoint(tmp_path / "step=000001", learner.policy, learner.state_dict(), {"step": 1})
    assert not left.exists()


@pytest.mark.parametrize("spoil", ["missing", "torn state", "torn tensors"])
def test_a_checkpoint_that_is_not_whole_is_named(tmp_path, learner, spoil):
    path = tmp_path / "step=000001"
    save_checkpoint(path, learner.policy, learner.state_dict(), {"step": 1})
    if spoil == "missing":
        (path / "optimizer.safetensors").unlink()
    elif spoil == "torn state":
        (path / "state.json").write_text(json.dumps({"step": 1})[:-1])
    else:
        (path / "optimizer.safetensors").write_bytes(b"\x10")
    with pytest.raises(RunFolderError, match="step=000001 is not a whole checkpoint.*remove the folder"):
        load_checkpoint(path)


def test_the_newest_checkpoints_stay(tmp_path):
    paths = [tmp_path / f"step={step:06d}" for step in (1, 2, 3)]
    for path in paths:
        path.mkdir()
    prune_checkpoints(paths, keep=5)
    prune_checkpoints(paths, keep=2)
    assert sorted(tmp_path.iterdir()) == paths[1:]
