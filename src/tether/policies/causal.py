"""Causal language models of the Hugging Face format as policies, and the log-probabilities of given tokens.

Shapes: _B rows, _T tokens, _K target tokens of the whole batch, _V vocabulary.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from tether.errors import ContextLengthError, InputError, ModelError


class CausalPolicy:
    """A causal language model with its tokenizer.

    ``model`` may be replaced by a wrapper with a ``module`` (for example of ``accelerate``): log-probabilities then go
    through the wrapper, so that gradients are synchronised; generation goes through the model inside.

    Attributes:
        model: The transformers causal language model, or a wrapper around it.
        tokenizer: Its tokenizer.
        name: What messages and records call it.
    """

    def __init__(self, model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, *, name: str) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.name = name

    @property
    def causal_lm(self) -> PreTrainedModel:
        """The transformers model itself, without any wrapper."""
        return unwrap(self.model)

    @property
    def max_context(self) -> int:
        """Most tokens that context and reply may have together; ``sys.maxsize`` when the model has no such limit."""
        return max_context_of(self.causal_lm)

    @property
    def vocab_size(self) -> int:
        """Number of token ids that the model can embed."""
        return vocab_size_of(self.causal_lm)

    @property
    def pad_id(self) -> int:
        """The id that fills the right of shorter rows; no result depends on it."""
        for token_id in (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id):
            if isinstance(token_id, int):
                return token_id
        return 0

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.causal_lm.device

    def token_logprobs(
        self,
        input_ids_BT: Tensor,
        target_mask_BT: Tensor,
        *,
        temperature: float = 1.0,
        with_entropy: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return log-probabilities of the masked tokens; see :func:`token_logprobs`."""
        return token_logprobs(
            self.model, input_ids_BT, target_mask_BT, temperature=temperature, with_entropy=with_entropy
        )

    def save(self, folder: str | Path) -> None:
        """Write model and tokenizer as a folder that :func:`load_policy` reads; a reader never sees half of it.

        Raises:
            ModelError: if ``folder`` exists and is not a model folder: it is not overwritten.
        """
        target = Path(folder)
        if target.exists() and not _replaceable(target):
            raise ModelError(
                f"{target} exists and is not a model folder (it has no config.json): a new or a model folder is "
                "expected; choose another name"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as beside:
            written, old = Path(beside) / "new", Path(beside) / "old"
            with no_progress_bars():
                self.causal_lm.save_pretrained(written)
            self.tokenizer.save_pretrained(written)
            if target.exists():
                target.rename(old)
            written.rename(target)


def token_logprobs(
    model: torch.nn.Module,
    input_ids_BT: Tensor,
    target_mask_BT: Tensor,
    *,
    temperature: float = 1.0,
    with_entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the log-probability, in nats, of every masked token given the tokens before it, with gradient.

    The output head is evaluated at the masked positions only: memory is (targets, vocabulary), never the full block.
    Rows are padded on the right; padding needs no mask because no token sees what comes after it.

    Args:
        model: A transformers causal language model, or a wrapper around one.
        input_ids_BT: Token ids.
        target_mask_BT: True at the tokens to predict: the logit at position t - 1 predicts token t.
        temperature: Divides the logits.
        with_entropy: Whether to return the entropy of the full softmax at the same places as well.

    Returns:
        Log-probabilities (float32) and entropies, or None; both [B, T] and zero outside the mask.

    Raises:
        InputError: if shapes differ, position 0 is a target (nothing predicts it) or the temperature is not positive.
        ContextLengthError: if the rows are longer than the model's window.
    """
    causal_lm = unwrap(model)
    _check_targets(causal_lm, input_ids_BT, target_mask_BT, temperature)
    ids_BT = input_ids_BT.to(causal_lm.device)
    mask_BT = target_mask_BT.to(causal_lm.device, torch.bool)
    # Nothing from the last target on has to be fed.
    targets = mask_BT.any(0).nonzero()
    width = max(int(targets[-1]) if len(targets) else 0, 1)
    logits_KV = _logits_at(model, ids_BT[:, :width], mask_BT[:, 1 : width + 1]).float()
    if temperature != 1.0:
        logits_KV = logits_KV / temperature
    log_norm_K = logits_KV.logsumexp(-1)
    logprobs_K = logits_KV.gather(-1, ids_BT[mask_BT][:, None])[:, 0] - log_norm_K
    entropy_BT = _scatter(_entropy(logits_KV, log_norm_K), mask_BT) if with_entropy else None
    return _scatter(logprobs_K, mask_BT), entropy_BT


def unwrap(model: torch.nn.Module) -> PreTrainedModel:
    """Return the transformers model inside any wrappers."""
    while not isinstance(model, PreTrainedModel):
        inner = getattr(model, "module", None)
        if not isinstance(inner, torch.nn.Module):
            raise ModelError(
                f"{type(model).__name__} is not a transformers model: a causal language model, or a wrapper whose "
                "`module` is one, is expected; load it with load_policy"
            )
        model = inner
    return model


def max_context_of(model: PreTrainedModel) -> int:
    """Return the window of the model in tokens; ``sys.maxsize`` when its configuration names none."""
    limit = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    return int(limit) if limit else sys.maxsize


def vocab_size_of(model: PreTrainedModel) -> int:
    """Return how many token ids the model can embed."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight.shape[0]


@contextmanager
def evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
    """Switch dropout and gradient checkpointing (which drops the cache) off, and restore the mode afterwards."""
    was_training = model.training
    model.train(False)
    try:
        yield
    finally:
        model.train(was_training)


def check_ids(sequences: Sequence[Sequence[int]], vocab_size: int, *, what: str) -> None:
    """Raise InputError unless every sequence has at least one token and only ids that the model can embed."""
    for index, ids in enumerate(sequences):
        if len(ids) == 0:
            raise InputError(f"{what} {index} is empty: at least one token id is expected")
        low, high = min(ids), max(ids)
        if low < 0 or high >= vocab_size:
            raise InputError(
                f"{what} {index} has token id {low if low < 0 else high}: ids from 0 to {vocab_size - 1} are expected; "
                "was it made by another tokenizer?"
            )


def _logits_at(model: torch.nn.Module, ids_BT: Tensor, keep_BT: Tensor) -> Tensor:
    """Return the logits at the kept positions, row by row, [K, V]."""
    arguments: dict[str, Any] = {"input_ids": ids_BT, "attention_mask": torch.ones_like(ids_BT), "use_cache": False}
    causal_lm = unwrap(model)
    # A boolean `logits_to_keep` reaches the head in models of transformers itself; other code may not know it.
    native = type(causal_lm).__module__.startswith("transformers.models.")
    if native and "logits_to_keep" in inspect.signature(causal_lm.forward).parameters:
        logits: Tensor = model(**arguments, logits_to_keep=keep_BT).logits
    else:
        logits = model(**arguments).logits[keep_BT]
    return logits


def _entropy(logits_KV: Tensor, log_norm_K: Tensor) -> Tensor:
    # A vocabulary entry with logit -inf has probability 0 and must not contribute 0 * inf.
    logits_KV = logits_KV.clamp(min=torch.finfo(logits_KV.dtype).min)
    return log_norm_K - (logits_KV.softmax(-1) * logits_KV).sum(-1)


def _scatter(values_K: Tensor, mask_BT: Tensor) -> Tensor:
    return values_K.new_zeros(mask_BT.shape).masked_scatter(mask_BT, values_K)


def _check_targets(model: PreTrainedModel, ids_BT: Tensor, mask_BT: Tensor, temperature: float) -> None:
    if ids_BT.ndim != 2 or ids_BT.shape != mask_BT.shape or ids_BT.shape[1] == 0:
        raise InputError(
            f"input_ids {tuple(ids_BT.shape)} and target mask {tuple(mask_BT.shape)}: equal shapes (rows, tokens) with "
            "at least one token are expected"
        )
    if mask_BT[:, 0].any():
        raise InputError(
            "the token at position 0 is a target, but nothing predicts it; begin rows with a context token"
        )
    if not temperature > 0:
        raise InputError(f"temperature={temperature}: a positive number is expected; score greedy replies at 1")
    if ids_BT.shape[1] > max_context_of(model):
        raise ContextLengthError(
            f"rows of {ids_BT.shape[1]} tokens exceed the {max_context_of(model)} tokens of the model; cut whole turns"
        )


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Keep the bars of transformers off the terminal: progress is shown by the command that runs."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _replaceable(folder: Path) -> bool:
    return folder.is_dir() and ((folder / "config.json").is_file() or not any(folder.iterdir()))
