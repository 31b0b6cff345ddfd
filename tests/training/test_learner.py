"""The update: its gradient is that of the objective, whatever the pieces it is computed in."""

import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from tether.agents import Agent, Task, play
from tether.chat import COMPACT, PLAIN, THINK_FORCED
from tether.envs import FrozenLake
from tether.errors import NonFiniteError
from tether.policies import build_tiny, load_policy
from tether.randomness import keyed_rng
from tether.training.batch import Sample, samples_of
from tether.training.config import LossConfig, OptimConfig
from tether.training.learner import Learner

WORDS = [f"w{i}" for i in range(9)]
AGGREGATIONS = ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum"]
UNCLIPPED = 1e9
REGULARISED = LossConfig(kl_coef=0.3, entropy_coef=0.05, dual_clip=1.5)


def make_policy(seed=0):
    return build_tiny(WORDS, width=16, layers=2, heads=2, max_positions=24, seed=seed)


def make_samples(policy, count=7, seed=0, noise=0.4):
    """Ragged rows with several sampled spans; behaviour log-probabilities near the policy's own, so that some clip."""
    rng = np.random.default_rng(seed)
    samples = []
    for row in range(count):
        length = int(rng.integers(4, 20))
        ids = torch.from_numpy(rng.integers(3, 3 + len(WORDS), (1, length)))
        sampled = rng.random(length) < 0.6
        sampled[0], sampled[-1] = False, True
        logprobs, _ = policy.token_logprobs(ids, torch.from_numpy(sampled)[None])
        old = np.where(sampled, logprobs[0].detach().numpy() + noise * rng.standard_normal(length), math.nan)
        samples.append(Sample(tuple(ids[0].tolist()), tuple(map(bool, sampled)), tuple(map(float, old)), row))
    return samples, rng.standard_normal(count).tolist()


def make_learner(policy, reference=None, *, loss=REGULARISED, temperature=1.0, **optim):
    settings = OptimConfig(**{"minibatches": 1, "min_minibatch": 1, "max_grad_norm": UNCLIPPED, **optim})
    return Learner(policy, reference, Accelerator(), loss=loss, optim=settings, temperature=temperature)


def weights(policy):
    return {name: value.clone() for name, value in policy.model.state_dict().items()}


def gradients(learner):
    """Return a list that receives the gradients of each of the learner's optimiser steps."""
    seen = []
    parameters = dict(learner.policy.model.named_parameters())
    learner.optimizer.optimizer.register_step_pre_hook(
        lambda *_: seen.append({name: parameter.grad.clone() for name, parameter in parameters.items()})
    )
    return seen


def update(learner, samples, advantages, *, loss_scale=1.0, regulariser_weight=1.0, seed=0):
    return learner.update(
        samples,
        advantages,
        loss_scale=loss_scale,
        regulariser_weight=regulariser_weight,
        rng=keyed_rng(seed, "minibatches"),
    )


def gradient_of(samples, advantages, *, reference=True, loss=REGULARISED, temperature=1.0, micro_batch=64, **factors):
    """The gradient of one update of all samples, from fresh weights."""
    policy = make_policy()
    learner = make_learner(
        policy, make_policy(seed=1) if reference else None, loss=loss, temperature=temperature, micro_batch=micro_batch
    )
    seen = gradients(learner)
    update(learner, samples, advantages, **factors)
    (gradient,) = seen
    return gradient


def assert_close(gradient, expected, atol=1e-6):
    for name, value in expected.items():
        torch.testing.assert_close(
            gradient[name], value, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )


