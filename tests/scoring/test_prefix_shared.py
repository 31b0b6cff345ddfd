from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    CohereConfig,
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from tether.errors import ContextLengthError, InputError, ModelError
from tether.policies import GenerationSession, build_tiny
from tether.randomness import keyed_rng
from tether.scoring.prefix_shared import PrefixSharedScorer

VOCAB = 37
ROTARY = {
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
}
CONFIGS = {
    "gpt2": GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=96, initializer_range=0.3),
    "llama": LlamaConfig(**ROTARY),
    "qwen2": Qwen2Config(**ROTARY),
    "qwen3": Qwen3Config(**ROTARY),
    "gemma": GemmaConfig(**ROTARY),
    "cohere": CohereConfig(**ROTARY, logit_scale=0.2),
}
WHOLE = {
    "mistral": (MistralConfig(**ROTARY, sliding_window=4), "sliding_attention"),
    "gemma2": (Gemma2Config(**ROTARY, sliding_window=4, final_logit_softcapping=2.0), "sliding_attention"),
    "mamba": (
        MambaConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, initializer_range=0.3),
        "position_ids",
    ),
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


def build(config, *, attention=None):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(deepcopy(config), attn_implementation=attention).eval()


def random_ids(rng, lengths) -> list[list[int]]:
    return [rng.integers(0, VOCAB, int(length)).tolist() for length in lengths]


def brute_force(model, context, reasoning) -> np.ndarray:
    """Log-probabilities of the tokens of one reasoning from a whole-sequence pass without cache."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*context, *reasoning]])).logits[0].double()
    logp = logits.log_softmax(-1)[len(context) - 1 : -1]
    return logp.gather(-1, torch.tensor(reasoning)[:, None])[:, 0].numpy()


def assert_exact(model, contexts, reasonings, **options):
    scorer = PrefixSharedScorer(model, **options)
    expected = [np.array([brute_force(model, c, z) for c in contexts]) for z in reasonings]
    got = scorer.token_logprobs(contexts, reasonings)
    scores = scorer.score(contexts, reasonings)
    assert scores.dtype == np.float64
    assert scores.shape == (len(reasonings), len(contexts))
    for tokens, wanted in zip(got, expected, strict=True):
        assert tokens.dtype == np.float64
        np.testing.assert_allclose(tokens, wanted, atol=1e-4, rtol=0)
    np.testing.assert_allclose(scores, [wanted.sum(-1) for wanted in expected], atol=1e-4, rtol=0)


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("max_pair_tokens", [None, 1, 40])
def test_equals_brute_force_in_every_family(family, max_pair_tokens):
    rng = np.random.default_rng(0)
    contexts, reasonings = random_ids(rng, [1, 70, 5, 33, 2]), random_ids(rng, [7, 1, 25, 3, 2, 1])
    model = build(CONFIGS[family])
    assert PrefixSharedScorer(model).reason is None
    assert_exact(model, contexts, reasonings, max_pair_tokens=max_pair_tokens)


def test_eager_attention_gives_the_same():
    rng = np.random.default_rng(1)
    model = build(CONFIGS["llama"], attention="eager")
    assert_exact(model, random_ids(rng, [4, 20]), random_ids(rng, [5, 9]))


@pytest.mark.parametrize("family", WHOLE)
def test_models_that_cannot_share_a_cache_are_scored_whole_and_say_why(family):
    rng = np.random.default_rng(2)
    config, reason = WHOLE[family]
    model = build(config)
    assert reason in PrefixSharedScorer(model).reason
    assert_exact(model, random_ids(rng, [1, 14, 6, 14]), random_ids(rng, [5, 1, 9]), max_pair_tokens=30)


MODEL = build(CONFIGS["gpt2"])


@settings(deadline=None, max_examples=30)
@given(
    contexts=st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12), min_size=1, max_size=5),
    reasonings=st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6), min_size=1, max_size=5),
    max_pair_tokens=st.integers(1, 60),
)
def test_blocks_packs_and_duplicates_never_show(contexts, reasonings, max_pair_tokens):
    assert_exact(MODEL, contexts + contexts[:1], reasonings[:1] + reasonings, max_pair_tokens=max_pair_tokens)


def test_order_of_rows_and_columns_only_permutes():
    rng = np.random.default_rng(3)
    contexts, reasonings = random_ids(rng, [3, 30, 8, 8]), random_ids(rng, [4, 9, 2])
    scorer = PrefixSharedScorer(MODEL)
    scores = scorer.score(contexts, reasonings)
    np.testing.assert_allclose(scorer.score(contexts[::-1], reasonings[::-1]), scores[::-1, ::-1], atol=1e-5)


def test_each_distinct_context_and_pair_is_fed_once():
    rng = np.random.default_rng(4)
    contexts, reasonings = random_ids(rng, [10, 10, 10]), random_ids(rng, [5, 1, 7])
    fed = []
    hook = MODEL.get_input_embeddings().register_forward_pre_hook(lambda _, inputs: fed.append(inputs[0].numel()))
    PrefixSharedScorer(MODEL).score([*contexts, contexts[1]], [*reasonings, reasonings[0], reasonings[2]])
    hook.remove()
    # A reasoning's first token needs no pass of its own, its last one is never fed.
    assert sum(fed) == 3 * 10 + 3 * (4 + 0 + 6)


def test_logits_exist_for_a_bounded_number_of_reasoning_tokens_at_a_time():
    rng = np.random.default_rng(5)
    rows = []
    hook = MODEL.get_output_embeddings().register_forward_pre_hook(
        lambda _, inputs: rows.append(inputs[0].shape[:-1].numel())
    )
    PrefixSharedScorer(MODEL, max_pair_tokens=32).score(random_ids(rng, [20] * 6), random_ids(rng, [8] * 9))
    hook.remove()
    assert max(rows) <= 32
    assert sum(rows) == 6 + 6 * 9 * 7


def test_matched_score_is_the_sum_of_what_the_sampler_stored():
    """Second turns of ragged episodes: the own context's column equals the stored behaviour log-probabilities."""
    policy = build_tiny([f"w{i}" for i in range(30)], width=32, max_positions=96, seed=0)
    for weight in policy.causal_lm.parameters():
        weight.data.mul_(3 if weight.ndim > 1 else 1)
    rng = np.random.default_rng(6)
    session = GenerationSession(policy, 6)
    contexts = [rng.integers(3, 33, int(length)).tolist() for length in rng.integers(2, 20, 6)]
    for turn in range(2):
        replies = session.generate(
            range(6),
            contexts,
            max_new_tokens=12,
            stop_ids=frozenset({5, 6, 7}),
            rngs=[keyed_rng(0, turn, row) for row in range(6)],
        )
        scorer = PrefixSharedScorer(policy)
        reasonings = [reply.token_ids for reply in replies]
        stored = [sum(reply.logprobs) for reply in replies]
        np.testing.assert_allclose(np.diag(scorer.score(contexts, reasonings)), stored, atol=1e-4, rtol=0)
        tokens = scorer.token_logprobs(contexts, reasonings)
        for row, reply in enumerate(replies):
            np.testing.assert_allclose(tokens[row][row], reply.logprobs, atol=1e-4, rtol=0)
        contexts = [[*context, *reply.token_ids, 9, 8] for context, reply in zip(contexts, replies, strict=True)]


