"""The table of golden adapters: one function a topic.

An adapter takes a case (the dict of the golden file: ``inputs``, ``options``, ...) and returns a dict with at least
the keys of ``expected``, computed through public functions of Tether. Refusals are the ``TetherError`` that the
public function raises; an adapter does not catch it.

    @topic("reward_variance")
    def reward_variance(case: Case) -> Result: ...

Every module in this folder is imported by ``tests/golden.py``; importing it registers its adapters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Case = dict[str, Any]
Result = dict[str, Any]
Adapter = Callable[[Case], Result]

ADAPTERS: dict[str, Adapter] = {}


def topic(name: str) -> Callable[[Adapter], Adapter]:
    """Register the decorated function as the adapter of the golden topic ``name``."""

    def register(adapter: Adapter) -> Adapter:
        if name in ADAPTERS:
            raise ValueError(f"two golden adapters for topic {name!r}: {ADAPTERS[name].__name__}, {adapter.__name__}")
        ADAPTERS[name] = adapter
        return adapter

    return register
