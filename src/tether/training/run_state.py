"""How a run begins: a fresh folder, or a point to resume from."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from tether.errors import RunFolderError
from tether.runs import RunFolder
from tether.training.checkpoint import WEIGHTS, load_checkpoint
from tether.training.config import RunConfig

MAY_CHANGE = frozenset({"resume", "steps", "runs_dir", "name"})
"""Settings that a resumed run may have other than the run it continues."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A checkpoint: its weights as a model folder, the optimiser, and the state of the run."""

    weights: Path
    learner: dict[str, Any]
    state: dict[str, Any]


def versions() -> dict[str, str]:
    """Return the versions of what runs, for ``config.yaml``."""
    packages = ("tether", "torch", "transformers", "accelerate", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def refuse_existing(config: RunConfig) -> None:
    """Raise before anything long happens if an explicitly named run exists.

    Raises:
        RunFolderError: offering ``resume=true``.
    """
    if config.name is not None and (config.runs_dir / config.name).exists():
        raise RunFolderError(
            f"run {config.runs_dir / config.name} exists; a new name is expected; continue it with resume=true, or "
            "choose another name"
        )


def resume_point(config: RunConfig) -> ResumePoint | None:
    """Return the newest checkpoint of the named run, None if it has none.

    Raises:
        RunFolderError: if there is no such run, or it was made with other settings.
    """
    run = RunFolder.open(config.runs_dir / str(config.name))
    asked, had = config.model_dump(mode="json"), run.read_config()
    changed = [key for key in asked if key not in MAY_CHANGE and asked[key] != had.get(key)]
    if changed:
        raise RunFolderError(
            f"{run.path} was started with other settings for {', '.join(changed)} (for example {changed[0]}="
            f"{had.get(changed[0])!r}, now {asked[changed[0]]!r}); the same settings are expected; start a new "
            f"run, or give the run's own {run.config_path}"
        )
    checkpoints = run.checkpoints()
    if not checkpoints:
        return None
    learner, state = load_checkpoint(checkpoints[-1])
    return ResumePoint(checkpoints[-1] / WEIGHTS, learner, state)


def open_run(config: RunConfig, accelerator: Accelerator) -> RunFolder:
    """Make the run's folder, or open it to resume; all processes get the one that the main process made."""
    if config.resume:
        return RunFolder.open(config.runs_dir / str(config.name))
    accelerator.wait_for_everyone()  # every process has found the name free before one of them takes it
    made = [RunFolder.create(config.runs_dir, config.name).path if accelerator.is_main_process else None]
    if accelerator.num_processes > 1:
        broadcast_object_list(made)
    return RunFolder(str(made[0]))
