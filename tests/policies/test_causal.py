from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2LMHeadModel, MambaConfig, MambaForCausalLM

from tether.errors import ContextLengthError, InputError, ModelError
from tether.policies import CausalPolicy, build_tiny, token_logprobs

WORDS = [f"w{i}" for i in range(20)]


@pytest.fixture
def tiny():
    return build_tiny(WORDS, width=16, layers=1, heads=2, max_positions=32, seed=3)


def full_logprobs(model, ids_BT, temperature=1.0):
    """Log-probability of every token from the second on, from all logits: [B, T - 1]."""
    logits = model(input_ids=ids_BT).logits[:, :-1].double() / temperature
    return logits.log_softmax(-1).gather(-1, ids_BT[:, 1:, None])[..., 0]


@pytest.mark.parametrize(
    "family", ["gpt2", "llama", "qwen2", "qwen3", "gemma", "cohere", "granite", "gemma2", "mistral"]
)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_equals_the_full_logits_in_every_family(make_policy, family, temperature):
    policy = make_policy(family)
    generator = torch.Generator().manual_seed(0)
    ids_BT = torch.randint(3, 61, (4, 11), generator=generator)
    mask_BT = torch.rand(4, 11, generator=generator) < 0.5
    mask_BT[:, 0] = False
    got, entropy = policy.token_logprobs(ids_BT, mask_BT, temperature=temperature, with_entropy=True)
    with torch.no_grad():
        logp_BTV = (policy.causal_lm(input_ids=ids_BT).logits.double() / temperature).log_softmax(-1)
        expected = full_logprobs(policy.causal_lm, ids_BT, temperature)
    entropy_BT = -(logp_BTV.exp() * logp_BTV).sum(-1)[:, :-1]
    assert got.dtype == entropy.dtype == torch.float32
    assert (got[:, 1:] - expected)[mask_BT[:, 1:]].abs().max() < 1e-5
    assert (entropy[:, 1:] - entropy_BT)[mask_BT[:, 1:]].abs().max() < 1e-5
    assert (got[~mask_BT] == 0).all()
    assert (entropy[~mask_BT] == 0).all()


def test_gradient_is_that_of_the_full_logits(make_policy):
    policy = make_policy("llama")
    ids_BT = torch.arange(3, 23).view(2, 10)
    mask_BT = torch.zeros(2, 10, dtype=torch.bool)
    mask_BT[0, 4:7] = mask_BT[1, 9] = True
    weights = list(policy.causal_lm.parameters())
    got = torch.autograd.grad(policy.token_logprobs(ids_BT, mask_BT)[0].sum(), weights)
    full = full_logprobs(policy.causal_lm, ids_BT)[mask_BT[:, 1:]].sum()
    for a, b in zip(got, torch.autograd.grad(full, weights), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_entropy_has_the_gradient_of_its_formula(tiny):
    ids_BT, mask_BT = torch.tensor([[3, 4, 5]]), torch.tensor([[False, True, True]])
    weights = list(tiny.causal_lm.parameters())
    got = torch.autograd.grad(tiny.token_logprobs(ids_BT, mask_BT, with_entropy=True)[1].sum(), weights)
    logp = tiny.causal_lm(input_ids=ids_BT).logits[:, :2].log_softmax(-1)
    for a, b in zip(got, torch.autograd.grad(-(logp.exp() * logp).sum(), weights), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_head_runs_at_masked_positions_only(tiny):
    rows = []
    tiny.causal_lm.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0].shape))
    mask_BT = torch.zeros(3, 8, dtype=torch.bool)
    mask_BT[0, 5] = mask_BT[2, 1] = mask_BT[2, 7] = True
    tiny.token_logprobs(torch.full((3, 8), 4), mask_BT)
    assert rows == [(3, 16)]


def test_tokens_from_the_last_target_on_are_not_fed(tiny):
    fed = []
    tiny.causal_lm.get_input_embeddings().register_forward_pre_hook(lambda _, inputs: fed.append(inputs[0].shape))
    mask_BT = torch.zeros(3, 8, dtype=torch.bool)
    mask_BT[1, 5] = True
    tiny.token_logprobs(torch.full((3, 8), 4), mask_BT)
    assert fed == [(3, 5)]


