"""From a seed to a state, with training and validation states that never overlap.

The side of a state is decided by a hash of its content, not by its seed. Whatever seeds two runs use, and in whichever
process, a state that one of them trains on cannot be a validation state of the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Literal, TypeVar

import numpy as np

from tether.errors import ConfigError
from tether.randomness import keyed_rng

State = TypeVar("State")
Split = Literal["train", "validation"]

SPLITS: tuple[Split, ...] = ("train", "validation")
VALIDATION_SHARE = 1 / 8
_VALIDATION_BELOW = int(VALIDATION_SHARE * 2**64)


def split_of(content: str) -> Split:
    """Return the side on which a state with this canonical content lies; about 1 of 8 is a validation state.

    >>> [split_of(f"state {i}") for i in range(3)]
    ['train', 'train', 'train']
    """
    head = int.from_bytes(hashlib.sha256(content.encode()).digest()[:8], "big")
    return "validation" if head < _VALIDATION_BELOW else "train"


def draw_in_split(
    seed: int,
    split: Split,
    draw: Callable[[np.random.Generator], State],
    content: Callable[[State], str],
    *,
    accept: Callable[[State], bool] = lambda state: True,
    max_tries: int = 20_000,
) -> State:
    """Draw states from one generator keyed by the seed until one lies in the split and is accepted.

    Args:
        seed: The seed of the state.
        split: The side wanted.
        draw: Draws one candidate.
        content: Canonical text of a candidate: equal for equal states, whatever the view or the process.
        accept: Further condition; asked only for candidates of the right side.
        max_tries: Candidates drawn at most.

    Raises:
        ConfigError: No candidate fits; the options leave no such state, or hardly any.
    """
    rng = keyed_rng(seed, "state")
    for _ in range(max_tries):
        state = draw(rng)
        if split_of(content(state)) == split and accept(state):
            return state
    raise ConfigError(
        f"no {split} state found in {max_tries} draws with seed {seed}; expected options under which many states "
        f"exist on both sides of the split. The last candidate was {content(state)!r}: relax what a state must satisfy."
    )
