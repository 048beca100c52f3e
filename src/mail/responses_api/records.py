"""The caller's stored responses: the newest form of each, and the calls that each one asked for.

They are rows among the owner's memories, so nothing forgets them before they are deleted,
also where a store in memory forgets their task.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from mail.core.large import in_turn, json_line
from mail.core.usage import Usage
from mail.db.records import MemoryRow, Owner
from mail.db.store import Store

_RESPONSES: Final = ("mail:responses",)
_NEWEST: Final = ("mail:newest-responses",)
_CALLS: Final = ("mail:response-calls",)
_MAX_KEY: Final = 256
NEWEST_TASKS: Final = 500
"""Among so many of its newest tasks a caller's task is found by a call without a row of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A response, what its task had used before it, and the number of its run's first event.

    ``began`` is 0 for a record of a version that did not note it.
    """

    response: dict[str, Any]
    before: Usage = field(default_factory=Usage.none)
    began: int = 0

    @property
    def id(self) -> str:
        """The response's id."""
        return str(self.response["id"])

    @property
    def task_id(self) -> str:
        """The id of its task."""
        return str(self.response["task_id"])

    @property
    def status(self) -> str:
        """The response's status."""
        return str(self.response["status"])

    @property
    def ended(self) -> bool:
        """Tell whether its status is final."""
        return self.status != "in_progress"

    @property
    def row(self) -> MemoryRow:
        """The row that is stored."""
        before = self.before.to_dict()
        value = {"before": before, "began": self.began, "response": self.response}
        return _row(_RESPONSES, self.id, value)


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one owner. Methods raise `mail.errors.StoreError`."""

    store: Store
    owner: Owner

    async def load(self, response_id: str) -> Record | None:
        """Return what is kept of a response, or None."""
        kept = await self._get(_RESPONSES, response_id)
        if kept is None:
            return None
        before = Usage.from_dict(kept["before"])
        return Record(response=kept["response"], before=before, began=kept.get("began", 0))

    async def end(self, record: Record) -> Record | None:
        """Keep the last form of a response, unless it was forgotten meanwhile, and its calls.

        The calls of an unstored response are kept, too: without them, a caller that sends the
        whole conversation each time could not answer them.

        Returns:
            The record; None for an unstored or forgotten response.
        """
        rows = [
            _row(_CALLS, key, {"task_id": record.task_id})
            for item in record.response["output"]
            if item["type"] == "function_call"
            for key in (item["id"], item["call_id"])
        ]
        is_kept = record.response["store"] and await self.load(record.id) is not None
        if is_kept:
            rows.append(record.row)
        await self._put(rows)
        return record if is_kept else None

    async def begin(self, record: Record) -> None:
        """Keep the record of a response that has begun: it is the newest of its task."""
        await self._put(self.rows(record))

    def rows(self, record: Record) -> list[MemoryRow]:
        """Return what `begin` keeps: the record, and that it is the newest; nothing if unstored."""
        if not record.response["store"]:
            return []
        return [record.row, _row(_NEWEST, record.task_id, {"id": record.id})]

    async def complete(self, record: Record) -> None:
        """Note where the run of a response began, if its process died before it could do so."""
        found = await self.load(record.id)
        if found is not None and not found.began and not found.ended:
            await self._put([record.row])

    async def delete(self, response_id: str) -> None:
        """Forget a response; its task stays."""
        await self.store.delete_memory(self.owner, _RESPONSES, response_id)

    async def newest(self, task_id: str) -> str | None:
        """Return the id of a task's newest response, or None."""
        kept = await self._get(_NEWEST, task_id)
        return None if kept is None else str(kept["id"])

    async def task_of(self, call_id: str, item_ids: Iterable[str]) -> str | None:
        """Return the id of the task that made a call, or None.

        Args:
            call_id: The call's id; two providers may give the same one, and the newest counts.
            item_ids: The ids of the call's items, which are without doubt.
        """
        for key in (*item_ids, call_id):
            kept = await self._get(_CALLS, key)
            if kept is not None:
                return str(kept["task_id"])
        return None

    async def paused_on(self, call_ids: Iterable[str]) -> str | None:
        """Return the id of the newest task that waits for one of the calls, or None.

        It is looked for among the `NEWEST_TASKS`. No row tells of the calls of a response whose
        end nobody has seen yet.
        """
        keys = [call_id for call_id in call_ids if is_key(call_id)]
        return await self.store.paused_on(self.owner, keys, NEWEST_TASKS) if keys else None

    async def _get(self, namespace: tuple[str, ...], key: str) -> dict[str, Any] | None:
        if not is_key(key):
            return None
        row = await self.store.get_memory(self.owner, namespace, key)
        if row is None:
            return None
        value: dict[str, Any] = await in_turn(len(row.value), partial(json.loads, row.value))
        return value

    async def _put(self, rows: list[MemoryRow]) -> None:
        if rows:
            await self.store.put_memories(self.owner, rows)


def is_key(text: str) -> bool:
    """Tell whether an id that a caller sent can be one at all; stores do not take every text."""
    return 0 < len(text) <= _MAX_KEY and text.isprintable()


def _row(namespace: tuple[str, ...], key: str, value: dict[str, Any]) -> MemoryRow:
    now = datetime.now(UTC).isoformat()
    return MemoryRow(namespace, key, json_line(value), now, now)
