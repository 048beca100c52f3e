"""The agent functions of the research example."""

from typing import Any

from mail.examples.research.prompts import LEAD_SYSPROMPT, READER_SYSPROMPT
from mail.factories.action import LiteLLMActionAgentFunction
from mail.factories.supervisor import LiteLLMSupervisorFunction


class LiteLLMReaderFunction(LiteLLMActionAgentFunction):
    """Finds passages in the notes and quotes them; its prompt is the default."""

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of `mail.factories.LiteLLMActionAgentFunction`."""
        super().__init__(**{"system": READER_SYSPROMPT, **params})


class LiteLLMResearchLeadFunction(LiteLLMSupervisorFunction):
    """Splits a question among readers and puts their findings together."""

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of `mail.factories.LiteLLMSupervisorFunction`."""
        super().__init__(**{"system": LEAD_SYSPROMPT, **params})
