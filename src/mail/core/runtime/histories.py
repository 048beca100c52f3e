"""The history of each agent in each task: append-only, and flat in cost.

Entries are shared: with every list that an agent is given, and between its turns. They are
read-only by contract. The store's rows are text that is written before anybody else has an entry,
so what an agent does to one never gets there; `mail.testing.HistoryGuard` finds out who does.

What is in memory for one owner is bounded in bytes: the histories that were used longest ago are
let go of, and read again when they are needed. Of agents with a long one, few work at a time.
"""

import asyncio
import sys
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pydantic_core import from_json, to_json

from mail.core.large import LARGE_AT_ONCE, in_turn
from mail.core.runtime.mailbox import LaneKey
from mail.db.records import Owner
from mail.db.tasks import EventVerbs

Entry = dict[str, Any]

_LONG: Final = 1024 * 1024
"""Bytes of a history of which `LARGE_AT_ONCE` are at work at a time."""


@dataclass(slots=True, eq=False)
class History:
    """One agent's history and its bytes.

    ``entries`` are not to change; they are empty while they are not in memory.
    """

    entries: list[Entry]
    size: int = 0
    in_memory: bool = True


class Histories:
    """The histories of active tasks, loaded from the store on first use.

    Args:
        store: Their store.
        owner: The owner of their tasks.
        most: The bytes that they may take in memory; None for no limit.
    """

    def __init__(self, store: EventVerbs, owner: Owner, most: int | None = None) -> None:
        self._store = store
        self._owner = owner
        self._lanes: OrderedDict[LaneKey, History] = OrderedDict()  # used last at the end
        self._agents: dict[str, set[str]] = {}
        self._size = 0
        self._most = sys.maxsize if most is None else most
        self._places = asyncio.Semaphore(LARGE_AT_ONCE)

    def at_hand(self, key: LaneKey, *, fresh: bool) -> History | None:
        """Return an agent's history; None when it is long or not in memory, and is to be `read`.

        Args:
            key: The task and agent of the history.
            fresh: The task began in this process, so the store holds nothing that is not here.
        """
        history = self._lanes.get(key)
        if history is None and fresh:
            history = self._put(key, [], 0)
        if history is None or not history.in_memory or history.size > _LONG:
            return None
        self._lanes.move_to_end(key)
        return history

    @asynccontextmanager
    async def read(self, key: LaneKey) -> AsyncGenerator[History, None]:
        """Give a history that is long or not in memory; it waits while there are many long ones."""
        history = self._lanes.get(key) or await self._load(key)
        if history.size <= _LONG:
            yield await self._in_memory(key)
            return
        async with self._places:
            yield await self._in_memory(key)

    async def _in_memory(self, key: LaneKey) -> History:
        history = self._lanes.get(key)
        if history is None or not history.in_memory:
            return await self._load(key)
        self._lanes.move_to_end(key)
        return history

    async def _load(self, key: LaneKey) -> History:
        rows = await self._store.history(self._owner, key.task_id, key.agent)
        size = sum(map(sys.getsizeof, rows))
        entries = await in_turn(size, partial(_decoded, rows))
        self._trim(size)
        return self._put(key, entries, size)

    def _put(self, key: LaneKey, entries: list[Entry], size: int) -> History:
        self._drop(key)
        history = self._lanes[key] = History(entries, size)
        self._agents.setdefault(key.task_id, set()).add(key.agent)
        self._size += size
        return history

    def _trim(self, more: int = 0) -> None:
        """Let go of what was used longest ago, as long as there is too much in memory."""
        for history in self._lanes.values():
            if self._size + more <= self._most:
                return
            if history.in_memory:
                self._size -= history.size
                history.entries, history.in_memory = [], False

    def append(self, key: LaneKey, entries: Iterable[Entry], written: Iterable[str]) -> None:
        """Add committed entries, with the texts that they are written as."""
        history = self._lanes.get(key)
        if history is None:
            return
        size = sum(map(sys.getsizeof, written))
        history.size += size
        if history.in_memory:
            history.entries.extend(entries)
            self._size += size
            self._trim()

    def forget(self, task_id: str, agent: str | None = None) -> None:
        """Let go of an agent's history in a task, or of all histories of the task."""
        if agent is not None:
            self._drop(LaneKey(task_id, agent))
            return
        for name in self._agents.pop(task_id, ()):
            self._drop(LaneKey(task_id, name))

    def _drop(self, key: LaneKey) -> None:
        history = self._lanes.pop(key, None)
        if history is not None and history.in_memory:
            self._size -= history.size

    def lanes(self) -> list[LaneKey]:
        """Return the histories that are in memory."""
        return [key for key, history in self._lanes.items() if history.in_memory]

    def known(self, key: LaneKey) -> list[Entry]:
        """Return a copy of a history that is in memory."""
        copied: list[Entry] = from_json(to_json(self._lanes[key].entries))
        return copied


def _decoded(rows: list[str]) -> list[Entry]:
    """Return the entries of rows, each of which is let go of when it has been read."""
    entries: list[Entry] = []
    rows.reverse()
    while rows:
        entries += from_json(rows.pop())
    return edited_history(entries)


# --- calls that a person has edited ---------------------------------------------------------------

_EDIT: Final = "mail:edited_call"


def edit_entry(call_id: str, arguments: Mapping[str, Any]) -> Entry:
    """Return the entry by which a history says that a call was run with other arguments.

    What the agent wrote stays as it is in the store; agents are given a copy with the edit.
    """
    return {"role": "system", "type": _EDIT, "call_id": call_id, "arguments": dict(arguments)}


def edited_history(entries: Sequence[Entry]) -> list[Entry]:
    """Return a history in which edited calls have the arguments that they were run with."""
    edited: list[Entry] = []
    for entry in entries:
        if entry.get("type") != _EDIT:
            edited.append(entry)
            continue
        given = {str(entry["call_id"]): entry["arguments"]}
        for place in range(len(edited) - 1, -1, -1):
            changed = with_arguments(edited[place], given)
            if changed is not edited[place]:
                edited[place] = changed
                break
    return edited


def with_arguments(entry: Entry, given: Mapping[str, dict[str, Any]]) -> Entry:
    """Return an entry of any format in which calls, by their ids, have the given arguments.

    Without such a call it is the entry itself.
    """
    if entry.get("type") == "function_call" and entry.get("call_id") in given:
        return entry | {"arguments": to_json(given[entry["call_id"]]).decode()}
    changed = entry
    for name in ("tool_calls", "content"):
        if isinstance(parts := entry.get(name), list):
            edited = [_edited(part, given) for part in parts]
            if any(new is not old for new, old in zip(edited, parts, strict=True)):
                changed = changed | {name: edited}
    return changed


def _edited(part: Any, given: Mapping[str, dict[str, Any]]) -> Any:
    """Return a call of the chat-completions format, or a block of Anthropic's, if it is one."""
    if not isinstance(part, dict) or part.get("id") not in given:
        return part
    arguments = given[part["id"]]
    if part.get("type") == "tool_use":
        return part | {"input": arguments}
    if "function" not in part:
        return part
    return part | {
        "function": (part["function"] or {}) | {"arguments": to_json(arguments).decode()}
    }
