"""One training run and its report: what ``tether train`` does."""

from __future__ import annotations

from pathlib import Path

from tether.reports import write_run_report
from tether.training.config import RunConfig
from tether.training.loop import OnStep, train


def train_and_report(config: RunConfig, on_step: OnStep = lambda line: None) -> Path:
    """Train, write ``report.html`` into the run folder, and return its path."""
    run = train(config, on_step)
    write_run_report(run, run.report_path)
    return run.report_path
