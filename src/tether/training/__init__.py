"""The training loop, its configuration, and the monitor that watches it."""

from __future__ import annotations

from typing import Any

from tether.training.config import RunConfig, dump_config, load_config, parse_config

__all__ = ["RunConfig", "dump_config", "load_config", "parse_config", "train"]


def __getattr__(name: str) -> Any:
    """Import :func:`train` when it is used: a configuration can be read without torch."""
    if name == "train":
        from tether.training.loop import train

        return train
    raise AttributeError(f"module 'tether.training' has no attribute {name!r}")
