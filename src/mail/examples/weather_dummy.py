"""The example weather worker. Its forecasts are made up, the same for the same place and day."""

import hashlib
from typing import Any, Final

from mail.api.actions import MAILAction
from mail.errors import ToolError
from mail.examples import Prompted, example
from mail.factories.action import LiteLLMActionAgentFunction

SYSPROMPT: Final = """\
You are the weather agent of a small team. Other agents ask you for forecasts.

For each place and day that you are asked about, call `get_weather_forecast`: `days_ahead` is 0 for
today, 1 for tomorrow, and so on. If no day is named, take today. Use metric units unless the
request asks for Fahrenheit.

When you have the results, answer the agent that asked with `send_response`. Repeat the figures
exactly as the forecast gives them. If a place is missing or a forecast cannot be had, say which and
why. Do not make up weather.
"""

MAX_DAYS_AHEAD: Final = 14

_CONDITIONS = ("sunny", "partly cloudy", "cloudy", "light rain", "heavy rain", "windy", "foggy")
_MAX_LOCATION = 100


async def get_weather_forecast(args: dict[str, Any]) -> str:
    """Return the forecast for a place and day as one sentence.

    Args:
        args: ``location`` (text), ``days_ahead`` (0 to 14, default 0), ``metric`` (default true).

    Raises:
        ToolError: an argument that is missing or out of range.
    """
    location = " ".join(str(args.get("location") or "").split())
    if not 1 <= len(location) <= _MAX_LOCATION:
        raise ToolError(f"location must be the name of a place, 1 to {_MAX_LOCATION} characters")
    days = int(args.get("days_ahead") or 0)
    if not 0 <= days <= MAX_DAYS_AHEAD:
        raise ToolError(f"days_ahead must be a whole number from 0 to {MAX_DAYS_AHEAD}")
    return _forecast(location, days, args.get("metric") is not False)


def _forecast(location: str, days: int, metric: bool) -> str:
    seed = hashlib.sha256(f"{location.casefold()}/{days}".encode()).digest()
    condition = _CONDITIONS[seed[0] % len(_CONDITIONS)]
    high = seed[1] % 36 - 3
    low = high - 3 - seed[2] % 8
    unit = "°C" if metric else "°F"
    if not metric:
        high, low = round(high * 9 / 5 + 32), round(low * 9 / 5 + 32)
    rain = 5 * (seed[3] % 5 + (12 if "rain" in condition else 0))
    day = ("today", "tomorrow")[days] if days < 2 else f"in {days} days"
    return (
        f"{location}, {day}: {condition}, high {high} {unit}, low {low} {unit}, "
        f"chance of rain {rain} %"
    )


get_weather_forecast_action: Final = MAILAction(
    name="get_weather_forecast",
    description="Get the weather forecast for a given location",
    parameters={
        "type": "object",
        "properties": {
            "location": {
                "type": "string",
                "description": "The location to get the weather forecast for",
            },
            "days_ahead": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_DAYS_AHEAD,
                "description": "The number of days ahead: 0 is today, 1 is tomorrow",
            },
            "metric": {"type": "boolean", "description": "Whether to use metric units"},
        },
        "required": ["location"],
    },
    function=get_weather_forecast,
    idempotent=True,
)


class LiteLLMWeatherFunction(Prompted, LiteLLMActionAgentFunction):
    """Answers questions about the weather."""

    prompt = SYSPROMPT


EXAMPLE: Final = example(
    __name__, "LiteLLMWeatherFunction", ":WEATHER", (get_weather_forecast_action,)
)
