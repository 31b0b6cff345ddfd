"""The maximum error on later turns of ragged, partly finished batches is what shows a fault of cache or mask."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.errors import ContextLengthError, InputError, ModelError, NonFiniteError
from tether.policies import GenerationSession, Reply, build_tiny, token_logprobs
from tether.policies.generate import _sample
from tether.randomness import keyed_rng

VOCAB = 61
STOPS = frozenset(range(10, 20))
FULL_ATTENTION = ["gpt2", "llama", "qwen2", "qwen3", "gemma", "cohere"]


def random_ids(rng, count) -> list[int]:
    return [int(token) for token in rng.integers(3, VOCAB, count)]


def teacher_forced(policy, context, reply: Reply, temperature=1.0) -> torch.Tensor:
    ids = torch.tensor([[*context, *reply.token_ids]])
    mask = torch.arange(ids.shape[1])[None] >= len(context)
    with torch.no_grad():
        return token_logprobs(policy.model, ids, mask, temperature=temperature)[0][mask]


def max_error(policy, contexts, replies, temperature=1.0) -> float:
    return max(
        float((teacher_forced(policy, context, reply, temperature) - torch.tensor(reply.logprobs)).abs().max())
        for context, reply in zip(contexts, replies, strict=True)
    )


def play(policy, *, num_rows, num_turns, rewrite=lambda turn, row, ids: ids, max_new_tokens=9, seed=0):
    """Play ragged episodes that leave the batch at random; yield turn, contexts and replies."""
    rng = np.random.default_rng(seed)
    session = GenerationSession(policy, num_rows)
    histories = [random_ids(rng, int(count)) for count in rng.integers(1, 12, num_rows)]
    rows = list(range(num_rows))
    for turn in range(num_turns):
        contexts = [rewrite(turn, row, histories[row]) for row in rows]
        replies = session.generate(
            rows,
            contexts,
            max_new_tokens=max_new_tokens,
            stop_ids=STOPS,
            rngs=[keyed_rng(seed, turn, row) for row in rows],
        )
        yield turn, contexts, replies
        for row, context, reply in zip(rows, contexts, replies, strict=True):
            histories[row] = [*context, *reply.token_ids, *random_ids(rng, int(rng.integers(1, 6)))]
        rows = [row for row in rows if rng.random() < 0.75] or rows


@pytest.mark.parametrize("family", FULL_ATTENTION)
@pytest.mark.parametrize("num_rows", [5, 24])
def test_sampler_equals_a_teacher_forced_pass_on_every_turn(make_policy, family, num_rows):
    policy = make_policy(family)
    finishes, lengths = set(), set()
    for turn, contexts, replies in play(policy, num_rows=num_rows, num_turns=4):
        assert max_error(policy, contexts, replies) < 1e-4, f"turn {turn}"
        finishes |= {reply.finish for reply in replies}
        lengths |= {len(reply.token_ids) for reply in replies}
    if num_rows == 24:
        assert finishes == {"stop", "length"}
        assert len(lengths) > 4


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_both_attention_implementations_take_the_mask(make_policy, attention):
    policy = make_policy("llama", attention=attention)
    for _, contexts, replies in play(policy, num_rows=6, num_turns=3):
        assert max_error(policy, contexts, replies) < 1e-4


def test_contexts_that_are_no_extension_are_still_right(make_policy):
    """A window that drops the oldest tokens, a thought removed from the middle, a context that got shorter."""

    def rewrite(turn, row, ids):
        if turn == 0:
            return ids
        return [ids[2:], ids[:3] + ids[5:], ids[: max(1, len(ids) // 2)], ids][(turn + row) % 4] or ids

    policy = make_policy("gpt2")
    for turn, contexts, replies in play(policy, num_rows=8, num_turns=5, rewrite=rewrite):
        assert max_error(policy, contexts, replies) < 1e-4, f"turn {turn}"


POLICY = build_tiny([f"w{i}" for i in range(VOCAB - 3)], width=16, layers=2, heads=2, max_positions=64, seed=1)
for _weight in POLICY.causal_lm.parameters():
    _weight.data.mul_(4 if _weight.ndim > 1 else 1)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_any_sequence_of_calls_equals_a_teacher_forced_pass(data):
    num_rows = data.draw(st.integers(1, 4))
    session = GenerationSession(POLICY, num_rows)
    histories = [[3] for _ in range(num_rows)]
    for call in range(data.draw(st.integers(1, 4))):
        rows = data.draw(st.lists(st.integers(0, num_rows - 1), unique=True, min_size=1))
        for row in rows:
            kept = data.draw(st.integers(0, len(histories[row])))
            new = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1 if kept == 0 else 0, max_size=4))
            histories[row] = [*histories[row][:kept], *new][:30]
        contexts = [list(histories[row]) for row in rows]
        replies = session.generate(
            rows, contexts, max_new_tokens=5, stop_ids=STOPS, rngs=[keyed_rng(call, row) for row in rows]
        )
        assert max_error(POLICY, contexts, replies) < 1e-4
        for row, reply in zip(rows, replies, strict=True):
            histories[row] += reply.token_ids


def test_samples_are_those_of_the_inverse_cdf(make_policy):
    """Every token by hand: one uniform each against the cumulative softmax of a whole-sequence pass."""
    policy = make_policy("qwen2")
    context, temperature = [5, 9, 4], 0.8
    reply = GenerationSession(policy, 1).generate(
        [0],
        [context],
        max_new_tokens=12,
        stop_ids=frozenset(),
        rngs=[np.random.default_rng(3)],
        temperature=temperature,
    )[0]
    ids = list(context)
    for uniform in np.random.default_rng(3).random(12):
        with torch.no_grad():
            logits = policy.causal_lm(input_ids=torch.tensor([ids])).logits[0, -1].double()
        cdf = (logits / temperature).softmax(-1).cumsum(-1).numpy()
        ids.append(int(np.searchsorted(cdf, uniform * cdf[-1], side="right")))
    assert list(reply.token_ids) == ids[3:]


@pytest.mark.parametrize("num_rows", [4, 40])
def test_a_row_samples_the_same_alone_reordered_and_among_others(make_policy, num_rows):
    policy = make_policy("gpt2")
    rng = np.random.default_rng(0)
    contexts = [random_ids(rng, int(count)) for count in rng.integers(1, 30, num_rows)]

    def run(rows):
        return GenerationSession(policy, num_rows).generate(
            rows,
            [contexts[row] for row in rows],
            max_new_tokens=14,
            stop_ids=STOPS,
            rngs=[keyed_rng(0, row) for row in rows],
        )

    together = [reply.token_ids for reply in run(range(num_rows))]
    shuffled = rng.permutation(num_rows).tolist()
    assert [reply.token_ids for reply in run(shuffled)] == [together[row] for row in shuffled]
    for row in range(0, num_rows, 7):
        assert run([row])[0].token_ids == together[row]


@pytest.mark.parametrize("family", FULL_ATTENTION)
def test_greedy_equals_generate_of_transformers(make_policy, family):
    policy = make_policy(family)
    rng = np.random.default_rng(1)
    contexts = [random_ids(rng, count) for count in (2, 9, 5)]
    replies = GenerationSession(policy, 3).generate(
        [0, 1, 2], contexts, max_new_tokens=12, stop_ids=STOPS, rngs=[rng] * 3, temperature=0
    )
    for context, reply in zip(contexts, replies, strict=True):
        expected = policy.causal_lm.generate(
            torch.tensor([context]),
            attention_mask=torch.ones(1, len(context), dtype=torch.long),
            do_sample=False,
            max_new_tokens=12,
            eos_token_id=sorted(STOPS),
        )
        assert list(reply.token_ids) == expected[0, len(context) :].tolist()
    assert max_error(policy, contexts, replies) < 1e-4, "greedy log-probabilities are those of temperature 1"


def test_logprobs_are_those_of_the_sampling_temperature(make_policy):
    policy = make_policy("llama")
    contexts = [[4, 5], [6]]
    replies = GenerationSession(policy, 2).generate(
        [0, 1],
        contexts,
        max_new_tokens=8,
        stop_ids=frozenset(),
        rngs=[keyed_rng(0, 0), keyed_rng(0, 1)],
        temperature=0.6,
    )
    assert max_error(policy, contexts, replies, temperature=0.6) < 1e-4
    assert max_error(policy, contexts, replies, temperature=1.0) > 0.1


def test_a_stop_token_ends_the_reply_and_belongs_to_it(make_policy):
    policy = make_policy("gpt2")
    session = GenerationSession(policy, 1)

    def reply(max_new_tokens, stop_ids):
        return session.generate(
            [0], [[7, 8]], max_new_tokens=max_new_tokens, stop_ids=stop_ids, rngs=[keyed_rng(5)], temperature=0
        )[0]

    free = reply(6, frozenset())
    assert (len(free.token_ids), free.finish) == (6, "length")
    # The last token that fits: a stop token there is a stop, any other is a cut.
    end = next(i for i in range(1, 6) if free.token_ids[i] not in free.token_ids[:i])
    stop = frozenset({free.token_ids[end]})
    assert reply(end + 1, stop) == Reply(free.token_ids[: end + 1], pytest.approx(free.logprobs[: end + 1]), "stop")
    assert reply(6, stop).token_ids == free.token_ids[: end + 1]
    assert reply(end, stop).finish == "length"


def test_one_token_replies(make_policy):
    policy = make_policy("gpt2")
    session = GenerationSession(policy, 2)
    contexts = [[3], [4, 5, 6]]
    for _ in range(3):
        replies = session.generate(
            [0, 1], contexts, max_new_tokens=1, stop_ids=STOPS, rngs=[keyed_rng(0), keyed_rng(1)]
        )
        assert max_error(policy, contexts, replies) < 1e-4
        contexts = [[*context, *reply.token_ids] for context, reply in zip(contexts, replies, strict=True)]


def test_a_call_feeds_only_what_is_new(make_policy):
    policy = make_policy("llama")
    fed = []
    policy.causal_lm.get_input_embeddings().register_forward_pre_hook(lambda _, inputs: fed.append(inputs[0].tolist()))
    session = GenerationSession(policy, 2)
    options = {"max_new_tokens": 3, "stop_ids": frozenset(), "temperature": 0, "rngs": [keyed_rng(0)] * 2}
    first = session.generate([0, 1], [[3, 4, 5], [6, 7, 8]], **options)
    assert fed[0] == [[3, 4, 5], [6, 7, 8]]
    fed.clear()
    session.generate([0, 1], [[3, 4, 5, *first[0].token_ids, 30], [6, 7, 8, *first[1].token_ids, 31]], **options)
    assert fed[0] == [[first[0].token_ids[-1], 30], [first[1].token_ids[-1], 31]], (
        "the last sampled token was not fed yet"
    )
    fed.clear()
    session.generate([1, 0], [[6, 7, 8], [3, 4, 9]], **options)
    assert sorted(fed[0]) == [[8, 1], [9, 1]] or sorted(fed[0]) == [[8], [9]]


def test_one_long_context_does_not_pad_the_others(make_policy):
    policy = make_policy("gpt2")
    fed = []
    policy.causal_lm.get_input_embeddings().register_forward_pre_hook(lambda _, inputs: fed.append(inputs[0].numel()))
    contexts = [[5] * 80, *[[6, row + 3] for row in range(30)]]
    replies = GenerationSession(policy, 31).generate(
        range(31), contexts, max_new_tokens=1, stop_ids=STOPS, rngs=[keyed_rng(row) for row in range(31)]
    )
    assert sum(fed) == 80 + 2 * 30
    assert max_error(policy, contexts, replies) < 1e-4


def test_context_and_reply_may_fill_the_window_exactly():
    """Padding of the shorter row runs over the learned positions; that must neither fail nor be seen."""
    contexts = [[5] * 59, [7] * 44]
    session = GenerationSession(POLICY, 2)
    rngs = [keyed_rng(0, 0), keyed_rng(0, 1)]
    replies = session.generate([0, 1], contexts, max_new_tokens=5, stop_ids=frozenset(), rngs=rngs)
    assert max_error(POLICY, contexts, replies) < 1e-4
    longer = [[*contexts[0][:40], 9], [*contexts[1], *replies[1].token_ids, *[8] * 10]]
    replies = session.generate([0, 1], longer, max_new_tokens=5, stop_ids=frozenset(), rngs=rngs)
    assert max_error(POLICY, longer, replies) < 1e-4


def test_too_long_a_context_is_refused_before_anything_runs(make_policy):
    policy = make_policy("gpt2")
    session = GenerationSession(policy, 2)
    rngs = [keyed_rng(0), keyed_rng(1)]
    with pytest.raises(ContextLengthError, match="row 1: a context of 90 tokens and a reply of up to 7 exceed the 96"):
        session.generate([0, 1], [[3], [4] * 90], max_new_tokens=7, stop_ids=STOPS, rngs=rngs)
    assert rngs[0].random() == keyed_rng(0).random(), "no uniform was drawn"


def test_new_weights_need_a_reset(make_policy):
    policy = make_policy("gpt2")
    session = GenerationSession(policy, 1)
    options = {"max_new_tokens": 6, "stop_ids": frozenset(), "rngs": [keyed_rng(0)]}
    session.generate([0], [[3, 4, 5, 6]], **options)
    with torch.no_grad():
        for weight in policy.causal_lm.parameters():
            weight.mul_(1.3)
    session.reset()
    replies = session.generate([0], [[3, 4, 5, 6]], **options)
    assert max_error(policy, [[3, 4, 5, 6]], replies) < 1e-4


def test_non_finite_logits_are_an_error_and_do_not_spoil_the_session(make_policy):
    policy = make_policy("gpt2")
    session = GenerationSession(policy, 2)
    options = {"max_new_tokens": 4, "stop_ids": frozenset(), "rngs": [keyed_rng(0), keyed_rng(1)]}
    contexts = [[3, 4], [5]]
    session.generate([0, 1], contexts, **options)
    norm = policy.causal_lm.transformer.ln_f.weight
    norm.data[0] = torch.nan
    with pytest.raises(NonFiniteError, match="NaN or infinite"):
        session.generate([0, 1], [[3, 4, 9, 9], [5, 8, 8]], **options)
    norm.data[0] = 1.0
    contexts = [[3, 4, 9, 9], [5, 8, 8]]
    assert max_error(policy, contexts, session.generate([0, 1], contexts, **options)) < 1e-4


def test_dropout_is_off_while_sampling_and_the_mode_is_restored(make_policy):
    policy = make_policy("gpt2")
    policy.causal_lm.train()
    context = [3, 4, 5]
    replies = GenerationSession(policy, 1).generate(
        [0], [context], max_new_tokens=6, stop_ids=STOPS, rngs=[keyed_rng(0)]
    )
    assert policy.causal_lm.training
    policy.causal_lm.eval()
    assert max_error(policy, [context], replies) < 1e-4


def test_models_without_a_cache_that_can_be_cut_are_refused(make_policy):
    with pytest.raises(ModelError, match=r"'mistral'.*sliding_attention"):
        GenerationSession(make_policy("mistral"), 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": [0]}, "1 rows, 2 contexts, 2 generators"),
        ({"rows": [0, 0]}, "distinct rows"),
        ({"rows": [0, 2]}, "rows from 0 to 1"),
        ({"contexts": [[3], []]}, "context 1 is empty"),
        ({"contexts": [[3], [VOCAB]]}, "context 1 has token id 61"),
        ({"contexts": [[-1], [3]]}, "context 0 has token id -1"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"temperature": -0.1}, "temperature=-0.1"),
        ({"temperature": float("nan")}, "temperature=nan"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    arguments = {
        "rows": [0, 1],
        "contexts": [[3], [4]],
        "max_new_tokens": 2,
        "stop_ids": STOPS,
        "rngs": [keyed_rng(0), keyed_rng(1)],
    }
    arguments |= changes
    rows, contexts = arguments.pop("rows"), arguments.pop("contexts")
    with pytest.raises(InputError, match=message):
        GenerationSession(POLICY, 2).generate(rows, contexts, **arguments)


def test_no_rows_no_replies():
    with pytest.raises(InputError, match="num_rows=0"):
        GenerationSession(POLICY, 0)
    assert GenerationSession(POLICY, 1).generate([], [], max_new_tokens=2, stop_ids=STOPS, rngs=[]) == []


def test_tokens_without_probability_are_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).repeat(4, 1)
    uniforms = torch.tensor([0.0, 0.5 - 1e-12, 0.5, 1 - 2**-53], dtype=torch.float64)
    ids, logprobs = _sample(logits, 1.0, uniforms)
    assert ids.tolist() == [1, 1, 3, 3]
    torch.testing.assert_close(logprobs, torch.full((4,), -np.log(2.0), dtype=torch.float32))


def test_frequencies_follow_the_softmax():
    logits = torch.tensor([0.3, -1.0, 2.0, 0.0])
    uniforms = torch.from_numpy(np.random.default_rng(0).random(200_000))
    ids, _ = _sample(logits.expand(200_000, -1), 0.7, uniforms)
    expected = (logits / 0.7).softmax(-1)
    frequencies = torch.bincount(ids, minlength=4) / 200_000
    assert (frequencies - expected).abs().max() < 5 * 0.5 / np.sqrt(200_000)
