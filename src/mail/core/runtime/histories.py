"""What each agent has seen and said in each task: append-only, and flat in cost.

Entries are shared: with every list that an agent is given, and between its turns. They are
read-only by contract. The store's rows are text that is written before anybody else has an entry,
so what an agent does to one never gets there; `mail.testing.HistoryGuard` finds out who does.
"""

from collections.abc import Iterable
from typing import Any

from pydantic_core import from_json, to_json

from mail.core.runtime.mailbox import LaneKey
from mail.db.base import HistoryRecords, Owner

__all__ = ["Entry", "Histories"]

Entry = dict[str, Any]


class Histories:
    """The histories of active tasks, loaded from the store on first use."""

    def __init__(self, store: HistoryRecords, owner: Owner) -> None:
        self._store = store
        self._owner = owner
        self._tasks: dict[str, dict[str, list[Entry]]] = {}

    async def view(self, key: LaneKey, more: list[Entry], *, fresh: bool) -> list[Entry]:
        """Return an agent's history followed by ``more``, as a new list of shared entries.

        Args:
            fresh: The task began in this process, so the store holds nothing that is not here.
        """
        entries = self._tasks.get(key.task_id, {}).get(key.agent)
        if entries is None:
            entries = [] if fresh else await self._load(key)
            self._tasks.setdefault(key.task_id, {})[key.agent] = entries
        return entries + more  # one copy; unpacking would make two of a long list

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

    async def _load(self, key: LaneKey) -> list[Entry]:
        rows = await self._store.history(self._owner, key.task_id, key.agent)
        return [entry for row in rows for entry in from_json(row)]
