"""The example consultant: advises, and leaves the figures to an analyst."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

__all__ = ["EXAMPLE"]

EXAMPLE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "factory": "mail.examples.consultant_dummy.agent:LiteLLMConsultantFunction",
        "actions": (),
        "agent_params": {
            "llm": "scripted/mail.examples.scripts.consulting:CONSULTANT",
            "system": "python::mail.examples.consultant_dummy.prompts:SYSPROMPT",
            "use_proxy": False,
        },
        "tool_format": "completions",
    }
)
"""What `MAILAgentTemplate.from_example` makes of it."""
