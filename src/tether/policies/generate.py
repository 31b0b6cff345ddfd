"""Batched sampling that keeps each row's key-value cache over the turns of an episode.

A call feeds only what is new behind the longest common prefix of a row's context with the tokens its cache holds, so
it does not matter whether the context is an extension of the previous one (a next turn) or not (a window moved, earlier
thoughts were dropped). Rows never see each other: a row's reply depends on its context and its generator alone.

Shapes: _B rows of the call (in cache order), _T sampled tokens, _V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tether.errors import ContextLengthError, InputError, ModelError, NonFiniteError
from tether.policies.causal import CausalPolicy, check_ids, evaluation_mode
from tether.policies.ragged_cache import Chunk, RaggedCache, cache_obstacle

_PREFILL_TOKENS = 16_384
_SMALL_CHUNK = 16
_MIN_BATCH_TO_SHRINK = 16


@dataclass(frozen=True, slots=True)
class Reply:
    """What was sampled for one row.

    ``token_ids`` includes the stop token when one was sampled (``finish`` "stop"); otherwise the reply ended at
    ``max_new_tokens`` (``finish`` "length") and nothing was added. ``logprobs`` are in nats under the full softmax of
    logits / temperature, the distribution that was sampled from; at temperature 0 (greedy) of temperature 1.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Literal["stop", "length"]


