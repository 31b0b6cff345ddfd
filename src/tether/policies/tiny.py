"""A tiny policy made on the spot: a word-level tokenizer and a small GPT-2 with random weights.

At this size learned positions and LayerNorm run about three times faster than rotary positions and RMSNorm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from tether.errors import InputError
from tether.policies.causal import CausalPolicy

BOS, PAD, UNK = "<s>", "<pad>", "<unk>"


def build_tiny(
    words: Iterable[str],
    *,
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    max_positions: int = 256,
    tied: bool = False,
    sinusoids: bool = False,
    seed: int,
) -> CausalPolicy:
    """Return an untrained policy whose tokens are the given words, tags included.

    The ids are ``<s>`` 0, ``<pad>`` 1, ``<unk>`` 2, then the words in the given order. Text is split at whitespace
    alone and decoded with single spaces. Equal arguments give equal weights, and torch's generator is left as it was.
    ``tied`` shares input and output embeddings; with ``sinusoids`` the learned positions start as sinusoids instead of
    random vectors. Both help where a model has to find the same word elsewhere in its context.

    >>> policy = build_tiny(["up", "down"], width=8, layers=1, heads=2, seed=0)
    >>> policy.tokenizer.encode("down up east"), policy.tokenizer.decode([4, 3])
    ([4, 3, 2], 'down up')

    Raises:
        InputError: if a word is empty, repeated, reserved or contains whitespace, or heads do not divide the width.
    """
    if width % heads:
        raise InputError(f"width={width}, heads={heads}: a width that is a multiple of the heads is expected")
    tokenizer = _word_tokenizer(words)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=max_positions,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        activation_function="gelu_pytorch_tanh",
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        initializer_range=0.05,
        tie_word_embeddings=tied,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(config)
    with torch.no_grad():
        if sinusoids:
            model.transformer.wpe.weight.copy_(_sinusoids(max_positions, width, scale=config.initializer_range))
    model.train(False)
    return CausalPolicy(model, tokenizer, name="tiny")


def _sinusoids(num_positions: int, width: int, *, scale: float) -> torch.Tensor:
    """Return the starting point of the learned positions.

    Among sinusoids a shift by one is a fixed linear map, so a layer finds "the token before" early; from random
    positions it has to be learned for every place, which takes most of the training of a model of this size.
    """
    position = torch.arange(num_positions, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    waves = torch.stack([(position * rate).sin(), (position * rate).cos()], dim=-1)
    return scale * waves.reshape(num_positions, -1)[:, :width]


def _word_tokenizer(words: Iterable[str]) -> PreTrainedTokenizerFast:
    vocabulary = {BOS: 0, PAD: 1, UNK: 2}
    for word in words:
        if word.split() != [word] or word in vocabulary:
            raise InputError(
                f"word {word!r}: distinct non-empty words without whitespace, not {BOS} {PAD} {UNK}, expected"
            )
        vocabulary[word] = len(vocabulary)
    backend = Tokenizer(WordLevel(vocabulary, unk_token=UNK))
    backend.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, bos_token=BOS, pad_token=PAD, unk_token=UNK, clean_up_tokenization_spaces=False
    )
