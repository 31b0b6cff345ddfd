"""Control arms: what a selection is compared with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tether.selection.groups import Selection, rows_of


def random_selection(selection: Selection, rng: np.random.Generator) -> Selection:
    """Keep as many groups as ``selection`` does, drawn at random: fewer rollouts train, but not chosen ones.

    Every decidable group may be drawn, constant ones included. If this arm does as well as the filter, the filter's
    choice did not matter, only the smaller batch.
    """
    decidable = np.flatnonzero(~np.isnan(selection.scores))
    drawn = rng.permutation(decidable)[: len(selection.groups)]
    return replace(
        selection,
        keep=rows_of(selection.index, drawn) & selection.valid,
        groups=[selection.index.ids[position] for position in drawn],
        reason=f"kept {len(drawn)} of {selection.num_groups} at random",
    )
