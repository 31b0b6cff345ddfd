"""Arithmetic expressions: exact values, what is malformed, and texts that mean harm."""

import ast
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.envs import parse_expression

APPLY = {
    ast.Add: Fraction.__add__,
    ast.Sub: Fraction.__sub__,
    ast.Mult: Fraction.__mul__,
    ast.Div: Fraction.__truediv__,
}


def python_value(text):
    """Read a well-formed expression with Python's own grammar."""

    def value(node):
        if isinstance(node, ast.Constant):
            return Fraction(node.value)
        return APPLY[type(node.op)](value(node.left), value(node.right))

    return value(ast.parse(text, mode="eval").body)


numbers = st.integers(0, 120).map(str)
expressions = st.recursive(
    numbers,
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["+", "-", "*", "/", " + ", " * "]), part).map("".join),
        part.map("({})".format),
        part.map("( {} )".format),
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(expressions.filter(lambda text: len(text) <= 200))
def test_values_are_pythons_in_exact_arithmetic(text):
    try:
        expected = python_value(text)
    except ZeroDivisionError:
        assert parse_expression(text) is None
    else:
        assert parse_expression(text).value == expected


@pytest.mark.parametrize(
    ("text", "value", "used"),
    [
        ("7", 7, (7,)),
        ("0", 0, (0,)),
        ("1+2*3", 7, (1, 2, 3)),
        ("(1+2)*3", 9, (1, 2, 3)),
        ("8-3-2", 3, (8, 3, 2)),
        ("8/4/2", 1, (8, 4, 2)),
        ("8-(3-2)", 7, (8, 3, 2)),
        ("1/3+1/3+1/3", 1, (1, 3, 1, 3, 1, 3)),
        ("((((5))))", 5, (5,)),
        ("\t1 +\n2 ", 3, (1, 2)),
        ("10*10", 100, (10, 10)),
    ],
)
def test_expressions(text, value, used):
    found = parse_expression(text)
    assert (found.value, found.numbers) == (value, used)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "+", "1+", "1+2+3+4+", "+1", "-1+2", "2*-1", "1 2", "1(2)", "(1)2", "(1)(2)"),
        *("()", "(", ")", "(1", "1)", ")1(", "(1+)2", "1..2", "1.5", ".5", "1e3", "01", "007", "1_000", "0x10"),
        *("1+2=3", "x", "1+a", "1;2", "1,2", "2**3", "2//3", "2^3", "5%2", "1<2", "~1", "1#2", "1\\\n+2"),
        *("1 if 1 else 2", "lambda: 1", "__import__('os')"),
    ],
)
def test_malformed(text):
    assert parse_expression(text) is None


@pytest.mark.parametrize("text", ["1/0", "1/(2-2)", "5*(3/(1-1))", "0/0"])
def test_a_division_by_zero_is_malformed(text):
    assert parse_expression(text) is None


@pytest.mark.parametrize(
    "text",
    ["９＋１", "١+٢", "²+1", "1+½", "1−2", "2×3", "6÷2", "1\u00a0+2", "1\u200b+2", "①+1", "1+2\x00", "߁", "\ud800"],
)
def test_digits_signs_and_blanks_outside_ascii_are_malformed(text):
    assert parse_expression(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9**9**9",
        "9" * 100_000,
        "(" * 100_000 + "1" + ")" * 100_000,
        "(" * 90 + "1" + ")" * 90,
        "(" * 200,
        "-" * 200,
        "1+" * 100,
        "*".join(["9"] * 100),
        "/".join(["97"] * 66),
        "9" * 99 + "*" + "9" * 99,
        "1" * 199 + "!",
        " " * 10_000_000,
    ],
    ids=lambda text: f"{text[:8]}... {len(text)}",
)
def test_hostile_texts_are_read_or_refused_and_their_values_stay_small(text):
    """What must not happen would take hours, the memory or the stack."""
    found = parse_expression(text)
    if found is not None:
        assert len(text) <= 200
        assert len(str(found.value)) <= 2 * 200


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=250), st.text("0123456789+-*/() ", max_size=60)))
def test_any_text_is_an_expression_or_malformed(text):
    found = parse_expression(text)
    if found is not None:
        assert set(text) <= set("0123456789+-*/() \t\n\r\f\v")
        assert found.value == python_value("".join(text.split()))
