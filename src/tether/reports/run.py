"""The report of one training run."""

from __future__ import annotations

from pathlib import Path

import yaml

from tether.reports.page import write_page
from tether.reports.readings import RunReading
from tether.reports.run_view import view_run
from tether.runs import RunFolder


def write_run_report(run: RunFolder, path: str | Path) -> None:
    """Write the report of a training run from what is in its folder; one HTML file that works offline.

    A run that was stopped early, or had parts switched off, gets a report of what there is, and a list of what is not.

    Raises:
        RunFolderError: if the configuration or a log of the run is broken.
        RecordError: if a file of records or scores is.
    """
    reading = RunReading(run)
    write_page(path, "run.html", run=view_run(reading), config=config_text(reading))


def config_text(run: RunReading) -> str:
    """Return the configuration of a run as YAML."""
    return str(yaml.safe_dump(run.config, sort_keys=False, allow_unicode=True))