class GenerationSession:
    """Generation for ``num_rows`` episodes with one cache row each.

    The cache holds keys and values of the weights that made them: after an update of the weights make a new session
    or call :meth:`reset`.

    Raises:
        ModelError: if the model's cache cannot be cut back to a prefix (sliding windows, recurrent layers).
    """

    def __init__(self, policy: CausalPolicy, num_rows: int) -> None:
        if num_rows < 1:
            raise InputError(f"num_rows={num_rows}: a session needs at least 1 row")
        if obstacle := cache_obstacle(policy.causal_lm):
            raise ModelError(
                f"model {policy.name!r} cannot generate with a cache that is kept over turns: {obstacle}. "
                "Use a model with full attention in every layer"
            )
        self._policy = policy
        self._cache = RaggedCache(policy.causal_lm, num_rows, max_context=policy.max_context)
        self._held: list[list[int]] = [[] for _ in range(num_rows)]
        self._row_at = list(range(num_rows))

    def reset(self) -> None:
        """Forget all cached tokens, for example after the weights changed."""
        self._cache.reset()
        self._held = [[] for _ in self._held]

    @torch.inference_mode()
    def generate(
        self,
        rows: Sequence[int],
        contexts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        stop_ids: frozenset[int],
        rngs: Sequence[np.random.Generator],
        temperature: float = 1.0,
    ) -> list[Reply]:
        """Sample one reply for each of the given rows.

        Args:
            rows: Distinct rows of the session that take part in this call.
            contexts: The full context of each row, as token ids.
            max_new_tokens: Longest reply, stop token included.
            stop_ids: Tokens that end a reply; they are sampled and belong to it.
            rngs: One generator a row; each gives ``max_new_tokens`` uniforms at once (none when greedy), so that a
                sample does not depend on the other rows of the batch.
            temperature: Divides the logits; 0 takes the most likely token.

        Raises:
            ContextLengthError: if a context and the longest reply exceed the model's window; nothing has run then.
            InputError: if the arguments do not fit together.
            NonFiniteError: if the model gives a logit that is NaN or infinite.
        """
        self._check(rows, contexts, rngs, max_new_tokens, temperature)
        if not rows:
            return []
        call_index = {row: index for index, row in enumerate(rows)}
        self._bring_to_front(call_index)
        order = [call_index[row] for row in self._row_at[: len(rows)]]
        with evaluation_mode(self._policy.causal_lm):
            logits_BV = self._prefill([contexts[index] for index in order])
            uniforms_BT = None
            if temperature > 0:
                draws = np.stack([rngs[index].random(max_new_tokens) for index in order])
                uniforms_BT = torch.from_numpy(draws).to(logits_BV.device)
            replies = self._decode(logits_BV, uniforms_BT, max_new_tokens, stop_ids, temperature)
        by_index = dict(zip(order, replies, strict=True))
        for index, row in enumerate(rows):
            self._held[row] = [*contexts[index], *by_index[index].token_ids[:-1]]
        return [by_index[index] for index in range(len(rows))]

    def _check(
        self,
        rows: Sequence[int],
        contexts: Sequence[Sequence[int]],
        rngs: Sequence[np.random.Generator],
        max_new_tokens: int,
        temperature: float,
    ) -> None:
        if not len(rows) == len(contexts) == len(rngs):
            raise InputError(
                f"{len(rows)} rows, {len(contexts)} contexts, {len(rngs)} generators: one of each a row is expected"
            )
        if len(set(rows)) != len(rows) or not set(rows) <= set(range(len(self._held))):
            raise InputError(f"rows {list(rows)}: distinct rows from 0 to {len(self._held) - 1} are expected")
        if max_new_tokens < 1:
            raise InputError(f"max_new_tokens={max_new_tokens}: at least 1 is expected")
        if not 0 <= temperature < float("inf"):
            raise InputError(f"temperature={temperature}: 0 (greedy) or a positive number is expected")
        check_ids(contexts, self._policy.vocab_size, what="context")
        for row, context in zip(rows, contexts, strict=True):
            if len(context) + max_new_tokens > self._policy.max_context:
                raise ContextLengthError(
                    f"row {row}: a context of {len(context)} tokens and a reply of up to {max_new_tokens} exceed the "
                    f"{self._policy.max_context} tokens of model {self._policy.name!r}; cut whole turns of the context "
                    "or allow a shorter reply"
                )

    def _bring_to_front(self, wanted: dict[int, int]) -> None:
        """Move the wanted rows to the first places of the cache, where a pass reads them without a copy."""
        count = len(wanted)
        strangers = [place for place, row in enumerate(self._row_at[:count]) if row not in wanted]
        homeless = [place for place, row in enumerate(self._row_at) if place >= count and row in wanted]
        self._swap(strangers, homeless)

    def _swap(self, first: list[int], second: list[int]) -> None:
        if not first:
            return
        device = self._cache.lengths.device
        self._cache.swap_rows(torch.tensor(first, device=device), torch.tensor(second, device=device))
        for a, b in zip(first, second, strict=True):
            self._row_at[a], self._row_at[b] = self._row_at[b], self._row_at[a]

    def _prefill(self, contexts: list[Sequence[int]]) -> Tensor:
        """Feed what is new of each context (in cache order) and return the logits that follow it, [B, V]."""
        cache, count = self._cache, len(contexts)
        device = cache.lengths.device
        starts = []
        for row, context in zip(self._row_at[:count], contexts, strict=True):
            # At least the last token of a context is fed: its logits are needed.
            start = min(_common_prefix(self._held[row], context), len(context) - 1)
            self._held[row] = self._held[row][:start]
            starts.append(start)
        cache.lengths[:count] = torch.tensor(starts, device=device)
        logits_BV: Tensor | None = None
        for places in _prefill_blocks([len(c) - s for c, s in zip(contexts, starts, strict=True)]):
            chunks = [contexts[place][starts[place] :] for place in places]
            rows = slice(count) if len(places) == count else torch.tensor(places, device=device)
            width = max(map(len, chunks))
            chunk = cache.open(rows, width, max(starts[place] for place in places) + width)
            last_B1 = torch.tensor([[len(c) - 1] for c in chunks], device=device)
            block_logits = self._forward(_padded(chunks, self._policy.pad_id, device), chunk, last_B1)
            if logits_BV is None:
                logits_BV = block_logits.new_empty(count, block_logits.shape[-1])
            logits_BV[rows] = block_logits
            cache.lengths[rows] += last_B1[:, 0] + 1
        assert logits_BV is not None
        return logits_BV

    def _decode(
        self,
        logits_BV: Tensor,
        uniforms_BT: Tensor | None,
        max_new_tokens: int,
        stop_ids: frozenset[int],
        temperature: float,
    ) -> list[Reply]:
        """Sample token after token until every row has stopped; replies in the order of the logits.

        A row that has stopped goes on unread: the next call cuts it back to what its cache may hold. When fewer than
        half of the rows are live, they move together and the batch shrinks.
        """
        cache, count = self._cache, len(logits_BV)
        device = cache.lengths.device
        is_stop_V = torch.zeros(logits_BV.shape[-1], dtype=torch.bool, device=device)
        is_stop_V[[i for i in stop_ids if i < len(is_stop_V)]] = True
        tokens_BT = torch.zeros(count, max_new_tokens, dtype=torch.long, device=device)
        logprobs_BT = torch.zeros(count, max_new_tokens, device=device)
        num_sampled_B = torch.zeros(count, dtype=torch.long, device=device)
        index_B = torch.arange(count, device=device)  # which output row stands at which place of the cache
        live_B = torch.ones(count, dtype=torch.bool, device=device)
        num_slots = int(cache.lengths[:count].max())
        for step in range(max_new_tokens):
            ids_B, step_logprobs = _sample(
                logits_BV, temperature, None if uniforms_BT is None else uniforms_BT[index_B, step]
            )
            tokens_BT[index_B, step] = ids_B
            logprobs_BT[index_B, step] = step_logprobs
            num_sampled_B[index_B] += live_B
            live_B = live_B & ~is_stop_V[ids_B]
            num_live = int(live_B.sum())
            if num_live == 0 or step == max_new_tokens - 1:
                break
            if len(live_B) >= _MIN_BATCH_TO_SHRINK and 2 * num_live < len(live_B):
                kept = self._shrink(live_B, num_live)
                index_B, ids_B, live_B = index_B[kept], ids_B[kept], live_B[kept]
            rows = slice(len(live_B))
            num_slots += 1
            chunk = cache.open(rows, 1, num_slots)
            logits_BV = self._forward(ids_B[:, None], chunk, torch.zeros_like(ids_B)[:, None])
            cache.lengths[rows] += 1
        return _replies(tokens_BT, logprobs_BT, num_sampled_B, is_stop_V)

    def _shrink(self, live_B: Tensor, num_live: int) -> Tensor:
        """Move the live rows to the first places; return, for each of these, the place where it stood."""
        kept = torch.arange(num_live, device=live_B.device)
        stopped = (~live_B[:num_live]).nonzero()[:, 0]
        moving = live_B[num_live:].nonzero()[:, 0] + num_live
        kept[stopped] = moving
        self._swap(stopped.tolist(), moving.tolist())
        return kept

    def _forward(self, ids_BT: Tensor, chunk: Chunk, keep_B1: Tensor) -> Tensor:
        """Return the logits at one position of each row, [B, V]."""
        logits: Tensor = self._policy.causal_lm(
            input_ids=ids_BT,
            position_ids=chunk.position_ids_BT,
            attention_mask=chunk.attention_mask_B1TS,
            cache=self._cache,
            use_cache=True,
            logits_to_keep=keep_B1,
        ).logits
        return logits[:, 0]


