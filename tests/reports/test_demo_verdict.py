"""The demo's sentences follow from the numbers, also when an arm does not behave as expected."""

from dataclasses import dataclass

import pytest

from tether.reports.demo_verdict import ArmReading, Ends, dose_control, headline, random_control, sentences
from tether.results import Estimate, skipped

UNITS = {"mi_sequence": "nats", "conditional_entropy": "nats/token", "success": "fraction"}


@dataclass(frozen=True)
class FakeArm(ArmReading):
    """An arm whose numbers are given: measure to one (start, end) a seed, each with an interval of 0.1 around it."""

    given: dict[str, list[tuple[float, float]]] | None = None

    def ends(self, measure: str) -> list[Ends]:
        def estimate(value: float) -> Estimate:
            if value < 0:
                return skipped(measure, UNITS[measure], "not measured")
            bound = 4.16 if measure == "mi_sequence" else None
            return Estimate(measure, value, UNITS[measure], value - 0.1, value + 0.1, bound=bound)

        return [Ends(estimate(start), estimate(end)) for start, end in (self.given or {}).get(measure, [])]


def arms(**ends: list[float]) -> dict[str, ArmReading]:
    """Arms that start at I(X;Z) 2 and end as given, one number a seed; entropy goes from 1 to 0.95."""
    return {
        key: FakeArm(
            key,
            f"the {key} arm",
            0,
            (),
            {
                "mi_sequence": [(2.0, value) for value in values],
                "conditional_entropy": [(1.0, 0.95)] * len(values),
                "success": [(0.4, 0.6)] * len(values),
            },
        )
        for key, values in ends.items()
    }


def test_the_expected_contrast() -> None:
    found = arms(none=[0.3, 0.4], filter=[3.2, 3.0], random=[0.4, 0.3], dose=[3.3, 3.0])
    assert headline(found) == "Lost without the filter, kept with it – and with weaker regularisers alone."
    loss, remedy, random, dose = sentences(found)
    assert loss == (
        "With every group training, I(X;Z) fell from 2.00 to 0.35 nats (of at most 4.16) in every seed; H(Z|X) fell by "
        "5 % only, so entropy does not show the loss, and success on unseen states went from 0.40 to 0.60."
    )
    assert remedy == (
        "With the filter I(X;Z) ended at 3.10 nats, above “the none arm” in every seed, and success at 0.60."
    )
    assert "a smaller batch alone does not do what the filter does" in random
    assert dose.endswith(
        "ended at 3.15 nats, overlapping with the filter in every seed: here the filter cannot be told from weaker "
        "regularisers."
    )


def test_the_headline_does_not_claim_a_contrast_that_is_not_there() -> None:
    expected = "This time the expected contrast did not show."
    assert headline(arms(none=[2.0, 0.3], filter=[3.0, 3.0])) == expected  # kept its input in one seed
    assert headline(arms(none=[0.3, 0.3], filter=[0.3, 3.0])) == expected  # the filter failed in one seed
    assert headline(arms(none=[0.3, -1.0], filter=[3.0, 3.0])) == expected  # not measured in one seed
    assert headline(arms(none=[0.3])) == "The arms that this demo compares are incomplete."


def test_the_headline_leaves_the_dose_out_when_it_is_worse() -> None:
    found = arms(none=[0.3], filter=[3.0], dose=[1.0])
    assert headline(found) == "Lost without the filter, kept with it."
    assert "did more than rescale the regularisers" in dose_control(found)


def test_the_headline_grades_what_was_lost_and_kept() -> None:
    assert headline(arms(none=[1.2], filter=[3.0])) == "Weakened without the filter, kept with it."
    assert headline(arms(none=[0.3], filter=[1.5])) == "Lost without the filter, less so with it."


def test_an_arm_that_kept_its_input_is_said_to_have() -> None:
    assert "did not fall: this arm did not lose its input" in sentences(arms(none=[2.1, 2.05]))[0]
    assert "fell in 1 of 2 seeds" in sentences(arms(none=[0.3, 2.0]))[0]
    assert sentences(arms(none=[-1.0]))[0] == "With every group training, no change of I(X;Z) could be measured."


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        ([0.95, 0.35], "not above “the none arm” in any seed"),
        ([3.0, 0.35], "above “the none arm” in 1 of 2 seeds only"),
    ],
)
def test_a_filter_that_did_not_help_is_said_not_to(ends: list[float], says: str) -> None:
    assert says in sentences(arms(none=[0.95, 0.3], filter=ends))[1]


@pytest.mark.parametrize(
    ("random", "says"),
    [
        ([3.0, 3.1], "which groups were dropped made no visible difference"),
        ([3.6, 3.7], "which groups were dropped made no visible difference"),
        ([1.0, 3.0], "below the filter in 1 of 2 seeds: undecided"),
        ([1.0, -1.0], "below the filter in 1 of 2 seeds: undecided"),
    ],
)
def test_random_drop_is_judged_against_the_filter(random: list[float], says: str) -> None:
    assert says in random_control(arms(none=[0.3, 0.3], filter=[3.0, 3.1], random=random))


@pytest.mark.parametrize(
    ("dose", "says"),
    [
        ([3.6, 3.1], "overlapping with the filter in 1 of 2 seeds and above it in the others: here the filter cannot"),
        ([3.6, 3.6], "above the filter in every seed: here weaker regularisers alone did more"),
        ([1.0, 3.1], "below the filter in 1 of 2 seeds: undecided"),
    ],
)
def test_the_dose_control_is_judged_against_the_filter(dose: list[float], says: str) -> None:
    assert says in dose_control(arms(filter=[3.0, 3.1], dose=dose))


def test_absent_controls_are_not_mentioned() -> None:
    found = arms(none=[0.3], filter=[3.0])
    assert random_control(found) == dose_control(found) == ""
    assert len(sentences(found)) == 2


@pytest.mark.parametrize(
    ("entropy", "says"),
    [
        ((1.0, 0.5), "H(Z|X) fell by 50 % as well"),
        ((1.0, 1.1), "H(Z|X) rose by 10 % only, so entropy does not show the loss"),
        ((1.0, 1.5), "H(Z|X) rose by 50 %, so entropy does not show the loss"),
        ((-1.0, 1.0), "H(Z|X) could not be compared"),
    ],
)
def test_what_entropy_shows_is_computed(entropy: tuple[float, float], says: str) -> None:
    arm = FakeArm("none", "no filter", 0, (), {"mi_sequence": [(2.0, 0.3)], "conditional_entropy": [entropy]})
    (text,) = sentences({"none": arm})
    assert says in text
