"""Checks of option values; a value that cannot be used is a configuration error that names the option."""

from __future__ import annotations

from collections.abc import Sequence

from tether.errors import ConfigError, did_you_mean


def check_integer(name: str, value: object, *, low: int, high: int | None = None, why: str = "") -> None:
    """Refuse anything but an integer from ``low`` to ``high``; ``why`` says where the bounds come from."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
        reason = f" ({why})" if why else ""
        raise ConfigError(f"{name} is {value!r}; expected an integer {bounds}{reason}. Change {name}.")


def check_number(name: str, value: object, *, low: float, high: float) -> None:
    """Refuse anything but a number from ``low`` to ``high``, NaN included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"{name} is {value!r}; expected a number from {low:g} to {high:g}. Change {name}.")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse anything but one of the choices."""
    if value not in choices:
        hint = did_you_mean(str(value), choices)
        raise ConfigError(f"{name} is {value!r}; expected one of {', '.join(choices)}{hint}")
