"""Exact cross-scores of a local model: every distinct context runs once, and its cache serves all reasonings.

For M reasonings and N contexts the model sees the tokens of N contexts and of M x N reasonings, not of M x N whole
sequences, and logits exist at reasoning tokens only, a bounded number at a time.

Shapes: _M reasonings, _N contexts, _T tokens of a reasoning, _V vocabulary; _n contexts and _g reasonings of a block,
_S slots of its contexts, _F fed tokens of its reasonings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from tether.errors import ContextLengthError, InputError
from tether.policies.causal import (
    CausalPolicy,
    check_ids,
    evaluation_mode,
    max_context_of,
    token_logprobs,
    unwrap,
    vocab_size_of,
)
from tether.policies.ragged_cache import attention_mask_for, cache_obstacle

_CONTEXT_TOKENS = 16_384
_PAIR_TOKENS = 4096
_PACKED_TOKENS = 256
_PAIR_LOGITS = 2**26

Ids = tuple[int, ...]


class _Part(NamedTuple):
    """Log-probabilities of the tokens of one reasoning under some of the contexts."""

    contexts: list[int]
    reasoning: int
    logprobs_nT: np.ndarray


class PrefixSharedScorer:
    """log p(reasoning | context) for all pairs, exact, under one local causal language model at temperature 1.

    The score of a span under the context that produced it equals the sum of the log-probabilities that the sampler
    stored (same weights, temperature 1), up to rounding. A model whose cache cannot be shared (sliding windows,
    recurrent layers) is scored on whole sequences: the same numbers, more slowly; :attr:`reason` then says why.

    Args:
        model: A policy or a transformers causal language model; its weights at the time of a call are used.
        max_pair_tokens: Reasoning tokens, summed over pairs, of one forward pass (at least one pair is taken). It
            bounds the memory: the logits take this times the vocabulary. None chooses 4,096, or fewer for a large
            vocabulary.
    """

    needs: Literal["ids"] = "ids"

    def __init__(self, model: CausalPolicy | torch.nn.Module, *, max_pair_tokens: int | None = None) -> None:
        if max_pair_tokens is not None and max_pair_tokens < 1:
            raise InputError(f"max_pair_tokens={max_pair_tokens}: at least 1, or None to choose, is expected")
        self._source = model
        self._max_pair_tokens = max_pair_tokens

    @property
    def reason(self) -> str | None:
        """Why whole sequences are scored; None when contexts are shared."""
        return cache_obstacle(self._model)

    def score(self, contexts: Sequence[Sequence[int]], reasonings: Sequence[Sequence[int]]) -> np.ndarray:
        """Return summed log-probabilities in nats, (M, N) float64: row = reasoning, column = context.

        Args:
            contexts: N lists of token ids: everything before the first reasoning token.
            reasonings: M lists of token ids.

        Raises:
            InputError: if a context or reasoning is empty, or an id is outside the model's vocabulary.
            ContextLengthError: if the longest pair exceeds the model's window; nothing has run then.
        """
        self._check(contexts, reasonings)
        distinct_contexts, column_N = _distinct(contexts)
        distinct_reasonings, row_M = _distinct(reasonings)
        scores = np.zeros((len(distinct_reasonings), len(distinct_contexts)))
        for part in self._parts(distinct_contexts, distinct_reasonings):
            scores[part.reasoning, part.contexts] = part.logprobs_nT.sum(-1)
        return scores[np.ix_(row_M, column_N)]

    def token_logprobs(
        self, contexts: Sequence[Sequence[int]], reasonings: Sequence[Sequence[int]]
    ) -> list[np.ndarray]:
        """Return the log-probability of every token: for each reasoning an array (N, T_m), float64.

        The arguments and errors are those of :meth:`score`.
        """
        self._check(contexts, reasonings)
        distinct_contexts, column_N = _distinct(contexts)
        distinct_reasonings, row_M = _distinct(reasonings)
        tokens = [np.zeros((len(distinct_contexts), len(ids))) for ids in distinct_reasonings]
        for part in self._parts(distinct_contexts, distinct_reasonings):
            tokens[part.reasoning][part.contexts] = part.logprobs_nT
        return [tokens[row][column_N] for row in row_M]

    @property
    def _model(self) -> PreTrainedModel:
        return self._source.causal_lm if isinstance(self._source, CausalPolicy) else unwrap(self._source)

    def _check(self, contexts: Sequence[Sequence[int]], reasonings: Sequence[Sequence[int]]) -> None:
        vocab_size, max_context = vocab_size_of(self._model), max_context_of(self._model)
        check_ids(contexts, vocab_size, what="context")
        check_ids(reasonings, vocab_size, what="reasoning")
        longest = max(map(len, contexts), default=0) + max(map(len, reasonings), default=0)
        if longest > max_context:
            raise ContextLengthError(
                f"the longest context and reasoning have {longest} tokens together, the model takes {max_context}; "
                "cut whole turns of the contexts or leave the longest reasonings out"
            )

    def _parts(self, contexts: list[Ids], reasonings: list[Ids]) -> Iterator[_Part]:
        """Yield parts that cover every pair of distinct contexts and reasonings once."""
        model = self._model
        budget = self._max_pair_tokens or max(1, min(_PAIR_TOKENS, _PAIR_LOGITS // vocab_size_of(model)))
        score = _score_with_shared_prefixes if self.reason is None else _score_whole_sequences
        if contexts and reasonings:
            with evaluation_mode(model):
                yield from score(model, contexts, reasonings, budget)


def _distinct(sequences: Sequence[Sequence[int]]) -> tuple[list[Ids], list[int]]:
    """Return the distinct sequences and, for each of the given ones, its place among them."""
    places: dict[Ids, int] = {}
    index = [places.setdefault(tuple(map(int, ids)), len(places)) for ids in sequences]
    return list(places), index


def _score_with_shared_prefixes(
    model: PreTrainedModel, contexts: list[Ids], reasonings: list[Ids], max_pair_tokens: int
) -> Iterator[_Part]:
    """Run blocks of contexts once each, and behind each block every reasoning."""
    for block_n in _context_blocks(contexts, max_rows=max_pair_tokens // max(map(len, reasonings))):
        prefixes = _Prefixes(model, [contexts[index] for index in block_n])
        # Reasonings packed into one row do not see each other, but their masked pairs cost time.
        per_row = min(max_pair_tokens // len(block_n), max(prefixes.num_slots, _PACKED_TOKENS))
        for block_g in _packs(reasonings, per_row):
            logprobs_g = prefixes.score([reasonings[index] for index in block_g])
            for index, logprobs_nT in zip(block_g, logprobs_g, strict=True):
                yield _Part(block_n, index, logprobs_nT)


def _context_blocks(contexts: list[Ids], *, max_rows: int) -> Iterator[list[int]]:
    """Yield indices of contexts of similar length, a bounded number of padded tokens at a time."""
    order = sorted(range(len(contexts)), key=lambda index: -len(contexts[index]))
    while order:
        count = max(1, min(max_rows, _CONTEXT_TOKENS // len(contexts[order[0]])))
        yield order[:count]
        order = order[count:]


def _packs(reasonings: list[Ids], max_tokens: int) -> Iterator[list[int]]:
    """Yield indices of consecutive reasonings that have at most this many tokens together, at least one."""
    pack: list[int] = []
    num_tokens = 0
    for index, ids in enumerate(reasonings):
        if pack and num_tokens + len(ids) > max_tokens:
            yield pack
            pack, num_tokens = [], 0
        pack.append(index)
        num_tokens += len(ids)
    yield pack


class _PrefixLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of the contexts in one layer: kept at the first pass, put before the tokens of later ones."""

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys, self.values = key_states, value_states
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            return key_states, value_states
        assert self.keys is not None
        assert self.values is not None
        return torch.cat([self.keys, key_states], dim=2), torch.cat([self.values, value_states], dim=2)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self.keys.shape[2] if self.keys is not None else 0

    def get_max_length(self) -> int:
        return -1


