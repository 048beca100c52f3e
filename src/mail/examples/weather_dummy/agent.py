"""The agent function of the example weather worker."""

from typing import Any

from mail.examples.weather_dummy.prompts import SYSPROMPT
from mail.factories.action import LiteLLMActionAgentFunction


class LiteLLMWeatherFunction(LiteLLMActionAgentFunction):
    """Answers questions about the weather; the prompt of this package is its default."""

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of `mail.factories.LiteLLMActionAgentFunction`."""
        super().__init__(**{"system": SYSPROMPT, **params})
