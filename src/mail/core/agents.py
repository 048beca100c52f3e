"""An agent as the runtime sees it: a function and what it is allowed to do."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mail.core.actions import ActionCore
from mail.core.tools.call import AgentToolCall

__all__ = ["AgentCore", "AgentFunction", "AgentOutput", "ToolChoice"]

ToolChoice = str | dict[str, Any]
AgentOutput = tuple[str | None, list[AgentToolCall]]
AgentFunction = Callable[[list[dict[str, Any]], ToolChoice], Awaitable[AgentOutput]]
"""``await function(history, tool_choice)`` gives the reply's text and its tool calls."""

_FREE_TOOLS = frozenset(
    {
        "send_request",
        "send_response",
        "send_interrupt",
        "send_broadcast",
        "acknowledge_broadcast",
        "ignore_broadcast",
        "await_message",
        "help",
        "search_memory",
    }
)


@dataclass(slots=True)
class AgentCore:
    """A callable agent, its communication targets, its actions and its permissions."""

    function: AgentFunction
    comm_targets: list[str]
    actions: Mapping[str, ActionCore] | None = None
    enable_entrypoint: bool = False
    enable_interswarm: bool = False
    can_complete_tasks: bool = False
    exclude_tools: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.actions = self.actions or {}

    def can_access_action(self, action_name: str) -> bool:
        """Tell whether the agent has this action."""
        return action_name in (self.actions or {})

    def can_access_action_or_tool(self, name: str) -> bool:
        """Tell whether the agent may call this tool or action (ruling 15)."""
        if name in self.exclude_tools:
            return False
        if name == "task_complete":
            return self.can_complete_tasks
        return name in _FREE_TOOLS or self.can_access_action(name)