def plain_loss(policy, reference, samples, advantages, loss, temperature):
    """The objective written token by token, from nothing but the models' logits."""

    def logprobs_of(model, sample):
        ids = torch.tensor([sample.ids])
        logits = model.causal_lm(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0]
        return (logits / temperature).log_softmax(-1)

    per_sample = []
    for sample, advantage in zip(samples, advantages, strict=True):
        logprobs_TV = logprobs_of(policy, sample)
        reference_TV = logprobs_of(reference, sample).detach()
        tokens = []
        for t in (t for t, is_target in enumerate(sample.sampled) if is_target):
            logprob, ref = logprobs_TV[t - 1, sample.ids[t]], reference_TV[t - 1, sample.ids[t]]
            ratio = (logprob - sample.old_logprobs[t]).exp()
            clipped = ratio.clamp(1 - loss.clip_low, 1 + loss.clip_high)
            objective = torch.minimum(ratio * advantage, clipped * advantage)
            if advantage < 0 and loss.dual_clip is not None:
                objective = torch.clamp(objective, min=loss.dual_clip * advantage)
            entropy = -(logprobs_TV[t - 1].exp() * logprobs_TV[t - 1]).sum()
            gap = logprob - ref
            kl = gap**2 / 2 if loss.kl_kind == "k2" else (-gap).exp() - 1 + gap
            tokens.append(-objective - loss.entropy_coef * entropy + loss.kl_coef * kl)
        per_sample.append(torch.stack(tokens))
    if loss.aggregation == "token_mean":
        return torch.cat(per_sample).mean()
    reduce = torch.mean if loss.aggregation == "seq_mean_token_mean" else torch.sum
    return torch.stack([reduce(tokens) for tokens in per_sample]).mean()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("kl_kind", ["k2", "k3"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_gradient_is_that_of_the_objective(aggregation, kl_kind, temperature):
    loss = REGULARISED.model_copy(update={"aggregation": aggregation, "kl_kind": kl_kind})
    policy, reference = make_policy(), make_policy(seed=1)
    samples, advantages = make_samples(policy)
    plain_loss(policy, reference, samples, advantages, loss, temperature).backward()
    expected = {name: parameter.grad for name, parameter in policy.model.named_parameters()}
    assert_close(gradient_of(samples, advantages, loss=loss, temperature=temperature), expected)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_micro_batch_size_does_not_change_the_gradient(aggregation):
    loss = REGULARISED.model_copy(update={"aggregation": aggregation})
    samples, advantages = make_samples(make_policy())
    whole = gradient_of(samples, advantages, loss=loss, micro_batch=64)
    assert max(float(value.abs().max()) for value in whole.values()) > 1e-2
    for size in (1, 2, 3):
        assert_close(gradient_of(samples, advantages, loss=loss, micro_batch=size), whole)


def test_the_order_of_the_samples_does_not_change_the_gradient():
    samples, advantages = make_samples(make_policy())
    turned = gradient_of(samples[::-1], advantages[::-1], seed=5)
    assert_close(turned, gradient_of(samples, advantages))


def test_the_loss_scale_multiplies_everything_and_the_dose_only_the_regularisers():
    samples, advantages = make_samples(make_policy())
    full, half, none = (gradient_of(samples, advantages, regulariser_weight=weight) for weight in (1.0, 0.5, 0.0))
    assert_close({name: (full[name] + none[name]) / 2 for name in full}, half)
    no_regulariser = REGULARISED.model_copy(update={"kl_coef": 0.0, "entropy_coef": 0.0})
    assert_close(none, gradient_of(samples, advantages, loss=no_regulariser, reference=False))
    quarter = {name: 0.25 * value for name, value in full.items()}
    assert_close(gradient_of(samples, advantages, loss_scale=0.25), quarter)


def test_without_advantage_and_regularisers_nothing_moves():
    policy = make_policy()
    samples, advantages = make_samples(policy)
    still = LossConfig(entropy_coef=0.0)
    gradient = gradient_of(samples, [0.0] * len(advantages), loss=still, reference=False)
    assert all(not value.any() for value in gradient.values())


def test_every_minibatch_is_divided_by_its_own_totals():
    """With a vanishing rate each update has the gradient of its own rows alone."""
    samples, advantages = make_samples(make_policy(), count=6)
    policy = make_policy()
    learner = make_learner(policy, make_policy(seed=1), minibatches=2, min_minibatch=3, lr=1e-12)
    seen = gradients(learner)
    stats = update(learner, samples, advantages)
    order = keyed_rng(0, "minibatches").permutation(6)
    for gradient, rows in zip(seen, (order[::2], order[1::2]), strict=True):
        assert_close(gradient, gradient_of([samples[r] for r in rows], [advantages[r] for r in rows]))
    assert stats.metrics()["num_updates"] == 2
    assert stats.metrics()["trained_tokens"] == sum(sample.num_targets for sample in samples)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_before_the_first_update_the_trainer_is_the_sampler(lake_model, temperature):
    """Played episodes, learned from at once: every ratio is 1, so nothing clips and the loss is minus the advantage."""
    policy = load_policy(lake_model)
    agent = Agent(PLAIN, THINK_FORCED, COMPACT, max_reply_tokens=16, temperature=temperature)
    tasks = [Task(f"{group}", group, (group, member)) for group in range(4) for member in range(4)]
    episodes = play(policy, FrozenLake, tasks, agent, seed=0)
    samples = [sample for row, episode in enumerate(episodes) for sample in samples_of(episode, row)]
    advantages = np.random.default_rng(0).standard_normal(len(samples)).tolist()
    learner = make_learner(policy, loss=LossConfig(), temperature=temperature, micro_batch=5)
    line = update(learner, samples, advantages).metrics()
    num_tokens = [sample.num_targets for sample in samples]
    assert 0 < line["sampler_mismatch_max"] < 1e-4
    assert line["clip_share"] == 0.0
    assert line["policy_loss"] == pytest.approx(-np.average(advantages, weights=num_tokens), abs=1e-5)


def test_a_second_update_of_the_same_samples_is_off_policy():
    policy = make_policy()
    samples, advantages = make_samples(policy, noise=0.0)
    learner = make_learner(policy, loss=LossConfig(), lr=0.05)
    first, second = (update(learner, samples, advantages).metrics() for _ in range(2))
    assert first["sampler_mismatch_max"] < 1e-5 < second["sampler_mismatch_max"]
    assert first["clip_share"] == 0.0 < second["clip_share"]


def test_the_logged_means_are_those_of_the_tokens():
    policy, reference = make_policy(), make_policy(seed=1)
    samples, advantages = make_samples(policy)
    entropies, gaps = [], []
    for sample in samples:
        ids, mask = torch.tensor([sample.ids]), torch.tensor([sample.sampled])
        with torch.no_grad():
            logprobs, entropy = policy.token_logprobs(ids, mask, with_entropy=True)
            ref, _ = reference.token_logprobs(ids, mask)
        entropies += entropy[mask].tolist()
        gaps += (logprobs - ref)[mask].tolist()
    line = update(make_learner(policy, reference, micro_batch=2), samples, advantages).metrics()
    assert line["entropy"] == pytest.approx(np.mean(entropies), abs=1e-5)
    assert line["kl"] == pytest.approx(np.mean([math.expm1(-gap) + gap for gap in gaps]), abs=1e-5)
    assert line["grad_norm"] > 0


def test_the_reference_stays_as_it_was():
    policy, reference = make_policy(), make_policy(seed=1)
    before = weights(reference)
    update(make_learner(policy, reference, lr=0.1), *make_samples(policy))
    assert all(torch.equal(before[name], value) for name, value in weights(reference).items())
    assert not torch.equal(weights(policy)["transformer.wte.weight"], weights(make_policy())["transformer.wte.weight"])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda samples, advantages: advantages.__setitem__(2, math.inf),
        lambda samples, advantages: advantages.__setitem__(2, math.nan),
        lambda samples, advantages: samples.__setitem__(
            2, replace(samples[2], old_logprobs=tuple(math.nan for _ in samples[2].ids))
        ),
    ],
    ids=["infinite advantage", "NaN advantage", "lost behaviour log-probabilities"],
)
def test_what_is_not_finite_is_refused_and_leaves_the_weights_alone(spoil):
    policy = make_policy()
    samples, advantages = make_samples(policy)
    spoil(samples, advantages)
    learner, before = make_learner(policy, micro_batch=2), weights(policy)
    with pytest.raises(NonFiniteError, match=r"loss .*, gradient norm .* in update 1 of this iteration"):
        update(learner, samples, advantages)
    assert all(torch.equal(before[name], value) for name, value in weights(policy).items())
    fine, finite = make_samples(policy)
    update(learner, fine, finite)  # nothing of the refused update is left in the gradients
    other = make_policy()
    update(make_learner(other, micro_batch=2), fine, finite)
    assert all(torch.equal(weights(other)[name], value) for name, value in weights(policy).items())


