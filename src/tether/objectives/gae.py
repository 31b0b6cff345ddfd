"""Generalised advantage estimation over the tokens, or the turns, of multi-turn episodes.

A row holds a whole episode: tokens that the model sampled, and between them tokens of the environment (``mask`` is
false there: prompts, observations, padding). Environment tokens are not time steps. They are neither discounted nor
valued, and they never end a sequence: the recursion steps from a model token to the next model token, however far
apart. A reward that was written on an environment token belongs to the last model token before it.

What follows the last model token is worth ``bootstrap``: 0 for an episode that ended, the critic's value of the state
that was reached for one that was cut off by a limit. Nothing is inferred from the reward, least of all where turns end:
a turn may be worth exactly 0.

Every function returns ``(advantages, returns)`` of the input's kind, 0 on environment tokens and in rows without model
tokens; no gradient flows through either. Values may be anything on environment tokens.
"""

# _B rows (episodes; any number of leading axes) | _T tokens, the last axis

from __future__ import annotations

from array_api_compat import array_namespace, device

from tether.errors import InputError, NonFiniteError
from tether.objectives._arrays import Array, constant, working_dtype


def gae(
    rewards: Array, values: Array, mask: Array, *, gamma: float, lam: float, bootstrap: Array | float = 0.0
) -> tuple[Array, Array]:
    """Advantage and return of each model token (arXiv 1506.02438, equation 16).

    ``A_t = delta_t + gamma lam A_t+`` with ``delta_t = r_t + gamma V_t+ - V_t``, where ``t+`` is the next model token;
    the return is ``A_t + V_t``.

    >>> import numpy as np
    >>> rewards, values = np.array([[0.0, 0.0, 0.0, 1.0]]), np.array([[0.5, 9.0, 0.25, 9.0]])
    >>> advantages, returns = gae(rewards, values, np.array([[1, 0, 1, 0]]), gamma=1, lam=0)
    >>> advantages.tolist(), returns.tolist()
    ([[-0.25, 0.0, 0.75, 0.0]], [[0.25, 0.0, 1.0, 0.0]])

    Args:
        rewards: Reward of each token, (B, T).
        values: The critic's value of the state before each token, (B, T).
        mask: Which tokens the model sampled, (B, T), bool or 0 and 1.
        gamma: Discount a model token, 0 to 1.
        lam: Weight of long horizons, 0 (one step, relies on the critic) to 1 (the whole return).
        bootstrap: Value of what follows the last model token: one number, or one a row, (B,).

    Raises:
        InputError: If shapes differ, gamma or lam is outside [0, 1], or a reward lies before the first model token.
        NonFiniteError: If a reward, a value of a model token or a bootstrap is NaN or infinite.
    """
    _require_shares(gamma=gamma, lam=lam)
    rewards, values, mask, after = _prepared(rewards, values, mask, bootstrap)
    advantages = _backward(rewards, values, mask, after, gamma=gamma, lam=lam)
    return advantages, advantages + values


def turn_level_gae(
    rewards: Array,
    values: Array,
    mask: Array,
    turn_end: Array,
    *,
    gamma: float,
    lam: float,
    bootstrap: Array | float = 0.0,
) -> tuple[Array, Array]:
    """Advantage and return of each turn, the same for all of its tokens: a whole turn is one action.

    The recursion of :func:`gae` over turns (the turn-level decision process of Turn-PPO, arXiv 2512.17008). The reward
    of a turn is the sum of its tokens', its value that of its *first* token, before anything of the turn was sampled: a
    later value depends on the action that it is compared with. Discounts count turns, so long turns cost nothing.

    Args:
        rewards: Reward of each token, (B, T).
        values: The critic's value of the state before each token, (B, T).
        mask: Which tokens the model sampled, (B, T).
        turn_end: Which tokens are the last of their turn, (B, T), bool; the last model token of a row is always one.
        gamma: Discount a turn, 0 to 1.
        lam: Weight of long horizons, 0 to 1.
        bootstrap: Value of what follows the last turn: one number, or one a row, (B,).

    Raises:
        InputError: As for :func:`gae`, or if a turn ends on an environment token or not at all.
        NonFiniteError: As for :func:`gae`.
    """
    _require_shares(gamma=gamma, lam=lam)
    rewards, values, mask, after = _prepared(rewards, values, mask, bootstrap)
    turn_end = _checked_ends(turn_end, mask)
    xp = array_namespace(values)
    nothing = xp.zeros_like(values)
    to_go = _backward(rewards, nothing, mask, xp.zeros_like(after), gamma=1.0, lam=1.0, last=turn_end)
    turn_start = _turn_starts(mask, turn_end)
    first = _backward(to_go, values, turn_start, after, gamma=gamma, lam=lam)

    advantages, returns = _held(first, turn_start), _held(first + values, turn_start)
    return xp.where(mask, advantages, nothing), xp.where(mask, returns, nothing)


