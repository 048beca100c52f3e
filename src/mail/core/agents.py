"""An agent as the runtime sees it: a function and what it is allowed to do."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mail.core.actions import ActionCore
from mail.core.call_context import ModelRules
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import CATALOGUE

ToolChoice = str | dict[str, Any]
AgentOutput = tuple[str | None, list[AgentToolCall]]
AgentFunction = Callable[[list[dict[str, Any]], ToolChoice], Awaitable[AgentOutput]]
"""``await function(history, tool_choice)`` gives the reply's text and its tool calls.

The list is the function's own. Its entries are shared with later turns, and read-only: what an
agent does to one is never stored, but may be seen by its next turn in the same process.
"""


@dataclass(slots=True)
class AgentCore:
    """A callable agent, its communication targets, its actions and its permissions.

    ``models`` are the rules for the models of an agent that was defined elsewhere.
    """

    function: AgentFunction
    comm_targets: list[str]
    actions: Mapping[str, ActionCore] | None = None
    enable_entrypoint: bool = False
    enable_interswarm: bool = False
    can_complete_tasks: bool = False
    exclude_tools: frozenset[str] = frozenset()
    models: ModelRules | None = None

    def __post_init__(self) -> None:
        self.actions = self.actions or {}

    def can_access_action(self, action_name: str) -> bool:
        """Tell whether the agent has this action."""
        return action_name in (self.actions or {})

    def can_access_action_or_tool(self, name: str) -> bool:
        """Tell whether the agent may call this tool or action (MAIL-TOOL-4)."""
        if name in self.exclude_tools:
            return False
        tool = CATALOGUE.get(name)
        if tool is not None:
            return (tool.audience == "agent" or self.can_complete_tasks) and (
                self.enable_interswarm or not tool.interswarm
            )
        return self.can_access_action(name)
