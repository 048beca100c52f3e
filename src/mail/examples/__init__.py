"""Example agents and swarms, see ``docs/examples.md``. An agent of a team is one module."""

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar


class Prompted:
    """Comes before the class of an agent: gives it a system prompt of its own by default."""

    prompt: ClassVar[str]

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of the class of the agent."""
        super().__init__(**{"system": self.prompt, **params})


def example(
    module: str,
    factory: str,
    script: str,
    actions: tuple[Any, ...] = (),
    prompt: str = "SYSPROMPT",
    **rights: bool,
) -> Mapping[str, Any]:
    """Return an agent without name and targets: what `MAILAgentTemplate.from_example` adds to.

    Swarms files name an agent's class, prompt and actions in modules ``….agent``, ``….prompts`` and
    ``….actions``; here all three are one module, which gets these names, too (as ``os.path`` does).

    Args:
        module: The agent's module.
        factory: The name of its class.
        script: The script that plays it, in `mail.examples.scripts`.
        actions: Its actions.
        prompt: The name of its system prompt.
        rights: ``enable_entrypoint`` and ``can_complete_tasks``.
    """
    for part in ("actions", "agent", "prompts"):
        sys.modules[f"{module}.{part}"] = sys.modules[module]
    params = {
        "llm": f"scripted/mail.examples.scripts{script}",
        "system": f"python::{module}.prompts:{prompt}",
        "use_proxy": False,
    }
    return MappingProxyType(
        {
            "factory": f"{module}.agent:{factory}",
            "actions": actions,
            "agent_params": params,
            "tool_format": "completions",
            **rights,
        }
    )
