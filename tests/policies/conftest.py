"""Small random models of several families; the weights are wide so that every token depends on its context."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from transformers import (
    CohereConfig,
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from tether.policies import CausalPolicy, build_tiny

VOCAB = 61
_ROTARY = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 96,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LEARNED = {
    "vocab_size": VOCAB,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 96,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGS = {
    "gpt2": GPT2Config(**_LEARNED),
    "llama": LlamaConfig(**_ROTARY),
    "qwen2": Qwen2Config(**_ROTARY),
    "qwen3": Qwen3Config(**_ROTARY),
    "gemma": GemmaConfig(**_ROTARY),
    "cohere": CohereConfig(**_ROTARY, logit_scale=0.2),
    "granite": GraniteConfig(**_ROTARY, logits_scaling=3.0, embedding_multiplier=2.0),
    "gemma2": Gemma2Config(**_ROTARY, sliding_window=4, final_logit_softcapping=2.0),
    "mistral": MistralConfig(**_ROTARY, sliding_window=4),
}


def build_model(family: str, *, seed: int = 0, attention: str | None = None) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(deepcopy(CONFIGS[family]), attn_implementation=attention)
    return model.eval()


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def make_policy():
    """Return a policy over a small random model of a family; its tokenizer only says what the pad id is."""

    def make(family: str, **options) -> CausalPolicy:
        tokenizer = build_tiny([f"w{i}" for i in range(VOCAB - 3)], width=4, layers=1, heads=1, seed=0).tokenizer
        return CausalPolicy(build_model(family, **options), tokenizer, name=family)

    return make
