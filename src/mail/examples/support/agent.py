"""The agent functions of the support example."""

from typing import Any

from mail.examples.support.prompts import BILLING_SYSPROMPT, DESK_SYSPROMPT, ORDERS_SYSPROMPT
from mail.factories.action import LiteLLMActionAgentFunction
from mail.factories.supervisor import LiteLLMSupervisorFunction


class LiteLLMDeskFunction(LiteLLMSupervisorFunction):
    """Speaks with the customer and asks its colleagues."""

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of `mail.factories.LiteLLMSupervisorFunction`."""
        super().__init__(**{"system": DESK_SYSPROMPT, **params})


class LiteLLMOrdersFunction(LiteLLMActionAgentFunction):
    """Knows the orders."""

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of `mail.factories.LiteLLMActionAgentFunction`."""
        super().__init__(**{"system": ORDERS_SYSPROMPT, **params})


class LiteLLMBillingFunction(LiteLLMActionAgentFunction):
    """Asks a person for refunds, and reports what was decided."""

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of `mail.factories.LiteLLMActionAgentFunction`."""
        super().__init__(**{"system": BILLING_SYSPROMPT, **params})