@settings(deadline=None, max_examples=25)
@given(pad=st.integers(0, 22), width=st.integers(0, 6), seed=st.integers(0, 99))
def test_padding_on_the_right_changes_nothing(pad, width, seed):
    policy = build_tiny(WORDS, width=16, layers=1, heads=2, max_positions=32, seed=3)
    ids_BT = torch.randint(0, 23, (2, 7), generator=torch.Generator().manual_seed(seed))
    mask_BT = torch.zeros(2, 7, dtype=torch.bool)
    mask_BT[:, 3:] = True
    alone, _ = policy.token_logprobs(ids_BT, mask_BT)
    padded, _ = policy.token_logprobs(
        torch.nn.functional.pad(ids_BT, (0, width), value=pad), torch.nn.functional.pad(mask_BT, (0, width))
    )
    torch.testing.assert_close(padded[:, :7], alone)
    assert (padded[:, 7:] == 0).all()


def test_no_target_gives_zeros_that_can_be_differentiated(tiny):
    logprobs, entropy = tiny.token_logprobs(
        torch.tensor([[3, 4]]), torch.zeros(1, 2, dtype=torch.bool), with_entropy=True
    )
    assert logprobs.tolist() == entropy.tolist() == [[0.0, 0.0]]
    (logprobs.sum() + entropy.sum()).backward()
    assert all(p.grad is None or (p.grad == 0).all() for p in tiny.causal_lm.parameters())


class HidingModel(GPT2LMHeadModel):
    """A model from outside transformers: it knows no `logits_to_keep` and forbids one token."""

    def forward(self, input_ids, attention_mask=None, use_cache=None):
        logits = super().forward(input_ids=input_ids, attention_mask=attention_mask).logits
        logits[..., 5] = -math.inf
        return SimpleNamespace(logits=logits)


def test_foreign_model_with_a_forbidden_token(tiny):
    model = HidingModel(tiny.causal_lm.config)
    ids_BT, mask_BT = torch.tensor([[3, 4, 6, 5]]), torch.tensor([[False, True, True, True]])
    logprobs, entropy = token_logprobs(model, ids_BT, mask_BT, with_entropy=True)
    logp_TV = model(ids_BT).logits[0, :3].log_softmax(-1)
    assert logprobs[0, 3] == -math.inf
    torch.testing.assert_close(logprobs[0, 1:3], logp_TV[[0, 1], [4, 6]])
    torch.testing.assert_close(entropy[0, 1:], torch.special.entr(logp_TV.exp()).sum(-1))
    entropy.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_a_wrapper_is_called_and_seen_through(tiny):
    class Wrapper(torch.nn.Module):
        calls = 0

        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, **arguments):
            self.calls += 1
            return self.module(**arguments)

    ids_BT, mask_BT = torch.tensor([[3, 4]]), torch.tensor([[False, True]])
    plain = tiny.token_logprobs(ids_BT, mask_BT)[0]
    inner, tiny.model = tiny.model, Wrapper(tiny.model)
    assert tiny.causal_lm is inner
    assert torch.equal(tiny.token_logprobs(ids_BT, mask_BT)[0], plain)
    assert tiny.model.calls == 1
    assert tiny.max_context == 32


@pytest.mark.parametrize(
    ("ids", "mask", "options", "error", "message"),
    [
        ([[3, 4]], [[True, True]], {}, InputError, "position 0"),
        ([[3, 4]], [[False]], {}, InputError, r"\(1, 2\).*\(1, 1\)"),
        ([3, 4], [False, True], {}, InputError, "rows, tokens"),
        ([[]], [[]], {}, InputError, "at least one token"),
        ([[3, 4]], [[False, True]], {"temperature": 0.0}, InputError, "temperature=0.0"),
        ([[3] * 33], [[False] * 32 + [True]], {}, ContextLengthError, "33 tokens exceed the 32"),
    ],
)
def test_bad_arguments_are_named(tiny, ids, mask, options, error, message):
    with pytest.raises(error, match=message):
        tiny.token_logprobs(torch.tensor(ids), torch.tensor(mask, dtype=torch.bool), **options)


def test_something_else_than_a_transformers_model_is_refused():
    with pytest.raises(ModelError, match="Linear is not a transformers model"):
        token_logprobs(torch.nn.Linear(2, 2), torch.tensor([[3, 4]]), torch.tensor([[False, True]]))


def test_a_model_without_a_window_has_no_limit(tiny):
    model = MambaForCausalLM(MambaConfig(vocab_size=23, hidden_size=8, num_hidden_layers=1))
    assert CausalPolicy(model, tiny.tokenizer, name="mamba").max_context == sys.maxsize