def bi_level_gae(
    rewards: Array,
    values: Array,
    mask: Array,
    turn_end: Array,
    *,
    gamma: float,
    lam: float,
    gamma_high: float,
    bootstrap: Array | float = 0.0,
) -> tuple[Array, Array]:
    """GAE over turn ends, then GAE over the tokens inside each turn (RAGEN, arXiv 2504.20073; VAGEN).

    First the last tokens of the turns are the time steps, with discount ``gamma_high``. Then each turn is an episode of
    its own whose last token is paid the turn's return, which is also the return of that token. A reward inside a turn
    counts inside that turn only. One turn, or ``gamma_high = gamma = lam = 1`` with rewards at turn ends, gives
    :func:`gae`.

    Args:
        rewards: Reward of each token, (B, T).
        values: The critic's value of the state before each token, (B, T).
        mask: Which tokens the model sampled, (B, T).
        turn_end: Which tokens are the last of their turn, (B, T), bool; the last model token of a row is always one.
        gamma: Discount a token, inside turns.
        lam: Weight of long horizons, on both levels.
        gamma_high: Discount a turn.
        bootstrap: Value of what follows the last turn: one number, or one a row, (B,).

    Raises:
        InputError: As for :func:`gae`, or if a turn ends on an environment token or not at all.
        NonFiniteError: As for :func:`gae`.
    """
    _require_shares(gamma=gamma, lam=lam, gamma_high=gamma_high)
    rewards, values, mask, after = _prepared(rewards, values, mask, bootstrap)
    turn_end = _checked_ends(turn_end, mask)
    xp = array_namespace(values)
    turn_returns = _backward(rewards, values, turn_end, after, gamma=gamma_high, lam=lam) + values
    paid = xp.where(turn_end, turn_returns, rewards)
    advantages = _backward(paid, values, mask, after, gamma=gamma, lam=lam, last=turn_end)
    return advantages, advantages + values


def discounted_returns(rewards: Array, mask: Array, *, gamma: float) -> Array:
    """Discounted sum of the rewards from each token on, without a critic (REINFORCE).

    As in the rest of this module only model tokens are discounted; an environment token shows the value that passes
    through it.

    >>> import numpy as np
    >>> discounted_returns(np.array([0.0, 0.0, 1.0]), np.array([1, 0, 1]), gamma=0.5).tolist()
    [0.5, 1.0, 1.0]

    Raises:
        InputError: If shapes differ, gamma is outside [0, 1], or a reward lies before the first model token.
        NonFiniteError: If a reward is NaN or infinite.
    """
    _require_shares(gamma=gamma)
    xp = array_namespace(rewards, mask)
    rewards, _, mask, running = _prepared(rewards, xp.zeros_like(rewards), mask, 0.0)
    columns = []
    for t in reversed(range(rewards.shape[-1])):
        running = rewards[..., t] + xp.where(mask[..., t], gamma * running, running)
        columns.append(running)
    return _columns(columns[::-1], rewards)


def _backward(
    rewards: Array, values: Array, step: Array, after: Array, *, gamma: float, lam: float, last: Array | None = None
) -> Array:
    """Return the advantage of each step, 0 elsewhere.

    Positions that are no steps pass on what comes after them. Nothing comes after a position in ``last``.
    """
    xp = array_namespace(values)
    zero = xp.zeros_like(after)
    next_value, next_advantage, columns = after, zero, []
    for t in reversed(range(values.shape[-1])):
        if last is not None:
            next_value = xp.where(last[..., t], zero, next_value)
            next_advantage = xp.where(last[..., t], zero, next_advantage)
        value, is_step = values[..., t], step[..., t]
        advantage = rewards[..., t] + gamma * next_value - value + gamma * lam * next_advantage
        columns.append(xp.where(is_step, advantage, zero))
        next_value = xp.where(is_step, value, next_value)
        next_advantage = xp.where(is_step, advantage, next_advantage)
    return _columns(columns[::-1], values)


