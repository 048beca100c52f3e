"""The agent functions of the data analysis example."""

from typing import Any

from mail.examples.data_analysis.prompts import (
    COMPARER_SYSPROMPT,
    LEAD_SYSPROMPT,
    STATISTICIAN_SYSPROMPT,
)
from mail.factories.action import LiteLLMActionAgentFunction
from mail.factories.supervisor import LiteLLMSupervisorFunction


class LiteLLMAnalysisLeadFunction(LiteLLMSupervisorFunction):
    """Broadcasts a question to the whole team and puts the answers together."""

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of `mail.factories.LiteLLMSupervisorFunction`."""
        super().__init__(**{"system": LEAD_SYSPROMPT, **params})


class LiteLLMStatisticianFunction(LiteLLMActionAgentFunction):
    """Describes a column as a whole."""

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of `mail.factories.LiteLLMActionAgentFunction`."""
        super().__init__(**{"system": STATISTICIAN_SYSPROMPT, **params})


class LiteLLMComparerFunction(LiteLLMActionAgentFunction):
    """Compares groups of rows."""

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of `mail.factories.LiteLLMActionAgentFunction`."""
        super().__init__(**{"system": COMPARER_SYSPROMPT, **params})
