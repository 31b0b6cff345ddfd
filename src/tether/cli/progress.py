"""Progress with an ETA, and what a verb says at its end. On a terminal bars; elsewhere one plain line an event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

CONSOLE = Console(stderr=True, highlight=False)
SHOWN = {
    "success": "success",
    "eval/success": "unseen",
    "eval/first_turn/mi_sequence": "I(X;Z)",
    "kept_groups": "kept",
    "grad_norm": "grad",
}


def _bars() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[note]}"),
        console=CONSOLE,
        disable=not CONSOLE.is_terminal,
    )


def describe(line: Mapping[str, Any]) -> str:
    """Return the shown columns of a metric line, for example ``success 0.41  kept 9``."""
    parts = [f"{label} {line[name]:.3g}" for name, label in SHOWN.items() if line.get(name) is not None]
    return "  ".join(parts)


@contextmanager
def training(steps: int) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show the iterations of one run."""
    with _bars() as bars:
        task = bars.add_task("training", total=steps, note="preparing the model")

        def on_step(line: Mapping[str, Any]) -> None:
            bars.update(task, completed=line["step"], note=describe(line))
            if not CONSOLE.is_terminal:
                CONSOLE.print(f"step {line['step']}/{steps}  {describe(line)}")

        yield on_step


@contextmanager
def jobs() -> Iterator[Callable[[str, int, int, str], None]]:
    """Show several runs at a time: (name, done, total, note)."""
    with _bars() as bars:
        tasks: dict[str, Any] = {}
        shown: dict[str, int] = {}

        def on_progress(name: str, done: int, total: int, note: str) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total, note="")
            bars.update(tasks[name], completed=done, total=total, note=note)
            if not CONSOLE.is_terminal and (done == total or done >= shown.get(name, 0) + max(1, total // 4)):
                shown[name] = done
                CONSOLE.print(f"{name}: {done}/{total}  {note}")

        yield on_progress


def show_cost(cost: Mapping[str, str]) -> None:
    """Print what a run would cost, one line a part."""
    out = Console(highlight=False)
    for name, value in cost.items():
        out.print(f"{name:<28} {value}", soft_wrap=True)


def show_end(report: Path) -> None:
    """Say where the results are."""
    Console(highlight=False).print(f"results: {report.parent}\nreport:  {report}", soft_wrap=True, markup=False)
