"""The clipped surrogate: values, gradients, fillers."""

import itertools
import math

import numpy as np
import pytest
import torch

from tether.errors import InputError
from tether.objectives import aggregate_loss, clipped_surrogate, clipped_tokens, group_relative_advantages

NAN = float("nan")


def by_definition(ratio, advantage, low, high, dual):
    value = min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
    return -(max(value, dual * advantage) if dual is not None and advantage < 0 else value)


GRID = list(
    itertools.product([0.0, 0.3, 0.79, 0.81, 1.0, 1.19, 1.25, 1.3, 2.9, 3.1, 50.0], [-2.0, -1.0, 0.0, 0.5, 3.0])
)
LIMITS = [(0.2, 0.2, None), (0.2, 0.28, None), (0.2, 0.28, 3.0), (1.0, 10.0, None), (0.0, 0.0, 1.5)]


@pytest.mark.parametrize(("low", "high", "dual"), LIMITS)
@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_loss_equals_the_formula_of_the_papers(kind, low, high, dual):
    ratios, advantages = (np.array(column) for column in zip(*GRID, strict=True))
    with np.errstate(divide="ignore"):
        logprobs = np.log(ratios)
    loss = clipped_surrogate(
        kind(logprobs), kind(np.zeros_like(logprobs)), kind(advantages), clip_low=low, clip_high=high, dual_clip=dual
    )
    wanted = [by_definition(ratio, advantage, low, high, dual) for ratio, advantage in GRID]
    np.testing.assert_allclose(np.asarray(loss), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("low", "high", "dual"), LIMITS)
def test_the_gradient_is_that_of_the_formula_and_exactly_zero_where_clipped(low, high, dual):
    ratios, advantages = (torch.tensor(column, dtype=torch.float64) for column in zip(*GRID, strict=True))
    logprobs = ratios.log().requires_grad_()
    options = {"clip_low": low, "clip_high": high, "dual_clip": dual}
    loss = clipped_surrogate(logprobs, torch.zeros_like(ratios), advantages, **options)
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    clipped = clipped_tokens(logprobs, torch.zeros_like(ratios), advantages, **options)
    h = 1e-7
    for (ratio, advantage), slope, stopped in zip(GRID, gradient.tolist(), clipped.tolist(), strict=True):
        above = by_definition(ratio * math.exp(h), advantage, low, high, dual)
        below = by_definition(ratio * math.exp(-h), advantage, low, high, dual)
        if math.isclose(ratio, 1.0) and (low == 0.0 or high == 0.0):
            continue  # the kink itself
        assert slope == pytest.approx((above - below) / (2 * h), abs=1e-5)
        assert not stopped or slope == 0
        if ratio > 0 and advantage != 0:
            assert stopped == (above == below)


def test_at_ratio_one_it_is_the_plain_policy_gradient():
    logits = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
    sampled, advantages = torch.tensor([0, 2, 2, 1]), torch.tensor([1.0, -2.0, 0.5, 0.7], dtype=torch.float64)
    logprobs = logits.log_softmax(0)[sampled]
    (found,) = torch.autograd.grad(
        clipped_surrogate(logprobs, logprobs.detach(), advantages).sum(), logits, retain_graph=True
    )
    (wanted,) = torch.autograd.grad(-(advantages * logprobs).sum(), logits)
    torch.testing.assert_close(found, wanted)


def test_a_loss_of_zero_is_not_a_gradient_of_zero():
    """F02: one rollout of each action, rewards 0 and 1: the loss is 0, the gradient on the logits is not."""
    logits = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    advantages = group_relative_advantages(torch.tensor([0.0, 1.0], dtype=torch.float64), [0, 0], std_norm=False)
    assert advantages.tolist() == [-0.5, 0.5]
    logprobs = logits.log_softmax(0)
    loss = aggregate_loss(clipped_surrogate(logprobs, logprobs.detach(), advantages), torch.ones(2, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0
    assert logits.grad.tolist() == [0.25, -0.25]


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_extreme_ratio_stays_finite(advantage, dtype):
    logprobs = torch.tensor([0.0, -1000.0], dtype=dtype, requires_grad=True)
    old = torch.tensor([-1000.0, 0.0], dtype=dtype)
    loss = clipped_surrogate(logprobs, old, torch.full((2,), advantage, dtype=dtype))
    loss.sum().backward()
    assert loss.isfinite().all()
    assert logprobs.grad.isfinite().all()


def test_a_filler_does_not_enter_the_ratio():
    """F38: the placeholder log-probability of a masked position changes neither value nor gradient."""
    logprobs = torch.tensor([[-0.5, 0.0]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 0]])
    for filler in (1.0, 1e6, NAN, -math.inf):
        old = torch.tensor([[-0.5, filler]], dtype=torch.float64)
        loss = aggregate_loss(clipped_surrogate(logprobs, old, torch.ones(1, dtype=torch.float64)), mask)
        (gradient,) = torch.autograd.grad(loss, logprobs)
        assert loss.item() == -1.0  # the mean ratio is 1, not 0.684
        assert gradient.tolist() == [[-1.0, 0.0]]


@pytest.mark.parametrize("where", ["logprobs", "old", "advantages"])
def test_a_nan_is_seen_in_the_value_and_passes_no_gradient(where):
    inputs = {name: torch.full((1, 2), 0.5) for name in ("logprobs", "old", "advantages")}
    inputs[where][0, 1] = NAN
    inputs["logprobs"].requires_grad_()
    loss = clipped_surrogate(inputs["logprobs"], inputs["old"], inputs["advantages"])
    assert loss.isnan().tolist() == [[False, True]]
    assert clipped_tokens(inputs["logprobs"], inputs["old"], inputs["advantages"]).tolist() == [[False, False]]
    (gradient,) = torch.autograd.grad(torch.where(loss.isnan(), 0, loss).sum(), inputs["logprobs"])
    assert gradient.tolist() == [[-0.5, 0.0]]


def test_an_advantage_a_row_is_that_of_each_of_its_tokens():
    logprobs = torch.tensor([[-0.4, -0.9], [-1.0, -0.2]])
    old = torch.tensor([[-0.5, -0.5], [-0.9, -0.9]])
    a_row = clipped_surrogate(logprobs, old, torch.tensor([1.0, -2.0]))
    a_token = clipped_surrogate(logprobs, old, torch.tensor([[1.0, 1.0], [-2.0, -2.0]]))
    assert a_row.tolist() == a_token.tolist()


@pytest.mark.parametrize("shape", [(2,), (1, 3), (3, 1), ()])
def test_advantages_that_fit_neither_tokens_nor_rows_are_refused(shape):
    with pytest.raises(InputError, match="one a token, or one a row"):
        clipped_surrogate(np.zeros((3, 2)), np.zeros((3, 2)), np.zeros(shape))


def test_log_probabilities_must_be_aligned():
    with pytest.raises(InputError, match=r"shapes \(3, 2\) and \(3, 1\)"):
        clipped_surrogate(np.zeros((3, 2)), np.zeros((3, 1)), np.zeros(3))


@pytest.mark.parametrize(
    "limits", [{"clip_low": -0.1}, {"clip_low": 1.1}, {"clip_high": -0.1}, {"clip_high": NAN}, {"dual_clip": 1.0}]
)
def test_impossible_limits_are_refused(limits):
    (name,) = limits
    with pytest.raises(InputError, match=name):
        clipped_surrogate(np.zeros(1), np.zeros(1), np.zeros(1), **limits)
