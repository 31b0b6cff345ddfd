"""The command ``tether``: one file a verb, no logic. What a verb does is importable."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from tether import __version__
from tether.cli import demo, train
from tether.errors import TetherError

app = typer.Typer(
    name="tether",
    help="Is the agent's reasoning still about the problem in front of it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(rich_help_panel="Look")(demo.demo)
app.command(rich_help_panel="Train")(train.train)


def _show_version(wanted: bool) -> None:
    if wanted:
        Console().print(f"tether {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that need no verb."""


def main() -> None:
    """Run the command line; bad input ends with a message on standard error and exit code 2."""
    try:
        app()
    except TetherError as error:
        Console(stderr=True, highlight=False).print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(2)
