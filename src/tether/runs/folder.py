"""A run on disk: one folder that holds its configuration, what it measured, what it played and how far it came.

Whole files are written beside their place and renamed, logs grow line by line: a run that is killed at any moment
leaves nothing half-written but the last line of a log.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from tether.errors import InputError, RunFolderError
from tether.files import atomic_file
from tether.results import Finding
from tether.runs.log import LogLines, StepLog


class RunFolder:
    """The folder of one run: its paths, and how each file is written and read.

    Make one with :meth:`create` or :meth:`open`, and hold :meth:`lock` while writing.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, runs_dir: str | Path, name: str | None = None) -> RunFolder:
        """Make a new run folder; without a name it gets the next free number (``run-0001`` ...).

        Raises:
            InputError: if the name is not one folder name.
            RunFolderError: if a run of this name exists, or ``runs_dir`` is no folder.
        """
        if name is not None and (not name or name.startswith(".") or re.search(r"[/\\\0]", name)):
            raise InputError(
                f"run name {name!r}: one folder name is expected, without '/' and a leading dot; choose the place with "
                "runs_dir"
            )
        runs_dir = Path(runs_dir)
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise RunFolderError(
                f"runs_dir {runs_dir} is a file or lies below one; a folder is expected; choose another runs_dir"
            ) from None
        run = cls(_next_free(runs_dir) if name is None else _new_folder(runs_dir / name))
        for folder in ("rollouts", "scores", "checkpoints"):
            (run.path / folder).mkdir()
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open the folder of a run that was started before.

        Raises:
            RunFolderError: if there is no such folder, or it holds no configuration.
        """
        run = cls(path)
        if not run.path.is_dir():
            raise RunFolderError(f"{path}: no such run folder; the folder of a started run is expected; check the path")
        if not run.config_path.is_file():
            raise RunFolderError(
                f"{path}: no config.yaml in it; the folder of a started run is expected; if a run was stopped before "
                "it began, remove the folder and start it again"
            )
        return run

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.path.name

    @property
    def config_path(self) -> Path:
        """The resolved configuration and the versions of what ran."""
        return self.path / "config.yaml"

    @property
    def metrics_path(self) -> Path:
        """One line a step, without wall-clock fields."""
        return self.path / "metrics.jsonl"

    @property
    def timings_path(self) -> Path:
        """Seconds of each part of each step."""
        return self.path / "timings.jsonl"

    @property
    def findings_path(self) -> Path:
        """What the monitor said, when, on which evidence."""
        return self.path / "findings.jsonl"

    @property
    def report_path(self) -> Path:
        """The report of the run."""
        return self.path / "report.html"

    def rollouts_path(self, step: int, part: str | None = None) -> Path:
        """The records of a step: the training rollouts, or another part (``"eval"``)."""
        return self.path / "rollouts" / f"{_stem(step, part)}.parquet"

    def scores_path(self, step: int, part: str | None = None) -> Path:
        """The cross scores of a step, or of a part of it (``"train.first_turn"``)."""
        return self.path / "scores" / f"{_stem(step, part)}.npz"

    def checkpoint_path(self, step: int) -> Path:
        """The folder of a checkpoint."""
        return self.path / "checkpoints" / _stem(step)

    def rollout_steps(self, part: str | None = None) -> list[int]:
        """Steps that have records, in ascending order."""
        return _steps_in(self.path / "rollouts", part, ".parquet")

    def score_steps(self, part: str | None = None) -> list[int]:
        """Steps that have cross scores, in ascending order."""
        return _steps_in(self.path / "scores", part, ".npz")

    def checkpoints(self) -> list[Path]:
        """Folders of the checkpoints, oldest first."""
        return [self.checkpoint_path(step) for step in _steps_in(self.path / "checkpoints")]

    def save_config(self, config: Mapping[str, Any], versions: Mapping[str, str]) -> None:
        """Write ``config.yaml``: the resolved configuration, then the versions of what ran.

        Raises:
            InputError: if the configuration is not plain data, or has a key ``versions`` of its own.
        """
        if "versions" in config:
            raise InputError("the configuration has a key 'versions', which names what ran; rename the key")
        try:
            text = yaml.safe_dump({**config, "versions": dict(versions)}, sort_keys=False, allow_unicode=True)
        except yaml.YAMLError as error:
            raise InputError(
                f"the configuration is not plain data ({error}); text, numbers, lists and mappings are expected; pass "
                "model_dump(mode='json')"
            ) from error
        with atomic_file(self.config_path) as file:
            file.write(text.encode())

    def read_config(self) -> dict[str, Any]:
        """Return the configuration without the versions.

        Raises:
            RunFolderError: if ``config.yaml`` is missing or broken.
        """
        return {key: value for key, value in self._read_yaml().items() if key != "versions"}

    def read_versions(self) -> dict[str, str]:
        """Return the versions of what ran.

        Raises:
            RunFolderError: if ``config.yaml`` is missing or broken.
        """
        return dict(self._read_yaml().get("versions") or {})

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """Append the metric line of a step; numbers that are not finite are written as null.

        Raises:
            InputError: if the line has no whole number ``step``, or a value that JSON cannot hold.
            RunFolderError: if the log ends in a torn line.
        """
        StepLog(self.metrics_path).append(line)

    def append_timings(self, line: Mapping[str, Any]) -> None:
        """Append the timings of a step; raises as :meth:`append_metrics` does."""
        StepLog(self.timings_path).append(line)

    def append_finding(self, step: int, finding: Finding) -> None:
        """Append what the monitor found at a step; raises as :meth:`append_metrics` does."""
        StepLog(self.findings_path).append({"step": step, **finding.to_dict()})

    def read_metrics(self) -> LogLines:
        """Return all metric lines.

        Raises:
            RunFolderError: if a line other than an unfinished last one is not a JSON object.
        """
        return StepLog(self.metrics_path).read()

    def read_timings(self) -> LogLines:
        """Return all timings; raises as :meth:`read_metrics` does."""
        return StepLog(self.timings_path).read()

    def read_findings(self) -> LogLines:
        """Return all findings; raises as :meth:`read_metrics` does."""
        return StepLog(self.findings_path).read()

    def truncate_metrics(self, step: int) -> None:
        """Cut the metrics, and the timings and findings beside them, back to the lines of ``step`` and before it.

        A resumed run calls this with the step of its checkpoint; a torn last line goes too.

        Raises:
            RunFolderError: if a log is broken elsewhere than in its last line.
        """
        for path in (self.metrics_path, self.timings_path, self.findings_path):
            StepLog(path).truncate(step)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other writers out of the folder while the block runs; a killed holder frees it.

        Raises:
            RunFolderError: naming the process that holds the lock.
        """
        # Some versions of filelock empty the lock file when another process tries it, so the holder's name has its own.
        lock, holder = FileLock(self.path / ".lock"), self.path / ".lock-holder"
        try:
            lock.acquire(timeout=0)
        except Timeout:
            name = holder.read_text(encoding="utf-8") if holder.exists() else "another process"
            raise RunFolderError(
                f"{self.path} is being written by {name}; one writer is expected; wait for it, stop it, or give this "
                "run another name"
            ) from None
        try:
            holder.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()

    def _read_yaml(self) -> dict[str, Any]:
        try:
            content = yaml.safe_load(self.config_path.read_text(encoding="utf-8"))
        except (OSError, UnicodeError, yaml.YAMLError) as error:
            raise RunFolderError(
                f"{self.config_path} cannot be read ({error}); the configuration of a run is expected; restore the file"
            ) from error
        if not isinstance(content, dict):
            raise RunFolderError(
                f"{self.config_path} holds a {type(content).__name__}; a mapping is expected; restore the file"
            )
        return content


def _new_folder(path: Path) -> Path:
    try:
        path.mkdir()
    except FileExistsError:
        raise RunFolderError(
            f"{path} exists already; a new name is expected; choose another name, or continue that run with resume=true"
        ) from None
    return path


def _next_free(runs_dir: Path) -> Path:
    numbers = [int(match[1]) for path in runs_dir.iterdir() if (match := re.fullmatch(r"run-(\d+)", path.name))]
    number = max(numbers, default=0) + 1
    while True:
        path = runs_dir / f"run-{number:04d}"
        try:
            path.mkdir()
        except FileExistsError:  # another run took the number in between
            number += 1
        else:
            return path


def _stem(step: int, part: str | None = None) -> str:
    return f"step={step:06d}" if part is None else f"step={step:06d}.{part}"


def _steps_in(folder: Path, part: str | None = None, suffix: str = "") -> list[int]:
    pattern = re.compile(r"step=(\d+)" + re.escape(suffix if part is None else f".{part}{suffix}"))
    return sorted(int(match[1]) for path in folder.iterdir() if (match := pattern.fullmatch(path.name)))
