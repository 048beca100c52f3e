"""The support example: looks up orders, and refunds money only when a person has decided."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from mail.examples.support.actions import look_up_order_action, refund_order_action

__all__ = ["EXAMPLE", "look_up_order_action", "refund_order_action"]

EXAMPLE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "factory": "mail.examples.support.agent:LiteLLMOrdersFunction",
        "actions": (look_up_order_action,),
        "agent_params": {
            "llm": "scripted/mail.examples.scripts.support:ORDERS",
            "system": "python::mail.examples.support.prompts:ORDERS_SYSPROMPT",
            "use_proxy": False,
        },
        "tool_format": "completions",
    }
)
"""The agent that knows the orders, without name and targets: keywords of `MAILAgentTemplate`."""
