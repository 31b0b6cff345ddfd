"""How undecided the policy is at each token."""

# _B rows | _T tokens | _V vocabulary

from __future__ import annotations

from array_api_compat import array_namespace

from tether.objectives._arrays import Array


def token_entropy(logits: Array) -> Array:
    """Entropy of the next-token distribution, in nats, (..., V) to (...).

    Between 0 and ``log V``. It sees variation inside one context only: reasoning that no longer depends on its prompt
    can keep it high. Forbidden tokens (logit -inf) count as probability 0. Divide the logits by the sampling
    temperature first if the entropy of the sampled distribution is wanted.

    >>> import numpy as np
    >>> float(token_entropy(np.array([0.0, 0.0, -np.inf])) / np.log(2))
    1.0
    """
    xp = array_namespace(logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    weight = xp.exp(shifted)
    total = xp.sum(weight, axis=-1)
    # 0 * -inf is NaN: what has no probability contributes nothing.
    finite = xp.where(weight > 0, shifted, xp.zeros_like(shifted))
    return xp.log(total) - xp.sum(weight * finite, axis=-1) / total
