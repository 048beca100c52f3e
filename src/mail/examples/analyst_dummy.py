"""The example analyst: projects figures by compound growth, in exact arithmetic."""

from fractions import Fraction
from typing import Any, Final

from mail.api.actions import MAILAction
from mail.errors import ToolError
from mail.examples import Prompted, example
from mail.factories.base import LiteLLMAgentFunction

SYSPROMPT: Final = """\
You are the analyst of a small consulting team. Colleagues ask you how a figure develops.

Take from the request the figure of today, its growth in percent for each period (negative if it
shrinks) and the number of periods, and call `project_growth` with them. Never work out growth in
your head. If one of the three is missing, ask the colleague for it instead of assuming one.

Then answer the colleague with `send_response`: the projected figure as the tool gives it, and what
it was computed from. Leave advice to the consultant.
"""

MAX_PERIODS: Final = 120
_MAX_START: Final = 1_000_000_000_000
_MAX_RESULT: Final = 10**18
_PERCENT: Final = (-100, 1_000)
_DECIMALS: Final = 6


async def project_growth(args: dict[str, Any]) -> str:
    """Return what a figure becomes that grows by so many percent in each of so many periods.

    Args:
        args: ``start`` (0 to 10**12), ``percent`` (-100 to 1,000), ``periods`` (1 to 120).

    Raises:
        ToolError: an argument that is missing or out of range, or a result that is too large.
    """
    start = _number(args.get("start"), "start", 0, _MAX_START)
    percent = _number(args.get("percent"), "percent", *_PERCENT)
    periods = args.get("periods")
    if isinstance(periods, bool) or not isinstance(periods, int) or not 1 <= periods <= MAX_PERIODS:
        raise ToolError(f"periods must be a whole number from 1 to {MAX_PERIODS}")
    value = start * (1 + percent / 100) ** periods
    if value > _MAX_RESULT:
        raise ToolError("the projected figure is too large to mean anything")
    return f"{_shown(start)} at {_shown(percent)} % per period becomes {_rounded(value)}"


def _number(value: object, name: str, low: int, high: int) -> Fraction:
    # Not a number fails the comparison, too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ToolError(f"{name} must be a number from {low} to {high}")
    return round(Fraction(repr(value)), _DECIMALS)


def _shown(value: Fraction) -> str:
    return f"{float(value):.{_DECIMALS}f}".rstrip("0").rstrip(".")


def _rounded(value: Fraction) -> str:
    return f"{float(round(value, 1)):.1f}"


project_growth_action: Final = MAILAction(
    name="project_growth",
    description="Project a figure that grows or shrinks by a fixed percentage per period",
    parameters={
        "type": "object",
        "properties": {
            "start": {
                "type": "number",
                "minimum": 0,
                "maximum": _MAX_START,
                "description": "The figure of today",
            },
            "percent": {
                "type": "number",
                "minimum": _PERCENT[0],
                "maximum": _PERCENT[1],
                "description": "Growth per period in percent; negative if it shrinks",
            },
            "periods": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_PERIODS,
                "description": "The number of periods, for example months",
            },
        },
        "required": ["start", "percent", "periods"],
    },
    function=project_growth,
    idempotent=True,
)


class LiteLLMAnalystFunction(Prompted, LiteLLMAgentFunction):
    """Projects figures."""

    prompt = SYSPROMPT


EXAMPLE: Final = example(
    __name__, "LiteLLMAnalystFunction", ".consulting:ANALYST", (project_growth_action,)
)
