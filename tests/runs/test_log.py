"""Logs: valid JSON lines, one torn line at the end at most, and an exact way back to a step."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.errors import InputError, RunFolderError
from tether.runs import LogLines, StepLog

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.none() | st.booleans() | NUMBERS | st.text(max_size=4)


@pytest.fixture
def log(tmp_path):
    return StepLog(tmp_path / "metrics.jsonl")


def test_a_log_that_was_never_written_has_no_lines(log):
    assert log.read() == LogLines([])
    log.truncate(3)
    assert not log.path.exists()


@given(st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=3), max_size=4))
def test_any_lines_are_read_as_they_were_appended(tmp_path_factory, lines):
    log = StepLog(tmp_path_factory.getbasetemp() / "any.jsonl")
    log.path.unlink(missing_ok=True)
    rows = [{**line, "step": step} for step, line in enumerate(lines)]
    for row in rows:
        log.append(row)
    assert log.read() == LogLines(rows)


def test_a_line_keeps_the_order_of_its_keys(log):
    log.append({"step": 1, "b": 2, "a": 0.1})
    assert log.path.read_text() == '{"step": 1, "b": 2, "a": 0.1}\n'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_a_number_that_is_not_finite_becomes_null_at_any_depth(log, value):
    log.append({"step": 1, "loss": value, "by_group": {"a": [1.0, value]}})
    assert log.path.read_text() == '{"step": 1, "loss": null, "by_group": {"a": [1.0, null]}}\n'


def test_numbers_of_numpy_are_numbers(log):
    log.append({"step": np.int64(1), "kept": np.bool_(True), "loss": np.float32(0.5), "pair": (np.float64(1.5),)})
    assert log.read().rows == [{"step": 1, "kept": True, "loss": 0.5, "pair": [1.5]}]


@pytest.mark.parametrize("line", [{}, {"step": None}, {"step": 1.0}, {"step": True}, {"step": "1"}])
def test_a_line_without_a_whole_step_is_refused(log, line):
    with pytest.raises(InputError, match=r"a line for metrics\.jsonl with step .* add the step"):
        log.append(line)
    assert not log.path.exists()


def test_a_value_that_json_cannot_hold_is_named_and_nothing_is_written(log):
    with pytest.raises(InputError, match="'weights' is a ndarray"):
        log.append({"step": 1, "weights": np.zeros(2)})
    assert not log.path.exists()


def test_a_log_torn_at_any_byte_keeps_its_whole_lines_and_reports_the_rest(log):
    rows = [{"step": step, "text": "a\nb é"} for step in range(3)]
    for row in rows:
        log.append(row)
    content = log.path.read_bytes()
    ends = [position + 1 for position, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(len(content) + 1):
        log.path.write_bytes(content[:cut])
        num_whole = sum(end <= cut for end in ends)
        rest = content[max([0, *(end for end in ends if end <= cut)]) : cut].decode()
        assert log.read() == LogLines(rows[:num_whole], rest or None)


def test_no_line_is_added_to_a_torn_one(log):
    log.path.write_text('{"step": 1}\n{"step": 2, "lo')
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl ends in a torn line"):
        log.append({"step": 3})
    log.truncate(2)
    log.append({"step": 2})
    assert log.read() == LogLines([{"step": 1}, {"step": 2}])


@pytest.mark.parametrize("middle", ["{broken}", "", "7", "[]", '{"a": 1}', '{"step": "1"}', '{"step": 1} {"step": 2}'])
def test_a_broken_line_in_the_middle_is_named_with_its_number(log, middle):
    log.path.write_text(f'{{"step": 0}}\n{middle}\n{{"step": 2}}\n')
    for use in (log.read, lambda: log.truncate(0)):
        with pytest.raises(RunFolderError, match=r"metrics\.jsonl, line 2"):
            use()


def test_truncation_keeps_the_bytes_of_the_lines_up_to_the_step(log):
    for step in range(4):
        log.append({"step": step, "loss": 0.1 + step, "tiny": 1e-300, "name": "é"})
    whole = log.path.read_bytes().splitlines(keepends=True)
    log.truncate(2)
    assert log.path.read_bytes() == b"".join(whole[:3])
    log.truncate(-1)
    assert log.path.read_bytes() == b""


def test_every_line_is_json_for_strict_readers(log):
    log.append({"step": 1, "loss": math.nan, "text": "\u2028\ud800"})
    (line,) = log.path.read_text().splitlines()

    def refuse(name):
        raise AssertionError(name)

    assert json.loads(line, parse_constant=refuse)["loss"] is None
