"""The sentences of the demo's report: each follows from the numbers, also when an arm did not behave as expected."""

from __future__ import annotations

from dataclasses import dataclass

from tether.reports.compare import Tally
from tether.reports.palette import series, series_name
from tether.reports.readings import RunReading, mean_of
from tether.reports.words import counted, number, share
from tether.results import Estimate, skipped

UNITS = {"success": "fraction", "conditional_entropy": "nats/token", "mi_sequence": "nats"}
ENTROPY_CHANGE = 0.15
"""Relative fall of H(Z|X) from which on entropy shows a loss as well."""
LOST_SHARE = 0.5
"""I(X;Z) counts as lost, not only weakened, when its upper end is below this share of the start."""


@dataclass(frozen=True, slots=True)
class Ends:
    """One measure of one run before training and after it."""

    start: Estimate
    end: Estimate


@dataclass(frozen=True, slots=True)
class ArmReading:
    """One arm: its runs, one a seed, and its place among the arms, which is its colour."""

    key: str
    label: str
    index: int
    runs: tuple[RunReading, ...]

    @property
    def colour(self) -> str:
        """Colour in pictures."""
        return series(self.index)

    @property
    def css(self) -> str:
        """Class of its marks in the page."""
        return series_name(self.index)

    def ends(self, measure: str) -> list[Ends]:
        """Return start and end of a measure for each seed."""
        return [_ends(run, measure) for run in self.runs]

    def mean_start(self, measure: str) -> float | None:
        """Mean over seeds before training."""
        return mean_of(ends.start for ends in self.ends(measure))

    def mean_end(self, measure: str) -> float | None:
        """Mean over seeds at the last evaluation."""
        return mean_of(ends.end for ends in self.ends(measure))

    def change(self, measure: str) -> Tally:
        """Compare the end with the start, seed by seed."""
        return Tally.of((ends.end, ends.start) for ends in self.ends(measure))

    def against(self, other: ArmReading, measure: str) -> Tally:
        """Compare the ends of two arms, seed by seed."""
        pairs = zip(self.ends(measure), other.ends(measure), strict=False)
        return Tally.of((mine.end, theirs.end) for mine, theirs in pairs)


def headline(arms: dict[str, ArmReading]) -> str:
    """Return the verdict in a few words."""
    if not {"none", "filter"} <= arms.keys():
        return "The arms that this demo compares are incomplete."
    none, kept = arms["none"], arms["filter"]
    if not (none.change("mi_sequence").all("below") and kept.against(none, "mi_sequence").all("above")):
        return "This time the expected contrast did not show."
    lost = all(ends.end.high < LOST_SHARE * ends.start.value for ends in none.ends("mi_sequence"))
    fell = kept.change("mi_sequence").below > 0
    dose = "dose" in arms and arms["dose"].against(kept, "mi_sequence").all("above", "overlap")
    without, with_it = "Lost" if lost else "Weakened", "less so with it" if fell else "kept with it"
    return f"{without} without the filter, {with_it}{' – and with weaker regularisers alone' if dose else ''}."


def sentences(arms: dict[str, ArmReading]) -> list[str]:
    """Return the verdict in two or three sentences: the loss, the remedy, the controls."""
    found = [_loss(arms["none"])] if "none" in arms else []
    if {"none", "filter"} <= arms.keys():
        found.append(_remedy(arms["filter"], arms["none"]))
        found.extend(text for text in (random_control(arms), dose_control(arms)) if text)
    return found


def random_control(arms: dict[str, ArmReading]) -> str:
    """Say what dropping as many groups at random did; empty without that arm."""
    if not {"none", "filter", "random"} <= arms.keys():
        return ""
    random = arms["random"]
    to_filter, to_none = random.against(arms["filter"], "mi_sequence"), random.against(arms["none"], "mi_sequence")
    ended = f"Dropping as many groups at random ended at {_mi(random)}"
    if to_filter.all("below"):
        overlap = f"overlapping with {_quoted(arms['none'])} in {_of(to_none.overlap, to_none.count)}"
        where = f"below the filter in every seed{f' and {overlap}' if to_none.overlap else ''}"
        return f"{ended}, {where}: a smaller batch alone does not do what the filter does."
    if to_filter.all("above", "overlap"):
        return f"{ended}, not below the filter in any seed: which groups were dropped made no visible difference."
    return f"{ended}, below the filter in {_of(to_filter.below, to_filter.count)}: undecided."


