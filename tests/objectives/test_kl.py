"""Divergence estimates and what their gradients pull towards."""

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from tether.errors import InputError, NonFiniteError
from tether.objectives import kl_estimate, kl_in_reward, kl_loss, limited_tokens


def policies(seed, size=5):
    theta, reference = torch.randn(2, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return theta.requires_grad_(), reference.log_softmax(0)


def kl(logp, logq):
    return (logp.exp() * (logp - logq)).sum()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_k1_and_k3_are_unbiased(kind, seed):
    theta, logq = policies(seed)
    logp = theta.detach().log_softmax(0)
    mean = (logp.exp() * kl_estimate(logp, logq, kind=kind)).sum().item()
    assert mean == pytest.approx(entropy(logp.exp().numpy(), logq.exp().numpy()), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_k2_pulls_like_reverse_kl_and_k3_like_forward_kl_and_k1_not_at_all(seed):
    theta, logq = policies(seed)
    logp = theta.log_softmax(0)
    sampled = logp.exp().detach()

    def gradient(value):
        return torch.autograd.grad(value, theta, retain_graph=True)[0]

    torch.testing.assert_close(gradient((sampled * kl_loss(logp, logq)).sum()), gradient(kl(logp, logq)))
    torch.testing.assert_close(gradient((sampled * kl_loss(logp, logq, kind="k3")).sum()), gradient(kl(logq, logp)))
    assert gradient((sampled * kl_estimate(logp, logq, kind="k1")).sum()).abs().max() < 1e-15


def test_the_plain_log_ratio_is_refused_as_a_loss_with_an_alternative():
    with pytest.raises(InputError, match=r"gradient of the plain log-ratio is 0.*\n?.*kind='k2'"):
        kl_loss(np.zeros(1), np.zeros(1), kind="k1")


@pytest.mark.parametrize("function", [kl_estimate, kl_loss])
def test_an_unknown_kind_is_refused(function):
    with pytest.raises(InputError, match="expected one of k1, k2, k3"):
        function(np.zeros(1), np.zeros(1), kind="full")


def test_equal_policies_have_no_divergence():
    logprobs = np.array([-0.1, -3.0, -50.0])
    for kind in ("k1", "k2", "k3"):
        assert kl_estimate(logprobs, logprobs, kind=kind).tolist() == [0.0, 0.0, 0.0]


def test_a_huge_log_ratio_is_limited_and_counted():
    """F30: two tokens of 30 nats; unlimited values 29 and 1.07e13, limited ones beside the positions of the limit."""
    logprobs, reference = np.array([0.0, 0.0, 30.0, -30.0]), np.zeros(4)
    unlimited = kl_estimate(logprobs, reference, kind="k3")
    np.testing.assert_allclose(unlimited, [0, 0, 29, 1.0686e13], rtol=1e-4)
    limited = kl_estimate(logprobs, reference, kind="k3", max_log_ratio=10.0)
    np.testing.assert_allclose(limited, [0, 0, 9 + np.exp(-10), np.exp(10) - 11])
    assert limited_tokens(logprobs, reference, max_log_ratio=10.0).tolist() == [False, False, True, True]


def test_small_log_ratios_keep_their_digits():
    ratio = np.array([1e-9])
    np.testing.assert_allclose(kl_estimate(ratio, np.zeros(1), kind="k2"), ratio**2 / 2, rtol=1e-12)
    assert kl_estimate(ratio, np.zeros(1), kind="k3").item() >= 0


@pytest.mark.parametrize("kind", ["k2", "k3"])
def test_a_filler_stays_nan_and_passes_no_gradient(kind):
    logprobs = torch.tensor([-0.5, 0.0], requires_grad=True)
    loss = kl_loss(logprobs, torch.tensor([-0.7, float("nan")]), kind=kind)
    assert loss.isnan().tolist() == [False, True]
    loss[0].backward()
    assert logprobs.grad[1] == 0
    assert logprobs.grad[0].isfinite()
    assert not limited_tokens(logprobs, torch.full((2,), float("nan")), max_log_ratio=1.0).any()


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_each_sampled_token_pays_for_its_log_ratio_in_the_reward(kind):
    logprobs, reference = kind([[-1.0, float("nan"), -2.0]]), kind([[-1.5, -3.0, -1.0]])
    rewards, mask = kind([[0.0, 5.0, 1.0]]), kind([[1, 0, 1]])
    found = kl_in_reward(rewards, logprobs, reference, mask, coefficient=0.5)
    assert found.tolist() == [[-0.25, 5.0, 1.5]]
    limited = kl_in_reward(rewards, logprobs, reference, mask, coefficient=0.5, max_log_ratio=0.1)
    np.testing.assert_allclose(np.asarray(limited), [[-0.05, 5.0, 1.05]], rtol=1e-6)


def test_the_log_ratio_in_the_reward_has_the_gradient_of_the_divergence():
    theta = torch.tensor([0.2, -0.1, 0.5], dtype=torch.float64, requires_grad=True)
    logprobs, reference = theta.log_softmax(0), torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    exact = torch.autograd.grad((logprobs.exp() * (logprobs - reference)).sum(), theta, retain_graph=True)[0]
    every_token = torch.ones(3, dtype=torch.bool)
    reward = kl_in_reward(torch.zeros(3, dtype=torch.float64), logprobs, reference, every_token, coefficient=1.0)
    assert not reward.requires_grad
    policy_gradient = (logprobs.exp().detach() * reward * logprobs).sum()
    torch.testing.assert_close(torch.autograd.grad(policy_gradient, theta)[0], -exact)


def test_the_log_ratio_in_the_reward_refuses_what_it_cannot_price():
    zeros, mask = np.zeros((1, 2)), np.array([[1, 1]])
    for unknown in (np.array([[0.0, float("nan")]]), np.array([[0.0, -np.inf]])):
        with pytest.raises(NonFiniteError, match="log-ratio of a sampled token"):
            kl_in_reward(zeros, zeros, unknown, mask, coefficient=0.1)
    with pytest.raises(InputError, match="coefficient"):
        kl_in_reward(zeros, zeros, zeros, mask, coefficient=-0.1)
    with pytest.raises(InputError, match="on its last token"):
        kl_in_reward(np.zeros(1), zeros, zeros, mask, coefficient=0.1)
