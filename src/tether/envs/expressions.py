"""Arithmetic as a model writes it: whole numbers, + - * / and parentheses, read exactly and without running anything.

A loop over tokens, without recursion and without Python's grammar: there are no powers, names or calls to forbid, and
nesting costs no stack. The length of a text bounds all work, and the size of every number.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

MAX_LENGTH = 200
_TOKEN = re.compile(r"[0-9]+|\S", re.ASCII)  # whatever is no token of the language is refused where it is met
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2}
_APPLY: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


@dataclass(frozen=True, slots=True)
class Expression:
    """The exact value of an expression and the numbers in it, in their order."""

    value: Fraction
    numbers: tuple[int, ...]


def parse_expression(text: str) -> Expression | None:
    """Read an arithmetic expression; None if it is malformed, which includes a division by zero.

    Malformed is also what other languages would read: signs (``-3 + 5``), leading zeros, decimals, powers, digits other
    than 0 to 9, an equation, and a text of more than 200 characters.

    >>> parse_expression("(1 + 3) / 2 * 5")
    Expression(value=Fraction(10, 1), numbers=(1, 3, 2, 5))
    >>> [parse_expression(text) for text in ("2 ** 3", "1 / (2 - 2)", "1 + 2 = 3")]
    [None, None, None]
    """
    if len(text) > MAX_LENGTH:
        return None
    tokens = _TOKEN.findall(text)
    try:
        value = _evaluate(tokens)
    except (_MalformedError, ZeroDivisionError):
        return None
    return Expression(value, tuple(int(token) for token in tokens if _NUMBER.fullmatch(token)))


class _MalformedError(Exception):
    """The tokens are no expression."""


def _evaluate(tokens: Sequence[str]) -> Fraction:
    """Return the value of an expression in infix notation (Dijkstra's shunting yard)."""
    values: list[Fraction] = []
    pending: list[str] = []  # operators that wait for their right operand, and open parentheses
    operand_next = True
    for token in tokens:
        if operand_next and token == "(":
            pending.append(token)
        elif operand_next and _NUMBER.fullmatch(token):
            values.append(Fraction(int(token)))
            operand_next = False
        elif not operand_next and token in _RANK:
            _apply_pending(values, pending, _RANK[token])
            pending.append(token)
            operand_next = True
        elif not operand_next and token == ")":
            _apply_pending(values, pending)
            if not pending:
                raise _MalformedError
            pending.pop()
        else:
            raise _MalformedError
    if operand_next:
        raise _MalformedError
    _apply_pending(values, pending)
    if pending:
        raise _MalformedError
    return values[0]


def _apply_pending(values: list[Fraction], pending: list[str], rank: int = 1) -> None:
    """Apply the operators of at least this rank, back to the last open parenthesis."""
    while pending and _RANK.get(pending[-1], 0) >= rank:
        right, left = values.pop(), values.pop()
        values.append(_APPLY[pending.pop()](left, right))
