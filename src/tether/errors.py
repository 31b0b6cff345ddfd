"""Every error that Tether raises on purpose.

One root, :class:`TetherError`; each class also inherits the standard error that a caller would expect, so that
``except ValueError`` keeps working. A message has three parts: what was given, what was expected, what to do. All
classes take one message, which keeps them picklable across processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class TetherError(Exception):
    """Root of all errors raised by Tether."""


class InputError(TetherError, ValueError):
    """A value given to a function is not what the function takes."""


class ConfigError(TetherError, ValueError):
    """A configuration cannot be used: unknown key, wrong type, impossible combination."""


class GroupError(InputError):
    """Rollouts do not form groups: members with different prompts, or groups of one."""


class NonFiniteError(TetherError, ArithmeticError):
    """A number that must be finite is NaN or infinite."""


class ContextLengthError(InputError):
    """A context does not fit into the model's window together with its reply."""


class RecordError(TetherError, ValueError):
    """A rollout record, or a file of them, is inconsistent or of an unknown schema."""


class EnvironmentCheckError(TetherError, ValueError):
    """A custom environment breaks the protocol."""


class ModelError(TetherError, ValueError):
    """A model folder cannot be used: missing, without a tokenizer, of an unsupported kind."""


class RunFolderError(TetherError, RuntimeError):
    """A run folder exists already, is locked, or does not hold what a run needs."""


class MissingDependencyError(TetherError, ImportError):
    """An optional package is needed; the message says which extra installs it."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known name, or an empty string.

    >>> did_you_mean("grup_size", ["group_size", "steps"])
    "; did you mean 'group_size'?"
    """
    matches = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""
