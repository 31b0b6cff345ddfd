"""``tether train``: train an agent with the monitor on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def train(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[CONFIG] [KEY=VALUE ...]", help="A YAML file, then settings.")
    ] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Show the resolved configuration.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the cost, train nothing.")
    ] = False,
) -> None:
    """Train an agent; without arguments the tiny model on FrozenLake.

    Example: tether train env=frozen_lake steps=40 select.top_p=0.8
    """
    from tether.training.config import dump_config, load_config

    given = list(words or [])
    path = Path(given.pop(0)) if given and "=" not in given[0] else None
    config = load_config(path, given)
    if print_config:
        typer.echo(dump_config(config), nl=False)
        return
    from tether.cli import progress
    from tether.experiments.single_run import train_and_report
    from tether.training.cost import estimate_cost

    if dry_run:
        progress.show_cost(estimate_cost(config))
        return
    with progress.training(config.steps) as on_step:
        report = train_and_report(config, on_step)
    progress.show_end(report)
