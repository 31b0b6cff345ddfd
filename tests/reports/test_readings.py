"""What is read from a run folder is what the trainer wrote, and statistics are recomputed from the scores."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tether.diagnostics import input_dependence
from tether.records import Rollouts
from tether.reports.readings import RunReading, mean_of, posterior
from tether.results import Estimate, Finding, skipped
from tether.runs import RunFolder
from tether.scoring import CrossScores
from tether.selection import select_groups

MakeRun = Callable[..., RunFolder]


def test_estimates_are_those_of_the_saved_scores(make_run: MakeRun) -> None:
    run = make_run()
    found = RunReading(run).estimates("first_turn", 10)
    expected = input_dependence(CrossScores.load(run.scores_path(10, "eval.first_turn")), seed=0)
    assert found["mi_sequence"] == expected["mi_sequence"]
    assert found["retrieval_accuracy"].chance == expected["retrieval_accuracy"].chance
    assert found["mi_sequence"].status == "ok"


def test_estimates_agree_with_the_metric_line(make_run: MakeRun) -> None:
    reading = RunReading(make_run())
    found, point = reading.estimates("first_turn", 10)["mi_sequence"], reading.points("eval/first_turn/mi_sequence")[-1]
    assert (found.value, found.low, found.high) == (point.value, point.low, point.high)


def test_the_smoothed_spread_comes_from_the_metric_line(make_run: MakeRun) -> None:
    run = make_run()
    line = {
        **run.read_metrics().rows[-1],
        "eval/first_turn/mi_zscore_ema": 7.5,
        "eval/first_turn/mi_zscore_ema/low": 7.0,
    }
    run.truncate_metrics(9)
    run.append_metrics({key: value for key, value in line.items() if key != "eval/first_turn/mi_zscore_ema/high"})
    found = RunReading(run).estimates("first_turn", 10)
    assert (found["mi_zscore_ema"].value, found["mi_zscore_ema"].low) == (7.5, 7.0)
    assert np.isnan(found["mi_zscore_ema"].high)
    assert "marginal_spread_ema" not in found


def test_without_its_metric_line_the_smoothed_spread_is_skipped(make_run: MakeRun) -> None:
    run = make_run()
    run.truncate_metrics(0)
    found = RunReading(run).estimates("first_turn", 10)["mi_zscore_ema"]
    assert found.status == "skipped"
    assert "earlier steps" in found.reason


def test_success_has_its_interval_and_counts(make_run: MakeRun) -> None:
    run = make_run(prompts=8, samples=3)
    line = run.read_metrics().rows[0]
    found = RunReading(run).success(0)
    assert (found.value, found.low, found.high) == tuple(line[f"eval/success{end}"] for end in ("", "/low", "/high"))
    assert (found.num_prompts, found.num_samples, found.status) == (8, 24, "ok")
    assert RunReading(run).success(3).status == "skipped"


def test_grades_do_not_share_a_curve(tmp_path_factory: pytest.TempPathFactory) -> None:
    run = RunFolder.create(tmp_path_factory.mktemp("runs"), "run")
    for step, status, value in ((0, "ok", 1.0), (1, "critic_bound", 2.0), (2, "void", None), (3, "skipped", None)):
        run.append_metrics({"step": step, "mi": value, "mi/status": status, "mi/low": 0.5})
    reading = RunReading(run)
    assert [(p.step, p.low, p.high) for p in reading.points("mi")] == [(0, 0.5, None)]
    assert [p.step for p in reading.points("mi", "critic_bound")] == [1]


def test_numbers_that_are_not_finite_are_no_points(tmp_path_factory: pytest.TempPathFactory) -> None:
    run = RunFolder.create(tmp_path_factory.mktemp("runs"), "run")
    for step, value in enumerate((1.0, None, float("nan"), True, "text")):
        run.append_metrics({"step": step, "x": value})
    reading = RunReading(run)
    assert [p.step for p in reading.points("x")] == [0]
    assert (reading.total("x"), reading.mean("x"), reading.total("y")) == (1.0, 1.0, None)


def test_findings_are_said_once_worst_first(make_run: MakeRun) -> None:
    note = Finding("dead_signal", "info", "early", since=1)
    later = replace(note, evidence="late", since=2)
    alarm = Finding("template_collapse", "critical", "gone", since=3, advice="filter")
    reading = RunReading(make_run(findings=((1, note), (5, later), (7, alarm))))
    assert [(f.id, f.evidence, f.since, f.first_step, f.said) for f in reading.findings] == [
        ("template_collapse", "gone", 3, 7, ((7, "gone"),)),
        ("dead_signal", "late", 2, 1, ((1, "early"), (5, "late"))),
    ]


def test_the_monitors_share_is_its_seconds_over_all(make_run: MakeRun) -> None:
    reading = RunReading(make_run())
    assert reading.monitor_share == pytest.approx((0.3 + 10 * 0.02) / (1.1 + 10 * 0.52))
    assert reading.total_seconds == pytest.approx(1.1 + 10 * 0.52)


def test_the_rule_is_applied_again_to_the_recorded_outcomes(make_run: MakeRun) -> None:
    run = make_run(dead=0.5)
    episodes = list(Rollouts.from_parquet(run.rollouts_path(10)).episodes)
    chosen = select_groups([e.reward for e in episodes], [e.group_id for e in episodes], top_p=0.9)
    found = RunReading(run).group_choice(10)
    assert found.num_kept == len(chosen.groups) > 0
    assert found.variance == chosen.scores.tolist()
    assert [found.variance[n] for n, kept in enumerate(found.kept) if kept] == pytest.approx(
        [score for n, score in enumerate(chosen.scores) if chosen.index.ids[n] in chosen.groups]
    )
    assert not found.is_control


@pytest.mark.parametrize(
    ("select", "kept"),
    [
        ({"strategy": "none"}, 24),
        ({"strategy": "top_k", "fraction": 0.25}, 6),
        ({"strategy": "top_k_abs", "count": 3}, 3),
        ({"strategy": "min_p", "min_p": 1.0}, None),
    ],
)
def test_every_rule_of_a_configuration_is_known(make_run: MakeRun, select: dict[str, object], kept: int | None) -> None:
    found = RunReading(make_run(select=select, dead=0.0)).group_choice(10)
    assert found.num_kept == kept if kept else found.num_kept >= 1


def test_a_control_is_marked(make_run: MakeRun) -> None:
    assert RunReading(make_run(select={"control": "dose"})).group_choice(10).is_control


def test_coverage_stands_beside_the_estimates(make_run: MakeRun) -> None:
    found = RunReading(make_run(prompts=12, samples=2)).coverage("first_turn", 10)
    assert (found.num_rows, found.num_turns, found.valid_format, found.truncated_share) == (24, 24, 1.0, 0.0)
    assert found.mean_tokens == 7.0


def test_posterior_is_a_distribution_over_the_contexts_that_take_part() -> None:
    scores = CrossScores(
        logprob_MN=[[-1.0, -1.0, -9.0], [-3.0, -1.0, -0.5]],
        own_M=[0, 1],
        num_tokens_M=[1, 1],
        excluded_MN=[[False, False, False], [False, False, True]],
    )
    share_MN, own_M = posterior(scores)
    assert share_MN.sum(axis=1) == pytest.approx([1.0, 1.0])
    assert share_MN[1].tolist() == pytest.approx([1 / (1 + np.e**2), np.e**2 / (1 + np.e**2), 0.0])
    assert own_M.tolist() == [0, 1]


def test_posterior_merges_equal_contexts() -> None:
    scores = CrossScores([[-1.0, -1.0, -2.0]], own_M=[0], num_tokens_M=[1], contexts_N=["a", "a", "b"])
    assert posterior(scores)[0].shape == (1, 2)


def test_a_mean_over_seeds_needs_all_of_them() -> None:
    ok = Estimate("x", 1.0, "nats")
    assert mean_of([ok, replace(ok, value=3.0)]) == 2.0
    assert mean_of([ok, skipped("x", "nats", "no")]) is None
    assert mean_of([]) is None


def test_training_rollouts_are_used_when_nothing_else_is_measured(make_run: MakeRun) -> None:
    run = make_run()
    for step in run.score_steps("eval.first_turn"):
        run.scores_path(step, "eval.first_turn").rename(run.scores_path(step, "train.first_turn"))
    reading = RunReading(run)
    assert reading.part == "train"
    assert reading.scored_steps("first_turn") == [0, 10]
