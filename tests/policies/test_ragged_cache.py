from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconConfig,
    LlamaConfig,
    MambaConfig,
    Qwen2Config,
    Qwen3NextConfig,
)

from tether.policies.ragged_cache import RaggedCache, attention_mask_for, cache_obstacle

SMALL = {"vocab_size": 11, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def model_of(config, **options):
    return AutoModelForCausalLM.from_config(config, **options).eval()


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen2", "qwen3", "gemma", "cohere", "granite"])
def test_full_attention_has_no_obstacle(make_policy, family):
    assert cache_obstacle(make_policy(family).causal_lm) is None


@pytest.mark.parametrize("family", ["gemma2", "mistral"])
def test_sliding_windows_are_named(make_policy, family):
    assert "layers of kind sliding_attention" in cache_obstacle(make_policy(family).causal_lm)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MambaConfig(vocab_size=11, hidden_size=16, num_hidden_layers=1), "does not take position_ids"),
        (BloomConfig(vocab_size=11, hidden_size=16, n_layer=1, n_head=2), "does not take position_ids"),
        (FalconConfig(**SMALL, alibi=True), "ALiBi"),
        (Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=4, max_window_layers=1), "sliding_attention"),
        (
            Qwen3NextConfig(**SMALL, num_experts=2, layer_types=["linear_attention", "full_attention"]),
            "recurrent state",
        ),
        (
            LlamaConfig(**SMALL, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}),
            "'dynamic' depends on the longest sequence",
        ),
    ],
)
def test_other_obstacles_are_named(config, message):
    assert message in cache_obstacle(model_of(config))


def test_attention_without_a_4d_mask_is_named():
    model = model_of(LlamaConfig(**SMALL))
    model.config._attn_implementation = "flash_attention_2"
    assert "'flash_attention_2' takes no 4-D mask" in cache_obstacle(model)


def test_eager_attention_adds_its_mask():
    visible = torch.tensor([[[True, False]]])
    assert attention_mask_for(model_of(LlamaConfig(**SMALL)), visible).tolist() == [[[[True, False]]]]
    mask = attention_mask_for(model_of(LlamaConfig(**SMALL), attn_implementation="eager"), visible)
    assert mask.tolist() == [[[[0.0, torch.finfo(torch.float32).min]]]]


def test_a_token_sees_the_slots_up_to_its_own():
    cache = RaggedCache(model_of(LlamaConfig(**SMALL)), 3, max_context=6)
    cache.lengths[:] = torch.tensor([4, 0, 2])
    chunk = cache.open(torch.tensor([2, 0]), 2, 6)
    assert chunk.position_ids_BT.tolist() == [[2, 3], [4, 5]]
    assert chunk.attention_mask_B1TS.sum(-1).tolist() == [[[3, 4]], [[5, 6]]]
    assert chunk.attention_mask_B1TS[0, 0, 0].tolist() == [True, True, True, False, False, False]


def test_positions_of_padding_stay_inside_the_window():
    cache = RaggedCache(model_of(LlamaConfig(**SMALL)), 1, max_context=6)
    cache.lengths[:] = 5
    assert cache.open(slice(1), 3, 8).position_ids_BT.tolist() == [[5, 5, 5]]


def test_content_survives_growth_and_swaps():
    """Many short chunks, with rows exchanged on the way, give the logits of one pass."""
    model = model_of(LlamaConfig(**SMALL, max_position_embeddings=512, initializer_range=0.3))
    ids = torch.randint(0, 11, (2, 150), generator=torch.Generator().manual_seed(0))
    cache = RaggedCache(model, 2, max_context=512)
    with torch.no_grad():
        expected = model(input_ids=ids).logits
        for start in range(0, 150, 30):
            rows = slice(2)
            chunk = cache.open(rows, 30, start + 30)
            fed = ids if start // 30 % 2 == 0 else ids.flip(0)
            logits = model(
                input_ids=fed[:, start : start + 30],
                position_ids=chunk.position_ids_BT,
                attention_mask=chunk.attention_mask_B1TS,
                cache=cache,
                use_cache=True,
            ).logits
            logits = logits if start // 30 % 2 == 0 else logits.flip(0)
            torch.testing.assert_close(logits, expected[:, start : start + 30], atol=1e-5, rtol=1e-4)
            cache.lengths[rows] += 30
            cache.swap_rows(torch.tensor([0]), torch.tensor([1]))
    cache.reset()
    assert cache.lengths.tolist() == [0, 0]
