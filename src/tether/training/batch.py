"""From episodes to padded tensors: which tokens train, with which behaviour log-probability and advantage.

The legend: ``_B`` rows (samples), ``_T`` tokens. A sample is the longest run of turns in which every context extends
the one before it; when history was rewritten (a window, a template that drops thoughts), an episode is several samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tether.errors import RecordError
from tether.records import Episode, Turn


@dataclass(frozen=True, slots=True)
class Sample:
    """One training row: ids, which of them were sampled, and their behaviour log-probabilities (NaN elsewhere)."""

    ids: tuple[int, ...]
    sampled: tuple[bool, ...]
    old_logprobs: tuple[float, ...]
    episode: int

    @property
    def num_targets(self) -> int:
        """Tokens that carry a loss."""
        return sum(self.sampled)


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded samples. ``old_logprobs_BT`` holds NaN outside the mask, so that a leak is visible."""

    ids_BT: torch.Tensor
    mask_BT: torch.Tensor
    old_logprobs_BT: torch.Tensor
    advantages_B: torch.Tensor

    def to(self, device: torch.device) -> Batch:
        """Return the batch on this device."""
        return Batch(*(getattr(self, name).to(device) for name in self.__slots__))


def samples_of(episode: Episode, row: int) -> list[Sample]:
    """Cut one episode into training samples; every sampled token appears in exactly one of them.

    Raises:
        RecordError: if a turn has no ids or no behaviour log-probabilities.
    """
    samples: list[Sample] = []
    for turn in episode.turns or ():
        prompt_ids, sampled_ids, logprobs = _trained_fields(turn, episode)
        open_ids = samples[-1].ids if samples else ()
        extends = bool(samples) and prompt_ids[: len(open_ids)] == open_ids
        start = samples.pop() if extends else Sample((), (), (), row)
        context = prompt_ids[len(start.ids) :]
        samples.append(
            Sample(
                ids=start.ids + context + sampled_ids,
                sampled=start.sampled + (False,) * len(context) + (True,) * len(sampled_ids),
                old_logprobs=start.old_logprobs + (math.nan,) * len(context) + logprobs,
                episode=row,
            )
        )
    return samples


def _trained_fields(turn: Turn, episode: Episode) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
    if turn.prompt_ids is None or turn.sampled_ids is None or turn.logprobs is None:
        raise RecordError(
            f"episode {episode.episode_id}: a turn without token ids or behaviour log-probabilities; training needs "
            "both as they were sampled; record them at generation"
        )
    return turn.prompt_ids, turn.sampled_ids, turn.logprobs


def collate(samples: Sequence[Sample], advantages: Sequence[float], pad_id: int) -> Batch:
    """Pad samples on the right to their own longest row. ``advantages`` has one number a sample."""
    width = max(len(sample.ids) for sample in samples)

    def padded(rows: Sequence[Sequence[float]], fill: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=dtype)

    return Batch(
        ids_BT=padded([sample.ids for sample in samples], pad_id, torch.long),
        mask_BT=padded([sample.sampled for sample in samples], False, torch.bool),
        old_logprobs_BT=padded([sample.old_logprobs for sample in samples], math.nan, torch.float32),
        advantages_B=torch.tensor(advantages, dtype=torch.float32),
    )


def split_minibatches(order: Sequence[int], *, at_most: int, at_least_rows: int) -> list[list[int]]:
    """Deal rows into at most ``at_most`` minibatches of at least ``at_least_rows`` rows where there are that many.

    The number of updates follows the kept count, so that a strict filter does not make tiny updates.

    >>> split_minibatches([3, 1, 2, 0, 4], at_most=2, at_least_rows=2)
    [[3, 2, 4], [1, 0]]
    >>> split_minibatches([0, 1, 2], at_most=2, at_least_rows=2)
    [[0, 1, 2]]
    """
    if not order:
        return []
    count = max(1, min(at_most, len(order) // at_least_rows))
    return [list(order[start::count]) for start in range(count)]