class _Prefixes:
    """A block of contexts that has been run, ready to be continued by any reasonings."""

    @torch.inference_mode()
    def __init__(self, model: PreTrainedModel, contexts: list[Ids]) -> None:
        self._model = model
        num_layers = model.config.get_text_config(decoder=True).num_hidden_layers
        self._cache = Cache(layers=[_PrefixLayer() for _ in range(num_layers)])  # type: ignore[no-untyped-call]
        self.num_slots = max(map(len, contexts))
        padded = [[*ids, *[0] * (self.num_slots - len(ids))] for ids in contexts]
        ids_nS = torch.tensor(padded, device=model.device)
        self._lengths_n1 = torch.tensor([[len(ids)] for ids in contexts], device=model.device)
        outputs = model(
            input_ids=ids_nS,
            attention_mask=torch.ones_like(ids_nS),
            cache=self._cache,
            use_cache=True,
            logits_to_keep=self._lengths_n1 - 1,
        )
        self._first_logprobs_nV: Tensor = outputs.logits[:, 0].float().log_softmax(-1)

    @torch.inference_mode()
    def score(self, reasonings: list[Ids]) -> list[np.ndarray]:
        """Return the log-probability of each token of each reasoning under each context: arrays [n, T]."""
        device = self._lengths_n1.device
        first_ng = self._first_logprobs_nV[:, torch.tensor([ids[0] for ids in reasonings], device=device)]
        later_nF = self._later_logprobs([ids for ids in reasonings if len(ids) > 1])
        first, later = first_ng.double().cpu().numpy(), later_nF.double().cpu().numpy()
        ends = np.cumsum([len(ids) - 1 for ids in reasonings])[:-1]
        return [np.concatenate([first[:, [g]], tail], axis=1) for g, tail in enumerate(np.split(later, ends, axis=1))]

    def _later_logprobs(self, reasonings: list[Ids]) -> Tensor:
        """Return the log-probabilities of all tokens but the first of each reasoning, side by side: [n, F].

        One row a context holds the F fed tokens (all but the last) of all reasonings; the mask keeps them apart.
        """
        device, num_contexts = self._lengths_n1.device, len(self._lengths_n1)
        if not reasonings:
            return self._first_logprobs_nV.new_zeros(num_contexts, 0)
        fed, targets, owner, step = (
            torch.tensor(values, device=device)
            for values in (
                [token for ids in reasonings for token in ids[:-1]],
                [token for ids in reasonings for token in ids[1:]],
                [index for index, ids in enumerate(reasonings) for _ in ids[1:]],
                [step for ids in reasonings for step in range(len(ids) - 1)],
            )
        )
        prefix_nS = torch.arange(self.num_slots, device=device) < self._lengths_n1
        own_FF = (owner[:, None] == owner) & (step[:, None] >= step)
        visible = torch.cat([prefix_nS[:, None].expand(-1, len(fed), -1), own_FF.expand(num_contexts, -1, -1)], dim=-1)
        logits_nFV = self._model(
            input_ids=fed.expand(num_contexts, -1),
            position_ids=self._lengths_n1 + step,
            attention_mask=attention_mask_for(self._model, visible),
            cache=self._cache,
            use_cache=True,
        ).logits.float()
        target_nF1 = targets.expand(num_contexts, -1)[:, :, None]
        logprobs: Tensor = logits_nFV.gather(-1, target_nF1)[:, :, 0] - logits_nFV.logsumexp(-1)
        return logprobs


