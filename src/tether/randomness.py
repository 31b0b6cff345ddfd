"""Keyed randomness: a sample depends on what it is, never on when it is drawn.

Every random draw of Tether comes from a generator named by a key such as (seed, step, group, member, turn). Batch
order, process count and evaluation therefore never change a sample.
"""

from __future__ import annotations

import hashlib

import numpy as np


def keyed_rng(seed: int, *key: int | str) -> np.random.Generator:
    """Return the generator of this key; equal keys give equal streams in every process.

    >>> keyed_rng(0, "rollout", 3, 1).integers(100) == keyed_rng(0, "rollout", 3, 1).integers(100)
    np.True_
    """
    return np.random.Generator(np.random.Philox(key=_digest(seed, key)))


def keyed_seed(seed: int, *key: int | str) -> int:
    """Return a 63-bit seed of this key, for code that takes a seed and not a generator."""
    return int(_digest(seed, key)[0] >> np.uint64(1))


def _digest(seed: int, key: tuple[int | str, ...]) -> np.ndarray:
    plain = tuple(part if isinstance(part, str) else int(part) for part in (seed, *key))  # NumPy integers as integers
    text = repr(plain).encode()
    return np.frombuffer(hashlib.blake2b(text, digest_size=16).digest(), dtype=np.uint64)
