"""Small stand-ins for tests: agents without a model, a clock, and a store that dies."""

import itertools
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from mail.clock import format_uuid
from mail.core.agents import AgentFunction, AgentOutput, ToolChoice
from mail.core.call_context import current_call
from mail.core.tools.call import AgentToolCall
from mail.db.commit import Commit, Receipt
from mail.db.store import Store
from mail.errors import AgentError

# --- agents -------------------------------------------------------------------------------------


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


# --- a clock ------------------------------------------------------------------------------------

_START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class FakeClock:
    """A `mail.clock.Clock` for tests.

    Args:
        start: The time at first, with a time zone.
        seed: Tells the ids of several clocks apart that write into one store.

    >>> clock = FakeClock()
    >>> clock.advance(minutes=5)
    >>> clock.now()
    '2026-01-01T12:05:00+00:00'
    """

    def __init__(self, start: datetime = _START, *, seed: int = 0) -> None:
        self._now = start.astimezone(UTC)
        self._seed = seed
        self._made = 0

    def now(self) -> str:
        """Return the time as RFC 3339 text in UTC."""
        return self._now.isoformat()

    def new_id(self) -> str:
        """Return the next id; the n-th of a clock is always the same."""
        self._made += 1
        value = self._seed.to_bytes(8, "big") + self._made.to_bytes(8, "big")
        return format_uuid(value, version=8)

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0) -> None:
        """Move the time on."""
        self._now += timedelta(seconds=seconds, minutes=minutes, hours=hours)


# --- a store that dies --------------------------------------------------------------------------

KillWhen = Literal["before", "after"]


class KillPoint:
    """The point at which a process dies: before or after the n-th commit that a test singles out.

    Args:
        when: Before the commit is made, or after it is made and before anybody hears of it.
        matches: Tells whether a commit is one of those counted.
        nth: The number of the call, counting from 1.
        die: The failure; by default the process ends at once, as after ``kill -9``.
    """

    def __init__(
        self,
        when: KillWhen,
        matches: Callable[[Commit], bool],
        nth: int = 1,
        die: Callable[[], object] = lambda: os._exit(9),
    ) -> None:
        self._when = when
        self._matches = matches
        self._left = nth
        self._die = die

    async def around(self, commit: Commit, make: Callable[[], Awaitable[Receipt]]) -> Receipt:
        """Make a commit, and die before or after it when its turn has come."""
        if not self._matches(commit):
            return await make()
        self._left -= 1
        if self._left == 0 and self._when == "before":
            self._die()
        receipt = await make()
        if self._left == 0 and self._when == "after":
            self._die()
        return receipt


class KillingStore:
    """A store that hands everything on to another one and dies at a `KillPoint`."""

    def __init__(self, store: Store, point: KillPoint) -> None:
        self._store = store
        self._point = point

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, commit: Commit) -> Receipt:
        """Commit as `mail.db.store.Store.commit` does."""
        return await self._point.around(commit, lambda: self._store.commit(commit))
