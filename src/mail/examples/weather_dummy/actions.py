"""Made-up weather forecasts: always the same for the same place and day, so examples repeat."""

import hashlib
from typing import Any, Final

from mail.api.actions import MAILAction
from mail.errors import ToolError

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
    location = _location(args.get("location"))
    days = _days(args.get("days_ahead"))
    metric = args.get("metric")
    if not (metric is None or isinstance(metric, bool)):
        raise ToolError("metric must be true or false")
    return _forecast(location, days, metric is not False)


def _location(value: object) -> str:
    location = " ".join(value.split()) if isinstance(value, str) else ""
    if not 1 <= len(location) <= _MAX_LOCATION:
        raise ToolError(f"location must be the name of a place, 1 to {_MAX_LOCATION} characters")
    return location


def _days(value: object) -> int:
    days = 0 if value is None else value
    if isinstance(days, bool) or not isinstance(days, int) or not 0 <= days <= MAX_DAYS_AHEAD:
        raise ToolError(f"days_ahead must be a whole number from 0 to {MAX_DAYS_AHEAD}")
    return days


def _forecast(location: str, days: int, metric: bool) -> str:
    seed = hashlib.sha256(f"{location.casefold()}/{days}".encode()).digest()
    condition = _CONDITIONS[seed[0] % len(_CONDITIONS)]
    high = seed[1] % 36 - 3
    low = high - 3 - seed[2] % 8
    unit = "°C" if metric else "°F"
    if not metric:
        high, low = round(high * 9 / 5 + 32), round(low * 9 / 5 + 32)
    rain = 5 * (seed[3] % 5 + (12 if "rain" in condition else 0))
    return (
        f"{location}, {_day(days)}: {condition}, high {high} {unit}, low {low} {unit}, "
        f"chance of rain {rain} %"
    )


def _day(days: int) -> str:
    return ("today", "tomorrow")[days] if days < 2 else f"in {days} days"


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
