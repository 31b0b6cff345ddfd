"""From the settings of a run to the options of the rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tether.selection.rule import AMOUNT_OF

OPTIONS = ("statistic", "include_zero", "min_keep", "mass", "selection_eps", "keep", "profile")


def select_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of :func:`tether.select_groups` for the ``select`` section of a configuration.

    The section may hold an amount for every strategy; that of its own strategy counts. ``none`` keeps every group.

    >>> select_options({"strategy": "top_k", "top_p": 0.9, "fraction": 0.25, "keep": "largest"})
    {'strategy': 'top_k', 'fraction': 0.25, 'keep': 'largest'}
    """
    strategy = settings.get("strategy", "top_p")
    if strategy == "none":
        return {"top_p": 1.0, "include_zero": True}
    given = {name: settings[name] for name in (AMOUNT_OF.get(strategy, strategy), *OPTIONS) if name in settings}
    return {"strategy": strategy, **given}