def dose_control(arms: dict[str, ArmReading]) -> str:
    """Say what scaling the regularisers instead of filtering did; empty without that arm."""
    if not {"filter", "dose"} <= arms.keys():
        return ""
    dose = arms["dose"]
    tally = dose.against(arms["filter"], "mi_sequence")
    ended = f"The dose control (every group trains, weaker regularisers, no filter) ended at {_mi(dose)}"
    if tally.all("below"):
        return f"{ended}, below the filter in every seed: here the filter did more than rescale the regularisers."
    if tally.all("above"):
        return f"{ended}, above the filter in every seed: here weaker regularisers alone did more than the filter."
    if tally.all("above", "overlap"):
        others = " and above it in the others" if tally.above else ""
        where = f"overlapping with the filter in {_of(tally.overlap, tally.count)}{others}"
        return f"{ended}, {where}: here the filter cannot be told from weaker regularisers."
    return f"{ended}, below the filter in {_of(tally.below, tally.count)}: undecided."


def _loss(arm: ArmReading) -> str:
    tally = arm.change("mi_sequence")
    bounds = [ends.end.bound for ends in arm.ends("mi_sequence") if ends.end.bound is not None]
    most = f" (of at most {number(max(bounds))})" if bounds else ""
    moved = f"from {number(arm.mean_start('mi_sequence'))} to {_mi(arm)}{most}"
    if tally.all("below"):
        what = f"With every group training, I(X;Z) fell {moved} in every seed"
    elif tally.below:
        what = f"With every group training, I(X;Z) fell in {_of(tally.below, tally.count)}, {moved} on average"
    elif tally.unknown == tally.count:
        return "With every group training, no change of I(X;Z) could be measured."
    else:
        what = f"With every group training, I(X;Z) went {moved} and did not fall: this arm did not lose its input"
    return f"{what}; {_entropy(arm, fell=tally.below > 0)}{_success(arm)}."


def _entropy(arm: ArmReading, *, fell: bool) -> str:
    start, end = arm.mean_start("conditional_entropy"), arm.mean_end("conditional_entropy")
    if start is None or end is None or start == 0:
        return "H(Z|X) could not be compared"
    change = end / start - 1
    moved = f"H(Z|X) {'rose' if change > 0 else 'fell'} by {share(abs(change))}"
    if not fell:
        return moved
    if change <= -ENTROPY_CHANGE:
        return f"{moved} as well"
    return f"{moved}{' only' if change < ENTROPY_CHANGE else ''}, so entropy does not show the loss"


def _success(arm: ArmReading) -> str:
    start, end = arm.mean_start("success"), arm.mean_end("success")
    if start is None or end is None:
        return ""
    return f", and success on unseen states went from {number(start)} to {number(end)}"


def _remedy(arm: ArmReading, none: ArmReading) -> str:
    tally = arm.against(none, "mi_sequence")
    if tally.all("above"):
        where = f"above {_quoted(none)} in every seed"
    elif tally.above:
        where = f"above {_quoted(none)} in {_of(tally.above, tally.count)} only"
    else:
        where = f"not above {_quoted(none)} in any seed"
    success = arm.mean_end("success")
    tail = "" if success is None else f", and success at {number(success)}"
    return f"With the filter I(X;Z) ended at {_mi(arm)}, {where}{tail}."


def _mi(arm: ArmReading) -> str:
    value = arm.mean_end("mi_sequence")
    if value is None:
        return "no usable I(X;Z)"
    return f"{number(value)} nats"


def _of(count: int, total: int) -> str:
    return "every seed" if count == total else f"{count} of {counted(total, 'seed')}"


def _quoted(arm: ArmReading) -> str:
    return f"“{arm.label}”"


def _ends(run: RunReading, measure: str) -> Ends:
    if measure == "success":
        steps = run.evaluated_steps
        return Ends(run.success(steps[0]), run.success(steps[-1])) if steps else _missing(measure, "no evaluation")
    steps = run.scored_steps("first_turn")
    if not steps:
        return _missing(measure, "no cross scores of first turns")
    return Ends(*(run.estimates("first_turn", step)[measure] for step in (steps[0], steps[-1])))


def _missing(measure: str, reason: str) -> Ends:
    nothing = skipped(measure, UNITS[measure], reason)
    return Ends(nothing, nothing)