def test_weights_at_the_time_of_the_call_count():
    model = build(CONFIGS["gpt2"])
    scorer = PrefixSharedScorer(model)
    before = scorer.score([[3, 4]], [[5, 6]])
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(2)
    after = scorer.score([[3, 4]], [[5, 6]])
    assert abs(after - before).max() > 0.1
    np.testing.assert_allclose(after[0, 0], brute_force(model, [3, 4], [5, 6]).sum(), atol=1e-4)


def test_dropout_is_off_and_the_mode_comes_back():
    model = build(CONFIGS["gpt2"]).train()
    scorer = PrefixSharedScorer(model)
    score = scorer.score([[3, 4, 5]], [[6, 7]])
    assert model.training
    model.eval()
    np.testing.assert_allclose(score[0, 0], brute_force(model, [3, 4, 5], [6, 7]).sum(), atol=1e-4)


def test_nothing_to_score_keeps_the_shape():
    scorer = PrefixSharedScorer(MODEL)
    assert scorer.score([], [[3]]).shape == (1, 0)
    assert scorer.score([[3]], []).shape == (0, 1)
    assert scorer.token_logprobs([], [[3, 4]])[0].shape == (0, 2)
    assert scorer.token_logprobs([[3]], []) == []


@pytest.mark.parametrize(
    ("contexts", "reasonings", "error", "message"),
    [
        ([[3]], [[4], []], InputError, "reasoning 1 is empty"),
        ([[3], []], [[4]], InputError, "context 1 is empty"),
        ([[3]], [[4, VOCAB]], InputError, "reasoning 0 has token id 37: ids from 0 to 36"),
        ([[3], [3], [-2]], [[4]], InputError, "context 2 has token id -2"),
        ([[3] * 90, [4]], [[5], [6] * 7], ContextLengthError, "97 tokens together, the model takes 96"),
    ],
)
def test_bad_input_is_named(contexts, reasonings, error, message):
    with pytest.raises(error, match=message):
        PrefixSharedScorer(MODEL).score(contexts, reasonings)
    with pytest.raises(error, match=message):
        PrefixSharedScorer(MODEL).token_logprobs(contexts, reasonings)


def test_longest_pair_may_fill_the_window():
    rng = np.random.default_rng(7)
    assert_exact(MODEL, random_ids(rng, [90, 1]), random_ids(rng, [6, 1]))


def test_bad_construction_is_named():
    with pytest.raises(InputError, match="max_pair_tokens=0"):
        PrefixSharedScorer(MODEL, max_pair_tokens=0)
    with pytest.raises(ModelError, match="Linear is not a transformers model"):
        PrefixSharedScorer(torch.nn.Linear(2, 2)).score([[3]], [[4]])


def test_it_declares_that_it_needs_ids():
    assert PrefixSharedScorer.needs == "ids"
