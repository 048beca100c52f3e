"""An action (an agent's own tool) and its safe execution."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mail.core.tools.call import AgentToolCall

__all__ = ["ActionCore", "ActionFunction", "ActionOverrideFunction", "ActionResult"]

ActionFunction = Callable[[dict[str, Any]], Awaitable[str]]
"""Takes the call's arguments, returns the text shown to the agent."""

ActionOverrideFunction = Callable[[AgentToolCall], Awaitable[dict[str, Any] | str]]
"""Answers a call in place of the action itself."""

ActionResult = tuple[str, dict[str, Any]]
"""``("success" | "error", {"content": text})``."""


@dataclass(slots=True)
class ActionCore:
    """A named callable with the JSON Schema of its arguments.

    ``idempotent`` declares that running the action twice with the same arguments is harmless:
    after a crash such an action is run again, any other is reported as "outcome unknown".
    """

    function: ActionFunction
    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    idempotent: bool = False

    async def execute(
        self,
        call: AgentToolCall,
        actions: Mapping[str, "ActionCore"] | None = None,
        action_override: ActionOverrideFunction | None = None,
    ) -> ActionResult:
        """Run the action, or what stands in for it; failures become an ``"error"`` result.

        Args:
            call: The agent's call.
            actions: A table of actions; its entry of the same name is run in place of this one.
            action_override: Answers the call in place of the action; may return text or a dict
                that holds ``content``.
        """
        target = (actions or {}).get(self.name, self)
        try:
            if action_override is None:
                content: Any = await target.function(call.tool_args)
            else:
                content = await action_override(call)
        except Exception as error:  # noqa: BLE001 - any failure of foreign code is the agent's to see
            kind = "action tool" if action_override is None else "action override tool"
            return "error", {"content": f"failed to execute {kind}: {error}"}
        if isinstance(content, dict):
            return "success", content
        return "success", {"content": content if isinstance(content, str) else str(content)}