def _sample(logits_BV: Tensor, temperature: float, uniforms_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return token ids and their log-probabilities: greedy without uniforms, else by the inverse of the CDF."""
    logits_BV = logits_BV.float()
    if temperature not in (0, 1):
        logits_BV = logits_BV / temperature
    log_norm_B1 = logits_BV.logsumexp(-1, keepdim=True)
    if uniforms_B is None:
        ids_B1 = logits_BV.argmax(-1, keepdim=True)
    else:
        # In float64 a uniform below 1 times the total stays below the total, so no token of probability 0 is drawn.
        cdf_BV = (logits_BV - log_norm_B1).double().exp_().cumsum(-1)
        target_B1 = uniforms_B[:, None] * cdf_BV[:, -1:]
        # The clamp serves NaN alone, which _replies reports.
        ids_B1 = torch.searchsorted(cdf_BV, target_B1, right=True).clamp_(max=cdf_BV.shape[-1] - 1)
    return ids_B1[:, 0], (logits_BV.gather(-1, ids_B1) - log_norm_B1)[:, 0]


def _replies(tokens_BT: Tensor, logprobs_BT: Tensor, num_sampled_B: Tensor, is_stop_V: Tensor) -> list[Reply]:
    replies = []
    columns = (values.tolist() for values in (tokens_BT, logprobs_BT, is_stop_V[tokens_BT], num_sampled_B))
    for ids, logprobs, stops, count in zip(*columns, strict=True):
        if not np.isfinite(logprobs[:count]).all():
            raise NonFiniteError(
                "the model gave a logit that is NaN or infinite while sampling, finite logits are expected; "
                "check the weights (a diverged update, a broken file)"
            )
        replies.append(Reply(tuple(ids[:count]), tuple(logprobs[:count]), "stop" if stops[count - 1] else "length"))
    return replies


def _common_prefix(held: list[int], context: Sequence[int]) -> int:
    if len(held) <= len(context) and held == list(context[: len(held)]):
        return len(held)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(held, context, strict=False)))


def _prefill_blocks(num_new: Sequence[int]) -> Iterator[list[int]]:
    """Split the places into blocks of similar chunk length and bounded size: one long chunk must not pad them all."""
    by_size: dict[int, list[int]] = {}
    for place, count in enumerate(num_new):
        by_size.setdefault(max(count, _SMALL_CHUNK).bit_length(), []).append(place)
    for places in by_size.values():
        rows = max(1, _PREFILL_TOKENS // max(num_new[place] for place in places))
        for start in range(0, len(places), rows):
            yield places[start : start + rows]


def _padded(chunks: list[Sequence[int]], pad_id: int, device: torch.device) -> Tensor:
    width = max(map(len, chunks))
    return torch.tensor([[*chunk, *[pad_id] * (width - len(chunk))] for chunk in chunks], device=device)
