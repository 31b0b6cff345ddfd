"""Findings from metric lines alone: which rule fires, since when, and what does not fire it."""

import math

import pytest

from tether.diagnostics import Thresholds, find_in_run
from tether.diagnostics.curves import Curve
from tether.errors import ConfigError

NAN = math.nan


def lines_of(**columns):
    length = len(next(iter(columns.values())))
    return [{"step": 10 * (i + 1), **{name: values[i] for name, values in columns.items()}} for i in range(length)]


def ids(lines, **more):
    return [finding.id for finding in find_in_run(lines, **more)]


def test_a_healthy_run_has_no_findings():
    lines = lines_of(
        valid_format_share=[0.9, 0.95, 0.9, 0.97, 0.96, 0.98],
        reasoning_tokens_mean=[40.0, 41.0, 39.0, 42.0, 40.0, 41.0],
        truncated_reply_share=[0.0] * 6,
        zero_variance_share=[0.4] * 6,
        solved_share=[0.2] * 6,
        failed_share=[0.2] * 6,
    )
    assert ids(lines) == []


def test_nothing_is_judged_from_nothing():
    assert ids([]) == []
    assert ids([{"step": 0, "solved_share": None, "loss": "n/a"}]) == []


@pytest.mark.parametrize(
    ("solved", "failed", "finding", "severity", "words"),
    [
        (1.0, 0.0, "saturated", "info", "every group is solved"),
        (0.0, 1.0, "dead_signal", "critical", "every group fails"),
        (0.5, 0.5, "dead_signal", "warning", "no group varies: some are solved, the others fail"),
    ],
)
def test_groups_without_signal_are_told_apart(solved, failed, finding, severity, words):
    lines = lines_of(zero_variance_share=[0.5, 1.0], solved_share=[0.25, solved], failed_share=[0.25, failed])
    (found,) = find_in_run(lines, thresholds=Thresholds(window=2, constant_share=0.6))
    assert (found.id, found.severity) == (finding, severity)
    assert words in found.evidence


def test_one_lucky_step_is_no_saturation():
    shares = [0.3, 0.4, 0.3, 0.4, 1.0]
    assert ids(lines_of(zero_variance_share=shares, solved_share=shares, failed_share=[0.0] * 5)) == []


def test_onset_is_the_start_of_the_last_unbroken_stretch():
    shares = [1.0, 0.5, 1.0, 1.0, 1.0]
    lines = lines_of(zero_variance_share=shares, solved_share=[0.0] * 5, failed_share=shares)
    (found,) = find_in_run(lines, thresholds=Thresholds(window=3))
    assert (found.id, found.since) == ("dead_signal", 30)


def test_unreadable_output_is_known_from_a_single_step():
    (found,) = find_in_run([{"step": 3, "valid_format_share": 0.2}])
    assert (found.id, found.severity, found.since) == ("unreadable_output", "critical", 3)
    assert "20%" in found.evidence


def test_a_format_that_decays_from_its_own_start():
    lines = lines_of(valid_format_share=[0.95, 0.96, 0.94, 0.95, 0.9, 0.7, 0.68, 0.71])
    (found,) = find_in_run(lines)
    assert (found.id, found.since) == ("format_decay", 50)
    assert "0.95" in found.evidence


def test_a_format_that_only_wobbles_does_not_decay():
    assert ids(lines_of(valid_format_share=[0.95, 0.6, 0.9, 0.7, 0.65, 0.94, 0.6, 0.9])) == []


def test_a_small_but_certain_fall_is_no_decay():
    assert ids(lines_of(valid_format_share=[0.99, 0.99, 0.99, 0.95, 0.95, 0.95])) == []


def test_reasoning_that_grows():
    lines = lines_of(reasoning_tokens_mean=[20.0, 21.0, 20.0, 30.0, 39.0, 41.0, 40.0])
    (found,) = find_in_run(lines)
    assert (found.id, found.severity, found.since) == ("length_growth", "warning", 40)


def test_every_reply_at_the_cap():
    (found,) = find_in_run(lines_of(truncated_reply_share=[0.0, 0.6, 1.0]))
    assert (found.id, found.severity, found.since) == ("ends_at_cap", "critical", 20)


@pytest.mark.parametrize("value", [NAN, math.inf])
def test_the_first_number_that_is_none_is_named(value):
    (found,) = find_in_run(lines_of(loss=[0.1, value, value], kl=[0.0, 0.0, value]))
    assert (found.id, found.severity, found.since) == ("non_finite", "critical", 20)
    assert found.evidence == f"loss is {value} at step 20"


def test_a_missing_interval_is_not_a_broken_number():
    assert ids([{"step": 1, "monitor/first_turn/mi_sequence/low": NAN}]) == []


def test_onsets_tell_which_failure_came_first():
    lines = lines_of(
        failed_share=[0.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        solved_share=[0.0] * 6,
        zero_variance_share=[0.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        truncated_reply_share=[0.0, 0.0, 0.0, 1.0, 1.0, 1.0],
        loss=[0.0, 0.0, 0.0, 0.0, 0.0, NAN],
    )
    assert {finding.id: finding.since for finding in find_in_run(lines)} == {
        "dead_signal": 20,
        "ends_at_cap": 40,
        "non_finite": 60,
    }


def test_lines_may_come_in_any_order_and_worst_comes_first():
    lines = lines_of(truncated_reply_share=[0.0, 0.6], valid_format_share=[1.0, 0.1])
    assert ids(lines[::-1]) == ids(lines) == ["unreadable_output", "ends_at_cap"]


def test_a_curve_leaves_out_what_is_missing():
    curve = Curve.of("x", [{"step": 1, "x": 1.0}, {"step": 2}, {"step": 3, "x": None}, {"step": 4, "x": 3}])
    assert (curve.steps, curve.values) == ((1, 4), (1.0, 3.0))
    assert curve.recent(5) == 2.0
    assert math.isnan(Curve.of("y", [{"step": 1}]).recent(5))


def test_a_curve_of_three_values_has_no_two_windows():
    assert Curve("x", (1, 2, 3), (1.0, 2.0, 3.0)).change(5) is None


@pytest.mark.parametrize(
    "wrong", [{"collapse_share": 0.0}, {"cap_share": 1.5}, {"length_ratio": 1.0}, {"window": 1}, {"format_drop": NAN}]
)
def test_thresholds_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Thresholds(**wrong)
