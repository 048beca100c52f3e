"""The agent function of the example consultant."""

from typing import Any

from mail.examples.consultant_dummy.prompts import SYSPROMPT
from mail.factories.base import LiteLLMAgentFunction


class LiteLLMConsultantFunction(LiteLLMAgentFunction):
    """Advises on figures that change; the prompt of this package is its default."""

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of `mail.factories.LiteLLMAgentFunction`."""
        super().__init__(**{"system": SYSPROMPT, **params})
