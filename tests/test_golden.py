"""Every golden case whose topic has an adapter, and the runner itself."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
FILES = sorted((HERE / "data" / "golden").glob("*.json"))

spec = importlib.util.spec_from_file_location("golden", HERE / "golden.py")
golden = importlib.util.module_from_spec(spec)
sys.modules["golden"] = golden
spec.loader.exec_module(golden)
golden.load_adapters()

CASES = [case for path in FILES for case in golden.read_cases(path) if case["topic"] in golden.ADAPTERS]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_known_right_answer(case):
    verdict = golden.check(case)
    assert verdict.agrees, f"expected {case['expected']}, got {verdict.got}"


@pytest.mark.parametrize(
    ("expected", "got", "tolerance", "same"),
    [
        (1.0, 1.0 + 1e-10, 1e-9, True),
        (1.0, 1.0 + 1e-8, 1e-9, False),
        (1e6, 1e6 + 1e-4, 1e-9, True),  # relative above 1
        (1e-6, 1.1e-6, 1e-9, False),  # absolute below 1
        ([0, 2], [0, 2], 0, True),
        ([0, 2], [0], 0, False),
        ({"a": 1}, {"a": 1, "b": 2}, 0, True),
        ({"a": 1}, {"b": 1}, 0, False),
        ("inf", float("inf"), 0, True),
        ("-inf", float("inf"), 0, False),
        ("nan", float("nan"), 0, True),
        (1.0, float("nan"), 1, False),
        (True, 1, 0, False),
        (1, True, 0, False),
        ("refill", "refill", 0, True),
        (None, None, 0, True),
        (None, 0.0, 1, False),
    ],
)
def test_agreement(expected, got, tolerance, same):
    assert golden.agree(expected, got, tolerance) is same


def filter_case(scores, expected):
    options = {"strategy": "top_p", "top_p": 0.5}
    return {
        "id": "x",
        "topic": "filter",
        "inputs": {"scores": scores},
        "options": options,
        "expected": expected,
        "tolerance": 0,
    }


def test_a_refusal_agrees_only_where_one_is_expected():
    assert golden.check(filter_case([-1.0, 2.0], {"raises": True})).agrees is True
    assert golden.check(filter_case([-1.0, 2.0], {"kept": [1]})).agrees is False
    assert golden.check(filter_case([1.0, 2.0], {"raises": True})).agrees is False


def test_a_crash_is_a_disagreement_and_not_a_refusal():
    verdict = golden.check(filter_case(None, {"raises": True}))
    assert verdict.agrees is False
    assert "crashed" in verdict.got


@pytest.mark.parametrize(("kept", "status"), [([1], 0), ([0], 1)])
def test_the_command_names_disagreements_and_exits_with_one(tmp_path, kept, status):
    unknown = {**filter_case([], {}), "topic": "no such topic"}
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([filter_case([1.0, 3.0], {"kept": kept}), unknown]))
    done = subprocess.run(
        [sys.executable, HERE / "golden.py", path], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    assert "1 no adapter yet" in done.stdout
    assert ("DISAGREES x" in done.stdout) == bool(status)
