"""A run on disk: its folder, its logs, its lock."""

from tether.runs.folder import RunFolder
from tether.runs.log import LogLines, StepLog

__all__ = ["LogLines", "RunFolder", "StepLog"]
