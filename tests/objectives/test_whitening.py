"""Masked whitening that respects the filter."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tether.errors import InputError, NonFiniteError
from tether.objectives import whiten

NAN = float("nan")
numbers = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))


@settings(deadline=None)
@given(
    rows=st.lists(st.lists(st.tuples(numbers, st.booleans()), min_size=3, max_size=3), min_size=1, max_size=6),
    kept=st.lists(st.booleans(), min_size=6, max_size=6),
    ddof=st.integers(0, 1),
)
def test_trained_tokens_have_mean_0_and_variance_1_and_the_rest_is_0(rows, kept, ddof):
    advantages, mask = np.array(rows)[..., 0], np.array(rows)[..., 1].astype(bool)
    keep = np.array(kept[: len(rows)])
    trained = mask & keep[:, None]
    chosen = advantages[trained]
    assume(chosen.size > ddof and np.ptp(chosen) > 0)
    found = whiten(np.where(trained, advantages, NAN), mask, keep=keep, ddof=ddof, eps=0.0)
    assert found[trained].mean() == pytest.approx(0, abs=1e-6)
    assert found[trained].var(ddof=ddof) == pytest.approx(1)
    assert not found[~trained].any()
    np.testing.assert_allclose(found[trained], (chosen - chosen.mean()) / chosen.std(ddof=ddof), atol=1e-6)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_a_dropped_group_leaves_no_trace_in_the_survivors(kind):
    mask, keep = kind([[1, 1], [1, 1], [1, 0]]), kind([True, False, True])
    near, far = kind([[0.0, 1.0], [5.0, 5.2], [-1.0, 9.0]]), kind([[0.0, 1.0], [-4e9, 0.0], [-1.0, 0.0]])
    survivors = kind([[0.0, 1.0], [-1.0, 7.0]])
    alone = whiten(survivors, kind([[1, 1], [1, 0]]))
    for advantages in (near, far):
        found = whiten(advantages, mask, keep=keep)
        assert found[keep].tolist() == alone.tolist()
        assert found[1].tolist() == [0, 0]
    assert whiten(near, mask)[0].tolist() != alone[0].tolist()


@pytest.mark.parametrize("value", [0.0, 0.1, -1e-300, 1e10, 12345.678])
def test_equal_advantages_give_exact_zeros(value):
    found = whiten(np.full((3, 7), value), np.ones((3, 7)))
    assert not found.any()


def test_tiny_advantages_are_limited_by_eps_and_grow_to_unit_size_without_it():
    tiny = np.array([1e-9, -1e-9])
    assert np.abs(whiten(tiny, np.ones(2))).max() == pytest.approx(1e-5)
    assert np.abs(whiten(tiny, np.ones(2), eps=0.0, ddof=0)).tolist() == pytest.approx([1, 1])


def test_one_advantage_a_row_is_whitened_too():
    found = whiten(np.array([1.0, 3.0, 50.0]), np.ones(3), keep=np.array([1, 1, 0]), eps=0.0)
    np.testing.assert_allclose(found, [-np.sqrt(0.5), np.sqrt(0.5), 0])


def test_torch_gives_torch_without_a_gradient():
    advantages = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.bfloat16, requires_grad=True)
    found = whiten(advantages, torch.tensor([[1, 1, 1]]))
    assert found.dtype == torch.float32
    assert not found.requires_grad
    np.testing.assert_allclose(found.numpy(), whiten(np.array([[1.0, 2.0, 4.0]]), np.ones((1, 3))), rtol=1e-6)


@pytest.mark.parametrize(("mask", "keep"), [([[0, 0]], None), ([[1, 0]], None), ([[1, 1]], [False])])
def test_too_few_trained_tokens_are_refused(mask, keep):
    with pytest.raises(InputError, match="trained tokens to whiten"):
        whiten(np.array([[1.0, 2.0]]), np.array(mask), keep=None if keep is None else np.array(keep))


def test_numbers_that_are_not_finite_are_refused():
    for value in (NAN, np.inf):
        with pytest.raises(NonFiniteError, match="trained advantage"):
            whiten(np.array([[1.0, value]]), np.ones((1, 2)))
    with pytest.raises(NonFiniteError, match="overflows"):
        whiten(torch.tensor([[1e30, -1e30]]), torch.ones(1, 2))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="mask"):
        whiten(np.zeros((2, 3)), np.ones(2))
    with pytest.raises(InputError, match="keep"):
        whiten(np.zeros((2, 3)), np.ones((2, 3)), keep=np.ones(3))
