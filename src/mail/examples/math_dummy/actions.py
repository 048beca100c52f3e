"""The calculator of the example math worker."""

from typing import Any, Final

from mail.api.actions import MAILAction
from mail.errors import ToolError
from mail.examples.math_dummy.arithmetic import MAX_LENGTH, evaluate, show

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
