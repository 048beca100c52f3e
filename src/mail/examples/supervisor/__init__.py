"""The example supervisor."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

__all__ = ["EXAMPLE"]

EXAMPLE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "factory": "mail.examples.supervisor.agent:LiteLLMSupervisorFunction",
        "actions": (),
        "agent_params": {
            "llm": "scripted/mail.examples.scripts:SUPERVISOR",
            "system": "python::mail.examples.supervisor.prompts:SYSPROMPT",
            "use_proxy": False,
        },
        "enable_entrypoint": True,
        "can_complete_tasks": True,
        "tool_format": "completions",
    }
)
"""What `MAILAgentTemplate.from_example` makes of it."""
