"""Everything that is missing is named, with a reason."""

from collections.abc import Callable

from tether.reports.gaps import Gap, estimate_gaps, run_gaps, united
from tether.reports.readings import RunReading
from tether.results import Estimate, skipped, void
from tether.runs import RunFolder

MakeRun = Callable[..., RunFolder]


def whats(gaps: list[Gap]) -> dict[str, str]:
    return {gap.what: gap.reason for gap in gaps}


def test_estimates_of_one_reason_are_named_together() -> None:
    estimates = [
        Estimate("mi_sequence", 1.0, "nats"),
        skipped("conditional_entropy", "nats/token", "a critic scored"),
        skipped("mi_upper", "nats", "a critic scored"),
        void("mi_per_token", "nats/token", "a score is NaN"),
    ]
    assert estimate_gaps("first turns", estimates) == [
        Gap("first turns: H(Z|X), I(X;Z), upper side", "a critic scored"),
        Gap("first turns: I(X;Z) per token", "a score is NaN", "void"),
    ]


def test_a_complete_run_has_no_gap(make_run: MakeRun) -> None:
    assert run_gaps(RunReading(make_run(max_turns=3))) == []


def test_one_turn_leaves_no_later_turns(make_run: MakeRun) -> None:
    assert whats(run_gaps(RunReading(make_run()))) == {"later turns": "episodes have one turn"}


def test_an_empty_run_says_what_it_lacks(make_run: MakeRun) -> None:
    run = RunFolder.create(make_run().path.parent, "empty")
    run.save_config({"monitor": {"every": 0}}, {})
    found = whats(run_gaps(RunReading(run)))
    assert found.keys() == {
        "metrics",
        "first turns",
        "later turns",
        "reward variance by group",
        "traces",
        "cost of the monitor",
    }
    assert found["first turns"] == "the monitor was off (monitor.every=0)"


def test_a_torn_line_is_named(make_run: MakeRun) -> None:
    run = make_run(max_turns=3)
    with run.metrics_path.open("ab") as file:
        file.write(b'{"step": 11, "succ')
    assert "the last metric line" in whats(run_gaps(RunReading(run)))


def test_what_all_runs_lack_is_said_once() -> None:
    one, two = Gap("later turns", "one turn"), Gap("traces", "none")
    assert united({"a": [one, two], "b": [one]}) == [
        Gap("every run: later turns", "one turn"),
        Gap("a: traces", "none"),
    ]
