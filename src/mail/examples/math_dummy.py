"""The example math worker. Its arithmetic is exact, and bounded before it is computed."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

from mail.api.actions import MAILAction
from mail.errors import ToolError
from mail.examples import Prompted, example
from mail.factories.action import LiteLLMActionAgentFunction

SYSPROMPT: Final = """\
You are the math agent of a small team. Other agents ask you to calculate.

Write each calculation as an arithmetic expression of numbers, + - * / // % **, and parentheses, and
call `calculate_expression` with it. Never calculate in your head, not even simple sums. Give
`precision` only if a number of decimal places is asked for.

When you have the results, answer the agent that asked with `send_response`: each expression with
its result. If something cannot be calculated, say what and why.
"""

MAX_LENGTH: Final = 1_000
_MAX_NODES = 200
_MAX_DEPTH = 100
_MAX_BITS = 8_192
_MAX_EXPONENT = 10_000

# The signs of print: times, middle dot, division, minus, en dash. A caret becomes one character
# that nobody types, so that it is told from what Python takes it for.
_SIGNS = str.maketrans("\u00d7\u00b7\u00f7\u2212\u2013^", "**/--\u2303")
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_TOKENS = re.compile(rf"(?:\s+|{_NUMBER}|[-+*/%()\u2303])*+")
_WORD = re.compile(r"[^\W\d]\w*")
_DECIMALS = 12
_SIGNIFICANT = 12
_SMALL = Fraction(1, 10_000)


def evaluate(expression: str) -> Fraction:
    """Return the exact value of an arithmetic expression.

    Numbers, parentheses and ``+ - * / // % **`` (or ``^``) may be used. Only a power with a
    fractional exponent is rounded, to the precision of a float.

    Raises:
        ToolError: it is not such an expression, is too large, or has no value.
    """
    return _value(_parse(expression))


def show(value: Fraction, precision: int | None = None) -> str:
    """Write a value as a decimal number.

    Args:
        value: The value.
        precision: So many decimal places; by default as many as it takes, at most 12.

    Raises:
        ToolError: the number has too many digits to be written.
    """
    if precision is None and value.denominator > 1 and abs(value) < _SMALL:
        return f"{_to_float(value):.{_SIGNIFICANT}g}"
    places = _DECIMALS if precision is None else precision
    scaled = round(value * 10**places)
    digits = str(abs(scaled)).rjust(places + 1, "0")
    whole, part = digits[: len(digits) - places], digits[len(digits) - places :]
    if precision is None:
        part = part.rstrip("0")
    sign = "-" if scaled < 0 else ""
    return f"{sign}{whole}.{part}" if part else f"{sign}{whole}"


def _parse(expression: str) -> ast.expr:
    if len(expression) > MAX_LENGTH:
        raise ToolError(f"the expression is longer than {MAX_LENGTH} characters")
    text = expression.translate(_SIGNS).strip()
    if not text:
        raise ToolError("the expression is empty")
    end = _TOKENS.match(text)
    if end is not None and end.end() < len(text):
        raise ToolError(_stranger(text[end.end() :]))
    try:
        tree = ast.parse(text.replace("\u2303", "**"), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolError("the expression is not well-formed arithmetic") from None
    _check_size(tree.body)
    return tree.body


def _stranger(rest: str) -> str:
    word = _WORD.match(rest.lstrip("."))
    if word:
        return f"names and functions are not allowed: '{word.group()[:40]}'"
    return f"'{rest[0]}' is not allowed in an arithmetic expression"


def _check_size(root: ast.expr) -> None:
    """Count nodes and levels without recursion, so that nothing can be too deep for the count."""
    level: list[ast.AST] = [root]
    count = depth = 0
    while level:
        depth += 1
        count += len(level)
        if depth > _MAX_DEPTH:
            raise ToolError(f"the expression is nested deeper than {_MAX_DEPTH} levels")
        if count > _MAX_NODES:
            raise ToolError("the expression has too many parts")
        level = [
            child
            for node in level
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.expr)
        ]


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant):
        return _number(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        operate = _OPERATIONS.get(type(node.op))
        if operate is not None:
            try:
                return _bounded(Fraction(operate(_value(node.left), _value(node.right))))
            except ZeroDivisionError:
                raise ToolError("division by zero") from None
    raise ToolError("only numbers, + - * / // % ** and parentheses are allowed")


def _number(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ToolError("only numbers are allowed")
    if value in (float("inf"), float("-inf")):
        raise ToolError("a number is too large")
    # The shortest text of a float is the decimal number that was written: 0.1 is 1/10.
    return _bounded(Fraction(repr(value)) if isinstance(value, float) else Fraction(value))


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _bounded(value: Fraction) -> Fraction:
    if _bits(value) > _MAX_BITS:
        raise ToolError("the result is too large")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator > 1:
        return _root(base, exponent)
    size = abs(exponent.numerator)
    if base not in (0, 1, -1) and (size > _MAX_EXPONENT or (_bits(base) - 1) * size > _MAX_BITS):
        raise ToolError("the result is too large")
    return base**exponent.numerator


def _root(base: Fraction, exponent: Fraction) -> Fraction:
    if base < 0:
        raise ToolError("a negative number has no such power")
    try:
        return Fraction(repr(_to_float(base) ** _to_float(exponent)))
    except (OverflowError, ValueError):
        raise ToolError("the result is too large") from None


def _to_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ToolError("the result is too large") from None


_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
MAX_PRECISION: Final = 12


async def calculate_expression(args: dict[str, Any]) -> str:
    """Return the value of an arithmetic expression as a decimal number.

    Args:
        args: ``expression`` (text of at most 1,000 characters: numbers, ``+ - * / // % **`` and
            parentheses), ``precision`` (decimal places, 0 to 12; by default as many as it takes).

    Raises:
        ToolError: the expression is not arithmetic, too large, or has no value.
    """
    expression = args.get("expression")
    if not isinstance(expression, str):
        raise ToolError("expression must be a string")
    precision = args.get("precision")
    if precision is not None and (
        isinstance(precision, bool)
        or not isinstance(precision, int)
        or not 0 <= precision <= MAX_PRECISION
    ):
        raise ToolError(f"precision must be a whole number from 0 to {MAX_PRECISION}")
    return show(evaluate(expression), precision)


calculate_expression_action: Final = MAILAction(
    name="calculate_expression",
    description="Evaluate a basic arithmetic expression inside the math agent",
    parameters={
        "type": "object",
        "properties": {
            "expression": {
                "type": "string",
                "maxLength": MAX_LENGTH,
                "description": "Expression to evaluate",
            },
            "precision": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_PRECISION,
                "description": "Optional number of decimal places",
            },
        },
        "required": ["expression"],
    },
    function=calculate_expression,
    idempotent=True,
)


class LiteLLMMathFunction(Prompted, LiteLLMActionAgentFunction):
    """Answers calculations."""

    prompt = SYSPROMPT


EXAMPLE: Final = example(__name__, "LiteLLMMathFunction", ":MATH", (calculate_expression_action,))
