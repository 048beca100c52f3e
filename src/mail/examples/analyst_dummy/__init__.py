"""The example analyst: projects figures, exactly, for whoever asks."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from mail.examples.analyst_dummy.actions import project_growth_action

__all__ = ["EXAMPLE", "project_growth_action"]

EXAMPLE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "factory": "mail.examples.analyst_dummy.agent:LiteLLMAnalystFunction",
        "actions": (project_growth_action,),
        "agent_params": {
            "llm": "scripted/mail.examples.scripts.consulting:ANALYST",
            "system": "python::mail.examples.analyst_dummy.prompts:SYSPROMPT",
            "use_proxy": False,
        },
        "tool_format": "completions",
    }
)
"""What `MAILAgentTemplate.from_example` makes of it."""
