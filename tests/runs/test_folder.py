"""A run on disk: fresh names, whole files, one writer, and the way back into a run that was stopped."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tether.errors import InputError, RunFolderError
from tether.records import Episode, Rollouts
from tether.results import Finding
from tether.runs import RunFolder


@pytest.fixture
def run(tmp_path):
    run = RunFolder.create(tmp_path, "first")
    run.save_config({"seed": 0}, {"tether": "0.1.0"})
    return run


def test_a_run_without_a_name_takes_the_next_number_after_the_highest(tmp_path):
    assert RunFolder.create(tmp_path / "runs").name == "run-0001"
    assert RunFolder.create(tmp_path / "runs").name == "run-0002"
    (tmp_path / "runs" / "run-0040").touch()
    (tmp_path / "runs" / "run-0050-copy").touch()
    assert RunFolder.create(tmp_path / "runs").name == "run-0041"


def test_runs_that_start_at_one_moment_get_folders_of_their_own(tmp_path):
    names, start = [], threading.Barrier(8)

    def make():
        start.wait()
        names.append(RunFolder.create(tmp_path).name)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == [f"run-{number:04d}" for number in range(1, 9)]


def test_a_name_that_exists_is_refused_with_the_way_to_continue_it(tmp_path, run):
    with pytest.raises(RunFolderError, match=r"first exists already.*resume=true"):
        RunFolder.create(tmp_path, "first")
    assert run.read_config() == {"seed": 0}


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/tmp", "a\\b", "a\0b"])
def test_a_name_that_is_not_one_folder_name_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="run name"):
        RunFolder.create(tmp_path / "runs", name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["runs", "runs/deeper"])
def test_a_runs_dir_that_is_a_file_is_refused(tmp_path, below):
    (tmp_path / "runs").touch()
    with pytest.raises(RunFolderError, match="is a file or lies below one"):
        RunFolder.create(tmp_path / below)


def test_a_started_run_is_opened_again(run):
    assert RunFolder.open(run.path).path == run.path


def test_a_folder_that_is_no_run_is_not_opened(tmp_path):
    with pytest.raises(RunFolderError, match="no such run folder"):
        RunFolder.open(tmp_path / "missing")
    empty = RunFolder.create(tmp_path, "stopped-before-it-began")
    with pytest.raises(RunFolderError, match=r"no config\.yaml in it.*remove the folder"):
        RunFolder.open(empty.path)


def test_the_files_stand_where_the_design_says(run):
    places = {
        run.config_path: "config.yaml",
        run.metrics_path: "metrics.jsonl",
        run.timings_path: "timings.jsonl",
        run.findings_path: "findings.jsonl",
        run.report_path: "report.html",
        run.rollouts_path(10): "rollouts/step=000010.parquet",
        run.rollouts_path(10, "eval"): "rollouts/step=000010.eval.parquet",
        run.scores_path(10): "scores/step=000010.npz",
        run.scores_path(10, "train.first_turn"): "scores/step=000010.train.first_turn.npz",
        run.checkpoint_path(100): "checkpoints/step=000100",
    }
    assert {path.relative_to(run.path).as_posix() for path in places} == set(places.values())
    assert all(path.relative_to(run.path) == Path(place) for path, place in places.items())


def test_the_configuration_is_kept_in_order_with_the_versions_behind_it(run):
    config = {"steps": 80, "env": {"name": "frozen_lake"}, "name": None, "rate": 1e-6, "title": "é: [x]"}
    run.save_config(config, {"tether": "0.1.0", "torch": "2.13"})
    assert run.read_config() == config
    assert list(run.read_config()) == list(config)
    assert run.read_versions() == {"tether": "0.1.0", "torch": "2.13"}
    assert re.findall(r"^\w+", run.config_path.read_text(), flags=re.MULTILINE) == [*config, "versions"]


@pytest.mark.parametrize(
    ("config", "words"), [({"versions": 1}, "key 'versions'"), ({"runs_dir": Path("runs")}, "not plain data")]
)
def test_a_configuration_that_cannot_be_kept_leaves_the_old_one(run, config, words):
    with pytest.raises(InputError, match=words):
        run.save_config(config, {})
    assert run.read_config() == {"seed": 0}


@pytest.mark.parametrize("content", [b"a: [", b"- 1\n", b"", b"\xff\xfe\x00", b"!!python/object:os.system {}"])
def test_an_unreadable_configuration_is_named(run, content):
    run.config_path.write_bytes(content)
    with pytest.raises(RunFolderError, match=r"(?s)config\.yaml.*restore the file"):
        run.read_config()


def test_the_logs_are_apart_and_are_cut_back_together(run):
    finding = Finding("length_growth", "warning", "mean length 31 to 64 tokens", since=2, advice="penalise length")
    for step in range(4):
        run.append_metrics({"step": step, "reward": 0.5})
        run.append_timings({"step": step, "play": 1.5})
        run.append_finding(step, finding)
    assert run.read_findings().rows[3] == {"step": 3, **finding.to_dict()}
    run.truncate_metrics(2)
    for log in (run.read_metrics(), run.read_timings(), run.read_findings()):
        assert [row["step"] for row in log.rows] == [0, 1, 2]
    assert run.read_metrics().rows[2] == {"step": 2, "reward": 0.5}
    assert run.read_timings().rows[2] == {"step": 2, "play": 1.5}


def test_steps_are_listed_by_number_and_part_and_unfinished_files_are_not(run):
    for step in (1_000_000, 20, 3):
        Rollouts.from_episodes([Episode("e")]).to_parquet(run.rollouts_path(step))
        run.checkpoint_path(step).mkdir()
    Rollouts.from_episodes([Episode("e")]).to_parquet(run.rollouts_path(7, "eval"))
    run.scores_path(5, "eval").touch()
    (run.path / "rollouts" / ".step=000008.parquet.1234abcd.tmp").touch()
    (run.path / "checkpoints" / ".step=000008.writing").mkdir()
    assert run.rollout_steps() == [3, 20, 1_000_000]
    assert run.rollout_steps("eval") == [7]
    assert (run.score_steps(), run.score_steps("eval")) == ([], [5])
    assert run.checkpoints() == [run.checkpoint_path(step) for step in (3, 20, 1_000_000)]


def test_a_second_writer_is_told_who_holds_the_run(run):
    with run.lock():
        for _ in range(2):  # an attempt must not wipe the name of the holder
            with pytest.raises(RunFolderError, match=rf"first is being written by process {os.getpid()} on "):
                RunFolder.open(run.path).lock().__enter__()
    with run.lock():
        pass


def test_the_lock_is_freed_when_the_block_raises(run):
    with pytest.raises(ZeroDivisionError), run.lock():
        raise ZeroDivisionError
    with run.lock():
        pass


def test_a_killed_holder_frees_the_run(run):
    code = (
        "import os, sys; from tether.runs import RunFolder\n"
        "run = RunFolder(sys.argv[1])\n"
        "with run.lock():\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, run.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunFolderError, match=f"process {holder.pid} on "):
            run.lock().__enter__()
        holder.kill()
    with run.lock():
        assert f"process {os.getpid()} on" in (run.path / ".lock-holder").read_text()
