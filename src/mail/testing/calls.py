"""Agents without a model: tool calls made by hand, and agent functions made of plain ones."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mail.core.agents import AgentFunction, AgentOutput, ToolChoice
from mail.core.call_context import current_call
from mail.core.tools.call import AgentToolCall
from mail.errors import AgentError


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


class HistoryGuard:
    """An agent function around yours that fails when yours changes an entry of its history.

    An agent owns the list that it is called with, but shares the entries with its later turns, and
    must not change them. The guard looks at them after each call, before the next call in the same
    task, and when a test calls `check`.

    Args:
        function: The agent function under test.
    """

    def __init__(self, function: AgentFunction) -> None:
        self._function = function
        self._given: dict[tuple[str, str], list[tuple[dict[str, Any], str]]] = {}

    async def __call__(
        self, messages: list[dict[str, Any]], tool_choice: ToolChoice
    ) -> AgentOutput:
        """Call the agent function.

        Raises:
            AssertionError: an entry is not what it was; the text shows it before and after.
        """
        call = current_call()
        key = (call.task_id, call.agent)
        _compare(self._given.get(key, ()))
        self._given[key] = [(entry, _text(entry)) for entry in messages]
        output = await self._function(messages, tool_choice)
        _compare(self._given[key])
        return output

    def check(self) -> None:
        """Compare the entries of the latest call in each task with what they were.

        Raises:
            AssertionError: see `__call__`.
        """
        for given in self._given.values():
            _compare(given)


class _ChangedHistory(AgentError, AssertionError):
    """An agent changed what it may only read; whoever asked it is told so."""


def _compare(given: Sequence[tuple[dict[str, Any], str]]) -> None:
    for number, (entry, before) in enumerate(given):
        after = _text(entry)
        if after != before:
            raise _ChangedHistory(
                f"the agent changed entry {number} of its history, which it may only read: it was "
                f"{before} and is {after}"
            )


def _text(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False, default=repr)
