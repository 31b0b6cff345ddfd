"""The pictures of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tether.reports import charts
from tether.reports.charts import Curve, Level, Point
from tether.reports.drawing import Picture, picture
from tether.reports.palette import series, var
from tether.reports.readings import SCOPES, GroupChoice, RunReading, posterior
from tether.reports.words import interval_of, label, number, value_of
from tether.results import Estimate

SCOPE_COLOURS = dict(zip(SCOPES, (series(1), series(3)), strict=True))
HEALTH = {
    "share of groups": {"no variance": "zero_variance_share", "solved": "solved_share", "failed": "failed_share"},
    "share of replies": {"valid format": "valid_format_share", "cut off": "truncated_reply_share"},
    "tokens": {"reply": "reply_tokens_mean", "reasoning": "reasoning_tokens_mean"},
    "KL to the reference, nats per token": {"KL": "kl"},
    "token entropy, nats": {"entropy": "entropy"},
    "gradient norm": {"gradient norm": "grad_norm"},
}
SHARES = (0.0, 1.05)


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture with the words below it; words alone where nothing may be drawn."""

    picture: Picture | None
    caption: str = ""


def success_figures(run: RunReading, *, solvable: bool) -> list[Figure]:
    """Draw success on unseen and on training states."""
    lines = [
        Curve("unseen states", series(1), run.points("eval/success")),
        Curve("training states", var("faint"), _bare_points(run, "success")),
    ]
    return curve_figures("success", lines, levels=[Level("solver", 1.0)] * solvable, domain=SHARES, width=430)


def dependence_figures(run: RunReading) -> list[Figure]:
    """Draw I(X;Z), H(Z|X) and retrieval of first and later turns."""
    steps = run.scored_steps(SCOPES[0])
    last = run.estimates(SCOPES[0], steps[-1]) if steps else {}
    chance = _levels(last.get("retrieval_accuracy"))[:1]
    return [
        *curve_figures("I(X;Z), nats", _scope_curves(run, "mi_sequence"), levels=_levels(last.get("mi_sequence"))),
        *curve_figures("H(Z|X), nats per token", _scope_curves(run, "conditional_entropy")),
        *curve_figures(
            "own context ranked first", _scope_curves(run, "retrieval_accuracy"), levels=chance, domain=SHARES
        ),
    ]


def health_figures(run: RunReading) -> list[Figure]:
    """Draw what shows a sick training: groups without signal, broken replies, lengths, KL, entropy, gradients."""
    figures = []
    for title, columns in HEALTH.items():
        lines = [Curve(name, series(1 + n), _bare_points(run, key)) for n, (name, key) in enumerate(columns.items())]
        figures += curve_figures(title, lines, domain=SHARES if title.startswith("share") else None)
    return figures


def matrix_figure(run: RunReading, scope: str, step: int) -> Figure:
    """Draw the retrieval matrix of a scope at a step."""
    estimate = run.estimates(scope, step)["retrieval_accuracy"]
    if not estimate.usable:
        return Figure(None, f"Iteration {step}: {estimate.status}, {estimate.reason}")
    found = f"{value_of(estimate)} {interval_of(estimate)}"
    said = f"{found} of the reasonings fit their own context best (chance {number(estimate.chance)})"
    drawn = charts.retrieval_matrix(*posterior(run.scores(scope, step)))
    return Figure(
        picture(drawn, f"Retrieval matrix of {label(scope)} at iteration {step}: {said}."),
        f"Iteration {step}. {said}.",
    )


def group_figure(choice: GroupChoice) -> Figure:
    """Draw the reward variance of the groups of a step and which of them trained."""
    said = f"{choice.num_kept} of {len(choice.kept)} groups trained"
    control = " by the rule; the run is a control and trained others" if choice.is_control else ""
    drawn = charts.group_variance(choice.variance, choice.kept)
    return Figure(
        picture(drawn, f"Reward variance by group at iteration {choice.step}: {said}."),
        f"Iteration {choice.step}: {said}{control}.",
    )


def curve_figures(
    title: str,
    lines: Sequence[Curve],
    *,
    levels: Sequence[Level] = (),
    domain: tuple[float, float] | None = None,
    width: int = 245,
) -> list[Figure]:
    """Draw the curves that have points; no figure when none has."""
    drawn = [line for line in lines if line.points]
    if not drawn:
        return []
    said = "; ".join(f"{line.label} {_way(line.points)}" for line in drawn)
    chart = charts.curves(drawn, title=title, levels=levels, domain=domain, width=width)
    return [Figure(picture(chart, f"{title}: {said}."))]


def _way(points: Sequence[Point]) -> str:
    first, last = points[0], points[-1]
    return f"{number(first.value)} at step {first.step} to {number(last.value)} at step {last.step}"


def _scope_curves(run: RunReading, name: str) -> list[Curve]:
    """Curves of both scopes; lower bounds are curves of their own."""
    lines = []
    for scope, colour in SCOPE_COLOURS.items():
        key = f"{run.part}/{scope}/{name}"
        lines.append(Curve(label(scope), colour, run.points(key)))
        lines.append(Curve(f"{label(scope)}, lower bound", colour, run.points(key, "critic_bound"), interrupted=True))
    return lines


def _levels(estimate: Estimate | None) -> list[Level]:
    if estimate is None or not estimate.usable:
        return []
    known = {"chance": estimate.chance, "bound": estimate.bound}
    return [Level(name, value) for name, value in known.items() if value is not None]


def _bare_points(run: RunReading, key: str) -> list[Point]:
    """Points of a column that may have an interval, which is left out."""
    return [Point(point.step, point.value) for point in run.points(key)]
