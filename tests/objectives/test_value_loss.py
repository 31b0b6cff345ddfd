"""The critic's loss: values, gradients, fillers."""

import itertools
import math

import numpy as np
import pytest
import torch

from tether.errors import InputError
from tether.objectives import aggregate_loss, clipped_values, explained_variance, value_loss

NAN = float("nan")
GRID = list(itertools.product([-3.0, -0.4, 0.0, 0.45, 0.7, 2.0], [-0.5, 0.0, 0.6], [-2.0, 0.0, 0.5, 3.0]))
COLUMNS = [np.array(column) for column in zip(*GRID, strict=True)]


@pytest.mark.parametrize("clip", [None, 0.1, 0.5, 100.0])
@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_loss_is_half_the_larger_of_two_squared_errors(kind, clip):
    def by_definition(value, old, target):
        limited = value if clip is None else min(max(value, old - clip), old + clip)
        return max((value - target) ** 2, (limited - target) ** 2) / 2

    found = value_loss(*map(kind, COLUMNS), clip=clip)
    np.testing.assert_allclose(np.asarray(found), [by_definition(*row) for row in GRID], rtol=1e-12)


@pytest.mark.parametrize("clip", [0.1, 0.5])
def test_the_gradient_is_0_exactly_on_clipped_values_and_that_of_the_error_elsewhere(clip):
    values, old_values, returns = map(torch.tensor, COLUMNS)
    values.requires_grad_()
    value_loss(values, old_values, returns, clip=clip).sum().backward()
    clipped = clipped_values(values.detach(), old_values, returns, clip=clip)
    wanted = torch.where(clipped, torch.zeros_like(returns), (values - returns).detach())
    torch.testing.assert_close(values.grad, wanted, rtol=1e-12, atol=1e-12)
    assert 0 < clipped.sum() < len(GRID)
    assert clipped_values(*COLUMNS, clip=clip).tolist() == clipped.tolist()


def test_a_value_that_moved_away_from_its_return_is_pulled_back():
    assert clipped_values(np.array([2.0, -2.0]), np.zeros(2), np.ones(2), clip=0.5).tolist() == [False, False]
    assert clipped_values(np.array([0.9]), np.zeros(1), np.ones(1), clip=0.5).tolist() == [True]


@pytest.mark.parametrize("clip", [None, 0.2])
def test_a_filler_stays_nan_and_poisons_no_gradient(clip):
    values = torch.tensor([[0.5, 2.0, 1.0]], requires_grad=True)
    old_values, returns = torch.tensor([[0.5, NAN, 1.0]]), torch.tensor([[1.0, 1.0, NAN]])
    loss = value_loss(values, old_values, returns, clip=clip)
    assert loss.isnan().tolist() == [[False, True, True]]
    aggregate_loss(loss, torch.tensor([[1, 0, 0]])).backward()
    assert values.grad.tolist() == [[-0.5, 0, 0]]
    assert not clipped_values(values.detach(), old_values, returns, clip=0.2)[0, 1:].any()


@pytest.mark.parametrize("clip", [0.0, -1.0, NAN])
def test_a_width_that_is_none_is_refused(clip):
    with pytest.raises(InputError, match="clip"):
        value_loss(np.zeros(1), np.zeros(1), np.zeros(1), clip=clip)


def test_shapes_that_differ_are_refused():
    with pytest.raises(InputError, match="shapes"):
        value_loss(np.zeros(2), np.zeros(1), np.zeros(2))
    with pytest.raises(InputError, match="returns"):
        explained_variance(np.zeros(2), np.zeros(1), np.ones(2))


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_explained_variance_of_perfect_constant_and_opposite_critics(kind):
    returns, mask = kind([[0.0, 2.0, 4.0, 99.0]]), kind([[1, 1, 1, 0]])
    assert explained_variance(returns + 7, returns, mask) == 1
    assert explained_variance(0 * returns, returns, mask) == 0
    assert explained_variance(-returns, returns, mask) == pytest.approx(-3)


def test_explained_variance_of_returns_that_do_not_vary_is_not_a_number():
    assert math.isnan(explained_variance(np.array([1.0, 2.0]), np.full(2, 0.1), np.ones(2)))
    with pytest.raises(InputError, match="no trained token"):
        explained_variance(np.zeros(2), np.zeros(2), np.zeros(2))
