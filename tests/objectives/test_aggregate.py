"""From token losses to one number: masks, denominators, micro-batches, dropped groups."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.errors import InputError
from tether.objectives import (
    aggregate_loss,
    clipped_surrogate,
    count_trained,
    group_relative_advantages,
    kl_loss,
    loss_scale,
    token_entropy,
)

MODES = ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum"]
NAN = float("nan")


def counts(mask, mode):
    tokens, sequences = count_trained(mask)
    return {"num_tokens": tokens} if mode == "token_mean" else {"num_sequences": sequences}


def by_definition(loss, mask, mode):
    rows = [[x for x, m in zip(row, keep, strict=True) if m] for row, keep in zip(loss, mask, strict=True)]
    rows = [row for row in rows if row]
    if mode == "token_mean":
        return sum(map(sum, rows)) / sum(map(len, rows))
    return sum(sum(row) / (len(row) if mode == "seq_mean_token_mean" else 1) for row in rows) / len(rows)


masks = (
    st.integers(1, 5)
    .flatmap(lambda width: st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=1, max_size=6))
    .filter(lambda mask: any(map(any, mask)))
)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None)
@given(mask=masks, seed=st.integers(0, 99), size=st.integers(1, 7))
def test_micro_batches_of_any_size_add_up_to_the_full_batch(kind, mode, mask, seed, size):
    loss = np.random.default_rng(seed).normal(size=(len(mask), len(mask[0])))
    wanted = by_definition(loss.tolist(), mask, mode)
    loss[~np.array(mask)] = NAN
    loss, mask = kind(loss), kind(mask)
    assert float(aggregate_loss(loss, mask, mode=mode)) == pytest.approx(wanted, rel=1e-12, abs=1e-12)
    pieces = [slice(start, start + size) for start in range(0, len(loss), size)]
    full = counts(mask, mode)
    total = sum(float(aggregate_loss(loss[piece], mask[piece], mode=mode, **full)) for piece in pieces)
    assert total == pytest.approx(wanted, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_does_not_depend_on_the_micro_batch_size(mode, size):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4, 6, 3, dtype=torch.float64, generator=generator)
    mask = torch.rand(4, 6, generator=generator) < 0.6
    weight = torch.randn(3, dtype=torch.float64, generator=generator, requires_grad=True)
    for start in range(0, 4, size):
        piece = slice(start, start + size)
        loss = (inputs[piece] @ weight).tanh() ** 2
        aggregate_loss(loss, mask[piece], mode=mode, **counts(mask, mode)).backward()
    (wanted,) = torch.autograd.grad(aggregate_loss((inputs @ weight).tanh() ** 2, mask, mode=mode), weight)
    torch.testing.assert_close(weight.grad, wanted)


def test_masked_tokens_are_not_in_the_numerator():
    """F36: the mean is 1, and the gradient reaches trained tokens only (the fault gives 26 and 0.5 everywhere)."""
    loss = torch.tensor([[1.0, 100.0], [1.0, -50.0]], requires_grad=True)
    mean = aggregate_loss(loss, torch.tensor([[1, 0], [1, 0]]))
    mean.backward()
    assert mean.item() == 1.0
    assert loss.grad.tolist() == [[0.5, 0.0], [0.5, 0.0]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("filler", [NAN, float("inf"), -float("inf")])
def test_what_a_masked_position_holds_does_not_matter(mode, filler):
    mask = torch.tensor([[True, False], [True, True]])
    clean = torch.tensor([[1.0, 0.0], [2.0, 4.0]], requires_grad=True)
    filled = torch.tensor([[1.0, filler], [2.0, 4.0]], requires_grad=True)
    for loss in (clean, filled):
        aggregate_loss(loss, mask, mode=mode).backward()
    assert filled.grad.tolist() == clean.grad.tolist()
    assert filled.grad[0, 1] == 0


def test_a_nan_on_a_trained_token_is_not_averaged_away():
    assert np.isnan(aggregate_loss(np.array([[1.0, NAN]]), np.array([[True, True]])))


def test_the_denominator_counts_sampled_tokens_of_kept_rows():
    """F04: one kept completion with tool tokens inside and one dropped: 2 tokens, not 4 and not 8."""
    completion, tool = np.array([[1, 1, 1, 1], [1, 1, 1, 1]]), np.array([[1, 0, 0, 1], [1, 1, 1, 1]])
    kept = np.array([[True], [False]])
    mask = (completion * tool).astype(bool) & kept
    assert count_trained(mask) == (2, 1)
    assert aggregate_loss(np.ones((2, 4)), mask) == 1.0


def test_a_row_without_trained_tokens_is_not_a_sequence():
    loss, mask = np.array([[2.0, 2.0], [9.0, 9.0]]), np.array([[1, 1], [0, 0]])
    assert aggregate_loss(loss, mask, mode="seq_mean_token_mean") == 2.0
    assert aggregate_loss(loss, mask, mode="seq_mean_token_sum") == 4.0


@pytest.mark.parametrize("scaling", ["group", "batch"])
def test_a_dropped_group_has_no_gradient_through_any_term(scaling):
    """F03: the constant group [1, 1] no longer trains, neither through the policy nor through KL and entropy terms.

    Under batch scaling its advantage is divided by a deviation that is not 0; its own rewards decide that it drops.
    """
    rewards, ids = torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=torch.float64), [0, 0, 1, 1]
    advantages = group_relative_advantages(rewards, ids, std_norm=scaling == "group")
    if scaling == "batch":
        advantages = advantages / 0.5
    logits = torch.randn(4, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    logprobs = logits.log_softmax(-1)[..., 0]
    token_loss = (
        clipped_surrogate(logprobs, logprobs.detach(), advantages)
        + 0.1 * kl_loss(logprobs, torch.full_like(logprobs, -1.0))
        - 0.01 * token_entropy(logits)
    )
    kept = torch.tensor([[False], [False], [True], [True]]).expand(4, 3)
    loss = aggregate_loss(token_loss, kept)
    loss.backward()
    assert (logits.grad[:2] == 0).all()
    assert (logits.grad[2:] != 0).any()
    torch.testing.assert_close(loss, aggregate_loss(token_loss[2:], kept[2:]))


@pytest.mark.parametrize("mode", MODES)
def test_nothing_to_average_is_refused(mode):
    with pytest.raises(InputError, match="Skip the update"):
        aggregate_loss(np.zeros((2, 3)), np.zeros((2, 3), dtype=bool), mode=mode)
    with pytest.raises(InputError, match="Skip the update"):
        aggregate_loss(np.zeros((0, 3)), np.zeros((0, 3), dtype=bool), mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_piece_without_trained_tokens_adds_nothing(mode):
    mask = np.zeros((2, 3), dtype=bool)
    count = {"num_tokens": 5} if mode == "token_mean" else {"num_sequences": 5}
    assert aggregate_loss(np.full((2, 3), NAN), mask, mode=mode, **count) == 0


def test_an_unknown_mode_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'token_mean'"):
        aggregate_loss(np.zeros((1, 1)), np.ones((1, 1)), mode="token-mean")


def test_a_denominator_of_another_mode_is_refused():
    with pytest.raises(InputError, match="divides by num_sequences"):
        aggregate_loss(np.zeros((1, 1)), np.ones((1, 1)), mode="seq_mean_token_sum", num_tokens=3)
    with pytest.raises(InputError, match="divides by num_tokens"):
        aggregate_loss(np.zeros((1, 1)), np.ones((1, 1)), num_sequences=3)


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(InputError, match=r"shape \(2, 3\), mask of shape \(2, 1\)"):
        aggregate_loss(np.zeros((2, 3)), np.ones((2, 1)))


def test_scales_of_a_filtered_batch():
    kept = {"num_kept": 2, "num_total": 8}
    assert loss_scale("kept_mean", **kept) == 1.0
    assert loss_scale("rho_scaled", rho=0.9, **kept) == 0.9
    assert loss_scale("full_batch", **kept) == loss_scale("kept_ratio_scaled", **kept) == 0.25
    assert loss_scale("sqrt_ratio_scaled", **kept) == 0.5


def test_the_full_batch_scale_is_the_sum_over_kept_divided_by_all():
    loss, kept = np.arange(6.0)[:, None], np.array([1, 0, 1, 1, 0, 1], dtype=bool)[:, None]
    scaled = aggregate_loss(loss, kept, mode="seq_mean_token_mean") * loss_scale("full_batch", num_kept=4, num_total=6)
    assert scaled == pytest.approx(aggregate_loss(loss, kept, mode="seq_mean_token_mean", num_sequences=6))


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("mean", {"num_kept": 1, "num_total": 2}),
        ("kept_mean", {"num_kept": 0, "num_total": 2}),
        ("kept_mean", {"num_kept": 3, "num_total": 2}),
        ("rho_scaled", {"num_kept": 1, "num_total": 2}),
        ("kept_mean", {"num_kept": 1, "num_total": 2, "rho": 0.9}),
    ],
)
def test_impossible_scales_are_refused(mode, options):
    with pytest.raises(InputError):
        loss_scale(mode, **options)
