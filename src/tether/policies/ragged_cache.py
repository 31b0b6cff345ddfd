"""A key-value cache in which every row has a length of its own, so that no batch is ever padded on the left.

A chunk of new tokens of row ``b`` is written at slots ``length_b, length_b + 1, ...``; a token's position is its slot,
and a query sees the slots up to its own position. What a slot beyond a row's length holds is never seen: it is masked
until it is overwritten. A row is cut by lowering its length.

Shapes: _B rows of a forward pass, _T tokens of a chunk, _S slots, _H key-value heads, _D width of a head.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin, get_layer_types_and_kwargs

_MIN_SLOTS = 64
_FORWARD_ARGUMENTS = ("attention_mask", "position_ids", "cache", "logits_to_keep")


class Chunk(NamedTuple):
    """Where a forward pass stands: the model's ``position_ids`` and its 4-D ``attention_mask``."""

    position_ids_BT: Tensor
    attention_mask_B1TS: Tensor


@dataclass
class _Window:
    """The place that all layers write to, and how many slots they give back, in the coming forward pass."""

    rows: Tensor | slice
    rows_B: Tensor
    slots_BT: Tensor
    num_slots: int


class _RaggedLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, stored [row, head, slot, width]."""

    window: _Window

    def __init__(self, num_rows: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_rows = num_rows

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        # Zeros, because a masked slot still enters the attention with weight 0, and 0 times NaN is NaN.
        self.keys, self.values = (
            states.new_zeros(self.num_rows, states.shape[1], 0, states.shape[3])
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the chunk [B, H, T, D] and return all slots that a query of this pass may see, [B, H, S, D]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        window = self.window
        self.keys = _with_slots(self.keys, window)
        self.values = _with_slots(self.values, window)
        index = (window.rows_B[:, None], slice(None), window.slots_BT)
        self.keys[index] = key_states.transpose(1, 2)
        self.values[index] = value_states.transpose(1, 2)
        return self.keys[window.rows, :, : window.num_slots], self.values[window.rows, :, : window.num_slots]

    def swap_rows(self, first: Tensor, second: Tensor) -> None:
        for states in (self.keys, self.values):
            if states is not None:
                states[torch.cat([first, second])] = states[torch.cat([second, first])]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.window.num_slots, 0

    def get_seq_length(self) -> int:
        return self.window.num_slots

    def get_max_length(self) -> int:
        return -1


def _with_slots(states: Tensor, window: _Window) -> Tensor:
    """Return the buffer, doubled if the window does not fit into it."""
    needed, present = window.num_slots, states.shape[2]
    if needed <= present:
        return states
    grown = states.new_zeros(*states.shape[:2], max(needed, 2 * present, _MIN_SLOTS), states.shape[3])
    grown[:, :, :present] = states
    return grown


class RaggedCache(Cache):
    """The cache of ``num_rows`` sequences of different lengths, for one model.

    ``lengths`` belongs to the caller: lower it to cut a row, raise it once a chunk has been fed::

        chunk = cache.open(rows, num_tokens, num_slots)
        model(ids, position_ids=chunk.position_ids_BT, attention_mask=chunk.attention_mask_B1TS, cache=cache)
        cache.lengths[rows] += num_tokens
    """

    def __init__(self, model: PreTrainedModel, num_rows: int, *, max_context: int) -> None:
        config = model.config.get_text_config(decoder=True)
        self._ragged_layers = [_RaggedLayer(num_rows) for _ in range(config.num_hidden_layers)]
        super().__init__(layers=list(self._ragged_layers))
        self.lengths = torch.zeros(num_rows, dtype=torch.long, device=model.device)
        self._row_ids = torch.arange(num_rows, device=model.device)
        self._slot_ids = torch.arange(_MIN_SLOTS, device=model.device)
        self._last_position = max_context - 1
        self._model = model

    def open(self, rows: Tensor | slice, num_tokens: int, num_slots: int) -> Chunk:
        """Aim the next forward pass at ``rows``, each of which gets a chunk of ``num_tokens`` (its end may be padding).

        ``num_slots`` is at least the largest length plus ``num_tokens``; a slice of rows is read without a copy.
        """
        if num_slots > len(self._slot_ids):
            self._slot_ids = torch.arange(2 * num_slots, device=self.lengths.device)
        slots_BT = self.lengths[rows][:, None] + self._slot_ids[:num_tokens]
        window = _Window(rows, self._row_ids[rows], slots_BT, num_slots)
        for layer in self._ragged_layers:
            layer.window = window
        visible_BTS = self._slot_ids[:num_slots] <= slots_BT[:, :, None]
        # Padding behind a row's last token may run over the model's positions; nothing ever sees it.
        return Chunk(slots_BT.clamp(max=self._last_position), attention_mask_for(self._model, visible_BTS))

    def swap_rows(self, first: Tensor, second: Tensor) -> None:
        """Exchange the content of two disjoint lists of rows."""
        for layer in self._ragged_layers:
            layer.swap_rows(first, second)
        self.lengths[torch.cat([first, second])] = self.lengths[torch.cat([second, first])]

    def reset(self) -> None:
        """Forget every row."""
        self.lengths.zero_()


def attention_mask_for(model: PreTrainedModel, visible_BTS: Tensor) -> Tensor:
    """Return the 4-D mask in the form that the model's attention takes: boolean, or a summand for eager attention."""
    if model.config._attn_implementation != "eager":
        return visible_BTS[:, None]
    mask = torch.zeros_like(visible_BTS, dtype=model.dtype)
    return mask.masked_fill_(~visible_BTS, torch.finfo(model.dtype).min)[:, None]


def cache_obstacle(model: PreTrainedModel) -> str | None:
    """Return why a cache of this model cannot be cut, shared or written at chosen slots; None when it can."""
    config = model.config.get_text_config(decoder=True)
    name = type(model).__name__
    missing = [a for a in _FORWARD_ARGUMENTS if a not in inspect.signature(model.forward).parameters]
    if missing:
        return f"{name}.forward does not take {', '.join(missing)}"
    if getattr(model, "_is_stateful", False):
        return f"{name} keeps a recurrent state, which cannot be cut back to a prefix"
    kinds = sorted(set(get_layer_types_and_kwargs(config)[0]) - {"full_attention"})
    if kinds:
        return f"{name} has layers of kind {', '.join(kinds)}; only full attention is supported"
    if getattr(config, "alibi", False):
        return f"{name} derives its position bias (ALiBi) from a 2-D mask"
    if config._attn_implementation not in ("sdpa", "eager"):
        return (
            f"attention implementation {config._attn_implementation!r} takes no 4-D mask; load with 'sdpa' or 'eager'"
        )
    scaling = _length_dependent_rope(config)
    return f"rotary scaling {scaling!r} depends on the longest sequence of the batch" if scaling else None


def _length_dependent_rope(config: Any) -> str | None:
    parameters = getattr(config, "rope_parameters", None) or {}
    per_kind = parameters.values() if all(isinstance(p, dict) for p in parameters.values()) else [parameters]
    kinds = {str(p.get("rope_type", "default")) for p in per_kind}
    return next((kind for kind in sorted(kinds) if "dynamic" in kind or kind == "longrope"), None)
