"""Logs of a run: JSON lines, one a step, appended and flushed; a kill leaves at most one torn line at the end."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tether.errors import InputError, RunFolderError
from tether.files import atomic_file


@dataclass(frozen=True, slots=True)
class LogLines:
    """The lines of a log, and the text of a last line that a kill left unfinished (None when there is none)."""

    rows: list[dict[str, Any]]
    torn: str | None = None


@dataclass(frozen=True, slots=True)
class StepLog:
    """One log file; every line is a JSON object with a whole number ``step``."""

    path: Path

    def append(self, line: Mapping[str, Any]) -> None:
        """Append one line and flush it; numbers that are not finite are written as null, for JSON has none.

        Raises:
            InputError: if the line has no whole number ``step``, or a value that JSON cannot hold.
            RunFolderError: if the log ends in a torn line.
        """
        step = line.get("step")
        if isinstance(step, bool) or not isinstance(step, int | np.integer):
            raise InputError(
                f"a line for {self.path.name} with step {step!r}; a whole number is expected; add the step"
            )
        text = _to_line(line)
        with self.path.open("ab+") as file:
            if file.tell() and _last_byte(file) != b"\n":
                raise RunFolderError(
                    f"{self.path} ends in a torn line; whole lines are expected before another is added; cut the log "
                    "back to a step first"
                )
            file.write(text)

    def read(self) -> LogLines:
        """Return all lines; a log that does not exist yet has none.

        Raises:
            RunFolderError: if a line other than an unfinished last one is not an object with a step.
        """
        *whole, torn = self.path.read_bytes().split(b"\n") if self.path.exists() else [b""]
        rows = [self._parse(number, line) for number, line in enumerate(whole, start=1)]
        return LogLines(rows, torn.decode(errors="replace") or None)

    def truncate(self, step: int) -> None:
        """Keep the whole lines of this step and before it.

        Raises:
            RunFolderError: as :meth:`read` does.
        """
        if not self.path.exists():
            return
        kept = [row for row in self.read().rows if row["step"] <= step]
        with atomic_file(self.path) as file:
            file.writelines(_to_line(row) for row in kept)

    def _parse(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError as error:
            raise RunFolderError(
                f"{self.path}, line {number}: not JSON ({error}); one object a line is expected; restore or remove it"
            ) from error
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise RunFolderError(
                f"{self.path}, line {number}: no object with a step; one such object a line is expected; restore "
                "or remove it"
            )
        return row


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)


def _to_line(line: Mapping[str, Any]) -> bytes:
    return json.dumps(_plain(line, "line"), allow_nan=False).encode() + b"\n"


def _plain(value: Any, key: str) -> Any:
    """Return the value as JSON data; NaN and infinity, which JSON lacks, become null."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(part, str(name)) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, key) for part in value]
    raise InputError(f"{key!r} is a {type(value).__name__}; a number, text, list or mapping is expected; convert it")
