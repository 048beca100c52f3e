"""Agents without a model: tool calls made by hand, and agent functions made of plain ones."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mail.core.agents import AgentFunction, AgentOutput, ToolChoice
from mail.core.tools.call import AgentToolCall

__all__ = ["agent_from", "replies", "tool_calls"]


def tool_calls(*calls: tuple[str, dict[str, Any]], prefix: str = "call") -> list[AgentToolCall]:
    """Return tool calls as a model of the chat-completions format would make them.

    Args:
        calls: Tool name and arguments of each call.
        prefix: The ids are ``<prefix>_0``, ``<prefix>_1``, …

    >>> [call.tool_name for call in tool_calls(("task_complete", {"finish_message": "done"}))]
    ['task_complete']
    """
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"{prefix}_{index}", "type": "function", "function": {"name": name}}
            for index, (name, _) in enumerate(calls)
        ],
    }
    return [
        AgentToolCall(
            tool_name=name, tool_args=args, tool_call_id=f"{prefix}_{index}", completion=message
        )
        for index, (name, args) in enumerate(calls)
    ]


def agent_from(
    function: Callable[[list[dict[str, Any]], ToolChoice], Sequence[tuple[str, dict[str, Any]]]],
    prefix: str = "call",
) -> AgentFunction:
    """Make an agent of a plain function from history to (tool name, arguments) pairs.

    The ids of its calls are ``<prefix>_<turn>_<call>``.
    """
    numbers: Iterator[int] = itertools.count()

    async def agent(messages: list[dict[str, Any]], tool_choice: ToolChoice) -> AgentOutput:
        return None, tool_calls(
            *function(messages, tool_choice), prefix=f"{prefix}_{next(numbers)}"
        )

    return agent


def replies(*turns: Sequence[tuple[str, dict[str, Any]]]) -> AgentFunction:
    """Make an agent that makes the given calls, one list per turn, and then awaits messages."""
    left = iter(turns)
    return agent_from(lambda messages, tool_choice: next(left, [("await_message", {})]))
