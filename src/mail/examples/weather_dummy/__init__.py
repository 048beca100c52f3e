"""The example weather worker. Its forecasts are made up, the same for the same place and day."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from mail.examples.weather_dummy.actions import get_weather_forecast_action

__all__ = ["EXAMPLE", "get_weather_forecast_action"]

EXAMPLE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "factory": "mail.examples.weather_dummy.agent:LiteLLMWeatherFunction",
        "actions": (get_weather_forecast_action,),
        "agent_params": {
            "llm": "scripted/mail.examples.scripts:WEATHER",
            "system": "python::mail.examples.weather_dummy.prompts:SYSPROMPT",
            "use_proxy": False,
        },
        "tool_format": "completions",
    }
)
"""What `MAILAgentTemplate.from_example` makes of it."""
