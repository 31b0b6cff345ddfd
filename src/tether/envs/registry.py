"""Environments by name: the built-in ones, and ``module:Class`` for anybody's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tether.envs.bandit import Bandit
from tether.envs.countdown import Countdown
from tether.envs.frozen_lake import FrozenLake
from tether.envs.identity import Identity
from tether.envs.protocol import Environment
from tether.envs.sokoban import Sokoban
from tether.errors import ConfigError, did_you_mean

_BUILT_IN: dict[str, Callable[..., Environment]] = {
    environment.name: environment for environment in (Bandit, Countdown, FrozenLake, Identity, Sokoban)
}


def names() -> list[str]:
    """Return the names of the built-in environments.

    >>> names()
    ['bandit', 'countdown', 'frozen_lake', 'identity', 'sokoban']
    """
    return sorted(_BUILT_IN)


def make(name: str, /, **options: Any) -> Environment:
    """Make an environment by its name, or by ``"module:Class"`` for a class or factory that can be imported.

    Raises:
        ConfigError: The name or an option is unknown (the message says which is nearest), an option is missing, or a
            value cannot be used.

    >>> make("frozen_lake", size=3, holes=0, max_turns=2).max_turns
    2
    """
    factory = _factory(name)
    _check_options(name, factory, options)
    return factory(**options)


def accepts(name: str, option: str) -> bool:
    """Return whether an environment has an option of this name.

    >>> accepts("frozen_lake", "split")
    True

    Raises:
        ConfigError: If the environment is unknown.
    """
    parameters = inspect.signature(_factory(name)).parameters
    return option in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _factory(name: str) -> Callable[..., Environment]:
    factory = _imported(name) if ":" in name else _BUILT_IN.get(name)
    if factory is None:
        raise ConfigError(
            f"unknown environment {name!r}; expected one of {', '.join(names())}, or module:Class for your own"
            f"{did_you_mean(name, names())}"
        )
    return factory


def _imported(name: str) -> Callable[..., Environment]:
    """Import ``module:Class``; an import that fails inside that module is not hidden."""
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(f"environment {name!r}: {module_name!r} is no module name; expected package.module:Class.")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(
            f"environment {name!r}: there is no module {error.name!r}; expected module:Class, with the module's folder "
            "on PYTHONPATH. Check the spelling, or install the package that has it."
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise ConfigError(
            f"environment {name!r}: {module_name} has no class or function {attribute!r}; expected one that makes an "
            f"environment{did_you_mean(attribute, vars(module))}"
        )
    made: Callable[..., Environment] = factory
    return made


def _check_options(name: str, factory: Callable[..., Environment], options: dict[str, Any]) -> None:
    parameters = inspect.signature(factory).parameters.values()
    keywords = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    known = [p.name for p in keywords]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters) and (unknown := sorted(set(options) - set(known))):
        raise ConfigError(
            f"environment {name!r} has no option {unknown[0]!r}; its options are {', '.join(known) or 'none'}"
            f"{did_you_mean(unknown[0], known)}"
        )
    if missing := [p.name for p in keywords if p.default is p.empty and p.name not in options]:
        raise ConfigError(f"environment {name!r} needs the option {missing[0]!r}; expected a value. Give {missing[0]}.")
