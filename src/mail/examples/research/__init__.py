"""The research example: two readers look through notes at the same time, and cite what they find.

The notes about the coast in ``notes/`` are our own.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from mail.examples.research.actions import read_note_action, search_notes_action

__all__ = ["EXAMPLE", "read_note_action", "search_notes_action"]

EXAMPLE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "factory": "mail.examples.research.agent:LiteLLMReaderFunction",
        "actions": (search_notes_action, read_note_action),
        "agent_params": {
            "llm": "scripted/mail.examples.scripts.research:READER",
            "system": "python::mail.examples.research.prompts:READER_SYSPROMPT",
            "use_proxy": False,
        },
        "tool_format": "completions",
    }
)
"""A reader, without name and targets: the keywords of `MAILAgentTemplate`."""