def test_the_gradient_is_clipped_to_its_norm():
    policy = make_policy()
    samples, advantages = make_samples(policy)
    learner = make_learner(policy, make_policy(seed=1), max_grad_norm=0.01)
    seen = gradients(learner)
    line = update(learner, samples, advantages).metrics()
    norm = math.sqrt(sum(float((value**2).sum()) for value in seen[0].values()))
    assert norm == pytest.approx(0.01, rel=1e-3)
    assert line["grad_norm"] > 0.01


def test_the_rate_warms_up_by_updates():
    policy = make_policy()
    samples, advantages = make_samples(policy, count=4)
    learner = make_learner(policy, warmup_steps=4, lr=0.1, minibatches=2, min_minibatch=2)
    rates = []
    optimizer = learner.optimizer.optimizer
    optimizer.register_step_pre_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
    for _ in range(3):
        update(learner, samples, advantages)
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


def test_a_restored_learner_goes_on_as_if_it_had_not_stopped():
    samples, advantages = make_samples(make_policy())
    policy = make_policy()
    learner = make_learner(policy, warmup_steps=5)
    update(learner, samples, advantages)
    halfway, state = weights(policy), deepcopy(learner.state_dict())
    other = make_policy()
    other.model.load_state_dict(halfway)
    restored = make_learner(other, warmup_steps=5)
    restored.load_state_dict(state)
    for each in (learner, restored):
        update(each, samples, advantages)
    assert all(torch.equal(weights(other)[name], value) for name, value in weights(policy).items())
