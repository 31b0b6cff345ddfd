"""Advantages from a critic: definition, environment tokens, turns, episodes that were cut off."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.errors import InputError, NonFiniteError
from tether.objectives import bi_level_gae, discounted_returns, gae, kl_in_reward, turn_level_gae

NAN = float("nan")
numbers = st.floats(-10, 10).map(lambda x: round(x, 3))
shares = st.floats(0, 1).map(lambda x: round(x, 3))


def by_definition(rewards, values, gamma, lam, after=0.0):
    """A_t = sum over l of (gamma lam)^l delta_(t+l): a double sum over consecutive steps."""
    following = [*values, after][1:]
    delta = [r + gamma * n - v for r, n, v in zip(rewards, following, values, strict=True)]
    return [math.fsum((gamma * lam) ** (u - t) * delta[u] for u in range(t, len(delta))) for t in range(len(delta))]


@st.composite
def episodes(draw, max_turns=4):
    """Rows of turns; a turn is sampled tokens and the environment tokens after it. Rewards anywhere after a first."""
    rows = draw(st.lists(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), max_size=max_turns), max_size=3))
    prompts = [draw(st.integers(0, 2)) for _ in rows]
    width = max((n + sum(a + b for a, b in row) for n, row in zip(prompts, rows, strict=True)), default=0)
    mask, turn_end = np.zeros((2, len(rows), width), dtype=bool)
    rewards, values = np.zeros((2, len(rows), width))
    for number, (start, row) in enumerate(zip(prompts, rows, strict=True)):
        position = start
        for sampled, observed in row:
            mask[number, position : position + sampled] = True
            turn_end[number, position + sampled - 1] = True
            position += sampled + observed
        for t in range(start if row else width, width):
            rewards[number, t] = draw(numbers)
        values[number] = [draw(numbers) for _ in range(width)]
    after = np.array([draw(numbers) for _ in rows], dtype=float)
    return rewards, values, mask, turn_end, after


def credited(rewards, mask):
    """Rewards of one row on its model tokens, each with those of the environment tokens that follow it."""
    steps = [*np.flatnonzero(mask), len(mask)]
    return [rewards[a:b].sum() for a, b in itertools.pairwise(steps)]


@settings(deadline=None)
@given(episode=episodes(), gamma=shares, lam=shares)
def test_gae_is_the_double_sum_over_model_tokens_of_each_row(episode, gamma, lam):
    rewards, values, mask, _, after = episode
    advantages, returns = gae(rewards, values, mask, gamma=gamma, lam=lam, bootstrap=after)
    for row in range(len(mask)):
        at = mask[row]
        wanted = by_definition(credited(rewards[row], at), values[row, at], gamma, lam, after[row])
        np.testing.assert_allclose(advantages[row, at], wanted, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(returns[row, at], wanted + values[row, at], rtol=1e-9, atol=1e-9)
    assert not advantages[~mask].any()
    assert not returns[~mask].any()


@settings(deadline=None)
@given(episode=episodes(), gamma=shares, lam=shares)
def test_a_turn_is_one_action_worth_what_its_first_token_is_worth(episode, gamma, lam):
    rewards, values, mask, turn_end, after = episode
    advantages, returns = turn_level_gae(rewards, values, mask, turn_end, gamma=gamma, lam=lam, bootstrap=after)
    for row in range(len(mask)):
        at = mask[row]
        paid, value, end = np.array(credited(rewards[row], at)), values[row, at], turn_end[row, at]
        number = np.cumsum(end) - end
        turns = range(int(end.sum()))
        per_turn = [paid[number == turn].sum() for turn in turns]
        start_value = np.array([value[number == turn][0] for turn in turns])
        wanted = np.array(by_definition(per_turn, start_value, gamma, lam, after[row]))
        np.testing.assert_allclose(advantages[row, at], wanted[number] if len(wanted) else [], rtol=1e-9, atol=1e-9)
        whole = (wanted + start_value)[number] if len(wanted) else []
        np.testing.assert_allclose(returns[row, at], whole, rtol=1e-9, atol=1e-9)
    assert not advantages[~mask].any()
    assert not returns[~mask].any()


@settings(deadline=None)
@given(episode=episodes(), gamma=shares, lam=shares, gamma_high=shares)
def test_bi_level_is_gae_over_turn_ends_then_inside_each_turn(episode, gamma, lam, gamma_high):
    rewards, values, mask, turn_end, after = episode
    options = {"gamma": gamma, "lam": lam, "gamma_high": gamma_high, "bootstrap": after}
    advantages, returns = bi_level_gae(rewards, values, mask, turn_end, **options)
    for row in range(len(mask)):
        at = mask[row]
        paid, value, end = np.array(credited(rewards[row], at)), values[row, at], turn_end[row, at]
        high = by_definition(paid[end], value[end], gamma_high, lam, after[row])
        paid[end] = value[end] + high
        number = np.cumsum(end) - end
        wanted = [
            advantage
            for turn in range(int(end.sum()))
            for advantage in by_definition(paid[number == turn], value[number == turn], gamma, lam)
        ]
        np.testing.assert_allclose(advantages[row, at], wanted, rtol=1e-9, atol=1e-8)
        np.testing.assert_allclose(returns[row, turn_end[row]], paid[end], rtol=1e-9, atol=1e-8)
    assert not advantages[~mask].any()
    assert not returns[~mask].any()


@settings(deadline=None)
@given(episode=episodes(max_turns=1), gamma=shares, lam=shares)
def test_one_turn_makes_bi_level_gae_ordinary_where_nothing_follows(episode, gamma, lam):
    rewards, values, mask, turn_end, _ = episode
    ordinary = gae(rewards, values, mask, gamma=gamma, lam=lam)
    bi_level = bi_level_gae(rewards, values, mask, turn_end, gamma=gamma, lam=lam, gamma_high=0.5)
    np.testing.assert_allclose(bi_level, ordinary, rtol=1e-12, atol=1e-12)


@settings(deadline=None)
@given(episode=episodes())
def test_without_any_discount_rewards_at_turn_ends_make_bi_level_gae_ordinary(episode):
    rewards, values, mask, turn_end, after = episode
    at_ends = np.where(turn_end, rewards, 0.0)
    ordinary = gae(at_ends, values, mask, gamma=1, lam=1, bootstrap=after)
    bi_level = bi_level_gae(at_ends, values, mask, turn_end, gamma=1, lam=1, gamma_high=1, bootstrap=after)
    np.testing.assert_allclose(bi_level, ordinary, rtol=1e-9, atol=1e-9)


@settings(deadline=None)
@given(episode=episodes(), gamma=shares)
def test_returns_without_a_critic_are_those_of_gae_with_a_critic_of_zeros(episode, gamma):
    rewards, _, mask, _, _ = episode
    _, wanted = gae(rewards, np.zeros_like(rewards), mask, gamma=gamma, lam=1)
    found = discounted_returns(rewards, mask, gamma=gamma)
    np.testing.assert_allclose(found[mask], wanted[mask], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
@pytest.mark.parametrize(("gamma", "wanted"), [(0.0, [0, 0, 1, 0]), (1.0, [1, 0, 1, 0])])
def test_a_terminal_reward_on_an_environment_token_moves_to_the_last_model_token(kind, gamma, wanted):
    """F34."""
    rewards, mask = kind([0, 0, 0, 1]), kind([1, 0, 1, 0])
    advantages, returns = gae(rewards, kind([0, 0, 0, 0]), mask, gamma=gamma, lam=1.0)
    assert advantages.tolist() == returns.tolist() == wanted


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_a_zero_in_the_mask_passes_the_return_through(kind):
    """F35."""
    rewards, mask = kind([0.0, 0.0, 1.0]), kind([True, False, True])
    assert discounted_returns(rewards, mask, gamma=0.5).tolist() == [0.5, 1.0, 1.0]
    _, returns = gae(rewards, kind([0.0, 7.0, 0.0]), mask, gamma=0.5, lam=1.0)
    assert returns.tolist() == [0.5, 0.0, 1.0]


@pytest.mark.parametrize(
    ("divergence", "mask", "gamma", "wanted"),
    [
        ([1, 1, 1, 1], [1, 0, 0, 1], 0.9, [-1.9, 0, 0, -1]),
        ([0.1, 0.1, 9, 9, 0.1], [1, 1, 0, 0, 1], 1.0, [-0.3, -0.2, 0, 0, -0.1]),
        ([0.1, 0.1, NAN, NAN, 0.1], [1, 1, 0, 0, 1], 1.0, [-0.3, -0.2, 0, 0, -0.1]),
    ],
)
def test_the_divergence_of_environment_tokens_reaches_no_return(divergence, mask, gamma, wanted):
    """F33."""
    zeros, mask = np.zeros(len(mask)), np.array(mask)
    rewards = kl_in_reward(zeros, np.array(divergence, dtype=float), zeros, mask, coefficient=1.0)
    np.testing.assert_allclose(gae(rewards, zeros, mask, gamma=gamma, lam=1)[1], wanted, atol=1e-12)


def test_a_cut_off_episode_is_worth_what_it_reached_and_an_ended_one_nothing_more():
    rewards, values, mask = np.zeros((2, 3)), np.full((2, 3), 0.5), np.array([[1, 1, 0], [1, 1, 0]])
    options = {"gamma": 0.5, "lam": 1.0, "bootstrap": np.array([0.0, 8.0])}
    assert gae(rewards, values, mask, **options)[1].tolist() == [[0, 0, 0], [2, 4, 0]]
    turn_end = np.array([[1, 1, 0], [1, 1, 0]])
    assert turn_level_gae(rewards, values, mask, turn_end, **options)[1].tolist() == [[0, 0, 0], [2, 4, 0]]
    found = bi_level_gae(
        rewards, values, mask, turn_end, gamma_high=0.25, gamma=0.5, lam=1.0, bootstrap=options["bootstrap"]
    )
    assert found[1].tolist() == [[0, 0, 0], [0.5, 2, 0]]


def test_a_turn_worth_nothing_stays_a_turn():
    rewards, values = np.array([0.0, 0.0, 0.0, 1.0]), np.zeros(4)
    everything = np.ones(4, dtype=bool)
    turn_end = np.array([0, 1, 0, 1])
    two = bi_level_gae(rewards, values, everything, turn_end, gamma=1, lam=1, gamma_high=0.5)[0]
    assert two.tolist() == [0.5, 0.5, 1, 1]
    assert turn_level_gae(rewards, values, everything, turn_end, gamma=0.5, lam=1)[0].tolist() == [0.5, 0.5, 1, 1]


def test_values_of_environment_tokens_and_rows_without_model_tokens_do_not_matter():
    rewards, mask = np.array([[0.0, 0.0, 1.0], [3.0, 0.0, 0.0]]), np.array([[1, 0, 1], [0, 0, 0]])
    values = np.array([[0.1, NAN, 0.3], [NAN, np.inf, 2.0]])
    advantages, returns = gae(rewards, values, mask, gamma=1, lam=1, bootstrap=np.array([0.0, 5.0]))
    np.testing.assert_allclose(advantages, [[0.9, 0, 0.7], [0, 0, 0]])
    np.testing.assert_allclose(returns, [[1, 0, 1], [0, 0, 0]])


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_nothing_gives_nothing(shape):
    empty, mask = np.zeros(shape), np.zeros(shape, dtype=bool)
    for found in (
        *gae(empty, empty, mask, gamma=1, lam=1),
        *turn_level_gae(empty, empty, mask, mask, gamma=1, lam=1),
        *bi_level_gae(empty, empty, mask, mask, gamma=1, lam=1, gamma_high=1),
        discounted_returns(empty, mask, gamma=1),
    ):
        assert found.shape == shape


@pytest.mark.parametrize(
    ("given", "computed"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.int64, torch.float32),
    ],
)
def test_torch_gives_torch_in_at_least_single_precision_and_without_a_gradient(given, computed):
    rewards, mask = torch.tensor([[0, 0, 1]]).to(given), torch.tensor([[1, 0, 1]])
    values = torch.tensor([[2, 5, 1]]).to(given)
    if given.is_floating_point:
        values.requires_grad_()
    for function, ends in ((gae, ()), (turn_level_gae, (mask,))):
        advantages, returns = function(rewards, values, mask, *ends, gamma=0.5, lam=0.5)
        assert advantages.dtype == returns.dtype == computed
        assert not advantages.requires_grad
        assert not returns.requires_grad
        assert advantages.tolist() == [[-1.5, 0, 0]]
        assert returns.tolist() == [[0.5, 0, 1]]


def test_numpy_single_precision_stays():
    ones = np.ones((1, 2), dtype=np.float32)
    assert gae(ones, ones, ones, gamma=0.9, lam=0.9)[0].dtype == np.float32


def test_long_rows_of_ties_and_huge_rewards_are_exact():
    rewards, values = np.full((2, 300), 1e15), np.zeros((2, 300))
    advantages, _ = gae(rewards, values, np.ones((2, 300)), gamma=1, lam=1)
    assert advantages[0, 0] == 3e17
    assert advantages[1, -1] == 1e15


ROW = np.zeros((1, 3))
MASK = np.array([[1, 0, 1]])


@pytest.mark.parametrize("name", ["gamma", "lam"])
@pytest.mark.parametrize("share", [-0.1, 1.1, NAN])
def test_impossible_discounts_are_refused(name, share):
    with pytest.raises(InputError, match=name):
        gae(ROW, ROW, MASK, **{"gamma": 1.0, "lam": 1.0, name: share})


def test_impossible_shapes_are_refused():
    with pytest.raises(InputError, match="append no bootstrap value"):
        gae(ROW, np.zeros((1, 4)), MASK, gamma=1, lam=1)
    with pytest.raises(InputError, match="bootstrap of shape"):
        gae(ROW, ROW, MASK, gamma=1, lam=1, bootstrap=np.zeros(3))
    with pytest.raises(InputError, match="turn_end of shape"):
        turn_level_gae(ROW, ROW, MASK, MASK[0], gamma=1, lam=1)


def test_numbers_that_are_not_finite_are_refused():
    broken = np.array([[NAN, 0.0, 0.0]])
    with pytest.raises(NonFiniteError, match="a reward"):
        gae(broken, ROW, MASK, gamma=1, lam=1)
    with pytest.raises(NonFiniteError, match="value of a model token"):
        gae(ROW, broken, MASK, gamma=1, lam=1)
    with pytest.raises(NonFiniteError, match="bootstrap"):
        gae(ROW, ROW, MASK, gamma=1, lam=1, bootstrap=np.inf)


def test_a_reward_that_no_action_earned_is_refused():
    with pytest.raises(InputError, match="before the first model token"):
        gae(np.array([[1.0, 0.0, 0.0]]), ROW, np.array([[0, 1, 1]]), gamma=1, lam=1)


@pytest.mark.parametrize(
    ("turn_end", "complaint"),
    [([[1, 1, 1]], "environment token"), ([[1, 0, 0]], "last turn end"), ([[0, 0, 0]], "last")],
)
def test_turns_that_end_nowhere_are_refused(turn_end, complaint):
    for function, options in ((turn_level_gae, {}), (bi_level_gae, {"gamma_high": 1.0})):
        with pytest.raises(InputError, match=complaint):
            function(ROW, ROW, MASK, np.array(turn_end), gamma=1, lam=1, **options)
