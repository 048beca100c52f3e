"""The calculator: exact, and bounded before it computes."""

import contextlib
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mail.examples.math_dummy.actions import calculate_expression

from mail.errors import ToolError
from mail.examples.math_dummy import evaluate, show


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("17 * 23", "391"),
        ("0.1 + 0.2", "0.3"),
        ("1/3", "0.333333333333"),
        ("2/3", "0.666666666667"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("2**10", "1024"),
        ("2^10", "1024"),
        ("2**-2", "0.25"),
        ("2**0.5", "1.414213562373"),
        ("(1 + 2) * -(3 - 5)", "6"),
        ("6 \u00d7 7 \u2212 2", "40"),
        ("1e3 + .5", "1000.5"),
        ("1/3 - 1/3", "0"),
        ("-1/8", "-0.125"),
        ("1e-20", "1e-20"),
        ("0**0", "1"),
        ("(-1)**99999999999", "-1"),
        ("1.50", "1.5"),
        ("2**1000 - 2**1000 + 1", "1"),
        ("10**400 / 10**399", "10"),
        ("+".join(["1"] * 99), "99"),
    ],
)
async def test_arithmetic_is_exact(expression: str, result: str) -> None:
    assert await calculate_expression({"expression": expression}) == result


@pytest.mark.parametrize(
    ("precision", "result"),
    [(0, "1"), (2, "0.67"), (12, "0.666666666667"), (None, "0.666666666667")],
)
async def test_precision_is_a_number_of_decimal_places(precision: object, result: str) -> None:
    assert await calculate_expression({"expression": "2/3", "precision": precision}) == result


async def test_precision_pads_with_zeros() -> None:
    assert await calculate_expression({"expression": "-1/2", "precision": 3}) == "-0.500"
    assert await calculate_expression({"expression": "5", "precision": 2}) == "5.00"


@pytest.mark.parametrize("precision", [-1, 13, 1.5, True, "2"])
async def test_a_precision_out_of_range_is_refused(precision: object) -> None:
    with pytest.raises(ToolError, match="precision must be a whole number from 0 to 12"):
        await calculate_expression({"expression": "1", "precision": precision})


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("9**9**9", "too large"),
        ("9**9**9**9**9", "too large"),
        ("(((9**99)**99)**99)", "too large"),
        ("2**8192 * 2**8192", "too large"),
        ("1e999999999", "too large"),
        ("10**10000", "too large"),
        ("2**-20000", "too large"),
        ("(10**2000)**0.5", "too large"),
        ("*".join(["9**999"] * 9), "too large"),
        ("(" * 1000, "not well-formed"),
        ("(" * 400 + "1" + ")" * 400, "not well-formed"),
        ("(" * 5_000 + "1" + ")" * 5_000, "longer than 1000"),
        ("-" * 999 + "1", "not well-formed|nested deeper|too many parts"),
        ("-" * 5_000 + "1", "longer than 1000"),
        ("+".join(["1"] * 101), "nested deeper|too many parts"),
        ("1" * 1001, "longer than 1000"),
        ("1/0", "division by zero"),
        ("5 % (2-2)", "division by zero"),
        ("5 // 0.0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("(-8)**(1/3)", "negative number"),
        ("__import__('os')", "names and functions are not allowed: '__import__'"),
        ("pi * 2", "names and functions are not allowed: 'pi'"),
        ("(1).real", "names and functions are not allowed: 'real'"),
        ("1 .bit_length()", "names and functions are not allowed"),
        ("1 if 1 else 2", "names and functions are not allowed: 'if'"),
        ("1and 2", "names and functions are not allowed"),
        ("1_000", "names and functions|not allowed"),
        ("0x10", "names and functions are not allowed: 'x10'"),
        ("1j", "names and functions are not allowed"),
        ("[1]", "'\\[' is not allowed"),
        ("'a'", "''' is not allowed"),
        ("1 < 2", "'<' is not allowed"),
        ("1 = 1", "'=' is not allowed"),
        ("1,000", "',' is not allowed"),
        ("~1", "'~' is not allowed"),
        ("1; 2", "';' is not allowed"),
        ("1\x002", "is not allowed"),
        ("1 +", "not well-formed"),
        ("1 2", "not well-formed"),
        ("1(2)", "only numbers"),
        ("()", "only numbers"),
        ("007", "not well-formed"),
        ("", "empty"),
        ("  ", "empty"),
    ],
)
async def test_anything_else_is_refused_at_once(expression: str, reason: str) -> None:
    started = time.process_time()
    with pytest.raises(ToolError, match=reason):
        await calculate_expression({"expression": expression})
    assert time.process_time() - started < 5.0


@pytest.mark.parametrize("args", [{}, {"expression": None}, {"expression": 5}])
async def test_an_expression_must_be_text(args: dict[str, object]) -> None:
    with pytest.raises(ToolError, match="expression must be a string"):
        await calculate_expression(args)


_numbers = st.one_of(
    st.integers(0, 10**12).map(str),
    st.decimals(0, 10**6, places=4, allow_nan=False).map(lambda value: f"{value:f}"),
)
_expressions = st.recursive(
    _numbers,
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    ),
    max_leaves=12,
)


def _oracle(expression: str) -> Fraction:
    import re

    text = re.sub(r"\d+(?:\.\d+)?", lambda number: f"Fraction('{number.group()}')", expression)
    return Fraction(eval(text, {"Fraction": Fraction}))  # noqa: S307 - our own strings


@given(_expressions)
@settings(max_examples=200, deadline=None)
def test_values_are_those_of_fractions(expression: str) -> None:
    try:
        expected = _oracle(expression)
    except ZeroDivisionError:
        with pytest.raises(ToolError, match="division by zero"):
            evaluate(expression)
        return
    assert evaluate(expression) == expected


@given(st.text(alphabet="0123456789.+-*/%()^ eE", max_size=60))
@settings(max_examples=500, deadline=None)
def test_any_text_gives_a_value_or_an_error_quickly(text: str) -> None:
    started = time.process_time()
    with contextlib.suppress(ToolError):
        show(evaluate(text))
    assert time.process_time() - started < 5.0


@given(st.fractions(), st.integers(0, 12))
@settings(max_examples=200, deadline=None)
def test_shown_values_are_rounded_to_the_precision(value: Fraction, precision: int) -> None:
    shown = Fraction(show(value, precision))
    assert abs(shown - value) * 2 * 10**precision <= 1