def _score_whole_sequences(
    model: PreTrainedModel, contexts: list[Ids], reasonings: list[Ids], max_pair_tokens: int
) -> Iterator[_Part]:
    """Run context and reasoning together, in batches of equal length: some models depend on the longest row."""
    pairs = [(n, m) for n in range(len(contexts)) for m in range(len(reasonings))]
    size = {pair: len(contexts[pair[0]]) + len(reasonings[pair[1]]) for pair in pairs}
    for length, group in groupby(sorted(pairs, key=lambda pair: size[pair]), key=lambda pair: size[pair]):
        equal = list(group)
        num_rows = max(1, max_pair_tokens // length)
        for start in range(0, len(equal), num_rows):
            batch = equal[start : start + num_rows]
            ids = torch.tensor([[*contexts[n], *reasonings[m]] for n, m in batch])
            first = torch.tensor([len(contexts[n]) for n, _ in batch])
            # Not inference_mode: such models may keep buffers of a pass (rotary tables), which training uses later.
            with torch.no_grad():
                logprobs, _ = token_logprobs(model, ids, torch.arange(length) >= first[:, None])
            for (n, m), row in zip(batch, logprobs.double().cpu().numpy(), strict=True):
                yield _Part([n], m, row[None, len(contexts[n]) :])
