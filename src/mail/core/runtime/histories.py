"""What each agent has seen and said in each task: append-only, and flat in cost.

Entries are shared: with every list that an agent is given, and between its turns. They are
read-only by contract. The store's rows are text that is written before anybody else has an entry,
so what an agent does to one never gets there; `mail.testing.HistoryGuard` finds out who does.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic_core import from_json, to_json

from mail.core.runtime.mailbox import LaneKey
from mail.db.base import HistoryRecords, Owner

__all__ = ["Entry", "Histories", "edit_entry", "edited_history", "with_arguments"]

Entry = dict[str, Any]


class Histories:
    """The histories of active tasks, loaded from the store on first use."""

    def __init__(self, store: HistoryRecords, owner: Owner) -> None:
        self._store = store
        self._owner = owner
        self._tasks: dict[str, dict[str, list[Entry]]] = {}

    def at_hand(self, key: LaneKey, *, fresh: bool) -> list[Entry] | None:
        """Return an agent's history; None when it must be loaded first. The list is not to change.

        Args:
            fresh: The task began in this process, so the store holds nothing that is not here.
        """
        own = self._tasks.get(key.task_id)
        entries = own.get(key.agent) if own is not None else None
        if entries is None and fresh:
            entries = self._tasks.setdefault(key.task_id, {})[key.agent] = []
        return entries

    async def load(self, key: LaneKey) -> list[Entry]:
        """Load an agent's history from the store, and return it as `at_hand` does."""
        rows = await self._store.history(self._owner, key.task_id, key.agent)
        entries = edited_history([entry for row in rows for entry in from_json(row)])
        self._tasks.setdefault(key.task_id, {})[key.agent] = entries
        return entries

    def append(self, key: LaneKey, entries: Iterable[Entry]) -> None:
        """Add committed entries."""
        known = self._tasks.get(key.task_id, {}).get(key.agent)
        if known is not None:
            known.extend(entries)

    def forget(self, task_id: str, agent: str | None = None) -> None:
        """Let go of an agent's history in a task, or of all histories of the task."""
        if agent is None:
            self._tasks.pop(task_id, None)
        else:
            self._tasks.get(task_id, {}).pop(agent, None)

    def lanes(self) -> list[LaneKey]:
        """Return the histories that are in memory."""
        return [LaneKey(task_id, agent) for task_id, own in self._tasks.items() for agent in own]

    def known(self, key: LaneKey) -> list[Entry]:
        """Return a copy of a history that is in memory."""
        copied: list[Entry] = from_json(to_json(self._tasks[key.task_id][key.agent]))
        return copied


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
            if changed != edited[place]:
                edited[place] = changed
                break
            if _has_call(edited[place], given):
                break  # it was edited to the same
    return edited


def _has_call(entry: Entry, given: Mapping[str, Any]) -> bool:
    calls, blocks = entry.get("tool_calls") or (), entry.get("content")
    if entry.get("role") == "assistant" and isinstance(blocks, list):
        calls = [*calls, *blocks]
    ids = [call.get("id") for call in calls if isinstance(call, dict)]
    if entry.get("type") == "function_call":
        ids.append(entry.get("call_id"))
    return any(each in given for each in ids)


def with_arguments(entry: Entry, given: Mapping[str, dict[str, Any]]) -> Entry:
    """Return an entry of any format in which calls, by their ids, have the given arguments."""
    if entry.get("type") == "function_call" and entry.get("call_id") in given:
        return entry | {"arguments": to_json(given[entry["call_id"]]).decode()}
    changed = entry
    if isinstance(calls := entry.get("tool_calls"), list):
        changed = changed | {"tool_calls": [_chat_call(call, given) for call in calls]}
    if isinstance(blocks := entry.get("content"), list):
        changed = changed | {"content": [_block(block, given) for block in blocks]}
    return changed


def _chat_call(call: Any, given: Mapping[str, dict[str, Any]]) -> Any:
    if not isinstance(call, dict) or call.get("id") not in given:
        return call
    function = call.get("function") or {}
    return call | {"function": function | {"arguments": to_json(given[call["id"]]).decode()}}


def _block(block: Any, given: Mapping[str, dict[str, Any]]) -> Any:
    if (
        not isinstance(block, dict)
        or block.get("type") != "tool_use"
        or block.get("id") not in given
    ):
        return block
    return block | {"input": given[block["id"]]}
