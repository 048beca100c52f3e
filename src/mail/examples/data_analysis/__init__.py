"""The data analysis example: a question is broadcast, and whoever can compute an answer sends it.

``harbour.csv`` is made up.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from mail.examples.data_analysis.actions import compare_groups_action, describe_column_action

__all__ = ["EXAMPLE", "compare_groups_action", "describe_column_action"]

EXAMPLE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "factory": "mail.examples.data_analysis.agent:LiteLLMStatisticianFunction",
        "actions": (describe_column_action,),
        "agent_params": {
            "llm": "scripted/mail.examples.scripts.data_analysis:STATISTICIAN",
            "system": "python::mail.examples.data_analysis.prompts:STATISTICIAN_SYSPROMPT",
            "use_proxy": False,
        },
        "tool_format": "completions",
    }
)
"""The statistician, without name and targets: the keywords of `MAILAgentTemplate`."""