def _prepared(
    rewards: Array, values: Array, mask: Array, bootstrap: Array | float
) -> tuple[Array, Array, Array, Array]:
    """Return rewards and values of model tokens (0 elsewhere), the mask as bool, and the bootstrap of each row."""
    if not rewards.shape == values.shape == mask.shape:
        raise InputError(
            f"rewards of shape {tuple(rewards.shape)}, values {tuple(values.shape)}, mask {tuple(mask.shape)}; "
            "expected one of each a token: append no bootstrap value, give it as bootstrap."
        )
    xp = array_namespace(rewards, values, mask)
    dtype = working_dtype(rewards, values)
    rewards, values = (xp.astype(constant(array), dtype) for array in (rewards, values))
    mask = xp.astype(mask, xp.bool)
    values = xp.where(mask, values, xp.zeros_like(values))
    after = xp.asarray(constant(bootstrap), dtype=dtype, device=device(values))
    if after.shape not in ((), values.shape[:-1]):
        raise InputError(
            f"bootstrap of shape {tuple(after.shape)} for rows of shape {tuple(values.shape[:-1])}; expected one "
            "number or one a row: 0 for an episode that ended, the value of the state reached for one that was cut off."
        )
    for name, array in (("a reward", rewards), ("the value of a model token", values), ("a bootstrap value", after)):
        if not bool(xp.all(xp.isfinite(array))):
            raise NonFiniteError(f"{name} is NaN or infinite; expected finite numbers: repair its source.")
    return _on_model_tokens(rewards, mask), values, mask, xp.broadcast_to(after, values.shape[:-1])


def _on_model_tokens(rewards: Array, mask: Array) -> Array:
    """Return the rewards with those of environment tokens added to the last model token before them."""
    xp = array_namespace(rewards)
    waiting = zero = xp.zeros_like(xp.sum(rewards, axis=-1))
    columns = []
    for t in reversed(range(rewards.shape[-1])):
        waiting = rewards[..., t] + waiting
        columns.append(xp.where(mask[..., t], waiting, zero))
        waiting = xp.where(mask[..., t], zero, waiting)
    if bool(xp.any((waiting != 0) & xp.any(mask, axis=-1))):
        raise InputError(
            "a reward lies before the first model token of its row; expected rewards on model tokens or after them: no "
            "action earned it, so leave it out."
        )
    return _columns(columns[::-1], rewards)


def _checked_ends(turn_end: Array, mask: Array) -> Array:
    """Return the turn ends as bool; each is a model token, and the last model token of each row is one."""
    xp = array_namespace(mask)
    if turn_end.shape != mask.shape:
        raise InputError(
            f"turn_end of shape {tuple(turn_end.shape)}, mask {tuple(mask.shape)}; expected one entry a token: true on "
            "the last model token of each turn."
        )
    turn_end = xp.astype(turn_end, xp.bool)
    if bool(xp.any(turn_end & ~mask)):
        raise InputError("a turn ends on an environment token; expected turn_end on the last token the model sampled.")
    ends_to_come = xp.flip(xp.cumulative_sum(xp.flip(xp.astype(turn_end, xp.int64), axis=-1), axis=-1), axis=-1)
    if bool(xp.any(mask & (ends_to_come == 0))):
        raise InputError(
            "model tokens follow the last turn end of their row; expected turn_end on the last model token of each "
            "row: mark a turn that was cut off too, and give what would have followed as bootstrap."
        )
    return turn_end


def _turn_starts(mask: Array, turn_end: Array) -> Array:
    """Return where a turn starts: the first model token of the row or after a turn end."""
    xp = array_namespace(mask)
    fresh, columns = xp.ones(mask.shape[:-1], dtype=xp.bool, device=device(mask)), []
    for t in range(mask.shape[-1]):
        columns.append(mask[..., t] & fresh)
        fresh = xp.where(mask[..., t], turn_end[..., t], fresh)
    return _columns(columns, mask)


def _held(values: Array, at: Array) -> Array:
    """Return at each position the latest value of a chosen one, 0 before the first."""
    xp = array_namespace(values)
    held, columns = xp.zeros(values.shape[:-1], dtype=values.dtype, device=device(values)), []
    for t in range(values.shape[-1]):
        held = xp.where(at[..., t], values[..., t], held)
        columns.append(held)
    return _columns(columns, values)


def _columns(columns: list[Array], like: Array) -> Array:
    """Return the columns side by side; of no columns, an empty array like the given one."""
    xp = array_namespace(like)
    return xp.stack(columns, axis=-1) if columns else xp.zeros_like(like)


def _require_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise InputError(f"{name}={share}; expected 0 to 1 (usual: 1 for episodes with a reward at the end).")
