"""``tether demo``: reasoning that loses its input, and reasoning that keeps it, in minutes on a laptop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the runs and the report.")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds an arm.")] = 2,
    steps: Annotated[int, typer.Option(min=1, help="Iterations of an arm.")] = 40,
    default_steps: Annotated[int, typer.Option(min=1, help="Iterations of the default run.")] = 40,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 2,
) -> None:
    """Train four arms from one warm start (no filter, filter, two controls) and a default run; write a report.

    Takes under 5 minutes on 2 cores. The arms are a planted situation: the report says what they do not show.
    """
    from tether.cli import progress
    from tether.experiments.demo import DemoPlan, run_demo

    plan = DemoPlan(out=out, seeds=seeds, steps=steps, default_steps=default_steps, jobs=jobs)
    with progress.jobs() as on_progress:
        report = run_demo(plan, on_progress)
    progress.show_end(report)
