"""Two processes make the run that one makes."""

import os
import subprocess
import sys

import pytest
import torch

from tether.policies import load_policy
from tether.runs import RunFolder
from tether.training import dump_config, parse_config, train

SCRIPT = """
import sys
from pathlib import Path
from tether.training import load_config, train

train(load_config(Path(sys.argv[1])))
"""


def make_config(folder, name):
    """Nothing divides evenly: 5 groups, odd minibatches, one validation state, so that a process has none to play."""
    return parse_config(
        {
            "name": name,
            "runs_dir": str(folder),
            "env": {"name": "identity", "words": ["apple", "bread", "cloud", "dance"]},
            "steps": 3,
            "prompts": 5,
            "group_size": 7,
            "loss": {"kl_coef": 0.05},
            "optim": {"lr": 1e-4, "minibatches": 2, "min_minibatch": 3, "micro_batch": 4},
            "generate": {"max_reply_tokens": 10},
            "eval": {"every": 2, "prompts": 1, "samples": 4},
            "monitor": {"every": 1, "max_reasonings": 16},
        }
    )


def weights(run):
    return load_policy(run.checkpoints()[-1] / "model").model.state_dict()


def test_two_processes_make_the_run_that_one_makes(tmp_path, identity_model):
    one = train(make_config(tmp_path, "one"))
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "config.yaml").write_text(dump_config(make_config(tmp_path, "two")))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "script.py", "config.yaml"]
    done = subprocess.run(
        [sys.executable, *launch],
        cwd=tmp_path,
        env={**os.environ, "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    two = RunFolder.open(tmp_path / "two")

    start, first, second = load_policy(identity_model).model.state_dict(), weights(one), weights(two)
    assert max(float((first[name] - value).abs().max()) for name, value in start.items()) > 1e-4
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=0, atol=1e-5)
    lines, others = one.read_metrics().rows, two.read_metrics().rows
    assert sum(line.get("num_updates", 0) for line in lines) >= 4
    assert len(lines) == len(others) == 4
    for line, other in zip(lines, others, strict=True):
        assert list(other) == list(line)
        numbers = {name: value for name, value in line.items() if isinstance(value, float)}
        for name, value in numbers.items():
            rounding = 1e-4 if "zscore" in name else 1e-5  # a z-score divides by a small spread
            assert other[name] == pytest.approx(value, rel=1e-4, abs=rounding), name
        assert all(other[name] == value for name, value in line.items() if name not in numbers)
