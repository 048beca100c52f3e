"""The example math worker."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from mail.examples.math_dummy.actions import calculate_expression_action

__all__ = ["EXAMPLE", "calculate_expression_action"]

EXAMPLE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "factory": "mail.examples.math_dummy.agent:LiteLLMMathFunction",
        "actions": (calculate_expression_action,),
        "agent_params": {
            "llm": "scripted/mail.examples.scripts:MATH",
            "system": "python::mail.examples.math_dummy.prompts:SYSPROMPT",
            "use_proxy": False,
        },
        "tool_format": "completions",
    }
)
"""What `MAILAgentTemplate.from_example` makes of it."""
