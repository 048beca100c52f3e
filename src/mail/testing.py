"""Doubles for tests: tool calls without a model, agents from plain functions, a store that kills.

Ships with the package, so that users test their swarms with the same pieces as we do ours.
"""

import itertools
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal

from mail.core.agents import AgentFunction, AgentOutput, ToolChoice
from mail.core.tools.call import AgentToolCall
from mail.db.base import Post, Receipt, Store, TurnCommit

__all__ = ["KillPoint", "KillingStore", "agent_from", "replies", "tool_calls"]


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


KillWhen = Literal["before", "after"]


class KillPoint:
    """Where a process dies: before or after the n-th commit that a test singles out.

    Args:
        when: Before the commit is made, or after it is made and before anybody hears of it.
        matches: Tells whether a commit is one of those counted.
        nth: Which of them, counting from 1.
        die: What happens; by default the process ends at once, as after ``kill -9``.
    """

    def __init__(
        self,
        when: KillWhen,
        matches: Callable[[Post], bool],
        nth: int = 1,
        die: Callable[[], object] = lambda: os._exit(9),
    ) -> None:
        self._when = when
        self._matches = matches
        self._left = nth
        self._die = die

    async def around(self, post: Post, commit: Callable[[], Awaitable[Receipt]]) -> Receipt:
        """Make a commit, and die before or after it when its turn has come."""
        if not self._matches(post):
            return await commit()
        self._left -= 1
        if self._left == 0 and self._when == "before":
            self._die()
        receipt = await commit()
        if self._left == 0 and self._when == "after":
            self._die()
        return receipt


class KillingStore:
    """A store that hands everything on to another one and dies at a `KillPoint` (ruling 53)."""

    def __init__(self, store: Store, point: KillPoint) -> None:
        self._store = store
        self._point = point

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def post(self, post: Post) -> Receipt:
        """See `mail.db.base.Store.post`."""
        return await self._point.around(post, lambda: self._store.post(post))

    async def commit_turn(self, turn: TurnCommit) -> Receipt:
        """See `mail.db.base.Store.commit_turn`."""
        return await self._point.around(turn, lambda: self._store.commit_turn(turn))
