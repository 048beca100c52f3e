"""The ``tool_call`` events of a reply: one per call, before any handling (CHECKLIST.md)."""

from collections.abc import Sequence
from typing import Any, Final

from mail.core.runtime.turn_result import Draft
from mail.core.tools.call import AgentToolCall

__all__ = ["log_tool_calls"]

_PRIVATE: Final = {"acknowledge_broadcast": "note", "ignore_broadcast": "reason"}
"""Arguments that document 000 keeps inside the agent."""


def log_tool_calls(draft: Draft, agent: str, calls: Sequence[AgentToolCall]) -> None:
    """Log every call with its reasoning; a call without any points to the last that had some."""
    reasoned: str | None = None
    for call in calls:
        hidden = _PRIVATE.get(call.tool_name)
        extra: dict[str, Any] = {
            "tool_name": call.tool_name,
            "tool_args": _without(call.tool_args, hidden) if hidden else call.tool_args,
            "tool_call_id": call.tool_call_id,
            "caller": agent,
        }
        blocks = [block for block in call.reasoning or () if block.strip()]
        if blocks:
            extra["reasoning"] = "\n\n".join(blocks)
            reasoned = call.tool_call_id
        elif reasoned is not None:
            extra["reasoning_ref"] = reasoned
        if call.preamble:
            extra["preamble"] = call.preamble
        draft.log("tool_call", f"agent {agent} called {call.tool_name}", **extra)


def _without(arguments: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in arguments.items() if key != name}
