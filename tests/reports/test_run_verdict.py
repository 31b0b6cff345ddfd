"""The sentences of a run follow from its numbers."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from tether.reports.readings import RunReading
from tether.reports.run_verdict import gap_closed, is_solvable, run_sentences
from tether.results import Estimate, Finding
from tether.runs import RunFolder
from tether.scoring import CrossScores

MakeRun = Callable[..., RunFolder]


def success(value: float, low: float, high: float) -> Estimate:
    return Estimate("success", value, "fraction", low, high)


def test_the_gap_is_measured_from_the_start_to_the_solver() -> None:
    found = gap_closed(success(0.4, 0.3, 0.5), success(0.7, 0.6, 0.8))
    assert found is not None
    assert (found.share, found.low, found.high) == pytest.approx((0.5, 0.2, 0.5 / 0.7))


def test_a_loss_has_a_negative_share() -> None:
    found = gap_closed(success(0.5, 0.5, 0.5), success(0.25, 0.25, 0.25))
    assert found is not None
    assert found.share == found.low == found.high == -0.5


def test_without_a_gap_there_is_no_share() -> None:
    assert gap_closed(success(1.0, 0.9, 1.0), success(1.0, 0.9, 1.0)) is None
    assert gap_closed(success(0.99, 0.9, 1.0), success(1.0, 0.9, 1.0)) is None


def test_without_intervals_there_is_no_range() -> None:
    found = gap_closed(success(0.5, math.nan, math.nan), success(0.75, math.nan, math.nan))
    assert found is not None
    assert found.share == 0.5
    assert math.isnan(found.low)


def test_a_learning_run_is_said_to_have_learned(make_run: MakeRun) -> None:
    run = make_run(prompts=40, samples=6, grounded=lambda step: 0.1 if step == 0 else 0.95)
    first, second, third = run_sentences(RunReading(run))
    assert first.startswith("Success on unseen states rose from 0.")
    assert "of the gap to a solver, which reaches 1 (range" in first
    assert "risen from" in second
    assert "above chance" in second
    assert third == "The monitor had no finding."


def test_overlapping_intervals_are_said_to_overlap(make_run: MakeRun) -> None:
    first, second, _ = run_sentences(RunReading(make_run(grounded=lambda step: 0.5)))
    assert "Success on unseen states went from" in first
    assert "; the intervals overlap." in first
    assert "not clearly moved" in second


def test_one_evaluation_is_not_a_change(make_run: MakeRun) -> None:
    run = make_run()
    run.truncate_metrics(0)
    assert run_sentences(RunReading(run))[0].endswith("at iteration 0, the only evaluation.")


def test_a_broken_matrix_is_said_to_be_broken(make_run: MakeRun) -> None:
    run = make_run()
    CrossScores([[np.nan, -1.0], [-2.0, -1.0]], own_M=[0, 1], num_tokens_M=[1, 1]).save(
        run.scores_path(10, "eval.first_turn")
    )
    assert run_sentences(RunReading(run))[1].startswith("I(X;Z) of first turns could not be estimated: ")


def test_findings_are_counted_with_the_worst(make_run: MakeRun) -> None:
    findings = ((1, Finding("dead_signal", "info", "x")), (2, Finding("format_decay", "warning", "y")))
    assert run_sentences(RunReading(make_run(findings=findings)))[-1] == (
        "The monitor had 2 findings, the worst warning: format decay and dead signal."
    )


def test_only_a_lake_that_is_not_slippery_is_known_to_be_solvable(make_run: MakeRun) -> None:
    run = make_run()
    assert is_solvable(RunReading(run))
    config = run.read_config()
    run.save_config({**config, "env": {"name": "frozen_lake", "options": {"success_rate": 0.8}}}, {})
    assert not is_solvable(RunReading(run))
    run.save_config({**config, "env": {"name": "bandit", "options": {}}}, {})
    reading = RunReading(run)
    assert not is_solvable(reading)
    assert "solver" not in run_sentences(reading)[0]
