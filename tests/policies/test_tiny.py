from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tether.errors import InputError
from tether.policies import build_tiny

WORDS = ["<think>", "</think>", "up", "left", ".", "n't", "1"]
TINY = build_tiny(WORDS, width=8, layers=1, heads=2, max_positions=16, seed=0)


def test_ids_follow_the_order_of_the_words():
    assert TINY.tokenizer.convert_tokens_to_ids(["<s>", "<pad>", "<unk>", *WORDS]) == list(range(10))
    assert (TINY.tokenizer.bos_token_id, TINY.pad_id, TINY.tokenizer.unk_token_id) == (0, 1, 2)
    assert TINY.vocab_size == 10


@given(st.lists(st.sampled_from([*WORDS, "<s>", "<pad>", "<unk>"])))
def test_text_and_ids_are_one_to_one(words):
    ids = TINY.tokenizer.encode(" ".join(words), add_special_tokens=False)
    assert ids == TINY.tokenizer.convert_tokens_to_ids(words)
    assert TINY.tokenizer.decode(ids, skip_special_tokens=False) == " ".join(words)


def test_any_whitespace_separates_and_other_words_are_unknown():
    assert TINY.tokenizer.encode("up\n\tleft  down", add_special_tokens=False) == [5, 6, 2]


def test_seed_decides_the_weights_and_the_global_generator_is_left_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, again, other = (build_tiny(WORDS, width=8, layers=1, heads=2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    weights = [policy.causal_lm.get_input_embeddings().weight for policy in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_size_is_what_was_asked_for():
    config = build_tiny(WORDS, width=24, layers=3, heads=4, max_positions=50, seed=0).causal_lm.config
    assert (config.n_embd, config.n_layer, config.n_head, config.n_positions) == (24, 3, 4, 50)
    assert config.attn_pdrop == config.embd_pdrop == config.resid_pdrop == 0


@pytest.mark.parametrize("words", [["a", "a"], [""], ["a b"], ["<pad>"], ["a\n"]])
def test_unusable_words_are_named(words):
    with pytest.raises(InputError, match="distinct non-empty words"):
        build_tiny(words, seed=0)


def test_heads_must_divide_the_width():
    with pytest.raises(InputError, match="width=10, heads=4"):
        build_tiny(["a"], width=10, seed=0)
