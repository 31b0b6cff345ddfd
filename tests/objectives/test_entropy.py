"""Entropy of the next token."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy

from tether.objectives import token_entropy


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_entropy_equals_scipy(kind, scale):
    logits = np.random.default_rng(0).normal(size=(3, 4, 11)) * scale
    found = token_entropy(kind(logits))
    assert tuple(found.shape) == (3, 4)
    np.testing.assert_allclose(np.asarray(found), entropy(softmax(logits, axis=-1), axis=-1), rtol=1e-9, atol=1e-12)


def test_uniform_and_certain_predictions_are_the_two_ends():
    assert token_entropy(np.zeros(8)) == pytest.approx(np.log(8))
    assert token_entropy(np.array([1e3, 0.0, 0.0])) == 0
    assert token_entropy(np.zeros(1)) == 0


def test_a_constant_added_to_all_logits_changes_nothing():
    logits = np.array([0.5, -1.0, 2.0])
    assert token_entropy(logits + 1e4) == pytest.approx(token_entropy(logits), rel=1e-9)


def test_a_forbidden_token_has_no_part_in_value_or_gradient():
    logits = torch.tensor([[0.0, 1.0, -torch.inf]], dtype=torch.float64, requires_grad=True)
    token_entropy(logits).sum().backward()
    allowed = torch.tensor([[0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    token_entropy(allowed).sum().backward()
    torch.testing.assert_close(logits.grad[:, :2], allowed.grad)
    assert logits.grad[0, 2] == 0


def test_the_gradient_is_that_of_the_definition():
    logits = torch.randn(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(token_entropy, (logits,))
    (found,) = torch.autograd.grad(token_entropy(logits).sum(), logits)
    wanted = torch.distributions.Categorical(logits=logits).entropy().sum()
    torch.testing.assert_close(found, torch.autograd.grad(wanted, logits)[0])
